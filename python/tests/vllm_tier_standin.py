# SPDX-License-Identifier: Apache-2.0
"""What the tier sees of vLLM: the classes of its offloading, and a manager of a primary tier.

The content of a block is a digest of its key, so a block of another key, or none, is found.
"""
import hashlib
import sys
import time
import types
from dataclasses import dataclass
from enum import Enum, auto
from types import SimpleNamespace as Space

import vllm_standin
from world import until

ROW = 20480         # bytes of a block of the primary tier


class LookupResult(Enum):
    MISS = auto()
    HIT = auto()
    HIT_PENDING = auto()
    RETRY = auto()


@dataclass
class JobResult:
    job_id: int
    success: bool
    successful_keys: object = None
    transfer_time: float = None
    transfer_bytes: int = None


class Base:
    """As SecondaryTierManager."""

    def __init__(self, offloading_spec, primary_kv_view, tier_type, backpressure_detector=None):
        self.tier_type = tier_type


def install():
    """Put modules that are called vllm in the place of the real ones."""
    vllm_standin.install()
    for path in "v1", "v1.kv_offload", "v1.kv_offload.base", "v1.kv_offload.tiering", \
            "v1.kv_offload.tiering.base":
        sys.modules[f"vllm.{path}"] = types.ModuleType(f"vllm.{path}")
    base = sys.modules["vllm.v1.kv_offload.base"]
    base.LookupResult = LookupResult
    base.Medium = Enum("Medium", "CPU STORAGE")
    base.Locality = Enum("Locality", "LOCAL REMOTE")
    base.RequestOffloadingContext = type("RequestOffloadingContext", (), {})
    tiering = sys.modules["vllm.v1.kv_offload.tiering.base"]
    tiering.SecondaryTierManager, tiering.JobResult = Base, JobResult


def spec_of(vllm, row=ROW, **more):
    """The spec of vLLM's offloading; more: fields of its configs by name."""
    def space(**fields):
        return Space(**{k: more.get(k, v) for k, v in fields.items()})

    return Space(config=Space(
        extra_config=vllm.kv_transfer_config.kv_connector_extra_config,
        parallel=space(world_size=1, tp_size=1, pp_size=1, pcp_size=1, dcp_size=1),
        cache=space(blocks_per_chunk=1, tokens_per_hash=16),
        groups=[space(group_id=0, tokens_per_block=16, layer_names=("layers.0",))],
        **vars(space(worker_kv_bytes_per_block=row, replicated_layout=False,
                     canonical_layout=False, kv_cache_layout="LBHNC"))))


def make(kind, view, settings, vllm_config, kv_cache_config, spec):
    """As vLLM's scheduler makes a tier: its configs are variables of a caller."""
    return kind(offloading_spec=spec, primary_kv_view=view, tier_type="KvmmTier",
                backpressure_detector=None, **settings)


def key(i, group=0):
    return hashlib.sha256(str(i).encode()).digest() + group.to_bytes(4, "big")


def content(k):
    return (hashlib.sha256(b"content" + k).digest() * (ROW // 32 + 1))[:ROW]


class Manager:
    """A primary tier of @rows, and one tier below it."""

    def __init__(self, kind, settings, rows=256, row=ROW, spec=None, **more):
        vllm, cache = vllm_standin.configs(**more)
        self.memory = bytearray(rows * row)
        self.view = memoryview(self.memory).cast("b", (rows, row))
        self.row = row
        self.tier = make(kind, self.view, settings, vllm, cache, spec or spec_of(vllm, row))
        self.free = list(range(rows))
        self.jobs = {}
        self.next = 0
        self.longest = 0.0

    def close(self):
        self.tier.shutdown()
        self.view.release()
        self.memory.clear()     # BufferError, if anything still refers to it

    def call(self, method, *args):
        begin = time.monotonic()
        result = getattr(self.tier, method)(*args)
        self.longest = max(self.longest, time.monotonic() - begin)
        return result

    def block(self, i):
        return memoryview(self.memory)[i * self.row:(i + 1) * self.row]

    def submit(self, keys, load):
        """Return: the number of the job, the rows."""
        self.next += 1
        rows = [self.free.pop() for _ in keys]
        for k, row in zip(keys, rows):
            self.block(row)[:] = b"\xee" * self.row if load else content(k)
        job = Space(job_id=self.next, keys=keys, chunk_ids=rows)
        self.call("submit_load" if load else "submit_store", job)
        return self.next, rows

    def result(self, number, seconds=20):
        """The JobResult, or None."""
        def poll():
            self.jobs.update({r.job_id: r for r in self.call("get_finished_jobs")})
            return number in self.jobs
        until(poll, seconds)
        return self.jobs.pop(number, None)

    def store(self, keys):
        number, rows = self.submit(keys, load=False)
        result = self.result(number)
        self.free += rows
        return result

    def look(self, keys, request="r", seconds=20):
        """One list of lookups after the other, until none is to be tried again."""
        context, seen = Space(req_id=request), []

        def step():
            seen[:] = [self.call("lookup", k, context) for k in keys]
            self.call("on_schedule_end", None)
            return LookupResult.RETRY not in seen
        until(step, seconds)
        return [s is LookupResult.HIT for s in seen]

    def finish(self, request="r"):
        self.call("on_request_finished", Space(req_id=request))

    def load(self, keys):
        """(JobResult, for each key: is its content there?)"""
        number, rows = self.submit(keys, load=True)
        result = self.result(number)
        right = [self.block(row) == content(k) for k, row in zip(keys, rows)]
        self.free += rows
        return result, right
