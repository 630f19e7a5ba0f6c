"""The items that the gate calls back for a launch, when a stream has got to a point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.errors import DeviceLostError
from offload.tasks.failures import note_task

if TYPE_CHECKING:
    from offload.devices.streams import Lane, Point
    from offload.tasks.task import Task


class StagedCopies:
    """Starts the staged copies of a task once its stream has got there, and has the task go on after the last."""

    __slots__ = ("_copies", "_left", "_task", "failure", "has_run")

    is_quiet = False

    def __init__(self, task: Task, copies: list[Any], *, has_run: bool) -> None:
        self._task = task
        self._copies = copies
        self._left = bytearray(b"\1" + bytes(len(copies) - 1))
        self.failure: BaseException | None = None
        self.has_run = has_run  # whether the body has run

    def passed(self, error: BaseException | None) -> None:
        copies, self._copies = self._copies, []
        for copy in copies:
            if error is not None:
                self._done(DeviceLostError(f"{self._task.key}: {error}"))
                continue
            try:
                copy.start(self._done)
            except Exception as failure:  # noqa: BLE001  # the task's
                self._done(failure)

    def _done(self, error: BaseException | None) -> None:
        if error is not None:
            self.failure = error
        if self._left.pop():
            task = self._task
            engine = task.construct.runtime.engine
            engine.staging.discard(self)
            engine.make_ready(task)


class Kept:
    """Keeps objects that a failed launch has left in use on a lane."""

    __slots__ = ("_things",)

    is_quiet = False

    def __init__(self, things: list[Any]) -> None:
        self._things = things

    def passed(self, error: BaseException | None) -> None:
        self._things.clear()


class BodyStart:
    """Lets a body run once its stream has reached it (devices whose bodies block)."""

    __slots__ = ("_task",)

    is_quiet = False

    def __init__(self, task: Task) -> None:
        self._task = task

    @classmethod
    def holds(cls, task: Task, lane: Lane, end: Point | None) -> bool:
        """Have the body of a task run once its lane has got to where it is now, unless it is idle; return whether.

        ``end`` is that place where it is marked: something has just been put there.
        """
        if end is None and lane.is_idle:
            return False
        task.construct.runtime.gate.add(end or lane.mark(), cls(task), watched=True)
        return True

    def passed(self, error: BaseException | None) -> None:
        task = self._task
        if error is not None:
            failure = DeviceLostError(f"{task.key}: {error}")
            failure.__cause__ = error.__cause__ or error
            note_task(failure, task, "its stream failed before its body began")
            task.failure = failure
        task.construct.runtime.engine.make_ready(task)


def found(task: Any, failure: BaseException | None) -> BaseException | None:
    """Return the failure of a device task that has passed, or the error that its work has found, or note its value."""
    findings, task.findings = task.findings, None
    if failure is not None:
        return failure
    try:
        for finding in findings or ():
            task.value = finding(task.value)
    except Exception as error:  # noqa: BLE001  # kept for whoever waits
        task.value = None
        if task.work is not None:
            task.work.note(error)
        note_task(error, task, "its device work ended, then its result was refused")
        return error.with_traceback(None)  # which is ours alone, and refers to the task
    return None
