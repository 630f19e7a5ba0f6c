"""What benchmarks with sections have in common: their options, the loop over the sections, and the output."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from benchmarks.harness import showing
from offload.cli.output import console, write
from offload.errors import ClauseError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping

    from benchmarks.harness.measuring import Section

_REPEAT = 7


def add_choice(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """Declare which sections to measure, of those named."""
    names = list(names)
    parser.add_argument(
        "--section",
        metavar="NAME",
        nargs="+",
        action="extend",
        choices=names,
        help=f"of {', '.join(names)} (default: all)",
    )


def add_repeat(parser: argparse.ArgumentParser) -> None:
    """Declare how often to measure."""
    parser.add_argument(
        "--repeat",
        "--turns",
        metavar="N",
        type=int,
        default=_REPEAT,
        help=f"runs of each, in turn (default: {_REPEAT})",
    )


def add_forms(parser: argparse.ArgumentParser) -> None:
    """Declare the forms of the output."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object, with every sample")
    form.add_argument("--markdown", action="store_true", help="print the tables as the documentation has them")


def check_repeat(args: argparse.Namespace) -> None:
    """Raise `ClauseError` if there is no turn."""
    if args.repeat < 1:
        raise ClauseError(f"--repeat {args.repeat}: take a number of at least 1")


def measure_each(
    measures: Mapping[str, Callable[[], Section]], machine: Mapping[str, str], repeat: int
) -> dict[str, Any]:
    """Measure sections one after the other; return what `show` takes.

    Parameters
    ----------
    measures : dict of callables
        What measures each, by the names of the sections.
    machine : dict of str
        What it was measured on, by names that make a sentence.
    repeat : int
        The turns.
    """
    sections: dict[str, Any] = {}
    times_s: dict[str, float] = {}
    targets: list[Any] = []
    for name, measure in measures.items():
        began_s = time.perf_counter()
        section = measure()
        times_s[name] = round(time.perf_counter() - began_s, 1)
        targets += section.targets
        tables = {key: asdict(one) for key, one in section.tables.items()}
        sections[name] = {"tables": tables, "skipped": section.skipped}
    return {"machine": machine, "repeat": repeat, "seconds": times_s, "sections": sections, "targets": targets}


def show(args: argparse.Namespace, figures: dict[str, Any]) -> None:
    """Print figures in the form that was asked for."""
    if args.json:
        write(json.dumps(figures) + "\n")
    elif args.markdown:
        write(showing.markdown(figures))
    else:
        shows = console()
        for table in showing.tables(figures):
            shows.print(table)
        for name, why in showing.skipped(figures):
            shows.print(f"{name}: {why}")
