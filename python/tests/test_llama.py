# SPDX-License-Identifier: Apache-2.0
"""The prefix cache for llama-cpp-python, with a stand-in of llama_cpp and a real daemon."""
import logging
import os
import signal
import struct
import time
import unittest
from array import array
from unittest import mock

import llama_standin
from llama_standin import Llama
from world import World, children_of, freeze, name_of, until

FOLDER = llama_standin.install()
unittest.addModuleCleanup(FOLDER.cleanup)

import kvmm                                     # noqa: E402
from kvmm import _llama_names as names          # noqa: E402
from kvmm import _llama_state as states         # noqa: E402
from kvmm import llama as bridge                # noqa: E402

logging.getLogger("kvmm.llama").addHandler(logging.NullHandler())
# A busy machine may be late; what is tested about time is tested with times of its own.
PATIENT = {"lookup_seconds": 10, "load_seconds": 10, "save_seconds": 10, "retry_seconds": 0.2}


def prompt(seed, nr=100):
    return [seed * 1000 + i for i in range(nr)]


def run(llm, tokens, new=3):
    """The next tokens."""
    out = llm.generate(tokens)
    try:
        return [next(out) for _ in range(new)]
    finally:
        out.close()


class Bridge(World):
    def setUp(self):
        super().setUp()
        self.model = os.path.join(self.folder, "model.gguf")
        with open(self.model, "wb") as f:
            f.write(b"weights")

    def engine(self, options=(), **more):
        """(a Llama, its cache)"""
        llm = Llama(self.model, **dict(options))
        cache = bridge.PrefixCache(llm, **{**PATIENT, **more})
        self.addCleanup(cache.close)
        llm.computed = 0
        return llm, cache

    def right(self, tokens, new=3):
        return run(Llama(self.model), tokens, new)

    def found(self, engine, tokens):
        """How many tokens it finds.  The tokens that follow must be right."""
        llm, cache = engine
        llm.reset()
        self.assertEqual(run(llm, tokens), self.right(tokens))
        return cache.found

    def lines(self, call, *args, **kwargs):
        with self.assertLogs("kvmm.llama", "INFO") as caught:
            result = call(*args, **kwargs)
        return result, [r.getMessage() for r in caught.records]


