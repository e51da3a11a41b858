# SPDX-License-Identifier: Apache-2.0
"""A daemon for tests, in a folder of its own."""
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import kvmm

TOP = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("KVMM_BIN", TOP / "build"))
MODEL = str(TOP / "tests" / "data" / "demo-model")
SHAPE = dict(layers=2, kv_heads=2, k_bytes=128, v_bytes=128)
PLACES = ("KVMM_RUNDIR", "KVMM_SOCKET", "XDG_RUNTIME_DIR")

os.environ["KVMM_CONFIG"] = "none"
os.environ.setdefault("KVMM_LIBCUDA", "/nonexistent/libcuda.so.1")


def until(condition, seconds=20):
    """Wait until condition() is true; return its value."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value or time.monotonic() > end:
            return value
        time.sleep(0.02)


def freeze(pid):
    """SIGSTOP of a process.  kill() does not wait for its threads, which could answer once more."""
    os.kill(pid, signal.SIGSTOP)
    stats = list(Path(f"/proc/{pid}/task").glob("*/stat"))
    return until(lambda: all(s.read_text().rsplit(") ", 1)[1][0] == "T" for s in stats))


def children_of(pid):
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split()]


def name_of(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def runs(pid):
    """Does the process run, and is no zombie?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class World(unittest.TestCase):
    """A test with an empty run directory; OPTIONS are those of a daemon, None: none runs."""

    OPTIONS = ["--pool-size", "16M", "--extent-size", "1M", "--host-size", "8M"]

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="kvpy.")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        for name in PLACES:
            old = os.environ.pop(name, None)
            if old is not None:
                self.addCleanup(os.environ.__setitem__, name, old)
        os.environ["KVMM_RUNDIR"] = self.folder
        self.addCleanup(os.environ.pop, "KVMM_RUNDIR", None)
        self.hold = None
        if self.OPTIONS is not None:
            self.start_daemon(*self.OPTIONS)

    def start_daemon(self, *options):
        log = open(os.path.join(self.folder, "hold.log"), "wb")
        self.addCleanup(log.close)
        self.hold = subprocess.Popen(
            [BIN / "kvmm-hold", "--backend", "host", *options], stdout=log, stderr=log)
        self.addCleanup(self.stop_daemon)
        subprocess.run([BIN / "kvctl", "wait", "--timeout", "20"], check=True)

    def stop_daemon(self):
        self.hold.terminate()
        self.hold.wait()

    def kill_daemon(self):
        """kill -9 of kvmm; kvmm-hold starts the next one."""
        victim = next(p for p in children_of(self.hold.pid) if name_of(p) == "kvmm")
        os.kill(victim, signal.SIGKILL)

    def client(self, domain="example", **more):
        client = kvmm.Client(domain, **{"model": "example 1", **SHAPE, **more})
        self.addCleanup(client.close)
        return client

    def raises_line(self, kind, text, call, *args, **kwargs):
        """The call raises @kind, with @text in its one line."""
        with self.assertRaises(kind) as caught:
            call(*args, **kwargs)
        line = str(caught.exception)
        self.assertRegex(line, text)
        self.assertNotIn("\n", line)
        return caught.exception


def put(view, at, text):
    view[at:at + len(text)] = text
