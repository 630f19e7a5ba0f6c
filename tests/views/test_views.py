"""Views of a graph: wording, forms, files."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement

from offload.errors import UnsupportedError
from offload.tasks.graph import Graph, Node
from offload.views.dot import to_dot
from offload.views.files import visualize
from offload.views.layout import route
from offload.views.looks import summary
from offload.views.mermaid import to_mermaid
from offload.views.page import to_page
from offload.views.svg import COPY_INK, DEVICE_COLOURS, PHASE_FILLS, to_svg
from offload.views.terminal import render
from offload.views.words import duration_label, printable

if TYPE_CHECKING:
    from collections.abc import Callable

SVG = "{http://www.w3.org/2000/svg}"


def pipeline(buffers: int = 3) -> Graph:
    """Return copy-in, fft, copy-out for each buffer; the first has run."""
    graph = Graph()
    for b in range(buffers):
        chain = [
            graph.add_node(Node(f"{name}-{b}", f"{name} {b}", "target", device_num=b % 2, location="fft.py:12"))
            for name in ("copy-in", "fft", "copy-out")
        ]
        if b == 0:
            for i, node in enumerate(chain):
                node.run = SimpleNamespace(state="complete", start_s=i * 0.5, end_s=i * 0.5 + 0.0123)
        graph.add_edge(chain[0], chain[1], "flow", f"x[{b}]")
        graph.add_edge(chain[1], chain[2], "flow", f"y[{b}]")
    return graph


def odd() -> Graph:
    """Return two tasks whose names mean something to every format, and an item that does too."""
    graph = Graph()
    a = graph.add_node(Node("a-0", 'a "<b>&\\N\n\x1b[31m', "task", detach=True))
    b = graph.add_node(Node("b-1", "[red]名前[/red]", "taskwait"))
    graph.add_edge(a, b, "wait", "x<1>&y")
    graph.add_edge(a, b, "set")
    return graph


def shown(graph: Graph, width: int, encoding: str = "utf-8", *, color: bool = False) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    console = Console(file=file, width=width, color_system="truecolor" if color else None, force_terminal=color)
    console.print(render(graph))
    file.flush()
    return raw.getvalue().decode(encoding)


def title(root: ET.Element, name: str) -> str:
    return root.findtext(f".//*[@id='{name}']/{SVG}title") or ""


def test_picture_of_a_pipeline() -> None:
    """The picture of two buffers is this one, to the character."""
    assert shown(pipeline(2), 80).splitlines() == [
        "┌───────────────────────┐   ┌─────────────────────┐",
        "│ ★ ▣ copy-in 0   dev 0 │   │ ▣ copy-in 1   dev 1 │",
        "│ ✓ complete    12.3 ms │   │ · planned           │",
        "└───────────┬───────────┘   └──────────┬──────────┘",
        "            │                          │",
        " ┌──────────▼──────────┐      ┌────────▼────────┐",
        " │ ★ ▣ fft 0     dev 0 │      │ ▣ fft 1   dev 1 │",
        " │ ✓ complete  12.3 ms │      │ · planned       │",
        " └──────────┬──────────┘      └────────┬────────┘",
        "            │                          │",
        "┌───────────▼───────────┐   ┌──────────▼──────────┐",
        "│ ★ ▣ copy-out 0  dev 0 │   │ ▣ copy-out 1  dev 1 │",
        "│ ✓ complete    12.3 ms │   │ · planned           │",
        "└───────────────────────┘   └─────────────────────┘",
        "6 tasks, 4 dependences; 3 done, 3 waiting; critical path 3 tasks, 36.9 ms",
        "▣ region on a device    ★ on the critical path",
    ]


def test_narrow_console_gets_a_rail_and_a_narrower_one_a_list() -> None:
    """The form follows the width, and no line is wider than that."""
    joined = pipeline()
    wait = joined.add_node(Node("taskwait-9", "taskwait", "taskwait"))
    for node in joined.nodes[:-1]:
        joined.add_edge(node, wait, "wait")
    wide, narrow, tiny = (shown(joined, width) for width in (100, 50, 24))
    assert "┌" in wide
    assert re.search(r"^●─┴─╯|^○─┴─╯", narrow, re.MULTILINE)
    assert "│ leads down from a task to the last one that" in narrow
    assert "after #2, #5, #8" in " ".join(tiny.split())
    for text, width in ((wide, 100), (narrow, 50), (tiny, 24)):
        assert max(map(len, text.splitlines())) <= width


def test_console_without_unicode_gets_ascii() -> None:
    """On a terminal that knows only ASCII every character is ASCII and the dependences are there."""
    text = shown(pipeline(), 80, "ascii")
    assert "#1 fft 0, target, dev 0, complete, 12.3 ms, after #0, on the critical path\n" in text
    assert "?" not in text


def test_colour_only_where_the_terminal_has_it() -> None:
    """States and devices are coloured, and without colour nothing but text is written."""
    assert "\x1b[32m✓ complete" in shown(pipeline(), 100, color=True)
    assert "\x1b" not in shown(pipeline(), 100)


def test_names_cannot_disturb_the_picture() -> None:
    """Markup is not markup, control characters do not reach the terminal, wide characters keep borders straight."""
    text = shown(odd(), 80)
    assert "[red]名前[/red]" in text
    assert "\x1b" not in text
    boxed = [line for line in text.splitlines() if line[0] in "┌│└"]
    assert len(boxed) == 4
    assert {cell_len(line) for line in boxed} == {39}
    other = [line.strip() for line in text.splitlines() if "名前" in line]
    assert [cell_len(line) for line in other] == [29]


def test_long_name_is_cut() -> None:
    """A name longer than a box may be ends in an ellipsis."""
    graph = Graph()
    graph.add_node(Node("k", "n" * 80, "task"))
    assert "n" * 27 + "… " in shown(graph, 80)


def test_large_graph_begins_with_totals_and_the_critical_path() -> None:
    """Above the limit there are totals by name and the ends of the critical path, then a picture of few boxes."""
    graph = Graph()
    for i in range(600):
        name = ("load", "work")[i % 2]
        node = graph.add_node(Node(f"{name}-{i}", name, "task", device_num=i % 2 or None))
        node.run = SimpleNamespace(state="complete", start_s=float(i), end_s=i + (0.25, 0.5)[i % 2])
        if i:
            graph.add_edge(graph.nodes[i - 1], graph.nodes[i], "flow")
    lines = shown(graph, 100).splitlines()
    assert lines[:6] == [
        "600 tasks, 599 dependences; 600 done; critical path 600 tasks, 225 s",
        "300 on dev 1, 300 on host · 600 layers, the widest of 1",
        "",
        "name    tasks   total  longest    ★  state",
        "▣ work    300   150 s   500 ms  300  300 done",
        "□ load    300  75.0 s   250 ms  300  300 done",
    ]
    assert lines[7:9] == ["Critical path: 600 tasks, 225 s", "★ □ load-0      250 ms    0%  host"]
    assert lines[13] == "  … 590 tasks …"
    counts = [int(count) for count in re.findall(r"\xd7(\d+)", "\n".join(lines))]
    assert sum(counts) == 600
    assert len(lines) < 160


def test_empty_graph_says_so() -> None:
    """A graph without tasks is a sentence in the terminal and a valid picture elsewhere."""
    assert shown(Graph(), 80).strip() == "empty graph: no tasks were recorded"
    assert ET.fromstring(to_svg(Graph())).tag == SVG + "svg"
    assert to_dot(Graph()).endswith("}\n")


def test_view_fits_where_rich_puts_it() -> None:
    """Rich may ask for a measure and gets one within its limits."""
    console = Console(width=50, file=io.StringIO())
    assert Measurement.get(console, console.options, render(pipeline())).maximum == 50


def test_exchange_of_columns_is_routed_by_a_split() -> None:
    """Two hops that swap columns demand each other's row; one is split around the other."""
    tracks, rows = route([([0], [4]), ([4], [0])])
    assert sorted(track.hop for track in tracks) in ([0, 0, 1], [0, 1, 1])
    assert rows == 3
    assert route([([3], [3])]) == ([], 0)


