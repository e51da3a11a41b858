#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# spin.sh - check the model of the rings, and find each of its planted faults
#
# budget: 40 s
#
# include/kvmm/ring.pml describes the model and lists the faults that can be planted in
# it; this script reads the list.
. "${BASH_SOURCE%/*}/checks.bash"

model=$KVMM_TOP/include/kvmm/ring.pml

if ! command -v spin >/dev/null; then
	echo "spin: skipped: it is not installed (Debian package spin)"
	check "the model is there" test -s "$model"
	checks_done
fi

# explore FLAG..: explore every state of the model, compiled with these flags
explore()
{
	rm -f "$work"/pan*
	(cd "$work" && spin -a "$@" "$model" && gcc -O0 -w -DSAFETY -DCOLLAPSE -o pan pan.c &&
		./pan -m1000000) >"$work/out" 2>&1 </dev/null
	rc=$?
	out=$(cat "$work/out")
	states=$(sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' "$work/out")
}

# Were all states explored without an error?
holds()
{
	says 'errors: 0$' && says_not '^(error|warning):|max search depth too small' &&
		[ "${states:-0}" -gt 100000 ]
}

reqs=5
[ "${KVMM_TEST_LEVEL:-check}" != check ] || reqs=4
for flags in -DREQS=$reqs "-DBELLS -DREQS=$reqs"; do
	# shellcheck disable=SC2086
	explore $flags
	check "$flags: no state where nobody can move, nothing read that is not whole" holds
	echo "$flags: $states states, none wrong"
done

faults=$(sed -n 's/^ \*   \([A-Z_]\{8,\}\)  .*/\1/p' "$model")
check "faults are listed" test "$(wc -w <<<"$faults")" -ge 9
# At level check only one fault of three.
nr=0
for fault in $faults; do
	nr=$((nr + 1))
	if [ "$reqs" = 4 ] && [ $((nr % 3)) != 1 ]; then
		continue
	fi
	explore "-D$fault"
	check "$fault is used by the model" grep -q "^#ifn\?def $fault\$" "$model"
	check "$fault is found" says 'errors: 1$'
	echo "$fault: found after $states states: $(sed -n 's/^pan:1: //p' "$work/out")"
done

checks_done
