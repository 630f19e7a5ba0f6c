"""What a picture shows can be read back, line by line, to exactly the edges that were drawn."""

from __future__ import annotations

import io
import re
from itertools import pairwise
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from offload.tasks.graph import Graph, Node
from offload.views.layout import route, spread
from offload.views.svg import to_svg
from offload.views.terminal import render
from tests.profiles import examples

if TYPE_CHECKING:
    from random import Random

UP, RIGHT, DOWN, LEFT = (-1, 0), (0, 1), (1, 0), (0, -1)
ARMS = {
    "│": {UP, DOWN},
    "─": {LEFT, RIGHT},
    "╭": {DOWN, RIGHT},
    "╮": {DOWN, LEFT},
    "╰": {UP, RIGHT},
    "╯": {UP, LEFT},
    "├": {UP, DOWN, RIGHT},
    "┤": {UP, DOWN, LEFT},
    "┬": {LEFT, RIGHT, DOWN},
    "┴": {LEFT, RIGHT, UP},
    "┼": {UP, DOWN, LEFT, RIGHT},
}
Pairs = set[tuple[int, int]]


def graph_of(count: int, pairs: Pairs) -> Graph:
    graph = Graph()
    for i in range(count):
        graph.add_node(Node(f"t-{i}", f"n{i}", "task", device_num=None if i % 3 else i))
    for source, target in sorted(pairs):
        graph.add_edge(graph.nodes[source], graph.nodes[target], "flow")
    return graph


@st.composite
def dags(draw: st.DrawFn, most: int = 16) -> Graph:
    count = draw(st.integers(1, most))
    ends = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    pairs = draw(st.sets(ends, max_size=3 * count))
    return graph_of(count, {(a, b) for a, b in pairs if a < b})


