#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# points.sh - programs that are installed cannot be made to fail by a variable
#
# The points of kvmm/fault.h and the disk faults of swapd/shim.h are in the daemons of
# build/faults alone.
. "${BASH_SOURCE%/*}/checks.bash"

texts='KVMM_FAULT|KVMM_DISK_FAULTS|is no fault point|^mm_die_commit$|names are in swapd/shim.h'
code=' (kv_fault|shim_|personality)'

for name in kvmm kvmm-hold swapd kvmm-proc kvctl kvtop kvrt; do
	run strings -n 6 "$KVMM_BUILD/$name"
	check "$name can be read" says 'GLIBC'
	check "$name has no text of faults" says_not "$texts"
	run nm "$KVMM_BUILD/$name"
	check "$name has symbols" says ' T main$'
	check "$name has no code of fault points" says_not "$code"
done
run nm "$KVMM_BUILD/lib/libkvmm.a"
check 'libkvmm.a has symbols' says ' T kvmm_attach$'
check 'libkvmm.a has no code of fault points' says_not "$code"

for name in kvmm swapd; do
	run strings -n 6 "$KVMM_BUILD/faults/$name"
	check "the $name of tests has such texts" says "$texts"
	run nm "$KVMM_BUILD/faults/$name"
	check "the $name of tests has such code" says "$code"
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
