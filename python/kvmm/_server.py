# SPDX-License-Identifier: Apache-2.0
"""kvrt serve as a child, and requests to it over a Unix socket."""
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from . import _lib
from .errors import Closed, Error, Invalid, NoDaemon, Refused, Timeout, of_attach

EX_USAGE = 64
BUSY = (429, 503)
BUSY_SECONDS = 60
# Options of kvrt serve that this module sets.
OWN = ("unix", "unix_only", "unix_mode", "host", "port", "config", "log_level", "log_format",
       "served_model_name", "model", "help", "version", "print_config", "api_key",
       "api_key_file")
POOL_LEAST = 256 << 20


class _Connection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def options_of(options):
    """Options of Python as those of a command line."""
    out = []
    for name, value in options.items():
        if name in OWN:
            raise ValueError(f"LLM sets the option {name} itself")
        flag = "--" + name.replace("_", "-")
        if value is True:
            out.append(flag)
        elif value is False:
            out.append("--no-" + flag[2:])
        elif value is not None:
            out += [flag, str(value)]
    return out


def last_words(path):
    """The line of a log that says why its program ended."""
    try:
        lines = Path(path).read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    errors = [line for line in lines if "error:" in line] or lines[-1:]
    return re.sub(r"^[-0-9]{10}T[0-9:.]+Z ", "", errors[0]) if errors else ""


def make_folder():
    """A private folder with a short path: the name of a socket has at most 107 bytes."""
    for place in (os.environ.get("XDG_RUNTIME_DIR"), os.environ.get("TMPDIR"), "/tmp"):
        if place and place.startswith("/") and len(place) < 70 and os.access(place, os.W_OK):
            return tempfile.mkdtemp(prefix="kvmm-py.", dir=place)
    raise Error("no private folder can be made in $XDG_RUNTIME_DIR, $TMPDIR or /tmp")


def ask(where):
    """Raise unless a daemon answers."""
    ffi, lib, _ = _lib.load()
    text, memory, device = ffi.new("char[]", 256), ffi.new("u32 *"), ffi.new("u32 *")
    place = ffi.NULL if where is None else ffi.new("char[]", str(where).encode())
    ret = lib.kvmm_ask(place, memory, device, text)
    if ret:
        raise of_attach(ret, ffi.string(text).decode(errors="replace"))


class Call:
    """One request to the server."""

    def __init__(self, server, method, path, fields):
        self._server = server
        self._method, self._path = method, path
        self._body = None if fields is None else json.dumps(fields).encode()
        self._conn = None
        self._stopped = False

    def stop(self):
        """Give the request up, from another thread."""
        self._stopped = True
        try:
            self._conn.sock.shutdown(socket.SHUT_RDWR)
        except (AttributeError, OSError):
            pass        # it is not connected

    def once(self):
        """Return: status and body; ConnectionError: the server hung up."""
        limit = self._server.timeout
        conn = self._conn = _Connection(self._server.folder + "/api.sock", limit)
        try:
            conn.request(self._method, self._path, self._body,
                         {"Content-Type": "application/json"})
            answer = conn.getresponse()
            return answer.status, json.loads(answer.read())
        except TimeoutError:
            raise Timeout(f"the server was silent for {limit} s") from None
        except (http.client.HTTPException, ValueError) as e:
            raise ConnectionError(str(e)) from None
        finally:
            conn.close()

    def run(self):
        """Ask until the server is not busy.  Return: the answer."""
        end = time.monotonic() + (self._server.timeout or BUSY_SECONDS)
        nap = 0.05
        while True:
            self._server.check(self._stopped)
            try:
                status, answer = self.once()
            except OSError:
                time.sleep(0.2)         # let the news of its end arrive
                self._server.check(self._stopped)
                status, answer = 503, {"error": {"message": "the server hung up"}}
            if status == 200:
                return answer
            line = answer.get("error", {}).get("message", f"status {status}").replace("\n", " ")
            if status not in BUSY or time.monotonic() + nap > end:
                raise (Invalid if status < 500 and status not in BUSY else Error)(line)
            time.sleep(nap)
            nap = min(nap * 2, 1.0)


