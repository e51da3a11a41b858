#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# links.sh - links of the documentation have a target
#
# budget: 20 s
#
# Every relative link of README.md, CONTRIBUTING.md and Documentation/ must name a file of
# the tree, and a heading of it if the link has a #.  Every page of Documentation/ must be
# in the index, and every folder of the source beside the page about it.
. "$KVMM_TOP/tests/scripts/checks.bash"

cd "$KVMM_TOP" || exit 1

links_of() { grep -oE '\]\([^)#:]+' "$1" | cut -c3-; }

for page in README.md CONTRIBUTING.md Documentation/*.md; do
	while read -r link; do
		check "$page: $link" test -e "$(dirname "$page")/$link"
	done < <(links_of "$page")
done

# Headings become anchors as on GitHub: small letters, dashes for blanks, and of other
# characters only digits, dashes and underscores.
out=$(awk '
	/^```/ { open = !open }
	open { next }
	/^#+ / {
		text = tolower($0)
		sub(/^#+ /, "", text)
		gsub(/[^a-z0-9 _-]/, "", text)
		gsub(/ /, "-", text)
		anchor[FILENAME "#" text] = 1
	}
	{
		line = $0
		while (match(line, /\]\([^)#:]*#[^)]*\)/)) {
			link = substr(line, RSTART + 2, RLENGTH - 3)
			line = substr(line, RSTART + RLENGTH)
			dir = FILENAME
			sub(/[^\/]*$/, "", dir)
			to = link ~ /^#/ ? FILENAME link : dir link
			while (sub(/[^\/]+\/\.\.\//, "", to));
			wants[FILENAME ":" FNR ": " link] = to
		}
	}
	END {
		for (w in wants) {
			n++
			if (!(wants[w] in anchor))
				print w ": there is no such heading"
		}
		if (n < 10)
			print "only " n " links to headings were found"
	}' README.md CONTRIBUTING.md Documentation/*.md Documentation/measurements/*.md)
check 'headings that links name' [ -z "$out" ]

for page in Documentation/*.md; do
	name=${page#Documentation/}
	[ "$name" = README.md ] && continue
	check "the index names $name once" [ "$(sed '/^## Subsystems/,$d' Documentation/README.md | grep -c "($name)")" = 1 ]
done

for folder in kvmm/*/ swapd/ runtime/*/ kernels/*/ kernels/; do
	sources=("$folder"*.c)
	[ -e "${sources[0]}" ] || sources=("$folder"*.cu)
	[ -e "${sources[0]}" ] || continue
	check "the index has a page about ${folder%/}" \
		grep -qE "^\|[^|]*\`${folder%/}\`[^|]*\|.*\.md" Documentation/README.md
done
checks_done
