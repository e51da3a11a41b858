# SPDX-License-Identifier: Apache-2.0
"""Objects that are held inside of `with`: see Objects.get() and Objects.create()."""
import errno
import threading
import time

from .errors import Closed, Error, Stale

FIRST_SLICE, LAST_SLICE = 0.01, 0.5     # seconds of a try, in which other threads wait
STALE = "the daemon died and gave the memory away: "


class Room:
    """Steps of an attachment.  A thread takes all that it needs at once."""

    def __init__(self, size):
        self.size = size
        self._free = size
        self._cond = threading.Condition()

    def take(self, nr, end):
        with self._cond:
            if not self._cond.wait_for(lambda: self._free >= nr, max(end - time.monotonic(), 0)):
                return False
            self._free -= nr
            return True

    def give(self, nr=1):
        with self._cond:
            self._free += nr
            self._cond.notify_all()


class Item:
    """An object that was asked for.

    key:     as the caller gave it
    status:  0: it is held; else an errno.  get: ENOENT: it is not there; EAGAIN: not in time.
             create: EEXIST: it is there; EAGAIN: no memory in time; ECANCELED: drop() was called
    held:    was it held in the body?  True also after `with`
    view:    a memoryview of its bytes while it is held, else None.  None also on a GPU
    address: their place in this process, or on the GPU
    """

    def __init__(self, key, obj, array):
        self.key = key
        self.object = obj       # struct kvmm_object
        self._array = array     # whose memory has it
        self.status = -obj.status
        self.held = not self.status
        self.view = None
        self.address = None

    def drop(self):
        """In the body of create: do not store this one."""
        if self._array.ended:
            raise Closed("the batch has ended")
        if self.held:
            self.held, self.status = False, errno.ECANCELED
            self.object.status = -errno.ECANCELED

    def __repr__(self):
        return f"Item({self.key!r}, {errno.errorcode.get(self.status, self.status)})"


class Array:
    """At most 64 objects: one step of the library."""

    def __init__(self, store, keys, names, writes):
        self.store = store
        self.keys = keys
        self.nr = len(keys)
        self.obj = store._at.ffi.new("struct kvmm_object[]", [
            {"key": {"byte": list(name)}} for name in names])
        self.verb = "objects_create" if writes else "objects_get"
        self.writes = writes
        self.thread = threading.get_ident()
        self.done = False       # it is held for nobody, but an older one is still open
        self.ended = False      # the body has ended
        self.items = []

    # ---- begin ----

    def hold(self, end):
        """Take the objects.  Those without memory or content are tried again until @end."""
        most = FIRST_SLICE
        while True:
            left = max(end - time.monotonic(), 0)
            self._try(min(left, most))
            if left <= most or not any(o.status == -errno.EAGAIN for o in self.obj):
                break
            # Between two tries nothing is held, so that no two threads wait for each other.
            if not self._give_back_until(end):
                break
            self.store._at.wait(0.005)
            most = min(most * 2, LAST_SLICE)
        self._show()

    def _try(self, seconds):
        at, store = self.store._at, self.store
        with at.turn:
            at.check()
            if at.must(self.verb, at.locked(f"kvmm_{self.verb}", self.obj, self.nr,
                                            int(seconds * 1e9))):
                self.salvages = self._count_salvages()
                store._open.append(self)

    def _give_back_until(self, end):
        """Put what is held, when it is the oldest step.  False: it is not, @end has come."""
        at, store = self.store._at, self.store
        while True:
            with at.turn:
                at.check()
                if self not in store._open:
                    return True
                if store._open[0] is self:
                    store._open.pop(0)
                    at.must(self.verb, at.locked("kvmm_objects_put", self.obj, self.nr))
                    return True
            if time.monotonic() >= end:
                return False
            self._wait_for_older()

    def _show(self):
        at, store = self.store._at, self.store
        self.items = [Item(key, o, self) for key, o in zip(self.keys, self.obj)]
        with at.turn:
            at.check()
            for item in (i for i in self.items if i.held):
                item.address = int(at.ffi.cast("uintptr_t", item.object.addr))
                if store._in_host_memory:
                    item.view = at.view(item.object.addr, store.object_bytes, self,
                                        readonly=not self.writes)

    def _count_salvages(self):
        at = self.store._at
        out = at.ffi.new("u32 *")
        at.lib.kvmm_resumed(at.k, out)
        return out[0]

    # ---- end ----

    def release_views(self):
        for item in self.items:
            try:
                if item.view is not None:
                    item.view.release()
            except BufferError:     # an array was made of it
                pass

    def _wait_for_older(self):
        cond = self.store._at.step_ended
        with cond:
            cond.wait(0.02)

    def put(self):
        """Hold the objects no longer, but for the daemon while an older array is open."""
        at, store = self.store._at, self.store
        with at.turn:
            at.check()
            if self not in store._open:
                store._room.give()
                return
            self.done = True
            if store._open[0] is self:
                self._put_done(at, store)
                return
            at.must("confirm", at.locked("kvmm_confirm"))
            if self._count_salvages() != self.salvages:
                raise Stale(STALE + "bytes that were read may be wrong", errno.ESTALE)

    def put_in_order(self):
        """Likewise, when the older arrays have ended: then the daemon knows it."""
        while self._is_behind():
            self._wait_for_older()
        self.put()

    def _is_behind(self):
        at, store = self.store._at, self.store
        with at.turn:
            at.check()
            return self in store._open and store._open[0] is not self

    def _put_done(self, at, store):
        """End the oldest arrays, this one and those that wait for it."""
        ret = 0
        while store._open and store._open[0].done:
            array = store._open.pop(0)
            store._room.give()
            one = 0 if array.writes is None else at.locked("kvmm_objects_put", array.obj, array.nr)
            ret = one if array is self else ret
        with at.step_ended:
            at.step_ended.notify_all()
        if ret == -errno.ESTALE:
            raise Stale(STALE + "bytes that were read may be wrong", errno.ESTALE)
        at.must("objects_put", ret)

    def commit(self):
        """The objects are written.  Return: the keys of those that are lost."""
        at, store = self.store._at, self.store
        while self._is_behind():
            self._wait_for_older()
        with at.turn:
            at.check()
            if self not in store._open:
                store._room.give()
                return []
            ret = at.locked("kvmm_objects_commit", self.obj, self.nr)
            self.writes, self.done = None, True     # nothing is left to put
            self._put_done(at, store)
            at.must("objects_commit", ret)
            return self._lost()

    def _lost(self):
        lost = [item for item in self.items if item.held and item.object.status]
        for item in lost:
            item.held, item.status = False, -item.object.status
        return [item.key for item in lost]


