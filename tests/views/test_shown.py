"""Where a graph is shown: notebooks, terminals of every kind, converted files, the critical path."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from offload.errors import UnsupportedError
from offload.tasks.graph import Graph, Node
from offload.views import converters, notebooks
from offload.views.converters import CONVERTERS, convert
from offload.views.files import visualize
from offload.views.notebooks import bundle_of, show
from offload.views.paths import CriticalPath
from offload.views.svg import to_svg
from offload.views.terminal import render
from tests.views.graphs import chain, cholesky, flat

ROOT = Path(__file__).parents[2]


def hostile(count: int = 6) -> Graph:
    """Return tasks with names that a terminal, Rich or XML might take for more."""
    graph = Graph()
    names = ("[red]", "[/]", "</script>", "a\x1b[2J\n\"'", "n" * 10_000, "\ud800", "名" * 40)
    for i in range(count):
        graph.add_node(Node(f"{names[i % 7]}-{i}", names[i % 7], ("task", "taskwait", "copy")[i % 3], device_num=i % 2))
        if i:
            graph.add_edge(graph.nodes[i - 1], graph.nodes[i], "flow", names[i % 7])
    return graph


@pytest.mark.parametrize("count", [6, 400])
@pytest.mark.parametrize("width", [1, 8, 20, 80])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
def test_any_terminal_shows_any_graph(count: int, width: int, encoding: str) -> None:
    """Narrow, colourless and old terminals show graphs with any names, within their width, without control codes."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    Console(file=file, width=width, color_system=None).print(render(hostile(count)))
    file.flush()
    text = raw.getvalue().decode(encoding)
    assert text.strip()
    assert "\x1b" not in text
    if width >= 20 and encoding != "utf-8":
        assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"NO_COLOR": "1"}, {"COLUMNS": "20"}, {"PYTHONIOENCODING": "ascii"}])
def test_visualize_prints_in_any_environment(env: dict[str, str]) -> None:
    """Without a path, a program without a notebook prints the terminal's view."""
    done = program("show(cholesky(300)); print('after')", env)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    assert b"multiply" in done.stdout
    assert done.stdout.rstrip().endswith(b"after")
    assert b"\x1b" not in done.stdout


def program(text: str, env: dict[str, str], **kwargs: object) -> subprocess.CompletedProcess[bytes]:
    code = "from offload.views.notebooks import show; from tests.views.graphs import *\n" + text
    kwargs = {"stdout": subprocess.PIPE, **kwargs}
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [sys.executable, "-c", code], stderr=subprocess.PIPE, cwd=ROOT, check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), **env}, **kwargs,
    )  # fmt: skip


def test_a_pipe_that_nobody_reads_is_no_error() -> None:
    """If the reader of the output is gone, the program goes on."""
    code = (
        "import os, sys; r, w = os.pipe(); os.close(r); os.dup2(w, 1)\n"
        "for _ in range(3): show(chain(2000))\n"
        "os.write(2, b'after'); os._exit(0)"
    )
    done = program(code, {})
    assert (done.returncode, done.stderr) == (0, b"after")


@pytest.mark.parametrize("text", ["sys.stdout = None", "sys.stdout.close()"])
def test_without_an_output_nothing_is_shown(text: str) -> None:
    """A program that has no standard output goes on."""
    done = program(f"import sys; {text}; show(chain(9)); sys.stderr.write('after')", {})
    assert (done.returncode, done.stderr) == (0, b"after")


def test_a_notebook_shows_the_graph_inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a notebook, which has a kernel, the picture is displayed; in IPython's terminal the text is printed."""
    displayed: list[object] = []
    printed: list[object] = []
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=displayed.append))  # type: ignore[arg-type]
    monkeypatch.setattr(notebooks, "print_quietly", printed.append)
    monkeypatch.setattr(notebooks, "render", lambda graph: graph)
    graph = chain(3)
    show(graph)
    assert (displayed, printed) == ([graph], [])
    del shell.kernel
    show(graph)
    assert (displayed, printed) == ([graph], [graph])


@pytest.mark.parametrize("count", [5, 3_000])
def test_notebooks_get_picture_page_and_text(count: int) -> None:
    """The bundle has a picture, HTML that shares nothing with the notebook's page, and text; large ones stay small."""
    bundle = bundle_of(flat(count))
    assert set(bundle) == {"image/svg+xml", "text/html", "text/plain"}
    ET.fromstring(bundle["image/svg+xml"])
    assert bundle["text/html"].startswith("<iframe srcdoc=" if count == 5 else "<img ")
    assert bundle["text/html"].count("<") == (2 if count == 5 else 1)
    assert f"{count:,} tasks" in bundle["text/plain"]
    assert len(json.dumps(bundle)) < 500_000


