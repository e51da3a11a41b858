#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# inspect.sh - kvrt inspect, for models that run and models that do not
#
# budget: 20 s
. "${BASH_SOURCE%/*}/checks.bash"

model=$KVMM_TOP/tests/data/demo-model
families=$KVMM_TOP/tests/data/families

inspect()	{ "$KVMM_BUILD/kvrt" inspect "$@"; }
one_line()	{ [ -n "$out" ] && [ "$out" = "${out##*$'\n'}" ]; }
# field KEY VALUE: has the JSON object in $out this value?
field()		{ grep -qE "^ *\"$1\": \"?$2\"?,?$" <<<"$out"; }

run inspect "$model"
check 'text: exit code' rc_is 0
check 'text: architecture' says '^architecture +LlamaForCausalLM$'
check 'text: parameters' says '^parameters +3\.8 M in 38 tensors, 1 file$'
check 'text: KV' says '^KV +2\.0 KiB a token in bf16$'
check 'text: tokenizer' says '^tokenizer +4096 tokens$'
check 'text: the least of a daemon' says '^--min-token-bytes +2048 at most, for the daemon$'
check 'text: pool' says '^pool +1\.0 GiB: 32768 blocks, 524288 tokens$'
check 'text: sequences' says '^sequences +512 of 1024 tokens$'

run inspect "$model" --dtype bf16 --pool-size 64M --block-tokens 32 --max-model-len 700
check 'options: KV' says '^KV +2\.0 KiB a token in bf16$'
check 'options: pool' says '^pool +64\.0 MiB: 1024 blocks, 32768 tokens$'
check 'options: sequences' says '^sequences +46 of 700 tokens$'

# ---- memory of packed weights; exact mode refuses to pack
run inspect --json "$model" --weights mapped
check 'mapped: nothing packed' field packed_bytes 0
run inspect --json "$model"
check 'auto: a small model stays mapped' field packed_bytes 0
if grep -qw avx512_bf16 /proc/cpuinfo; then
	run inspect "$model" --weights packed
	check 'packed: weights' says '^weights +7\.3 MiB: 0 B used as mapped, 9\.0 KiB copied, 7\.2 MiB packed$'
else
	echo 'this CPU has no bf16 products: packed weights are not inspected'
fi
run inspect "$model" --weights packed --mode exact
check 'packed in exact mode: exit code' rc_is 65
check 'packed in exact mode: why' says 'packs no weights on this CPU: choose fast mode, or mapped weights$'