class Hits(Bridge):
    def test_second_time(self):
        one = self.engine()
        self.assertEqual(self.found(one, prompt(1)), 0)
        computed = one[0].computed
        self.assertEqual(self.found(one, prompt(1)), 96)
        self.assertEqual(one[0].computed - computed, 4 + 2)     # the rest, and two answers

    def test_other_process(self):
        """Whole blocks of the common part, less the last token."""
        self.found(self.engine(), prompt(1))
        two = self.engine()
        self.assertEqual(self.found(two, prompt(1)[:50] + prompt(2)), 48)
        self.assertEqual(self.found(two, prompt(1)[:96]), 80)
        self.assertEqual(self.found(two, prompt(1)[:97]), 96)
        self.assertEqual(self.found(two, prompt(3)), 0)
        self.assertEqual(self.found(two, prompt(1)[:16]), 0)
        self.assertEqual(self.found(two, [7, *prompt(1)]), 0)

    def test_block_behind_other_tokens(self):
        """A block is one of all tokens before it."""
        one = self.engine()
        self.found(one, prompt(1, 16) + prompt(9))
        self.found(one, prompt(2, 20))
        self.assertEqual(self.found(one, prompt(2, 16) + prompt(9)), 16)

    def test_rows(self):
        """V with the tokens in one piece, as with flash attention."""
        rows = {"transposed": False}
        self.found(self.engine(rows), prompt(1))
        self.assertEqual(self.found(self.engine(rows), prompt(1, 201)), 96)
        self.assertEqual(self.found(self.engine(rows), prompt(1, 201)), 192)

    def test_answers(self):
        """Blocks of the answer are saved when it ends."""
        llm, _ = self.engine()
        out = run(llm, prompt(1, 30), new=40)
        self.assertEqual(self.found(self.engine(), prompt(1, 30) + out), 64)

    def test_saved_at_the_first_token(self):
        llm, _ = self.engine()
        out = llm.generate(prompt(1))
        next(out), next(out)
        self.assertEqual(self.found(self.engine(), prompt(1)), 96)
        out.close()

    def test_one_token(self):
        """A caller that takes one token and forgets the rest."""
        llm, _ = self.engine()
        next(llm.generate(prompt(1)))
        self.assertEqual(self.found(self.engine(), prompt(1)), 96)

    def test_own_cache(self):
        """What llama.cpp has itself is not loaded, and saved if kvmm has lost it."""
        llm, cache = self.engine()
        run(llm, prompt(1))
        with mock.patch.object(cache, "_load") as load:
            self.assertEqual(run(llm, prompt(1, 60) + prompt(2)), self.right(prompt(1, 60) + prompt(2)))
        load.assert_not_called()
        with kvmm.Objects(cache._domain, cache._bytes, identity=cache._identity) as store:
            store.delete(names.keys_of(array("i", prompt(1)), 2, 16))
        run(llm, prompt(1, 60) + prompt(3))
        self.assertEqual(self.found(self.engine(), prompt(1, 60) + prompt(3)), 144)

    def test_many_blocks(self):
        one = self.engine(block_tokens=2)
        self.found(one, prompt(1, 301))
        self.assertEqual(self.found(self.engine(block_tokens=2), prompt(1, 301)), 300)

    def test_calls(self):
        """find() and save() without generate(); tokens of the caller in the midst of an answer."""
        llm, cache = self.engine()
        self.assertEqual(cache.find(prompt(1)), 0)
        llm.eval(prompt(1))
        self.assertEqual((cache.save(), cache.save()), (6, 0))
        llm.reset()
        self.assertEqual((cache.find(prompt(1)), llm.n_tokens, llm._requires_eval), (96, 96, True))
        plain = Llama(self.model).generate(prompt(2))
        out = llm.generate(prompt(2))
        self.assertEqual([next(out), out.send([5, 6])], [next(plain), plain.send([5, 6])])
        out.close()

    def test_no_reset(self):
        llm, cache = self.engine()
        run(llm, prompt(1))
        llm.reset()
        next(llm.generate(prompt(1), reset=False))
        self.assertEqual((cache.found, llm.n_tokens), (0, 100))

    def test_closed_llama(self):
        llm, _ = self.engine()
        out = llm.generate(prompt(1))
        next(out)
        llm.ctx = None          # as Llama.close() does
        with self.assertNoLogs("kvmm.llama"):
            out.close()

    def test_images(self):
        llm, cache = self.engine({"chat_handler": object()})
        run(llm, prompt(1))
        self.assertEqual(self.found(self.engine(), prompt(1)), 0)

    def test_close(self):
        llm, cache = self.engine()
        self.assertIn("generate", vars(llm))
        out = llm.generate(prompt(1))
        next(out)
        cache.close()
        self.assertNotIn("generate", vars(llm))
        next(out)
        out.close()
        self.assertEqual(cache.find(prompt(1)), 0)


