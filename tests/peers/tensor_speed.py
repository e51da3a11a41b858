#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two ranks of one thread against one process of two threads, on the same two cores.

usage: tensor_speed.py BUILD MODEL [SECONDS]

Starts kvmm with two pools, then in turns kvrt serve --threads 2 and kvrt serve --threads 1
--tensor-parallel 2, three times each, and asks both with kvrt bench serve: prompts of 512
tokens with one token of answer, and short prompts with 64 tokens of answer, for 1, 8 and 32
requests at once.  Prints tokens a second and the ratio of the medians.  It is no test: nothing
else may run meanwhile.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

CASES = (("prefill", 512, 1, 4, 12), ("decode 1", 32, 64, 1, 3), ("decode 8", 32, 64, 8, 16),
         ("decode 32", 32, 64, 32, 64))


def port_of(path, proc):
    for _ in range(600):
        for line in open(path, encoding="utf-8", errors="replace"):
            if "listening on http://127.0.0.1:" in line:
                return int(line.split("127.0.0.1:")[1].split(",")[0].split()[0])
        if proc.poll() is not None:
            sys.exit(open(path, encoding="utf-8", errors="replace").read())
        time.sleep(0.1)
    sys.exit("kvrt serve does not listen")


def await_ready(port):
    for _ in range(1200):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5)
            return
        except OSError:
            time.sleep(0.1)
    sys.exit("kvrt serve is not ready")


def bench(build, port, case):
    _, inputs, outputs, at_once, prompts = case
    out = subprocess.run(
        [f"{build}/kvrt", "bench", "serve", f"http://127.0.0.1:{port}", "--input-len", str(inputs),
         "--output-len", str(outputs), "--num-prompts", str(prompts), "--max-concurrency",
         str(at_once), "--seed", str(time.time_ns() % 1000000), "--quiet", "--json", "-"],
        check=True, capture_output=True, text=True)
    report = json.loads(out.stdout)
    return report["total_token_throughput" if outputs == 1 else "output_throughput"]


def run(build, model, folder, options, name):
    log = f"{folder}/{name}.log"
    with open(log, "w", encoding="utf-8") as err:
        proc = subprocess.Popen(
            [f"{build}/kvrt", "serve", model, "--port", "0", "--socket", f"{folder}/attach.sock",
             "--config", "none", "--domain", name, "--max-model-len", "1024", *options],
            stderr=err, stdout=err)
    port = port_of(log, proc)
    await_ready(port)
    figures = [bench(build, port, case) for case in CASES]
    proc.terminate()
    proc.wait(60)
    return figures


def main():
    build, model = sys.argv[1:3]
    rounds = int(os.environ.get("ROUNDS", "3"))
    kinds = (("one process", ("--threads", "2")),
             ("two ranks", ("--threads", "1", "--tensor-parallel", "2")))
    with tempfile.TemporaryDirectory() as folder:
        hold = subprocess.Popen([f"{build}/kvmm-hold", "--socket", f"{folder}/attach.sock",
                                 "--config", "none", "--backend", "host", "--pool", "host:512M",
                                 "--pool", "host:512M", "--log-level", "err"])
        time.sleep(1)
        figures = {name: [] for name, _ in kinds}
        for turn in range(rounds):
            for number, (name, options) in enumerate(kinds):
                figures[name].append(run(build, model, folder, options, f"d{turn}{number}"))
        hold.terminate()
        hold.wait(20)
    for i, case in enumerate(CASES):
        one, two = (statistics.median(f[i] for f in figures[name]) for name, _ in kinds)
        print(f"{case[0]:10} {one:8.1f} {two:8.1f} tokens/s  {two / one:.2f}")


if __name__ == "__main__":
    main()
