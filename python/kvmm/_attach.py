# SPDX-License-Identifier: Apache-2.0
"""One attachment: the calls of the library, the lock around them, and views of the pool.

The library unmaps memory that the daemon asks back, and its addresses then fault.  A view
of Python may still be there.  So the range is made readable again at once, as zeros, and
the attachment itself is given up only when no view is left.  When the attachment ends, zeros
take the place of the whole pool: the daemon kills a process that keeps memory of the last one.

The child of a fork has neither the attachment nor its memory.  There views are released, and
addresses of the pool read as zeros.
"""
import errno
import os
import threading
import time
import weakref

from . import _lib
from ._turns import Pause, Turns
from .errors import Closed, Ended, of_attach, of_status

PROT_READ_WRITE = 3
MAP_ZEROS = 0x4022          # MAP_NORESERVE | MAP_ANONYMOUS | MAP_PRIVATE
MAP_FIXED, MAP_FIXED_NOREPLACE = 0x10, 0x100000
KEEPER_SECONDS = 0.1    # the daemon kills clients that do not look for --revoke-deadline-ms

_attachments = weakref.WeakSet()


def _after_fork():
    for attachment in list(_attachments):
        attachment.forked()


os.register_at_fork(after_in_child=_after_fork)


def release(views):
    """Views of weak references raise from now on, but for those that arrays were made of."""
    for ref in views:
        view = ref()
        try:
            if view is not None:
                view.release()
        except BufferError:
            pass


