# SPDX-License-Identifier: Apache-2.0
"""The connector of vLLM, with a stand-in for vLLM and a real daemon."""
import logging
import os
import signal
import time
import unittest

import vllm_standin
from vllm_standin import TOKENS, Engine, MambaSpec, Request
from world import World, children_of, name_of, until

vllm_standin.install()

import kvmm                                     # noqa: E402
from kvmm import _vllm_names as names           # noqa: E402
from kvmm import vllm as connector              # noqa: E402

logging.getLogger("vllm.kvmm").addHandler(logging.NullHandler())
# A busy machine may be late; what is tested about time is tested with times of its own.
PATIENT = {"lookup_seconds": 10, "load_seconds": 10, "save_seconds": 10, "retry_seconds": 0.2}


def prompt(seed, nr=100):
    return [seed * 1000 + i for i in range(nr)]


class Vllm(World):
    def engine(self, extra=(), kind=connector.KvmmConnector, **more):
        engine = Engine(kind, extra={**PATIENT, **dict(extra)}, **more)
        self.addCleanup(engine.close)
        return engine

    def lines(self, call, *args, **kwargs):
        """(the result of the call, lines of the log)"""
        with self.assertLogs("vllm.kvmm", "INFO") as caught:
            result = call(*args, **kwargs)
        return result, [r.getMessage() for r in caught.records]

    def drop(self, request, first, last):
        vllm, config = vllm_standin.configs()
        identity = names.identity_of(vllm, config, "0.32.0")
        with kvmm.Objects(names.domain_of(vllm, identity), names.object_bytes(config),
                          identity=identity) as store:
            store.delete([names.key_of(h, 0) for h in request.block_hashes[first:last]])

    def domains(self):
        return [d["name"] for d in kvmm.stats("domains")["domains"]]


class Hits(Vllm):
    def test_second_time(self):
        one = self.engine()
        self.assertEqual(one.run(prompt(1)), 0)
        self.assertEqual(one.computed, 6)
        self.assertEqual(one.run(prompt(1)), 96)
        self.assertEqual(one.computed, 6)

    def test_other_engine(self):
        """Found share: whole blocks of the common part, less the last token."""
        self.engine().run(prompt(1))
        two = self.engine()
        self.assertEqual(two.run(prompt(1)[:50] + prompt(2)), 48)
        self.assertEqual(two.run(prompt(1)[:96]), 80)
        self.assertEqual(two.run(prompt(1), salt="another"), 0)

    def test_chunks(self):
        one = self.engine()
        one.run(prompt(1), most=24)
        self.assertEqual(one.run(prompt(1)), 96)

    def test_decode(self):
        """Blocks that decoding fills are saved when they are full."""
        one, r = self.engine(), Request(prompt(1, 20))
        one.admit(r)
        one.step([r])
        while r.num_tokens < 64:
            r.tokens.append(r.num_tokens)
            r.blocks += [one.free.pop()] if r.num_tokens > len(r.blocks) * TOKENS else []
            one.step([], [r])
        one.finish(r)
        self.assertEqual(one.run(r.tokens + [1]), 64)

    def test_own_cache(self):
        """Blocks that vLLM found in its own cache are saved if kvmm has lost them."""
        one, r = self.engine(), Request(prompt(1, 64))
        one.admit(r)
        one.step([r])
        self.drop(r, 0, 4)
        again = Request(prompt(1))
        again.blocks = r.blocks[:4]
        self.assertEqual(one.admit(again, own=64), 0)
        one.step([again])
        self.assertEqual(self.engine().run(prompt(1)), 96)

    def test_many_blocks(self):
        one = self.engine(nr_blocks=200)
        self.assertEqual(one.run(prompt(1, 2000)), 0)
        self.assertEqual(one.run(prompt(1, 2000)), 1984)

    def test_block_with_gap(self):
        one = self.engine(gap=64)
        one.run(prompt(1))
        self.assertEqual(self.engine().run(prompt(1)), 96)

    def test_requests_of_one_step(self):
        """Two requests that share blocks load and save in one step."""
        one = self.engine()
        one.run(prompt(1, 48))
        a, b = Request(prompt(1)), Request(prompt(1, 64))
        self.assertEqual([one.admit(a), one.admit(b)], [48, 48])
        one.step([a, b])
        self.assertTrue(all(one.is_right(r, i) for r in (a, b) for i in range(4)))

    def test_no_reading(self):
        one, r = self.engine(), Request(prompt(1))
        one.run(prompt(1))
        r.skip_reading_prefix_cache = True
        self.assertEqual(one.admit(r), 0)


