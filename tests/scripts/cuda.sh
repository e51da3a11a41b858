#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# cuda.sh - a daemon and a runtime on the stand-in for a GPU
#
# budget: 60 s, full 120 s
#
# from: full
#
# The whole path is tested: kvmm gives device memory, and kvrt maps it and runs the
# device code of a GPU, in exact mode.  The samples of one prompt must be the same with
# a pool that fits them and with one in which they are swapped out and in; drawn on the
# device and, from level full on, drawn on the host.  Then come the errors of a driver
# or a device that does not exist.
. "$KVMM_TOP/tests/scripts/checks.bash"

cd "$KVMM_TOP" || exit 1
hold=
trap '[ -z "$hold" ] || kill "$hold" 2>/dev/null; rm -rf "$work"' EXIT
standin=$KVMM_BUILD/tests/standin/libcuda.so.1
export KVMM_SOCKET=$work/attach.sock KVMM_STANDIN_GRAN=65536
tokens=16
[ "${KVMM_TEST_LEVEL:-check}" = check ] || tokens=48

# daemon OPTION..: start one and wait until it serves
daemon()
{
	"$KVMM_BUILD/kvmm-hold" --socket "$KVMM_SOCKET" --host-size 1M --starve-ms 100 \
		"$@" >"$work/log" 2>&1 &
	hold=$!
	for _ in {1..300}; do
		grep -q 'ready:' "$work/log" && return
		sleep 0.1
	done
	cat "$work/log"
}

daemon_ends()
{
	kill "$hold"
	wait "$hold"
	hold=
}

value()		{ "$KVMM_BUILD/kvctl" --socket "$work/view.sock" cat vmstat | sed -n "s/^$1 //p"; }

# samples FILE OPTION..: generate three samples, each in one piece, in order
samples()
{
	local file=$1

	shift
	"$KVMM_BUILD/kvrt" generate tests/data/demo-model 'Once upon a time' -n 3 --mode exact \
		--max-tokens $tokens --temperature 0.8 --top-k 40 --top-p 0.95 \
		--repetition-penalty 1.1 --seed 3 --ignore-eos "$@" \
		>"$work/out" 2>"$work/err"
	rc=$?
	sort -s -k1,1 "$work/out" >"$file"
	return $rc
}

drawn_there()	{ grep -q "drawn on the GPU: $((3 * tokens))" "$work/err"; }
drawn_here()	{ ! grep -q 'drawn on the GPU' "$work/err"; }

export KVMM_LIBCUDA=$standin
daemon --backend cuda --pool-size 16M --extent-size 64K
check "the daemon says which device" grep -q 'cuda backend: blocks on' "$work/log"
check "samples with room" samples "$work/room"
check "kernels of the device" grep -q 'kernels cuda' "$work/err"
check "every token was drawn there" drawn_there
if [ "${KVMM_TEST_LEVEL:-check}" != check ]; then
	check "samples drawn on the host" samples "$work/drawn" --draw host
	check "no token was drawn there" drawn_here
	check "and they are the same" cmp "$work/room" "$work/drawn"
fi
check "nothing was preempted" [ "$(value preempt_swap)$(value preempt_recompute)" = 00 ]
daemon_ends

daemon --backend cuda --pool-size 128K --extent-size 64K
check "samples without room" samples "$work/tight"
check "they were swapped" [ "$(value preempt_swap)" -gt 0 ]
check "and are the same" cmp "$work/room" "$work/tight"
check "each is there" [ "$(grep -c '^\[1\.[123]\]' "$work/tight")" -ge 3 ]
refused_host()
{
	! "$KVMM_BUILD/kvrt" generate tests/data/demo-model x --backend host >"$work/out" 2>&1 &&
		grep -q 'pool is on a GPU' "$work/out"
}
check "kernels of the CPU cannot reach it" refused_host
daemon_ends

# Without a driver.
export KVMM_LIBCUDA=$work/none.so
no_driver()
{
	! "$KVMM_BUILD/kvmm-hold" --socket "$KVMM_SOCKET" --backend cuda >"$work/log" 2>&1 &&
		grep -q 'no CUDA driver' "$work/log"
}
check "--backend cuda without a driver" no_driver
daemon --pool-size 16M --extent-size 64K
check "auto takes the host" grep -q 'host backend: .*no CUDA driver' "$work/log"
check "and so does the runtime" samples "$work/host"
check "with the same text" cmp "$work/room" "$work/host"
daemon_ends
checks_done
