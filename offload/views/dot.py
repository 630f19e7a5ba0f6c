"""A graph as source for Graphviz, with every dependence and its list items; a large graph is folded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload.views.drawing import box_name, box_state, draw
from offload.views.looks import see
from offload.views.svg import COPY_INK, DASHES, KIND_COLOURS, PHASE_FILLS, device_colour

if TYPE_CHECKING:
    from offload.tasks.graph import Graph
    from offload.views.folding import Fold, Strand
    from offload.views.words import TaskKind

_MAX_ITEMS = 3
_SHAPES: dict[TaskKind | None, str] = {"target": "box", "task": "box", "copy": "parallelogram", "wait": "oval"}


def to_dot(graph: Graph) -> str:
    """Return `graph` in the language of Graphviz."""
    # Nodes are called ``n0``, ``n1``, … in generation order, so that a task's name can hold any character. There is one
    # edge for each pair of tasks and kind, implied ones included: a tool that reads this can reduce them.
    folding = draw(see(graph)).folding
    lines = [
        "digraph tasks {",
        "  rankdir=TB;",
        '  node [shape=box, style="filled", fontname="Helvetica", fontsize=11];',
        '  edge [fontname="Helvetica", fontsize=9, arrowsize=0.7];',
    ]
    lines += [f"  n{fold.number} [{_attributes(_node(fold))}];" for fold in folding.folds]
    lines += [
        f"  n{strand.source} -> n{strand.target} [{_attributes(_edge(strand))}];" for strand in folding.for_source
    ]
    return "\n".join([*lines, "}", ""])


def _node(fold: Fold) -> dict[str, list[str]]:
    look = fold.looks[0]
    tooltip = [look.key, look.directive, *([look.location] if look.location else [])]
    return {
        "label": [box_name(fold), " ".join(filter(None, (fold.place, box_state(fold), fold.time_label)))],
        "tooltip": tooltip if fold.is_task else [f"{fold.title} {fold.count_label}"],
        "fillcolor": [PHASE_FILLS[fold.phase]],
        "color": [device_colour(fold.place)],
        "shape": [_SHAPES.get(fold.kind, "box")],
        **({"style": ["filled,rounded"]} if fold.kind == "target" else {}),
        **({"fontcolor": [COPY_INK]} if fold.kind == "copy" else {}),
        **({} if fold.is_task else {"peripheries": ["2"]}),
        **({"penwidth": ["3"]} if fold.critical else {}),
    }


def _edge(strand: Strand) -> dict[str, list[str]]:
    items = strand.items
    shown = ", ".join([*items[:_MAX_ITEMS], *(["…"] if len(items) > _MAX_ITEMS else [])])
    return {
        "label": [shown],
        "tooltip": [f"{strand.kind}: {', '.join(items)}" if items else strand.kind],
        "color": [KIND_COLOURS[strand.kind]],
        "style": [{"": "solid", "2 4": "dotted"}.get(DASHES[strand.kind], "dashed")],
        **({"penwidth": ["3"]} if strand.is_critical else {}),
    }


def _attributes(values: dict[str, list[str]]) -> str:
    """Return attributes in quotes; the lines of each are joined by Graphviz's own line break."""
    return ", ".join(f'{name}="{_LINE_BREAK.join(map(_quoted, lines))}"' for name, lines in values.items())


_LINE_BREAK = "\\n"


def _quoted(text: str) -> str:
    # In a label Graphviz reads backslash sequences and, besides, HTML's character entities.
    return text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
