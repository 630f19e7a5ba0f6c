"""A graph as source for Mermaid, which viewers of Markdown draw, with every dependence and its list items."""

from __future__ import annotations

import string
from collections import defaultdict
from typing import TYPE_CHECKING

from offload.views.svg import COPY_INK, DEVICE_COLOURS, KIND_COLOURS, PHASE_FILLS
from offload.views.words import duration_label, is_copy, phase, place_label, printable

if TYPE_CHECKING:
    from offload.tasks.graph import Graph, Node

_MAX_ITEMS = 3
_LINKS = {"flow": "-->", "anti": "-.->", "output": "==>", "set": "-.->", "wait": "-.->"}
_PLAIN = frozenset(string.ascii_letters + string.digits + " _,()/")


def to_mermaid(graph: Graph) -> str:
    """Return `graph` as a flow chart in the language of Mermaid."""
    # Nodes are called ``n0``, ``n1``, … in generation order, so that a task's name can hold any character. There is one
    # link for each pair of tasks and kind, implied ones included. Mermaid draws 500 links and 50 000 characters of
    # source unless it is told to draw more (``maxEdges``, ``maxTextSize``).
    lines = ["flowchart TB"]
    for node in graph.nodes:
        lines += [f'  n{node.index}["{_label(node)}"]', f"  style n{node.index} {_style(node)}"]
    items: dict[tuple[int, int, str], list[str]] = defaultdict(list)
    for edge in graph.edges:
        items[edge.source.index, edge.target.index, edge.kind].append(edge.item)
    numbers: dict[str, list[str]] = defaultdict(list)  # of the links of a kind: links have no names
    for number, ((source, target, kind), found) in enumerate(items.items()):
        shown = [item for item in found if item]
        text = ", ".join([*shown[:_MAX_ITEMS], *(["…"] if len(shown) > _MAX_ITEMS else [])])
        lines.append(f"  n{source} {_LINKS[kind]}" + (f'|"{_quoted(text)}"|' if text else "") + f" n{target}")
        numbers[kind].append(str(number))
    lines += [f"  linkStyle {','.join(found)} stroke:{KIND_COLOURS[kind]}" for kind, found in numbers.items()]
    return "\n".join([*lines, ""])


def _label(node: Node) -> str:
    place = " ".join((place_label(node), node.state, duration_label(node.duration_s)))
    return f"{_quoted(node.name or node.key)}<br>{_quoted(place)}"


def _style(node: Node) -> str:
    device = DEVICE_COLOURS[-1 if node.device_num is None else node.device_num % (len(DEVICE_COLOURS) - 1)]
    ink = f",color:{COPY_INK}" if is_copy(node) else ""
    return f"fill:{PHASE_FILLS[phase(node)]},stroke:{device}{ink}"


def _quoted(text: str) -> str:
    """Return text by Mermaid's codes for characters, wherever HTML, Markdown or Mermaid might read more into it."""
    return "".join(c if c in _PLAIN or c.isalpha() else f"#{ord(c)};" for c in printable(text))
