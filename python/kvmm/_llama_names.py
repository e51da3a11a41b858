# SPDX-License-Identifier: Apache-2.0
"""What the objects of a llama.cpp are called, and whether other processes may use them.

A name is a hash of all tokens up to the end of a block.  The domain has all else that decides
the bytes of a block.
"""
import ctypes
import hashlib
import re
from pathlib import Path

from . import _engine

# Parameters of llama.cpp that do not decide what the KV is.
FREE = {"n_threads", "n_threads_batch", "n_seq_max", "no_perf", "embeddings", "load_mode", "use_mmap",
        "use_mlock", "check_tensors"}


def keys_of(tokens, nr, block_tokens):
    """The keys of the first @nr blocks of @tokens, an array of C ints."""
    keys, key = [], b""
    for i in range(nr):
        block = tokens[i * block_tokens:(i + 1) * block_tokens]
        key = hashlib.blake2b(key + block.tobytes(), digest_size=32, person=b"kvmm-llama").digest()
        keys.append(key)
    return keys


def refusal(llm):
    """Why kvmm cannot serve this Llama, and what to do; None: it can."""
    if llm._logits_all:
        return ("logits_all is set, or there is a draft model: the logits of tokens that are found "
                "would be missing")
    if llm.context_params.embeddings:
        return "embeddings are computed: kvmm has none"
    if getattr(llm, "_is_recurrent", False) or getattr(llm, "_is_hybrid", False):
        return "the model has recurrent layers: their state cannot be cut into blocks"
    return None


def block_bytes(form, block_tokens):
    """The bytes of an object: a multiple of a page."""
    return _engine.object_bytes(form.token_bytes * block_tokens)


def _file(path):
    path = Path(path)
    s = path.stat()
    return [str(path.resolve()), s.st_size, s.st_mtime_ns]


def files_of(model_path):
    """The file of a model, or its parts."""
    path = Path(model_path)
    part = re.fullmatch(r"(.*)-\d{5}-of-(\d{5})\.gguf", path.name)
    if not part:
        return [_file(path)]
    return [_file(f) for f in sorted(path.parent.iterdir())
            if re.fullmatch(rf"{re.escape(part[1])}-\d{{5}}-of-{part[2]}\.gguf", f.name)]


def libraries_of(llama_cpp):
    """A digest of each library of llama.cpp: they decide how KV is computed."""
    folder = Path(llama_cpp.llama_cpp._lib._name).resolve().parent
    return [[f.name, hashlib.blake2b(f.read_bytes(), digest_size=16).hexdigest()]
            for f in sorted(folder.iterdir()) if re.match(r"lib(llama|ggml).*\.so", f.name)]


def parameters_of(struct):
    """The numbers of a struct of llama.cpp that decide what the KV is."""
    values = {name: getattr(struct, name) for name, kind in struct._fields_
              if name not in FREE and kind is not ctypes.c_void_p}
    return {name: v for name, v in values.items() if isinstance(v, (int, float))}


def identity_fields(llm, llama_cpp, form, block_tokens):
    """All that decides the bytes of a block, but its tokens."""
    lora = llm.lora_path and [_file(llm.lora_path), llm.lora_scale]
    return {
        "version": llama_cpp.__version__, "libraries": libraries_of(llama_cpp),
        "system": llama_cpp.llama_print_system_info().decode(errors="replace"),
        "model": files_of(llm.model_path), "metadata": llm.metadata,
        "overrides": llm.kv_overrides, "lora": lora,
        "model_params": parameters_of(llm.model_params),
        "context_params": parameters_of(llm.context_params),
        "tensor_split": llm.tensor_split,
        "form": [form.channels, form.layers,
                 [[t.head.hex(), t.rows, t.item] for t in form.tensors]],
        "block": block_tokens,
    }


def identity_of(llm, llama_cpp, form, block_tokens):
    return _engine.digest_of(identity_fields(llm, llama_cpp, form, block_tokens), b"kvmm-llama")


def domain_of(llm, identity):
    return _engine.domain_of("llama", Path(llm.model_path).stem, identity)
