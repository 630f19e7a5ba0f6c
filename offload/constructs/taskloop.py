"""The taskloop: a range, a sequence or any other iterable, split into tasks.

It follows the standard's definition: a taskgroup with ``task_reduction``, in which tasks with ``in_reduction`` are
generated, one for each part of the range. Items of the loop's own ``in_reduction`` are those of a taskgroup around it.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from offload.arrays.foreign import is_tensor
from offload.arrays.items import (
    held_host,
    is_device_array,
    label,
)
from offload.constructs.call import Clauses, DirectiveFunction
from offload.constructs.clauses.dependences import mutexinoutset
from offload.constructs.clauses.maps import check_clauses, check_count, check_name, check_priority
from offload.constructs.clauses.names import parse_item
from offload.constructs.clauses.reductions import (
    ReductionItem,
    check_reduction,
    find_reduction,
    identity_of,
    reductions_of,
    resolved,
)
from offload.constructs.groups import Taskgroup
from offload.constructs.task import TaskFunction
from offload.errors import ClauseError
from offload.runtime.current import encounter, for_finalizers
from offload.runtime.keywords import shows_clauses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Concatenate, Literal, Unpack

    from offload.constructs.clauses.signatures import (
        P,
        R,
        SplitKeywords,
        TaskloopCall,
        TaskloopClauses,
        TaskloopKeywords,
    )
    from offload.tasks.region import Group
    from offload.tasks.task import Task

_TASKS_A_THREAD = 4
"""Tasks for each thread where neither grainsize nor num_tasks is given: parts of unequal work even out, and little of
the time goes into tasks. (libomp takes 10 a thread, libgomp 1.)"""


class _LoopClauses(Clauses):
    """The values of the clauses of a taskloop."""

    task: TaskFunction
    """The function that generates the tasks."""


class TaskloopFunction(DirectiveFunction):
    """A function whose calls split a range into tasks. `taskloop` makes it."""

    __slots__ = ()

    _directive = "taskloop"
    _clauses_of = _LoopClauses
    _checks = {  # noqa: RUF012  # a table, never changed
        "grainsize": partial(check_count, "grainsize"),
        "num_tasks": partial(check_count, "num_tasks"),
        "strict": bool,
        "reduction": partial(check_reduction, "reduction"),
        "in_reduction": partial(check_reduction, "in_reduction"),
        "nogroup": bool,
        "if_": lambda value: value,
        "final": bool,
        "priority": check_priority,
        "name": check_name,
    }

    def _prepare(self, clauses: Clauses, words: dict[str, Any]) -> None:
        super()._prepare(clauses, words)
        _check_together(words)
        clauses.task = _LoopTask(self._function, {name: words[name] for name in _OF_TASKS if name in words})  # type: ignore[attr-defined]  # its own kind
        if any(isinstance(item, str) for _, item in (*words.get("reduction", ()), *words.get("in_reduction", ()))):
            clauses.names = self._visible_names()

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind like a function: under a method, ``self`` is the body's first argument, before the part of the range."""
        return (
            self
            if instance is None
            else type(self)(types.MethodType(self._function, instance), {**self._clauses.given})
        )

    @for_finalizers
    def __call__(self, iterable: Any, /, *args: Any, **kwargs: Any) -> list[Task] | None:
        """Encounter the construct: each task calls the body with a part of ``iterable``, and with the other arguments.

        Return None, or with ``nogroup`` the tasks.
        """
        scope, frame = encounter("taskloop")
        clauses = self._clauses
        parts = split(  # before the group: errors in the range begin none
            iterable,
            grainsize=clauses.get("grainsize"),
            num_tasks=clauses.get("num_tasks"),
            is_strict=clauses.get("strict", False),
            n_threads=len(scope.runtime.engine.threads) + 1,
        )
        task: TaskFunction = clauses.task
        group = Taskgroup((), "taskloop")
        if clauses.get("reduction") or clauses.get("in_reduction"):
            task, group, args = self._reducing(iterable, args, kwargs, frame.inherited.group)
        if_, final = clauses.get("if_", True), clauses.get("final", False)
        is_deferred = if_ and not final and not frame.inherited.is_final
        tasks = []
        # Only the tasks that are returned are kept: each keeps its value.
        is_left = clauses.get("nogroup")
        with nullcontext() if clauses.get("nogroup") else group:
            enclosing = frame.inherited.group
            for part in parts:
                if not is_deferred and enclosing is not None and enclosing.cancelled_by is not None:
                    break  # it would be discarded, and an undeferred one raises that
                generated = task(part, *args, **kwargs)
                if is_left:
                    tasks.append(generated)
                del generated  # the traceback of the group would refer to it
        return tasks if is_left else None

    def _reducing(
        self, iterable: Any, args: tuple[Any, ...], kwargs: dict[str, Any], around: Group | None
    ) -> tuple[TaskFunction, Taskgroup, tuple[Any, ...]]:
        """Return the function that generates tasks, the group that reduces, and the tasks' arguments besides a part.

        ``around`` is the group that the construct is in, of which ``in_reduction`` names items.

        An item that is not among the arguments follows them, if the body has a parameter for it. If not, the body works
        on the item itself, by any name, and its tasks have to exclude each other.
        """
        names = self._names_at_call(iterable, args, kwargs)
        own: tuple[ReductionItem, ...] = self._clauses.get("reduction", ())  # which the loop's group combines
        outer: tuple[ReductionItem, ...] = self._clauses.get("in_reduction", ())  # which a group around it combines
        reduced, taken = resolved("reduction", own, names), resolved("in_reduction", outer, names)
        self._check_part(taken, reduced, around)
        group = Taskgroup(reductions_of("reduction", reduced), "taskloop")
        received: list[ReductionItem] = []  # as private arrays
        missing: list[ReductionItem] = []  # not among the arguments
        for written, item in zip((*own, *outer), (*reduced, *taken), strict=True):
            if self._is_passed(written.item, item.item, args, kwargs):
                received.append(written)
            else:
                missing.append(item)
        depend = []
        # A body with parameters for them gets private arrays. Another one uses the arrays themselves, one task at a
        # time.
        if missing and self._takes(len(missing), 1 + len(args), kwargs):
            args = (*args, *(item for _, item in missing))
            received += missing
        else:
            depend = [mutexinoutset(item) for _, item in missing]
        in_reduction: dict[str, list[Any]] = {}
        for operator, item in received:
            in_reduction.setdefault(operator, []).append(item)
        return self._clauses.task.options(depend=depend, in_reduction=in_reduction or None), group, args

    def _check_part(
        self, taken: Iterable[ReductionItem], reduced: Iterable[ReductionItem], around: Group | None
    ) -> None:
        """Raise `ClauseError` unless a group around the loop, not the loop, reduces each item of ``in_reduction``."""
        own = [identity_of(item) for _, item in reduced]
        for operator, item in taken:
            if identity_of(item) in own:
                raise ClauseError(
                    f"taskloop {self._name!r}: {label(item)} is in reduction and in in_reduction; name it in one only"
                )
            find_reduction(f"taskloop {self._name!r}", operator, item, around)

    def _names_at_call(self, iterable: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if self._clauses.names is None:
            return {}
        try:
            return self._clauses.names.at_call((iterable, *args), kwargs)  # type: ignore[no-any-return]  # of `VisibleNames`
        except TypeError as error:
            raise ClauseError(
                f"taskloop {self._name!r}: {error}; a list item written as a string names an argument of the call, "
                "or a global or enclosing variable"
            ) from None

    def _is_passed(self, written: Any, item: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Tell whether an item is among the arguments, or is written as a section of one."""
        wanted = identity_of(item)
        passed = map(held_host, (*args, *kwargs.values()))
        if any(isinstance(value, np.ndarray) and identity_of(value) == wanted for value in passed):
            return True
        if not isinstance(written, str) or self._clauses.names is None:
            return False
        parsed = parse_item(written)
        slot = self._clauses.names.slot(parsed.name, kwargs)
        if isinstance(slot, str):
            return slot in kwargs and parsed.is_part_of(kwargs[slot])
        return 0 < slot <= len(args) and parsed.is_part_of(args[slot - 1])  # the first parameter takes the part

    def _takes(self, n_items: int, n_given: int, kwargs: dict[str, Any]) -> bool:
        """Tell whether the body has parameters for items after the arguments, or for the arguments only.

        Parameters that have a default are not for items.

        Raises
        ------
        ClauseError
            Neither.
        """
        try:
            parameters = inspect.signature(self._function).parameters.values()
        except ValueError:  # a builtin
            return False
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        needed = sum(p.default is p.empty and p.name not in kwargs for p in positional)
        if any(p.kind is p.VAR_POSITIONAL for p in parameters) or needed == n_given + n_items:
            return True
        if n_given >= needed:
            return False
        raise ClauseError(
            f"taskloop {self._name!r}: the body needs {needed} arguments, but it receives {n_given} (its part of the "
            f"range comes first), or {n_given + n_items} with a private array for each reduction item"
        )


class _LoopTask(TaskFunction):
    """The task function behind a taskloop: a call generates the task of one part."""

    __slots__ = ()

    _directive = "taskloop"
    _n_between = TaskFunction._n_between + 2  # noqa: SLF001  # `TaskloopFunction.__call__`, and `for_finalizers`'s


# -- splitting -------------------------------------------------------------------------------------


def split(iterable: Any, *, grainsize: int | None, num_tasks: int | None, is_strict: bool, n_threads: int) -> list[Any]:
    """Return the parts of a range, each of at least one element, in order: ranges, slices, or lists of its elements.

    Raises
    ------
    ClauseError
        It cannot be iterated over.
    """
    whole = iterable
    try:
        if isinstance(whole, (Sequence, np.ndarray)) or is_tensor(whole) or is_device_array(whole):
            # Raises where the object has no slices.
            whole[0:0]
        else:
            whole = list(whole)
        n = len(whole)
    except (TypeError, IndexError):
        try:
            whole = list(iterable)  # a deque, for one, has no slices
        except TypeError:
            raise ClauseError(
                f"taskloop: {type(iterable).__name__} {iterable!r:.60} cannot be iterated over; "
                "write for example range(n), or an array or a list"
            ) from None
        n = len(whole)
    parts, begin = [], 0
    for size in part_sizes(n, grainsize=grainsize, num_tasks=num_tasks, is_strict=is_strict, n_threads=n_threads):
        parts.append(whole[begin : begin + size])
        begin += size
    return parts


def part_sizes(n: int, *, grainsize: int | None, num_tasks: int | None, is_strict: bool, n_threads: int) -> list[int]:
    """Return how many of ``n`` iterations each task gets, the larger numbers first.

    OpenMP 5.2, 12.6.1 "grainsize Clause": at least that and less than twice as many, or strictly as many but for the
    last task. A balanced split into k = n // grainsize tasks does the former: n < (k + 1) * grainsize.
    12.6.2 "num_tasks Clause": so many tasks, or one for each iteration if there are fewer; strict: ceil(n / num_tasks)
    for the first, floor for the others.
    """
    if n == 0:
        return []
    if grainsize is not None and is_strict:
        return [grainsize] * (n // grainsize) + [n % grainsize] * (n % grainsize > 0)
    n_tasks = max(1, n // grainsize) if grainsize is not None else min(n, num_tasks or _TASKS_A_THREAD * n_threads)
    # Sizes differ by one at most.
    size, n_larger = divmod(n, n_tasks)
    return [size + 1] * n_larger + [size] * (n_tasks - n_larger)


# -- clauses ---------------------------------------------------------------------------------------


def _check_together(clauses: dict[str, Any]) -> None:
    """Raise `ClauseError` if clauses contradict each other."""
    grainsize, num_tasks = clauses.get("grainsize"), clauses.get("num_tasks")
    if grainsize is not None and num_tasks is not None:
        raise ClauseError(
            f"taskloop: grainsize={grainsize} and num_tasks={num_tasks} both say how to split the range; give one of "
            "them"
        )
    if clauses.get("strict") and grainsize is None and num_tasks is None:
        raise ClauseError("taskloop: strict modifies grainsize or num_tasks, but neither is given; give one of them")
    if clauses.get("nogroup") and clauses.get("reduction"):
        raise ClauseError(
            "taskloop: nogroup is not allowed with reduction, because the end of the group combines the results; leave "
            "out nogroup, or use a taskgroup with task_reduction and tasks with in_reduction"
        )


_OF_TASKS = ("if_", "final", "priority", "name")
"""The clauses that each task has."""

_NOTHING: Any = object()


@overload
def taskloop(
    iterable: Iterable[Any],
    body: Callable[..., R],
    *,
    nogroup: Literal[True],
    **clauses: Unpack[TaskloopKeywords],
) -> list[Task[R]]: ...
@overload
def taskloop(
    iterable: Iterable[Any],
    body: Callable[..., Any],
    *,
    nogroup: Literal[False] = False,
    **clauses: Unpack[TaskloopKeywords],
) -> None: ...
@overload
def taskloop(
    iterable: Iterable[Any], *, nogroup: Literal[True], **clauses: Unpack[TaskloopKeywords]
) -> Callable[[Callable[..., R]], list[Task[R]]]: ...
@overload
def taskloop(
    iterable: Iterable[Any], *, nogroup: Literal[False] = False, **clauses: Unpack[TaskloopKeywords]
) -> Callable[[Callable[..., Any]], None]: ...
@overload
def taskloop(
    iterable: Callable[Concatenate[Any, P], R], /, **clauses: Unpack[SplitKeywords]
) -> TaskloopCall[P, R, None]: ...
@overload
def taskloop(
    *, nogroup: Literal[True], **clauses: Unpack[SplitKeywords]
) -> Callable[[Callable[Concatenate[Any, P], R]], TaskloopCall[P, R, list[Task[R]]]]: ...
@overload
def taskloop(
    *, nogroup: Literal[False] = False, **clauses: Unpack[SplitKeywords]
) -> Callable[[Callable[Concatenate[Any, P], R]], TaskloopCall[P, R, None]]: ...
@overload  # with reductions, the body has more parameters than a call gives
def taskloop(
    *, nogroup: bool = False, **clauses: Unpack[TaskloopKeywords]
) -> Callable[[Callable[..., R]], TaskloopCall[..., R, Any]]: ...
@overload
def taskloop(
    iterable: Iterable[Any] | Callable[..., Any],
    body: Callable[..., Any] | None = None,
    **clauses: Unpack[TaskloopClauses],
) -> Any: ...
@shows_clauses("offload.constructs.clauses.signatures")
def taskloop(
    iterable: Any = _NOTHING, body: Callable[..., Any] | None = None, **clauses: Unpack[TaskloopClauses]
) -> Any:
    """Split a range into tasks, each of which calls the body with a part of it.

    ``taskloop(range(n), body)`` runs the loop at once, and so does ``@taskloop(range(n))`` above the body. Without a
    range, ``@taskloop`` or ``@taskloop(grainsize=4)`` makes a function. Call it with a range, ``f(range(n))``; it
    passes further arguments to the body.

    Parameters
    ----------
    iterable : range, sequence, array or iterable
        The parts of a range are ranges. The parts of a sequence or an array are slices (for an array, views along its
        first axis). Any other iterable is read to its end first, and its parts are lists. No part is empty, and each
        element is in one part.
    body : callable
        ``body(part)``.
    grainsize : int
        Each task gets at least ``grainsize`` elements, or all if there are fewer, and less than twice as many.
    num_tasks : int
        Number of tasks (at most one per element). Sizes differ by at most one. Without ``grainsize`` and ``num_tasks``
        there are four tasks for each worker and for the calling thread.
    strict : bool
        If True, every task gets exactly ``grainsize`` elements, except the last, which gets the remainder.
        ``num_tasks`` is exact in any case.
    reduction : dict of str to list of arrays and str
        Maps an operator to list items, as in `taskgroup`. ``body(part, total)`` receives a private array for each item,
        in order, in parameters without default, or instead of the arguments that are the items. ``body(part)`` works on
        the items themselves, and its tasks run one at a time (``mutexinoutset``).
    in_reduction : dict of str to list of arrays and str
        Maps an operator to list items of ``task_reduction`` of a taskgroup around the call, as in `task`. The tasks
        take part in that reduction, also with ``nogroup``. The body receives the private arrays as for ``reduction``,
        after those.
    nogroup : bool
        True: do not wait, and return the tasks.
    if_, final, priority, name
        The clauses of `task`, for each of the tasks.

    Returns
    -------
    None, or list of Task with ``nogroup``
        Without a range: a function that returns this, and that has ``.options(…)`` like a task function. As a decorator
        with a range, it binds the result to the name of the body.

    Raises
    ------
    ExceptionGroup
        Tasks, or their descendants, failed, and their failures have not been retrieved. Items of ``reduction`` with
        private arrays then keep their original values. With ``if_=False`` or ``final=True``, the call raises the first
        failure itself, and generates no more tasks.
    ClauseError
        ``grainsize`` is given with ``num_tasks``, or ``nogroup`` with ``reduction``. A number is below 1. The iterable
        cannot be iterated over. A list item cannot be reduced, or no taskgroup around the call reduces an item of
        ``in_reduction`` with that operator.

    Notes
    -----
    The call blocks until all tasks and their descendants are complete; the waiting thread may run them. They form the
    group that ``cancel("taskgroup")`` in a body cancels. Write collapsed loops as one range:
    ``itertools.product(range(n), range(m))``. OpenMP 5.2, 12.6 "taskloop Construct", 5.5.8 "reduction Clause", 5.5.10
    "in_reduction Clause".

    Examples
    --------
    >>> x = np.zeros(100)
    >>> @omp.taskloop(grainsize=25)
    ... def square(part):
    ...     for i in part:
    ...         x[i] = i**2
    >>> square(range(100))
    >>> float(x.sum())
    328350.0
    """
    checked = check_clauses("taskloop", clauses, TaskloopFunction._checks)  # noqa: SLF001  # same module
    if body is None and callable(iterable) and not hasattr(iterable, "__iter__"):
        return TaskloopFunction(iterable, checked)
    if iterable is _NOTHING:
        if body is not None:
            raise ClauseError("taskloop: there is no range; write taskloop(range(n), body)")
        return lambda function: TaskloopFunction(function, {**checked})
    if body is None:
        return lambda function: TaskloopFunction(function, {**checked})(iterable)
    return TaskloopFunction(body, checked)(iterable)
