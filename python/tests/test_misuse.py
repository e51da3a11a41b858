# SPDX-License-Identifier: Apache-2.0
"""Programs with mistakes, each in a process of its own: an exception in Python, never a signal."""
import os
import subprocess
import sys
import unittest

from world import TOP, World

HEAD = """
import array, ctypes, gc, os, struct, sys, threading, time
import kvmm

BYTES = 65536
IDS = range(40)

def store(**more):
    return kvmm.Objects("objects", BYTES, **more)

def opened():
    client = kvmm.Client("example", model="1", layers=2, kv_heads=2, k_bytes=128, v_bytes=128)
    seq = client.open(IDS, 60)
    seq.wait_ready(10)
    return client, seq

def tries(call, *args):
    try:
        print("gives", call(*args), flush=True)
    except Exception as e:
        print(type(e).__name__, e, flush=True)

def in_child(*calls):
    "Each call in a child of its own."
    for call in calls:
        pid = os.fork()
        if not pid:
            tries(call)
            sys.exit(0)         # as a program ends: atexit, garbage, other threads
        for _ in range(500):
            got = os.waitpid(pid, os.WNOHANG)
            if got[0]:
                break
            time.sleep(0.01)
        else:
            os.kill(pid, 9)
            got = os.waitpid(pid, 0)
        if got[1]:
            print("the child ended with", got[1], flush=True)
"""
CLOSED = "Closed a Client does not survive fork.*"
RELEASED = "ValueError operation forbidden on released memoryview object"


class Misuse(World):
    OPTIONS = ["--pool-size", "4M", "--extent-size", "1M", "--host-size", "16M"]

    def program(self, text, *lines, seconds=60):
        """Run HEAD and @text.  It ends with 0, and its lines match."""
        env = {**os.environ, "PYTHONPATH": f"{TOP}/python", "PYTHONWARNINGS": "ignore"}
        got = subprocess.run([sys.executable, "-u", "-X", "faulthandler", "-c", HEAD + text],
                             env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             timeout=seconds)
        self.assertEqual(got.returncode, 0, got.stdout + got.stderr)
        said = got.stdout.splitlines()
        self.assertEqual(len(said), len(lines), got.stdout + got.stderr)
        for line, want in zip(said, lines):
            self.assertRegex(line, f"^{want}$")


class Fork(Misuse):
    def test_views(self):
        """Views of the parent raise in a child; arrays read as zeros, and writes are lost."""
        self.program("""
s = store()
with s.create(["a"]) as (item,):
    item.view[:] = b"x" * BYTES
    made = (ctypes.c_ubyte * BYTES).from_buffer(item.view)
    in_child(lambda: item.view[0], lambda: made[5], lambda: made.__setitem__(0, 1) or made[0])
    print(made[0], item.view[5])
del made
with s.get(["a"]) as (item,):
    in_child(lambda: item.view[0], lambda: bytes(item.view[4:8]))
    part = item.view[4:8]
    in_child(lambda: bytes(part))
    print(bytes(part))
c, seq = opened()
with seq.step(IDS):
    block = seq.block(0)
    block[0] = 7
    in_child(lambda: block[0])
    print(block[0])
""", RELEASED, "gives 0", "gives 1", "120 120", RELEASED, RELEASED,
                     r"gives b'\\x00\\x00\\x00\\x00'", "b'xxxx'", RELEASED, "7")

    def test_calls(self):
        """Calls raise, ends of all kinds do nothing, and the parent goes on."""
        self.program("""
s = store()
s.put("a", bytes(BYTES))
c, seq = opened()
lease = s.lease("a", 30)
step = seq.step(IDS)
step.__enter__()
batch = s.get(["a"])
batch.__enter__()
def end(kind):
    return lambda: kind.__exit__(None, None, None)
in_child(seq.close, lease.close, c.close, s.close, lambda: s.alive, seq.status, c.nop,
         lambda: s.exists(["a"]), lambda: s.put("b", bytes(BYTES)), lambda: seq.block(0),
         end(step), end(batch), lambda: s.lease("a", 1), lambda: lease.renew(1), lambda: c.info)
def drop():
    global seq, lease, step, batch
    del seq, lease, step, batch
    gc.collect()
in_child(drop)
step.__exit__(None, None, None)
batch.__exit__(None, None, None)
print(seq.valid_len, s.exists(["a"]))
""", *["gives None"] * 4, "gives False", *[CLOSED] * 10, "gives None", r"40 \['device'\]")

    def test_turn(self):
        """Another thread was in a call when the process forked."""
        self.program("""
s = store()
c, seq = opened()
go = threading.Event()
def work():
    with s._at.turn, c._at.turn, s._at.step_ended:
        go.wait(30)
thread = threading.Thread(target=work)
thread.start()
time.sleep(0.1)
in_child(s.close, c.close, seq.close, lambda: s.exists(["a"]))
go.set()
thread.join()
""", *["gives None"] * 3, CLOSED)

    def test_multiprocessing(self):
        self.program("""
import multiprocessing
s = store()
s.put("a", b"y" * BYTES)
def work():
    tries(lambda: s.exists(["a"]))
    with store() as mine, mine.get(["a"]) as (item,):
        print(chr(item.view[0]), flush=True)
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
print(child.exitcode, s.exists(["a"]))
""", CLOSED, "y", r"0 \['device'\]")


