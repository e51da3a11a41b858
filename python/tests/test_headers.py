# SPDX-License-Identifier: Apache-2.0
"""The declarations for cffi are those of the C compiler."""
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import kvmm
from kvmm import _headers, _lib
from world import BIN, TOP

INCLUDE = TOP / "include"
LAYOUT = (TOP / "tests" / "data" / "uapi-layout.txt").read_text()


def preprocessed(text):
    return subprocess.run(["gcc", "-E", "-P", f"-I{INCLUDE}", "-x", "c", "-"], input=text,
                          capture_output=True, text=True, check=True).stdout


def words(text):
    return re.findall(r"\w+|[^\w\s]", text)


@unittest.skipUnless(shutil.which("gcc"), "gcc is not here")
class Compiler(unittest.TestCase):
    def test_declarations(self):
        text = preprocessed("#include <stddef.h>\n#include <libkvmm_objects.h>\n")
        # kvmm.h begins behind the headers of the system, and libkvmm.h behind types.h.
        text = text[text.index("struct kvmm_group {"):]
        abi, _, rest = text.rpartition("struct kvmm_table_page {")
        page, _, rest = rest.partition("};")
        library = rest[rest.rindex("struct kvmm;"):]
        text = f"{abi}struct kvmm_table_page {{{page}}};{library}"
        text = re.sub(r"_Static_assert\([^;]*\);|__attribute__\(\(\w+\)\)|#pragma.*", "", text)
        text = text.replace("_Bool", "bool")
        # An array's length: a number stands where the macro had an expression.
        text = re.sub(r"\[(\d+)u?\]", r"[\1]", text)
        ours = _headers.read(INCLUDE).declarations
        self.assertEqual(words(ours), words(text))
        self.assertGreater(len(words(ours)), 1500)

    def test_constants(self):
        ours = _headers.read(INCLUDE).constants
        names = sorted(ours)
        text = preprocessed("#include <libkvmm_objects.h>\n" + "".join(f"@ {n}\n" for n in names))
        values = [_headers.number(m, {}) for m in re.findall(r"^@ (.*)$", text, re.M)]
        self.assertEqual(dict(zip(names, values)), ours)
        self.assertEqual(ours["KVMM_OPEN_NO_INDEX"], 2)
        self.assertEqual(ours["KVMM_OBJECTS_MAX"], 64)

    def test_no_macro_is_missing(self):
        text = "".join((INCLUDE / f).read_text() for f in _headers.FILES)
        there = set(re.findall(r"^#define (KVMM_\w+)\s+[^\s(]", text, re.M))
        there -= {"KVMM_STATIC_ASSERT", "KVMM_ASSERT_SIZE", "KVMM_ASSERT_OFFSET"}
        self.assertEqual(there - set(_headers.read(INCLUDE).constants), set())


class Layout(unittest.TestCase):
    """tests/data/uapi-layout.txt has each structure, offset, size and number of the ABI."""

    def test_structures(self):
        ffi, nr = _lib.load()[0], 0
        for line in LAYOUT.splitlines():
            if m := re.match(r"struct (\w+): (\d+)", line):
                struct = ffi.typeof(f"struct {m[1]}")
                self.assertEqual(ffi.sizeof(struct), int(m[2]), line)
                fields = dict(struct.fields)
            elif m := re.match(r"\s+(\d+)\s+(\d+) (\w+)$", line):
                field = fields[m[3]]
                self.assertEqual((field.offset, ffi.sizeof(field.type)), (int(m[1]), int(m[2])),
                                 line)
                nr += 1
        self.assertGreater(nr, 200)

    def test_numbers(self):
        ours = _lib.load()[2]
        found = dict(re.findall(r"^(KVMM_\w+) = 0x([0-9a-f]+)$", LAYOUT, re.M))
        self.assertGreater(len(found), 90)
        self.assertEqual({n: int(v, 16) for n, v in found.items()}, {n: ours[n] for n in found})


class Strange(unittest.TestCase):
    """The preprocessor refuses text that it does not understand."""

    def refuses(self, text, why):
        with tempfile.TemporaryDirectory() as folder:
            include = Path(folder)
            (include / "uapi").mkdir()
            (include / "uapi" / "kvmm.h").write_text(text)
            (include / "libkvmm.h").write_text("")
            (include / "libkvmm_objects.h").write_text("")
            with self.assertRaisesRegex(_headers.HeaderError, why):
                _headers.read(include)

    def test_refusals(self):
        self.refuses("#if KVMM_X > 2\n#endif\n", "#if is not read")
        self.refuses("#ifdef KVMM_X\n", "without #endif")
        self.refuses("static inline int f(void) { return 1; }\n", "static is not read")
        self.refuses("struct x { __u32 a[KVMM_NONE]; };\n", "KVMM_NONE is not read")
        self.refuses("int f(void) __attribute__((pure));\n", "__attribute__ is not read")

    def test_module(self):
        """The file that a build makes gives the same."""
        here, made = _headers.read(INCLUDE), {}
        exec(here.as_module(), made)
        self.assertEqual((made["VERSION"], made["CONSTANTS"], made["DECLARATIONS"]),
                         (here.version, here.constants, here.declarations))

    def test_version(self):
        said = subprocess.run([BIN / "kvctl", "--version"], capture_output=True, text=True).stdout
        self.assertIn(kvmm.__version__, said.split())


if __name__ == "__main__":
    unittest.main()
