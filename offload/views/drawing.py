"""The positions of the boxes and lines of a picture, in pixels. Pure: it writes no format.

The geometry is that of the terminal (`offload.views.layout`). Here a net joins one source with the targets of one kind
of dependence, so that kinds keep their colours, and its lines are curves that share their way as long as they can.
Waits are bundled as in the terminal: tasks that wait for the same tasks share one line, since 40 tasks before a
taskwait are one order, not 40 reasons. Other kinds are bundled from `_BUNDLED` sources on.

A picture stays within `MAX_PX` on both sides. A layer that would be wider is broken into rows. A picture that would be
higher is broken into columns, each read from its top to its bottom; lines lead from one to the next between them. If
neither suffices, the next coarser folding is drawn.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from offload.views.folding import Fold, foldings
from offload.views.layout import Layout, Net, bundle, place
from offload.views.looks import state_text
from offload.views.words import CRITICAL_SIGN, KIND_SIGNS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offload.tasks.graph import EdgeKind
    from offload.views.folding import Folding
    from offload.views.looks import Snapshot

MAX_PX = 4_000  # of a whole picture: browsers and viewers refuse pictures that are much larger
MARGIN_PX = 24
CELL_PX = 7.25  # a monospaced character at 12 px
BOX_PX = 46
_LEGEND_PX = 220  # at most
_GAP_PX = 58
_PORT_PX = 14  # between two lines that enter, or leave, the same box
_MAX_PORTS_PX = 420  # for all of them; then they stand closer
_LANE_PX = 8  # between two lines on their way to the next column
_TURN_PX = 16  # from a box to the first of them, and to the arrow head behind the last
_HIGH_PX = 2_400  # a picture that would be higher is broken into columns
_SHAPE = 1.4  # the width of a picture in columns for a height of 1
_ROWS_PX = (2_400, 3_400, 1_600)  # the widths to which a layer is broken, tried in this order
_BUNDLED = 8
_MAX_LINES = 700  # more cannot be told apart
_MAX_NAME_CELLS = 36


class Pixel(NamedTuple):
    """A place in the drawing."""

    x: float  # pixels from the left
    y: float  # pixels from the top


class Spot(NamedTuple):
    """The upper left corner of a box and its width, in pixels."""

    x: float
    y: float
    width: float


@dataclass(frozen=True, slots=True)
class Drawing:
    """A folding with the places of its boxes and lines."""

    folding: Folding
    spots: list[Spot]  # of each fold
    nets: list[tuple[Net, EdgeKind]]
    stems: dict[int, list[str]]  # for each net of several sources, the SVG paths that lead them together
    arrows: dict[int, dict[int, str]]  # for each net, the SVG path that arrives at each target
    width: float  # pixels without margins and legend
    height: float


def draw(snapshot: Snapshot) -> Drawing:
    """Return the finest drawing of a graph that has room within `MAX_PX`."""
    drawing = None
    for folding in foldings(snapshot):
        if len(folding.drawn) > _MAX_LINES and len(folding.folds) > 1:
            continue
        for drawing in _drawings(folding):
            if drawing.width <= MAX_PX - 2 * MARGIN_PX and drawing.height <= MAX_PX - 2 * MARGIN_PX - _LEGEND_PX:
                return drawing
    raise AssertionError(f"no folding of {snapshot.summary} has room")  # a box for all tasks has


def cells(text: str) -> int:
    """Return how many cells of a terminal, or of `CELL_PX` pixels, a text takes."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def box_name(fold: Fold) -> str:
    """Return the first text of a box: signs, name and count."""
    title = fold.title if len(fold.title) <= _MAX_NAME_CELLS else fold.title[: _MAX_NAME_CELLS - 1] + "…"
    sign = KIND_SIGNS[fold.kind] if fold.kind else ""
    return " ".join(filter(None, (CRITICAL_SIGN if fold.critical else "", sign, title, fold.count_label)))


def box_state(fold: Fold) -> str:
    """Return the text below the name of a box."""
    return " · ".join(filter(None, (state_text(fold.looks), fold.depth_label)))


def _width(fold: Fold) -> float:
    first = cells(box_name(fold)) + 2 + len(fold.place)
    second = cells(box_state(fold)) + 2 + len(fold.time_label)
    return max(first, second, 12) * CELL_PX + 28


def _odd(width: float) -> int:
    # Odd, as passing lines are, so that equal centres stay equal on whole pixels and vertical lines sharp.
    return 2 * round(width / 2) + 1


