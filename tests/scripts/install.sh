#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# install.sh - make install into an empty folder
#
# All files are used from there: programs, the library, pages, completion, units as
# systemd reads them.  make uninstall must leave no file.  Another prefix must be in
# all texts, although the build was for this one.
#
# budget: 30 s
. "${BASH_SOURCE%/*}/checks.bash"

dest=$work/"a place" usr=/usr/local
umask 022
mkdir "$dest"
export KVMM_LIBCUDA=/nonexistent
unset KVMM_CONFIG KVMM_RUNDIR KVMM_SOCKET XDG_CONFIG_HOME
daemon=

stop_daemon()
{
	[ -z "$daemon" ] && return
	kill -"${1:-TERM}" "$daemon" 2>/dev/null
	wait "$daemon" 2>/dev/null
	rc=$?
	daemon=
}
listener=
server=
declare -A gpu=()	# daemons, by number
trap 'stop_daemon KILL; kill $listener $server ${gpu[*]} 2>/dev/null; rm -rf "$work"' EXIT

# AS_IS: install the last build, whatever its flags were; nothing is compiled.
make_it()
{
	run make -s -C "$KVMM_TOP" O="$KVMM_BUILD" NVCC= AS_IS=1 DESTDIR="$dest" "$@"
}

make_it install
check 'make install' rc_is 0
for f in bin/kvctl bin/kvtop bin/kvrt sbin/kvmm sbin/kvmm-hold sbin/swapd sbin/kvmm-proc; do
	run "$dest$usr/$f" --version
	check "$f runs" rc_is 0
done
for f in man8/kvmm.8 man8/kvmm-hold.8 man8/swapd.8 man8/kvmm-proc.8 man1/kvctl.1 man1/kvtop.1 man1/kvrt.1 man5/kvmm.conf.5; do
	check "$f is there" grep -q '^\.TH ' "$dest$usr/share/man/$f"
done
for f in kvmm kvmm-hold swapd kvmm-proc kvctl kvtop kvrt; do
	run bash -c '. "$1" && complete -p "$2"' - "$dest$usr/share/bash-completion/completions/$f" $f
	check "completion of $f" says "^complete .* $f$"
done
for f in kvmm.rules.yml prometheus.yml kvmm.json kvmm.yaml kvrt.yaml; do
	check "$f is there" cmp "$KVMM_TOP"/kvmm/dist/*/$f "$dest$usr/share/doc/kvmm/examples/$f"
done
check 'the pages that README names' [ -e "$dest$usr/share/doc/kvmm/Documentation/daemon.md" ]

# The installed file of options is the one that kvmm prints, with the lines of
# kvmm/dist/kvmm.conf, and kvmm accepts it.
conf=$dest/etc/kvmm/kvmm.conf
run diff <("$KVMM_BUILD/kvmm" --print-config) "$conf"
check 'every key, as kvmm has it' says_not '^<'
check 'and lines that are set' [ "$(sed -n 's/^> //p' <<<"$out")" = "$(cat "$KVMM_TOP/kvmm/dist/kvmm.conf")" ]
run "$dest$usr/sbin/kvmm" --check-config "$conf"
if id kvrt >/dev/null 2>&1; then
	check 'kvmm takes it' rc_is 0
else
	check 'kvmm lacks the user alone, and says the remedy' says 'owner: kvrt: .*systemd-sysusers'
fi
units=$dest$usr/lib/systemd/system
tenant=$(sed -n 's|^Environment=KVMM_RUNDIR=/run/kvmm/||p' "$units/kvrt@.service")
check 'it makes the tenant of kvrt@.service' says "^tenant = $tenant,owner=$(sed -n 's/^User=//p' "$units/kvrt@.service") "
run "$dest$usr/bin/kvrt" serve --config "$dest$usr/share/doc/kvmm/examples/kvrt.conf"
check 'kvrt takes its own' says 'the model folder is missing'

# An operator changes the file; another install keeps the change.  This machine need
# not have the user kvrt.
sed -i "s/^#pool-size = .*/pool-size = 2M/; s/^#extent-size = .*/extent-size = 256K/; s/owner=kvrt/owner=$(id -u)/" "$conf"
cp "$conf" "$work/changed"
run "$dest$usr/sbin/kvmm" --check-config "$conf"
check 'kvmm takes the change' rc_is 0
make_it install
check 'make install again' rc_is 0
run cmp "$conf" "$work/changed"
check 'a file that was changed stays' rc_is 0

