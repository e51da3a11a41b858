#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# log.sh - lines of all programs that run long, in each format
#
# kvmm-hold gives its format to kvmm, swapd and kvmm-proc.
#
# budget: 30 s
. "${BASH_SOURCE%/*}/checks.bash"

export KVMM_RUNDIR=$work/run KVMM_LIBCUDA=/nonexistent
unset KVMM_CONFIG XDG_CONFIG_HOME JOURNAL_STREAM
export HOME=$work
umask 022
mkdir -m 700 "$KVMM_RUNDIR"
hold= serve=

stop()
{
	[ -z "$serve" ] || { kill -"$1" "$serve"; wait "$serve"; } 2>/dev/null
	[ -z "$hold" ] || { kill -"$1" "$hold"; wait "$hold"; } 2>/dev/null
	hold= serve=
}
trap 'stop KILL; rm -rf "$work"' EXIT

# work_with OPTION..: start all programs, let each write a line, end them; the log is $out
work_with()
{
	# kvmm-proc serves at a free port or not at all: its line is an error then.
	"$KVMM_BUILD/kvmm-hold" --pool-size 2M --extent-size 256K --host-size 1M \
		--metrics 127.0.0.1:1 "$@" >>"$work/log" 2>&1 &
	hold=$!
	"$KVMM_BUILD/kvctl" --timeout 20 wait >/dev/null
	"$KVMM_BUILD/kvctl" swapon "$work/area" --size 4M >/dev/null
	"$KVMM_BUILD/kvrt" serve "$KVMM_TOP/tests/data/demo-model" --port 0 --threads 1 \
		--log-level debug "$@" >>"$work/log" 2>&1 &
	serve=$!
	for ((i = 0; i < 200; i++)); do
		grep -q 'ready: curl' "$work/log" && break
		sleep 0.1
	done
	url=$(sed -n 's/.*listening on \(http[^,]*\),.*/\1/p' "$work/log")
	"$KVMM_BUILD/kvrt" ask --max-tokens 3 "$url" "In the beginning" >/dev/null
	stop TERM
	out=$(<"$work/log")
	rm -f "$work/log" "$work/area"
}

# all_are EXPRESSION: every line matches, and each program has one
all_are()
{
	local name

	! grep -qvE -- "$1" <<<"$out" || return
	for name in kvmm-hold kvmm swapd kvmm-proc kvrt; do
		[ "$name" = kvmm-hold ] || grep -qE -- "[\" >]$name[\":]" <<<"$out" || return
	done
}

time='20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]\.[0-9]{3}Z'
work_with
check 'by default: the time' all_are "^$time (kvmm|kvmm-hold|kvmm-proc|swapd|kvrt): [^ ]"
work_with --log-format json
check 'json: every line' all_are \
	"^\{\"time\":\"$time\",\"level\":\"(err|warn|info|debug)\",\"program\":\"(kvmm|kvmm-hold|kvmm-proc|swapd|kvrt)\",.*\"message\":\".*\"\}$"
: >"$work/log"
export JOURNAL_STREAM
JOURNAL_STREAM=$(stat -c %d:%i "$work/log")
work_with
check 'the journal: priorities' all_are '^<[3467]>(kvmm|kvmm-hold|kvmm-proc|swapd|kvrt): [^ ]'
check 'the journal: ready is information' says '^<6>kvmm: ready: '
check 'the journal: an error' says '^<3>kvmm-proc: '
work_with --log-format text
check 'another file: the time' all_are "^$time [^ ]"
run "$KVMM_BUILD/kvmm-hold" --log-format xml
check 'no such format' rc_is 64
check 'no such format: the words' says 'auto\|text\|json\|journal'
checks_done
