#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# fuzz.sh - the fuzzers of tests/fuzz, by themselves
#
# Each is given the lines of files that it understands.  The seed of the level
# check is fixed; above it, it is drawn and printed.
#
# budget: 30 s, full 120 s
set -u
: "${KVMM_TOP:?set by tests/run}" "${KVMM_BUILD:?set by tests/run}"

case ${KVMM_TEST_LEVEL:-check} in
check)	rounds=20000 seed=1 ;;
full)	rounds=500000 seed=$RANDOM ;;
*)	rounds=5000000 seed=$RANDOM ;;
esac
echo "fuzz_template $rounds $seed"
"$KVMM_BUILD/tests/fuzz_template" "$rounds" "$seed" \
	"$KVMM_TOP"/tests/data/template/{snippets.txt,*.jinja}
