#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# runner.sh - tests/run must fail when a test fails in any way
#
# A tree of fake suites: the sources hold only budgets, the programs are shell
# scripts.  budget: 60 s
. "${BASH_SOURCE%/*}/checks.bash"

top=$work/top
bin=$work/build/tests

# suite DIR NAME: make a fake suite; its program comes from standard input
suite()
{
	mkdir -p "$top/tests/$1" "$bin"
	echo "/* ${3:-} */" >"$top/tests/$1/$2.c"
	{ echo '#!/bin/bash'; cat; } >"$bin/$2"
	chmod +x "$bin/$2"
}

fresh()
{
	rm -rf "$top" "$work/build"
	mkdir -p "$top" "$work/build" "$work/tmp"
}

# Is nothing left in the folder for temporary files?
nothing_left()
{
	[ -z "$(ls -A "$work/tmp")" ]
}

tests_run()
{
	run env TMPDIR="$work/tmp" KVMM_TOP="$top" KVMM_BUILD="$work/build" KVMM_SANITIZER="${sanitizer:-}" \
		KVMM_TEST_LEVEL="${level:-check}" T="${T:-}" "$KVMM_TOP/tests/run" "$@"
}

# Has the process whose number is in $work/pid ended?  A zombie counts as ended, and
# its parent does not matter.
gone()
{
	[ -s "$work/pid" ] && ! grep -qs sleep "/proc/$(cat "$work/pid")/cmdline"
}

fresh
suite unit check_a <<<'echo "100%: Checks: 3, Failures: 0, Errors: 0"'
suite unit check_b <<<'echo "100%: Checks: 4, Failures: 0, Errors: 0"'
suite integration it_x 'budget: 7 s, full 9 s, soak 11 s' <<<'[ -d "$TMPDIR" ] && [ "$XDG_RUNTIME_DIR" = "$TMPDIR" ]'
tests_run
check "all pass: status" rc_is 0
check "all pass: sum" last_line_is "8 passed, 0 failed"
check "all pass: Check's line" says '^100%: Checks: 8, Failures: 0, Errors: 0$'
check "name, time and budget" says '^  TEST    unit/check_a +[0-9]+\.[0-9]{2} s of 20 s$'
check "budget of the source" says 'integration/it_x +[0-9.]+ s of 7 s$'
check "what is not there is named" says '^  SKIP    sim +no tests/sim'
level=full tests_run integration
check "budget of the full level" says 'it_x +[0-9.]+ s of 9 s$'
level=soak tests_run integration
check "budget of the soak level" says 'it_x +[0-9.]+ s of 11 s$'
sanitizer=asan tests_run integration
check "sanitizers take longer" says 'it_x +[0-9.]+ s of 21 s$'
T='check_b it_*' tests_run
check "T= chooses" last_line_is "5 passed, 0 failed"
T='nobody' tests_run
check "T= that matches nothing fails" rc_is 1
check "all pass: nothing is left" nothing_left

suite unit check_b <<<'echo "total: 7 kills"; echo "subtotal: 1"; echo "note: no disk"; echo "note: no disk"'
tests_run unit
check "totals are shown" says '^          total: 7 kills$'
check "and what was not tried, once" [ "$(grep -c 'note: no disk' <<<"$out")" = 1 ]
check "and nothing else" says_not 'subtotal'
suite unit check_b <<<'echo "100%: Checks: 4, Failures: 0, Errors: 0"'

suite unit check_c <<<'echo "oh dear"; echo "50%: Checks: 2, Failures: 1, Errors: 0"; exit 1'
tests_run unit
check "a failing suite: status" rc_is 1
check "a failing suite: log" says '^oh dear$'
check "a failing suite: word" says '^  FAIL    unit/check_c .*exit status 1'
check "a failing suite: sum" last_line_is "8 passed, 1 failed"

fresh
suite unit check_quiet <<<'exit 3'
tests_run unit
check "failing without counts" last_line_is "0 passed, 1 failed"

fresh
suite unit check_liar <<<'echo "100%: Checks: 2, Failures: 0, Errors: 0"; kill -SEGV $$'
tests_run unit
check "dead after good counts: status" rc_is 1
check "dead after good counts: sum" last_line_is "2 passed, 1 failed"
check "dead after good counts: signal" says 'ended by signal 11'