# ---- the daemon runs, started as systemd would start it ----

export KVMM_RUNDIR=$work/run NOTIFY_SOCKET=$work/notify
mkdir -m 755 "$KVMM_RUNDIR"
fence=()
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	caps=$(sed -n 's/^CapabilityBoundingSet=//p' "$dest$usr/lib/systemd/system/kvmm.service" |
		tr 'A-Z' 'a-z' | sed 's/cap_/+/g; s/ /,/g')
	setpriv --no-new-privs --bounding-set "-all,$caps" true 2>/dev/null &&
		fence=(setpriv --no-new-privs --bounding-set "-all,$caps")
fi
cat >"$work/notified.c" <<-'EOF'
	/* What comes to a socket, into a file: argv[1], argv[2]. */
	#include <stdio.h>
	#include <string.h>
	#include <sys/socket.h>
	#include <sys/un.h>
	int main(int argc, char **argv)
	{
		struct sockaddr_un a = { .sun_family = AF_UNIX };
		int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
		FILE *f = fopen(argv[2], "w");
		char text[512];
		ssize_t n;

		strncpy(a.sun_path, argv[1], sizeof(a.sun_path) - 1);
		if (!f || bind(fd, (struct sockaddr *)&a, sizeof(a)))
			return 1;
		while ((n = recv(fd, text, sizeof(text), 0)) >= 0) {
			fprintf(f, "%.*s\n", (int)n, text);
			fflush(f);
		}
		return 1;
	}
EOF
run "${CC:-gcc}" -o "$work/listener" "$work/notified.c"
check 'the manager that is played' rc_is 0
"$work/listener" "$NOTIFY_SOCKET" "$work/notified" &
listener=$!
for ((i = 0; i < 600; i++)); do
	[ -S "$NOTIFY_SOCKET" ] && break
	sleep 0.1
done
"${fence[@]}" "$dest$usr/sbin/kvmm-hold" --config "$conf" 2>"$work/log" </dev/null &
daemon=$!
unset NOTIFY_SOCKET
for ((i = 0; i < 600; i++)); do
	grep -q READY=1 "$work/notified" 2>/dev/null && break
	kill -0 $daemon 2>/dev/null || break
	sleep 0.1
done
run cat "$work/notified"
check 'it says that it is ready' says '^READY=1$'
run "$dest$usr/bin/kvctl" --timeout 60 cat meminfo
check 'and is: nobody had to wait' rc_is 0
check 'with the pool of its file' says 'Total: +2048 kB'
run "$dest$usr/bin/kvrt" generate --quiet --max-tokens 5 "$KVMM_TOP/tests/data/demo-model" 'The kitten'
check 'kvrt computes' rc_is 0
run "$dest$usr/bin/kvctl" check
check 'kvctl check' says '^ok$'

# A server, started in the same way, where the unit has it look.
check 'the unit names a directory of a tenant' [ -n "$tenant" ]
printf 'model = demo=%s\nport = 0\nthreads = 1\n' "$KVMM_TOP/tests/data/demo-model" >"$work/kvrt.conf"
run env KVRT_SERVE_PORT=x "$dest$usr/bin/kvrt" serve --config "$work/kvrt.conf"
check 'kvrt has the environment' says "KVRT_SERVE_PORT: 'x' is not a valid number"
check 'and judges it' rc_is 64
NOTIFY_SOCKET=$work/notify KVRT_PORT=tcp://1.2.3.4:5 KVMM_RUNDIR=$KVMM_RUNDIR/$tenant \
	"$dest$usr/bin/kvrt" serve --config "$work/kvrt.conf" 2>"$work/kvrt.log" </dev/null &
server=$!
for ((i = 0; i < 600; i++)); do
	[ "$(grep -c READY=1 "$work/notified")" = 2 ] && break
	kill -0 $server 2>/dev/null || break
	sleep 0.1