class Failures(Vllm):
    """Content that was found is gone when it is loaded."""

    def test_lost(self):
        one = self.engine()
        one.run(prompt(1))
        r = Request(prompt(1))
        self.assertEqual(one.admit(r), 96)
        self.drop(r, 2, 4)
        self.assertEqual(one.step([r]), set(r.blocks[2:4]))
        self.assertEqual(r.num_computed, 32)
        one.step([], [r])
        self.assertTrue(all(one.is_right(r, i) for i in range(6)))
        one.finish(r)
        until(lambda: time.monotonic() > one.scheduler._quiet_until)
        self.assertEqual(one.run(prompt(1)), 96)

    def test_garbage_is_not_saved(self):
        """What a step computes from blocks that failed is not saved, nor is the next step's."""
        one = self.engine()
        one.run(prompt(1, 64))
        r = Request(prompt(1))
        self.assertEqual(one.admit(r), 64)
        self.drop(r, 3, 4)
        update, one.scheduler.update_connector_output = \
            one.scheduler.update_connector_output, lambda out: None     # vLLM is a step ahead
        one.step([r])
        r.num_computed = 64
        one.step([], [r])
        self.assertFalse(one.is_right(r, 5))
        one.scheduler.update_connector_output = update
        self.assertEqual(self.engine().run(prompt(1)), 48)
        self.assertEqual(self.engine().run(prompt(1)), 96)      # run() looks at the content

    def test_no_lookup_after_failure(self):
        one = self.engine({"retry_seconds": 30})
        one.run(prompt(1))
        r = Request(prompt(1))
        one.admit(r)
        self.drop(r, 5, 6)
        one.step([r])
        self.assertEqual(one.run(prompt(1)), 0)


