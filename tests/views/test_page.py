"""The page of a graph, in a headless Chromium and as text."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from offload.tasks.graph import Graph, Node
from offload.views.page import to_page
from tests.views.browser import PROGRAM, Page
from tests.views.graphs import cholesky, layers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Opened = Callable[[Graph], Page]

needs_browser = pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed")


def data_of(page: str) -> dict[str, list[object]]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    page = Page(tmp_path_factory.mktemp("browser"))
    yield page
    page.close()


@pytest.fixture
def opened(browser: Page, tmp_path: Path) -> Opened:
    """Open the page of a graph."""

    def open_page(graph: Graph) -> Page:
        path = tmp_path / "graph.html"
        path.write_text(to_page(graph), encoding="utf-8")
        browser.open(path)
        return browser

    return open_page


def hostile() -> Graph:
    """Return tasks whose names would end the script, start an element or fill the page."""
    graph = Graph()
    names = [
        "</script><script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[red]x",
        "n" * 10_000,
        "a\"\n'b",
        "\ud800",
    ]
    for i, name in enumerate(names):
        graph.add_node(Node(f"{name}-{i}", name, "task"))
        if i:
            graph.add_edge(graph.nodes[i - 1], graph.nodes[i], "flow", name)
    return graph


def test_page_has_every_task_and_reason() -> None:
    """The page's data has each task and each edge of the graph with its kind and list item."""
    graph = cholesky(300)
    data = data_of(to_page(graph))
    texts = data["texts"]
    assert [texts[i] for i in data["key"]] == [node.key for node in graph.nodes]
    columns = zip(data["source"], data["target"], data["why"], data["item"], strict=True)
    found = {(source, target, texts[why], texts[item]) for source, target, why, item in columns}
    assert found == {(e.source.index, e.target.index, e.kind, e.item) for e in graph.edges}
    assert data["path"] == [node.index for node, _ in graph.critical_path()]


def test_no_name_ends_the_script_or_fills_the_page() -> None:
    """Names of any characters arrive as text, shortened, and the page stays one document."""
    page = to_page(hostile())
    assert page.count("</script>") == 2
    assert page.count("<script") == 2
    assert "<img" not in page
    assert len(page) < 80_000
    page.encode()


def test_page_forbids_the_network() -> None:
    """The page's policy allows no request, and nothing in it names another place."""
    page = to_page(cholesky(56))
    assert "default-src 'none'" in page
    assert set(re.findall(r"(?:https?:)?//[\w.]+\w", page.replace("// ", ""))) == {"http://www.w3.org"}


@needs_browser
def test_names_are_text_in_the_browser(opened: Opened) -> None:
    """Hostile names run nothing and appear as they are."""
    page = opened(hostile())
    assert page.complaints() == []
    assert page.get("document.querySelectorAll('.task').length") == 6
    assert "<img src=x onerror=alert(1)>" in page.get("document.querySelector('#panel').textContent")


@needs_browser
def test_pan_and_zoom(opened: Opened) -> None:
    """A drag moves the picture by the way of the mouse; the wheel zooms about the mouse; a button shows all again."""
    page = opened(cholesky(56))
    assert page.complaints() == []
    start = page.middle("#task-0")
    page.mouse("mousePressed", 400, 500, button="left", clickCount=1)
    page.mouse("mouseMoved", 420, 510, button="left", buttons=1)
    page.mouse("mouseMoved", 500, 560, button="left", buttons=1)
    page.mouse("mouseReleased", 500, 560, button="left", clickCount=1)
    moved = page.middle("#task-0")
    assert moved == pytest.approx((start[0] + 100, start[1] + 60), abs=1)
    width = page.get("document.querySelector('#task-0').getBoundingClientRect().width")
    page.mouse("mouseWheel", *moved, deltaX=0, deltaY=-400)
    assert page.get("document.querySelector('#task-0').getBoundingClientRect().width") > 1.5 * width
    assert page.middle("#task-0") == pytest.approx(moved, abs=2)
    page.click(*page.middle("#fit"))
    assert page.middle("#task-0") == pytest.approx(start, abs=1)


@needs_browser
def test_details_say_why(opened: Opened) -> None:
    """A click on a task shows what it waits for, with kind and list item, and marks it."""
    graph = cholesky(56)
    page = opened(graph)
    page.click(*page.middle("#task-8"))
    text = page.get("document.querySelector('#panel').innerText")
    assert "multiply-8" in text
    assert "Waits for 2 tasks" in text
    for edge in graph.edges:
        if edge.target.index == 8:
            assert f"{edge.source.key} flow: {edge.item}" in text
            assert page.get(f"document.querySelector('#task-{edge.source.index}').classList.contains('before')")


@needs_browser
def test_search_and_filter(opened: Opened) -> None:
    """Search and device leave the tasks that match and dim the others; Enter goes to each in turn."""
    page = opened(layers(100))
    page.click(*page.middle("#search"))
    page.type("copy in")
    names = "[...document.querySelectorAll('.task:not(.dim)')].map((t) => t.textContent)"
    assert len(page.get(names)) == 30
    assert all("copy in" in name for name in page.get(names))
    page.get("device.value = 'dev 1'; device.dispatchEvent(new Event('change'))")
    assert len(page.get(names)) == 15
    assert page.get("document.querySelector('#status').textContent") == "15 of 100 tasks"
    for _ in range(2):
        page.send("Input.dispatchKeyEvent", type="keyDown", key="Enter")
    assert page.get("document.querySelector('#status').textContent") == "2 of 15 found"
    assert "copy in-3" in page.get("document.querySelector('#panel h2').parentNode.innerText")
    assert page.complaints() == []


@needs_browser
def test_folds_open(opened: Opened) -> None:
    """A double click opens a fold: each of its tasks has a box, and a click on that shows its details."""
    graph = layers(2_000)
    page = opened(graph)
    fold = page.get("document.querySelector('.fold').id")
    count = page.get(f"members[Number(document.getElementById('{fold}').dataset.fold)].length")
    page.click(*page.middle(f"#{fold}"), times=2)
    assert page.get("document.querySelectorAll('.member').length") == count > 1
    page.click(*page.middle(".member"))
    assert "copy in-0" in page.get("document.querySelector('#panel').innerText")
    page.send("Input.dispatchKeyEvent", type="keyDown", key="Escape")
    assert page.get("document.querySelectorAll('.member').length") == 0
    assert page.complaints() == []


@needs_browser
def test_search_finds_a_task_in_a_fold(opened: Opened) -> None:
    """The key of a task leads to its box, even if it is one of many."""
    page = opened(layers(2_000))
    page.click(*page.middle("#search"))
    page.type("scale-200")
    page.send("Input.dispatchKeyEvent", type="keyDown", key="Enter")
    assert page.get("document.querySelector('.chosen text').textContent").startswith(("▣ scale", "★ ▣ scale"))
    text = page.get("document.querySelector('#panel').innerText")
    assert "scale-200" in text
    assert "in its box" in text
