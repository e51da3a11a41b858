# SPDX-License-Identifier: Apache-2.0
"""vllm_world.py - real vLLMs on a CPU, a daemon, and checks that are counted

A Vllm is a child process.  It takes orders as lines of JSON and answers with the tokens of each
request, the tokens of its prompt that were found, and the times of its answer.
"""
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from child import next_line

BLOCK = 32                  # tokens; vLLM's CPU attention takes multiples of 32
START_SECONDS, ANSWER_SECONDS = 600, 900
# Exact numbers need a scheduler that waits on a busy machine.
PATIENT = {"lookup_seconds": 1.0, "load_seconds": 20.0, "save_seconds": 5.0, "retry_seconds": 1.0}


def kvmm_connector(extra, name="KvmmConnector", module="kvmm.vllm"):
    return {"kv_connector": name, "kv_connector_module_path": module, "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute", "kv_connector_extra_config": extra}


# ---- a child: one vLLM ----

class Chat:
    """Requests one after another; each prompt has all that was said before."""

    def __init__(self, number, order):
        self.number, self.turns = number, list(order["chats"][number])
        self.history, self.turn = [], 0
        self.salt = order.get("salt")
        self.answers = []

    def begin(self, engine, params):
        self.history += self.turns[self.turn]
        self.turn += 1
        prompt = {"prompt_token_ids": list(self.history)}
        if self.salt:
            prompt["cache_salt"] = self.salt
        self.begun, self.times, self.seen = time.monotonic(), [], 0
        engine.add_request(f"{self.number}.{self.turn}.{self.begun}", prompt, params)

    def step(self, out):
        """Return: is the answer complete?"""
        ids = out.outputs[0].token_ids
        if len(ids) > self.seen:
            self.seen = len(ids)
            self.times.append(time.monotonic() - self.begun)
        if not out.finished:
            return False
        self.answers.append({"ids": list(ids), "found": out.num_cached_tokens,
                             "times": [round(t, 5) for t in self.times]})
        self.history += list(ids)
        return True


def run_chats(engine, order, params):
    """Run the chats of an order, all at once or one after another."""
    chats = [Chat(i, order) for i in range(len(order["chats"]))]
    waiting, running = chats[:], {}
    most = len(chats) if order["together"] else 1
    while waiting or running:
        while waiting and len(running) < most:
            chat = waiting.pop(0)
            chat.begin(engine, params)
            running[chat.number] = chat
        for out in engine.step():
            chat = running[int(out.request_id.split(".")[0])]
            if not chat.step(out):
                continue
            if chat.turn < len(chat.turns):
                chat.begin(engine, params)
            else:
                del running[chat.number]
    return [a for chat in chats for a in chat.answers]


def child(model, config):
    from vllm import LLM, SamplingParams

    args = {"dtype": "float32", "enforce_eager": True, "block_size": BLOCK, "seed": 0,
            "max_model_len": 1024, "enable_prefix_caching": False, "max_num_seqs": 8,
            "gpu_memory_utilization": 0.1, "skip_tokenizer_init": True,
            "disable_log_stats": False, **config}
    engine = LLM(model, **args).llm_engine
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if order.get("reset"):
            print("answer", json.dumps(engine.reset_prefix_cache(False, True)), flush=True)
            continue
        params = SamplingParams(temperature=0, max_tokens=order["new"], ignore_eos=True,
                                detokenize=False)
        begin = time.monotonic()
        answers = run_chats(engine, order, params)
        engine.do_log_stats()       # the counters of the connector
        print("answer", json.dumps({
            "ids": [a["ids"] for a in answers], "found": [a["found"] for a in answers],
            "times": [a["times"] for a in answers],
            "seconds": round(time.monotonic() - begin, 2)}), flush=True)


# ---- seen from outside ----