@st.composite
def layered(draw: st.DrawFn) -> Graph:
    """Graphs of few wide layers: many lines in one gap."""
    width, depth = draw(st.integers(2, 7)), draw(st.integers(2, 4))
    count = width * depth
    chosen = draw(
        st.sets(st.tuples(st.integers(0, count - width - 1), st.integers(0, 2 * width - 1)), max_size=3 * count)
    )
    pairs = {(a, (a // width + 1) * width + b) for a, b in chosen}
    return graph_of(count, {(a, b) for a, b in pairs if b < count})


def shown(graph: Graph, width: int) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width, color_system=None, force_terminal=False).print(render(graph))
    lines = file.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    return lines


def expected(graph: Graph) -> Pairs:
    return {(e.source.index, e.target.index) for e in graph.transitive_reduction_edges()}


def read(lines: list[str], count: int) -> tuple[str, Pairs]:
    text = "\n".join(lines)
    if "┌" in text:
        return "picture", read_picture(lines, count)
    if any(line.startswith("#") for line in lines):
        return "list", read_list(lines, count)
    return "rail", read_rail(lines, count)


class Picture:
    """A picture with its boxes found; what is left are lines."""

    def __init__(self, lines: list[str]) -> None:
        self.cells = {(r, c): char for r, line in enumerate(lines) for c, char in enumerate(line) if char != " "}
        self.box_at: dict[tuple[int, int], int] = {}
        self.exits: dict[tuple[int, int], int] = {}
        for r, c in [at for at, char in self.cells.items() if char == "┌"]:
            end = next(k for k in range(c + 1, len(lines[r])) if lines[r][k] == "┐")
            assert self.cells[r + 3, c] == "└"
            assert self.cells[r + 3, end] == "┘"
            name = re.search(r"n(\d+) ", lines[r + 1][c + 1 : end])
            assert name is not None
            number = int(name[1])
            for row in range(r, r + 4):
                for column in range(c, end + 1):
                    assert (row, column) not in self.box_at, "boxes overlap"
                    self.box_at[row, column] = number
                    if row == r + 3 and self.cells[row, column] == "┬":
                        self.exits[row, column] = number

    def follow(self, start: tuple[int, int], seen: set[tuple[int, int]]) -> set[int]:
        """Return the boxes that the line from this exit arrives at."""
        found: set[int] = set()
        visited: set[tuple[tuple[int, int], tuple[int, int]]] = set()
        todo = [(start, DOWN)]
        while todo:
            (r, c), way = todo.pop()
            if ((r, c), way) in visited:
                continue
            visited.add(((r, c), way))
            at = r + way[0], c + way[1]
            char = self.cells[at]
            if at in self.box_at:
                if way == DOWN:
                    assert char == "▼", "a line ends in a border"
                    found.add(self.box_at[at])
                else:
                    assert (way, char) == (UP, "┬"), "a line touches a box"
                continue
            back = (-way[0], -way[1])
            if char == "│" and way in {LEFT, RIGHT}:
                todo.append((at, way))
                continue
            assert back in ARMS[char], f"a line breaks off at {at}: {char}"
            seen.add(at)
            todo.extend((at, arm) for arm in ARMS[char] if arm != back)
        return found


def read_picture(lines: list[str], count: int) -> Pairs:
    last = max(r for r, line in enumerate(lines) if "└" in line)
    picture = Picture(lines[: last + 1])
    assert set(picture.box_at.values()) == set(range(count))
    seen: set[tuple[int, int]] = set()
    found = {(source, target) for at, source in picture.exits.items() for target in picture.follow(at, seen)}
    assert {at for at in picture.cells if at not in picture.box_at} == seen, "a line belongs to nothing"
    return found


def read_rail(lines: list[str], count: int) -> Pairs:
    found: Pairs = set()
    holder: dict[int, int] = {}
    task = -1
    for line in lines:
        row = re.match(r"([^n]*[●○][^n]*)n(\d+) ", line)
        if row is None:
            continue
        task += 1
        lanes = row[1]
        assert int(row[2]) == task
        own = next(c for c, char in enumerate(lanes) if char in "●○")
        met = {own} & holder.keys()
        for step in (-1, 1):
            at = own + step
            while 0 <= at < len(lanes) and (lanes[at] == "─" or (lanes[at] in "│┼┴├╰┤╯" and lanes[at - step] == "─")):
                if lanes[at] in "┼┴├╰┤╯":
                    met.add(at)
                if lanes[at] in "├╰┤╯":
                    break
                at += step
        found |= {(holder[at], task) for at in met}
        for at in list(holder):
            assert lanes[at] in "│├┤┼╰╯┴●○", "a lane is interrupted"
            if lanes[at] in "╰╯┴○":
                del holder[at]
        assert all(at in holder or at == own or char not in "│├┤┼" for at, char in enumerate(lanes))
        if lanes[own] == "●":
            holder[own] = task
    assert task == count - 1
    assert not holder
    return found


def read_list(lines: list[str], count: int) -> Pairs:
    found: Pairs = set()
    text = " ".join(line.rstrip() for line in lines)
    rows = re.findall(r"#(\d+) n\1, (.*?)(?=#\d+ n\d+, |$)", text)
    assert [int(number) for number, _ in rows] == list(range(count))
    for number, rest in rows:
        for first, last in re.findall(r"#(\d+)(?:-#(\d+))?", rest):
            found |= {(source, int(number)) for source in range(int(first), int(last or first) + 1)}
    return found


@given(dags() | layered())
@settings(max_examples=examples(300), deadline=None)
def test_picture_shows_exactly_the_edges(graph: Graph) -> None:
    """On a console of any width the layered picture is drawn, and its lines are the reduced edges."""
    assert read(shown(graph, 5_000), len(graph)) == ("picture", expected(graph))


@given(dags(30), st.integers(30, 160))
@settings(max_examples=examples(300), deadline=None)
def test_whatever_fits_shows_exactly_the_edges(graph: Graph, width: int) -> None:
    """Whichever form a width leads to, it stays within the width and shows the reduced edges."""
    assert read(shown(graph, width), len(graph))[1] == expected(graph)


@given(dags(24))
@settings(max_examples=examples(300), deadline=None)
def test_rail_shows_exactly_the_edges(graph: Graph) -> None:
    """Graphs too wide for a picture are shown as a rail whose lanes are the reduced edges."""
    wide = graph_of(len(graph) + 20, expected(graph))
    assert read(shown(wide, 120), len(wide)) == ("rail", expected(wide))


KINDS = ("flow", "anti", "output", "set", "wait")
SVG = "{http://www.w3.org/2000/svg}"


def walk(path: str) -> list[tuple[float, float]]:
    """Return the points that an SVG path of M, V, H and C visits."""
    points: list[tuple[float, float]] = []
    for command, text in re.findall(r"([MVHC])([^MVHC]*)", path):
        numbers = [float(number) for number in re.findall(r"-?[\d.e+]+", text)]
        x, y = points[-1] if points else (0.0, 0.0)
        if command in "MC":
            x, y = numbers[-2:]
        points.append((x, numbers[-1]) if command == "V" else (numbers[-1], y) if command == "H" else (x, y))
    return points


def boxes(root: ET.Element) -> dict[int, tuple[float, float, float, float]]:
    """Return left, top, right and bottom of each task's box."""
    found = {}
    for group in root.findall(f".//{SVG}g[@class='task']"):
        rect = group.find(f"{SVG}rect")
        assert rect is not None, "no task here is a copy, whose box is slanted"
        x, y, width, height = (float(rect.get(name, "")) for name in ("x", "y", "width", "height"))
        found[int(group.get("id", "")[5:])] = (x, y, x + width, y + height)
    return found


def at_edge(box: tuple[float, float, float, float], point: tuple[float, float], edge_y: float) -> bool:
    return box[0] < point[0] < box[2] and abs(point[1] - edge_y) <= 1


@given(dags(14), st.integers(0, 60), st.randoms(use_true_random=False))  # wider layers are folded
@settings(max_examples=examples(150), deadline=None)
def test_svg_shows_exactly_the_edges(start: Graph, tail: int, random: Random) -> None:
    """Lines lead from their sources to their targets, in columns too; boxes and arrowheads keep apart."""
    graph = graph_of(len(start) + tail, set())
    pairs = expected(start) | {(len(start) - 1 + i, len(start) + i) for i in range(tail)}
    for source, target in sorted(pairs):
        for kind in random.sample(KINDS, random.choice((1, 1, 2))):
            graph.add_edge(graph.nodes[source], graph.nodes[target], kind)
    root = ET.fromstring(to_svg(graph))
    box = boxes(root)
    assert len(box) == len(graph)
    for one, other in pairwise(sorted(box.values(), key=lambda b: (b[1], b[0]))):
        assert one[1] < other[1] or one[2] < other[0], "boxes overlap"
    found, tips = set(), []
    for group in root.findall(f".//{SVG}g[@class='edge']"):
        _, source, target, kind = group.get("id", "").split("-")
        (path,) = (walk(path.get("d", "")) for path in group.findall(f"{SVG}path"))
        assert at_edge(box[int(source)], path[0], box[int(source)][3])
        assert at_edge(box[int(target)], path[-1], box[int(target)][1])
        tips.append(path[-1])
        found.add((int(source), int(target), kind))
    for group in root.findall(f".//{SVG}g[@class='bundle']"):
        sources, targets = ([int(i) for i in group.get(f"data-{side}", "").split()] for side in ("sources", "targets"))
        stem, *arrows = (path.get("d", "") for path in group.findall(f"{SVG}path"))
        starts = [walk("M" + line)[0] for line in (stem + "".join(arrows)).split("M")[1:]]
        assert all(any(at_edge(box[i], start, box[i][3]) for start in starts) for i in sources)
        ends = [walk(path)[-1] for path in arrows]
        assert all(at_edge(box[i], end, box[i][1]) for i, end in zip(targets, ends, strict=True))
        tips += ends
        marker = group.findall(f"{SVG}path")[-1].get("marker-end", "")
        kind = marker.removesuffix(")").rpartition("-")[2]
        found |= {(source, target, kind) for source in sources for target in targets}
    assert found == {(e.source.index, e.target.index, e.kind) for e in graph.transitive_reduction_edges()}
    for one, other in pairwise(sorted(tips, key=lambda tip: (tip[1], tip[0]))):
        assert one[1] < other[1] or one[0] + 10 <= other[0], "arrowheads fall on each other"


@st.composite
def gaps(draw: st.DrawFn) -> list[tuple[list[int], list[int]]]:
    count = draw(st.integers(1, 6))
    ups = draw(st.permutations(range(12)))
    downs = draw(st.permutations(range(12)))
    return [(list(ups[2 * i : 2 * i + 1 + i % 2]), list(downs[2 * i : 2 * i + 2 - i % 2])) for i in range(count)]


@given(gaps())
@settings(max_examples=examples(500), deadline=None)
def test_routed_lines_cross_but_never_touch(hops: list[tuple[list[int], list[int]]]) -> None:
    """However upper and lower columns coincide, two hops share a cell only where one crosses the other."""
    tracks, rows = route(hops)
    across: dict[tuple[int, int], int] = {}
    along: dict[tuple[int, int], int] = {}
    for track in tracks:
        assert 0 <= track.row < rows
        low, high = min(track.columns), max(track.columns)
        spans = [(c, 0, track.row) for c in track.ups] + [(c, track.row, rows - 1) for c in track.downs]
        if track.after is not None and track.link is not None:
            assert track.after.row < track.row
            spans.append((track.link, track.after.row, track.row))
        for column, first, last in spans:
            for row in range(first, last + 1):
                assert along.setdefault((row, column), track.hop) == track.hop
        for column in range(low, high + 1):
            assert (track.row, column) not in across
            across[track.row, column] = track.hop
    for track in tracks:
        for column in track.columns:
            # Where a line turns, nothing else is.
            assert across[track.row, column] == along[track.row, column] == track.hop
    routed = {track.hop for track in tracks}
    assert all(ups == downs for i, (ups, downs) in enumerate(hops) if i not in routed)


@given(st.lists(st.tuples(st.floats(-50, 50), st.integers(1, 9), st.floats(0.1, 9)), min_size=1, max_size=8))
def test_spread_keeps_distances_and_moves_nothing_needlessly(vertices: list[tuple[float, int, float]]) -> None:
    """Positions keep their distances, and no single one could come nearer to its wish."""
    wishes, steps, weights = ([*column] for column in zip(*vertices, strict=True))
    found = spread(wishes, steps[:-1], weights)
    distances = [b - a - step for a, b, step in zip(found, found[1:], steps, strict=False)]
    assert all(slack > -1e-6 for slack in distances)
    for i, (x, wish) in enumerate(zip(found, wishes, strict=True)):
        free = distances[i] if wish > x and i < len(distances) else distances[i - 1] if wish < x and i else 1.0
        assert abs(wish - x) < 1e-6 or free < 1e-6 or min(abs(s) for s in distances) < 1e-6
