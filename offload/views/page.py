"""A graph as a page of HTML: one file, no network, with the picture, a search and the details of every task."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from offload.views.drawing import MARGIN_PX, box_state, draw
from offload.views.looks import see, totals
from offload.views.svg import PHASE_FILLS, svg_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offload.tasks.graph import Graph
    from offload.views.drawing import Drawing

_MOST_TOTALS = 100

# The policy lets the browser itself forbid any request.
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<header>
<input id="search" type="search" placeholder="Search for a name (/)" aria-label="Search for a name">
<select id="device" aria-label="Device"><option value="">all devices</option></select>
<button id="closer" type="button" title="Zoom in (+)">+</button>
<button id="farther" type="button" title="Zoom out (-)">&minus;</button>
<button id="fit" type="button" title="Show all (0)">All</button>
<span id="status" role="status"></span>
</header>
<main>
<div id="stage">
{svg}</div>
<aside id="panel"></aside>
</main>
<script type="application/json" id="data">{data}</script>
<script>
{script}</script>
</body>
</html>
"""


def to_page(graph: Graph) -> str:
    """Return a page of HTML with the picture of `graph`."""
    return page_of(draw(see(graph)))


def page_of(drawing: Drawing) -> str:
    """Return a drawing as a page of HTML."""
    folder = files("offload.views")
    return _PAGE.format(
        title=escape(f"Task graph: {drawing.folding.snapshot.summary}"),
        style=folder.joinpath("page.css").read_text("utf-8"),
        script=folder.joinpath("page.js").read_text("utf-8"),
        svg=svg_of(drawing),
        # In ASCII, and without "<": no text can end the element that it stands in.
        data=json.dumps(_data(drawing), separators=(",", ":")).replace("<", "\\u003c"),
    )


class _Table(dict[str, int]):
    """Texts by number, each once."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self)
        return number

    def column(self, texts: Iterable[str]) -> list[int]:
        return [self[text] for text in texts]


def _data(drawing: Drawing) -> dict[str, Any]:
    """Return what the script reads: columns of the tasks and dependences, as numbers of texts."""
    folding = drawing.folding
    looks, reasons = folding.snapshot.looks, folding.snapshot.reasons
    table = _Table()
    fold_of = [0] * len(looks)
    for fold in folding.folds:
        for look in fold.looks:
            fold_of[look.number] = fold.number
    columns: dict[str, Any] = {
        name: table.column(getattr(look, name) for look in looks)
        for name in ("key", "name", "directive", "kind", "device", "place", "state", "phase", "location")
    }
    found = totals(looks)
    return {
        **columns,
        "time": [None if look.time_s is None else float(f"{look.time_s:.4g}") for look in looks],
        "fold": fold_of,
        "source": [reason.source for reason in reasons],
        "target": [reason.target for reason in reasons],
        "why": table.column(reason.kind for reason in reasons),
        "item": table.column(reason.item for reason in reasons),
        "texts": list(table),  # the table is complete by now
        "path": folding.snapshot.path,
        "folds": [
            {"title": fold.title, "place": fold.place, "state": box_state(fold), "critical": fold.critical}
            for fold in folding.folds
        ],
        "strands": [
            [strand.source, strand.target, strand.kind, strand.count, ", ".join(strand.items)]
            for strand in folding.strands
        ],
        "totals": [[one.name, one.tasks, one.time_s, one.phases] for one in found[:_MOST_TOTALS]],
        "names": len(found),
        "devices": sorted({look.device for look in looks}),
        "fills": PHASE_FILLS,
        "margin": MARGIN_PX,
        "summary": folding.snapshot.summary,
    }
