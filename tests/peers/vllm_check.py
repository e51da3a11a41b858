#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""vllm_check.py - the connector of vLLM, with the real vLLM on a CPU

usage: vllm_check.py BUILD MODEL

Three processes of vLLM run the demo model: one alone, two with kvmm.  Their own prefix caches
are off, so all that they find comes from kvmm.  Each answer must have the tokens of vLLM
alone, and each prompt must find what arithmetic says, while kvmm is killed between and during
the requests, content fails to load, and the daemon ends and comes back.  Prints a line for
each check, and their number.
"""
import ctypes
import os
import sys
import threading
import time
from pathlib import Path

from vllm_world import BLOCK, PATIENT, Checks, kvmm_connector, prompts, run

PROMPTS, SHARED, OWN = 8, 256, 144
WHOLE = (SHARED + OWN - 1) // BLOCK * BLOCK
FAULT = "KVMM_CHECK_FAULT"  # names a file; while it is there, loads fail


# ---- in vLLM: a connector with faults and times ----

def faulty_connector():
    """KvmmConnector, whose loads fail while a file is there."""
    from kvmm.vllm import KvmmConnector

    class FaultyConnector(KvmmConnector):
        times = {}

        def shutdown(self):
            for name, (nr, seconds, most) in self.times.items():
                print(f"kvmm-times {name}: {nr} calls, mean {seconds / nr * 1e3:.3f} ms, "
                      f"longest {most * 1e3:.1f} ms", file=sys.stderr, flush=True)
            super().shutdown()

        def register_kv_caches(self, kv_caches):
            super().register_kv_caches(kv_caches)
            half = self._half
            load, half._load = half._load, lambda *args: faulty_load(half, load, *args)

    for name in ("get_num_new_matched_tokens", "build_connector_meta", "bind_connector_metadata",
                 "wait_for_save", "get_transfer_results"):
        setattr(FaultyConnector, name, timed(name, getattr(KvmmConnector, name)))
    return FaultyConnector


def faulty_load(half, load, store, transfer, job, by_key):
    """A load after which its middle block has garbage and is said to have failed."""
    result = load(store, transfer, job, by_key)
    if os.path.exists(os.environ.get(FAULT, "")):
        group, middle, _ = transfer.pieces[len(transfer.pieces) // 2]
        for at, stride, size in half._places[group]:
            ctypes.memset(at + middle * stride, 0x3c, size)
        transfer.failed.add(middle)
    return result


def timed(name, method):
    """@method, which adds to times of its object."""
    def call(self, *args, **kwargs):
        begin = time.monotonic()
        try:
            return method(self, *args, **kwargs)
        finally:
            took = time.monotonic() - begin
            nr, seconds, most = self.times.get(name, (0, 0, 0))
            self.times[name] = nr + 1, seconds + took, max(most, took)
    return call


def __getattr__(name):      # vLLM asks this module for its connector
    if name == "FaultyConnector":
        return faulty_connector()
    raise AttributeError(name)


# ---- checks ----

def killed_during(world, vllm, asked, times=3):
    """The answers of requests during which kvmm is killed."""
    stop = threading.Event()

    def killer():
        for _ in range(times):
            stop.wait(0.4)
            world.signal("kvmm")

    thread = threading.Thread(target=killer)
    thread.start()
    outs = [vllm.run(asked) for _ in range(3)]
    thread.join()
    return outs


def until_found(vllm, asked):
    """Run the prompts until all of their blocks were saved, as after a daemon that forgot."""
    end = time.monotonic() + 60
    while vllm.run(asked)["found"] != [WHOLE] * PROMPTS and time.monotonic() < end:
        time.sleep(1)


def loads_fail(c, two, asked, right, fault):
    Path(fault).touch()
    c.answers("loads fail", two.run(asked), right)
    c.check("loads fail: vLLM recomputed", "Recovered from KV load failure" in two.said(""))
    os.unlink(fault)
    time.sleep(1.5)
    c.answers("loads work again", two.run(asked), right, [WHOLE] * PROMPTS)


def daemon_ends(c, world, vllms, asked, right):
    world.stop_daemon()
    for vllm in vllms:
        c.answers(f"no daemon, {vllm.name} vLLM", vllm.run(asked), right, [0] * PROMPTS)
        lines = vllm.said("vLLM goes on without kvmm")
        c.check("and it says so", lines != "", lines.splitlines()[-1][-300:] if lines else "")
    world.start_daemon()
    time.sleep(2.5)
    until_found(vllms[1], asked)
    c.answers("another daemon", vllms[1].run(asked), right, [WHOLE] * PROMPTS)


def salt_and_reset(c, two, asked, right):
    salted = [two.run(asked, salt="tenant") for _ in range(2)]
    c.answers("cache_salt, first", salted[0], right, [0] + [SHARED] * (PROMPTS - 1))
    c.answers("cache_salt, again", salted[1], right, [WHOLE] * PROMPTS)
    c.check("reset_prefix_cache", two.order(reset=True) is True)
    c.answers("after the reset", two.run(asked), right, [0] + [SHARED] * (PROMPTS - 1))


def checks(world):
    fault = world.env[FAULT] = os.path.join(world.folder, "fault")
    world.start_daemon("--pool-size", "64M")
    connector = kvmm_connector(PATIENT, "FaultyConnector", "vllm_check")
    alone, one, two = [world.vllm("alone"), world.vllm("one", connector),
                       world.vllm("two", connector)]
    for vllm in world.vllms:
        vllm.wait()
    c, asked = Checks(), prompts(PROMPTS, SHARED, OWN)
    right = alone.run(asked)["ids"]
    c.answers("vLLM alone, again", alone.run(asked), right, [0] * PROMPTS)
    c.answers("the first vLLM", one.run(asked), right, [0] + [SHARED] * (PROMPTS - 1))
    c.answers("the second vLLM", two.run(asked), right, [WHOLE] * PROMPTS)
    c.answers("all at once", two.run(asked, together=True), right, [WHOLE] * PROMPTS)
    world.signal("kvmm")
    c.answers("kill -9 between", one.run(asked), right)
    for i, out in enumerate(killed_during(world, one, asked)):
        c.answers(f"kill -9 during, {i + 1}", out, right)
    until_found(one, asked)
    until_found(two, asked)     # attaches again if the daemon began cold
    c.answers("after it", two.run(asked), right, [WHOLE] * PROMPTS)
    loads_fail(c, two, asked, right, fault)
    salt_and_reset(c, two, asked, right)
    daemon_ends(c, world, (one, two), asked, right)
    c.no_faults((one, two))
    for v in (one, two):
        v.close()
        for line in v.said("kvmm-times").splitlines():
            print(f"note: {v.name}: {line[line.index('kvmm-times') + 11:]}", flush=True)
    return c.end()


if __name__ == "__main__":
    run(checks)
