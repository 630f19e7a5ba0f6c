"""What a run in order has seen of a nest: which iterations depend on each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from offload.loops.proofs.independence import DependenceKind

Trip: TypeAlias = "tuple[int, ...]"
"""An iteration, by its trips."""


class Example(NamedTuple):
    """Two iterations that depend on each other, the one that comes first first.

    Attributes
    ----------
    trips : tuple of tuple of int
        Of the axes.
    accesses : tuple of int
        By `at`.
    element : tuple of int
        Its indices, as the later access has them; none is negative.
    """

    trips: tuple[Trip, Trip]
    accesses: tuple[int, int]
    element: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Observed:
    """What has been seen of one kind of dependence, by one array.

    Attributes
    ----------
    count : int
        Accesses that depend on another iteration so.
    min_distance, max_distance : int
        Between the two iterations, as a serial loop counts them.
    example : Example
        The first.
    """

    array: str
    kind: DependenceKind
    count: int
    min_distance: int
    max_distance: int
    example: Example


class Findings(NamedTuple):
    """What has been seen of a nest.

    Attributes
    ----------
    found : dict of (str, str) to Observed
        By array and kind.
    exposed : frozenset of str
        Arrays of which an iteration reads an element that it has not written before.
    results : dict
        The scalars that come out.
    failure : Exception or None
        What the run, as far as it came, has found wrong.
    n_trips : int
        Of the outermost loop, so many were carried out; 0 where it was part of one.
    n_iterations : int
        So many were.
    is_whole : bool
        The run came to the end of the serial program, by its last iteration or by what that raises.
    """

    found: dict[tuple[str, DependenceKind], Observed]
    exposed: frozenset[str]
    results: dict[str, Any]
    failure: Exception | None
    n_trips: int
    n_iterations: int
    is_whole: bool