class Identity(Bridge):
    def domain(self, options=(), **more):
        return self.engine(options, **more)[1]._domain

    def test_domains(self):
        one = self.domain()
        self.assertRegex(one, "^llama-model-[0-9a-f]{8}$")
        self.assertEqual(self.domain(), one)
        others = [self.domain({"rope": 1e6}), self.domain({"transposed": False}),
                  self.domain(block_tokens=32)]
        os.utime(self.model, (1, 1))
        others.append(self.domain())
        lib = os.path.join(FOLDER.name, "libggml.so")
        with open(lib, "wb") as f:
            f.write(b"2")
        self.addCleanup(os.unlink, lib)
        others.append(self.domain())
        with mock.patch.object(bridge.llama_cpp, "__version__", "0.4.0"):
            others.append(self.domain())
        self.assertEqual(len({one, *others}), 7)

    def test_parameters(self):
        fields = names.parameters_of(Llama(self.model).context_params)
        self.assertEqual(set(fields), {"n_ctx", "n_batch", "rope_freq_base", "type_k"})

    def test_parts(self):
        """A model of several files."""
        parts = [os.path.join(self.folder, f"m-0000{i}-of-00002.gguf") for i in (1, 2)]
        for part in parts:
            with open(part, "wb") as f:
                f.write(b"x")
        self.assertEqual([f[0] for f in names.files_of(parts[0])],
                         [os.path.realpath(part) for part in parts])

    def test_lora(self):
        llm, cache = self.engine()
        one = names.identity_of(llm, bridge.llama_cpp, cache._form, 16)
        llm.lora_path = self.model
        two = names.identity_of(llm, bridge.llama_cpp, cache._form, 16)
        llm.lora_scale = 0.5
        self.assertEqual(len({one, two, names.identity_of(llm, bridge.llama_cpp, cache._form, 16)}), 3)


class Refusals(Bridge):
    OPTIONS = None

    def off(self, text, **options):
        """The cache says why it is off, and the Llama is as it was."""
        llm = Llama(self.model, **options)
        cache, lines = self.lines(bridge.PrefixCache, llm)
        self.assertRegex(lines[0], f"^kvmm: off: .*{text}")
        self.assertEqual((len(lines), llm.n_tokens), (1, 0))
        self.assertNotIn("generate", vars(llm))
        self.assertEqual(cache.find(prompt(1)), 0)
        cache.close()

    def test_refusals(self):
        self.off("logits_all", logits_all=True)
        self.off("2 streams", streams=2)
        self.off("do not fill the state", more=struct.pack("=III", 1, 8, 4) + bytes(128))
        self.off("without content", more=struct.pack("=III", 1, 8, 0))
        self.off("too short", more=b"1234")
        self.off("from the first on", first=1)
        self.off("refuses a state", refuse=True)

    def test_kinds(self):
        for name in "_is_recurrent", "_is_hybrid":
            with mock.patch.object(Llama, name, True, create=True):
                self.off("recurrent")
        llm = Llama(self.model)
        llm.context_params.embeddings = True
        self.assertRegex(names.refusal(llm), "embeddings")

    def test_fault(self):
        with mock.patch.object(Llama, "eval", side_effect=RuntimeError("llama_decode returned 1")):
            _, lines = self.lines(bridge.PrefixCache, Llama(self.model))
        self.assertEqual(lines, ["kvmm: a fault in _start; llama.cpp goes on"])
        self.assertRaises(ValueError, bridge.PrefixCache, Llama(self.model), block_tokens=0)


class States(unittest.TestCase):
    def state(self, nr, **options):
        llm = Llama("", **{"transposed": True, **options})
        llm.eval(prompt(1, nr))
        return memoryview(bytearray(llm.ctx.write()))

    def test_forms(self):
        """A state of any length from blocks of another."""
        for transposed in True, False:
            for nr in 7, 8, 10, 12:
                state, right = self.state(nr, transposed=transposed), self.state(6, transposed=transposed)
                form, tokens = states.parse(state)
                self.assertEqual((tokens, form.size(nr)), (nr, len(state)))
                again, block = form.empty(6), memoryview(bytearray(3 * form.token_bytes))
                for i in range(2):
                    form.take(state, nr, i, 3, block)
                    form.give(again, 6, i, 3, block.toreadonly())
                self.assertEqual(bytes(again), bytes(right))

    def test_check(self):
        self.assertEqual(states.check(self.state(4), 2)[1], self.state(4))
        self.assertRaises(states.Unknown, states.check, self.state(5), 2)

    def test_unknown(self):
        state = self.state(4)
        for nr in range(0, len(state), 7):
            self.assertRaises(states.Unknown, states.parse, state[:nr])
        for at in 0, 8, 12, 16, 20, 24, 16 + 48, 16 + 52:   # the head, a cell, the layers
            bad = memoryview(bytearray(state))
            bad[at] ^= 2
            self.assertRaises(states.Unknown, states.parse, bad)