def _nets(folding: Folding) -> list[tuple[Net, EdgeKind]]:
    by_kind: dict[EdgeKind, dict[tuple[int, int], None]] = defaultdict(dict)  # ordered: one graph, one picture
    for strand in folding.drawn:
        by_kind[strand.kind][strand.source, strand.target] = None
    nets: list[tuple[Net, EdgeKind]] = []
    for kind, pairs in by_kind.items():
        for net in bundle(pairs):
            if kind == "wait" or len(net.sources) >= _BUNDLED:
                nets.append((net, kind))
            else:
                nets += [(Net((source,), net.targets), kind) for source in net.sources]
    return nets


def _drawings(folding: Folding) -> Iterator[Drawing]:
    """Yield drawings of a folding whose layers are broken at several widths."""
    nets = _nets(folding)
    entries = [0] * len(folding.folds)
    for net, _ in nets:
        for target in net.targets:
            entries[target] += 1
    widths = [
        _odd(max(_width(fold), min(_PORT_PX * most, _MAX_PORTS_PX) + 16))
        for fold, most in zip(folding.folds, entries, strict=True)
    ]
    tried = set()
    for most in _ROWS_PX:
        rows = tuple(_rows(folding, widths, most))
        if rows not in tried:
            tried.add(rows)
            layout = place(rows, widths, [net for net, _ in nets], space=28, line_space=18)
            raster = _raster(layout)
            spots = [
                Spot(layout.left[i] + raster.shift(row), raster.top(row), layout.width[i]) for i, row in enumerate(rows)
            ]
            yield Drawing(folding, spots, nets, *_paths(layout, raster), raster.width, raster.height)


