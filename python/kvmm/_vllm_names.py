# SPDX-License-Identifier: Apache-2.0
"""What the objects of a vLLM are called, and whether other vLLMs may use them.

A name is vLLM's own hash of a block, which covers all tokens before it, the adapter, images
and the salt, with the number of the layer group and the rank.  The domain has all else that
decides the bytes of a block.
"""
import functools
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from . import _engine

VERSIONS = ("0.32.0",)      # of vLLM, that are tested
HASHES = ("sha256", "sha256_cbor")
SPECS = ("FullAttentionSpec", "MLAAttentionSpec", "SlidingWindowSpec", "ChunkedLocalAttentionSpec")


@dataclass(frozen=True)
class Group:
    """Layers of vLLM that share a table of blocks."""
    layers: tuple       # their names, in the order of the model
    bytes: int          # of a block of all of them
    window: int = 0     # a token sees so many tokens, itself among them; 0: all before it
    chunk: int = 0      # a token sees those of its own chunk; 0: all before it

    def first_seen(self, end, block_tokens):
        """The first block that the token behind @end blocks, and later ones, may see."""
        tokens = end * block_tokens
        if self.window:
            return max(tokens - self.window + 1, 0) // block_tokens
        if self.chunk:
            return tokens // self.chunk * self.chunk // block_tokens
        return 0


@functools.lru_cache(maxsize=1024)
def _place(rank, group, epoch):
    return group.to_bytes(4, "little") + rank.to_bytes(4, "little") + epoch


def key_of(block_hash, rank, group=0, epoch=b""):
    """The key of a block, 32 bytes.  epoch: what reset_cache() of a connector begins"""
    return hashlib.blake2b(_place(rank, group, epoch) + bytes(block_hash), digest_size=32,
                           person=b"kvmm-vllm").digest()


def _specs(group):
    """{layer: its spec} of a group, in the order of the model."""
    spec = group.kv_cache_spec
    return {name: getattr(spec, "kv_cache_specs", {}).get(name, spec)
            for name in group.layer_names}


def groups_of(config):
    """The groups of layers of vLLM's config of the KV cache."""
    return [Group(tuple(g.layer_names), sum(s.page_size_bytes for s in _specs(g).values()),
                  *_range_of(g.kv_cache_spec)) for g in config.kv_cache_groups]


def _range_of(spec):
    """(window, chunk) of a group whose blocks vLLM drops when no token sees them any more."""
    kinds = getattr(spec, "kv_cache_specs", None)
    one = next(iter(kinds.values())) if kinds else spec
    name = type(one).__name__
    return (one.sliding_window if name == "SlidingWindowSpec" else 0,
            one.attention_chunk_size if name == "ChunkedLocalAttentionSpec" else 0)


def refusal(vllm, config, version):
    """Why kvmm cannot serve this vLLM, and what to do; None: it can."""
    parallel = vllm.parallel_config
    why = refused_version(version)
    if why:
        return why
    if vllm.device_config.device_type != "cpu":
        return f"vLLM runs on {vllm.device_config.device_type}: only a CPU is served"
    if vllm.kv_transfer_config.kv_load_failure_policy != "recompute":
        return ("kv_load_failure_policy is not \"recompute\", so content that is lost would fail "
                "requests: set it in kv-transfer-config")
    why = refused_hash(vllm)
    if why:
        return why
    for name in ("pipeline_parallel_size", "decode_context_parallel_size",
                 "prefill_context_parallel_size"):
        if getattr(parallel, name, 1) != 1:
            return f"{name} is {getattr(parallel, name)}: only 1 is served"
    if vllm.speculative_config is not None:
        return "speculative decoding is not served: leave out the speculative config"
    return _refused_groups(config)


def refused_version(version):
    if version.split("+")[0] in VERSIONS:
        return None
    return (f"vLLM is {version}, and this package of kvmm was tested with "
            f"{', '.join(VERSIONS)}: install that one, or another package of kvmm")


def refused_hash(vllm):
    algo = vllm.cache_config.prefix_caching_hash_algo
    if algo in HASHES:
        return None
    return (f"prefix_caching_hash_algo is {algo}, whose hashes of two blocks may be equal: "
            "start vLLM with --prefix-caching-hash-algo sha256")


def _refused_groups(config):
    groups = config.kv_cache_groups
    bad = {type(s).__name__ for g in groups for s in _specs(g).values()} - set(SPECS)
    if bad:
        return f"layers of the kind {sorted(bad)[0]} are not served"
    sizes = {g.kv_cache_spec.block_size for g in groups}
    hashed = getattr(config, "hash_block_size", None)
    if len(sizes | ({hashed} if hashed else set())) != 1:
        return (f"groups of layers have blocks of {', '.join(map(str, sorted(sizes)))} tokens, "
                f"hashed by {hashed}: only one size is served; try "
                "--disable-hybrid-kv-cache-manager")
    return None


def object_bytes(config):
    """The bytes of a block of the largest group of a worker, as an object: a multiple of a page."""
    return _engine.object_bytes(max(g.bytes for g in groups_of(config)))


def weights_of(model):
    """Which weights: a checkpoint that is replaced may not find the KV of the old one."""
    folder = Path(model)
    if not folder.is_dir():
        return []
    files = sorted(f for f in folder.iterdir()
                   if f.suffix in (".safetensors", ".bin", ".pt", ".gguf"))
    return [str(folder.resolve())] + [
        [f.name, f.stat().st_size, f.stat().st_mtime_ns] for f in files]


def identity_fields(vllm, config, version):
    """All that decides the bytes of a block, but its tokens."""
    model, cache = vllm.model_config, vllm.cache_config
    hf = model.hf_config
    return {
        "vllm": version, "model": str(model.model), "weights": weights_of(model.model),
        "revision": [str(model.revision), str(getattr(hf, "_commit_hash", None))],
        "config": hf.to_dict() if hasattr(hf, "to_dict") else str(hf),
        "dtype": str(model.dtype), "cache_dtype": str(cache.cache_dtype),
        "quantization": str(model.quantization),
        "load": [str(vllm.load_config.load_format), model.seed],
        "block": config.kv_cache_groups[0].kv_cache_spec.block_size,
        "layout": str(config.kv_cache_layout),
        "layers": [[name, type(s).__name__, s.page_size_bytes, number]
                   for number, group in enumerate(config.kv_cache_groups)
                   for name, s in _specs(group).items()],
        "tp": vllm.parallel_config.tensor_parallel_size,
        "device": str(vllm.device_config.device_type),
        "hash": [cache.prefix_caching_hash_algo, os.environ.get("PYTHONHASHSEED")],
    }


def identity_of(vllm, config, version):
    return _engine.digest_of(identity_fields(vllm, config, version), b"kvmm-vllm")


def domain_of(vllm, identity):
    name = str(vllm.model_config.model).rstrip("/").rsplit("/", 1)[-1]
    return _engine.domain_of("vllm", name, identity)
