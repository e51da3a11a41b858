# SPDX-License-Identifier: Apache-2.0
"""Programs that mean harm: each attack is a process.

A line BREACH tells of something that must be impossible.  `ready` tells the test that the
attack stands, and the test answers with a line when it may end.
"""
import ctypes
import mmap
import os
import random
import socket
import struct
import sys
import time

import kvmm
from victim import BYTES
from wire import C, FFI, LIBC, PUNCH, Wire, answer, become, connect, request

ATTACKS = {}
U32, U64 = 2 ** 32 - 1, 2 ** 64 - 1
OWN_ERRORS = (kvmm.Error, ValueError, OverflowError, OSError)


def attack(function):
    ATTACKS[function.__name__] = function
    return function


def breach(text):
    print("BREACH:", text, flush=True)


def ready():
    print("ready", flush=True)


def told():
    """Has the test said that this may end?  Waits for it."""
    sys.stdin.readline()


class Self:
    """The process: where the daemon is, its own domain, its random numbers."""

    def __init__(self, path, uid, name, seed):
        self.path = become(uid, path)
        self.domain = f"attack-{name}"
        self.rng = random.Random(seed)

    def wire(self, domain=None, **fields):
        return Wire(self.path, domain or self.domain, **fields)

    def store(self, domain=None, **more):
        return kvmm.Objects(domain or self.domain, BYTES, model="attack", socket=self.path, **more)


def settle(w, seconds=0.2):
    """Show the daemon all entries, and wait until it has served or expelled."""
    w.publish()
    while w.alive and w.take(seconds=seconds) is not None:
        pass


# ---- lies in the rings ----

@attack
def tail_ahead(me):
    w = me.wire()
    w.tail += w.rep.sq_entries + 1 + me.rng.randrange(2 ** 31)
    settle(w)


@attack
def tail_back(me):
    w = me.wire()
    w.call("NOP")
    w.tail -= 1
    settle(w)


@attack
def head_ahead(me):
    w = me.wire()
    w.call("NOP")
    w.ctl.cq_head = w.taken + 1 + me.rng.randrange(1000)
    w.put("NOP")
    settle(w)


@attack
def args_outside(me):
    w = me.wire()
    w.put("SEQ_OPEN", 1, bytes(32), arg_off=me.rng.choice([w.rep.arg_bytes - 8, U32 - 7]))
    settle(w)


@attack
def number_again(me):
    w = me.wire()
    w.call("NOP")
    w.number -= 1
    w.put("NOP")
    settle(w)


@attack
def speaks(me):
    w = me.wire()
    w.sock.send(request(me.domain))
    settle(w)


@attack
def hole(me):
    w = me.wire()
    w.call("NOP")
    if LIBC.fallocate(w.fds[0], PUNCH, 0, 4096):
        raise OSError(ctypes.get_errno(), "no hole")
    w.bell()
    settle_without_tail(w)


def settle_without_tail(w):
    end = time.monotonic() + 2
    while w.alive and time.monotonic() < end:
        w.bell()
        time.sleep(0.01)


@attack
def scribble(me):
    """Garbage over all of segment C: heads, tails, entries, arguments."""
    w = me.wire()
    w.seq(range(40))
    end = time.monotonic() + 3
    while w.alive and time.monotonic() < end:
        at = me.rng.randrange(w.rep.c_bytes - 64)
        w.c[at:at + 64] = me.rng.randbytes(64)
        w.c[0:4] = me.rng.randbytes(4)
        w.bell()


@attack
def sealed(me):
    """What the kernel refuses: to write segment D, to cut memory, to seal it."""
    w = me.wire()
    seq = w.seq(range(40))
    w.step(seq)
    try:
        mmap.mmap(w.fds[1], w.rep.d_bytes)
        breach("segment D was mapped for writing")
    except OSError:
        pass
    for fd in (*w.fds[:2], *(e[2] for e in w.extents.values())):
        for length in (0, 4096, 2 ** 30):
            try:
                os.ftruncate(fd, length)
                breach(f"memory was cut to {length}")
            except OSError:
                pass
    for call in (lambda: os.pwrite(w.fds[1], b"x", 0),
                 lambda: LIBC.fallocate(w.fds[1], PUNCH, 0, 4096) or 1):
        try:
            if call() == 1 and w.d[0:1] == b"x":
                breach("segment D was written")
        except OSError:
            pass
    if not w.alive:
        breach("it was expelled")


