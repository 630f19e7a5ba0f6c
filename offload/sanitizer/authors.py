"""The authors of accesses: which line of the program, in which task, thread or stream."""

from __future__ import annotations

import os
import sys
import threading
from copy import copy
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from offload.interrupts.frames import caller, is_between, is_calling_program, is_own
from offload.sanitizer.depends import is_directive
from offload.sanitizer.findings import Side
from offload.tasks.site import line_of

if TYPE_CHECKING:
    from types import FrameType
    from typing import TypeAlias

    Place: TypeAlias = tuple[str, int]
    """A file, by its absolute name, and a line."""


_WATCHING = ("offload.devices.sim", "offload.sanitizer", "offload.runtime.sanitized")
"""The modules between an array's method and the sanitizer."""


COPIED_BACK = "copied back to the host"
"""The report's words for a copy from a device."""


class Doing(Enum):
    """The kind of code that accesses something."""

    HOST = "host"  # of a thread, outside of any task
    TASK = "task"  # the body of a task
    COPY = "copy"  # the library, for a construct
    STREAM = "stream"  # work that was launched on a stream


class Author:
    """A line that accesses something, and all that a report says of it. Equal ones are the same object.

    Attributes
    ----------
    side : Side
        The side of a finding.
    writes : bool
        Whether the access writes.
    changes : bool
        Whether a dependence has to name the array as one that is written: also where a copy to the host reads the
        device's storage.
    doing : Doing
        The kind of code.
    clauses, call : tuple of str and int
        The places of the construct's clauses and of its call. Both are the place of the access itself outside of tasks.
    is_acc : bool
        Whether the construct is OpenACC's.
    directive : str
        The name of the construct; empty outside of tasks.
    is_string : bool
        Whether the construct is a directive string's.
    is_update : bool
        Whether the construct copies items without a map of them.
    """

    __slots__ = (
        "call", "changes", "clauses", "directive", "doing", "is_acc", "is_string", "is_update", "side", "writes",
    )  # fmt: skip

    def __init__(self, side: Side, doing: Doing, task: Any, frame: FrameType, *, writes: bool) -> None:
        self.side = side
        self.writes = self.changes = writes
        self.doing = doing
        here = side.file, side.line
        if task is None:
            self.clauses = self.call = here
            self.directive = ""
            self.is_string = False
        else:
            self.clauses, self.call = clauses_of(task), call_of(task, frame)
            self.directive = str(task.construct.directive)
            self.is_string = is_directive(task.construct)
        self.is_acc = self.directive.startswith("acc")
        self.is_update = "update" in self.directive

    def __repr__(self) -> str:
        return f"<Author {self.side}>"


class Authors:
    """The authors of one runtime."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Author] = {}

    def of_frame(
        self, frame: FrameType | None, scope: Any, *, writes: bool, stream: str = "", device: int | None = None
    ) -> Author:
        """Return the author of an access by the program.

        Parameters
        ----------
        frame : frame or None
            The program's frame; None if a function of NumPy is itself the body, which then stands for its construct.
        scope : Scope or None
            The work of the calling thread; None on a thread that the runtime does not know.
        writes : bool
            Whether the access writes.
        stream : str
            The name of the stream that carries it out, if it was launched on one.
        device : int or None
            The number of the device that carries it out; None on the host.
        """
        task = None if scope is None else scope.task
        if frame is None:
            if task is not None:
                return self.of_line(task, *clauses_of(task), writes=writes, shown=_words(device, writes=writes))
            frame = caller()
        file, line = frame.f_code.co_filename, frame.f_lineno
        key = file, line, writes, stream, device, *_key_of(task, frame)
        author = self._known.get(key)
        if author is None:
            doing = Doing.STREAM if stream else Doing.HOST if task is None else Doing.TASK
            name = stream or _name_of(task)
            shown = _words(device, writes=writes)
            side = Side(os.path.abspath(file), line, "write" if writes else "read", name, shown)  # noqa: PTH100  # no link is followed
            author = self._known[key] = Author(side, doing, task, frame, writes=writes)
        return author

    def of_line(self, task: Any, file: str, line: int, *, writes: bool, what: str = "", shown: str = "") -> Author:
        """Return the author of an access that the library has for a line of the program, perhaps in a task.

        ``what`` and ``shown`` are its side's; an empty ``what`` stands for ``"read"`` or ``"write"``.
        """
        frame = caller()
        key = "line", file, line, writes, what, shown, *_key_of(task, frame)
        author = self._known.get(key)
        if author is None:
            what = what or ("write" if writes else "read")
            side = Side(os.path.abspath(file), line, what, _name_of(task), shown)  # noqa: PTH100  # the same
            doing = Doing.HOST if task is None else Doing.TASK
            author = self._known[key] = Author(side, doing, task, frame, writes=writes)
        return author

    def of_task(self, task: Any, what: str, *, writes: bool, shown: str = "") -> Author:
        """Return the author of work that the library does for a construct."""
        frame = caller()
        key = what, writes, shown, *_key_of(task, frame)
        author = self._known.get(key)
        if author is None:
            side = Side(*clauses_of(task), what, str(task.name), shown)
            author = self._known[key] = Author(side, Doing.COPY, task, frame, writes=writes)
        return author

    def copy_of(self, made: Author) -> Author:
        """Return the author of the copy to the host of a construct that has made a mapping."""
        key = "copy", made
        author = self._known.get(key)
        if author is None:
            author = self._known[key] = copy(made)
            author.side = replace(made.side, what="copy", shown=COPIED_BACK)
            author.writes = author.changes = True
        return author

    def updating(self, reads: Author) -> Author:
        """Return the author of a copy to the host of the same array, as it reads the device's storage."""
        key = "updating", reads
        author = self._known.get(key)
        if author is None:
            author = self._known[key] = copy(reads)
            author.changes = True
        return author

    def of_call(self, frame: FrameType, what: str, *, writes: bool, shown: str = "") -> Author:
        """Return the author of work that the library does in a call, without a task."""
        file, line = frame.f_code.co_filename, frame.f_lineno
        key = "call", file, line, what, writes, shown
        author = self._known.get(key)
        if author is None:
            side = Side(os.path.abspath(file), line, what, threading.current_thread().name, shown)  # noqa: PTH100  # the same
            author = self._known[key] = Author(side, Doing.COPY, None, frame, writes=writes)
        return author


