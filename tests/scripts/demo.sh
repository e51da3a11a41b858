#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# demo.sh - make run as a user sees it, which must leave nothing behind
#
# budget: 30 s, full 150 s
. "${BASH_SOURCE%/*}/checks.bash"

demo=$KVMM_TOP/kvmm/dist/demo
mkdir "$work/tmp"
unset KVMM_RUNDIR KVMM_SOCKET XDG_RUNTIME_DIR
child=
# A failure leaves no process either; hold's children end with it.
trap 'for p in $(ours); do p=${p%/*}; kill -TERM "${p#/proc/}" 2>/dev/null; done
      kill -KILL $child 2>/dev/null; rm -rf "$work"' EXIT

# ours: processes that were started with this TMPDIR
ours()
{
	grep -lsaF "TMPDIR=$work/tmp" /proc/[0-9]*/environ
}

# all_ended: all of them end within 15 s
all_ended()
{
	local i

	for ((i = 0; i < 150; i++)); do
		[ -n "$(ours)" ] || return 0
		sleep 0.1
	done
	echo "left: $(for p in $(ours); do tr '\0' ' ' <"${p%/*}/cmdline"; echo; done)"
	return 1
}

nothing_in()	{ [ -z "$(ls -A "$1")" ]; }
counted()	{ grep -qE -- "^ +[1-9][0-9]*  $1 " <<<"$out"; }

# ---- another server has the port
"$KVMM_BUILD/kvrt" serve "$KVMM_TOP/tests/data/demo-model" --port 0 2>"$work/other" &
child=$!
for ((i = 0; i < 200; i++)); do
	grep -q 'listening on' "$work/other" && break
	sleep 0.05
done
port=$(sed -n 's/.*listening on http:\/\/127.0.0.1:\([0-9]*\),.*/\1/p' "$work/other")

# At 100 columns no line wraps; words of the model are as wide as kvrt ask makes them.
run env TMPDIR="$work/tmp" KVMM_DEMO_PORT="$port" COLUMNS=100 "$demo" "$KVMM_BUILD"
check 'exit code' rc_is 0
check 'no line wraps' [ -z "$(awk 'length > 100' <<<"$out")" ]
check 'the port that is taken' says "Port $port is taken by another program"
check 'the port that is not' says '^  listening on http://127\.0\.0\.1:[0-9]+$'
joined=$(tr -d '\n' <<<"$out")
check 'the area' grep -qE '/area: swap area of 31M, of 32M: whole extents of [0-9]+[KM] behind a header of 1M ' <<<"$joined"
for i in 1.1 1.2 2.1 2.2 3.1 3.2; do
	check "text of sample $i" says "^\\[$i\\] .*[a-z]"
done
check 'the domain in the middle of it' says '^ +ID +TENANT .* USED +CACHED .* NAME$'
check 'the domain in the middle of it' says '^ +0 +0 +1 .* demo-model$'
check 'the area in the middle of it' says '/area +file +31744 +[1-9]'
for key in seq_fork pgcow preempt_swap pswpout pswpin swap_restore preempt_recompute recompute_tokens; do
	check "$key" counted $key
done
check 'the same texts' says '^  5 of 5 texts are the same'
check 'the cache: the first run has some, and why' \
	says '^   ?The first run finds some already, since the steps above computed the same beginning\.$'
# 12 of the 28 begin a block that a lower tier may have by then: a part of a block is
# found on the device alone.
check 'the cache: the beginning of the letter' says '^cached tokens: (16|28) of 46 prompt tokens '
check 'the cache, by HTTP' says '^cached tokens: 45 of 46 prompt tokens \(98 %\); 16 tokens in '
check 'the cache, in another process' says '^cached tokens: 45 of 46 .* computed 1,'
check 'the walkers' says '^ok$'
check 'curl asks that server' says "curl -N http://127.0.0.1:[0-9]+/v1/completions "
check 'where to look on: kvtop' says '^    build/kvtop  |/kvtop  '
check 'where to look on: chat' says '/kvrt chat http://127\.0\.0\.1:[0-9]+$'
check 'for that model' says '"model": "demo-model"'
check 'no remark of the shell' says_not '(demo|demo.sh): line [0-9]+|Terminated|Killed'
check 'no error' says_not '(error|warning):'
check 'no process is left' all_ended
check 'no file is left' nothing_in "$work/tmp"
kill -TERM "$child"
wait "$child" 2>/dev/null
child=

# ---- ended at any moment
rounds=2
[ "${KVMM_TEST_LEVEL:-check}" = check ] || rounds=24
signals=(INT TERM HUP KILL)
for ((n = 0; n < rounds; n++)); do
	sig=${signals[n % 4]}
	ms=$((RANDOM % 2500))
	printf -v nap '%d.%03d' $((ms / 1000)) $((ms % 1000))
	# A process that a shell starts in the background ignores INT.
	TMPDIR=$work/tmp KVMM_DEMO_PORT=0 env --default-signal=INT "$demo" "$KVMM_BUILD" \
		>"$work/seen" 2>&1 </dev/null &
	child=$!
	sleep "$nap"
	kill -"$sig" $child 2>/dev/null
	wait $child 2>/dev/null
	rc=$?
	child=
	out=$(cat "$work/seen")
	what="$sig after $nap s"
	case $sig in
	INT)	check "$what: exit code" [ $rc = 130 -o $rc = 0 ] ;;
	TERM)	check "$what: exit code" [ $rc = 143 -o $rc = 0 ] ;;
	HUP)	check "$what: exit code" [ $rc = 129 -o $rc = 0 ] ;;
	esac
	check "$what: no process is left" all_ended
	# A killed demo cannot remove its files.
	[ $sig != KILL ] || rm -rf "$work/tmp"/kvmm-demo.*
	check "$what: no file is left" nothing_in "$work/tmp"
	check "$what: no remark of the shell" says_not '(demo|demo.sh): line [0-9]+|Terminated'
done

# ---- a reader that goes away, and a TMPDIR that does not exist
TMPDIR=$work/tmp KVMM_DEMO_PORT=0 "$demo" "$KVMM_BUILD" 2>"$work/seen" </dev/null | head -n 3 >/dev/null
rc=${PIPESTATUS[0]} out=$(cat "$work/seen")
check 'a reader that goes away: exit code' rc_is 141
check 'a reader that goes away: no process is left' all_ended
check 'a reader that goes away: no file is left' nothing_in "$work/tmp"
run env TMPDIR="$work/none" "$demo" "$KVMM_BUILD"
check 'no place: exit code' rc_is 1
check 'no place: why' says "^demo: error: .*$work/none/.*: set TMPDIR to a directory of yours$"

# ---- no disk
if [ "${KVMM_TEST_LEVEL:-check}" != check ] && [ "$(stat -fc %T /dev/shm)" = tmpfs ] &&
   shm=$(mktemp -d /dev/shm/demo.XXXXXX); then
	run env TMPDIR="$shm" KVMM_DEMO_PORT=0 "$demo" "$KVMM_BUILD"
	check 'tmpfs: exit code' rc_is 0
	check 'tmpfs: it says so' says 'tmpfs: memory, not a disk'
	check 'tmpfs: no file is left' nothing_in "$shm"
	rm -rf "$shm"
fi

checks_done
