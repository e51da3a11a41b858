#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# openai.sh - the official OpenAI client against kvrt serve
#
# Every answer is checked against OpenAI's published schemas (tests/data/openai).  The
# client is installed once from PyPI, into a folder of the build.  The script runs from
# check-full on, and is skipped where the client cannot be installed.
#
# budget: 30 s, full 240 s
set -u
: "${KVMM_TOP:?set by tests/run}" "${KVMM_BUILD:?set by tests/run}"

skip()
{
	echo "$1"
	exit 77
}

[ "${KVMM_TEST_LEVEL:-check}" != check ] || skip "the openai client is for make check-full"
venv=$KVMM_BUILD/peers/openai
if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import openai, jsonschema' 2>/dev/null; then
	rm -rf "$venv"
	python3 -m venv "$venv" >/dev/null 2>&1 || skip "python3-venv is not installed"
	timeout 120 "$venv/bin/pip" install -q openai jsonschema >/dev/null 2>&1 ||
		skip "the openai client cannot be had from PyPI"
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/openai.XXXXXX") || exit 1
export KVMM_RUNDIR=$work/run
mkdir -m 700 "$KVMM_RUNDIR"
hold= serve=
finish()
{
	[ -n "$serve" ] && kill -KILL "$serve" 2>/dev/null
	[ -n "$hold" ] && kill -TERM "$hold" 2>/dev/null && wait "$hold" 2>/dev/null
	rm -rf "$work"
}
trap finish EXIT

# --adopt off: an adopted daemon would hide its death, which must be seen.
"$KVMM_BUILD/kvmm-hold" --adopt off --pool-size 64M --extent-size 1M >"$work/hold.log" 2>&1 &
hold=$!
"$KVMM_BUILD/kvctl" wait --timeout 20 || { cat "$work/hold.log"; exit 1; }
KVRT_API_KEY=sk-test "$KVMM_BUILD/kvrt" serve "$KVMM_TOP/tests/data/demo-model" \
	--port 0 --threads 1 --mode exact >"$work/serve.log" 2>&1 &
serve=$!
for _ in $(seq 200); do
	grep -q ' ready: ' "$work/serve.log" && break
	sleep 0.1
done
url=$(sed -n 's/.*listening on \(http[^,]*\),.*/\1/p' "$work/serve.log")
[ -n "$url" ] || { cat "$work/serve.log"; exit 1; }

PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" "$KVMM_TOP/tests/peers/openai_client.py" "$url/v1" "$hold"
rc=$?
kill -TERM "$serve"
wait "$serve" || { echo "kvrt serve did not end with 0"; cat "$work/serve.log"; rc=1; }
serve=
[ "$rc" = 0 ] || cat "$work/serve.log"
exit "$rc"
