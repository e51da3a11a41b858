# SPDX-License-Identifier: Apache-2.0
"""A client that speaks the ABI by hand, and a change of user: for the programs of test_attack."""
import array
import ctypes
import mmap
import os
import select
import socket
import struct
import time

from kvmm import _lib

FFI, LIB, C = _lib.load()
LIBC = ctypes.CDLL(None, use_errno=True)
MADV_DOFORK, MREMAP_MAYMOVE, PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 11, 1, 1, 4
LIBC.mremap.restype = ctypes.c_void_p
LIBC.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
LIBC.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
LIBC.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
PUNCH = 1 | 2       # FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE
ANSWER_SECONDS = 2


def become(uid, path):
    """Be @uid, and end with the parent.  Return: a path to the socket for that user."""
    fd = os.open(path, os.O_PATH)
    if uid != os.geteuid():
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    LIBC.prctl(PR_SET_PDEATHSIG, 9)
    LIBC.prctl(PR_SET_DUMPABLE, 1)      # else /proc/self/fd is closed to it
    return f"/proc/self/fd/{fd}"


def connect(path):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(path)
    return s


def request(domain, **fields):
    """A request for a small model that is granted; @fields replace some."""
    most = C["KVMM_LIMIT_MAX"]
    req = FFI.new("struct kvmm_attach_req *", {
        "magic": C["KVMM_ATTACH_MAGIC"], "abi_version": C["KVMM_ABI_VERSION"],
        "layout_hash": C["KVMM_LAYOUT_HASH"], "domain": domain.encode(), "identity": b"\7" * 32,
        "block_tokens": 16, "nr_shards": 1, "nr_groups": 1, "max_steps": 2, "sq_entries": 64,
        "max_seqs": 64, "weight": 100, "limits": [{"high": most, "max": most}] * 3,
        "group": [{"layers": 2, "kv_heads": 2, "k_bytes": 256, "v_bytes": 256}]})
    for name, value in fields.items():
        setattr(req, name, value)
    return bytes(FFI.buffer(req))


def answer(s, seconds=5):
    """The reply on the socket and its descriptors; None: it was closed, or none came."""
    size = FFI.sizeof("struct kvmm_attach_rep")
    if not select.select([s], [], [], seconds)[0]:
        return None, []
    try:
        data, fds, _, _ = socket.recv_fds(s, size, 16)
    except OSError:
        return None, []
    if len(data) != size:
        return None, fds
    rep = FFI.new("struct kvmm_attach_rep *")
    FFI.buffer(rep)[:] = data
    return rep, fds