class Server:
    """A server, and a daemon if none is there.  Both end with this object and process."""

    def __init__(self, model, *, pool_size=None, extent_size=None, start_timeout=600.0,
                 timeout=None, **options):
        self.timeout = timeout
        self._pid = os.getpid()
        self._ended = {}
        self._closed = False
        arguments = options_of(options)
        self.folder = make_folder()
        try:
            self._start(model, options, arguments, pool_size, extent_size, start_timeout)
        except BaseException:
            self.close()
            raise

    # ---- start ----

    def _start(self, model, options, arguments, pool_size, extent_size, timeout):
        end = time.monotonic() + timeout
        kvrt = _lib.program("kvrt")
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("_keeper.py")),
             str(os.getpid()), self.folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            start_new_session=True)
        threading.Thread(target=self._read_news, args=(self._keeper.stdout,), daemon=True).start()
        if self._must_bring_daemon(options.get("socket")):
            sizes = self._sizes(kvrt, model, options, pool_size)
            if extent_size is not None:
                sizes += ["--extent-size", str(extent_size)]
            arguments += self._start_daemon(options, sizes, end)
        elif pool_size is not None or extent_size is not None:
            raise ValueError("pool_size and extent_size are for a private daemon, and a daemon "
                             "is here: leave them out")
        model = str(model)
        self._order("server", [
            kvrt, "serve", "./" + model if model.startswith("-") else model, *arguments,
            "--config", "none", "--unix-only", "--unix", self.folder + "/api.sock",
            "--drain-timeout", "0", "--log-level", "warn"])
        self._await("server", end, self._is_ready)

    @staticmethod
    def _must_bring_daemon(where):
        try:
            ask(where)
        except (NoDaemon, Refused):
            if where is not None or os.environ.get("KVMM_SOCKET"):
                raise
            return True
        return False

    def _start_daemon(self, options, sizes, end):
        place = self.folder + "/attach.sock"
        self._order("daemon", [
            _lib.program("kvmm-hold"), "--config", "none", "--socket", place, "--backend",
            str(options.get("backend") or "auto"), "--proc", "off", "--log-level", "warn", *sizes])

        def answers():
            try:
                ask(place)
            except Error:
                return False
            return True

        self._await("daemon", end, answers)
        return ["--socket", place]

    @staticmethod
    def _sizes(kvrt, model, options, pool_size):
        """Sizes of a private daemon: a sequence of full length fits at least."""
        want = [kvrt, "inspect", "--json", "--dtype", "f32", str(model)]
        if options.get("max_model_len"):
            want += ["--max-model-len", str(options["max_model_len"])]
        got = subprocess.run(want, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if got.returncode:
            return []       # the server will say why the model is refused
        judged = json.loads(got.stdout)
        token = judged["kv_bytes_per_token"]
        least = min(max((1 << (token.bit_length() - 1)) // 8, 64), 1 << 20)
        sizes = ["--min-token-bytes", str(least)]
        need = token * judged["max_len"] * 5 // 4 + (64 << 20)
        gpu = options.get("backend") != "host" and os.path.exists("/dev/nvidiactl")
        if pool_size is None and need > POOL_LEAST and not gpu:
            pool_size = -(-need >> 23) * -1 << 23
        return sizes + ([] if pool_size is None else ["--pool-size", str(pool_size)])

    def _order(self, name, argv):
        self._keeper.stdin.write((json.dumps({"name": name, "argv": argv}) + "\n").encode())
        self._keeper.stdin.flush()

    def _read_news(self, pipe):
        with pipe:
            for line in pipe:
                news = json.loads(line)
                self._ended[news["name"]] = news["code"]

    def _is_ready(self):
        try:
            return Call(self, "GET", "/ready", None).once()[0] == 200
        except OSError:
            return False

    def _await(self, name, end, ready):
        while not ready():
            self._check_children()
            if time.monotonic() > end:
                raise Timeout(f"the {name} was not ready in time: {self._log(name)}")
            time.sleep(0.02)

    # ---- state ----

    def _log(self, name):
        return last_words(os.path.join(self.folder, name + ".log"))

    def check(self, stopped=False):
        """Raise if no request can be answered."""
        if self._closed or stopped:
            raise Closed("the LLM is closed" if self._closed else "the request was given up")
        self._check_children()

    def _check_children(self):
        for name, code in list(self._ended.items()):
            words = self._log(name) or f"the {name} ended without a message"
            if code == EX_USAGE:
                raise ValueError(words)
            raise Error(f"{words} (status {code})")
        if self._keeper.poll() is not None:
            raise Error("the process that holds the server was ended: make another LLM")

    def request(self, path, fields):
        """POST @fields."""
        return Call(self, "POST", path, fields).run()

    # ---- the end ----

    def close(self):
        """End the server, and the daemon if it is a private one."""
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        keeper = getattr(self, "_keeper", None)
        if keeper:
            # A forked child may have the pipe, too: its end alone says nothing.
            for say in (lambda: self._order("end", []), keeper.stdin.close):
                try:
                    say()
                except OSError:
                    pass        # it was killed
            keeper.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