class Vllm:
    def __init__(self, name, world, connector=None, model=None, **config):
        self.name, self.world = name, world
        if connector:
            config["kv_transfer_config"] = connector
        self.command = [sys.executable, __file__, model or world.model, json.dumps(config)]
        self.log = open(Path(world.folder) / f"{name}.log", "a+")
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
            text=True, env=self.world.env, start_new_session=True)

    def _line(self, word, seconds):
        line = next_line(self.process, word, seconds)
        if line is not None:
            return line
        raise SystemExit(f"vLLM {self.name} ended:\n{self.said('')[-3000:]}")

    def wait(self):
        self._line("ready", START_SECONDS)
        print(f"note: vLLM {self.name} is ready", flush=True)
        return self

    def order(self, **order):
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self._line("answer ", ANSWER_SECONDS))

    def run(self, prompts, together=False, new=16, **more):
        return self.order(chats=[[p] for p in prompts], together=together, new=new, **more)

    def chat(self, chats, new=16):
        return self.order(chats=chats, together=True, new=new)

    def said(self, word):
        self.log.flush()
        text = Path(self.log.name).read_text()
        return "\n".join(line for line in text.splitlines() if word in line)

    def kill(self):
        """kill -9 of all of its processes."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self):
        self.process.stdin.close()
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            return None


class World:
    """A daemon in a folder of its own, and the vLLMs that use it."""

    def __init__(self, build, model, folder):
        self.build, self.model, self.folder = Path(build), model, folder
        self.hold, self.vllms = None, []
        self.env = {**os.environ, "KVMM_RUNDIR": folder, "VLLM_CPU_KVCACHE_SPACE": "1",
                    "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_STREAM": "ext://sys.stderr",
                    "VLLM_NO_USAGE_STATS": "1",
                    # Threads of one vLLM that wait may not keep the cores from another.
                    "OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0", "GOMP_SPINCOUNT": "0",
                    "PYTHONPATH": f"{Path(__file__).resolve().parent}:"
                                  f"{os.environ.get('PYTHONPATH', '')}"}
        os.environ["KVMM_RUNDIR"] = folder

    def start_daemon(self, *options):
        self.options = options or self.options
        self.hold = subprocess.Popen(
            [self.build / "kvmm-hold", "--backend", "host", *self.options],
            stderr=open(Path(self.folder) / "hold.log", "a"))
        subprocess.run([self.build / "kvctl", "wait", "--timeout", "20"], check=True)

    def pid_of(self, name):
        """The daemon's process of that name, or None."""
        children = Path(f"/proc/{self.hold.pid}/task/{self.hold.pid}/children").read_text().split()
        for pid in map(int, children):
            below = Path(f"/proc/{pid}/task/{pid}/children")
            try:
                for p in [pid, *map(int, below.read_text().split())]:
                    if Path(f"/proc/{p}/comm").read_text().strip() == name:
                        return p
            except OSError:
                pass
        return None

    def signal(self, name, number=signal.SIGKILL):
        pid = self.pid_of(name)
        if pid:
            os.kill(pid, number)
        return pid

    def stop_daemon(self):
        if self.hold:
            self.hold.terminate()
            self.hold.wait()
            self.hold = None

    def vllm(self, name, *args, **kwargs):
        self.vllms.append(Vllm(name, self, *args, **kwargs))
        return self.vllms[-1]

    def stats(self, table):
        out = subprocess.run([self.build / "kvctl", "--json", table], capture_output=True, text=True)
        return json.loads(out.stdout)       # a list of records

    def close(self):
        codes = [v.close() for v in self.vllms if v.process.poll() is None]
        self.stop_daemon()
        print(f"note: exit statuses {codes}", flush=True)


class Checks:
    def __init__(self):
        self.nr = self.bad = 0

    def check(self, what, ok, seen=""):
        self.nr += 1
        self.bad += not ok
        print(f"{'ok' if ok else 'FAILED'}: {what}{': ' + str(seen) if seen != '' else ''}",
              flush=True)

    def answers(self, what, out, right, found=None):
        """The tokens are @right, those of vLLM alone, and what was found is as arithmetic says."""
        same = sum(a == b for a, b in zip(out["ids"], right))
        self.check(f"{what}: tokens of vLLM alone", same == len(right) == len(out["ids"]),
                   f"{same} of {len(right)} answers, {out['seconds']} s")
        if found is not None:
            self.check(f"{what}: found", out["found"] == found, short(out["found"], found))
        else:
            print(f"note: {what}: found {short(out['found'], [])}", flush=True)

    def no_faults(self, vllms):
        for v in vllms:
            faults = v.said("kvmm: a fault")
            self.check(f"no fault in {v.name}", faults == "", faults[:300])

    def end(self):
        print(f"{self.nr - self.bad} passed, {self.bad} failed", flush=True)
        return self.bad == 0


def short(found, wanted):
    """Few numbers as they are; of many their sum, and how many are as they should be."""
    if len(found) <= 16:
        return found
    as_wanted = sum(a == b for a, b in zip(found, wanted)) if wanted else len(found)
    return f"{sum(found)} tokens, {as_wanted} of {len(found)} prompts as arithmetic says"


def tokens(rng, nr):
    return [rng.randrange(300, 4000) for _ in range(nr)]


def prompts(nr, shared, own, groups=1, seed=1):
    """@nr prompts for each of @groups; those of a group have their first @shared tokens alike."""
    rng, out = random.Random(seed), []
    for _ in range(groups):
        head = [0] + tokens(rng, shared - 1)
        out += [head + tokens(rng, own) for _ in range(nr)]
    return out


def run(checks):
    """checks(world) with a world; the process's arguments are BUILD and MODEL."""
    os.environ["KVMM_CONFIG"] = "none"
    os.environ.setdefault("KVMM_LIBCUDA", "/nonexistent/libcuda.so.1")
    good = False
    with tempfile.TemporaryDirectory(prefix="kvmm-vllm.") as folder:
        world = World(sys.argv[1], sys.argv[2], folder)
        try:
            good = checks(world)
        finally:
            world.close()
            keep = os.environ.get("KVMM_CHECK_LOGS")
            if keep:
                subprocess.run(f"mkdir -p '{keep}' && cp '{folder}'/*.log '{keep}'", shell=True)
    sys.exit(not good)


if __name__ == "__main__":
    child(sys.argv[1], json.loads(sys.argv[2]))
