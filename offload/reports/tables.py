"""Profiles in the terminal and in notebooks, by Rich."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rich.box import HEAVY_HEAD
from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from offload.views.words import duration_label, look_alike, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import ConsoleOptions, RenderResult

_MOST_ROWS = 30
_MOST_STEPS = 12
NAME_WIDTH = 40
_LEAST_NAME = 12
"""Cells of a name before another column goes."""
_DIRECTIONS = {"to": "to the device", "from": "to the host", "device": "between devices"}


class Column(NamedTuple):
    """A column of a `FittingTable`. Those that give way go if there is no room, 1 first; the others stay."""

    heading: str
    justify: Literal["left", "right"] = "right"
    gives_way: int = 0
    width: int = 0  # of things that are no texts


class FittingTable(NamedTuple):
    """A table that Rich prints with as many columns as there is room for, each row on one line.

    ``name`` is the number of the column whose texts are cut before another column goes.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]  # texts, or other things in a column that has a width
    caption: str = ""
    name: int = 0
    has_lines: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = {at: self._width_of(at) for at in range(len(self.columns))}
        name_width, shown[self.name] = shown[self.name], min(shown[self.name], _LEAST_NAME)
        each, rest = (3, 1) if self.has_lines else (2, -2)  # cells around a column, and of the last border

        def room() -> int:
            return options.max_width - sum(shown.values()) - each * len(shown) - rest

        for at in sorted(shown, key=lambda at: self.columns[at].gives_way):
            if self.columns[at].gives_way and room() < 0:
                del shown[at]
        shown[self.name] = max(1, min(name_width, shown[self.name] + room()))
        overflow: Literal["crop", "ellipsis"] = "crop" if options.ascii_only else "ellipsis"  # Rich's is one sign
        table = Table(box=HEAVY_HEAD if self.has_lines else None, pad_edge=self.has_lines, caption=self.caption or None)
        for at, width in shown.items():
            column = self.columns[at]
            table.add_column(column.heading, justify=column.justify, no_wrap=True, overflow=overflow, width=width)
        for row in self.rows:
            table.add_row(
                *(in_text(cut(row[at], width) if at == self.name else row[at], options) for at, width in shown.items())
            )
        yield table

    def _width_of(self, at: int) -> int:
        column = self.columns[at]
        cells = [row[at] for row in self.rows] if not column.width else []
        return max(column.width, *map(cell_len, [*column.heading.split("\n"), *cells]))


def cut(text: str, width: int) -> str:
    """Return printable text that fits a width in cells; cut the middle, as tasks of one function differ at the end."""
    text = printable(text if len(text) <= 4 * width else text[: 2 * width] + text[-2 * width :])
    if cell_len(text) <= width:
        return text
    last = (width - 1) // 2
    return set_cell_size(text, width - 1 - last).rstrip() + "…" + set_cell_size(text[::-1], last)[::-1]


def in_text(what: Any, options: ConsoleOptions) -> Any:
    """Return a text that is not read as markup, in characters that the console can print; anything else as it is."""
    return Text(look_alike(what) if options.ascii_only else what) if isinstance(what, str) else what


class Line(NamedTuple):
    """A paragraph, or one line that is cut where it does not fit."""

    text: str
    is_cut: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = in_text(self.text, options)
        if self.is_cut:
            text.no_wrap, text.overflow = True, "crop" if options.ascii_only else "ellipsis"
        yield text


def profile_tables(profile: Any) -> Group:
    """Return the tables of a `offload.reports.profile.RunProfile`."""
    parts = ", ".join(f"{name} {duration_label(value)}" for name, value in profile.parts.items())
    shown: list[Any] = [
        Line(f"The run took {duration_label(profile.wall_s)}. Its tasks, by name:"),
        _tasks(profile),
        Line(f"The critical path: {parts}"),
        _path(profile),
    ]
    if profile.copies:
        shown += [Line("Copies:"), _copies(profile)]
    return Group(*shown)


def bundle_of(shown: Any) -> dict[str, str]:
    """Return an object that Rich prints as HTML and plain text, for a notebook."""
    console = Console(file=StringIO(), record=True, width=110, force_terminal=False, force_jupyter=False)
    console.print(shown)
    html = console.export_html(inline_styles=True, clear=False, code_format="<pre>{code}</pre>")
    return {"text/html": html, "text/plain": console.export_text()}


def size(nbytes: float) -> str:
    """Return a number of bytes with its unit."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if nbytes < 999.5 or unit == "TB":
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return ""


def _tasks(profile: Any) -> FittingTable:
    columns = (
        Column("task", "left"),
        Column("count", gives_way=6),
        Column("total"),
        Column("mean", gives_way=1),
        Column("longest", gives_way=2),
        Column("share", gives_way=4),
        Column("ready,\nnot begun", gives_way=3),
        Column("on the\npath", gives_way=5),
    )
    rows = [
        (
            cut(row.name, NAME_WIDTH) + (f" ({row.failed} not completed)" if row.failed else ""),
            str(row.count),
            duration_label(row.total_s),
            duration_label(row.mean_s),
            duration_label(row.longest_s),
            f"{row.share:.1%}",
            duration_label(row.waited_s),
            duration_label(row.path_s),
        )
        for row in profile.rows[:_MOST_ROWS]
    ]
    rest = profile.rows[_MOST_ROWS:]
    if rest:
        count, total_s = sum(row.count for row in rest), sum(row.total_s for row in rest)
        rows.append((f"{len(rest)} more names", str(count), duration_label(total_s), "", "", "", "", ""))
    return FittingTable(columns, rows)


def _path(profile: Any) -> FittingTable:
    columns = (Column("at", gives_way=1), Column("for"), Column("what", "left", gives_way=2), Column("task", "left"))
    longest = sorted(profile.path, key=lambda step: -step.seconds)[:_MOST_STEPS]
    rows = [
        (duration_label(step.start_s), duration_label(step.seconds), step.kind, _what(step))
        for step in sorted(longest, key=lambda step: step.start_s)
    ]
    has_more = len(profile.path) > len(longest)
    caption = f"the longest {len(longest)} of {len(profile.path)} stretches" if has_more else ""
    return FittingTable(columns, rows, caption, name=3)


def _what(step: Any) -> str:
    key = cut(step.key, NAME_WIDTH)
    if step.is_between:
        return f"until {key} began" if key else ""
    return f"until the event of {key}" if step.kind == "wait" else key


def _copies(profile: Any) -> FittingTable:
    columns = (
        Column("device", gives_way=3),
        Column("direction", "left"),
        Column("count", gives_way=1),
        Column("bytes"),
        Column("time", gives_way=2),
        Column("rate", gives_way=4),
    )
    rows = [
        (
            str(row.device),
            _DIRECTIONS.get(row.direction, row.direction),
            str(row.count),
            size(row.nbytes),
            duration_label(row.seconds),
            f"{size(row.rate)}/s",
        )
        for row in profile.copies
    ]
    return FittingTable(columns, rows, name=1)
