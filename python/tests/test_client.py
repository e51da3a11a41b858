# SPDX-License-Identifier: Apache-2.0
"""One thread and one Client: sequences, steps, views, cache, errors."""
import ctypes
import gc
import os
import time
import unittest

import kvmm
from world import SHAPE, World, put, until

IDS = list(range(1000, 1040))


class NoDaemon(World):
    OPTIONS = None

    def test_attach(self):
        e = self.raises_line(kvmm.NoDaemon, "^no daemon at ", self.client)
        self.assertIn(e.errno, (2, 111))
        self.assertIsInstance(e, kvmm.Error)

    def test_stats(self):
        self.raises_line(kvmm.NoDaemon, "no daemon is here", kvmm.stats)


class Attach(World):
    def test_refused(self):
        one = self.client()
        e = self.raises_line(kvmm.Refused, "in use by another model", self.client, layers=3)
        self.assertNotEqual(e.errno, 0)
        self.raises_line(kvmm.Refused, ".", self.client, model="another")
        one.nop()
        self.client().nop()
        self.client("other", layers=3).nop()

    def test_arguments(self):
        self.raises_line(TypeError, "needs layers", kvmm.Client, "example")
        self.raises_line(TypeError, "no argument colour", self.client, colour=1)
        self.raises_line(ValueError, "identity has 3 bytes", self.client, identity=b"abc")
        self.raises_line(ValueError, "no field is called x", self.client, groups=[{"x": 1}])
        self.raises_line(kvmm.Refused, ".", self.client, block_tokens=17)

    def test_identity(self):
        """A text, bytes and a dict say the same; the order of a dict counts."""
        self.client(model="m")
        self.client(model=b"m")
        self.client(model={"model": "m"})
        self.raises_line(kvmm.Refused, ".", self.client, model={"model": "m", "dtype": "bf16"})

    def test_info(self):
        client = self.client()
        self.assertEqual(client.info.memory, "host")
        self.assertEqual(client.info.block_bytes, 16 * 2 * 2 * 256)
        self.assertEqual(client.resumed, (0, 0))
        self.assertTrue(client.alive)
        self.assertFalse(client.draining)
        stats = kvmm.stats()
        self.assertEqual(stats["meminfo"]["GpuTotal_kb"], 16384)
        self.assertEqual([d["domain"] if "domain" in d else d["name"] for d in stats["domains"]],
                         ["example"])
        self.assertEqual(kvmm.stats("meminfo", socket=self.folder).keys(), {"meminfo"})
        self.raises_line(kvmm.Error, "nothing", kvmm.stats, "nothing")

    def test_several_groups(self):
        """A group with a window has blocks of its own."""
        client = self.client(groups=[SHAPE, {**SHAPE, "window": 16, "block_tokens": 16}])
        with client.open(range(64), 16) as seq:
            seq.wait_ready(10)
            with seq.step(range(64)):
                self.assertEqual(len(seq.table(1)), 4)
                put(seq.block(3, group=1), 0, b"x")
            self.assertEqual(len(seq.table(0)), 4)
            self.assertEqual(seq.table(1)[0], None)
            self.raises_line(kvmm.Error, "given back", seq.block, 0, group=1)


