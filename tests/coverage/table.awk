# SPDX-License-Identifier: Apache-2.0
#
# table.awk - the table and the lists of tests/coverage/run
#
#	awk -v list=FILE -v want_lines=N -v want_branches=N -f table.awk SIM BOTH
#
# SIM and BOTH are outputs of lines.awk, with the same lines, sorted by file and
# line.

function add(name, what)
{
	if (!(name in lines) && name !~ /^ /)
		files[++nr_files] = name
	if (what == "sim") {
		lines[name]++
		branches[name] += $5
	}
	hit[what, name] += $3 > 0
	took[what, name] += $4
}

function percent(n, of)
{
	return of ? sprintf("%5.1f", 100 * n / of) : "    -"
}

function row(name, title)
{
	printf "  %-26s %6d %6s %6s  %8d %6s %6s\n", title, lines[name],
		percent(hit["sim", name], lines[name]),
		percent(hit["both", name], lines[name]), branches[name],
		percent(took["sim", name], branches[name]),
		percent(took["both", name], branches[name])
}

BEGIN {
	FS = "\t"
	core = " without the walkers"
	walkers = " the walkers"
	all = " kvmm/core"
}

{
	what = FILENAME == ARGV[1] ? "sim" : "both"
	add($1, what)
	add(all, what)
	add($1 ~ /\/check[_a-z]*\.[ch]$/ ? walkers : core, what)
	if (what == "sim") {
		sim_hit[$1, $2] = $3
		sim_took[$1, $2] = $4
		next
	}
	if (sim_hit[$1, $2] == 0)
		missing = $5 ? "never executed, " $5 " branches" : "never executed"
	else if (sim_took[$1, $2] < $5)
		missing = $5 - sim_took[$1, $2] " of " $5 " branches"
	else
		next
	by = ""
	if ($3 && $4 == $5)
		by = ", unit tests do"
	else if ($3 && !sim_hit[$1, $2])
		by = ", unit tests do in part"
	printf "%s:%d: %s%s: %s\n", $1, $2, missing, by, $6 >list
	if (sim_hit[$1, $2] == 0 && $1 !~ /\/check[_a-z]*\.[ch]$/)
		never[++nr_never] = sprintf("  %s:%d:%s %s", $1, $2,
			$3 > 0 ? "" : " (nor by the unit tests)", $6)
}

END {
	printf "\n  %-26s %6s %6s %6s  %8s %6s %6s\n", "", "lines", "sim %",
		"both %", "branches", "sim %", "both %"
	for (i = 1; i <= nr_files; i++)
		row(files[i], files[i])
	row(all, "all")
	row(walkers, "the walkers (check*)")
	row(core, "without them")
	printf "\nlines that the simulator never executes, without the walkers: %d\n",
		nr_never
	for (i = 1; i <= nr_never; i++)
		print never[i]
	l = 100 * hit["sim", core] / max1(lines[core])
	b = 100 * took["sim", core] / max1(branches[core])
	good = l >= want_lines && b >= want_branches
	printf "\ntotal: the simulator reaches %.1f %% of the lines (aim %d) and %.1f %% of the branches (aim %d)%s\n",
		l, want_lines, b, want_branches, good ? "" : ": too few"
	exit !good
}

function max1(n)
{
	return n > 1 ? n : 1
}
