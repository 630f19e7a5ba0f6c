"""Calls in turn with every sample kept, and the tables that they become."""

from __future__ import annotations

import gc
import time
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Samples = list[float]
    Rows = dict[str, dict[str, Samples]]


class Measured(NamedTuple):
    """The measurements of one part of ``offload bench``."""

    title: str  # What was measured, with the unit of every sample

    rows: Rows  # ``rows[row][column]`` has one sample for each turn. A column may be missing in a row.

    note: str  # What a machine that is all right shows


def in_turn(calls: Mapping[str, Callable[[], float]], repeat: int) -> dict[str, Samples]:
    """Call all in turn, after one turn that warms up; return the results of each in ``repeat`` >= 1 turns."""
    # Each function measures itself, and returns its figure.
    samples: dict[str, Samples] = {name: [] for name in calls}
    gc.collect()
    gc.freeze()  # objects from before are not part of the programs, and each call begins with a collection
    try:
        for turn in range(-1, repeat):
            for name, call in calls.items():  # each turn has all calls, so that load of others falls on all
                gc.collect()
                figure = call()
                if turn >= 0:
                    samples[name].append(figure)
    finally:
        gc.unfreeze()
    return samples


def took_s(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    began_s = time.perf_counter()
    call()
    return time.perf_counter() - began_s


def table_of(finding: Measured) -> Table:
    """Return medians with their lowest and highest sample, for Rich."""
    shown = Table(
        title=finding.title,
        title_justify="left",
        caption=finding.note,
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    shown.add_column("")
    columns = list(dict.fromkeys(column for row in finding.rows.values() for column in row))
    for column in columns:
        shown.add_column(column, justify="right")
    for name, row in finding.rows.items():
        shown.add_row(name, *(_cell(row.get(column)) for column in columns))
    return shown


def _cell(samples: Samples | None) -> str:
    if not samples:
        return ""
    # One turn has no spread.
    if len(samples) == 1:
        return _digits(samples[0])
    return f"{_digits(median(samples))} ({_digits(min(samples))} to {_digits(max(samples))})"


def _digits(figure: float) -> str:
    """Return a figure with three digits, or all digits before the point."""
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"
