#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# bench-report.sh - the inputs of bench-report, its table, its file and its errors
. "${BASH_SOURCE%/*}/checks.bash"

# report: run bench-report on figures from standard input
report()
{
	cat >"$work/in"
	rm -f "$work/out"
	run "$KVMM_BUILD/tests/bench-report" "$work/out" "$work/in"
}

report <<<'{"name":"a","value":12.5,"unit":"us","peer":"bare","peer_value":5,"ratio":2.5,"goal":"ratio <= 3","ok":true,"n":7}
{"name":"b","value":7,"unit":"tokens/s","ok":false}'
check "good figures" rc_is 0
check "the table" says '^a +12\.5 us +5 +2\.5 +met +ratio <= 3; peer: bare$'
check "a missed goal is shown" says '^b +7 tokens/s .* MISS'
check "the sum" last_line_is "2 figures, 1 of 2 goals met"
check "the array: first" grep -q '^{"name": "a", "value": 12.5,.*"ok": true, "n": 7},$' "$work/out"
check "the array: nulls" grep -q '^{"name": "b".*"peer": null, .*"ok": false}$' "$work/out"

report <<<'{"name":"a","value":"12","unit":"us"}'
check "a value that is no number" says '"value" is no number'
check "a value that is no number: status" rc_is 1
report <<<'{"value":12,"unit":"us"}'
check "no name" says '"name" is missing'
report <<<$'{"name":"a","value":1,"unit":"us"}\n{"name":"a","value":1,"unit":"us"}'
check "a name twice" says 'in:2: a second figure called "a"'
report <<<'what?'
check "no JSON" says 'in:1: not a JSON object'
report </dev/null
check "no figure" says 'no figure in it'
check "no figure: status" rc_is 1

checks_done
