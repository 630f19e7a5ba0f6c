"""Foldings of generated graphs: every task is in one box, every dependence in one line or in a box, and no circle."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.tasks.graph import Graph, Node
from offload.views.drawing import MAX_PX
from offload.views.folding import MOST, WHOLE, Folding, components, foldings
from offload.views.looks import see
from offload.views.svg import to_svg
from tests.profiles import examples
from tests.views.graphs import SHAPES

SVG = "{http://www.w3.org/2000/svg}"
DIRECTIVES = ("target", "task", "taskwait", "target_memcpy", "target data")


@st.composite
def programs(draw: st.DrawFn, most: int = 40) -> Graph:
    """Graphs whose tasks share names, in several states."""
    graph = Graph()
    names = draw(st.lists(st.sampled_from(["load 1", "load 2", "fft", "a\nb", "n" * 300]), min_size=1, max_size=4))
    for i in range(draw(st.integers(1, most))):
        directive = draw(st.sampled_from(DIRECTIVES))
        device = draw(st.sampled_from([None, 0, 1]))
        node = graph.add_node(Node(f"k-{i}", draw(st.sampled_from(names)), directive, device_num=device))
        for j in draw(st.sets(st.integers(0, i - 1), max_size=3)) if i else ():
            graph.add_edge(graph.nodes[j], node, draw(st.sampled_from(["flow", "anti", "wait"])), f"x{j}")
        state = draw(st.sampled_from(["complete", "failed", "planned", "running"]))
        start_s = max((before.end_s or 0.0 for before in node.before), default=0.0)
        end_s = None if state == "planned" else start_s + draw(st.integers(0, 5))
        node.run = SimpleNamespace(state=state, start_s=None if end_s is None else start_s, end_s=end_s)
    return graph


def check(graph: Graph, folding: Folding) -> None:
    """Check what holds for every folding of a graph."""
    box_of = {look.number: fold.number for fold in folding.folds for look in fold.looks}
    assert sorted(look.number for fold in folding.folds for look in fold.looks) == list(range(len(graph)))
    assert [fold.number for fold in folding.folds] == list(range(len(folding.folds)))
    counts: Counter[tuple[int, int, str]] = Counter()
    for edge in graph.edges:
        ends = box_of[edge.source.index], box_of[edge.target.index]
        if ends[0] != ends[1]:
            counts[(*ends, edge.kind)] += 1
    assert {(s.source, s.target, s.kind): s.count for s in folding.strands} == counts
    reach: list[set[int]] = [set() for _ in folding.folds]
    for strand in sorted(folding.drawn, key=lambda s: s.source, reverse=True):
        assert strand.source < strand.target
        assert folding.folds[strand.source].layer < folding.folds[strand.target].layer
        reach[strand.source] |= {strand.target} | reach[strand.target]
    assert all(strand.target in reach[strand.source] for strand in folding.strands), "a line left out is implied"
    path = [node.index for node, _ in graph.critical_path()]
    assert sum(fold.critical for fold in folding.folds) == len(path)
    marked = {(s.source, s.target) for s in folding.drawn if s.is_critical}
    assert {(box_of[a], box_of[b]) for a, b in pairwise(path) if box_of[a] != box_of[b]} == marked


@given(programs(), st.integers(1, 12))
@settings(max_examples=examples(200), deadline=None)
def test_foldings_lose_nothing(graph: Graph, most: int) -> None:
    """Whatever the room, there is a folding, from fine to coarse, and each has every task and dependence once."""
    found = list(foldings(see(graph), most))
    assert found
    for folding in found:
        assert len(folding.folds) <= most
        check(graph, folding)


@given(programs())
@settings(max_examples=examples(100), deadline=None)
def test_a_whole_picture_is_the_graph(graph: Graph) -> None:
    """A picture of a small graph has its layers and its transitive reduction, and its numbers."""
    folding = next(foldings(see(graph)))
    assert folding.is_whole
    assert [fold.looks[0].number for fold in folding.folds] == list(range(len(graph)))
    layers = {node.index: depth for depth, layer in enumerate(graph.layers()) for node in layer}
    assert [fold.layer for fold in folding.folds] == [layers[i] for i in range(len(graph))]
    kept = {(e.source.index, e.target.index, e.kind) for e in graph.transitive_reduction_edges()}
    assert {(s.source, s.target, s.kind) for s in folding.drawn} == kept


@given(programs(30))
@settings(max_examples=examples(100), deadline=None)
def test_the_critical_path_is_marked(graph: Graph) -> None:
    """In the picture exactly the tasks of the critical path are starred and thick, and the lines between them."""
    root = ET.fromstring(to_svg(graph))
    path = {node.index for node, _ in graph.critical_path()}
    for group in root.findall(f".//{SVG}g[@class='task']"):
        is_critical = int(group.get("id", "")[5:]) in path
        (shape,) = (child for child in group if child.tag in {SVG + "rect", SVG + "polygon"})
        assert (shape.get("stroke-width") == "3") == is_critical
        assert (group.findtext(f"{SVG}text") or "").startswith("★") == is_critical


@pytest.mark.parametrize("count", [56, 300, 2_000, 20_000])
@pytest.mark.parametrize("shape", SHAPES)
def test_pictures_of_any_size_fit(shape: str, count: int) -> None:
    """A picture is at most 4,000 pixels wide and high, its boxes stand within it and apart, and count every task."""
    graph = SHAPES[shape](count)
    root = ET.fromstring(to_svg(graph))
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    assert max(width, height) <= MAX_PX
    total, boxes = 0, []
    for group in root.findall(f".//{SVG}g[@data-fold]"):
        shapes = [child for child in group if child.tag in {SVG + "rect", SVG + "polygon"}]
        if shapes[-1].tag == SVG + "rect":
            x, y, across = (float(shapes[-1].get(name, "")) for name in ("x", "y", "width"))
        else:
            points = [tuple(map(float, point.split(","))) for point in shapes[-1].get("points", "").split()]
            x, y, across = (
                min(p[0] for p in points),
                points[0][1],
                max(p[0] for p in points) - min(p[0] for p in points),
            )
        assert 0 <= x <= x + across <= width - 48
        assert 0 <= y <= height - 48 - 46
        boxes.append((y, x, across))
        name = group.findtext(f"{SVG}text") or ""
        total += int(name.rpartition("\xd7")[2].replace(",", "")) if group.get("class") == "fold" else 1
    assert total == len(graph)
    assert len(boxes) <= MOST
    for one, other in pairwise(sorted(boxes)):
        assert one[0] != other[0] or one[1] + one[2] < other[1], "boxes overlap"


def test_equal_tasks_of_a_layer_are_one_box() -> None:
    """Above the limit, and not below it, equal tasks of a layer share a box; those that failed have their own."""
    for count in (WHOLE, WHOLE + 1):
        graph = Graph()
        for i in range(count):
            node = graph.add_node(Node(f"t-{i}", "work", "task"))
            node.run = SimpleNamespace(state="failed" if i == 7 else "complete", start_s=0.0, end_s=1.0)
        folds = next(foldings(see(graph))).folds
        assert len(folds) == (count if count == WHOLE else 2)
    assert [(fold.title, len(fold.looks), fold.phase) for fold in folds] == [
        ("work", WHOLE, "done"),
        ("work", 1, "failed"),
    ]


def test_components_of_circles() -> None:
    """Vertices that reach each other share a component, and no others do."""
    found = components(6, {(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 3)})
    groups = Counter(found)
    assert found[0] == found[1] == found[2]
    assert found[3] == found[4]
    assert sorted(groups.values()) == [1, 2, 3]
