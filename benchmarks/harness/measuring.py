"""Runs in turn with every sample kept, tables of them, and what was promised about them."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, TypedDict

from offload.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Samples = list[float]


class Target(TypedDict):
    """A promise: the worst ``figure``, which is that of ``where``, has to be at least or at most ``limit``.

    It is None where one was not found.
    """

    name: str
    where: str
    figure: float | None
    at_least: bool
    limit: float
    met: bool


@dataclass
class Table:
    """Samples by row and column, all in one unit.

    Attributes
    ----------
    title : str
        What was measured, with the unit.
    rows : dict
        ``rows[row][column]`` is the list of samples, in the order of the turns. A column may be missing in a row.
    note : str
        What a reader has to know of the figures, or empty.
    """

    title: str
    rows: dict[str, dict[str, Samples]] = field(default_factory=dict)
    note: str = ""

    def columns(self) -> list[str]:
        """Return the names of the columns, in the order in which they first occur."""
        return list(dict.fromkeys(column for row in self.rows.values() for column in row))


@dataclass
class Section:
    """What one section measured: tables by name, the promises about them, and why there is nothing, if so."""

    tables: dict[str, Table] = field(default_factory=dict)
    targets: list[Target] = field(default_factory=list)
    skipped: str = ""


def alternate(calls: Mapping[str, Callable[[], Any]], repeat: int) -> dict[str, list[Any]]:
    """Call all in turn, after one turn that warms up, and return what each returned in each turn.

    Parameters
    ----------
    calls : dict of callables
        Each takes its own time.
    repeat : int
        At least 1: the turns that count.
    """
    figures: dict[str, list[Any]] = {name: [] for name in calls}
    gc.collect()
    gc.freeze()  # what was there before is no part of the programs, and each turn begins with a collection
    try:
        for turn in range(-1, repeat):
            for name, call in calls.items():
                gc.collect()
                figure = call()
                if turn >= 0:
                    figures[name].append(figure)
    finally:
        gc.unfreeze()
    return figures


def pairwise(ours: Samples, theirs: Samples) -> Samples:
    """Return ours over theirs, turn by turn."""
    return [one / other for one, other in zip(ours, theirs, strict=True)]


def promise(name: str, figures: Mapping[str, Samples], limit: float, *, at_least: bool = False) -> Target:
    """Return whether the medians keep a promise: the worst of them decides.

    Parameters
    ----------
    name : str
        What was promised.
    figures : dict
        Samples of the figure, by where it was measured.
    limit : float
        What each median has to be at most, or at least.
    """
    medians = {
        where: float(median(samples)) for where, samples in figures.items() if samples
    }  # no NumPy scalars in JSON
    where = (min if at_least else max)(medians, key=medians.__getitem__)
    worst = medians[where]
    met = worst >= limit if at_least else worst <= limit
    return Target(name=name, where=where, figure=worst, at_least=at_least, limit=limit, met=met)


def best(runs: Mapping[str, Samples], names: Sequence[str]) -> str:
    """Return which of the named contestants has the lowest median."""
    return min(names, key=lambda name: median(runs[name]))


def expect(is_right: object, what: str) -> None:
    """Raise `InternalError` if what was computed is wrong: a time of a wrong result means nothing."""
    if not is_right:
        raise InternalError(f"benchmarks: {what} gave a wrong result")
