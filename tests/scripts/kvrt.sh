#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# kvrt.sh - the output of kvrt generate, and its lines in the daemon's log
#
# Both streams go to one file, as on a terminal.  The script checks the order of the
# lines, and that no line sticks to another.
#
# budget: 30 s
. "${BASH_SOURCE%/*}/checks.bash"

export KVMM_RUNDIR=$work/run
mkdir -m 700 "$KVMM_RUNDIR"
model=$KVMM_TOP/tests/data/demo-model
log=$work/log
seen=$work/seen
hold=
child=

stop_all()
{
	[ -z "$child" ] || kill -KILL "$child" 2>/dev/null
	[ -z "$hold" ] || kill "$hold" 2>/dev/null
	[ -z "$hold" ] || wait "$hold" 2>/dev/null
	hold=
}
trap 'stop_all; rm -rf "$work"' EXIT

kvrt()		{ "$KVMM_BUILD/kvrt" generate "$@"; }
one_line()	{ [ -n "$out" ] && [ "$out" = "${out##*$'\n'}" ]; }
one_summary()	{ [ "$(grep -c 'cached tokens:' <<<"$out")" = 1 ]; }
# Without the time, which begins a line of a daemon.
logged()	{ sed -E 's/^[-0-9]+T[0-9:.]+Z //' "$log" | grep -cE -- "$1" >/dev/null; }
not_logged()	{ ! logged "$1"; }

# at_last FUNCTION ARG..: wait up to 10 s until it succeeds
at_last()
{
	local i

	for ((i = 0; i < 200; i++)); do
		"$@" && return
		sleep 0.05
	done
	return 1
}

# ---- without a daemon
run kvrt --max-tokens 3 "Hello there"
check 'no folder: exit code' rc_is 66
check 'no folder: one line' one_line
check 'no folder: why' says "^kvrt: error: MODEL 'Hello there' is no folder and no file: give a model folder, a GGUF file, or hf:ORG/NAME, before any prompt$"
run kvrt --help
help=$out
run kvrt -h
check '-h is --help' [ "$out" = "$help" ]
check '-h: exit code' rc_is 0
run "$KVMM_BUILD/kvrt" help generate
check 'help generate is generate --help' [ "$out" = "$help" ]
run "$KVMM_BUILD/kvrt" bench serve --help
help=$out
run "$KVMM_BUILD/kvrt" help bench serve
check 'help bench serve is bench serve --help' [ "$out" = "$help" ]
run "$KVMM_BUILD/kvrt" -h
check 'kvrt -h' says '^Usage: kvrt COMMAND'

"$KVMM_BUILD/kvmm-hold" --pool-size 64M --extent-size 1M --area-max 64M >"$log" 2>&1 &
hold=$!
run "$KVMM_BUILD/kvctl" --timeout 10 wait
check 'the daemon answers' rc_is 0
check 'the backend is what it is' logged 'host backend: blocks in host memory'

check 'areas without a host pool' logged 'warning: --area-max is of no use .*: give it --host-size$'
check 'the size of the records' logged 'pool 64M on host, 64 extents of 1M, [0-9]+M of records, epoch '

name=$(tr '\0' '\n' <"/proc/$("$KVMM_BUILD/kvctl" cat status | awk '$1 == "Pid:" { print $2 }')/cmdline" | head -n 1)
check 'the daemon is called by its own path' [ "$name" = "$(realpath "$KVMM_BUILD")/kvmm" ]

# ---- a run
run kvrt "$model" --temperature 0 --max-tokens 20 --ignore-eos "In the beginning"
check 'a run: exit code' rc_is 0
check 'a run: one line at the attach' says '^kvrt: .*demo-model: .* client 0 of kvmm$'
check 'a run: the rate' says '^cached tokens: 0 of .*; 20 tokens in [0-9]+\.[0-9]{2} s \([0-9.]+/s\)$'
check 'the attach in the log' at_last logged \
	'^kvmm: client 0 attached: kvrt \(pid [0-9]+, uid [0-9]+\), domain demo-model$'
check 'the end in the log' at_last logged '^kvmm: client 0 detached: kvrt \(pid [0-9]+\)$'

check 'a run: no experts' says_not 'experts touched'

# ---- a model with experts: 4 of 8; a step of 4 rows touches 7.5, if all are as likely
moe=$work/moe
mkdir "$moe"
cp "$KVMM_TOP/tests/data/families/olmoe/config.json" "$model"/tokenizer*.json "$moe"
sed -i -E 's/("vocab_size"): *[0-9]+/\1: 4096/; s/("num_key_value_heads"): *[0-9]+/\1: 4/' "$moe/config.json"
run kvrt "$moe" --load-format dummy --temperature 0 --max-tokens 20 --ignore-eos "In the beginning"
check 'experts: exit code' rc_is 0
check 'experts: in the last line' says '; experts touched per layer and step: [0-9.]+ of 8 by [0-9.]+ rows \(uniform choice: [0-9.]+\), [0-9.]+ MiB read$'
bench_moe() { "$KVMM_BUILD/kvrt" bench "$@" --load-format dummy --quiet --batch-size 4 --input-len 1 --output-len 9 \
		--num-iters-warmup 1 --num-iters 1 "$moe"; }
