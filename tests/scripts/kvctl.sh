#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# kvctl.sh - kvctl against a real daemon, and against none
#
# Every failure must be one line that names the object, with an exit code for its kind.
#
# budget: 20 s
. "${BASH_SOURCE%/*}/checks.bash"

kvctl=$KVMM_BUILD/kvctl
export KVMM_RUNDIR=$work/run
mkdir -m 700 "$KVMM_RUNDIR"
daemon=

stop_daemon()
{
	[ -z "$daemon" ] && return
	kill -CONT "$daemon" 2>/dev/null
	kill -"${1:-TERM}" "$daemon" 2>/dev/null
	wait "$daemon" 2>/dev/null
	daemon=
}
others=()
trap 'stop_daemon KILL; [ -z "${others[*]}" ] || kill -KILL "${others[@]}"; rm -rf "$work"' EXIT

one_line()	{ [ -n "$out" ] && [ "$out" = "${out##*$'\n'}" ]; }
is()		{ [ "$out" = "$1" ]; }

# fails NAME CODE PATTERN ARG..: kvctl fails with one line on stderr, none on stdout
fails()
{
	local what=$1 code=$2 pattern=$3

	shift 3
	run "$kvctl" "$@"
	check "$what: exit code" rc_is "$code"
	check "$what: one line" one_line
	check "$what: says why" says "^kvctl: error: .*$pattern"
	out=$("$kvctl" "$@" 2>/dev/null)
	check "$what: nothing on stdout" is ''
}

# ---- no daemon
fails 'no daemon, ls' 69 "$KVMM_RUNDIR/view.sock: no daemon is here: start" ls
fails 'no daemon, cat' 69 'no daemon is here: start' cat meminfo vmstat
fails 'no daemon, check' 69 'no daemon is here: start' check
fails 'no daemon, wait' 69 'no daemon answered within 1 s: ' --timeout 1 wait
fails 'no such directory' 69 '/nowhere/else: no daemon is here' --socket /nowhere/else ls
fails 'no socket' 69 'no daemon is here' --socket /etc/passwd ls
fails 'a path too long' 64 'longer than 107 bytes' --socket "/$(printf 'a%.0s' {1..200})" ls

# ---- wrong arguments
fails 'no command' 64 'see kvctl help'
fails 'unknown command' 64 "'frobnicate' is no command: see" frobnicate
fails 'misspelt command' 64 "'staus' is no command: did you mean kvctl status\?$" staus
fails 'cat without path' 64 'cat: wrong number of arguments: kvctl cat PATH' cat
fails 'check with a path' 64 'wrong number of arguments: kvctl check$' check meminfo
fails 'a path and no command' 64 "no command: did you mean kvctl cat sys/vm/pool_bytes\?" \
	sys/vm/pool_bytes
fails 'ls with two paths' 64 'ls: wrong number' ls a b
fails 'status with a path' 64 'status: wrong number' status x
fails 'leases of two' 64 'leases: wrong number' leases 0 1
fails 'leases of a name' 64 'it: is no client: give its number' leases it
fails 'explain of three' 64 'explain: wrong number' explain 0 1 2
fails 'evict without a domain' 64 'evict: wrong number' evict
fails 'evict of no size' 64 'much: not a valid size: write 64K, 256M, 60GiB$' evict chat much
fails 'evict of nothing' 64 '0: not a valid size' evict chat 0
fails 'pin of no size' 64 'x: not a valid size' pin chat x
fails 'a log level too many' 64 'log_level: wrong number' log_level info warn
fails 'no daemon, status' 69 'no daemon is here' status
fails 'no daemon, --json' 69 'no daemon is here' --json clients
fails 'no daemon, drain' 69 'no daemon is here' drain
fails 'unknown option' 64 '--frob' --frob ls
fails 'timeout of zero' 64 '--timeout' --timeout 0 ls

# ---- help comes from the tables
run "$kvctl" help
check 'help' rc_is 0
for word in status clients domains limits tunables leases explain cat ls check wait set drop_caches evict \
	pin unpin drain log_level version help --socket --timeout --json --off; do
	check "help names $word" says "^  $word( |\$)"
done
help=$out
run "$kvctl" --help
check '--help is help' is "$help"
run "$kvctl" -h
check '-h is help' is "$help"
run "$kvctl" cat --help
check 'help behind a command' is "$help"
check 'KVMM_SOCKET is not looked at' says '[$]KVMM_SOCKET'

