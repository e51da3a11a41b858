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
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

BLOCK = 32                  # tokens; vLLM's CPU attention takes multiples of 32
PROMPTS, SHARED, OWN, NEW = 8, 256, 144, 16
FAULT = "KVMM_CHECK_FAULT"  # names a file; while it is there, loads fail
START_SECONDS, ANSWER_SECONDS = 600, 120


def faulty_connector():
    """KvmmConnector, whose loads fail while a file is there."""
    from kvmm.vllm import KvmmConnector

    class FaultyConnector(KvmmConnector):
        times = {}

        def shutdown(self):
            for name, (nr, seconds, most) in self.times.items():
                print(f"kvmm-times {name}: {nr} calls, {seconds * 1e3:.1f} ms, "
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
            __import__("ctypes").memset(at + middle * stride, 0x3c, size)
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


# ---- a child: one vLLM ----

def child(model, extra):
    from vllm import LLM, SamplingParams
    from vllm.config import KVTransferConfig

    more = {}
    if extra is not None:
        more["kv_transfer_config"] = KVTransferConfig(
            kv_connector="FaultyConnector", kv_connector_module_path="vllm_check",
            kv_role="kv_both", kv_load_failure_policy="recompute",
            kv_connector_extra_config=extra)
    llm = LLM(model, dtype="float32", enforce_eager=True, block_size=BLOCK, max_model_len=1024,
              enable_prefix_caching=False, gpu_memory_utilization=0.1, seed=0,
              max_num_seqs=8, skip_tokenizer_init=True, **more)
    params = SamplingParams(temperature=0, max_tokens=NEW, ignore_eos=True, detokenize=False)
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        begin = time.monotonic()
        batches = [order["prompts"]] if order["together"] else [[p] for p in order["prompts"]]
        outs = [o for b in batches for o in
                llm.generate([{"prompt_token_ids": p} for p in b], params, use_tqdm=False)]
        print("answer " + json.dumps({
            "ids": [list(o.outputs[0].token_ids) for o in outs],
            "found": [o.num_cached_tokens for o in outs],
            "seconds": round(time.monotonic() - begin, 2)}), flush=True)


class Vllm:
    """A child, from outside."""

    def __init__(self, name, model, extra, folder, env):
        self.log = open(Path(folder) / f"{name}.log", "w+")
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, __file__, "child", model, json.dumps(extra)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, env=env)

    def _line(self, word, seconds):
        timer = threading.Timer(seconds, self.process.kill)
        timer.start()
        try:
            for line in self.process.stdout:
                if line.startswith(word):
                    return line[len(word):]
        finally:
            timer.cancel()
        raise SystemExit(f"vLLM {self.name} ended:\n{self.said('')[-3000:]}")

    def wait(self):
        self._line("ready", START_SECONDS)

    def run(self, prompts, together=False):
        self.process.stdin.write(json.dumps({"prompts": prompts, "together": together}) + "\n")
        self.process.stdin.flush()
        return json.loads(self._line("answer ", ANSWER_SECONDS))

    def said(self, word):
        self.log.flush()
        text = Path(self.log.name).read_text()
        return "\n".join(line for line in text.splitlines() if word in line)

    def close(self):
        self.process.stdin.close()
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return None


class Daemon:
    def __init__(self, build, folder):
        self.build, self.folder, self.hold = build, folder, None

    def start(self):
        self.hold = subprocess.Popen(
            [self.build / "kvmm-hold", "--backend", "host", "--pool-size", "64M"],
            stderr=open(Path(self.folder) / "hold.log", "a"))
        subprocess.run([self.build / "kvctl", "wait", "--timeout", "20"], check=True)

    def kill(self):
        """kill -9 of kvmm; kvmm-hold starts the next one."""
        children = Path(f"/proc/{self.hold.pid}/task/{self.hold.pid}/children").read_text().split()
        for pid in children:
            if Path(f"/proc/{pid}/comm").read_text().strip() == "kvmm":
                os.kill(int(pid), signal.SIGKILL)
                return

    def stop(self):
        if self.hold:
            self.hold.terminate()
            self.hold.wait()
            self.hold = None


# ---- checks ----

class Checks:
    def __init__(self, right):
        self.right = right
        self.nr = self.bad = 0

    def check(self, what, ok, seen=""):
        self.nr += 1
        self.bad += not ok
        print(f"{'ok' if ok else 'FAILED'}: {what}{': ' + str(seen) if seen != '' else ''}",
              flush=True)

    def answers(self, what, out, found=None):
        same = sum(a == b for a, b in zip(out["ids"], self.right))
        self.check(f"{what}: tokens of vLLM alone", same == len(self.right),
                   f"{same} of {len(self.right)} answers, {out['seconds']} s")
        if found is not None:
            self.check(f"{what}: found", out["found"] == found, out["found"])
        else:
            print(f"note: {what}: found {out['found']}", flush=True)


