# SPDX-License-Identifier: Apache-2.0
"""A step: blocks for new tokens, the caller's writes, and the news to the daemon.

Steps of an attachment end in the order in which they began.  A thread that is earlier waits
for the others, so a thread may have one step only.
"""
import threading
import time

from .errors import Again, Closed, Error, Stale, of_status

STEP_ROOM_SECONDS = 30


class Grant:
    """A sequence's part of a step: its tokens from start to before end may be written."""

    def __init__(self, seq, ids):
        self.seq = seq
        self.ids = ids
        self.start = self.end = 0
        self.done = len(ids)    # of the ids, how many become valid; the body may lower it
        self.error = None       # why it was refused; then it has no memory
        self.copies = []        # (group, from, to, tokens): blocks copied before the body

    def __repr__(self):
        return f"Grant({self.start}..{self.end}, error={self.error!r})"


class Step:
    """Made by Client.step().  Inside of `with`, step[sequence] is its Grant."""

    def __init__(self, client, entries, strict, timeout):
        from .client import as_ids

        self.client = client
        self.strict = strict
        self.timeout = timeout
        self.number = None
        self.grants = {seq: Grant(seq, as_ids(ids)) for seq, ids in entries.items()}
        self._at = client._at
        for seq, grant in self.grants.items():
            if seq.client is not client:
                raise ValueError("a sequence of another Client")
            if not grant.ids:
                raise ValueError("a step writes at least one token of each sequence")

    def __getitem__(self, seq):
        return self.grants[seq]

    def __iter__(self):
        return iter(self.grants.values())

    @property
    def granted(self):
        return [g for g in self if g.error is None]

    # ---- begin ----

    def __enter__(self):
        if self.number is not None:
            raise Closed("a step is used once")
        end = time.monotonic() + self.timeout
        while True:
            bad = self._try()
            if not bad or not self.strict:
                return self
            self._leave(False)
            # Memory comes when this process has mapped it, or when others give it back.
            if not all(isinstance(e, Again) for e in bad) or time.monotonic() >= end:
                raise bad[0]
            self._at.wait(0.05)

    def _try(self):
        """Begin once.  Return: the errors of those that were refused."""
        me = threading.get_ident()
        self._at.check()
        if me in self._at.steps.values():
            raise Error("a thread has one step at a time: end the other one first")
        if not self.client._step_room.acquire(timeout=STEP_ROOM_SECONDS):
            raise Again(f"all steps of the Client were open for {STEP_ROOM_SECONDS} s")
        try:
            with self._at.turn:
                self._begin()
        except BaseException:
            self.client._step_room.release()
            raise
        return [g.error for g in self if g.error]

    def _begin(self):
        at, ffi = self._at, self._at.ffi
        groups = len(self.client._group_tokens)
        args = ffi.new("struct kvmm_begin_arg[]", len(self.grants))
        res = ffi.new("struct kvmm_begin_res[]", len(self.grants) * groups)
        for arg, grant in zip(args, self):
            grant.seq._check()
            st = grant.seq._status()
            grant.start = max([st.valid_len, *grant.seq._ends])
            grant.end = grant.start + len(grant.ids)
            arg.seq, arg.seq_epoch = grant.seq.handle, st.epoch
            arg.start, arg.max_tokens = grant.start, len(grant.ids)
        self._salvaged = self._count_salvages()
        self.client._step_number += 1
        self.number = self.client._step_number
        at.must("STEP_BEGIN", at.locked("kvmm_step_begin", self.number, args, len(args), res))
        at.steps[self.number] = threading.get_ident()
        for i, grant in enumerate(self):
            self._take(grant, res[i * groups:(i + 1) * groups])

    def _take(self, grant, results):
        grant.error = None
        if results[0].status:
            grant.error = of_status("STEP_BEGIN", results[0].status)
            return
        grant.seq._ends.append(grant.end)
        grant.copies = [(g, r.copy_from, r.copy_to, r.copy_tokens)
                        for g, r in enumerate(results) if r.copy_tokens]
        if not self._at.in_host_memory:
            return      # the caller copies, on the GPU
        at = self._at
        for _, old, new, _ in grant.copies:
            at.ffi.memmove(grant.seq._address(new), grant.seq._address(old), at.info.block_bytes)

    def _count_salvages(self):
        out = self._at.ffi.new("u32 *")
        self._at.lib.kvmm_resumed(self._at.k, out)
        return out[0]

    # ---- end ----

    def __exit__(self, kind, *_):
        bad = [g.done for g in self.granted
               if not (isinstance(g.done, int) and 0 <= g.done <= len(g.ids))]
        self._leave(kind is None and not bad, quiet=kind is not None)
        if bad and kind is None:
            raise ValueError(f"done is {bad[0]!r}, not the number of ids that become valid")

    def _leave(self, progress, quiet=False):
        try:
            while not self._end_in_order(self.granted if progress else []):
                with self._at.step_ended:
                    self._at.step_ended.wait(0.02)
        except Error:
            if not quiet:       # else the exception of the body is the one that counts
                raise
        finally:
            for grant in self.granted:
                if grant.end in grant.seq._ends:
                    grant.seq._ends.remove(grant.end)
            self.client._step_room.release()
            with self._at.step_ended:
                self._at.step_ended.notify_all()

    def _end_in_order(self, grants):
        """End the step, if it is the oldest one."""
        with self._at.turn:
            self._at.check()
            if min(self._at.steps) != self.number:
                return False
            self._end(grants)
            return True

    def _end(self, grants):
        at = self._at
        grants = [g for g in grants if g.done]
        del at.steps[self.number]
        at.must("confirm", at.locked("kvmm_confirm"))
        if self._count_salvages() != self._salvaged:
            raise Stale("the daemon died in this step, and its work is void: wait_ready(), "
                        "then compute the step again")
        ids = [i for g in grants for i in g.ids[:g.done]]
        args = at.ffi.new("struct kvmm_end_arg[]", max(len(grants), 1))
        for arg, g in zip(args, grants):
            arg.seq, arg.valid_len, arg.nr_ids = g.seq.handle, g.start + g.done, g.done
        res = at.ffi.new("struct kvmm_end_res[]", max(len(grants), 1))
        at.must("STEP_END", at.locked("kvmm_step_end", self.number, 0, 0, args, len(grants),
                                      at.ffi.new("u32[]", ids or [0]), res))
        self._settle(grants, res)

    def _settle(self, grants, results):
        bad = None
        for g, r in zip(grants, results):
            if r.status:
                bad = bad or of_status("STEP_END", r.status)
            else:
                g.seq.ids[g.start:g.start + g.done] = g.ids[:g.done]
        if bad:
            raise bad
