"""The call of a function under a directive: the one way from there to a task, and the values of clauses.

Theory of operation
-------------------
A function under a directive has three parts. Members of the function are in ``__dict__``, which all copies share. The
values of the clauses are prepared once, as `Clauses`, and never change: copies that differ in ``depend`` only share it.
The dependences, which loops replace at each call, are a part of their own. So `options(depend=…)` sets one slot.

A call takes the same steps for every construct (`DirectiveFunction.__call__`): find the region and its mode, classify
each argument once, bind the arguments, make a recipe, generate the task (`offload.runtime.generate`). Each construct
has its own `_encounter`, which handles the arguments.
"""

from __future__ import annotations

import functools
import inspect
from threading import get_ident
from typing import TYPE_CHECKING, Any

from offload.constructs.clauses.dependences import Dependence
from offload.constructs.clauses.maps import check_clauses, symbolic
from offload.constructs.clauses.names import VisibleNames
from offload.constructs.clauses.parameters import are_parameters
from offload.constructs.clauses.sharing import has_rules
from offload.constructs.pickling import reduced, restore
from offload.errors import ClauseError, LoopError, UnsupportedError
from offload.interrupts.finalizers import collector
from offload.interrupts.shields import is_at_work
from offload.runtime.current import elsewhere, put_off_here, scope_in_context
from offload.tasks.site import Site
from offload.tasks.stack import owned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self, SupportsIndex

    from offload.constructs.clauses.dependences import DepObj
    from offload.runtime.current import Scope
    from offload.runtime.runtime import Runtime
    from offload.tasks.region import Region

NOT_GIVEN: Any = object()

_new = object.__new__


class Clauses:
    """The values of a construct's clauses, except ``depend``: prepared once, shared by copies with equal clauses."""

    given: dict[str, Any]
    """All of them, checked, as the construct has them; never changed."""
    words: dict[str, Any]
    """Those that the construct which this one is made of has (`target` for a compute region), under its names."""
    label: str | None
    """What ``name`` says."""
    names: VisibleNames | None
    """What gives strings in clauses a meaning; None where there are none, and arguments need no rules."""
    priority: int
    waits: bool
    """Whether the caller waits for the task, or more has to be asked than a call in a finalizer allows. A call of which
    this is False may be generated in the middle of the library's own steps."""

    def get(self, word: str, default: Any = None) -> Any:
        """Return the value of a clause, by the names of ``words``."""
        return self.words.get(word, default)


class LateDepend(tuple[Any, ...]):  # noqa: SLOT001  # a tuple has no room for slots
    """Dependences some of which wait for the call; a plain tuple is of dependences that do not."""

    names: VisibleNames | None
    """What gives strings a meaning; None where there are none."""
    are_parameters: bool
    """Whether all that wait for the call are whole parameters, each found by position."""

    def at(self, names: Mapping[str, Any]) -> tuple[Dependence, ...]:
        """Return the dependences of a call that gives these names a meaning."""
        return tuple([dependence.resolved(names) if dependence.is_late else dependence for dependence in self])


