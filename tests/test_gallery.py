"""The gallery of the site has a page for each example, with its graph, time line, critical path and output."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.profiles import few

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs"))  # where Sphinx finds the extensions of the site

from build_site import gallery, timeline  # noqa: E402

LISTED = {example.name: example for example in gallery.listed()}
PICTURES = [f"{kind}-{look}" for kind in ("graph", "trace") for look in ("light", "dark")]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the pages are written."""
    monkeypatch.setattr(gallery, "GENERATED", tmp_path)
    return tmp_path


def test_each_example_is_listed():
    """The list has each program of ``examples/`` once, and nothing else; no two pages have the same name."""
    assert sorted(example.path for example in gallery.listed()) == gallery.programs()
    assert len(LISTED) == len(gallery.programs())
    titles = [example.title for example in LISTED.values()]
    assert len(set(titles)) == len(titles)


def test_each_other_file_is_on_a_page():
    """The programs by hand, and the files that are a part of an example, stand on the page of an example."""
    shown = {example.path for example in LISTED.values()} | {example.by_hand for example in LISTED.values()}
    for example in LISTED.values():
        shown.update(gallery.parts(example))
    assert set((ROOT / "examples").rglob("*.py")) <= shown


def check_page(folder, name):
    """Write the page of an example, and check its parts."""
    example = LISTED[name]
    gallery.write_page(example)
    text = (folder / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {example.title}\n")
    included = [(folder / path).resolve() for path in re.findall(r"{literalinclude} (.*)", text)]
    assert included == [example.path, *gallery.parts(example), *([example.by_hand] if example.by_hand else [])]
    if example.by_hand:
        for path in (example.path, example.by_hand):
            assert re.search(rf"\b{gallery.code_lines(path.read_text(encoding='utf-8'))}\b", text.split("##")[0])
    if gallery.missing(example):
        assert "has not run here" in text
        return
    command, output = re.search(r"^## Output\n\n```console\n\$ (.*)\n([^`]*)```$", text, re.MULTILINE).groups()
    assert command == example.command
    assert output.strip()
    assert "The critical path: body" in text.split("## Profile and critical path")[1]
    for picture in PICTURES:
        alternative = re.search(rf"{{image}} {name}-{picture}\.svg\n:alt: (.*)\n", text)[1]
        assert len(alternative) > len(example.title) + 20
        check_picture(folder / f"{name}-{picture}.svg")


def check_picture(path):
    """A picture is valid, shows at least one task, and does not ask for the reader's settings."""
    text = path.read_text(encoding="utf-8")
    root = ET.fromstring(text)
    assert root.find("{http://www.w3.org/2000/svg}title").text
    assert len(list(root.iter("{http://www.w3.org/2000/svg}rect"))) > 1
    assert "@media" not in text


@pytest.mark.parametrize("name", few(["image_pipeline", "out_of_core_sort"], LISTED))
def test_page(name, folder):
    """A page has the program, the form by hand with both line counts, output, graph, time line and critical path."""
    check_page(folder, name)


def test_example_that_fails(folder, monkeypatch):
    """An example that fails ends the build with its output, and has no page."""
    monkeypatch.setitem(gallery.ARGUMENTS, "cholesky", ["--sise", "1"])
    with pytest.raises(gallery.ExampleError, match=r"examples/cholesky.py --sise 1 ends with status 2\n(.|\n)*--sise"):
        gallery.write_page(LISTED["cholesky"])
    assert not list(folder.iterdir())


def test_code_lines():
    """Blank lines, comments and docstrings do not count; strings of several lines and continued lines do."""
    documented = '"""Text.\n\nMore.\n"""\n\n# comment\n'
    assert gallery.code_lines(documented) == 0
    assert gallery.code_lines(documented + 'x = """a\n\nb"""  # comment\n') == 3
    assert gallery.code_lines('def f(\n    a,\n):\n    """Text."""\n\n    return a\n') == 4


def test_cards_have_all_examples():
    """On the site, the list becomes cards that lead to all pages."""
    text = [(gallery.GALLERY / "index.md").read_text(encoding="utf-8")]
    gallery.make_cards(None, "gallery/index", text)
    assert re.findall(r"^:link: generated/(\w+)$", text[0], re.MULTILINE) == list(LISTED)
    assert "* [" not in text[0]


def test_rows_of_a_trace():
    """Bars that overlap get rows of their own, bars within others do not, and time begins with the first task."""
    names = [("process_name", 0, 0, "host"), ("thread_name", 0, 7, "worker")]
    events = [{"ph": "M", "name": name, "pid": p, "tid": t, "args": {"name": text}} for name, p, t, text in names]
    for number, (start, length, category) in enumerate([(50, 90, "wait"), (100, 10, "task"), (102, 5, "task")]):
        events.append({"ph": "X", "pid": 0, "tid": 7, "ts": start, "dur": length, "name": f"{number}", "cat": category})
    events += [
        {"ph": ph, "pid": 0, "tid": 7, "ts": at, "id": "d", "name": "d", "cat": "detached"}
        for ph, at in (("b", 105), ("e", 120))
    ]
    rows = timeline.read_rows(events)
    assert [(row.name, [(bar.name, bar.start_us, bar.end_us) for bar in row.bars]) for row in rows] == [
        ("worker", [("0", 0, 20), ("1", 0, 10), ("2", 2, 7)]),
        ("worker (2)", [("d", 5, 20)]),
    ]
    assert timeline.describe(rows).startswith("Time line of 20 µs on host: 2 ")
    assert timeline.read_rows([]) == []


@pytest.mark.slow
def test_pages_by_the_command(tmp_path):
    """The command writes the pages that it is given names of."""
    before = {path: path.stat().st_mtime_ns for path in gallery.GENERATED.glob("kmeans*")}
    command = [sys.executable, "-m", "build_site.gallery", "kmeans"]
    done = subprocess.run(command, cwd=ROOT / "docs", capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    after = {path: path.stat().st_mtime_ns for path in gallery.GENERATED.glob("kmeans*")}
    assert len(after) == 5
    assert after != before