# ---- lies in good requests: the daemon answers, and does not expel ----

@attack
def entries(me):
    """All verbs with random arguments, and with handles of others, forged or closed."""
    w = me.wire()
    own = w.seq(range(40))
    verbs = [name[8:] for name in C if name.startswith("KVMM_OP_") and name != "KVMM_OP_DETACH"]
    for n in range(150):
        handles = [own, own ^ 2 ** 32, me.rng.randrange(64) | me.rng.randrange(8) << 32,
                   me.rng.getrandbits(64)]
        nr = me.rng.randrange(1, 6)
        args = b"".join(struct.pack("Q", me.rng.choice(handles)) + me.rng.randbytes(
            me.rng.choice([0, 8, 16, 24, 40])) for _ in range(nr))
        verb = me.rng.choice(verbs)
        step = me.rng.randrange(4) if verb.startswith("STEP") else 0
        if w.call(verb, nr, args, step=step) is None:
            break
    if w.alive:
        w.call("NOP")


@attack
def keys(me):
    """Names, keys, identities and lease numbers of the victims."""
    names = [f"{n}" for n in range(24)]
    for domain in ("victim", me.domain):
        store = kvmm.Objects(domain, BYTES, model="victim", socket=me.path)
        if os.geteuid() or domain == me.domain:     # else it may: it is of the victim's tenant
            if any(store.exists(names)) or any(store.delete(names)):
                breach("an object of another domain was found")
            store.put("0", bytes(BYTES))
            store.delete(["0"])
        store.close()
    client = kvmm.Client(me.domain + "-2", model="a", layers=2, kv_heads=2, k_bytes=128,
                         v_bytes=128, socket=me.path)
    for number in [*range(1, 60), U64, 2 ** 63]:
        try:
            client.open(range(40), 8, lease=number).close()
        except OWN_ERRORS:
            pass
    for _ in range(40):
        found = kvmm.Found(16, 16, {}, 0, (me.rng.getrandbits(64), me.rng.getrandbits(64)))
        try:
            if client.lease(found, 60).held:
                breach("a cookie that was made up has a lease")
        except OWN_ERRORS:
            pass
    client.close()


@attack
def twice(me):
    """Commit, put, delete and end of a lease twice; arrays that the library never made."""
    s = me.store()
    at, lib, ffi = s._at, s._at.lib, s._at.ffi

    def fresh(n):
        return ffi.new("struct kvmm_object[]", [
            {"key": {"byte": list(str(n).encode().ljust(32, b"\0"))}}])

    for last in (lib.kvmm_objects_commit, lib.kvmm_objects_put):
        with at.turn:
            o = fresh(me.rng.randrange(10 ** 6))
            lib.kvmm_objects_create(at.k, o, 1, 10 ** 9)
            o[0].key.byte[5] = 7            # another key than the one that was created
            seq, step = o[0].seq, o[0].step
            last(at.k, o, 1)
            for call in (lib.kvmm_objects_commit, lib.kvmm_objects_put, lib.kvmm_objects_delete):
                o[0].seq, o[0].step, o[0].status = seq, step, 0
                call(at.k, o, 1)
            for _ in range(20):
                o = fresh(3)
                o[0].seq, o[0].step = me.rng.getrandbits(40), me.rng.getrandbits(4)
                o[0].addr = ffi.cast("void *", 4096)
                lib.kvmm_objects_commit(at.k, o, 1)
                lib.kvmm_objects_put(at.k, o, 1)
    s.put("a", bytes(BYTES))
    for ms in (0, 1, U32):
        with at.turn:
            res = ffi.new("struct kvmm_lease_res *")
            name = ffi.new("struct kvmm_key *", {"byte": list(b"a".ljust(32, b"\0"))})
            lib.kvmm_object_lease(at.k, name, ms, ffi.NULL, res)
            ends = ffi.new("u64[]", [res.seq] * 3)
            lib.kvmm_seq_close(at.k, ends, 3)
            lib.kvmm_seq_close(at.k, ends, 1)
    lease = s.lease("a", 5)
    for value in (0, 1, 2 ** 63, U64):
        try:
            lease.advise("keep_until", value)
        except OWN_ERRORS:
            pass


@attack
def acks(me):
    """Lies about extents: never sent, of other generations, unmapped twice."""
    w = me.wire()
    w.seq(range(40))
    for n in range(60):
        w.call("EXTENT_ACK", 1, w.args("kvmm_ack_arg", [
            {"extent": me.rng.choice([0, 1, 5, 15, 16, U32]), "what": me.rng.randrange(4),
             "generation": me.rng.choice([0, 1, 2, 7, U32])}]))


