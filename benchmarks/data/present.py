"""``benchmarks/run.py present``: what a look-up in the present table costs, with few entries and with many."""

from __future__ import annotations

import gc
import json
import random
import time
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from offload.arrays.items import array_section
from offload.cli.output import console, write
from offload.constructs.clauses.mapping import map_item
from offload.data.maptypes import MapType
from offload.data.present_table import PresentTable
from offload.errors import ClauseError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from offload.arrays.sections import Section

_ENTRIES = (10, 1_000, 100_000)
_ITEM_BYTES = 64
_LOOKUPS = 20_000
_LIMITS_US = {10: 2.0, 100_000: 4.0}
"""What the project promises."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Look host storage up in a present table, in random order: entries themselves, parts of entries, and storage "
        "that is absent. Exit with 1 if the median of one is above what the project promises: 2 µs at 10 entries, "
        "4 at 100,000."
    )
    parser.add_argument("--repeat", metavar="N", type=int, default=7, help="runs of each, in turn (default: 7)")
    parser.add_argument("--json", action="store_true", help="print one JSON object, with every sample")


def run(args: argparse.Namespace) -> int:
    """Run the benchmark; 1 where a limit is missed.

    Raises
    ------
    ClauseError
        A number below 1.
    """
    if args.repeat < 1:
        raise ClauseError(f"--repeat {args.repeat}: take a number of at least 1")
    tables = {str(n_entries): _measure(n_entries, args.repeat) for n_entries in _ENTRIES}
    figures = {"unit": "µs a look-up", "repeat": args.repeat, "lookups": _LOOKUPS, "entries": tables}
    if args.json:
        write(json.dumps(figures) + "\n")
    else:
        console().print(_table(figures))
    slow = [n for n, limit_us in _LIMITS_US.items() if max(map(median, tables[str(n)].values())) > limit_us]
    return 1 if slow else 0


def _measure(n_entries: int, repeat: int) -> dict[str, list[float]]:
    """Time the look-ups in a table with this number of entries; return the microseconds of one, turn by turn."""
    # Every other item is mapped, so that what is absent lies among what is present.
    memory = np.zeros((2 * n_entries, _ITEM_BYTES), np.uint8)
    table = PresentTable()
    plan = table.enter([map_item(memory[2 * k], MapType.TO, "the item") for k in range(n_entries)])
    table.commit(plan, [None] * n_entries)
    chosen = random.Random(0).choices(range(n_entries), k=_LOOKUPS)  # no secret
    wanted: dict[str, list[Section]] = {
        "an entry": [array_section(memory[2 * k]) for k in chosen],
        "a part": [array_section(memory[2 * k, 8:24]) for k in chosen],
        "absent": [array_section(memory[2 * k + 1]) for k in chosen],
    }
    times_us: dict[str, list[float]] = {name: [] for name in wanted}
    gc.collect()  # once: look-ups leave nothing for the collector
    for turn in range(-1, repeat):  # the first one warms up
        for name, sections in wanted.items():
            took_us = _time_us(table.find, sections)
            if turn >= 0:
                times_us[name].append(took_us)
    return times_us


def _time_us(find: Callable[[Section], object], sections: list[Section]) -> float:
    began_s = time.perf_counter()
    for section in sections:
        find(section)
    return (time.perf_counter() - began_s) * 1e6 / len(sections)


def _table(figures: dict[str, Any]) -> Table:
    title = f"look-ups in the present table, µs: median of {figures['repeat']} (lowest to highest)"
    shown = Table(title=title, title_justify="left")
    shown.add_column("entries", justify="right")
    for name in next(iter(figures["entries"].values())):
        shown.add_column(name, justify="right")
    shown.add_column("at most", justify="right")
    for entries, found in figures["entries"].items():
        cells = (f"{median(times):.2f} ({min(times):.2f} to {max(times):.2f})" for times in found.values())
        limit_us = _LIMITS_US.get(int(entries))
        shown.add_row(f"{int(entries):,}", *cells, "" if limit_us is None else f"{limit_us:g}")
    return shown
