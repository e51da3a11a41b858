# SPDX-License-Identifier: Apache-2.0
#
# checks.bash - counting for script tests
#
# Source it first, call the functions below, end with checks_done.  $work is an empty
# directory for the script.  A failed check prints the output that it checked, and the
# script continues, so one run shows all failures.

set -u
export LC_ALL=C.UTF-8
: "${KVMM_TOP:?set by tests/run}" "${KVMM_BUILD:?set by tests/run}"

nr_checks=0
nr_failures=0
out=		# output of the last command
rc=0		# exit status of the last command

work=$(mktemp -d "${TMPDIR:-/tmp}/checks.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT

# run COMMAND..: both output streams in $out, the exit status in $rc
run()
{
	out=$("$@" 2>&1 </dev/null)
	rc=$?
}

# check NAME COMMAND..: COMMAND must succeed
check()
{
	local what=$1

	shift
	nr_checks=$((nr_checks + 1))
	"$@" && return
	nr_failures=$((nr_failures + 1))
	printf 'FAILED: %s\n  want: %s\n  exit status %d, output:\n' "$what" "$*" "$rc"
	# Indented, so that tests/run does not count lines of the output.
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
