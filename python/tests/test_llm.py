# SPDX-License-Identifier: Apache-2.0
"""kvmm.LLM: the texts of kvrt generate, vLLM's calls, and the end of the children."""
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

import kvmm
from kvmm import LLM, SamplingParams
from kvmm.params import DEFAULTS, UNSERVED
from world import BIN, MODEL, TOP, World, children_of, name_of, runs, until

OPTIONS = dict(threads=1, mode="exact")
PROMPTS = ["The kitten", "In the beginning", "Holmes leaned back"]
SOME = dict(temperature=0.8, max_tokens=12, seed=7)
# A value of each parameter that is not its default, and what else it needs.
VALUES = {
    "n": 2, "best_of": 2, "presence_penalty": 0.5, "frequency_penalty": 0.5,
    "repetition_penalty": 1.2, "temperature": 0.5, "top_p": 0.9, "top_k": 20, "min_p": 0.1,
    "seed": 3, "stop": ["x"], "stop_token_ids": [5], "bad_words": ["cat"], "ignore_eos": True,
    "max_tokens": 4, "min_tokens": 2, "logprobs": 2, "prompt_logprobs": 1,
    "logprob_token_ids": [5, 6], "skip_special_tokens": False,
    "include_stop_str_in_output": True, "logit_bias": {5: 1.0}, "allowed_token_ids": [5, 6],
    "use_beam_search": True, "length_penalty": 2.0, "early_stopping": True,
}
NEEDS = {
    "logprob_token_ids": {"logprobs": 0}, "use_beam_search": {"temperature": 0, "n": 2},
    "length_penalty": {"use_beam_search": True, "temperature": 0, "n": 2},
    "early_stopping": {"use_beam_search": True, "temperature": 0, "n": 2},
}


def kvrt(*words):
    """The answers of kvrt generate, by (prompt, sample)."""
    got = subprocess.run([BIN / "kvrt", "generate", MODEL, "--json", "--threads", "1", "--mode",
                          "exact", *words], capture_output=True, text=True, check=True)
    return {(a["prompt"], a["sample"]): a for a in map(json.loads, got.stdout.splitlines())}


