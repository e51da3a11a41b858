#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# mistakes.sh - ordinary mistakes: each message names the fault and the remedy
#
# The rows are in tests/data/mistakes.txt.
#
# budget: 30 s
. "${BASH_SOURCE%/*}/checks.bash"

table=$KVMM_TOP/tests/data/mistakes.txt
demo=$KVMM_TOP/tests/data/demo-model
pids=()

stop_all()
{
	local pid

	for pid in "${pids[@]}"; do
		kill "$pid" 2>/dev/null
		wait "$pid" 2>/dev/null
	done
	pids=()
}
trap 'stop_all; rm -rf "$work"' EXIT

# The names of the programs in the table are functions, for the shell of each row.
for name in kvmm kvmm-hold kvctl kvtop kvrt; do
	eval "$name() { \"\$KVMM_BUILD/$name\" \"\$@\"; }"
	export -f "${name?}"
done

# http METHOD PATH [BODY]: ask the server; prints the answer
http()
{
	exec 3<>"/dev/tcp/127.0.0.1/$port" || return
	printf '%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' \
		"$1" "$2" "${#3}" "$3" >&3
	sed '1,/^\r$/d' <&3
}
export -f http

# file NAME TEXT: make a file that only its user may write
file()
{
	printf '%s' "$2" >"$work/$1" && chmod 644 "$work/$1"
}

# like NAME: a copy of the demo model, with links to its files
like()
{
	mkdir "$work/$1" && ln -s "$demo"/* "$work/$1"
}

file underscore.conf $'pool_size = 1G\n'
file value.conf $'pool-size = lots\n'
file twice.conf $'area = /srv/a,size=1G\narea = /srv/a,size=2G\n'
file directory.conf $'area = /srv/,size=1G\n'
file open.conf $'pool-size = 1G\n'
chmod 666 "$work/open.conf"
file model.gguf GGUF
# Part 1 of 2: split.no, split.count and split.tensors.count, and nothing else.
printf 'GGUF\3\0\0\0\0\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0%b%b%b' \
	'\010\0\0\0\0\0\0\0split.no\02\0\0\0\0\0' \
	'\013\0\0\0\0\0\0\0split.count\02\0\0\0\02\0' \
	'\023\0\0\0\0\0\0\0split.tensors.count\05\0\0\0\0\0\0\0' \
	>"$work/part-00001-of-00002.gguf"
file file 'a text, and no swap area'
like no-tokenizer
rm "$work/no-tokenizer/tokenizer.json"
for name in lfs cut experts; do
	like $name
done
rm "$work/lfs/model.safetensors" "$work/cut/model.safetensors" "$work/experts/config.json"
file lfs/model.safetensors $'version https://git-lfs.github.com/spec/v1\noid sha256:1f\nsize 7606784\n'
head -c 4000000 "$demo/model.safetensors" >"$work/cut/model.safetensors"
file experts/config.json "$(sed 's/LlamaForCausalLM/PhimoeForCausalLM/' "$demo/config.json")"

export model=$demo port=0 other=0
export KVMM_RUNDIR=$work/run HF_HUB_CACHE=$work/hub KVMM_LIBCUDA=libcuda.so.none
unset KVMM_SOCKET KVMM_CONFIG KVRT_API_KEY
mkdir -m 700 "$KVMM_RUNDIR"

# one_to_three: the message is no list
one_to_three()
{
	local n

	n=$(wc -l <<<"$out")
	[ -n "$out" ] && [ "$n" -le 3 ]
}

# row: run the row that was read, and judge it
row()
{
	run timeout 20 bash -c "cd '$work' && $command"
	check "$title: exit status" grep -qxE "$status" <<<"$rc"
	check "$title: what is wrong" says "$wrong"
	check "$title: what to do" says "$remedy"
	check "$title: as few lines as it needs" one_to_three
	nr_rows=$((nr_rows + 1))
}

# rows PLACE: all rows of a place
rows()
{
	local line here='' title='' command='' status='' wrong='' remedy=''

	while IFS= read -r line; do
		case $line in
		'['*)		here=${line%%]*} title=${line#*] } ;;
		'$ '*)		command=${line#??} ;;
		'exit: '*)	status=${line#exit: } ;;
		'wrong: '*)	wrong=${line#wrong: } ;;
		'do: '*)
			remedy=${line#do: }
			[ "$here" != "[$1" ] || row
			;;
		esac
	done <"$table"
}

# other NAME ARG..: run a program as another user, who may look for the daemon
other()
{
	setpriv --reuid 65534 --regid 65534 --clear-groups "$KVMM_BUILD/$1" "${@:2}"
}
export -f other

# await FILE PATTERN: wait up to 20 s for a line
await()
{
	local i

	for ((i = 0; i < 400; i++)); do
		grep -qE "$2" "$1" && return
		sleep 0.05
	done
	return 1
}

export -f await

nr_rows=0
rows nothing

# Not the functions: the number is to be that of the program.
"$KVMM_BUILD/kvmm-hold" --backend host --pool-size 32M --extent-size 1M --host-size 16M >"$work/hold.log" 2>&1 &
pids+=($!)
run kvctl --timeout 20 wait
check 'the daemon answers' rc_is 0
"$KVMM_BUILD/kvrt" serve "$demo" --port 0 >"$work/serve.log" 2>&1 &
pids=($! "${pids[@]}")
check 'the server is ready' await "$work/serve.log" 'ready: '
port=$(sed -nE 's|.*listening on http://127.0.0.1:([0-9]+).*|\1|p' "$work/serve.log" | head -n 1)
# A server of another kind answers every request with 404.
python3 -c '
import http.server
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_error(404)
    def log_message(self, *a):
        pass
s = http.server.HTTPServer(("127.0.0.1", 0), H)
print("port", s.server_port, flush=True)
s.serve_forever()' >"$work/other.log" &
pids+=($!)
check 'the other server is ready' await "$work/other.log" '^port '
other=$(awk '{ print $2 }' "$work/other.log")
rows beside
left=0
chmod 711 "$TMPDIR" "$work" "$KVMM_RUNDIR"
if other kvctl --version >/dev/null 2>&1; then
	rows other
else
	left=$(grep -c '^\[other\]' "$table")
	echo "note: $left rows of another user are not tried: no setpriv or rights to it, or kvctl is out of its reach"
fi
stop_all
check 'all rows were run' [ "$((nr_rows + left))" = "$(grep -c '^\[' "$table")" ]
echo "total: $nr_rows mistakes"

checks_done