# kvmm-hold prints help under its own name; the options are those of kvmm.
run "$KVMM_BUILD/kvmm" --help
options=$(sed -n '/^Options:/,$p' <<<"$out")
for opt in --help -h; do
	run "$KVMM_BUILD/kvmm-hold" $opt
	check "kvmm-hold $opt" rc_is 0
	check "kvmm-hold $opt: its own name" says '^Usage: kvmm-hold '
	out=$(sed -n '/^Options:/,$p' <<<"$out")
	check "kvmm-hold $opt: the options of kvmm" is "$options"
done
run "$KVMM_BUILD/kvmm-hold" --version
check 'kvmm-hold --version' says '^kvmm-hold [0-9]+\.[0-9]+\.[0-9]+$'
run "$KVMM_BUILD/kvmm-hold" --socket-mode --help
check 'kvmm-hold: --help as a value goes to kvmm' says "kvmm: error: --socket-mode: '--help'"
check 'kvmm-hold: exit code of kvmm' rc_is 64

# The documentation has the same exit codes, and the same texts.
doc_codes=$(sed -n '/^| exit code/,/^$/s/^| \([0-9]*\) | \(.*\) |$/\1 \2/p' \
	"$KVMM_TOP/Documentation/proc.md")
out=$(sed -n '/^Exit codes:/,/^$/s/^ *\([0-9][0-9]*\)  \(.*\)$/\1 \2/p' <<<"$help")
check 'documented exit codes' is "$doc_codes"
check 'there are exit codes' says '^69 '
run "$kvctl" help
check 'help: fits a terminal' test -z "$(awk 'length > 79' <<<"$out")"
run "$kvctl" --version
check '--version' says '^kvctl [0-9]+\.[0-9]+\.[0-9]+$'

# ---- with a daemon
"$KVMM_BUILD/kvmm" --pool-size 4M --extent-size 256K --tenant blue >"$work/log" 2>&1 &
daemon=$!
run "$kvctl" --timeout 10 wait
check 'wait is silent' is ''
check 'wait' rc_is 0
if [ "$rc" != 0 ]; then
	echo 'the daemon did not start; it said:'
	sed 's/^/    /' "$work/log"
	checks_done
fi

run "$kvctl" ls
check 'ls' rc_is 0
for name in version meminfo vmstat domain/ client/ sys/; do
	check "ls names $name" says "^$name\$"
done
root=$out
run "$kvctl" ls /
check 'ls / is ls' is "$root"
run "$kvctl" --socket "$KVMM_RUNDIR" ls
check '--socket DIRECTORY' is "$root"
run env -u KVMM_RUNDIR "$kvctl" --socket "$KVMM_RUNDIR/view.sock" ls
check '--socket SOCKET' is "$root"

run "$kvctl" --tenant blue ls
check '--tenant: what it sees' says '^tenants$'
check '--tenant: and no more' test -z "$(grep -x vmstat <<<"$out")"
run "$kvctl" --socket "$KVMM_RUNDIR/blue" cat status
check 'a tenant by its directory' says '^Tenant:.blue$'
fails '--tenant, a file of the node' 1 'meminfo: no such file' --tenant blue cat meminfo
fails '--tenant, check' 1 "check: root and the daemon's own user may, and members of --admin-group" --tenant blue check
fails 'no such tenant' 69 'green/view.sock: no tenant green is here' --tenant green ls

# Another user learns which users may ask, not that no daemon is there.
other() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
if other test -x "$kvctl" 2>"$work/other"; then
	run other env KVMM_RUNDIR="$KVMM_RUNDIR" "$kvctl" cat meminfo
	check 'cat of another user' rc_is 77
	check 'cat of another user: why' says "view.sock: only the owner of the directory may enter it: name another directory"
	# The directories above may be closed: it has a descriptor of this one.
	chmod 755 "$KVMM_RUNDIR"
	exec 9<"$KVMM_RUNDIR"
	run other env KVMM_RUNDIR=/proc/self/fd/9 "$kvctl" cat meminfo
	check 'cat of another user, in an open directory' rc_is 77
	check 'cat of another user, in an open directory: why' says "view.sock: a daemon runs here; only root and the daemon's own user may ask it: its option --read-group "
	run other env KVMM_RUNDIR=/proc/self/fd/9 "$kvctl" set sys/vm/swappiness 5
	check 'set of another user' rc_is 77
	check 'set of another user: why' says "admin.sock: a daemon runs here; only root and the daemon's own user may change it: its option --admin-group "
	exec 9<&-
	chmod 700 "$KVMM_RUNDIR"
