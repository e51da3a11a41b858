# SPDX-License-Identifier: Apache-2.0
"""Attacks on memory: programs that fork, die, stop, or keep what is not theirs any more.

usage: attacker_memory.py SOCKET UID ATTACK SEED
"""
import ctypes
import itertools
import os
import select
import signal
import sys
import time

import kvmm
from attacker import ATTACKS, Self, attack, breach, ready, told
from victim import BYTES, MARK
from wire import C, LIBC, second_mapping

MOST = 256      # objects: the whole pool


def fill(s):
    """Store objects until there is no more memory.  Return: their keys."""
    names = []
    for first in range(0, MOST, 16):
        some = [f"{n}" for n in range(first, first + 16)]
        with s.create(some, timeout=0.3) as items:
            for item in items:
                if item.held:
                    ctypes.memset(item.address, 0xee, BYTES)
        names += [item.key for item in items if item.held]
    return names


def hold_new(s):
    """Hold as many new objects as a step takes, and one at least."""
    for n in itertools.count():
        batch = s.create([f"new {n} {i}" for i in range(64)], timeout=0.3)
        items = [item for item in batch.__enter__() if item.held]
        if items:
            return items
        batch.__exit__(None, None, None)


def hold(s, names):
    """Hold all of them that are on the device.

    The last ones are first: to ask for one that is not there may evict one that is.
    """
    items = []
    names = names[::-1]
    for first in range(0, len(names), 64):
        batch = s.get(names[first:first + 64], timeout=0)
        try:
            items += batch.__enter__()
        except kvmm.Error:
            break
    return [item for item in items if item.held]


def second(s):
    """Map all extents of a store a second time."""
    at = s._at
    place, size = int(at.ffi.cast("uintptr_t", at.lib.kvmm_pool(at.k))), at.info.extent_size
    with at.turn:
        maps = [second_mapping(place + i * size, size) for i in range(at.info.nr_extents)]
    return [m for m in maps if m is not None]


def search_and_write(maps):
    """Look for content of victims in memory that was theirs never, and write there."""
    for m in maps:
        if MARK in bytes(m):
            breach("a kept mapping has content of a victim")
            return
        ctypes.memset(m, 0xdd, len(m))


def haunt(maps):
    """Until the test says so."""
    while not select.select([sys.stdin], [], [], 0)[0]:
        search_and_write(maps)
        time.sleep(0.005)
    search_and_write(maps)
    print("haunted", flush=True)


# ---- forks ----

@attack
def twin_rings(me):
    """Parent and child use one ring at once, and say different things with one number."""
    w = me.wire()
    own = w.seq(range(40))
    pid = os.fork()
    end = time.monotonic() + 2
    while w.alive and time.monotonic() < end:
        w.put("NOP" if pid else "SEQ_OPEN", *(() if pid else (1, bytes(32))))
        w.publish()
        w.call("SEQ_CLOSE", 1, w.args("kvmm_seq_arg", [{"seq": own + me.rng.randrange(3)}]))
        if me.rng.randrange(8) == 0:
            w.tail = w.dctl.sq_head + 200      # beyond what the other one has said
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)


@attack
def child_of_library(me):
    """Children use the parent's client, through the package and below it, and end."""
    s = me.store()
    with s.create(["twin"]) as (item,):
        item.view[:] = b"p" * BYTES
        for how in range(4):
            pid = os.fork()
            if not pid:
                with open(os.devnull, "w") as null:
                    os.dup2(null.fileno(), 2)
                if how == 0:
                    os._exit(0)
                if how == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                if how == 2:
                    s._at.lib.kvmm_nop(s._at.k)
                    os._exit(0)
                ctypes.memset(item.address, 0x55, BYTES)
                s.close()
                os._exit(0)
            os.waitpid(pid, 0)
    with s.get(["twin"]) as (item,):
        if not item.held or item.view != b"p" * BYTES:
            breach("a child changed an object of its parent")
    s.close()


@attack
def orphan(me):
    """The parent dies; its child has the memory, writes and searches it."""
    s = me.store()
    fill(s)
    maps = second(s)
    if os.fork():
        os.kill(os.getpid(), signal.SIGKILL)
    LIBC.prctl(1, 0)        # it does not end with its parent
    ready()
    haunt(maps)
    os._exit(0)


# ---- no attack ----

@attack
def greedy(me):
    """Its prompt needs more memory than there is beside victims: it waits until the test says so."""
    c = kvmm.Client(me.domain, model="attack", layers=2, kv_heads=2, k_bytes=128, v_bytes=128,
                    socket=me.path)
    seq = c.open(range(15000), 100)
    ready()
    while not select.select([sys.stdin], [], [], 0)[0]:
        try:
            seq.wait_ready(0.05)
            breach("a sequence has more memory than there is")
            break
        except kvmm.Timeout:
            pass
    c.close()


# ---- deaths ----

@attack
def dies(me):
    """kill -9 of itself: leases, held objects, half an object, an open step."""
    s = me.store()
    c = kvmm.Client(me.domain + "-2", model="a", layers=2, kv_heads=2, k_bytes=128, v_bytes=128,
                    socket=me.path)
    s.put("whole", b"w" * BYTES)
    lease = s.lease("whole", 600)
    seq = c.open(range(100), 100)
    seq.wait_ready(10)
    seq.step(range(100)).__enter__()
    seq.block(0)[:100] = b"x" * 100
    new = s.create(["half 1", "half 2"])
    for item in new.__enter__():
        item.view[:BYTES // 2] = b"h" * (BYTES // 2)
    held = s.get(["whole"])
    held.__enter__()
    ready()
    told()
    os.kill(os.getpid(), signal.SIGKILL)
    return lease, held


@attack
def stops_in_hold(me):
    """It holds all that it can, stops, and would write later."""
    s = me.store()
    names = fill(s)
    items = hold_new(s) + hold(s, names)
    ready()
    os.kill(os.getpid(), signal.SIGSTOP)
    for item in items:
        ctypes.memset(item.address, 0xcc, BYTES)
    breach("a stopped program that held memory went on")


@attack
def stops(me):
    """It holds nothing, and gives no memory back."""
    s = me.store()
    fill(s)
    ready()
    os.kill(os.getpid(), signal.SIGSTOP)
    breach("a stopped program that kept memory went on")


@attack
def hangs_up(me):
    """It hangs up in a step, lives on and writes."""
    w = me.wire()
    w.step(w.seq(range(40)))
    w.sock.close()
    ready()
    while True:
        for _, m, _ in w.extents.values():
            m[:] = b"\xbb" * len(m)
        w.bell()
        time.sleep(0.005)


# ---- memory that was given back ----

@attack
def liar(me):
    """It says that it unmapped memory, and did not."""
    s = me.store()
    fill(s)
    maps = second(s)
    ready()
    haunt(maps)
    s.close()


@attack
def detached(me):
    """It detaches, lives on and writes."""
    s = me.store()
    fill(s)
    maps = second(s)
    s.close()
    ready()
    haunt(maps)


@attack
def away(me):
    """The daemon died; it does not resume, and writes to what it had."""
    w = me.wire(features=C["KVMM_FEAT_RESUME"])
    seq = w.seq(range(64), 2000)
    w.step(seq, 1500)
    ready()
    haunt([(ctypes.c_ubyte * len(m)).from_buffer(m) for _, m, _ in w.extents.values()])


def main():
    path, uid, name, seed = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    ATTACKS[name](Self(path, uid, name, seed))
    os._exit(0)


if __name__ == "__main__":
    main()
