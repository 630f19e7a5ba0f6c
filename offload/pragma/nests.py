"""Nests under directives at run time: loop functions made once, and encountered with the values of variables.

A nest is one of the constructs for loops, with two differences. Its scalars come out by name, so a variable that no
iteration has assigned keeps its value. And in the body of a target region every nest runs on the region's device, as
an orphaned worksharing loop does.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import cache, partial
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

import offload
from offload.acc.loops import KernelsLoop, ParallelLoop
from offload.arrays.items import SCALARS
from offload.constructs.call import decorate
from offload.constructs.clauses.maps import MapClause
from offload.errors import OffloadError
from offload.loops.common import LoopFunction, launching
from offload.loops.front.source import KnownName, Plain, Unfit, keep_text, meaning_of
from offload.loops.functions import DeviceLoop, TargetLoop
from offload.loops.host_functions import HostLoop
from offload.loops.running.plan import numbers_of, plans_of
from offload.loops.running.preparation import view_at
from offload.loops.tree.uses import numbered
from offload.pragma.calls import DirectiveCall
from offload.pragma.items import UNBOUND
from offload.pragma.loops import PLAIN, Case
from offload.pragma.nest_clauses import CONSTANTS
from offload.pragma.nest_sections import WITHIN, Shift, WholeUseError, within
from offload.pragma.nest_statements import OFFLOAD
from offload.pragma.routines import refuse_thread_numbers
from offload.runtime.current import here
from offload.runtime.recipe import DeviceRecipe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from offload.loops.running.clauses import LoopWords
    from offload.loops.running.specialise import LoopProgram
    from offload.pragma.encounter import Variables
    from offload.pragma.items import MappedPart
    from offload.pragma.loops import DirectiveNest
    from offload.runtime.launch import DeviceTask
    from offload.tasks.region import Region
    from offload.tasks.task import Task
    from offload.texts import FunctionText

# The places of a function's arguments among the values of an encounter.
Places: TypeAlias = slice | tuple[int, ...]


@cache
def _wording(construct: str) -> Callable[[str], str]:
    """Return the function that gives messages of a construct the spelling of directives."""
    return partial(_worded, construct)


def _worded(construct: str, message: str) -> str:
    from offload.pragma.wording import in_directives  # only messages need it

    return in_directives(message, construct)


class NestLoop(LoopFunction):
    """A nest under a directive: the common part of all constructs for loops."""

    __slots__ = ()

    def _words(self, clauses: Mapping[str, Any]) -> LoopWords:
        return super()._words(clauses)._replace(by_name=True, worded=_wording(self._directive))


class _LateRecipe(DeviceRecipe):
    """The recipe of a nest that reads variables when it begins: all that it depends on is complete then."""

    __slots__ = ()

    def make(self, frame: Region, sources: Sequence[Task | None] = ()) -> DeviceTask:
        task = super().make(frame, sources)
        task.waits_in_stream_order = False
        return task


class DeviceNest(NestLoop, DeviceLoop):
    """A nest for a device."""

    __slots__ = ()

    def _short_recipe(self, *args: Any, **kwargs: Any) -> Any:
        return self._late(super()._short_recipe(*args, **kwargs))

    def _named_recipe(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        recipe, depend = super()._named_recipe(*args, **kwargs)
        return self._late(recipe), depend

    def _late(self, recipe: Any) -> Any:
        if recipe.__class__ is DeviceRecipe and getattr(self, "_begin", None) is not None:
            recipe.__class__ = _LateRecipe
        return recipe


class TargetNest(DeviceNest, TargetLoop):
    """A nest under ``target`` with other words."""

    __slots__ = ()


class HostNest(NestLoop, HostLoop):
    """A nest for the host's threads."""

    __slots__ = ()


class ParallelNest(DeviceNest, ParallelLoop):
    """A nest under OpenACC's ``parallel loop`` or ``serial loop``."""

    __slots__ = ()


