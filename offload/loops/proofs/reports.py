"""Errors of a loop: the failures of a kernel as Python's exceptions, dependences, and their remedies.

A kernel reports once, by the record whose slots are named here: the first iteration that comes wins. The numbers of the
iteration's trips are turned back into the variables of its loops.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Protocol

from offload.errors import ClauseError, LoopError
from offload.loops.tree import ir
from offload.loops.tree.nodes import checked_in, locals_in, walk
from offload.loops.tree.promotion import nbytes_of
from offload.loops.tree.sizes import FAR
from offload.loops.tree.text import element_text, text_of
from offload.loops.tree.uses import numbered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offload.loops.proofs.dependences import Findings, Observed
    from offload.loops.proofs.independence import DependenceKind, Verdict
    from offload.loops.proofs.lost_updates import LostUpdate
    from offload.loops.proofs.numbers import LaunchNumbers, Trips


# Slots of a record before those of the trips: state, what, access or line, index, dimension.
HEAD: Final = 5

# What can be wrong.
INDEX, DIVISION, ASSERTION, STEP, BOUND = 1, 2, 3, 4, 5


def failure_of(
    nest: ir.Nest,
    record: Sequence[int],
    axes: Sequence[Trips],
    shapes: Mapping[str, tuple[int, ...]],
) -> Exception | None:
    """Return the error that a kernel's record describes, or None; ``axes`` are outermost first."""
    state, what, where, index, dimension = map(int, record[:HEAD])
    if not state:
        return None
    trips = [int(trip) for trip in record[HEAD : HEAD + len(axes)]]
    variables = iteration(nest, axes, trips)
    if what == INDEX:
        access = numbered(nest)[where]
        extent = {**shapes, **locals_in(nest), **checked_in(nest)}[access.array][dimension]
        return index_error(access, index, dimension, extent, variables)
    if what == DIVISION:
        return ZeroDivisionError(f"integer division or modulo by zero at iteration {variables}, line {where}")
    if what == STEP:
        return ValueError(f"range() arg 3 must not be zero, at iteration {variables}, line {where}")
    if what == BOUND:
        return OverflowError(
            f"range() has a bound or step of 2**63 or more at iteration {variables}, line {where}, and ints in loops"
            " have 64 bits; use one below 2**63"
        )
    text = next(
        (node.text for node in walk(*nest.body) if isinstance(node, ir.Assert) and node.place.line == where), ""
    )
    return AssertionError(f"{text or 'an assertion failed'} at iteration {variables}, line {where}")


def iteration(nest: ir.Nest, axes: Sequence[Trips], trips: Sequence[int]) -> str:
    """Return the variables of an iteration, as messages have them: ``i=3, j=0``."""
    return ", ".join(
        f"{axis.variable}={of.start + trip * of.step}" for axis, of, trip in zip(nest.axes, axes, trips, strict=True)
    )


def trips_at(number: int, extents: Sequence[int]) -> tuple[int, ...]:
    """Return the trips of the axes in an iteration, by its number in a serial loop over axes of these extents."""
    trips: list[int] = []
    for extent in reversed(extents):
        number, trip = divmod(number, extent)
        trips.insert(0, trip)
    return tuple(trips)


def index_error(access: Located, index: int, dimension: int, extent: int, where: str) -> IndexError:
    """Return the error of an access outside of its array, which has this extent there.

    Its attribute ``array`` is the name of the array, by which a construct says which section that is.
    """
    index += FAR if -FAR - FAR // 4 < index < -FAR else 0  # in front of a section, thus negative there
    error = IndexError(
        f"index {index} is out of bounds for axis {dimension} of {access.array!r} with size {extent}, at iteration "
        f"{where}, {access.place.file}:{access.place.line}"
    )
    vars(error)["array"] = access.array
    return error


class Located(Protocol):
    """An access, as messages know it."""

    @property
    def array(self) -> str: ...
    @property
    def place(self) -> ir.SourceLine: ...


# -- iterations that depend on each other -------------------------------------------------------------


_ORDER: tuple[DependenceKind, ...] = "flow", "anti", "output"
_UPDATES = frozenset({"+", "-", "*", "&", "|", "^"})


