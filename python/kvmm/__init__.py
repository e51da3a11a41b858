# SPDX-License-Identifier: Apache-2.0
"""kvmm from Python: a Client of the daemon, a store of Objects, figures, offline generation.

See Documentation/python.md.
"""
from ._base import Info
from ._lib import declarations as _declarations
from ._stats import stats
from .client import Client, Found
from .errors import (Again, Closed, Draining, Ended, Error, Invalid, NoDaemon, NoLibrary,
                     NoMemory, NotFound, Refused, Stale, Timeout)
from .llm import LLM
from .objects import Objects
from .outputs import CompletionOutput, Logprob, RequestOutput
from .params import SamplingParams
from .sequence import Lease, Sequence, Status
from .step import Grant, Step

__all__ = [
    "Again", "Client", "Closed", "CompletionOutput", "Draining", "Ended", "Error", "Found",
    "Grant", "Info", "Invalid", "LLM", "Lease", "Logprob", "NoDaemon", "NoLibrary", "NoMemory",
    "NotFound", "Objects", "Refused", "RequestOutput", "SamplingParams", "Sequence", "Stale",
    "Status", "Step", "Timeout", "stats",
]


def __getattr__(name):
    if name == "__version__":
        return _declarations().version
    raise AttributeError(f"module kvmm has no attribute {name}")
