#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
draw.py - draw random faults of the core

	tests/mutants/draw.py SEED NR OUT [PART..]	draw NR faults, write patches to OUT
	tests/mutants/draw.py --list		print every fault that can be drawn
	tests/mutants/draw.py --stale		print entries of `equivalent` that match nothing

A fault is one small change of kvmm/core/**/*.c, the walkers left out: a
statement is deleted, a comparison is changed or negated, && becomes || and
back, a ! is dropped, a constant is one more or one less, a condition is always
true or always false, an else branch is dropped.  Every such change is equally
likely.  One seed and one tree always give the same faults.  PART narrows them to
files and functions that have such a name.

A fault that does not compile, and one for which the compiler makes the same
object as without it, is replaced by the next one.  A fault that the file
`equivalent` beside this script names counts among the NR; it is written as
NAME.equivalent, which holds the reason, and not as NAME.patch.

Assertions (KV_BUG_ON), static probes (KV_PROBE) and the places where a test
may end the core (core_crash) are left out: the core does the same without them.
"""
import difflib
import os
import random
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
CC = os.environ.get("CC", "gcc").split()
CFLAGS = "-std=gnu11 -O2 -fno-strict-aliasing -pthread -D_GNU_SOURCE= -Iinclude -I.".split()

TOKEN = re.compile(r"""
	[A-Za-z_]\w* | \d\w* | \.\.\. | <<= | >>= | -> | \+\+ | -- | << | >> |
	[<>=!+\-*/%&|^]= | && | \|\| | [^\s\w]""", re.X)
COMPARE = {"<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"),
	   "==": ("!=",), "!=": ("==",)}
ASSIGN = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
SKIPPED = ("KV_BUG_ON", "KV_PROBE", "core_crash", "_Static_assert")
TYPES = re.compile(r"(const|struct|union|enum|static|unsigned|signed|char|bool|int|long|void|size_t|[us]\d+|\w+_t)$")
JUMPS = ("break", "continue", "goto")
KEYWORDS = JUMPS + ("if", "else", "for", "while", "do", "switch", "case", "default", "return")


class Fault:
	"""Bytes START to END of a file, inside of FUNCTION, become NEW."""

	def __init__(self, path, text, function, start, end, new, what):
		self.path, self.text, self.function, self.what = path, text, function, what
		# Keep the number of lines: assertions print theirs.
		self.start, self.end = start, end
		self.new = new + "\n" * (text.count("\n", start, end) - new.count("\n"))

	def changed(self):
		return self.text[:self.start] + self.new + self.text[self.end:]

	def lines(self):
		"""The lines that change, before and after, each as one line."""
		first = self.text.rfind("\n", 0, self.start) + 1
		last = self.text.find("\n", self.end)
		old = self.text[first:last]
		new = self.text[first:self.start] + self.new + self.text[self.end:last]
		return " ".join(old.split()), " ".join(new.split())

	def key(self):
		return (self.function,) + self.lines()

	def name(self):
		return "%s-%d" % (os.path.basename(self.path), self.text.count("\n", 0, self.start) + 1)

	def patch(self):
		diff = difflib.unified_diff(self.text.splitlines(True), self.changed().splitlines(True),
					    "a/" + self.path, "b/" + self.path)
		return "%s(): %s\n\n%s" % (self.function, self.what, "".join(diff))


def blank(text):
	"""The text with comments, strings and directives as blanks, of the same length."""
	def spaces(m):
		return re.sub(r"[^\n]", " ", m.group())
	return re.sub(r"/\*.*?\*/|//[^\n]*|^[ \t]*#(?:\\\n|[^\n])*|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])+'",
		      spaces, text, flags=re.S | re.M)


def functions(code):
	"""Name, start and end of each body; a body's braces stand at the begin of a line."""
	for m in re.finditer(r"^\{\n(.*?)^\}", code, re.S | re.M):
		head = code[:m.start()].rstrip()
		head = head[max(head.rfind("\n}"), head.rfind(";\n"), 0):]
		name = re.search(r"(\w+)\s*\(", re.sub(r"__attribute__\s*\(\(.*?\)\)", "", head))
		if head.endswith(")") and name:
			yield name.group(1), m.start(1), m.end(1)


