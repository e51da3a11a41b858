# SPDX-License-Identifier: Apache-2.0
"""The version and the declarations of C come from the headers of the tree.

A build writes them to kvmm/_generated.py of its output.  A source distribution has that
file, since it has no headers.
"""
import importlib.util
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
INCLUDE = HERE.parent / "include"


def load(name):
    spec = importlib.util.spec_from_file_location(name, HERE / "kvmm" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


IN_TREE = (INCLUDE / "libkvmm.h").exists()
HEADERS = load("_headers").read(INCLUDE) if IN_TREE else None


def version():
    return HEADERS.version if IN_TREE else load("_generated").VERSION


def generate(package):
    if IN_TREE:
        (Path(package) / "_generated.py").write_text(HEADERS.as_module())


class BuildPy(build_py):
    def run(self):
        super().run()
        if not getattr(self, "editable_mode", False):
            generate(Path(self.build_lib) / "kvmm")


class Sdist(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        generate(Path(base_dir) / "kvmm")


setup(version=version(), cmdclass={"build_py": BuildPy, "sdist": Sdist})
