#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quality.py - perplexity by type of weights, of kvrt and of llama.cpp on the same file

usage: quality.py BUILD MODEL TEXT FILES [TYPE]...

MODEL is a folder that gguf_files.py can turn into GGUF files.  They go to FILES and stay there, and
so does what llama.cpp says of them.  The first WINDOWS x (WINDOW - 1) tokens of TEXT (80 x 255) are
scored in windows, each behind the token that starts a text.  kvrt serve scores them in fast and in
exact mode, llama.cpp with the options it has by default.  Each token of TEXT must be the same in both
programs, and each perplexity of kvrt within 0.2 % of llama.cpp's.  The first row has the folder itself
in kvrt and F32 in llama.cpp.

Columns: the type, the bytes of its file, the perplexities, their ratios to llama.cpp's, and how far
kvrt in exact mode is from llama.cpp at a token, as the mean over tokens, in nats.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zlib
from pathlib import Path

import numpy

from daemon import Daemon
import gguf_files

WINDOWS = int(os.environ.get("WINDOWS") or 80)
WINDOW = int(os.environ.get("WINDOW") or 256)
DTYPE = os.environ.get("DTYPE") or "auto"
LIMIT = 0.002
MODES = "fast", "exact"
START_SECONDS, ANSWER_SECONDS = 120, 600


# ---- kvrt ----

