# SPDX-License-Identifier: Apache-2.0
"""A stand-in for llama_cpp: a Llama without a model, whose states have the form of llama.cpp's.

The KV of a token depends on all tokens before it, and the next token on all KV, so wrong KV gives
wrong tokens.
"""
import ctypes
import hashlib
import struct
import sys
import tempfile
import types
from array import array
from pathlib import Path

N_CTX, LAYERS, K_BYTES, CHANNELS, ELEMENT = 512, 3, 24, 8, 2
V_BYTES = CHANNELS * ELEMENT


class Params(ctypes.Structure):
    _fields_ = [("n_ctx", ctypes.c_uint32), ("n_batch", ctypes.c_uint32),
                ("rope_freq_base", ctypes.c_float), ("type_k", ctypes.c_int),
                ("embeddings", ctypes.c_bool), ("abort_callback_data", ctypes.c_void_p)]


class ModelParams(ctypes.Structure):
    _fields_ = [("n_gpu_layers", ctypes.c_int32), ("use_mmap", ctypes.c_bool)]


class Context:
    """The memory of one sequence: of each token the bytes of K and V of each layer."""

    def __init__(self, transposed, more=b"", streams=1, first=0, refuse=False):
        self.cells = []
        self.transposed = transposed
        self.more, self.streams, self.first = more, streams, first
        self.refuse = refuse

    def write(self):
        n = len(self.cells)
        out = struct.pack("=IiII", 0xaf143cd8, 0, self.streams, n)
        out += b"".join(struct.pack("=iIi", self.first + i, 1, 0) for i in range(n))
        out += struct.pack("=II", self.transposed, LAYERS)
        for layer in range(LAYERS):
            out += struct.pack("=iQ", 1, K_BYTES) + b"".join(c[layer][0] for c in self.cells)
        for layer in range(LAYERS):
            rows = [c[layer][1] for c in self.cells]
            if self.transposed:
                out += struct.pack("=iII", 1, ELEMENT, CHANNELS)
                rows = [row[j:j + ELEMENT] for j in range(0, V_BYTES, ELEMENT) for row in rows]
            else:
                out += struct.pack("=iQ", 1, V_BYTES)
            out += b"".join(rows)
        return out + self.more

    def read(self, state):
        self.cells = []
        n = struct.unpack_from("=I", state, 12)[0]
        at = 16 + 12 * n + 8
        k, v = [], []
        for layer in range(LAYERS):
            at += 12
            k.append([state[at + i * K_BYTES:at + (i + 1) * K_BYTES] for i in range(n)])
            at += n * K_BYTES
        for layer in range(LAYERS):
            at += 12
            part = state[at:at + n * V_BYTES]
            if self.transposed:
                part = b"".join(part[(j * n + i) * ELEMENT:(j * n + i + 1) * ELEMENT]
                                for i in range(n) for j in range(CHANNELS))
            v.append([part[i * V_BYTES:(i + 1) * V_BYTES] for i in range(n)])
            at += n * V_BYTES
        self.cells = [[(k[layer][i], v[layer][i]) for layer in range(LAYERS)] for i in range(n)]
        if self.refuse or self.write() != state:
            self.cells = []
            return 0
        return len(state)


class Llama:
    def __init__(self, model_path, transposed=True, logits_all=False, rope=0.0, chat_handler=None,
                 **context):
        self.model_path = model_path
        self.model_params, self.context_params = ModelParams(0, True), Params(N_CTX, 64, rope, 1)
        self.metadata, self.kv_overrides, self.tensor_split = {"general.name": "none"}, None, None
        self.lora_path, self.lora_scale = None, 1.0
        self._logits_all, self.chat_handler = logits_all, chat_handler
        self.ctx = Context(transposed, **context)
        self.input_ids, self.n_tokens = array("i", bytes(4 * N_CTX)), 0
        self._requires_eval = True
        self.computed = 0       # tokens

    def token_bos(self):
        return 1

    def reset(self):
        self.n_tokens = 0

    def eval(self, tokens):
        del self.ctx.cells[self.n_tokens:]
        for token in tokens:
            self.ctx.cells.append(self._content(token))
            self.input_ids[self.n_tokens] = token
            self.n_tokens += 1
            self.computed += 1
        self._requires_eval = False

    def _content(self, token):
        last = repr(self.ctx.cells[-1]) if self.ctx.cells else ""
        return [(hashlib.blake2b(f"k {layer} {token} {last}".encode(), digest_size=K_BYTES).digest(),
                 hashlib.blake2b(f"v {layer} {token} {last}".encode(), digest_size=V_BYTES).digest())
                for layer in range(LAYERS)]

    def generate(self, tokens, reset=True, **_):
        tokens = list(tokens)
        if reset:
            same = 0
            while same < min(self.n_tokens, len(tokens) - 1) and self.input_ids[same] == tokens[same]:
                same += 1
            self.n_tokens, tokens = same, tokens[same:]
        while True:
            self.eval(tokens)
            digest = hashlib.blake2b(repr(self.ctx.cells).encode()).digest()
            token = 300 + digest[0]
            more = yield token
            tokens = [token, *(more or ())]


def _get_data(ctx, place, size, seq):
    state = ctx.write()
    ctypes.memmove(place, state, min(size, len(state)))
    return len(state)


def install():
    """Let `import llama_cpp` find the stand-in.  Return: it, and the folder of its library"""
    folder = tempfile.TemporaryDirectory(prefix="kvpy-llama.")
    Path(folder.name, "libllama.so").write_bytes(b"1")
    m = types.ModuleType("llama_cpp")
    m.__version__, m.Llama = "0.3.36", Llama
    m.llama_cpp = types.SimpleNamespace(
        _lib=types.SimpleNamespace(_name=f"{folder.name}/libllama.so"))
    m.llama_print_system_info = lambda: b"CPU : SSE3 = 1"
    m.llama_state_seq_get_size = lambda ctx, seq: len(ctx.write())
    m.llama_state_seq_get_data = _get_data
    m.llama_state_seq_set_data = lambda ctx, place, size, seq: ctx.read(bytes(place[:size]))
    sys.modules["llama_cpp"] = m
    return folder