fresh
suite unit check_zero <<<'echo "50%: Checks: 2, Failures: 1, Errors: 0"'
tests_run unit
check "counted failures with status 0" rc_is 1

# Side by side: two suites wait for each other; of three, one has no room.
fresh
meet='touch "$0.here"; for ((i = 0; i < 100; i++)); do [ -e "$1.here" ] && exit 0; sleep 0.05; done; exit 1'
suite unit check_a <<<"set -- '$bin/it_b'; $meet"
suite integration it_b <<<"set -- '$bin/check_a'; $meet"
KVMM_TEST_JOBS=2 tests_run
check "suites run beside each other, of two kinds too" last_line_is "2 passed, 0 failed"
fresh
for n in a b c d; do
	suite integration it_$n <<<"cd '$work/build'; for s in 1 2; do mkdir \$s && sleep 0.3 && exec rmdir \$s; done; exit 1"
done
KVMM_TEST_JOBS=2 tests_run
check "no more than JOBS of them" last_line_is "4 passed, 0 failed"
KVMM_TEST_JOBS=4 tests_run
check "as many as JOBS" rc_is 1
fresh
suite integration it_a 'alone: it wants this machine' <<<"[ -e '$bin/ended' ] && [ ! -e '$bin/busy' ]"
suite integration it_b <<<"touch '$bin/busy'; sleep 0.3; rm '$bin/busy'; touch '$bin/ended'"
suite sim sim <<<"[ -e '$bin/ended' ]"
tests_run
check "alone: behind all others" last_line_is "3 passed, 0 failed"
rm "$bin/ended"
sed -i 's/alone: //' "$top/tests/integration/it_a.c"
tests_run integration
check "and beside them without that word" rc_is 1

# The suite waited, as on a busy machine: a remark, no failure.
fresh
suite unit check_slow 'budget: 1 s' <<<'sleep 1.2'
tests_run unit
check "slow: status" rc_is 0
check "slow: word" says '^  SLOW    unit/check_slow +1\.[0-9]+ s of 1 s: every check passed, too slow \(0\.[0-9]+ s of CPU, load [0-9.]+ on [0-9]+ cores\)$'
check "slow: total" says '^  TOTAL   1 suites in .*: 1 slow$'
check "slow: sum" last_line_is "1 passed, 0 failed"
suite unit check_slow 'budget: 1 s' <<<'sleep 1.2; echo "50%: Checks: 2, Failures: 1, Errors: 0"'
tests_run unit
check "slow and failed: status" rc_is 1
check "slow and failed: word" says '^  FAIL    unit/check_slow .*counted failures$'

# A child of a child computed for longer than the budget allows.
fresh
suite unit check_busy 'budget: 1 s' <<<'( ( ulimit -t 2; while :; do :; done ) ) 2>/dev/null; exit 0'
suite unit check_hung 'budget: 1 s' <<<"sleep 77 & echo \$! >'$work/pid'; wait"
tests_run unit
check "over budget: status" rc_is 1
check "over budget: word" says '^  FAIL    unit/check_busy +[0-9.]+ s of 1 s: (every check passed, too slow|ended at three times)'
check "hung: word" says 'check_hung +3\.[0-9]+ s of 1 s: ended at three times its budget'
check "hung: its children are gone too" gone
check "over budget: sum" last_line_is "0 passed, 2 failed"

# The whole run began long ago: a remark if it waited, a failure if it took far too long.
fresh
suite unit check_quick <<<'exit 0'
echo $(($(date +%s) - 400)) >"$work/build/.check-start"
tests_run unit
check "a slow run: status" rc_is 0
check "a slow run: remark" says '^  TOTAL   1 suites in 40[0-9] s of 300 s, with building .*: every check passed, too slow '
echo $(($(date +%s) - 900)) >"$work/build/.check-start"
tests_run unit
check "far over the budget: status" rc_is 1
check "far over the budget: sum" last_line_is "1 passed, 1 failed"

fresh
suite unit check_gone <<<'exit 0'
rm "$bin/check_gone"
tests_run unit
check "a suite that was not built fails" rc_is 1
check "a suite that was not built is named" says 'check_gone was not built'

