# SPDX-License-Identifier: Apache-2.0
"""The half of the connector that lives in vLLM's scheduler: what is there, and what to copy.

The scheduler's loop does not wait.  A lookup that is not answered at once is asked for again in
the next step.  Loads run while other requests compute.  A block that is saved has a reference
until the workers have copied it, so vLLM gives it to no other request.
"""
import os
import time
from collections import Counter
from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorMetadata, KVConnectorWorkerMetadata)

from . import _vllm_names as names

LOOP_SECONDS = 0.001        # a step waits so long for lookups, all together
FRESH_SECONDS = 0.5         # an answer serves later steps, too, while vLLM has no blocks to spare
BATCH = 64                  # blocks of a group that are looked up at once
NULL = 0                    # the block that vLLM has in the place of one no token sees


@dataclass
class Transfers(KVConnectorMetadata):
    """What the scheduler orders for a step.  A piece is (group, block of vLLM, hash)."""
    epoch: bytes = b""
    loads: list = field(default_factory=list)   # (request, its pieces)
    save: tuple = ()                            # (number, pieces), if there is something to save


@dataclass
class Done(KVConnectorWorkerMetadata):
    """What a step has ended in the workers."""
    saves: Counter = field(default_factory=Counter)     # number: by so many workers
    failed: set = field(default_factory=set)            # requests whose load failed
    trouble: bool = False                               # a load failed as a whole
    late: bool = False                                  # a save was given up
    off: bool = False                                   # a worker has no use of kvmm

    def aggregate(self, other):
        return Done(self.saves + other.saves, self.failed | other.failed,
                    self.trouble or other.trouble, self.late or other.late, self.off or other.off)


@dataclass
class Found:
    """What a lookup has found of a request: for each group the tiers of its first blocks."""
    own: int        # the blocks that vLLM has itself
    tiers: list
    until: float = 0.0      # the end of its use

    def longest(self, groups, block_tokens):
        """So many blocks may be used: each that a token behind them sees is there."""
        most = min(len(t) for t in self.tiers)
        runs = [self._runs(t) for t in self.tiers]
        for end in range(most, self.own, -1):
            if all(run[end - 1] >= end - max(self.own, g.first_seen(end, block_tokens))
                   for g, run in zip(groups, runs)):
                return end
        return self.own

    @staticmethod
    def _runs(tiers):
        """For each block: the number of blocks up to it that are there one after another."""
        runs, run = [], 0
        for tier in tiers:
            run = run + 1 if tier else 0
            runs.append(run)
        return runs

    def by_tier(self, end):
        """{tier: blocks up to @end that vLLM has not}; the tier is that of the slowest group."""
        return Counter(slowest(of_all) for of_all in zip(*(t[self.own:end] for t in self.tiers)))

    def missing(self):
        """(group, index) of blocks that vLLM has and kvmm has not."""
        return [(g, i) for g, t in enumerate(self.tiers) for i in range(self.own)
                if i >= len(t) or not t[i]]


def slowest(tiers):
    """The slowest one; blocks of a group that no token sees may be missing."""
    there = [t for t in tiers if t]
    return "area" if "area" in there else there[0] if there else None


@dataclass
class Tracked:
    """A request that runs."""
    request: object
    saved: int = 0      # its first blocks, up to this number, need no save
    missing: list = field(default_factory=list)     # but these of them, (group, index)
    by_tier: dict = field(default_factory=dict)     # blocks that its last load takes


