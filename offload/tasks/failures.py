"""What becomes of the failures of tasks: notes, tracebacks, poison, groups."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from offload.errors import DependError, OffloadError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offload.tasks.task import Task


def poisoned(task: Task, cause: Task) -> DependError:
    """Return the error of a task that did not run since one that it depends on failed."""
    root = cause.failure
    if isinstance(root, DependError) and root.__cause__ is not None:
        root = root.__cause__  # the first failure of the chain
    error = DependError(
        f"{task.key} did not run: {cause.key}, which it depends on, failed with {type(root).__name__}: {root}"
    )
    error.__cause__ = root
    return error


def note_task(error: BaseException, task: Task) -> None:
    """Add the task, its directive, file and line to an exception."""
    where = f"in {task.construct.directive} {task.name!r} ({task.construct.location})"
    if where not in getattr(error, "__notes__", ()):
        error.add_note(where)


def without_engine_frames(error: BaseException) -> BaseException:
    """Return the exception with a traceback that begins at the user's code.

    Our frames refer to the task, and the task to its failure: such a cycle would keep what the body's frame refers to,
    device arrays for one, until the cyclic collector comes by.
    """
    trace = error.__traceback__
    while trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith("offload."):
        trace = trace.tb_next
    if trace is not None or isinstance(error, OffloadError):
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
