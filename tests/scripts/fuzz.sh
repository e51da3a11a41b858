#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# fuzz.sh - the fuzz targets of tests/fuzz, by themselves
#
# Each replays its corpus (tests/fuzz/corpus) and then mutates what is there;
# those of the runtime are given files that they understand.  The
# seed of the level check is fixed; above it, it is drawn and printed.  What finds
# more are the fuzzers: make fuzz.
#
# budget: 40 s, full 240 s
set -u
: "${KVMM_TOP:?set by tests/run}" "${KVMM_BUILD:?set by tests/run}"

case ${KVMM_TEST_LEVEL:-check} in
check)	rounds=20000 each=1500 seed=1 ;;
full)	rounds=500000 each=50000 seed=$RANDOM ;;
*)	rounds=5000000 each=1000000 seed=$RANDOM ;;
esac
cd "${TMPDIR:-/tmp}" || exit 1
failed=0
echo "fuzz_template $rounds $seed"
"$KVMM_BUILD/tests/fuzz_template" "$rounds" "$seed" \
	"$KVMM_TOP"/tests/data/template/{snippets.txt,*.jinja} || failed=1
echo "fuzz_safetensors $rounds $seed"
"$KVMM_BUILD/tests/fuzz_safetensors" "$rounds" "$seed" || failed=1
echo "fuzz_config $rounds $seed"
"$KVMM_BUILD/tests/fuzz_config" "$rounds" "$seed" \
	"$KVMM_TOP"/tests/data/{families/*,demo-model}/config.json || failed=1
echo "fuzz_tokenizer $((rounds / 10)) $seed"
"$KVMM_BUILD/tests/fuzz_tokenizer" $((rounds / 10)) "$seed" \
	"$KVMM_TOP"/tests/data/tokenizers/*/tokenizer.json || failed=1
for src in "$KVMM_TOP"/tests/fuzz/fuzz_*.c; do
	name=$(basename "$src" .c)
	pack=$KVMM_TOP/tests/fuzz/corpus/${name#fuzz_}.pack
	# Those of the runtime were told of above.
	[ -f "$pack" ] || continue
	echo "$name $each $seed $pack"
	"$KVMM_BUILD/tests/$name" "$each" "$seed" "$pack" && continue
	failed=1
	[ ! -f "crash-$name" ] || base64 -w 0 "crash-$name"
	echo
done
exit $failed
