#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# alerts.sh - each alert fires when it should and is silent when it should
#
# promtool runs the cases of tests/data/alerts/kvmm.test.yml.  With the faults that the
# alerts once had, the cases must fail.  The dashboard must have its stat panels.
#
# budget: 60 s
set -u
for tool in promtool python3; do
	command -v $tool >/dev/null || { echo "$tool is not installed (Debian: prometheus, python3)"; exit 77; }
done
. "${BASH_SOURCE%/*}/checks.bash"

rules=kvmm/dist/prometheus/kvmm.rules.yml
cases=tests/data/alerts/kvmm.test.yml

run promtool check rules "$KVMM_TOP/$rules"
check 'the rules are valid' rc_is 0
run promtool test rules "$KVMM_TOP/$cases"
check 'all cases pass' rc_is 0

# ---- two cases for each alert
nr=0
while read -r alert; do
	nr=$((nr + 1))
	check "a case in which $alert fires" grep -q "name: '$alert fires: " "$KVMM_TOP/$cases"
	check "and one in which it is silent" grep -q "name: '$alert is silent: " "$KVMM_TOP/$cases"
done < <(sed -n 's/^ *- alert: //p' "$KVMM_TOP/$rules")
check 'there are alerts' test $nr -gt 20

# ---- with a fault in an alert, its cases fail
mkdir -p "$work/${rules%/*}" "$work/${cases%/*}"
cp "$KVMM_TOP/$cases" "$work/$cases"

# faults: run the cases with other expressions; standard input has "ALERT EXPR" lines
faults()
{
	local alert expr edit=()

	while read -r alert expr; do
		edit+=(-e "/- alert: $alert\$/,/expr:/s/expr: .*/expr: '$expr'/")
	done
	sed "${edit[@]}" "$KVMM_TOP/$rules" >"$work/$rules"
	run promtool test rules "$work/$cases"
}

faults <<'END'
KvmmDown absent(kvmm_info)
KvrtDown kvrt_ready == 0
KvmmSwapFull kvmm_memory_swap_free_bytes < 0.05 * kvmm_memory_swap_total_bytes
END
check 'with faults: status' rc_is_not 0
check 'one of two nodes is down' says 'exp: \{alertname="KvmmDown", instance="b"'
check 'the process of a server is dead' says 'exp: \{alertname="KvrtDown", instance="s", job="kvrt"\}'
check 'an area full of cache' says 'got: \{alertname="KvmmSwapFull", instance="a"\}'
faults <<<'KvmmDown up == 0'
check 'no daemon is scraped' says 'exp: \{alertname="KvmmDown"\}'
check 'another job is down' says 'got: \{alertname="KvmmDown", instance="c", job="node"\}'

# ---- the dashboard: the first row, and no two panels in one place
dashboard()
{
	python3 -c '
import json, sys
panels = json.load(open(sys.argv[1]))["panels"]
assert len({p["id"] for p in panels}) == len(panels), "two panels have one id"
stats = [p for p in panels if p["type"] == "stat"]
for p in stats:
    assert p["gridPos"]["y"] == 1, p["title"] + " is not in the first row"
    assert len(p["fieldConfig"]["defaults"]["thresholds"]["steps"]) > 1, p["title"] + " has no threshold"
print(", ".join(p["title"] for p in sorted(stats, key=lambda p: p["gridPos"]["x"])))
for p in panels:
    if p["type"] == "heatmap":
        assert all(t["format"] == "heatmap" for t in p["targets"]), "the buckets are no heatmap"
        print("heatmap:", p["title"])
used = {}
for p in panels:
    g = p["gridPos"]
    assert g["x"] + g["w"] <= 24, p["title"] + " is too wide"
    for x in range(g["x"], g["x"] + g["w"]):
        for y in range(g["y"], g["y"] + g["h"]):
            assert (x, y) not in used, p["title"] + " lies over " + used[x, y]
            used[x, y] = p["title"]
' "$KVMM_TOP/kvmm/dist/grafana/kvmm.json"
}
run dashboard
check 'the dashboard' rc_is 0
check 'stat panels' says '^Ready, Running, Waiting, Pool in use, Prompt tokens found, Time to first token$'
check 'a heatmap' says '^heatmap: Time to first token'
checks_done