class Server:
    """kvrt serve with one model, in the world of a daemon that runs."""

    def __init__(self, build, model, mode, log):
        self.log = log
        with open(log, "w") as out:
            self.process = subprocess.Popen(
                [build / "kvrt", "serve", "--port", "0", "--mode", mode, "--dtype", DTYPE, "--model", f"m={model}"],
                stdout=out, stderr=out)
        self.url = self.wait()

    def wait(self):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            text = self.log.read_text()
            if "kvrt: ready" in text:
                return re.search(r"listening on (http://\S+?),? ", text)[1]
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        self.close()
        raise RuntimeError(text.strip().splitlines()[-1] if text.strip() else "kvrt said nothing")

    def ask(self, path, **body):
        request = urllib.request.Request(self.url + path, json.dumps({"model": "m", **body}).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as e:
            raise RuntimeError(e.read().decode()) from e

    def tokens(self, text):
        return self.ask("/tokenize", prompt=text, add_special_tokens=False)["tokens"]

    def score(self, window):
        """The log probability of each token but the first."""
        answer = self.ask("/v1/completions", prompt=window, max_tokens=0, echo=True, logprobs=0)
        return answer["choices"][0]["logprobs"]["token_logprobs"][1:]

    def close(self):
        self.process.terminate()
        self.process.wait()


# ---- llama.cpp ----

class Peer:
    """llama.cpp with one file."""

    def __init__(self, path):
        import llama_cpp

        self.llama = llama_cpp.Llama(str(path), n_ctx=WINDOW, n_batch=WINDOW, n_ubatch=WINDOW, n_threads=2,
                                     n_threads_batch=2, logits_all=True, verbose=False)

    def tokens(self, text):
        return self.llama.tokenize(text.encode(), add_bos=False, special=False)

    def score(self, window):
        self.llama.reset()
        self.llama.eval(window)
        logits = self.llama.scores[:len(window) - 1].astype(numpy.float64)
        logits -= logits.max(1, keepdims=True)
        chosen = logits[numpy.arange(len(window) - 1), window[1:]]
        return chosen - numpy.log(numpy.exp(logits).sum(1))

    def close(self):
        self.llama.close()


# ---- the rows ----

def scores(program, windows):
    """The log probabilities of all tokens of the windows."""
    try:
        return numpy.concatenate([program.score(w) for w in windows])
    finally:
        program.close()


def peer_scores(path, windows):
    """Those of llama.cpp, which are kept beside the file: they need no build of kvrt."""
    kept = path.with_suffix(f".{zlib.crc32(repr(windows).encode()):08x}.npy")
    if not gguf_files.newer(kept, path):
        numpy.save(kept, scores(Peer(path), windows))
    return numpy.load(kept)


def perplexity(logs):
    return float(numpy.exp(-logs.mean()))


class Table:
    def __init__(self, build, folder):
        self.build, self.folder = build, folder
        self.nr = self.bad = 0

    def check(self, what, ok, seen):
        self.nr += 1
        self.bad += not ok
        if not ok:
            print(f"FAILED: {what}: {seen}", flush=True)
        return ok

    def server(self, model, mode):
        return Server(self.build, model, mode, self.folder / "kvrt.log")

    def tokens(self, model, text):
        server = self.server(model, "fast")
        try:
            return server.tokens(text)
        finally:
            server.close()

    def windows(self, model, path, text):
        """Windows of the tokens of llama.cpp; kvrt must find them with the folder and with the file."""
        peer = Peer(path)
        wanted = peer.tokens(text)
        peer.close()
        for source in model, path:
            try:
                ids = self.tokens(source, text)
                self.check(f"tokens by {source}", ids == wanted, f"{len(ids)}, {len(wanted)} of llama.cpp")
            except (RuntimeError, OSError) as e:
                self.check(f"tokens by {source}", False, e)
        start = json.loads((model / "config.json").read_text())["bos_token_id"]
        new = WINDOW - 1
        cut = [[start, *wanted[i * new:(i + 1) * new]] for i in range(WINDOWS)]
        return [w for w in cut if len(w) == WINDOW]

    def row(self, name, model, wanted, windows):
        """One line: MODEL in kvrt beside the log probabilities of llama.cpp."""
        peer, found, far = perplexity(wanted), {}, "-"
        for mode in MODES:
            try:
                logs = scores(self.server(model, mode), windows)
            except (RuntimeError, OSError) as e:
                self.check(f"{name}, {mode}", False, e)
                continue
            found[mode] = perplexity(logs)
            self.check(f"{name}, {mode}", abs(found[mode] / peer - 1) <= LIMIT, found[mode])
            far = f"{numpy.abs(logs - wanted).mean():.5f}"
        mine = "".join(f"{found[m]:10.4f}" if m in found else f"{'-':>10}" for m in MODES)
        ratios = "".join(f"{found[m] / peer:9.5f}" if m in found else f"{'-':>9}" for m in MODES)
        size = sum(p.stat().st_size for p in ([model] if model.is_file() else model.glob("*.safetensors")))
        print(f"{name:12}{size:>12}{mine}{peer:11.4f}{ratios}{far:>9}", flush=True)

    def end(self):
        print(f"{self.nr - self.bad} passed, {self.bad} failed", flush=True)
        return self.bad == 0


def rows(table, model, text, files, kinds):
    f32 = gguf_files.write(model, files, "F32")
    windows = table.windows(model, f32, text)
    print(f"{model.name}: {len(windows)} windows of {WINDOW - 1} tokens that are scored")
    print(f"{'type':12}{'bytes':>12}{'fast':>10}{'exact':>10}{'llama.cpp':>11}{'fast':>9}{'exact':>9}{'nats':>9}",
          flush=True)
    table.row("folder", model, peer_scores(f32, windows), windows)
    for kind in kinds:
        path = gguf_files.write(model, files, kind)
        table.row(kind, path, peer_scores(path, windows), windows)


def main():
    build, model, text, files = map(Path, sys.argv[1:5])
    with tempfile.TemporaryDirectory(prefix="kvmm-quality.") as folder:
        daemon = Daemon(build, Path(folder))
        table = Table(build, Path(folder))
        try:
            rows(table, model.resolve(), text.read_text(), files, sys.argv[5:] or gguf_files.TYPES)
        finally:
            daemon.close()
    sys.exit(not table.end())


if __name__ == "__main__":
    main()
