# SPDX-License-Identifier: Apache-2.0
"""The storage backend for SGLang, with a stand-in of SGLang's class, and without torch.

Tensors are stood in for by a class that has their four methods over a bytearray.
"""
import abc
import ctypes
import errno
import functools
import hashlib
import sys
import types
import unittest
from unittest import mock

import kvmm
import kvmm.sglang
from test_threads import together
from world import World, until

LAYERS, PAGE_SIZE, TOKEN = 2, 16, 512       # TOKEN: bytes of K of a token and layer
PAGE_BYTES = 2 * LAYERS * PAGE_SIZE * TOKEN
EXTRA = {"backend_name": "kvmm", "module_path": "kvmm.sglang",
         "class_name": "KvmmHiCacheStorage", "interface_v1": 1, "timeout": 2}


class Base(abc.ABC):
    """In place of SGLang's HiCacheStorage: the methods that a subclass must have."""

    @abc.abstractmethod
    def get(self, key, target_location=None, target_sizes=None):
        pass

    @abc.abstractmethod
    def batch_get(self, keys, target_locations=None, target_sizes=None):
        pass

    @abc.abstractmethod
    def set(self, key, value=None, target_location=None, target_sizes=None):
        pass

    @abc.abstractmethod
    def batch_set(self, keys, values=None, target_locations=None, target_sizes=None):
        pass

    @abc.abstractmethod
    def exists(self, key):
        pass


def stand_ins():
    names = ("sglang", "sglang.srt", "sglang.srt.mem_cache",
             "sglang.srt.mem_cache.hicache_storage")
    modules = {name: types.ModuleType(name) for name in names}
    modules[names[-1]].HiCacheStorage = Base
    return modules


class Tensor:
    """What the backend needs of a tensor."""

    def __init__(self, data, contiguous=True):
        self.data = bytearray(data)
        self._at = (ctypes.c_ubyte * len(data)).from_buffer(self.data)
        self._contiguous = contiguous

    def data_ptr(self):
        return ctypes.addressof(self._at)

    def numel(self):
        return len(self.data) // 2

    def element_size(self):
        return 2

    def is_contiguous(self):
        return self._contiguous