class Work(World):
    def ready(self, client, ids=IDS, room=24, **more):
        seq = client.open(ids, room, **more)
        self.addCleanup(seq.close)
        seq.wait_ready(10)
        return seq

    def computed(self, client, ids=IDS, text=b"KV of the prompt"):
        seq = self.ready(client, ids)
        with seq.step(ids[seq.valid_len:]):
            put(seq.block(0), 0, text)
        return seq

    def test_cache(self):
        """A second client finds what the first one wrote."""
        with self.computed(self.client()):
            pass
        seq = self.ready(self.client())
        self.assertEqual(seq.status().cached_len, 32)
        self.assertEqual(bytes(seq.block(0)[:16]), b"KV of the prompt")

    def test_view(self):
        seq = self.computed(self.client())
        view = seq.block(0)
        self.assertFalse(view.readonly)
        self.assertEqual((view.format, len(view)), ("B", 16384))
        view.cast("I")[7] = 99
        self.assertEqual(seq.block(0)[28], 99)
        self.assertEqual(seq.block_address(1) - seq.block_address(0),
                         (seq.table()[1] - seq.table()[0]) * 64)
        self.raises_line(kvmm.Error, "not there yet", seq.block, 9)

    def test_step(self):
        client = self.client()
        seq = self.ready(client)
        with client.step({seq: IDS}) as step:
            self.assertEqual((step[seq].start, step[seq].end), (0, 40))
            self.assertEqual(len(seq.table()), 3)
            step[seq].done = 20
        self.assertEqual(seq.valid_len, 20)
        with self.assertRaises(ZeroDivisionError):
            with seq.step(IDS[20:]):
                1 / 0
        self.assertEqual(seq.valid_len, 20)
        with seq.step(IDS[20:]):
            self.raises_line(kvmm.Error, "one step at a time", seq.step([5, 6]).__enter__)
        self.assertEqual((seq.valid_len, list(seq.ids)), (40, IDS))

    def test_step_refused(self):
        client = self.client()
        seq, other = self.ready(client), self.ready(client, [7] * 20)
        self.raises_line(kvmm.Error, "STEP_BEGIN", seq.step(range(65)).__enter__)
        with client.step({seq: range(65), other: [7] * 20}, strict=False) as step:
            self.assertIsInstance(step[seq].error, kvmm.Error)
            self.assertEqual(step.granted, [step[other]])
        self.assertEqual((seq.valid_len, other.valid_len), (0, 20))
        step = seq.step(IDS)
        with step:
            pass
        self.raises_line(kvmm.Closed, "once", step.__enter__)
        self.raises_line(ValueError, "another Client", self.client("b").step, {seq: [1]})
        self.raises_line(ValueError, "at least one token", seq.step, [])

    def test_fork(self):
        client = self.client()
        seq = self.computed(client)
        put(seq.block(2), 0, b"tail")
        one, two = seq.fork(2)
        with client.step({one: range(24), two: range(50, 74)}) as step:
            self.assertEqual(sum(len(g.copies) for g in step), 2)
            put(one.block(2), 0, b"ONE!")
        self.assertEqual(bytes(seq.block(2)[:4]), b"tail")
        self.assertEqual(bytes(two.block(2)[:4]), b"tail")
        self.assertEqual(one.table()[:2], seq.table()[:2])
        self.assertEqual(list(one.ids), IDS + list(range(24)))
        one.truncate(50)
        self.assertEqual((one.valid_len, len(one.ids)), (50, 50))
        one.trim(16)
        self.assertIsNone(one.table()[0])
        one.advise("cold")
        self.raises_line(ValueError, "no advice", one.advise, "hot")
        self.raises_line(kvmm.Error, "SEQ_TRUNCATE", one.truncate, 60)

    def test_remap(self):
        """A step of beam search: the two change places, and both are the first then."""
        client = self.client()
        seq = self.computed(client)
        one, two = seq.fork(2)
        with client.step({one: [1], two: [2]}):
            put(one.block(2), 0, b"one")
            put(two.block(2), 0, b"two")
        view = one.block(2)
        client.remap({one: two, two: one})
        self.raises_line(ValueError, "released", view.__getitem__, 0)
        self.assertEqual((one.ids[-1], two.ids[-1]), (2, 1))
        self.assertEqual(bytes(one.block(2)[:3]) + bytes(two.block(2)[:3]), b"twoone")
        client.remap({two: one})
        self.assertEqual((two.ids[-1], two.valid_len), (2, 41))
        self.assertEqual(one.table(), two.table())
        self.raises_line(kvmm.Error, "SEQ_REMAP", client.remap, {one: self.ready(client)})
        two.close()
        self.raises_line(kvmm.Closed, "closed", client.remap, {one: two})

    def test_lease(self):
        client = self.client()
        with self.computed(client):
            pass
        found = client.lookup(IDS)
        self.assertEqual((found.found, found.ready, found.tokens["device"]), (32, 32, 32))
        self.assertEqual(client.lookup([9] * 40).found, 0)
        lease = client.lease(found, 10, "agent-7")
        self.assertEqual((lease.held, lease.reason), (32, None))
        left = lease.until - time.monotonic_ns()
        self.assertTrue(8e9 < left <= 10e9)
        lease.renew(50)
        self.assertTrue(40e9 < lease.until - time.monotonic_ns() <= 50e9)
        seq = self.client().open(IDS, 8, lease=lease.number)
        self.assertEqual(seq.wait_ready(10).valid_len, 32)
        lease.close()
        self.raises_line(kvmm.Closed, "lease is closed", lease.renew, 5)
        self.raises_line(kvmm.NotFound, "SEQ_OPEN", client.open, IDS, 8, lease=lease)
        self.raises_line(ValueError, "16 characters", client.lease, found, 1, "x" * 17)

    def test_no_memory(self):
        client = self.client()
        e = self.raises_line(kvmm.NoMemory, "never fit", client.open, IDS, 10**6)
        self.assertEqual(e.errno, 7)
        first = client.open(range(12000), 10)
        first.wait_ready(10)
        with first.step(range(12000)):
            waits = client.open(range(9, 12009), 10)
            start = time.monotonic()
            self.raises_line(kvmm.Timeout, "is WAITING after 0.3 s", waits.wait_ready, 0.3)
            self.assertLess(time.monotonic() - start, 5)
        first.close()
        waits.wait_ready(10)

    def test_ids(self):
        client = self.client()
        for wrong in ("text", b"bytes", [-1], [2**32], ["a"]):
            self.raises_line(ValueError, "token ids", client.open, wrong, 1)
        self.raises_line(ValueError, "no token", client.open, [], 1)


