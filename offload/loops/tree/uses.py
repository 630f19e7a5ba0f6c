"""Which accesses have which number, and which scalars and arrays decisions about a nest may follow from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise, starmap
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from offload.loops.tree import ir
from offload.loops.tree.nodes import can_divide_by_zero, mapped, names_in, walk
from offload.loops.tree.promotion import is_inexact, word_places

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from offload.loops.tree.nodes import Node


Numbered: TypeAlias = ir.Load | ir.Store | ir.Atomic | ir.IndexCheck

NUMBERED: Final = (ir.Load, ir.Store, ir.Atomic, ir.IndexCheck)


def numbered(nest: ir.Nest) -> dict[int, Numbered]:
    """Return the accesses of a nest by their number ``at``."""
    return {node.at: node for node in walk(*nest.body) if isinstance(node, NUMBERED)}


def deciding_names(typed: ir.Typed) -> tuple[str, ...]:
    """Return the scalars that decisions may follow from: all but inexact ones that only bodies of nests read."""
    parts: list[ir.Statement | ir.Expression] = [
        part for part in typed.function.parts if isinstance(part, ir.Statement)
    ]
    for nest in typed.function.nests:
        parts += [bound for axis in nest.axes for bound in (axis.start, axis.stop, axis.step)]
    outside = {node.name for node in walk(*parts) if isinstance(node, (ir.Name, ir.Assign))}
    return tuple(sorted(name for name, kind in typed.scalars.items() if name in outside or not is_inexact(kind.dtype)))


def numbered_apart(nest: ir.Nest) -> tuple[ir.Nest, dict[int, int]]:
    """Return a nest in which each access has a number of its own, and which it had before."""
    numbers = [node.at for node in walk(*nest.body) if isinstance(node, NUMBERED)]
    if len(set(numbers)) == len(numbers):
        return nest, {at: at for at in numbers}
    originals: dict[int, int] = {}
    free = iter(range(max(numbers) + 1, 1 << 60))

    def change(node: Node) -> Node:
        if not isinstance(node, NUMBERED):
            return node
        at = next(free) if node.at in originals else node.at
        originals[at] = node.at
        return replace(node, at=at)

    return replace(nest, body=tuple([mapped(one, change) for one in nest.body])), originals


def numbered_back(body: tuple[ir.Statement, ...], originals: Mapping[int, int]) -> tuple[ir.Statement, ...]:
    """Return statements whose accesses have the numbers that they had before."""
    if all(at == before for at, before in originals.items()):
        return body

    def change(node: Node) -> Node:
        return replace(node, at=originals[node.at]) if isinstance(node, NUMBERED) else node

    return tuple([mapped(one, change) for one in body])


def result_words(typed: ir.Typed, nest: ir.Nest) -> tuple[dict[str, slice], int]:
    """Return the words of the scalars that a nest passes on, in a row of partial results, and how many all have.

    A scalar that iterations carry, and of which the last one's value is asked for, has its words once: both are equal
    after each iteration.
    """
    names = tuple(dict.fromkeys(nest.passed))
    places = word_places((typed.arrays.get(name) or typed.scalars[name]).dtype for name in names)
    return dict(zip(names, starmap(slice, pairwise(places)), strict=True)), places[-1]


class Addressing(NamedTuple):
    """The arrays and scalars that may decide which elements iterations access, and whether an iteration fails."""

    arrays: frozenset[str]  # whose elements decide
    scalars: frozenset[str]  # whose values decide


def addressing(nest: ir.Nest) -> Addressing:
    """Return the arrays and scalars that may decide which elements iterations access.

    These are those that an index, a condition, the bound of a loop or a divisor of integers is made of, by way of
    scalars and of other arrays of the nest, too: where a divisor is 0, an iteration goes no further.
    """
    nodes = list(walk(*nest.body))
    found: list[ir.Expression] = []
    for node in nodes:
        match node:
            case ir.Load() | ir.Store() | ir.IndexCheck():
                found += node.indices
            case ir.Atomic():
                found += [*node.indices, *([node.expected] if node.expected is not None else [])]
            case ir.If() | ir.While() | ir.Select() | ir.Assert():
                found.append(node.condition)
            case ir.Logical():
                found.append(node.left)
            case ir.For():
                found += [node.start, node.stop, node.step]
            case ir.Binary(right=divisor) if can_divide_by_zero(node):
                found.append(divisor)
    names: set[str] = set()
    arrays: set[str] = set()
    size = -1
    while size < len(names) + len(arrays):
        size = len(names) + len(arrays)
        names |= names_in(*found)
        arrays |= {node.array for node in walk(*found) if isinstance(node, ir.Load)}
        for node in nodes:
            match node:
                case ir.Assign(name=name, value=value) | ir.Reduce(name=name, value=value) if name in names:
                    found.append(value)
                case ir.Store(array=array, value=value) if array in arrays:
                    found.append(value)
                case ir.Atomic():
                    if node.result in names:
                        arrays.add(node.array)
                    if node.array in arrays:
                        found.append(node.value)
                case ir.Local() if node.name in arrays and node.fill is not None:
                    found.append(node.fill)
    return Addressing(frozenset(arrays), frozenset(names))


# -- the uses of arrays, which decide how they are mapped ---------------------------------------------


@dataclass(frozen=True, slots=True)
class ArrayUse:
    """The uses of an array's elements; an atomic update, or one of a reduction, is neither a read nor a write."""

    is_read: bool = False  # by a load
    is_written: bool = False  # by a store
    is_atomic: bool = False  # by atomic steps
    is_reduced: bool = False  # it is a reduction's item

    @property
    def is_changed(self) -> bool:
        """Whether its contents may be others afterwards."""
        return self.is_written or self.is_atomic or self.is_reduced


def accesses(function: ir.ParsedFunction) -> dict[str, ArrayUse]:
    """Return how a loop function uses each of its arrays, in all its nests together.

    An array of which each iteration has its own is read if it is ``firstprivate``, written if it is ``lastprivate``.
    """
    found = {name: ArrayUse() for name in function.arrays}
    for nest in function.nests:
        for name, change in _changes(nest):
            if name in found:
                found[name] = replace(found[name], **change)
    return found


def _changes(nest: ir.Nest) -> Iterator[tuple[str, dict[str, bool]]]:
    for name, word in nest.privates.items():
        if word == "firstprivate":
            yield name, {"is_read": True}
        elif word == "lastprivate":
            yield name, {"is_written": True}
    for node in walk(*nest.body):
        match node:
            case ir.Load(array=name) if name not in nest.privates:
                yield name, {"is_read": True}
            case ir.Store(array=name) if name not in nest.privates:
                yield name, {"is_written": True}
            case ir.Atomic(array=name) if name not in nest.privates:
                yield name, {"is_atomic": True}
            case ir.Reduce(name=name):
                yield name, {"is_reduced": True}
