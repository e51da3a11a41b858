# SPDX-License-Identifier: Apache-2.0
"""A process that holds the daemon and the server of one kvmm.LLM.

usage: _keeper.py PID FOLDER

Lines of JSON on standard input start programs: {"name": .., "argv": [..]}.  A line on
standard output tells of one that ended: {"name": .., "code": ..}.  When standard input ends
or process PID dies, in any way, the keeper ends the programs, the last one first, and
removes FOLDER.  When the keeper is killed, the kernel sends SIGTERM to the programs.

A process of its own is needed: PR_SET_PDEATHSIG is about the thread that forks, and a
thread of the user's program may end before its LLM.
"""
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1
GRACE_SECONDS = {"server": 5, "daemon": 15}     # kvmm-hold gives kvmm 10 s

libc = ctypes.CDLL(None)


def ends_with_me():
    """In the child: SIGTERM when the keeper dies."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != ends_with_me.keeper:
        os._exit(1)


def start(order, folder):
    with open(os.path.join(folder, order["name"] + ".log"), "wb") as log:
        return subprocess.Popen(order["argv"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                preexec_fn=ends_with_me)


def tell(**news):
    try:
        os.write(1, (json.dumps(news) + "\n").encode())
    except OSError:
        pass        # the parent is gone: the pidfd says so, too


def end(name, child):
    if child.poll() is None:
        child.terminate()
    try:
        child.wait(GRACE_SECONDS.get(name, 5))
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def serve(parent, folder, children):
    """Start and watch programs until the parent ends."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(parent, select.POLLIN)
    watched = {}
    rest = b""
    while True:
        for fd, _ in poll.poll():
            if fd in watched:
                name = watched.pop(fd)
                poll.unregister(fd)
                os.close(fd)
                tell(name=name, code=children[name].wait())
                continue
            got = os.read(0, 65536) if fd == 0 else b""
            if not got:
                return
            *lines, rest = (rest + got).split(b"\n")
            for line in lines:
                order = json.loads(line)
                if order["name"] == "end":
                    return
                child = children[order["name"]] = start(order, folder)
                pidfd = os.pidfd_open(child.pid)
                watched[pidfd] = order["name"]
                poll.register(pidfd, select.POLLIN)


def main():
    pid, folder = int(sys.argv[1]), sys.argv[2]
    children = {}
    # Ctrl-C is for the parent; SIGTERM ends the programs as an exception would.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    ends_with_me.keeper = os.getpid()
    try:
        serve(os.pidfd_open(pid), folder, children)
    except ProcessLookupError:
        pass        # the parent has died before
    finally:
        for name, child in reversed(children.items()):
            end(name, child)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
