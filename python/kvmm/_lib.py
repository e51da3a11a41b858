# SPDX-License-Identifier: Apache-2.0
"""The library libkvmm.so.N through cffi, in ABI mode: nothing is compiled."""
import functools
import os
import shutil
from pathlib import Path

from .errors import NoLibrary

TREE = Path(__file__).resolve().parents[2]


class Declarations:
    """What the headers say: of the tree if this package lies in one, else of the build."""

    def __init__(self):
        from . import _headers

        if (TREE / "include" / "libkvmm.h").exists():
            found = _headers.read(TREE / "include")
            self.version, self.constants, self.cdef = found.version, found.constants, found.cdef
            return
        try:
            from . import _generated as made
        except ImportError:
            raise NoLibrary("kvmm/_generated.py is missing: install this package again") from None
        self.version, self.constants = made.VERSION, made.CONSTANTS
        self.cdef = _headers.PRELUDE + made.DECLARATIONS


@functools.cache
def declarations():
    return Declarations()


def candidates():
    """Names of the library, in the order in which they are tried."""
    name = f"libkvmm.so.{declarations().constants['KVMM_ABI_VERSION']}"
    given = os.environ.get("KVMM_LIBRARY")
    if given:
        return [given]
    return [name, str(TREE / "build" / "lib" / name)]


@functools.cache
def load():
    """(ffi, lib, constants)"""
    try:
        import cffi
    except ImportError:
        raise NoLibrary("Python has no cffi: install python3-cffi, or pip install cffi") from None

    ffi = cffi.FFI()
    ffi.cdef(declarations().cdef)
    reasons = []
    for name in candidates():
        try:
            return ffi, ffi.dlopen(name), declarations().constants
        except OSError as e:
            # cffi adds that it has looked for the name in other ways, too.
            reasons.append(str(e).splitlines()[0].split(".  Additionally")[0])
    raise NoLibrary(f"libkvmm cannot be loaded: {reasons[0]}: set KVMM_LIBRARY to its path")


def program(name):
    """The path of a program of kvmm: in $KVMM_BIN, on the path, or in build/ of the tree."""
    given = os.environ.get("KVMM_BIN")
    places = [given] if given else [*os.environ.get("PATH", "").split(":"), "/usr/local/sbin",
                                    "/usr/sbin", str(TREE / "build")]
    found = shutil.which(name, path=":".join(p for p in places if p))
    if found:
        return found
    where = f"in KVMM_BIN={given}" if given else "on the path"
    raise NoLibrary(f"the program {name} is not {where}: install kvmm, or set KVMM_BIN")
