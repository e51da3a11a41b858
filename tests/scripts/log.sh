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
		--log-level debug --stats-interval 1 --api-key sk-1 "$@" >>"$work/log" 2>&1 &
	serve=$!
	for ((i = 0; i < 200; i++)); do
		grep -q 'ready: curl' "$work/log" && break
		sleep 0.1
	done
	url=$(sed -n 's/.*listening on \(http[^,]*\),.*/\1/p' "$work/log")
	"$KVMM_BUILD/kvrt" ask --api-key sk-1 --max-tokens 3 "$url" "In the beginning" >/dev/null
	# A client that names another address, and none of the keys.
	request=$'GET /v1/models HTTP/1.0\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n'
	exec {web}<>"/dev/tcp/127.0.0.1/${url##*:}"
	printf '%s' "$request" >&"$web"
	cat <&"$web" >/dev/null
	exec {web}>&-
	for ((i = 0; i < 200; i++)); do
		grep -q 'generated tokens/s' "$work/log" && break
		sleep 0.1
	done
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
check 'a refusal: the address of the connection' \
	says '^[^ ]+ kvrt: 127\.0\.0\.1:[0-9]+ "GET /v1/models" 401, 0 tokens, [0-9.]+ ms, id [0-9a-f]{24}, code invalid_api_key$'
check 'a refusal: no address of a header' says_not '203\.0\.113\.9'
# The filter of the page for fail2ban, in the words of grep.
filter=$(sed -n 's/^failregex = //p' "$KVMM_TOP/Documentation/server.md")
filter=${filter//<ADDR>/\\[?[0-9a-f:.]+\\]?}
filter=${filter//\\S/[^ ]}
check 'the filter of the page' says "^$time ${filter//\\d/[0-9]}"
check 'the filter of the page: refusals alone' [ "$(grep -cE "${filter//\\d/[0-9]}" <<<"$out")" = 1 ]
check 'the work of a second' says \
	' demo-model: [0-9.]+ prompt tokens/s, [0-9.]+ generated tokens/s, running [0-9]+, waiting [0-9]+, prefix cache hits [-0-9.]+ %, pool [0-9.]+ %$'
work_with --log-format json
check 'json: every line' all_are \
	"^\{\"time\":\"$time\",\"level\":\"(err|warn|info|debug)\",\"program\":\"(kvmm|kvmm-hold|kvmm-proc|swapd|kvrt)\",.*\"message\":\".*\"\}$"
check 'json: a refusal' says '"client":"127.0.0.1:[0-9]+","id":"[0-9a-f]{24}","method":"GET","path":"/v1/models","status":401,'
check 'json: the reason of a refusal' says '"status":401,.*"code":"invalid_api_key","param":null,'
check 'json: the work' says '"model":"demo-model","prompt_tokens_per_s":[0-9.]+,'
: >"$work/log"
export JOURNAL_STREAM
JOURNAL_STREAM=$(stat -c %d:%i "$work/log")
work_with
check 'the journal: priorities' all_are '^<[3467]>(kvmm|kvmm-hold|kvmm-proc|swapd|kvrt): [^ ]'
check 'the journal: ready is information' says '^<6>kvmm: ready: '
check 'the journal: an error' says '^<3>kvmm-proc: '
work_with --log-format text
check 'another file: the time' all_are "^$time [^ ]"
"$KVMM_BUILD/kvmm-hold" --backend host --pool-size 8M --extent-size 8M --host-size 0 >"$work/log" 2>&1 &
hold=$!
"$KVMM_BUILD/kvctl" --timeout 20 wait >/dev/null
serve=
stop TERM
out=$(<"$work/log")
check 'a pool of one extent' says ': pool 8M on host, 1 extent of 8M, '
run "$KVMM_BUILD/kvmm-hold" --log-format xml
check 'no such format' rc_is 64
check 'no such format: the words' says 'auto\|text\|json\|journal'
checks_done