fresh
suite unit check_skip <<<'echo "no such device here"; exit 77'
tests_run unit
check "skipped with a reason" rc_is 0
check "the reason is shown" says 'SKIP    unit/check_skip +no such device here'
suite unit check_skip <<<'exit 77'
tests_run unit
check "skipped without a reason" rc_is 1

# A process keeps the number of the suite's group until its processes have ended, even
# if all of the group is asked to end.
# timeout dies of a signal that comes before its fork has returned: it must sleep.
suite unit check_kept <<'EOF'
trap '' TERM
until read -r _ _ state _ <"/proc/$PPID/stat" && [ "$state" = S ]; do
	sleep 0.01
done
kill -TERM 0
read -r _ _ _ _ group _ <"/proc/$$/stat"
for stat in /proc/[0-9]*/stat; do
	read -r pid name _ _ of _ 2>/dev/null <"$stat" || continue
	[ "$of:$name" = "$group:(sleep)" ] && echo "$pid" && exit
done
exit 1
EOF
fresh_out=$work/build/logs/unit-check_kept.log
T=check_kept tests_run
check "the number of the group is kept" rc_is 0
head -1 "$fresh_out" >"$work/pid"
check "until the suite has ended" gone

# A suite was killed: its files, processes and mounts go.
fresh
rm -f "$work/pid"
make_files='[ "${TMPDIR%/kvt.*}" = '"'$work/tmp'"' ] || exit; mkdir "$TMPDIR/model.1"
	while echo x >"$TMPDIR/model.1/$RANDOM"; do :; done 2>/dev/null &'
suite unit check_killed <<<"$make_files sleep 76 & echo \$! >'$work/pid'; kill -KILL \$\$"
tests_run unit
check "killed: word" says 'check_killed .*ended by signal 9$'
check "killed: nothing is left" nothing_left
check "killed: its children are gone too" gone
suite unit check_killed <<<'mkdir "$TMPDIR/m"; mount -t tmpfs none "$TMPDIR/m" || echo "note: nothing can be mounted here"
	echo x >"$TMPDIR/m/file"; kill -KILL $$'
tests_run unit
grep -o 'note: nothing can be mounted.*' <<<"$out"
check "killed with a mount: nothing is left" nothing_left
check "killed with a mount: it is gone" [ -z "$(grep -F "$work/tmp" /proc/self/mounts)" ]

# The directory of a suite cannot be removed.
fresh
suite unit check_stays <<<'exit 0'
mkdir "$work/bin"
printf '#!/bin/sh\nexit 1\n' >"$work/bin/rm"
chmod +x "$work/bin/rm"
PATH=$work/bin:$PATH tests_run unit
check "it stays: word" says '^  FAIL    unit/check_stays '
check "it stays: its name" says "^$work/tmp/kvt.*/[0-9]+ cannot be removed$"
rm -rf "$work/tmp"

# Names with /tmp would not be removed.  A rule for /tmp itself is tested in check_ipc_parts.
check "tests make their files in TMPDIR" [ -z "$(grep -rnE '"/tmp/[^"]*XXXXXX' "$KVMM_TOP"/tests/{unit,integration,fuzz,sim} |
	grep -v 'unit/check_ipc_parts.c:.*"/tmp/kvmm-XXXXXX"')" ]

# Interrupted: no suite runs on after the shell, and nothing is left.
fresh
suite unit check_long <<<"$make_files sleep 78 & echo \$! >'$work/pid'; wait"
rm -f "$work/pid"
env TMPDIR="$work/tmp" KVMM_TOP="$top" KVMM_BUILD="$work/build" \
	"$KVMM_TOP/tests/run" unit >/dev/null 2>&1 &
runner=$!
for ((i = 0; i < 100; i++)); do
	[ -s "$work/pid" ] && break
	sleep 0.05
done
kill "$runner"
wait "$runner"
rc=$?
check "terminated: status" rc_is 143
sleep 0.3
check "terminated: the suite is gone" gone
check "terminated: nothing is left" nothing_left

fresh
tests_run unit sim
check "no tests at all is no success" rc_is 1
tests_run nonsense
check "an unknown kind" rc_is 2

checks_done
