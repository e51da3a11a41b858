# SPDX-License-Identifier: Apache-2.0
"""A store of objects in the memory of the daemon: a key of 32 bytes, and a fixed size.

To the library an array of at most 64 objects that are held is one step.  Steps of an
attachment end in the order in which they began, so an array of a get that is not the oldest
one is put later, by the thread that ends the older one.  An array of a create or a delete waits.
"""
import errno
import hashlib
import threading
import time

from . import _lib
from ._base import TIERS, Attached, label_of
from ._batch import Batch, Room
from .errors import Again, Error, of_status
from .sequence import Lease

KEY_BYTES = 32


def key_of(key):
    """The 32 bytes that stand for @key in the daemon.

    32 bytes stand for themselves.  1 to 31 bytes, the last of them not 0, are filled up with
    zeros, as in C.  Of all other bytes, and of the UTF-8 of a text, the key is a BLAKE2b
    digest of 256 bits, whose parameter `person` is "kvmm-bytes" or "kvmm-text".
    """
    if isinstance(key, str):
        return _digest(key.encode(), b"kvmm-text")
    if not isinstance(key, (bytes, bytearray, memoryview)):
        raise TypeError(f"a key is bytes or a text, not {type(key).__name__}")
    key = bytes(key)
    if not key:
        raise ValueError("a key has at least one byte")
    if len(key) == KEY_BYTES:
        return key
    if len(key) > KEY_BYTES or not key[-1]:
        return _digest(key, b"kvmm-bytes")
    return key.ljust(KEY_BYTES, b"\0")


def _digest(data, person):
    return hashlib.blake2b(data, digest_size=KEY_BYTES, person=person).digest()


