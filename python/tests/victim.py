# SPDX-License-Identifier: Apache-2.0
"""An honest program beside attackers: it reads and writes objects, and knows what they hold.

usage: victim.py SOCKET UID FILE OBJECTS ROUNDS

FILE has the words of Words, which the test shares.  ROUNDS 0: until `stop`; the objects
have leases, and must be there.  Else until all objects were there in so many rounds.
"""
import ctypes
import errno
import hashlib
import mmap
import os
import sys
import time
import traceback

BYTES = 65536
MARK = b"KVMM-VICTIM-KEEP"      # in each 64 bytes of each object
CHURN = 4                       # objects that each round stores and drops
MIN_BYTES = 2 << 20


class Words(ctypes.Structure):
    """What test and victim tell each other."""
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "rounds", "worst_us", "bad", "pause", "paused", "stop")]


def words_of(path):
    with open(path, "r+b") as f:
        return Words.from_buffer(mmap.mmap(f.fileno(), ctypes.sizeof(Words)))


def content(store, who, n):
    digest = hashlib.blake2b(f"{who} {n}".encode(), digest_size=48).digest()
    return (MARK + digest) * (store.object_bytes // 64)


def some(numbers):
    """Parts that one call of the library takes."""
    return [numbers[first:first + 48] for first in range(0, len(numbers), 48)]


def look(store, who, numbers):
    """(numbers of objects with another content, numbers of those that are not there)"""
    bad, lost = [], []
    for part in some(numbers):
        with store.get([f"{n}" for n in part], timeout=20) as items:
            for n, item in zip(part, items):
                if not item.held:
                    lost.append(n)
                elif item.view != content(store, who, n):
                    bad.append(n)
    return bad, lost


def store_all(store, who, numbers):
    """Return: numbers of those that got no memory."""
    refused = []
    for part in some(numbers):
        with store.create([f"{i}" for i in part], timeout=20) as items:
            for i, item in zip(part, items):
                if item.held:
                    item.view[:] = content(store, who, i)
        refused += [i for i, item in zip(part, items) if item.status not in (0, errno.EEXIST)]
    return refused


def one_round(store, who, keep, n):
    """Return: as look() of the objects that are kept, and what else was bad."""
    bad, lost = look(store, who, keep)
    new = range(1000 + n * CHURN, 1000 + (n + 1) * CHURN)
    refused = store_all(store, who, new)
    more, _ = look(store, who, [i for i in new if i not in refused])
    store.delete([f"{i}" for i in new])
    return bad, lost, refused + more


def main():
    import kvmm
    from wire import become

    path, file = sys.argv[1], sys.argv[3]
    uid, nr, rounds = (int(sys.argv[i]) for i in (2, 4, 5))
    words = words_of(file)
    size = 4 if rounds else 1
    domain = "newcomer" if rounds else "victim"
    store = kvmm.Objects(domain, size * BYTES, model="victim", socket=become(uid, path),
                         min_bytes=size * MIN_BYTES)
    keep = list(range(nr))
    n = 0
    start = time.monotonic()
    words.bad = len(store_all(store, uid, keep))    # it holds all of them at once
    words.worst_us = int((time.monotonic() - start) * 1e6)
    if not rounds:
        leases = [store.lease(f"{i}", 600) for i in keep]
    while not words.stop and not (rounds and words.rounds == rounds):
        if words.pause:
            words.paused = 1
            time.sleep(0.002)
            continue
        words.paused = 0
        start = time.monotonic()
        bad, lost, more = one_round(store, uid, keep, n)
        n += 1
        words.worst_us = max(words.worst_us, int((time.monotonic() - start) * 1e6))
        if rounds and lost:     # it has no lease
            more += store_all(store, uid, lost)
            lost = []
        else:
            words.rounds += 1
        if bad or lost or more:
            print("bad:", bad, "lost:", lost, "of this round:", more, flush=True)
            words.bad += len(bad + lost + more)
        time.sleep(0.03)
    store.close()


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