def proved_text(verdict: Verdict) -> str:
    """Return the result of the test for independence, for a message."""
    if verdict.carried:
        return verdict.carried
    if not verdict.dependences:
        return "it is not proved that iterations are independent"
    found = verdict.dependences[0]
    arrays = " and ".join(repr(name) for name in dict.fromkeys((found.source.array, found.sink.array)))
    distance = found.distance[0] if len(found.distance) == 1 else found.distance
    return (
        f"iterations depend on each other by {arrays}: {found.kind} dependence of distance {distance}, from line "
        f"{found.source.place.line} to line {found.sink.place.line}"
    )


def carried_text(nest: ir.Nest, why: str) -> str:
    """Return why a nest that carries scalars runs in order, for a message; ``why`` is a reason besides, if any."""
    pass_, values = ("passes", "a value") if len(nest.carried) == 1 else ("pass", "values")
    text = f"{' and '.join(nest.carried)} {pass_} {values} from one iteration to the next"
    return f"{text}; {why}" if why else text


def proved_error(name: str, nest: ir.Nest, verdict: Verdict) -> LoopError:
    """Return the error of a nest of the function `name` of which a dependence is proved."""
    sink = verdict.dependences[0].sink
    remedy = _for_updates(nest, sink.array) or "private= for an array that each iteration fills for itself"
    return _error(name, sink.place, proved_text(verdict), f"use seq=True, or {remedy}")


def lost_text(updates: Sequence[LostUpdate]) -> str:
    """Return the fault of updates that may be lost, and the remedy."""
    lines: dict[str, int] = {}
    stores = [update.store for update in updates]
    for one in stores:
        lines.setdefault(element_text(one.array, one.indices), one.place.line)
    elements = " and ".join(f"{element} (line {line})" for element, line in lines.items())
    arrays = ", ".join(f'"{name}"' for name in dict.fromkeys(one.array for one in stores))
    return (
        f"several iterations may update {elements} at the same time, and updates are then lost; add atomic=[{arrays}], "
        "reduction= if it is one element, check=True to look for such iterations, or independent=True if there are none"
    )


def seen_error(name: str, nest: ir.Nest, axes: Sequence[Trips], findings: Findings) -> LoopError:
    """Return the error of a nest of the function `name` in a run of which dependences were seen."""
    found = min(findings.found.values(), key=lambda seen: _ORDER.index(seen.kind))
    first, last = found.example.trips
    source, sink = (numbered(nest)[at].place for at in found.example.accesses)
    element = ", ".join(map(str, found.example.element)) or "()"
    text = (
        f"iterations depend on each other by {found.array!r}: {found.kind} dependence of distance "
        f"{_distances(found)}, from line {source.line} at {iteration(nest, axes, first)} to line {sink.line} at "
        f"{iteration(nest, axes, last)}, by {found.array}[{element}]"
    )
    kinds = {kind for array, kind in findings.found if array == found.array}
    is_own = "flow" not in kinds and found.array not in findings.exposed
    return _error(name, sink, text, _remedy(nest, found.array, is_own=is_own))


def _distances(found: Observed) -> str:
    if found.min_distance == found.max_distance:
        return str(found.min_distance)
    return f"{found.min_distance} to {found.max_distance}"


def _remedy(nest: ir.Nest, array: str, *, is_own: bool) -> str:
    """Return the remedy for the dependences by an array, which may be one that each iteration fills for itself."""
    if is_own:
        return f'use private=["{array}"], or lastprivate= where its contents are used afterwards'
    return _for_updates(nest, array) or "the loop is not parallel: use seq=True"


def _for_updates(nest: ir.Nest, array: str) -> str:
    """Return the remedy for an array that is only updated; empty for others."""
    return f'use atomic=["{array}"], or reduction= if it is one element' if is_updated(nest, array) else ""


