#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# python.sh - the package kvmm for Python (python/)
#
# The tests of python/tests use the package in the tree.  From check-full on, the package is
# also built as a wheel and as a source distribution, and installed in a fresh environment.
#
# budget: 180 s, full 400 s
. "${BASH_SOURCE%/*}/checks.bash"

skip()
{
	echo "$1"
	exit 77
}

[ -z "${KVMM_SANITIZER:-}" ] || skip "Python cannot load a sanitized library"
python=
for p in python3 /usr/bin/python3; do
	"$p" -c 'import sys, cffi; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && python=$p && break
done
[ -n "$python" ] || skip "no Python 3.10 with cffi: install python3-cffi"

abi=$(sed -n 's/^#define KVMM_ABI_VERSION[[:space:]]*\([0-9]*\).*/\1/p' "$KVMM_TOP/include/uapi/kvmm.h")
export KVMM_BIN=$KVMM_BUILD KVMM_LIBRARY=$KVMM_BUILD/lib/libkvmm.so.$abi
export PYTHONDONTWRITEBYTECODE=1

# ---- the tests of the package ----

# tests_of NAME: run python/tests/NAME.py; each of its tests is a check
tests_of()
{
	local nr bad

	run env PYTHONPATH="$KVMM_TOP/python" PYTHONWARNINGS=error::ResourceWarning "$python" -u \
		"$KVMM_TOP/python/tests/$1.py"
	nr=$(sed -n 's/^Ran \([0-9]*\) tests\? in .*/\1/p' <<<"$out")
	bad=$(grep -cE '^(ERROR|FAIL): ' <<<"$out")
	check "$1 passes" rc_is 0
	check "$1 has tests" [ "${nr:-0}" -gt 0 ]
	check "$1 leaves no file open" says_not 'ResourceWarning'
	nr_checks=$((nr_checks + ${nr:-0}))
	nr_failures=$((nr_failures + bad))
	if grep -q 'skipped=' <<<"$out"; then
		echo "note: $1: $(sed -n 's/.*(\(skipped=[0-9]*\)).*/\1/p' <<<"$out") of $nr tests"
	fi
}

nr_files=0
for file in "$KVMM_TOP"/python/tests/test_*.py; do
	file=${file##*/}
	tests_of "${file%.py}"
	nr_files=$((nr_files + 1))
done
check 'there are tests' [ $nr_files -ge 11 ]

# ---- where the library is looked for ----

# imports TEXT: a program in Python, from an empty folder
imports()
{
	run env -C "$work" "$@"
}

export PYTHONPATH=$KVMM_TOP/python
imports KVMM_LIBRARY=/nonexistent/lib.so "$python" -c \
	$'import kvmm\ntry: kvmm.Client("x", layers=1, kv_heads=1, k_bytes=64, v_bytes=64)\nexcept kvmm.NoLibrary as e: print(e)'
check 'a library that is not there' last_line_is "libkvmm cannot be loaded: cannot load library '/nonexistent/lib.so': \
/nonexistent/lib.so: cannot open shared object file: No such file or directory: set KVMM_LIBRARY to its path"
imports KVMM_BIN=/nonexistent "$python" -c $'import kvmm\ntry: kvmm.stats()\nexcept kvmm.NoLibrary as e: print(e)'
check 'a program that is not there' last_line_is \
	'the program kvctl is not in KVMM_BIN=/nonexistent: install kvmm, or set KVMM_BIN'
imports "$python" -c 'import kvmm; print(*kvmm.SamplingParams(n=3).fields(False).items())'
check 'names that need no library' says "\('n', 3\)"
unset PYTHONPATH

# ---- wheel, source distribution, installation ----

if [ "$KVMM_TEST_LEVEL" = check ]; then
	checks_done
fi
venv=$KVMM_BUILD/peers/python
tree=$work/tree
mkdir "$tree"
cp -r "$KVMM_TOP/python" "$KVMM_TOP/include" "$tree/"
rm -rf "$venv"
if ! "$python" -m venv "$venv" >/dev/null 2>&1; then
	echo 'note: python3-venv is not installed: nothing was installed'
	checks_done
fi
if ! timeout 120 "$venv/bin/pip" install -q build cffi numpy setuptools wheel >/dev/null 2>&1; then
	echo 'note: PyPI cannot be reached: nothing was installed'
	checks_done
fi
version=$(sed -n 's/.*KVMM_VERSION[[:space:]]*"\(.*\)"/\1/p' "$KVMM_TOP/include/kvmm/version.h")
run env -C "$tree/python" "$venv/bin/python" -m build --no-isolation -o "$work/dist" .
check 'wheel and source distribution are built' rc_is 0
check 'the wheel has the version of version.h' [ -s "$work/dist/kvmm-$version-py3-none-any.whl" ]
run tar -tzf "$work/dist/kvmm-$version.tar.gz"
check 'the source distribution has the declarations' says "^kvmm-$version/kvmm/_generated.py$"
check 'and no header' says_not '\.h$'

for t in test_client test_sglang; do
	run env PYTHONPATH="$KVMM_TOP/python" "$venv/bin/python" "$KVMM_TOP/python/tests/$t.py"
	check "$t passes with NumPy" rc_is 0
	check 'and leaves out nothing' says_not 'skipped='
done

# installed WHAT FILE: install FILE with pip, and let the package work outside of the tree
installed()
{
	run "$venv/bin/pip" install -q --force-reinstall --no-deps --disable-pip-version-check "$2"
	check "pip installs $1" rc_is 0
	run env -C "$work" "$venv/bin/python" -c "
import kvmm
print(kvmm.__version__, kvmm.__file__)
try:
	kvmm.Client('x', layers=1, kv_heads=1, k_bytes=64, v_bytes=64, socket='$work')
except kvmm.NoDaemon as e:
	print(e)"
	check "$1: it loads" says "^$version $venv/"
	check "$1: the library answers" says '^no daemon at '
	run "$venv/bin/pip" uninstall -q -y kvmm
}

installed 'the wheel' "$work/dist/kvmm-$version-py3-none-any.whl"
installed 'the source distribution' "$work/dist/kvmm-$version.tar.gz"
installed 'the folder' "$tree/python"
checks_done
