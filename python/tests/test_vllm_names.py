# SPDX-License-Identifier: Apache-2.0
"""The connector of vLLM: its counters, whom it refuses, who shares a domain, and its faults."""
import os
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

import vllm_standin
from vllm_standin import FullAttentionSpec, MambaSpec, Request
from vllm_world import PATIENT, Vllm, connector, kvmm, names, prompt

from kvmm import _lib
from kvmm import _vllm_stats as stats
from kvmm._aside import FIRST


class Counts(Vllm):
    def counts(self, one):
        said = {}
        for half in (one.scheduler, one.worker):
            new = half.get_kv_connector_stats()
            said = new.aggregate(stats.KvmmStats(said)).data if new else said
        return said

    def test_counters(self):
        one = self.engine()
        one.run(prompt(1))
        one.run(prompt(1))
        said = self.counts(one)
        self.assertLess(0, said.pop("load_seconds"))
        self.assertLess(0, said.pop("save_seconds"))
        self.assertEqual(said, {"lookups": 2, "loaded_blocks": 6, "loaded_bytes": 6 * 3 * 4096,
                                "saved_blocks": 6, "saved_bytes": 6 * 3 * 4096})
        self.assertEqual(self.counts(one), {})

    def test_metrics(self):
        """Each counter is a metric, has a name in the log, and is described in engines.md."""
        made = {}

        class Metric:
            def __init__(self, name, documentation, labelnames):
                self.value, made[name] = 0, self

            def labels(self, *values):
                return self

            def inc(self, value):
                self.value += value

        m = connector.KvmmConnector.build_prom_metrics(None, {"counter": Metric}, ["engine"],
                                                       {0: ["0"]})
        m.observe({"lookups": 3, "load_seconds": 0.5})
        self.assertEqual(made["vllm:kvmm_lookups"].value, 3)
        told = stats.KvmmStats({"lookups": 3, "load_seconds": 0.5})
        self.assertEqual(told.reduce(), {"kvmm_lookups": 3, "kvmm_load_seconds": 0.5})
        page = (Path(__file__).parents[2] / "Documentation/engines.md").read_text()
        for name in stats.COUNTERS:
            self.assertIn(f"`{name}`", page)
            self.assertIn(f"vllm:kvmm_{name}", made)


class Long(FullAttentionSpec):
    block_size, page_size_bytes = 32, 16384


Long.__name__ = "FullAttentionSpec"


class Split(connector.KvmmConnector):
    """The blocks of a layer are not one piece of memory."""

    def register_kv_caches(self, kv_caches):
        for t in kv_caches.values():
            t.stride = lambda: (64, 64 * 4096, 1024, 1)
        super().register_kv_caches(kv_caches)