for family in "$families"/*/; do
	name=$(basename "$family")
	run inspect --json --load-format dummy "$family"
	check "$name: exit code" rc_is 0
	check "$name: is JSON with costs" field kv_bytes_per_token '[1-9][0-9]*'
	check "$name: its tensors" field tensors '[1-9][0-9]*'
done

# ---- latent vectors: 3 layers of 48 numbers, beside 4 heads of 48 and 32
run inspect --load-format dummy "$families/deepseek2"
check 'latent: KV' says '^KV +576 B a token in f32$'
check 'latent: of heads' says '^instead of +3\.8 KiB a token with K and V of all heads$'
check 'latent: vectors' says '^latent vectors +32 numbers, 48 with the rotated part of keys; K and V of all heads would be 320$'
run inspect --json --load-format dummy "$families/deepseek2"
check 'latent: JSON' field kv_bytes_per_token 576
check 'latent: JSON of heads' field kv_bytes_per_token_of_heads 3840
run inspect --json --load-format dummy "$families/llama"
check 'no latent: JSON of heads' field kv_bytes_per_token_of_heads 512

# ---- layer groups: of 1 MiB, with f32 KV of 512 bytes a layer and token
sed 's/"max_position_embeddings": 256/"max_position_embeddings": 8192/' "$families/gemma3/config.json" >"$work/config.json"
run inspect --load-format dummy --kv-groups auto --dtype f32 --pool-size 1M "$families/gemma3"
check 'groups: full attention' says '^layer group +1 layer, no window, 48 tokens a block$'
check 'groups: window' says '^layer group +3 layers, window of 16 tokens, 16 tokens a block$'
check 'groups: block' says '^block +12\.0 KiB in each group$'
check 'groups: the least of a daemon' says '^--min-token-bytes +256 at most, for the daemon$'
check 'groups: pool' says '^pool +1\.0 MiB: 85 blocks$'
check 'groups: a short sequence' says '^KV of a sequence +256 tokens: 72\.0 KiB without a window, 192\.0 KiB with, 264\.0 KiB in all$'
mkdir "$work/long"
mv "$work/config.json" "$work/long"
run inspect --load-format dummy --kv-groups auto --dtype f32 --pool-size 16M "$work/long"
# 171 blocks of group 0; a window of 16 tokens and a step of 512: 34 blocks
check 'groups: a long sequence' says '^KV of a sequence +8192 tokens: 2\.0 MiB without a window, 408\.0 KiB with, 2\.4 MiB in all$'
check 'groups: long sequences' says '^sequences +6 of 8192 tokens$'
run inspect --json --load-format dummy --kv-groups auto --dtype f32 --pool-size 16M "$work/long"
check 'groups, JSON: bytes' field bytes 2519040
check 'groups, JSON: the least of a daemon' field min_token_bytes_max 256
check 'groups, JSON: window' field window 16
run inspect --load-format dummy --kv-groups one --dtype f32 --pool-size 16M "$work/long"
check 'one group: long sequences' says '^sequences +2 of 8192 tokens$'
check 'one group: no groups' says_not '^layer group'

# ---- recurrent layers: blocks of 4 KiB, units of 2240 bytes; 3 layers of 9 units
sed 's/"max_position_embeddings": 256/"max_position_embeddings": 8192/' "$families/granite/config.json" >"$work/config.json"
mkdir "$work/hybrid"
mv "$work/config.json" "$work/hybrid"
run inspect --load-format dummy --dtype f32 --pool-size 16M --block-tokens 16 "$work/hybrid"
check 'states: the layers' says '^recurrent +3 of 4 layers, 8 heads of 16 in 2 groups, 32 rows of state, convolution of 4 taps$'
check 'states: no positions' says '^positions +none$'
check 'states: KV' says '^KV +256 B a token in f32$'
check 'states: attention' says '^layer group +1 layer, no window, 16 tokens a block$'
check 'states: group' says '^layer group +3 recurrent layers, a record every 256 tokens$'
check 'states: ids of 256 tokens beside 4 KiB' says '^--min-token-bytes +no daemon takes it: '
check 'states: record' says '^record +59\.1 KiB in 27 blocks of 4\.0 KiB: 27 units of 2\.2 KiB$'
# 512 blocks; a step of 512 tokens has 3 records, and reads one more
check 'states: a sequence' says '^sequence +8192 tokens: 2\.0 MiB of KV, 432\.0 KiB of states, 2\.4 MiB in all$'
check 'states: a short sequence' says '^sequence +256 tokens: 64\.0 KiB of KV, 108\.0 KiB of states, 172\.0 KiB in all$'
check 'states: sequences' says '^sequences +6 of 8192 tokens$'
# By default blocks of KV have the tokens of a record, so a record has few blocks.
run inspect --load-format dummy --dtype f32 --pool-size 16M "$work/hybrid"
check 'states: blocks of KV' says '^layer group +1 layer, no window, 256 tokens a block$'
check 'states: a record of one block' says '^record +59\.1 KiB in 1 block of 64\.0 KiB: 27 units of 2\.2 KiB$'
check 'states: more sequences' says '^sequences +7 of 8192 tokens$'
run inspect --json --load-format dummy --dtype f32 --state-tokens 16 "$work/hybrid"
check 'states, JSON: tokens' field block_tokens 16
check 'states, JSON: units' field units 9
check 'states, JSON: bytes' field unit_bytes 2240
check 'states, JSON: blocks' field record_blocks 27

# ---- a model larger than any machine: kvrt inspect still answers
mkdir "$work/big"
sed 's/"num_hidden_layers": 2/"num_hidden_layers": 4000/; s/"hidden_size": 64/"hidden_size": 65536/;
     s/"intermediate_size": 96/"intermediate_size": 262144/' "$families/mistral/config.json" >"$work/big/config.json"
run inspect --json --load-format dummy "$work/big"
check 'big: exit code' rc_is 0
check 'big: parameters' field parameters '20[0-9]{13}'

# ---- reasons for a refusal
run inspect "$work/big"
check 'no weights: exit code' rc_is 66
check 'no weights: why' says 'neither model\.safetensors nor model\.safetensors\.index\.json is there'
sed 's/"rope_theta"/"rope_theta_of_ours"/' "$model/config.json" >"$work/big/config.json"
run inspect "$work/big"
check 'unknown key: exit code' rc_is 65
check 'unknown key: one line' one_line
check 'unknown key: by name' says '^kvrt: error: .*/config\.json: rope_theta_of_ours: is not known for LlamaForCausalLM'
run inspect --json "$work/big"
check 'unknown key, JSON: exit code' rc_is 65
check 'unknown key, JSON: why' says '"refused": ".*/config\.json: rope_theta_of_ours: is not known'
sed 's/"hidden_size": 256/"hidden_size": 320/' "$model/config.json" >"$work/big/config.json"
cp "$model/model.safetensors" "$work/big"
run inspect "$work/big"
check 'wrong shape: exit code' rc_is 65
check 'wrong shape: why' says 'tensor model\.embed_tokens\.weight: shape is \[4096, 256\], config\.json asks for \[4096, 320\]'
# ---- the tokenizer is a part of the model
mkdir "$work/half"
cp "$model"/{config.json,model.safetensors} "$work/half"
run inspect "$work/half"
check 'no tokenizer: exit code' rc_is 66
check 'no tokenizer: why' says 'tokenizer\.json: no such file'
run inspect --load-format dummy "$work/half"
check 'no tokenizer, made up: exit code' rc_is 0
echo '{' >"$work/half/tokenizer.json"
for format in auto dummy; do
	run inspect --json --load-format "$format" "$work/half"
	check "wrong tokenizer, $format: exit code" rc_is 65
	check "wrong tokenizer, $format: why" says '"refused": ".*/tokenizer\.json: line 2: '
done

# ---- names that JSON cannot hold
cp -r "$model" "$work/"$'m\xff'
run inspect --json "$work/"$'m\xff'
check 'name that is no UTF-8' says '"model": ".*/m\?"'

run inspect
check 'no folder: exit code' rc_is 64
run inspect "$work/nowhere"
check 'not there: exit code' rc_is 66
checks_done