class Wire:
    """One attachment."""

    def __init__(self, path, domain, **fields):
        self.sock = connect(path)
        self.sock.send(request(domain, **fields))
        self.rep, self.fds = answer(self.sock)
        if self.rep is None or self.rep.status:
            raise OSError(f"no attachment: {self.rep and FFI.string(self.rep.text)}")
        self.c = mmap.mmap(self.fds[0], self.rep.c_bytes)
        self.d = mmap.mmap(self.fds[1], self.rep.d_bytes, prot=mmap.PROT_READ)
        self.ctl = FFI.cast("struct kvmm_client_ctl *", FFI.from_buffer(self.c))
        self.base = FFI.cast("char *", FFI.from_buffer(self.d))
        self.dctl = FFI.cast("struct kvmm_daemon_ctl *", self.base)
        self.tail = self.taken = self.number = self.steps = 0
        self.extents = {}       # index: (generation, mapping)

    @property
    def alive(self):
        return self.dctl.state == C["KVMM_CLIENT_ALIVE"]

    def bell(self):
        try:
            os.write(self.fds[2], struct.pack("Q", 1))
        except OSError:
            pass

    def put(self, op, nr=0, args=b"", **fields):
        """An entry into the ring."""
        at = self.rep.sq_off + self.tail % self.rep.sq_entries * FFI.sizeof("struct kvmm_sqe")
        self.tail += 1
        self.number += 1
        q = FFI.new("struct kvmm_sqe *", {"op": C["KVMM_OP_" + op], "nr": nr,
                                          "number": self.number, "arg_len": len(args), **fields})
        self.c[at:at + FFI.sizeof("struct kvmm_sqe")] = bytes(FFI.buffer(q))
        self.c[self.rep.arg_off:self.rep.arg_off + len(args)] = args

    def publish(self):
        self.ctl.sq_tail = self.tail % 2 ** 32
        self.bell()

    def take(self, kind=None, seconds=ANSWER_SECONDS):
        """The next completion: (status, its results); None: none came."""
        end = time.monotonic() + seconds
        while self.dctl.cq_tail == self.taken % 2 ** 32:
            if not self.alive or time.monotonic() > end:
                return None
            time.sleep(0.0002)
        at = self.rep.cq_off + self.taken % self.rep.cq_entries * FFI.sizeof("struct kvmm_cqe")
        q = FFI.cast("struct kvmm_cqe *", self.base + at)
        self.taken += 1
        out = []
        if kind and q.nr and not q.status:
            size = FFI.sizeof(kind) * q.nr
            first = self.rep.result_off + q.result_off
            out = FFI.new(kind + "[]", q.nr)
            FFI.buffer(out)[:] = self.d[first:first + size]
        got = q.status, list(out), out
        self.ctl.cq_head = self.taken % 2 ** 32
        return got

    def call(self, op, nr=0, args=b"", kind=None, **fields):
        self.put(op, nr, args, **fields)
        self.publish()
        return self.take(kind)

    def args(self, kind, entries):
        return bytes(FFI.buffer(FFI.new(f"struct {kind}[]", entries)))

    def seq(self, ids, max_tokens=16):
        """An open sequence that is READY, or waits for memory."""
        got = self.call("SEQ_OPEN", 1, self.args("kvmm_open_arg", [
            {"prompt_len": len(ids), "max_tokens": max_tokens}]), "struct kvmm_open_res")
        handle = got[1][0].seq
        match = self.args("kvmm_match_arg", [{"seq": handle, "nr_ids": len(ids),
                                              "flags": C["KVMM_MATCH_LAST"]}])
        self.call("SEQ_MATCH", 1, match + array.array("I", ids).tobytes())
        end = time.monotonic() + ANSWER_SECONDS
        while self.status(handle).state != C["KVMM_SEQ_READY"] and time.monotonic() < end:
            self.look()
            time.sleep(0.001)
        return handle

    def status(self, handle):
        at = self.rep.seq_off + (handle & 0xffffffff) % self.rep.max_seqs \
            * FFI.sizeof("struct kvmm_seq_status")
        return FFI.cast("struct kvmm_seq_status *", self.base + at)

    def step(self, handle, nr=1):
        st = self.status(handle)
        self.steps += 1
        return self.call("STEP_BEGIN", 1, self.args("kvmm_begin_arg", [
            {"seq": handle, "seq_epoch": st.seq_epoch, "start": st.valid_len,
             "max_tokens": nr}]), "struct kvmm_begin_res", step=self.steps)

    def look(self):
        """Map extents that have arrived, and say so."""
        size = FFI.sizeof("struct kvmm_map_msg")
        while select.select([self.sock], [], [], 0)[0]:
            data, fds, _, _ = socket.recv_fds(self.sock, size, C["KVMM_MAP_BATCH"])
            if not data:
                return
            acks = []
            for i, fd in enumerate(fds):
                extent, generation = struct.unpack_from("II", data, 16 + 8 * i)
                self.extents[extent] = generation, mmap.mmap(fd, self.rep.extent_size), fd
                acks.append({"extent": extent, "generation": generation,
                             "what": C["KVMM_ACK_MAP"]})
            if acks:
                self.call("EXTENT_ACK", len(acks), self.args("kvmm_ack_arg", acks))


def second_mapping(address, size):
    """Map memory a second time; None: it is not mapped at once."""
    place = LIBC.mremap(address, 0, size, MREMAP_MAYMOVE)
    if place == ctypes.c_void_p(-1).value:
        return None
    LIBC.madvise(place, size, MADV_DOFORK)
    return (ctypes.c_ubyte * size).from_address(place)
