"""Which device needs which statements: the terms of ownership, carried backwards from each write to its sources.

A write has a `DemandTerm`: its element, in the dimension by which the array is split. The owner of that element carries
the write out. A point's *demand* is the set of terms of which one has to hold: its own, and those of the points that it
feeds; None means every device. A term is carried to an earlier point only if its index is available there (`slices`),
in the same trips; otherwise every device needs the point, or, in arrays divided like the iterations, the iteration's
device.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from offload.loops.proofs.feeding import BLOCK, EVERYWHERE
from offload.loops.proofs.meetings import element_of, number_of
from offload.loops.tree import ir
from offload.loops.tree.nodes import can_divide_by_zero, walk

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from offload.loops.proofs.affine import AffineForm
    from offload.loops.proofs.feeding import Feeding, FlowPoint
    from offload.loops.proofs.integers import IntegerValue
    from offload.loops.proofs.reach import ElementAccess, NestAccesses
    from offload.loops.proofs.storages import LoopStorage
    from offload.loops.tree.slices import Slice


@dataclass(frozen=True, slots=True)
class DemandTerm:
    """The element that a write updates is a device's own."""

    storage: str  # "" for a block of iterations
    index: AffineForm  # in the dimension by which the storage is split, counted from its first element
    shifts: tuple[int, ...]  # what may be added to the index
    at: int  # the write, where it can be tested at that write alone; else -1
    # The view through which the first such write goes, and the dimension.
    array: str = field(compare=False)
    dimension: int = field(compare=False)  # of the array
    value: IntegerValue = field(compare=False)  # the index, as it stands in the text
    text: ir.Expression = field(compare=False)  # the index in the text
    slice: Slice | None = field(compare=False)  # how the index can be had elsewhere
    is_aligned: bool = field(compare=False)  # whether it holds in the device's block of iterations, and there alone

    @property
    def loops(self) -> frozenset[int]:
        return frozenset() if self.slice is None else self.slice.loops

    @property
    def is_block(self) -> bool:
        return not self.storage


# The terms of which one has to hold; None: needed on every device.
Demand: TypeAlias = "frozenset[DemandTerm] | None"


def own_term(
    accesses: NestAccesses,
    storages: Mapping[str, LoopStorage],
    feeding: Feeding,
    access: ElementAccess,
    node: ir.Store | ir.Atomic,
    dimension: int,
    *,
    is_aligned: bool,
) -> DemandTerm:
    """Return the term of a write, of a storage that is divided in this dimension."""
    element = element_of(accesses, storages, access)
    value, shifts = element.dimensions[dimension]
    slice_ = feeding.slices[access.at][dimension]
    if not accesses.space.is_pure(value.form):
        slice_ = None
    index, shifts = number_of(value, shifts)
    at = -1 if slice_ is not None else access.at
    text = node.indices[dimension]
    return DemandTerm(element.storage, index, shifts, at, access.array, dimension, value, text, slice_, is_aligned)


def demands(
    feeding: Feeding, own: Mapping[int, DemandTerm | None], block: DemandTerm, checked: Collection[int]
) -> dict[int, Demand]:
    """Return the demand of each point that gives a value or writes, by its number.

    ``own`` has the term of each point that writes, and None for an array that every device computes. ``block`` is the
    term of blocks of iterations. The loads in ``checked``, by `at`, may leave their array.
    """
    found: dict[int, Demand] = {EVERYWHERE: None, BLOCK: frozenset({block})}
    for point in feeding.points:
        term = own.get(point.number)
        is_updated = isinstance(point.statement, ir.Reduce)
        terms = {block} if is_updated else set() if term is None else {term}
        found[point.number] = None if point.number in own and term is None else frozenset(terms)
    _close(feeding, found, block)
    for point in feeding.points:
        if not found[point.number] and found[point.number] is not None and _can_fail(point, checked):
            found[point.number] = frozenset({block})  # nobody needs it, but its error
    _close(feeding, found, block)
    return found


def _close(feeding: Feeding, found: dict[int, Demand], block: DemandTerm) -> None:
    """Carry demands backwards until nothing changes."""
    sources = defaultdict(list)
    for edge in feeding.edges:
        sources[edge.user].append(edge)
    waiting = list(sources)
    while waiting:
        user = waiting.pop()
        for edge in sources.get(user, ()):
            before = found[edge.source]
            after = _union(before, _there(found[user], edge.crossed, feeding.points[edge.source].loops, block))
            if after != before:
                found[edge.source] = after
                waiting.append(edge.source)


def _there(demand: Demand, crossed: frozenset[int], loops: tuple[int, ...], block: DemandTerm) -> Demand:
    """Return a demand as it is at a point in these loops, from where a value comes through the trips of others."""
    if demand is None:
        return None
    found = set()
    for term in demand:
        if term.at < 0 and term.loops.isdisjoint(crossed) and term.loops <= frozenset(loops):
            found.add(term)
        elif term.is_aligned:
            found.add(block)
        else:
            return None
    return frozenset(found)


def _union(one: Demand, other: Demand) -> Demand:
    return None if one is None or other is None else one | other


def _can_fail(point: FlowPoint, checked: Collection[int]) -> bool:
    return any(
        can_divide_by_zero(node) or (isinstance(node, ir.Load) and node.at in checked)
        for node in walk(*_values(point.statement))
    )


def _values(statement: ir.Statement) -> Iterable[ir.Expression]:
    match statement:
        case ir.Assign(value=value):
            return (value,)
        case ir.Local(fill=ir.Expression() as fill):
            return (fill,)
        case ir.Store():
            return (statement.value, *statement.indices)
        case _:
            return ()