run bench_moe latency
check 'experts: bench' says '^experts touched per layer and step: [4-8]\.[0-9] of 8 by [1-4]\.[0-9] rows '
run bench_moe latency --json -
check 'experts: bench --json' says '"experts_touched": [1-9]'
check 'experts: bench --json, the bytes' says '"expert_bytes": [1-9]'

run kvrt "$model" --max-tokens 900000 --memory-max 64K "Hello"
check 'refused: exit code' rc_is 65
check 'refused: why' says '^kvrt: error: prompt 1: .*can never fit'
check 'refused: no figures' says_not 'cached tokens'
run kvrt "$model" -n 5 --max-tokens 900000 --memory-max 64K "Hello"
check 'refused, five samples: told once' test "$(grep -c 'can never fit' <<<"$out")" = 1
check 'refused, five samples: the rest is counted' says '^kvrt: error: prompt 1: the same of 4 more samples$'

# ---- another identity under the same name
check 'nothing was dropped so far' not_logged 'dropped'
run kvrt "$model" --block-tokens 32 --quiet --max-tokens 2 "In the beginning"
check 'another identity' rc_is 0
check 'what it cost is logged' logged \
	'^kvmm: domain demo-model: another model identity attached, [1-9][0-9]* cached blocks dropped$'

# start ARG..: start a run in the background, in $child; both streams go to $seen.
# The plain kernels are slow enough for a signal to arrive before its end.
start()
{
	: >"$seen"
	"$KVMM_BUILD/kvrt" generate "$model" --kernels ref --domain slow \
		--temperature 0 --ignore-eos --max-tokens 900 "$@" \
		>"$seen" 2>&1 &
	child=$!
}

# ended: wait for the run; its exit status in $rc, its output in $out
ended()
{
	wait "$child" 2>/dev/null
	rc=$?
	child=
	out=$(cat "$seen")
}

# interrupted PATTERN ARG..: start a run, and send Ctrl-C once PATTERN was printed
interrupted()
{
	local pattern=$1

	shift
	start "$@"
	at_last grep -q "$pattern" "$seen"
	kill -INT "$child"
	ended
}

interrupted 'of the' "And the LORD said"
check 'Ctrl-C: ended by the signal' rc_is 130
check 'Ctrl-C: the figures begin a line' says '^cached tokens: '
check 'Ctrl-C: and are the last line' grep -q '^cached tokens: ' <<<"${out##*$'\n'}"
check 'Ctrl-C: once' one_summary

interrupted '^\[1\.[1-6]\]' -n 6 "And the LORD said"
check 'Ctrl-C, six samples: ended by the signal' rc_is 130
check 'Ctrl-C, six samples: the text comes first' grep -q '^cached tokens: ' <<<"${out##*$'\n'}"
check 'Ctrl-C, six samples: once' one_summary
for i in 1 2 3 4 5 6; do
	check "Ctrl-C: sample $i is there" says "^\\[1\\.$i\\] "
done

# ---- an operator's limits, for clients that attach later too
run "$KVMM_BUILD/kvctl" set domain/demo-model/memory.max 2M
check 'set: what it says' says '^demo-model: memory.max is set to 2097152$'
run "$KVMM_BUILD/kvctl" cat domain/demo-model/memory.max
check 'set: what the file says' says '^gpu0 2097152$'
run "$KVMM_BUILD/kvctl" set domain/demo-model/memory.weight 20000
check 'set: out of bounds' says 'memory.weight: out of bounds: 1 to 10000$'
run kvrt "$model" --quiet --max-tokens 2 --memory-max 32M "Hello"
run "$KVMM_BUILD/kvctl" cat domain/demo-model/memory.max
check 'set: holds for the next one' says '^gpu0 2097152$'
run "$KVMM_BUILD/kvctl" set domain/demo-model/memory.max max
check 'set: lifted' rc_is 0

# ---- deaths
start "Hello"
at_last grep -q 'of kvmm$' "$seen"
kill -KILL "$child"
ended
check 'a client that died' at_last logged \
	'^kvmm: client 0 died: kvrt \(pid [0-9]+\); its memory is back, its full blocks stay cached$'

start "Hello"
at_last grep -q 'of kvmm$' "$seen"
kill -KILL "$(cat "/proc/$hold/task/$hold/children")"
ended
check 'a daemon that died, and the next went on: exit code' rc_is 0
check 'a daemon that died: what the next did' logged 'adopted'

stop_all
"$KVMM_BUILD/kvmm-hold" --pool-size 64M --extent-size 1M --adopt off >>"$log" 2>&1 &
hold=$!
run "$KVMM_BUILD/kvctl" --timeout 10 wait
start "Hello"
at_last grep -q 'of kvmm$' "$seen"
kill -KILL "$(cat "/proc/$hold/task/$hold/children")"
ended
check 'a daemon that died: exit code' rc_is 75
check 'a daemon that died: why' says \
	'^kvrt: error: the kvmm daemon died; kvmm-hold starts it again: run this command again$'
run kvrt "$model" --quiet --max-tokens 2 "Hello"
check 'it is back' rc_is 0

checks_done