class Close(World):
    def nr_seqs(self):
        return kvmm.stats("vmstat")["vmstat"]["nr_seqs"]

    def nr_clients(self):
        return len(kvmm.stats("clients")["clients"])

    def test_sequence(self):
        client = self.client()
        seq = client.open(IDS, 8)
        seq.wait_ready(10)
        with seq.step(IDS):
            view = seq.block(0)
        lease = client.lease(client.lookup(IDS), 5)
        seq.close()
        seq.close()
        self.assertTrue(seq.closed)
        for call in (seq.status, seq.table, seq.fork, seq.match, seq.wait_ready):
            self.raises_line(kvmm.Closed, "sequence is closed", call)
        self.raises_line(ValueError, "released", view.__getitem__, 0)
        for call in (seq.step([1]).__enter__, lambda: seq.block(0), lambda: seq.truncate(1)):
            self.raises_line(kvmm.Closed, "closed", call)
        client.close()
        client.close()
        for call in (client.nop, seq.status, lease.prefetch, lambda: client.open(IDS, 1),
                     lambda: client.info, lambda: client.lookup(IDS), lambda: client.wait(1)):
            self.raises_line(kvmm.Closed, "closed", call)
        self.assertFalse(client.alive)
        lease.close()
        self.assertTrue(until(lambda: not self.nr_clients()))

    def test_client_in_step(self):
        client = self.client()
        seq = client.open(IDS, 8)
        seq.wait_ready(10)
        with self.assertRaises(kvmm.Closed):
            with seq.step(IDS):
                client.close()
        self.assertTrue(until(lambda: not self.nr_clients()))

    def test_array(self):
        """An array made of a view outlives all: it is readable, and the memory is free."""
        client = self.client()
        seq = client.open(IDS, 8)
        seq.wait_ready(10)
        with seq.step(IDS):
            view = seq.block(0)
            array = (ctypes.c_ubyte * len(view)).from_buffer(view)
        array[5] = 77
        seq.close()
        self.assertEqual(self.nr_seqs(), 0)
        other = client.open([4] * 20, 8)
        other.wait_ready(10)
        client.close()
        self.raises_line(kvmm.Closed, "closed", client.nop)
        self.assertEqual((self.nr_seqs(), self.nr_clients()), (0, 1))
        self.assertEqual(array[5], 77)
        array[6] = 1
        del array, view
        gc.collect()
        self.assertTrue(until(lambda: not self.nr_clients()))

    def test_numpy(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy is not here")
        client = self.client()
        seq = client.open(IDS, 8)
        seq.wait_ready(10)
        with seq.step(IDS):
            array = numpy.frombuffer(seq.block(0), dtype=numpy.float32).reshape(2, 2, 2, 16, 32)
            array[1, 0, 1] = 2.5
        self.assertEqual(seq.block(0).cast("f")[array.size // 2 + 512], 2.5)
        client.close()
        array[:] = 0

    def test_garbage(self):
        client = self.client()
        seq = client.open(IDS, 8)
        self.assertEqual(self.nr_seqs(), 1)
        del seq
        gc.collect()
        self.assertTrue(until(lambda: not self.nr_seqs()))
        client = kvmm.Client("other", model="o", **SHAPE)
        self.assertEqual(self.nr_clients(), 2)
        del client
        gc.collect()
        self.assertTrue(until(lambda: self.nr_clients() == 1))

    def test_fork_of_process(self):
        client = self.client()
        pid = os.fork()
        if not pid:
            try:
                client.nop()
            except kvmm.Closed:
                client.close()
                os._exit(0)
            os._exit(1)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        client.nop()

    def test_daemon_ends(self):
        client = self.client()
        seq = client.open(IDS, 8)
        seq.wait_ready(10)
        with seq.step(IDS):
            view = seq.block(0)
            view[3] = 9
        self.stop_daemon()
        e = self.raises_line(kvmm.Ended, "daemon", client.nop)
        self.assertEqual(e.errno, 104)
        self.raises_line(kvmm.Ended, "daemon", seq.wait_ready)
        self.assertEqual(view[3], 9)
        self.assertFalse(client.alive)
        client.close()
        self.raises_line(ValueError, "released", view.__getitem__, 3)


class Revoke(World):
    OPTIONS = [*World.OPTIONS, "--tenant", "one", "--tenant", "two", "--revoke-deadline-ms", "3000"]

    def fill(self, client, start):
        ids = range(start, start + 12000)
        seq = client.open(ids, 10)
        seq.wait_ready(20)
        with seq.step(ids):
            views = [seq.block(i) for i in range(12000 // 16)]
            for view in views:
                view[0] = 1
            arrays = [(ctypes.c_ubyte * len(v)).from_buffer(v) for v in views]
        return seq, arrays

    def test_idle(self):
        """An idle client gives memory back, and an array of what it lost does not fault.

        The daemon kills a client that keeps what the other tenant waits for.
        """
        one = self.client(socket=os.path.join(self.folder, "one"))
        two = self.client(socket=os.path.join(self.folder, "two"))
        seq, arrays = self.fill(one, 5)
        seq.close()
        self.assertEqual({a[0] for a in arrays}, {1})
        other, _ = self.fill(two, 5)
        self.assertGreater(kvmm.stats("vmstat")["vmstat"]["extent_revoke"], 4)
        lost = [a for a in arrays if a[0] == 0]
        self.assertGreater(len(lost), 100)
        lost[0][0] = 3
        self.assertEqual(lost[0][0], 3)
        other.close()
        one.nop()
        again, _ = self.fill(one, 9)
        self.assertEqual(again.valid_len, 12000)


if __name__ == "__main__":
    unittest.main()
