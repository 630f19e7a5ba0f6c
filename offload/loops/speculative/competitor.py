"""The serial program as a competitor: a run in order on a thread of C of its own, which can be given up at any time.

The thread is there from `start` to `join`, and no longer (``competitor.c``). Python takes no part in between: it looks
at `has_ended`.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
from importlib import resources
from typing import TYPE_CHECKING, Final

from offload.interrupts.forks import in_forked_child
from offload.loops.running.build import builder
from offload.loops.running.compilers import HostFailure

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.loops.running.runs import OrderedRun

# Between two looks at the word that gives a run up.
SLICE_NS: Final = 1_000_000


class _Words(ctypes.Structure):
    """The memory that Python and the thread share, as in ``competitor.c``."""

    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("record", ctypes.c_void_p),
        ("trips", ctypes.c_int64),
        ("slice_ns", ctypes.c_int64),
        ("cancel", ctypes.c_int64),
        ("n_done", ctypes.c_int64),
        ("ns", ctypes.c_int64),
        ("ended", ctypes.c_int64),
        ("thread", ctypes.c_void_p),
    )


class Competitor:
    """A run in order on a thread of its own.

    After `give_up` it may go on for ``slice_ns``, or for one innermost loop if that takes longer.
    """

    def __init__(self, run: OrderedRun, slice_ns: int = SLICE_NS) -> None:
        self.run = run  # compiled, not begun, on arrays that nobody else uses
        self._words = _Words(run.form.entry, run.address, run.record, run.trips, slice_ns)  # shared with the thread
        self._is_started = False  # there is a thread

    def start(self) -> bool:
        """Begin; return false where no thread can be had."""
        functions = _functions()
        if functions is None:
            return False
        start, _ = functions
        running.add(self)  # before there is a thread: its memory must live as long
        self._is_started = start(ctypes.addressof(self._words)) == 0
        if not self._is_started:
            running.discard(self)
        return self._is_started

    @property
    def has_ended(self) -> bool:
        """Whether all trips are done, something was wrong, or it was given up; `join` takes no time then."""
        return bool(self._words.ended)

    @property
    def is_complete(self) -> bool:
        """Whether it has come to the end of the serial program, by the last trip or by an exception."""
        return self.has_ended and (self.run.has_failed or self._words.n_done == self._words.trips)

    @property
    def whole_s(self) -> float | None:
        """The time of all trips, estimated from those that are done, once it has ended; None if none is."""
        words = self._words
        return words.ns * 1e-9 * words.trips / words.n_done if words.n_done else None

    def give_up(self) -> None:
        """Have it end soon; its writes are of no use."""
        self._words.cancel = 1
        self.run.give_up()

    def join(self) -> None:
        """Wait until the thread is gone. Idempotent."""
        if self._is_started:
            self._is_started = False
            _, join = _functions()  # type: ignore[misc]  # it has been started by one of them
            join(ctypes.addressof(self._words))
            running.discard(self)


# Those that have a thread.
running: set[Competitor] = set()


@functools.cache
def _functions() -> tuple[Callable[[int], int], Callable[[int], None]] | None:
    """Return the functions that start a thread and wait until it is gone; None if they cannot be compiled now."""
    source = resources.files("offload.loops.speculative").joinpath("competitor.c").read_text(encoding="utf-8")
    try:
        start = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(builder.load(source, "offload_competitor_start"))
    except HostFailure:
        return None
    join = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(builder.load(source, "offload_competitor_join"))
    return start, join


def _end_all() -> None:
    """Give up all runs at the end of the process: their memory goes."""
    for one in [*running]:
        one.give_up()
    for one in [*running]:
        one.join()


atexit.register(_end_all)
in_forked_child(running.clear)  # a child has none of the threads