class Generate(World):
    OPTIONS = ["--pool-size", "64M", "--extent-size", "1M"]

    def setUp(self):
        super().setUp()
        self.llm = LLM(MODEL, **OPTIONS)
        self.addCleanup(self.llm.close)

    def test_greedy(self):
        """The same text as kvrt generate, for several prompts at once."""
        want = kvrt("--temperature", "0", "--max-tokens", "24", *PROMPTS)
        got = self.llm.generate(PROMPTS, SamplingParams(temperature=0, max_tokens=24))
        self.assertEqual([o.prompt for o in got], PROMPTS)
        for i, out in enumerate(got):
            self.assertEqual(out.outputs[0].text, want[i + 1, 1]["text"])
            self.assertEqual(out.outputs[0].token_ids, want[i + 1, 1]["ids"])
            self.assertEqual(len(out.prompt_token_ids), want[i + 1, 1]["prompt_tokens"])
        again = self.llm.generate({"prompt_token_ids": got[0].prompt_token_ids},
                                  SamplingParams(temperature=0, max_tokens=24))
        self.assertEqual(again[0].outputs[0].text, got[0].outputs[0].text)
        self.assertIsNone(again[0].prompt)

    def test_samples(self):
        """n=2: two samples, those of the same seed again."""
        params = SamplingParams(n=2, **SOME)
        first, second = (self.llm.generate("In the beginning", params)[0] for _ in range(2))
        texts = [o.text for o in first.outputs]
        self.assertEqual(([o.index for o in first.outputs], len(set(texts))), ([0, 1], 2))
        self.assertEqual([o.text for o in second.outputs], texts)
        # Those of vLLM, not of the model's generation_config.json, are the defaults here.
        want = kvrt("--temperature", "0.8", "--max-tokens", "12", "--seed", "7", "-n", "2",
                    "--top-k", "0", "--top-p", "1", "In the beginning")
        self.assertEqual(texts, [want[1, 1]["text"], want[1, 2]["text"]])
        other = self.llm.generate("In the beginning", SamplingParams(**{**SOME, "seed": 8}))
        self.assertNotEqual(other[0].outputs[0].text, texts[0])

    def test_list_of_params(self):
        params = [SamplingParams(temperature=0, max_tokens=n) for n in (1, 2, 3)]
        got = self.llm.generate(PROMPTS, params, priority=[0, 5, -5])
        self.assertEqual([len(o.outputs[0].token_ids) for o in got], [1, 2, 3])
        self.raises_line(ValueError, "3 prompts, 2 sampling_params", self.llm.generate, PROMPTS,
                         params[:2])
        self.assertEqual(self.llm.generate([]), [])

    def test_many(self):
        """More prompts than requests at once."""
        prompts = [[1, 2, 3 + i] for i in range(300)]
        got = self.llm.generate(prompts, SamplingParams(max_tokens=1))
        self.assertEqual([o.prompt_token_ids for o in got], prompts)

    def test_end(self):
        got = self.llm.generate("The kitten", SamplingParams(temperature=0, stop=" middle"))
        out = got[0].outputs[0]
        self.assertEqual((out.finish_reason, out.stop_reason), ("stop", " middle"))
        self.assertNotIn("middle", out.text)
        out = self.llm.generate("The kitten", SamplingParams(max_tokens=None, ignore_eos=True))[0]
        self.assertEqual(len(out.outputs[0].token_ids) + len(out.prompt_token_ids), 1024)
        out = self.llm.generate([1, 2], SamplingParams(max_tokens=None, ignore_eos=True))[0]
        self.assertEqual(len(out.outputs[0].token_ids), 1022)
        self.assertEqual(out.outputs[0].finish_reason, "length")

    def test_logprobs(self):
        params = SamplingParams(temperature=0, max_tokens=5, logprobs=2, prompt_logprobs=1)
        for out in (self.llm.generate("The kitten", params)[0],
                    self.llm.chat([{"role": "user", "content": "Hi"}], params)[0]):
            got = out.outputs[0]
            chosen = [row[token] for row, token in zip(got.logprobs, got.token_ids)]
            self.assertEqual([len(row) for row in got.logprobs], [2] * 5)
            self.assertEqual([lp.rank for lp in chosen], [1] * 5)
            self.assertAlmostEqual(sum(lp.logprob for lp in chosen), got.cumulative_logprob)
            self.assertEqual("".join(lp.decoded_token for lp in chosen), got.text)
            self.assertIsNone(out.prompt_logprobs[0])
            self.assertEqual(len(out.prompt_logprobs), len(out.prompt_token_ids))
            self.assertIn(out.prompt_token_ids[1], out.prompt_logprobs[1])
        wild = SamplingParams(temperature=1.5, seed=7, logprobs=1)
        out = self.llm.generate("The kitten", wild)[0].outputs[0]
        for row, token in zip(out.logprobs, out.token_ids):
            self.assertEqual(row[token].rank, 1 if len(row) == 1 else None)
        self.assertIn(2, map(len, out.logprobs))
        out = self.llm.generate("The kitten", SamplingParams(temperature=0))[0].outputs[0]
        self.assertEqual((out.logprobs, out.cumulative_logprob), (None, None))

    def test_chat(self):
        messages = [{"role": "user", "content": "Who are you?"}]
        params = SamplingParams(temperature=0, max_tokens=8)
        one, = self.llm.chat(messages, params)
        two = self.llm.chat([messages, messages], params)
        self.assertTrue(one.outputs[0].text)
        self.assertEqual([o.outputs[0].text for o in two], [one.outputs[0].text] * 2)
        raw = self.llm.generate(one.prompt_token_ids, params)[0]
        self.assertEqual(raw.outputs[0].token_ids, one.outputs[0].token_ids)
        self.raises_line(ValueError, "tools is not served", self.llm.chat, messages, tools=[{}])
        self.raises_line(kvmm.Invalid, "role", self.llm.chat, [{"role": "king", "content": "x"}])

    def test_each_parameter(self):
        self.assertEqual(set(VALUES), set(DEFAULTS))
        for name, value in VALUES.items():
            self.assertNotEqual(value, DEFAULTS[name], name)
            params = SamplingParams(**{"max_tokens": 3, **NEEDS.get(name, {}), name: value})
            out = self.llm.generate("The kitten", params)[0]
            self.assertEqual(len(out.outputs), params.n, name)
        params = SamplingParams(allowed_token_ids=[5, 6], max_tokens=9)
        self.assertLessEqual(set(self.llm.generate("The", params)[0].outputs[0].token_ids), {5, 6})

    def test_wrong(self):
        params = SamplingParams(temperature=-1)
        e = self.raises_line(kvmm.Invalid, "^temperature must", self.llm.generate, "x", params)
        self.assertIsInstance(e, ValueError)
        self.raises_line(ValueError, "a text, or a list", self.llm.generate, [["x"]])
        self.raises_line(ValueError, "no field multi", self.llm.generate, {"multi_modal_data": 1})
        self.raises_line(kvmm.Invalid, "1024", self.llm.generate, [1] * 2000, SamplingParams())
        self.raises_line(TypeError, "SamplingParams", self.llm.generate, "x", {"n": 1})
        self.raises_line(ValueError, "lora_request", self.llm.generate, "x", lora_request=1)

    def test_shared(self):
        """Two LLMs of a model share the cache of the daemon that is there."""
        prompt = list(range(100, 180))
        self.llm.generate([prompt], SamplingParams(max_tokens=1))
        with LLM(MODEL, **OPTIONS) as other:
            out = other.generate([prompt], SamplingParams(max_tokens=1))[0]
            self.assertGreaterEqual(out.num_cached_tokens, 64)
        self.raises_line(kvmm.Closed, "LLM is closed", other.generate, "x")
        self.raises_line(ValueError, "private daemon", LLM, MODEL, pool_size="64M", **OPTIONS)

    def test_daemon_killed(self):
        """kvmm is killed: the texts are the same."""
        params = SamplingParams(temperature=0, max_tokens=300, ignore_eos=True)
        want = [o.outputs[0].text for o in self.llm.generate(PROMPTS, params)]
        threading.Timer(0.05, self.kill_daemon).start()
        got = [o.outputs[0].text for o in self.llm.generate(PROMPTS, params)]
        self.assertEqual(got, want)


