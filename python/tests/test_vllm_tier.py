# SPDX-License-Identifier: Apache-2.0
"""The tier of vLLM's offloading, with a stand-in for vLLM and a real daemon."""
import logging
import os
import queue
import signal
import time
import unittest
from types import SimpleNamespace as Space

import vllm_standin
import vllm_tier_standin as standin
from vllm_tier_standin import ROW, Manager, key
from world import World, children_of, freeze, name_of, until

standin.install()

import kvmm                                     # noqa: E402
from kvmm import _tier_jobs                     # noqa: E402
from kvmm import _vllm_names as names           # noqa: E402
from kvmm import vllm_tier as tier              # noqa: E402
from kvmm.objects import Objects                # noqa: E402

logging.getLogger("vllm.kvmm").addHandler(logging.NullHandler())
PATIENT = {"lookup_seconds": 10, "load_seconds": 20, "store_seconds": 20, "retry_seconds": 0.2}
KEYS = [key(i) for i in range(6)]
ALL, NONE = [True] * 6, [False] * 6


class Tier(World):
    def manager(self, settings=(), kind=tier.KvmmTier, **more):
        m = Manager(kind, {**PATIENT, **dict(settings)}, **more)
        self.addCleanup(m.close)
        return m

    def lines(self, call, *args, **kwargs):
        with self.assertLogs("vllm.kvmm", "INFO") as caught:
            result = call(*args, **kwargs)
        return result, [r.getMessage() for r in caught.records]

    def told(self, *args, **kwargs):
        """(a manager, the lines of its first try to attach)"""
        def make():
            m = self.manager(*args, **kwargs)
            self.assertTrue(until(lambda: m.tier._aside._told or m.tier._aside._store))
            return m
        return self.lines(make)

    def up(self, m):
        self.assertTrue(until(lambda: m.tier._aside._store))
        return m

    def objects(self, m):
        return Objects(m.tier._domain, m.tier._bytes, identity=m.tier._identity)

    def stop_kvmm(self):
        pid = next(p for p in children_of(self.hold.pid) if name_of(p) == "kvmm")
        self.assertTrue(freeze(pid))
        self.addCleanup(os.kill, pid, signal.SIGCONT)
        return pid


class Hits(Tier):
    def test_other_vllm(self):
        one, two = self.manager(), self.manager()
        self.assertEqual(one.look(KEYS), NONE)
        result = one.store(KEYS)
        self.assertTrue(result.success)
        self.assertEqual(result.transfer_bytes, 6 * ROW)
        self.assertEqual(two.look(KEYS), ALL)
        result, right = two.load(KEYS)
        self.assertTrue(result.success)
        self.assertIsNone(result.successful_keys)
        self.assertEqual(right, ALL)

    def test_again(self):
        """Blocks that are there already are stored."""
        one = self.manager()
        one.store(KEYS[:3])
        self.assertTrue(one.store(KEYS).success)
        self.assertEqual(one.load(KEYS)[1], ALL)

    def test_many(self):
        many = [key(i) for i in range(200)]
        one = self.manager()
        self.assertTrue(one.store(many).success)
        self.assertEqual(one.look(many), [True] * 200)
        result, right = one.load(many)
        self.assertTrue(result.success)
        self.assertEqual(right, [True] * 200)

    def test_groups(self):
        one = self.manager()
        one.store([key(1, group=0)])
        self.assertEqual(one.look([key(1, group=1), key(1, group=256), key(1)]),
                         [False, False, True])

    def test_one_question(self):
        """The lookups of a step are one question to the daemon, and none in lookup()."""
        one, asked = self.up(self.manager()), []
        self.assertTrue(until(lambda: not one.tier._queue._runs))
        store, real = one.tier._aside._store, one.tier._aside._store.exists
        store.exists = lambda keys: asked.append(len(keys)) or real(keys)
        for k in KEYS:
            self.assertIs(one.tier.lookup(k, Space(req_id="r")), standin.LookupResult.RETRY)
        time.sleep(0.05)
        self.assertEqual(asked, [])
        self.assertEqual(one.look(KEYS), NONE)
        self.assertEqual(asked, [6])

    def test_requests_share_lookups(self):
        one = self.manager()
        one.look(KEYS, "a")
        one.store(KEYS)
        self.assertEqual(one.look(KEYS, "b"), NONE)     # the verdict that a got
        one.finish("a")
        self.assertEqual(one.look(KEYS, "b"), NONE)
        one.finish("b")
        self.assertEqual((one.tier._asked, one.tier._keys), ({}, {}))
        self.assertEqual(one.look(KEYS, "c"), ALL)

    def test_urgency(self):
        """A lookup does not wait behind stores."""
        one, order = self.up(self.manager()), []
        self.assertTrue(until(lambda: not one.tier._queue._runs))
        one.tier._queue._runs = True        # so that the pieces wait
        one.submit([key(i) for i in range(100)], load=False)
        one.submit(KEYS, load=True)
        one.tier.lookup(key(7), Space(req_id="r"))
        one.tier.on_schedule_end(None)
        while (piece := one.tier._queue._take()) is not None:
            order.append(type(piece).__name__ + (
                str(piece._transfer.load) if hasattr(piece, "_transfer") else ""))
            piece.end()
        self.assertEqual(order, ["Lookup", "PieceTrue", "PieceFalse", "PieceFalse"])

    def test_pieces(self):
        """So that a lookup does not wait long, large blocks come in smaller pieces."""
        places = [(key(i), b"", 0) for i in range(100)]
        for size, want in ((4096, [64, 36]), (16 << 20, [4] * 25), (1 << 30, [1] * 100)):
            t = _tier_jobs.Transfer(1, True, places, size, 5, queue.SimpleQueue())
            self.assertEqual([len(p._places) for p in t.pieces], want)