class Refusals(Vllm):
    """What kvmm does not serve is one line, and vLLM goes on."""

    def refused(self, text, **more):
        one, said = self.lines(self.engine, **more)
        self.assertRegex("\n".join(said), text)
        self.assertEqual(one.run(prompt(1)), 0)
        self.assertEqual(one.run(prompt(1)), 0)
        self.assertEqual(one.computed, 12 * len(one.specs))

    def test_words(self):
        for text, more in {
                "kv_load_failure_policy is not": {"kv_load_failure_policy": "fail"},
                "start vLLM with --prefix-caching-hash-algo sha256":
                    {"prefix_caching_hash_algo": "xxhash"},
                "pipeline_parallel_size is 2: only 1": {"pipeline_parallel_size": 2},
                "speculative decoding is not served": {"speculative_config": "eagle"},
                "of the kind MambaSpec are not served": {"specs": (FullAttentionSpec, MambaSpec)},
                "have blocks of 16, 32 tokens, hashed by 16": {"specs": (FullAttentionSpec, Long)},
                "vLLM is 0.33.0, and this package of kvmm was tested with 0.32.0": {"version": 1},
                "vLLM runs on cuda: only a CPU": {"device_type": "cuda"},
                "max_bytes of kv_connector_extra_config is '8G', not a number of bytes":
                    {"extra": {"max_bytes": "8G"}},
                "retry_seconds of .* is 'x', not a number of seconds":
                    {"extra": {"retry_seconds": "x"}},
                "has no setting colour": {"extra": {"colour": 1}}}.items():
            with self.subTest(text):
                if more.pop("version", None):
                    connector._vllm.__version__ = "0.33.0"
                self.refused(text, **more)
                connector._vllm.__version__ = "0.32.0"
        self.assertEqual(self.domains(), [])

    def test_daemon_that_cannot(self):
        """The line names what to change."""
        class Big(FullAttentionSpec):
            page_size_bytes = 16 << 20

        Big.__name__ = "FullAttentionSpec"
        self.refused("use fewer tokens a block, or start kvmm with a larger --extent-size", specs=(Big,))
        constants = _lib.load()[2]
        with mock.patch.dict(constants, KVMM_LAYOUT_HASH=constants["KVMM_LAYOUT_HASH"] ^ 1):
            self.refused("install both anew")
        with mock.patch.object(kvmm.Objects, "info", mock.Mock(memory="device")):
            self.refused("start another daemon with --backend host")

    def test_tensor_in_pieces(self):
        self.refused("a block of g0.layers.0 is not one piece of memory", kind=Split)

    def test_off_keeps_no_block(self):
        """A worker that cannot copy says so while the save of the same step waits."""
        one, r, go = self.engine(kind=Split), Request(prompt(1)), threading.Event()
        free = len(one.pool.free)
        one.worker._store.submit(lambda store, job: go.wait(10), FIRST)
        one.admit(r)
        one.step([r])
        self.assertTrue(one.scheduler.has_pending_push_work())
        go.set()
        one.finish(r)
        self.assertEqual(len(one.pool.free), free)
        self.assertFalse(one.scheduler.has_pending_push_work())

    def test_other_identity(self):
        """A domain that vLLM of another block size has is refused; by itself none meet."""
        self.engine().run(prompt(1))
        self.engine(specs=(Long,), hash_block_size=32)
        self.assertEqual(len(self.domains()), 2)
        self.engine({"domain": "mine"}).run(prompt(1))
        self.refused("refused|another", extra={"domain": "mine"}, specs=(Long,), hash_block_size=32)

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
        keys = {names.key_of(b"x" * 32, *place) for place in
                ((0,), (1,), (0, 1), (1, 1), (0, 0, b"e" * 16), (0, 0, b"f" * 16))}
        self.assertEqual(len(keys), 6)

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
        while (said := one.get_num_new_matched_tokens(r, 0))[0] is None:
            time.sleep(0.001)
        self.assertEqual(said, (48, True))


class Faults(Vllm):
    def test_exception(self):
        """A fault of the connector is a line, and the request is computed."""
        one = self.engine()
        one.run(prompt(1))
        one.scheduler._half.matched = None
        found, said = self.lines(one.run, prompt(1))
        self.assertEqual((found, one.computed), (0, 12))
        self.assertIn("kvmm: a fault in get_num_new_matched_tokens; vLLM goes on", said)

    def test_fault_of_a_save(self):
        """The loads of the step go on."""
        one = self.engine()
        one.run(prompt(1))
        one.scheduler._half.add_save = None
        found, said = self.lines(one.run, prompt(1))
        self.assertEqual(found, 96)
        self.assertIn("kvmm: a fault in _add_save; vLLM goes on", said)

    def off_after(self, kind):
        """A worker that fails at the start: its load fails, and then nothing is looked up."""
        self.engine().run(prompt(1))
        one = self.engine(kind=kind)
        self.assertEqual(one.run(prompt(1)), 96)
        self.assertEqual(one.computed, 6)
        one.scheduler._half._quiet_until = 0
        self.assertEqual(one.run(prompt(1)), 0)
        self.assertFalse(one.scheduler.has_pending_push_work())

    def test_fault_of_a_worker(self):
        class NoRank(connector.KvmmConnector):
            def _rank(self, ranks):
                raise RuntimeError("no rank")

        self.off_after(NoRank)

    def test_fault_of_the_places(self):
        class NoLayer(connector.KvmmConnector):
            def register_kv_caches(self, kv_caches):
                super().register_kv_caches({})

        self.off_after(NoLayer)

    def test_fault_of_an_order(self):
        """vLLM waits for a load that was said, so it is ordered and fails."""
        one = self.engine()
        one.run(prompt(1))
        one.scheduler._half._pieces = None
        r = Request(prompt(1))
        _, said = self.lines(one.admit, r)
        self.assertIn("kvmm: a fault in _allocated; vLLM goes on", said)
        out = one.load(r)
        self.assertEqual((out.failed_recving, out.invalid_block_ids), ({r.request_id}, set()))
        one.step([r])
        self.assertTrue(one.all_right(r))

    def test_fault_of_a_load(self):
        one = self.engine()
        one.run(prompt(1))
        r = Request(prompt(1))
        one.admit(r)
        one.worker._half._copies = None
        _, said = self.lines(one.load, r)
        self.assertRegex(said[0], "the worker: TypeError")
        self.assertEqual(r.num_computed, 0)


if __name__ == "__main__":
    unittest.main()
