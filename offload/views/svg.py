"""A graph as an SVG picture on its own: no script, no font, no other file; readable on white and in grey.

The geometry is that of the terminal (`offload.views.layout`), in pixels. Here a net joins one source with the
targets of one kind of dependence, so that kinds keep their colours, and its lines are curves that share their
way as long as they can. Waits are bundled as in the terminal: tasks that wait for the same tasks share one line, since
40 tasks before a taskwait are one order, not 40 reasons. A picture that would be high and narrow is broken into
columns, each read from its top to its bottom; lines lead from one to the next between them.
"""

from __future__ import annotations

import math
import unicodedata
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from xml.sax.saxutils import escape

from offload.views.layout import Layout, Net, bundle, place
from offload.views.words import SYMBOLS, drawn_edges, duration_label, is_copy, phase, place_label, printable, summary

if TYPE_CHECKING:
    from offload.tasks.graph import Edge, Graph, Node

# Blue and orange first: told apart with every common colour blindness; the dashes serve where there is no colour.
KIND_COLOURS = {"flow": "#1d5fbf", "anti": "#c2570c", "output": "#b3261e", "set": "#6d3fc0", "wait": "#6b7280"}
DASHES = {"flow": "", "anti": "7 3", "output": "10 3 2 3", "set": "4 3", "wait": "2 4"}
_MEANINGS = {
    "flow": "flow: read after write",
    "anti": "anti: write after read",
    "output": "output: write after write",
    "set": "set: inoutset, mutexinoutset",
    "wait": "wait: taskwait or synchronous construct",
}
PHASE_FILLS = {
    "waiting": "#f8fafc",
    "running": "#fef3c7",
    "done": "#e3f6e8",
    "failed": "#fde2e1",
    "not run": "#e2e5e9",
}
_PHASE_INKS = {
    "waiting": "#64748b",
    "running": "#92600a",
    "done": "#17753a",
    "failed": "#b3261e",
    "not run": "#4b5563",
}
COPY_INK = "#9a3412"
# The last is the host's.
DEVICE_COLOURS = ("#0e7490", "#a21caf", "#4d7c0f", "#9f1239", "#4338ca", "#b45309", "#475569")

_MARGIN_PX = 24
_CELL_PX = 7.25  # a monospaced character at 12 px
_BOX_PX = 46
_GAP_PX = 58
_PORT_PX = 14  # between two lines that enter, or leave, the same box
_LANE_PX = 8  # between two lines on their way to the next column
_TURN_PX = 16  # from a box to the first of them, and to the arrow head behind the last
_HIGH_PX = 4_000  # more than this, and the picture is broken into columns
_SHAPE = 1.4  # their width for a height of 1
_MAX_NAME_CELLS = 36
_FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"


class _Point(NamedTuple):
    x: float  # pixels from the left
    y: float  # pixels from the top


def to_svg(graph: Graph) -> str:
    """Return a picture of `graph` as an SVG document."""
    # Shown are the edges that no longer path implies, coloured by kind; a tooltip on a task or a line says the rest.
    edges = drawn_edges(graph)
    nets = _nets(edges)
    layer_of = [0] * len(graph)
    for depth, layer in enumerate(graph.layers()):
        for node in layer:
            layer_of[node.index] = depth
    entries = [0] * len(graph)
    for net, _ in nets:
        for target in net.targets:
            entries[target] += 1
    widths = [max(_width(node), _PORT_PX * most + 17) for node, most in zip(graph.nodes, entries, strict=True)]
    layout = place(layer_of, widths, [net for net, _ in nets], space=28, line_space=18)
    grid = _grid(layout)
    kinds = [kind for kind in KIND_COLOURS if any(kind == one for _, one in nets)]
    body = [*_curves(graph, layout, grid, nets, edges), *_boxes(graph, layout, grid, layer_of)]
    legend, legend_width, height = _legend(graph, kinds, grid.height + 30)
    width = max(grid.width, legend_width) + 2 * _MARGIN_PX
    title = f"Task graph: {summary(graph)}"
    return "\n".join([*_head(title, width, height + 2 * _MARGIN_PX, kinds), *body, *legend, "</g>", "</svg>", ""])


