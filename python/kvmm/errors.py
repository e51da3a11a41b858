# SPDX-License-Identifier: Apache-2.0
"""The exceptions of this package: each is one line of text, with an errno where there is one."""
import errno as _errno


class Error(Exception):
    """A failure of kvmm; `errno` is 0 if no number belongs to it."""

    def __init__(self, text, errno=0):
        super().__init__(text)
        self.errno = errno


class NoLibrary(Error):
    """libkvmm, or a program of kvmm, is not there or has another version."""


class NoDaemon(Error):
    """No daemon answers at the socket."""


class Refused(Error):
    """The daemon refuses the attachment, or the server a request."""


class Invalid(Refused, ValueError):
    """The server refuses a request: an argument is wrong."""


class Ended(Error):
    """The attachment has ended: make another Client."""


class Closed(Error, ValueError):
    """The Client, sequence, step or LLM was closed before."""


class NoMemory(Error):
    """The pool, a limit or a table has no room."""


class Again(NoMemory):
    """There is no room now: try later."""


class Stale(Error):
    """The sequence was preempted, or the step is void: wait_ready() brings it back."""


class NotFound(Error):
    """The sequence, or the cached prefix, is not there any more."""


class Draining(Error):
    """An operator drains the node, the tenant or the client."""


class Timeout(Error, TimeoutError):
    """The time that the caller gave is over."""


_CLASSES = {
    _errno.EAGAIN: Again, _errno.E2BIG: NoMemory, _errno.ENOMEM: NoMemory, _errno.ENOSPC: NoMemory,
    _errno.EDQUOT: NoMemory, _errno.ESTALE: Stale, _errno.ENOENT: NotFound,
    _errno.ESHUTDOWN: Draining, _errno.ECONNRESET: Ended, _errno.ETIMEDOUT: Timeout,
}

_WORDS = {
    _errno.EAGAIN: "no memory now, try later",
    _errno.E2BIG: "it can never fit the pool, or the limits of the domain",
    _errno.ENOSPC: "no room",
    _errno.EDQUOT: "it no longer fits the limits of the domain",
    _errno.ESTALE: "the sequence was preempted: wait_ready() brings it back",
    _errno.ENOENT: "it is not there any more",
    _errno.ESHUTDOWN: "an operator drains the daemon",
    _errno.EBUSY: "an open step, or a request in flight, is in the way",
    _errno.EINVAL: "an argument is out of range",
    _errno.ERANGE: "a number is out of range",
    _errno.ENODEV: "the pool's device has failed",
}


def of_status(verb, status):
    """The exception of the negative errno that the daemon gave for @verb."""
    number = -status
    name = _errno.errorcode.get(number, str(number))
    words = _WORDS.get(number, name)
    return _CLASSES.get(number, Error)(f"{verb}: {words} ({name})", number)


def of_attach(status, text):
    """The exception of a failed kvmm_attach() or kvmm_ask()."""
    nobody = status in (-_errno.ENOENT, -_errno.ECONNREFUSED)
    return (NoDaemon if nobody else Refused)(text, -status)
