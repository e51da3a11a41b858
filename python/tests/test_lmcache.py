# SPDX-License-Identifier: Apache-2.0
"""The storage plugin for LMCache, with stand-ins of LMCache's classes and of torch."""
import abc
import asyncio
import enum
import sys
import types
import unittest
from unittest import mock

import kvmm
import kvmm.lmcache
from test_sglang import content
from world import World, until

BYTES = 32768       # of a chunk, as test_sglang's pages
EXTRA = {"storage_plugin.kvmm.module_path": "kvmm.lmcache", "kvmm.timeout": 2}


class Base(abc.ABC):
    """In place of StoragePluginInterface: the methods that a subclass must have."""

    def __init__(self, dst_device="cuda", config=None, metadata=None, local_cpu_backend=None,
                 loop=None):
        self.dst_device, self.config, self.metadata = dst_device, config, metadata
        self.local_cpu_backend, self.loop = local_cpu_backend, loop


for method in ("contains", "exists_in_put_tasks", "batched_submit_put_task", "get_blocking", "pin",
               "unpin", "remove", "get_allocator_backend", "close"):
    setattr(Base, method, abc.abstractmethod(lambda self, *_, **__: None))
Base = abc.ABCMeta("Base", (Base,), dict(Base.__dict__))


class Format(enum.Enum):
    KV_2LTD = 1


class Dtype:
    itemsize = 2

    def __str__(self):
        return "torch.bfloat16"


class Chunk:
    """In place of a MemoryObj."""

    def __init__(self, shape, dtype, fmt, data=None):
        self.metadata = types.SimpleNamespace(shape=shape, dtype=dtype, fmt=fmt)
        self.byte_array = memoryview(bytearray(data or BYTES))
        self.refs = 1

    def ref_count_down(self):
        self.refs -= 1


class Key:
    def __init__(self, n):
        self.n = n

    def to_string(self):
        return f"org/model@1@0@{self.n:x}"


def stand_ins():
    names = ("torch", "lmcache", "lmcache.v1", "lmcache.v1.memory_management",
             "lmcache.v1.storage_backend", "lmcache.v1.storage_backend.abstract_backend")
    modules = {name: types.ModuleType(name) for name in names}
    modules["torch"].Size, modules["torch"].bfloat16 = tuple, Dtype()
    modules[names[3]].MemoryFormat = Format
    modules[names[5]].StoragePluginInterface = Base
    modules[names[4]].abstract_backend = modules[names[5]]
    return modules


