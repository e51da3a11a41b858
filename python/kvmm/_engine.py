# SPDX-License-Identifier: Apache-2.0
"""What the connectors of engines share: the size of an object, its domain, and the store."""
import functools
import hashlib
import json
import re

from .errors import Refused
from .objects import Objects

LIMITS = ("max_bytes", "swap_max_bytes")     # settings
# Settings of each connector, with defaults.  Those of a connector alone are numbers of seconds.
SETTINGS = {
    "domain": None,             # the name of the domain
    "socket": None,             # of the daemon, or its folder
    "max_bytes": None,          # limits of the domain
    "swap_max_bytes": None,
    "attach_seconds": 3.0,      # the longest wait for the daemon when the engine starts
    "retry_seconds": 5.0,       # between two looks for a daemon
}
PAGE = 4096
LEAST = 16384       # the daemon's --min-token-bytes, for the 16 "tokens" of an object


def harmless(log, engine, result=lambda: None):
    """An exception of this method is a line in the log, and its value is result()."""
    def wrap(method):
        @functools.wraps(method)
        def safe(self, *args, **kwargs):
            try:
                return method(self, *args, **kwargs)
            except Exception:
                log.exception("kvmm: a fault in %s; %s goes on", method.__name__, engine)
                return result()
        return safe
    return wrap


def wrong_setting(given, settings, place):
    """What is wrong with a setting, in words; None: nothing."""
    for name, value in given.items():
        if name not in settings:
            return f"{place} has no setting {name}"
        kinds, words = ((str,), "a text") if name in ("domain", "socket") else \
            ((int,), "a number of bytes") if name in LIMITS else \
            ((int, float), "a number of seconds")
        if not isinstance(value, kinds) and (value is not None or settings[name] is not None):
            return f"{name} of {place} is {value!r}, not {words}"
    return None


def object_bytes(nr):
    """The bytes of an object for @nr bytes: a multiple of a page."""
    return max(-(-nr // PAGE) * PAGE, LEAST)


def digest_of(fields, person):
    """The digest of @fields, a dict: all that decides the bytes of content but its key."""
    text = json.dumps(fields, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=32, person=person).digest()


def domain_of(engine, model, identity):
    """A domain for each identity, so that two of them are never in each other's way."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", model)[:40]
    return f"{engine}-{name}-{identity.hex()[:8]}"


def store_of(engine, domain, bytes, *, max_bytes=None, swap_max_bytes=None, **more):
    """A store in host memory."""
    limits = {} if swap_max_bytes is None else {"swap_max_bytes": swap_max_bytes}
    store = Objects(domain, bytes, max_bytes=max_bytes, **limits, **more)
    if store.info.memory != "host":
        store.close()
        raise Refused(f"the pool of the daemon is on a GPU, and blocks of {engine} are in host "
                      "memory: start another daemon with --backend host, and set its socket")
    return store
