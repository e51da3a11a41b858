# SPDX-License-Identifier: Apache-2.0
#
# prose.awk - how often a sentence has no noun, for check-style and .ci/prose
#
#	awk [-v rates=1] -f prose.awk FILE..
#
# Counts words in comments of C, CUDA, shell, awk and make, and in the text of
# Markdown outside of blocks of code.  A word such as `what`, `who` or `nobody`
# usually stands where the block, the sequence or the domain should be named: of
# 1,000 words at most 3 may be such words, or 1 in a short file.  Each file with
# more of them is one line, file:line: rule, for the first one.  With rates=1 the
# output is one line per folder instead: words, such words, the rate.

function folder_of(path)
{
	return match(path, /\/[^\/]*$/) ? substr(path, 1, RSTART - 1) : "."
}

function end_of_file(    d)
{
	if (name == "")
		return
	d = folder_of(name)
	words[d] += nr
	hits[d] += bad
	if (!rates && bad > 1 && bad * 1000 > nr * 3)
		printf "%s:%d: %d of %d words in its prose are \"%s\" or the like: name the noun\n", \
			name, first, bad, nr, word
}

# Words of @s, a piece of prose.
function count(s,    n, i, part, w)
{
	gsub(/`[^`]*`/, " x ", s)
	n = split(tolower(s), part, /[^a-z']+/)
	for (i = 1; i <= n; i++) {
		w = part[i]
		sub(/'s$/, "", w)
		if (w !~ /[a-z]/)
			continue
		nr++
		if (w ~ /^(what|whatever|who|whoever|whom|whose|nobody|somebody|anybody|everybody)$/) {
			bad++
			if (!first) {
				first = FNR
				word = w
			}
		}
	}
}

# The comments of a line of C.  A `/*` in a string counts as a comment.
function count_c(s,    end)
{
	while (s != "") {
		if (in_comment) {
			end = index(s, "*/")
			if (!end) {
				count(s)
				return
			}
			count(substr(s, 1, end - 1))
			s = substr(s, end + 2)
			in_comment = 0
		}
		if (!match(s, /\/\*/))
			return
		s = substr(s, RSTART + 2)
		in_comment = 1
	}
}

FNR == 1 {
	end_of_file()
	name = FILENAME
	nr = bad = first = in_comment = in_code = 0
	kind = name ~ /\.(c|h|cu|cuh|cpp|in)$/ ? "c" : name ~ /\.md$/ ? "md" : "sh"
}
kind == "c" { count_c($0) }
kind == "md" && /^ *```/ { in_code = !in_code; next }
kind == "md" && !in_code { count($0) }
kind == "sh" && match($0, /(^|[[:space:]])#+[[:space:]]/) { count(substr($0, RSTART + RLENGTH)) }
END {
	end_of_file()
	if (!rates)
		exit
	for (d in words)
		printf "%7d %6d %6.1f  %s\n", words[d], hits[d], \
			words[d] ? 1000 * hits[d] / words[d] : 0, d | "sort -k4"
}
