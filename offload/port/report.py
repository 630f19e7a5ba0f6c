"""The porter's report for people; the one file of the room that imports Rich."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from offload.port.graphs import source_line
from offload.views.terminal import render
from offload.views.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from offload.port.analysis import PortReport
    from offload.sanitizer.findings import Side
    from offload.tasks.graph import Graph

_MOST_ROWS = 40
_MOST_NODES = 60
"""Lines of a program whose graph is drawn; the table of dependences has the others."""


def report_view(report: PortReport, graph: Graph) -> Group:
    """Return the report as Rich prints it: the numbers, the findings, the task form, the dependences."""
    names = _Names(report.program)
    shown: list[Any] = [_head(report)]
    if report.failure:
        shown.append(Text(report.failure, "red"))
    shown += _races(report, names)
    shown += _uninitialised(report, names)
    shown += _redundant(report, names)
    shown += _blocking(report, names)
    shown += [Text(sentence, "yellow") for sentence in report.not_seen]
    if report.emitted is not None:
        shown.append(_line(f"The task form is in {report.emitted}."))
    shown += [Text(f"No task form: {reason}") for reason in report.reasons]
    if 0 < len(graph) <= _MOST_NODES:
        shown += [Text("The dependences between lines:"), render(graph)]
    shown += _edges(report, names)
    return Group(*shown)


class _Names:
    """Names of places: the line, with the file if that is not the program's own."""

    def __init__(self, program: str) -> None:
        self._program = program

    def line(self, file: str, line: int) -> str:
        return f"line {line}" if file == self._program else f"{os.path.relpath(file)}:{line}"

    def side(self, side: Side) -> str:
        return f"{side.what} on {side.name}, {self.source(side)}"

    def source(self, side: Side) -> str:
        return f"{self.line(side.file, side.line)}: {source_line(side.file, side.line)}"


def _head(report: PortReport) -> Text:
    found = [
        plural(len(report.races), "race"),
        plural(len(report.uninitialised), "read") + " of unwritten memory",
        plural(len(report.redundant), "needless call"),
    ]
    counts = f"{plural(report.streams, 'stream')}, {plural(report.operations, 'operation')}"
    return _line(f"{os.path.relpath(report.program)} on {report.on}: {counts}; {', '.join(found)}", "bold")


def _table(headings: Sequence[str], rows: Iterable[Sequence[Any]], total: int) -> Table:
    table = Table()
    for heading in headings:
        table.add_column(heading, overflow="fold", justify="right" if heading == "count" else "left")
    for _, row in zip(range(_MOST_ROWS), rows, strict=False):
        table.add_row(*(Text(str(part)) for part in row))
    if total > _MOST_ROWS:
        table.caption = f"{total - _MOST_ROWS} more; --report FILE.json has all"
    return table


def _races(report: PortReport, names: _Names) -> list[Any]:
    if not report.races:
        return []
    shown = [Text("Races: nothing orders these accesses.")]
    for race in report.races[:_MOST_ROWS]:
        fix = race.fix
        shown += [
            _line(f"{race.item}, {plural(race.count, 'time')}:", "red"),
            *(_line(f"    {names.side(side)}") for side in (race.first, race.second)),
            _line(f"    missing: {fix.text}; before {names.line(fix.file, fix.line)}"),
        ]
    return shown + _rest(len(report.races))


def _uninitialised(report: PortReport, names: _Names) -> list[Any]:
    if not report.uninitialised:
        return []
    shown = [Text("Reads of memory that was never written:")]
    for one in report.uninitialised[:_MOST_ROWS]:
        shown += [
            _line(f"{one.item}, {plural(one.count, 'time')}:", "red"),
            _line(f"    allocated: {names.source(one.first)}"),
            _line(f"    {names.side(one.second)}"),
        ]
    return shown + _rest(len(report.uninitialised))


def _line(text: str, style: str = "") -> Text:
    """Return a line that is not wrapped, so that editors and searches find what it names."""
    return Text(text, style, no_wrap=True, overflow="ignore")


def _rest(total: int) -> list[Text]:
    return [Text(f"{total - _MOST_ROWS} more; --report FILE.json has all")] if total > _MOST_ROWS else []


_WHY = {"implied": "other calls or a stream give the order", "no data": "it orders no data"}


def _redundant(report: PortReport, names: _Names) -> list[Any]:
    if not report.redundant:
        return []
    rows = (
        (names.line(one.file, one.line), source_line(one.file, one.line), one.count, _WHY[one.why])
        for one in report.redundant
    )
    table = _table(("line", "call", "count", "why"), rows, len(report.redundant))
    return [Text("Needless synchronisation: each of these lines alone can go."), table]


def _blocking(report: PortReport, names: _Names) -> list[Any]:
    if not report.blocking:
        return []
    rows = (
        (names.line(one.file, one.line), one.call, one.count, "never" if one.used is None else f"line {one.used}")
        for one in report.blocking
    )
    table = _table(("line", "call", "count", "first used"), rows, len(report.blocking))
    return [Text("Copies that make the host wait:"), table]


def _edges(report: PortReport, names: _Names) -> list[Any]:
    if not report.edges:
        return []
    rows = (
        (names.line(one.files[0], one.first), names.line(one.files[1], one.second), one.kind, one.count)
        for one in report.edges
    )
    return [Text("Data dependences:"), _table(("first", "second", "kind", "count"), rows, len(report.edges))]
