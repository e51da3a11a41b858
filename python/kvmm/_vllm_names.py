# SPDX-License-Identifier: Apache-2.0
"""What the objects of a vLLM are called, and whether other vLLMs may use them.

A name is vLLM's own hash of a block, which covers all tokens before it, the adapter, images
and the salt, with the number of the layer group and the rank.  The domain has all else that
decides the bytes of a block.
"""
import hashlib
import json
import os
import re
from pathlib import Path

HASHES = ("sha256", "sha256_cbor")
SPECS = ("FullAttentionSpec", "MLAAttentionSpec")
PAGE = 4096
LEAST = 16384       # the daemon's --min-token-bytes, for the 16 "tokens" of an object


def key_of(block_hash, rank, group=0):
    """The key of a block, 32 bytes."""
    place = group.to_bytes(4, "little") + rank.to_bytes(4, "little")
    return hashlib.blake2b(place + bytes(block_hash), digest_size=32, person=b"kvmm-vllm").digest()


def _specs(config):
    """{layer: its spec} of the only group, in the order of the model."""
    group = config.kv_cache_groups[0]
    spec = group.kv_cache_spec
    return {name: getattr(spec, "kv_cache_specs", {}).get(name, spec)
            for name in group.layer_names}


def refusal(vllm, config):
    """Why kvmm cannot serve this vLLM, and what to do; None: it can."""
    cache, parallel = vllm.cache_config, vllm.parallel_config
    if vllm.device_config.device_type != "cpu":
        return f"vLLM runs on {vllm.device_config.device_type}: only a CPU is served"
    if vllm.kv_transfer_config.kv_load_failure_policy != "recompute":
        return ("kv_load_failure_policy is not \"recompute\", so content that is lost would fail "
                "requests: set it in kv-transfer-config")
    if cache.prefix_caching_hash_algo not in HASHES:
        return (f"prefix_caching_hash_algo is {cache.prefix_caching_hash_algo}, whose hashes of "
                "two blocks may be equal: start vLLM with --prefix-caching-hash-algo sha256")
    for name in ("pipeline_parallel_size", "decode_context_parallel_size",
                 "prefill_context_parallel_size"):
        if getattr(parallel, name, 1) != 1:
            return f"{name} is {getattr(parallel, name)}: only 1 is served"
    if vllm.speculative_config is not None:
        return "speculative decoding is not served: leave out the speculative config"
    if len(config.kv_cache_groups) != 1:
        return (f"the model has {len(config.kv_cache_groups)} groups of layers: only one is "
                "served; try --disable-hybrid-kv-cache-manager")
    bad = {type(s).__name__ for s in _specs(config).values()} - set(SPECS)
    if bad:
        return f"layers of the kind {sorted(bad)[0]} are not served"
    return None


def block_bytes(config):
    """The bytes of a block of all layers of a worker."""
    return sum(s.page_size_bytes for s in _specs(config).values())


def object_bytes(config):
    """Likewise, as an object: a multiple of a page."""
    return max(-(-block_bytes(config) // PAGE) * PAGE, LEAST)


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
        "layers": [[name, type(s).__name__, s.page_size_bytes]
                   for name, s in _specs(config).items()],
        "tp": vllm.parallel_config.tensor_parallel_size,
        "device": str(vllm.device_config.device_type),
        "hash": [cache.prefix_caching_hash_algo, os.environ.get("PYTHONHASHSEED")],
    }


def identity_of(vllm, config, version):
    fields = identity_fields(vllm, config, version)
    text = json.dumps(fields, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=32, person=b"kvmm-vllm").digest()


def domain_of(vllm, identity):
    """A name of its own for each identity, so that two vLLMs are never in each other's way."""
    name = str(vllm.model_config.model).rstrip("/").rsplit("/", 1)[-1]
    name = re.sub(r"[^A-Za-z0-9._-]", "-", name)[:40]
    return f"vllm-{name}-{identity.hex()[:8]}"
