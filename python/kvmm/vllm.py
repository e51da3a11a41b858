# SPDX-License-Identifier: Apache-2.0
"""A connector of vLLM: blocks of its KV cache are kept in kvmm, and found by other vLLMs.

	vllm serve MODEL --kv-transfer-config '{"kv_connector": "KvmmConnector",
		"kv_connector_module_path": "kvmm.vllm", "kv_role": "kv_both",
		"kv_load_failure_policy": "recompute"}'

vLLM makes one connector in its scheduler, which looks blocks up, and one in each worker, which
copies them.  Trouble with the daemon is a line in the log, and vLLM computes what it cannot
load.  See Documentation/engines.md.
"""
import errno
import functools
import logging
import time
from dataclasses import dataclass, field

import vllm as _vllm
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1, KVConnectorMetadata, KVConnectorRole)

from . import _vllm_names as names
from ._aside import Aside
from .errors import Refused
from .objects import Objects

log = logging.getLogger("vllm.kvmm")

# kv_connector_extra_config may have these.
SETTINGS = {
    "domain": None,             # the name of the domain
    "socket": None,             # of the daemon, or its folder
    "max_bytes": None,          # limits of the domain
    "swap_max_bytes": None,
    "attach_seconds": 3.0,      # the longest wait for the daemon when vLLM starts
    "retry_seconds": 5.0,       # between two looks for a daemon
    "lookup_seconds": 0.005,    # the longest wait of the scheduler for a lookup
    "load_seconds": 2.0,        # and of a step for content
    "save_seconds": 0.1,        # and for memory and copies
}
BATCH = 64      # objects that are held at once


@dataclass
class Transfers(KVConnectorMetadata):
    """What the scheduler orders for a step: (number of the block of vLLM, its hash)."""
    loads: list = field(default_factory=list)
    saves: list = field(default_factory=list)
    failures: int = 0       # steps with failed loads that the scheduler knows of


@dataclass
class Tracked:
    """A request that runs."""
    request: object
    saved: int              # its first blocks, up to this number, need no save
    missing: list           # but these of them, which vLLM had in its own cache


def harmless(result=None):
    """An exception of this method is a line in the log, and its value is result()."""
    def wrap(method):
        @functools.wraps(method)
        def safe(self, *args, **kwargs):
            try:
                return method(self, *args, **kwargs)
            except Exception:
                log.exception("kvmm: a fault in %s; vLLM goes on", method.__name__)
                return result() if result else None
        return safe
    return wrap


