"""Shields: no interruption comes in between the library's own steps.

A thread raises a *shield* while it carries out the library's steps. The shield notes an interruption in
`Shielded.pending`; a wait delivers it between two steps (`Shielded.check`), else the end of the outermost shield does.
In a body an interruption is delivered at once. Raising a shield costs a few assignments: CPython runs handlers, raises
sent exceptions and switches threads at calls and backward jumps only. See docs/design/theory.md, "Shields".
"""

from __future__ import annotations

import threading
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, TracebackType
    from typing import Self

Steps = TypeVar("Steps", bound="Callable[..., object]")


class ShieldPlace(Protocol):
    """The state of a thread under a shield."""

    in_body: bool  # whether the code that runs is a body's
    parker: Any  # the thread may be parked on it

    @property
    def may_generate(self) -> bool: ...


class _Quiet:
    """The place of steps that neither wait nor run bodies."""

    __slots__ = ("in_body", "parker")

    may_generate = False

    def __init__(self) -> None:
        self.in_body = False
        self.parker = self

    def unpark(self) -> None:
        """Do nothing: nobody is parked."""


class Shielded:
    """One thread, as far as interruptions concern it."""

    __slots__ = ("__weakref__", "is_library", "pending", "place", "raised", "sent")

    def __init__(self) -> None:
        self.place: Any = None  # Of the innermost shield; None if no shield is up
        # How to deliver each interruption that waits, the oldest first. A signal that came twice is in it once.
        self.pending: dict[Any, Callable[[], object]] = {}
        # Type and `id` of the last exception that an interruption has raised.
        self.raised: tuple[type[BaseException], int] | None = None
        # An exception that CPython is to raise, or has raised, while no shield was up or a body ran.
        self.sent: type[BaseException] | None = None
        # Whether the thread is the library's own: nobody waits there, and what is sent concerns bodies only.
        self.is_library = False

    @property
    def is_open(self) -> bool:
        """Whether the thread runs the program's code."""
        place = self.place
        return place is None or place.in_body

    def check(self) -> None:
        """Deliver interruptions that have arrived; raise their exceptions. Only between two steps under a shield."""
        if not self.pending:
            return
        place = self.place
        place.in_body = True  # a handler may call constructs, and wait
        try:
            _deliver(self)
        finally:
            place.in_body = False

    def caught(self) -> BaseException | None:
        """Deliver interruptions as `check` does, but return the exception."""
        try:
            self.check()
        except BaseException as error:  # noqa: BLE001  # the caller raises it
            return error
        return None


# The records of all threads that have used the library, by `threading.get_ident`.
threads: WeakValueDictionary[int, Shielded] = WeakValueDictionary()

# Called when the main thread first uses the library; `offload.interrupts.arrivals` sets it.
at_first: Callable[[], None] | None = None

_quiet = _Quiet()
_local = threading.local()
_AGAIN = object()

# What a shield finds: the record of its thread, the place around it, and whether the code in its own was a body's.
Saved = tuple[Shielded, Any, bool]


def raise_shield(place: ShieldPlace) -> Saved:
    """Enter a shield without a `Shield`; return the argument for `lower_shield`."""
    try:
        thread = _local.thread
    except AttributeError:
        thread = _first()
    outer, in_body = thread.place, place.in_body
    if thread.sent is not None:
        receive(thread)
    place.in_body = False
    thread.place = place
    return thread, outer, in_body


def lower_shield(place: ShieldPlace, saved: Saved) -> None:
    """Leave a shield entered by `raise_shield`."""
    thread, outer, place.in_body = saved
    thread.place = outer
    if thread.pending and (outer is None or outer.in_body):
        _deliver(thread)


class Shield:
    """Marks a block as the library's own steps: interruptions wait until its end, but not in the bodies that it runs.

    ``place`` is the scope of the calling thread; the block needs it to wait or to run bodies. The end of the block
    raises the exception of an interruption that has arrived meanwhile.
    """

    __slots__ = ("_place", "_saved", "thread")

    def __init__(self, place: ShieldPlace = _quiet) -> None:
        self._place = place

    def __enter__(self) -> Self:
        self._saved = raise_shield(self._place)
        self.thread = self._saved[0]  # its ``pending`` says whether `check` has work
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lower_shield(self._place, self._saved)

    @classmethod
    def around(cls, run: Callable[[], None]) -> Callable[[], None]:
        """Return the function for a thread of the library's own: all that runs there is its own steps."""

        def shielded() -> None:
            with cls() as shield:
                shield.thread.is_library = True
                run()

        return shielded


