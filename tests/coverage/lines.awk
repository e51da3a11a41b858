# SPDX-License-Identifier: Apache-2.0
#
# lines.awk - gcov's output for kvmm/core, as one record a line of source
#
# Input: the output of gcov --branch-counts --branch-probabilities --stdout, of
# any number of objects; a line of a header is in several and is added up.
# Output: FILE LINE COUNT TAKEN BRANCHES TEXT, tabs between, unordered.
#
# Lines with KV_BUG_ON, KV_PROBE, unreachable() or static_assert are left out: a
# correct core, without a tracer, never takes the branch in them.

function flush_line()
{
	if (line == 0)
		return
	key = file "\t" line
	count[key] += hits
	text[key] = source
	line = 0
}

/^ *(-|[0-9]+\*?|#####\*?|=====\*?): *[0-9]+:/ {
	flush_line()
	match($0, /^ *[^:]*: *[0-9]+:/)
	split(substr($0, 1, RLENGTH), field, ":")
	source = substr($0, RLENGTH + 1)
	hits = field[1]
	gsub(/[ *]/, "", hits)
	if (field[2] + 0 == 0) {
		if (source ~ /^Source:/)
			file = substr(source, 8)
		next
	}
	if (hits == "-" || file !~ /^kvmm\/core\// ||
	    source ~ /KV_BUG_ON|KV_PROBE|unreachable\(\)|static_assert/)
		next
	line = field[2] + 0
	hits = hits ~ /^[0-9]+$/ ? hits + 0 : 0
	next
}

/^branch +[0-9]+ / && line {
	key = file "\t" line "\t" $2
	branch[key] += $3 == "taken" ? $4 : 0
}

END {
	flush_line()
	for (key in branch) {
		split(key, field, "\t")
		at = field[1] "\t" field[2]
		total[at]++
		taken[at] += branch[key] > 0
	}
	for (key in count) {
		gsub(/^[ \t]+/, "", text[key])
		gsub(/\t/, " ", text[key])
		printf "%s\t%d\t%d\t%d\t%s\n", key, count[key], taken[key],
			total[key], text[key]
	}
}