done
run cat "$work/kvrt.log" "$work/notified"
check 'the server says that it is ready' [ "$(grep -c READY=1 "$work/notified")" = 2 ]
check 'for the model of its file' says 'ready: curl http://127.0.0.1:'
kill $server
wait $server
rc=$?
check 'the server ends' rc_is 0
run "$dest$usr/bin/kvctl" --timeout 60 upgrade
check 'the kvmm in sbin takes over' says 'adopted whole'
run "$dest$usr/bin/kvctl" check
check 'kvctl check after it' says '^ok$'
stop_daemon
check 'it ends' rc_is 0
run grep -c '^STOPPING=1$' "$work/notified"
check 'both said that they end' says '^2$'
kill $listener
wait $listener 2>/dev/null
listener=

# ---- two daemons with the environment of kvmm@.service ----

for n in 0 1; do
	mkdir -m 755 "$work/kvmm-$n"
	printf 'pool-size = %dM\nextent-size = 256K\ntenant = %s,owner=%s\n' $((n + 1)) "$tenant" "$(id -u)" >"$work/kvmm-$n.conf"
	# shellcheck disable=SC2046
	env $(sed -n 's/^Environment=//p' "$units/kvmm@.service" |
		sed "s/%i/$n/g; s|=/run/|=$work/|; s|=/etc/kvmm/|=$work/|; s/BACKEND=cuda/BACKEND=host/") \
		"$dest$usr/sbin/kvmm-hold" 2>"$work/log-$n" </dev/null &
	gpu[$n]=$!
done
for n in 0 1; do
	run "$dest$usr/bin/kvctl" --socket "$work/kvmm-$n" --timeout 60 wait
	check "daemon $n serves" rc_is 0
	run "$dest$usr/bin/kvctl" --socket "$work/kvmm-$n" cat meminfo
	check 'with its own file' says "Total: +$((1024 * (n + 1))) kB"
	run env KVMM_RUNDIR="$work/kvmm-$n/$tenant" "$dest$usr/bin/kvrt" generate --quiet --max-tokens 5 \
		"$KVMM_TOP/tests/data/demo-model" 'The kitten'
	check 'and its own tenant' rc_is 0
done
kill "${gpu[@]}"
wait "${gpu[@]}"
# A GPU without a file of options: the start ends, and names the file.
run env KVMM_CONFIG="$work/kvmm-2.conf" KVMM_RUNDIR="$work/kvmm-0" "$dest$usr/sbin/kvmm-hold"
check 'no file for a GPU' says 'kvmm-2.conf: '
check 'ends the start' rc_is 78

# ---- programs that users build with the library ----

cat >"$work/client.c" <<-'EOF'
	#include <stdio.h>
	#include <libkvmm.h>
	int main(void)
	{
		printf("%u\n", KVMM_ABI_VERSION);
		return 0;
	}
EOF
# A sanitized library needs a sanitized client.
if [ -z "${KVMM_SANITIZER:-}" ]; then
	flags=$(sed -n "s|^Cflags: -I|-I$dest|p" "$dest$usr/lib/pkgconfig/libkvmm.pc")
	run "${CC:-gcc}" "$flags" -o "$work/client" "$work/client.c" -L"$dest$usr/lib" \
		-lkvmm -pthread
	check 'a client compiles' rc_is 0
	run "$work/client"
	check 'and runs' says '^[0-9]+$'
	run "${CC:-gcc}" "$flags" -o "$work/example" "$KVMM_TOP/examples/client.c" -L"$dest$usr/lib" \
		-lkvmm "-Wl,-rpath,$dest$usr/lib"
	check 'so does the example' rc_is 0
	run readelf -d "$work/example"
	check 'with the shared library' says 'NEEDED.*libkvmm\.so\.[0-9]'
fi

# ---- units ----

run cat "$units"/*
check 'nothing is left to be filled in' says_not '@[a-z]+@'
sort -u <(sed -n 's/^CapabilityBoundingSet=\(CAP.*\)/\1/p' "$units/kvmm.service" | tr ' ' '\n') >"$work/have"
sed -nE 's/^\| `(CAP_[A-Z_]+)` \|.*/\1/p' "$KVMM_TOP/Documentation/security.md" | sort -u >"$work/want"
run diff "$work/want" "$work/have"
check 'capabilities are those of security.md' rc_is 0
# A start that hangs must end.
for u in kvmm kvmm@ kvrt@; do
	run grep '^TimeoutStartSec=' "$units/$u.service"
	check "$u.service: a finite time for the start" says '=[0-9]+$'