class Failures(Tier):
    def test_lost(self):
        """A part of the content is gone: the rest is kept, and the lost keys are misses now."""
        one = self.manager()
        one.store(KEYS)
        self.assertEqual(one.look(KEYS), ALL)
        with self.objects(one) as store:
            store.delete([tier.name_of(k) for k in KEYS[2:4]])
        result, right = one.load(KEYS)
        good = [True, True, False, False, True, True]
        self.assertFalse(result.success)
        self.assertEqual(set(result.successful_keys), set(KEYS[:2] + KEYS[4:]))
        self.assertEqual(right, good)
        self.assertEqual(one.look(KEYS), good)
        one.store(KEYS)
        self.assertEqual(one.look(KEYS), good)      # the request may not try for ever
        one.finish()
        self.assertEqual(one.look(KEYS), ALL)

    def test_exception(self):
        class Broken(tier.KvmmTier):
            def _hand_in(self, job, load):
                raise RuntimeError("broken")

            def _send(self):
                raise RuntimeError("broken")

        one = self.up(self.manager({"lookup_seconds": 0.1}, kind=Broken))
        self.assertFalse(one.store(KEYS).success)
        self.assertEqual(one.look(KEYS), NONE)
        self.assertFalse(one.load(KEYS)[0].success)

    def test_stale(self):
        """Bytes that may be those of others count as lost: they are copied again."""
        one = self.up(self.manager({"load_seconds": 0.5}))
        one.store(KEYS)
        store = one.tier._aside._store
        real = store.get

        class Stale:
            def __init__(self, *args):
                self.batch = real(*args)

            def __enter__(self):
                return self.batch.__enter__()

            def __exit__(self, *args):
                self.batch.__exit__(*args)
                if stale.pop(0) if len(stale) > 1 else stale[0]:
                    raise kvmm.Stale("stale", 116)

        store.get, stale = Stale, [True]
        result, _ = one.load(KEYS)
        self.assertEqual((result.success, result.successful_keys), (False, None))
        stale, one.tier._set["load_seconds"] = [True, False], 20
        result, right = one.load(KEYS)
        self.assertEqual((result.success, right, stale), (True, ALL, [False]))


