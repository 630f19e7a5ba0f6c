"""A time line of a run as an SVG picture, drawn from the trace that ``offload run --trace`` writes.

The picture has a row for each thread, stream and copy engine. It has no script and no font of its own, and one picture
is for light pages, the other for dark pages. `describe` says in words what it shows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

WIDTH_PX = 900
LABEL_PX = 150
"""The width of the names of the rows, left of the bars."""
ROW_PX = 24
BAR_PX = 18
HEADING_PX = 22
AXIS_PX = 26
LEGEND_PX = 26
LETTER_PX = 6.6
"""The width of a letter of 11 pixels."""
TICKS = 6
MOST_ROWS = 12
"""The rows of a device or of the host that a picture shows. A page has no room for more."""

FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"


@dataclass(frozen=True, slots=True)
class Kind:
    """How the bars of some categories of a trace look."""

    meaning: str
    categories: frozenset[str]
    light: tuple[str, str]  # fill and text
    dark: tuple[str, str]


KINDS = (
    Kind("host task", frozenset({"task", "coroutine"}), ("#4338ca", "#ffffff"), ("#a5b4fc", "#0f172a")),
    Kind("region on a device", frozenset({"target"}), ("#0e7490", "#ffffff"), ("#22d3ee", "#0f172a")),
    Kind("copy", frozenset({"copy"}), ("#b45309", "#ffffff"), ("#fbbf24", "#0f172a")),
    Kind("launch of a region", frozenset({"launch"}), ("#64748b", "#ffffff"), ("#94a3b8", "#0f172a")),
    Kind("event or request", frozenset({"detached", "MPI"}), ("#a21caf", "#ffffff"), ("#e879f9", "#0f172a")),
    Kind("wait", frozenset({"wait"}), ("#e2e8f0", "#1e293b"), ("#334155", "#f1f5f9")),
)
"""The kinds of bars, in the order of the legend. Categories that are in no kind lie within the bars of others."""


@dataclass(frozen=True, slots=True)
class Bar:
    """Something that lasted, on one row."""

    start_us: float
    end_us: float
    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Row:
    """The bars of a thread, a stream or a copy engine, none of which overlap except where one lies within another."""

    process: str
    name: str
    bars: tuple[Bar, ...]


def read_rows(events: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return the rows of a trace, the host's first, with times from the beginning of the first task on."""
    names = {(one["name"], one["pid"], one["tid"]): one["args"]["name"] for one in events if one["ph"] == "M"}
    kinds = {category: kind for kind in KINDS for category in kind.categories}
    ends = {one["id"]: one["ts"] for one in events if one["ph"] == "e"}
    found: dict[tuple[int, int], list[Bar]] = {}
    for one in events:
        if one["ph"] in {"X", "b"} and one["cat"] in kinds:
            end = one["ts"] + one["dur"] if one["ph"] == "X" else ends[one["id"]]
            bars = found.setdefault((one["pid"], one["tid"]), [])
            bars.append(Bar(one["ts"], end, one["name"], kinds[one["cat"]]))
    work = [bar for bars in found.values() for bar in bars if bar.kind.meaning != "wait"]
    if not work:
        return []
    first, last = min(bar.start_us for bar in work), max(bar.end_us for bar in work)
    return [
        Row(names["process_name", pid, pid], names["thread_name", pid, tid] + (f" ({lane})" if lane > 1 else ""), bars)
        for pid, tid in sorted(found, key=lambda place: (place[0], _natural(names["thread_name", *place])))
        for lane, bars in enumerate(_lanes(_within(found[pid, tid], first, last)), 1)
    ]


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key by which ``stream 10`` comes after ``stream 9``."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def _within(bars: Iterable[Bar], first: float, last: float) -> list[Bar]:
    """Return the parts of bars between two times, from the first of which they count."""
    return [
        Bar(max(bar.start_us, first) - first, min(bar.end_us, last) - first, bar.name, bar.kind)
        for bar in bars
        if bar.start_us <= last and bar.end_us >= first
    ]


def _lanes(bars: Iterable[Bar]) -> list[tuple[Bar, ...]]:
    """Divide bars into rows in which each bar lies beside or within the bar before it."""
    lanes: list[list[Bar]] = []
    open_until: list[list[float]] = []  # for each lane, the ends of the bars that the next one may lie within
    for bar in sorted(bars, key=lambda bar: (bar.start_us, -bar.end_us)):
        for ends in open_until:
            while ends and ends[-1] <= bar.start_us:
                ends.pop()
        free = (lane for lane, ends in enumerate(open_until) if not ends or bar.end_us <= ends[-1])
        lane = next(free, len(lanes))
        if lane == len(lanes):
            lanes.append([])
            open_until.append([])
        lanes[lane].append(bar)
        open_until[lane].append(bar.end_us)
    return [tuple(members) for members in lanes]


def describe(rows: Sequence[Row]) -> str:
    """Return what the picture shows, for readers who do not see it."""
    counts = {kind: sum(bar.kind is kind for row in rows for bar in row.bars) for kind in KINDS}
    bars = ", ".join(f"{count} × {kind.meaning}" for kind, count in counts.items() if count)  # noqa: RUF001  # the sign is meant
    processes = list(dict.fromkeys(row.process for row in rows))
    return f"Time line of {duration(_length_us(rows))} on {', '.join(processes)}: {bars}"