def test_svg_has_every_task_and_line() -> None:
    """The document is well-formed and has a group for each task and line, a legend, and no reference outside."""
    text = to_svg(pipeline())
    root = ET.fromstring(text)
    groups = [group.get("class") for group in root.iter(SVG + "g")]
    assert (groups.count("task"), groups.count("edge"), groups.count("legend")) == (9, 6, 1)
    assert title(root, "edge-0-1-flow") == "copy-in-0 → fft-0\nflow: x[0]"
    assert "12.3 ms" in text
    assert set(re.findall(r"https?://[^\"]*", text)) == {"http://www.w3.org/2000/svg"}


def test_straight_chains_are_straight_in_svg() -> None:
    """A chain of tasks is drawn with vertical lines only."""
    paths = re.findall(r'<path d="(M[^"]*)" fill="none"', to_svg(pipeline()).partition('class="legend"')[0])
    assert len(paths) == 6
    assert not [path for path in paths if "C" in path]


def test_svg_escapes_what_xml_would_read() -> None:
    """Names and items with markup or control characters arrive as text, parallel kinds as lines of their own."""
    root = ET.fromstring(to_svg(odd()))
    texts = [element.text for element in root.iter(SVG + "text")]
    assert '★ □ a "<b>&\\N �[31m' in texts
    assert title(root, "edge-0-1-wait").endswith("wait: x<1>&y")
    assert title(root, "edge-0-1-set").endswith("set")
    assert "completes when its event is fulfilled" in title(root, "task-0")


