#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# kvtop.sh - kvtop on a terminal of tmux, in a log, and without a daemon
#
# Two runtimes are stopped as soon as they hold memory, so the figures stand still and
# cost no CPU time.  One of them runs again for a moment, so that rates appear.
#
# budget: 40 s
. "${BASH_SOURCE%/*}/checks.bash"

kvtop=$KVMM_BUILD/kvtop
kvctl=$KVMM_BUILD/kvctl
page=$KVMM_TOP/Documentation/kvtop.md
export KVMM_RUNDIR=$work/run
mkdir -m 700 "$KVMM_RUNDIR"
unset NO_COLOR TMUX
daemon=
clients=()

tm()	{ tmux -S "$work/tmux" -f /dev/null "$@"; }
key()	{ tm send-keys -t top "$@"; }

finish()
{
	local pid

	tm kill-server 2>/dev/null
	for pid in "${clients[@]}" $daemon; do
		kill -KILL "$pid" 2>/dev/null
		wait "$pid" 2>/dev/null
	done
	rm -rf "$work"
}
trap finish EXIT

start_daemon()
{
	"$KVMM_BUILD/kvmm" --adopt off --pool-size 64M --extent-size 1M --host-size 8M --tenant blue \
		--step-deadline-ms 600000 --quiet-deadline-ms 600000 \
		--revoke-deadline-ms 600000 >>"$work/log" 2>&1 &
	daemon=$!
	run "$kvctl" --timeout 20 wait
	check 'the daemon answers' rc_is 0
}

# holds NAME: start a runtime in domain NAME, and stop it when it has sequences
holds()
{
	local pid i

	"$KVMM_BUILD/kvrt" generate "$KVMM_TOP/tests/data/demo-model" --dtype f32 -n 6 --domain "$1" \
		--ignore-eos --max-tokens 2000 --threads 1 'The kitten' >/dev/null 2>>"$work/log" &
	pid=$!
	clients+=("$pid")
	for ((i = 0; i < 2000; i++)); do
		[ "$("$kvctl" cat clients | awk -v p="$pid" '$2 == p { print $8 }')" = 6 ] && break
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.01
	done
	kill -STOP "$pid"
	check "$1 holds memory" test -d "/proc/$pid" -a "$i" -lt 2000
}

# see NAME PATTERN: wait until the screen shows PATTERN
see()
{
	local i

	for ((i = 0; i < 400; i++)); do
		out=$(tm capture-pane -p -t top)
		rc=$?
		grep -qE -- "$2" <<<"$out" && break
		sleep 0.05
	done
	check "$1" says "$2"
}

# lines N: has the screen N lines, down to the footer?
lines()	{ [ "$(wc -l <<<"$out")" = "$1" ]; }

