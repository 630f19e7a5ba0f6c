"""What becomes of the failures of tasks: notes, tracebacks, poison, groups."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from offload.errors import DependError, OffloadError
from offload.frames import is_own

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offload.tasks.task import Task


def poisoned(task: Task, root: Task) -> DependError:
    """Return the error of a task that did not run since one that it depends on, perhaps by way of others, failed."""
    failure = root.failure
    try:
        text = f"{type(failure).__name__}: {failure}"
    except Exception:  # noqa: BLE001  # a user's exception that cannot be shown
        text = type(failure).__name__
    error = DependError(f"{task.key} did not run: {root.key}, which it depends on, failed with {text}")
    error.__cause__ = failure
    return error


def note_task(error: BaseException, task: Task) -> None:
    """Add the task, its directive, file and line to an exception."""
    where = f"in {task.construct.directive} {task.name!r} ({task.construct.location})"
    with suppress(Exception):  # an exception that takes no attributes, a frozen dataclass for one
        if where not in getattr(error, "__notes__", ()):
            error.add_note(where)


def without_engine_frames(error: BaseException) -> BaseException:
    """Return the exception with a traceback that begins at the user's code.

    Our frames refer to the task, and the task to its failure: such a cycle would keep what the body's frame refers to,
    device arrays for one, until the cyclic collector comes by.
    """
    trace = error.__traceback__
    while trace is not None and is_own(trace.tb_frame.f_globals.get("__name__")):
        trace = trace.tb_next
    if trace is not None or isinstance(error, OffloadError):
        with suppress(Exception):  # as above
            error.__traceback__ = trace
    return error


def show(error: BaseException) -> None:
    """Show an exception that has nobody to go to, as one that ends a thread is."""
    threading.excepthook(
        threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
    )


def raise_failures(tasks: Iterable[Task], where: str) -> None:
    """Raise the failures that nobody has seen yet, as a group.

    Raises
    ------
    BaseExceptionGroup
        An `ExceptionGroup` where every failure is an `Exception`. Errors of tasks that did not run are left
        out where the group holds their cause.
    """
    unseen = [task for task in tasks if not task.seen]
    if not unseen:
        return
    for task in unseen:
        task.seen = True
    failures = list({id(task.failure): task.failure for task in unseen if task.failure is not None}.values())
    roots = set(map(id, failures))
    kept = [error for error in failures if not (isinstance(error, DependError) and id(error.__cause__) in roots)]
    raise BaseExceptionGroup(f"{len(kept)} task{'s' * (len(kept) != 1)} failed before {where}", kept)