def _nets(edges: list[Edge]) -> list[tuple[Net, str]]:
    targets: dict[tuple[int, str], dict[int, None]] = defaultdict(dict)
    waits: dict[tuple[int, int], None] = {}  # an ordered set: pictures of one graph are equal
    for edge in edges:
        if edge.kind == "wait":
            waits[edge.source.index, edge.target.index] = None
        else:
            targets[edge.source.index, edge.kind][edge.target.index] = None
    nets = [(Net((source,), tuple(sorted(found))), kind) for (source, kind), found in targets.items()]
    return [*nets, *((net, "wait") for net in bundle(waits))]


@dataclass(frozen=True, slots=True)
class _Raster:
    """The places of the layers: columns of ``rows`` layers each, ``pitch`` pixels apart, below ``head`` pixels."""

    rows: int  # layers in a column
    pitch: float  # pixels from column to column
    head: int  # pixels above the first layer
    column_width: float
    width: float  # pixels of the drawing
    height: int  # pixels of the drawing

    def top(self, layer: int) -> int:
        """Return the upper edge of the boxes of a layer."""
        return self.head + layer % self.rows * (_BOX_PX + _GAP_PX)

    def shift(self, layer: int) -> float:
        """Return how far to the right the layer's column stands."""
        return layer // self.rows * self.pitch

    def breaks_after(self, layer: int) -> bool:
        """Tell whether the next layer stands in the next column."""
        return (layer + 1) % self.rows == 0

    def turn(self, layer: int, lane: int) -> tuple[_Point, float]:
        """Return where a line turns upwards behind a column's last layer, and the height at which it turns back."""
        x = self.shift(layer) + self.column_width + _TURN_PX + _LANE_PX * lane
        # The outermost below is the outermost above, so that lines of one column do not cross between the columns.
        return _Point(x, self.top(layer) + _BOX_PX + _TURN_PX + _LANE_PX * lane), (
            self.head - _TURN_PX - _LANE_PX * lane
        )