# under TITLE PATTERN: does a word of the line with PATTERN end in TITLE's last column?
under()
{
	awk -v title="$1" -v pattern="$2" '
		/^[ []1 domains/ { next }
		!end && (at = index($0 " ", " " title " ")) { end = at + length(title); next }
		end && $0 ~ pattern {
			ok = substr($0, end, 1) != " " && substr($0, end + 1, 1) ~ /^ ?$/
			exit
		}
		END { exit !ok }' <<<"$out"
}

# refused CODE PATTERN ARG..: kvtop fails with one line on stderr, none on stdout
refused()
{
	local code=$1 pattern=$2

	shift 2
	run "$kvtop" "$@"
	check "kvtop $*: exit code" rc_is "$code"
	check "kvtop $*: why" says "^kvtop: error: .*$pattern"
	check "kvtop $*: one line" test "$(wc -l <<<"$out")" = 1
}

# ---- without a daemon
refused 69 "no daemon is at $KVMM_RUNDIR/view.sock" --once
refused 69 'no daemon is at' --batch -n 3 --interval 0.05
refused 64 'here is no terminal: give --batch or --once'
refused 64 "--interval: '0' is no time" --interval 0 --once
refused 64 "--interval: '1x' is no time" --interval 1x --once
refused 64 "--interval: 'nan' is no time" --interval nan --once
refused 64 '--count: goes with --batch' --count 2
refused 64 "--sort: 'AGE' is no column of domains" --sort AGE --once
refused 64 "--view: 'x' is not one of domains" --view x
refused 64 'is one argument too many' now

# ---- help and the documentation have the same entries
run "$kvtop" --help
help=$out
check 'help' rc_is 0
check 'help fits a terminal' test -z "$(awk 'length > 79' <<<"$help")"
section()	{ sed -n "/^$1:\$/,/^\$/p" <<<"$help" | sed 1d; }
# Entries begin in the third column.
entries()	{ section "$1" | grep -E '^  [^ ]' | awk '{ print $1 }' | sort; }
table()		{ sed -n "/^### $1\$/,/^#/p" "$page" | sed -n 's/^| `\([^`]*\)` |.*/\1/p' | sort; }
both()
{
	out=$(diff <(entries "$1") <(table "$2"))
	rc=$?
	check "$1: as documented" rc_is 0
	check "$1: there are some" test -n "$(entries "$1")"
}
both Keys Keys
both Symbols Symbols
for view in domains clients seqs areas vmstat; do
	both "Columns of $view" "Columns of $view"
done
out=$(diff <(entries Options | sed 's/^--//' | sort) <(table Options | sed 's/^--//; s/ .*//' | sort))
rc=$?
check 'Options: as documented' rc_is 0
doc_codes=$(sed -n '/^| exit code/,/^$/s/^| \([0-9]*\) | \(.*\) |$/\1 \2/p' "$page")
out=$(section 'Exit codes' | sed -n 's/^ *\([0-9][0-9]*\)  \(.*\)$/\1 \2/p')
check 'exit codes: as documented' test "$out" = "$doc_codes"

# ---- in a log
start_daemon
holds alpha
holds beta
run "$kvtop" --batch -n 2 --interval 0.05 --view all
check 'batch' rc_is 0
check 'batch: two looks' test "$(grep -c '^kvmm host pid' <<<"$out")" = 2
check 'batch: pools' says '^Device \[#.*\] .* used of 64\.0M  cached [0-9.]+[KM]? free '
check 'batch: the host pool' says '^Host   \[.*\]     0 held of 8\.00M'
check 'batch: pressure' says '^Stall   some +[0-9.]+%  full +[0-9.]+%'
check 'batch: rates' says '^Per s   grants [0-9.]+ +evictions [0-9.]+ +swapped [0-9.]+ +recomputed [0-9.]+'
check 'batch: no blanks at the ends' says_not ' $'
check 'batch: plain text' test -z "$(LC_ALL=C tr -d ' -~\n' <<<"$out")"
check 'batch: no mark' says_not '^>'
used=$("$kvctl" cat domains | awk '$NF == "alpha" { k = $9 - $18
	printf k < 1024 ? "%dK" : k < 10235 ? "%.2fM" : "%.1fM", k < 1024 ? k : k / 1024 }')
check 'batch: a domain and what it has' says "^ alpha +0 +$used +[0-9.]+[KM]? +[0-9.]+[KM] +0 +0 +max +max +100 +1 +[0-9]+ +[0-9]+ "
check 'batch: aligned' under USED '^ alpha'
check 'batch: a client' says "^ +[01] +${clients[0]} kvrt +alpha +alive +[0-9]+ +6 +[0-9]+ +[0-9]+ +0\.0 "
# on_terminal COLUMNS OPTION..: one sample on a terminal so wide
on_terminal()
{
	local cols=$1

	shift
	run script -qec "stty cols $cols; '$kvtop' --once --interval 0.05 $*" /dev/null
	out=${out//$'\r'/}
}
for width in 100 60; do
	on_terminal $width --view all
	check "a terminal of $width columns: it ends well" rc_is 0
	check "a terminal of $width columns: the domains" says '^ alpha '
	check "a terminal of $width columns: no line is longer" \
		test -z "$(awk -v w=$width 'length > w' <<<"$out")"
done
on_terminal 200 --view all
check 'a wide terminal: the whole line' says '^ alpha +0 +.* +max +max +100 +1 '
run "$kvtop" --once --interval 0.05 --view all
check 'a pipe: lines as long as they need' test -n "$(awk 'length > 100' <<<"$out")"
run "$kvtop" --once --interval 0.05 --view map
sum=$(awk '/^X poison/ { for (i = 3; i <= NF; i += 3) n += $i; print n }' <<<"$out")
check 'map: every extent is one of the symbols' test "$sum" = 64
check 'map: what is mapped' test "$(grep '^     0  ' <<<"$out" | tr -cd '#.' | wc -c)" = 64
run "$kvtop" --once --interval 0.05 --view vmstat --filter SEQ_open
check 'filter: in capitals or not' says '^ seq_open +2 +0\.0$'
check 'filter: nothing else' says_not 'pgalloc'
id=$("$kvctl" cat clients | awk -v p="${clients[1]}" '$2 == p { print $1 }')
run "$kvtop" --once --interval 0.05 --view seqs --client "$id" --sort seq
check 'seqs: of the client' test "$(grep -cE '^ +[0-5] +[0-9]+ +[0-9]+ ready ' <<<"$out")" = 6
run "$kvtop" --once --interval 0.05 --view domains --sort name
check 'sort' test "$(grep -oE '^ (alpha|beta)' <<<"$out" | tr -d '\n ')" = alphabeta
run "$kvtop" --once --interval 0.05 --tenant blue --view all
check 'tenant' says '^kvmm tenant blue  domains 0  clients 0'
check 'tenant: its quota' says '^Quota   clients 0 of [0-9]+  domains 0 of'
check 'tenant: nothing of others' says_not 'alpha|Device|Stall'
out=$("$kvtop" --once --interval 0.05 2>&1 >/dev/full)
rc=$?
check 'a full disk' rc_is 74

# The rate of steps appears when a runtime has run.
kill -CONT "${clients[1]}"
for ((i = 0; i < 100; i++)); do
	run "$kvtop" --once --interval 0.05 --view clients
	says 'kvrt +beta +alive +[0-9]+ +6 +[0-9]+ +[0-9]+ +([1-9][0-9.k]*|0\.[1-9]) ' && break
done
kill -STOP "${clients[1]}"
check 'steps a second' says 'kvrt +beta +alive +[0-9]+ +6 +[0-9]+ +[0-9]+ +([1-9][0-9.k]*|0\.[1-9]) '

# ---- on a terminal
command -v tmux >/dev/null || { check 'tmux is installed' false; checks_done; }
tm new-session -d -s top -x 80 -y 24 \
	"$kvtop --interval 0.1 --timeout 3600; echo exit code \$?; exec cat"
see '80x24: domains' '^[> ]alpha +[0-9.]+[KM] .* 100 +[0-9]+ +[0-9]+ +[-0-9.k]+ +[-0-9]+ +[0-9.]+ +[0-9.]+$'
check '80x24: the whole screen' lines 24
check '80x24: the title' says '^kvmm host pid [0-9]+  domains 2  clients 2  running [0-9]+  waiting [0-9]+  every 0.1s$'
check '80x24: a bar' says '^Device \[#.*\] .* used of 64.0M  cached 0 free [0-9.]+M$'
check '80x24: views' says '^\[1 domains\] 2 clients  3 seqs  4 map  5 areas  6 vmstat +by USED down$'
for title in USED MAX WGHT WAIT FULL%; do
	check "80x24: $title is aligned" under "$title" '^[> ]alpha'
done
check '80x24: help' says '^h help  q quit '
check '80x24: no blue' test -z "$(tm capture-pane -e -p -t top | grep $'\e\[[0-9;]*34m')"
check '80x24: colours' grep -q $'\e\[[0-9;]*3[1-6]m' <<<"$(tm capture-pane -e -p -t top)"
key 2
see 'clients' "^[> ] +[01] +${clients[0]} kvrt +alpha +alive +[0-9]+ "
check 'clients: STEP/S is aligned' under STEP/S 'kvrt +alpha'
key / b e t Enter
see 'filter' '6 vmstat  /bet '
check 'filter: what has it' says 'kvrt +beta'
check 'filter: what has not' says_not 'kvrt +alpha'
key Enter
see 'Enter: its sequences' "^ 1 domains  2 clients \[3 seqs of $id\]"
see 'sequences' '^> +[0-9]+ +[0-9]+ ready +0 +[0-9]+ '
first=$(grep '^>' <<<"$out")
key Down
see 'Down marks the next' "^ ${first#>}"
key 4
see 'map' '^X poison 0 .*  # mapped [1-9][0-9]*  c cached 0$'
see 'map: cells' '^     0  [#.]*#[#.]*$'
key 5
see 'areas' '^ nothing here$'
key 6
see 'vmstat' '^>nr_extents +64 +-$'
key End
see 'End' '^>req_refused +0 +0\.0$'
key h
see 'help: keys' '^Tab     the next view'
key j j j j j j j j
see 'help: symbols' '^q       a dead client may still write it$'
key x
see 'back from help' '\[6 vmstat\]'
key 1 '<' '<'
see 'sort' 'by NAME up$'
key Space
see 'pause' '\[paused\]$'
key Space

# Change a limit in the screen, and see a refusal of the daemon.
key / a l p h Enter s
see 'set: of the row' '^set: domain/alpha/memory\.max _$'
key 3 2 M Enter
see 'set: done' '^alpha: memory.max is set to 33554432$'
check 'set: kvctl sees it' test "$("$kvctl" cat domain/alpha/memory.max)" = 'gpu0 33554432'
see 'set: the table shows it' '^>alpha .* 32\.0M +100 '
key s C-u 'domain/alpha/memory.low 8M' Enter
see 'set: another limit' '^alpha: memory.low is set to 8388608$'
key s 1 K Enter
see 'set: refused' '^memory.max: out of bounds: give at least the [0-9]+ bytes of one block$'
check 'set: unchanged' test "$("$kvctl" cat domain/alpha/memory.max)" = 'gpu0 33554432'
key s x Enter
see 'set: no size' '^x: not a valid size: '
key s C-u 'meminfo 1' Enter
see 'set: cannot be' '^meminfo: cannot be set: '
key s 1 Escape
see 'set: given up' '^h help  q quit'
check 'set: nothing was done' test "$("$kvctl" cat domain/alpha/memory.max)" = 'gpu0 33554432'
key Escape

# ---- other sizes
tm resize-window -t top -x 40 -y 10
see '40x10' '^kvmm  dom 2  cli 2  run [0-9]+  wait [0-9]+ '
see '40x10: views' '^\[1 domains\] 2  3  4  5  6 *$'
check '40x10: the whole screen' lines 10
check '40x10: a pool' says '^Device \[#.*\] +[0-9.]+M of 64.0M$'
check '40x10: aligned' under USED '^[> ]alpha'
check '40x10: what is left of columns' says '^ NAME +USED +MAX +RUN +WAIT'
key h
see '40x10: help' '^Up      one line up'
key x
tm resize-window -t top -x 200 -y 50
see '200x50' '^ NAME +TENANT +USED +CACHE +PEAK +MIN +LOW +HIGH +MAX +WGHT CLI +RUN +WAIT +TOK/S +TTFT +SOME% +FULL%'
check '200x50: the whole screen' lines 50
see '200x50: history' '^Running +12\.0 +█+$'
check '200x50: history of tokens' says '^Tok/s '
check '200x50: aligned' under FULL% '^[> ]alpha'
tm resize-window -t top -x 7 -y 2
see '7x2' '^kvmm  *'
tm resize-window -t top -x 80 -y 24
see '80x24 again' 'by NAME up$'

# ---- a daemon that stops, dies and starts again
kill -STOP "$daemon"
key 4
see 'stopped: keys work' '\[4 map\]'
kill -CONT "$daemon"
see 'goes on' '^one cell: 1 extent of the pool$'
kill -KILL "$daemon"
wait "$daemon" 2>/dev/null
see 'dead: says so' '^kvmm  no daemon answers$'
see 'dead: where' 'no daemon is at .*/run/view.sock'
check 'dead: goes on' says '^trying again'
for pid in "${clients[@]}"; do
	kill -KILL "$pid" 2>/dev/null
	wait "$pid" 2>/dev/null
done
clients=()
start_daemon
see 'back' '^kvmm host pid [0-9]+  domains 0  clients 0'
see 'back: rates' '^Per s   grants 0\.0 '
kill -STOP "$daemon"
key q
see 'quit, whatever the daemon does' '^exit code 0$'
kill -CONT "$daemon"

# ---- a second daemon: a key shows it, and nothing of the first
mkdir -m 700 "$KVMM_RUNDIR-2"
KVMM_RUNDIR=$KVMM_RUNDIR-2 "$KVMM_BUILD/kvmm" --adopt off --pool-size 32M --extent-size 1M >>"$work/log" 2>&1 &
clients+=($!)
run "$kvctl" --timeout 20 --socket "$KVMM_RUNDIR-2" wait
tm respawn-pane -k -t top "$kvtop --interval 0.1; exec cat"
see 'daemons: the usual one' '^kvmm run \(1 of 2\)  domains 0 .* every 0\.1s$'
check 'daemons: its pool' says '^Device .* used of 64\.0M  '
key n
see 'daemons: the next one' '^kvmm run-2 \(2 of 2\)  domains 0 .* every 0\.1s$'
check 'daemons: its pool' says '^Device .* used of 32\.0M  '
key s C-u 'pool/gpu0/size 8M' Enter
see 'daemons: set at the one that is shown' '^pool/gpu0: size is set to 8192 kB of 32768 kB'
key n
see 'daemons: the first again' '^kvmm run \(1 of 2\)  '
check 'daemons: its pool again' says '^Device .* used of 64\.0M  '
tm respawn-pane -k -t top "KVMM_RUNDIR=$work/no $kvtop --interval 0.1; exec cat"
see 'daemons: none' 'no daemon answers'
mv "$KVMM_RUNDIR-2" "$work/no-2"
tm respawn-pane -k -t top "KVMM_RUNDIR=$work/no $kvtop --interval 0.1; exec cat"
see 'daemons: only one that is beside the usual place' '^kvmm host pid .*  every 0\.1s$'

# ---- without colours, and terminals that cannot show the screen
tm respawn-pane -k -t top "NO_COLOR=1 $kvtop --interval 0.1; exec cat"
see 'NO_COLOR' '^kvmm host pid'
check 'NO_COLOR: none' test -z "$(tm capture-pane -e -p -t top | grep $'\e\[[0-9;]*3[1-6]m')"
tm respawn-pane -k -t top "TERM=none $kvtop; echo exit code \$?; exec cat"
see 'no terminal: exit code' '^exit code 64$'
check 'no terminal: why' says 'TERM=none: is no terminal that can be drawn on: give --batch$'
checks_done