def prompts():
    rng = random.Random(1)
    shared = [0] + [rng.randrange(300, 4000) for _ in range(SHARED - 1)]
    return [shared + [rng.randrange(300, 4000) for _ in range(OWN)] for _ in range(PROMPTS)]


def killed_during(daemon, vllm, asked, times=3):
    """The answers of requests during which kvmm is killed."""
    stop = threading.Event()

    def killer():
        for _ in range(times):
            stop.wait(0.4)
            daemon.kill()

    thread = threading.Thread(target=killer)
    thread.start()
    outs = [vllm.run(asked) for _ in range(3)]
    thread.join()
    return outs


def loads_fail(c, two, asked, whole, fault):
    Path(fault).touch()
    c.answers("loads fail", two.run(asked))
    c.check("loads fail: vLLM recomputed", "Recovered from KV load failure" in two.said(""))
    os.unlink(fault)
    time.sleep(1.5)
    c.answers("loads work again", two.run(asked), [whole] * PROMPTS)


def daemon_ends(c, daemon, one, two, asked, whole):
    daemon.stop()
    for vllm in (one, two):
        c.answers(f"no daemon, {vllm.name} vLLM", vllm.run(asked), [0] * PROMPTS)
        lines = vllm.said("vLLM goes on without kvmm")
        c.check("and it says so", lines != "", lines.splitlines()[-1][:300] if lines else "")
    daemon.start()
    time.sleep(2.5)
    two.run(asked)      # finds the daemon, and saves
    time.sleep(2.5)
    two.run(asked)
    c.answers("another daemon", two.run(asked), [whole] * PROMPTS)


def checks(build, model, folder):
    fault = os.path.join(folder, "fault")
    daemon = Daemon(build, folder)
    env = {**os.environ, "KVMM_RUNDIR": folder, FAULT: fault, "VLLM_CPU_KVCACHE_SPACE": "1",
           "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_STREAM": "ext://sys.stderr", "VLLM_NO_USAGE_STATS": "1",
           "PYTHONPATH": f"{Path(__file__).resolve().parent}:{os.environ.get('PYTHONPATH', '')}"}
    os.environ["KVMM_RUNDIR"] = folder
    daemon.start()
    # Exact numbers need a scheduler that waits on a busy machine.
    patient = {"lookup_seconds": 1.0, "load_seconds": 20.0, "save_seconds": 5.0,
               "retry_seconds": 1.0}
    children = []
    try:
        for name, extra in ("alone", None), ("one", patient), ("two", patient):
            children.append(Vllm(name, model, extra, folder, env))
        for child in children:
            child.wait()
            print(f"note: vLLM {child.name} is ready", flush=True)
        return run_checks(daemon, children, fault)
    finally:
        codes = [v.close() for v in children]
        for v in children:
            for line in v.said("kvmm-times").splitlines():
                print(f"note: {v.name}: {line[line.index('kvmm-times') + 11:]}", flush=True)
        daemon.stop()
        print(f"note: exit statuses {codes}", flush=True)


def run_checks(daemon, children, fault):
    alone, one, two = children
    asked = prompts()
    right = alone.run(asked)
    alone_again = alone.run(asked)
    c = Checks(right["ids"])
    c.answers("vLLM alone, again", alone_again, [0] * PROMPTS)
    whole = (SHARED + OWN - 1) // BLOCK * BLOCK
    c.answers("the first vLLM", one.run(asked), [0] + [SHARED] * (PROMPTS - 1))
    c.answers("the second vLLM", two.run(asked), [whole] * PROMPTS)
    c.answers("all at once", two.run(asked, together=True), [whole] * PROMPTS)
    daemon.kill()
    c.answers("kill -9 between", one.run(asked), [whole] * PROMPTS)
    for i, out in enumerate(killed_during(daemon, one, asked)):
        c.answers(f"kill -9 during, {i + 1}", out)
    c.answers("after it", two.run(asked), [whole] * PROMPTS)
    loads_fail(c, two, asked, whole, fault)
    daemon_ends(c, daemon, one, two, asked, whole)
    for v in (one, two):
        faults = v.said("kvmm: a fault")
        c.check(f"no fault in {v.name}", faults == "", faults[:300])
    print(f"{c.nr - c.bad} passed, {c.bad} failed", flush=True)
    return c.bad == 0


def main():
    if sys.argv[1] == "child":
        return child(sys.argv[2], json.loads(sys.argv[3]))
    os.environ["KVMM_CONFIG"] = "none"
    os.environ.setdefault("KVMM_LIBCUDA", "/nonexistent/libcuda.so.1")
    with tempfile.TemporaryDirectory(prefix="kvmm-vllm.") as folder:
        try:
            good = checks(Path(sys.argv[1]), sys.argv[2], folder)
        finally:
            keep = os.environ.get("KVMM_CHECK_LOGS")
            if keep:
                subprocess.run(f"mkdir -p '{keep}' && cp '{folder}'/*.log '{keep}'", shell=True)
    sys.exit(not good)


if __name__ == "__main__":
    main()
