"""A graph as an SVG picture on its own: no script, no font, no other file; readable on white and in grey.

The geometry is that of the terminal (`offload.views.layout`), in pixels. Here a net joins one source with the
targets of one kind of dependence, so that kinds keep their colours, and its lines are curves that share their
way as long as they can.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple
from xml.sax.saxutils import escape

from offload.views import SYMBOLS, device_label, drawn_edges, duration_label, phase, printable, summary
from offload.views.layout import Layout, Net, place

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
PHASE_FILLS = {"waiting": "#f8fafc", "running": "#fef3c7", "done": "#e3f6e8", "failed": "#fde2e1"}
_PHASE_INKS = {"waiting": "#64748b", "running": "#92600a", "done": "#17753a", "failed": "#b3261e"}
# The last is the host's.
DEVICE_COLOURS = ("#0e7490", "#a21caf", "#4d7c0f", "#9f1239", "#4338ca", "#b45309", "#475569")

_MARGIN_PX = 24
_CELL_PX = 7.25  # a monospaced character at 12 px
_BOX_PX = 46
_GAP_PX = 58
_MAX_NAME_CELLS = 36
_FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"


class _Point(NamedTuple):
    x: float
    y: float


def to_svg(graph: Graph) -> str:
    """Return a picture of `graph` as an SVG document.

    Shown are the edges that no longer path implies, coloured by kind; a tooltip on a task or a line says the rest.
    """
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
    widths = [max(_width(node), 14 * most + 17) for node, most in zip(graph.nodes, entries, strict=True)]
    layout = place(layer_of, widths, [net for net, _ in nets], space=28, line_space=18)
    kinds = [kind for kind in KIND_COLOURS if any(kind == one for _, one in nets)]
    body = [*_curves(layout, nets, edges), *_boxes(graph, layout, layer_of)]
    bottom = len(layout.layers) * (_BOX_PX + _GAP_PX) - (_GAP_PX if layout.layers else 0)
    legend, legend_width, height = _legend(graph, kinds, bottom + 30)
    width = max(layout.total_width, legend_width) + 2 * _MARGIN_PX
    return "\n".join([*_head(width, height + 2 * _MARGIN_PX, kinds), *body, *legend, "</g>", "</svg>", ""])


def _nets(edges: list[Edge]) -> list[tuple[Net, str]]:
    targets: dict[tuple[int, str], dict[int, None]] = defaultdict(dict)
    for edge in edges:
        targets[edge.source.index, edge.kind][edge.target.index] = None
    return [(Net((source,), tuple(sorted(found))), kind) for (source, kind), found in targets.items()]


def _head(width: float, height: float, kinds: list[str]) -> list[str]:
    markers = [
        f'<marker id="arrow-{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0,0.5L8,4L0,7.5z" fill="{KIND_COLOURS[kind]}"/></marker>'
        for kind in kinds
    ]
    return [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
            f'viewBox="0 0 {width:g} {height:g}" font-family="{_FONT}" font-size="12">'
        ),
        "<title>Task graph</title>",
        "<defs>",
        *markers,
        "</defs>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<g transform="translate({_MARGIN_PX},{_MARGIN_PX})">',
    ]


def _width(node: Node) -> int:
    first = _cells(_name(node)) + 2 + len(device_label(node))
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


def _top(layer: int) -> int:
    return layer * (_BOX_PX + _GAP_PX)


def _boxes(graph: Graph, layout: Layout, layer_of: list[int]) -> list[str]:
    found = []
    for node in graph.nodes:
        x, y, width = layout.left[node.index], _top(layer_of[node.index]), layout.width[node.index]
        device = DEVICE_COLOURS[-1 if node.device_num is None else node.device_num % (len(DEVICE_COLOURS) - 1)]
        ink = _PHASE_INKS[phase(node)]
        found += [
            f'<g class="task" id="task-{node.index}"><title>{_text(_tooltip(node))}</title>',
            (
                f'<rect x="{x:g}" y="{y}" width="{width}" height="{_BOX_PX}" rx="6" fill="{PHASE_FILLS[phase(node)]}" '
                f'stroke="{device}" stroke-width="1.4"/>'
            ),
            f'<text x="{x + 12:g}" y="{y + 19}" font-weight="600" fill="#111827">{_text(_name(node))}</text>',
            f'<text x="{x + width - 12:g}" y="{y + 19}" text-anchor="end" fill="{device}">{device_label(node)}</text>',
            f'<text x="{x + 12:g}" y="{y + 36}" fill="{ink}">{_text(_state(node))}</text>',
            (
                f'<text x="{x + width - 12:g}" y="{y + 36}" text-anchor="end" fill="#374151">'
                f"{duration_label(node.duration_s)}</text>"
            ),
            "</g>",
        ]
    return found


def _tooltip(node: Node) -> list[str]:
    lines = [node.key, f"{node.directive} on {device_label(node)}: {node.state}"]
    if node.duration_s is not None:
        lines.append(f"took {duration_label(node.duration_s)}")
    if node.detach:
        lines.append("completes when its event is fulfilled")
    return [*lines, *([node.location] if node.location else [])]


def _text(lines: str | list[str]) -> str:
    return "\n".join(escape(printable(line)) for line in ([lines] if isinstance(lines, str) else lines))


def _curves(layout: Layout, nets: list[tuple[Net, str]], edges: list[Edge]) -> list[str]:
    items: dict[tuple[int, int, str], list[str]] = defaultdict(list)
    for edge in edges:
        items[edge.source.index, edge.target.index, edge.kind].append(edge.item)
    names = {node.index: node for edge in edges for node in (edge.source, edge.target)}
    leaves, enters = _ports(layout)
    # The way of each net so far: where its line leaves the last layer.
    way: dict[int, list[_Point]] = {}
    found = []
    for layer, hops in enumerate(layout.hops):
        for hop in hops:
            net, kind = nets[hop.net]
            points = way.get(hop.net) or [_Point(leaves[hop.net], _top(layer) + _BOX_PX)]
            for lower in hop.lowers:
                if lower >= layout.node_count:
                    x, y = layout.centre(lower), _top(layer + 1)
                    way[hop.net] = [*points, _Point(x, y), _Point(x, y + _BOX_PX)]
                    continue
                source, end = net.sources[0], _Point(enters[hop.net, lower], _top(layer + 1) - 1)
                what = ", ".join(item for item in items[source, lower, kind] if item)
                title = [f"{names[source].key} → {names[lower].key}", f"{kind}: {what}" if what else kind]
                dashes = f' stroke-dasharray="{DASHES[kind]}"' if DASHES[kind] else ""
                found.append(
                    f'<g class="edge" id="edge-{source}-{lower}-{kind}"><title>{_text(title)}</title>'
                    f'<path d="{_path([*points, end])}" fill="none" stroke="{KIND_COLOURS[kind]}" stroke-width="1.5"'
                    f'{dashes} marker-end="url(#arrow-{kind})"/></g>'
                )
    return found


def _path(points: list[_Point]) -> str:
    """Return a curve through points that are alternately the upper and the lower end of a gap."""
    start, *rest = points
    parts = [f"M{start.x:g},{start.y:g}"]
    for upper, lower in zip(points, rest, strict=False):
        if upper.x == lower.x:
            parts.append(f"V{lower.y:g}")
            continue
        bend = (lower.y - upper.y) * 0.55
        parts.append(f"C{upper.x:g},{upper.y + bend:g} {lower.x:g},{lower.y - bend:g} {lower.x:g},{lower.y:g}")
    return "".join(parts)


def _ports(layout: Layout) -> tuple[dict[int, float], dict[tuple[int, int], float]]:
    """Return where each net leaves its source, and where it enters each of its targets, by net and node."""
    out: dict[int, list[tuple[float, int]]] = defaultdict(list)
    into: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for hops in layout.hops:
        for hop in hops:
            upper = hop.uppers[0]
            if upper < layout.node_count:
                out[upper].append((sum(map(layout.centre, hop.lowers)) / len(hop.lowers), hop.net))
            for lower in hop.lowers:
                if lower < layout.node_count:
                    into[lower].append((layout.centre(upper), hop.net))
    leaves: dict[int, float] = {}
    enters: dict[tuple[int, int], float] = {}
    for vertex, going in out.items():
        for i, (_, net) in enumerate(sorted(going)):
            leaves[net] = layout.centre(vertex) + 14 * (i - (len(going) - 1) / 2)
    for vertex, coming in into.items():
        for i, (_, net) in enumerate(sorted(coming)):
            enters[net, vertex] = layout.centre(vertex) + 14 * (i - (len(coming) - 1) / 2)
    return leaves, enters


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
    return [*lines, "</g>"], width, top + 20 * len(kinds)
