#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# bench-why.sh - make bench-why prints its whole table and leaves no files
#
# from: full
. "${BASH_SOURCE%/*}/checks.bash"

mkdir "$work/tmp"
# why.json goes to a separate folder; the programs are those of the build.
mkdir "$work/build"
ln -s "$KVMM_BUILD"/* "$work/build/"
run env TMPDIR="$work/tmp" KVMM_BUILD="$work/build" "$KVMM_TOP/tests/bench/why" quick
check 'exit code' rc_is 0
check 'the head' says '^\| \| kvmm, one pool \| a fixed half each \| ratio'
check 'four columns in each line' [ -z "$(grep '^|' <<<"$out" | grep -vE '^(\|[^|]*){4}\|$')" ]
check 'no figure that is no number' says_not '(nan|inf)[ )*]'
for load in 'model A busy, B idle' 'model B busy, A idle' 'both busy' 'all of it'; do
	check "$load" says "^\\| $load: tokens a second \\| [0-9.]+ tokens/s \\| [0-9.]+ tokens/s \\| \\*\\*[0-9.]+\\*\\* \\([0-9.]+ to [0-9.]+\\) \\|\$"
	check "$load: p99" says "^\\| $load: TTFT, p99 \\| [0-9.]+ ms \\|"
done
check 'idle' says '^\| .* nobody asks .* kvmm [0-9.]+ %.* swapd [0-9.]+ %.*\| [0-9.]+ % of a core \|'
check 'a step' says '^\| a decode step of 1, .*: time \| [0-9]+ us \| [0-9]+ us \|'
# Each of two arms serves three requests of one model, of the other, and of both.
figure()	{ sed -n "s/^{\"name\": \"$1\", \"value\": \\([0-9.]*\\),.*/\\1/p" "$work/build/why.json"; }
check 'all figures are written' [ "$(grep -c '"name"' "$work/build/why.json")" -gt 45 ]
check 'tokens were found in the cache' [ "$(figure why.all.hits | cut -d. -f1)" -gt 5 ]
check 'some of the pool was in use' [ "$(figure why.all.empty | cut -d. -f1)" -lt 99 ]
check 'nothing is left' [ -z "$(ls -A "$work/tmp")" ]
check 'nothing is mounted' [ -z "$(grep -F "$work" /proc/mounts)" ]

checks_done
