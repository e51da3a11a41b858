# SPDX-License-Identifier: Apache-2.0
"""A store of objects that a thread of its own uses, so that no caller waits for the daemon.

An engine's loop may not wait: a daemon that is killed answers after the next one has come, and
one that is stopped never.  A caller submits a job and asks later whether it is done.  After the
caller has given a job up, the job touches the engine's memory no more.
"""
import atexit
import itertools
import queue
import threading
import time
import weakref
from array import array
from collections import deque

from . import _lib
from .errors import Ended, Error, NoDaemon, NoLibrary, Refused

CLOSE_SECONDS = 2.0
COPY_BYTES = 16 << 20
FIRST, LAST, STOP = 0, 1, -1        # the order of jobs that wait
FULL = ("no memory for blocks: give the daemon more (--host-size, --pool-size), or this domain "
        "(max_bytes)")
LATE = "the daemon took too long; look at its load (kvctl status)"

_asides = weakref.WeakSet()


@atexit.register
def _close_all():
    for aside in list(_asides):
        aside.close()


class Late(Exception):
    """The job was given up, so the engine's memory may not be touched."""


class Job:
    """Work for the thread: a function of the store and of the job."""

    def __init__(self, work):
        self.work = work
        self.result = None
        self.late = False
        self.since = time.monotonic()
        self.done = threading.Event()
        self._lock = threading.Lock()

    def copy(self, pieces):
        """Copy memory, (to, from, bytes) each, unless the job was given up: then raise Late.

        One call of the library does many: after each call a thread may wait 5 ms for Python's
        lock.  Not all, because give_up() waits for a call.
        """
        pieces = deque(pieces)
        ffi, lib, _ = _lib.load()
        while pieces:
            some, size = array("Q"), 0
            while pieces and size < COPY_BYTES:
                some.extend(pieces[0])
                size += pieces.popleft()[2]
            with self._lock:
                if self.late:
                    raise Late
                lib.kvmm_copy(ffi.from_buffer("struct kvmm_piece[]", some), len(some) // 3)

    def finish(self, result):
        """The job no longer needs the engine's memory, whatever is left to do."""
        self.result = result
        self.done.set()

    def give_up(self):
        """The engine's memory is not touched after this returns."""
        with self._lock:
            self.late = True

    def over(self, seconds):
        """Is the job done, or older than @seconds and hence given up?"""
        if self.done.is_set():
            return True
        if time.monotonic() < self.since + seconds:
            return False
        self.give_up()
        return True

    def await_result(self, seconds):
        """The result, or None after @seconds, or if the work failed."""
        if not self.done.wait(seconds):
            self.give_up()
        return self.result if self.done.is_set() else None


def failed_job():
    """A job that has failed."""
    job = Job(None)
    job.finish(None)
    return job


class Aside:
    """@attach() returns the store, or raises an Error; @say(text) is told of each change.

    engine: its name, for these texts
    """

    def __init__(self, attach, say, retry_seconds, engine):
        self._attach = attach
        self._say = say
        self._retry_seconds = retry_seconds
        self._engine = engine
        self._retry_at = 0.0    # no store, and none is looked for before
        self._store = None
        self._off = False       # for good
        self._closed = False    # no job begins
        self._job = None        # that runs
        self._told = ""         # the last text
        self._numbers = itertools.count()
        self._jobs = queue.PriorityQueue()
        self._nr = 0            # jobs that wait or run
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="kvmm-aside", daemon=True)
        self._thread.start()
        _asides.add(self)

    @property
    def away(self):
        """No store, and none is looked for now."""
        return self._off or (self._store is None and time.monotonic() < self._retry_at)

    @property
    def urgent(self):
        """A job of order FIRST waits behind the one that runs."""
        return any(order == FIRST for order, _, _ in self._jobs.queue[:1])

    @property
    def idle(self):
        """No job waits or runs."""
        return not self._nr

    def start(self, work, order=LAST):
        """Have the thread run @work.  Return: the job; None: there is no store."""
        if self.away:
            return None
        job = Job(work)
        with self._lock:
            self._nr += 1
        self._jobs.put((order, next(self._numbers), job))
        return job

    def submit(self, work, order=LAST):
        """Likewise.  Return: the job; one that failed if there is no store."""
        return self.start(work, order) or failed_job()

    def ask(self, work, seconds):
        """Run @work in the thread.  Return: its result; None: failed, or not in time."""
        return self.submit(work).await_result(seconds)

    def close(self):
        """Do the jobs that wait, for CLOSE_SECONDS at most, and detach.

        The engine's memory is not touched after this returns.
        """
        if self._off:
            self._jobs.put((STOP, 0, None))
        else:
            self._jobs.put((LAST, next(self._numbers), None))
        self._thread.join(CLOSE_SECONDS)
        self._off = self._closed = True
        job = self._job
        if job is not None:
            job.give_up()

    # ---- in the thread ----

    def _serve(self):
        while (job := self._jobs.get()[2]) is not None:
            self._job = job     # before the look at _closed: close() sets that first
            try:
                if not (job.late or self._closed):
                    self._run(job)
            except Exception as e:      # a fault of this package may not end the engine
                self.tell(f"{type(e).__name__}: {e}")
            with self._lock:
                self._nr -= 1
            job.done.set()
            self._job = None
        if self._store is not None:
            self._store.close()

    def _run(self, job):
        try:
            if self._store is None:
                self._store = self._attach()
                self.tell(None)
            job.finish(job.work(self._store, job))
        except Late:
            self.tell(LATE)
        except NoLibrary as e:
            self._off = True
            self.tell(f"{e}; {self._engine} goes on without kvmm until it is started again")
        except (NoDaemon, Refused, Ended) as e:
            self._lose(e)
        except Error as e:
            self.tell(str(e))

    def _lose(self, error):
        self._retry_at = time.monotonic() + self._retry_seconds
        store, self._store = self._store, None
        self.tell(f"{error}; {self._engine} goes on without kvmm, and looks again every "
                  f"{self._retry_seconds:g} s")
        if store is not None:
            store.close()

    def tell(self, text):
        """Tell of trouble once; None: it is over."""
        if text != self._told:
            self._told = text
            self._say(text)
