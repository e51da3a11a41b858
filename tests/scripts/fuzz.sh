#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# fuzz.sh - the fuzz targets of tests/fuzz, without a fuzzer
#
# Each target replays its corpus (tests/fuzz/corpus) and then mutates its inputs; targets
# of the runtime also mutate files of the tests (tests/fuzz/seeds).  At level check the
# seed is fixed; above it, it is drawn and printed.  Fuzzers find more: make fuzz.
#
# budget: 40 s, full 240 s
set -u
: "${KVMM_TOP:?set by tests/run}" "${KVMM_BUILD:?set by tests/run}"

case ${KVMM_TEST_LEVEL:-check} in
check)	many=20000 each=1500 seed=1 ;;
full)	many=500000 each=50000 seed=$RANDOM ;;
*)	many=5000000 each=1000000 seed=$RANDOM ;;
esac
cd "${TMPDIR:-/tmp}" || exit 1
seeds=$(mktemp -d fuzz.XXXXXX) || exit 1
trap 'rm -rf "$seeds"' EXIT
failed=0
for src in "$KVMM_TOP"/tests/fuzz/fuzz_*.c; do
	name=${src##*/fuzz_} name=${name%.c}
	pack=$KVMM_TOP/tests/fuzz/corpus/$name.pack
	files=()
	[ ! -f "$pack" ] || files=("$pack")
	mkdir "$seeds/$name" && "$KVMM_TOP/tests/fuzz/seeds" "$name" "$PWD/$seeds/$name" || exit 1
	rmdir "$seeds/$name" 2>/dev/null || files+=("$seeds/$name")
	case $name in
	config | gguf | safetensors | template) rounds=$many ;;
	gguf_model | quantized) rounds=$((many / 4)) ;;
	tokenizer)	rounds=$((many / 10)) ;;
	*)		rounds=$each ;;
	esac
	echo "fuzz_$name $rounds $seed ${files[*]}"
	"$KVMM_BUILD/tests/fuzz_$name" "$rounds" "$seed" "${files[@]}" && continue
	failed=1
	[ ! -f "crash-fuzz_$name" ] || base64 -w 0 "crash-fuzz_$name"
	echo
done
exit $failed
