"""Every view of 20,000 and of 100,000 tasks: it is made soon, and is small enough to be looked at."""

from __future__ import annotations

import io
import time
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from offload.views.dot import to_dot
from offload.views.drawing import MAX_PX
from offload.views.mermaid import to_mermaid
from offload.views.notebooks import bundle_of
from offload.views.page import to_page
from offload.views.svg import to_svg
from offload.views.terminal import render
from tests.views.graphs import SHAPES

MOST_S = 5.0
WRITERS = {"svg": (to_svg, 1e6), "page": (to_page, 40e6), "dot": (to_dot, 1e6), "mermaid": (to_mermaid, 1e6)}


@pytest.mark.slow
@pytest.mark.measures
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_pictures_of_20_000_tasks_are_made_soon(shape, writer):
    """A picture of 20,000 tasks takes at most 5 s of a processor."""
    graph = SHAPES[shape](20_000)
    start_s = time.process_time()
    WRITERS[writer][0](graph)
    assert time.process_time() - start_s <= MOST_S


@pytest.mark.slow
@pytest.mark.timeout(400)  # it takes 30 s of a processor
@pytest.mark.parametrize("shape", ["flat", *(pytest.param(one, marks=pytest.mark.soak) for one in ("chain", "layers"))])
def test_100_000_tasks_in_every_view(shape):
    """Pictures, page, sources, terminal and notebook show 100,000 tasks, and have a size that viewers take."""
    graph = SHAPES[shape](100_000)
    for write, most_nbytes in WRITERS.values():
        text = write(graph)
        assert len(text) <= most_nbytes
        if write is to_svg:
            root = ET.fromstring(text)
            assert max(float(root.get("width")), float(root.get("height"))) <= MAX_PX
            assert f"{len(graph):,} tasks" in text
    console = Console(file=io.StringIO(), width=20)
    console.print(render(graph))
    lines = console.file.getvalue().splitlines()
    assert len(lines) <= 200
    assert max(map(len, lines)) <= 20
    bundle = bundle_of(graph)
    assert len(bundle["text/html"]) + len(bundle["image/svg+xml"]) <= 3e6
