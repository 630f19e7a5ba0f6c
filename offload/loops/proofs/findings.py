"""The findings of a run in order: which iterations of a nest depend on each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from offload.loops.proofs.independence import DependenceKind

# An iteration, by its trips.
Trip: TypeAlias = "tuple[int, ...]"


class Example(NamedTuple):
    """Two iterations that depend on each other, the one that comes first first."""

    trips: tuple[Trip, Trip]  # of the axes
    accesses: tuple[int, int]  # by `at`
    element: tuple[int, ...]  # its indices, as the later access has them; none is negative


@dataclass(frozen=True, slots=True)
class Observed:
    """The events of one kind of dependence, by one array, in a run."""

    array: str
    kind: DependenceKind  # flow, anti or output
    count: int  # accesses that depend on another iteration so
    # Between the two iterations, as a serial loop counts them.
    min_distance: int
    max_distance: int  # in iterations, like the least
    example: Example  # the first


class Findings(NamedTuple):
    """The findings of a run of a nest."""

    found: dict[tuple[str, DependenceKind], Observed]  # by array and kind
    exposed: frozenset[str]  # arrays of which an iteration reads an element that it has not written before
    results: dict[str, Any]  # the scalars that come out
    failure: Exception | None  # what the run, as far as it came, has found wrong
    n_trips: int  # of the outermost loop, so many were carried out; 0 where it was part of one
    n_iterations: int  # so many were
    is_whole: bool  # the run came to the end of the serial program, by its last iteration or by what that raises