else
	echo "  another user's cat is not tried: no setpriv or rights to it, or kvctl is out of its reach"
fi

fails 'set without a value' 64 'set: wrong number of arguments' set domain/a/memory.max
fails 'set of what cannot be' 64 'meminfo: cannot be set' set meminfo 1
fails 'set to no size' 64 'x: not a valid size: write 64K, 256M, 60GiB, or max$' set domain/a/memory.max x
fails 'set of what is no limit' 64 'domain/a/pool: cannot be set: name a file like domain/NAME/memory.max' set domain/a/pool gpu1
fails 'set of no mark' 1 'domain/a/memory.current: cannot be set: give one of memory.min ' set domain/a/memory.current 1M
fails 'set of no domain' 1 'chat: no such domain: see kvctl ls domain' \
	set domain/chat/memory.max 1M
fails 'a tunable to no number' 64 '10M: not a valid number' set sys/vm/swappiness 10M
fails 'a tunable out of bounds' 1 'sys/vm/swappiness: out of bounds: 0 to 200' set sys/vm/swappiness 201
fails 'what is fixed' 1 'sys/vm/max_seqs: cannot be set' set sys/vm/max_seqs 5
run "$kvctl" cat sys/vm/swappiness
check 'a tunable that was refused' says '^100$'
run "$kvctl" set sys/vm/swappiness 150
check 'a tunable' says '^sys/vm/swappiness: is set to 150$'
run "$kvctl" cat sys/vm/swappiness
check 'a tunable that was set' says '^150$'
fails 'size of no pool' 1 'pool/gpu7: no such pool: see kvctl ls pool' set pool/gpu7/size 1M
fails 'size above the maximum' 1 'pool/gpu0: at most the 4096 kB of the pool' set pool/gpu0/size 1G
fails 'size of nothing' 1 'pool/gpu0: give at least the 256 kB of one extent' set pool/gpu0/size 0
fails 'size without one' 64 'max: not a valid size' set pool/gpu0/size max
run "$kvctl" pools
check 'pools' says '^POOL +SIZE +ONLINE +USED +CACHED +FREE DOMAINS CLIENTS DEVICE$'
check 'pools: gpu0' says '^gpu0 +4\.0M +4\.0M +.* works$'
run "$kvctl" --json pools
check 'pools, JSON' says '"total_kb": 4096'
run "$kvctl" shrink_cost gpu0 1M
check 'shrink_cost of a pool: its name' says '^pool gpu0:$'
check 'shrink_cost of a pool: one size' says '^ +1\.0M .*\(all\)$'
fails 'shrink_cost of no pool' 1 'pool/gpu1/shrink/1M: no such file' shrink_cost gpu1 1M
fails 'shrink_cost of no size' 64 '1X: not a valid size: ' shrink_cost gpu0 1X
run "$kvctl" set pool/gpu0/size 1100K
check 'size' says '^pool/gpu0: size is set to 1024 kB of 4096 kB: GpuOffline in meminfo says how much is out of use$'
run "$kvctl" cat pool/gpu0/size
check 'size: its file' is 1048576
run "$kvctl" cat meminfo
check 'size: the rest is offline' says '^GpuOffline: +3072 kB$'
check 'size: the total stays' says '^GpuTotal: +4096 kB$'
run "$kvctl" check
check 'size: the laws hold' is ok
run "$kvctl" set pool/gpu0/size 4M
check 'size: back' rc_is 0
run "$kvctl" cat meminfo
check 'size: nothing is offline' says '^GpuOffline: +0 kB$'
run "$kvctl" drop_caches
check 'drop_caches' says '0 blocks dropped$'
check 'drop_caches: exit code' rc_is 0
fails 'drop_caches of no domain' 1 'chat: no such domain: see kvctl ls domain' drop_caches chat