class Lmcache(World):
    def setUp(self):
        super().setUp()
        patch = mock.patch.dict(sys.modules, stand_ins())
        patch.start()
        self.addCleanup(patch.stop)
        self.allocated = []

    def allocate(self, shape, dtype, fmt):
        self.allocated.append(Chunk(shape, dtype, fmt))
        return self.allocated[-1]

    def plugin(self, **extra):
        plugin = kvmm.lmcache.KvmmStoragePlugin(
            config=types.SimpleNamespace(extra_config={**EXTRA, **extra}), dst_device="cpu",
            metadata=types.SimpleNamespace(kv_shape=(2, 2, 16, 4, 64), kv_dtype=Dtype()),
            local_cpu_backend=types.SimpleNamespace(allocate=self.allocate), loop=None)
        self.addCleanup(plugin.close)
        return plugin

    def fill(self, plugin, numbers, **more):
        plugin.batched_submit_put_task(
            [Key(n) for n in numbers],
            [Chunk((2, 2, 16, 256), Dtype(), Format.KV_2LTD, content(n)) for n in numbers], **more)

    def test_share(self):
        one, done = self.plugin(), []
        self.fill(one, range(70), on_complete_callback=done.append)
        self.assertEqual([key.n for key in done], list(range(70)))
        two = self.plugin()
        self.assertEqual(two.batched_contains([Key(n) for n in (0, 69, 70, 1)]), 2)
        self.assertEqual((two.contains(Key(3)), two.contains(Key(99))), (True, False))
        found = two.batched_get_blocking([Key(n) for n in range(71)])
        self.assertIsNone(found[70])
        self.assertTrue(all(found[n].byte_array == content(n) for n in range(70)))
        meta = found[0].metadata
        self.assertEqual((meta.shape, meta.fmt), ((2, 2, 16, 256), Format.KV_2LTD))
        self.assertIs(meta.dtype, sys.modules["torch"].bfloat16)
        self.assertIsInstance(two, Base)
        self.assertFalse(two.exists_in_put_tasks(Key(0)))

    def test_short_and_long(self):
        plugin = self.plugin()
        chunks = [Chunk((1,), Dtype(), Format.KV_2LTD, data) for data in (b"ab", bytes(BYTES + 1))]
        chunks.append(Chunk((1,), Dtype(), Format.KV_2LTD, b"ab"))
        chunks[2].metadata.shapes = [(1,), (1,)]
        with self.assertLogs("kvmm.lmcache", "WARNING") as said:
            plugin.batched_submit_put_task([Key(1), Key(2), Key(3)], chunks)
        self.assertEqual(len(said.output), 2)
        self.assertEqual(bytes(plugin.get_blocking(Key(1)).byte_array[:3]), b"ab\0")
        self.assertIsNone(plugin.get_blocking(Key(2)))
        self.assertIsNone(plugin.get_blocking(Key(3)))

    def test_pins(self):
        plugin = self.plugin()
        self.fill(plugin, [1])
        self.assertTrue(plugin.contains(Key(1), pin=True))
        self.assertTrue(plugin.pin(Key(1)))
        self.assertEqual(len(plugin._pins[Key(1).to_string()]), 2)
        with self.assertLogs("kvmm.lmcache", "WARNING"):
            self.assertFalse(plugin.pin(Key(2)))
        self.assertEqual([plugin.unpin(Key(1)) for _ in range(3)], [True, True, False])
        self.assertEqual([plugin.remove(Key(1)) for _ in range(2)], [True, False])
        self.assertFalse(plugin.contains(Key(1)))

    def test_async(self):
        plugin = self.plugin()

        async def work():
            chunks = [Chunk((1,), Dtype(), Format.KV_2LTD, content(n)) for n in (0, 1, 3)]
            keys = [Key(n) for n in range(4)]
            await plugin.async_batched_submit_put_task([keys[0], keys[1], keys[3]], chunks)
            return (await plugin.batched_async_contains("id", keys),
                    await plugin.batched_get_non_blocking("id", keys))

        nr, found = asyncio.run(work())
        self.assertEqual((nr, len(found)), (2, 2))
        self.assertTrue(found[1].byte_array == content(1))
        self.assertEqual([chunk.refs for chunk in self.allocated], [1, 1, 0])

    def test_trouble(self):
        plugin = self.plugin()
        self.fill(plugin, [1])
        with mock.patch.object(plugin, "_chunk", side_effect=kvmm.Stale("gone")):
            with self.assertLogs("kvmm.lmcache", "WARNING"):
                self.assertIsNone(plugin.get_blocking(Key(1)))
        with mock.patch.object(kvmm._guard, "ATTACH_SECONDS", 0.1):
            self.stop_daemon()
            with self.assertLogs("kvmm.lmcache", "WARNING"):
                self.assertFalse(plugin.contains(Key(1)))
                self.fill(plugin, [1])
                self.assertIsNone(plugin.get_blocking(Key(1)))
                self.start_daemon(*self.OPTIONS)
                self.assertTrue(until(lambda: self.fill(plugin, [2]) or plugin.contains(Key(2))))

    def test_class(self):
        self.raises_line(AttributeError, "no attribute Other", getattr, kvmm.lmcache, "Other")
        with mock.patch.dict(sys.modules, {name: None for name in stand_ins()}):
            with self.assertRaises(ImportError):
                kvmm.lmcache.KvmmStoragePlugin


if __name__ == "__main__":
    unittest.main()