done
# kvrt asks for as much when it gets on.
run grep -h EXTEND_TIMEOUT_USEC "$KVMM_TOP/include/kvmm/notify.h"
check 'and kvrt asks for as much' says "=$(sed -n 's/^TimeoutStartSec=//p' "$units/kvrt@.service")000000\""
# kvmm@.service is kvmm.service for one GPU: only these lines differ.
run diff <(sed 's/kvmm-%i/kvmm/' "$units/kvmm@.service") "$units/kvmm.service"
check 'kvmm@.service is kvmm.service' says_not '^[<>] *(Exec|Type|Kill|Restart|Limit|Capab|User|Timeout|Runtime)'
for line in KVMM_RUNDIR=/run/kvmm-%i KVMM_CONFIG=/etc/kvmm/kvmm-%i.conf '.*CUDA_VISIBLE_DEVICES=%i KVMM_BACKEND=cuda'; do
	check "kvmm@.service: $line" grep -q "^Environment=$line$" "$units/kvmm@.service"
done
check 'and has a directory of its own' grep -q '^RuntimeDirectory=kvmm-%i$' "$units/kvmm@.service"
# The exposure of each unit, times ten, at most.
declare -A most=([kvmm.service]=70 [kvmm@3.service]=70 [kvrt@demo.service]=45)
if ! command -v systemd-analyze >/dev/null; then
	echo 'note: units are not verified: there is no systemd-analyze'
elif [ ! -e /lib/systemd/system/sysinit.target ]; then
	echo 'note: units are not verified: the units of systemd are not installed'
else
	mkdir "$work/bin" "$work/units"
	ln -s "$dest$usr" "$work/usr"	# a path without a blank
	for u in kvmm.service kvmm@3.service kvrt@demo.service; do
		sed "s|^ExecStart=/usr/local|ExecStart=$work/usr|" "$units/${u/@*./@.}" >"$work/units/$u"
	done
	cp "$work/units/kvmm@3.service" "$work/units/kvmm@.service"
	cp "$work/units/kvrt@demo.service" "$work/units/kvrt@.service"
	for u in "${!most[@]}"; do
		run systemd-analyze verify --man=no "$work/units/$u"
		check "systemd-analyze verify $u" rc_is 0
		check "$u: nothing to say" says_not "$work"
		run systemd-analyze security --offline=yes --no-pager --threshold="${most[$u]}" "$work/units/$u"
		check "systemd-analyze security $u" rc_is 0
		sed -n 's/^.*Overall \(exposure.*: [0-9.]*\).*/note: \1/p' <<<"$out"
	done
fi
if command -v systemd-sysusers >/dev/null && [ "$(id -u)" = 0 ]; then
	run systemd-sysusers --root="$work" --dry-run "$dest$usr/lib/sysusers.d/kvmm.conf"
	check 'users' says "user 'kvmm-swapd'"
fi

# ---- another prefix, from the same build ----

other=$work/other
make_it install prefix=/opt/kvmm DESTDIR="$other"
check 'make install AS_IS=1 for another prefix' rc_is 0
run grep -rIl usr/local "$other/opt/kvmm/lib" "$other/opt/kvmm/share/man" "$other/opt/kvmm/share/doc/kvmm/examples" "$other/etc"
check 'no text names the old one' [ -z "$out" ]
while read -r path; do
	check "$path of a unit is there" [ -x "$other$path" ]
done < <(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' "$other"/opt/kvmm/lib/systemd/system/*)
check 'libkvmm.pc names it' grep -q '^Libs: -L/opt/kvmm/lib ' "$other/opt/kvmm/lib/pkgconfig/libkvmm.pc"
make_it uninstall prefix=/opt/kvmm DESTDIR="$other"
run find "$other" -type f
check 'and nothing of it is left' [ -z "$out" ]

# ---- make uninstall ----

make_it uninstall
check 'make uninstall' rc_is 0
out=$(find "$dest" -type f)
check 'but for the changed file nothing is left' [ "$out" = "$conf" ]
cp "$KVMM_BUILD/share/kvmm.conf" "$conf"
make_it install
make_it uninstall
out=$(find "$dest" -type f -o -name '*kvmm*' -o -name '*kvrt*')
check 'nothing at all is, of one that was not' [ -z "$out" ]
checks_done
