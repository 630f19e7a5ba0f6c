"""The views of a graph in a notebook, and the place where a picture without a path is shown."""

from __future__ import annotations

import base64
import sys
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING, Any

from offload.views.drawing import MARGIN_PX, draw
from offload.views.looks import see
from offload.views.page import page_of
from offload.views.svg import svg_of
from offload.views.terminal import plain_text, print_quietly, render

if TYPE_CHECKING:
    from offload.tasks.graph import Graph

_MOST_TASKS = 2_000  # with the details of more, a page is too large to be kept in a notebook
_MOST_HIGH_PX = 720


def bundle_of(graph: Graph) -> dict[str, str]:
    """Return a graph by media type: a picture, a page in a frame, and text."""
    drawing = draw(see(graph))
    svg = svg_of(drawing)
    if len(drawing.folding.snapshot.looks) <= _MOST_TASKS:
        # A frame of its own: neither style nor script meets the notebook's.
        high = min(max(round(drawing.height) + 2 * MARGIN_PX + 240, 320), _MOST_HIGH_PX)
        page = escape(page_of(drawing), quote=True)
        html = f'<iframe srcdoc="{page}" sandbox="allow-scripts" style="width:100%;height:{high}px;border:0"></iframe>'
    else:
        data = base64.b64encode(svg.encode()).decode()
        title = escape(drawing.folding.snapshot.summary, quote=True)
        html = f'<img alt="{title}" style="max-width:100%" src="data:image/svg+xml;base64,{data}">'
    return {"image/svg+xml": svg, "text/html": html, "text/plain": plain_text(render(graph))}


def show(graph: Graph) -> None:
    """Show a graph where the program's user looks: inline in a notebook, as text elsewhere."""
    display = _inline_display()
    if display is None:
        print_quietly(render(graph))
    else:
        display(graph)


def _inline_display() -> Any:
    """Return the function that shows an object in the notebook in which this runs; None elsewhere."""
    # Whoever runs a notebook has imported IPython; its terminal has no kernel.
    ipython = sys.modules.get("IPython")
    shell = None
    with suppress(Exception):  # a half-imported or an exotic one: then there is still the terminal
        shell = ipython and ipython.get_ipython()
    if getattr(shell, "kernel", None) is None:
        return None
    from IPython.display import display

    return display
