"""Runs in turn, and what they came to."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class Spread(TypedDict):
    """Median, lowest and highest of several runs."""

    median: float
    min: float
    max: float


def spread(figures: Sequence[float]) -> Spread:
    """Return median, lowest and highest."""
    return {"median": median(figures), "min": min(figures), "max": max(figures)}


def alternate(calls: Mapping[str, Callable[[], float]], repeat: int) -> dict[str, Spread]:
    """Call all in turn, after one turn that warms up, and return what each returned.

    Parameters
    ----------
    calls : dict of callables
        Each takes its own time and returns its figure.
    repeat : int
        At least 1: the turns that count.

    Returns
    -------
    dict of Spread
        By the names of the calls.
    """
    figures: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(-1, repeat):
        for name, call in calls.items():
            figure = call()
            if turn >= 0:
                figures[name].append(figure)
    return {name: spread(one) for name, one in figures.items()}
