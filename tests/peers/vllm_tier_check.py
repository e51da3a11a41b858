#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""vllm_tier_check.py - the tier of vLLM's offloading, with the classes of the real vLLM

usage: vllm_tier_check.py BUILD MODEL

vLLM's TieringOffloadingManager in two processes stores blocks, evicts them from a small primary
tier, and gets them back from kvmm, while kvmm is killed, stopped and full.  Then three vLLMs
answer prompts: one alone, two with the OffloadingConnector.  vLLM 0.32 has no worker that copies
blocks to the primary tier on a CPU, so the one here does.  Prints a line for each check.
"""
import ctypes
import hashlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace as Space

from vllm_world import ANSWER_SECONDS, BLOCK, Checks, Vllm, prompts, run

PROMPTS, SHARED, OWN = 8, 256, 144

ROW = 1 << 20           # bytes of a block in the first part
ROWS = 24
# The longest call of the scheduler while the daemon is stopped: 99 percent of them, and all of
# them on a busy machine.
CALL_SECONDS, BUSY_SECONDS = 0.005, 0.1


def tier(**settings):
    return {"type": "KvmmTier", "module_path": "kvmm.vllm_tier", **settings}


# ---- a child: vLLM's manager, without its engine ----

class Manager:
    """TieringOffloadingManager, which is called as vLLM's scheduler calls it."""

    def __init__(self, name, settings):
        from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
        from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory
        from vllm.v1.kv_offload.tiering.manager import (
            CPUPrimaryTierOffloadingManager, TieringOffloadingManager)

        self.region = SharedOffloadRegion(f"kvmm-{os.getpid()}-{name}", ROWS, None, ROW, ROW)
        primary = CPUPrimaryTierOffloadingManager(ROWS, self.region)
        vllm_config, kv_cache_config, spec = self.configs()
        one = SecondaryTierFactory.create_secondary_tier(
            tier(**settings), primary.get_kv_memoryview(), spec)
        self.manager = TieringOffloadingManager(primary, [one])
        self.tier, self.times, self.nr = one, [], 0
        for method in "lookup", "submit_store", "submit_load", "get_finished_jobs", \
                "on_schedule_end", "on_new_request", "on_request_finished":
            setattr(one, method, self._timed(getattr(one, method)))

    def _timed(self, method):
        def call(*args, **kwargs):
            begin = time.monotonic()
            try:
                return method(*args, **kwargs)
            finally:
                self.times.append(time.monotonic() - begin)
        return call

    @staticmethod
    def configs():
        extra = {}
        spec = Space(block_size=BLOCK, page_size_bytes=ROW)
        group = Space(layer_names=["layers.0"], kv_cache_spec=spec)
        vllm = Space(
            model_config=Space(model="/models/none", revision=None, dtype="float32", seed=0,
                               quantization=None, hf_config="none"),
            cache_config=Space(cache_dtype="auto", prefix_caching_hash_algo="sha256"),
            parallel_config=Space(tensor_parallel_size=1), load_config=Space(load_format="auto"),
            device_config=Space(device_type="cpu"), speculative_config=None,
            kv_transfer_config=Space(kv_connector_extra_config=extra))
        cache = Space(kv_cache_groups=[group], kv_cache_layout="LBHNC", num_blocks=64)
        config = Space(
            extra_config=extra, worker_kv_bytes_per_block=ROW, replicated_layout=False,
            canonical_layout=False, kv_cache_layout="LBHNC",
            parallel=Space(world_size=1, tp_size=1, pp_size=1, pcp_size=1, dcp_size=1),
            cache=Space(blocks_per_chunk=1, tokens_per_hash=BLOCK),
            groups=(Space(group_id=0, tokens_per_block=BLOCK, layer_names=("layers.0",)),))
        return vllm, cache, Space(config=config)

    @staticmethod
    def key(i):
        from vllm.v1.kv_offload.base import make_offload_key

        return make_offload_key(hashlib.sha256(b"%d" % i).digest(), 0)

    @staticmethod
    def content(key):
        return hashlib.sha256(b"content" + key).digest() * (ROW // 32)

    def step(self):
        from vllm.v1.kv_offload.base import ScheduleEndContext

        self.manager.on_schedule_end(ScheduleEndContext((), ()))

    def _request(self):
        from vllm.v1.kv_offload.base import ReqContext

        self.nr += 1
        context = ReqContext(req_id=f"r{self.nr}")
        self.manager.on_new_request(context)
        return context

    def store(self, first, last, wait=True):
        """Blocks go to the primary tier, a few at a time.  Return: stores that vLLM refused."""
        context, refused = self._request(), 0
        for i in range(first, last, 4):
            keys = [self.key(k) for k in range(i, min(i + 4, last))]
            out = self.manager.prepare_store(keys, context)
            if out is None:
                refused += len(keys)
            else:
                for key, row in zip(out.keys_to_store, out.store_spec.chunk_ids):
                    self.memory(row)[:] = self.content(key)
                if out.keys_to_store:
                    self.manager.complete_store(out.keys_to_store, context)
            self.wait(lambda: not wait or not self.manager._jobs)
        self.manager.on_request_finished(context)
        return refused

    def memory(self, row):
        return memoryview((ctypes.c_char * ROW).from_address(
            self.tier._address + int(row) * ROW)).cast("B")

    def wait(self, condition, seconds=30):
        end = time.monotonic() + seconds
        while not condition() and time.monotonic() < end:
            self.step()
            time.sleep(0.002)

    def read(self, first, last):
        """Return: (blocks that were found, of them: those with their content)"""
        from vllm.v1.kv_offload.base import LookupResult

        context = self._request()
        found = right = 0
        for i in range(first, last):
            key, seen = self.key(i), []

            def known():
                seen[:] = [self.manager.lookup(key, context)]
                return seen[0] in (LookupResult.HIT, LookupResult.MISS)
            self.wait(known)
            if seen[0] is LookupResult.HIT:
                found += 1
                spec = self.manager.prepare_load([key], context)
                right += self.memory(spec.chunk_ids[0]) == self.content(key)
                self.manager.complete_load([key], context)
        self.manager.on_request_finished(context)
        return found, right

    def reset(self):
        self.manager.reset_cache()

    def longest(self):
        """Return: seconds of the longest call since the last one, and of 99 percent of them"""
        times, self.times = sorted(self.times), []
        return [times[-1], times[len(times) * 99 // 100]]

    def close(self):
        self.manager.shutdown()


def manager_child(name, settings):
    import logging

    logging.basicConfig(level=logging.INFO)
    m = Manager(name, settings)
    print("ready", flush=True)
    for line in sys.stdin:
        call, *args = json.loads(line)
        print("answer " + json.dumps(getattr(m, call)(*args)), flush=True)
    m.close()
    print("closed", flush=True)


class Child(Vllm):
    """A manager, from outside."""

    def __init__(self, name, world, settings):
        self.log = open(Path(world.folder) / f"tier-{name}.log", "a+")
        self.name, self.world = name, world
        self.command = [sys.executable, __file__, "manager", name, json.dumps(settings)]
        self.start()
        world.vllms.append(self)

    def send(self, *call):
        self.process.stdin.write(json.dumps(call) + "\n")
        self.process.stdin.flush()

    def answer(self):
        return json.loads(self._line("answer ", ANSWER_SECONDS))

    def call(self, *call):
        self.send(*call)
        return self.answer()


def manager_checks(c, world):
    settings = {"retry_seconds": 1.0, "lookup_seconds": 3.0, "load_seconds": 10.0,
                "store_seconds": 5.0}
    one, two = (Child(name, world, settings) for name in "ab")
    full = Child("full", world, {**settings, "domain": "full", "max_bytes": 6 * ROW})
    for child in one, two, full:
        child.wait()
    one.call("store", 0, 40)
    seen = one.call("read", 0, 40)
    c.check("40 blocks, of which 24 fit in the primary tier, come back", seen == [40, 40], seen)
    seen = two.call("read", 0, 40)
    c.check("another process finds them", seen == [40, 40], seen)
    seen = two.call("read", 1000, 1010)
    c.check("and no others", seen == [0, 0], seen)
    killed(c, world, one, two)
    stopped(c, world, one, two)
    full.call("store", 0, 16)
    full.call("reset")
    found, right = full.call("read", 0, 16)
    c.check("a full domain: the last blocks are found", 0 < found == right < 16, [found, right])
    ends(c, world, one, two)
    for child in one, two, full:
        c.check(f"{child.name} ends", child.close() == 0 and not child.said("kvmm: a fault"))


def killed(c, world, one, two):
    one.call("reset")
    world.signal("kvmm")
    seen = one.call("read", 0, 40)
    c.check("kill -9 of kvmm between", seen == [40, 40], seen)
    for i in range(2):
        for child in one, two:
            child.call("reset")
        time.sleep(2)
        one.send("store", 100 + 40 * i, 140 + 40 * i)
        two.send("read", 0, 40)
        time.sleep(0.02)
        world.signal("kvmm")
        one.answer()
        found, right = two.answer()
        c.check("kill -9 during: what is found is right", found == right, [found, right])
    one.call("reset")
    found, right = one.call("read", 0, 180)
    c.check("after it: what is found is right", found == right >= 40, [found, right])


def stopped(c, world, one, two):
    one.call("reset")
    two.call("reset")
    one.call("read", 0, 4)
    one.call("longest")
    pid = world.signal("kvmm", signal.SIGSTOP)
    try:
        begin = time.monotonic()
        seen = one.call("read", 4, 8)
        c.check("kvmm is stopped: nothing is found", seen == [0, 0],
                f"{seen}, {time.monotonic() - begin:.1f} s")
        one.call("store", 300, 308)
        longest, most = one.call("longest")
        c.check("no call of the scheduler waits", most < CALL_SECONDS and longest < BUSY_SECONDS,
                f"longest {longest * 1e3:.2f} ms, 99 % of them {most * 1e3:.2f} ms")
        one.call("store", 310, 314, False)
        begin = time.monotonic()
        one.call("reset")
        took = time.monotonic() - begin
        c.check("a reset of the cache during a store ends", took < 10, f"{took:.1f} s")
        c.check("and it says so", "took too long" in one.said(""))
    finally:
        os.kill(pid, signal.SIGCONT)
    time.sleep(1)
    seen = one.call("read", 0, 40)
    c.check("kvmm goes on", seen == [40, 40], seen)


def ends(c, world, one, two):
    world.stop_daemon()
    one.call("reset")
    seen = one.call("read", 0, 4)
    c.check("no daemon: nothing is found", seen == [0, 0], seen)
    one.call("store", 400, 404)
    lines = one.said("vLLM goes on without kvmm").splitlines()
    c.check("and it says so", bool(lines), lines[-1][:250] if lines else "")
    world.start_daemon()
    for _ in range(3):          # to see that the old one is gone, and to find the new one
        time.sleep(1.5)
        for child in one, two:
            child.call("reset")
            child.call("read", 500, 501)
    one.call("store", 0, 20)
    seen = two.call("read", 0, 20)
    c.check("another daemon: its blocks are found", seen == [20, 20], seen)


# ---- a child: vLLM with its OffloadingConnector ----

def cpu_spec():
    """vLLM's TieringOffloadingSpec, with a worker for a CPU."""
    from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
    from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
    from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

    class Worker(OffloadingWorker):
        """Copies blocks at once.  A row of the primary tier has the tensors one after another."""

        def __init__(self, caches, region, row, chunk):
            self.caches, self.region, self.row, self.chunk = caches, region, row, chunk
            self.finished = []
            self.offsets, at = [], 0
            for t in caches.tensors:
                self.offsets.append(at)
                at += t.page_size_bytes * chunk

        def _copy(self, job_id, gpu, rows, store):
            base, at, row_at, size = self.region._base.data_ptr(), 0, 0, 0
            for group, nr in enumerate(gpu.group_sizes):
                first = gpu.block_indices[group] % self.chunk
                for i in range(nr):
                    row = rows.block_ids[row_at + (first + i) // self.chunk]
                    for ref in self.caches.group_data_refs[group]:
                        t = self.caches.tensors[ref.tensor_idx]
                        block = t.tensor.data_ptr() + int(gpu.block_ids[at + i]) * \
                            t.tensor.stride(0) * t.tensor.element_size()
                        place = base + int(row) * self.row + self.offsets[ref.tensor_idx] + \
                            (first + i) % self.chunk * t.page_size_bytes
                        ctypes.memmove(*((place, block) if store else (block, place)),
                                       ref.page_size_bytes)
                        size += ref.page_size_bytes
                at, row_at = at + nr, row_at - (-(first + nr) // self.chunk) * (nr > 0)
            self.finished.append(TransferResult(job_id, True, size, 0.0))
            return True

        def submit_store(self, job_id, src_spec, dst_spec):
            return self._copy(job_id, src_spec, dst_spec, True)

        def submit_load(self, job_id, src_spec, dst_spec):
            return self._copy(job_id, dst_spec, src_spec, False)

        def get_finished(self):
            finished, self.finished = self.finished, []
            return finished

        def wait(self, job_ids):
            return

        def shutdown(self):
            self.region.cleanup()

    class CpuSpec(TieringOffloadingSpec):
        def get_worker(self, kv_caches):
            if not self._worker:
                region = SharedOffloadRegion(
                    self._engine_id, self.num_chunks, self.config.parallel.rank,
                    self.kv_bytes_per_chunk, self.cpu_page_size_per_worker)
                self._worker = Worker(kv_caches, region, self.kv_bytes_per_chunk,
                                      self.blocks_per_chunk)
            return self._worker

    return CpuSpec


def __getattr__(name):      # vLLM asks this module for its spec
    if name == "CpuSpec":
        return cpu_spec()
    raise AttributeError(name)


def engine(world, name, settings):
    """A whole vLLM with its offloading; the primary tier has room for 12 of 20 blocks."""
    extra = {"spec_name": "CpuSpec", "spec_module_path": "vllm_tier_check", "blocks_per_chunk": 2,
             "cpu_bytes_to_use": 3 << 20, "secondary_tiers": [tier(**settings)]}
    return world.vllm(name, {"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
                             "kv_connector_extra_config": extra})


def engine_checks(c, world):
    settings = {"retry_seconds": 1.0, "lookup_seconds": 5.0, "load_seconds": 20.0,
                "store_seconds": 20.0}
    alone, one, two = vllms = [world.vllm("alone"), engine(world, "one", settings),
                               engine(world, "two", settings)]
    for vllm in vllms:
        vllm.wait()
    asked = prompts(PROMPTS, SHARED, OWN)
    right = alone.run(asked)["ids"]
    whole = (SHARED + OWN - 1) // (2 * BLOCK) * 2 * BLOCK
    c.answers("the first vLLM", one.run(asked), right)
    c.answers("the second vLLM", two.run(asked), right, [whole] * PROMPTS)
    world.signal("kvmm")
    c.answers("kill -9 between", one.run(asked), right, [whole] * PROMPTS)
    timer = threading.Timer(0.3, world.signal, ["kvmm"])
    timer.start()
    c.answers("kill -9 during", one.run(asked), right)
    timer.join()
    world.stop_daemon()
    c.answers("no daemon", two.run(asked), right)
    lines = two.said("vLLM goes on without kvmm").splitlines()
    c.check("and it says so", bool(lines), lines[-1][-250:] if lines else "")
    for vllm in vllms:
        code, faults = vllm.close(), vllm.said("kvmm: a fault")
        c.check(f"vLLM {vllm.name} ends", code == 0 and not faults, f"{code} {faults[:200]}")


def checks(world):
    c, part = Checks(), os.environ.get("KVMM_CHECK_PART")
    if part != "engine":
        world.start_daemon("--pool-size", "256M")
        manager_checks(c, world)
        world.stop_daemon()
    if part != "manager":
        world.start_daemon("--pool-size", "64M")
        engine_checks(c, world)
    return c.end()


if __name__ == "__main__":
    if sys.argv[1] == "manager":
        manager_child(sys.argv[2], json.loads(sys.argv[3]))
    else:
        run(checks)
