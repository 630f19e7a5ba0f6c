"""A graph as source for Graphviz, with every dependence and its list items."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from offload.views.svg import COPY_INK, DASHES, DEVICE_COLOURS, KIND_COLOURS, PHASE_FILLS
from offload.views.words import duration_label, is_copy, phase, place_label, printable

if TYPE_CHECKING:
    from offload.tasks.graph import Graph, Node

_MAX_ITEMS = 3


def to_dot(graph: Graph) -> str:
    """Return `graph` in the language of Graphviz."""
    # Nodes are called ``n0``, ``n1``, … in generation order, so that a task's name can hold any character. There is one
    # edge for each pair of tasks and kind, implied ones included: a tool that reads this can reduce them.
    lines = [
        "digraph tasks {",
        "  rankdir=TB;",
        '  node [shape=box, style="filled,rounded", fontname="Helvetica", fontsize=11];',
        '  edge [fontname="Helvetica", fontsize=9, arrowsize=0.7];',
    ]
    lines += [f"  n{node.index} [{_attributes(_node(node))}];" for node in graph.nodes]
    items: dict[tuple[int, int, str], list[str]] = defaultdict(list)
    for edge in graph.edges:
        items[edge.source.index, edge.target.index, edge.kind].append(edge.item)
    for (source, target, kind), found in items.items():
        lines.append(f"  n{source} -> n{target} [{_attributes(_edge(kind, [item for item in found if item]))}];")
    return "\n".join([*lines, "}", ""])


def _node(node: Node) -> dict[str, list[str]]:
    tooltip = [node.key, node.directive, *([node.location] if node.location else [])]
    return {
        "label": [node.name or node.key, " ".join((place_label(node), node.state, duration_label(node.duration_s)))],
        "tooltip": tooltip,
        "fillcolor": [PHASE_FILLS[phase(node)]],
        "color": [DEVICE_COLOURS[-1 if node.device_num is None else node.device_num % (len(DEVICE_COLOURS) - 1)]],
        **({"fontcolor": [COPY_INK]} if is_copy(node) else {}),
    }


def _edge(kind: str, items: list[str]) -> dict[str, list[str]]:
    shown = ", ".join([*items[:_MAX_ITEMS], *(["…"] if len(items) > _MAX_ITEMS else [])])
    return {
        "label": [shown],
        "tooltip": [f"{kind}: {', '.join(items)}" if items else kind],
        "color": [KIND_COLOURS[kind]],
        "style": [{"": "solid", "2 4": "dotted"}.get(DASHES[kind], "dashed")],
    }


def _attributes(values: dict[str, list[str]]) -> str:
    """Return attributes in quotes; the lines of each are joined by Graphviz's own line break."""
    return ", ".join(f'{name}="{_LINE_BREAK.join(map(_quoted, lines))}"' for name, lines in values.items())


_LINE_BREAK = "\\n"


def _quoted(text: str) -> str:
    # In a label Graphviz reads backslash sequences and, besides, HTML's character entities.
    return printable(text).replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