class Batch:
    """Made by Objects.get() and Objects.create(), and used once."""

    def __init__(self, store, keys, writes, timeout, in_order=False):
        from .objects import key_of

        self.store = store
        self.keys = list(keys)
        self.writes = writes
        self.in_order = in_order or writes
        self.timeout = timeout
        self.arrays = None
        self._names = [key_of(key) for key in self.keys]
        if writes and len(set(self._names)) < len(self._names):
            raise ValueError("a key is twice in the batch")

    def __enter__(self):
        store, end = self.store, time.monotonic() + self.timeout
        if self.arrays is not None:
            raise Closed("a batch is used once")
        self.arrays = []
        store._at.check()
        if self.in_order and store._holds():
            raise Error("this thread holds objects already: end that batch before a create or "
                        "a delete")
        starts = range(0, len(self.keys), store.batch_objects)
        store._take_room(len(starts), end)
        for nr, first in enumerate(starts):
            last = first + store.batch_objects
            array = Array(store, self.keys[first:last], self._names[first:last], self.writes)
            self.arrays.append(array)
            try:
                array.hold(end)
            except BaseException:
                store._room.give(len(starts) - nr - 1)
                self._end_all(Array.put, quiet=True)
                raise
        return [item for array in self.arrays for item in array.items]

    def __exit__(self, kind, *_):
        end = Array.put
        if kind is None and self.in_order:
            end = Array.commit if self.writes else Array.put_in_order
        lost = self._end_all(end, quiet=kind is not None)
        if lost:
            raise Stale(f"{STALE}{len(lost)} objects are lost: create them again", errno.ESTALE)

    def _end_all(self, end, quiet):
        """End all arrays, then raise the first error.  Return: the keys of lost objects."""
        bad, lost = None, []
        for array in self.arrays:
            array.ended = True
            array.release_views()
            try:
                lost += end(array) or []
            except Error as e:
                bad = bad or e
        for array in self.arrays:
            for item in array.items:
                item.view = None
            array.items = []        # they refer to it
        if bad and not quiet:
            raise bad
        return lost
