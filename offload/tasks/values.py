"""Tasks among the arguments of a call: the body is given their values, and its task follows them.

Theory of operation
-------------------
A task that is passed is named in a ``depend`` clause of the new one besides (`offload.constructs.clauses.following`).
All rules of such a dependence hold here: order, failures, other threads, the waits of a graph. The value is
put into the call when the body is about to run. A host task's body does so, a `Receiver`; a region does so in its turn
on the lane (`offload.constructs.receiving`), since its maps follow from the value. Until then the argument is
None, so that no step of the encounter takes it for anything.

A graph that is run again has tasks of its own. So a recorder notes which of its nodes a node receives values of, and
lets go of the recorded tasks (`Values.release`). A task that is made again gets the values of its own run instead.

Only the arguments themselves are replaced; tasks in containers or closures stay as they are.

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
        The arguments: positions, or names. None where the task has to know the others, and receives nothing.
    tasks : sequence of Task or None
        The tasks that have the values; None for a task of a recorded graph, which each run replaces.
    """

    __slots__ = ("slots", "tasks")

    def __init__(self, slots: tuple[Slot, ...], tasks: Sequence[Task | None]) -> None:
        self.slots = slots
        self.tasks = tasks

    @classmethod
    def among(cls, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Values | None:
        """Return those of a call; None if no argument is a task."""
        return cls.in_slots([*enumerate(args), *kwargs.items()])

    @classmethod
    def in_slots(cls, passed: Iterable[tuple[Slot, Any]]) -> Values | None:
        """Return those of arguments by their slots; None if none is a task."""
        found = {slot: value for slot, value in passed if isinstance(value, Task)}
        return cls(tuple(found), tuple(found.values())) if found else None

    def of(self, sources: Sequence[Task | None]) -> Values:
        """Return those of one task of the call; where ``sources`` has a task, that one in place of the recorded."""
        if not sources:
            return Values(self.slots, self.tasks)
        return Values(self.slots, [old if new is None else new for new, old in zip(sources, self.tasks, strict=True)])

    def release(self, is_known: Sequence[bool]) -> None:
        """Let go of tasks that are of the recorded graph."""
        self.tasks = [None if known else task for known, task in zip(is_known, self.tasks, strict=True)]

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
        raise DependError(
            f"argument {slot} is the value of a task of this graph that did not succeed, so it has no value"
        )
    root = task.poison if task.poison is not None and task.poison.failure is not None else task
    failure = root.failure if task.failure is not None else None
    if failure is None:
        return task.value
    why = "was cancelled" if task.state_ is TaskState.CANCELLED else f"failed with {type(failure).__name__}: {failure}"
    try:
        raise DependError(
            f"argument {slot} is the value of {task.key}, which has no value because it {why}; pass a task that "
            "succeeds, or check its exception() before the call"
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
        The values of this task.
    prepared : callable, optional
        A function that is applied to the values first.
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