def test_critical_path_is_a_list_that_prints() -> None:
    """A critical path is a list of pairs; printed it is a table, of a long one the ends; notebooks get all forms."""
    graph = cholesky(300)
    path = CriticalPath(graph.critical_path())
    assert path == graph.critical_path()
    assert path[0][0] is graph.nodes[0]
    lines = repr(path).splitlines()
    assert lines[0] == f"Critical path: {len(path)} tasks, {1e3 * path.time_s:.1f} ms"
    assert lines[1].split() == ["★", "▣", "factor-0", "100", "µs", "0%", "dev", "0"]
    assert lines[6] == f"  … {len(path) - 10} tasks …"
    assert len(lines) == 12
    text = io.StringIO()
    Console(file=text, width=60).print(path)
    assert text.getvalue().splitlines()[0] == lines[0]
    bundle = path._repr_mimebundle_()
    assert set(bundle) == {"image/svg+xml", "text/html", "text/plain"}
    assert len(ET.fromstring(bundle["image/svg+xml"]).findall(".//{http://www.w3.org/2000/svg}rect")) == len(path) + 1
    for colour in ("#ffffff", "#111827", "#1d5fbf"):
        assert f'.offload-graph [fill="{colour}"]{{fill:#' in bundle["image/svg+xml"]  # on dark pages
    assert bundle["text/html"].count("<tr>") == len(path) + 1
    assert repr(CriticalPath()) == "Critical path: 0 tasks"


def test_critical_path_escapes_names() -> None:
    """Names of a critical path are text in HTML, SVG and the terminal."""
    bundle = CriticalPath(hostile().critical_path())._repr_mimebundle_()
    assert "</script>" not in bundle["text/html"] + bundle["image/svg+xml"]
    ET.fromstring(bundle["image/svg+xml"])
    assert "[red]" in bundle["text/plain"]
    assert len(bundle["text/html"]) < 5_000


@pytest.mark.parametrize("converter", CONVERTERS, ids=lambda converter: converter.name)
@pytest.mark.parametrize("kind", ["png", "pdf"])
def test_converters(converter: converters.Converter, kind: converters.Format, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each converter that is installed writes both formats; a PNG has at most 4,000 pixels on a side."""
    if not converter.find():
        pytest.skip(f"{converter.name} is not installed")
    monkeypatch.setattr(converters, "CONVERTERS", (converter,))
    data = convert(to_svg(cholesky(300)), kind)
    if kind == "pdf":
        assert data.startswith(b"%PDF")
        return
    assert data.startswith(b"\x89PNG")
    width, height = (int.from_bytes(data[at : at + 4]) for at in (16, 20))
    assert 2_052 < width <= 4_000
    assert height <= 4_000


@pytest.mark.parametrize("suffix", [".png", ".pdf"])
def test_without_a_converter_the_error_names_some(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PNG and PDF need a program; the error names those that serve, and no file appears."""
    monkeypatch.setattr(converters, "CONVERTERS", ())
    with pytest.raises(UnsupportedError, match=r"rsvg-convert.*cairosvg.*inkscape.*chromium"):
        visualize(chain(3), tmp_path / f"graph{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_a_converter_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A converter that ends without a picture is named, with its last words."""
    code = "import sys; sys.exit('no such font')"
    failing = converters.Converter("drawer", "drawer", lambda: [sys.executable, "-c", code], lambda *_: [])
    monkeypatch.setattr(converters, "CONVERTERS", (failing,))
    with pytest.raises(UnsupportedError, match=r"drawer did not convert the picture to \.png: no such font"):
        visualize(chain(3), tmp_path / "graph.png")


def test_paths_that_cannot_be_written(tmp_path: Path) -> None:
    """A folder, and a file in no folder, are told before the picture is drawn."""
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(IsADirectoryError, match="this is a folder"):
        visualize(Graph(), tmp_path / "folder.svg")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        visualize(Graph(), tmp_path / "missing" / "graph.svg")
    with pytest.raises(OSError, match="File name too long"):
        visualize(Graph(), tmp_path / ("n" * 300 + ".svg"))


def test_the_picture_of_the_page_on_tasks(tmp_path: Path) -> None:
    """The picture in docs/tasks.md is the graph of the example that it names; docs/pictures/cholesky.py draws it."""
    folder = ROOT / "docs" / "pictures"
    subprocess.run([sys.executable, folder / "cholesky.py", tmp_path], check=True, cwd=ROOT, timeout=100)
    assert (tmp_path / "cholesky.svg").read_text("utf-8") == (folder / "cholesky.svg").read_text("utf-8")