class Daemon(Tier):
    """The daemon is killed, stopped, ends, is full, or was never there."""

    def test_none(self):
        self.stop_daemon()
        one, said = self.told({"attach_seconds": 0.1, "retry_seconds": 30})
        self.assertEqual(len(said), 1)
        self.assertRegex(said[0], "the tier: no daemon at .*; vLLM goes on without kvmm, and looks "
                         "again every 30 s")
        with self.assertNoLogs("vllm.kvmm", "INFO"):
            self.assertIs(one.tier.lookup(KEYS[0], Space(req_id="r")), standin.LookupResult.MISS)
            for _ in range(3):
                self.assertFalse(one.store(KEYS).success)
                self.assertEqual(one.look(KEYS), NONE)
                one.finish()

    def test_comes_later(self):
        self.stop_daemon()
        one = self.manager({"domain": "later", "attach_seconds": 0.1})
        self.assertFalse(one.store(KEYS).success)
        self.start_daemon(*self.OPTIONS)
        one.tier._set["attach_seconds"] = 10
        _, said = self.lines(until, lambda: one.store(KEYS).success)
        self.assertIn(f"kvmm: the tier uses domain later, objects of {ROW} bytes", said)
        self.assertEqual(one.look(KEYS), ALL)

    def test_killed(self):
        one = self.manager()
        one.store(KEYS)
        self.kill_daemon()
        self.assertEqual(one.look(KEYS), ALL)
        self.kill_daemon()
        self.assertEqual(one.load(KEYS)[1], ALL)

    def test_killed_before_store(self):
        many = [key(i) for i in range(100)]
        one = self.manager()
        one.store(KEYS)
        self.kill_daemon()
        self.assertTrue(one.store(many).success)
        self.assertEqual(one.load(many)[1], [True] * 100)

    def test_ends(self):
        one = self.manager({"attach_seconds": 0.1})
        one.store(KEYS)
        self.stop_daemon()
        (result, right), said = self.lines(one.load, KEYS)
        self.assertEqual((result.success, right), (False, NONE))
        self.assertRegex(said[0], "the tier: .*; vLLM goes on without kvmm, and looks again")
        self.assertEqual(one.look(KEYS), NONE)
        self.assertFalse(one.store(KEYS).success)

    def test_stopped(self):
        """A daemon that does not answer: no call waits, and each question ends."""
        one = self.up(self.manager({"lookup_seconds": 1, "load_seconds": 1, "store_seconds": 1}))
        self.assertTrue(until(lambda: one.store(KEYS).success))
        self.assertTrue(until(lambda: (one.finish(), one.look(KEYS) == ALL)[1]))
        pid, one.longest = self.stop_kvmm(), 0.0
        result, said = self.lines(one.load, KEYS)
        self.assertFalse(result[0].success)
        self.assertIn("kvmm: the tier: the daemon took too long; look at its load (kvctl status)",
                      said)
        self.assertFalse(one.store([key(9)]).success)
        self.assertEqual(one.look([key(i) for i in range(500)], "b"), [False] * 500)
        self.assertEqual(len(one.tier._asked), 6)       # no question while the thread hangs
        self.assertLess(one.longest, 0.5)
        one.finish("b")
        os.kill(pid, signal.SIGCONT)
        self.assertTrue(until(lambda: (one.finish(), one.look(KEYS) == ALL)[1]))

    def test_late_answer(self):
        """A lookup that was a miss because of its time stays one."""
        one = self.up(self.manager({"lookup_seconds": 0.3}))
        one.store(KEYS)
        pid = self.stop_kvmm()
        self.assertEqual(one.look(KEYS), NONE)
        os.kill(pid, signal.SIGCONT)
        self.assertTrue(until(lambda: not one.tier._queue._runs))
        self.assertEqual(one.look(KEYS), NONE)

    def test_late_copies(self):
        """After a transfer has failed, its memory belongs to vLLM."""
        one = self.up(self.manager({"load_seconds": 0.3, "store_seconds": 0.3}))
        one.store(KEYS)
        pid = self.stop_kvmm()
        (load, loaded), (store, stored) = (one.submit(KEYS, True), one.submit([key(9)], False))
        for number in load, store:
            self.assertFalse(one.result(number).success)
        for row in loaded + stored:
            one.block(row)[:] = b"\x11" * ROW
        os.kill(pid, signal.SIGCONT)
        self.assertTrue(until(lambda: not one.tier._queue._runs))
        for row in loaded:
            self.assertEqual(one.block(row), b"\x11" * ROW)
        self.assertEqual(one.look([key(9)], "c"), [False])

    def test_late_work(self):
        """What is late before its turn comes asks the daemon nothing."""
        t = _tier_jobs.Transfer(1, True, [(b"", b"", 0)], ROW, 0, queue.SimpleQueue())
        self.assertTrue(t.give_up(wait=False))
        self.assertFalse(t.pieces[0].run(None, None))

    def test_drain(self):
        one = self.up(self.manager({"drain_seconds": 3}))
        one.store(KEYS)
        numbers = [one.submit(KEYS, True)[0], one.submit([key(8)], False)[0]]
        one.tier.drain_jobs()
        results = one.tier.get_finished_jobs()
        self.assertEqual([(r.job_id, r.success) for r in results], [(n, True) for n in numbers])
        self.stop_kvmm()
        numbers = [one.submit(KEYS, True)[0], one.submit([key(9)], False)[0]]
        begin = time.monotonic()
        one.tier.drain_jobs()
        self.assertLess(time.monotonic() - begin, 10)
        results = one.tier.get_finished_jobs()
        self.assertEqual([(r.job_id, r.success) for r in results], [(n, False) for n in numbers])
        self.assertEqual(one.tier.get_finished_jobs(), [])

    def test_full(self):
        """The domain has room for three blocks, which another client holds; then it has them."""
        one = self.up(self.manager({"max_bytes": 65536}))
        one.store(KEYS[:3])
        with self.objects(one) as other, other.get([tier.name_of(k) for k in KEYS[:3]]):
            result, said = self.lines(one.store, KEYS[3:])
            self.assertFalse(result.success)
            self.assertEqual(one.look(KEYS), [True] * 3 + [False] * 3)
        self.assertEqual(said, ["kvmm: the tier: no memory for blocks: give the daemon more "
                                "(--host-size, --pool-size), or this domain (max_bytes)"])
        one.finish()
        self.assertTrue(one.store(KEYS).success)
        self.assertEqual(one.load(KEYS)[1], ALL)    # three at a time, the others in lower tiers


