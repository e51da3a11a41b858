#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# links.sh - what the documentation points at is there
#
# budget: 10 s
#
# Every relative link of README.md and Documentation/ must name a file of the
# tree; every page of Documentation/ must be in its index.
. "$KVMM_TOP/tests/scripts/checks.bash"

cd "$KVMM_TOP" || exit 1

links_of() { grep -oE '\]\([^)#:]+' "$1" | cut -c3-; }

for page in README.md Documentation/*.md; do
	while read -r link; do
		check "$page: $link" test -e "$(dirname "$page")/$link"
	done < <(links_of "$page")
done

for page in Documentation/*.md; do
	name=${page#Documentation/}
	[ "$name" = README.md ] && continue
	check "the index names $name once" [ "$(grep -c "($name)" Documentation/README.md)" = 1 ]
done
checks_done
