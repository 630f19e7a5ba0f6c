"""The library's own steps, which neither Ctrl-C nor a finalizer may come in between.

Theory of operation
-------------------
A `Shield` says, on any thread, that the code inside of it is the library's own and no body of the program's. What
finalizers ask for in the middle of that is put off (`offload.interrupts.finalizers`). On the main thread it keeps
Ctrl-C away too: Python raises `KeyboardInterrupt` on the main thread wherever that is, also between two steps that
belong together: a task that has left the queue and not begun, a predecessor that has released one of its successors.
Such a task would be lost, and every later wait for it would hang. So the main thread runs steps inside of a `Shield`,
which puts a handler of its own in the place of Python's. In the body of a task it raises as Python's would; elsewhere
it notes the interrupt and wakes the thread. A wait raises what has been noted between two tasks, the end of the
outermost shield at the latest.

The order of the steps of a shield leaves no gap: Python looks for signals at calls and at backward jumps, never
between two assignments, and `signal` itself looks before it changes the handler.

The handler of another signal may raise anywhere, in a shield's own steps too, which then stays up. The next Ctrl-C
that finds nothing of the library on the stack puts that right.

A handler that the program has installed is left alone. Python's own is back after every shield, since others look for
it (`asyncio.run`, notebooks); a shield costs 0.8 µs.
"""

from __future__ import annotations

import os
import threading
from signal import SIGINT, default_int_handler
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol

try:  # what is behind the functions of `signal`, which look for a member of an enum: a shield would cost 8 µs
    from _signal import getsignal, signal  # type: ignore[import-not-found]  # nobody has typed it
except ImportError:
    from signal import getsignal, signal

from offload.interrupts.frames import is_own

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType
    from typing import Self


class Place(Protocol):
    """Where the main thread is.

    Attributes
    ----------
    in_body : bool
        Whether the code that runs is a body's.
    parker : Parker
        What the thread may be parked on.
    may_generate : bool
        Whether constructs are allowed in the body that runs.
    """

    in_body: bool
    parker: Any

    @property
    def may_generate(self) -> bool: ...


class _Main:
    """What is known of the main thread.

    Attributes
    ----------
    ident : int
    place : Place or None
        That of the innermost shield.
    is_struck : bool
        Whether an interrupt has been noted and nobody has raised it.
    is_raised : bool
        Whether one has been raised in a body that has not ended since.
    """

    __slots__ = ("ident", "is_raised", "is_struck", "place")

    def __init__(self) -> None:
        self.ident = threading.main_thread().ident
        self.place: Any = None
        self.is_struck = self.is_raised = False

    def forked(self) -> None:
        """Be the thread that forked, which is the child's only one; the shields of another stay behind."""
        if self.ident != get_ident():
            self.ident = get_ident()
            self.cut()

    def cut(self) -> None:
        """Have no shield up; a handler that the program has installed meanwhile stays."""
        self.place, self.is_struck, self.is_raised = None, False, False
        if getsignal(SIGINT) is _strike:
            signal(SIGINT, default_int_handler)


class _Other(threading.local):
    """The same of every other thread, where no interrupt ever comes."""

    place: Any = None
    is_struck = is_raised = False


class _Quiet:
    """The place of steps that neither wait nor run bodies."""

    __slots__ = ("in_body", "parker")

    may_generate = False

    def __init__(self) -> None:
        self.in_body = False
        self.parker = self

    def unpark(self) -> None:
        """Do nothing: nobody is parked."""


_main = _Main()
_other = _Other()
_quiet = _Quiet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_main.forked)


class Shield:
    """Says that a block is the library's own steps, and keeps an interrupt from being raised there, but in bodies.

    Parameters
    ----------
    place : Place, optional
        The scope of the calling thread, where the block may wait or run bodies.

    Attributes
    ----------
    signs : object
        Its ``is_struck`` says whether an interrupt has come that the block is to raise.

    Raises
    ------
    KeyboardInterrupt
        At the end of the block: one came meanwhile, and the block has not raised it itself.
    """

    __slots__ = ("_place", "_saved", "signs")

    def __init__(self, place: Place = _quiet) -> None:
        self._place = place

    def __enter__(self) -> Self:
        self._saved = raise_shield(self._place)
        self.signs = self._saved[0]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lower_shield(self._place, self._saved, error)

    @classmethod
    def around(cls, run: Callable[[], None]) -> Callable[[], None]:
        """Return the same for a thread of the library's own: all that runs there is its own steps."""

        def shielded() -> None:
            with cls():
                run()

        return shielded

    def check(self) -> None:
        """Raise an interrupt that has come."""
        signs = self.signs
        if signs.is_struck:
            signs.is_struck = False
            signs.is_raised = True
            raise KeyboardInterrupt


Saved = tuple[Any, Any, bool]
"""What a shield finds: the books of its thread, the place around it, and whether the code in its own was a body's."""


def raise_shield(place: Place) -> Saved:
    """Do what entering `Shield` does, for a third less; return what to lower it with."""
    main = _main
    if get_ident() != main.ident:
        found = _other, _other.place, place.in_body
        place.in_body = False
        _other.place = place
        return found
    outer = main.place
    if outer is None:
        main.is_struck = main.is_raised = False
        handler = getsignal(SIGINT)
        if handler is default_int_handler or handler is _strike:
            signal(SIGINT, _strike)  # from here on nothing is raised
    saved = main, outer, place.in_body
    place.in_body = False
    main.place = place
    return saved


def lower_shield(place: Place, saved: Saved, error: BaseException | None = None) -> None:
    """Do what leaving `Shield` does, ``error`` being in flight; raises as that does."""
    thread, outer, place.in_body = saved
    thread.place = outer
    if outer is None:
        if thread is _main and getsignal(SIGINT) is _strike:  # else a body has installed another
            signal(SIGINT, default_int_handler)
    elif not outer.in_body:
        return
    if thread.is_struck:
        thread.is_struck = False
        thread.is_raised = outer is not None
        if not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt


def is_at_work() -> bool:
    """Tell whether the calling thread runs the library's own steps, or something that they have called."""
    place = _main.place if get_ident() == _main.ident else _other.place
    return place is not None and not place.in_body


def is_free() -> bool:
    """Tell whether the calling thread runs the program's code, where constructs are allowed."""
    place = _main.place if get_ident() == _main.ident else _other.place
    return place is None or (place.in_body and place.may_generate)


def ends_body(error: BaseException) -> bool:
    """Tell whether a body has ended by an interrupt; then the wait that runs the body ends by it too."""
    main = _main
    if main.is_raised and isinstance(error, KeyboardInterrupt) and get_ident() == main.ident:
        main.is_struck, main.is_raised = True, False
        return True
    return False


def make_room(n_frames: int) -> None:
    """Raise `RecursionError` now rather than in the middle of what takes so many frames."""
    if n_frames:
        make_room(n_frames - 1)


def _is_ours(frame: FrameType | None) -> bool:
    """Tell whether the library is on a stack; else what a handler of another signal raised has cut a shield short."""
    while frame is not None:
        if is_own(frame.f_globals.get("__name__")):
            return True
        frame = frame.f_back
    return False


def _strike(number: int, frame: FrameType | None) -> None:
    main = _main
    place = main.place
    if frame is not None and not _is_ours(frame):
        main.cut()
        default_int_handler(number, frame)
    if place is None:
        main.is_struck = True
    elif place.in_body:
        main.is_struck, main.is_raised = False, True
        default_int_handler(number, frame)
    else:
        main.is_struck = True
        place.parker.unpark()