def failed() -> Graph:
    """Return a copy that failed and a detached task that did not run since it depends on it."""
    graph = Graph()
    nodes = [Node("copy-0", "copy", "target_memcpy_rect", device_num=0), Node("b-1", "b", "task", detach=True)]
    for node, state in zip(nodes, ("failed", "not run"), strict=True):
        node.run = SimpleNamespace(state=state, start_s=None, end_s=None)
        graph.add_node(node)
    graph.add_edge(*nodes, "flow", "x")
    return graph


def test_what_did_not_run_is_not_what_failed() -> None:
    """A task whose predecessor failed has its own sign, colour and count; copies and detached tasks are told."""
    graph = failed()
    assert "2 tasks, 1 dependence; 1 failed, 1 not run; critical" in summary(graph)
    text = shown(graph, 80)
    assert "✗ failed" in text
    assert "⊘ not run" in text
    assert "host, detached" in text
    coloured = shown(graph, 80, color=True)
    assert "\x1b[1;31m✗ failed" in coloured
    assert "\x1b[90m⊘ not run" in coloured
    assert re.search(r"\x1b\[1;38;5;\d+m★ ⇄ copy\x1b", coloured)
    root = ET.fromstring(to_svg(graph))
    groups = root.iterfind(f".//{SVG}g[@class='task']")
    fills = [shape.get("fill") for group in groups for shape in group if shape.tag in {SVG + "rect", SVG + "polygon"}]
    assert fills == [PHASE_FILLS["failed"], PHASE_FILLS["not run"]]
    inks = {element.text: element.get("fill") for element in root.iter(SVG + "text")}
    assert (inks["★ ⇄ copy"], inks["★ □ b"] == inks["★ ⇄ copy"]) == (COPY_INK, False)
    assert "copy or data construct" in "".join(root.itertext())
    assert f'fontcolor="{COPY_INK}"' in to_dot(graph)