class After(Misuse):
    def test_batch(self):
        """Items and views of a batch that has ended."""
        self.program("""
s = store()
kept = []
for n in range(200):
    with s.create([b"k%d" % (n % 40), b"l%d" % (n % 40)]) as items:
        view = next((i.view for i in items if i.held), None)
    kept += items
gc.collect()
tries(kept[0].drop)
tries(lambda: kept[0].view[0])
print(kept[0].object.status, len({i.held for i in kept}))
batch = s.get(["a"])
tries(batch.__exit__, None, None, None)
with s.create(["m"]) as (item,):
    view = item.view
tries(view.__setitem__, 0, 1)
tries(lambda: struct.pack_into("I", view, 0, 5))
""", "Closed the batch has ended", "TypeError .*", "0 2", "(Closed|TypeError) .*", RELEASED,
                     "(TypeError|ValueError) .*")

    def test_array(self):
        """An array made of a view outlives batch, object, memory and store."""
        self.program("""
s, other = store(), store()
with s.create(["a"]) as (item,):
    made = (ctypes.c_ubyte * BYTES).from_buffer(item.view)
    made[:] = b"a" * BYTES
s.delete(["a"])
for n in range(3):
    with other.create([b"%d-%d" % (n, i) for i in range(60)]) as items:
        for i in items:
            i.view[:] = b"b" * BYTES
print(made[0] in b"ab", made[BYTES - 1] in b"ab")
s.close()
print(made[0] in b"ab")
other.close()
made[0] = 1
print(made[0])
""", "True True", "True", "1")

    def test_close(self):
        self.program("""
s = store()
c, seq = opened()
lease = s.lease("a", 5) if s.put("a", bytes(BYTES)) else None
step = seq.step(IDS)
step.__enter__()
block = seq.block(0)
batch = s.get(["a"])
item, = batch.__enter__()
view = item.view
c.close()
s.close()
tries(lambda: block[0])
tries(lambda: view[0])
for call in (seq.status, lambda: seq.block(0), lambda: seq.block_address(0), lambda: c.info,
             lambda: step.__exit__(None, None, None), lambda: batch.__exit__(None, None, None),
             lambda: lease.renew(5), lambda: s.get("a").__enter__()):
    tries(call)
for call in (seq.close, lease.close, c.close, s.close):
    tries(call)
""", RELEASED, RELEASED, *["Closed .*"] * 8, *["gives None"] * 4)

    def test_daemon(self):
        """The daemon is gone for good: the memory that was mapped stays."""
        self.program(f"""
s = store()
with s.create(["a"]) as (item,):
    item.view[:] = b"a" * BYTES
try:
    with s.get(["a"]) as (item,):
        os.kill({self.hold.pid}, 15)
        for _ in range(500):
            if not s.alive:
                break
            time.sleep(0.01)
        print(item.view[0])
except kvmm.Ended:
    print("ended")
tries(s.exists, ["a"])
tries(s.close)
""", "97", "ended", "Ended .*", "gives None")


class Threads(Misuse):
    def test_exit(self):
        """Python ends while a thread is at work."""
        for _ in range(4):
            self.program("""
s = store()
def work():
    while True:
        s.put(os.urandom(8), bytes(BYTES), timeout=1)
sys.stderr = open(os.devnull, "w")
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
print("ends")
""", "ends")

    def test_close(self):
        """The store is closed while threads take memory and write to it."""
        self.program("""
for n in range(60):
    s, seen = store(), []
    def work():
        try:
            while True:
                s.put(os.urandom(8), bytes(BYTES), timeout=1)
        except (kvmm.Closed, ValueError) as e:
            seen.append(e)
    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    time.sleep(0.001 * (n % 8))
    s.close()
    for t in threads:
        t.join()
    assert len(seen) == 3
print("closed")
""", "closed")

    def test_ask(self):
        """Facts of an attachment that another thread closes."""
        self.program("""
for _ in range(8):
    c, seq = opened()
    with seq.step(IDS):
        pass
    def work():
        try:
            while True:
                c.info, seq.block_address(0), seq.block(0)[0]
        except ValueError:
            pass
    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    time.sleep(0.02)
    c.close()
    for t in threads:
        t.join()
print("closed")
""", "closed")


class Arguments(Misuse):
    def test_done(self):
        """A grant says more tokens than the step has."""
        self.program("""
c, seq = opened()
def step(done):
    with seq.step(IDS) as step:
        step[seq].done = done
for done in (41, 2 ** 30, -1, 1.5, None):
    tries(step, done)
print(seq.valid_len)
tries(step, 40)
print(seq.valid_len, seq.closed)
""", *["ValueError done is .*"] * 5, "0", "gives None", "40 False")

    def test_numbers(self):
        self.program("""
c, seq = opened()
s = store()
for call in (lambda: seq.fork(0), lambda: seq.fork(-1), lambda: seq.fork(100000),
             lambda: seq.table(0, 0, 10 ** 6), lambda: seq.table(0, 2 ** 32 - 1, 5),
             lambda: seq.table(9), lambda: seq.block(10 ** 8), lambda: seq.block(-1),
             lambda: c.step({}).__enter__(), lambda: c.remap({}), lambda: c.lookup([]),
             lambda: c.open(range(3000000), 5), lambda: c.open(IDS, 2 ** 32),
             lambda: seq.step(range(2000000)).__enter__(), lambda: seq.truncate(-1),
             lambda: seq.trim(10 ** 9), lambda: s.lease("a", 1e9), lambda: s.lease("a", -1),
             lambda: s.load_into(["a"], [bytearray(5)]), lambda: s.put("a", None)):
    try:
        print("gives", call())
    except (kvmm.Error, ValueError, OverflowError, IndexError, TypeError) as e:
        pass
seq.ids = array.array("B", b"123")
try:
    seq.match()
except kvmm.Error:
    pass
c.nop()
s.nop()
print("goes on")
""", "goes on")


if __name__ == "__main__":
    unittest.main()
