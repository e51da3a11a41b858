# SPDX-License-Identifier: Apache-2.0
"""The half of the connector that lives in a worker of vLLM: copies.

A load and a save are jobs of a thread, beside the step.  The blocks of a load are not used, and
those of a save not changed, until this half says that the job is done or given up.
"""
import errno
import time
from collections import Counter

from . import _vllm_names as names
from ._aside import FIRST, FULL, LAST, Late, failed_job
from ._vllm_scheduler import Done

BATCH = 64              # objects that are held at once
MEMORY_SECONDS = 1.0    # a save waits so long for memory, if no load waits
SLICE_SECONDS = 0.1     # and so long if one does
GRACE_SECONDS = 0.5     # a job that ends in time by its own clock is not given up


class Transfer:
    """A load or a save that runs."""

    def __init__(self, number, pieces):
        self.number = number        # of a save; of a load the request
        self.pieces = pieces        # (group, block, hash)
        self.job = None
        self.copied = 0             # blocks
        self.known = 0              # blocks that were saved before
        self.bytes = 0
        self.failed = set()         # blocks of vLLM
        self.lost = False           # all of them, whichever they are

    @property
    def blocks(self):
        return {block for _, block, _ in self.pieces}

    @property
    def dropped(self):
        """Blocks that were not saved."""
        return len(self.pieces) - self.copied - self.known


