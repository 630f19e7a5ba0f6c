"""Task functions and target functions: what the decorators ``task`` and ``target`` make of a function."""

from __future__ import annotations

import functools
import inspect
import sys
from threading import get_ident
from typing import TYPE_CHECKING, Any

from offload.constructs.clauses.dependences import Dependence, check_depend
from offload.constructs.clauses.maps import check_clauses, check_name, check_priority, symbolic
from offload.constructs.clauses.names import VisibleNames
from offload.constructs.clauses.reductions import Participation, check_reduction, parts_of
from offload.constructs.clauses.sharing import has_rules
from offload.constructs.passed import dependence_on
from offload.constructs.pickling import copy_of, reduced, restore
from offload.errors import ClauseError, LoopError, UnsupportedError
from offload.events.event import check_event
from offload.interrupts.finalizers import collector
from offload.interrupts.shields import in_one_piece, late
from offload.runtime.current import here, put_off_here, scope_in_context
from offload.runtime.generate import encounter
from offload.tasks.engine import MANY_LIVE
from offload.tasks.recipe import ClauseRecipe, Recipe
from offload.tasks.site import Site
from offload.tasks.stack import owned
from offload.tasks.states import TaskState
from offload.tasks.task import TASK_TYPES, Task
from offload.tasks.values import Values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType
    from typing import Self, SupportsIndex

    from offload.constructs.clauses.dependences import DepObj
    from offload.constructs.clauses.reductions import Part
    from offload.runtime.current import Scope
    from offload.runtime.runtime import Runtime
    from offload.tasks.region import Region


