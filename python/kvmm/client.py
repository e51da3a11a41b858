# SPDX-License-Identifier: Apache-2.0
"""A client of the daemon: sequences, steps, lookups and leases."""
import array
import threading
import time
import weakref
from dataclasses import dataclass, field

from . import _lib
from ._base import TIERS, Attached, label_of
from .errors import Again, Error, of_status
from .sequence import Lease, Sequence
from .step import Step

GROUP_FIELDS = ("layers", "kv_heads", "k_bytes", "v_bytes", "scale_bytes", "window",
                "block_tokens", "kind")


@dataclass(frozen=True)
class Found:
    """How much of a prompt is cached."""
    found: int          # tokens of the longest cached prefix, whole blocks
    ready: int          # of these, tokens that a match finds at once
    tokens: dict        # of these, tokens in each tier
    salt: int = 0
    cookie: tuple = field(default=(0, 0), repr=False)


def as_ids(ids):
    """Token ids as an array of u32, and its place for cffi."""
    if isinstance(ids, (str, bytes, bytearray)):
        raise ValueError("token ids are numbers, not a text")
    try:
        return array.array("I", ids)
    except (OverflowError, TypeError) as e:
        raise ValueError(f"token ids are numbers from 0 to 4294967295: {e}") from None


class Client(Attached):
    """One attachment to the daemon.  Threads may share it.

    model:        text, bytes, or a dict of them: all that decides the bits of the KV
    identity:     instead of it, the digest itself (32 bytes)
    layers, kv_heads, k_bytes, v_bytes, scale_bytes: the shape of the KV of a token; or
    groups:       a list of dicts with these, window, block_tokens and kind
    socket:       the daemon's socket or its folder; None: $KVMM_SOCKET, else the usual place
    max_bytes, min_bytes, low_bytes, high_bytes, swap_max_bytes, weight: limits of the domain
    pool:         number of the device pool; None: the daemon chooses
    timeout:      seconds to wait for the answer to the attach
    """

    def __init__(self, domain, *, model="", identity=None, block_tokens=16, layers=None,
                 kv_heads=None, k_bytes=None, v_bytes=None, scale_bytes=0, groups=None,
                 socket=None, max_bytes=None, weight=0, max_seqs=0, max_steps=4, step_tokens=0,
                 pool=None, timeout=30.0, **limits):
        most = _lib.load()[2]["KVMM_MAX_GROUPS"]
        self._check_limits(limits)
        shape = {"layers": layers, "kv_heads": kv_heads, "k_bytes": k_bytes, "v_bytes": v_bytes,
                 "scale_bytes": scale_bytes}
        if groups is None:
            missing = [name for name, value in shape.items() if value is None]
            if missing:
                raise TypeError(f"Client needs {', '.join(missing)}, or groups")
            groups = [shape]
        if not 1 <= len(groups) <= most:
            raise ValueError(f"groups: 1 to {most} are allowed")
        self._attach(domain, model=model, identity=identity, socket=socket, max_bytes=max_bytes,
                     pool=pool, timeout=timeout, groups=[self._group(g) for g in groups],
                     block_tokens=block_tokens, weight=weight, max_seqs=max_seqs,
                     max_steps=max_steps, step_tokens=step_tokens, **limits)
        self._step_number = 0
        self._step_room = threading.BoundedSemaphore(self._at.info.max_steps)
        self._sequences = weakref.WeakSet()
        self.block_tokens = block_tokens
        self._group_tokens = [g.get("block_tokens") or block_tokens for g in groups]
        self._kinds = [g.get("kind", 0) for g in groups]

    @staticmethod
    def _group(group):
        wrong = [name for name in group if name not in GROUP_FIELDS]
        if wrong:
            raise ValueError(f"groups: no field is called {wrong[0]}")
        return group

    def close(self):
        """Close all sequences and detach.  Views of blocks are released."""
        with self._at.turn:
            sequences = list(self._sequences)
        for seq in sequences:
            seq._release_views()
        self._at.close()

    # ---- sequences and steps ----

    def open(self, ids, max_tokens, *, priority=100, salt=0, no_match=False, no_index=False,
             whole_blocks=False, lease=None, timeout=10.0):
        """A sequence for the prompt @ids, to which up to @max_tokens may be added.

        It waits for memory: see Sequence.wait_ready().  lease: a Lease of this domain, or
        its number.  timeout: seconds to wait for room for the ids.
        """
        ids = as_ids(ids)
        if not ids:
            raise ValueError("the prompt has no token")
        c = self._at.constants
        flags = (no_match and c["KVMM_OPEN_NO_MATCH"]) | (no_index and c["KVMM_OPEN_NO_INDEX"]) \
            | (whole_blocks and c["KVMM_OPEN_WHOLE_BLOCKS"])
        arg = self._at.ffi.new("struct kvmm_open_arg *", {
            "prompt_len": len(ids), "max_tokens": max_tokens, "flags": flags,
            "priority": priority, "salt": salt,
            "lease": getattr(lease, "number", lease) or 0})
        res = self._at.ffi.new("struct kvmm_open_res *")
        seq = self._opened(arg, res, ids)
        if not lease:
            self._match(seq, timeout)
        return seq

    def _opened(self, arg, res, ids):
        at = self._at
        at.check()
        with at.turn:
            at.check()
            at.must("SEQ_OPEN", at.locked("kvmm_seq_open", arg, 1, res))
            at.must("SEQ_OPEN", res.status)
            return Sequence(self, res.seq, ids)

    def _match(self, seq, timeout):
        end = time.monotonic() + timeout
        while True:
            try:
                return seq.match()
            except Again:
                if time.monotonic() >= end:
                    seq.close()
                    raise
            except Error:
                seq.close()
                raise
            self._at.wait(0.05)

    def step(self, entries, *, strict=True, timeout=10.0):
        """A step that writes tokens: {sequence: ids of the tokens}.  Use it with `with`.

        strict:  all sequences or none: the first refusal is raised, a lack of memory after
                 @timeout seconds.  Else see Grant.error
        """
        return Step(self, entries, strict, timeout)

    def remap(self, pairs):
        """Sequences of a family become others of it, {child: other}: a step of beam search."""
        at = self._at
        for seq in [*pairs, *pairs.values()]:
            seq._check()
        args = at.ffi.new("struct kvmm_remap_arg[]", [(c.handle, o.handle)
                                                      for c, o in pairs.items()])
        res = at.ffi.new("struct kvmm_seq_res[]", len(pairs))
        at.must("SEQ_REMAP", at.call("kvmm_seq_remap", args, len(pairs), res))
        ids = [other.ids[:] for other in pairs.values()]
        bad = None
        for child, its, r in zip(pairs, ids, res):
            if r.status:
                bad = bad or of_status("SEQ_REMAP", r.status)
            else:
                child.ids = its
                child._release_views()
        if bad:
            raise bad

    # ---- the cache ----

    def lookup(self, ids, *, salt=0):
        """How much of the prompt is cached?  Opens no sequence."""
        at, ids = self._at, as_ids(ids)
        out = at.ffi.new("struct kvmm_found *")
        place = at.ffi.from_buffer("u32[]", ids)
        at.must("SEQ_LOOKUP", at.call("kvmm_lookup", salt, place, len(ids), out))
        return Found(out.found, out.ready, dict(zip(TIERS, out.tokens)), salt,
                     (out.cookie[0], out.cookie[1]))

    def lease(self, found, seconds, label=None):
        """Keep what lookup() found, for @seconds.  label: for kvctl leases, 16 characters."""
        at = self._at
        text = label_of(at, label)
        arg = at.ffi.new("struct kvmm_found *", {
            "found": found.found, "ready": found.ready, "cookie": list(found.cookie)})
        res = at.ffi.new("struct kvmm_lease_res *")
        at.check()
        with at.turn:
            at.check()
            at.must("SEQ_LEASE", at.locked("kvmm_lease", found.salt, arg, int(seconds * 1000),
                                           text, res))
            why = of_status("SEQ_LEASE", res.reason) if res.reason else None
            return Lease(self, res.seq, res.number, res.held, res.kept, res.until, why)
