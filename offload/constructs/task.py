"""Task functions: the results of the decorator ``task``."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from offload.constructs.arguments import dependence_on
from offload.constructs.call import (
    Clauses,
    DirectiveFunction,
    decorate,
    is_coroutine_function,
    is_generator_function,
    name_of,
)
from offload.constructs.clauses.dependences import check_depend
from offload.constructs.clauses.maps import check_name, check_priority
from offload.constructs.clauses.reductions import ReducingTasks, check_reduction, parts_of
from offload.errors import ClauseError, UnsupportedError
from offload.events.event import check_event
from offload.runtime.current import put_off_here
from offload.runtime.generate import generate, generate_host
from offload.runtime.keywords import shows_clauses
from offload.tasks.recipe import ClauseRecipe, Recipe
from offload.tasks.task import TASK_TYPES
from offload.tasks.values import Values

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Unpack

    import numpy as np

    from offload.constructs.clauses.reductions import ReducedPart
    from offload.constructs.clauses.signatures import P, R, TaskCall, TaskClauses, TaskDecorator
    from offload.runtime.current import Scope
    from offload.tasks.region import Region
    from offload.tasks.task import Task

_frame_at = sys._getframe  # noqa: SLF001  # what `inspect` uses


class TaskFunction(DirectiveFunction):
    """A function whose calls are tasks on the host. `task` makes it."""

    __slots__ = ()

    _directive = "task"
    _n_between = 2
    """How many frames `_encounter` is from the program."""
    _checks = {  # noqa: RUF012  # a table, never changed
        "depend": check_depend,
        "detach": check_event,
        "if_": lambda value: value,
        "in_reduction": partial(check_reduction, "in_reduction"),
        "final": bool,
        "priority": check_priority,
        "name": check_name,
    }

    def _check_function(self, function: Callable[..., Any]) -> None:
        """Refuse a generator, whose call runs nothing; an async def runs on an event loop."""
        self._is_async = is_coroutine_function(function)
        if is_generator_function(function):
            raise UnsupportedError(
                f"{self._directive}: {name_of(function)!r} is a generator, so a call would not run its body; write a "
                "plain def, or an async def without yield"
            )

    def _prepare(self, clauses: Clauses, words: dict[str, Any]) -> None:
        super()._prepare(clauses, words)
        clauses.waits = bool(words) or self._is_async
        if any(isinstance(item, str) for _, item in words.get("in_reduction", ())):
            clauses.names = self._visible_names()

    def _encounter(self, scope: Scope, region: Region, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the `Task`, which runs as soon as its dependences allow."""
        values = None
        for value in args:  # costs 40 ns for the first argument and 25 for each other
            if type(value) in TASK_TYPES:
                values = Values.among(args, kwargs)
                break
        if kwargs and not TASK_TYPES.isdisjoint(map(type, kwargs.values())):
            values = Values.among(args, kwargs)
        site = self._site  # the first call makes it
        depend: Any = self._depend
        if (
            not (self._clauses.waits or region.mode)
            and values is None
            and depend.__class__ is tuple
            and site is not None
            and site.runtime is scope.runtime
        ):
            try:
                caller = _frame_at(self._n_between)
            except ValueError:  # the interpreter itself calls this, as the beginning of a thread or at its own end
                pass
            else:
                return generate_host(scope, region, site, caller, self._function, args, kwargs, depend)
        if not self._clauses.waits and put_off_here(scope, self, args, kwargs):
            return None
        return self._encounter_more(scope, region, values, args, kwargs)

    def _encounter_more(
        self, scope: Scope, region: Region, values: Values | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Task:
        """Encounter a task that has more than dependences, or a region that does more with it."""
        said, inherited = self._clauses, region.inherited
        event, is_final = said.get("detach"), bool(said.get("final"))
        priority = min(said.priority, scope.runtime.engine.max_priority)
        depend: Any = self._depend
        if depend.__class__ is not tuple:
            depend = depend.at(depend.names.at_call(args, kwargs) if depend.names is not None else {})
        parts: tuple[ReducedPart, ...] = ()
        if said.get("in_reduction"):
            what = f"{self._directive} {self._name!r}"
            parts = parts_of(what, said.get("in_reduction"), said.names, args, kwargs, inherited.group)
        if values is not None:
            depend = (*depend, dependence_on(values))
            args, kwargs = values.without(args, kwargs)
        if event is not None and inherited.is_final:
            raise ClauseError(
                f"task {self._name!r}: detach is not allowed in a final task, because its tasks run at once; generate "
                "this task elsewhere"
            )
        waits = is_final or inherited.is_final or not said.get("if_", True)
        what_all = self._site_in(scope.runtime), self._function, args, kwargs or None, said.label, priority
        if not (event is not None or is_final or parts or values is not None or self._is_async):
            return generate(scope, region, Recipe(*what_all), depend, wait=waits)
        recipe: ClauseRecipe
        if self._is_async:
            from offload.tasks.aio.task import CoroutineRecipe  # imports asyncio

            blocks = waits and (region.recorder is None or region.recorder.executes)
            recipe = CoroutineRecipe(*what_all, blocks=blocks)
        else:
            recipe = ClauseRecipe(*what_all)
        recipe.event, recipe.is_final, recipe.values = event, is_final, values
        if parts:
            recipe.reductions = ReducingTasks(parts, until_complete=event is not None or self._is_async)
        return generate(scope, region, recipe, depend, wait=waits)


@overload
def task(function: np.ufunc, /, **clauses: Unpack[TaskClauses]) -> TaskCall[..., Any]: ...
@overload
def task(function: Callable[P, Coroutine[Any, Any, R]], /, **clauses: Unpack[TaskClauses]) -> TaskCall[P, R]: ...
@overload
def task(function: Callable[P, R], /, **clauses: Unpack[TaskClauses]) -> TaskCall[P, R]: ...
@overload
def task(function: None = None, /, **clauses: Unpack[TaskClauses]) -> TaskDecorator: ...
@shows_clauses("offload.constructs.clauses.signatures")
def task(function: Callable[..., Any] | None = None, /, **clauses: Unpack[TaskClauses]) -> Any:
    """Make a function a task function: each call generates a task that runs the body on the host.

    The body of an ``async def`` runs on the event loop that runs at the call. Without one, it runs on a loop in a
    thread of the runtime. It holds no worker while it awaits. In such a body, ``await`` tasks and ``taskwait()``, and
    write ``async with taskgroup()``. A call that blocks the loop's thread cannot wait for bodies of that loop.

    Parameters
    ----------
    depend : list of dependences
        `in_`, `out`, `inout`, `mutexinoutset` or `inoutset` of list items, or a `depobj`. The task runs after the
        earlier siblings that they name.
    detach : Event
        The task is complete when its body has finished and the event is fulfilled.
    if_ : bool
        False: undeferred. The call returns when the body has run. Dependences still hold.
    in_reduction : dict of str to list of arrays and str
        Maps an operator to list items of ``task_reduction`` of a taskgroup around the call (the innermost that has the
        item). The body receives a private array instead of each argument that is the item. The array may already
        contain contributions of other tasks, so add to it in place. If a string names a section of a parameter, the
        argument is the array of that section.
    final : bool
        True: the task, and all tasks that it generates, run at once, in order, on the thread that encounters them.
    priority : int
        At least 0. Among ready tasks, those with higher priority begin first. ``OMP_MAX_TASK_PRIORITY`` limits the
        value, and is 0 unless you set it.
    name : str
        A label for graphs, traces and errors.

    Returns
    -------
    TaskFunction
        Each call returns a `Task`. ``.options(…)`` returns a copy with clauses replaced. An argument that is a `Task`
        is a dependence on it, as with ``depend=in_(task)``, and the body gets its value, ``task.result()``. If the body
        needs the task itself, pass it in a container or by closure.

    Raises
    ------
    ClauseError, DependError, EventError
        The construct has no such clause, or a value is wrong. At a call: no taskgroup reduces an item of
        ``in_reduction`` with that operator, or the item is not among the arguments. ``result()`` raises a `DependError`
        if a task among the arguments has failed.
    UnsupportedError
        At a call in a `taskgraph`: a task among the arguments is not a task of the graph.
    UsageError
        At a call: a task among the arguments is the calling task, or a task around it.

    Notes
    -----
    The call blocks only with ``if_=False``. OpenMP 5.2, 12.5 "task Construct", 5.5.10 "in_reduction Clause". In a
    replayed graph, a task combines its contribution with the item when the task is complete.

    Examples
    --------
    >>> @omp.task
    ... def add(x, y):
    ...     return x + y
    >>> total = add(1, add(2, 3))  # the outer task waits for the inner one
    >>> total.result()
    6
    """
    return decorate(TaskFunction, function, clauses)
