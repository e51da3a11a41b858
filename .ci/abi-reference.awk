# SPDX-License-Identifier: Apache-2.0
#
# abi-reference.awk - Documentation/abi-reference.md from the header's kernel-doc
#
#	awk -f .ci/abi-reference.awk tests/data/uapi-layout.txt include/uapi/kvmm.h
#
# Offsets, sizes and numbers are those of uapi-layout.txt, which the compiler checks
# in a unit test; words are those of the header.  A name without words, or in only
# one of the two files, is reported on standard error, and the exit status is 1.

function complain(what)
{
	print "abi-reference: " what >"/dev/stderr"
	bad = 1
}

# Text for a cell: names in backticks, nothing that ends the cell.
function cell(text,    out)
{
	gsub(/  +/, " ", text)
	sub(/ +$/, "", text)
	gsub(/\|/, "\\|", text)
	out = ""
	while (match(text, /(struct )?@[a-z_]+|kvmm_[a-z_]+(\.[a-z_]+)?|KVMM_[A-Z_]+(\*|\(\))?/)) {
		out = out substr(text, 1, RSTART - 1) "`" substr(text, RSTART, RLENGTH) "`"
		text = substr(text, RSTART + RLENGTH)
	}
	text = out text
	gsub(/`@/, "`", text)
	return text
}

# ---- the list of offsets and numbers

FNR == 1 { nr_file++ }

nr_file == 1 && /^struct / {
	current = substr($2, 1, length($2) - 1)
	size_of[current] = $3
	next
}

nr_file == 1 && /^ / {
	offset[current, $3] = $1
	bytes[current, $3] = $2
	listed[current] = listed[current] " " $3
	next
}

nr_file == 1 {
	number[$1] = $3
	next
}

# ---- the header

# The text of a comment line.
function words(line)
{
	sub(/^[ \t]*\/?\*+\/?[ \t]?/, "", line)
	sub(/[ \t]*\*\/[ \t]*$/, "", line)
	return line
}

function join_words(a, b)
{
	sub(/^ +/, "", b)
	return a == "" ? b : a " " b
}

/^\/\* -+ \*\/$/ { rule = 1; next }

rule && /^\/\* / {
	rule = 0
	section = words($0)
	sub(/ +$/, "", section)
	item[++nr_items] = "section"
	name_of[nr_items] = section
	heading = ""
	next
}

# A comment before it is about the header as a whole.
/^#ifndef/ { heading = "" }

/^\/\*\*$/ { in_doc = 1; doc_struct = doc_short = doc_text = ""; field = ""; nr_fields = 0; next }

in_doc && /^ \*\/$/ { in_doc = 0; next }

in_doc {
	line = words($0)
	if (line ~ /^struct kvmm_[a-z_]+ - /) {
		doc_struct = line
		sub(/^struct /, "", doc_struct)
		sub(/ - .*/, "", doc_struct)
		doc_short = line
		sub(/^[^-]* - /, "", doc_short)
	} else if (line ~ /^@[a-z_0-9]+:/) {
		field = line
		sub(/^@/, "", field)
		sub(/:.*/, "", field)
		sub(/^@[a-z_0-9]+: */, "", line)
		said[doc_struct, field] = line
		if (!((doc_struct, field) in offset))
			complain("struct " doc_struct " has no " field)
	} else if (line == "") {
		field = ""
		doc_text = doc_text == "" ? "" : doc_text "\n\n"
	} else if (field != "") {
		said[doc_struct, field] = join_words(said[doc_struct, field], line)
	} else {
		doc_text = doc_text (doc_text == "" || doc_text ~ /\n$/ ? "" : " ") line
	}
	next
}

# A comment that stands alone before a group of numbers.
/^\/\* .*\*\/$/ { heading = words($0); next }
/^\/\*( |$)/ { heading = words($0); in_comment = 1; next }
in_comment {
	heading = join_words(heading, words($0))
	if (/\*\/$/)
		in_comment = 0
	next
}

/^#define KVMM_/ && !/ASSERT/ {
	name = $2
	args = ""
	if (name ~ /\(/) {
		args = $0
		sub(/^[^(]*/, "", args)
		sub(/\).*/, ")", args)
		sub(/\(.*/, "", name)
	}
	text = $0
	if (!sub(/^.*\/\* */, "", text)) {
		complain("line " FNR ": " name " has no comment")
		text = ""
	}
	sub(/ *\*\/$/, "", text)
	if (args == "" && !(name in number) && name != "KVMM_LAYOUT_HASH")
		complain(name " is not in the list of numbers")
	seen[name] = 1
	item[++nr_items] = "number"
	name_of[nr_items] = name
	call[name] = args
	value[name] = args != "" ? "" : name in number ? number[name] : $3
	text_of[name] = text
	if (name ~ /^KVMM_OP_/ && split(text, part, /; /) < 3)
		complain(name " does not say entries; results; meaning")
	over[nr_items] = heading
	open_comment = $0 !~ /\*\/$/ ? name : ""
	next
}

open_comment != "" {
	text_of[open_comment] = join_words(text_of[open_comment], words($0))
	if (/\*\/$/)
		open_comment = ""
	next
}

/^struct kvmm_[a-z_]+ \{$/ {
	current = $2
	if (doc_struct != current)
		complain("line " FNR ": struct " current " has no kernel-doc")
	seen[current] = 1
	item[++nr_items] = "struct"
	name_of[nr_items] = current
	short_of[current] = doc_short
	long_of[current] = doc_text
	in_struct = 1
	fields = ""
	next
}

in_struct && /^};$/ {
	in_struct = 0
	heading = ""
	if (fields != listed[current])
		complain("struct " current " has other fields in the list")
	fields_of[current] = fields
	next
}

in_struct {
	type = $0
	sub(/;.*/, "", type)
	sub(/^[ \t]+/, "", type)
	field = type
	sub(/[ \t]+[a-z_0-9]+(\[.*)?$/, "", type)
	sub(/.*[ \t]/, "", field)
	dim = field
	sub(/^[a-z_0-9]+/, "", dim)
	sub(/\[.*/, "", field)
	fields = fields " " field
	type_of[current, field] = type dim
	if (!((current, field) in said) && field !~ /^resv/)
		complain("line " FNR ": struct " current ": " field " is not described")
	next
}

# ---- the page

function anchor(text)
{
	text = tolower(text)
	gsub(/[^a-z0-9 _-]/, "", text)
	gsub(/ /, "-", text)
	return text
}

# Add a structure to the list of them, whose lines are broken like other text.
function put_link(name,    link)
{
	link = "[" name "](#" anchor("struct " name) ")"
	if (!nr_links++)
		line = link
	else if (length(line) + length(link) > 116) {
		print line ","
		line = link
	} else
		line = line ", " link
}

# Numbers of one heading, as a table.
function put_number(i,    name, v, n, k, part, what)
{
	name = name_of[i]
	v = value[name]
	if (table != over[i] "/" section_nr || !in_table) {
		print ""
		if (over[i] != "" && !(over[i] in told)) {
			v = cell(over[i])
			print v (v ~ /[.:]$/ ? "" : ":")
			v = value[name]
			print ""
		}
		told[over[i]] = 1
		if (name ~ /^KVMM_OP_/) {
			print "| number | verb | entries | results | what it does |"
			print "|---|---|---|---|---|"
		} else {
			print "| name | value | |"
			print "|---|---|---|"
		}
		table = over[i] "/" section_nr
		in_table = 1
	}
	if (name ~ /^KVMM_OP_/) {
		n = split(text_of[name], part, /; /)
		what = part[3]
		for (k = 4; k <= n; k++)
			what = what "; " part[k]
		printf "| %d | `%s` | %s | %s | %s |\n", hex(v), name, cell(part[1]), cell(part[2]), cell(what)
		return
	}
	if (name == "KVMM_NR_OPS") {
		printf "| %d | `%s` | | | %s |\n", hex(v), name, text_of[name]
		return
	}
	if (v ~ /^0x/ && length(v) <= 6)
		v = hex(v)
	sub(/u?l*$/, "", v)
	printf "| `%s%s` | %s | %s |\n", name, call[name], v == "" ? "" : "`" v "`", cell(text_of[name])
}

function hex(v,    i, n)
{
	if (v !~ /^0x/)
		return v
	v = tolower(substr(v, 3))
	for (i = 1; i <= length(v); i++)
		n = n * 16 + index("0123456789abcdef", substr(v, i, 1)) - 1
	return n + 0
}

function put_struct(name,    n, f, k, at)
{
	printf "\n### struct %s\n\n%s. %d bytes.\n", name, cell(toupper(substr(short_of[name], 1, 1)) \
		substr(short_of[name], 2)), size_of[name]
	print "\n| offset | bytes | field | type | |\n|---|---|---|---|---|"
	n = split(fields_of[name], f, " ")
	for (k = 1; k <= n; k++) {
		at = name SUBSEP f[k]
		printf "| %d | %d | `%s` | `%s` | %s |\n", offset[at], bytes[at], f[k], type_of[at],
			at in said ? cell(said[at]) : "must be 0"
	}
	if (long_of[name] != "")
		print "\n" cell(long_of[name])
}

END {
	for (name in number)
		if (!(name in seen))
			complain(name " is in the list of numbers alone")
	for (name in size_of)
		if (!(name in seen))
			complain("struct " name " is in the list alone")
	if (bad)
		exit 1
	print "# ABI reference"
	print ""
	print "Every structure, number and verb of `include/uapi/kvmm.h`, with its words: made of that header by `make pages`,"
	print "so change the header and not this page. How they are used is told in [abi.md](abi.md)."
	printf "\nStructures:\n"
	for (i = 1; i <= nr_items; i++)
		if (item[i] == "struct")
			put_link(name_of[i])
	print line "."
	print "\n## Sizes and versions"
	for (i = 1; i <= nr_items; i++) {
		if (item[i] == "section") {
			printf "\n## %s\n", name_of[i]
			section_nr++
		} else if (item[i] == "struct") {
			put_struct(name_of[i])
		} else {
			put_number(i)
			continue
		}
		in_table = 0
	}
}
