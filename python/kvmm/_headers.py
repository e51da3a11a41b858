# SPDX-License-Identifier: Apache-2.0
"""From the headers of kvmm to declarations that cffi reads.

The headers are simple: object-like macros that are numbers, structures of fixed-size
integers, function declarations.  This reads those, and refuses the rest.  A test compares
the result with that of gcc -E.
"""
import re
from dataclasses import dataclass, field

FILES = ("uapi/kvmm.h", "libkvmm.h", "libkvmm_objects.h")
PRELUDE = "".join(
    f"typedef {'u' * (c == 'u')}int{n}_t {p}{c}{n};\n"
    for p in ("", "__") for c in "us" for n in (8, 16, 32, 64))
# Macros of types.h and of the ABI header that declare no memory.
DROPPED = re.compile(r"\b__must_check\b|\bKVMM_ASSERT_(?:SIZE|OFFSET)\([^;]*\);")
# A number as the headers write it, with macros replaced already.
NUMBER = re.compile(r"(?:0x[0-9a-f]+|[0-9]+|<<|[()|+* -])+")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)


class HeaderError(Exception):
    """A header has something that this module cannot read."""


@dataclass
class Headers:
    version: str = ""
    constants: dict = field(default_factory=dict)
    declarations: str = ""

    @property
    def cdef(self):
        return PRELUDE + self.declarations

    def as_module(self):
        return ("# Made by setup.py from include/.\n"
                f"VERSION = {self.version!r}\nCONSTANTS = {self.constants!r}\n"
                f"DECLARATIONS = {self.declarations!r}\n")


def number(text, constants):
    """The value of the macro's @text; None if it is no number."""
    text = re.sub(r"\b[A-Z_][A-Z0-9_]*\b", lambda m: str(constants.get(m[0], m[0])), text.strip())
    text = re.sub(r"\b(0x[0-9a-fA-F]+|[0-9]+)[uUlL]*\b", lambda m: m[1].lower(), text)
    return eval(text, {"__builtins__": {}}) if NUMBER.fullmatch(text) else None


class Reader:
    """The lines of a header that a C compiler would see."""

    def __init__(self, name):
        self.name = name
        self.on = []        # for each open #if: is its part read?
        self.constants = {}
        self.lines = []

    def directive(self, line):
        word, _, rest = line[1:].strip().partition(" ")
        rest = rest.strip()
        if word in ("ifdef", "ifndef"):
            # Guards are not defined, nor is __cplusplus.
            self.on.append(word == "ifndef")
        elif word == "else":
            self.on[-1] = not self.on[-1]
        elif word == "endif":
            self.on.pop()
        elif word == "define":
            self.define(rest)
        elif word not in ("include", "pragma"):
            raise HeaderError(f"{self.name}: #{word} is not read here")

    def define(self, rest):
        m = re.match(r"(\w+)(\(?)", rest)
        if not all(self.on) or m[2]:
            return
        value = number(rest[m.end():], self.constants)
        if value is not None:
            self.constants[m[1]] = value

    def read(self, text):
        text = COMMENT.sub(" ", text).replace("\\\n", " ")
        for line in text.splitlines():
            line = re.sub(r"\s+", " ", line.strip())
            if line.startswith("#"):
                self.directive(line)
            elif line and all(self.on):
                self.lines.append(line)
        if self.on:
            raise HeaderError(f"{self.name}: an #if without #endif")


def declarations(lines, constants):
    text = DROPPED.sub("", "\n".join(lines))
    text = re.sub(r"\b[A-Z_][A-Z0-9_]*\b", lambda m: str(constants.get(m[0], m[0])), text)
    left = re.search(r"\bKVMM_\w+|\bstatic\b|\binline\b|__attribute__", text)
    if left:
        raise HeaderError(f"{left[0]} is not read here")
    return re.sub(r"\n+", "\n", text).strip() + "\n"


def read(include):
    """The headers below the folder @include (a Path)."""
    found = Headers()
    lines = []
    for name in FILES:
        reader = Reader(name)
        reader.constants = found.constants
        reader.read((include / name).read_text())
        lines += reader.lines
    found.declarations = declarations(lines, found.constants)
    text = (include / "kvmm" / "version.h").read_text()
    found.version = re.search(r'#define\s+KVMM_VERSION\s+"([^"]+)"', text)[1]
    return found
