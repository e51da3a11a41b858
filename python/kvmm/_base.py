# SPDX-License-Identifier: Apache-2.0
"""What a Client and a store of Objects have in common: the attachment, and what it knows."""
import atexit
import weakref
from dataclasses import dataclass

from . import _lib
from ._attach import Attachment

LIMITS = ("min_bytes", "low_bytes", "high_bytes", "swap_max_bytes")
TIERS = ("device", "host", "area", "moving")
_clients = weakref.WeakSet()


@atexit.register
def _close_all():
    for client in list(_clients):
        client.close()


@dataclass(frozen=True)
class Info:
    """The daemon's answer at attach."""
    client: int         # ids in the daemon's files
    domain: int
    memory: str         # "host" or "cuda"
    block_bytes: int
    stride: tuple       # bytes between two layers of a block, for each group
    unit: int           # bytes of one step of a table entry
    max_seqs: int
    max_steps: int
    max_batch: int
    pool: int
    daemon_epoch: int


def identity_of(ffi, lib, constants, model, identity):
    """The digest that says which clients may share KV."""
    size = constants["KVMM_IDENTITY_LEN"]
    if identity is not None:
        if len(identity) != size:
            raise ValueError(f"identity has {len(identity)} bytes, not {size}")
        return ffi.new("u8[]", bytes(identity))
    fields = model if isinstance(model, dict) else {"model": model}
    state, out = ffi.new("struct kvmm_identity *"), ffi.new("u8[]", size)
    lib.kvmm_identity_init(state)
    for tag, data in fields.items():
        data = data if isinstance(data, (bytes, bytearray, memoryview)) else str(data).encode()
        lib.kvmm_identity_add(state, tag.encode(), ffi.from_buffer(data), len(data))
    lib.kvmm_identity_final(state, out)
    return out


class Attached:
    """One attachment to the daemon."""

    def _check_limits(self, limits):
        wrong = [name for name in limits if name not in LIMITS]
        if wrong:
            raise TypeError(f"{type(self).__name__} has no argument {wrong[0]}")

    def _attach(self, domain, *, model, identity, socket, max_bytes, pool, timeout, groups,
                **fields):
        """Attach with @groups, a list of dicts or of struct kvmm_group."""
        ffi, lib, constants = _lib.load()
        digest = identity_of(ffi, lib, constants, model, identity)
        name = ffi.new("char[]", str(domain).encode())
        where = ffi.NULL if socket is None else ffi.new("char[]", str(socket).encode())
        self._at = Attachment(ffi.new("struct kvmm_params *", {
            "domain": name, "socket": where, "identity": digest, "nr_groups": len(groups),
            "group": groups,
            "max_bytes": constants["KVMM_LIMIT_MAX"] if max_bytes is None else max_bytes,
            "pool": 0 if pool is None else pool + 1,
            "attach_timeout_ms": max(1, int(timeout * 1000)), **fields}))
        self.domain = str(domain)
        self._nr_groups = len(groups)
        weakref.finalize(self, setattr, self._at, "abandoned", True)
        _clients.add(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def info(self):
        with self._at.turn:
            self._at.check()
            return self._info(self._at.info)

    def _info(self, i):
        return Info(client=i.client, domain=i.domain,
                    memory="host" if self._at.in_host_memory else "cuda",
                    block_bytes=i.block_bytes, stride=tuple(i.stride[0:self._nr_groups]),
                    unit=i.unit, max_seqs=i.max_seqs, max_steps=i.max_steps,
                    max_batch=i.max_batch, pool=i.pool, daemon_epoch=i.daemon_epoch)

    @property
    def alive(self):
        """Does the attachment stand?"""
        return not self._at.closed and bool(self._at.call("kvmm_alive"))

    @property
    def draining(self):
        """Does the daemon refuse new sequences of this client?"""
        return bool(self._at.call("kvmm_draining"))

    @property
    def resumed(self):
        """(times that the daemon died and the next one went on, of these: lost open steps)"""
        salvaged = self._at.ffi.new("u32 *")
        return self._at.call("kvmm_resumed", salvaged), salvaged[0]

    def nop(self):
        """Ask the daemon for an answer, and nothing else."""
        self._at.must("NOP", self._at.call("kvmm_nop"))

    def wait(self, seconds):
        """Wait until something may have changed, for a slice of @seconds at most."""
        self._at.wait(seconds)


def label_of(at, label):
    """A label of leases, for cffi."""
    size = at.constants["KVMM_LABEL_LEN"]
    if label is None:
        return at.ffi.NULL
    if not (len(label) <= size and label.isascii()):
        raise ValueError(f"a label has at most {size} characters of ASCII")
    return at.ffi.new("char[]", label.encode())
