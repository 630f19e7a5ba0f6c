"""What becomes of the failures of tasks: notes, tracebacks, poison, groups.

Theory of operation
-------------------
*Poison.* A task that fails has a `Trouble`, and so has each that did not run because of one. It says whose failures
keep a task from running that follows this one: its own, until somebody has seen it, and those that it stands behind
itself. So what is looked at is the last tasks that named a location, as for any dependence. A task is told of by weak
references, which die; what is wrong with it stands in its region (``TaskSet.troubles``) until all of that is over.
Neither workers nor timing have a part in this, nor does whether somebody holds a task.

*Memory.* The regions and taskgroups keep a failure until it has been seen, and nothing does afterwards, so that it goes
when its handler has ended, with all that its frames refer to. It must be in no cycle for that. The frames of bodies
refer to those that called them, ours, which had the task; so those are cleared where they have ended. Those through
which a failure is raised delete their names for it.
"""

from __future__ import annotations

import inspect
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import ref

from offload.errors import DependError, OffloadError
from offload.frames import is_own

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

    from offload.tasks.task import Task

_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
"""Code whose frames may go on after they have been left."""


class Trouble:
    """What is wrong with a task that has failed, or did not run, for those that follow it.

    It refers neither to the task nor to a failure.

    Attributes
    ----------
    behind : list of Trouble
        Of the tasks that kept this one from running, as far as they were not over when it was generated.
    reference : weakref of Task
        The one that the tracker has, too.
    dependents : list of Trouble
        Those that have this one in ``behind``.
    home : dict
        The troubles of the region, once this is among them.
    storage : object
        What keeps the addresses of the task's list items from naming something new while this is asked for.
    """

    __slots__ = ("behind", "dependents", "home", "reference", "storage")

    def __init__(self, task: Task) -> None:
        self.reference = ref(task)
        self.behind: list[Trouble] = []
        self.dependents: list[Trouble] = []
        self.home: dict[int, Trouble] = {}
        self.storage: Any = None

    @staticmethod
    def of(task: Task) -> Trouble:
        """Return that of a task; make it if there is none yet, also where several threads ask."""
        return task.trouble or task.__dict__.setdefault("trouble", Trouble(task))

    def unseen(self) -> Task | None:
        """Return one of the tasks behind this, or the own one, whose failure nobody has seen; None if all is over."""
        pending, visited = [self], set()
        while pending:
            trouble = pending.pop()
            if trouble in visited:
                continue
            task = trouble.reference()
            if task is not None and task.failure is not None and not task.seen:
                if trouble is not self:
                    self.behind = [*pending, trouble]  # the others need not be asked again
                return task
            visited.add(trouble)
            pending += trouble.behind
        self.behind = []
        return None

    def end(self) -> None:
        """Forget this, and what stands behind it, as far as that is over now."""
        pending = [self]
        while pending:
            trouble = pending.pop()
            task = trouble.reference()
            if (task is None or task.finished) and trouble.unseen() is None:  # else its trouble has not begun
                trouble.home.pop(id(trouble.reference), None)
                trouble.storage = None
                if task is not None:
                    task.dependences = None
                pending += trouble.dependents
                trouble.dependents = []


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


def poison(task: Task, source: Task, trouble: Trouble) -> None:
    """Keep a task from running, for the failure that ``source`` has or did not run for."""
    own = Trouble.of(task)
    own.behind.append(trouble)
    trouble.dependents.append(own)
    if task.poison is None:
        task.poison = source.poison or source
    task.special = True


def see(task: Task) -> None:
    """Note that somebody has been told of the task's failure, and forget it: from now on it is theirs."""
    task.seen = True
    task.frame.children.failures.pop(task, None)
    group = task.inherited.group
    while group is not None:  # the end of a replayed group has told those around it
        group.failures.pop(task, None)
        group = group.outer
    if task.run is not None:
        task.run.forget(task)
    recorder = task.frame.recorder
    if recorder is not None:
        recorder.forget(task)
    if task.trouble is not None:
        task.trouble.end()
    if task.frame.task is not None:
        task.frame = task.frame.orphan()  # its parent may have returned it
    if task.failure is not None:
        clear_own_frames(task.failure)


def clear_own_frames(error: BaseException) -> None:
    """Clear the frames of ours that an exception refers to, of calls that have ended.

    What they have as names are tasks and what waits for them: the exception would be in a cycle, or keep others.
    """
    visited = set()
    trace = error.__traceback__
    while trace is not None:
        frame: FrameType | None = trace.tb_frame
        while frame is not None and frame not in visited:
            visited.add(frame)
            if is_own(frame.f_globals.get("__name__")) and not frame.f_code.co_flags & _SUSPENDS:
                try:
                    frame.clear()
                except RuntimeError:
                    break  # it has not ended, and so have not those that it was called from
            frame = frame.f_back
        trace = trace.tb_next


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
    unseen = [task for task in list(tasks) if not task.seen]
    if not unseen:
        return
    failures = list({id(task.failure): task.failure for task in unseen if task.failure is not None}.values())
    roots = set(map(id, failures))
    kept = [error for error in failures if not (isinstance(error, DependError) and id(error.__cause__) in roots)]
    for task in unseen:
        see(task)
    try:
        raise BaseExceptionGroup(f"{len(kept)} task{'s' * (len(kept) != 1)} failed before {where}", kept)
    finally:
        del tasks, unseen, task, failures, kept  # the group has what it holds, and nothing else does
