#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# gpu.sh - programs for a GPU run to their end without one
#
# budget: 60 s, full 90 s
# from: full
#
# On a machine without a GPU every target must report that.  Over the library that
# stands in for the driver, every part of the probe and of the benchmark runs, on tiny
# shapes: a line that never ran would fail when there is a GPU for an hour.
. "$KVMM_TOP/tests/scripts/checks.bash"

cd "$KVMM_TOP" || exit 1
unset OUT PART
gpu=$KVMM_BUILD/gpu
standin=$KVMM_BUILD/tests/standin/libcuda.so.1
lt=$KVMM_BUILD/tests/standin/libcublasLt.so

# json FILE: is it an array of objects, one a line, each name once?
json()
{
	local lines names

	[ -s "$1" ] || return 1
	[ "$(head -n 1 "$1")$(tail -n 1 "$1")" = '[]' ] || return 1
	lines=$(sed '1d;$d' "$1" | grep -c .)
	names=$(grep -oE '^\{"name": "[^"]+", "value": [-0-9.e+]+, "unit": "[a-zA-Z/]+"' "$1" |
		cut -d'"' -f4 | sort -u | wc -l)
	[ "$lines" = "$names" ]
}

# has FILE NAME UNIT: has the file this figure?
has()		{ grep -qE "^\{\"name\": \"$2\", \"value\": [^,]+, \"unit\": \"$3\"" "$1"; }
has_not()	{ ! has "$@"; }
lacks()		{ ! grep -q "$1" "$2"; }

# ---- without a GPU ----

if [ -e /dev/nvidia0 ] || [ -e /proc/driver/nvidia/version ]; then
	echo "note: there is a GPU, so nothing says that there is none"
else
	run tests/gpu/check
	check "gpu-check ends with 77" rc_is 77
	check "and says why" last_line_is "gpu-check: no GPU: neither /dev/nvidia0 nor a driver is here"
	for p in probe bench; do
		run env -u KVMM_LIBCUDA "$gpu/$p" --out="$work"
		check "$p ends with 77" rc_is 77
		check "$p says why" says '^no GPU: '
	done
	check "no figures were written" [ -z "$(ls "$work")" ]
fi

run "$gpu/probe" --part=self --out="$work"
check "processes and descriptors need no GPU" rc_is 0
check "their figures" json "$work/probe.json"
run "$gpu/probe" --part=nonsense --out="$work"
check "no such part" rc_is 2
run "$gpu/probe" --nonsense
check "no such option" rc_is 2

# The limits of all parts of the probe together are below nine minutes.
run "$gpu/probe" --list
check "the probe takes less than nine minutes" \
	[ "$(awk '{ s += $2 } END { print s }' <<<"$out")" -lt 540 ]
run "$gpu/bench" --list
check "each part of the benchmark, too" \
	[ "$(awk '$2 >= 540' <<<"$out" | wc -l)" = 0 ]

# ---- device code ----

if [ -s "$gpu/probe.fatbin" ]; then
	check "the probe's device code is in it" \
		lacks 'built without nvcc' "$gpu/probe"
else
	echo "note: nvcc is not installed: the device code of the probe is not compiled"
fi

# ---- over the stand-in for the driver ----

if [ ! -e "$standin" ]; then
	echo "note: $standin is not built: no part was run"
	checks_done
fi
export KVMM_LIBCUDA=$standin
[ -e "$lt" ] && export KVMM_CUBLASLT=$lt

run "$gpu/probe" --tiny --out="$work"
check "every part of the probe" rc_is 0
check "and its last line" says '^[0-9]+ parts passed, 0 failed$'
check "its figures" json "$work/probe.json"
for f in ceilings.read cost.2M.import back.1G.memory_back_after_that park.100ms.wrong \
	die.wrong_after turns.step_after_other copyshare.read.kernels \
	layout.0G.handles.16.layer copies.both.64K.kernel_pieces fresh.same_process.old; do
	check "$f" has "$work/probe.json" "$f" '[a-zA-Z/]+'
done
check "no way of copying lost bytes" has_not "$work/probe.json" 'copies\..*\.verify\.failed' failure

run "$gpu/bench" --tiny --out="$work" --part=ceilings,attn,prefill,gemm,step,swap
check "the benchmark's parts" rc_is 0
check "its figures" json "$work/gpu-bench.json"
for f in ceilings.read 'attn.fast.8-8.B1.0k' 'attn.exact.16-8.B2.0k' prefill.exact.40 \
	gemm.fast.qkv.M1 step.fast.B2.100 step.exact.B1.100.rate swap.copies_alone; do
	check "$f" has "$work/gpu-bench.json" "$f" '[a-zA-Z/]+'
done
# Extents smaller than a real device's.
KVMM_STANDIN_GRAN=65536 run "$gpu/bench" --tiny --out="$work" --part=oversub,two
check "serving" rc_is 0
for f in oversub two; do
	if has "$work/gpu-bench.json" "$f.skipped" skipped; then
		echo "note: $f: $(grep "\"$f.skipped" "$work/gpu-bench.json" | sed 's/.*"note": //')"
	fi
done

KVMM_STANDIN_GRAN=131072 run tests/gpu/whole "$KVMM_BUILD" 1 16
check "a runtime, with kvmm killed and with swapping" rc_is 0

# ---- a failed part is one line, and the other parts run ----

run env KVMM_LIBCUDA=/nonexistent.so "$gpu/probe" --part=self,cost --out="$work"
check "a failed part fails the run" rc_is 1
check "the other one's figures" has "$work/probe.json" self.echo true
check "a figure that says so" has "$work/probe.json" probe.cost.failed failure

# ---- peers ----

run python3 tests/gpu/peers.py --tiny --device cpu --out "$work"
if [ "$rc" = 77 ]; then
	echo "note: $out"
else
	check "PyTorch as a peer" rc_is 0
	check "its figures" json "$work/peers.json"
fi
checks_done
