# SPDX-License-Identifier: Apache-2.0
"""A tier of vLLM's offloading: blocks that vLLM keeps in host memory go on to kvmm.

	vllm serve MODEL --kv-transfer-config '{"kv_connector": "OffloadingConnector",
		"kv_role": "kv_both", "kv_connector_extra_config": {
			"spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": 4294967296,
			"secondary_tiers": [{"type": "KvmmTier", "module_path": "kvmm.vllm_tier"}]}}'

vLLM copies blocks between its device and a primary tier in host memory.  This tier copies them
between that memory and objects, in a thread.  All methods run in vLLM's scheduler, and only
drain_jobs() and shutdown() wait for the thread.  See Documentation/engines.md.
"""
import ctypes
import functools
import logging
import queue
import sys
import time

import vllm as _vllm
from vllm.v1.kv_offload.base import Locality, LookupResult, Medium, RequestOffloadingContext
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager

from . import _engine
from . import _vllm_names as names
from ._aside import LATE, Aside
from ._tier_jobs import LOAD, LOOKUP, STORE, Asked, Lookup, Transfer, WorkQueue

log = logging.getLogger("vllm.kvmm")

# A member of secondary_tiers may have these.
SETTINGS = {
    **_engine.SETTINGS,
    "lookup_seconds": 0.5,      # after this a lookup without an answer is a miss
    "load_seconds": 5.0,        # and a load has failed
    "store_seconds": 5.0,       # and a store
    "drain_seconds": 5.0,       # the longest wait for all transfers, when vLLM resets its cache
}
MOST = 4 << 30                  # bytes of an object
harmless = functools.partial(_engine.harmless, log, "vLLM")


def configs_of(spec):
    """(vLLM's config, that of its KV cache), which vLLM gives to the maker of @spec's manager.

    @spec has neither the revision of the model, nor its quantization, nor the hash.
    """
    frame = sys._getframe(1)
    while frame is not None:
        vllm, cache = (frame.f_locals.get(n) for n in ("vllm_config", "kv_cache_config"))
        transfer = getattr(vllm, "kv_transfer_config", None)
        if cache is not None and transfer is not None and \
                transfer.kv_connector_extra_config is spec.config.extra_config:
            return vllm, cache
        frame = frame.f_back
    return None, None


def refusal(settings, row_bytes, vllm):
    """Why kvmm cannot be a tier of this vLLM, and what to do; None: it can."""
    wrong = _engine.wrong_setting(settings, SETTINGS, "a tier")
    if wrong:
        return wrong
    if vllm is None:
        return ("vLLM's config was not found, so the identity of its blocks is not known: this "
                "needs the OffloadingConnector of vLLM 0.32")
    why = names.refused_version(_vllm.__version__) or names.refused_hash(vllm)
    if why:
        return why
    if not 0 < _engine.object_bytes(row_bytes) <= MOST:
        return (f"a block of the primary tier has {row_bytes} bytes, and an object at most {MOST}: "
                "set a smaller blocks_per_chunk")
    return None


def identity_of(vllm, cache, config, row_bytes):
    """All that decides the bytes of a block of the primary tier, but its tokens."""
    p = config.parallel
    fields = names.identity_fields(vllm, cache, _vllm.__version__)
    fields["tier"] = {
        "row": row_bytes, "worker": config.worker_kv_bytes_per_block,
        "chunk": config.cache.blocks_per_chunk, "hash": config.cache.tokens_per_hash,
        "groups": [[g.group_id, g.tokens_per_block, list(g.layer_names)] for g in config.groups],
        "specs": [[type(g.kv_cache_spec).__name__, g.kv_cache_spec.page_size_bytes]
                  for g in cache.kv_cache_groups],
        "workers": [p.world_size, p.tp_size, p.pp_size, p.pcp_size, p.dcp_size],
        "layout": [config.replicated_layout, config.canonical_layout, config.kv_cache_layout],
        "draft": str(vllm.speculative_config),
    }
    return _engine.digest_of(fields, b"kvmm-vllm-tier")


def name_of(key):
    """The key of the object: vLLM's key is a hash, and the number of a group in 4 bytes."""
    return names.key_of(key[:-4], 0, int.from_bytes(key[-4:], "big"))


