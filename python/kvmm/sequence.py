# SPDX-License-Identifier: Apache-2.0
"""Sequences and leases of a Client."""
import errno
import os
import time
import weakref
from dataclasses import dataclass

from ._attach import release
from .errors import Again, Closed, Error, Timeout, of_status

STATES = ("CLOSED", "WAITING", "READY", "MARKED", "SWAPPED", "RECOMPUTE", "RESTORING", "FAILED")
ADVICE = {"cold": "COLD", "pageout": "PAGEOUT", "willneed": "WILLNEED",
          "keep_until": "KEEP_UNTIL", "dontneed": "DONTNEED", "retain": "RETAIN"}


@dataclass(frozen=True)
class Status:
    """The daemon's record of a sequence."""
    state: str          # of STATES
    reason: int         # negative errno that explains it, or 0
    valid_len: int      # tokens with valid KV
    cached_len: int     # tokens that the last admission found in the cache
    epoch: int          # raised when the sequence is preempted
    limiting_pool: int | None


class _Handle:
    """A handle of the daemon that is closed once, also by the garbage collector."""

    def __init__(self, client, handle):
        self.client = client
        self.handle = handle
        self._at = client._at
        self._at.handles.add(handle)
        self._end = weakref.finalize(self, self._at.forget, handle)
        self._end.atexit = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def closed(self):
        return not self._end.alive or self._at.closed

    def _check(self):
        self._at.check()
        if not self._end.alive:
            raise Closed(f"the {type(self).__name__.lower()} is closed")

    def _close(self):
        if self._end.detach() is None or self._at.closed or self._at.pid != os.getpid():
            return
        with self._at.turn:
            if not self._at.closed:
                self._at.close_handle(self.handle)

    def _entry(self, name, verb, kind, fields):
        """A request of one entry that answers with struct kvmm_seq_res."""
        self._check()
        ffi = self._at.ffi
        arg = ffi.new(f"struct {kind} *", {"seq": self.handle, **fields})
        res = ffi.new("struct kvmm_seq_res *")
        self._at.must(verb, self._at.call(name, arg, 1, res))
        self._at.must(verb, res.status)
        return res.valid_len

    def advise(self, advice, value=0, retain=0):
        """Advice: cold, pageout, willneed, keep_until, dontneed or retain."""
        if advice not in ADVICE:
            raise ValueError(f"no advice is called {advice}")
        number = self._at.constants["KVMM_ADV_" + ADVICE[advice]]
        return self._entry("kvmm_seq_advise", "SEQ_ADVISE", "kvmm_advise_arg",
                           {"advice": number, "value": value, "retain": retain})