class KernelsNest(DeviceNest, KernelsLoop):
    """A nest under OpenACC's ``kernels loop``."""

    __slots__ = ()


_DEFERRING: Final = frozenset({"async", "depend", "nowait", "wait"})

_KINDS: Final = {
    "target_loop": TargetNest,
    "parallel_loop": HostNest,
    "acc.parallel_loop": ParallelNest,
    "acc.kernels_loop": KernelsNest,
}


class NestEncounter:
    """A nest of a rewritten function, which generated code encounters.

    Parameters
    ----------
    nest : DirectiveNest
        The nest.
    call : DirectiveCall
        The directive's clauses with values; its ``encounter(construct, values)`` sets them.
    text : FunctionText
        The text of the enclosing function.
    names : dict
        The globals of the enclosing function.
    cells : mapping of str to cell
        The cells of the enclosing function's closure.

    Raises
    ------
    LoopError
        The nest is outside of the subset. The error names the program's line.
    ClauseError
        Clauses contradict each other.
    """

    def __init__(
        self,
        nest: DirectiveNest,
        call: DirectiveCall,
        text: FunctionText,
        names: dict[str, Any],
        cells: Mapping[str, CellType],
    ) -> None:
        self._nest, self._call, self._text = nest, call, text
        self._names, self._cells = names, cells
        # Constructs with the places of their arguments: by case and outside functions, and by the classes of arguments
        # where these decide. A nest without variables of enclosing functions has the same ones however often the
        # function around it is decorated.
        self._made: dict[tuple[Any, ...], tuple[Any, Places]] = {}
        if cells.keys().isdisjoint(nest.names):
            self._made = nest.made.setdefault(id(names), self._made)  # each construct keeps these globals
        refuse_thread_numbers(nest.loop, self._value_of, text)
        self._is_array = frozenset(nest.results) & frozenset(nest.arguments)
        # Where arguments are members of objects: the place of each object, and the words after it.
        paths = [nest.members.get(name, (name,)) for name in nest.arguments] if nest.members else []
        self._paths = [(nest.parameters.index(root), words) for root, *words in paths]
        self._is_fixed = call.is_fixed and not nest.sectioned
        self._is_on_host = nest.kind == "parallel_loop"
        clauses = {clause.name for clause in call.directive.clauses}
        # whether other tasks may change variables between the encounter and the beginning of the loop
        self._begins_late = not clauses.isdisjoint(_DEFERRING)
        # whether a ``parallel`` block around it decides about its threads
        self._is_shared = self._is_on_host and "num_threads" not in {*clauses, *call.fixed()}
        self._first = Case(arrays=self._is_array & nest.indexed)
        if (self._first, ()) not in self._made and not nest.may_have_modules:
            self._construct(self._first, ())

    def __reduce__(self) -> tuple[Any, ...]:
        nest = replace(self._nest, made={})
        function = self._function(nest.form(self._first), {})
        return object.__new__, (NestEncounter,), (nest, self._call.directive, self._text, function)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        nest, directive, text, function = state
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        self.__init__(nest, DirectiveCall(directive), text, function.__globals__, cells)  # type: ignore[misc]  # of an object that has been made only

    def meet(self, values: Sequence[Any], arguments: tuple[Any, ...], variables: Variables | None = None) -> None:
        """Encounter the nest.

        Parameters
        ----------
        values : sequence
            The values of the directive's clauses, as the call takes them.
        arguments : tuple
            The values of `DirectiveNest.parameters`; `UNBOUND` for a name without one.
        variables : pair of callables, optional
            The first is called with the values of `DirectiveNest.results`, before the task of a deferred nest is
            complete. The value is `UNBOUND` of a variable that no iteration assigns, or of an array: it keeps its
            value. The second returns the values of now. The nest begins with those that are numbers.
        """
        try:
            taken: Any = [_member(arguments[at], words) for at, words in self._paths] if self._paths else arguments
            construct, places = self._made.get(tuple(map(type, taken))) or self._found(taken)
            given = taken[places] if isinstance(places, slice) else [taken[place] for place in places]
            if not self._is_fixed:
                construct, given = self._with_clauses(construct, values, taken, given)
            if self._is_on_host or variables is not None:
                scope = here()
                region = scope.region
                if self._is_on_host and region is None and scope.task is not None and scope.task.construct.is_target:
                    program = construct._program  # noqa: SLF001  # a construct of this package
                    self._give(variables, launching().launch_in_body(program, given, {}, scope.task))
                    return
                if self._is_shared and (num_threads := _threads_around(region)) is not None:
                    construct = construct.options(num_threads=num_threads)
                # The call of a nest that nothing defers returns the results. Another one gives them to the variables
                # before its task is complete, as does one that a recorded graph runs again.
                if variables is not None and (self._begins_late or region is None or region.recorder is not None):
                    begin = partial(self._now, variables[1]) if self._begins_late else None
                    construct = construct.giving(partial(self._give, variables), begin)
            found = construct(*given)
            if found.__class__ is dict:
                self._give(variables, found)
        except OffloadError as error:
            self._call.reword(error)
            raise

    def _with_clauses(
        self, construct: Any, values: Sequence[Any], taken: Sequence[Any], given: Sequence[Any]
    ) -> tuple[Any, Sequence[Any]]:
        """Return the construct with the clauses of an encounter, and its arguments."""
        sections = self._sections(values) if self._nest.sectioned else ()
        if sections:
            construct, given = self._shifted(*self._case(taken), sections, taken)
        construct = self._call.encounter(construct, values)
        for section in sections:
            section.name_in(construct)
        return construct, given

    def _give(self, variables: Variables | None, found: Mapping[str, Any] | None) -> None:
        """Give the variables of the enclosing function the values that have come out."""
        if variables is not None and found is not None:
            variables[0](*[found.get(name, UNBOUND) for name in self._nest.returned])

    def _now(self, read: Callable[[], tuple[Any, ...]]) -> dict[str, Any]:
        """Return the numbers with which reductions begin, under the names that the nest has for them."""
        pairs = zip(self._nest.returned, read(), strict=True)
        return {name: value for name, value in pairs if value.__class__ in SCALARS and value is not None}

    def _value_of(self, name: str) -> Any:
        """Return the value of a name of the module or of a closure; None for other names."""
        if name in self._nest.parameters:
            return None
        try:
            return self._cells[name].cell_contents if name in self._cells else self._names.get(name)
        except ValueError:  # it has no value yet
            return None

    # -- sections

    def _sections(self, values: Sequence[Any]) -> list[NestSection]:
        """Return the parts of arrays that clauses name, without whole arrays."""
        found: dict[str, NestSection] = {}
        for part in self._call.parts(values):
            if part.where and part.path in self._nest.sectioned:
                if part.path in found:
                    raise self._nest.where.refusal(
                        f"{part.path} has two sections in data clauses of this nest; name one that holds both"
                    )
                if any(isinstance(one, slice) and one.step != 1 for one in part.where):
                    raise self._nest.where.refusal(
                        f"the section of {part.path} has a stride, so indices of {part.path} have no meaning; name a "
                        "section without a stride"
                    )
                found[part.path] = NestSection(part)
        return list(found.values())

    def _shifted(
        self, case: Case, outside: tuple[Any, ...], sections: Sequence[NestSection], arguments: Sequence[Any]
    ) -> tuple[Any, list[Any]]:
        """Return the construct and its arguments for sections of arrays."""
        values = dict(zip(self._nest.arguments, arguments, strict=False))
        for section in sections:
            values |= section.arguments()
        construct = self._with_shifts(case, outside, sections, is_guarded=False)
        program = construct._program  # noqa: SLF001  # a construct of this package
        given = {name: values[name] for name in program.parameters}
        if not _are_inside(program, given, [section.name for section in sections]):
            construct = self._with_shifts(case, outside, sections, is_guarded=True)
        return construct, list(given.values())

    def _with_shifts(
        self, case: Case, outside: tuple[Any, ...], sections: Sequence[NestSection], *, is_guarded: bool
    ) -> Any:
        """Return the construct for sections of arrays, whose indices are guarded or known to be inside."""
        shifts = tuple([section.shift(is_guarded=is_guarded) for section in sections])
        shifted = replace(case, shifts=shifts)
        try:
            return (self._made.get((shifted, outside)) or self._construct(shifted, outside))[0]
        except WholeUseError as error:
            name = str(error)
        raise self._nest.where.refusal(
            f"{name} is a section in this nest, and the nest uses {name} without indices; bind the section before the "
            f"directive, as in part = {name}[lower:upper], and name that"
        )

    # -- cases

    def _found(self, arguments: Sequence[Any]) -> tuple[Any, Places]:
        """Return the construct for some values, with the places of its arguments."""
        case, outside = self._case(arguments)
        found = self._made.get((case, outside)) or self._construct(case, outside)
        indexed = self._nest.indexed
        pairs = zip(self._nest.arguments, arguments, strict=False)
        if all(
            value.__class__ in SCALARS or value is UNBOUND or (_is_array(value) and name in indexed)
            for name, value in pairs
        ):
            self._made[tuple(map(type, arguments))] = found
        return found

    def _case(self, arguments: Sequence[Any]) -> tuple[Case, tuple[Any, ...]]:
        """Return the case of some values, and those that are functions or modules."""
        arrays, elements, outside, unbound = [], [], [], []
        values: list[Any] = []
        nest = self._nest
        for name, value in zip(nest.arguments, arguments, strict=False):
            kind = value.__class__
            if kind in SCALARS:
                continue
            if value is UNBOUND:
                self._check_unbound(name)
                unbound.append(name)
            elif _is_array(value):
                if name in self._is_array:
                    arrays.append(name)
                if not value.shape and name not in nest.indexed:
                    elements.append(name)
            elif isinstance(meaning_of(value), (Plain, KnownName)):
                outside.append(name)
                values.append(value)
        if not (arrays or elements or outside or unbound):
            return PLAIN, ()
        case = Case(frozenset(arrays), frozenset(elements), frozenset(outside), frozenset(unbound))
        return case, tuple(values)

    def _outside(self, case: Case) -> list[str]:
        """Return the names of functions and modules, in the order of their values."""
        return [name for name in self._nest.arguments if name in case.outside]

    def _check_unbound(self, name: str) -> None:
        """Raise `UnboundLocalError` for a variable that the nest reads in any case."""
        nest = self._nest
        if name in nest.results or name not in nest.assigned:
            raise UnboundLocalError(f"cannot access local variable {name!r} where it is not associated with a value")

    def _construct(self, case: Case, outside: tuple[Any, ...]) -> tuple[Any, Places]:
        """Make the construct for a case, with the places of its arguments."""
        nest = self._nest
        definition = nest.form(case)
        function = self._function(definition, dict(zip(self._outside(case), outside, strict=True)))
        fixed = {word: value for word, value in self._call.fixed().items() if word not in CONSTANTS}
        construct = decorate(_KINDS[nest.kind], function, {**fixed, **nest.words})
        taken = [argument.arg for argument in definition.args.args]
        places = tuple([nest.arguments.index(name) for name in taken if name in nest.arguments])
        are_first = places == tuple(range(len(places)))
        self._made[case, outside] = found = construct, (slice(len(places)) if are_first else places)
        return found

    def _function(self, definition: ast.FunctionDef, outside: Mapping[str, Any]) -> FunctionType:
        """Return the function of a definition; ``outside`` has the functions and modules that variables hold."""
        cells = {**self._cells, OFFLOAD: CellType(offload), WITHIN: CellType(within)}
        cells |= {name: CellType(value) for name, value in outside.items()}
        return _function(definition, self._nest, self._text, self._names, cells)