class Daemon(Vllm):
    """The daemon is killed, stopped, ends, is full, or was never there."""

    def test_none(self):
        self.stop_daemon()
        one, said = self.lines(self.engine)
        self.assertEqual(len(said), 2)      # the scheduler's and the worker's
        self.assertRegex(said[0], "the scheduler: no daemon at .*; vLLM goes on without kvmm, "
                         "and looks again every 0.2 s")
        with self.assertNoLogs("vllm.kvmm", "INFO"):
            self.assertEqual(one.run(prompt(1)), 0)
        self.assertEqual(one.computed, 6)

    def test_comes_later(self):
        self.stop_daemon()
        one = self.engine({"domain": "later"})
        one.run(prompt(1))
        self.start_daemon(*self.OPTIONS)
        found, said = self.lines(until, lambda: one.run(prompt(1)) == 96)
        self.assertTrue(found)
        self.assertIn("kvmm: the worker uses domain later, objects of 16384 bytes", said)

    def test_says_its_domain(self):
        _, said = self.lines(self.engine, {"domain": "mine"})
        self.assertEqual(said, [f"kvmm: the {who} uses domain mine, objects of 16384 bytes"
                                for who in ("scheduler", "worker")])

    def test_killed(self):
        """kill -9: the next daemon adopts what is there."""
        one = self.engine()
        one.run(prompt(1))
        self.kill_daemon()
        self.assertEqual(one.run(prompt(1)), 96)

    def test_killed_between(self):
        one = self.engine()
        one.run(prompt(1))
        one.between = self.kill_daemon
        self.assertEqual(one.run(prompt(1)), 96)

    def test_ends(self):
        one = self.engine()
        one.run(prompt(1))
        one.between = self.stop_daemon
        found, said = self.lines(one.run, prompt(1))
        self.assertEqual((found, one.failed, one.computed), (96, 6, 12))
        self.assertRegex(said[0], "the worker: .*; vLLM goes on without kvmm, and looks again")
        self.assertEqual(one.run(prompt(2)), 0)

    def test_stopped(self):
        """A daemon that does not answer costs the first lookup its time, and the others none."""
        one = self.engine({"lookup_seconds": 0.2, "load_seconds": 0.3, "save_seconds": 0.1})
        one.run(prompt(1))
        self.assertTrue(until(lambda: one.run(prompt(1)) == 96))
        kvmm_pid = next(p for p in children_of(self.hold.pid) if name_of(p) == "kvmm")
        os.kill(kvmm_pid, signal.SIGSTOP)
        self.addCleanup(os.kill, kvmm_pid, signal.SIGCONT)
        begin = time.monotonic()
        for _ in range(20):
            self.assertEqual(one.scheduler.get_num_new_matched_tokens(Request(prompt(1)), 0),
                             (0, False))
        self.assertLess(time.monotonic() - begin, 2)
        one.settle = lambda: None
        self.assertEqual(one.run(prompt(1)), 0)
        os.kill(kvmm_pid, signal.SIGCONT)
        self.assertTrue(until(lambda: one.run(prompt(1)) == 96))

    def test_late_load_writes_nothing(self):
        one = self.engine({"load_seconds": 0.2, "save_seconds": 0.2})
        one.run(prompt(1))
        self.assertTrue(until(lambda: one.run(prompt(1)) == 96))
        kvmm_pid = next(p for p in children_of(self.hold.pid) if name_of(p) == "kvmm")
        r = Request(prompt(1))
        self.assertEqual(one.admit(r), 96)
        one.between = lambda: os.kill(kvmm_pid, signal.SIGSTOP)
        self.addCleanup(os.kill, kvmm_pid, signal.SIGCONT)
        self.assertEqual(one.step([r]), set(r.blocks[:6]))
        for t in one.layers.values():
            for b in r.blocks:
                t.block(b)[:] = b"\x11" * vllm_standin.PAGE
        os.kill(kvmm_pid, signal.SIGCONT)
        self.assertTrue(until(lambda: not one.worker._store._nr))
        for t in one.layers.values():
            for b in r.blocks:
                self.assertEqual(t.block(b), b"\x11" * vllm_standin.PAGE)

    def test_full(self):
        one = self.engine({"max_bytes": 65536, "save_seconds": 0.3})
        _, said = self.lines(one.run, prompt(1))
        self.assertRegex(said[0], "no memory for blocks: give the daemon more")
        self.assertLess(one.run(prompt(1)), 96)