class Worker:
    """store: an Aside, or None: all transfers fail; groups: of layers; rank: of this worker"""

    def __init__(self, store, settings, groups, rank, object_bytes):
        self._store = store
        self._set = settings
        self._groups = groups
        self._rank = rank
        self._bytes = object_bytes
        self._places = None         # for each group: (address, stride, bytes) of each layer
        self._loads, self._saves = [], []
        self._bad_blocks = set()
        self.off = False
        self.done = Done()
        self.counts = Counter()

    # ---- where vLLM's blocks are ----

    def register(self, kv_caches, nr_blocks):
        """Find the places of layers.  Return: why that is not possible, or None."""
        places = []
        for group in self._groups:
            of_group = {}
            for name in group.layers:
                place = self._place(name, kv_caches[name], nr_blocks)
                if isinstance(place, str):
                    return place
                of_group[place[0]] = place
            total = sum(size for _, _, size in of_group.values())
            if total > self._bytes:
                return f"a block has {total} bytes, and an object {self._bytes}"
            places.append(list(of_group.values()))
        self._places = places
        return None

    @staticmethod
    def _place(name, t, nr_blocks):
        """(address, stride, bytes) of the blocks of a layer; or why there is none."""
        if t.device.type != "cpu":
            return f"the KV cache is on {t.device.type}: only vLLM on a CPU is served"
        size, item = t.element_size(), t.element_size()
        for n in t.shape[1:]:
            size *= n
        span = item + sum((n - 1) * s * item for n, s in zip(t.shape[1:], t.stride()[1:]))
        ratio, stride = t.shape[0] // nr_blocks, t.stride()[0] * item
        if not ratio or t.shape[0] % nr_blocks or span != size or (ratio > 1 and stride != size):
            return (f"a block of {name} is not one piece of memory: set "
                    "VLLM_KV_CACHE_LAYOUT to LBHNC or LBNHC")
        return t.data_ptr(), stride * ratio, size * ratio

    def _copies(self, group, block, address, load):
        """Copies between an object at @address and a block of vLLM."""
        copies = []
        for at, stride, size in self._places[group]:
            place = at + block * stride
            copies.append((place, address, size) if load else (address, place, size))
            address += size
        return copies

    def _copy(self, transfer, places, load):
        """places: (group, block, address of its object)"""
        copies = [c for place in places for c in self._copies(*place, load)]
        transfer.job.copy(copies)
        transfer.copied += len(places)
        transfer.bytes += sum(size for _, _, size in copies)

    # ---- orders ----

    def begin_loads(self, meta):
        for request, pieces in meta.loads:
            transfer = Transfer(request, pieces or [])
            transfer.lost = pieces is None
            self._begin(self._loads, transfer, meta.epoch, self._load, FIRST)

    def begin_save(self, meta):
        if meta.save:
            self._begin(self._saves, Transfer(*meta.save), meta.epoch, self._save, LAST)

    def _begin(self, running, transfer, epoch, work, order):
        def in_thread(store, job):
            transfer.job = job
            return work(store, transfer, job, self._by_key(transfer, epoch))

        transfer.job = self._store.submit(in_thread, order) if self._store else failed_job()
        running.append(transfer)

    # ---- in the thread ----

    def _by_key(self, transfer, epoch):
        """{key: its (group, block)s}; empty without a place to copy from or to"""
        by_key = {}
        for group, block, h in transfer.pieces if self._places is not None else ():
            key = names.key_of(h, self._rank, group, epoch)
            by_key.setdefault(key, []).append((group, block))
        return by_key

    def _load(self, store, transfer, job, by_key):
        keys, end = list(by_key), job.since + self._set["load_seconds"]
        for first in range(0, len(keys), BATCH):
            with store.get(keys[first:first + BATCH], max(end - time.monotonic(), 0)) as items:
                self._copy(transfer, [(*place, item.address) for item in items if item.held
                                      for place in by_key[item.key]], True)
                transfer.failed |= {block for item in items if not item.held
                                    for _, block in by_key[item.key]}
        return bool(by_key)

    def _save(self, store, transfer, job, by_key):
        keys, end = list(by_key), time.monotonic() + MEMORY_SECONDS
        while keys:
            if job.late:
                raise Late
            some, keys = keys[:BATCH], keys[BATCH:]
            with store.create(some, SLICE_SECONDS) as items:
                transfer.known += sum(item.status == errno.EEXIST for item in items)
                self._save_held(transfer, [item for item in items if item.held], by_key)
                full = [item.key for item in items if item.status == errno.EAGAIN]
                if full and time.monotonic() < end and not self._store.urgent:
                    keys = full + keys
                if not keys:
                    job.finish(True)    # vLLM may have the blocks; the commit goes on
            if full and keys[:1] != full[:1]:
                self._store.tell(FULL)
        return True

    def _save_held(self, transfer, items, by_key):
        try:
            self._copy(transfer, [(*by_key[item.key][0], item.address) for item in items], False)
        except Late:            # vLLM may have written over the blocks
            for item in items:
                item.drop()

    # ---- what is done ----

    def poll(self):
        """(requests whose load is over, those of them that vLLM has to compute from the begin)

        With one group, vLLM learns which blocks failed instead: take_bad_blocks().
        """
        over = [t for t in self._loads
                if t.job.over(self._set["load_seconds"] + GRACE_SECONDS)]
        self._loads = [t for t in self._loads if t not in over]
        for t in over:
            self._end_load(t)
        self._end_saves()
        failed = [t for t in over if t.failed or t.lost]
        self.done.failed |= {t.number for t in failed}
        return {t.number for t in over}, {t.number for t in failed
                                          if t.lost or len(self._groups) > 1}

    def _end_load(self, t):
        if not t.job.result or t.job.late:
            t.failed = t.blocks     # the thread may be at it, but copies no more
            self.done.trouble = True
        self._bad_blocks |= t.failed
        self.counts += Counter({"loaded_blocks": t.copied, "loaded_bytes": t.bytes,
                                "load_seconds": time.monotonic() - t.job.since,
                                "failed_loads": bool(t.failed or t.lost)})

    def _end_saves(self):
        running = []
        for t in self._saves:
            if not t.job.over(self._set["save_seconds"]):
                running.append(t)
                continue
            self.done.saves[t.number] += 1
            self.done.late |= t.job.late
            self.counts += Counter({"saved_blocks": t.copied, "saved_bytes": t.bytes,
                                    "save_seconds": time.monotonic() - t.job.since,
                                    "dropped_blocks": t.dropped})
        self._saves = running

    def take_bad_blocks(self):
        bad, self._bad_blocks = self._bad_blocks, set()
        return bad

    def take_done(self):
        """What has ended since the last call; None: nothing."""
        done, self.done = self.done, Done()
        done.off = self.off
        return done if done.saves or done.failed or done.off else None
