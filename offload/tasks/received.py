"""Tasks among the arguments of a call: the body is given their values, and its task follows them.

Theory of operation
-------------------
A task that is passed is named in a ``depend`` clause of the new one besides (`offload.constructs.clauses.following`).
All that holds for such a dependence holds here: order, failures, other threads, what a graph can wait for. The value is
put into the call when the body is about to run. A host task's body does so, a `Receiver`; a region does so in its turn
on the lane (`offload.constructs.receiving`), since what it maps follows from the value. Until then the argument is
None, so that no step of the encounter takes it for anything.

A graph that is run again has tasks of its own. So a recorder notes which of its nodes a node receives values of, and
lets go of the recorded tasks. Whoever makes the task again puts those of the run in their place (`rebind`).

Looked at are the arguments themselves; what containers hold, or a closure, is what it is.

Rejected: values in place of the tasks in ``Task.args`` (a recorded graph would have those of the recording); an
argument that the body has to ask for its value (a `Task` in a container is that).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from offload.errors import DependError
from offload.tasks.states import TaskState
from offload.tasks.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Slot: TypeAlias = int | str


class Values:
    """The values that a call receives from tasks; each task that is made for the call has one of its own.

    Attributes
    ----------
    slots : tuple of int and str
        The arguments: positions, or names.
    tasks : list of Task
        Whose values they are.
    origin : Values or None
        What those of a made task are copies of.
    """

    __slots__ = ("origin", "slots", "tasks")

    def __init__(self, slots: Sequence[Slot], tasks: Sequence[Task], origin: Values | None = None) -> None:
        self.slots = tuple(slots)
        self.tasks = list(tasks)
        self.origin = origin

    @classmethod
    def among(cls, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Values | None:
        """Return those of a call; None if no argument is a task."""
        return cls.of([*enumerate(args), *kwargs.items()])

    @classmethod
    def of(cls, passed: Iterable[tuple[Slot, Any]]) -> Values | None:
        """Return those of arguments by their slots; None if none is a task."""
        found = {slot: value for slot, value in passed if isinstance(value, Task)}
        return cls(tuple(found), tuple(found.values())) if found else None

    def again(self) -> Values:
        """Return those of another task of the call."""
        return Values(self.slots, self.tasks, self.origin or self)

    def without(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of the call with None in place of the tasks."""
        return self.put([None] * len(self.slots), args, kwargs)

    def put(
        self, found: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of the call with values in place of the tasks."""
        given, named = list(args), dict(kwargs)
        for slot, value in zip(self.slots, found, strict=True):
            if isinstance(slot, str):
                named[slot] = value
            else:
                given[slot] = value
        return tuple(given), named

    def found(self) -> list[Any]:
        """Return the values, once the tasks are complete, or are in order on their streams.

        Raises
        ------
        DependError
            A task has none: it has failed, which somebody had seen before the call, or was cancelled.
        """
        return [_value_of(slot, task) for slot, task in zip(self.slots, self.tasks, strict=True)]


def _value_of(slot: Slot, task: Task | None) -> Any:
    if task is None:  # of a recorded graph that is run again, and whose failure has been seen there
        raise DependError(f"argument {slot} is the value of a task of this graph, which has none: it did not succeed")
    root = task.poison if task.poison is not None and task.poison.failure is not None else task
    failure = root.failure if task.failure is not None else None
    if failure is None:
        return task.value
    why = "was cancelled" if task.state_ is TaskState.CANCELLED else f"failed with {type(failure).__name__}: {failure}"
    try:
        raise DependError(
            f"argument {slot} is the value of {task.key}, which has none: it {why}; pass a task that succeeds, or look "
            "at its exception() before the call"
        ) from failure
    finally:
        del root, task, failure  # the traceback refers to this frame, and that would to the failure


class Receiver:
    """The body of a host task that receives values.

    Parameters
    ----------
    function : callable
        Called with the arguments, in which the values stand.
    values : Values
        Of this task.
    prepared : callable, optional
        What becomes of the values first.
    """

    __slots__ = ("_function", "_prepared", "values")

    def __init__(
        self, function: Callable[..., Any], values: Values, prepared: Callable[[list[Any]], Sequence[Any]] | None = None
    ) -> None:
        self._function = function
        self._prepared = prepared
        self.values = values

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        values = self.values
        found: Sequence[Any] = values.found()
        if self._prepared is not None:
            found = self._prepared(list(found))
        given, named = values.put(found, args, kwargs)
        return self._function(*given, **named)


# -- graphs that are run again -----------------------------------------------------------------------


def values_of(task: Task) -> Values | None:
    """Return what a task that has not begun is to receive."""
    found = getattr(getattr(task, "work", None) or task.body, "values", None)
    return found if isinstance(found, Values) else None


def release(values: Values, is_known: Sequence[bool]) -> None:
    """Let the call go of tasks of a recorded graph, which has others in their place when it is run again."""
    origin = values.origin
    if origin is not None:
        kept: list[Any] = [None if known else task for known, task in zip(is_known, origin.tasks, strict=True)]
        origin.tasks = kept


def rebind(task: Task, tasks: Sequence[Task | None]) -> None:
    """Have a task that is made again receive the values of these tasks, but where there is None."""
    values = values_of(task)
    if values is not None:
        values.tasks = [old if new is None else new for new, old in zip(tasks, values.tasks, strict=True)]