class DirectiveFunction:
    """A function under a directive, with its clauses. Calling it encounters the construct.

    What belongs to the function stands in ``__dict__``, which all copies share; what belongs to the clauses in slots.
    So `options` in a loop costs a few assignments.
    """

    __slots__ = ("__dict__", "_clauses", "_depend", "_is_late", "_label", "_names")

    _directive = ""
    _is_target = False
    """Whether the body of a task only enqueues device work."""
    _checks: Mapping[str, Callable[[Any], Any]] = {}

    def __init__(self, function: Callable[..., Any], clauses: dict[str, Any]) -> None:
        if not callable(function):
            raise ClauseError(f"{self._directive} decorates a function, not {type(function).__name__} {function!r:.60}")
        self._check_function(function)
        has_own = isinstance(function, type)  # attributes are its objects', and no attributes of this
        functools.update_wrapper(self, function, updated=() if has_own else functools.WRAPPER_UPDATES)  # type: ignore[arg-type]  # callable in each subclass
        self._function = function
        self._name = _name_of(function)
        self._location: str = _location_of(function)
        self._site: Site | None = None
        self._visible: VisibleNames | None = None
        self._apply(clauses)

    def _check_function(self, function: Callable[..., Any]) -> None:
        """Refuse a function whose call runs nothing."""
        if is_coroutine_function(function) or _is_generator_function(function):
            raise UnsupportedError(
                f"{self._directive}: {_name_of(function)!r} is an async def or a generator, whose call runs nothing; "
                "write a plain def"
            )

    def _apply(self, clauses: dict[str, Any]) -> None:
        """Take over the clauses."""
        self._depend: tuple[Dependence | DepObj, ...] = clauses.pop("depend", ())
        self._clauses = clauses
        self._label: str | None = clauses.get("name")
        self._is_late = any(dependence.is_late for dependence in self._depend)
        is_symbolic = any(dependence.is_symbolic for dependence in self._depend) or (
            "map" in self._clauses and symbolic(self._clauses["map"])
        )
        self._names = self._visible_names() if is_symbolic or has_rules(self._clauses) else None

    def _visible_names(self) -> VisibleNames:
        if self._visible is None:  # what `options` makes shares it
            self._visible = VisibleNames(self._function)
        return self._visible

    def options(self, **clauses: Any) -> Self:
        """Return a copy with these clauses replaced.

        Raises
        ------
        ClauseError
            The construct has no such clause, or a value is wrong.
        """
        return copy_of(self, {**self._given(), **check_clauses(self._directive, clauses, self._checks)})

    def _given(self) -> dict[str, Any]:
        """Return all clauses; a copy, which `_apply` may change."""
        return {**self._clauses, "depend": self._depend}

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """Pickle the function by its name, or with its clauses, and nothing that it has in this process."""
        return reduced(self, self._given())

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        """Become what has been pickled."""
        restore(self, state)

    def _texts(self) -> tuple[dict[str, Any], tuple[Any, ...]]:
        """Return the globals and texts that the function needs in a process without its file, as a loop does."""
        return {}, ()

    def _receive(self, texts: tuple[Any, ...]) -> None:
        """Keep the texts that came with the function."""

    def _with_dependences(self, depend: list[Dependence]) -> Self:
        """Return a copy with other dependences, none of which waits for the call; the usual case in a loop.

        Nothing else may wait for the call either, and there is no label.
        """
        copy = object.__new__(self.__class__)
        copy.__dict__ = self.__dict__
        copy._clauses = self._clauses
        copy._depend = tuple(depend)
        copy._is_late = False
        copy._label = copy._names = None
        return copy

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind like a function: under a method, ``self`` is the first argument."""
        return self if instance is None else BoundDirective(self, instance)  # type: ignore[arg-type]  # callable in each

    def __repr__(self) -> str:
        return f"<{self._directive} function {self._name}>"

    def _site_in(self, runtime: Runtime) -> Site:
        site = self._site
        if site is None or site.runtime is not runtime:
            site = self._site = Site(self._directive, self._name, self._location, runtime, is_target=self._is_target)
        return site

    def _dependences(self, names: Mapping[str, Any]) -> tuple[Dependence, ...]:
        """Return the dependences of a call that gives these names a meaning."""
        return tuple(
            [dependence.resolved(names) if dependence.is_late else dependence for dependence in self._depend]  # type: ignore[misc]  # a depobj is late
        )


NOT_GIVEN: Any = object()

_WAITING = TaskState.WAITING

_new = object.__new__

_frame_at = sys._getframe  # noqa: SLF001  # what `inspect` uses


def are_plain(depend: Any) -> bool:
    """Tell whether a ``depend`` clause is a list of dependences none of which waits for the call."""
    if depend.__class__ is not list:
        return False
    for dependence in depend:  # noqa: SIM110  # on the path of every task, where a generator costs as much again
        if dependence.__class__ is not Dependence or dependence.is_late:
            return False
    return True


class BoundDirective(functools.partial[Any]):
    """A method under a directive, with its object."""

    __slots__ = ()

    def options(self, **clauses: Any) -> BoundDirective:
        """Return a copy with these clauses replaced. Raises as for every construct."""
        return BoundDirective(self.func.options(**clauses), *self.args)  # type: ignore[attr-defined]  # a directive's


class TaskFunction(DirectiveFunction):
    """A function whose calls are tasks on the host."""

    __slots__ = ("_is_plain",)

    _directive = "task"
    _n_between = 1
    """How many frames a call is from the program."""
    _checks = {  # noqa: RUF012  # a table, never changed
        "depend": check_depend,
        "detach": check_event,
        "if_": lambda value: value,
        "in_reduction": functools.partial(check_reduction, "in_reduction"),
        "final": bool,
        "priority": check_priority,
        "name": check_name,
    }

    def _check_function(self, function: Callable[..., Any]) -> None:
        """Refuse a generator, whose call runs nothing; an async def runs on an event loop."""
        self._is_async = is_coroutine_function(function)
        if _is_generator_function(function):
            raise UnsupportedError(
                f"{self._directive}: {_name_of(function)!r} is a generator, whose call runs nothing; "
                "write a plain def, or an async def without yield"
            )

    def _apply(self, clauses: dict[str, Any]) -> None:
        super()._apply(clauses)
        self._is_plain = not self._is_late and not clauses and not self._is_async
        if any(isinstance(item, str) for _, item in clauses.get("in_reduction", ())):
            self._names = self._visible_names()

    def options(self, *, depend: Any = NOT_GIVEN, **clauses: Any) -> Self:
        """Return a copy with these clauses replaced. Raises as for every construct."""
        if clauses or not self._is_plain or depend.__class__ is not list:
            return self._with(depend, clauses)
        for dependence in depend:  # as `are_plain` does, whose call takes 50 ns
            if dependence.__class__ is not Dependence or dependence.is_late:
                return self._with(depend, clauses)
        copy: Self = _new(self.__class__)  # what `_with_dependences` does, whose call takes 0.1 µs
        copy.__dict__ = self.__dict__
        copy._clauses = self._clauses
        copy._depend = tuple(depend)
        copy._is_late = False
        copy._label = copy._names = None
        copy._is_plain = True
        return copy

    def _with(self, depend: Any, clauses: dict[str, Any]) -> Self:
        """Return a copy with clauses of any kind replaced."""
        if depend is not NOT_GIVEN:
            clauses["depend"] = depend
        return super().options(**clauses)

    def __call__(self, *args: Any, **kwargs: Any) -> Task:
        """Encounter the construct: return its `Task`, which runs as soon as its dependences allow."""
        scope = scope_in_context()
        if scope is None or scope.thread != get_ident():
            scope = here()
        frame = scope.region
        site = self._site
        if (
            not self._is_plain
            or frame is None
            or site is None
            or site.runtime is not scope.runtime
            or frame.recorder is not None
            or not frame.inherited.is_plain
            or collector.start
            or owned
        ):
            return self._encounter(scope, args, kwargs)
        if args:  # costs 40 ns for the first argument and 25 for each other
            for value in args:
                if type(value) in TASK_TYPES:
                    return self._encounter(scope, args, kwargs)
        if kwargs and not TASK_TYPES.isdisjoint(map(type, kwargs.values())):
            return self._encounter(scope, args, kwargs)
        try:
            caller = _frame_at(self._n_between)
        except ValueError:  # the interpreter itself calls this, as the beginning of a thread or at its own end
            return self._encounter(scope, args, kwargs)
        return self._generate(scope, frame, site, caller, args, kwargs)

    @in_one_piece
    def _generate(
        self, scope: Scope, frame: Region, site: Site, caller: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Task:
        """Generate a task of which nothing but its dependences matters."""
        task = _new(Task)  # and what `Task.__init__` does, whose call takes 0.1 µs
        task.construct = site
        task.caller_code = caller.f_code
        task.caller_at = caller.f_lasti
        task.body = self._function
        task.args = args
        task.kwargs = kwargs or None
        task.frame = frame
        task.inherited = frame.inherited
        task.state_ = _WAITING
        task.finished = task.special = False
        task.failure = task.successors = task.dependences = task.value = None
        engine = scope.runtime.engine
        try:
            if engine.submit(task, self._depend):
                engine.make_ready(task)
        except BaseException:
            engine.mend(task)
            raise
        if len(frame.children.live) > MANY_LIVE:
            engine.throttle(scope, frame)
        if late.is_due:
            late.deliver()
        return task

    def _encounter(self, scope: Scope, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Task:
        """Encounter a task that has more than dependences, or a region that does more with it."""
        if put_off_here(scope, self, args, kwargs):
            return None  # type: ignore[return-value]  # to a finalizer
        clauses = self._clauses
        frame = scope.frame("task")
        site = self._site_in(scope.runtime)
        event = clauses.get("detach")
        is_final = bool(clauses.get("final"))
        priority = min(clauses.get("priority", 0), scope.runtime.engine.max_priority)
        depend: Any = self._depend
        if self._is_late:
            depend = self._dependences(self._names.at_call(args, kwargs) if self._names is not None else {})
        parts: tuple[Part, ...] = ()
        if clauses.get("in_reduction"):
            parts = parts_of(
                f"{self._directive} {self._name!r}",
                clauses["in_reduction"],
                self._names,
                args,
                kwargs,
                frame.inherited.group,
            )
        values = Values.among(args, kwargs)
        if values is not None:
            depend = (*depend, dependence_on(values))
            args, kwargs = values.without(args, kwargs)
        if event is not None and frame.inherited.is_final:
            raise ClauseError(
                f"task {self._name!r}: detach in a final task, whose tasks are run at once; generate it elsewhere"
            )

        is_deferred = not (is_final or frame.inherited.is_final) and bool(clauses.get("if_", True))
        more = event is not None or is_final or parts or values is not None
        if not (more or self._is_async):
            recipe = Recipe(site, self._function, args, kwargs or None, self._label, priority)
            return encounter(scope, frame, recipe, depend, deferred=is_deferred)
        full: ClauseRecipe
        if self._is_async:
            from offload.tasks.aio.task import CoroutineRecipe  # imports asyncio

            blocks = not is_deferred and (frame.recorder is None or frame.recorder.executes)
            full = CoroutineRecipe(site, self._function, args, kwargs or None, self._label, priority, blocks=blocks)
        else:
            full = ClauseRecipe(site, self._function, args, kwargs or None, self._label, priority)
        full.event, full.is_final, full.values = event, is_final, values
        if parts:
            full.reductions = Participation(parts, until_complete=event is not None or self._is_async)
        return encounter(scope, frame, full, depend, deferred=is_deferred)


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Tell whether a call makes a coroutine: of an async def, or an object whose ``__call__`` is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004  # the method itself


def _is_generator_function(function: Callable[..., Any]) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _location_of(function: Any) -> str:
    """Return the file and the line of a callable, of a construct's function or a partial too."""
    while isinstance(function, (DirectiveFunction, functools.partial)):
        function = function._function if isinstance(function, DirectiveFunction) else function.func  # noqa: SLF001  # its own kind
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else "a callable without source"


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def decorate(kind: type[DirectiveFunction], function: Callable[..., Any] | None, clauses: Mapping[str, Any]) -> Any:
    """Return a function under a directive, or what makes one if none is given yet."""
    checked = check_clauses(kind._directive, clauses, kind._checks)  # noqa: SLF001  # same module
    if function is None:
        return lambda function: _made(kind, function, dict(checked))
    return _made(kind, function, checked)