def test_svg_says_what_it_is() -> None:
    """The document is an image with a title that says how many tasks it shows."""
    root = ET.fromstring(to_svg(pipeline()))
    assert root.get("role") == "img"
    assert root.findtext(SVG + "title") == f"Task graph: {summary(pipeline())}"
    assert "9 tasks" in summary(pipeline())


@pytest.mark.parametrize(("length", "width"), [(20, 1), (400, 1), (200, 3)])
def test_long_graphs_are_broken_into_columns(length: int, width: int) -> None:
    """No picture of a long and narrow graph is much higher than wide, and a short one is as it was."""
    graph = graph_of_chains(length, width)
    root = ET.fromstring(to_svg(graph))
    wide, high = float(root.get("width", "")), float(root.get("height", ""))
    if length == 20:
        assert high > 20 * 100 > wide
    else:
        assert high < 4_500
        assert 0.7 < wide / high < 2
    folds = [group.findtext(f"{SVG}text") or "" for group in root.findall(f".//{SVG}g[@class='fold']")]
    tasks = root.findall(f".//{SVG}g[@class='task']")
    assert len(tasks) + sum(int(name.rpartition("\xd7")[2]) for name in folds) == length * width


def graph_of_chains(length: int, width: int) -> Graph:
    graph = Graph()
    for i in range(length * width):
        graph.add_node(Node(f"t-{i}", f"t{i}", "task"))
        if i >= width:
            graph.add_edge(graph.nodes[i - width], graph.nodes[i], "flow")
    return graph


def test_waits_are_bundled() -> None:
    """What all waits for one task is led together and arrives with one arrow."""
    graph = Graph()
    nodes = [graph.add_node(Node(f"t-{i}", f"t{i}", "task")) for i in range(41)]
    for node in nodes[:-1]:
        graph.add_edge(node, nodes[-1], "wait")
    root = ET.fromstring(to_svg(graph))
    (bundle,) = root.findall(f".//{SVG}g[@class='bundle']")
    assert bundle.get("data-sources") == " ".join(map(str, range(40)))
    assert [path.get("marker-end") for path in bundle.findall(SVG + "path")] == [None, "url(#thick-wait)"]
    assert (bundle.findtext(SVG + "title") or "").startswith("t-0, t-1, t-2, t-3, t-4, t-5, … (40 tasks) → t-40")


def test_dot_escapes_what_graphviz_would_read() -> None:
    """Quotes, backslashes and entities are escaped, and every edge is there, implied or not."""
    graph = odd()
    last = graph.add_node(Node("c-2", "c", "task"))
    graph.add_edge(graph.nodes[1], last, "flow", "a")
    graph.add_edge(graph.nodes[0], last, "flow", "a")
    for item in "bcd":
        graph.add_edge(graph.nodes[0], last, "flow", item)
    text = to_dot(graph)
    assert r'label="★ □ a \"<b>&amp;\\N �[31m\nhost, detached · planned"' in text
    assert 'n0 -> n2 [label="a, b, c, …", tooltip="flow: a, b, c, d"' in text
    assert text.count(" -> ") == 4


def test_mermaid_has_every_edge_and_plain_labels() -> None:
    """What Mermaid would read as more than a character is written by its code, and every edge is there, by its kind."""
    graph = odd()
    last = graph.add_node(Node("c-2", "end", "copy", device_num=1))
    graph.add_edge(graph.nodes[1], last, "output", "a")
    for item in "abcd":
        graph.add_edge(graph.nodes[0], last, "flow", item)
    lines = to_mermaid(graph).splitlines()
    assert lines[:2] == [
        "flowchart TB",
        '  n0["#9733; #9633; a #34;#60;b#62;#38;#92;N #65533;#91;31m<br>host, detached #183; planned"]',
    ]
    assert (
        f"  style n2 fill:{PHASE_FILLS['waiting']},stroke:{DEVICE_COLOURS[1]},color:{COPY_INK},stroke-width:4px"
        in lines
    )
    links = [line.strip() for line in lines if "--" in line or "-." in line or "==" in line]
    assert links == ['n0 -.->|"x#60;1#62;#38;y"| n1', "n0 -.-> n1", 'n1 ==>|"a"| n2', 'n0 -->|"a, b, c, #8230;"| n2']
    assert [line.split()[1] for line in lines if "linkStyle" in line] == ["0", "1", "2", "3"]
    assert to_mermaid(Graph()) == "flowchart TB\n"