def to_svg(rows: Sequence[Row], *, is_dark: bool) -> str:
    """Return the picture as an SVG document."""
    paper, ink, line = ("#0f172a", "#f1f5f9", "#334155") if is_dark else ("#ffffff", "#111827", "#e2e8f0")
    length_us = _length_us(rows)
    scale = (WIDTH_PX - LABEL_PX - 14) / (length_us or 1)
    body, y = [], AXIS_PX
    for process, group in groupby(rows, lambda row: row.process):
        members = list(group)
        body.append(f'<text x="6" y="{y + 16}" font-weight="600" fill="{ink}">{escape(process)}</text>')
        y += HEADING_PX
        for row in members[:MOST_ROWS]:
            body.append(f'<text x="14" y="{y + 15}" fill="{ink}">{escape(_cut(row.name, LABEL_PX - 18))}</text>')
            body += _bars(row.bars, y, scale, is_dark=is_dark)
            y += ROW_PX
        if len(members) > MOST_ROWS:
            body.append(f'<text x="14" y="{y + 15}" fill="{ink}">and {len(members) - MOST_ROWS} more rows</text>')
            y += ROW_PX
    grid = []
    for tick_us in _ticks(length_us):
        x = LABEL_PX + tick_us * scale
        anchor = "start" if tick_us == 0 else "middle" if x < WIDTH_PX - LABEL_PX / 4 else "end"
        grid += [
            f'<path d="M{x:.1f},{AXIS_PX - 4}V{y}" stroke="{line}"/>',
            f'<text x="{x:.1f}" y="16" text-anchor="{anchor}" fill="{ink}">{duration(tick_us)}</text>',
        ]
    legend = _legend({bar.kind for row in rows for bar in row.bars}, y + 8, ink, is_dark=is_dark)
    height = y + LEGEND_PX + 4
    size = f'width="{WIDTH_PX}" height="{height}" viewBox="0 0 {WIDTH_PX} {height}"'
    look = f'{size} font-family="{FONT}" font-size="11"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="title" {look}>',
            f'<title id="title">{escape(describe(rows))}</title>',
            f'<rect width="100%" height="100%" fill="{paper}"/>',
            *grid,
            *body,
            *legend,
            "</svg>\n",
        ]
    )


def _length_us(rows: Sequence[Row]) -> float:
    return max((bar.end_us for row in rows for bar in row.bars), default=0.0)


def _visible(bars: Iterable[Bar], scale: float) -> list[Bar]:
    """Leave out bars that would lie within the same half pixel as the bar before them."""
    found: list[Bar] = []
    for bar in bars:
        if not found or round(2 * scale * bar.end_us) > round(2 * scale * found[-1].start_us):
            found.append(bar)
    return found


def _bars(bars: Iterable[Bar], top: float, scale: float, *, is_dark: bool) -> list[str]:
    shown, found = _visible(bars, scale), []
    for bar, after in zip(shown, [*shown[1:], None], strict=True):
        free_us = min(bar.end_us, after.start_us if after else bar.end_us) - bar.start_us
        found += _bar(bar, top, scale, free_us * scale, is_dark=is_dark)
    return found


def _bar(bar: Bar, top: float, scale: float, free_px: float, *, is_dark: bool) -> list[str]:
    """Return a bar, and its name if the name fits into the part that no other bar covers."""
    fill, ink = bar.kind.dark if is_dark else bar.kind.light
    x, width = LABEL_PX + bar.start_us * scale, max(0.8, (bar.end_us - bar.start_us) * scale)
    tooltip = f"{bar.name}: {duration(bar.end_us - bar.start_us)} from {duration(bar.start_us)} on"
    rounded = 2 if width > 4 else 0
    shape = f'<rect x="{x:.1f}" y="{top + 2}" width="{width:.1f}" height="{BAR_PX}" rx="{rounded}" fill="{fill}">'
    found = [f"{shape}<title>{escape(tooltip)}</title></rect>"]
    if len(bar.name) * LETTER_PX + 6 <= free_px:
        found.append(f'<text x="{x + 4:.1f}" y="{top + 15}" fill="{ink}">{escape(bar.name)}</text>')
    return found


def _legend(kinds: set[Kind], top: float, ink: str, *, is_dark: bool) -> list[str]:
    found, x = [], 14.0
    for kind in KINDS:
        if kind in kinds:
            fill = (kind.dark if is_dark else kind.light)[0]
            found += [
                f'<rect x="{x:.1f}" y="{top}" width="12" height="12" rx="2" fill="{fill}"/>',
                f'<text x="{x + 17:.1f}" y="{top + 10}" fill="{ink}">{kind.meaning}</text>',
            ]
            x += 17 + len(kind.meaning) * LETTER_PX + 18
    return found


def _ticks(length_us: float) -> list[float]:
    """Return round times from 0 to a length, at most one more than `TICKS`."""
    step = 0.001
    while step * TICKS < length_us:
        digit = f"{step:e}"[0]
        step *= 2.5 if digit == "2" else 2
    return [step * number for number in range(int(length_us / step) + 1)]


def duration(time_us: float) -> str:
    """Return a time with its unit."""
    for unit, size in (("s", 1e6), ("ms", 1e3), ("µs", 1.0)):
        if time_us >= size:
            return f"{time_us / size:.3g} {unit}"
    return f"{time_us * 1e3:.3g} ns" if time_us else "0"


def _cut(text: str, width: float) -> str:
    most = int(width / LETTER_PX)
    return text if len(text) <= most else text[: most - 1] + "…"