class Objects(Attached):
    """A store of objects of @object_bytes, a multiple of 4096.  Threads may share it.

    model, identity, socket, max_bytes, min_bytes, low_bytes, high_bytes, swap_max_bytes,
    weight, pool, timeout: as for Client; object_bytes is part of the shape
    steps: how many arrays of up to 64 objects may be held at once, 1 to 4
    """

    def __init__(self, domain, object_bytes, *, model="", identity=None, socket=None,
                 max_bytes=None, weight=0, steps=4, pool=None, timeout=30.0, **limits):
        ffi, lib, constants = _lib.load()
        self._check_limits(limits)
        if not 1 <= steps <= constants["KVMM_MAX_STEPS"]:
            raise ValueError(f"steps: 1 to {constants['KVMM_MAX_STEPS']} are allowed")
        p = ffi.new("struct kvmm_params *")
        if object_bytes < 0 or lib.kvmm_objects_layout(p, object_bytes):
            raise ValueError(f"object_bytes is {object_bytes}, not a multiple of 4096 up to 4 GiB")
        self._attach(domain, model=model, identity=identity, socket=socket, max_bytes=max_bytes,
                     pool=pool, timeout=timeout, groups=[p.group[0]],
                     block_tokens=p.block_tokens, step_tokens=p.step_tokens, weight=weight,
                     max_steps=steps, **limits)
        self.object_bytes = object_bytes
        self.batch_objects = constants["KVMM_OBJECTS_MAX"]
        self._in_host_memory = self._at.in_host_memory
        self._open = []         # arrays of the library that are held, the oldest one first
        self._room = Room(self._at.info.max_steps)

    def close(self):
        """Give back all objects that are held, and detach.  Views are released."""
        self._at.close(self._give_back)

    def _give_back(self):
        arrays, self._open[:] = self._open[:], []
        for array in arrays:
            array.release_views()
            self._at.locked("kvmm_objects_put", array.obj, array.nr)

    # ---- what is there ----

    def exists(self, keys):
        """For each key the tier of its object: device, host, area or moving; None: no object."""
        at, keys = self._at, [key_of(key) for key in keys]
        out = at.ffi.new("u8[]", self.batch_objects)
        none, found = at.constants["KVMM_TIER_NONE"], []
        at.check()
        for first in range(0, len(keys), self.batch_objects):
            some = keys[first:first + self.batch_objects]
            names = at.ffi.from_buffer("struct kvmm_key[]", b"".join(some))
            at.must("objects_find", at.call("kvmm_objects_find", names, len(some), out))
            found += [None if t == none else TIERS[t] for t in out[0:len(some)]]
        return found

    # ---- held objects ----

    def get(self, keys, timeout=10.0):
        """Hold objects inside of `with`, to read them: a list of items, one for each key.

        timeout: seconds to wait for content of lower tiers
        """
        return Batch(self, keys, False, timeout)

    def create(self, keys, timeout=10.0):
        """Take memory for new objects inside of `with`: a list of items, one for each key.

        At the end of the body others find them; after an exception they are given up.
        timeout: seconds to wait for memory
        """
        return Batch(self, keys, True, timeout)

    def put(self, key, data, timeout=10.0):
        """Store @data under @key.  Return: is it new?"""
        data = self._bytes_of(data)
        with self.create([key], timeout) as (item,):
            if item.held:
                item.view[:] = data
        if item.status and item.status != errno.EEXIST:
            raise of_status("objects_create", -item.status)
        return item.held

    def load_into(self, keys, buffers, timeout=10.0):
        """Copy objects into writable buffers.  Return: for each, was it there in time?"""
        keys, buffers = list(keys), [self._bytes_of(b) for b in buffers]
        if len(keys) != len(buffers):
            raise ValueError(f"{len(keys)} keys, and {len(buffers)} buffers")
        if any(b.readonly for b in buffers):
            raise ValueError("a buffer is read-only")
        found, end = [], time.monotonic() + timeout
        for first in range(0, len(keys), self.batch_objects):
            with self.get(keys[first:first + self.batch_objects],
                          max(end - time.monotonic(), 0)) as items:
                for item, buffer in zip(items, buffers[first:]):
                    if item.held:
                        buffer[:] = item.view
            found += [item.held for item in items]
        return found

    def _bytes_of(self, data):
        if not self._in_host_memory:
            raise Error("the pool is memory of a GPU: an item's address is the object's place")
        view = memoryview(data).cast("B")
        if len(view) != self.object_bytes:
            raise ValueError(f"{len(view)} bytes, but an object has {self.object_bytes}")
        return view

    # ---- drop and keep ----

    def delete(self, keys, timeout=10.0):
        """Drop objects.  Return: for each, was it there?

        One that another client holds is gone when it is held no more.
        """
        keys, gone = list(keys), []
        for first in range(0, len(keys), self.batch_objects):
            with Batch(self, keys[first:first + self.batch_objects], False, timeout,
                       in_order=True) as items:
                self._drop([item for item in items if item.held])
            bad = [i.status for i in items if i.status not in (0, errno.ENOENT)]
            if bad:
                raise of_status("objects_delete", -bad[0])
            gone += [item.held for item in items]
        return gone

    def _drop(self, items):
        at = self._at
        if not items:
            return
        args = at.ffi.new("struct kvmm_advise_arg[]", [
            {"seq": item.object.seq, "advice": at.constants["KVMM_ADV_DONTNEED"],
             "value": at.constants["KVMM_DONTNEED_FOUND"]} for item in items])
        res = at.ffi.new("struct kvmm_seq_res[]", len(items))
        at.must("objects_delete", at.call("kvmm_seq_advise", args, len(items), res))
        for r in res:
            at.must("objects_delete", r.status)

    def lease(self, key, seconds, label=None):
        """Keep an object, in whatever tier, for @seconds.  label: 16 characters of ASCII."""
        at = self._at
        name = at.ffi.new("struct kvmm_key *", {"byte": list(key_of(key))})
        text, res = label_of(at, label), at.ffi.new("struct kvmm_lease_res *")
        at.check()
        with at.turn:
            at.check()
            at.must("object_lease", at.locked("kvmm_object_lease", name, int(seconds * 1000),
                                              text, res))
            why = of_status("object_lease", res.reason) if res.reason else None
            return Lease(self, res.seq, res.number, res.held, res.kept, res.until, why)

    # ---- for the batches: the arrays of the library ----

    def _take_room(self, nr, end):
        if nr > self._room.size:
            most = self._room.size * self.batch_objects
            raise ValueError(f"at most {most} objects are held at once: use several batches")
        if not self._room.take(nr, end):
            raise Again("as many batches are held as steps= of the store allows", errno.EAGAIN)

    def _holds(self):
        """Does this thread hold a batch?"""
        me = threading.get_ident()
        return any(array.thread == me and not array.done for array in self._open)
