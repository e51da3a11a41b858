#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# fuzz.sh - the fuzz targets of tests/fuzz, by themselves
#
# Each replays its corpus (tests/fuzz/corpus) and then mutates what is there; the
# one of chat templates is given the lines of files that it understands.  The
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
for src in "$KVMM_TOP"/tests/fuzz/fuzz_*.c; do
	name=$(basename "$src" .c)
	[ "$name" != fuzz_template ] || continue
	pack=$KVMM_TOP/tests/fuzz/corpus/${name#fuzz_}.pack
	echo "$name $each $seed $pack"
	"$KVMM_BUILD/tests/$name" "$each" "$seed" "$pack" && continue
	failed=1
	[ ! -f "crash-$name" ] || base64 -w 0 "crash-$name"
	echo
done
exit $failed