def _grid(layout: Layout) -> _Raster:
    depth, wide = len(layout.layers), layout.total_width
    height = max(depth * (_BOX_PX + _GAP_PX) - _GAP_PX, 0)
    columns = round(math.sqrt(_SHAPE * height / (wide + 3 * _TURN_PX))) if height > _HIGH_PX else 1
    if columns < 2:
        return _Raster(max(depth, 1), 0, 0, wide, wide, height)
    rows = -(-depth // columns)
    columns = -(-depth // rows)
    lanes = max(len(layout.hops[layer]) for layer in range(rows - 1, depth - 1, rows))
    across = _LANE_PX * (lanes - 1) + 2 * _TURN_PX
    bottom = rows * (_BOX_PX + _GAP_PX) - _GAP_PX + across
    return _Raster(rows, wide + across + _TURN_PX, across, wide, columns * (wide + across + _TURN_PX), bottom + across)


def _head(title: str, width: float, height: float, kinds: list[str]) -> list[str]:
    markers = [
        f'<marker id="arrow-{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0,0.5L8,4L0,7.5z" fill="{KIND_COLOURS[kind]}"/></marker>'
        for kind in kinds
    ]
    return [
        (
            '<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="title" '
            f'width="{width:g}" height="{height:g}" '
            f'viewBox="0 0 {width:g} {height:g}" font-family="{_FONT}" font-size="12">'
        ),
        f'<title id="title">{_text(title)}</title>',
        "<defs>",
        *markers,
        "</defs>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<g transform="translate({_MARGIN_PX},{_MARGIN_PX})">',
    ]


def _width(node: Node) -> int:
    first = _cells(_name(node)) + 2 + len(place_label(node))
    second = _cells(_state(node)) + 2 + len(duration_label(node.duration_s))
    # Odd, as passing lines are, so that equal centres stay equal on whole pixels and vertical lines sharp.
    return 2 * round((max(first, second, 12) * _CELL_PX + 28) / 2) + 1


def _name(node: Node) -> str:
    text = printable(node.name or node.key)
    return text if len(text) <= _MAX_NAME_CELLS else text[: _MAX_NAME_CELLS - 1] + "…"


def _state(node: Node) -> str:
    return f"{SYMBOLS[phase(node)]} {printable(node.state)}"


def _cells(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _boxes(graph: Graph, layout: Layout, grid: _Raster, layer_of: list[int]) -> list[str]:
    found = []
    for node in graph.nodes:
        layer = layer_of[node.index]
        x, y, width = layout.left[node.index] + grid.shift(layer), grid.top(layer), layout.width[node.index]
        device = DEVICE_COLOURS[-1 if node.device_num is None else node.device_num % (len(DEVICE_COLOURS) - 1)]
        ink, dashes = _PHASE_INKS[phase(node)], ' stroke-dasharray="4 3"' if phase(node) == "not run" else ""
        name_ink = COPY_INK if is_copy(node) else "#111827"
        found += [
            f'<g class="task" id="task-{node.index}"><title>{_text(_tooltip(node))}</title>',
            (
                f'<rect x="{x:g}" y="{y}" width="{width}" height="{_BOX_PX}" rx="6" fill="{PHASE_FILLS[phase(node)]}" '
                f'stroke="{device}" stroke-width="1.4"{dashes}/>'
            ),
            f'<text x="{x + 12:g}" y="{y + 19}" font-weight="600" fill="{name_ink}">{_text(_name(node))}</text>',
            f'<text x="{x + width - 12:g}" y="{y + 19}" text-anchor="end" fill="{device}">{place_label(node)}</text>',
            f'<text x="{x + 12:g}" y="{y + 36}" fill="{ink}">{_text(_state(node))}</text>',
            (
                f'<text x="{x + width - 12:g}" y="{y + 36}" text-anchor="end" fill="#374151">'
                f"{duration_label(node.duration_s)}</text>"
            ),
            "</g>",
        ]
    return found


def _tooltip(node: Node) -> list[str]:
    lines = [node.key, f"{node.directive} on {place_label(node)}: {node.state}"]
    if node.duration_s is not None:
        lines.append(f"took {duration_label(node.duration_s)}")
    if node.detach:
        lines.append("completes when its event is fulfilled")
    return [*lines, *([node.location] if node.location else [])]


def _text(lines: str | list[str]) -> str:
    return "\n".join(escape(printable(line)) for line in ([lines] if isinstance(lines, str) else lines))


def _curves(graph: Graph, layout: Layout, grid: _Raster, nets: list[tuple[Net, str]], edges: list[Edge]) -> list[str]:
    """Return the lines: a group for each edge, and one for each bundle of several sources."""
    items: dict[tuple[int, int, str], list[str]] = defaultdict(list)
    for edge in edges:
        items[edge.source.index, edge.target.index, edge.kind].append(edge.item)
    stems, arrows = _paths(layout, grid)
    found = []
    for number, (net, kind) in enumerate(nets):
        dashes = f' stroke-dasharray="{DASHES[kind]}"' if DASHES[kind] else ""
        line = f'fill="none" stroke="{KIND_COLOURS[kind]}" stroke-width="1.5" stroke-linejoin="round"{dashes}'
        marker = f'marker-end="url(#arrow-{kind})"'
        if len(net.sources) > 1:
            found += [
                (
                    f'<g class="bundle" id="bundle-{number}" data-sources="{" ".join(map(str, net.sources))}" '
                    f'data-targets="{" ".join(map(str, net.targets))}"><title>{_text(_bundle_title(graph, net, kind))}'
                    f'</title><path d="{"".join(stems[number])}" {line}/>'
                ),
                *(f'<path d="{path}" {line} {marker}/>' for path in arrows[number].values()),
                "</g>",
            ]
            continue
        source = net.sources[0]
        for target, path in arrows[number].items():
            what = ", ".join(item for item in items[source, target, kind] if item)
            title = [f"{graph.nodes[source].key} → {graph.nodes[target].key}", f"{kind}: {what}" if what else kind]
            found.append(
                f'<g class="edge" id="edge-{source}-{target}-{kind}"><title>{_text(title)}</title>'
                f'<path d="{path}" {line} {marker}/></g>'
            )
    return found


def _bundle_title(graph: Graph, net: Net, kind: str) -> list[str]:
    ends = ([graph.nodes[i].key for i in side] for side in net)
    left, right = (", ".join(keys[:6]) + (f", … ({len(keys)} tasks)" if len(keys) > 6 else "") for keys in ends)
    return [f"{left} → {right}", kind]


def _paths(layout: Layout, grid: _Raster) -> tuple[dict[int, list[str]], dict[int, dict[int, str]]]:
    """Return for each net the lines that lead its sources together, and those that arrive, by target."""
    leaves, enters = _ports(layout)
    stems: dict[int, list[str]] = defaultdict(list)
    arrows: dict[int, dict[int, str]] = defaultdict(dict)
    # The line of each net so far, and where it leaves the last layer.
    way: dict[int, tuple[str, _Point]] = {}
    for layer, hops in enumerate(layout.hops):
        below = layer + 1
        for lane, hop in enumerate(hops):
            ends = {
                lower: _Point(enters.get((hop.net, lower), layout.centre(lower)) + grid.shift(below), grid.top(below))
                for lower in hop.lowers
            }
            starts = []
            for vertex in hop.uppers:
                if vertex >= layout.node_count:
                    starts.append(way[hop.net])
                    continue
                point = _Point(leaves[hop.net, vertex] + grid.shift(layer), grid.top(layer) + _BOX_PX)
                starts.append((f"M{point.x:g},{point.y:g}", point))
            turn, over = grid.turn(layer, lane) if grid.breaks_after(layer) else (None, 0.0)
            if len(starts) > 1:
                middle = sum(end.x for end in ends.values()) / len(ends)
                meeting = turn or _Point(middle, grid.top(layer) + _BOX_PX + _GAP_PX // 2)
                stems[hop.net] += [line + (_corner(turn) if turn else _bend(at, meeting)) for line, at in starts]
                line, start = f"M{meeting.x:g},{meeting.y:g}", meeting
            else:
                line, start = starts[0]
                line += _corner(turn) if turn else ""
            for vertex, end in ends.items():
                passes = vertex >= layout.node_count
                tip = end if passes else _Point(end.x, end.y - 1)
                path = line + (f"V{over:g}H{tip.x:g}V{tip.y:g}" if turn else _bend(start, tip))
                if passes:
                    way[hop.net] = f"{path}V{end.y + _BOX_PX:g}", _Point(end.x, end.y + _BOX_PX)
                else:
                    arrows[hop.net][vertex] = path
    return stems, arrows


def _corner(turn: _Point) -> str:
    return f"V{turn.y:g}H{turn.x:g}"


def _bend(upper: _Point, lower: _Point) -> str:
    """Return a curve that leaves and arrives vertically."""
    if upper.x == lower.x:
        return f"V{lower.y:g}"
    bend = (lower.y - upper.y) * 0.55
    return f"C{upper.x:g},{upper.y + bend:g} {lower.x:g},{lower.y - bend:g} {lower.x:g},{lower.y:g}"


def _ports(layout: Layout) -> tuple[dict[tuple[int, int], float], dict[tuple[int, int], float]]:
    """Return where each net leaves each of its sources, and enters each of its targets, by net and node."""
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
    return {
        (net, vertex): layout.centre(vertex) + _PORT_PX * (i - (len(lines) - 1) / 2)
        for vertex, lines in ports.items()
        for i, (_, net) in enumerate(sorted(lines))
    }


def _legend(graph: Graph, kinds: list[str], top: int) -> tuple[list[str], float, int]:
    """Return the legend below `top`, its width and where it ends."""
    lines = [f'<g class="legend" fill="#374151"><text x="0" y="{top}">{_text(summary(graph))}</text>']
    width = _cells(summary(graph)) * _CELL_PX
    for i, kind in enumerate(kinds, start=1):
        y = top + 20 * i
        dashes = f' stroke-dasharray="{DASHES[kind]}"' if DASHES[kind] else ""
        lines += [
            (
                f'<path d="M0,{y - 4}H40" stroke="{KIND_COLOURS[kind]}" stroke-width="1.5"{dashes} '
                f'marker-end="url(#arrow-{kind})"/>'
            ),
            f'<text x="52" y="{y}">{_MEANINGS[kind]}</text>',
        ]
        width = max(width, 52 + len(_MEANINGS[kind]) * _CELL_PX)
    rows = len(kinds)
    if any(map(is_copy, graph.nodes)):
        rows += 1
        lines.append(
            f'<text x="0" y="{top + 20 * rows}" font-weight="600" fill="{COPY_INK}">copy'
            f'<tspan x="52" font-weight="400" fill="#374151">copy, target_memcpy, target_memcpy_rect</tspan></text>'
        )
    return [*lines, "</g>"], width, top + 20 * rows