def _made(kind: type[DirectiveFunction], function: Callable[..., Any], clauses: dict[str, Any]) -> Any:
    try:
        return kind(function, clauses)
    except LoopError as error:  # its note shows the line of the program; the steps of parsing say nothing about it
        raise error.with_traceback(None) from None


def task(function: Callable[..., Any] | None = None, /, **clauses: Any) -> Any:
    """Make a function a task function: each call generates a task that runs the body on the host.

    The body of an ``async def`` runs on the event loop that runs at the call, else on one that a thread of the runtime
    has. It holds no worker while it awaits. In it, `await` tasks, ``taskwait()`` and ``async with taskgroup()``: what
    blocks a loop's thread cannot wait for bodies of that loop.

    Parameters
    ----------
    depend : list of dependences
        `in_`, `out`, `inout`, `mutexinoutset`, `inoutset` of list items, or a `depobj`; the task runs after the
        earlier siblings that they name.
    detach : Event
        The task is complete when its body has finished and the event is fulfilled.
    if_ : bool
        False: undeferred, the call returns when the body has run; dependences hold all the same.
    in_reduction : dict of str to list of arrays and str
        By operator, list items of ``task_reduction`` of a taskgroup around the call, the innermost that has it. The
        body receives a private array in place of every argument that is the item: it may hold what other tasks have put
        in, so add to it, in place. Where a string names a section of a parameter, that argument is the section's array.
    final : bool
        True: the task, and all that are generated in it, run at once, in order, on the thread that encounters them.
    priority : int
        At least 0; of ready tasks those of higher priority begin first. No more than ``OMP_MAX_TASK_PRIORITY``, which
        is 0 unless it is set.
    name : str
        A label for graphs, traces and errors.

    Returns
    -------
    TaskFunction
        Calling it returns a `Task`; ``.options(…)`` returns a copy with clauses replaced. An argument that is a `Task`
        is a dependence on it, as ``depend=in_(task)`` is, and the body gets its value, ``task.result()``. A body that
        wants the task itself gets it in a container or by closure.

    Raises
    ------
    ClauseError, DependError, EventError
        A clause that the construct does not have, or a wrong value. At a call: no taskgroup reduces an item of
        ``in_reduction`` with that operator, or the item is not among the arguments. From ``result()``, a `DependError`:
        a task among the arguments has failed.
    UnsupportedError
        At a call in a `taskgraph`: a task among the arguments is none of the graph.
    UsageError
        At a call: a task among the arguments is the one that makes the call, or one around it.

    Notes
    -----
    *Blocks* only with ``if_=False``. OpenMP 5.2, 12.5 "task Construct", 5.5.10 "in_reduction Clause". In a graph that
    is run again, a task combines what it has with the item when it is complete.
    """
    return decorate(TaskFunction, function, clauses)
