# SPDX-License-Identifier: Apache-2.0
"""A storage plugin for LMCache: chunks of KV as objects of kvmm.

An object is a page with the shape of the chunk, and the chunk.  LMCache and torch are
imported when the class is first used, or a chunk is read.
"""
import asyncio
import ctypes
import json
import logging
import math
import threading

from ._guard import PAGE, Guarded, place_of
from .objects import Objects

log = logging.getLogger(__name__)
PIN_SECONDS = 60    # a pin is a lease, which ends by itself


def head_of(obj, size):
    """The first page of an object: what a reader needs to allocate the chunk."""
    meta = obj.metadata
    text = json.dumps({"bytes": size, "shape": list(meta.shape), "fmt": meta.fmt.name,
                       "dtype": str(meta.dtype).removeprefix("torch.")}).encode()
    if len(text) > PAGE - 4:
        raise ValueError("the shape of the chunk does not fit into a page")
    return len(text).to_bytes(4, "little") + text


def read_head(view):
    length = int.from_bytes(view[:4], "little")
    return json.loads(bytes(view[4:4 + length]))


class ChunkStore(Guarded):
    """What LMCache calls.  An error of kvmm is a miss."""

    def __init__(self, dst_device="cpu", config=None, metadata=None, local_cpu_backend=None,
                 loop=None):
        super().__init__(dst_device=dst_device, config=config, metadata=metadata,
                         local_cpu_backend=local_cpu_backend, loop=loop)
        self._begin(log)
        self._pins, self._pin_lock = {}, threading.Lock()
        self._config = {name.removeprefix("kvmm."): value for name, value
                        in (getattr(config, "extra_config", None) or {}).items()
                        if name.startswith("kvmm.")}
        self.timeout = float(self._config.get("timeout", 5))
        self._chunk_bytes = self._config.get("chunk_bytes") or \
            math.prod(metadata.kv_shape) * metadata.kv_dtype.itemsize
        self._store()

    def _attach(self):
        model = {"engine": "lmcache", "chunk_bytes": self._chunk_bytes,
                 "revision": self._config.get("revision", "")}
        return self._open(self._config.get("domain", "lmcache"), PAGE + self._chunk_bytes, model,
                          self._config)

    @staticmethod
    def _names(keys):
        return [key.to_string() for key in keys]

    # ---- store ----

    def batched_submit_put_task(self, keys, objs, transfer_spec=None, on_complete_callback=None):
        """Store chunks, before the return."""
        todo = {}
        for key, obj in zip(keys, objs):
            place = place_of(obj.byte_array, None, False)
            if place[1] > self._chunk_bytes:
                log.warning("kvmm: a chunk of %d bytes, more than %d", place[1], self._chunk_bytes)
                continue
            if len(getattr(obj.metadata, "shapes", None) or ()) > 1:
                log.warning("kvmm: a chunk of several tensors is not stored")
                continue
            todo[key.to_string()] = (key, head_of(obj, place[1]), place)
        done = self._guarded(self._save, todo) or []
        for name in done if on_complete_callback else []:
            on_complete_callback(todo[name][0])

    def _save(self, store, todo):
        names, done = list(todo), []
        for first in range(0, len(names), store.batch_objects):
            with store.create(names[first:first + store.batch_objects], self.timeout) as items:
                for item in (i for i in items if i.held):
                    _, head, (address, size, _) = todo[item.key]
                    item.view[:len(head)] = head
                    ctypes.memmove(item.address + PAGE, address, size)
            done += [item.key for item in items if item.held]
        return done

    async def async_batched_submit_put_task(self, keys, objs, transfer_spec=None, **more):
        await asyncio.to_thread(self.batched_submit_put_task, keys, objs, transfer_spec, **more)

    def exists_in_put_tasks(self, key):
        return False

    # ---- load ----

    def get_blocking(self, key):
        return self.batched_get_blocking([key])[0]

    def batched_get_blocking(self, keys):
        """A chunk in LMCache's memory for each key, or None."""
        return self._guarded(self._load, self._names(keys)) or [None] * len(keys)

    def _load(self, store, names):
        found = []
        try:
            for first in range(0, len(names), store.batch_objects):
                with store.get(names[first:first + store.batch_objects], self.timeout) as items:
                    found += [self._chunk(item) if item.held else None for item in items]
        except BaseException:       # of kvmm, of torch or of LMCache's memory
            for obj in filter(None, found):
                obj.ref_count_down()
            raise
        return found

    def _chunk(self, item):
        """Copy an object into memory of LMCache."""
        import torch
        from lmcache.v1.memory_management import MemoryFormat

        head = read_head(item.view)
        obj = self.local_cpu_backend.allocate(torch.Size(head["shape"]),
                                              getattr(torch, head["dtype"]),
                                              MemoryFormat[head["fmt"]])
        if obj is None:
            return None
        address, size, _ = place_of(obj.byte_array, None, True)
        if size < head["bytes"]:
            obj.ref_count_down()
            return None
        ctypes.memmove(address, item.address + PAGE, head["bytes"])
        return obj

    async def batched_get_non_blocking(self, lookup_id, keys, transfer_spec=None):
        """The chunks up to the first one that is not there."""
        found = await asyncio.to_thread(self.batched_get_blocking, list(keys))
        first = found.index(None) if None in found else len(found)
        for obj in filter(None, found[first:]):
            obj.ref_count_down()
        return found[:first]

    # ---- ask, keep, drop ----

    def contains(self, key, pin=False):
        return self.batched_contains([key], pin) == 1

    def batched_contains(self, keys, pin=False):
        """How many chunks from the first on are there?"""
        tiers = self._guarded(Objects.exists, self._names(keys)) or []
        nr = tiers.index(None) if None in tiers else len(tiers)
        if pin:
            for n, key in enumerate(keys[:nr]):
                if not self.pin(key):
                    return n
        return nr

    async def batched_async_contains(self, lookup_id, keys, pin=False):
        return await asyncio.to_thread(self.batched_contains, list(keys), pin)

    def pin(self, key):
        """Keep a chunk for a minute, or until unpin()."""
        name = key.to_string()
        lease = self._guarded(Objects.lease, name, PIN_SECONDS, "lmcache")
        if lease is None:
            return False
        with self._pin_lock:
            self._pins.setdefault(name, []).append(lease)
        return True

    def unpin(self, key):
        name = key.to_string()
        with self._pin_lock:
            leases = self._pins.get(name)
            if not leases:
                return False
            lease = leases.pop()
            if not leases:
                del self._pins[name]
        lease.close()
        return True

    def remove(self, key, force=True):
        return (self._guarded(Objects.delete, [key.to_string()]) or [False])[0]

    def get_allocator_backend(self):
        return self.local_cpu_backend


_made = {}


def __getattr__(name):
    if name != "KvmmStoragePlugin":
        raise AttributeError(f"module kvmm.lmcache has no attribute {name}")
    from lmcache.v1.storage_backend import abstract_backend

    base = abstract_backend.StoragePluginInterface
    if base not in _made:
        _made[base] = type(name, (ChunkStore, base), {"__module__": __name__,
                                                      "__doc__": ChunkStore.__doc__})
    return _made[base]
