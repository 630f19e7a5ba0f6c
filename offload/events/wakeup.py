"""Wake a thread from anywhere: from a stream's callback, a worker, or C code.

A wake-up only says *look again*: posts may be lost into one another, and a wait may end without a post.
"""

from __future__ import annotations

import ctypes
import errno
import sys
import threading
import time
from typing import Protocol


class Wakeup(Protocol):
    """A binary signal for one waiting thread."""

    def post(self) -> None:
        """Wake the waiting thread, or keep its next wait from blocking."""

    def sharpen(self) -> None:
        """Have the waits of the calling thread end as close to their time as the system can."""

    def wait(self, timeout_s: float | None) -> None:
        """Block until a post, or for ``timeout_s`` seconds."""


class LockWakeup:
    """A wake-up for threads of Python, on every platform."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def post(self) -> None:
        try:
            self._lock.release()
        except RuntimeError:
            return  # already posted

    def sharpen(self) -> None:
        """Do nothing: devices without a driver have no microseconds to lose."""

    def wait(self, timeout_s: float | None) -> None:
        self._lock.acquire(timeout=-1 if timeout_s is None else timeout_s)


_PR_SET_TIMERSLACK = 29  # An operation of ``prctl``; its argument is in nanoseconds


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class SemaphoreWakeup:
    """A POSIX semaphore, which C code may post without the GIL: ``sem_post(address)`` (Linux)."""

    # The semaphore is never destroyed: a driver may post it late, at shutdown. It takes 32 bytes.

    _keep: list[ctypes.Array[ctypes.c_char]] = []  # noqa: RUF012  # shared on purpose: outlives every instance

    def __init__(self) -> None:
        if not sys.platform.startswith("linux"):
            raise OSError("POSIX semaphores as stream callbacks are supported on Linux only")
        self._libc = ctypes.CDLL(None, use_errno=True)
        memory = ctypes.create_string_buffer(64)
        self._keep.append(memory)
        self.address = ctypes.addressof(memory)
        self.post_function = ctypes.cast(self._libc.sem_post, ctypes.c_void_p).value
        for name in ("sem_post", "sem_wait", "sem_trywait"):
            getattr(self._libc, name).argtypes = (ctypes.c_void_p,)
        self._libc.sem_timedwait.argtypes = (ctypes.c_void_p, ctypes.POINTER(_Timespec))
        self._libc.sem_init.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint)
        if self._libc.sem_init(self.address, 0, 0):
            raise OSError(ctypes.get_errno(), "sem_init failed")

    def post(self) -> None:
        self._libc.sem_post(self.address)

    def sharpen(self) -> None:
        """Have waits of the calling thread end at their time, not up to 50 µs later as Linux has it by default."""
        self._libc.prctl(_PR_SET_TIMERSLACK, 1_000, 0, 0, 0)

    def wait(self, timeout_s: float | None) -> None:
        if timeout_s is None:
            self._libc.sem_wait(self.address)  # EINTR is a wake-up like any other
        else:
            # sem_timedwait takes a time of the real-time clock; a jump of it costs one early or late wake-up.
            deadline_ns = time.time_ns() + int(timeout_s * 1e9)
            until = _Timespec(deadline_ns // 1_000_000_000, deadline_ns % 1_000_000_000)
            if self._libc.sem_timedwait(self.address, ctypes.byref(until)) and ctypes.get_errno() in (
                errno.ETIMEDOUT,
                errno.EINTR,
            ):
                return
        while self._libc.sem_trywait(self.address) == 0:
            pass  # several posts mean no more than one