def is_updated(nest: ir.Nest, array: str) -> bool:
    """Tell whether a nest only updates an array, by one operator: ``a[e] = a[e] + v``."""
    stores = [node for node in walk(*nest.body) if isinstance(node, ir.Store) and node.array == array]
    loads = {node.at for node in walk(*nest.body) if isinstance(node, ir.Load) and node.array == array}
    updates = [_updated(store) for store in stores]
    operators = {update[1] for update in updates if update is not None}
    return len(operators) == 1 and {None if update is None else update[0] for update in updates} == loads


def _updated(store: ir.Store) -> tuple[int, str] | None:
    """Return the load, by its number, of the element that a store updates, and the operator; None if it is no update.

    The operator of a difference is that of a sum.
    """
    value: ir.Expression = store.value
    while isinstance(value, ir.Convert):
        value = value.operand
    if not isinstance(value, ir.Binary) or value.operator not in _UPDATES:
        return None
    sides = (value.left,) if value.operator == "-" else (value.left, value.right)
    for side in sides:
        operand: ir.Expression = side
        while isinstance(operand, ir.Convert):
            operand = operand.operand
        if isinstance(operand, ir.Load) and operand.array == store.array:
            same = [text_of(index) for index in operand.indices] == [text_of(index) for index in store.indices]
            return (operand.at, "+" if value.operator == "-" else value.operator) if same else None
    return None


def _error(name: str, place: ir.SourceLine, text: str, remedy: str) -> LoopError:
    message = f"{place.file}:{place.line}, {name}: {text}; iterations may not run in parallel: {remedy}"
    return LoopError(message, place.file, place.line, "dependence")


# -- what a nest cannot have --------------------------------------------------------------------------


def require(function: str, nest: ir.Nest, launch: LaunchNumbers) -> None:
    """Refuse arrays that a nest of a function cannot have.

    Raises `LoopError` of rule ``private`` or ``reduction``, and `ClauseError` if elements with atomic updates are
    unaligned.
    """
    _check_private(function, nest, launch)
    _check_reduced(function, nest, launch)
    _check_atomic(nest, launch)


def _check_private(function: str, nest: ir.Nest, launch: LaunchNumbers) -> None:
    """Raise `LoopError` where an iteration has more than fits."""
    nbytes = {
        node.name: math.prod(node.shape) * nbytes_of(node.dtype)
        for node in walk(*nest.body)
        if isinstance(node, ir.Local)
    }
    for name in nest.privates:
        view = launch.views.get(name)
        if view is not None:
            nbytes[name] = math.prod(view.extents) * view.itemsize
    if sum(nbytes.values()) > ir.MOST_PRIVATE_NBYTES:
        place = nest.place
        raise LoopError(
            f"{place.file}:{place.line}, {function}: an iteration has {sum(nbytes.values()):,} bytes of local arrays, "
            f"in {', '.join(sorted(nbytes))}, but only {ir.MOST_PRIVATE_NBYTES:,} are allowed: index a larger array "
            "by iteration",
            place.file,
            place.line,
            "private",
        )


def _check_reduced(function: str, nest: ir.Nest, launch: LaunchNumbers) -> None:
    """Raise `LoopError` where the array of a reduction has not one element."""
    for item in nest.reductions:
        view = launch.views.get(item.name)
        if view is not None and math.prod(view.extents) != 1:
            place = nest.place
            raise LoopError(
                f"{place.file}:{place.line}, {function}: reduction={{{item.operator!r}: [{item.name!r}]}}: "
                f"{item.name} has shape {view.extents}, but an array in reduction= has one element only; use "
                f"atomic=[{item.name!r}] for several elements, or pass the part that has one",
                place.file,
                place.line,
                "reduction",
            )


def _check_atomic(nest: ir.Nest, launch: LaunchNumbers) -> None:
    """Raise `ClauseError` where steps that are to be atomic are of elements that lie anywhere."""
    for node in walk(*nest.body):
        view = launch.views.get(node.array) if isinstance(node, ir.Atomic) else None
        if view is not None and not view.is_aligned:
            assert isinstance(node, ir.Atomic)
            raise ClauseError(
                f"{node.place.file}:{node.place.line}: the elements of {node.array!r}, of {view.itemsize} bytes, are "
                "not aligned to their size, and no processor can update such elements atomically; pass a copy"
            )