def matching(toks, i):
	"""The index of the parenthesis that closes the one at @i."""
	depth = 0
	for j in range(i, len(toks)):
		depth += (toks[j][0] in "([{") - (toks[j][0] in ")]}")
		if not depth:
			return j
	return i


def skipped(toks):
	"""Indices of the tokens inside of assertions and the like."""
	out = set()
	for i, (t, _, _) in enumerate(toks):
		if t in SKIPPED:
			out.update(range(i, matching(toks, i + 1) + 1))
	return out


def deletable(toks):
	"""Is this statement, without its semicolon, an assignment, a call or a jump?"""
	first = toks[0][0]
	words = [t for t, _, _ in toks]
	if first in JUMPS or words == ["return"]:
		return first != "goto"
	if first in KEYWORDS or TYPES.match(first) or len(words) < 2:
		return False
	if re.match(r"\w", first) and re.match(r"\w", words[1]):
		return False		# a declaration
	return words[-1] in ("++", "--", ")") or bool(ASSIGN.intersection(words)) or \
		first in ("++", "--")


def statements(toks):
	"""First and last index of each simple statement; the last is its semicolon."""
	i = begin = 0
	while i < len(toks):
		t = toks[i][0]
		if t in ("if", "for", "while", "switch"):
			i = begin = matching(toks, i + 1) + 1
		elif t in ("else", "do", "{", "}"):
			i = begin = i + 1
		elif t == ":" and toks[begin][0] in ("case", "default"):
			i = begin = i + 1
		elif t in "([":
			i = matching(toks, i) + 1
		elif t == "=" and toks[i + 1][0] == "{":
			i = matching(toks, i + 1) + 1
		elif t == ";":
			if i > begin:
				yield begin, i
			i = begin = i + 1
		else:
			i += 1


def of_statements(toks, skip):
	for begin, end in statements(toks):
		if begin not in skip and deletable(toks[begin:end]):
			yield toks[begin][1], toks[end][1], "", "a statement is deleted"


def of_number(t):
	m = re.match(r"(0[xX][0-9a-fA-F]+|\d+)([uUlL]*)$", t)
	if not m:
		return
	value = int(m.group(1), 0 if m.group(1)[:2].lower() == "0x" else 10)
	for other in (value + 1, value - 1):
		if other >= 0:
			yield str(other) + m.group(2)


def of_condition(toks, i):
	"""The condition behind the `if` or `while` at @i."""
	end = matching(toks, i + 1)
	start, stop = toks[i + 1][2], toks[end][1]
	if toks[i][0] == "if":
		yield start, stop, "1", "a condition is always true"
	if end + 1 < len(toks) and (toks[i][0] == "if" or toks[end + 1][0] != ";"):
		yield start, stop, "0", "a condition is always false"


def of_token(toks, i):
	t, start, end = toks[i]
	unary = i and not (re.match(r"\w", toks[i - 1][0]) or toks[i - 1][0] in (")", "]"))
	for other in COMPARE.get(t, ()):
		yield start, end, other, "%s becomes %s" % (t, other)
	if t in ("&&", "||") and not unary:
		other = "||" if t == "&&" else "&&"
		yield start, end, other, "%s becomes %s" % (t, other)
	if t == "!" and toks[i + 1][0] != "!" and toks[i - 1][0] != "!":
		yield start, end, "", "a ! is dropped"
	for other in of_number(t):
		yield start, end, other, "%s becomes %s" % (t, other)
	if t in ("if", "while"):
		yield from of_condition(toks, i)
	if t == "else":
		yield end, end, " if (0)", "an else branch is dropped"