class KvmmConnector(KVConnectorBase_V1):
    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)
        self._store = None              # an Aside, if kvmm can serve this vLLM
        self._tracked = {}              # scheduler: requests that run, by id
        self._found = {}                # scheduler: the last lookup of a request
        self._loads = []                # scheduler: for the next step
        self._failures = 0              # steps with failed loads
        self._failed = set()            # worker: blocks that failed in this step
        self._places = None             # worker: (address, stride, bytes) of each layer
        self._worker = role == KVConnectorRole.WORKER
        self._tp = vllm_config.parallel_config.tensor_parallel_size
        self._quiet_until = 0.0         # scheduler: no lookups before
        try:
            self._start(vllm_config, kv_cache_config)
        except Exception:
            log.exception("kvmm: off because of a fault; vLLM goes on without it")

    def _start(self, vllm_config, config):
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config or {}
        unknown = sorted(set(extra) - set(SETTINGS))
        why = f"kv_connector_extra_config has no setting {unknown[0]}" if unknown else \
            names.refusal(vllm_config, config)
        if why:
            self._say(f"off: {why}")
            return
        self._set = {**SETTINGS, **extra}
        self._rank = self._rank_of_worker() if self._worker else 0
        self._block_tokens = config.kv_cache_groups[0].kv_cache_spec.block_size
        self._bytes = names.object_bytes(config)
        self._layers = list(config.kv_cache_groups[0].layer_names)
        self._identity = names.identity_of(vllm_config, config, _vllm.__version__)
        self._domain = self._set["domain"] or names.domain_of(vllm_config, self._identity)
        self._store = Aside(self._attach, self._say, self._set["retry_seconds"])
        self._store.ask(lambda store, job: True, self._set["attach_seconds"])

    def _rank_of_worker(self):
        if self._tp == 1:
            return 0
        from vllm.distributed import get_tensor_model_parallel_rank

        return get_tensor_model_parallel_rank()

    def _attach(self):
        limits = {k: self._set[k] for k in ("max_bytes", "swap_max_bytes")
                  if self._set[k] is not None}
        store = Objects(self._domain, self._bytes, identity=self._identity, steps=2,
                        socket=self._set["socket"], timeout=self._set["attach_seconds"], **limits)
        if store.info.memory != "host":
            store.close()
            raise Refused("the pool of the daemon is on a GPU, and this connector serves host "
                          "memory: start another daemon with --backend host, and set its socket")
        return store

    def _say(self, text):
        who = "worker" if self._worker else "scheduler"
        if text is None:
            log.info("kvmm: the %s uses domain %s, objects of %d bytes", who, self._domain,
                        self._bytes)
        else:
            log.warning("kvmm: the %s: %s", who, text)

    def shutdown(self):
        if self._store is not None:
            self._store.close()

    @property
    def requires_kv_delivery(self):
        return False        # a save that is dropped is a miss later

    # ---- scheduler: what is there ----

    @harmless(lambda: (0, False))
    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        self._found.pop(request.request_id, None)
        if self._store is None or request.skip_reading_prefix_cache or \
                time.monotonic() < self._quiet_until:
            return 0, False
        # At least one token is computed, for the next one.
        nr = min((request.num_tokens - 1) // self._block_tokens, len(request.block_hashes))
        own = num_computed_tokens // self._block_tokens
        there = self._which(request.block_hashes[:nr])
        if there is None:
            return 0, False
        found = 0
        while own + found < nr and there[own + found]:
            found += 1
        missing = [i for i, yes in enumerate(there[:own]) if not yes]
        self._found[request.request_id] = (own, missing)
        return found * self._block_tokens, False

    def _which(self, hashes):
        """For each block: is it there, of all ranks?  None: not known in time."""
        keys = [names.key_of(h, rank) for h in hashes for rank in range(self._tp)]
        if not keys:
            return []
        tiers = self._store.ask(lambda store, job: store.exists(keys),
                                self._set["lookup_seconds"], unless_busy=True)
        if tiers is None:
            return None
        return [None not in tiers[i:i + self._tp] for i in range(0, len(tiers), self._tp)]

    @harmless()
    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        if self._store is None:
            return
        own, missing = self._found.pop(request.request_id, (0, []))
        found = num_external_tokens // self._block_tokens
        if found:
            ids = blocks.get_block_ids()[0]
            self._loads += zip(ids[own:own + found], request.block_hashes[own:own + found])
        self._tracked[request.request_id] = Tracked(request, own + found, missing)

    @harmless(Transfers)
    def build_connector_meta(self, scheduler_output):
        meta = Transfers(loads=self._loads, failures=self._failures)
        self._loads = []
        if self._store is None:
            return meta
        saves = {}
        for req_id, computed in self._computed(scheduler_output):
            ids = scheduler_output.kv_connector_block_state.get_block_ids(req_id)
            if req_id in self._tracked and ids:
                new = scheduler_output.num_scheduled_tokens.get(req_id, 0)
                self._add_saves(saves, self._tracked[req_id], ids[0], computed, new)
        meta.saves = [(block, h) for h, block in saves.items()]
        return meta

    @staticmethod
    def _computed(scheduler_output):
        """(request, its tokens that were computed before this step)"""
        for new in scheduler_output.scheduled_new_reqs:
            yield new.req_id, new.num_computed_tokens
        old = scheduler_output.scheduled_cached_reqs
        yield from zip(old.req_ids, old.num_computed_tokens)

    def _add_saves(self, saves, t, ids, computed, new):
        """Blocks that are full after this step."""
        # After a failed load, vLLM goes back.
        start = min(t.saved, computed // self._block_tokens)
        full = min((computed + new) // self._block_tokens, len(t.request.block_hashes), len(ids))
        for i in [*t.missing, *range(start, full)]:
            if i < full:
                saves.setdefault(bytes(t.request.block_hashes[i]), ids[i])
        t.missing, t.saved = [], max(start, full)

    @harmless()
    def update_connector_output(self, connector_output):
        if connector_output.invalid_block_ids:
            # What is found now could fail again, and a failure costs a step.
            self._failures += 1
            self._quiet_until = time.monotonic() + self._set["retry_seconds"]

    @harmless(lambda: (False, None))
    def request_finished(self, request, block_ids):
        self._tracked.pop(request.request_id, None)
        self._found.pop(request.request_id, None)
        return False, None

    # ---- worker: copies ----

    @harmless()
    def register_kv_caches(self, kv_caches):
        if self._store is None:
            return
        why = self._register(kv_caches)
        if why:
            self._places = None
            self._say(f"off: {why}")

    def _register(self, kv_caches):
        """Find the places of layers.  Return: why that is not possible, or None."""
        places, nr_blocks = {}, self._kv_cache_config.num_blocks
        for name in self._layers:
            t = kv_caches[name]
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
            places[t.data_ptr()] = (stride * ratio, size * ratio)
        total = sum(size for _, size in places.values())
        if total > self._bytes:
            return f"a block has {total} bytes, and an object {self._bytes}"
        self._places = [(at, stride, size) for at, (stride, size) in places.items()]
        return None

    def _pieces(self, block, address, load):
        """Copies between an object at @address and a block of vLLM."""
        pieces = []
        for at, stride, size in self._places:
            place = at + block * stride
            pieces.append((place, address, size) if load else (address, place, size))
            address += size
        return pieces

    def start_load_kv(self, forward_context, **kwargs):
        meta = self._connector_metadata
        if not meta or not meta.loads:
            return
        try:
            failed = self._load(meta.loads)
        except Exception:
            log.exception("kvmm: a fault in a load; vLLM computes it")
            failed = None
        bad = {block for block, _ in meta.loads} if failed is None else failed
        self._failed |= bad
        if self._any_rank(bool(bad)):
            # What this and the next steps compute may rest on garbage: see _may_save().
            self._failures += 1

    def _any_rank(self, failed):
        if self._tp == 1:
            return failed
        import torch
        from vllm.distributed import get_tp_group

        flag = torch.tensor([int(failed)])
        torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX,
                                     group=get_tp_group().cpu_group)
        return bool(flag.item())

    def _load(self, loads):
        """Return: the blocks that failed; None: all."""
        if self._store is None or self._places is None:
            return None
        seconds = self._set["load_seconds"]
        blocks, end = {}, time.monotonic() + seconds
        for block, h in loads:
            blocks.setdefault(names.key_of(h, self._rank), []).append(block)
        return self._store.ask(lambda store, job: self._load_all(store, job, blocks, end), seconds)

    def _load_all(self, store, job, blocks, end):
        keys, failed = list(blocks), set()
        for first in range(0, len(keys), BATCH):
            with store.get(keys[first:first + BATCH], max(end - time.monotonic(), 0)) as items:
                for item in items:
                    for block in blocks[item.key]:
                        if item.held:
                            job.copy(self._pieces(block, item.address, True))
                        else:
                            failed.add(block)
        return failed

    def wait_for_layer_load(self, layer_name):
        return      # all is there when start_load_kv() returns

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        return      # wait_for_save() takes whole blocks

    @harmless()
    def wait_for_save(self):
        meta = self._connector_metadata
        if not meta or not meta.saves or not self._may_save(meta):
            return
        blocks = {names.key_of(h, self._rank): block for block, h in meta.saves}
        seconds = self._set["save_seconds"]
        end = time.monotonic() + seconds
        self._store.ask(lambda store, job: self._save_all(store, job, blocks, end), seconds)

    def _may_save(self, meta):
        """No step after a failed load is saved until the scheduler has answered the failure."""
        return self._store is not None and self._places is not None and \
            meta.failures == self._failures

    def _save_all(self, store, job, blocks, end):
        keys, full = list(blocks), False
        for first in range(0, len(keys), BATCH):
            last = first + BATCH >= len(keys)
            with store.create(keys[first:first + BATCH], max(end - time.monotonic(), 0)) as items:
                for item in items:
                    full |= item.status == errno.EAGAIN
                    self._save_one(job, item, blocks[item.key])
                if last:
                    job.finish(True)    # the commit goes on while vLLM does
        if full:
            self._store.tell("no memory for blocks: give the daemon more (--host-size, "
                             "--pool-size), or this domain")

    def _save_one(self, job, item, block):
        if not item.held:
            return
        try:
            job.copy(self._pieces(block, item.address, False))
        except Exception:       # too late: vLLM may have written over it
            item.drop()

    def get_block_ids_with_load_errors(self):
        failed, self._failed = self._failed, set()
        return failed
