# SPDX-License-Identifier: Apache-2.0
"""How threads share an attachment, which belongs to one thread at a time."""
import collections
import threading


class Turns:
    """A lock that threads get in the order in which they came.

    threading.Lock has no order: a thread that waits for the daemon in a loop would keep
    the others away.
    """

    def __init__(self):
        self._inner = threading.Lock()
        self._queue = collections.deque()
        self._held = False

    def __enter__(self):
        with self._inner:
            if not self._held:
                self._held = True
                return self
            mine = threading.Lock()
            mine.acquire()
            self._queue.append(mine)
        try:
            mine.acquire()
        except BaseException:       # a signal came: hand the turn on if it is ours by now
            with self._inner:
                ours = mine not in self._queue
                if not ours:
                    self._queue.remove(mine)
            if ours:
                self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        with self._inner:
            if self._queue:
                self._queue.popleft().release()
            else:
                self._held = False


class Pause:
    """Waits of many threads for one attachment: one waits in the library, the rest for it."""

    SLICE = 0.005       # seconds in which other threads cannot use the attachment

    def __init__(self):
        self._cond = threading.Condition()
        self._led = False

    def wait(self, seconds, in_library):
        """Return when something may have changed, or after @seconds at most."""
        with self._cond:
            if self._led:
                self._cond.wait(min(seconds, 0.05))
                return
            self._led = True
        try:
            in_library(min(seconds, self.SLICE))
        finally:
            with self._cond:
                self._led = False
                self._cond.notify_all()
