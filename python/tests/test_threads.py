# SPDX-License-Identifier: Apache-2.0
"""Many threads on one Client, and a daemon that is killed under them."""
import collections
import os
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

import kvmm
from kvmm._turns import Turns
from world import World, until

THREADS = 8
ROUNDS = 12


def together(nr, work):
    """Run work(i) in threads.  Return: what they raised."""
    raised = []

    def one(i):
        try:
            work(i)
        except BaseException as e:
            raised.append(e)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(nr)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return raised


def stamp(seq, first, last, mark):
    """Write @mark and the position where each token has its KV."""
    for at in range(first, last):
        place = at % 16 * 256
        seq.block(at // 16)[place:place + 8] = bytes([mark]) * 4 + at.to_bytes(4, "little")


def wrong(seq, length, mark):
    """Positions that have another content."""
    blocks = [seq.block(i) for i in range(-(-length // 16))]
    return [at for at in range(length) if blocks[at // 16][at % 16 * 256:at % 16 * 256 + 8]
            != bytes([mark]) * 4 + at.to_bytes(4, "little")]


def compute(seq, ids, mark):
    """Steps until the KV of all ids is there; a step that became void is done again."""
    while True:
        try:
            start = seq.wait_ready(60).valid_len
            if start >= len(ids):
                return
            with seq.step(ids[start:start + 20]) as step:
                stamp(seq, step[seq].start, step[seq].end, mark)
        except kvmm.Stale:
            pass


class Threads(World):
    def round(self, client, i, n):
        """A sequence with ids, and so with content, of its own."""
        mark = i + 1
        ids = [mark * 100000 + n * 1000 + at for at in range(70)]
        with client.open(ids, 20) as seq:
            compute(seq, ids, mark)
            self.assertEqual(wrong(seq, 70, mark), [])
            kid, = seq.fork()
            more = ids + list(range(20))
            compute(kid, more, mark)
            self.assertEqual(wrong(kid, 90, mark), [])
            self.assertEqual(seq.valid_len, 70)
            kid.close()
        self.assertEqual(client.lookup(ids).found, 64)

    def test_one_client(self):
        client = self.client()
        raised = together(THREADS, lambda i: [self.round(client, i, n) for n in range(ROUNDS)])
        self.assertEqual(raised, [])
        self.assertEqual(kvmm.stats("vmstat")["vmstat"]["nr_seqs"], 0)

    def test_waits(self):
        """Threads that wait for memory do not keep one out that has work."""
        client = self.client()
        holder = client.open(range(12000), 10)
        holder.wait_ready(10)
        waits = [client.open(range(i, i + 12000), 10) for i in range(1, 5)]
        took = []

        def work(i):
            if i < 4:
                waits[i].wait_ready(30)
                waits[i].close()
                return
            for _ in range(20):
                start = time.monotonic()
                client.nop()
                took.append(time.monotonic() - start)
            holder.close()

        self.assertEqual(together(5, work), [])
        self.assertLess(sorted(took)[10], 0.5)

    def test_close(self):
        """The Client is closed under its threads: each sees that, and none hangs.

        They see kvmm.Closed, or the ValueError of a view that was released.
        """
        client = self.client()

        def work(i):
            if i:
                with self.assertRaises(ValueError):
                    for n in range(1000):
                        self.round(client, i, n)
            else:
                time.sleep(0.3)
                client.close()

        self.assertEqual(together(THREADS, work), [])

    def test_kill_under_threads(self):
        client = self.client()

        def work(i):
            if i:
                for n in range(ROUNDS // 2):
                    self.round(client, i, n)
            else:
                time.sleep(0.2)
                self.kill_daemon()

        self.assertEqual(together(THREADS, work), [])
        client.nop()
        self.assertEqual(client.resumed[0], 1)


class Kill(World):
    def test_between_steps(self):
        """The next kvmm has the sequence, and its content."""
        client = self.client()
        ids = list(range(40))
        seq = client.open(ids, 24)
        compute(seq, ids, 3)
        self.kill_daemon()
        client.nop()
        self.assertEqual(client.resumed[0], 1)
        compute(seq, ids, 3)
        self.assertEqual(wrong(seq, 40, 3), [])
        compute(seq, ids + list(range(24)), 3)
        self.assertEqual(seq.valid_len, 64)

    def test_in_step(self):
        """The step counts, or is void: never half of it."""
        client = self.client()
        ids = list(range(40))
        seq = client.open(ids, 24)
        seq.wait_ready(10)
        try:
            with seq.step(ids):
                stamp(seq, 0, 40, 4)
                self.kill_daemon()
            self.assertEqual(seq.valid_len, 40)
        except kvmm.Stale:
            self.assertEqual(client.resumed[1], 1)
        compute(seq, ids, 4)
        self.assertEqual(wrong(seq, 40, 4), [])
        self.assertEqual(client.resumed[0], 1)

    def test_for_good(self):
        """kvmm-hold dies, too: one line, and an end of the attachment."""
        client = self.client()
        seq = client.open(range(40), 8)
        self.stop_daemon()
        self.raises_line(kvmm.Ended, "daemon", client.nop)
        self.raises_line(kvmm.Ended, "daemon", seq.step([1]).__enter__)


class Recompute(World):
    """A sequence loses its memory to one of a higher priority, and comes back."""
    OPTIONS = ["--pool-size", "16M", "--extent-size", "1M", "--host-size", "0"]
    STATES = ("RECOMPUTE",)

    def test_preempted(self):
        client = self.client()
        ids = list(range(50000, 56000))
        low = client.open(ids, 6000, priority=1)
        high = client.open(range(6000), 6000, priority=200)
        compute(low, ids, 5)
        view, epoch = low.block(0), low.status().epoch
        with high.step(range(6000)):
            pass
        for start in range(6000, 12000, 1000):
            with high.step(range(start, start + 1000), timeout=30):
                pass
        self.assertTrue(until(lambda: low.status().state in self.STATES))
        self.assertGreater(low.status().epoch, epoch)
        self.raises_line(ValueError, "released", view.__getitem__, 0)
        self.come_back(low, high, ids)
        self.assertEqual((low.valid_len, wrong(low, 6000, 5)), (6000, []))

    def come_back(self, low, high, ids):
        self.raises_line(kvmm.Error, "STEP_BEGIN", low.step([1]).__enter__)
        high.close()
        compute(low, ids, 5)


class Swap(Recompute):
    OPTIONS = ["--pool-size", "16M", "--extent-size", "1M", "--host-size", "16M",
               "--swappiness", "200"]
    STATES = ("SWAPPED", "RESTORING")

    def come_back(self, low, high, ids):
        """With its content: nothing is computed again."""
        high.close()
        self.assertEqual(low.wait_ready(30).valid_len, 6000)


class Order(unittest.TestCase):
    def test_turns(self):
        """A thread that asks again waits for those that asked before."""
        turn, order, ready = Turns(), collections.deque(), threading.Barrier(3)

        def work(i):
            ready.wait()
            for _ in range(50):
                with turn:
                    order.append(i)
                    until(lambda: len(turn._queue) == 2 or len(order) > 100, 5)

        self.assertEqual(together(3, work), [])
        self.assertEqual(len(order), 150)
        rows = list(order)[3:90]
        self.assertTrue(all(len(set(rows[i:i + 3])) == 3 for i in range(0, 84, 3)), rows)


class Cold(World):
    """The next daemon does not adopt what the last one left, because that is damaged."""

    OPTIONS = [*World.OPTIONS, "--quiet-deadline-ms", "500"]
    IDLE = """if True:
        import ctypes, sys, time, kvmm
        store = kvmm.Objects("idle", 65536)
        with store.create(["a"]) as (item,):
            array = (ctypes.c_ubyte * 65536).from_buffer(item.view)
        print("ready", flush=True)
        sys.stdin.read()
        print(bytes(array) == bytes(65536), store.alive)
        """

    def test_idle(self):
        """A client that does nothing, with an array of the pool, is not killed for it."""
        child = subprocess.Popen([sys.executable, "-c", self.IDLE], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True)
        self.assertEqual(child.stdout.readline(), "ready\n")
        fds = Path(f"/proc/{self.hold.pid}/fd").iterdir()
        keep = next(fd for fd in fds if "memfd:kvmm-keep" in os.readlink(fd))
        with open(keep, "r+b") as f:
            f.write(b"\xff" * 8)
        self.kill_daemon()
        log = Path(self.folder, "hold.log")
        self.assertTrue(until(lambda: "is not resumed" in log.read_text()))
        time.sleep(1)       # past --quiet-deadline-ms, after which such a client is killed
        self.assertEqual(child.communicate("")[0], "True False\n", log.read_text())
        self.assertEqual(child.returncode, 0)


if __name__ == "__main__":
    unittest.main()
