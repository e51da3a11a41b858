# SPDX-License-Identifier: Apache-2.0
"""Tests of the connector of vLLM: a stand-in of vLLM, and a real daemon."""
import logging
import os
import signal

import vllm_standin
from vllm_standin import Engine
from world import World, children_of, freeze, name_of

vllm_standin.install()

import kvmm                                     # noqa: E402
from kvmm import _vllm_names as names           # noqa: E402
from kvmm import vllm as connector              # noqa: E402

logging.getLogger("vllm.kvmm").addHandler(logging.NullHandler())
# A busy machine may be late; what is tested about time is tested with times of its own.
PATIENT = {"lookup_seconds": 10, "load_seconds": 10, "save_seconds": 10, "retry_seconds": 0.2}


def prompt(seed, nr=100):
    return [seed * 1000 + i for i in range(nr)]


class Vllm(World):
    def engine(self, extra=(), kind=connector.KvmmConnector, **more):
        engine = Engine(kind, extra={**PATIENT, **dict(extra)}, **more)
        self.addCleanup(engine.close)
        return engine

    def lines(self, call, *args, **kwargs):
        """(the result of the call, lines of the log)"""
        with self.assertLogs("vllm.kvmm", "INFO") as caught:
            result = call(*args, **kwargs)
        return result, [r.getMessage() for r in caught.records]

    def drop(self, request, first, last, group=0, **more):
        vllm, config = vllm_standin.configs(**more)
        identity = names.identity_of(vllm, config, "0.32.0")
        with kvmm.Objects(names.domain_of(vllm, identity), names.object_bytes(config),
                          identity=identity) as store:
            gone = store.delete([names.key_of(h, 0, group)
                                 for h in request.block_hashes[first:last]])
            self.assertTrue(all(gone))

    def kvmm_pid(self):
        return next(p for p in children_of(self.hold.pid) if name_of(p) == "kvmm")

    def stop_for_a_while(self):
        """SIGSTOP of the daemon.  Return: a function that ends it."""
        pid = self.kvmm_pid()
        self.addCleanup(os.kill, pid, signal.SIGCONT)
        self.assertTrue(freeze(pid))
        return lambda: os.kill(pid, signal.SIGCONT)

    def domains(self):
        return [d["name"] for d in kvmm.stats("domains")["domains"]]