def faults_of(path):
	with open(os.path.join(TOP, path), encoding="utf-8") as f:
		text = f.read()
	code = blank(text)
	for name, start, end in functions(code):
		toks = [(m.group(), m.start(), m.end()) for m in TOKEN.finditer(code, start, end)]
		skip = skipped(toks)
		found = list(of_statements(toks, skip))
		for i in range(len(toks)):
			if i not in skip:
				found += of_token(toks, i)
		for fault in found:
			yield Fault(path, text, name, *fault)


def sources():
	for at, _, names in os.walk(os.path.join(TOP, "kvmm/core")):
		for name in names:
			if name.endswith(".c") and not name.startswith("check"):
				yield os.path.relpath(os.path.join(at, name), TOP)


def all_faults():
	return [f for path in sorted(sources()) for f in faults_of(path)]


def equivalents():
	"""Reasons, by function, line before and line after."""
	out = {}
	try:
		with open(os.path.join(HERE, "equivalent"), encoding="utf-8") as f:
			entries = re.split(r"\n\n+", re.sub(r"^#.*\n", "", f.read(), flags=re.M).strip())
	except FileNotFoundError:
		return out
	for entry in filter(None, entries):
		lines = entry.split("\n")
		old = [" ".join(x[1:].split()) for x in lines[1:] if x[0] == "-"]
		new = [" ".join(x[1:].split()) for x in lines[1:] if x[0] == "+"]
		reason = " ".join(x.strip() for x in lines[1:] if x[0] not in "-+")
		key = (lines[0], " ".join(filter(None, old)), " ".join(filter(None, new)))
		if len(lines) < 4 or not reason or key in out:
			sys.exit("equivalent: want a function, - lines, + lines, a reason, once: " + entry)
		out[key] = reason
	return out


class Compiler:
	"""Compiles changed files, and knows what the unchanged ones compile to."""

	def __init__(self, at):
		self.at, self.good = at, {}

	def object(self, path, text):
		out = os.path.join(self.at, "out.o")
		cmd = CC + CFLAGS + ["-w", "-I" + os.path.dirname(path), "-c", "-x", "c", "-", "-o", out]
		# With this name assertions print the usual file.
		text = '# 1 "%s"\n%s' % (path, text)
		run = subprocess.run(cmd, input=text.encode(), cwd=TOP, stderr=subprocess.DEVNULL,
				     check=False)
		if run.returncode:
			return None
		with open(out, "rb") as f:
			return f.read()

	def matters(self, fault):
		"""Does the changed file compile, and to anything else?"""
		if fault.path not in self.good:
			self.good[fault.path] = self.object(fault.path, fault.text)
		new = self.object(fault.path, fault.changed())
		return new is not None and new != self.good[fault.path]


def draw(seed, nr, out, parts):
	faults = all_faults()
	if parts:
		faults = [f for f in faults if f.function in parts or os.path.basename(f.path) in parts]
	known = equivalents()
	random.Random(seed).shuffle(faults)
	os.makedirs(out, exist_ok=True)
	with tempfile.TemporaryDirectory() as at:
		cc = Compiler(at)
		i = 0
		for fault in faults:
			if i == nr:
				break
			if not cc.matters(fault):
				continue
			i += 1
			name = os.path.join(out, "%04d-%s" % (i, fault.name()))
			reason = known.get(fault.key())
			with open(name + (".equivalent" if reason else ".patch"), "w", encoding="utf-8") as f:
				f.write(fault.patch() if not reason else reason + "\n")


def main(argv):
	if argv[1:] == ["--list"]:
		for fault in all_faults():
			print("%s:%s(): %s\n\t-%s\n\t+%s" % ((fault.name(), fault.function, fault.what) +
							     fault.lines()))
	elif argv[1:] == ["--stale"]:
		there = {f.key() for f in all_faults()}
		stale = [key for key in equivalents() if key not in there]
		for key in stale:
			print("equivalent: nothing in the core is like this:\n%s\n-%s\n+%s" % key)
		return bool(stale)
	elif len(argv) >= 4:
		draw(int(argv[1]), int(argv[2]), argv[3], argv[4:])
	else:
		print(__doc__.strip())
		return 2
	return 0


if __name__ == "__main__":
	sys.exit(main(sys.argv))
