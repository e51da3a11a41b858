# SPDX-License-Identifier: Apache-2.0
"""What the connector sees of vLLM: its base classes, its configs, and an engine in one process.

The engine computes nothing: the "KV" of a block is a digest of all tokens up to its end.  So a
block with the content of another prompt, or with none, is found.
"""
import ctypes
import hashlib
import sys
import time
import types
from enum import Enum
from types import SimpleNamespace as Space

TOKENS = 16         # of a block
NR_LAYERS = 3       # of a group
PAGE = 4096         # bytes of a block of a layer
WINDOW = 40         # tokens


class Role(Enum):
    SCHEDULER = 0
    WORKER = 1


class Base:
    """As KVConnectorBase_V1, as far as vLLM's model runner uses it."""

    def __init__(self, vllm_config, role, kv_cache_config):
        self._connector_metadata = None
        self._vllm_config = vllm_config
        self._kv_cache_config = kv_cache_config

    def bind_connector_metadata(self, metadata):
        self._connector_metadata = metadata

    def clear_connector_metadata(self):
        self._connector_metadata = None


class Stats:
    def __init__(self, data=None):
        self.data = data or {}


class Metrics:
    def __init__(self, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        self._counter_cls = metric_types["counter"]


class Results(Space):
    """As KVConnectorTransferResults."""


class Source(Enum):
    HOST = "host"
    DISK = "disk"


def _module(path, **members):
    """Put a module, and those above it, in the place of the real ones."""
    for end in range(1, path.count(".") + 2):
        name = ".".join(path.split(".")[:end])
        sys.modules.setdefault(name, types.ModuleType(name))
    vars(sys.modules[path]).update(members)


def install():
    """Put modules that are called vllm in the place of the real ones."""
    v1 = "vllm.distributed.kv_transfer.kv_connector.v1"
    _module("vllm", __version__="0.32.0")
    _module(f"{v1}.base", KVConnectorBase_V1=Base, KVConnectorRole=Role,
            KVConnectorTransferResults=Results, SupportsHMA=type("SupportsHMA", (), {}),
            KVConnectorMetadata=type("KVConnectorMetadata", (), {}),
            KVConnectorWorkerMetadata=type("KVConnectorWorkerMetadata", (), {}))
    _module(f"{v1}.metrics", KVConnectorStats=Stats, KVConnectorPromMetrics=Metrics)
    _module("vllm.v1.metrics.cache_hit_source", CacheHitSource=Source)


class FullAttentionSpec:
    block_size = TOKENS
    page_size_bytes = PAGE


class SlidingWindowSpec(FullAttentionSpec):
    sliding_window = WINDOW


class MambaSpec(FullAttentionSpec):
    pass


def layers_of(group):
    return [f"g{group}.layers.{i}" for i in range(NR_LAYERS)]


def configs(specs=(FullAttentionSpec,), nr_blocks=64, **more):
    """(vllm_config, kv_cache_config); more: fields of any config by name, and extra="""
    def space(**fields):
        return Space(**{k: more.get(k, v) for k, v in fields.items()})

    groups = [Space(layer_names=layers_of(g), kv_cache_spec=spec())
              for g, spec in enumerate(specs)]
    vllm = Space(
        model_config=space(model="/models/llama", revision=None, dtype="float32", seed=0,
                           quantization=None, hf_config=Space(to_dict=lambda: {"layers": 3})),
        cache_config=space(block_size=TOKENS, cache_dtype="auto",
                           prefix_caching_hash_algo="sha256"),
        parallel_config=space(tensor_parallel_size=1, pipeline_parallel_size=1),
        load_config=space(load_format="auto"), device_config=space(device_type="cpu"),
        kv_transfer_config=space(kv_load_failure_policy="recompute",
                                 kv_connector_extra_config=more.get("extra", {})),
        speculative_config=more.get("speculative_config"))
    config = space(num_blocks=nr_blocks, kv_cache_groups=groups, kv_cache_layout="LBHNC",
                   hash_block_size=TOKENS)
    return vllm, config


class Tensor:
    """A layer's cache: (blocks, heads, tokens, floats); of each block @gap bytes lie unused."""

    device = Space(type="cpu")

    def __init__(self, nr_blocks, gap=0):
        self.shape = (nr_blocks, 2, TOKENS, PAGE // (2 * TOKENS * 4))
        self.memory = ctypes.create_string_buffer(nr_blocks * (PAGE + gap))
        self.step = PAGE + gap

    def stride(self):
        _, _, n, c = self.shape
        return (self.step // 4, n * c, c, 1)

    def element_size(self):
        return 4

    def data_ptr(self):
        return ctypes.addressof(self.memory)

    def block(self, i):
        return memoryview(self.memory).cast("B")[i * self.step:i * self.step + PAGE]


class Pool:
    """vLLM's blocks: block 0 is the null block; a block without references may be taken."""

    def __init__(self, nr_blocks, on_free):
        self.blocks = [Space(block_id=i, ref_cnt=0) for i in range(nr_blocks)]
        self.free = list(range(1, nr_blocks))
        self.on_free = on_free

    def take(self):
        block = self.blocks[self.free.pop()]
        block.ref_cnt = 1
        return block.block_id

    def touch(self, blocks):
        for b in blocks:
            assert b.ref_cnt, "a block that is free is saved"
            b.ref_cnt += 1

    def free_blocks(self, blocks):
        for b in blocks:
            b.ref_cnt -= 1
            if not b.ref_cnt and b.block_id:
                self.free.append(b.block_id)
                self.on_free(b.block_id)


class Request:
    nr = 0

    def __init__(self, tokens, salt=""):
        Request.nr += 1
        self.request_id = f"r{Request.nr}"
        self.tokens = list(tokens)
        self.salt = salt
        self.skip_reading_prefix_cache = False
        self.num_computed = 0
        self.blocks = []        # for each group the numbers of its blocks
        self.loading = False

    @property
    def num_tokens(self):
        return len(self.tokens)

    def digest(self, end):
        return hashlib.sha256(repr((self.salt, self.tokens[:end])).encode()).digest()

    @property
    def block_hashes(self):
        return [self.digest(end) for end in range(TOKENS, len(self.tokens) + 1, TOKENS)]


class Engine:
    """A scheduler and a worker."""

    def __init__(self, connector, gap=0, **more):
        vllm, config = configs(**more)
        self.scheduler = connector(vllm, Role.SCHEDULER, config)
        self.worker = connector(vllm, Role.WORKER, config)
        self.specs = [g.kv_cache_spec for g in config.kv_cache_groups]
        tensors = [Tensor(config.num_blocks, gap) for _ in range(NR_LAYERS)]
        self.layers = {name: tensors[i] for g in range(len(self.specs))
                       for i, name in enumerate(layers_of(g))}
        self.worker.register_kv_caches(self.layers)
        self.pool = Pool(config.num_blocks, self._overwrite)
        self.scheduler.bind_gpu_block_pool(self.pool)
        self.computed = 0           # blocks that were computed, not loaded
        self.failed = 0             # loads of blocks, or of requests, that failed
        self.loading = {}           # requests
        self.between = lambda: None     # runs between the lookup and the load
        self.settle_seconds = 30

    def close(self):
        self.scheduler.shutdown()
        self.worker.shutdown()

    # ---- content ----

    def _overwrite(self, block):
        """Another request has the block now."""
        for name in layers_of(0):
            self.layers[name].block(block)[:] = b"\xee" * PAGE

    def first_seen(self, group, tokens):
        """The first block of a group that the token behind @tokens may see."""
        window = getattr(self.specs[group], "sliding_window", None)
        return max(tokens - window + 1, 0) // TOKENS if window else 0

    def _fill(self, request, g, i):
        """Compute block @i: it depends on those before that it sees, as real KV does."""
        good = all(self.is_right(request, j, g)
                   for j in range(self.first_seen(g, i * TOKENS), i))
        for name in layers_of(g):
            self.layers[name].block(request.blocks[g][i])[:] = \
                self._content(request, i, name) if good else bytes(PAGE)
        self.computed += 1

    @staticmethod
    def _content(request, i, name):
        d = hashlib.sha256(request.digest((i + 1) * TOKENS) + name.encode()).digest()
        return d * (PAGE // len(d))

    def is_right(self, request, i, g=0):
        return all(self.layers[n].block(request.blocks[g][i]) == self._content(request, i, n)
                   for n in layers_of(g))

    def all_right(self, request):
        return all(self.is_right(request, i, g) for g in range(len(self.specs))
                   for i in range(self.first_seen(g, request.num_computed),
                                  request.num_computed // TOKENS))

    # ---- blocks ----

    def extend(self, request, tokens):
        """Take blocks for the first @tokens; of those that no later token sees, none."""
        request.blocks = request.blocks or [[] for _ in self.specs]
        for g, ids in enumerate(request.blocks):
            seen = self.first_seen(g, request.num_computed)
            while len(ids) < -(-tokens // TOKENS):
                ids.append(self.pool.take() if len(ids) >= seen else 0)

    def _shorten(self, request):
        """Give back blocks that no token sees any more, before the next step as vLLM does."""
        for g, ids in enumerate(request.blocks):
            for i in range(min(self.first_seen(g, request.num_computed), len(ids))):
                self.pool.free_blocks([self.pool.blocks[ids[i]]] if ids[i] else [])
                ids[i] = 0

    # ---- a step ----

    def look(self, request, own=0):
        """(tokens found, are they loaded beside the step?), when the scheduler knows it"""
        while (said := self.scheduler.get_num_new_matched_tokens(request, own))[0] is None:
            time.sleep(0.001)
        return said

    def admit(self, request, own=0):
        """Look up and take blocks.  Return: tokens that were found."""
        found, beside = self.look(request, own)
        assert beside == bool(found) and found % TOKENS == 0
        request.num_computed = own + found
        self.extend(request, request.num_computed if found else request.num_tokens)
        self._allocated(request, found)
        if found:
            request.loading = True
            self.loading[request.request_id] = request
        return found

    def _allocated(self, request, found):
        self.scheduler.update_state_after_alloc(
            request, Space(get_block_ids=lambda: tuple(request.blocks)), found)

    def step(self, news=(), olds=(), most=10**6):
        """One step of the requests.  Return: what the worker says."""
        requests = [r for r in (*news, *olds) if not r.loading]
        for r in requests:
            self._shorten(r)
            self.extend(r, r.num_tokens)
        new = {r.request_id: min(r.num_tokens - r.num_computed, most) for r in requests}
        by_id = {r.request_id: r for r in requests}
        meta = self.scheduler.build_connector_meta(Space(
            scheduled_new_reqs=[Space(req_id=r.request_id, num_computed_tokens=r.num_computed)
                                for r in news if not r.loading],
            scheduled_cached_reqs=Space(req_ids=[r.request_id for r in olds if not r.loading],
                                        num_computed_tokens=[r.num_computed for r in olds
                                                             if not r.loading]),
            num_scheduled_tokens=new,
            kv_connector_block_state=Space(get_block_ids=lambda i: tuple(by_id[i].blocks))))
        self.between()
        out = self._forward(meta, requests, new)
        for r in requests:
            r.num_computed += new[r.request_id]
        self._end(out)
        return out

    def _forward(self, meta, requests, new):
        w = self.worker
        w.bind_connector_metadata(meta)
        w.start_load_kv(None)
        for r in requests:
            for g in range(len(self.specs)):
                for i in range(r.num_computed // TOKENS,
                               (r.num_computed + new[r.request_id]) // TOKENS):
                    self._fill(r, g, i)
        w.wait_for_layer_load("")
        w.save_kv_layer("", None, None)
        w.wait_for_save()
        results = w.get_transfer_results(set())
        out = Space(invalid_block_ids=w.get_block_ids_with_load_errors(),
                    kv_connector_worker_meta=w.build_connector_worker_meta(), **vars(results))
        w.clear_connector_metadata()
        return out

    def _end(self, out):
        """What vLLM's scheduler makes of the worker's answer."""
        assert not (out.invalid_block_ids and len(self.specs) > 1)
        self.scheduler.update_connector_output(out)
        self.failed += len(out.invalid_block_ids) + len(out.failed_recving)
        for key in out.finished_recving:
            r = self.loading.pop(key)
            r.loading = False
            bad = [i for i, b in enumerate(r.blocks[0]) if b in out.invalid_block_ids]
            if bad:
                r.num_computed = bad[0] * TOKENS
            if key in out.failed_recving:
                r.num_computed = 0
            if not r.num_computed:
                self._give_back(r)
                assert self.admit(r) == 0       # vLLM looks again
            else:
                self._allocated(r, 0)

    def load(self, *requests):
        """Steps until the requests have what was found."""
        out, end = None, time.monotonic() + 60
        while any(r.loading for r in requests):
            assert time.monotonic() < end, "a load does not end"
            out = self.step() or out
            time.sleep(0.001)
        return out

    def run(self, tokens, salt="", most=10**6):
        """A request from begin to end.  Return: the tokens that were found."""
        r = Request(tokens, salt)
        found = self.admit(r)
        self.load(r)
        self.step([r], most=most)
        while r.num_computed < r.num_tokens:
            self.step([], [r], most)
        assert self.all_right(r), "a block is wrong"
        self.finish(r)
        return found

    def settle(self):
        """Steps until what was saved can be found, and vLLM has its blocks again."""
        end = time.monotonic() + self.settle_seconds
        while self.scheduler.has_pending_push_work() and time.monotonic() < end:
            self.step()
            time.sleep(0.001)
        store = self.worker._store
        while store is not None and not store.idle and time.monotonic() < end:
            time.sleep(0.001)

    def _give_back(self, request):
        for ids in request.blocks:
            self.pool.free_blocks([self.pool.blocks[i] for i in reversed(ids) if i])
        request.blocks = []

    def finish(self, request):
        assert self.scheduler.request_finished_all_groups(
            request, tuple(request.blocks)) == (False, None)
        self._give_back(request)
        self.settle()
