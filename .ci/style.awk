# SPDX-License-Identifier: Apache-2.0
#
# style.awk - the rules of C text, for check-style
#
#	awk -v tree=LIST -f style.awk FILE..      LIST: all C files, one a line
#
# Every file
#   - line 1 is the SPDX line of its kind, and no other line has a // comment
#   - tabs indent; at most 100 columns (a line with a string may be longer); at most 1200 lines (a warning above 800)
#   - a function's brace stands on a line of its own, and at most 80 lines follow
#     until the closing one; no typedef of a struct or union but one-word handles
#     and those of CUDA's driver
# Includes (all files may include include/)
#   - include/ includes only include/; core/ and lib/ only themselves;
#     kvmm/ nothing of runtime/ or kernels/, runtime/ nothing of kvmm/, kernels/
#     neither of them
#   - no circle of folders
#   - core/ includes no system header but those without system calls, and calls
#     nothing that allocates, waits, prints or asks the system
# Headers in include/
#   - a comment right above every prototype (or above the group it is in); where
#     it is kernel-doc it names the function and no parameter that is not there
# Tests
#   - a file with START_TEST asserts something
#
# Plain awk: it runs under mawk, which a bare Debian has.

function complain(line, text)
{
	print FILENAME ":" line ": " text
}

# The code of a line: comments become a space, strings and characters empty
# quotes.  Sets in_comment for the next line, and slashes for a // comment.
function code_of(s,    out, tok, end)
{
	out = ""
	slashes = 0
	while (s != "") {
		if (in_comment) {
			end = index(s, "*/")
			if (!end)
				return out
			s = substr(s, end + 2)
			in_comment = 0
			out = out " "
			continue
		}
		if (!match(s, /["']|\/\*|\/\//))
			return out s
		out = out substr(s, 1, RSTART - 1)
		tok = substr(s, RSTART, RLENGTH)
		s = substr(s, RSTART + RLENGTH)
		if (tok == "/*") {
			in_comment = 1
		} else if (tok == "//") {
			slashes = 1
			return out
		} else {
			out = out tok tok
			s = after_quote(s, tok)
		}
	}
	return out
}

# The text behind the closing quote.
function after_quote(s, quote,    re)
{
	re = quote == "\"" ? "\\\\.|\"" : "\\\\.|'"
	while (match(s, re)) {
		if (substr(s, RSTART, RLENGTH) == quote)
			return substr(s, RSTART + 1)
		s = substr(s, RSTART + RLENGTH)
	}
	return ""
}

function width_of(s,    n, i, w, part)
{
	gsub(/[\200-\277]/, "", s)	# a UTF-8 character is one column
	n = split(s, part, "\t")
	w = 0
	for (i = 1; i < n; i++)
		w = int((w + length(part[i])) / 8) * 8 + 8
	return w + length(part[n])
}

function folder_of(path)
{
	return match(path, /\/[^\/]*$/) ? substr(path, 1, RSTART - 1) : "."
}

function first_of(path)
{
	return index(path, "/") ? substr(path, 1, index(path, "/") - 1) : path
}

# a/b/../c -> a/c
function normal_path(p)
{
	while (sub(/[^\/.]+\/\.\.\//, "", p))
		;
	gsub(/\/\.\//, "/", p)
	sub(/^\.\//, "", p)
	return p
}

# ------------------------------------------------------------ one file's end

function end_of_file()
{
	if (name == "")
		return
	if (lines > 1200)
		print name ":" lines ": " lines " lines, at most 1200"
	else if (lines > 800)
		print name ":" lines ": warning: " lines " lines, review above 800"
	if (start_test && !asserts)
		print name ":" start_test ": tests and no assertion"
}

function start_of_file()
{
	end_of_file()
	name = FILENAME
	in_comment = in_macro = open_brace = start_test = asserts = depth = 0
	typedef_line = 0
	comment_end = proto_end = decl_line = 0
	decl = comment = ""
	func_name = ""
	in_include = first_of(FILENAME) == "include"
	in_core = FILENAME ~ /^kvmm\/core\//
	spdx = FILENAME ~ /\.(h|cuh)$/ ? \
		"/* SPDX-License-Identifier: Apache-2.0 */" : \
		"// SPDX-License-Identifier: Apache-2.0"
	if ($0 != spdx)
		complain(1, "line 1 is not \"" spdx "\"")
}

# ------------------------------------------------------------------- includes

function note_include(line, quoted, target,    t)
{
	t = ""
	if (quoted) {
		t = normal_path(folder_of(FILENAME) "/" target)
		if (!(t in in_tree))
			t = ""
		if (t == "" && (normal_path(target) in in_tree))
			t = normal_path(target)
	}
	if (t == "" && (("include/" target) in in_tree))
		t = "include/" target
	if (t == "") {
		if (in_core && !(target in core_may_include))
			complain(line, "core/ includes <" target ">")
		return
	}
	if (first_of(t) == "include")
		return
	judge_include(line, FILENAME, t)
}

function judge_include(line, from, t,    a, b, f, g)
{
	a = first_of(from)
	b = first_of(t)
	f = folder_of(from)
	g = folder_of(t)
	if (a == "tests")
		return
	# Device code includes its language; compiled for the CPU, the tests' shim of it.
	if (from == "kernels/cuda/cu.h" && t == "tests/standin/shim.h")
		return
	if (a == "include")
		complain(line, "include/ includes " t)
	else if (f ~ /^lib/ && f != g || f ~ /^kvmm\/core/ && g !~ /^kvmm\/core/)
		complain(line, f "/ includes " t ": only include/ and itself")
	else if (a == "runtime" && b != "runtime" && b != "kernels" || \
		 a != "runtime" && a != b)
		complain(line, a "/ includes " t)
	if (f != g && !((f, g) in edge)) {
		edge[f, g] = from ":" line
		nr_edges++
		edge_from[nr_edges] = f
		edge_to[nr_edges] = g
	}
}

# Folders from which @node can be reached again: depth first, each folder once.
function reaches(node, goal,    i)
{
	seen[node] = 1
	for (i = 1; i <= nr_edges; i++) {
		if (edge_from[i] != node)
			continue
		if (edge_to[i] == goal)
			return 1
		if (!(edge_to[i] in seen) && reaches(edge_to[i], goal))
			return 1
	}
	return 0
}

function find_circles(    i, k)
{
	for (i = 1; i <= nr_edges; i++) {
		for (k in seen)
			delete seen[k]
		if (reaches(edge_to[i], edge_from[i]))
			print edge[edge_from[i], edge_to[i]] ": a circle of folders: " \
				edge_from[i] "/ and " edge_to[i] "/ include each other"
	}
}

# ----------------------------------------------------------------- core's calls

function check_core_calls(line, s,    fn, before)
{
	while (match(s, /[A-Za-z_][A-Za-z0-9_]*[ ]?\(/)) {
		before = substr(s, 1, RSTART - 1)
		fn = substr(s, RSTART, RLENGTH - 1)
		sub(/ $/, "", fn)
		s = substr(s, RSTART + RLENGTH)
		if (before ~ /(\.|->)$/)
			continue
		if ((fn in core_may_not_call) || fn ~ /^(pthread_|epoll_|pr_|kv_log)/)
			complain(line, "core/ calls " fn "()")
	}
}

# ------------------------------------------------------- prototypes of include/

# The names of the parameters of @text, blank-separated with blanks around.
function params_of(text,    i, c, level, cur, out)
{
	out = " "
	sub(/^[^(]*\(/, "", text)
	level = 1
	cur = ""
	for (i = 1; i <= length(text) && level; i++) {
		c = substr(text, i, 1)
		level += (c == "(") - (c == ")")
		if (!level || (level == 1 && c == ",")) {
			out = out param_name(cur)
			cur = ""
		} else {
			cur = cur c
		}
	}
	return out
}

function param_name(p)
{
	if (match(p, /\(\*[ ]*[A-Za-z_][A-Za-z0-9_]*\)/)) {
		p = substr(p, RSTART + 2, RLENGTH - 3)
		gsub(/ /, "", p)
		return p " "
	}
	gsub(/\[[^]]*\]/, "", p)
	gsub(/[ \t]+$/, "", p)
	if (p ~ /^[ \t]*(void)?$/ || p ~ /\.\.\.$/)
		return ""
	match(p, /[A-Za-z_][A-Za-z0-9_]*$/)
	return substr(p, RSTART, RLENGTH) " "
}

function check_kernel_doc(line, fn, params, doc,    n, i, part, p)
{
	if (doc !~ ("^/\\*\\*[ \t\n*]*" fn "\\(\\) - "))
		complain(line, "the kernel-doc above " fn "() does not start with \"" fn "() - \"")
	n = split(doc, part, "\n")
	for (i = 1; i <= n; i++) {
		if (!match(part[i], /^ \* @[A-Za-z0-9_.]+:/))
			continue
		p = substr(part[i], 5, RLENGTH - 5)
		if (p != "..." && !index(params, " " p " "))
			complain(line, fn "() has no parameter @" p)
	}
}

function end_of_decl(last,    fn, text)
{
	text = decl
	gsub(/__attribute__[ ]*\(\(.*\)\)/, "", text)
	gsub(/__(printf|nonnull|aligned)\([^)]*\)/, "", text)
	if (text ~ /^(typedef|static|extern[ ]*[{]|struct [a-z_0-9]+[ ]*;)/ || \
	    !match(text, /[A-Za-z_][A-Za-z0-9_]*\(/))
		return
	fn = substr(text, RSTART, RLENGTH - 1)
	if (fn !~ /[a-z]/ || fn ~ /static_assert|_Static_assert/)
		return
	text = substr(text, RSTART)
	if (comment_end == decl_line - 1) {
		if (comment ~ /^\/\*\*[ \t\n]/)
			check_kernel_doc(decl_line, fn, params_of(text), comment)
	} else if (proto_end != decl_line - 1) {
		complain(decl_line, fn "() has no comment right above it")
	}
	proto_end = last
}

# Collect declarations at the outer level; skip bodies and structs.
function follow_header(line, raw, code,    n, i)
{
	if (line > 1 && (was_comment || raw ~ /^\/\*/)) {
		comment = (was_comment ? comment "\n" : "") raw
		if (!in_comment && code ~ /^[ \t]*$/)
			comment_end = line
	}
	if (in_macro || code ~ /^#/) {
		in_macro = raw ~ /\\$/
		return
	}
	if (code ~ /^[ \t]*$/ || code ~ /^extern[ ]*""[ ]*\{/)
		return
	if (depth == 0 && decl == "" && code !~ /^\}/) {
		decl_line = line
	}
	decl = decl " " code
	sub(/^ /, "", decl)
	n = length(code)
	for (i = 1; i <= n; i++)
		depth += (substr(code, i, 1) == "{") - (substr(code, i, 1) == "}")
	if (depth < 0) {
		depth = 0
		decl = ""
		return
	}
	if (depth == 0 && decl ~ /[;}][ \t]*$/) {
		if (decl !~ /\{/)
			end_of_decl(line)
		decl = ""
	}
}

# ------------------------------------------------------------------- the lines

BEGIN {
	while ((getline f <tree) > 0)
		in_tree[f] = 1
	n = split("stdalign.h stdarg.h stdbool.h stddef.h stdint.h limits.h string.h errno.h " \
		  "assert.h inttypes.h xxhash.h", list, " ")
	for (i = 1; i <= n; i++)
		core_may_include[list[i]] = 1
	n = split("malloc calloc realloc free strdup strndup aligned_alloc posix_memalign " \
		  "alloca mmap munmap madvise mremap brk sbrk open openat close read write " \
		  "pread pwrite ioctl fcntl poll ppoll select send recv sendmsg recvmsg " \
		  "socket time clock clock_gettime gettimeofday nanosleep usleep sleep rand " \
		  "random srand srandom rand_r drand48 getrandom getpid fork kill raise " \
		  "signal sigaction printf fprintf dprintf vprintf vfprintf puts fputs " \
		  "fopen perror getenv setenv syscall eventfd futex memfd_create exit _exit",
		  list, " ")
	for (i = 1; i <= n; i++)
		core_may_not_call[list[i]] = 1
}

FNR == 1 { start_of_file() }

{
	lines = FNR
	was_comment = in_comment
	if (in_comment || /["'\/]/)
		code = code_of($0)
	else
		code = $0

	if (slashes && FNR > 1 && !was_comment)
		complain(FNR, "a // comment")
	slashes = 0
	if (/\r/)
		complain(FNR, "a carriage return")
	# A text for people stays on one line, so that grep finds it.
	if (length($0) > 50 && width_of($0) > 100 && $0 !~ /"[^"]*"/)
		complain(FNR, "more than 100 columns")
	if (/^[ \t]/) {
		if (was_comment ? /^\t*        / : /^ /)
			complain(FNR, "indented by spaces")
		else if (/^\t* +\t/ || (!was_comment && /^\t+        /))
			complain(FNR, "spaces where a tab belongs")
	}
}

/^[A-Za-z_].*\(/ && !was_comment { func_name = $0; sub(/\(.*/, "", func_name)
	sub(/^.*[ *]/, "", func_name) }
/^[A-Za-z_].*\)[ ]*\{[ ]*$/ && !was_comment { complain(FNR, "a function's brace on the line of its head") }
/^\{/ && !was_comment { open_brace = FNR }
/^\}/ && !was_comment {
	if (open_brace && FNR - open_brace > 80)
		complain(open_brace, func_name "() has " (FNR - open_brace) " lines, at most 80")
	open_brace = 0
}
# A handle is a struct of one member; members are counted by their semicolons.  A pointer
# type of the CUDA driver keeps the driver's name.
/^typedef (struct|union)/ && !was_comment && !/ \*CU[a-zA-Z]+;$/ { typedef_line = FNR; typedef_members = 0 }
typedef_line {
	members = code
	typedef_members += gsub(/;/, "", members)
	if (code ~ /;[ ]*$/ && (FNR == typedef_line || code ~ /^\}/)) {
		if (typedef_members != 2)
			complain(typedef_line, "a typedef of a struct or union that is no " \
				 "one-word handle")
		typedef_line = 0
	}
}

/START_TEST/ && !start_test { start_test = FNR }
/ck_assert|ck_abort/ { asserts = 1 }

/^[ \t]*#[ \t]*include/ && !was_comment {
	quoted = /include[ \t]*"/
	target = $0
	sub(/^[^"<]*["<]/, "", target)
	sub(/[">].*/, "", target)
	note_include(FNR, quoted, target)
}

in_core && code !~ /^#/ { check_core_calls(FNR, code) }
in_include { follow_header(FNR, $0, code) }

END {
	end_of_file()
	find_circles()
}
