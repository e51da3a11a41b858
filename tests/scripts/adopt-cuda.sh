#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# adopt-cuda.sh - kvmm dies, and the next daemon takes over its pool on a GPU
#
# budget: 60 s, full 900 s, soak 900 s
#
# These are the tests of adoption that were written for host memory, with the pool of
# every rig on the stand-in for a GPU (KVMM_TEST_BACKEND=cuda).  They compare the same
# texts, run the same walkers, and no memory must be left at the end.  make check runs
# the parts that compute nothing, since a CPU that stands in for a GPU computes slowly.
# Higher levels run two runtimes, on few tokens, while kvmm is upgraded or dies.
. "$KVMM_TOP/tests/scripts/checks.bash"

cd "$KVMM_TOP" || exit 1
level=${KVMM_TEST_LEVEL:-check}
# Deaths are as few as at check level: one load here costs as much as some thirty.
export KVMM_TEST_BACKEND=cuda KVMM_TEST_LEVEL=check CK_VERBOSITY=normal
export TMPDIR=$work XDG_RUNTIME_DIR=$work

# suite NAME [CASE]: run one integration suite, or one case of it
suite()
{
	run env ${2:+CK_RUN_CASE="$2"} "$KVMM_BUILD/tests/$1"
	check "$1${2:+ $2} on a GPU" rc_is 0
	check "$1${2:+ $2} checked something" says '^100%: Checks: [1-9]'
	grep -aE '^(total:|  )' <<<"$out" | sed 's/^ *//; s/^total: //; s/^/total: on a GPU: /'
}

suite it_adopt twice
suite it_adopt pause
suite it_adopt_io
if [ "$level" != check ]; then
	suite it_adopt_refuse
	for case in upgrade nothing asked dies random; do
		suite it_adopt $case
	done
	suite it_adopt_serve
	echo "note: deaths inside events are not tried on a GPU: see it_adopt_crash"
fi
checks_done
