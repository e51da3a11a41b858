#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# build.sh - the Makefile on small trees
#
# A tree with one program and one unit test shows which changes rebuild which files,
# and that a failing test fails `make check`.  budget: 60 s
. "${BASH_SOURCE%/*}/checks.bash"

tree=$work/tree
mkdir -p "$tree/.ci" "$tree/kvmm/core" "$tree/kvmm/tools" "$tree/tests/unit" "$tree/kernels/cpu"
cp "$KVMM_TOP/Makefile" "$tree/"
cp "$KVMM_TOP/tests/run" "$KVMM_TOP/tests/mark.h" "$tree/tests/"
printf '#!/bin/sh\nexit 0\n' >"$tree/.ci/deps"
chmod +x "$tree/.ci/deps"

cat >"$tree/kvmm/core/three.c" <<'EOF2'
#include "three.h"
int three(void)
{
	return THREE;
}
EOF2
printf '#define THREE 3\nint three(void);\n' >"$tree/kvmm/core/three.h"
printf '#include "core/three.h"\nint main(void)\n{\n\treturn three() - 3;\n}\n' >"$tree/kvmm/main.c"
cat >"$tree/kernels/cpu/v_one.c" <<'EOF2'
#define PASTE(a, b) a##b
#define NAME(b) PASTE(v_one_, b)
int NAME(KERN_VARIANT)(void);
int NAME(KERN_VARIANT)(void)
{
	return 1;
}
EOF2
cat >"$tree/tests/unit/check_three.c" <<'EOF2'
#include <check.h>
#include "kvmm/core/three.h"

START_TEST(test_three)
{
	ck_assert_int_eq(three(), 3);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("three");
	TCase *tc = tcase_create("three");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_test(tc, test_three);
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
EOF2

in_tree()
{
	run make -C "$tree" --no-print-directory "$@"
}

in_tree
check "builds" rc_is 0
check "quiet lines" says '^  CC      kvmm/main.o$'
check "links" says '^  LD      kvmm$'
check "the program runs" "$tree/build/kvmm"
check "programs without a main are left out" says_not kvrt
in_tree
check "nothing to do the second time" test -z "$out"

# On a terminal: one line with the number of the file and of all, also with -j.
on_terminal()
{
	run script -qec "make -C '$tree' --no-print-directory $*" /dev/null
	out=$(tr '\r' '\n' <<<"$out" | sed 's/\o33\[K//; /^$/d')
}

nr=$(find "$tree/build" -name '*.o' -o -name '*.a' -o -name kvmm -type f | wc -l)
on_terminal clean
on_terminal -j2
check "a terminal: builds" rc_is 0
check "a terminal: the first of all" says "^ +1 of $nr  CC  "
check "a terminal: the last of all" says "^ +$nr of $nr  [A-Z]+  "
check "a terminal: the sum" last_line_is "  BUILT   $nr files"
check "a terminal: no other lines" test "$(grep -cvE '^ +[0-9]+ of |BUILT' <<<"$out")" = 0
touch "$tree/kvmm/main.c"
on_terminal all
check "a terminal: the second time only the files to do" says '^ +1 of 2  CC      kvmm/main.o'
on_terminal all
check "a terminal: nothing to do" test -z "$out"
on_terminal -B -s
check "a terminal: silent" test -z "$out"
on_terminal -B V=1
check "a terminal: whole commands" says 'gcc.* .*kvmm/main.c'
in_tree V=1 CFLAGS=-O1
check "other flags compile anew" says 'gcc.* -O1 .*kvmm/main.c'
in_tree CFLAGS=-O1
touch "$tree/kvmm/core/three.h"
in_tree CFLAGS=-O1
check "a header compiles its users anew" says 'CC      kvmm/core/three.o'
in_tree O=other
check "O= puts output elsewhere" test -x "$tree/other/kvmm"
in_tree D=nonsense
check "an unknown D= is named" says 'D=nonsense: want san, asan, tsan or ubsan'
touch "$tree/other/mine"
in_tree clean O=other
check "clean spares what it did not make" test -e "$tree/other/mine"
check "clean removes what it made" test ! -e "$tree/other/kvmm"

in_tree check SUITES=unit
check "check passes" rc_is 0
check "check: the sum" last_line_is "1 passed, 0 failed"
nm "$tree/build/lib/libkernels.a" >"$work/nm" 2>/dev/null
check "variants: the base one" grep -q ' T v_one_base$' "$work/nm"
if [ "$(uname -m)" = x86_64 ]; then
	check "variants: avx2" grep -q ' T v_one_avx2$' "$work/nm"
	check "variants: avx512" grep -q ' T v_one_avx512$' "$work/nm"
	check "variants: avx512bf16" grep -q ' T v_one_avx512bf16$' "$work/nm"
fi

# T= builds the tests that it names and their archives: no other file is compiled.
cp "$tree/tests/unit/check_three.c" "$tree/tests/unit/check_core_three.c"
for f in kvmm/main.c kernels/cpu/v_one.c tests/unit/check_three.c; do
	cp "$tree/$f" "$tree/$f.good"
	echo '#error this file was compiled' >>"$tree/$f"
done
in_tree check T=check_core_three
check "T=: passes when all else is broken" rc_is 0
check "T=: runs what it names" last_line_is "1 passed, 0 failed"
in_tree check T='check_core_*' SUITES='unit sim integration'
check "T=: a glob" last_line_is "1 passed, 0 failed"
touch "$tree/kvmm/core/three.h"
in_tree check T='check_core_t[a-z]*'
check "T=: builds what the test links" says 'AR      lib/libcore.a'
check "T=: builds the test" says 'LD      tests/check_core_three'
check "T=: builds it alone" [ "$(grep -c '  LD  ' <<<"$out")" = 1 ]
in_tree check T=check_three SUITES=unit
check "T=: a test that does not build" says '^0 passed, 1 failed$'
in_tree check SUITES=unit
check "without T= all of them are built" says 'this file was compiled'
for f in kvmm/main.c kernels/cpu/v_one.c tests/unit/check_three.c; do
	mv "$tree/$f.good" "$tree/$f"
done
rm "$tree/tests/unit/check_core_three.c"

sed -i 's/THREE 3/THREE 4/' "$tree/kvmm/core/three.h"
in_tree check SUITES=unit
check "a failing test fails make check" rc_is_not 0
check "a failing test: its log" says "Assertion 'three\(\) == 3' failed"
check "a failing test: the sum" says '^0 passed, 1 failed$'
sed -i 's/THREE 4/THREE 3/' "$tree/kvmm/core/three.h"

echo 'static int unused;' >>"$tree/kvmm/core/three.c"
in_tree
check "a warning is no error" rc_is 0
in_tree W=1
check "a warning is an error with W=1" rc_is_not 0

rm -r "$tree/kvmm"
in_tree
check "an empty tree builds" rc_is 0

# A bare machine: make, a shell and basic commands, no compiler.
mkdir "$work/bin"
for p in make sh bash grep sed cat cmp mkdir printf uname nproc rm; do
	ln -s "$(command -v $p)" "$work/bin/$p"
done
run env PATH="$work/bin" make -C "$KVMM_TOP" O="$work/bare"
check "no compiler: one clear line" says '^kvmm: error: gcc is not installed: run: make deps$'
check "no compiler: status" rc_is 2

checks_done