# ---- an operator's commands without a client (it_kvctl.c has the others)
fails 'evict of no domain' 1 'chat: no such domain: see kvctl ls domain' evict chat
fails 'pin of no domain' 1 'chat: no such domain' pin chat 1M
fails 'unpin of no domain' 1 'chat: no such domain' unpin chat
fails 'drain of nothing' 1 'want node, tenant/NAME or client/ID' drain nobody
fails 'drain of no client' 1 'client/3: is not attached: see kvctl cat clients' drain client/3
fails 'drain of no number' 1 'want node' drain client/x
fails 'drain of no tenant' 1 'tenant/green: is not attached: see kvctl cat tenants' drain tenant/green
fails 'explain of what is none' 64 '0/b: is no sequence: give CLIENT/SEQ' explain 0/b
fails 'explain of no request' 1 'a/b: no server here works at such a request' explain a/b
fails 'explain of nobody' 1 'client/5/seq/7/explain: no such file' explain 5/7
run "$kvctl" explain
check 'explain of all: says that there is nothing' is 'kvctl: no sequence waits, and none has lost memory'
fails 'no log level' 1 'loud: is no level: give err, warn, info or debug' log_level loud
run "$kvctl" drain
check 'drain' is 'node: is drained: what there is goes on, nothing new begins'
run "$kvctl" status
check 'status: drained' says '^draining +node$'
run "$kvctl" --off drain
check 'drain --off' is 'node: is drained no more'
run "$kvctl" cat status
check 'status: drained no more' says '^Draining:.no$'
run "$kvctl" log_level debug
check 'log_level' is 'the log level of kvmm and swapd is debug'
run "$kvctl" cat status
check 'log_level: shown' says '^LogLevel:.debug$'
run "$kvctl" log_level warn
lines=$(wc -l <"$work/log")
run "$kvctl" set sys/vm/swappiness 100
check 'log_level: the log says less' [ "$(wc -l <"$work/log")" = "$lines" ]
run "$kvctl" log_level info
for verb in clients domains limits; do
	run "$kvctl" $verb
	check "$verb: a table" says '^ +[A-Z]+ '
	check "$verb: fits a terminal" test -z "$(awk 'length > 79' <<<"$out")"
done
run "$kvctl" domains
check 'domains: the device pools of each' says ' SOME% POOL NAME$'
run "$kvctl" leases
check 'leases: none' says '^CLIENT LABEL +TOKENS +DEVICE +HOST +AREA +LOST ENDS-IN$'
check 'leases: fits a terminal' test -z "$(awk 'length > 79' <<<"$out")"
fails 'leases of no client' 1 'client/5/leases: no such file' leases 5
run "$kvctl" groups
check 'groups: none' says '^DOMAIN +GROUP +KIND LAYERS HEADS WINDOW TOKENS +BYTES PADDING REC BLOCKS$'
check 'groups: fits a terminal' test -z "$(awk 'length > 79' <<<"$out")"
fails 'groups of no domain' 1 'domain/x/groups: no such file' groups x
run "$kvctl" tunables
check 'tunables: what can be set' says '^swappiness +100 +rw$'
check 'tunables: what cannot' says '^max_seqs +[0-9]+ +r$'

