"""Profiles in the terminal and in notebooks, by Rich."""

from __future__ import annotations

from io import StringIO
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

_MOST_ROWS = 30
_MOST_STEPS = 12
_NAME_WIDTH = 40
_DIRECTIONS = {"to": "to the device", "from": "to the host", "device": "between devices"}


def profile_tables(profile: Any) -> Group:
    """Return the tables of a `offload.reports.profile.RunProfile`."""
    parts = ", ".join(f"{name} {seconds(value)}" for name, value in profile.parts.items())
    shown: list[Any] = [
        Text(f"The run took {seconds(profile.wall_s)}. Its tasks, by name:"),
        _tasks(profile),
        Text(f"The critical path: {parts}"),
        _path(profile),
    ]
    if profile.copies:
        shown += [Text("Copies:"), _copies(profile)]
    return Group(*shown)


def bundle_of(shown: Any) -> dict[str, str]:
    """Return what a notebook shows of an object that Rich prints: HTML, and plain text."""
    console = Console(file=StringIO(), record=True, width=110, force_terminal=False)
    console.print(shown)
    html = console.export_html(inline_styles=True, clear=False, code_format="<pre>{code}</pre>")
    return {"text/html": html, "text/plain": console.export_text()}


def short(name: str) -> Text:
    """Return a name as one line that is not read as markup."""
    line = " ".join(name.split())
    return Text(line if len(line) <= _NAME_WIDTH else line[: _NAME_WIDTH - 1] + "…", no_wrap=True)


def seconds(value: float) -> str:
    """Return a time with three digits and its unit."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if value * factor >= 1 or unit == "µs":
            return f"{value * factor:.3g} {unit}" if value * factor < 1000 else f"{value * factor:.0f} {unit}"
    return ""


def size(nbytes: float) -> str:
    """Return a number of bytes with its unit."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if nbytes < 1000 or unit == "TB":
            return f"{nbytes:.3g} {unit}"
        nbytes /= 1000
    return ""


def _tasks(profile: Any) -> Table:
    table = Table()
    table.add_column("task", overflow="ellipsis")
    for heading in ("count", "total", "mean", "longest", "share", "ready, not begun", "on the path"):
        table.add_column(heading, justify="right")
    for row in profile.rows[:_MOST_ROWS]:
        name = short(row.name)
        if row.failed:
            name.append(f" ({row.failed} failed)", style="red")
        table.add_row(
            name,
            str(row.count),
            seconds(row.total_s),
            seconds(row.mean_s),
            seconds(row.longest_s),
            f"{row.share:.1%}",
            seconds(row.waited_s),
            seconds(row.path_s),
        )
    rest = profile.rows[_MOST_ROWS:]
    if rest:
        count, total_s = sum(row.count for row in rest), sum(row.total_s for row in rest)
        table.add_row(Text(f"{len(rest)} more names"), str(count), seconds(total_s))
    return table


def _path(profile: Any) -> Table:
    table = Table()
    for heading, justify in (("at", "right"), ("for", "right"), ("what", "left"), ("task", "left")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]  # one of Rich's words
    longest = sorted(profile.path, key=lambda step: -step.seconds)[:_MOST_STEPS]
    for step in sorted(longest, key=lambda step: step.start_s):
        table.add_row(seconds(step.start_s), seconds(step.seconds), step.kind, short(_what(step)))
    if len(profile.path) > len(longest):
        table.caption = f"the longest {len(longest)} of {len(profile.path)} stretches"
    return table


def _what(step: Any) -> str:
    if step.kind in {"wait", "idle"}:
        return f"until {step.key} began" if step.key else ""
    return str(step.key)


def _copies(profile: Any) -> Table:
    table = Table()
    for heading in ("device", "direction", "count", "bytes", "time", "rate"):
        table.add_column(heading, justify="left" if heading == "direction" else "right")
    for row in profile.copies:
        table.add_row(
            str(row.device),
            _DIRECTIONS.get(row.direction, row.direction),
            str(row.count),
            size(row.nbytes),
            seconds(row.seconds),
            f"{size(row.rate)}/s",
        )
    return table
