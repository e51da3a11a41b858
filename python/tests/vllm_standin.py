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
LAYERS = ["layers.0", "layers.1", "layers.2"]
PAGE = 4096         # bytes of a block of a layer


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


def install():
    """Put modules that are called vllm in the place of the real ones."""
    path = "vllm"
    for part in ["", "distributed", "kv_transfer", "kv_connector", "v1", "base"]:
        path = f"{path}.{part}" if part else path
        sys.modules[path] = types.ModuleType(path)
    sys.modules["vllm"].__version__ = "0.32.0"
    base = sys.modules[path]
    base.KVConnectorBase_V1, base.KVConnectorRole = Base, Role
    base.KVConnectorMetadata = type("KVConnectorMetadata", (), {})


class FullAttentionSpec:
    block_size = TOKENS
    page_size_bytes = PAGE


class MambaSpec(FullAttentionSpec):
    pass


def configs(groups=1, spec=FullAttentionSpec, nr_blocks=64, **more):
    """(vllm_config, kv_cache_config); more: fields of any config by name, and extra="""
    def space(**fields):
        return Space(**{k: more.get(k, v) for k, v in fields.items()})

    group = Space(layer_names=LAYERS, kv_cache_spec=spec())
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
    config = space(num_blocks=nr_blocks, kv_cache_groups=[group] * groups,
                   kv_cache_layout="LBHNC")
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


class Request:
    nr = 0

    def __init__(self, tokens, salt=""):
        Request.nr += 1
        self.request_id = f"r{Request.nr}"
        self.tokens = list(tokens)
        self.salt = salt
        self.skip_reading_prefix_cache = False
        self.num_computed = 0
        self.blocks = []

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
        self.layers = {name: Tensor(config.num_blocks, gap) for name in LAYERS}
        self.worker.register_kv_caches(self.layers)
        self.free = list(range(config.num_blocks))
        self.computed = 0           # blocks that were computed, not loaded
        self.failed = 0             # loads of blocks that failed
        self.between = lambda: None     # runs between the lookup and the load

    def close(self):
        self.scheduler.shutdown()
        self.worker.shutdown()

    # ---- content ----

    def _fill(self, request, i):
        """Compute block @i: it depends on the one before, as real KV does."""
        good = i == 0 or self.is_right(request, i - 1)
        for name, tensor in self.layers.items():
            tensor.block(request.blocks[i])[:] = self._content(request, i, name) if good \
                else bytes(PAGE)
        self.computed += 1

    @staticmethod
    def _content(request, i, name):
        d = hashlib.sha256(request.digest((i + 1) * TOKENS) + name.encode()).digest()
        return d * (PAGE // len(d))

    def is_right(self, request, i):
        return all(t.block(request.blocks[i]) == self._content(request, i, n)
                   for n, t in self.layers.items())

    # ---- a step ----

    def admit(self, request, own=0):
        """Look up and take blocks.  Return: tokens that were found."""
        found, is_async = self.scheduler.get_num_new_matched_tokens(request, own)
        assert not is_async and found % TOKENS == 0
        need = -(-request.num_tokens // TOKENS) - len(request.blocks)
        request.blocks += [self.free.pop() for _ in range(need)]
        blocks = Space(get_block_ids=lambda: (request.blocks,))
        self.scheduler.update_state_after_alloc(request, blocks, found)
        request.num_computed = own + found
        return found

    def step(self, news=(), olds=(), most=10**6):
        """One step of the requests.  Return: blocks whose load failed."""
        requests = [*news, *olds]
        new = {r.request_id: min(r.num_tokens - r.num_computed, most) for r in requests}
        by_id = {r.request_id: r for r in requests}
        meta = self.scheduler.build_connector_meta(Space(
            scheduled_new_reqs=[Space(req_id=r.request_id, num_computed_tokens=r.num_computed)
                                for r in news],
            scheduled_cached_reqs=Space(req_ids=[r.request_id for r in olds],
                                        num_computed_tokens=[r.num_computed for r in olds]),
            num_scheduled_tokens=new,
            kv_connector_block_state=Space(get_block_ids=lambda i: (by_id[i].blocks,))))
        self.between()
        self._forward(meta, requests, new)
        bad = self.worker.get_block_ids_with_load_errors()
        self.scheduler.update_connector_output(Space(invalid_block_ids=bad))
        for r in requests:
            r.num_computed += new[r.request_id]
            lost = [i for i, b in enumerate(r.blocks) if b in bad]
            if lost:
                r.num_computed = lost[0] * TOKENS
        self.failed += len(bad)
        return bad

    def _forward(self, meta, requests, new):
        w = self.worker
        w.bind_connector_metadata(meta)
        w.start_load_kv(None)
        for r in requests:
            for i in range(r.num_computed // TOKENS,
                           (r.num_computed + new[r.request_id]) // TOKENS):
                self._fill(r, i)
        w.wait_for_layer_load(LAYERS[0])
        w.save_kv_layer(LAYERS[0], None, None)
        w.wait_for_save()
        w.clear_connector_metadata()

    def run(self, tokens, salt="", most=10**6):
        """A request from begin to end.  Return: the tokens that were found."""
        r = Request(tokens, salt)
        found = self.admit(r)
        self.step([r], most=most)
        while r.num_computed < r.num_tokens:
            self.step([], [r], most)
        for i in range(r.num_tokens // TOKENS):
            assert self.is_right(r, i), f"block {i} is wrong"
        self.finish(r)
        return found

    def settle(self):
        """Wait until what was saved can be found."""
        store = self.worker._store
        while store is not None and store._nr:
            time.sleep(0.001)

    def finish(self, request):
        self.settle()
        assert self.scheduler.request_finished(request, request.blocks) == (False, None)
        for b in request.blocks:        # another request has it now
            for t in self.layers.values():
                t.block(b)[:] = b"\xee" * PAGE
        self.free += request.blocks
