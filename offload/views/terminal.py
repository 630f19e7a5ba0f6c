"""The dependence graph in the terminal. The only file that imports Rich.

There are three forms; the first that fits is taken. Each can be read back to exactly the edges of the graph.

* *picture*: boxes in layers, joined by lines (`offload.views.layout`). A line enters a box at ``▼``. If lines cross
  without touching, the horizontal one passes beneath the vertical one (``─│─``); ``┼``, ``├``, ``┬``, … always join.
* *rail*: one row for each task, as in ``git log --graph``: a task's line runs down from its mark to the last task that
  waits for it. ``○`` marks a task that nothing waits for, so its column is free below.
* *list*: one row for each task, its predecessors by number. For many open lines, and for terminals without
  these characters.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.measure import Measurement
from rich.text import Text

from offload.views.layout import Hop, Layout, bundle, place, route, spread
from offload.views.words import (
    SYMBOLS,
    device_label,
    drawn_edges,
    duration_label,
    is_copy,
    look_alike,
    phase,
    place_label,
    printable,
    summary,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from offload.tasks.graph import Graph, Node

MAX_PICTURE_NODES = 200  # graphs with more are drawn as a rail
MAX_ROWS = 1_000  # of a rail or a list
_MAX_NAME_CELLS = 28
_MAX_STATE_CELLS = 16
# Between two boxes, in cells.
_SPACE = 3
# A row of the rail needs this much to the right of its lines to say anything.
_MIN_ROW_CELLS = 30

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
    "● task; its lane ends at the last task that depends on it. ○ task without dependents. ┤├┴┼╰╯ lanes join; ─│─ "
    "lanes only cross. visualize('graph.svg') shows the kinds of dependence"
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
        graph, width = self._graph, options.max_width
        caption = Text(summary(graph), style="dim" if len(graph) <= MAX_PICTURE_NODES else "bold")
        if not graph.nodes:
            yield caption
            return
        if options.ascii_only:
            for line in [*_listing(graph), caption]:
                yield Text(look_alike(line.plain))
            return
        if len(graph) > MAX_PICTURE_NODES:
            yield caption
            yield Text(_census(graph), style="dim")
            yield from _rail(graph, width) or _listing(graph)
            if len(graph) > MAX_ROWS:
                yield Text(f"… and {len(graph) - MAX_ROWS} later tasks; visualize('graph.svg') draws all", style="dim")
            return
        yield from _picture(graph, width) or _rail(graph, width) or _listing(graph)
        yield caption

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(_MIN_ROW_CELLS, options.max_width), options.max_width)


def render(graph: Graph) -> RenderableType:
    """Return the text that Rich prints for `graph`: its layered picture, or a narrower form for a narrow console."""
    # The edges drawn are those that no longer path implies. Of a graph with more than `MAX_ROWS` tasks the first so
    # many are shown, with the edges among them.
    return GraphView(graph)


def _fit(text: str, cells: int) -> str:
    """Return printable text of at most so many cells, cut with an ellipsis."""
    text = printable(text)
    return text if cell_len(text) <= cells else set_cell_size(text, cells - 1).rstrip() + "…"


def _pad(text: str, cells: int) -> str:
    return text + " " * (cells - cell_len(text))


def _name(node: Node) -> str:
    return _fit(node.name or node.key, _MAX_NAME_CELLS)


def _state(node: Node) -> str:
    return f"{SYMBOLS[phase(node)]} {_fit(node.state, _MAX_STATE_CELLS)}"


def _device_style(node: Node) -> str:
    return "white" if node.device_num is None else _DEVICE_STYLES[node.device_num % len(_DEVICE_STYLES)]


def _name_style(node: Node) -> str:
    return "bold dark_orange3" if is_copy(node) else "bold"


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


def _box_width(node: Node, entries: int) -> int:
    """Return the width of a box for two lines of text and so many lines entering it, always odd."""
    # With odd widths, boxes of different widths can share a middle column.
    name, device, state, time = _cells(node)
    least = max(cell_len(name) + len(device), cell_len(state) + len(time)) + 6
    return max(least + 1 - least % 2, 2 * entries + 3)


def _picture(graph: Graph, width: int) -> list[Text]:
    """Return the lines of the layered picture, none if it is wider than `width`."""
    layers = graph.layers()
    layer_of = [0] * len(graph)  # by the number of the node
    for depth, layer in enumerate(layers):
        for node in layer:
            layer_of[node.index] = depth
    nets = bundle((edge.source.index, edge.target.index) for edge in drawn_edges(graph))
    entries = [0] * len(graph)  # lines that enter each box
    for net in nets:
        for target in net.targets:
            entries[target] += 1
    widths = [_box_width(node, most) for node, most in zip(graph.nodes, entries, strict=True)]
    # Most that do not fit are told by the boxes alone, before the cost of a layout.
    if any(sum(widths[node.index] for node in layer) + _SPACE * (len(layer) - 1) > width for layer in layers):
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
            _draw_box(canvas, row, left, widths[vertex], graph.nodes[vertex])
            for (_, lower), column in enters.items():
                if lower == vertex:
                    canvas.write(row, column, "▼", _LINE_STYLE)
            if vertex in leaves:
                canvas.write(row + 3, _middle(layout, vertex), "┬", _device_style(graph.nodes[vertex]))
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


def _draw_box(canvas: _Canvas, row: int, left: int, width: int, node: Node) -> None:
    name, device, state, time = _cells(node)
    border, last = _device_style(node), left + width - 2
    canvas.write(row, left, "┌" + "─" * (width - 2) + "┐", border)
    for line in (1, 2):
        canvas.write(row + line, left, "│" + " " * (width - 2) + "│", border)
    canvas.write(row + 1, left + 2, name, _name_style(node))
    canvas.write(row + 1, last - len(device), device, border)
    canvas.write(row + 2, left + 2, state, _PHASE_STYLES[phase(node)])
    canvas.write(row + 2, last - len(time), time, "")
    canvas.write(row + 3, left, "└" + "─" * (width - 2) + "┘", border)


# ----------------------------------------------------------------------------------------------- rail and list


def _pairs(graph: Graph) -> list[tuple[int, int]]:
    return sorted({(edge.source.index, edge.target.index) for edge in drawn_edges(graph, MAX_ROWS)})


def _rail(graph: Graph, width: int) -> list[Text]:
    """Return one line for each task with the lines of its dependences, none if there are too many lines."""
    nodes = graph.nodes[:MAX_ROWS]
    lanes = _lanes(len(nodes), _pairs(graph))
    across = max((len(row) for row in lanes), default=0)
    if across + 2 + _MIN_ROW_CELLS > width:
        return []
    wide = [max(map(cell_len, column)) for column in zip(*map(_cells, nodes), strict=True)]
    wide[0] = max(min(wide[0], width - across - 2 - sum(wide[1:]) - 6), 8)
    rows = []
    for node, lane in zip(nodes, lanes, strict=True):
        state = _PHASE_STYLES[phase(node)]
        text = Text()
        for column, char in enumerate(lane):
            text.append(char, f"bold {state}" if char in "●○" else _LANE_STYLES[column // 2 % len(_LANE_STYLES)])
        text.append(" " * (across - len(lane) + 2))
        name, device, word, time = _cells(node)
        text.append(_pad(_fit(name, wide[0]), wide[0] + 2), _name_style(node))
        text.append(_pad(device, wide[1] + 2), _device_style(node))
        text.append(_pad(word, wide[2] + 2), state)
        text.append(time.rjust(wide[3]))
        rows.append(text)
    return [*_lines(rows), Text(_RAIL_LEGEND, style="dim")]


def _cells(node: Node) -> tuple[str, str, str, str]:
    return _name(node), place_label(node), _state(node), duration_label(node.duration_s)


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


def _listing(graph: Graph) -> list[Text]:
    """Return one line for each task, with the numbers of those it waits for."""
    before: dict[int, list[int]] = defaultdict(list)
    for source, target in _pairs(graph):
        before[target].append(source)
    rows = []
    for node in graph.nodes[:MAX_ROWS]:
        text = Text.assemble(
            (f"#{node.index} ", "dim"),
            (_name(node), _name_style(node)),
            ", ",
            (place_label(node), _device_style(node)),
        )
        text.append(", ").append(_fit(node.state, _MAX_STATE_CELLS), _PHASE_STYLES[phase(node)])
        if node.duration_s is not None:
            text.append(f", {duration_label(node.duration_s)}")
        if before[node.index]:
            text.append(f", after {_ranges(before[node.index])}", _LINE_STYLE)
        rows.append(text)
    return rows


def _ranges(numbers: list[int]) -> str:
    """Return ascending numbers as ``#1, #3-#7``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"#{a}" if a == b else f"#{a}-#{b}" for a, b in runs)


def _census(graph: Graph) -> str:
    """Return one line on where the tasks of a large graph are."""
    devices: dict[str, int] = defaultdict(int)
    for node in graph.nodes:
        devices[device_label(node)] += 1
    layers = graph.layers()
    places = ", ".join(f"{count} on {device}" for device, count in sorted(devices.items()))
    return f"{places} · {len(layers)} layers, the widest of {max(map(len, layers))}"