def _deliver(thread: Shielded) -> None:
    """Deliver all that is pending, where the program's code may run."""
    pending = thread.pending
    try:
        while pending:
            for key in [*pending]:  # one step: a signal may come between any two, and deliver the others itself
                deliver = pending.pop(key, None)
                if deliver is not None:
                    deliver()
        if thread.sent is not None:
            receive(thread)
    finally:
        if pending and thread.is_open:  # one has raised, and the others are due all the same
            _deliver(thread)


def receive(thread: Shielded) -> None:
    """Have CPython raise an exception that was sent to the calling thread, unless it has done so before."""
    try:
        _look_for_sent()
    except BaseException as error:
        note_raised(thread, error)
        raise
    finally:
        thread.sent = None


def _look_for_sent() -> None:
    """Do nothing: CPython looks for sent exceptions where a function begins."""


def note_raised(thread: Shielded, error: BaseException) -> None:
    """Note that an exception comes from an interruption."""
    thread.raised = type(error), id(error)  # a reference to it would keep its frames


def is_interruption(error: BaseException) -> bool:
    """Tell whether an exception comes from an interruption of the calling thread."""
    thread = current()
    return thread.raised == (type(error), id(error)) or (thread.sent is not None and type(error) is thread.sent)


def pass_on(error: BaseException) -> None:
    """Raise an exception once more that comes from an interruption: a step that handles all others does not end it."""
    if is_interruption(error):
        raise error


def ends_body(error: BaseException) -> bool:
    """Tell whether an interruption has ended a body; then it also ends the wait, or the call, that runs the body."""
    thread = current()
    if thread.is_library or not is_interruption(error):
        return False

    def again(error: BaseException = error) -> None:
        note_raised(thread, error)
        try:
            raise error
        finally:
            del error

    thread.pending[_AGAIN] = again
    return True


def current() -> Shielded:
    """Return the record of the calling thread."""
    try:
        return _local.thread  # type: ignore[no-any-return]  # nobody types a `threading.local`
    except AttributeError:
        return _first()


def _first() -> Shielded:
    """Make the record of a thread that uses the library for the first time."""
    thread = _local.thread = threads[get_ident()] = Shielded()
    if at_first is not None and threading.current_thread() is threading.main_thread():
        at_first()
    return thread


def is_at_work() -> bool:
    """Tell whether the calling thread runs the library's own steps, or something that they have called."""
    try:
        place = _local.thread.place
    except AttributeError:  # the thread has not used the library
        return False
    return place is not None and not place.in_body


def is_free() -> bool:
    """Tell whether the calling thread runs the program's code, where constructs are allowed."""
    place = current().place
    return place is None or (place.in_body and place.may_generate)


class Late:
    """Signals that have come in functions marked as `in_one_piece`."""

    __slots__ = ("is_due",)

    def __init__(self) -> None:
        # Whether one has come since `deliver` was last called; a shield may have delivered it meanwhile.
        self.is_due = False

    def deliver(self) -> None:
        """Deliver pending interruptions on the calling thread, if it is the main one and under no shield."""
        if threading.current_thread() is threading.main_thread():
            self.is_due = False
            thread = current()
            if thread.pending and thread.is_open:
                _deliver(thread)


late = Late()


def in_one_piece(function: Steps) -> Steps:
    """Mark a short function that may run outside of shields: a signal that comes in it is delivered at its end."""
    # So the last thing that the function does is a look at `late`. The mark is for the ends of blocks, which nobody
    # would carry out once more, for what bodies call, and where a shield would cost too much.
    pieces.add(function.__code__)
    return function


pieces: set[CodeType] = set()  # The code of functions so marked


def make_room(n_frames: int) -> None:
    """Raise `RecursionError` now rather than in the middle of steps that take so many frames."""
    if n_frames:
        make_room(n_frames - 1)
