"""Loop functions on the host: the results of the decorator ``parallel_loop``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np

from offload.constructs.arguments import dependence_on
from offload.constructs.call import decorate
from offload.constructs.clauses.dependences import check_depend
from offload.constructs.clauses.maps import check_name, check_priority
from offload.loops.common import LoopFunction, launching
from offload.loops.running.clauses import COMMON_CHECKS
from offload.runtime.current import put_off_here
from offload.runtime.generate import generate
from offload.runtime.keywords import shows_clauses
from offload.tasks.recipe import Recipe
from offload.tasks.task import TASK_TYPES, Task
from offload.tasks.values import Receiver, Values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Literal, Unpack

    from offload.constructs.clauses.signatures import P, R
    from offload.loops.launch import Launcher
    from offload.loops.signatures import HostLoopCall, HostLoopClauses, HostLoopKeywords
    from offload.runtime.current import Scope
    from offload.tasks.region import Region


class HostLoop(LoopFunction):
    """A loop function whose calls run on the host's threads."""

    _directive = "parallel_loop"
    _checks = {  # noqa: RUF012  # a table, never changed
        **COMMON_CHECKS,
        "depend": check_depend,
        "nowait": bool,
        "if_": lambda value: value,
        "priority": check_priority,
        "name": check_name,
    }

    __slots__ = ()

    def _prepare(self, clauses: Any, words: dict[str, Any]) -> None:
        super()._prepare(clauses, words)
        clauses.waits = not clauses.get("nowait")

    def _encounter(self, scope: Scope, region: Region, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the function's result, or with ``nowait`` the `Task`."""
        said = self._clauses
        if not said.waits and put_off_here(scope, self, args, kwargs):
            return None
        depend: Any = self._depend
        if depend.__class__ is not tuple:
            depend = depend.at(depend.names.at_call(args, kwargs) if depend.names is not None else {})
        values = None
        if not TASK_TYPES.isdisjoint(map(type, (*args, *kwargs.values()))):
            values = Values.among(args, kwargs)
        if values is not None:
            depend = (*depend, dependence_on(values))
            args, kwargs = values.without(args, kwargs)
        words = said.program.words
        for at, name in enumerate(said.program.parameters if words.firstprivate else ()):
            if name in words.firstprivate:
                args, kwargs = _with_captured(name, at, args, kwargs)
        recipe = self._recipe(scope, args, kwargs, values)
        task = generate(scope, region, recipe, depend, wait=said.waits)
        return task.value if said.waits else task

    def _launcher(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, are_known: bool = True) -> Launcher:
        """Return the body of a call; errors in arguments that are known are raised here."""
        body: Launcher = launching().Launcher(self._program, is_alone=not self._clauses.get("if_", True))
        body.take, body.begin = getattr(self, "_take", None), getattr(self, "_begin", None)
        if are_known:
            body.look(args, kwargs)
        return body

    def _recipe(
        self, scope: Scope, args: tuple[Any, ...], kwargs: dict[str, Any], values: Values | None
    ) -> _HostLoopRecipe:
        body = self._launcher(args, kwargs, are_known=values is None)
        site, clauses = self._site_in(scope.runtime), self._clauses
        priority = min(clauses.priority, scope.runtime.engine.max_priority)
        recipe = _HostLoopRecipe(site, body, args, kwargs or None, clauses.label, priority)
        recipe.values = values
        return recipe


def _with_captured(
    name: str, at: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments with a copy of a parameter's array, as it is at the call."""
    if name in kwargs:
        return args, {**kwargs, name: _copied(kwargs[name])}
    return (*args[:at], *map(_copied, args[at : at + 1]), *args[at + 1 :]), kwargs


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


class _HostLoopRecipe(Recipe):
    """The recipe for tasks of a loop on the host's threads."""

    __slots__ = ("values",)

    values: Values | None

    def make(self, frame: Region, sources: Sequence[Task | None] = ()) -> Task:
        task = super().make(frame)
        if self.values is not None:
            task.body = Receiver(self.body, self.values.of(sources))
        return task


@overload
def parallel_loop(
    function: Callable[P, R], /, *, nowait: Literal[True], **clauses: Unpack[HostLoopKeywords]
) -> HostLoopCall[P, R, Task[R]]: ...
@overload
def parallel_loop(
    function: Callable[P, R], /, *, nowait: Literal[False] = False, **clauses: Unpack[HostLoopKeywords]
) -> HostLoopCall[P, R, R]: ...
@overload
def parallel_loop(
    function: None = None, /, *, nowait: Literal[True], **clauses: Unpack[HostLoopKeywords]
) -> Callable[[Callable[P, R]], HostLoopCall[P, R, Task[R]]]: ...
@overload
def parallel_loop(
    function: None = None, /, *, nowait: Literal[False] = False, **clauses: Unpack[HostLoopKeywords]
) -> Callable[[Callable[P, R]], HostLoopCall[P, R, R]]: ...
@overload
def parallel_loop(
    function: Callable[P, R], /, *, nowait: bool, **clauses: Unpack[HostLoopKeywords]
) -> HostLoopCall[P, R, Any]: ...
@overload
def parallel_loop(
    function: None = None, /, *, nowait: bool, **clauses: Unpack[HostLoopKeywords]
) -> Callable[[Callable[P, R]], HostLoopCall[P, R, Any]]: ...
@shows_clauses("offload.loops.signatures")
def parallel_loop(function: Callable[..., Any] | None = None, /, **clauses: Unpack[HostLoopClauses]) -> Any:
    """Make each call of a function a loop on the host's threads: its iterations run in parallel.

    Parameters
    ----------
    depend, nowait, priority, name
        The clauses of `target`. Nothing is mapped.
    if_ : bool
        False: one thread runs the loop.
    collapse, reduction, private, firstprivate, lastprivate, atomic, schedule, num_threads
        The clauses of `target_loop`. The construct also takes its other clauses for loops.
    check, bounds, fastmath, reassociate
        The clauses of `target_loop` that say how the loop is checked and compiled.

    Returns
    -------
    HostLoop
        It has the members of a `TargetLoop`.

    Raises
    ------
    LoopError, ClauseError, IndexError, ZeroDivisionError, AssertionError
        See `target_loop`.

    Notes
    -----
    Without ``nowait``, the call blocks until the loop has run. Ctrl-C takes effect at that time. OpenMP 5.2, 11.5.2
    "Worksharing-Loop Construct" of a parallel region (section numbers unchecked).

    Examples
    --------
    >>> @omp.parallel_loop
    ... def scale(a, x):
    ...     for i in range(x.size):
    ...         x[i] = a * x[i]
    >>> x = np.arange(4.0)
    >>> scale(10.0, x)
    >>> x
    array([ 0., 10., 20., 30.])
    """
    return decorate(HostLoop, function, clauses)