class Attachment:
    def __init__(self, params):
        """Attach as @params, a struct kvmm_params of cffi, says."""
        self.ffi, self.lib, self.constants = _lib.load()
        self.turn = Turns()
        self.pause = Pause()
        self.pid = os.getpid()
        self.closed = False
        self.abandoned = False      # the Client is garbage
        self._gone = False          # zeros are where the pool was
        self.lost = []              # handles of sequences that are garbage
        self.exports = {}           # id: weak references to a buffer and its view, the owner
        self.handles = set()        # open sequences and leases
        self.steps = {}             # open steps: their threads by number, oldest first
        self.step_ended = threading.Condition()
        self.k = self._attach(params)
        self.info = self.lib.kvmm_info(self.k)
        self._host = self.lib.kvmm_backend(self.k) == self.constants["KVMM_MEMORY_HOST"]
        self._libc = self._open_libc()
        self._check_layout()
        _attachments.add(self)
        threading.Thread(target=self._keep, name="kvmm-keeper", daemon=True).start()

    def _attach(self, params):
        out = self.ffi.new("struct kvmm **")
        text = self.ffi.new("char[]", 256)
        ret = self.lib.kvmm_attach(params, out, text)
        if ret:
            raise of_attach(ret, self.ffi.string(text).decode(errors="replace"))
        return out[0]

    def _open_libc(self):
        ffi = type(self.ffi)()
        ffi.cdef("int mprotect(void *, size_t, int);"
                 "void *mmap(void *, size_t, int, int, int, long);")
        return ffi.dlopen(None) if self.in_host_memory else None

    def _check_layout(self):
        if self.info.layout_hash == self.constants["KVMM_LAYOUT_HASH"]:
            return
        self.lib.kvmm_detach(self.k)
        raise of_attach(-errno.EPROTONOSUPPORT, "this package was made from another version of "
                        "the headers than libkvmm: install both anew")

    @property
    def in_host_memory(self):
        return self._host

    # ---- calls ----

    def check(self):
        if self.pid != os.getpid():
            raise Closed("a Client does not survive fork(): make another one in the child")
        if self.closed:
            raise Closed("the Client is closed")

    def call(self, name, *args):
        """Run a function of the library in this thread's turn."""
        self.check()
        with self.turn:
            self.check()
            return self.locked(name, *args)

    def locked(self, name, *args):
        """Likewise, where the turn is this thread's already."""
        if self.pid != os.getpid():
            self.check()
        ret = getattr(self.lib, name)(self.k, *args)
        if self.exports:
            self._heal()
        return ret

    def must(self, verb, ret):
        """Raise the exception of a negative @ret."""
        if ret == -errno.ECONNRESET:
            line = self.ffi.string(self.lib.kvmm_strerror_attach(self.k))
            raise Ended(line.decode(errors="replace"), errno.ECONNRESET)
        if ret < 0:
            raise of_status(verb, ret)
        return ret

    def wait(self, seconds):
        """Wait until something may have changed."""
        def in_library(most):
            ret = self.call("kvmm_wait", int(most * 1e9))
            if ret != -errno.ETIMEDOUT:
                self.must("wait", ret)

        self.check()
        self.pause.wait(seconds, in_library)

    # ---- views of the pool ----

    def _heal(self):
        """Addresses that the library has just unmapped read as zeros, and do not fault."""
        pool = self.lib.kvmm_pool(self.k)
        if self._libc and pool:
            self._libc.mprotect(pool, self.info.pool_bytes, PROT_READ_WRITE)

    def _let_go(self):
        """The attachment has ended: views read zeros, and no memory of the daemon is kept."""
        if not self._gone:
            self._gone = True
            self._map_zeros(MAP_FIXED)

    def _map_zeros(self, how):
        pool = self.lib.kvmm_pool(self.k)
        if self._libc and pool:
            self._libc.mmap(pool, self.info.pool_bytes, PROT_READ_WRITE, MAP_ZEROS | how, -1, 0)

    def view(self, address, bytes, owner, readonly=False):
        """A view of the pool; @owner lives as long as it and all arrays made of it."""
        buffer = self.ffi.buffer(address, bytes)
        view = memoryview(buffer)
        if readonly:
            view = view.toreadonly()
        key = id(buffer)
        self.exports[key] = (weakref.ref(buffer, lambda _: self.exports.pop(key, None)),
                             weakref.ref(view), owner)
        return view

    def forked(self):
        """In the child of a fork, which has no other thread: nothing of this is usable there."""
        self.closed = True
        self.turn, self.pause, self.step_ended = Turns(), Pause(), threading.Condition()
        if self.k:
            self._map_zeros(MAP_FIXED_NOREPLACE)
        release([view for _, view, _ in list(self.exports.values())])

    # ---- the end ----

    def forget(self, handle):
        """The sequence is garbage.  No lock: the collector may run inside of one."""
        self.lost.append(handle)

    def _close_lost(self):
        while self.lost:
            self.close_handle(self.lost.pop())

    def close_handle(self, handle):
        """Close a sequence in this thread's turn.  Return: 0 or a negative errno."""
        if handle not in self.handles:
            return 0
        self.handles.discard(handle)
        return self.locked("kvmm_seq_close", self.ffi.new("u64[]", [handle]), 1)

    def _keep(self):
        """Map, and give back, memory for a client that does nothing itself."""
        while self.k:
            time.sleep(KEEPER_SECONDS)
            if self.abandoned:
                self.close()
            with self.turn:
                if not self.k:
                    return
                self._close_lost()
                if self.locked("kvmm_poll_extents") == -errno.ECONNRESET:
                    self._let_go()
                self._detach_if_unused()

    def _end_all(self):
        """Give all sequences back.  Their views stay readable."""
        ffi = self.ffi
        for step in self.steps:
            self.locked("kvmm_step_end", step, 0, 0, ffi.NULL, 0, ffi.NULL, ffi.NULL)
        self.steps.clear()
        for handle in list(self.handles):
            self.close_handle(handle)

    def _detach_if_unused(self):
        if self.closed and self.k and not self.exports:
            k, self.k = self.k, None
            self.lib.kvmm_detach(k)

    def close(self, first=None):
        """End the attachment, or all but its mappings if an array of one is still there.

        first: is called before, in the same turn
        """
        if self.pid != os.getpid():
            return
        with self.turn:
            if not self.closed:
                if first:
                    first()
                self.closed = True
                self._end_all()
            self._detach_if_unused()