# ---- JSON: a parser accepts it, and its numbers are those of the text
cat >"$work/same.py" <<-'EOF'
	import json, subprocess, sys
	kvctl, nr = sys.argv[1], 0
	def text(*a): return subprocess.run([kvctl, *a], check=True, capture_output=True, text=True).stdout
	def load(*a):
	    s = subprocess.run([kvctl, '--json', *a], check=True, capture_output=True, text=True).stdout
	    assert s.isascii(), a
	    return json.loads(s)
	def same(what, a, b):
	    global nr
	    nr += 1
	    assert a == b, (what, a, b)
	def files(d=''):
	    for n in load('ls', *([d] if d else [])):
	        yield from files(d + n) if n.endswith('/') else [d + n]
	def word(w): return int(w) if w.lstrip('-').isdigit() else w
	all = list(files())
	same('ls', set(all) >= {'meminfo', 'sys/vm/swappiness', 'pressure/memory'}, True)
	for path in all:
	    t, (j,) = text('cat', path), load('cat', path)
	    same('path', j['path'], path)
	    d, lines = j['data'], [l.split() for l in t.splitlines() if l[:1] != '#']
	    if isinstance(d, str):
	        if '\n' in d: nr += 1; continue
	        same(path, d, t.strip())
	    elif isinstance(d, (int, float)):
	        same(path, d, word(t.strip()))
	    elif isinstance(d, list):
	        same(path, len(d), len(lines) - 1)
	        for row, l in zip(d, lines[1:]): same(path, list(row), lines[0][:len(l)])
	    elif 'pressure' in path:
	        for l in lines: same(path, sorted(d[l[0]]), sorted(w.split('=')[0] for w in l[1:]))
	    else:
	        same(path, len(d), len(lines))
	        if path != 'vmstat' and path != 'swapstat':
	            for l in lines:
	                key = l[0].rstrip(':') + ('_kb' if l[-1] == 'kB' else '')
	                same(path + ' ' + key, str(d[key]), ' '.join(l[1:-1] if l[-1] == 'kB' else l[1:]))
	s = load('status')
	same('status', sorted(s), ['meminfo', 'pressure/memory', 'status', 'vmstat'])
	same('total', s['meminfo']['GpuTotal_kb'], 4096)
	same('total of the text', [l.split() for l in text('status').splitlines() if l.startswith('pool')], [['pool', '4.0M']])
	same('epoch', type(s['status']['Epoch']), str)
	same('clients', load('clients'), []); same('domains', load('domains'), []); same('limits', load('limits'), [])
	for row in load('tunables'): same(row['name'], row['value'], word(text('cat', 'sys/vm/' + row['name']).strip()))
	same('check', load('check'), {'ok': True, 'text': 'ok'})
	same('version', sorted(load('version')), ['daemon', 'kvctl', 'uapi'])
	same('set', load('set', 'sys/vm/swappiness', '90'), {'done': 'sys/vm/swappiness: is set to 90'})
	same('set', load('cat', 'sys/vm/swappiness')[0]['data'], 90)
	for a in (['evict', 'x'], ['cat', 'nothing'], ['explain', '1/1']):
	    p = subprocess.run([kvctl, '--json', *a], capture_output=True, text=True)
	    same(a, (p.returncode, p.stdout), (1, ''))
	print('same', nr)
EOF
run python3 "$work/same.py" "$kvctl"
check 'JSON: python reads it, and the numbers are those of the text' says '^same [0-9]{3}'
check 'JSON: exit code' rc_is 0

run "$kvctl" cat meminfo
check 'cat' says '^GpuTotal: +4096 kB$'
run "$kvctl" cat sys/vm/extent_size /sys/vm/pool_bytes
check 'two paths' is $'==> sys/vm/extent_size <==\n262144\n\n==> /sys/vm/pool_bytes <==\n4194304'
fails 'a file and no command' 64 "'meminfo' is no command: did you mean kvctl cat meminfo\?" meminfo
fails 'a directory and no command' 64 "did you mean kvctl ls domain\?" domain
fails 'a slash and no such file' 64 "'no/such' is no command: see kvctl help" no/such
run "$kvctl" check
check 'check' is ok
check 'check: exit code' rc_is 0
run "$kvctl" version
check 'version' says '^kvctl version .* uapi [0-9]+$'
check 'version of the daemon' says '^kvmm version .* uapi [0-9]+$'

# Every file in a list can be read.
read_all()
{
	local name

	for name in $("$kvctl" ls "$1"); do
		case $name in
		*/)	read_all "$1$name" ;;
		*)	run "$kvctl" cat "$1$name"
			check "cat $1$name" rc_is 0
			# last_oom is empty: memory has never run out.
			[ "$1$name" = last_oom ] ||
				check "$1$name is not empty" says . ;;
		esac
	done
}
read_all ''

fails 'no such file' 1 'nothing/here: no such file' cat nothing/here
fails 'a directory' 1 'sys/vm: is a directory: use ls' cat sys/vm
fails 'ls of a file' 1 'meminfo: is not a directory: use cat' ls meminfo
fails 'climbing' 1 '\.\./etc/passwd: no such file' cat ../etc/passwd
fails 'an empty path' 1 'an empty path' cat ''
fails 'a newline' 1 'no newline' cat $'meminfo\ncheck'
fails 'a control character' 1 'want one line' cat $'mem\033[2Jinfo'
fails 'a very long path' 1 'longer than' cat "$(printf 'a%.0s' {1..5000})"
fails 'the longest path' 1 'no such file' cat "$(printf 'a%.0s' {1..4090})"

# As cat does: other files are printed, and the exit code reports the failure.
run "$kvctl" cat sys/vm/extent_size nothing sys/vm/extent_size
check 'one of three fails' rc_is 1
check 'the others are printed' says '^262144$'
check 'only they have a title' says_not '==> nothing'
out=$("$kvctl" cat meminfo 2>&1 >/dev/full)
rc=$?
check 'a full disk' rc_is 74
check 'a full disk: why' says 'stdout: No space left'

