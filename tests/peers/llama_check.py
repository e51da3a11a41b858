#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""llama_check.py - the prefix cache for llama-cpp-python, with the real llama.cpp

usage: llama_check.py BUILD [ROUNDS]

Processes of llama.cpp run a model of random weights: one alone, two with kvmm.  They forget what
they have before each prompt, so all that they find comes from kvmm.  Each answer must have the
tokens of llama.cpp alone, and each prompt must find what arithmetic says, while kvmm is killed
between and during the prompts, and the daemon ends and comes back.  Then ROUNDS rounds (3) of
times: prompts computed, found in kvmm, and found in a LlamaRAMCache, in turns.  Prints a line for
each check, and their number.
"""
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import vllm_world
from child import next_line

LAYERS, WIDE, HEADS, KV_HEADS, FFN, WORDS = 12, 1024, 16, 4, 2816, 4096
BLOCK = 16
PROMPTS, SHARED, OWN, NEW = 6, 256, 144, 16
WHOLE = (SHARED + OWN - 1) // BLOCK * BLOCK
LENGTHS = 256, 512, 1024, 2048
START_SECONDS, ANSWER_SECONDS = 120, 600
# Exact numbers need a cache that waits on a busy machine.
PATIENT = {"lookup_seconds": 5.0, "load_seconds": 20.0, "save_seconds": 20.0, "retry_seconds": 1.0}
FORMS = {"flash attention": {"flash_attn": True},
         "flash attention, q8_0": {"flash_attn": True, "type_k": 8, "type_v": 8}}


# ---- the model ----

def tensors():
    """Names and shapes of Llama's tensors, as llama.cpp wants them."""
    yield "token_embd.weight", (WORDS, WIDE)
    yield "output_norm.weight", (WIDE,)
    yield "output.weight", (WORDS, WIDE)
    for i in range(LAYERS):
        for name, shape in (("attn_norm", (WIDE,)), ("ffn_norm", (WIDE,)),
                            ("attn_q", (WIDE, WIDE)), ("attn_output", (WIDE, WIDE)),
                            ("attn_k", (KV_HEADS * WIDE // HEADS, WIDE)),
                            ("attn_v", (KV_HEADS * WIDE // HEADS, WIDE)),
                            ("ffn_gate", (FFN, WIDE)), ("ffn_up", (FFN, WIDE)),
                            ("ffn_down", (WIDE, FFN))):
            yield f"blk.{i}.{name}.weight", shape


def write_model(path):
    import gguf
    import numpy

    rng = numpy.random.default_rng(1)
    w = gguf.GGUFWriter(path, "llama")
    for add, value in ((w.add_block_count, LAYERS), (w.add_context_length, 4096),
                       (w.add_embedding_length, WIDE), (w.add_feed_forward_length, FFN),
                       (w.add_head_count, HEADS), (w.add_head_count_kv, KV_HEADS),
                       (w.add_layer_norm_rms_eps, 1e-5), (w.add_vocab_size, WORDS),
                       (w.add_rope_dimension_count, WIDE // HEADS),
                       (w.add_file_type, gguf.LlamaFileType.MOSTLY_Q8_0)):
        add(value)
    words = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    kinds = [2, 3, 3] + [6] * 256       # unknown, control, byte
    words += [f"w{i}" for i in range(len(words), WORDS)]
    w.add_tokenizer_model("llama")
    w.add_token_list(words)
    w.add_token_scores([0.0] * WORDS)
    w.add_token_types(kinds + [1] * (WORDS - len(kinds)))
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    for name, shape in tensors():
        if len(shape) == 1:
            w.add_tensor(name, numpy.ones(shape, numpy.float32))
            continue
        values = rng.standard_normal(shape, numpy.float32) * (1.5 / shape[1] ** 0.5)
        kind = gguf.GGMLQuantizationType.Q8_0
        w.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


# ---- a child: one llama.cpp ----

class Engine:
    def __init__(self, model, options, kvmm):
        import llama_cpp

        self.llm = llama_cpp.Llama(model, n_ctx=2304, n_threads=2, n_threads_batch=2, verbose=False,
                                   **options)
        self.cache, self.plain, self.times = None, self.llm.generate, {}
        if kvmm:
            from kvmm.llama import PrefixCache

            self.cache = PrefixCache(self.llm, **PATIENT)
            for name in "_count", "_load", "_restore", "_get", "_save", "find", "save":
                setattr(self.cache, name, self.timed(name, getattr(self.cache, name)))

    def timed(self, name, call):
        def timed_call(*args):
            begin = time.monotonic()
            try:
                return call(*args)
            finally:
                self.times[name] = (time.monotonic() - begin) * 1e3
        return timed_call

    def run(self, order):
        begin, ids, found = time.monotonic(), [], []
        generate = self.plain if order.get("plain") else self.llm.generate
        for prompt, own in zip(order["prompts"], order.get("own") or [0] * PROMPTS):
            self.llm.reset()
            if own:
                self.llm.eval(prompt[:own])
            out = []
            for token in generate(prompt, temp=0.0, repeat_penalty=1.0):
                out.append(token)
                if len(out) == NEW:
                    break
            ids.append(out)
            found.append(self.cache.found if self.cache else 0)
        return {"ids": ids, "found": found, "seconds": round(time.monotonic() - begin, 2)}

    def text(self, order):
        self.llm.reset()
        out = self.llm.create_completion(order["prompts"][0], max_tokens=NEW, temperature=0.0)
        return {"text": out["choices"][0]["text"], "found": self.cache.found if self.cache else 0}

    def first(self, generate, prompt):
        """(the first token, ms)"""
        begin = time.monotonic()
        tokens = generate(prompt, temp=0.0, repeat_penalty=1.0)
        token = next(tokens)
        ms = (time.monotonic() - begin) * 1e3
        tokens.close()
        return token, ms

    def save(self, t):
        self.cache.save()
        while not self.cache._store.idle:   # the commit goes on
            time.sleep(0.001)
        t["save"], t["get"], t["store"] = (self.times[n] for n in ("save", "_get", "_save"))

    def bench(self, order):
        """Times of one prompt, in ms: computed, saved, found, and with a LlamaRAMCache."""
        from llama_cpp import LlamaRAMCache

        prompt, t, llm = order["prompts"][0], {}, self.llm
        llm.reset()
        one, t["computed"] = self.first(self.plain, prompt)
        self.save(t)
        ram, begin = LlamaRAMCache(), time.monotonic()
        ram[prompt] = llm.save_state()
        t["RAM save"] = (time.monotonic() - begin) * 1e3
        llm.reset()
        two, t["found"] = self.first(llm.generate, prompt)
        for name in "_count", "_load", "_restore":
            t[name[1:]] = self.times[name]
        t["tokens"] = self.cache.found
        llm.reset()
        begin = time.monotonic()
        llm.load_state(ram[prompt])
        t["RAM load"] = (time.monotonic() - begin) * 1e3
        three, ms = self.first(self.plain, prompt)
        t["RAM found"] = t["RAM load"] + ms
        return {"same": one == two == three, "times": t}


def child(model, options, kvmm):
    import logging

    logging.basicConfig(level="INFO", stream=sys.stderr)
    engine = Engine(model, options, kvmm)
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        print("answer " + json.dumps(getattr(engine, order["do"])(order)), flush=True)


class Llama:
    """A child, from outside."""

    def __init__(self, name, model, folder, kvmm=True, **options):
        self.name = name
        self.log = open(Path(folder) / f"{name}.log", "w+")
        self.process = subprocess.Popen(
            [sys.executable, __file__, "child", model, json.dumps(options), json.dumps(kvmm)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
            env={**os.environ, "OMP_WAIT_POLICY": "passive"})      # others use these cores, too
        self._line("ready", START_SECONDS)

    def _line(self, word, seconds):
        line = next_line(self.process, word, seconds)
        if line is not None:
            return line
        raise SystemExit(f"llama.cpp {self.name} ended:\n{self.said('')[-3000:]}")

    def ask(self, do, prompts, **more):
        self.process.stdin.write(json.dumps({"do": do, "prompts": prompts, **more}) + "\n")
        self.process.stdin.flush()
        return json.loads(self._line("answer ", ANSWER_SECONDS))

    def run(self, prompts, **more):
        return self.ask("run", prompts, **more)

    def said(self, word):
        self.log.flush()
        text = Path(self.log.name).read_text()
        return "\n".join(line for line in text.splitlines() if word in line)

    def close(self):
        self.process.stdin.close()
        return self.process.wait(60)


class Checks(vllm_world.Checks):
    """Checks of answers against @right, those of llama.cpp alone."""

    def __init__(self, right):
        super().__init__()
        self.right = right

    def check(self, what, ok, seen=""):
        super().check(what.replace("vLLM", "llama.cpp"), ok, seen)

    def answers(self, what, out, found=None):
        super().answers(what, out, self.right, found)


# ---- checks ----

def words(rng, nr):
    return [rng.randrange(259, WORDS) for _ in range(nr)]


def prompts(rng):
    shared = [1] + words(rng, SHARED - 1)
    return [shared + words(rng, OWN) for _ in range(PROMPTS)]


def killed_during(world, llama, asked):
    """The answers of prompts during which kvmm is killed, three times.

    A daemon that dies before it has done any work may leave the next one a cold start.
    """
    def killer():
        for _ in range(3):
            time.sleep(0.3)
            world.signal("kvmm")

    thread = threading.Thread(target=killer)
    thread.start()
    outs = [llama.run(asked) for _ in range(3)]
    thread.join()
    return outs


def daemon_ends(c, world, two, asked):
    world.stop_daemon()
    c.answers("no daemon", two.run(asked), [0] * PROMPTS)
    lines = two.said("llama.cpp goes on without kvmm").splitlines()
    c.check("and it says so", len(lines) > 0, lines[-1][:200] if lines else "")
    c.check("in few lines", len(two.said("WARNING").splitlines()) <= 8,
            len(two.said("WARNING").splitlines()))
    world.start_daemon()
    time.sleep(1.5)
    two.run(asked)      # finds the daemon, and saves
    two.run(asked)
    c.answers("another daemon", two.run(asked), [WHOLE] * PROMPTS)


def forms(c, model, folder, asked):
    """Other forms of a state, whose content no other process finds.

    With flash attention llama.cpp computes other bits for other sizes of a batch.  So the right
    tokens are those of llama.cpp that has computed the same prefix itself.
    """
    for name, options in FORMS.items():
        llama = Llama(name.replace(" ", "-").replace(",", ""), model, folder, **options)
        for when, found in (("first", [0] + [SHARED] * (PROMPTS - 1)), ("second", [WHOLE] * PROMPTS)):
            right = Checks(llama.run(asked, plain=True, own=found)["ids"])
            right.answers(f"{name}: the {when} time", llama.run(asked), found)
            c.nr, c.bad = c.nr + right.nr, c.bad + right.bad
        llama.close()


def bench(c, one, rounds):
    """Medians of @rounds rounds, in which all lengths take turns."""
    rng, seen = random.Random(2), {n: [] for n in LENGTHS}
    for _ in range(rounds):
        for nr in LENGTHS:
            out = one.ask("bench", [[1] + words(rng, nr - 1)])
            c.check(f"{nr} tokens: one first token", out["same"])
            seen[nr].append(out["times"])
    print(f"note: load of the machine {[round(n, 1) for n in os.getloadavg()]}")
    for nr, times in seen.items():
        row = {k: [round(f([t[k] for t in times]), 1) for f in (statistics.median, min, max)]
               for k in times[0]}
        print(f"note: {nr} tokens, ms, median, least, greatest: {json.dumps(row)}")
        ratios = [t["computed"] / t["found"] for t in times]
        print(f"note: {nr} tokens: computed takes {statistics.median(ratios):.1f} times as long as found "
              f"({min(ratios):.1f} to {max(ratios):.1f})", flush=True)


def checks(build, folder, rounds):
    model = os.path.join(folder, "random.gguf")
    write_model(model)
    world = vllm_world.World(build, model, folder)
    world.start_daemon("--pool-size", "1G")
    try:
        alone = Llama("alone", model, folder, kvmm=False)
        one, two = (Llama(name, model, folder) for name in ("one", "two"))
        asked = prompts(random.Random(1))
        c = Checks(alone.run(asked)["ids"])
        c.answers("llama.cpp alone, again", alone.run(asked), [0] * PROMPTS)
        c.answers("the first process", one.run(asked), [0] + [SHARED] * (PROMPTS - 1))
        c.answers("the second process", two.run(asked), [WHOLE] * PROMPTS)
        text = two.ask("text", asked)
        c.check("a completion", text["text"] == alone.ask("text", asked)["text"])
        c.check("a completion: found", text["found"] == WHOLE, text["found"])
        alone.close()
        forms(c, model, folder, asked)
        world.signal("kvmm")
        c.answers("kill -9 between", one.run(asked), [WHOLE] * PROMPTS)
        for i, out in enumerate(killed_during(world, one, asked)):
            c.answers(f"kill -9 during, {i + 1}", out)
        c.answers("after it", two.run(asked))
        two.run(asked)      # attaches and saves again after a cold start
        c.answers("after it, again", two.run(asked), [WHOLE] * PROMPTS)
        bench(c, one, rounds)
        daemon_ends(c, world, two, asked)
        for llama in (one, two):
            c.check(f"no fault in {llama.name}", llama.said("a fault") == "", llama.said("a fault")[:300])
            print(f"note: exit status of {llama.name} {llama.close()}")
    finally:
        world.stop_daemon()
    return c.end()


def main():
    if sys.argv[1] == "child":
        return child(sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4]))
    os.environ["KVMM_CONFIG"] = "none"
    os.environ.setdefault("KVMM_LIBCUDA", "/nonexistent/libcuda.so.1")
    with tempfile.TemporaryDirectory(prefix="kvmm-llama.") as folder:
        try:
            good = checks(Path(sys.argv[1]), folder, int(sys.argv[2]) if len(sys.argv) > 2 else 3)
        finally:
            keep = os.environ.get("KVMM_CHECK_LOGS")
            if keep:
                subprocess.run(f"mkdir -p '{keep}' && cp '{folder}'/*.log '{keep}'", shell=True)
    sys.exit(not good)


if __name__ == "__main__":
    main()
