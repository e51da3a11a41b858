# SPDX-License-Identifier: Apache-2.0
"""Work that a tier hands to the thread of an Aside: lookups, loads and stores.

The scheduler hands work in and polls what came of it.  No caller waits.  Each transfer has an
end: after it the thread touches the engine's memory no more, whatever the daemon does.
"""
import ctypes
import errno
import threading
import time
from collections import deque

from ._aside import FULL, LATE, Late
from .errors import Ended, Error, NoDaemon, NoLibrary, Refused, Stale

LOOKUP, LOAD, STORE = range(3)      # the most urgent first
BATCH = 64                          # objects that are held at once
PIECE_BYTES = 64 << 20              # that are copied without a look at more urgent work
MEMORY_SECONDS = 1.0                # the longest wait of a store for memory
SLICE = 0.1                         # without a look at more urgent work


class WorkQueue:
    """Pieces of work, in the order of their urgency.  @aside runs them, one after the other."""

    def __init__(self):
        self.aside = None
        self._lines = [deque() for _ in range(3)]
        self._lock = threading.Lock()
        self._runs = False      # the thread has an order to look at the lines
        self._since = None      # the begin of the piece that runs
        self.attaches = False

    def put(self, urgency, piece):
        with self._lock:
            self._lines[urgency].append(piece)
            runs, self._runs = self._runs, True
        if not runs and self.aside.start(self._serve) is None:
            self.fail_all()

    def hangs(self, seconds):
        """Has a piece run for @seconds?"""
        since = self._since
        return since is not None and time.monotonic() - since > seconds

    def fail_all(self):
        with self._lock:
            pieces = [piece for line in self._lines for piece in line]
            for line in self._lines:
                line.clear()
            self._runs = False
        for piece in pieces:
            piece.end()

    # ---- in the thread ----

    def attach(self, attach):
        """The store, or what waits for it fails."""
        self._since, self.attaches = time.monotonic(), True
        try:
            return attach()
        except BaseException:
            self.fail_all()
            raise
        finally:
            self._since, self.attaches = None, False

    def _take(self):
        with self._lock:
            for line in self._lines:
                if line:
                    self._since = time.monotonic()
                    return line.popleft()
            self._runs, self._since = False, None
            return None

    def _put_back(self, piece):
        with self._lock:
            self._lines[piece.urgency].append(piece)

    def _serve(self, store, job):
        while (piece := self._take()) is not None:
            try:
                if piece.run(store, self.aside.tell):
                    self._put_back(piece)
                    continue
            except (NoLibrary, NoDaemon, Refused, Ended):
                self._since = None
                piece.end()
                self.fail_all()
                raise
            except Late:
                pass
            except Error as e:
                self.aside.tell(str(e))
            except Exception as e:      # a fault of this package
                self.aside.tell(f"{type(e).__name__}: {e}")
            piece.end()
        return True


class Asked:
    """A key that was looked up."""

    def __init__(self, name, end):
        self.name = name
        self.end = end          # without an answer it is a miss
        self.there = None       # the thread's answer
        self.verdict = None     # what vLLM was told; it does not change but by a failed load
        self.requests = set()

    def look(self):
        """True, False, or None: not known yet."""
        if self.verdict is None:
            there = self.there
            if there is None and time.monotonic() < self.end:
                return None
            self.verdict = bool(there)
        return self.verdict


class Lookup:
    def __init__(self, asked):
        self._asked = asked

    def run(self, store, tell):
        for asked, tier in zip(self._asked, store.exists([a.name for a in self._asked])):
            asked.there = tier is not None

    def end(self):
        for asked in self._asked:
            if asked.there is None:
                asked.there = False


class Transfer:
    """A job of vLLM: keys, whose blocks lie at addresses of the primary tier."""

    def __init__(self, number, load, places, size, seconds, done):
        self.number = number
        self.load = load
        self.size = size
        self.keys = [key for key, _, _ in places]   # (vLLM's key, its name, the address)
        self.good = set()
        self.over = threading.Event()
        self.begin = time.monotonic()
        self.end = self.begin + seconds
        self.seconds = 0.0
        self.late = False
        self._done = done
        self._lock = threading.Lock()
        most = max(min(BATCH, PIECE_BYTES // size), 1)
        self.pieces = [Piece(self, places[i:i + most]) for i in range(0, len(places), most)]
        self._left = len(self.pieces)
        if not self.pieces:
            self._finish()

    def copy(self, to, source):
        """Copy a block, unless vLLM was told that this transfer failed."""
        with self._lock:
            if self.late:
                raise Late
            ctypes.memmove(to, source, self.size)

    def piece_ended(self, good):
        with self._lock:
            self._left -= 1
            if self.late:
                return
            self.good |= good
            if not self._left:
                self._finish()

    def _finish(self):
        self.seconds = time.monotonic() - self.begin
        self._done.put(self)
        self.over.set()

    def give_up(self, wait):
        """No copy begins after this.  False: it has ended, or a copy runs and @wait is False."""
        if not self._lock.acquire(blocking=wait):
            return False
        try:
            if not self._left or self.late:
                return False
            self.late = True
            self.seconds = time.monotonic() - self.begin
            self.over.set()
            return True
        finally:
            self._lock.release()


class Piece:
    """At most BATCH blocks of a transfer, and PIECE_BYTES if a block has no more."""

    def __init__(self, transfer, places):
        self.urgency = LOAD if transfer.load else STORE
        self._transfer = transfer
        self._places = places   # that are left to do
        self._good = set()
        self._until = None      # the last time to try again

    def run(self, store, tell):
        """Return: is this to be run again?"""
        t, now = self._transfer, time.monotonic()
        if t.late:
            return False
        if self._until is None:
            self._until = t.end if t.load else min(now + MEMORY_SECONDS, t.end)
        try:
            self._places = self._copy(store)
        except Stale:           # all of them again
            pass
        if self._places and now >= self._until:
            tell(LATE if t.load else FULL)
        return bool(self._places) and now < self._until

    def _copy(self, store):
        """Return: the places for which there was no memory, or no content, in time."""
        t = self._transfer
        hold = store.get if t.load else store.create
        with hold([name for _, name, _ in self._places], SLICE) as items:
            for item, (_, _, address) in zip(items, self._places):
                if item.held:
                    t.copy(*((address, item.address) if t.load else (item.address, address)))
        left, good = [], (0,) if t.load else (0, errno.EEXIST)
        for item, place in zip(items, self._places):
            if item.status in good:
                self._good.add(place[0])
            elif item.status == errno.EAGAIN:
                left.append(place)
        return left

    def end(self):
        self._transfer.piece_ended(self._good)
