"""A graph as source for Mermaid, which viewers of Markdown draw, with every dependence; a large graph is folded."""

from __future__ import annotations

import string
from collections import defaultdict
from typing import TYPE_CHECKING

from offload.views.drawing import box_name, box_state, draw
from offload.views.looks import see
from offload.views.svg import COPY_INK, KIND_COLOURS, PHASE_FILLS, device_colour

if TYPE_CHECKING:
    from offload.tasks.graph import EdgeKind, Graph
    from offload.views.folding import Fold
    from offload.views.words import TaskKind

_MAX_ITEMS = 3
_LINKS: dict[EdgeKind, str] = {"flow": "-->", "anti": "-.->", "output": "==>", "set": "-.->", "wait": "-.->"}
_SHAPES: dict[TaskKind | None, tuple[str, str]] = {
    "target": ("(", ")"),
    "task": ("[", "]"),
    "copy": ("[/", "/]"),
    "wait": ("([", "])"),
}
_PLAIN = frozenset(string.ascii_letters + string.digits + " _,()/")


def to_mermaid(graph: Graph) -> str:
    """Return `graph` as a flow chart in the language of Mermaid."""
    # Nodes are called ``n0``, ``n1``, … in generation order, so that a task's name can hold any character. There is one
    # link for each pair of tasks and kind, implied ones included. Mermaid draws 500 links and 50 000 characters of
    # source unless it is told to draw more (``maxEdges``, ``maxTextSize``).
    folding = draw(see(graph)).folding
    lines = ["flowchart TB"]
    for fold in folding.folds:
        left, right = _SHAPES.get(fold.kind, ("(", ")")) if fold.is_task else ("[[", "]]")
        lines.append(f'  n{fold.number}{left}"{_label(fold)}"{right}')
        lines.append(f"  style n{fold.number} {_style(fold)}")
    numbers: dict[str, list[str]] = defaultdict(list)  # of the links of a look: links have no names
    for number, strand in enumerate(folding.for_source):
        text = ", ".join([*strand.items[:_MAX_ITEMS], *(["…"] if len(strand.items) > _MAX_ITEMS else [])])
        label = f'|"{_quoted(text)}"|' if text else ""
        lines.append(f"  n{strand.source} {_LINKS[strand.kind]}{label} n{strand.target}")
        weight = ",stroke-width:4px" if strand.is_critical else ""
        numbers[f"stroke:{KIND_COLOURS[strand.kind]}{weight}"].append(str(number))
    lines += [f"  linkStyle {','.join(found)} {look}" for look, found in numbers.items()]
    return "\n".join([*lines, ""])


def _label(fold: Fold) -> str:
    place = " ".join(filter(None, (fold.place, box_state(fold), fold.time_label)))
    return f"{_quoted(box_name(fold))}<br>{_quoted(place)}"


def _style(fold: Fold) -> str:
    ink = f",color:{COPY_INK}" if fold.kind == "copy" else ""
    weight = ",stroke-width:4px" if fold.critical else ""
    return f"fill:{PHASE_FILLS[fold.phase]},stroke:{device_colour(fold.place)}{ink}{weight}"


def _quoted(text: str) -> str:
    """Return text by Mermaid's codes for characters, wherever HTML, Markdown or Mermaid might read more into it."""
    return "".join(c if c in _PLAIN or c.isalpha() else f"#{ord(c)};" for c in text)
