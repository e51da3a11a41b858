# SPDX-License-Identifier: Apache-2.0
"""A prefix cache for llama-cpp-python: KV of prompts is kept in kvmm, and found by other processes.

	llm = llama_cpp.Llama("model.gguf", n_ctx=4096)
	cache = kvmm.llama.PrefixCache(llm)

From then on llm.generate(), and so all completions and chats, load what kvmm has of a prompt in
place of computing it, and save what was computed.  Trouble with the daemon is a line in the log,
and llama.cpp computes all.  See Documentation/engines.md.
"""
import ctypes
import errno
import functools
import logging
import time
from array import array

import llama_cpp

from . import _engine
from . import _llama_names as names
from . import _llama_state as states
from ._aside import FULL, Aside, Late

log = logging.getLogger("kvmm.llama")

BATCH = 64      # objects that are held at once
PROBE = 4       # tokens of the state that shows its form
harmless = functools.partial(_engine.harmless, log, "llama.cpp")


class PrefixCache:
    """Serves one llama_cpp.Llama, which forgets the tokens that it has.

    domain, socket, max_bytes, swap_max_bytes: as for Objects
    block_tokens:   a block is found and saved as a whole
    attach_seconds: the longest wait for the daemon here
    retry_seconds:  between two looks for a daemon
    lookup_seconds, load_seconds, save_seconds: longest waits before and after a prompt
    """

    def __init__(self, llm, *, domain=None, socket=None, max_bytes=None, swap_max_bytes=None,
                 block_tokens=16, attach_seconds=3.0, retry_seconds=5.0, lookup_seconds=0.1,
                 load_seconds=5.0, save_seconds=5.0):
        if block_tokens < 1:
            raise ValueError(f"block_tokens is {block_tokens}")
        self.found = 0          # tokens of the last prompt that came from kvmm
        self._llm = llm
        self._store = None      # an Aside, if kvmm can serve this Llama
        self._tokens = block_tokens
        self._domain = domain
        self._place = {"socket": socket, "timeout": attach_seconds, "max_bytes": max_bytes,
                       "swap_max_bytes": swap_max_bytes}
        self._seconds = {"lookup": lookup_seconds, "load": load_seconds, "save": save_seconds}
        self._start(retry_seconds, attach_seconds)

    @harmless()
    def _start(self, retry_seconds, attach_seconds):
        llm = self._llm
        why = names.refusal(llm) or self._probe()
        if why:
            log.warning("kvmm: off: %s", why)
            return
        self._bytes = names.block_bytes(self._form, self._tokens)
        self._identity = names.identity_of(llm, llama_cpp, self._form, self._tokens)
        self._domain = self._domain or names.domain_of(llm, self._identity)
        self._store = Aside(self._attach, self._say, retry_seconds, "llama.cpp")
        self._store.ask(lambda store, job: True, attach_seconds)
        self._plain = llm.generate
        llm.generate = self._generate

    def _probe(self):
        """Compute a few tokens, to see the form of a state.  Return: why it cannot be served."""
        llm = self._llm
        llm.reset()
        try:
            llm.eval([max(llm.token_bos(), 0)] * PROBE)
            self._form, again = states.check(self._get(), PROBE // 2)
            if not self._set(again):
                return "llama.cpp refuses a state that was put together again"
        except states.Unknown as e:
            return f"the state of this model is not served: {e}"
        finally:
            llm.reset()
        return None

    def _attach(self):
        return _engine.store_of("llama.cpp", self._domain, self._bytes, identity=self._identity,
                                steps=2, **self._place)

    def _say(self, text):
        if text is None:
            log.info("kvmm: domain %s, objects of %d bytes", self._domain, self._bytes)
        else:       # the texts of _aside name the engine that it was made for
            log.warning("kvmm: %s", text)

    def close(self):
        """Leave llama.cpp as it was.  What it has computed or found stays valid."""
        if self._store is not None:
            if self._llm.__dict__.get("generate") == self._generate:
                del self._llm.generate
            self._store.close()
            self._store = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- the state of llama.cpp ----

    def _get(self):
        ctx = self._llm.ctx
        state = bytearray(llama_cpp.llama_state_seq_get_size(ctx, 0))
        place = (ctypes.c_uint8 * len(state)).from_buffer(state)
        if llama_cpp.llama_state_seq_get_data(ctx, place, len(state), 0) != len(state):
            raise states.Unknown("llama.cpp gave a part of it")
        return memoryview(state)

    def _set(self, state):
        place = (ctypes.c_uint8 * len(state)).from_buffer(state)
        return llama_cpp.llama_state_seq_set_data(self._llm.ctx, place, len(state), 0) == len(state)

    # ---- before a prompt ----

    @harmless(int)
    def find(self, tokens):
        """Load what kvmm has of a prompt, if it is more than llama.cpp has itself.

        Return: how many tokens came from kvmm.  The last one is always computed.
        """
        self.found = 0
        if self._store is None:
            return 0
        tokens = array("i", tokens)
        nr = min(len(tokens) - 1, len(self._llm.input_ids)) // self._tokens
        own = self._own(tokens)
        if nr * self._tokens <= own:
            return 0
        keys = names.keys_of(tokens, nr, self._tokens)
        nr = self._count(keys)
        if nr * self._tokens <= own:
            return 0
        end = time.monotonic() + self._seconds["load"]
        state = self._store.ask(lambda store, job: self._load(store, job, keys[:nr], end),
                                self._seconds["load"])
        if state is not None:
            self.found = self._restore(state, tokens[:nr * self._tokens])
        return self.found

    def _own(self, tokens):
        """How many of @tokens llama.cpp has from the first on."""
        own = self._llm.input_ids[:self._llm.n_tokens].tolist()
        return next((i for i, (a, b) in enumerate(zip(own, tokens)) if a != b),
                    min(len(own), len(tokens)))

    def _count(self, keys):
        """How many blocks from the first on are there?"""
        tiers = self._store.ask(lambda store, job: store.exists(keys),
                                self._seconds["lookup"]) or [None]
        return tiers.index(None) if None in tiers else len(tiers)

    def _load(self, store, job, keys, end):
        """A state with the blocks of @keys; None: one is not there any more."""
        nr = len(keys) * self._tokens
        state = self._form.empty(nr)
        for first in range(0, len(keys), BATCH):
            some = keys[first:first + BATCH]
            with store.get(some, max(end - time.monotonic(), 0)) as items:
                for i, item in enumerate(items, first):
                    if job.late:
                        raise Late
                    if not item.held:
                        return None
                    self._form.give(state, nr, i, self._tokens, item.view)
        return state

    def _restore(self, state, tokens):
        llm = self._llm
        if not self._set(state):
            llm.reset()     # it dropped what it had
            log.warning("kvmm: llama.cpp refuses %d tokens, and computes them", len(tokens))
            return 0
        llm.input_ids[:len(tokens)] = tokens
        llm.n_tokens = len(tokens)
        llm._requires_eval = True
        return len(tokens)

    # ---- after it ----

    @harmless(int)
    def save(self):
        """Save the whole blocks of the tokens that llama.cpp has.  Return: how many were new."""
        llm = self._llm
        nr = llm.n_tokens // self._tokens
        if self._store is None or llm.ctx is None or not nr:
            return 0
        tokens = array("i", llm.input_ids[:nr * self._tokens].tolist())
        keys = names.keys_of(tokens, nr, self._tokens)
        tiers = self._store.ask(lambda store, job: store.exists(keys), self._seconds["lookup"])
        new = [i for i, tier in enumerate(tiers or ()) if tier is None]
        if not new:
            return 0
        try:
            state = self._get()
            form, nr = states.parse(state)
        except states.Unknown as e:
            log.warning("kvmm: a state is not saved: %s", e)
            return 0
        if form != self._form or nr < len(tokens):
            log.warning("kvmm: a state is not saved: it is not the one of the first tokens")
            return 0
        end = time.monotonic() + self._seconds["save"]
        return self._store.ask(lambda store, job: self._save(store, job, keys, new, state, nr, end),
                               self._seconds["save"]) or 0

    def _save(self, store, job, keys, new, state, nr, end):
        saved, full = 0, False
        for first in range(0, len(new), BATCH):
            some = {keys[i]: i for i in new[first:first + BATCH]}
            with store.create(list(some), max(end - time.monotonic(), 0)) as items:
                for item in items:
                    full |= item.status == errno.EAGAIN
                    if item.held:
                        self._form.take(state, nr, some[item.key], self._tokens, item.view)
                        saved += 1
                if first + BATCH >= len(new):
                    job.finish(saved)       # the commit goes on while llama.cpp does
        if full:
            self._store.tell(FULL)
        return saved

    # ---- in place of Llama.generate() ----

    def _generate(self, tokens, *args, **kwargs):
        llm = self._llm
        if llm.chat_handler is not None:    # it may have computed images, which have no tokens
            yield from self._plain(tokens, *args, **kwargs)
            return
        tokens = list(tokens)
        if not args and kwargs.get("reset", True):
            self.find(tokens)
        inner, value, saved = self._plain(tokens, *args, **kwargs), None, None
        try:
            while True:
                token = inner.send(value)
                value = yield token
                if saved is None:           # the caller has the first token
                    saved = llm.n_tokens // self._tokens
                    self.save()
        except StopIteration:
            return
        finally:
            inner.close()
            if llm.n_tokens // self._tokens != saved:
                self.save()