class NestSection:
    """A part of an array that a data clause of a nest names."""

    def __init__(self, part: MappedPart) -> None:
        whole: Any = part.whole
        self.name = part.path
        self._view = part.view
        self._sizes = whole.shape
        self._bounds = [(one, one + 1) if isinstance(one, int) else (one.start, one.stop) for one in part.where]
        # with all dimensions, also those of which the item has one index
        self._array = whole[tuple([slice(*bounds) for bounds in self._bounds])]

    def shift(self, *, is_guarded: bool) -> Shift:
        """Return how indices of the array become indices of the section."""
        return Shift(self.name, len(self._bounds), is_guarded)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the shifted loop function."""
        numbers = [
            number for bounds, size in zip(self._bounds, self._sizes, strict=False) for number in (bounds[0], size)
        ]
        parameters = self.shift(is_guarded=False).parameters
        return {self.name: self._array, **dict(zip(parameters, numbers, strict=True))}

    def name_in(self, construct: Any) -> None:
        """Have the messages about the map clause say which section it is."""
        for clause in construct._clauses.get("map", ()):  # noqa: SLF001  # as above
            if isinstance(clause, MapClause) and any(item is self._view for item in clause.items):
                bounds = ", ".join([f"{lower}:{upper - lower}" for lower, upper in self._bounds])
                clause.names[id(self._view)] = f"{self.name}[{bounds}]"


def _member(value: Any, words: Sequence[str]) -> Any:
    for word in words:
        value = getattr(value, word)
    return value


def _is_array(value: Any) -> bool:
    kind = type(value)  # modules and classes of NumPy have such attributes too
    return hasattr(kind, "shape") and hasattr(kind, "dtype")


def _are_inside(program: LoopProgram, values: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Tell whether all indices of some arrays are proved to be inside of them, and not negative."""
    if any(not isinstance(values[name], np.ndarray) for name in names):
        return False
    spec = program.specialise(values)
    for plan in plans_of(spec, numbers_of(spec, values, partial(view_at, None))):
        modes = dict(plan.variant.modes)
        if any(one.array in names and modes.get(at) != "off" for at, one in numbered(plan.nest).items()):
            return False
    return True


