"""The objects and functions that rewritten functions call when they meet a directive.

A rewritten function has one object for each directive, in a cell of its closure. It holds the construct, which is made
once, and the `DirectiveCall` that gives it the clauses of an encounter. A `TakenBlock` has two ways: `at` for a block
whose arguments need no look, and `meet` for the others.
"""

from __future__ import annotations

import copy
import functools
import inspect
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

import offload
from offload.arrays.foreign import is_tensor
from offload.arrays.items import SCALARS, is_device_array
from offload.constructs.call import decorate
from offload.errors import ClauseError, EventError, LoopError, OffloadError
from offload.pragma import taskloops
from offload.pragma.calls import DirectiveCall, runs_of
from offload.pragma.items import UNBOUND, is_mappable
from offload.pragma.states import BlockState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from offload.errors import PragmaError
    from offload.pragma.items import MappedPart
    from offload.pragma.syntax import Directive

    Variables: TypeAlias = tuple[Callable[..., None], Callable[[], tuple[Any, ...]]]


class ModuleScope:
    """Stands for the variables of a module in locations of ``depend``: one object for each module."""

    def __init__(self, name: str) -> None:
        self.name = name

    @staticmethod
    @functools.cache
    def of(name: str) -> ModuleScope:
        """Return the object of a module."""
        return ModuleScope(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return ModuleScope.of, (self.name,)


def over_a_function(language: str, text: str) -> Any:
    """Return a decorator: the directive of a comment above a nested function."""
    from offload import pragma

    return getattr(pragma, language)(text)


class StayingBlock:
    """A directive whose block stays, or that stands alone."""

    def __init__(self, call: DirectiveCall) -> None:
        self._call = call
        self.manage = self._call.manage
        self.run = self._call.run

    def __reduce__(self) -> tuple[Any, ...]:
        return staying_block, (self._call.directive,)

    async def run_async(self, values: Sequence[Any]) -> Any:
        """Carry out a directive in a coroutine, which lets the event loop run where it waits."""
        name = self._call.key
        if name in ("taskwait", "barrier"):
            keywords = self._call.keywords(values)
            # A call in a coroutine gives something to await, unless it generates a task.
            found = getattr(offload, name)(**keywords)
            return found if keywords.get("nowait") or not inspect.isawaitable(found) else await found
        return self._call.run(values)

    def manage_async(self, values: Sequence[Any]) -> AwaitedBlock:
        """Return the manager of a block in a coroutine."""
        return AwaitedBlock(self._call.manage(values))


def staying_block(directive: Directive) -> StayingBlock:
    """Return a directive that stays in another process."""
    return StayingBlock(DirectiveCall(directive))


class AwaitedBlock:
    """A context manager for ``async with``, also if the construct has none."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager

    async def __aenter__(self) -> Any:
        enter = getattr(self._manager, "__aenter__", None)
        return self._manager.__enter__() if enter is None else await enter()

    async def __aexit__(self, *failure: object) -> Any:
        leave = getattr(self._manager, "__aexit__", None)
        return self._manager.__exit__(*failure) if leave is None else await leave(*failure)


_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class BlockNames:
    """The names of a block that need a look at each encounter; positions are those of the function's parameters."""

    parameters: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    in_place: Mapping[str, tuple[str, PragmaError]] = _NOTHING
    """Names that ``+=`` alone changes, with the method that an object which changes in place has, and the error."""
    late: Mapping[str, PragmaError] = _NOTHING
    """Names to which a deferred construct may give values later, with the error unless they hold arrays."""
    copied: tuple[str, ...] = ()  # firstprivate of a task: arrays are copied
    private: tuple[str, ...] = ()  # of a target: unbound unless they are arrays
    bare: Mapping[str, PragmaError] = _NOTHING
    """Arrays of sections that are used without a subscript, with the error if the section is not the whole array."""
    rebound: tuple[str, ...] = ()  # results that a data clause may map
    reads: frozenset[str] = frozenset()  # results whose values the block may read
    strides: Mapping[str, PragmaError] = _NOTHING
    """The errors of sections with a stride, by parameter."""
    elements: tuple[str, ...] = ()
    """The items with subscripts or members, in the order of `groups`; those without iterators are parameters."""

    def __init__(self, **names: Any) -> None:
        vars(self).update(names)


_SAID_AT_CALLS: Final = frozenset({"detach", "in_reduction"})
"""Clauses of which only the call of the construct says that a value is wrong."""


class TakenBlock:
    """A block that has become a function, under its construct."""

    def __init__(self, call: DirectiveCall, function: Callable[..., Any], names: BlockNames) -> None:
        self.call = call
        self.function = function
        self.names = names
        encounter = call.encounter
        if not _SAID_AT_CALLS.isdisjoint([clause.name for clause in call.directive.clauses]):
            encounter = self._speaking
        try:
            self.construct = self._construct()
        except LoopError:
            raise
        except OffloadError:  # a value is wrong, which each encounter says
            self.construct = None
            encounter = self._refusing
        self.at: Callable[[Sequence[Any]], Any] = functools.partial(encounter, self.construct)
        """Returns the construct with the clauses of an encounter, to be called with the captured values."""
        self._slots = {name: at for at, name in enumerate(names.parameters)}

    def __reduce__(self) -> tuple[Any, ...]:
        return object.__new__, (TakenBlock,), (self.call.directive, self.function, self.names)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        directive, function, names = state
        self.__init__(DirectiveCall(directive), function, names)  # type: ignore[misc]  # of an object that has been made only

    def _construct(self) -> Any:
        """Return the construct with the clauses that the string alone decides."""
        kinds = runs_of(self.call.key).RESULTS
        if self.names.results and self.call.key in kinds:
            return decorate(kinds[self.call.key], self.function, self.call.fixed())
        return self.call.decorate(self.function)

    def _speaking(self, construct: Any, values: Sequence[Any]) -> Callable[..., Any]:
        """Return a call of the construct whose errors name clauses as directives spell them."""
        made = self.call.encounter(construct, values)

        def called(*arguments: Any) -> Any:
            try:
                return made(*arguments)
            except (ClauseError, EventError) as error:
                self.call.reword(error)
                raise

        return called

    def _refusing(self, construct: Any, values: Sequence[Any]) -> Any:
        """Raise the error of a clause whose value is wrong at each encounter."""
        return self._construct()

    def prepared(self, arguments: tuple[Any, ...]) -> list[Any]:
        """Return the arguments after a look at those that need one."""
        names, slots = self.names, self._slots
        found = list(arguments)
        for name, (method, error) in names.in_place.items():
            value = found[slots[name]]
            if value is not UNBOUND and not hasattr(type(value), method):
                raise copy.copy(error)
        for name, error in names.late.items():
            if not is_mappable(found[slots[name]]):
                raise copy.copy(error)
        for name in names.copied:
            found[slots[name]] = copied(found[slots[name]])
        for name in names.private:
            if not is_mappable(found[slots[name]]):
                found[slots[name]] = UNBOUND
        return found

    def meet(self, values: Sequence[Any], arguments: tuple[Any, ...], variables: Variables | None = None) -> Any:
        """Encounter the construct; ``variables`` store results in the enclosing function's variables and read those."""
        found = self.prepared(arguments)
        names = self.names
        if names.results or names.elements:
            left_out = self.call.left_out(values)
            mapped = {name for name in names.rebound if name not in left_out and is_mappable(found[self._slots[name]])}
            state = BlockState(names.results, variables, mapped, names.reads - mapped)
            more = self._take_parts(values, found, state) if names.elements else ()
            found += state, *more
        return self.at(values)(*found)

    def _take_parts(self, values: Sequence[Any], found: list[Any], state: BlockState) -> list[Any]:
        """Pass list items with subscripts or members in place of the objects that they are parts of.

        Return the items of clauses with iterators, of which there may be any number.
        """
        names, slots = self.names, self._slots
        taken: list[int] = []
        several: list[tuple[str, MappedPart]] = []
        for group, element in zip(self.call.groups(values), names.elements, strict=True):
            for part in group:
                self._check_part(part, element)
                if element in slots:
                    state.note(element, part)
                    found[slots[element]] = part.view
                else:
                    several.append((element, part))
                holder, _, inner = part.path.partition("[")
                if holder in slots:
                    taken.append(slots[holder])
                    if not inner and holder in names.results:
                        state.mapped.add(holder)
        for at in taken:
            found[at] = None  # the block gets the section, or what stands for the list
        for element, part in several:
            state.note(element, part)
        return [part.view for _, part in several]

    def _check_part(self, part: MappedPart, element: str) -> None:
        """Raise the error of a section with a stride, or of an array that is used without a subscript."""
        names = self.names
        if any(isinstance(entry, slice) and entry.step not in (None, 1) for entry in part.where):
            raise copy.copy(names.strides[element])
        if part.where and part.path in names.bare:
            raise copy.copy(names.bare[part.path])


def copied(value: Any) -> Any:
    """Return a copy of an array; any other value itself."""
    if value.__class__ is np.ndarray:
        return value.copy()
    if value.__class__ in SCALARS or value is UNBOUND:
        return value
    if isinstance(value, np.ndarray) or is_device_array(value):
        return value.copy()
    return value.clone() if is_tensor(value) else value


class LoopBlock(TakenBlock):
    """The body of a ``taskloop``: a function of a part of the loop's iterable."""

    def __reduce__(self) -> tuple[Any, ...]:
        return object.__new__, (LoopBlock,), (self.call.directive, self.function, self.names)

    def meet(  # type: ignore[override]  # with an iterable
        self,
        values: Sequence[Any],
        iterable: Any,
        arguments: tuple[Any, ...],
        variables: Variables | None = None,
    ) -> Any:
        """Encounter the construct, and give numbers that are reduced to the enclosing function's variables."""
        found = self.prepared(arguments)
        names = self.names
        construct = self.at(values)
        if not names.results:
            return construct(iterable, *found)
        reduced: dict[str, str] = {}
        for operator, name in self.call.reductions:
            at = self._slots[name]
            if found[at] is UNBOUND:
                raise UnboundLocalError(f"taskloop: {name!r} has no value, and reduction needs one to begin with")
            if taskloops.is_number(name, found[at]):
                reduced[name] = operator
                found[at] = taskloops.identity(operator, found[at])
        combination = taskloops.Combination(reduced, names.results)
        result = construct(taskloops.numbered(iterable), *found, combination)
        if reduced and variables is not None:
            store, read = variables
            store(*combination.combined(read()))
        return result