class Scheduler:
    """settings: of the connector; groups: of layers; ranks: workers that have a part each"""

    def __init__(self, store, settings, groups, block_tokens, ranks, nr_blocks):
        self._store = store
        self._set = settings
        self._groups = groups
        self._block_tokens = block_tokens
        self._ranks = ranks
        self._epoch = b""
        self._pool = None           # vLLM's blocks
        self._asked = {}            # request: the job of its lookup
        self._found = {}            # request: Found, until vLLM has blocks for the request
        self._tracked = {}
        self._failed = set()        # requests whose load failed once
        self._loads = []            # for the next step
        self._saving = {}           # number of a save: [workers that are not done, blocks]
        self._nr_saving = 0         # blocks
        self._most_saving = max(BATCH, nr_blocks // 4)
        self._next = 0
        self._loop_end = 0.0        # no waits of this step after it
        self._quiet_until = 0.0     # no lookups before
        self._save_at = 0.0         # no saves before
        self.off = False            # a worker cannot copy
        self.counts = Counter()

    def bind(self, pool):
        self._pool = pool

    # ---- lookups ----

    def matched(self, request, computed):
        """(tokens behind the @computed that kvmm has, are they loaded beside the step?)

        None tokens: not known yet.
        """
        key = request.request_id
        job = self._asked.get(key)
        if job is None:
            found = self._found.pop(key, None)
            if not self._may_look(request):
                return 0, False
            if found and time.monotonic() < found.until:
                return self._answer(request, computed, found)
            job = self._asked[key] = self._look(request, computed // self._block_tokens)
            self._wait(job)
        if not job.over(self._set["lookup_seconds"]):
            return None, False
        del self._asked[key]
        if job.late:
            self.counts["late_lookups"] += 1
            self._be_quiet()
        return self._answer(request, computed, job.result)

    def _may_look(self, request):
        return not (self.off or request.skip_reading_prefix_cache
                    or request.request_id in self._failed or time.monotonic() < self._quiet_until
                    or self._store.away)

    def _retry_at(self):
        return time.monotonic() + self._set["retry_seconds"]

    def _be_quiet(self):
        """What is found now could fail again, and a failure costs time."""
        self._quiet_until = self._retry_at()

    def _wait(self, job):
        """Many lookups end at once, so a step waits a little."""
        now = time.monotonic()
        if not self._loop_end:
            self._loop_end = now + LOOP_SECONDS
        job.done.wait(max(self._loop_end - now, 0))

    def _look(self, request, own):
        # At least one token is computed, for the next one.
        nr = (request.num_tokens - 1) // self._block_tokens
        hashes = [bytes(h) for h in request.block_hashes[:nr]]
        self.counts["lookups"] += 1
        return self._store.submit(
            lambda store, job: Found(own, self._tiers(store, hashes, own),
                                     time.monotonic() + FRESH_SECONDS))

    def _tiers(self, store, hashes, own):
        """In the thread: for each group the tiers of its blocks, to the first one of use that is
        missing in a group whose tokens see all."""
        tiers, most = {}, len(hashes)
        for g in sorted(range(len(self._groups)), key=lambda g: self._is_short(self._groups[g])):
            stop = None if self._is_short(self._groups[g]) else own
            tiers[g] = self._tiers_of_group(store, hashes[:most], g, stop)
            most = min(most, len(tiers[g]))
        return [tiers[g] for g in range(len(self._groups))]

    @staticmethod
    def _is_short(group):
        return bool(group.window or group.chunk)

    def _tiers_of_group(self, store, hashes, group, stop):
        """stop: the end is the first block from here on that is missing; None: the last one"""
        tiers = []
        for first in range(0, len(hashes), BATCH):
            keys = [names.key_of(h, rank, group, self._epoch)
                    for h in hashes[first:first + BATCH] for rank in range(self._ranks)]
            got = store.exists(keys)
            tiers += [self._of_ranks(got[i:i + self._ranks])
                      for i in range(0, len(got), self._ranks)]
            for i in range(max(first, stop), len(tiers)) if stop is not None else ():
                if not tiers[i]:
                    return tiers[:i]
        return tiers

    @staticmethod
    def _of_ranks(tiers):
        """A block is there if each rank has its part."""
        return None if None in tiers else slowest(tiers)

    def _answer(self, request, computed, found):
        if found is None:
            return 0, False
        found.own = computed // self._block_tokens
        end = found.longest(self._groups, self._block_tokens)
        self._found[request.request_id] = found
        return (end - found.own) * self._block_tokens, end > found.own

    def by_tier(self, request):
        """{tier: tokens} of the last load of a request."""
        t = self._tracked.get(request.request_id)
        return {k: v * self._block_tokens for k, v in t.by_tier.items()} if t else {}

    # ---- loads and saves ----

    def allocated(self, request, blocks, tokens):
        """vLLM has blocks for @tokens that kvmm has."""
        key = request.request_id
        found = self._found.pop(key, None)
        if found is None:
            # After a load, or without a lookup.
            self._tracked.setdefault(key, Tracked(request))
            return
        end = found.own + tokens // self._block_tokens
        if tokens:
            pieces = self._pieces(request, blocks.get_block_ids(), found.own, end)
            self._loads.append((key, pieces))
        self._tracked[key] = Tracked(request, end, found.missing(), found.by_tier(end))

    def lose(self, request, tokens):
        """A fault prevented the load of @tokens: vLLM waits for it, so it has to fail."""
        if tokens:
            self._loads.append((request.request_id, None))
            self._tracked.setdefault(request.request_id, Tracked(request))

    @staticmethod
    def _pieces(request, ids, first, end):
        return [(g, of_group[i], bytes(request.block_hashes[i])) for g, of_group in enumerate(ids)
                for i in range(first, min(end, len(of_group))) if of_group[i] != NULL]

    def loads(self):
        """The Transfers of a step, without its save."""
        self._loop_end = 0.0
        meta = Transfers(self._epoch, self._loads)
        self._loads = []
        return meta

    def add_save(self, meta, output):
        """Add blocks that are full after this step, and not saved yet."""
        saves = {}
        if self.off or time.monotonic() < self._save_at:
            return
        for key, computed in self._computed(output):
            ids = output.kv_connector_block_state.get_block_ids(key)
            if key in self._tracked and ids and self._nr_saving < self._most_saving:
                new = output.num_scheduled_tokens.get(key, 0)
                self._add_saves(saves, self._tracked[key], ids, computed, new)
        if saves:
            meta.save = self._begin_save(saves)

    @staticmethod
    def _computed(output):
        """(request, its tokens that were computed before this step)"""
        for new in output.scheduled_new_reqs:
            yield new.req_id, new.num_computed_tokens
        old = output.scheduled_cached_reqs
        yield from zip(old.req_ids, old.num_computed_tokens)

    def _add_saves(self, saves, t, ids, computed, new):
        """Blocks that are full after this step."""
        # After a failed load, vLLM goes back.
        start = min(t.saved, computed // self._block_tokens)
        hashes = t.request.block_hashes
        full = min((computed + new) // self._block_tokens, len(hashes))
        wanted = t.missing + [(g, i) for i in range(start, full) for g in range(len(ids))]
        for g, i in wanted:
            if i < min(full, len(ids[g])) and ids[g][i] != NULL:
                saves.setdefault((g, bytes(hashes[i])), ids[g][i])
        t.missing, t.saved = [], max(start, full)

    def _begin_save(self, saves):
        blocks = [self._pool.blocks[i] for i in saves.values()] if self._pool else []
        if blocks:
            self._pool.touch(blocks)
        self._next += 1
        self._saving[self._next] = [self._ranks, blocks]
        self._nr_saving += len(blocks)
        return self._next, [(g, block, h) for (g, h), block in saves.items()]

    # ---- what the workers say ----

    def done(self, done):
        """vLLM's references to blocks of saves end, also when a worker is off."""
        self.off |= done.off
        if done.late:       # the next one would keep blocks as long
            self._save_at = self._retry_at()
        self._failed |= done.failed & self._tracked.keys()
        if done.trouble:
            self._be_quiet()
        for number, workers in done.saves.items():
            saving = self._saving.get(number)
            if saving is None:
                continue
            saving[0] -= workers
            if saving[0] <= 0:
                self._end_save(number)

    def _end_save(self, number):
        _, blocks = self._saving.pop(number)
        self._nr_saving -= len(blocks)
        if blocks:
            self._pool.free_blocks(reversed(blocks))

    @property
    def saving(self):
        return bool(self._saving)

    @property
    def frees_soon(self):
        """Are there blocks that vLLM gets back when a save ends?"""
        return any(b.ref_cnt == 1 for _, blocks in self._saving.values() for b in blocks)

    def finished(self, request):
        key = request.request_id
        job = self._asked.pop(key, None)
        if job is not None:
            job.give_up()
        self._tracked.pop(key, None)
        self._found.pop(key, None)
        self._failed.discard(key)

    def reset(self):
        """Nothing that was saved before is found from now on."""
        self._epoch = os.urandom(16)
        for job in self._asked.values():
            job.give_up()
        self._asked.clear()
        self._found.clear()
        # Requests that run on rest on what was there before, so they save nothing more.
        self._tracked.clear()