class Refusals(Tier):
    """What kvmm does not serve is one line, and vLLM goes on."""

    def refused(self, text, settings=(), **more):
        one, said = self.lines(self.manager, settings, **more)
        self.assertEqual(len(said), 1)
        self.assertRegex(said[0], text)
        self.assertFalse(one.store(KEYS[:1]).success)
        self.assertEqual(one.look(KEYS), NONE)
        self.assertFalse(one.load(KEYS[:1])[0].success)
        one.tier.drain_jobs()

    def test_words(self):
        self.refused("the tier is off: a tier has no setting colour", {"colour": 1})
        self.refused("max_bytes of a tier is '8G', not a number of bytes", {"max_bytes": "8G"})
        self.refused("start vLLM with --prefix-caching-hash-algo sha256",
                     prefix_caching_hash_algo="xxhash")
        self.refused("vLLM's config was not found", spec=standin.spec_of(
            Space(kv_transfer_config=Space(kv_connector_extra_config={}))))
        self.assertRegex(tier.refusal({}, (4 << 30) + 1, vllm_standin.configs()[0]),
                         "has 4294967297 bytes, and an object at most")
        self.assertEqual(kvmm.stats("domains")["domains"], [])

    def test_size(self):
        """An object that the daemon cannot serve: its line."""
        _, said = self.told(row=32 << 20, rows=1)
        self.assertEqual(len(said), 1)
        self.assertRegex(said[0], "the tier: .*; vLLM goes on without kvmm")

    def test_other_identity(self):
        self.up(self.manager({"domain": "mine"}))
        _, said = self.told({"domain": "mine"}, dtype="bfloat16")
        self.assertRegex(said[0], "refused|another")

    def test_identity(self):
        """Each of these is another domain."""
        seen, row = set(), ROW

        def add(config=(), row=ROW, **more):
            vllm, cache = vllm_standin.configs(**more)
            seen.add(tier.identity_of(vllm, cache, standin.spec_of(vllm, **dict(config)).config,
                                      row))

        for more in ({}, {"model": "/models/other"}, {"dtype": "bfloat16"}, {"revision": "a"},
                     {"quantization": "awq"}, {"speculative_config": "eagle"},
                     {"specs": (vllm_standin.FullAttentionSpec,) * 2},
                     {"row": row + 4096}, *({"config": c} for c in (
                         {"blocks_per_chunk": 2}, {"tokens_per_hash": 8}, {"world_size": 2},
                         {"tp_size": 2}, {"pp_size": 2}, {"tokens_per_block": 32},
                         {"layer_names": ("a",)}, {"replicated_layout": True},
                         {"canonical_layout": True}, {"kv_cache_layout": "BLHNC"}))):
            add(**more)
        vllm, cache = vllm_standin.configs()
        seen.add(names.identity_of(vllm, cache, "0.32.0"))
        self.assertEqual(len(seen), 19)
        add()
        self.assertEqual(len(seen), 19)

    def test_small_block(self):
        self.assertEqual([tier._engine.object_bytes(n) for n in (1, 16384, 16385, ROW)],
                         [16384, 16384, 20480, ROW])


if __name__ == "__main__":
    unittest.main()
