#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# config.sh - the file of options, under a real kvmm-hold
#
# Unit tests check the precedence of options and the refusals.  This script checks that
# kvmm-hold alone reads the file, once, and which options the processes get.
#
# budget: 20 s
. "${BASH_SOURCE%/*}/checks.bash"

hold=$KVMM_BUILD/kvmm-hold kvctl=$KVMM_BUILD/kvctl
export KVMM_RUNDIR=$work/run KVMM_LIBCUDA=/nonexistent
unset KVMM_CONFIG XDG_CONFIG_HOME
export HOME=$work
umask 022
mkdir -m 700 "$KVMM_RUNDIR"
daemon=

stop_daemon()
{
	[ -z "$daemon" ] && return
	kill -"${1:-TERM}" "$daemon" 2>/dev/null
	wait "$daemon" 2>/dev/null
	daemon=
}
trap 'stop_daemon KILL; rm -rf "$work"' EXIT

# of PROGRAM: the command line of hold's child that runs PROGRAM
of()
{
	local pid

	for pid in $(cat "/proc/$daemon/task/$daemon/children"); do
		[ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$1" ] || continue
		tr '\0' ' ' <"/proc/$pid/cmdline"
	done
}
child()
{
	local pid

	for pid in $(cat "/proc/$daemon/task/$daemon/children"); do
		[ "$(cat "/proc/$pid/comm" 2>/dev/null)" = kvmm ] && echo "$pid"
	done
}

# The file has it.
unset KVMM_HOST_SIZE
cat >"$work/kvmm.conf" <<-'EOF'
	# for a test
	pool-size = 2M
	extent-size = 256K
	host-size = 1M
	swappiness = 50
	[swapd]
	threads = 3
EOF
chmod 644 "$work/kvmm.conf"

for program in kvmm kvmm-hold; do
	run "$KVMM_BUILD/$program" --check-config "$work/kvmm.conf" --max-clients 5
	check "$program judges a file" rc_is 0
	check "$program says from where" says "^pool-size = 2M +# $work/kvmm.conf:2$"
	check "$program knows the default" says '^spin = 200 +# default$'
	check "$program has the command line" says '^max-clients = 5 +# command line$'
	check "$program knows swapd" says "^threads = 3 +# $work/kvmm.conf:7$"
done

# The printed default file changes no option.
"$KVMM_BUILD/kvmm" --print-config >"$work/default.conf"
run "$KVMM_BUILD/kvmm" --check-config "$work/default.conf"
check 'the default file is right' rc_is 0
check 'and says nothing' says_not '# .*default.conf:'
run sed -n 's/^#\([a-z-]*\) = .*/\1/p' "$work/default.conf"
for key in pool-size tenant log-level merge-kib; do
	check "the default file has $key" says "^$key$"
done

# --check-config and the start refuse the same errors.
for program in 'kvmm --check-config' kvmm-hold; do
	echo 'pool_size = 2M' >"$work/bad.conf"
	run "$KVMM_BUILD"/$program --config "$work/bad.conf"
	check "$program: unknown key" rc_is 78
	check "$program: where, and the remedy" says "bad.conf:1: .*did you mean pool-size"
	echo 'tenant = 9' >"$work/bad.conf"
	run "$KVMM_BUILD"/$program --config "$work/bad.conf"
	check "$program: bad tenant" rc_is 78
	check "$program: its line" says "bad.conf:1: tenant: '9' is no name"
	run "$KVMM_BUILD"/$program --config "$work/kvmm.conf" --pool-size 300K
	check "$program: sizes that do not fit" rc_is 78
	run env KVMM_SPIN=x "$KVMM_BUILD"/$program --config "$work/kvmm.conf"
	check "$program: environment" rc_is 64
	check "$program: its name" says "KVMM_SPIN: 'x' is not a valid number"
done
run "$hold" --config "$work/bad.conf" --nonsense
check 'the command line is judged by kvmm, and first' says '^kvmm: error: unknown option --nonsense: see kvmm --help'
run "$KVMM_BUILD/kvmm" --check-config "$work/missing"
check 'a file that is named is there' rc_is 78
# pools: one option each
refused() # text arguments...
{
	run "$KVMM_BUILD/kvmm" --config none --check-config "${@:2}"
	check "pools ${*:2}: refused" rc_is 64
	check "pools ${*:2}: why" says "$1"
}
run "$KVMM_BUILD/kvmm" --config none --check-config --pool host:16M --pool host:8M
check 'two pools' rc_is 0
refused "'host' is no pool" --pool host
refused "'disk:8M' is no pool" --pool disk:8M
refused "'host:many' is no pool" --pool host:many
refused '--pool and --pool-size are given' --pool host:8M --pool-size 8M
refused 'all pools have one backend' --backend cuda --pool host:8M
refused 'all pools have one backend' --pool host:8M --pool cuda:8M
run "$KVMM_BUILD/kvmm" --config none --check-config --pool host:16M --pool host:300K
check 'a pool that has no whole extents' rc_is 78
run env KVMM_CONFIG="$work/bad.conf" "$KVMM_BUILD/kvmm" --arena-layout
check 'a kvmm that is asked for its layout reads no file' rc_is 0

KVMM_SPIN=7 "$hold" --config "$work/kvmm.conf" --swappiness 60 2>"$work/log" </dev/null &
daemon=$!
run "$kvctl" --timeout 60 wait
check 'the daemon starts by its file' rc_is 0
out=$(of kvmm)
check 'kvmm has the file as options' says ' --pool-size=2M .*--host-size=1M '
check 'kvmm has the environment' says ' --spin=7 '
check 'what the command line says is said once' says_not 'swappiness=50'
check 'and last' says ' --swappiness 60 $'
run "$kvctl" cat meminfo
check 'the pool is that of the file' says 'Total: +2048 kB'
run grep -c "options: $work/kvmm.conf" "$work/log"
check 'the log says which file' rc_is 0
for ((i = 0; i < 600; i++)); do
	out=$(of swapd)
	says ' --threads=3 ' && break
	sleep 0.1
done
check 'swapd has its section' says '^[^ ]*swapd --threads=3 --generation='

# kvmm-proc listens at this address, but does not read the file.
echo 'metrics = 99999' >"$work/wrong.conf"
run "$KVMM_BUILD/kvmm" --check-config "$work/wrong.conf"
check 'a wrong address of metrics is refused' rc_is 78
check 'with its line' says "wrong.conf:1: metrics: '99999' is no address"
printf '# one\nhost-numa = near\n' >"$work/wrong.conf"
run "$KVMM_BUILD/kvmm" --check-config "$work/wrong.conf"
check 'a wrong memory node is refused' rc_is 78
check 'with its line' says "wrong.conf:2: host-numa: 'near' is not one of auto"

# The file was changed: a restarted kvmm has the options of the last one.
echo 'pool-size = 7Q' >"$work/kvmm.conf"
old=$(child)
kill -9 "$old"
for ((i = 0; i < 600; i++)); do
	new=$(child)
	[ -n "$new" ] && [ "$new" != "$old" ] && "$kvctl" cat version >/dev/null 2>&1 && break
	sleep 0.1
done
out=$(of kvmm)
check 'a restart has the same options' says ' --pool-size=2M .*--spin=7 .* --swappiness 60 $'
run grep adopted "$work/log"
check 'and adopts' says 'adopted .*: whole'
stop_daemon
checks_done
