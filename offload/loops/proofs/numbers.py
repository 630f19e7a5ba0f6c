"""The numbers of a launch: trips, scalars, and where arrays lie. Decisions at a launch depend on these numbers only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.loops.proofs.affine import Interval


@dataclass(frozen=True, slots=True)
class Trips:
    """An axis at a launch: the variable of trip t, 0 to ``trips - 1``, is ``start + t*step``."""

    start: int  # of trip 0
    step: int  # positive or negative, not 0
    trips: int  # 0 or more


@dataclass(frozen=True, slots=True)
class View:
    """An array at a launch."""

    extents: tuple[int, ...]  # 0 in one of them: no elements
    strides: tuple[int, ...]  # in bytes
    itemsize: int  # in bytes
    # Of the element `[0, …, 0]`. Addresses of all views of a launch are of one address space.
    address: int

    @property
    def span(self) -> Interval | None:
        """The first and the last byte; None for an array without elements."""
        if 0 in self.extents:
            return None
        reaches = [stride * (extent - 1) for stride, extent in zip(self.strides, self.extents, strict=True)]
        low = self.address + sum(min(reach, 0) for reach in reaches)
        return low, self.address + sum(max(reach, 0) for reach in reaches) + self.itemsize - 1

    @property
    def is_aligned(self) -> bool:
        """Whether elements lie at multiples of their size, as those of a view of packed records may not."""
        apart = [stride for stride, extent in zip(self.strides, self.extents, strict=True) if extent > 1]
        return not any(place % self.itemsize for place in (self.address, *apart))

    def may_share(self, other: View) -> bool:
        """Whether the spans of two views meet."""
        mine, others = self.span, other.span
        return mine is not None and others is not None and mine[0] <= others[1] and others[0] <= mine[1]


@dataclass(frozen=True, slots=True)
class LaunchNumbers:
    """The numbers of a launch."""

    axes: tuple[Trips, ...]  # the associated loops, outermost first
    scalars: Mapping[str, bool | int | float]  # parameters, frozen scalars, and what the parts before the nest assign
    views: Mapping[str, View]  # of the arrays that are parameters
    # Least and greatest element where a load, by `at`, may read; of the loads for which they were looked up.
    contents: Mapping[int, Interval] = field(default_factory=dict)
