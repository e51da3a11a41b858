#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""vllm_pool.py - vLLM's block pool, driven by bench_core

usage: vllm_pool.py BLOCKS

Runs vllm/v1/core/block_pool.py and kv_cache_utils.py, of the vLLM that lies in
$KVMM_VLLM or that is installed, as they are.  Both are plain Python; what they
import beside each other (torch, the configuration, the logger) is not needed
by what is measured here and is replaced by empty things, so that vLLM need not
be installed.

First line of output: "vllm VERSION", or "none REASON".  Then for each line
"ROUNDS BATCH" of input the nanoseconds of one get and free of a block, taken
BATCH at a time; for "ROUNDS hit" those of finding a cached block by its hash,
touching and freeing it.
"""
import importlib.abc
import importlib.machinery
import importlib.util
import os
import re
import subprocess
import sys
import time
import types

REAL = ("vllm.v1.core.block_pool", "vllm.v1.core.kv_cache_utils")
CACHED = 256


class AnyType(type):
    """A class of which everything can be asked."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __getitem__(cls, key):
        return cls

    def __or__(cls, other):
        return cls

    __ror__ = __or__


class Anything(metaclass=AnyType):
    """Its instances can be called and asked, too."""

    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        return args[0] if args and callable(args[0]) else Anything()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class Instead(types.ModuleType):
    """A module that has every name."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Anything,), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the two real modules, and for all else of vllm an empty one."""

    def __init__(self, folder):
        self.folder = folder

    def find_spec(self, name, path=None, target=None):
        if name in REAL:
            file = os.path.join(self.folder, *name.split(".")) + ".py"
            return importlib.util.spec_from_file_location(name, file)
        if name.split(".")[0] == "vllm":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Instead(spec.name)

    def exec_module(self, module):
        pass


class Missing(Finder):
    """The same for modules that are not installed."""

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True)


def vllm_folder():
    folder = os.environ.get("KVMM_VLLM")
    if folder:
        return folder
    spec = importlib.util.find_spec("vllm")
    return os.path.dirname(os.path.dirname(spec.origin)) if spec else None


def vllm_version(folder):
    try:
        with open(os.path.join(folder, "vllm", "_version.py")) as f:
            text = f.read()
        version = re.search(r"^__version__.*'(.*)'$", text, re.M).group(1)
        commit = re.search(r"^__commit_id__.*'(.*)'$", text, re.M)
        return version + (" " + commit.group(1) if commit else "")
    except (OSError, AttributeError):
        pass
    git = subprocess.run(["git", "-C", folder, "rev-parse", "--short=12", "HEAD"],
                         capture_output=True, text=True)
    return git.stdout.strip() if git.returncode == 0 else "unknown"


def pool_load(folder, nr_blocks):
    sys.meta_path.insert(0, Finder(folder))
    sys.meta_path.append(Missing(folder))
    pool = importlib.import_module(REAL[0])
    utils = importlib.import_module(REAL[1])
    # One more: the pool keeps a block for itself.
    return pool.BlockPool(nr_blocks + 1, True, 16), utils


def pairs(pool, rounds, batch):
    get, put = pool.get_new_blocks, pool.free_blocks
    start = time.perf_counter_ns()
    for _ in range(rounds):
        put(get(batch))
    return (time.perf_counter_ns() - start) / (rounds * batch)


def cache_fill(pool, utils):
    """CACHED blocks that nobody uses, in the index.  Return: their hashes."""
    hashes = [bytes([i]) * 32 for i in range(CACHED)]
    blocks = pool.get_new_blocks(CACHED)
    for block, name in zip(blocks, hashes):
        key = utils.make_block_hash_with_group_id(name, 0)
        pool._insert_block_hash(key, block, 16)
    pool.free_blocks(reversed(blocks))
    return hashes


def hits(pool, hashes, rounds):
    find, touch, put = pool.get_cached_block, pool.touch, pool.free_blocks
    start = time.perf_counter_ns()
    for _ in range(rounds):
        for name in hashes:
            block = find(name, [0])
            touch(block)
            put(block)
    return (time.perf_counter_ns() - start) / (rounds * len(hashes))


def main():
    try:
        folder = vllm_folder()
        if not folder:
            print("none vllm is not installed and KVMM_VLLM names no checkout", flush=True)
            return 0
        pool, utils = pool_load(folder, int(sys.argv[1]))
        hashes = cache_fill(pool, utils)
        if pool.get_cached_block(hashes[7], [0]) is None:
            raise RuntimeError("what was cached is not found")
    except Exception as e:
        print(f"none {folder}: {type(e).__name__}: {e}".replace("\n", " "), flush=True)
        return 0
    print("vllm", vllm_version(folder), flush=True)
    for line in sys.stdin:
        rounds, what = line.split()
        ns = hits(pool, hashes, int(rounds)) if what == "hit" else pairs(pool, int(rounds), int(what))
        print(ns, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
