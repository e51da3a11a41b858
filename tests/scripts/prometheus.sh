#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# prometheus.sh - promtool and a real Prometheus read the metrics
#
# Prometheus scrapes a daemon with a swap area and a server that has answered.  promtool
# checks both pages and the alerts.  Prometheus must understand every expression of the
# alerts and the dashboard.  It scrapes kvmm-proc and kvrt directly, also after kvmm was
# killed.
#
# from: full
# budget: 60 s
set -u
for tool in promtool prometheus python3; do
	command -v $tool >/dev/null || { echo "$tool is not installed (Debian: prometheus)"; exit 77; }
done
. "${BASH_SOURCE%/*}/checks.bash"

export KVMM_RUNDIR=$work/run
mkdir -m 700 "$KVMM_RUNDIR"
rules=$KVMM_TOP/kvmm/dist/prometheus/kvmm.rules.yml
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

give_up()	{ echo "$1"; sed 's/^/    /' "$work"/*.log; checks_done; }

"$KVMM_BUILD/kvmm-hold" --adopt off --proc off --metrics 0 --pool-size 4M --extent-size 256K --host-size 4M --area-max 16M \
	>"$work/hold.log" 2>&1 &
pids+=($!)
"$KVMM_BUILD/kvctl" wait --timeout 20 || give_up 'no daemon'
run "$KVMM_BUILD/kvctl" swapon "$work/swap" --size 16M
check 'a swap area' rc_is 0
"$KVMM_BUILD/kvrt" serve "$KVMM_TOP/tests/data/demo-model" --port 0 --threads 1 >"$work/serve.log" 2>&1 &
pids+=($!)
until_true 'the server is ready' grep -q ' ready: ' "$work/serve.log"
url=$(sed -n 's/.*listening on \(http[^,]*\),.*/\1/p' "$work/serve.log")
[ -n "$url" ] || give_up 'no server'
run "$KVMM_BUILD/kvrt" ask "$url" --max-tokens 8 'In the beginning'
check 'the server answers' rc_is 0

until_true 'the daemon has metrics' grep -q 'metrics are at ' "$work/hold.log"
node=$(sed -n 's/.*metrics are at \(http.*\)\/metrics$/\1/p' "$work/hold.log")
[ -n "$node" ] || give_up 'no metrics of the daemon'

get() { python3 -c 'import sys, urllib.request as u; sys.stdout.write(u.urlopen(sys.argv[1]).read().decode())' "$1"; }

# ---- promtool
get "$node/metrics" >"$work/kvmm.prom"
get "$url/metrics" >"$work/kvrt.prom"
for page in "$work/kvmm.prom" "$work/kvrt.prom"; do
	# Not by run(), which gives a command no input.
	out=$(promtool check metrics <"$page" 2>&1)
	rc=$?
	check "promtool: ${page##*/}" rc_is 0
	check "promtool says nothing of ${page##*/}" test -z "$out"
done
run promtool check rules "$rules"
check 'promtool: the alerts' rc_is 0
run promtool check config "$KVMM_TOP/kvmm/dist/prometheus/prometheus.yml"
check 'promtool: the example' rc_is 0

# ---- Prometheus
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
port=$(free_port)
cat >"$work/prometheus.yml" <<END
global:
  scrape_interval: 1s
rule_files: ['$rules']
scrape_configs:
  - job_name: kvmm
    static_configs: [{targets: ['${node#http://}']}]
  - job_name: kvrt
    static_configs: [{targets: ['${url#http://}']}]
END
run promtool check config "$work/prometheus.yml"
check 'promtool: the configuration' rc_is 0
prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/tsdb" \
	--web.listen-address="127.0.0.1:$port" >"$work/prometheus.log" 2>&1 &
pids+=($!)
api=http://127.0.0.1:$port/api/v1

# ask: for each line, an expression: the number of series, or - and the error
cat >"$work/ask.py" <<'END'
import json, sys, urllib.parse as p, urllib.request as u
for expr in sys.stdin.read().splitlines():
    try:
        a = json.load(u.urlopen(sys.argv[1] + '/query?' + p.urlencode({'query': expr})))
        print(len(a['data']['result']), expr)
    except u.HTTPError as e:
        print('-', expr, e.read().decode())
END
ask()		{ python3 "$work/ask.py" "$api"; }
has_series()	{ [ "$(ask <<<"$1" 2>/dev/null | cut -d' ' -f1)" -gt 0 ] 2>/dev/null; }

until_true 'it scraped the daemon' has_series 'up{job="kvmm"} == 1 and on() kvmm_info'
until_true 'it scraped the server' has_series 'up{job="kvrt"} == 1 and on() kvrt_info'
until_true 'values of the daemon' has_series 'sum(kvmm_pool_bytes) == sum(kvmm_memory_gpu_total_bytes)'
until_true 'a swap area' has_series 'kvmm_swap_area_size_bytes > 0'
until_true 'tokens of the server' has_series 'kvrt_generation_tokens_total >= 8'
until_true 'a histogram of the server' has_series 'histogram_quantile(0.5, kvrt_time_to_first_token_seconds_bucket) > 0'

# ---- every expression names metrics that exist
exprs=$work/exprs
python3 - "$KVMM_TOP/kvmm/dist/grafana/kvmm.json" "$rules" >"$exprs" <<'END'
import json, re, sys
for panel in json.load(open(sys.argv[1]))['panels']:
    for t in panel.get('targets', []):
        e = t['expr'].replace('$__rate_interval', '1m')
        print(re.sub(r'\$(instance|domain|model)', '.*', e))
for line in open(sys.argv[2]):
    m = re.match(r" *expr: '(.*)'$", line)
    if m:
        print(m[1].replace("''", "'"))
END
check 'there are expressions' test "$(wc -l <"$exprs")" -gt 50
ask <"$exprs" >"$work/counts"
check 'all of them were asked' test "$(wc -l <"$work/counts")" = "$(wc -l <"$exprs")"
while read -r nr expr; do
	check "understood: $expr" test "$nr" != -
done <"$work/counts"
grep -oE '\bkv(mm|rt)_[a-z0-9_]+' "$exprs" | sort -u | sed 's/.*/{__name__="&"}/' | ask >"$work/counts"
check 'there are names' test "$(wc -l <"$work/counts")" -gt 30
while read -r nr name; do
	# Metrics of a domain exist while the server is attached.
	check "there is $name" test "$nr" -gt 0
done <"$work/counts"
run get "$api/rules"
check 'the alerts are loaded' says 'KvmmMemoryPressure'
check 'and can be worked out' says_not '"health":"err"'

# ---- after a kvmm was killed, the next one is scraped
pid=$("$KVMM_BUILD/kvctl" cat status | awk '$1 == "Pid:" { print $2 }')
kill -KILL "$pid"
until_true 'the next one is scraped' has_series 'resets(kvmm_mm_idle_seconds_total[1m]) > 0 and up == 1'
checks_done
