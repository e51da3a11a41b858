# SPDX-License-Identifier: Apache-2.0
#
# checks.bash - counting for script tests
#
# Source it first, call the functions below, end with checks_done.  $work is an
# empty directory of the script's own.  A failed check prints what it saw and
# the script goes on; so one run shows all that is wrong.

set -u
export LC_ALL=C.UTF-8
: "${KVMM_TOP:?set by tests/run}" "${KVMM_BUILD:?set by tests/run}"

nr_checks=0
nr_failures=0
out=		# what the last command printed
rc=0		# and its exit status

work=$(mktemp -d "${TMPDIR:-/tmp}/checks.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT

# run COMMAND..: both streams in $out, the exit status in $rc
run()
{
	out=$("$@" 2>&1 </dev/null)
	rc=$?
}

# check WHAT COMMAND..: COMMAND must succeed
check()
{
	local what=$1

	shift
	nr_checks=$((nr_checks + 1))
	"$@" && return
	nr_failures=$((nr_failures + 1))
	printf 'FAILED: %s\n  want: %s\n  exit status %d, output:\n' "$what" "$*" "$rc"
	# Indented, lest its lines of counts be taken for ours.
	sed 's/^/    /' <<<"$out"
}

# Conditions for check().
rc_is()		{ [ "$rc" = "$1" ]; }
rc_is_not()	{ [ "$rc" != "$1" ]; }
says()		{ grep -qE -- "$1" <<<"$out"; }
says_not()	{ ! grep -qE -- "$1" <<<"$out"; }
last_line_is()	{ [ "${out##*$'\n'}" = "$1" ]; }

checks_done()
{
	local percent=100

	[ $nr_checks = 0 ] || percent=$(((nr_checks - nr_failures) * 100 / nr_checks))
	printf '%d%%: Checks: %d, Failures: %d, Errors: 0\n' $percent $nr_checks $nr_failures
	[ $nr_failures = 0 ] && [ $nr_checks -gt 0 ]
	exit
}
