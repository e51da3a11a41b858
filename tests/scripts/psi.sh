#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# psi.sh - programs made for the kernel's pressure files read the mounted ones
#
# Debian's prometheus-node-exporter reads the mount as its /proc.  check-psi, a Nagios
# plugin from PyPI, reads the files, those of a domain too.  Both must report the numbers
# in the files; the totals stop when no client is attached.  check-psi is installed once,
# into a folder of the build.  If it cannot be installed, it is left out with a note.
#
# from: full
# budget: 60 s, full 240 s
set -u
exporter=$(command -v prometheus-node-exporter) || {
	echo "prometheus-node-exporter is not installed (Debian: prometheus-node-exporter)"
	exit 77
}
[ -r /dev/fuse ] && [ "$(id -u)" = 0 ] || { echo "nothing can be mounted here"; exit 77; }
. "${BASH_SOURCE%/*}/checks.bash"

export KVMM_RUNDIR=$work/run
mkdir -m 755 "$KVMM_RUNDIR"
files=$KVMM_RUNDIR/proc
pids=()
finish()
{
	[ ${#pids[@]} = 0 ] || kill -TERM "${pids[@]}" 2>/dev/null
	wait
	rm -rf "$work"
}
trap finish EXIT

# until_true NAME COMMAND..: repeat COMMAND for up to 30 s until it succeeds
until_true()
{
	local what=$1 i

	shift
	for ((i = 0; i < 300; i++)); do
		run "$@"
		[ "$rc" = 0 ] && break
		sleep 0.1
	done
	check "$what" rc_is 0
}

# The pool is so small that sequences swap: they wait for memory, I/O and the mm thread.
"$KVMM_BUILD/kvmm-hold" --adopt off --proc on --pool-size 2M --extent-size 256K --host-size 4M \
	--swappiness 200 >"$work/hold.log" 2>&1 &
pids+=($!)
"$KVMM_BUILD/kvctl" wait --timeout 20 || { cat "$work/hold.log"; exit 1; }
until_true 'the files are mounted' test -r "$files/version"
[ "$rc" = 0 ] || { echo "nothing can be mounted here"; exit 77; }

for ((i = 0; i < 20; i++)); do
	run "$KVMM_BUILD/kvrt" generate "$KVMM_TOP/tests/data/demo-model" --domain psi -n 6 \
		--max-tokens 200 'In the beginning' 'Holmes leaned'
	[ "$rc" = 0 ] || break
	[ "$("$KVMM_BUILD/kvctl" cat pressure/{memory,io,cpu} | grep -c 'some .*total=[1-9]')" = 3 ] && break
done
check 'two prompts are answered' rc_is 0

# total FILE KIND: total in microseconds
total() { sed -n "s/^$2 .* total=//p" "$files/$1"; }

for res in memory io cpu; do
	check "there was pressure of $res" test "$(total pressure/$res some)" -gt 0
done
until_true 'all have gone' test -z "$(ls "$files/client")"
for f in pressure/{memory,io} domain/psi/{memory,io}.pressure; do
	check "full is part of some: $f" test "$(total $f full)" -le "$(total $f some)"
done

# ---- node_exporter
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$exporter" --path.procfs="$files" --collector.disable-defaults --collector.pressure \
	--web.listen-address="127.0.0.1:$port" >"$work/exporter.log" 2>&1 &
pids+=($!)
get() { python3 -c 'import sys, urllib.request as u; sys.stdout.write(u.urlopen(sys.argv[1]).read().decode())' "$1"; }
until_true 'node_exporter answers' get "http://127.0.0.1:$port/metrics"
page=$out
out=$(<"$work/exporter.log")
check 'it has nothing to complain of' says_not 'level=error'
out=$page
check 'its pressure collector succeeded' says '^node_scrape_collector_success\{collector="pressure"\} 1$'

# same NAME FILE KIND: is the metric the file's total in seconds?
same()
{
	local have

	have=$(sed -n "s/^node_pressure_$1_seconds_total //p" <<<"$page")
	[ -n "$have" ] && python3 -c 'import sys; sys.exit(abs(float(sys.argv[1]) * 1e6 - int(sys.argv[2])) > 0.5)' \
		"$have" "$(total "$2" "$3")"
}
check 'memory, waiting' same memory_waiting pressure/memory some
check 'memory, stalled' same memory_stalled pressure/memory full
check 'io, waiting' same io_waiting pressure/io some
check 'io, stalled' same io_stalled pressure/io full
check 'cpu, waiting' same cpu_waiting pressure/cpu some

# ---- check-psi
venv=$KVMM_BUILD/peers/check-psi
if ! "$venv/bin/python" -c 'import check_psi.cli' 2>/dev/null; then
	rm -rf "$venv"
	python3 -m venv "$venv" >/dev/null 2>&1 &&
		timeout 120 "$venv/bin/pip" install -q check-psi >/dev/null 2>&1
fi
if ! "$venv/bin/python" -c 'import check_psi.cli' 2>/dev/null; then
	echo 'note: check-psi cannot be had from PyPI: only node_exporter was tried'
	checks_done
fi
cat >"$work/probe.py" <<'END'
import sys
from check_psi.cli import PSI
for path in sys.argv[1:]:
    psi = PSI('memory')
    psi.file_path = path
    got = {m.name: m.value for m in psi.probe()}
    want = {}
    for line in open(path):
        kind, *pairs = line.split()
        want.update((kind + '_' + k, float(v)) for k, v in (p.split('=') for p in pairs) if k != 'total')
    # They decay between the two readings.
    if len(got) != 6 or set(got) != set(want) or any(abs(got[k] - want[k]) > 50 for k in got):
        sys.exit(f'{path}: {got} is not {want}')
END
run "$venv/bin/python" "$work/probe.py" "$files"/pressure/{memory,io,cpu} "$files"/domain/psi/{memory,io}.pressure
check 'check-psi reads all of them' rc_is 0
run "$venv/bin/python" "$work/probe.py" "$files/meminfo"
check 'and not what is none' rc_is_not 0
checks_done
