"""The failures of a kernel, as the exceptions that Python would have raised: array, index, iteration, line.

A kernel reports once, by the record whose slots are named here: the first iteration that comes wins. The numbers of the
iteration's trips are turned back into the variables of its loops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from offload.loops.tree import ir
from offload.loops.tree.nodes import locals_in, walk
from offload.loops.tree.uses import numbered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offload.loops.proofs.numbers import Trips

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
        extent = {**shapes, **locals_in(nest)}[access.array][dimension]
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


def index_error(access: Located, index: int, dimension: int, extent: int, where: str) -> IndexError:
    """Return the error of an access outside of its array, which has this extent there.

    Its attribute ``array`` is the name of the array, by which a construct says which section that is.
    """
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
