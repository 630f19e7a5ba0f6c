"""Loop functions on the host: what the decorator ``parallel_loop`` makes of a function."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.constructs.clauses.dependences import check_depend
from offload.constructs.clauses.maps import check_name, check_priority
from offload.constructs.functions import decorate
from offload.constructs.passed import dependence_on
from offload.interrupts.finalizers import collector
from offload.interrupts.shields import is_at_work
from offload.loops.common import LoopFunction, launching
from offload.loops.running.clauses import COMMON_CHECKS
from offload.runtime.current import here, put_off_here, scope_in_context
from offload.runtime.generate import encounter, run
from offload.tasks.recipe import Recipe
from offload.tasks.stack import owned
from offload.tasks.task import TASK_TYPES, Task
from offload.tasks.values import Receiver, Values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from offload.loops.launch import Launcher
    from offload.runtime.current import Scope
    from offload.tasks.region import Region


class ParallelLoop(LoopFunction):
    """A function whose calls are loops on the host's threads."""

    _directive = "parallel_loop"
    _checks = {  # noqa: RUF012  # a table, never changed
        **COMMON_CHECKS,
        "depend": check_depend,
        "nowait": bool,
        "if_": lambda value: value,
        "priority": check_priority,
        "name": check_name,
    }

    __slots__ = ("_all", "_is_direct", "_program")

    def _apply(self, clauses: dict[str, Any]) -> None:
        super()._apply(clauses)
        self._is_direct = not self._is_late and self._clauses.keys() <= {"if_"}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Encounter the construct: return what the function returns, or with ``nowait`` the `Task`."""
        scope = scope_in_context()
        if scope is None or scope.thread != get_ident():
            scope = here()
        frame = scope.region
        if (
            not self._is_direct
            or frame is None
            or frame.recorder is not None
            or not frame.inherited.is_plain
            or collector.start
            or owned
            or is_at_work()
            or not TASK_TYPES.isdisjoint(map(type, (*args, *kwargs.values())))
        ):
            return self._encounter(scope, args, kwargs)
        task = Task(self._site_in(scope.runtime), self._launcher(args, kwargs), args, kwargs or None, frame)
        try:
            return run(scope, frame, task, self._depend)
        finally:
            del task  # as `run` asks for

    def _encounter(self, scope: Scope, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Encounter a loop that has more than dependences, or a region that does more with it."""
        if put_off_here(scope, self, args, kwargs):
            return None
        frame = scope.frame(self._directive)
        clauses = self._clauses
        is_deferred = bool(clauses.get("nowait"))
        depend: Any = self._depend
        if self._is_late:
            depend = self._dependences(self._names.at_call(args, kwargs) if self._names is not None else {})
        values = Values.among(args, kwargs)
        if values is not None:
            depend = (*depend, dependence_on(values))
            args, kwargs = values.without(args, kwargs)
        for at, name in enumerate(self._program.parameters if self._program.words.firstprivate else ()):
            if name in self._program.words.firstprivate:
                args, kwargs = _with_captured(name, at, args, kwargs)
        recipe = self._recipe(scope, args, kwargs, values)
        task = encounter(scope, frame, recipe, depend, deferred=is_deferred)
        return task if is_deferred else task.value

    def _launcher(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, are_known: bool = True) -> Launcher:
        """Return the body of a call; what is wrong with arguments that are known is said here."""
        body: Launcher = launching().Launcher(self._program, is_alone=not self._clauses.get("if_", True))
        if are_known:
            body.look(args, kwargs)
        return body

    def _recipe(self, scope: Scope, args: tuple[Any, ...], kwargs: dict[str, Any], values: Values | None) -> _HostLoop:
        body = self._launcher(args, kwargs, are_known=values is None)
        priority = min(self._clauses.get("priority", 0), scope.runtime.engine.max_priority)
        recipe = _HostLoop(self._site_in(scope.runtime), body, args, kwargs or None, self._label, priority)
        recipe.values = values
        return recipe


def _with_captured(
    name: str, at: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments with a copy of the array that is given to a parameter: what it holds at the call."""
    if name in kwargs:
        return args, {**kwargs, name: _copied(kwargs[name])}
    return (*args[:at], *map(_copied, args[at : at + 1]), *args[at + 1 :]), kwargs


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


class _HostLoop(Recipe):
    """What the tasks of a loop on the host's threads are made of."""

    __slots__ = ("values",)

    values: Values | None

    def make(self, frame: Region, sources: Sequence[Task | None] = ()) -> Task:
        body = self.body
        if self.values is not None:
            body = Receiver(body, self.values.of(sources))
        task = Task(self.site, body, self.args, self.kwargs, frame)
        self._mark(task)
        return task


def parallel_loop(function: Callable[..., Any] | None = None, /, **clauses: Any) -> Any:
    """Make each call of a function a loop on the host's threads: its iterations run beside each other.

    Parameters
    ----------
    depend, nowait, priority, name
        As for `target`; nothing is mapped.
    if_ : bool
        False: one thread runs the loop.
    collapse, reduction, private, firstprivate, lastprivate, atomic, schedule, num_threads, check, bounds, fastmath
        As for `target_loop`, and so are the other clauses that speak of the loop.

    Returns
    -------
    ParallelLoop
        As `target_loop`.

    Raises
    ------
    LoopError, ClauseError, IndexError, ZeroDivisionError, AssertionError
        As `target_loop`.

    Notes
    -----
    *Blocks* without ``nowait`` until the loop has run; Ctrl-C takes effect then. OpenMP 5.2, 11.5.2 "Worksharing-Loop
    Construct" of a parallel region (section numbers unchecked).
    """
    return decorate(ParallelLoop, function, clauses)