class KvmmTier(SecondaryTierManager):
    medium = Medium.CPU

    def __init__(self, offloading_spec, primary_kv_view, tier_type, backpressure_detector=None,
                 **settings):
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self.locality = Locality.LOCAL
        self._queue = None          # None: kvmm cannot serve this vLLM
        self._aside = None
        self._asked = {}            # lookups of requests that run, by vLLM's key
        self._keys = {}             # the keys that a request looked up
        self._new = []              # lookups of this step
        self._transfers = {}        # that run, by the number of vLLM's job
        self._results = []          # that vLLM has not seen
        self._done = queue.SimpleQueue()
        try:
            self._start(offloading_spec, primary_kv_view, settings)
        except Exception:
            self._queue = None
            log.exception("kvmm: the tier is off because of a fault; vLLM goes on without it")

    def _start(self, spec, view, settings):
        row = view.strides[0]
        vllm, cache = configs_of(spec)
        why = refusal(settings, row, vllm)
        if why:
            log.warning("kvmm: the tier is off: %s", why)
            return
        self._set = {**SETTINGS, **settings}
        self._row, self._bytes = row, _engine.object_bytes(row)
        # vLLM releases the view in the end, so nothing may refer to it.
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(view))
        self._identity = identity_of(vllm, cache, spec.config, row)
        self._domain = self._set["domain"] or names.domain_of(vllm, self._identity)
        self._queue = WorkQueue()
        self._aside = self._queue.aside = Aside(
            lambda: self._queue.attach(self._attach), self._say, self._set["retry_seconds"], "vLLM")
        self._queue.put(LOOKUP, Lookup([]))     # so that it attaches, and says so

    def _attach(self):
        return _engine.store_of("vLLM", self._domain, self._bytes, identity=self._identity, steps=1,
                                timeout=self._set["attach_seconds"],
                                **{k: self._set[k] for k in ("socket", *_engine.LIMITS)})

    def _say(self, text):
        if text is None:
            log.info("kvmm: the tier uses domain %s, objects of %d bytes", self._domain,
                     self._bytes)
        else:
            log.warning("kvmm: the tier: %s", text)

    # ---- lookups ----

    @harmless(RequestOffloadingContext)
    def on_new_request(self, req_context):
        return RequestOffloadingContext()

    @harmless(lambda: LookupResult.MISS)
    def lookup(self, key, req_context):
        asked = self._asked.get(key) or self._ask(key)
        if asked is None:
            return LookupResult.MISS
        asked.requests.add(req_context.req_id)
        self._keys.setdefault(req_context.req_id, set()).add(key)
        found = asked.look()
        if found is None:
            return LookupResult.RETRY
        return LookupResult.HIT if found else LookupResult.MISS

    def _ask(self, key):
        """A lookup that goes out at the end of the step.  None: the daemon is not there, or late."""
        seconds = self._set["lookup_seconds"] if self._queue else 0
        if self._queue is None or self._aside.away:
            return None
        if self._queue.hangs(seconds):
            self._tell_late()
            return None
        asked = self._asked[key] = Asked(name_of(key), time.monotonic() + seconds)
        self._new.append(asked)
        return asked

    def _tell_late(self):
        if not self._queue.attaches:
            self._aside.tell(LATE)

    @harmless()
    def on_schedule_end(self, context):
        self._send()

    def _send(self):
        new, self._new = self._new, []
        if new:
            self._queue.put(LOOKUP, Lookup(new))

    @harmless()
    def on_request_finished(self, req_context):
        for key in self._keys.pop(req_context.req_id, ()):
            asked = self._asked[key]
            asked.requests.discard(req_context.req_id)
            if not asked.requests:
                del self._asked[key]

    # ---- transfers ----

    def submit_store(self, job_metadata):
        self._submit(job_metadata, False)

    def submit_load(self, job_metadata):
        self._submit(job_metadata, True)

    def _submit(self, job, load):
        try:
            if self._queue is not None and not self._aside.away:
                return self._hand_in(job, load)
        except Exception:
            log.exception("kvmm: a fault in a transfer of the tier; vLLM goes on")
            half = self._transfers.pop(job.job_id, None)
            if half is not None:        # of its pieces, some may be handed in
                half.give_up(wait=True)
        self._results.append(JobResult(job_id=job.job_id, success=False))
        if load:
            self._missing(job.keys)

    def _hand_in(self, job, load):
        places = [(key, name_of(key), self._address + int(chunk) * self._row)
                  for key, chunk in zip(job.keys, job.chunk_ids, strict=True)]
        t = Transfer(job.job_id, load, places, self._row,
                     self._set["load_seconds" if load else "store_seconds"], self._done)
        self._transfers[job.job_id] = t
        for piece in t.pieces:
            self._queue.put(LOAD if load else STORE, piece)

    def _missing(self, keys):
        """A load of these failed: while their requests run, they are not asked for again."""
        for key in keys:
            if key in self._asked:
                self._asked[key].verdict = False

    def _report(self, t):
        self._transfers.pop(t.number)
        bad = [key for key in t.keys if key not in t.good]
        if t.load:
            self._missing(bad)
        some = t.good if t.load and bad and t.good else None
        self._results.append(JobResult(
            job_id=t.number, success=not bad, successful_keys=some, transfer_time=t.seconds,
            transfer_bytes=len(t.good) * t.size))

    @harmless(list)
    def get_finished_jobs(self):
        self._collect()
        now = time.monotonic()
        late = [t for t in self._transfers.values() if now > t.end and t.give_up(wait=False)]
        for t in late:
            self._tell_late()
            self._report(t)
        results, self._results = self._results, []
        return results

    def _collect(self):
        while True:
            try:
                t = self._done.get_nowait()
            except queue.Empty:
                return
            if t.number in self._transfers:
                self._report(t)

    @harmless()
    def drain_jobs(self):
        if self._queue is None:
            return
        end = time.monotonic() + self._set["drain_seconds"]
        running = list(self._transfers.values())
        for t in running:
            t.over.wait(max(end - time.monotonic(), 0))
        self._stop(running)

    def _stop(self, running):
        """After this no transfer touches vLLM's memory."""
        stopped = [t for t in running if t.give_up(wait=True)]
        self._collect()
        for t in stopped:
            self._report(t)

    @harmless()
    def shutdown(self):
        if self._queue is not None:
            self._stop(list(self._transfers.values()))
            self._aside.close()
