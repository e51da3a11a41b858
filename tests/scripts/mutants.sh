#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# mutants.sh - tests/mutants/draw.py draws every fault of a small core, and repeats the draw
. "${BASH_SOURCE%/*}/checks.bash"

tree=$work/tree
draw=$tree/tests/mutants/draw.py
mkdir -p "$tree/tests/mutants" "$tree/kvmm/core/low" "$tree/include"
cp "$KVMM_TOP/tests/mutants/draw.py" "$draw"
cat >"$tree/kvmm/core/low/a.c" <<'END'
void note(int); void KV_BUG_ON(int);
int a(int x)
{
	int y = x;

	KV_BUG_ON(x < 3 && y);	/* if (x < 4) */
	if (x == 0)
		note(x);
	y++;
	return y;
}
END
cp "$tree/kvmm/core/low/a.c" "$tree/kvmm/core/low/check_a.c"

run "$draw" --list
check 'six faults, none in the assertion, the comment and the walker' test "$(grep -c '^a.c-' <<<"$out")" = 6
check 'a call is deleted' says '^a.c-8:a\(\): a statement is deleted$'
check 'a comparison is negated' says '	\+if \(x != 0\)$'
check 'a constant is one more' says '	\+if \(x == 1\)$'
check 'a condition is always false' says '	\+if \(0\)$'

run "$draw" 7 3 "$work/one"
run "$draw" 7 3 "$work/two"
check 'one seed, the same faults' diff -r "$work/one" "$work/two"
check 'as many as were asked for' test "$(find "$work/one" -name '*.patch' | wc -l)" = 3
run "$draw" 8 3 "$work/three"
check 'another seed, others' test "$(cat "$work"/one/* | cksum)" != "$(cat "$work"/three/* | cksum)"

printf 'a\n-y++;\n+;\nIt is only an example.\n' >"$tree/tests/mutants/equivalent"
run "$draw" 7 6 "$work/all"
check 'what is explained is no patch' test "$(find "$work/all" -name '*.patch' | wc -l)" = 5
check 'but a reason' grep -qx 'It is only an example.' "$work"/all/*.equivalent
run "$draw" --stale
check 'the explanation is of this tree' rc_is 0
sed -i 's/y++/y--/' "$tree/kvmm/core/low/a.c"
run "$draw" --stale
check 'one of another tree is named' says '^-y\+\+;$'
check 'one of another tree: status' rc_is 1
checks_done
