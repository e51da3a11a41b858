#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# bpftrace.sh - every script of kvmm/dist/bpftrace answers its question
#
# bpftrace runs all of them at once on a daemon whose pool, host pool and area are so
# small that a server's sequences are evicted, preempted and swapped.  The counts of
# the scripts are compared with the counters of the daemon.
#
# from: full
# budget: 60 s, full 120 s
set -u
command -v bpftrace >/dev/null || { echo 'bpftrace is not installed (Debian: bpftrace)'; exit 77; }
[ "$(id -u)" = 0 ] || { echo 'eBPF wants root'; exit 77; }
readelf -n "$KVMM_BUILD/kvmm" | grep -q NT_STAPSDT || {
	echo 'built without <sys/sdt.h> (Debian: systemtap-sdt-dev): no probes'; exit 77; }
timeout 20 bpftrace -e "usdt:$KVMM_BUILD/kvmm:kvmm:kill { } BEGIN { exit(); }" >/dev/null 2>&1 || {
	echo 'this kernel, or who runs it, lets bpftrace attach to no program'; exit 77; }
. "${BASH_SOURCE%/*}/checks.bash"

export KVMM_RUNDIR=$work/run
mkdir -m 700 "$KVMM_RUNDIR"
pids=()
finish()
{
	[ ${#pids[@]} = 0 ] || kill -TERM "${pids[@]}" 2>/dev/null
	wait
	rm -rf "$work"
}
trap finish EXIT
give_up()	{ echo "$1"; tail -n 5 "$work"/*.log | sed 's/^/    /'; checks_done; }
counter()	{ "$KVMM_BUILD/kvctl" cat vmstat | awk -v n="$1" '$1 == n { print $2 }'; }
# summed SCRIPT MAP: sum over all keys of a map
summed()	{ awk -v m="@$2[" 'index($0, m) == 1 { n += $NF } END { print n + 0 }' "$work/$1.log"; }

"$KVMM_BUILD/kvmm-hold" --adopt off --pool-size 4M --extent-size 256K --host-size 1M --area-max 16M \
	--swappiness 200 >"$work/hold.log" 2>&1 &
pids+=($!)
"$KVMM_BUILD/kvctl" wait --timeout 20 || give_up 'no daemon'
run "$KVMM_BUILD/kvctl" swapon "$work/swap" --size 16M
check 'a swap area' rc_is 0
"$KVMM_BUILD/kvrt" serve "$KVMM_TOP/tests/data/demo-model" --port 0 --threads 1 >"$work/serve.log" 2>&1 &
pids+=($!)
for ((i = 0; i < 300; i++)); do
	grep -q ' ready: ' "$work/serve.log" && break
	sleep 0.1
done
url=$(sed -n 's/.*listening on \(http[^,]*\),.*/\1/p' "$work/serve.log")
[ -n "$url" ] || give_up 'no server'

out=$(sed -n 's/^| `\([a-z]*\)\.bt` | .*/\1/p' "$KVMM_TOP/Documentation/tracing.md" | sort)
check 'the page has every script, and no other' \
	test "$out" = "$(cd "$KVMM_TOP/kvmm/dist/bpftrace" && printf '%s\n' * | sed 's/\.bt$//')"

# The scripts run until they are stopped; slowsteps reports every step.
tracers=()
for script in evictions swaplat waiting slowsteps; do
	sed -e "s|@s\?bindir@|$KVMM_BUILD|" "$KVMM_TOP/kvmm/dist/bpftrace/$script.bt" >"$work/$script.bt"
	bpftrace "$work/$script.bt" 0 >"$work/$script.log" 2>&1 &
	tracers+=($!)
done
pids+=("${tracers[@]}")
for script in evictions swaplat waiting slowsteps; do
	for ((i = 0; i < 300; i++)); do
		grep -q '^watching' "$work/$script.log" && break
		sleep 0.1
	done
done
sleep 2			# the probes are attached after BEGIN
had=$(counter preempt_swap)
[ "$had" = 0 ] || give_up "preempted before it is looked: $had"
run timeout 60 "$KVMM_BUILD/kvrt" bench serve "$url" --dataset random --num-prompts 40 \
	--input-len 160 --output-len 120
check 'the load' rc_is 0
preempted=$(($(counter preempt_swap) + $(counter preempt_recompute)))
read=$(counter pswpin) written=$(counter pswpout)
kill -INT "${tracers[@]}"
wait "${tracers[@]}"
later=$(($(counter pswpin) + $(counter pswpout)))
pids=("${pids[@]:0:2}")

out=$(cat "$work/evictions.log")
check 'somebody was preempted' test "$preempted" -gt 0
check 'preemptions are all seen' test "$(summed evictions sequences_preempted)" = "$preempted"
check 'whom for' says '^@sequences_marked\[[0-9]+, [0-9]+, [a-z ]+\]: [1-9]'
check 'who was evicted by whom' says '^@blocks_evicted\[[0-9]+, -?[0-9]+\]: [1-9]'
out=$(cat "$work/swaplat.log")
check 'times of writes, of the disk' says '^@disk_us\[0, write\]:'
check 'times of writes, of the daemon' says '^@kvmm_us\[0, write\]:'
[ "${read:-0}" = 0 ] || check 'times of reads' says '^@disk_us\[0, read\]:'
seen=$(summed swaplat done)
check 'swap requests are all seen' test "$seen" -ge $((read + written)) -a "$seen" -le "$later"
check 'slots were written' test "${written:-0}" -gt 0
out=$(cat "$work/waiting.log")
check 'time in the queue' says '^@stage_1_in_the_queue_us:'
check 'time for memory' says '^@stage_2_for_memory_us:'
check 'time for a step' says '^@stage_3_for_a_step_us:'
check 'what is lacking' says '^@lacking\[[0-9]+, [0-9]+\]: [1-9]'
out=$(cat "$work/slowsteps.log")
check 'steps of the runtime' says '^kvrt +[0-9]+ +[0-9]+ +[1-9]'
check 'steps of a client' says '^client +[0-9]+ +[0-9]+ +[0-9]+'
# Their remarks at start and end, without tracefs or limits, do not count as errors.
for script in evictions swaplat waiting slowsteps; do
	out=$(grep -vE 'failed to detach|RLIMIT_MEMLOCK' "$work/$script.log" | grep -E 'ERROR|WARNING|[Ll]ost [0-9]')
	check "$script: nothing went wrong" test -z "$out"
done
checks_done
