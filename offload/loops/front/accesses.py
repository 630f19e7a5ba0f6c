"""The uses that a loop function makes of its arrays; they decide how the arrays are mapped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from offload.loops.tree import ir
from offload.loops.tree.nodes import walk

if TYPE_CHECKING:
    from collections.abc import Iterator


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
            case _:
                pass
