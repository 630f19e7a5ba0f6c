"""The figures of benchmarks for people: on the terminal, and in Markdown as the documentation has them."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table as Shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def tables(figures: dict[str, Any]) -> Iterator[Shown]:
    """Yield what was measured and what was promised, for Rich."""
    for title, note, header, rows in _grids(figures):
        shown = Shown(
            title=title,
            title_justify="left",
            caption=note or None,
            box=SIMPLE_HEAD,
            pad_edge=False,
            padding=(0, 1, 0, 0),
        )
        for number, name in enumerate(header):
            shown.add_column(name, justify="right" if number else "left")
        for row in rows:
            shown.add_row(*row)
        yield shown


def markdown(figures: dict[str, Any]) -> str:
    """Return the same in Markdown, with the machine first."""
    parts = [", ".join(f"{name} {value}" for name, value in figures["machine"].items()) + "."]
    for title, note, header, rows in _grids(figures):
        lines = [_line(header), "|" + "---|" * len(header), *map(_line, rows)]
        parts += [f"{title}:", "\n".join(lines)]
        if note:
            parts.append(note)
    parts += [f"`{name}`: {why}." for name, why in skipped(figures)]
    return "\n\n".join(parts) + "\n"


def skipped(figures: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the sections that could not be measured, and why."""
    for name, section in figures["sections"].items():
        if section["skipped"]:
            yield name, section["skipped"]


def _grids(figures: dict[str, Any]) -> Iterator[tuple[str, str, list[str], list[list[str]]]]:
    """Yield title, note, header and rows of every table."""
    spread = f"medians of {figures['repeat']} turns (lowest to highest)"
    for section in figures["sections"].values():
        for table in section["tables"].values():
            columns = list(dict.fromkeys(column for row in table["rows"].values() for column in row))
            rows = [[name, *(_cell(row.get(column)) for column in columns)] for name, row in table["rows"].items()]
            yield f"{table['title']}; {spread}", table["note"], ["", *columns], rows
    if figures["targets"]:
        rows = [
            [
                target["name"],
                f"{'≥' if target['at_least'] else '≤'} {target['limit']:g}",
                f"{target['figure']:.3g}",
                f"{'met' if target['met'] else 'missed'}: {target['where']}",
            ]
            for target in figures["targets"]
        ]
        yield "Targets, and the worst median", "", ["", "target", "figure", "where"], rows


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(samples: Sequence[float] | None) -> str:
    if not samples:
        return ""
    if len(samples) == 1:
        return _short(samples[0])
    return f"{_short(median(samples))} ({_short(min(samples))} to {_short(max(samples))})"


def _short(figure: float) -> str:
    """Return a figure with three digits, or all before the point."""
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"