def program_frame() -> FrameType | None:
    """Return the innermost frame of the program, to which NumPy's own functions do not belong.

    It is None if a function of NumPy is itself the body, or whatever else the library calls for the program.
    """
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001  # as `caller` does
    while frame is not None and (is_between(frame) or _is_numpy(frame)):
        frame = None if is_calling_program(frame) else frame.f_back
    return frame


def is_unwrapped_by_library() -> bool:
    """Tell whether the library itself has called what gives memory away."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001  # as `caller` does
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(_WATCHING):
        frame = frame.f_back
    return frame is not None and is_own(frame.f_globals.get("__name__"))


def _words(device: int | None, *, writes: bool) -> str:
    """Return the report's words for an access on a device; empty on the host."""
    return "" if device is None else f"{'written' if writes else 'read'} on device {device}"


def _is_numpy(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "numpy"


def _key_of(task: Any, frame: FrameType) -> tuple[Any, ...]:
    """Return what tells the tasks apart that accesses of one line belong to: the construct, and its call."""
    if task is None:
        return ()
    construct, call = task.construct, task.caller
    if call is None and not construct.is_call:
        outer = _encounter(frame)
        call = None if outer is None else (outer.f_code, outer.f_lineno)
    return construct, call, task.name


def _name_of(task: Any) -> str:
    return threading.current_thread().name if task is None else str(task.name)


def clauses_of(task: Any) -> Place:
    """Return where the clauses of a task's construct stand: for a function without a source, at the call."""
    place = place_of(task.construct.location)
    return place if place[1] else call_of(task, caller())


def call_of(task: Any, frame: FrameType) -> Place:
    """Return where the program calls a task's construct; ``frame`` is the program's innermost one, perhaps a body's.

    An undeferred task that runs where it was generated does not know its caller: the stack has it.
    """
    if task.caller is not None:
        return place_of(line_of(task.caller))
    place = place_of(task.construct.location)
    if task.construct.is_call:
        return place
    outer = _encounter(frame)
    return place if outer is None else (os.path.abspath(outer.f_code.co_filename), outer.f_lineno)  # noqa: PTH100  # the same


def _encounter(frame: FrameType) -> FrameType | None:
    """Return the program's frame outside of a body's, which has called the construct; None where a worker runs it."""
    outer: FrameType | None = frame
    while outer is not None and not is_between(outer):  # a body, and functions that it calls
        outer = outer.f_back
    while outer is not None and is_between(outer):
        outer = outer.f_back
    return outer


def place_of(location: str) -> Place:
    """Return the file and the line of a location, ``file:line``."""
    file, _, line = location.rpartition(":")
    return os.path.abspath(file), int(line) if line.isdecimal() else 0  # noqa: PTH100  # the same