class Sequence(_Handle):
    """A sequence: its ids, its record, its blocks."""

    def __init__(self, client, handle, ids):
        super().__init__(client, handle)
        self.ids = ids          # of the prompt, and of all tokens that steps added
        self._views = []        # weak references to views of blocks
        self._ends = []         # where open steps end
        self._epoch = None
        client._sequences.add(self)

    # ---- the record ----

    def _status(self):
        at = self._at
        if not at.locked("kvmm_alive"):
            at.must("status", -errno.ECONNRESET)
        st = at.ffi.new("struct kvmm_seq_status *")
        at.must("status", at.locked("kvmm_seq_status", self.handle, st))
        pool = st.limiting_pool
        return Status(STATES[st.state], st.reason, st.valid_len, st.cached_len, st.seq_epoch,
                      None if pool == at.constants["KVMM_NO_POOL"] else pool)

    def status(self):
        self._check()
        with self._at.turn:
            self._check()
            st = self._status()
        if self._epoch not in (None, st.epoch):
            self._release_views()       # it was preempted: its blocks are others now
        self._epoch = st.epoch
        return st

    @property
    def valid_len(self):
        return self.status().valid_len

    def match(self):
        """Send all ids: at first, and after a preemption by recompute."""
        self._check()
        place = self._at.ffi.from_buffer("u32[]", self.ids)
        try:
            self._at.must("SEQ_MATCH", self._at.call("kvmm_seq_match", self.handle, place,
                                                     len(place)))
        finally:
            self._at.ffi.release(place)

    def wait_ready(self, timeout=None):
        """Wait until the sequence has memory, and return its status."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            st = self.status()
            if st.state == "READY":
                return st
            if st.state == "FAILED":
                raise of_status("admission", st.reason)
            if st.state == "RECOMPUTE":
                self._rematch()
            left = 1.0 if end is None else end - time.monotonic()
            if left <= 0:
                raise Timeout(f"the sequence is {st.state} after {timeout} s")
            self._at.wait(left)

    def _rematch(self):
        try:
            self.match()
        except Again:
            pass
        except Error:
            if self.status().state == "RECOMPUTE":
                raise       # else another thread has sent them

    # ---- blocks ----

    def table(self, group=0, first=0, nr=None):
        """Entries of the block table; None for a block that was given back."""
        self._check()
        at, tokens = self._at, self.client._group_tokens[group]
        with at.turn:
            self._check()
            if nr is None:
                length = max([self._status().valid_len, *self._ends])
                nr = max(-(-length // tokens) - first, 0)
            out = at.ffi.new("u32[]", max(nr, 1))
            if nr:
                at.must("table", at.locked("kvmm_seq_table", self.handle, group, first, nr, out))
            none = at.constants["KVMM_NO_INDEX"]
            return [None if e == none else e for e in out[0:nr]]

    def block(self, index, group=0):
        """A writable view of block @index: bytes of the pool, no copy."""
        entry = self.table(group, index, 1)[0]
        at = self._at
        if entry is None:
            raise Error(f"block {index} was given back, or is not there yet")
        if not at.in_host_memory:
            raise Error("the pool is memory of a GPU: block_address() has the place of a block")
        with at.turn:
            self._check()
            address = self._address(entry)
            view = at.view(address, at.info.block_bytes, self)
        self._views = [v for v in self._views if v() is not None] + [weakref.ref(view)]
        return view

    def _address(self, entry):
        address = self._at.lib.kvmm_block(self._at.k, entry, 0)
        if not address:
            raise Error(f"entry {entry} names no block of the pool")
        return address

    def block_address(self, index, group=0):
        """The address of block @index in this process, or on the GPU."""
        entry = self.table(group, index, 1)[0]
        if entry is None:
            raise Error(f"block {index} was given back, or is not there yet")
        with self._at.turn:
            self._check()
            return int(self._at.ffi.cast("uintptr_t", self._address(entry)))

    def _release_views(self):
        """Views raise from now on, but for those that arrays were made of."""
        views, self._views = self._views, []
        release(views)

    # ---- changes ----

    def step(self, ids, **more):
        """A step of this sequence alone; see Client.step()."""
        return self.client.step({self: ids}, **more)

    def fork(self, n=1):
        """@n children that share all blocks."""
        self._check()
        at = self._at
        res = at.ffi.new("struct kvmm_open_res[]", n)
        with at.turn:
            self._check()
            at.must("SEQ_FORK", at.locked("kvmm_seq_fork", self.handle, n, res))
            kids = [Sequence(self.client, r.seq, self.ids[:]) for r in res if not r.status]
        bad = [r.status for r in res if r.status]
        if bad:
            for kid in kids:
                kid.close()
            raise of_status("SEQ_FORK", bad[0])
        return kids

    def truncate(self, length):
        """Make the sequence @length tokens long."""
        left = self._entry("kvmm_seq_truncate", "SEQ_TRUNCATE", "kvmm_len_arg", {"len": length})
        del self.ids[length:]
        return left

    def trim(self, position):
        """Give back whole blocks before @position, which is never read again."""
        return self._entry("kvmm_seq_trim", "SEQ_TRIM", "kvmm_len_arg", {"len": position})

    def close(self):
        """Give all memory back; full blocks stay in the cache.  Views are released."""
        self._release_views()
        self._close()


class Lease(_Handle):
    """Cached content that is not dropped before a deadline."""

    def __init__(self, client, handle, number, held, kept, until, reason):
        super().__init__(client, handle)
        self.number = number    # for Client.open(lease=) of any client of the domain
        self.held = held        # tokens that stay
        self.kept = kept        # tokens after them that are dropped last
        self.until = until      # ns of time.monotonic_ns()
        self.reason = reason    # why `held` is less than was found, or None

    def renew(self, seconds):
        """Another deadline, from now on."""
        until = time.monotonic_ns() + int(seconds * 1e9)
        self.advise("keep_until", until)
        self.until = until

    def prefetch(self):
        """Bring the content to the device; returns the tokens that move."""
        return self.advise("willneed")

    def demote(self):
        """Take the content from the device; returns the tokens that move."""
        return self.advise("pageout")

    def close(self):
        """End the lease: the content is ordinary cache again."""
        self._close()