run "$kvctl" --socket "$KVMM_RUNDIR/attach.sock" cat version
check 'another socket of the daemon' rc_is 0
ln -s "$KVMM_RUNDIR/attach.sock" "$work/link"
fails 'the attach socket by another name' 76 'no view socket of kvmm: name view.sock' \
	--socket "$work/link" ls

# ---- several daemons, as of kvmm@.service: run, run-2 and run-10
run "$kvctl" --all cat sys/vm/pool_bytes
check '--all: one daemon' is "==> $KVMM_RUNDIR <=="$'\n4194304'
for n in 2 10; do
	mkdir -m 700 "$KVMM_RUNDIR-$n"
	# The first name is longer.
	conf=$work/$([ $n = 2 ] && echo a-longer-name || echo b).conf
	: >"$conf"
	KVMM_RUNDIR=$KVMM_RUNDIR-$n "$KVMM_BUILD/kvmm" --config "$conf" --pool-size ${n}M --extent-size 256K >>"$work/log" 2>&1 &
	others+=($!)
	run "$kvctl" --timeout 10 --socket "$KVMM_RUNDIR-$n" wait
	check "daemon $n answers" rc_is 0
done
mkdir "$KVMM_RUNDIR-none" "${KVMM_RUNDIR}way"
run "$kvctl" --all cat sys/vm/pool_bytes
check '--all: all of them, in the order of their numbers' is "==> $KVMM_RUNDIR <=="$'\n4194304\n'"
==> $KVMM_RUNDIR-2 <=="$'\n2097152\n'"
==> $KVMM_RUNDIR-10 <=="$'\n10485760'
run "$kvctl" --all status
check '--all: a block for each' test "$(grep -cE '^pool +(4.0|2.0|10)M$' <<<"$out")" = 3
run "$kvctl" --all --json check
check '--all: JSON names the daemon' test "$(grep -cE "^  \"rundir\": \"$KVMM_RUNDIR(-2|-10)?\",\$" <<<"$out")" = 3
run "$kvctl" --socket "$KVMM_RUNDIR-10" --all cat sys/vm/pool_bytes
check '--all: beside the directory of --socket' is "==> $KVMM_RUNDIR-10 <=="$'\n10485760'
run "$kvctl" --socket "$KVMM_RUNDIR-10/view.sock" --all cat sys/vm/pool_bytes
check '--all: beside the socket of --socket' is "==> $KVMM_RUNDIR-10 <=="$'\n10485760'
for n in 2 10; do
	"$kvctl" --socket "$KVMM_RUNDIR-$n" set sys/vm/swappiness $n >>"$work/log"
done
run "$kvctl" --all save
check '--all: save, each its own file' [ "$(cat "$work/a-longer-name.conf" "$work/b.conf" | grep swappiness)" = \
	$'swappiness = 2\nswappiness = 10' ]
check '--all: save, no other file' [ -z "$(find "$work" -name '*.conf?*')" ]
run "$kvctl" --all cat nothing
check '--all: a failure' rc_is 1
mkdir -p "$work/x" && ln -s "$KVMM_RUNDIR-10" "$work/x/run-1"
fails 'others beside it' 69 "x/run: no daemon is here; .* --all, .* --socket $work/x/run-1\$" \
	--socket "$work/x/run" ls
fails '--all, none' 69 'no daemon is here, nor in a directory beside it' --socket /nowhere/else --all ls
kill -KILL "${others[0]}"
wait "${others[0]}" 2>/dev/null
run "$kvctl" --all cat sys/vm/pool_bytes
check '--all: one is dead' rc_is 69
check '--all: one is dead: which' says "run-2/view.sock: no daemon is here"
check '--all: the others answer' test "$(grep -cE '^(4194304|10485760)$' <<<"$out")" = 2

# ---- a stopped daemon, and a dead one
kill -STOP "$daemon"
fails 'a stopped daemon' 69 'no answer for 1 s' --timeout 1 ls
kill -CONT "$daemon"
run "$kvctl" wait
check 'it goes on' rc_is 0
stop_daemon KILL
fails 'a killed daemon' 69 'no daemon is here' ls

checks_done
