"""Launches on devices that plan: bodies are appended to a plan, and how they have ended is known when they have passed.

On other devices a launch has run the body, so a task that follows in stream order is not launched after a failure. A
launch tells a device that plans which tasks it depends on, and the device does not carry it out after a failure there.
The client has changed its table by then as if everything had gone well. This file undoes those changes.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any
from weakref import ref

from offload.errors import DependError
from offload.tasks.failures import note_task
from offload.tasks.links import is_only_ordered
from offload.tasks.states import TaskState
from offload.tasks.troubles import Trouble, poison, poisoned

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from offload.devices.streams import Lane
    from offload.runtime.place import DevicePlace
    from offload.tasks.task import Task


def begin(task: Any, lane: Lane) -> None:
    """Begin the launch of a task: give the device the tasks that it depends on."""
    before: list[Any] = []
    if not task.survives:
        before = [other for other in task.predecessors if not is_only_ordered(task, ref(other))]
    task.appended = task.place.device.begin(lane.stream, task, before)


def gathering(places: Sequence[DevicePlace]) -> AbstractContextManager[None]:
    """Have devices that plan send as few segments as possible in the block: its launches go there together."""
    device: Any = places[0].device if places and places[0].plans else None
    return nullcontext() if device is None else device.gathering()


def settle(task: Any) -> tuple[BaseException | None, TaskState] | None:
    """Return the failure of a task whose device has passed it, and its state, and note its value.

    Return None if a task that it depends on has failed and has not ended yet. The gate's call is repeated after that.
    """
    appended, failure, state = task.appended, task.failure, TaskState.FAILED
    bad = next((node for node in appended.nodes if node.end is not None and node.end[0] != "ok"), None)
    if bad is None:
        if failure is None:
            task.value = next(
                (node.end[1] for node in reversed(appended.nodes) if node.end and node.end[1] is not None), None
            )
            task.appended = None
            _forget(appended)
            return None, state
    elif failure is None:
        failure = task.place.device.failure_of(bad)
        if failure is not None:
            if task.work is not None:
                task.work.note(failure)
            note_task(failure, task, "its device work failed")
        else:
            cause = next((other for other in appended.before if _has_failed(other)), None)
            if cause is not None and not cause.finished:
                cause.add_done_callback(lambda _: task.passed(None))
                return None
            state = TaskState.NOT_RUN
            failure = _poisoned(task, cause)
    task.value = None
    if task.work is not None:
        task.work.fail(task, task.place)
    appended.before = ()
    _forget(appended)
    return failure, state


def _forget(appended: Any) -> None:
    """Let values and exceptions go, which the task has now: the last node of a stream stays."""
    for node in appended.nodes:
        if node.end is not None and node.end[0] in ("ok", "failed"):
            node.end = node.reported = node.end[0], None


def _has_failed(task: Task) -> bool:
    appended = task.__dict__.get("appended")
    return task.failure is not None or (
        appended is not None and any(node.end is not None and node.end[0] != "ok" for node in appended.nodes)
    )


def _poisoned(task: Any, cause: Task | None) -> BaseException:
    if cause is None:
        return DependError(f"{task.key} did not run: a task that it depends on failed")
    poison(task, cause, Trouble.of(cause))
    return poisoned(task, task.poison)
