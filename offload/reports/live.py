"""Frames of the live view, made of counts: as tables by Rich, or as one line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.progress_bar import ProgressBar

from offload.reports.tables import NAME_WIDTH, Column, FittingTable, Line, cut, size
from offload.views.words import duration_label, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_ROWS = 30
"""Lines of a frame at most, headings included."""

_BAR = 20  # cells
_FRAME_LINES = 8  # headings, borders, the last lines


@dataclass(slots=True)
class NameCounts:
    """The tasks of one name."""

    name: str
    done: int = 0
    running: int = 0
    ready: int = 0
    waiting: int = 0

    @property
    def all(self) -> int:
        """All of them."""
        return self.done + self.running + self.ready + self.waiting


@dataclass(slots=True)
class DeviceCounts:
    """The work and data of a device."""

    name: str
    busy: float = 0.0  # the share of the last time in which it had work
    mapped_nbytes: int = 0
    in_nbytes: int = 0
    out_nbytes: int = 0


@dataclass(slots=True)
class LiveFrame:
    """Everything that is shown at one time."""

    elapsed_s: float
    names: list[NameCounts] = field(default_factory=list)
    devices: list[DeviceCounts] = field(default_factory=list)
    rate: float = 0.0  # tasks that ended in a second, lately
    longest: str = ""  # the task that has waited longest


def table_of(frame: LiveFrame) -> Group:
    """Return a frame for a terminal."""
    devices = frame.devices[:8]
    n_rows = MOST_ROWS - _FRAME_LINES - (len(devices) + 4 if devices else 0)
    shown: list[Any] = [Line(line_of(frame), is_cut=True), _names(frame.names, n_rows)]
    if devices:
        shown.append(_devices(devices))
    if frame.longest:
        shown.append(Line(printable(frame.longest), is_cut=True))
    return Group(*shown)


def line_of(frame: LiveFrame) -> str:
    """Return a frame as one line."""
    done, running = sum(one.done for one in frame.names), sum(one.running for one in frame.names)
    ready, waiting = sum(one.ready for one in frame.names), sum(one.waiting for one in frame.names)
    return (
        f"{duration_label(frame.elapsed_s)}: {done} done, {running} running, {ready} ready, {waiting} waiting, "
        f"{frame.rate:.3g} tasks/s"
    )


def _names(names: Sequence[NameCounts], n_rows: int) -> FittingTable:
    columns = (
        Column("task", "left"),
        Column("", "left", gives_way=1, width=_BAR),
        Column("done"),
        Column("running", gives_way=4),
        Column("ready", gives_way=2),
        Column("waiting", gives_way=3),
    )
    order = sorted(names, key=lambda one: (-(one.running + one.ready + one.waiting), -one.done, one.name))
    rows: list[tuple[Any, ...]] = []
    for one in order[:n_rows]:
        bar = ProgressBar(total=max(1, one.all), completed=one.done, width=_BAR)
        rows.append((cut(one.name, NAME_WIDTH), bar, *map(str, (one.done, one.running, one.ready, one.waiting))))
    rest = order[n_rows:]
    if rest:
        counts = (sum(one.done for one in rest), sum(one.running for one in rest))
        more = (sum(one.ready for one in rest), sum(one.waiting for one in rest))
        rows.append((f"{len(rest)} more names", "", *map(str, (*counts, *more))))
    return FittingTable(columns, rows, has_lines=False)


def _devices(devices: Sequence[DeviceCounts]) -> FittingTable:
    columns = (
        Column("device", "left"),
        Column("busy"),
        Column("mapped", gives_way=3),
        Column("copied in", gives_way=2),
        Column("copied out", gives_way=1),
    )
    rows = [
        (
            cut(one.name, NAME_WIDTH),
            f"{one.busy:.0%}",
            size(one.mapped_nbytes),
            size(one.in_nbytes),
            size(one.out_nbytes),
        )
        for one in devices
    ]
    return FittingTable(columns, rows, has_lines=False)


def terminal() -> Console | None:
    """Return a console on stderr, if that is a terminal on which a frame can be drawn again."""
    console = Console(stderr=True)
    return console if console.is_terminal and not console.is_dumb_terminal else None