def test_page_is_the_picture() -> None:
    """A page of HTML has the SVG, and a title for the window."""
    page = to_page(pipeline())
    assert page.startswith("<!DOCTYPE html>")
    assert to_svg(pipeline()) in page
    assert f"<title>Task graph: {summary(pipeline())}</title>" in page


@pytest.mark.parametrize(
    ("suffix", "writer"), [(".svg", to_svg), (".DOT", to_dot), (".mmd", to_mermaid), (".html", to_page)]
)
def test_visualize_writes_by_suffix(tmp_path: Path, suffix: str, writer: Callable[[Graph], str]) -> None:
    """The suffix, in either case, chooses the format; an existing file is replaced and nothing is left beside it."""
    path = tmp_path / f"graph{suffix}"
    path.write_text("old")
    visualize(pipeline(), str(path))
    assert path.read_text("utf-8") == writer(pipeline())
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["graph.bmp", "graph", ".svg"])
def test_visualize_refuses_other_suffixes(tmp_path: Path, name: str) -> None:
    """Any other suffix is named with those allowed, and no file appears."""
    with pytest.raises(UnsupportedError, match=r"'\.dot', '\.html', '\.mmd', '\.pdf', '\.png' and '\.svg'") as caught:
        visualize(pipeline(), tmp_path / name)
    assert repr(Path(name).suffix) in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_visualize_tells_of_one_file_where_it_fails(tmp_path: Path) -> None:
    """The message of an OSError ends with the name that was given, and with nothing in place of a second one."""
    for name in ("missing/graph.mmd", "folder.html"):
        (tmp_path / "folder.html").mkdir(exist_ok=True)
        with pytest.raises(OSError, match=r"graph\.mmd'$|folder\.html'$"):
            visualize(pipeline(), tmp_path / name)


def test_visualize_leaves_the_old_file_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure to write is an OSError; the file that was there stays and no part of the new one does."""
    with pytest.raises(FileNotFoundError) as missing:
        visualize(pipeline(), tmp_path / "missing" / "graph.svg")
    assert (missing.value.filename, missing.value.filename2) == (str(tmp_path / "missing" / "graph.svg"), None)
    path = tmp_path / "graph.svg"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(PermissionError) as caught:
        visualize(pipeline(), path)
    assert caught.value.filename == str(path)
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(PermissionError, match="read-only"):
        visualize(pipeline(), path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("time_s", "text"),
    [(None, ""), (0.0, "0 ns"), (2.5e-7, "250 ns"), (1.234e-5, "12.3 µs"), (0.9996, "1.00 s"), (0.0123, "12.3 ms"),
     (9.996e-3, "10.0 ms"), (123.4, "123 s")],
)  # fmt: skip
def test_times_have_three_digits_and_a_unit(time_s: float | None, text: str) -> None:
    """A time is shown with three significant digits in the unit that fits."""
    assert duration_label(time_s) == text


def test_summary_counts_and_names_the_critical_path() -> None:
    """One line gives the size, how far the run has come and the critical path."""
    assert summary(pipeline()) == "9 tasks, 6 dependences; 3 done, 6 waiting; critical path 3 tasks, 36.9 ms"
    assert printable(" a\tb\x00 ") == "a b�"


def test_views_need_rich_only_in_the_terminal() -> None:
    """Writing a picture to a file imports neither Rich nor Dask."""
    code = (
        "import sys, offload.views.svg, offload.views.dot; from offload.tasks.graph import Graph; "
        "offload.views.svg.to_svg(Graph()); print(sorted({'rich', 'dask'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout == "[]\n"