def _threads_around(region: Region | None) -> int | None:
    """Return how many threads the innermost ``parallel`` block with such a clause gives to loops; None without one."""
    group = None if region is None else region.inherited.group
    while group is not None and group.num_threads is None:
        group = group.outer
    return None if group is None else group.num_threads


def is_fixed(value: object) -> bool:
    """Tell whether loops know a value of the module or of a closure without an argument, such as a number."""
    return not isinstance(meaning_of(value), Unfit)


def _function(
    definition: ast.FunctionDef,
    nest: DirectiveNest,
    text: FunctionText,
    names: dict[str, Any],
    cells: Mapping[str, CellType],
) -> FunctionType:
    """Return the function of a definition, with its free names as the enclosing function has them."""
    taken = {argument.arg for argument in definition.args.args}
    free = [name for name in (*nest.names, WITHIN) if name in cells and name not in taken]
    arguments = ast.arguments([], [ast.arg(name) for name in free], None, [], [], None, [])
    around = ast.copy_location(ast.FunctionDef("around", arguments, [definition], []), definition)
    if "type_params" in ast.FunctionDef._fields:  # from Python 3.12 on
        around.type_params = []  # type: ignore[attr-defined,unused-ignore]
    module = ast.fix_missing_locations(ast.Module([around], []))
    code = _inner(_inner(compile(module, text.file, "exec", dont_inherit=True), "around"), definition.name)
    function = FunctionType(code, names, definition.name, None, tuple([cells[name] for name in code.co_freevars]))
    function.__name__ = function.__qualname__ = nest.name
    keep_text(function, definition, text.text, text.file)
    return function


def _inner(code: CodeType, name: str) -> CodeType:
    return next(one for one in code.co_consts if isinstance(one, CodeType) and one.co_name == name)
