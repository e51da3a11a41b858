# SPDX-License-Identifier: Apache-2.0
"""The connector of vLLM: what it finds, and what it does when content or the daemon is lost."""
import contextlib
import ctypes
import errno
import threading
import time
import unittest
from types import SimpleNamespace as Space
from unittest import mock

import vllm_standin
from vllm_standin import TOKENS, WINDOW, FullAttentionSpec, Request, SlidingWindowSpec, Source
from vllm_world import Vllm, kvmm, prompt
from world import until

from kvmm._aside import FIRST, Aside, Job, Late


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
            one.step([], [r])
        one.finish(r)
        self.assertEqual(one.run(r.tokens + [1]), 64)

    def test_own_cache(self):
        """Blocks that vLLM found in its own cache are saved if kvmm has lost them."""
        one, r = self.engine(), Request(prompt(1, 64))
        one.admit(r)
        one.step([r])
        one.settle()
        self.drop(r, 0, 4)
        again = Request(prompt(1))
        again.blocks = [list(r.blocks[0])]
        one.pool.touch([one.pool.blocks[i] for i in r.blocks[0]])
        self.assertEqual(one.admit(again, own=64), 0)
        one.step([again])
        one.settle()
        self.assertEqual(self.engine().run(prompt(1)), 96)

    def test_many_blocks(self):
        one = self.engine(nr_blocks=300)
        self.assertEqual(one.run(prompt(1, 2000)), 0)
        self.assertEqual(one.run(prompt(1, 2000)), 1984)

    def test_block_with_gap(self):
        one = self.engine(gap=64)
        one.run(prompt(1))
        self.assertEqual(self.engine().run(prompt(1)), 96)

    def test_requests_of_one_step(self):
        """Two requests that share blocks load in one step, and a third one computes."""
        one = self.engine()
        one.run(prompt(1, 48))
        a, b, c = Request(prompt(1)), Request(prompt(1, 64)), Request(prompt(2))
        self.assertEqual([one.admit(a), one.admit(b), one.admit(c)], [48, 48, 0])
        one.step([c])
        one.load(a, b)
        one.step([a, b])
        self.assertTrue(all(one.all_right(r) for r in (a, b, c)))

    def test_no_reading(self):
        one, r = self.engine(), Request(prompt(1))
        one.run(prompt(1))
        r.skip_reading_prefix_cache = True
        self.assertEqual(one.admit(r), 0)

    def test_no_blocks_for_it(self):
        """vLLM asks in each step while it has no blocks; that is one lookup."""
        one, r = self.engine(), Request(prompt(1))
        one.run(prompt(1))
        before = one.scheduler._half.counts["lookups"]
        self.assertEqual([one.look(r), one.look(r), one.look(r, 32)],
                         [(96, True), (96, True), (64, True)])
        self.assertEqual(one.scheduler._half.counts["lookups"], before + 1)
        one.scheduler._half._found[r.request_id].until = 0
        one.look(r)
        self.assertEqual(one.scheduler._half.counts["lookups"], before + 2)

    def test_sources(self):
        one, r = self.engine(), Request(prompt(1))
        one.run(prompt(1))
        one.admit(r)
        self.assertEqual(one.scheduler.get_external_cache_hit_sources(r, 96), {Source.HOST: 96})
        one.load(r)

    def test_reset(self):
        """After reset_cache() this vLLM finds what it saves then; others find what was there."""
        one, two = self.engine(), self.engine()
        one.run(prompt(1))
        self.assertTrue(one.scheduler.reset_cache())
        self.assertEqual(one.run(prompt(1)), 0)
        self.assertEqual(one.run(prompt(1)), 96)
        self.assertEqual(two.run(prompt(1)), 96)

    def test_reset_while_a_request_runs(self):
        """What it computes later rests on content from before the reset, and is not saved."""
        one, r = self.engine(), Request(prompt(1))
        one.admit(r)
        one.step([r], most=48)
        one.scheduler.reset_cache()
        one.step([], [r])
        one.finish(r)
        self.assertEqual(one.run(prompt(1)), 0)

    def test_aborted_while_loading(self):
        """vLLM frees the blocks of a request that ends during its load when the load is over."""
        one, r = self.engine(), Request(prompt(1))
        one.run(prompt(1))
        free = len(one.pool.free)
        one.admit(r)
        one.scheduler.request_finished_all_groups(r, tuple(r.blocks))
        out = one.load(r)
        self.assertEqual(out.finished_recving, {r.request_id})
        one._give_back(r)
        self.assertEqual(len(one.pool.free), free)

    def test_preempted(self):
        """A request that was preempted finds what it had computed, its answer too."""
        one, r = self.engine(), Request(prompt(1))
        one.admit(r)
        one.step([r])
        r.tokens += prompt(2, 20)
        one.step([], [r])
        self.assertFalse(one.scheduler.has_pending_block_frees())
        one._give_back(r)       # before the save of the last step has ended
        self.assertTrue(one.scheduler.has_pending_block_frees())
        one.settle()
        self.assertFalse(one.scheduler.has_pending_block_frees())
        r.num_computed = 0
        self.assertEqual(one.admit(r), 112)
        one.load(r)
        self.assertTrue(one.all_right(r))