class DirectiveFunction:
    """A function under a directive, with its clauses. Calling it encounters the construct."""

    __slots__ = ("__dict__", "_clauses", "_depend")

    _directive = ""
    _is_target = False
    """Whether the body of a task only enqueues device work."""
    _checks: Mapping[str, Callable[[Any], Any]] = {}
    _clauses_of: type[Clauses] = Clauses
    _clauses: Any
    """The `Clauses`, of the kind that the construct has."""
    _depend: tuple[Dependence | DepObj, ...]
    """A `LateDepend` where some wait for the call, else a plain tuple."""

    def __init__(self, function: Callable[..., Any], clauses: dict[str, Any]) -> None:
        if not callable(function):
            raise ClauseError(f"{self._directive} decorates a function, not {type(function).__name__} {function!r:.60}")
        self._check_function(function)
        has_own = isinstance(function, type)  # attributes are its objects', and no attributes of this
        functools.update_wrapper(self, function, updated=() if has_own else functools.WRAPPER_UPDATES)
        self._function = function
        self._name = name_of(function)
        self._location: str = _location_of(function)
        self._site: Site | None = None
        self._visible: VisibleNames | None = None
        self._apply(clauses)

    def _check_function(self, function: Callable[..., Any]) -> None:
        """Refuse a function whose call runs nothing."""
        if is_coroutine_function(function) or is_generator_function(function):
            raise UnsupportedError(
                f"{self._directive}: {name_of(function)!r} is an async def or a generator, so a call would not run its "
                "body; write a plain def"
            )

    # -- clauses -------------------------------------------------------------------------------------
    def _apply(self, clauses: dict[str, Any]) -> None:
        """Take over all clauses, which have been checked."""
        given = {**clauses}
        depend = given.pop("depend", ())
        self._clauses = self._prepared(given)
        self._depend = self._depend_of(depend)

    def _prepared(self, given: dict[str, Any]) -> Clauses:
        """Return the clauses but ``depend``, prepared."""
        clauses = self._clauses_of()
        clauses.given = given
        self._prepare(clauses, given)
        return clauses

    def _prepare(self, clauses: Clauses, words: dict[str, Any]) -> None:
        """Set the values of the clauses; a construct that is made of another one calls this with the other's words."""
        clauses.words = words
        clauses.label = words.get("name")
        clauses.priority = words.get("priority", 0)
        clauses.names = None
        clauses.waits = True
        if has_rules(words) or ("map" in words and symbolic(words["map"])):
            clauses.names = self._visible_names()

    def _depend_of(self, depend: tuple[Dependence | DepObj, ...]) -> tuple[Dependence | DepObj, ...]:
        """Return the value of ``_depend`` for these dependences."""
        if not any(dependence.is_late for dependence in depend):
            return depend
        late = LateDepend(depend)
        late.names = self._visible_names() if any(dependence.is_symbolic for dependence in depend) else None
        late.are_parameters = late.names is not None and are_parameters(depend, late.names)
        return late

    def _visible_names(self) -> VisibleNames:
        if self._visible is None:  # what `options` makes shares it
            self._visible = VisibleNames(self._function)
        return self._visible

    def options(self, *, depend: Any = NOT_GIVEN, **clauses: Any) -> Self:
        """Return a copy with these clauses replaced.

        Parameters
        ----------
        depend : list of dependences
            Dependences that replace those of the decorator.
        **clauses
            Other clauses of the construct.

        Raises
        ------
        ClauseError
            The construct has no such clause, or a value is wrong.

        Examples
        --------
        >>> @omp.target
        ... def double(x):
        ...     x *= 2
        >>> x = np.ones(3)
        >>> task = double.options(nowait=True)(x)  # this call is deferred
        >>> omp.taskwait()
        >>> x
        array([2., 2., 2.])
        """
        copy: Self = _new(self.__class__)
        copy.__dict__ = self.__dict__
        copy._clauses = self._clauses
        copy._depend = self._depend
        if clauses:
            copy._clauses = self._replaced(check_clauses(self._directive, clauses, self._checks))
        if depend is NOT_GIVEN:
            return copy
        if depend.__class__ is list and "depend" in self._checks:
            for dependence in depend:
                if dependence.__class__ is not Dependence or dependence.is_late:
                    break
            else:  # mostly: none waits for the call
                copy._depend = tuple(depend)
                return copy
        copy._depend = self._depend_of(check_clauses(self._directive, {"depend": depend}, self._checks)["depend"])
        return copy

    def _replaced(self, checked: dict[str, Any]) -> Clauses:
        """Return the clauses with some replaced."""
        return self._prepared({**self._clauses.given, **checked})

    def _given(self) -> dict[str, Any]:
        """Return all clauses, as `_apply` takes them."""
        return {**self._clauses.given, "depend": tuple(self._depend)} if self._depend else {**self._clauses.given}

    # -- pickling ------------------------------------------------------------------------------------
    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """Pickle the function by its name, or with its clauses, and nothing that it has in this process."""
        return reduced(self, self._given())

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        """Restore a pickled function."""
        restore(self, state)

    def _texts(self) -> tuple[dict[str, Any], tuple[Any, ...]]:
        """Return the globals and texts that the function needs in a process without its file, as a loop does."""
        return {}, ()

    def _receive(self, texts: tuple[Any, ...]) -> None:
        """Keep the texts that came with the function."""

    # -- calls ---------------------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Encounter the construct."""
        scope = scope_in_context()
        if scope is None or scope.thread != get_ident():
            scope = elsewhere(scope)
        region = scope.region
        # Nothing but clauses and arguments matters where the region has mode 0, no finalizer can be at work, and no
        # generator is in a block, whose region the stack would have to tell.
        if region is None or region.mode or collector.start or owned or (self._clauses.waits and is_at_work()):
            if put_off_here(scope, self, args, kwargs):
                return None
            region = scope.frame(self._directive)
        return self._encounter(scope, region, args, kwargs)

    def _encounter(self, scope: Scope, region: Region, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Bind the arguments, and generate the task; return the result of the call."""
        raise NotImplementedError

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind like a function: under a method, ``self`` is the first argument."""
        return self if instance is None else BoundDirective(self, instance)

    def __repr__(self) -> str:
        return f"<{self._directive} function {self._name}>"

    def _site_in(self, runtime: Runtime) -> Site:
        site = self._site
        if site is None or site.runtime is not runtime:
            site = self._site = Site(self._directive, self._name, self._location, runtime, is_target=self._is_target)
        return site


class BoundDirective(functools.partial[Any]):
    """A method under a directive, with its object."""

    __slots__ = ()

    def options(self, **clauses: Any) -> BoundDirective:
        """Return a copy with these clauses replaced. Raises as for every construct."""
        return BoundDirective(self.func.options(**clauses), *self.args)  # type: ignore[attr-defined]  # a directive's


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Tell whether a call makes a coroutine: of an async def, or an object whose ``__call__`` is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004  # the method itself


def is_generator_function(function: Callable[..., Any]) -> bool:
    """Tell whether a call makes a generator."""
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _location_of(function: Any) -> str:
    """Return the file and the line of a callable, of a construct's function or a partial too."""
    while isinstance(function, (DirectiveFunction, functools.partial)):
        function = function._function if isinstance(function, DirectiveFunction) else function.func  # noqa: SLF001  # its own kind
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else "a callable without source"


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function for messages."""
    return getattr(function, "__name__", type(function).__name__)


def decorate(kind: type[DirectiveFunction], function: Callable[..., Any] | None, clauses: Mapping[str, Any]) -> Any:
    """Return a function under a directive, or a decorator if no function is given yet."""
    checked = check_clauses(kind._directive, clauses, kind._checks)  # noqa: SLF001  # same module
    if function is None:
        return lambda function: _made(kind, function, checked)
    return _made(kind, function, checked)


def _made(kind: type[DirectiveFunction], function: Callable[..., Any], clauses: dict[str, Any]) -> Any:
    try:
        return kind(function, clauses)
    except LoopError as error:  # its note shows the line of the program; the steps of parsing say nothing about it
        raise error.with_traceback(None) from None
