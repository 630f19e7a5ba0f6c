"""Buffers of tracked arrays: the accesses of compiled code by Python's buffer protocol.

Since Python 3.12, compiled code that asks a tracked array for its buffer comes to the class. The request says whether
the code needs a writable buffer. Most code has finished with the buffer when the program goes on, such as
``file.write`` and ``bytes``. A `memoryview` of the program lives on, and its later accesses cannot be seen.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

ARE_SEEN: Final = sys.version_info >= (3, 12)
"""Whether requests for a buffer can be seen."""

WRITABLE: Final = 1
"""The flag of a request for a writable buffer, `inspect.BufferFlags.WRITABLE`."""

_lent: dict[int, weakref.ref[memoryview]] = {}
_quiet = threading.local()


def watch(view: memoryview, frame: FrameType, given_back: Callable[[], None]) -> None:
    """Call a function if a buffer is given back in the same call of a frame in which it was asked for."""
    call = (id(frame), frame.f_lasti)

    def ended(reference: weakref.ref[memoryview]) -> None:
        _lent.pop(id(reference), None)
        now = sys._getframe(1)  # noqa: SLF001  # what `inspect` uses
        if (id(now), now.f_lasti) == call:
            given_back()

    reference = weakref.ref(view, ended)
    _lent[id(reference)] = reference


@contextmanager
def quiet() -> Iterator[None]:
    """Let requests of this thread in the block not be noted."""
    before = is_quiet()
    _quiet.is_on = True
    try:
        yield
    finally:
        _quiet.is_on = before


def is_quiet() -> bool:
    """Tell whether requests of this thread are not to be noted."""
    return getattr(_quiet, "is_on", False)


def exporter(view: memoryview) -> Any:
    """Return the object whose memory a view has; a tracked array is found through Python's wrapper around it."""
    found = view.obj
    if type(found).__name__ != "_buffer_wrapper":
        return found
    return next((one for one in gc.get_referents(found) if not isinstance(one, memoryview)), found)
