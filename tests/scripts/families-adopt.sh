#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# families-adopt.sh - kvmm is killed under models with several kinds of memory
#
# budget: 60 s, full 200 s
#
# Each model has made-up weights: windows (Gemma 2), windows and experts (gpt-oss), latent
# vectors (DeepSeek-V2), states in records (Granite 4).  Prompts are answered in exact mode
# by an undisturbed node.  Then they are answered again, several at once and with three
# samples each, and beams search, while kvmm is killed again and again.  The texts must
# be the same.  make check has two of the models.
. "$KVMM_TOP/tests/scripts/checks.bash"

level=${KVMM_TEST_LEVEL:-check}
families=$KVMM_TOP/tests/data/families
all='gpt-oss granite' prompts=4 deaths=2
[ "$level" = check ] || all='gemma2 gpt-oss deepseek2 granite' prompts=24 deaths=20
export KVMM_CONFIG=none KVMM_LIBCUDA=/nonexistent/libcuda.so.1

# ask FAMILY N: the texts that answer prompt N
ask()
{
	local body='{"model": "'"$1"'", "n": 3, "seed": '"$2"',
		"prompt": "Once more, and for the '"$2"'th time: in the beginning", "max_tokens": 300,
		"temperature": 1, "ignore_eos": true}'
	exec 3<>"/dev/tcp/127.0.0.1/$port"
	printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' \
		${#body} "$body" >&3
	timeout 60 cat <&3 | grep -o '"choices": *\[.*\], *"usage"'
	exec 3>&-
}
# beams FAMILY: the text that four beams find, of a domain of its own
beams()
{
	"$KVMM_BUILD/kvrt" generate --load-format dummy --dtype f32 --mode exact --threads 1 \
		--domain beams --state-tokens 64 --beams 4 --max-tokens 150 --quiet \
		"$work/$1" 'In the beginning'
}
export -f ask

# kill_kvmm TIMES: each time when the next one has worked for a while, since an arena that
# was adopted twice and led to nothing is dropped
kill_kvmm()
{
	local i child
	for ((i = 1; i <= $1; i++)); do
		sleep 0.$((RANDOM % 5 + 4))
		for child in $(cat "/proc/$hold/task/$hold/children"); do
			[ "$(cat "/proc/$child/comm")" != kvmm ] || kill -9 "$child"
		done
		while [ "$(grep -c 'kvmm: ready' "$work/hold.log")" -le "$i" ]; do
			sleep 0.1
		done
	done
	sleep 0.5
}

for family in $all; do
	"$families/sample" $family "$work/$family" 2048
	export KVMM_RUNDIR=$work/run-$family
	mkdir "$KVMM_RUNDIR"
	"$KVMM_BUILD/kvmm-hold" --backend host --pool-size 16M --extent-size 1M --min-token-bytes 64 \
		>"$work/hold.log" 2>&1 &
	hold=$!
	"$KVMM_BUILD/kvrt" serve --load-format dummy --dtype f32 --mode exact --threads 1 \
		--port 0 --state-tokens 64 "$work/$family" >"$work/kvrt.log" 2>&1 &
	kvrt=$!
	for _ in $(seq 300); do
		grep -q 'kvrt: ready' "$work/kvrt.log" && break
		sleep 0.1
	done
	port=$(grep -o 'http://127[^, ]*' "$work/kvrt.log" | head -n 1 | grep -o '[0-9]*$')
	export port
	for ((i = 1; i <= prompts; i++)); do
		ask $family $i >"$work/before.$i"
	done
	beams $family >"$work/beams.before" 2>&1
	kill_kvmm $deaths &
	killer=$!
	pass=0 other=0
	while kill -0 $killer 2>/dev/null; do
		seq $prompts | xargs -P 3 -I{} bash -c "ask $family {} >'$work/after.{}'"
		for ((i = 1; i <= prompts; i++)); do
			cmp -s "$work/before.$i" "$work/after.$i" || other=$((other + 1))
		done
		beams $family >"$work/beams.after" 2>&1
		cmp -s "$work/beams.before" "$work/beams.after" || other=$((other + 1))
		pass=$((pass + 1))
	done
	wait $killer
	adopted=$(grep -c ': whole,' "$work/hold.log" || true)
	check "$family: a text" [ "$(wc -c <"$work/before.1")" -gt 300 ]
	check "$family: the texts are the same" [ "$other" = 0 ]
	check "$family: arenas were adopted" [ "$adopted" = $deaths ]
	echo "total: $family: $((pass * prompts)) requests, $deaths deaths of kvmm, $adopted arenas adopted, $other other texts"
	kill $kvrt $hold
	wait $kvrt $hold 2>/dev/null
done
checks_done
