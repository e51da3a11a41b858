#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# points.sh - programs that are installed cannot be made to fail by a variable
#
# The points of kvmm/fault.h and the disk faults of swapd/shim.h are in the daemons of
# build/faults alone.
. "${BASH_SOURCE%/*}/checks.bash"

for name in kvmm kvmm-hold swapd kvmm-proc kvctl kvtop kvrt; do
	run sh -c "strings -n 6 '$KVMM_BUILD/$name' | grep -E 'KVMM_FAULT|KVMM_DISK_FAULTS'"
	check "$name does not name a variable of faults" rc_is 1
	run sh -c "nm '$KVMM_BUILD/$name' | grep -E ' (kv_fault|shim_|personality)'"
	check "$name has no code of fault points" rc_is 1
done
run sh -c "nm '$KVMM_BUILD/lib/libkvmm.a' 2>/dev/null | grep -E ' (kv_fault|shim_)'"
check 'nor has libkvmm.a' rc_is 1

for name in kvmm swapd; do
	run sh -c "strings -n 6 '$KVMM_BUILD/faults/$name' | grep -q KVMM_FAULT"
	check "the $name of tests has them" rc_is 0
done
run env KVMM_FAULT=nonsense "$KVMM_BUILD/faults/kvmm" --pool-size 4M
check 'the kvmm of tests reads KVMM_FAULT' says "KVMM_FAULT: 'nonsense' is no fault point"
run env KVMM_FAULT=nonsense "$KVMM_BUILD/kvmm" --pool-size 4M
check 'the installed kvmm does not' says_not 'nonsense'
run env KVMM_DISK_FAULTS=nonsense "$KVMM_BUILD/faults/swapd"
check 'the swapd of tests reads KVMM_DISK_FAULTS' says 'KVMM_DISK_FAULTS'
run env KVMM_DISK_FAULTS=nonsense "$KVMM_BUILD/swapd"
check 'the installed swapd does not' says 'not started by hand'
checks_done
