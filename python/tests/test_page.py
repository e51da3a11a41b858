# SPDX-License-Identifier: Apache-2.0
"""The programs of Documentation/python.md run, and print the text behind them."""
import contextlib
import io
import os
import re
import unittest

import kvmm
from kvmm.params import DEFAULTS
from world import TOP, World

PAGE = (TOP / "Documentation" / "python.md").read_text()


def programs():
    """[(program, output or None)]"""
    return re.findall(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", PAGE, re.M | re.S)


def pattern_of(text):
    """Dots stand for any text of a line, and alone on a line for any lines."""
    return "".join("(?:.*\n)*" if line == "..." else
                   re.escape(line).replace(r"\.\.\.", ".*") + "\n"
                   for line in text.splitlines())


class Page(World):
    OPTIONS = ["--pool-size", "64M", "--host-size", "8M", "--extent-size", "1M"]

    def test_programs(self):
        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        os.chdir(TOP)
        scope = {"__name__": "page"}
        self.assertGreaterEqual(len(programs()), 3)
        for text, output in programs():
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile(text, "python.md", "exec"), scope)
            self.assertRegex(said.getvalue(), f"^{pattern_of(output)}$", text)

    def test_names(self):
        """Each public name and each parameter is on the page, and each exception in a table."""
        for name in [*kvmm.__all__, *DEFAULTS]:
            self.assertTrue(re.search(rf"\b{name}\b", PAGE), name)
        for name in kvmm.__all__:
            kind = getattr(kvmm, name)
            if isinstance(kind, type) and issubclass(kind, Exception):
                self.assertRegex(PAGE, rf"(?m)^\| [^|]*`{name}`[^|]* \|")


if __name__ == "__main__":
    unittest.main()