class HostPool:
    """A pool of HiCache: @parts parts of each page, a stride apart."""

    page_size, dtype = PAGE_SIZE, "bfloat16"

    def __init__(self, parts, pages=200, layout="page_first"):
        self.parts, self.pages, self.layout = parts, pages, layout
        self.part_bytes = PAGE_BYTES // parts
        self.memory = bytearray(PAGE_BYTES * pages)
        self._at = (ctypes.c_ubyte * len(self.memory)).from_buffer(self.memory)

    def get_size_per_token(self):
        return PAGE_BYTES // PAGE_SIZE

    def places(self, page):
        return [(part * self.pages + page) * self.part_bytes for part in range(self.parts)]

    def get_page_buffer_meta(self, indices):
        first = ctypes.addressof(self._at)
        places = [first + at for i in indices[::PAGE_SIZE] for at in self.places(i // PAGE_SIZE)]
        return places, [self.part_bytes] * len(places)

    def read(self, page):
        return b"".join(self.memory[at:at + self.part_bytes] for at in self.places(page))

    def write(self, page, data):
        for n, at in enumerate(self.places(page)):
            self.memory[at:at + self.part_bytes] = data[n * self.part_bytes:][:self.part_bytes]


def indices(pages):
    return [page * PAGE_SIZE + n for page in pages for n in range(PAGE_SIZE)]


@functools.cache
def content(n):
    """Bytes that differ in each part of a page."""
    return b"".join(hashlib.blake2b(b"%d %d" % (n, i)).digest() for i in range(PAGE_BYTES // 64))


def keys_of(pages):
    return [f"{n:064x}" for n in pages]


class Sglang(World):
    OPTIONS = ["--pool-size", "16M", "--extent-size", "1M", "--host-size", "8M"]

    def setUp(self):
        super().setUp()
        patch = mock.patch.dict(sys.modules, stand_ins())
        patch.start()
        self.addCleanup(patch.stop)

    def storage(self, pool=None, extra=None, **config):
        """As SGLang's factory makes it."""
        fields = dict(tp_rank=0, tp_size=2, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1,
                      is_mla_model=False, model_name="org/model",
                      extra_config={**EXTRA, **(extra or {})})
        kind = getattr(kvmm.sglang, EXTRA["class_name"])
        storage = kind(types.SimpleNamespace(**{**fields, **config}), {})
        self.addCleanup(storage.close)
        if pool is not False:
            storage.register_mem_pool_host(pool or HostPool(2))
        return storage

    def same(self, one, two):
        """assertEqual() takes minutes to print the difference of pages."""
        self.assertTrue(one == two)

    def fill(self, storage, pages):
        pages = list(pages)
        for n in pages:
            storage.mem_pool_host.write(n, content(n))
        return storage.batch_set_v1(keys_of(pages), indices(pages))


class Class(Sglang):
    def test_class(self):
        kind = kvmm.sglang.KvmmHiCacheStorage
        self.assertTrue(issubclass(kind, Base))
        self.assertIs(kind, kvmm.sglang.KvmmHiCacheStorage)
        self.assertEqual((kind.__module__, kind.__name__), ("kvmm.sglang", "KvmmHiCacheStorage"))
        self.raises_line(AttributeError, "no attribute Other", getattr, kvmm.sglang, "Other")

    def test_without_sglang(self):
        with mock.patch.dict(sys.modules, {name: None for name in stand_ins()}):
            with self.assertRaises(ImportError):
                kvmm.sglang.KvmmHiCacheStorage

    def test_no_daemon(self):
        self.stop_daemon()
        self.raises_line(kvmm.NoDaemon, "no daemon", self.storage)


class Pages(Sglang):
    def round(self, parts, layout, **config):
        """Pages of one server are in the pool of the next one, at other places."""
        one = self.storage(HostPool(parts, layout=layout), **config)
        self.assertEqual(self.fill(one, range(5)), [True] * 5)
        self.assertEqual(self.fill(one, range(5)), [True] * 5)
        two = self.storage(HostPool(parts, layout=layout), **config)
        self.assertEqual(two.batch_exists(keys_of(range(7))), 5)
        found = two.batch_get_v1(keys_of([4, 9, 0]), indices([10, 11, 12]))
        self.assertEqual(found, [True, False, True])
        pool = two.mem_pool_host
        self.same([pool.read(n) for n in (10, 11, 12, 13)],
                  [content(4), bytes(PAGE_BYTES), content(0), bytes(PAGE_BYTES)])

    def test_page_first(self):
        self.round(2, "page_first")

    def test_layer_first(self):
        self.round(2 * LAYERS, "layer_first")

    def test_latent(self):
        self.round(1, "page_first", is_mla_model=True)

    def test_many(self):
        """As many pages as SGLang moves at once, and a key that is there twice."""
        storage = self.storage()
        self.assertEqual(self.fill(storage, range(128)), [True] * 128)
        keys = keys_of(range(128))
        self.assertEqual(storage.batch_exists(keys), 128)
        storage.mem_pool_host.memory[:] = bytes(len(storage.mem_pool_host.memory))
        self.assertEqual(storage.batch_get_v1(keys, indices(range(128))), [True] * 128)
        self.assertEqual([n for n in range(128) if storage.mem_pool_host.read(n) != content(n)], [])
        self.assertEqual(storage.batch_set_v1(keys[:1] * 2, indices([0, 1])), [True, True])
        self.assertEqual(storage.batch_set_v1(["new"] * 2, indices([0, 1])), [True, True])
        self.assertEqual((storage.batch_get_v1([], []), storage.batch_set_v1([], [])), ([], []))

    def test_ranks(self):
        """Ranks have keys of their own, but for latent attention; a stage has a domain."""
        one, two = self.storage(), self.storage(tp_rank=1)
        self.fill(one, [1])
        self.assertEqual((one.exists(keys_of([1])[0]), two.exists(keys_of([1])[0])), (True, False))
        self.raises_line(kvmm.Refused, "another model", self.storage, model_name="org/other")
        one, two = (self.storage(tp_rank=r, is_mla_model=True, extra={"domain": "latent"})
                    for r in range(2))
        self.fill(one, [1])
        self.assertTrue(two.exists(keys_of([1])[0]))
        self.storage(pp_size=2, pp_rank=1)
        cp = self.storage(attn_cp_size=2, attn_cp_rank=1, extra={"domain": "cp"})
        self.assertEqual(cp._key("k"), "k tp0 cp1")
        self.assertEqual({d["name"] for d in kvmm.stats("domains")["domains"]},
                         {"sglang", "latent", "sglang.pp1", "cp"})

    def test_bad_sizes(self):
        storage = self.storage()
        storage.mem_pool_host.part_bytes -= 2
        self.raises_line(ValueError, "a page of", storage.batch_set_v1, ["a"], indices([0]))
        self.raises_line(ValueError, "a page of", storage.batch_get_v1, ["a"], indices([0]))
        self.raises_line(ValueError, "4 parts of 3 pages", storage.batch_get_v1, ["a", "b", "c"],
                         indices([0, 1]))
        self.raises_line(ValueError, "a page of 3 bytes", storage.set, "a", b"abc")


class Values(Sglang):
    """The older calls, with one tensor, buffer or address for each page."""

    def test_tensors(self):
        storage = self.storage()
        values = [Tensor(content(n)) for n in range(3)]
        self.assertTrue(storage.batch_set(["a", "b", "c"], values))
        into = [Tensor(bytes(PAGE_BYTES)) for _ in range(3)]
        self.assertEqual(storage.batch_get(["b", "x", "a"], into), [into[0], None, into[2]])
        self.same([t.data for t in into], [content(1), bytes(PAGE_BYTES), content(0)])
        self.raises_line(ValueError, "contiguous", storage.set, "d", Tensor(content(1), False))
        self.assertTrue(storage.batch_set([], []))
        self.assertEqual(storage.batch_get([], []), [])

    def test_buffers(self):
        storage = self.storage()
        self.assertFalse(storage.exists("a"))
        self.assertTrue(storage.set("a", content(1)))
        self.assertTrue(storage.set("a", content(2)))       # the first one stays
        self.assertTrue(storage.exists("a"))
        into = bytearray(PAGE_BYTES)
        self.assertIs(storage.get("a", into), into)
        self.same(into, content(1))
        self.assertIsNone(storage.get("b", into))
        with self.assertRaises((BufferError, ValueError)):
            storage.get("a", bytes(PAGE_BYTES))

    def test_addresses(self):
        storage, data, into = self.storage(), Tensor(content(3)), Tensor(bytes(PAGE_BYTES))
        self.assertTrue(storage.set("a", None, data.data_ptr(), PAGE_BYTES))
        self.assertEqual(storage.get("a", into.data_ptr(), PAGE_BYTES), into.data_ptr())
        self.same(into.data, content(3))

    def test_numpy(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy is not here")
        storage = self.storage()
        data = numpy.frombuffer(content(5), dtype=numpy.float16).reshape(2, -1)
        self.assertTrue(storage.set("a", data))
        into = numpy.zeros(PAGE_BYTES // 2, dtype=numpy.float16)
        self.assertIs(storage.get("a", into), into)
        self.same(into.tobytes(), content(5))


class Trouble(Sglang):
    def test_no_memory(self):
        """Pages that find no room are not stored, and raise nothing."""
        storage = self.storage(extra={"max_bytes": 1 << 20, "timeout": 0.1})
        with storage._objects.create([f"x{n}" for n in range(32)]) as items:
            held = sum(i.held for i in items)
            self.assertGreater(held, 8)
            other = self.storage(extra={"timeout": 0.1})
            done = self.fill(other, range(32))
        self.assertLess(sum(done), 32)
        self.assertEqual([i.status for i in items if not i.held], [errno.EAGAIN] * (32 - held))

    def test_daemon_ends(self):
        """Calls are misses while no daemon is there; the next one is used."""
        storage = self.storage()
        self.fill(storage, range(2))
        with mock.patch.object(kvmm._guard, "ATTACH_SECONDS", 0.1):
            self.stop_daemon()
            with self.assertLogs("kvmm.sglang", "WARNING"):
                self.assertEqual(self.fill(storage, range(2)), [False, False])
                self.assertEqual(storage.batch_get_v1(keys_of([0]), indices([0])), [False])
                self.assertEqual(storage.batch_exists(keys_of([0])), 0)
                self.assertIsNone(storage.get("a", bytearray(PAGE_BYTES)))
                self.assertFalse(storage.set("a", content(1)))
                self.start_daemon(*self.OPTIONS)
                self.assertTrue(until(lambda: all(self.fill(storage, range(2)))))
        self.assertEqual(storage.batch_exists(keys_of(range(3))), 2)

    def test_kill(self):
        """kill -9 of kvmm under the threads of HiCache: no page is wrong."""
        storage = self.storage()

        def work(i):
            if not i:
                self.kill_daemon()
                return
            for n in range(4 * i, 4 * i + 4):
                self.assertEqual(self.fill(storage, [n]), [True])
                self.assertEqual(storage.batch_get_v1(keys_of([n]), indices([n])), [True])
                self.same(storage.mem_pool_host.read(n), content(n))

        self.assertEqual(together(5, work), [])

    def test_close(self):
        storage = self.storage()
        storage.close()
        storage.close()
        with self.assertLogs("kvmm.sglang", "WARNING") as said:
            self.assertFalse(storage.exists("a"))
            storage.clear()
        self.assertRegex(said.output[0], "storage is closed")
        early = self.storage(False)
        with self.assertLogs("kvmm.sglang", "WARNING") as said:
            self.assertFalse(early.exists("a"))
        self.assertRegex(said.output[0], "register_mem_pool_host")

    def test_gpu(self):
        with mock.patch.object(kvmm._attach.Attachment, "in_host_memory", False):
            self.raises_line(kvmm.Error, "on a GPU", self.storage)


if __name__ == "__main__":
    unittest.main()
