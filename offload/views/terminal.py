"""The dependence graph in the terminal. The only file that imports Rich.

A graph of more than `WHOLE` tasks begins with totals by name and the critical path; what follows is folded
(`offload.views.folding`). There are three forms; the first that fits is taken. Each can be read back to exactly the
lines of the folding.

* *picture*: boxes in layers, joined by lines (`offload.views.layout`). A line enters a box at ``▼``. If lines cross
  without touching, the horizontal one passes beneath the vertical one (``─│─``); ``┼``, ``├``, ``┬``, … always join.
* *rail*: one row for each box, as in ``git log --graph``: a box's line runs down from its mark to the last box that
  waits for it. ``○`` marks a box that nothing waits for, so its column is free below.
* *list*: one row for each box, its predecessors by number. For many open lines, and for terminals without
  these characters.
"""

from __future__ import annotations

import io
from collections import defaultdict
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.measure import Measurement
from rich.text import Text

from offload.views.folding import WHOLE, foldings
from offload.views.layout import Hop, Layout, bundle, place, route, spread
from offload.views.looks import MOST_TOTALS, see, state_text, totals
from offload.views.words import (
    CRITICAL_SIGN,
    KIND_SIGNS,
    KIND_WORDS,
    duration_label,
    look_alike,
    plural,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import ConsoleOptions, RenderableType, RenderResult

    from offload.tasks.graph import Graph
    from offload.views.folding import Fold, Folding
    from offload.views.looks import Look, Snapshot, Total

MOST_FOLDED = 24  # boxes of a graph that is folded: two or three screens
_MOST_DEVICES = 8  # in the line on where tasks are
_ENDS = 5  # tasks shown of each end of a long critical path
_MAX_NAME_CELLS = 28
_MAX_STATE_CELLS = 18
# Between two boxes, in cells.
_SPACE = 3
_MIN_NAME_CELLS = 8  # in a row of the rail: fewer say nothing
_MIN_CELLS = 20

_PHASE_STYLES = {
    "waiting": "bright_black",
    "running": "yellow",
    "done": "green",
    "failed": "bold red",
    "not run": "bright_black",
}
_DEVICE_STYLES = ("cyan", "magenta", "blue", "bright_cyan", "bright_magenta", "bright_blue")
_LANE_STYLES = ("blue", "magenta", "cyan", "yellow", "green", "bright_blue", "bright_magenta", "bright_cyan")
_LINE_STYLE = "bright_black"
_RAIL_LEGEND = (
    "● task    ○ task that no task waits for",
    "│ leads down from a task to the last one that waits for it",
    "├ ┤ ┴ ╯ the task in this row waits for it    ─│─ the lines only cross",
)

_UP, _RIGHT, _DOWN, _LEFT = 1, 2, 4, 8  # the arms of a line in a cell, as bits
_LINES = {
    _UP | _DOWN: "│",
    _LEFT | _RIGHT: "─",
    _DOWN | _RIGHT: "╭",
    _DOWN | _LEFT: "╮",
    _UP | _RIGHT: "╰",
    _UP | _LEFT: "╯",
    _UP | _DOWN | _RIGHT: "├",
    _UP | _DOWN | _LEFT: "┤",
    _LEFT | _RIGHT | _DOWN: "┬",
    _LEFT | _RIGHT | _UP: "┴",
    _UP | _RIGHT | _DOWN | _LEFT: "┼",
}


class GraphView:
    """A Rich renderable of a graph, drawn anew for the console that asks."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = _view(see(self._graph), options.max_width, ascii_only=options.ascii_only)
        if options.ascii_only:
            yield from (Text(look_alike(row.plain)) for row in rows)
        else:
            yield from rows

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(_MIN_CELLS, options.max_width), options.max_width)


def render(graph: Graph) -> RenderableType:
    """Return the text that Rich prints for `graph`: its layered picture, or a narrower form for a narrow console."""
    return GraphView(graph)


def _view(snapshot: Snapshot, width: int, *, ascii_only: bool) -> Iterator[Text]:
    """Yield the lines of a graph."""
    if len(snapshot.looks) <= WHOLE:
        folding = next(foldings(snapshot))
        if snapshot.looks:
            yield from _form([folding], width, ascii_only=ascii_only)
        yield Text(snapshot.summary, style="dim")
        yield from [] if ascii_only else _signs(folding, width)
        return
    yield Text(snapshot.summary, style="bold")
    yield from _census(snapshot)
    yield Text()
    yield from _totals_rows(totals(snapshot.looks), width)
    yield Text()
    yield from path_rows([snapshot.looks[index] for index in snapshot.path], width)
    yield Text()
    found = list(foldings(snapshot, MOST_FOLDED))
    yield from _form(found, width, ascii_only=ascii_only)
    yield Text("A box stands for the tasks that it counts. visualize('graph.html') shows each task.", style="dim")
    yield from [] if ascii_only else _signs(found[0], width)


def _form(found: list[Folding], width: int, *, ascii_only: bool) -> list[Text]:
    """Return the lines of the first folding whose picture fits, else of a rail, else of a list."""
    if ascii_only:
        return _listing(found[0])
    for folding in found:
        rows = _picture(folding, width)
        if rows:
            return rows
    return _rail(found[0], width) or _listing(found[0])


def _signs(folding: Folding, width: int) -> list[Text]:
    """Return the meaning of the signs before the names, in one line if it fits."""
    kinds = {look.kind for look in folding.snapshot.looks}
    signs = [f"{KIND_SIGNS[kind]} {KIND_WORDS[kind]}" for kind in KIND_SIGNS if kind in kinds]
    if folding.snapshot.path:
        signs.append(f"{CRITICAL_SIGN} on the critical path")
    line = "    ".join(signs)
    return [Text(text, style="dim") for text in ([line] if cell_len(line) <= width else signs)]


def _census(snapshot: Snapshot) -> list[Text]:
    """Return one line on where the tasks of a large graph are."""
    devices: dict[str, int] = defaultdict(int)
    widths: dict[int, int] = defaultdict(int)
    for look in snapshot.looks:
        devices[look.device] += 1
        widths[look.layer] += 1
    most = sorted(devices.items(), key=lambda item: -item[1])
    places = ", ".join(f"{count:,} on {device}" for device, count in sorted(most[:_MOST_DEVICES]))
    places += f", … on {plural(len(devices) - _MOST_DEVICES, 'more device')}" if len(devices) > _MOST_DEVICES else ""
    return [Text(f"{places} · {plural(len(widths), 'layer')}, the widest of {max(widths.values()):,}", style="dim")]


def _totals_rows(found: list[Total], width: int) -> list[Text]:
    """Return a row for each name, the longest total first, with as many columns as have room."""
    head = ("name", "tasks", "total", "longest", CRITICAL_SIGN, "state")
    rows = [head, *map(_total_cells, found[:MOST_TOTALS])]
    while len(rows[0]) > 2 and sum(_widest(rows)) + 2 * (len(rows[0]) - 1) > width:
        rows = [row[:-1] for row in rows]
    wide = _widest(rows)
    wide[0] = min(wide[0], max(width - sum(wide[1:]) - 2 * (len(wide) - 1), 8))
    texts = []
    for number, row in enumerate(rows):
        text = Text(style="" if number else "dim")
        text.append(_pad(_fit(row[0], wide[0]), wide[0]), "bold" if number else "")
        for column, (cell, cells) in enumerate(zip(row[1:], wide[1:], strict=True), start=1):
            # The state is a text and stands to the left of its column, numbers to the right.
            text.append("  " + (cell if column == len(head) - 1 else " " * (cells - cell_len(cell)) + cell))
        texts.append(text)
    if len(found) > MOST_TOTALS:
        rest = sum(total.tasks for total in found[MOST_TOTALS:])
        more = plural(len(found) - MOST_TOTALS, "more name")
        texts.append(Text(f"… and {more} with {plural(rest, 'task')}", style="dim"))
    return texts


def _widest(rows: list[tuple[str, ...]]) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(*rows, strict=True)]


def _total_cells(total: Total) -> tuple[str, ...]:
    return (
        f"{KIND_SIGNS[total.kind]} {_fit(total.name, _MAX_NAME_CELLS)}",
        f"{total.tasks:,}",
        duration_label(total.time_s),
        duration_label(total.longest_s),
        f"{total.critical:,}" if total.critical else "",
        total.phases,
    )


class PathView:
    """A Rich renderable of a critical path."""

    def __init__(self, path: list[Look]) -> None:
        self._path = path

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for row in path_rows(self._path, options.max_width):
            yield Text(look_alike(row.plain)) if options.ascii_only else row


def path_rows(path: list[Look], width: int) -> list[Text]:
    """Return a head and a row for each task of a critical path, of a long one for the tasks at its ends."""
    time_s = sum(look.time_s or 0 for look in path)
    head = f"Critical path: {plural(len(path), 'task')}" + (f", {duration_label(time_s)}" if time_s else "")
    shown = path if len(path) <= 2 * _ENDS + 1 else [*path[:_ENDS], *path[-_ENDS:]]
    if not path:
        return [Text(head, style="bold")]
    wide = min(max(cell_len(_fit(look.key, _MAX_NAME_CELLS)) for look in shown), max(width - 24, 8))
    rows = [Text(head, style="bold")]
    for number, look in enumerate(shown):
        if len(shown) < len(path) and number == _ENDS:
            rows.append(Text(f"  … {plural(len(path) - len(shown), 'task')} …", style="dim"))
        share = f"{(look.time_s or 0) / time_s:6.0%}" if time_s else ""
        rows.append(
            Text.assemble(
                f"{CRITICAL_SIGN} {KIND_SIGNS[look.kind]} ",
                (_pad(_fit(look.key, wide), wide), _NAME_STYLES[look.kind]),
                f"  {duration_label(look.time_s):>8}{share}  ",
                (look.place, _device_style(look.device)),
            )
        )
    return rows


def _fit(text: str, cells: int) -> str:
    """Return text of at most so many cells, cut with an ellipsis."""
    return text if cell_len(text) <= cells else set_cell_size(text, cells - 1).rstrip() + "…"


def _pad(text: str, cells: int) -> str:
    return text + " " * (cells - cell_len(text))


def _name(fold: Fold) -> str:
    signs = (CRITICAL_SIGN if fold.critical else "", KIND_SIGNS[fold.kind] if fold.kind else "")
    return " ".join(filter(None, (*signs, _fit(fold.title, _MAX_NAME_CELLS), fold.count_label)))


def _state(fold: Fold) -> str:
    return " · ".join(filter(None, (_fit(state_text(fold.looks), _MAX_STATE_CELLS), fold.depth_label)))


def _device_style(device: str) -> str:
    number = device.removeprefix("dev ").partition("+")[0].partition(",")[0]
    return _DEVICE_STYLES[int(number) % len(_DEVICE_STYLES)] if number.isdigit() else "white"


_NAME_STYLES = {"copy": "bold dark_orange3", "target": "bold", "task": "bold", "wait": "bold", None: "bold"}


def _lines(rows: Iterable[Text]) -> list[Text]:
    found = []
    for row in rows:
        row.rstrip()
        row.no_wrap, row.overflow = True, "crop"
        found.append(row)
    return found


# ---------------------------------------------------------------------------------------------------- picture


class _Canvas:
    """Cells with a character and a style each; a wide character is followed by an empty cell."""

    def __init__(self) -> None:
        self.rows: list[dict[int, tuple[str, str]]] = []  # by column, a character and its style

    def write(self, row: int, column: int, text: str, style: str) -> None:
        while len(self.rows) <= row:
            self.rows.append({})
        for char in text:
            cells = cell_len(char)
            if not cells:
                before, its_style = self.rows[row].get(column - 1, ("", style))
                self.rows[row][column - 1] = (before + char, its_style)
                continue
            self.rows[row][column] = (char, style)
            for extra in range(1, cells):
                self.rows[row][column + extra] = ("", style)
            column += cells

    def texts(self) -> list[Text]:
        return _lines(self._text(row) for row in self.rows)

    @staticmethod
    def _text(row: dict[int, tuple[str, str]]) -> Text:
        cells = [row.get(column, (" ", "")) for column in range(max(row, default=-1) + 1)]
        runs = groupby(cells, key=itemgetter(1))
        return Text.assemble(*(("".join(char for char, _ in run), style) for style, run in runs))


def _box_width(fold: Fold, entries: int) -> int:
    """Return the width of a box for two lines of text and so many lines entering it, always odd."""
    # With odd widths, boxes of different widths can share a middle column.
    name, device, state, time = _cells(fold)
    least = max(cell_len(name) + len(device), cell_len(state) + len(time)) + 6
    return max(least + 1 - least % 2, 2 * entries + 3)


def _picture(folding: Folding, width: int) -> list[Text]:
    """Return the lines of the layered picture, none if it is wider than `width`."""
    folds = folding.folds
    nets = bundle((strand.source, strand.target) for strand in folding.drawn)
    entries = [0] * len(folds)  # lines that enter each box
    for net in nets:
        for target in net.targets:
            entries[target] += 1
    widths = [_box_width(fold, most) for fold, most in zip(folds, entries, strict=True)]
    layer_of = [fold.layer for fold in folds]
    across: dict[int, int] = defaultdict(lambda: -_SPACE)
    for layer, cells in zip(layer_of, widths, strict=True):
        across[layer] += cells + _SPACE
    # Most that do not fit are told by the boxes alone, before the cost of a layout.
    if max(across.values()) > width:
        return []
    layout = place(layer_of, widths, nets, space=_SPACE, line_space=2)
    if layout.total_width > width:
        return []
    canvas = _Canvas()
    row = 0
    for depth, vertices in enumerate(layout.layers):
        hops = layout.hops[depth - 1] if depth else []
        enters = _enter(layout, hops)
        if depth:
            row = _draw_gap(canvas, row, layout, hops, enters)
        leaves = {upper for hop in layout.hops[depth] for upper in hop.uppers} if depth < len(layout.hops) else set()
        for vertex in vertices:
            left = int(layout.left[vertex])
            if vertex >= layout.node_count:
                for line in range(4):
                    canvas.write(row + line, left, "│", _LINE_STYLE)
                continue
            _draw_box(canvas, row, left, widths[vertex], folds[vertex])
            for (_, lower), column in enters.items():
                if lower == vertex:
                    canvas.write(row, column, "▼", _LINE_STYLE)
            if vertex in leaves:
                canvas.write(row + 3, _middle(layout, vertex), "┬", _device_style(folds[vertex].place))
        row += 4
    # A split line may have gone round the outside.
    return canvas.texts() if all(max(cells) < width for cells in canvas.rows) else []


def _middle(layout: Layout, vertex: int) -> int:
    return int(layout.left[vertex]) + layout.width[vertex] // 2


def _enter(layout: Layout, hops: list[Hop]) -> dict[tuple[int, int], int]:
    """Return the column in which each hop, by its number here, enters each of its lower vertices."""
    wished: dict[int, list[tuple[float, int, int | None]]] = defaultdict(list)
    for number, hop in enumerate(hops):
        uppers = [_middle(layout, upper) for upper in hop.uppers]
        for lower in hop.lowers:
            middle = _middle(layout, lower)
            reach = layout.width[lower] // 2 - 2
            nearest = min(uppers, key=lambda column: abs(column - middle))
            wished[lower].append(
                (sum(uppers) / len(uppers), number, nearest if abs(nearest - middle) <= reach else None)
            )
    enters: dict[tuple[int, int], int] = {}
    for lower, lines in wished.items():
        lines.sort(key=lambda line: line[:2])
        middle, half = _middle(layout, lower), layout.width[lower] // 2
        step = 4 if 4 * len(lines) <= layout.width[lower] - 2 else 2
        wishes = [
            straight if straight is not None else middle + step * i - step * (len(lines) - 1) // 2
            for i, (_, _, straight) in enumerate(lines)
        ]
        weights = [1.0 if straight is None else 20.0 for _, _, straight in lines]
        found = spread(wishes, [2] * (len(lines) - 1), weights)
        for i, (column, (_, number, _)) in enumerate(zip(found, lines, strict=True)):
            # Leave room within the border for those to the left and to the right; a passing line has none.
            room = max(half - 1, 0)
            least, most = middle - room + 2 * i, middle + room - 2 * (len(lines) - 1 - i)
            enters[number, lower] = min(max(int(column + 1e-6), least), most)
    return enters


def _draw_gap(canvas: _Canvas, top: int, layout: Layout, hops: list[Hop], enters: dict[tuple[int, int], int]) -> int:
    """Draw the lines between two layers from row `top`; return the row below them."""
    columns = [
        ([_middle(layout, u) for u in hop.uppers], [enters[i, lower] for lower in hop.lowers])
        for i, hop in enumerate(hops)
    ]
    tracks, used = route(columns)
    rows = max(used, 1)
    cells: dict[tuple[int, int], int] = {}  # by row and column, the arms of horizontal lines and of their ends
    verticals: set[tuple[int, int]] = set()

    def down(column: int, first: int, last: int) -> None:
        verticals.update((row, column) for row in range(first, last))

    for track in tracks:
        row, low, high = track.row, min(track.columns), max(track.columns)
        for column in range(low, high + 1):
            cells[row, column] = (_RIGHT if column < high else 0) | (_LEFT if column > low else 0)
        for column in track.ups:
            cells[row, column] |= _UP
            down(column, 0, row)
        for column in track.downs:
            cells[row, column] |= _DOWN
            down(column, row + 1, rows)
        if track.link is not None:
            cells[row, track.link] |= _UP if track.after else _DOWN
            if track.after:
                down(track.link, track.after.row + 1, row)
    for ups, downs in columns:
        if {*ups, *downs} == {*ups[:1]}:
            down(ups[0], 0, rows)
    for (row, column), arms in cells.items():
        canvas.write(top + row, column, _LINES[arms], _LINE_STYLE)
    # Afterwards, so that a vertical line passes over a horizontal one.
    for row, column in verticals:
        canvas.write(top + row, column, "│", _LINE_STYLE)
    return top + rows


def _draw_box(canvas: _Canvas, row: int, left: int, width: int, fold: Fold) -> None:
    name, device, state, time = _cells(fold)
    border, last = _device_style(fold.place), left + width - 2
    canvas.write(row, left, "┌" + "─" * (width - 2) + "┐", border)
    for line in (1, 2):
        canvas.write(row + line, left, "│" + " " * (width - 2) + "│", border)
    canvas.write(row + 1, left + 2, name, _NAME_STYLES[fold.kind])
    canvas.write(row + 1, last - len(device), device, border)
    canvas.write(row + 2, left + 2, state, _PHASE_STYLES[fold.phase])
    canvas.write(row + 2, last - len(time), time, "")
    canvas.write(row + 3, left, "└" + "─" * (width - 2) + "┘", border)


# ----------------------------------------------------------------------------------------------- rail and list


def _pairs(folding: Folding) -> list[tuple[int, int]]:
    return sorted({(strand.source, strand.target) for strand in folding.drawn})


def _rail(folding: Folding, width: int) -> list[Text]:
    """Return one line for each box with the lines of its dependences, none if there are too many lines."""
    lanes = _lanes(len(folding.folds), _pairs(folding))
    across = max((len(row) for row in lanes), default=0)
    wide = [max(map(cell_len, column)) for column in zip(*map(_cells, folding.folds), strict=True)]
    room = width - across - 2 - sum(wide[1:]) - 6  # for the names
    if room < _MIN_NAME_CELLS:
        return []
    wide[0] = min(wide[0], room)
    rows = []
    for fold, lane in zip(folding.folds, lanes, strict=True):
        state = _PHASE_STYLES[fold.phase]
        text = Text()
        for column, char in enumerate(lane):
            text.append(char, f"bold {state}" if char in "●○" else _LANE_STYLES[column // 2 % len(_LANE_STYLES)])
        text.append(" " * (across - len(lane) + 2))
        name, device, word, time = _cells(fold)
        text.append(_pad(_fit(name, wide[0]), wide[0] + 2), _NAME_STYLES[fold.kind])
        text.append(_pad(device, wide[1] + 2), _device_style(device))
        text.append(_pad(word, wide[2] + 2), state)
        text.append(time.rjust(wide[3]))
        rows.append(text)
    return [*_lines(rows), *(Text(line, style="dim") for line in _RAIL_LEGEND)]


def _cells(fold: Fold) -> tuple[str, str, str, str]:
    return _name(fold), fold.place, _state(fold), fold.time_label


def _lanes(count: int, pairs: list[tuple[int, int]]) -> list[str]:
    """Return the line characters of each row; lane `k` is column ``2 * k``."""
    before: dict[int, list[int]] = defaultdict(list)
    last: dict[int, int] = {}
    for source, target in pairs:
        before[target].append(source)
        last[source] = max(target, last.get(source, 0))
    lanes: list[int | None] = []
    rows: list[str] = []
    for task in range(count):
        meets = {lanes.index(source): source for source in before[task]}
        ending = sorted(lane for lane, source in meets.items() if last[source] == task)
        # Go on in a line that ends here, else in the first free column.
        own = ending[0] if ending else next((k for k, s in enumerate(lanes) if s is None), len(lanes))
        if own == len(lanes):
            lanes.append(None)
        low, high = min([own, *meets]), max([own, *meets])
        row = ""
        for lane, holder in enumerate(lanes):
            arms = (_LEFT if low < lane <= high else 0) | (_RIGHT if low <= lane < high else 0)
            if lane == own:
                char = "●" if task in last else "○"
            elif lane in meets:
                char = _LINES[arms | _UP | (0 if lane in ending else _DOWN)]
            else:
                char = "│" if holder is not None else "─" if arms else " "
            row += char + ("─" if arms & _RIGHT else " ")
        rows.append(row.rstrip())
        for lane in ending:
            lanes[lane] = None
        lanes[own] = task if task in last else None
        while lanes and lanes[-1] is None:
            lanes.pop()
    return rows


def _listing(folding: Folding) -> list[Text]:
    """Return one line for each box, with the numbers of those it waits for."""
    before: dict[int, list[int]] = defaultdict(list)
    for source, target in _pairs(folding):
        before[target].append(source)
    rows = []
    for fold in folding.folds:
        text = Text.assemble(
            (f"#{fold.number} ", "dim"),
            (" ".join(filter(None, (_fit(fold.title, _MAX_NAME_CELLS), fold.count_label))), _NAME_STYLES[fold.kind]),
            f", {fold.kind or 'tasks'}, ",
            (fold.place, _device_style(fold.place)),
        )
        text.append(", ").append(_words(fold), _PHASE_STYLES[fold.phase])
        if fold.time_label:
            text.append(f", {fold.time_label}")
        if before[fold.number]:
            text.append(f", after {_ranges(before[fold.number])}", _LINE_STYLE)
        if fold.critical:
            text.append(", on the critical path")
        rows.append(text)
    return rows


def _words(fold: Fold) -> str:
    """Return the states of a box in words, since a list is for terminals without signs."""
    states = dict.fromkeys(look.state for look in fold.looks)
    text = next(iter(states)) if len(states) == 1 else fold.phase
    return ", ".join(filter(None, (_fit(text, _MAX_STATE_CELLS), fold.depth_label)))


def _ranges(numbers: list[int]) -> str:
    """Return ascending numbers as ``#1, #3-#7``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"#{a}" if a == b else f"#{a}-#{b}" for a, b in runs)


# ---------------------------------------------------------------------------------------------------- printing


def plain_text(shown: object, width: int = 120) -> str:
    """Return what Rich prints, without colours."""
    file = io.StringIO()
    Console(file=file, width=width, color_system=None, force_terminal=False, force_jupyter=False).print(shown, end="")
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def print_quietly(shown: object) -> None:
    """Print on the standard output, whatever it is; if nobody reads it any longer, print nothing."""
    # A closed stream is a ValueError, a pipe that nobody reads an OSError; Rich ends the program for the latter.
    with suppress(OSError, ValueError):
        _SafeConsole().print(shown)


class _SafeConsole(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError
