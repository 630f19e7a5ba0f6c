"""Requirements of a nest: the memory of an iteration, and the arrays of reductions and atomics."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from offload.errors import ClauseError, LoopError
from offload.loops.tree import ir
from offload.loops.tree.nodes import walk
from offload.loops.tree.promotion import nbytes_of

if TYPE_CHECKING:
    from offload.loops.proofs.numbers import LaunchNumbers


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