class Params(unittest.TestCase):
    def test_refused(self):
        for name, nothing in UNSERVED.items():
            SamplingParams(**{name: nothing})
            with self.assertRaisesRegex(ValueError, f"{name} is not served"):
                SamplingParams(**{name: "x"})
        with self.assertRaisesRegex(ValueError, "no parameter colour"):
            SamplingParams(colour=1)
        with self.assertRaisesRegex(ValueError, "n is at least 1"):
            SamplingParams(n=0)
        self.assertEqual(repr(SamplingParams(n=2)), "SamplingParams(n=2)")
        self.assertEqual(SamplingParams(top_k=-1), SamplingParams())

    def test_table_of_server(self):
        """Each field that is `no` in the table of server.md is refused here, or not a name."""
        text = (TOP / "Documentation" / "server.md").read_text()
        no = set(re.findall(r"^\| `(\w+)` \| no \|", text, re.M))
        self.assertGreater(len(no), 10)
        self.assertEqual(no & set(DEFAULTS), set())
        yes = set(re.findall(r"^\| `(\w+)` \| yes \|", text, re.M))
        self.assertEqual(set(DEFAULTS) - yes, set())


class Children(World):
    """No daemon is there: the LLM brings one."""
    OPTIONS = None

    def setUp(self):
        super().setUp()
        # Where the private folder goes.
        os.environ["XDG_RUNTIME_DIR"] = self.folder
        self.addCleanup(os.environ.pop, "XDG_RUNTIME_DIR", None)

    def folders(self):
        return list(Path(self.folder).glob("kvmm-py.*"))

    def family(self, llm):
        """The keeper, and the programs below it."""
        keeper = llm._server._keeper.pid
        below = children_of(keeper)
        return [keeper, *below, *(p for b in below for p in children_of(b))]

    def gone(self, pids):
        return until(lambda: not any(map(runs, pids))) and until(lambda: not self.folders())

    def test_private(self):
        with LLM(MODEL, **OPTIONS) as llm:
            pids = self.family(llm)
            self.assertLessEqual({"kvrt", "kvmm-hold", "kvmm"}, set(map(name_of, pids)))
            self.assertEqual(len(self.folders()), 1)
            self.assertTrue(llm.generate("The kitten")[0].outputs[0].text)
            stats = kvmm.stats("domains", socket=llm._server.folder)
            self.assertEqual(len(stats["domains"]), 1)
        self.assertTrue(self.gone(pids))
        llm.close()

    def test_exception(self):
        with self.assertRaises(ZeroDivisionError):
            with LLM(MODEL, pool_size="32M", extent_size="1M", **OPTIONS) as llm:
                pids = self.family(llm)
                stats = kvmm.stats("meminfo", socket=llm._server.folder)
                self.assertEqual(stats["meminfo"]["GpuTotal_kb"], 32768)
                1 / 0
        self.assertTrue(self.gone(pids))

    def test_thread(self):
        """The thread that made the LLM ends; the LLM goes on, and ends with its object."""
        made = []
        thread = threading.Thread(target=lambda: made.append(LLM(MODEL, **OPTIONS)))
        thread.start()
        thread.join()
        time.sleep(0.3)
        pids = self.family(made[0])
        self.assertTrue(made[0].generate("The kitten")[0].outputs[0].text)
        made.clear()
        self.assertTrue(self.gone(pids))

    def program(self, text):
        """A Python that makes an LLM, says so, and runs @text.  Return: it, and the children."""
        code = ("import sys, time, os, signal, kvmm\n"
                f"llm = kvmm.LLM({MODEL!r}, **{OPTIONS!r})\n"
                "print(llm._server._keeper.pid, flush=True)\n" + text)
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        self.addCleanup(child.communicate)
        keeper = int(child.stdout.readline())
        below = children_of(keeper)
        pids = [keeper, *below, *(p for b in below for p in children_of(b))]
        self.assertGreaterEqual(len(pids), 4)
        return child, pids

    def test_interpreter_ends(self):
        child, pids = self.program("raise SystemExit(3)")
        self.assertEqual(child.wait(30), 3)
        self.assertTrue(self.gone(pids))

    def test_python_killed(self):
        """SIGKILL; a forked child that has the pipes goes on."""
        child, pids = self.program("pid = os.fork()\nif pid: print(pid, flush=True)\n"
                                   "time.sleep(60)")
        forked = int(child.stdout.readline())
        self.addCleanup(os.kill, forked, signal.SIGKILL)
        child.send_signal(signal.SIGKILL)
        child.wait(30)
        self.assertTrue(self.gone(pids))
        self.assertTrue(runs(forked))

    def test_forked(self):
        """A forked child has the pipes: close() ends the children all the same."""
        child, pids = self.program("pid = os.fork()\nif not pid: time.sleep(60)\n"
                                   "llm.close()\nprint(pid, flush=True)\ntime.sleep(60)")
        self.addCleanup(child.kill)
        self.addCleanup(os.kill, int(child.stdout.readline()), signal.SIGKILL)
        self.assertTrue(self.gone(pids))

    def test_keeper_killed(self):
        with LLM(MODEL, **OPTIONS) as llm:
            pids = self.family(llm)
            os.kill(pids[0], signal.SIGKILL)
            self.raises_line(kvmm.Error, "holds the server was ended", llm.generate, "x")
        self.assertTrue(self.gone(pids))

    def test_server_killed(self):
        with LLM(MODEL, **OPTIONS) as llm:
            pids = self.family(llm)
            os.kill(next(p for p in pids if name_of(p) == "kvrt"), signal.SIGKILL)
            self.raises_line(kvmm.Error, "server ended without a message .status -9",
                             llm.generate, "x")
        self.assertTrue(self.gone(pids))

    def test_start_fails(self):
        """One line of the program that failed, and nothing is left."""
        for kind, text, model, more in (
                (ValueError, "--gpu-memory-utilization: the memory belongs", MODEL,
                 {"gpu_memory_utilization": 0.9}),
                (ValueError, "unknown option --no-trust-remote-code", MODEL,
                 {"trust_remote_code": False}),
                (ValueError, "LLM sets the option port itself", MODEL, {"port": 1}),
                (kvmm.Error, "max_position_embeddings", MODEL, {"max_model_len": 10**7}),
                (kvmm.Error, "is no folder and no file", "/nonexistent", {}),
                (ValueError, "^kvmm: error: --pool-size: 1K", MODEL, {"pool_size": "1K"}),
                (kvmm.Error, "^kvmm.*", MODEL, {"pool_size": "1M", "extent_size": "2M"}),
                (kvmm.NoDaemon, "no daemon at", MODEL, {"socket": self.folder + "/x"})):
            self.raises_line(kind, text, LLM, model, **more)
            self.assertEqual(self.folders(), [])

    def test_interrupted(self):
        """Ctrl-C in generate(): at once, and the children end."""
        child, pids = self.program(
            "import threading\n"
            "threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
            "p = kvmm.SamplingParams(max_tokens=None, ignore_eos=True)\n"
            "llm.generate(['x'] * 200, p)\n")
        start = time.monotonic()
        self.assertNotEqual(child.wait(30), 0)
        self.assertLess(time.monotonic() - start, 10)
        self.assertIn("KeyboardInterrupt", child.communicate()[1])
        self.assertTrue(self.gone(pids))


if __name__ == "__main__":
    unittest.main()