# ---- the socket ----

WRONG = [
    {"magic": 5}, {"abi_version": 0}, {"abi_version": 1}, {"abi_version": U32},
    {"layout_hash": 1}, {"flags": 4}, {"flags": U32}, {"features": U64}, {"domain": b""},
    {"domain": b"x" * 64}, {"domain": b"\n\33[2J"}, {"domain": b"../../victim"},
    {"identity": bytes(32), "domain": b"victim"}, {"block_tokens": 0}, {"block_tokens": 17},
    {"block_tokens": 2 ** 31}, {"nr_shards": 0}, {"nr_shards": U32}, {"nr_groups": 0},
    {"nr_groups": U32}, {"max_steps": 0}, {"max_steps": U32}, {"sq_entries": 3},
    {"sq_entries": 2 ** 31}, {"max_seqs": U32}, {"weight": 0}, {"weight": U32},
    {"step_tokens": U32}, {"pool": U32}, {"shard": U32}, {"shard": 1, "leader": 1},
    {"leader": 1}, {"leader": 2}, {"leader": U32}, {"resv": 1},
    *({"group": [{**{"layers": 2, "kv_heads": 2, "k_bytes": 256, "v_bytes": 256}, **g}]}
      for g in ({"layers": 0}, {"layers": U32, "kv_heads": U32}, {"k_bytes": U32, "v_bytes": U32},
                {"k_bytes": 0, "v_bytes": 0}, {"k_bytes": 1}, {"window": U32}, {"kind": 7},
                {"block_tokens": 4095}, {"scale_bytes": U32})),
    *({"limits": [limits] * 3} for limits in (
        {"min": U64, "max": U64}, {"min": 5, "max": 1}, {"max": 0}, {"low": U64, "high": 1})),
    *({"flags": 1, "resume_epoch": e, "resume_client": c, "resume_token": [1, 2]}
      for e in (0, 1, U64) for c in (0, 1, 2, U32)),
]


@attack
def requests(me):
    """Requests that are wrong, cut or too long, with and without descriptors."""
    kind = FFI.new("struct kvmm_attach_req *")
    for wrong in WRONG:
        s = connect(me.path)
        FFI.buffer(kind)[:] = request(me.domain)
        for name, value in wrong.items():
            setattr(kind, name, value)
        s.send(bytes(FFI.buffer(kind)))
        rep, fds = answer(s)
        if rep is not None and not rep.status and ("leader" in wrong or wrong.get("flags") == 1):
            breach(f"attached by {wrong}")
        if rep is not None and rep.status and fds:
            breach("descriptors came with a refusal")
        if rep is not None and not rep.status:
            detach(s, rep, fds)
        s.close()
    good = request(me.domain)
    null = os.open("/dev/null", os.O_RDONLY)
    for text in (b"", b"x", good[:-1], good + b"x", good * 4, bytes(65536), good[:8]):
        for fds in ([], [null], [null] * 250):
            s = connect(me.path)
            try:
                socket.send_fds(s, [text], fds)
            except OSError:
                pass
            s.close()


def detach(s, rep, fds):
    """End an attachment that was granted."""
    c = mmap.mmap(fds[0], rep.c_bytes)
    q = FFI.new("struct kvmm_sqe *", {"op": C["KVMM_OP_DETACH"], "number": 1})
    c[rep.sq_off:rep.sq_off + 64] = bytes(FFI.buffer(q))
    c[0:4] = struct.pack("I", 1)
    os.write(fds[2], struct.pack("Q", 1))
    d = mmap.mmap(fds[1], rep.d_bytes, prot=mmap.PROT_READ)
    end = time.monotonic() + 2
    while not struct.unpack_from("I", d, 64)[0] and time.monotonic() < end:
        time.sleep(0.0005)
    for fd in fds:
        os.close(fd)


@attack
def flood(me):
    """Thousands of connections, mute or with garbage."""
    kept = []
    for n in range(2500):
        try:
            s = connect(me.path)
            if n % 3 == 1:
                s.send(me.rng.randbytes(me.rng.randrange(1, 900)))
            if n % 3 == 2:
                kept.append(s)
                if len(kept) > 40:
                    kept.pop(0).close()
            else:
                s.close()
        except OSError:
            pass
