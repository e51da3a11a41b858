# SPDX-License-Identifier: Apache-2.0
"""daemon.py - a daemon of kvmm for the scripts here"""
import os
import subprocess


class Daemon:
    """A daemon in a folder of its own."""

    def __init__(self, build, folder, *options):
        os.environ.update(KVMM_RUNDIR=str(folder), KVMM_CONFIG="none")
        os.environ.setdefault("KVMM_LIBCUDA", "/nonexistent/libcuda.so.1")
        self.process = subprocess.Popen([build / "kvmm-hold", "--backend", "host", *options],
                                        stderr=open(folder / "hold.log", "w"))
        subprocess.run([build / "kvctl", "wait", "--timeout", "20"], check=True)

    def close(self):
        self.process.terminate()
        self.process.wait()
