# SPDX-License-Identifier: Apache-2.0
#
# core-map.awk - the page that lists the files of the core
#
#	awk -f core-map.awk kvmm/core/ROOMS kvmm/core/*/*.c >Documentation/core-files.md
#
# Rooms and their order come from ROOMS, the text of a file from its third line.
# A file without that line, or in no room, is a complaint.

function complain(text)
{
	print "core-map: " text | "cat >&2"
	bad = 1
}

FNR == 1 { nr_files++ }
nr_files == 1 {
	if ($0 !~ /^#/ && NF) {
		room[++nr_rooms] = $1
		what = $0
		sub(/^[^ \t]+[ \t]+/, "", what)
		about[$1] = what
	}
	next
}
FNR == 3 {
	n = split(FILENAME, part, "/")
	r = part[n - 1]
	f = part[n]
	if (!(r in about)) {
		complain(FILENAME ": no room " r)
	} else if (index($0, " * " f " - ") != 1) {
		complain(FILENAME ":3: not \" * " f " - \" and its purpose")
	} else {
		what = substr($0, length(" * " f " - ") + 1)
		gsub(/\|/, "\\|", what)
		gsub(/</, "\\&lt;", what)
		files[r] = files[r] "| [`" f "`](../" FILENAME ") | " what " |\n"
	}
}
END {
	print "# The files of the core\n"
	print "Made from `kvmm/core/ROOMS` and the heads of the files: `make pages`. Rooms are listed lowest"
	print "first. A file calls its own room and lower ones; `.ci/rooms` checks that. [core.md](core.md) describes the core.\n"
	print "| room | contents |"
	print "|---|---|"
	for (i = 1; i <= nr_rooms; i++)
		print "| [" room[i] "](#" room[i] ") | " about[room[i]] " |"
	for (i = 1; i <= nr_rooms; i++) {
		print "\n## " room[i] "\n"
		print "| file | purpose |"
		print "|---|---|"
		printf "%s", files[room[i]]
		if (files[room[i]] == "")
			complain("no file in room " room[i])
	}
	exit bad
}