class Groups(Vllm):
    """Models with windows: vLLM drops blocks that no token sees any more."""

    BOTH = {"specs": (FullAttentionSpec, SlidingWindowSpec)}

    def test_second_time(self):
        one = self.engine(**self.BOTH)
        self.assertEqual(one.run(prompt(1, 200), most=32), 0)
        self.assertEqual(one.computed, 24)
        self.assertEqual(one.run(prompt(1, 200)), 192)
        self.assertEqual(self.engine(**self.BOTH).run(prompt(1, 200)), 192)
        self.assertEqual(one.computed, 24)

    def test_window_is_enough(self):
        """Blocks that no later token sees may be missing; those of the window may not."""
        one, r = self.engine(**self.BOTH), Request(prompt(1, 200))
        one.run(r.tokens)
        seen = one.first_seen(1, 192)
        self.assertEqual(seen, (192 - WINDOW + 1) // TOKENS)
        self.drop(r, 0, seen, 1, **self.BOTH)
        self.assertEqual(one.run(r.tokens), 192)
        self.drop(r, seen, seen + 1, 1, **self.BOTH)
        # The next end that has its window is none: the blocks before it are gone, too.
        self.assertEqual(one.run(r.tokens), 0)

    def test_shorter_end(self):
        """Without a block of the window, the longest prefix that has its window is found."""
        one, r = self.engine(**self.BOTH), Request(prompt(1, 200))
        one.run(r.tokens)
        self.drop(r, 10, 11, 1, **self.BOTH)
        self.assertEqual(one.run(r.tokens), 160)

    def test_full_group_counts(self):
        one, r = self.engine(**self.BOTH), Request(prompt(1, 200))
        one.run(r.tokens)
        self.drop(r, 5, 6, 0, **self.BOTH)
        self.assertEqual(one.run(r.tokens), 80)

    def test_lost(self):
        """A failed load of several groups fails as a whole, and the request is not asked again."""
        one, r = self.engine(**self.BOTH), Request(prompt(1, 200))
        one.run(r.tokens)
        again = Request(r.tokens)
        self.assertEqual(one.admit(again), 192)
        self.drop(r, 11, 12, 1, **self.BOTH)
        out = one.load(again)
        self.assertEqual((out.failed_recving, out.invalid_block_ids), ({again.request_id}, set()))
        self.assertEqual(again.num_computed, 0)
        one.step([again])
        self.assertTrue(one.all_right(again))

    def test_freed_while_it_is_saved(self):
        """A block that leaves the window keeps its content until it is saved."""
        one = self.engine(nr_blocks=40, **self.BOTH)
        self.assertEqual(one.run(prompt(1, 250), most=16), 0)
        self.assertEqual(self.engine(**self.BOTH).run(prompt(1, 250)), 240)


class Failures(Vllm):
    """Content that was found is gone when it is loaded."""

    def test_lost(self):
        one = self.engine()
        one.run(prompt(1))
        r = Request(prompt(1))
        self.assertEqual(one.admit(r), 96)
        self.drop(r, 2, 4)
        bad = set(r.blocks[0][2:4])
        self.assertEqual(one.load(r).invalid_block_ids, bad)
        self.assertEqual(r.num_computed, 32)
        one.step([r])
        self.assertTrue(one.all_right(r))
        one.finish(r)
        until(lambda: time.monotonic() > one.scheduler._half._quiet_until)
        self.assertEqual(one.run(prompt(1)), 96)

    def test_no_lookup_after_trouble(self):
        """A block that was evicted stops no other lookup; a load without an answer does."""
        one = self.engine({"retry_seconds": 30})
        one.run(prompt(1))
        r = Request(prompt(1))
        one.admit(r)
        self.drop(r, 5, 6)
        one.load(r)
        self.assertEqual(one.run(prompt(1)), 80)
        r = Request(prompt(1))
        one.admit(r)
        one.worker._half._load = None
        one.load(r)
        self.assertEqual(one.run(prompt(1)), 0)

    def test_first_block_lost(self):
        """vLLM looks again at once; the same request is not found a second time."""
        one = self.engine({"retry_seconds": 0})
        one.run(prompt(1))
        r = Request(prompt(1))
        one.admit(r)
        self.drop(r, 0, 1)
        one.load(r)
        self.assertEqual(r.num_computed, 0)
        one.step([r])
        self.assertTrue(one.all_right(r))


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
        one.between = self.kill_once
        self.assertEqual(one.run(prompt(1)), 96)

    def kill_once(self):
        if not hasattr(self, "killed"):
            self.killed = True
            self.kill_daemon()

    def test_ends(self):
        one = self.engine()
        one.run(prompt(1))
        r = Request(prompt(1))
        self.assertEqual(one.admit(r), 96)
        self.stop_daemon()
        _, said = self.lines(one.load, r)
        self.assertEqual(r.num_computed, 0)
        self.assertRegex(said[0], "the worker: .*; vLLM goes on without kvmm, and looks again")
        one.step([r])
        self.assertTrue(one.all_right(r))
        one.finish(r)
        self.assertEqual(one.run(prompt(2)), 0)

    def test_stopped(self):
        """A daemon that does not answer delays one request, and the loop never."""
        one = self.engine({"lookup_seconds": 0.3, "load_seconds": 0.3, "save_seconds": 0.1,
                           "retry_seconds": 30})
        one.run(prompt(1))
        self.stop_for_a_while()
        slowest, begin = 0, time.monotonic()
        first = Request(prompt(1))
        while True:
            before = time.monotonic()
            said = one.scheduler.get_num_new_matched_tokens(first, 0)
            one.step()
            slowest = max(slowest, time.monotonic() - before)
            if said[0] is not None:
                break
        self.assertEqual(said, (0, False))
        self.assertGreaterEqual(time.monotonic() - begin, 0.3)
        self.assertLess(slowest, 0.25)      # the wait is 1 ms; the machine may be busy
        for _ in range(20):
            self.assertEqual(one.scheduler.get_num_new_matched_tokens(Request(prompt(1)), 0),
                             (0, False))

    def test_after_a_stop(self):
        one = self.engine({"lookup_seconds": 0.2})
        one.run(prompt(1))
        go_on = self.stop_for_a_while()
        self.assertEqual(one.look(Request(prompt(1))), (0, False))
        go_on()
        self.assertTrue(until(lambda: one.run(prompt(1)) == 96))

    def test_late_load_writes_nothing(self):
        one = self.engine({"load_seconds": 0.1})
        one.run(prompt(1))
        r = Request(prompt(1))
        self.assertEqual(one.admit(r), 96)
        bad, go_on = set(r.blocks[0]), self.stop_for_a_while()
        self.assertEqual(one.load(r).invalid_block_ids, bad)
        for block in bad:
            one._overwrite(block)
        go_on()
        self.assertTrue(until(lambda: one.worker._store.idle))
        for name in vllm_standin.layers_of(0):
            for block in bad:
                self.assertEqual(one.layers[name].block(block), b"\xee" * vllm_standin.PAGE)

    def test_late_save_keeps_no_block(self):
        """A save that the daemon does not take gives vLLM its blocks back."""
        one = self.engine({"lookup_seconds": 0.1, "save_seconds": 0.1})
        one.run(prompt(1))
        free, go_on = len(one.pool.free), self.stop_for_a_while()
        one.settle_seconds = 1
        self.assertEqual(one.run(prompt(2)), 0)
        self.assertEqual(len(one.pool.free), free)
        self.assertLess(0, one.scheduler._half._save_at)
        go_on()
        self.assertTrue(until(lambda: one.worker._store.idle))
        self.assertTrue(until(lambda: one.run(prompt(2)) == 96))    # and no garbage is found

    def test_shutdown(self):
        """Copies that the daemon holds up do not touch vLLM's memory after the shutdown."""
        one, r = self.engine(), Request(prompt(1))
        one.run(prompt(2))
        self.stop_for_a_while()
        one.admit(r)
        one.step([r])
        save, = one.worker._half._saves
        self.assertFalse(save.job.done.is_set())
        one.worker.shutdown()
        at = one.layers["g0.layers.0"].data_ptr()
        with self.assertRaises(Late):
            save.job.copy([(at, at + 1, 1)])

    def test_late_save_counts(self):
        """Blocks of a save that was given up are counted, and the thread saves no more of them."""
        one, r = self.engine({"lookup_seconds": 0.1}, nr_blocks=300), Request(prompt(1, 2000))
        one.run(prompt(2))
        one.worker.get_kv_connector_stats()
        one.worker._set["save_seconds"] = 0.1
        go_on = self.stop_for_a_while()
        one.admit(r)
        one.step([r])
        one.settle_seconds = 1
        one.finish(r)
        self.assertEqual(one.worker.get_kv_connector_stats().data["dropped_blocks"], 125)
        go_on()
        self.assertTrue(until(lambda: one.worker._store.idle))

    def test_no_save_after_a_late_one(self):
        """The next one would keep blocks of vLLM as long."""
        one, r = self.engine({"lookup_seconds": 0.1, "save_seconds": 0.1, "retry_seconds": 30}), \
            Request(prompt(3))
        one.settle_seconds = 1
        self.stop_for_a_while()
        self.assertEqual(one.run(prompt(2)), 0)
        one.admit(r)
        one.step([r])
        self.assertFalse(one.scheduler.has_pending_push_work())

    def test_memory_comes_later(self):
        """A save waits for memory: a daemon on a busy machine needs time to give an extent."""
        one, tries = self.engine(), []
        one.run(prompt(2))
        store = one.worker._store._store
        create = store.create

        @contextlib.contextmanager
        def full_at_first(keys, timeout):
            tries.append(len(keys))
            if len(tries) > 3:
                with create(keys, timeout) as items:
                    yield items
            else:
                yield [Space(key=k, held=False, status=errno.EAGAIN) for k in keys]

        with mock.patch.object(store, "create", full_at_first), \
                self.assertNoLogs("vllm.kvmm", "INFO"):
            one.run(prompt(1))
        self.assertEqual(tries, [6] * 4)
        self.assertEqual(one.run(prompt(1)), 96)

    def test_load_goes_before_memory(self):
        """A save that waits for memory gives way to a load."""
        one, order = self.engine(), []
        one.run(prompt(2))
        aside = one.worker._store

        @contextlib.contextmanager
        def full(keys, timeout):
            if not order:
                aside.submit(lambda store, job: order.append("load"), FIRST)
            order.append("save")
            yield [Space(key=k, held=False, status=errno.EAGAIN) for k in keys]

        with mock.patch.object(aside._store, "create", full):
            _, said = self.lines(one.run, prompt(1))
        self.assertEqual(order, ["save", "load"])
        self.assertRegex(said[0], "no memory for blocks")

    def test_full(self):
        one = self.engine({"max_bytes": 65536})
        w = one.worker
        with kvmm.Objects(w._domain, w._bytes, identity=w._identity) as store, \
                store.create([b"held %d" % i for i in range(4)]):
            _, said = self.lines(one.run, prompt(1))
        self.assertRegex(said[0], "no memory for blocks: give the daemon more")
        self.assertLess(one.run(prompt(1)), 96)


class Copies(unittest.TestCase):
    """Job.copy(), in calls of a few bytes."""

    def test_pieces(self):
        source, to, job = ctypes.create_string_buffer(b"0123456789"), bytearray(10), Job(None)
        at = ctypes.addressof(source)
        place = ctypes.addressof(ctypes.c_char.from_buffer(to))
        pieces = [(place + i, at + 9 - i, 1) for i in range(8)] + [(place + 8, at, 2)]
        with mock.patch("kvmm._aside.COPY_BYTES", 3):
            job.copy(pieces)
            self.assertEqual(to, b"9876543201")
            job.give_up()
            with self.assertRaises(Late):
                job.copy([(place, at, 10)])
        self.assertEqual(to, b"9876543201")

    def test_close(self):
        """The job that runs at the end of close() copies no more; those behind it do not begin."""
        aside, go, said = Aside(mock.Mock, lambda text: None, 5, "a test"), threading.Event(), []

        def work(store, job):
            begun.set()
            go.wait(10)
            try:
                job.copy([(place, at, 1)])
            except Late:
                said.append("late")

        begun, to = threading.Event(), ctypes.create_string_buffer(2)
        place = ctypes.addressof(to)
        at = place + 1
        aside.start(work)
        aside.start(lambda store, job: said.append("begins"))
        self.assertTrue(begun.wait(10))
        with mock.patch("kvmm._aside.CLOSE_SECONDS", 0.1):
            aside.close()
        go.set()
        aside._thread.join(10)
        self.assertEqual(said, ["late"])


if __name__ == "__main__":
    unittest.main()
