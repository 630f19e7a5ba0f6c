"""The effect of a failure on the tasks that follow: poison, and how long it lasts.

Theory of operation
-------------------
A task that fails has a `Trouble`, and so has each that did not run because of one. It says whose failures
keep a task from running that follows this one: its own, until somebody has seen it, and those that it stands behind
itself. So only the last tasks that named a location are looked at, as for any dependence. Weak references to a task
die, so its region keeps its trouble (``TaskSet.troubles``) until all of that is over. Neither workers nor timing have a
part in this, nor does whether somebody holds a task.
"""

from __future__ import annotations

from typing import Any, Protocol
from weakref import ref

from offload.errors import DependError


class Troubled(Protocol):
    """The members of a task whose failure keeps others from running.

    Attributes
    ----------
    failure : BaseException or None
        Its own.
    finished : bool
        Whether it is complete.
    seen : bool
        Whether somebody has been told of the failure.
    special : bool
        Whether it is more than a body with dependences.
    dependences : sequence of Access or None
        Its clauses, which keep the addresses of their list items.
    trouble : Trouble or None
        Its own trouble.
    poison : Troubled or None
        The task where the failure began that keeps it from running.
    """

    failure: BaseException | None
    finished: bool
    seen: bool
    special: bool
    dependences: Any
    trouble: Trouble | None
    poison: Troubled | None

    @property
    def key(self) -> str:
        """Its name in messages."""


class Trouble:
    """The trouble of a task that has failed, or did not run, for those that follow it.

    It refers neither to the task nor to a failure.
    """

    __slots__ = ("behind", "dependents", "home", "reference", "storage")

    def __init__(self, task: Troubled) -> None:
        # The same weak reference that the tracker has.
        self.reference = ref(task)
        # The troubles of the tasks that kept this one from running, as far as they were not over at its generation.
        self.behind: list[Trouble] = []
        # The troubles that have this one in `behind`.
        self.dependents: list[Trouble] = []
        # The troubles of the region, once this is among them.
        self.home: dict[int, Trouble] = {}
        # Keeps the addresses of the task's list items from naming something new while this is asked for.
        self.storage: Any = None

    @staticmethod
    def of(task: Troubled) -> Trouble:
        """Return that of a task; make it if there is none yet, also where several threads ask."""
        return task.trouble or task.__dict__.setdefault("trouble", Trouble(task))

    def unseen(self) -> Troubled | None:
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
        """Forget this trouble, and those that depend on it, as far as they are over now."""
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


def poisoned(task: Troubled, root: Troubled) -> DependError:
    """Return the error of a task that did not run since one that it depends on, perhaps by way of others, failed."""
    failure = root.failure
    try:
        text = f"{type(failure).__name__}: {failure}"
    except Exception:  # noqa: BLE001  # a user's exception that cannot be shown
        text = type(failure).__name__
    error = DependError(f"{task.key} did not run: {root.key}, which it depends on, failed with {text}")
    error.__cause__ = failure
    return error


def poison(task: Troubled, source: Troubled, trouble: Trouble) -> None:
    """Keep a task from running, for the failure that ``source`` has or did not run for."""
    own = Trouble.of(task)
    own.behind.append(trouble)
    trouble.dependents.append(own)
    if task.poison is None:
        task.poison = source.poison or source
    task.special = True
