"""The parts of the order of a run: courses, lines of streams, and the lock that guards them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from offload.interrupts.shields import Shield

if TYPE_CHECKING:
    from collections.abc import Hashable
    from types import CodeType
    from typing import TypeAlias

    from offload.sanitizer.depends import Given, Params
    from offload.sanitizer.states import Runs

    Calls: TypeAlias = tuple[tuple[CodeType, int], ...]
    """Lines of the program, each with its code."""

    End: TypeAlias = "Course | int"
    """A course, whose end may not be known yet, or a stretch."""


class Course:
    """One line of control.

    Attributes
    ----------
    kind : str
        ``"thread"``, ``"task"`` or ``"stream"``; ``"event"`` for a fulfilment.
    name : str
        The name of the thread, the task or the stream.
    family : Course
        The course of the host thread that has generated it, directly or not.
    parent : Course or None
        The course that has generated the task, or launched the work on the stream.
    number : int
        The place among the tasks that the parent has generated and the work that it has launched.
    construct : Site or None
        The construct of a task.
    stretch : int
        The present stretch; -1 before a task has begun.
    is_released : bool
        Whether something comes after the present stretch, so that the next access begins another one.
    end : int
        The last stretch of a task; -1 before its end is known.
    promise : int
        A stretch that comes after the end; -1 if there is none yet.
    tokens : set
        The things of which a task excludes others that have them.
    params, given : tuple
        The parameters of a task that are arrays, and its dependences (`offload.sanitizer.depends`).
    calls : tuple
        The lines of the program, each with its code, at which a task was generated: the innermost one first. Only those
        of tasks that a host thread has generated are kept.
    copied_back : tuple
        The host memory that a region copies back at its end, unless another mapping keeps the storage.
    is_waited_for : bool
        Whether the code that has generated a task has waited for its body there.
    """

    __slots__ = (
        "before",
        "calls",
        "construct",
        "copied_back",
        "end",
        "family",
        "given",
        "is_released",
        "is_waited_for",
        "kind",
        "lines",
        "looked_at",
        "name",
        "number",
        "open",
        "params",
        "parent",
        "promise",
        "start",
        "stretch",
        "tokens",
        "unjoined",
    )

    def __init__(self, kind: str, name: str, family: Course | None, parent: Course | None, number: int) -> None:
        self.kind = kind
        self.name = name
        self.family = self if family is None else family
        self.parent = parent
        self.number = number
        self.construct: Any = None
        self.params: Params = ()
        self.given: Given = ()
        self.calls: Calls = ()
        self.copied_back: Runs = ()
        self.is_waited_for = False
        self.stretch = self.end = self.promise = self.start = -1
        self.is_released = False
        # What a task follows, until it begins.
        self.before: list[End] = []
        self.tokens: set[Hashable] = set()
        # Of a thread: the tasks of the family that nobody has joined by a wait for all.
        self.unjoined: list[Course] = []
        # Of a thread: the tasks and the work on streams of the family that may not come before what it does now; and
        # the stretch in which, and the number with which, that was found.
        self.open: list[Course] = []
        self.looked_at = -1, 0
        # The lines of streams that the library has given to this code.
        self.lines: dict[Any, StreamLine] | None = None

    def __repr__(self) -> str:
        return f"<Course {self.kind} {self.name}>"

    @property
    def leaver(self) -> Course | None:
        """The task that has left this work on a stream, whose end is no part of the task's."""
        return self.parent if self.kind == "stream" and self.parent is not None and self.parent.kind == "task" else None

    def lineage(self) -> list[Course]:
        """Return the courses that have generated this one, from the host thread on, and this one."""
        found = [self]
        while (parent := found[-1].parent) is not None:
            found.append(parent)
        return found[::-1]

    def descends(self, other: Course) -> bool:
        """Tell whether another course has generated this one, directly or not."""
        return other is not self and other in self.lineage()

    def finds(self, maker: Course) -> bool:
        """Tell whether this finds storage that another course has made as the program asks for it.

        A course that the program has generated before the maker may come first, and makes the storage itself then.
        """
        return maker.family is not self.family or maker is self or maker.precedes(self)

    def precedes(self, other: Course) -> bool:
        """Tell whether the program has generated this course before another one of the family.

        Code that has generated a task goes on after that.
        """
        mine, others = self.lineage(), other.lineage()
        same = sum(one is another for one, another in zip(mine, others, strict=False))
        if same == len(others):
            return True
        return same < len(mine) and mine[same].number < others[same].number


class StreamLine:
    """The work of a stream or a queue, as far as the program has asked for its order: the ends of its last work.

    ``counted`` has the tasks that a wait for a queue waits for besides.
    """

    __slots__ = ("counted", "last", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.last: list[End] = []
        self.counted: list[Course] = []


class ShieldedLock:
    """A lock that its thread may take again; an interruption that comes in its hold waits until the end of that."""

    __slots__ = ("_lock", "_shields")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._shields: list[Shield] = []  # of the thread that has the lock

    def __enter__(self) -> None:
        shield = Shield()
        shield.__enter__()
        self._lock.acquire()
        self._shields.append(shield)

    def __exit__(self, *raised: Any) -> None:  # noqa: PYI036  # as `Shield` has them
        shield = self._shields.pop()
        self._lock.release()
        shield.__exit__(*raised)


class ThreadState(threading.local):
    """The work of the calling thread for one runtime, besides its scope."""

    course: Course | None = None
    """The course of its code outside of any body."""
    acting: tuple[Course, Any] | None = None
    """The course of other code that it carries out, such as a computation's, and the task around that."""
    stretch: int = -1
    """The stretch of work on a stream that it carries out."""
    launching: Any = None
    """The device task that it launches."""
    named: tuple[End, ...] = ()
    """What the last question to a tracker has found."""
    unasked: Any = None
    """The task that it waits for although the program has not asked for that."""
    extra: tuple[End, ...] = ()
    """What the next task follows besides."""
    created: Course | None = None
    """The last task that it has generated."""