class Refusals(Vllm):
    """What kvmm does not serve is one line, and vLLM goes on."""

    def refused(self, text, **more):
        one, said = self.lines(self.engine, **more)
        self.assertRegex("\n".join(said), text)
        self.assertEqual(one.run(prompt(1)), 0)
        self.assertEqual(one.run(prompt(1)), 0)
        self.assertEqual(one.computed, 12)

    def test_words(self):
        for text, more in {
                "kv_load_failure_policy is not": {"kv_load_failure_policy": "fail"},
                "start vLLM with --prefix-caching-hash-algo sha256":
                    {"prefix_caching_hash_algo": "xxhash"},
                "pipeline_parallel_size is 2: only 1": {"pipeline_parallel_size": 2},
                "speculative decoding is not served": {"speculative_config": "eagle"},
                "has 2 groups of layers: only one": {"groups": 2},
                "of the kind MambaSpec are not served": {"spec": MambaSpec},
                "vLLM runs on cuda: only a CPU": {"device_type": "cuda"},
                "has no setting colour": {"extra": {"colour": 1}}}.items():
            with self.subTest(text):
                self.refused(text, **more)
        self.assertEqual(self.domains(), [])

    def test_tensor_in_pieces(self):
        class Split(connector.KvmmConnector):
            def register_kv_caches(self, kv_caches):
                for t in kv_caches.values():
                    t.stride = lambda: (64, 64 * 4096, 1024, 1)
                super().register_kv_caches(kv_caches)

        self.refused("a block of layers.0 is not one piece of memory", kind=Split)

    def test_other_identity(self):
        """A domain that vLLM of another block size has is refused; by itself none meet."""
        class Long(vllm_standin.FullAttentionSpec):
            block_size, page_size_bytes = 32, 16384

        Long.__name__ = "FullAttentionSpec"
        self.engine().run(prompt(1))
        self.engine(spec=Long)
        self.assertEqual(len(self.domains()), 2)
        self.engine({"domain": "mine"}).run(prompt(1))
        self.refused("refused|another", extra={"domain": "mine"}, spec=Long)

    def test_identity(self):
        """Each of these is another domain."""
        seen = set()
        for more in ({}, {"model": "/models/other"}, {"dtype": "bfloat16"}, {"seed": 1},
                     {"cache_dtype": "fp8"}, {"tensor_parallel_size": 2}, {"revision": "a"},
                     {"quantization": "awq"}, {"prefix_caching_hash_algo": "sha256_cbor"},
                     {"kv_cache_layout": "LBNHC"}, {"load_format": "dummy"}):
            seen.add(names.identity_of(*vllm_standin.configs(**more), "0.32.0"))
        seen.add(names.identity_of(*vllm_standin.configs(), "0.33.0"))
        os.environ["PYTHONHASHSEED"] = "7"
        self.addCleanup(os.environ.pop, "PYTHONHASHSEED")
        seen.add(names.identity_of(*vllm_standin.configs(), "0.32.0"))
        self.assertEqual(len(seen), 13)

    def test_replaced_weights(self):
        file = os.path.join(self.folder, "model.safetensors")
        seen = set()
        for text in ("one", "two"):
            with open(file, "w") as f:
                f.write(text)
            os.utime(file, ns=(1, len(seen)))
            seen.add(names.identity_of(*vllm_standin.configs(model=self.folder), "0.32.0"))
        self.assertEqual(len(seen), 2)

    def test_ranks(self):
        self.assertNotEqual(names.key_of(b"x" * 32, 0), names.key_of(b"x" * 32, 1))

    def test_all_ranks_are_needed(self):
        """With two ranks, a block that one of them has not is not there."""
        vllm, config = vllm_standin.configs(tensor_parallel_size=2, extra=PATIENT)
        one = connector.KvmmConnector(vllm, vllm_standin.Role.SCHEDULER, config)
        self.addCleanup(one.shutdown)
        r = Request(prompt(1))
        with kvmm.Objects(one._domain, one._bytes, identity=one._identity) as store:
            for i, h in enumerate(r.block_hashes):
                store.put(names.key_of(h, 0), bytes(one._bytes))
                if i != 3:
                    store.put(names.key_of(h, 1), bytes(one._bytes))
        self.assertEqual(one.get_num_new_matched_tokens(r, 0), (48, False))


class Faults(Vllm):
    def test_exception(self):
        """A fault of the connector is a line, and the request is computed."""
        class Broken(connector.KvmmConnector):
            def _load(self, loads):
                raise RuntimeError("broken")

            def _which(self, hashes):
                return [True] * len(hashes)

        one = self.engine(kind=Broken)
        found, said = self.lines(one.run, prompt(1))
        self.assertEqual((found, one.failed, one.computed), (96, 6, 6 + 6 - 6))
        self.assertIn("kvmm: a fault in a load; vLLM computes it", said)


if __name__ == "__main__":
    unittest.main()
