# SPDX-License-Identifier: Apache-2.0
"""A connector of vLLM: blocks of its KV cache are kept in kvmm, and found by other vLLMs.

	vllm serve MODEL --kv-transfer-config '{"kv_connector": "KvmmConnector",
		"kv_connector_module_path": "kvmm.vllm", "kv_role": "kv_both",
		"kv_load_failure_policy": "recompute"}'

vLLM makes one connector in its scheduler, which looks blocks up, and one in each worker, which
copies them.  Trouble with the daemon is a line in the log, and vLLM computes what it cannot
load.  See Documentation/engines.md.
"""
import functools
import logging

import vllm as _vllm
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1, KVConnectorRole, KVConnectorTransferResults, SupportsHMA)
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from . import _engine
from . import _vllm_names as names
from ._aside import Aside
from ._vllm_scheduler import Scheduler, Transfers
from ._vllm_stats import KvmmMetrics, KvmmStats
from ._vllm_worker import Worker

log = logging.getLogger("vllm.kvmm")

# kv_connector_extra_config may have these.
SETTINGS = {
    **_engine.SETTINGS,
    "lookup_seconds": 0.2,      # the longest wait of a request for a lookup
    "load_seconds": 5.0,        # and for content
    "save_seconds": 2.0,        # the longest time that a save keeps vLLM's blocks
}
SOURCES = {"area": CacheHitSource.DISK}     # all other tiers are memory of the host
harmless = functools.partial(_engine.harmless, log, "vLLM")


class KvmmConnector(KVConnectorBase_V1, SupportsHMA):
    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)
        self._store = None              # an Aside, if kvmm can serve this vLLM
        self._half = None               # a Scheduler or a Worker
        self._is_worker = role == KVConnectorRole.WORKER
        try:
            self._start(vllm_config, kv_cache_config)
        except Exception:
            self._half = None
            log.exception("kvmm: off because of a fault; vLLM goes on without it")
        if self._is_worker and self._half is None:
            self._half = Worker(None, SETTINGS, [], 0, 0)   # tells the scheduler that it is off
            self._half.off = True

    def _start(self, vllm_config, config):
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config or {}
        why = _engine.wrong_setting(extra, SETTINGS, "kv_connector_extra_config") or \
            names.refusal(vllm_config, config, _vllm.__version__)
        if why:
            self._say(f"off: {why}")
            return
        self._set = {**SETTINGS, **extra}
        self._bytes = names.object_bytes(config)
        self._identity = names.identity_of(vllm_config, config, _vllm.__version__)
        self._domain = self._set["domain"] or names.domain_of(vllm_config, self._identity)
        self._store = Aside(self._attach, self._say, self._set["retry_seconds"], "vLLM")
        ranks = vllm_config.parallel_config.tensor_parallel_size
        groups = names.groups_of(config)
        if self._is_worker:
            self._half = Worker(self._store, self._set, groups, self._rank(ranks), self._bytes)
        else:
            self._half = Scheduler(self._store, self._set, groups,
                                   config.kv_cache_groups[0].kv_cache_spec.block_size, ranks,
                                   config.num_blocks)
        self._store.ask(lambda store, job: True, self._set["attach_seconds"])

    @staticmethod
    def _rank(ranks):
        if ranks == 1:
            return 0
        from vllm.distributed import get_tensor_model_parallel_rank

        return get_tensor_model_parallel_rank()

    def _attach(self):
        return _engine.store_of("vLLM", self._domain, self._bytes, identity=self._identity, steps=2,
                                timeout=self._set["attach_seconds"],
                                **{k: self._set[k] for k in ("socket", *_engine.LIMITS)})

    def _say(self, text):
        who = "worker" if self._is_worker else "scheduler"
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

    # ---- scheduler ----

    def bind_gpu_block_pool(self, gpu_block_pool):
        if self._half:
            self._half.bind(gpu_block_pool)

    @harmless(lambda: (0, False))
    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        return self._half.matched(request, num_computed_tokens) if self._half else (0, False)

    @harmless(dict)
    def get_external_cache_hit_sources(self, request, num_external_tokens):
        sources = {}
        for tier, tokens in (self._half.by_tier(request) if self._half else {}).items():
            source = SOURCES.get(tier, CacheHitSource.HOST)
            sources[source] = sources.get(source, 0) + tokens
        return sources

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        if self._half and not self._allocated(request, blocks, num_external_tokens):
            self._half.lose(request, num_external_tokens)

    @harmless(bool)
    def _allocated(self, request, blocks, tokens):
        self._half.allocated(request, blocks, tokens)
        return True

    def build_connector_meta(self, scheduler_output):
        meta = self._half.loads() if self._half else Transfers()
        self._add_save(meta, scheduler_output)
        return meta

    @harmless()
    def _add_save(self, meta, scheduler_output):
        if self._half:
            self._half.add_save(meta, scheduler_output)

    @harmless()
    def update_connector_output(self, connector_output):
        done = connector_output.kv_connector_worker_meta
        if self._half and done:
            self._half.done(done)

    def has_pending_block_frees(self):
        """vLLM waits for them where it would preempt a request."""
        return bool(self._half) and self._half.frees_soon

    def has_pending_push_work(self):
        return bool(self._half) and self._half.saving

    def request_finished(self, request, block_ids):
        return self.request_finished_all_groups(request, (block_ids,))

    @harmless(lambda: (False, None))
    def request_finished_all_groups(self, request, block_ids):
        if self._half:
            self._half.finished(request)
        return False, None

    @harmless(bool)
    def reset_cache(self):
        if self._half:
            self._half.reset()
        return True

    # ---- worker ----

    @harmless()
    def register_kv_caches(self, kv_caches):
        if self._half.off:
            return
        self._half.off = True       # after a fault, too
        why = self._half.register(kv_caches, self._kv_cache_config.num_blocks)
        if why:
            self._say(f"off: {why}")
        self._half.off = bool(why)

    def bind_connector_metadata(self, connector_metadata):
        """vLLM calls this before it computes, so loads run beside the step."""
        super().bind_connector_metadata(connector_metadata)
        if self._half:
            self._begin_loads(connector_metadata)

    @harmless()
    def _begin_loads(self, meta):
        self._half.begin_loads(meta)

    def start_load_kv(self, forward_context, **kwargs):
        return      # see bind_connector_metadata()

    def wait_for_layer_load(self, layer_name):
        return      # no request of the step waits for a load

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        return      # wait_for_save() takes whole blocks

    @harmless()
    def wait_for_save(self):
        if self._half and self._connector_metadata:
            self._half.begin_save(self._connector_metadata)

    def get_transfer_results(self, finished_req_ids):
        over, failed = self._poll()
        return KVConnectorTransferResults(finished_recving=over, failed_recving=failed)

    @harmless(lambda: (set(), set()))
    def _poll(self):
        return self._half.poll() if self._half else (set(), set())

    def get_block_ids_with_load_errors(self):
        if not self._half or len(self._kv_cache_config.kv_cache_groups) > 1:
            return set()
        return self._half.take_bad_blocks()

    def build_connector_worker_meta(self):
        return self._half.take_done() if self._half else None

    # ---- both ----

    def get_kv_connector_stats(self):
        if not self._half or not self._half.counts:
            return None
        counts, self._half.counts = self._half.counts, type(self._half.counts)()
        return KvmmStats(data=dict(counts))

    @classmethod
    def build_kv_connector_stats(cls, data=None):
        return KvmmStats(data=data or {})

    @classmethod
    def build_prom_metrics(cls, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        return KvmmMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)
