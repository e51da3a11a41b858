# SPDX-License-Identifier: Apache-2.0
"""What the storage backends for engines share: an attachment that is made again, and copies."""
import threading
import time

from . import _lib
from ._engine import PAGE
from .errors import Closed, Ended, Error
from .objects import Objects

ATTACH_SECONDS = 5  # between two tries to attach


def place_of(data, size, writable):
    """(address, bytes, owner) of a tensor, a buffer, or an address of @size bytes."""
    if isinstance(data, int):
        return data, size, None
    if hasattr(data, "data_ptr"):
        if not data.is_contiguous():
            raise ValueError("the tensor is not contiguous")
        return data.data_ptr(), data.numel() * data.element_size(), data
    ffi = _lib.load()[0]
    place = ffi.from_buffer(data, require_writable=writable)
    return int(ffi.cast("uintptr_t", place)), len(place), place


class Guarded:
    """A store of objects whose errors are logged.  _attach() of a subclass makes it."""

    def _begin(self, log):
        self._log = log
        self._objects = None
        self._tried = None
        self._closed = False
        self._lock = threading.Lock()

    def _open(self, domain, object_bytes, model, config):
        """The store of a domain, with what @config, a dict, says of the place."""
        store = Objects(domain, -(-object_bytes // PAGE) * PAGE, model=model,
                        socket=config.get("socket"), pool=config.get("pool"),
                        max_bytes=config.get("max_bytes"),
                        timeout=float(config.get("attach_timeout", 30)))
        if store.info.memory != "host":
            store.close()
            raise Error("the device pool is on a GPU: name one in host memory with \"pool\"")
        return store

    def _store(self):
        """The store of objects.  After the end of an attachment another one is made."""
        with self._lock:
            if self._closed:
                raise Closed("the storage is closed")
            if self._objects is None:
                now = time.monotonic()
                if self._tried is not None and now - self._tried < ATTACH_SECONDS:
                    raise Error("the daemon has ended the attachment: it is asked again soon")
                self._tried = now
                self._objects = self._attach()
            return self._objects

    def _guarded(self, work, *args):
        """work(store, *args); None after an error of kvmm, which is logged."""
        store = None
        try:
            store = self._store()
            return work(store, *args)
        except Error as e:
            self._log.warning("kvmm: %s", e)
            if isinstance(e, Ended):
                with self._lock:
                    if self._objects is store:
                        self._objects = None
                store.close()
            return None

    def close(self):
        with self._lock:
            store, self._objects = self._objects, None
            self._closed = True
        if store:
            store.close()