def _rows(folding: Folding, widths: list[int], most: int) -> list[int]:
    """Return the row of each box: its layer's, or one of several if its layer is too wide."""
    layers: dict[int, list[int]] = defaultdict(list)
    for fold in folding.folds:
        layers[fold.layer].append(fold.number)
    row_of = [0] * len(folding.folds)
    row = 0
    for _, boxes in sorted(layers.items()):
        total = sum(widths[box] + 28 for box in boxes)
        parts = 1 if total <= MAX_PX - 2 * MARGIN_PX else -(-total // most)
        for at, box in enumerate(boxes):
            row_of[box] = row + at * parts // len(boxes)
        row += parts
    numbers = {old: new for new, old in enumerate(sorted(set(row_of)))}  # none is empty
    return [numbers[row] for row in row_of]


@dataclass(frozen=True, slots=True)
class _Raster:
    """The places of the rows: columns of ``rows`` rows each, below ``head`` pixels."""

    rows: int  # in a column
    head: int  # pixels above the first row
    shifts: list[float]  # of each column, how far its boxes move to the right
    ends: list[float]  # of each column, the right end of its boxes
    width: float  # pixels of the drawing
    height: int  # pixels of the drawing

    def top(self, row: int) -> int:
        """Return the upper edge of the boxes of a row."""
        return self.head + row % self.rows * (BOX_PX + _GAP_PX)

    def shift(self, row: int) -> float:
        """Return how far to the right the boxes of a row's column move."""
        return self.shifts[row // self.rows]

    def breaks_after(self, row: int) -> bool:
        """Tell whether the next row stands in the next column."""
        return (row + 1) % self.rows == 0

    def turn(self, row: int, lane: int) -> tuple[Pixel, float]:
        """Return where a line turns upwards behind a column's last row, and the height at which it turns back."""
        x = self.ends[row // self.rows] + _TURN_PX + _LANE_PX * lane
        # The outermost below is the outermost above, so that lines of one column do not cross between the columns.
        return Pixel(x, self.top(row) + BOX_PX + _TURN_PX + _LANE_PX * lane), (self.head - _TURN_PX - _LANE_PX * lane)


def _raster(layout: Layout) -> _Raster:
    depth = len(layout.layers)
    height = max(depth * (BOX_PX + _GAP_PX) - _GAP_PX, 0)
    most = MAX_PX - 2 * MARGIN_PX - _LEGEND_PX
    if height <= _HIGH_PX:
        return _Raster(max(depth, 1), 0, [0], [layout.total_width], layout.total_width, height)
    raster = _columns(layout, depth)
    for columns in range(2, depth + 1):
        # More columns make a picture lower and wider: take the first that has the wanted shape.
        found = _columns(layout, -(-depth // columns))
        if found.width > most and raster.height <= most:
            break
        raster = found
        if raster.height <= most and raster.width >= _SHAPE * raster.height:
            break
    return raster


def _columns(layout: Layout, rows: int) -> _Raster:
    """Return the raster with so many rows in a column."""
    depth = len(layout.layers)
    lanes = max((len(layout.hops[row]) for row in range(rows - 1, depth - 1, rows)), default=1)
    across = _LANE_PX * (lanes - 1) + 2 * _TURN_PX
    shifts: list[float] = []
    ends: list[float] = []
    start = 0.0
    for top in range(0, depth, rows):
        vertices = [vertex for layer in layout.layers[top : top + rows] for vertex in layer]
        left = min(layout.left[vertex] for vertex in vertices)
        shifts.append(start - left)
        ends.append(max(layout.left[vertex] + layout.width[vertex] for vertex in vertices) + shifts[-1])
        start = ends[-1] + across + _TURN_PX
    return _Raster(rows, across, shifts, ends, ends[-1], rows * (BOX_PX + _GAP_PX) - _GAP_PX + 2 * across)


def _paths(layout: Layout, raster: _Raster) -> tuple[dict[int, list[str]], dict[int, dict[int, str]]]:
    """Return for each net the lines that lead its sources together, and those that arrive, by target."""
    leaves, enters = _ports(layout)
    stems: dict[int, list[str]] = defaultdict(list)
    arrows: dict[int, dict[int, str]] = defaultdict(dict)
    # The line of each net so far, and where it leaves the last row.
    way: dict[int, tuple[str, Pixel]] = {}
    for row, hops in enumerate(layout.hops):
        below = row + 1
        for lane, hop in enumerate(hops):
            shift, top = raster.shift(below), raster.top(below)
            ends = {
                lower: Pixel(enters.get((hop.net, lower), layout.centre(lower)) + shift, top) for lower in hop.lowers
            }
            starts = []
            for vertex in hop.uppers:
                if vertex >= layout.node_count:
                    starts.append(way[hop.net])
                    continue
                point = Pixel(leaves[hop.net, vertex] + raster.shift(row), raster.top(row) + BOX_PX)
                starts.append((f"M{point.x:g},{point.y:g}", point))
            turn, over = raster.turn(row, lane) if raster.breaks_after(row) else (None, 0.0)
            if len(starts) > 1:
                middle = sum(end.x for end in ends.values()) / len(ends)
                meeting = turn or Pixel(middle, raster.top(row) + BOX_PX + _GAP_PX // 2)
                stems[hop.net] += [line + (_corner(turn) if turn else _bend(at, meeting)) for line, at in starts]
                line, start = f"M{meeting.x:g},{meeting.y:g}", meeting
            else:
                line, start = starts[0]
                line += _corner(turn) if turn else ""
            for vertex, end in ends.items():
                passes = vertex >= layout.node_count
                tip = end if passes else Pixel(end.x, end.y - 1)
                path = line + (f"V{over:g}H{tip.x:g}V{tip.y:g}" if turn else _bend(start, tip))
                if passes:
                    way[hop.net] = f"{path}V{end.y + BOX_PX:g}", Pixel(end.x, end.y + BOX_PX)
                else:
                    arrows[hop.net][vertex] = path
    return stems, arrows


def _corner(turn: Pixel) -> str:
    return f"V{turn.y:g}H{turn.x:g}"


def _bend(upper: Pixel, lower: Pixel) -> str:
    """Return a curve that leaves and arrives vertically."""
    if upper.x == lower.x:
        return f"V{lower.y:g}"
    bend = (lower.y - upper.y) * 0.55
    return f"C{upper.x:g},{upper.y + bend:g} {lower.x:g},{lower.y - bend:g} {lower.x:g},{lower.y:g}"


def _ports(layout: Layout) -> tuple[dict[tuple[int, int], float], dict[tuple[int, int], float]]:
    """Return where each net leaves each of its sources, and enters each of its targets, by net and box."""
    out: dict[int, list[tuple[float, int]]] = defaultdict(list)
    into: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for hop in (hop for hops in layout.hops for hop in hops):
        for ports, ends, others in ((out, hop.uppers, hop.lowers), (into, hop.lowers, hop.uppers)):
            mean = sum(map(layout.centre, others)) / len(others)
            for vertex in ends:
                if vertex < layout.node_count:
                    ports[vertex].append((mean, hop.net))
    return _abreast(layout, out), _abreast(layout, into)


def _abreast(layout: Layout, ports: dict[int, list[tuple[float, int]]]) -> dict[tuple[int, int], float]:
    found: dict[tuple[int, int], float] = {}
    for vertex, lines in ports.items():
        step = min(_PORT_PX, (layout.width[vertex] - 16) / len(lines))
        for i, (_, net) in enumerate(sorted(lines)):
            found[net, vertex] = layout.centre(vertex) + step * (i - (len(lines) - 1) / 2)
    return found