class Trouble(Bridge):
    def drop(self, cache, tokens, blocks):
        keys = names.keys_of(array("i", tokens), max(blocks) + 1, 16)
        with kvmm.Objects(cache._domain, cache._bytes, identity=cache._identity) as store:
            store.delete([keys[i] for i in blocks])

    def test_lost_block(self):
        one = self.engine()
        self.found(one, prompt(1))
        self.drop(one[1], prompt(1), [3])
        self.assertEqual(self.found(one, prompt(1)), 48)
        self.assertEqual(self.found(one, prompt(1)), 96)

    def test_lost_after_lookup(self):
        one = self.engine()
        self.found(one, prompt(1))
        self.drop(one[1], prompt(1), [3])
        with mock.patch.object(one[1], "_count", return_value=6):
            self.assertEqual(self.found(one, prompt(1)), 0)

    def test_refused_state(self):
        """llama.cpp does not take a state: it has dropped its own, and computes all."""
        llm, cache = one = self.engine()
        self.found(one, prompt(1))
        llm.ctx.refuse = True
        found, lines = self.lines(self.found, one, prompt(1))
        self.assertEqual((found, lines), (0, ["kvmm: llama.cpp refuses 96 tokens, and computes them"]))
        run(llm, prompt(1, 30))
        self.assertEqual(run(llm, prompt(1)), self.right(prompt(1)))

    def test_other_cells(self):
        """A state of other cells is not saved."""
        llm, cache = self.engine()
        llm.eval(prompt(1))
        llm.ctx.first = 1
        saved, lines = self.lines(cache.save)
        self.assertEqual((saved, len(lines)), (0, 1))
        llm.ctx.first = 0
        del llm.ctx.cells[90:]
        _, lines = self.lines(cache.save)
        self.assertEqual(lines, ["kvmm: a state is not saved: it is not the one of the first tokens"])
        self.assertEqual(self.found(self.engine(), prompt(1)), 0)

    def test_fault(self):
        one = self.engine()
        for n, name in enumerate(("_get", "_own")):
            with mock.patch.object(one[1], name, side_effect=RuntimeError("a fault")):
                for _ in range(2):
                    self.assertEqual(self.found(one, prompt(n)), 0)
        self.assertEqual([self.found(one, prompt(n)) for n in range(2)], [0, 96])

    def test_no_daemon(self):
        self.stop_daemon()
        one, lines = self.lines(self.engine, attach_seconds=0.3)
        self.assertEqual(len(lines), 1)
        self.assertRegex(lines[0], "no daemon.*; llama.cpp goes on without kvmm, and looks again every")
        self.assertEqual(self.found(one, prompt(1)), 0)
        self.start_daemon(*self.OPTIONS)
        self.assertTrue(until(lambda: self.found(one, prompt(1)) == 96))

    def test_killed_daemon(self):
        one = self.engine()
        self.found(one, prompt(1))
        self.kill_daemon()
        self.assertEqual(self.found(one, prompt(1)), 96)

    def test_stopped_daemon(self):
        """A daemon that answers no more costs the time that is allowed."""
        one = self.engine(lookup_seconds=0.2, load_seconds=0.2, save_seconds=0.2)
        self.found(one, prompt(1))
        pid = next(p for p in children_of(self.hold.pid) if name_of(p) == "kvmm")
        self.assertTrue(freeze(pid))
        self.addCleanup(os.kill, pid, signal.SIGCONT)
        begin = time.monotonic()
        self.found(one, prompt(2))
        self.assertLess(time.monotonic() - begin, 5)

    def test_full(self):
        """No memory for blocks: a line, and right tokens."""
        one = self.engine(save_seconds=0.3, max_bytes=65536)
        _, lines = self.lines(lambda: (self.found(one, prompt(1)),      # told after the answer
                                       until(lambda: one[1]._store.idle)))
        self.assertRegex(lines[0], "no memory for blocks: give the daemon more")


if __name__ == "__main__":
    unittest.main()
