# SPDX-License-Identifier: Apache-2.0
"""A store of objects: one thread, many threads, two processes, a daemon that is killed."""
import ctypes
import errno
import gc
import hashlib
import os
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

import kvmm
from kvmm.objects import key_of
from test_threads import together
from world import TOP, World, until

BYTES = 65536
MANY = 160      # 10 MiB, in a pool of 4 and a host pool of 16


def name(n):
    return n.to_bytes(4, "little") + b"key"


def content(n):
    return hashlib.blake2b(name(n)).digest() * (BYTES // 64)


class Store(World):
    OPTIONS = ["--pool-size", "4M", "--extent-size", "1M", "--host-size", "16M"]

    def objects(self, domain="objects", bytes=BYTES, **more):
        store = kvmm.Objects(domain, bytes, model="test", **more)
        self.addCleanup(store.close)
        return store

    def store(self, store, numbers):
        """Create objects.  Return: how many are new."""
        numbers = list(numbers)
        with store.create([name(n) for n in numbers]) as items:
            for n, item in zip(numbers, items):
                if item.held:
                    item.view[:] = content(n)
        self.assertLessEqual({i.status for i in items}, {0, errno.EEXIST})
        return sum(item.held for item in items)

    def there(self, store, numbers):
        """Numbers of the objects that are there; their content is checked."""
        numbers = list(numbers)
        found = []
        for first in range(0, len(numbers), 16):
            some = numbers[first:first + 16]
            with store.get([name(n) for n in some]) as items:
                for n, item in zip(some, items):
                    if item.held:
                        self.assertEqual(item.view, content(n), n)
                        found.append(n)
        return found


class One(Store):
    def test_store(self):
        store = self.objects()
        self.assertEqual(self.there(store, range(4)), [])
        self.assertEqual(store.exists([name(1)]), [None])
        self.assertEqual(self.store(store, range(20)), 20)
        self.assertEqual(self.store(store, range(10, 30)), 10)
        self.assertEqual(self.there(store, range(40)), list(range(30)))
        self.assertEqual(store.exists([name(1), name(35), name(2)]), ["device", None, "device"])
        self.assertEqual(store.exists([]), [])
        self.assertEqual(store.info.block_bytes, BYTES)
        self.assertEqual((store.alive, store.draining, store.resumed), (True, False, (0, 0)))
        self.assertEqual([d["name"] for d in kvmm.stats("domains")["domains"]], ["objects"])

    def test_items(self):
        store = self.objects()
        self.store(store, [1])
        with store.create([name(1), name(2), name(3)]) as items:
            self.assertEqual([i.status for i in items], [errno.EEXIST, 0, 0])
            self.assertEqual([i.held for i in items], [False, True, True])
            self.assertIsNone(items[0].view)
            self.assertFalse(items[1].view.readonly)
            items[1].view[:] = content(2)
            items[2].drop()
            self.assertEqual(repr(items[0]), "Item(b'\\x01\\x00\\x00\\x00key', EEXIST)")
        self.assertEqual(items[2].status, errno.ECANCELED)
        with store.get([name(2), name(3)]) as items:
            self.assertEqual([i.status for i in items], [0, errno.ENOENT])
            self.assertEqual((items[0].view.readonly, len(items[0].view)), (True, BYTES))
            self.assertEqual((items[0].view.format, items[0].key), ("B", name(2)))
            self.raises_line(TypeError, "read-only", items[0].view.__setitem__, 0, 1)
            at = (ctypes.c_ubyte * BYTES).from_address(items[0].address)
            self.assertEqual(bytes(at), content(2))
            kept = items[0].view
        self.assertIsNone(items[0].view)
        self.raises_line(ValueError, "released", kept.__getitem__, 0)

    def test_exception(self):
        """An exception gives objects up; their memory is free again."""
        store = self.objects()
        for _ in range(6):
            with self.assertRaises(ZeroDivisionError):
                with store.create([name(n) for n in range(60)]) as items:
                    self.assertTrue(all(i.held for i in items))
                    items[0].view[0] = 1 / 0
        self.assertEqual(store.exists([name(0)]), [None])
        self.assertEqual(self.store(store, range(60)), 60)
        with self.assertRaises(ZeroDivisionError):
            with store.get([name(0)]):
                1 / 0
        self.assertEqual(self.there(store, [0]), [0])

    def test_convenience(self):
        store = self.objects()
        self.assertTrue(store.put("text", content(1)))
        self.assertFalse(store.put("text", content(2)))
        into = [bytearray(BYTES) for _ in range(2)]
        self.assertEqual(store.load_into(["text", "no"], into), [True, False])
        self.assertEqual(into, [content(1), bytes(BYTES)])
        self.assertEqual(store.delete(["text", "no"]), [True, False])
        self.assertEqual(store.exists(["text"]), [None])
        self.assertTrue(store.put("text", memoryview(content(2)).cast("Q")))
        self.assertEqual(store.load_into(["text"], into[:1]), [True])
        self.assertEqual(into[0], content(2))

    def test_split(self):
        """More keys than one call of the library takes."""
        store = self.objects(steps=2)
        self.assertEqual(self.store(store, range(50)), 50)
        names = [name(n) for n in range(150)]
        self.assertEqual(store.exists(names), ["device"] * 50 + [None] * 100)
        with store.get(names[:128]) as items:
            self.assertEqual(sum(i.held for i in items), 50)
            self.assertEqual([i.key for i in items], names[:128])
            self.assertEqual(items[49].view, content(49))
        self.raises_line(ValueError, "at most 128 objects", store.get(names).__enter__)
        buffers = [bytearray(BYTES) for _ in names]
        self.assertEqual(store.load_into(names, buffers), [n < 50 for n in range(150)])
        self.assertEqual(buffers[49], content(49))
        self.assertEqual(store.delete(names), [n < 50 for n in range(150)])
        self.assertEqual(set(store.exists(names)), {None})

    def test_small_objects(self):
        """Two arrays are committed at once."""
        store = self.objects("small", 16384)
        names = [name(n) for n in range(200)]
        with store.create(names) as items:
            for n, item in enumerate(items):
                item.view[:4] = n.to_bytes(4, "little")
        with store.get(names) as items:
            self.assertEqual([bytes(i.view[:4]) for i in items],
                             [n.to_bytes(4, "little") for n in range(200)])

    def test_bad(self):
        for size in (0, 4095, -4096, 8 << 30):
            self.raises_line(ValueError, "multiple of 4096", self.objects, bytes=size)
        self.raises_line(ValueError, "steps: 1 to 4", self.objects, steps=5)
        self.raises_line(TypeError, "Objects has no argument colour", self.objects, colour=1)
        self.raises_line(ValueError, "identity has 3 bytes", self.objects, identity=b"abc")
        store = self.objects()
        self.raises_line(kvmm.Refused, "in use by another model", self.objects, bytes=8192)
        self.raises_line(ValueError, "5 bytes, but an object has 65536", store.put, "a", b"short")
        self.raises_line(ValueError, "2 keys, and 1 buffers", store.load_into, "ab", [bytes(BYTES)])
        self.raises_line(ValueError, "read-only", store.load_into, "a", [bytes(BYTES)])
        self.raises_line(ValueError, "twice", store.create, ["a", "a"])
        self.raises_line(TypeError, "not int", store.get, [5])
        self.raises_line(ValueError, "at least one byte", store.exists, [b""])
        batch = store.get(["a"])
        with batch:
            pass
        self.raises_line(kvmm.Closed, "once", batch.__enter__)

    def test_keys(self):
        key = bytes(range(32))
        self.assertEqual(key_of(key), key)
        self.assertEqual(key_of(bytearray(b"ab")), b"ab" + bytes(30))
        others = [b"ab\0", key + b"x", key + b"\0", "ab", b"\0", b"a"]
        self.assertEqual(len({key_of(k) for k in others} | {key_of(b"ab"), key}), 8)
        self.assertEqual({len(key_of(k)) for k in others}, {32})
        self.assertEqual(key_of("ä"), hashlib.blake2b(b"\xc3\xa4", digest_size=32,
                                                      person=b"kvmm-text").digest())
        self.assertEqual(key_of(b"a" * 40), hashlib.blake2b(b"a" * 40, digest_size=32,
                                                            person=b"kvmm-bytes").digest())

    def test_no_memory(self):
        store, other = self.objects(), self.objects()
        with store.create([name(n) for n in range(64)]) as items:
            self.assertTrue(all(i.held for i in items))
            start = time.monotonic()
            with other.create([name(100)], timeout=0.2) as (item,):
                self.assertEqual(item.status, errno.EAGAIN)
            self.assertLess(time.monotonic() - start, 5)
            self.raises_line(kvmm.Again, "objects_create", other.put, "x", content(1), timeout=0)

    def test_nested(self):
        """Gets end in any order; a create is the first batch of its thread."""
        store = self.objects(steps=3)
        self.store(store, range(3))
        for _ in range(5):
            with store.create([name(9)]) as (new,):
                with store.get([name(0)]) as (one,):
                    with store.get([name(1)]) as (two,):
                        self.raises_line(kvmm.Again, "steps=",
                                         store.get([name(2)], timeout=0.1).__enter__)
                        self.raises_line(kvmm.Error, "holds objects", store.create("x").__enter__)
                        self.raises_line(kvmm.Error, "holds objects", store.delete, "x")
                        self.assertEqual(two.view, content(1))
                    self.assertEqual(one.view, content(0))
                self.assertEqual(store.exists([name(9)]), [None])
                new.view[:] = content(9)
            self.assertEqual(self.there(store, [9]), [9])
            self.assertEqual(store.delete([name(9)]), [True])
        self.assertEqual(store._open, [])

    def test_lease(self):
        store = self.objects()
        self.store(store, range(8))
        self.raises_line(kvmm.NotFound, "object_lease", store.lease, name(99), 10)
        self.raises_line(ValueError, "16 characters", store.lease, name(1), 1, "x" * 17)
        with store.lease(name(5), 60, "it") as lease:
            for first in range(1000, 1400, 50):
                self.store(store, range(first, first + 50))
            left = self.there(store, range(8))
            self.assertIn(5, left)
            self.assertLess(len(left), 8)
            lease.renew(90)
        self.raises_line(kvmm.Closed, "lease is closed", lease.renew, 1)


    def test_gpu(self):
        """A pool that cannot be read here: items have addresses alone."""
        with mock.patch.object(kvmm._attach.Attachment, "in_host_memory", False):
            store = self.objects()
        with store.create([name(1)]) as (item,):
            self.assertEqual((item.held, item.view), (True, None))
            self.assertGreater(item.address, 0)
        for call, data in ((store.put, content(1)), (store.load_into, [bytearray(BYTES)])):
            self.raises_line(kvmm.Error, "memory of a GPU", call, [name(1)], data)


class Tiers(Store):
    def test_tiers(self):
        """More than the device pool holds: the rest is in the host pool, and comes back."""
        store = self.objects()
        for first in range(0, MANY, 40):
            self.assertEqual(self.store(store, range(first, first + 40)), 40)
        tiers = store.exists([name(n) for n in range(MANY)])
        self.assertLessEqual({"device", "host"}, set(tiers))
        self.assertNotIn(None, tiers)
        for _ in range(2):
            self.assertEqual(self.there(store, range(MANY)), list(range(MANY)))

    def test_held(self):
        """What is held stays where it is."""
        store, other = self.objects(), self.objects()
        self.store(store, range(16))
        with store.get([name(n) for n in range(16)]) as items:
            for first in range(100, 100 + MANY, 40):
                self.store(other, range(first, first + 40))
            self.assertEqual(other.delete([name(1)]), [True])
            self.assertEqual([n for n in range(16) if items[n].view != content(n)], [])


OTHER = """
import kvmm, sys
from test_objects import content, name
with kvmm.Objects("objects", 65536, model="test") as store:
    with store.get([name(n) for n in range(10)]) as items:
        print(sum(i.held and i.view == content(n) for n, i in enumerate(items)))
    store.put(name(50), content(50))
    with store.create([name(51)]) as (item,):
        print("holds", flush=True)
        sys.stdin.read()
"""


class Processes(Store):
    def other(self):
        env = {**os.environ, "PYTHONPATH": f"{TOP}/python:{TOP}/python/tests"}
        child = subprocess.Popen([sys.executable, "-c", OTHER], env=env, text=True,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child

    def test_share(self):
        store = self.objects()
        self.store(store, range(10))
        child = self.other()
        self.assertEqual(child.stdout.readline(), "10\n")
        self.assertEqual(child.stdout.readline(), "holds\n")
        self.assertEqual(self.there(store, [50, 51]), [50])
        child.stdin.close()
        self.assertEqual(child.wait(), 0)
        self.assertEqual(store.exists([name(51)]), ["device"])

    def test_one_dies(self):
        """A client that dies loses what it had not committed, and no more."""
        store = self.objects()
        self.store(store, range(10))
        child = self.other()
        child.stdout.readline()
        child.stdout.readline()
        child.kill()
        child.wait()
        child.stdin.close()
        self.assertTrue(until(lambda: len(kvmm.stats("clients")["clients"]) == 1))
        self.assertEqual(self.there(store, [*range(10), 50, 51]), [*range(10), 50])
        self.assertEqual(self.store(store, [51]), 1)

    def test_fork(self):
        store = self.objects()
        self.store(store, [1])
        pid = os.fork()
        if not pid:
            try:
                store.exists([name(1)])
            except kvmm.Closed:
                store.close()
                os._exit(0)
            os._exit(1)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertEqual(self.there(store, [1]), [1])


class Threads(Store):
    def round(self, store, i, n):
        mine = range(1000 * (i + 1) + 8 * n, 1000 * (i + 1) + 8 * n + 8)
        self.assertEqual(self.store(store, mine), 8)
        self.assertEqual(self.there(store, mine), list(mine))
        self.store(store, range(8 * n, 8 * n + 8))          # all threads store these
        with store.get([name(k) for k in range(8 * n, 8 * n + 8)]) as items:
            for k, item in enumerate(items):
                self.assertIn(item.status, (0, errno.ENOENT))
                if item.held:
                    self.assertEqual(item.view, content(8 * n + k))
        self.assertEqual(store.delete([name(k) for k in mine]), [True] * 8)
        self.assertEqual(store.exists([name(k) for k in mine]), [None] * 8)

    def test_one_store(self):
        store = self.objects()
        raised = together(8, lambda i: [self.round(store, i, n) for n in range(8)])
        self.assertEqual(raised, [])
        self.assertEqual((store._open, store._room._free), ([], 4))
        self.assertEqual(kvmm.stats("vmstat")["vmstat"]["nr_seqs"], 0)

    def test_kill(self):
        store = self.objects()

        def work(i):
            if i:
                for n in range(4):
                    self.round(store, i, n)
            else:
                time.sleep(0.2)
                self.kill_daemon()

        self.assertEqual(together(8, work), [])
        store.nop()
        self.assertEqual(store.resumed[0], 1)

    def test_order(self):
        """A create that is not the oldest batch waits; a get does not."""
        store, order = self.objects(), []
        self.store(store, range(2))
        began, go = threading.Event(), threading.Event()

        def work(i):
            if not i:
                with store.get([name(0)]):
                    began.set()
                    go.wait(10)
                    order.append("first")
                return
            began.wait(10)
            with store.get([name(1)]):
                pass
            order.append("get")
            with store.create([name(7)]):
                threading.Timer(0.3, go.set).start()
            order.append("create")

        self.assertEqual(together(2, work), [])
        self.assertEqual(order, ["get", "first", "create"])


class Kill(Store):
    def test_held(self):
        """The next kvmm has the objects, also those that are being written."""
        store = self.objects()
        self.store(store, range(8))
        with store.create([name(n) for n in range(20, 28)]) as new:
            with store.get([name(n) for n in range(8)]) as old:
                self.kill_daemon()
                for n, item in enumerate(new):
                    item.view[:] = content(20 + n)
                store.nop()
                self.assertEqual(store.resumed, (1, 0))
                self.assertEqual([n for n in range(8) if old[n].view != content(n)], [])
        there = [*range(8), *range(20, 28)]
        self.assertEqual(self.there(store, there), there)

    def test_stale(self):
        """A daemon that gave the memory away is seen at the end of each kind of batch."""
        store = self.objects()
        self.store(store, range(2))
        real = store._at.locked

        def locked(call, *args):
            ret = real(call, *args)
            if call == "kvmm_objects_put":
                return -errno.ESTALE
            if call == "kvmm_objects_commit":
                args[0][0].status = -errno.ESTALE
            return ret

        with mock.patch.object(store._at, "locked", locked):
            e = self.raises_line(kvmm.Stale, "bytes that were read", store.load_into,
                                 [name(0)], [bytearray(BYTES)])
            self.assertEqual(e.errno, errno.ESTALE)
            batch = store.create([name(5), name(6)])
            items = batch.__enter__()
            self.raises_line(kvmm.Stale, "1 objects are lost", batch.__exit__, None, None, None)
            self.assertEqual([i.held for i in items], [False, True])
        with store.get([name(0)]):
            inner = store.get([name(1)])
            inner.__enter__()
            inner.arrays[0].salvages += 1
            self.raises_line(kvmm.Stale, "bytes that were read", inner.__exit__, None, None, None)
        self.assertEqual((store._open, store._room._free), ([], 4))

    def test_for_good(self):
        store = self.objects()
        self.store(store, range(2))
        with self.assertRaises(kvmm.Ended):
            with store.get([name(0)]) as (item,):
                self.stop_daemon()
                self.assertIn(bytes(item.view), (content(0), bytes(BYTES)))
                self.assertTrue(until(lambda: bytes(item.view) == bytes(BYTES)))
        self.raises_line(kvmm.Ended, "daemon", store.exists, ["a"])
        self.raises_line(kvmm.Ended, "daemon", store.put, "a", content(1))
        self.assertFalse(store.alive)


class Close(Store):
    def nr_clients(self):
        return len(kvmm.stats("clients")["clients"])

    def test_use_after_close(self):
        store = self.objects()
        self.store(store, [1])
        lease = store.lease(name(1), 10)
        store.close()
        store.close()
        for call in (store.nop, lambda: store.exists(["a"]), lambda: store.put("a", content(1)),
                     lambda: store.load_into(["a"], [bytearray(BYTES)]),
                     lambda: store.delete(["a"]), lambda: store.lease("a", 1),
                     lambda: store.info, lambda: store.exists([]), store.get("a").__enter__,
                     store.create("a").__enter__, lease.prefetch):
            self.raises_line(kvmm.Closed, "closed", call)
        self.assertFalse(store.alive)
        self.assertTrue(until(lambda: not self.nr_clients()))

    def test_close_while_held(self):
        store = self.objects()
        with self.assertRaises(kvmm.Closed):
            with store.create([name(1), name(2)]) as items:
                view = items[0].view
                store.close()
                self.raises_line(ValueError, "released", view.__getitem__, 0)
        self.assertTrue(until(lambda: not self.nr_clients()))
        self.assertEqual(self.objects().exists([name(1)]), [None])

    def test_array(self):
        """An array made of a view outlives the store: it is readable."""
        store = self.objects()
        with store.create([name(1)]) as (item,):
            array = (ctypes.c_ubyte * BYTES).from_buffer(item.view)
            array[:] = content(1)
        store.close()
        self.assertEqual(bytes(array), content(1))
        self.assertEqual(self.nr_clients(), 1)
        del array
        gc.collect()
        self.assertTrue(until(lambda: not self.nr_clients()))

    def test_garbage(self):
        store = kvmm.Objects("objects", BYTES)
        store.put("a", content(1))
        del store
        gc.collect()
        self.assertTrue(until(lambda: not self.nr_clients()))


if __name__ == "__main__":
    unittest.main()
