"""The entries of the report: sides, fixes, names, needless calls, blocking copies, dependences, unwritten memory."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from offload.port.analysis import analyse
from offload.port.graphs import line_graph
from offload.port.report import report_view
from offload.sanitizer.buffers import ARE_SEEN
from tests.port.marked import line_of

GOLDEN = Path(__file__).parent / "golden"

HEAD = """\
import numpy as np
import cupy as cp
import cupyx
load = cp.cuda.Stream(non_blocking=True)
work = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
h = cupyx.zeros_pinned(8)
x = cp.zeros(8)
bufs = [cp.zeros(8) for _ in range(2)]
cp.cuda.Device().synchronize()
"""


def test_the_keys(report):
    """The report has the keys of the reference, and nothing else."""
    text = (
        HEAD + "with load: x.set(h)\nwith work[0]: x += 1\nx.get()\nwork[0].synchronize()\nz = cp.empty(3)\nz.sum()\n"
    )
    found = report(text)
    assert list(found) == [
        *("version", "program", "on", "operations", "streams", "unchecked", "races", "uninitialised", "redundant"),
        *("blocking", "edges", "emitted", "reasons"),
    ]
    assert json.loads(json.dumps(found)) == found
    side = {"file", "line", "what", "name"}
    assert set(found["races"][0]) == {"first", "second", "item", "count", "fix"}
    assert set(found["races"][0]["first"]) == set(found["races"][0]["second"]) == side
    assert set(found["races"][0]["fix"]) == {"kind", "text", "file", "line"}
    assert set(found["uninitialised"][0]) == {"first", "second", "count"}
    assert set(found["redundant"][0]) == {"file", "line", "call", "count", "why"}
    assert set(found["blocking"][0]) == {"file", "line", "call", "count", "used"}
    assert set(found["edges"][0]) == {"first", "second", "kind", "count"}
    assert (found["version"], found["on"], found["emitted"], found["reasons"]) == (1, "sim", None, [])


def test_an_empty_report(report):
    """A program without streams and arrays has an empty report."""
    found = report("print('hello')\n")
    assert (found["streams"], found["operations"], found["unchecked"]) == (0, 0, False)
    assert [found[key] for key in ("races", "uninitialised", "redundant", "blocking", "edges")] == [[]] * 5


def test_numbers(report):
    """Streams that the program opens count, and so do kernels and copies on any stream."""
    found = report(HEAD + "with load: x.set(h)\nx.get()\n")
    assert (found["streams"], found["operations"]) == (3, 3 + 2)


def test_a_variable_of_several_streams_names_none(report):
    """A variable that holds several streams in turn gives way to the elements of a list, or to numbers."""
    loop = "for s in STREAMS:\n    with s: x += 1\n"
    [race] = report(HEAD + loop.replace("STREAMS", "work"))["races"]
    assert (race["first"]["name"], race["second"]["name"]) == ("work[0]", "work[1]")
    [race] = report(HEAD + loop.replace("STREAMS", "(cp.cuda.Stream() for _ in range(2))"))["races"]
    assert (race["first"]["name"], race["second"]["name"]) == ("stream 4", "stream 5")
    assert race["fix"]["text"].startswith("stream_5.wait_event(event), with event = stream_4.record() after line")


@pytest.mark.skipif(ARE_SEEN, reason="Python shows these accesses")
def test_memory_that_the_host_was_not_seen_to_use(tmp_path, record):
    """The report names copies whose host memory only compiled code can have used."""
    text = HEAD + "for _ in range(2):\n    bytes(5)\n    USE\n    x.set(h, stream=load)\n    load.synchronize()\n"
    path = str(tmp_path / "program.py")
    [sentence] = analyse(record(text.replace("USE", "pass")), path, "sim").not_seen
    assert sentence.startswith("Line 14 may be needed for the copy of h at line 13: ")
    assert analyse(record(text.replace("USE", "h[:] = 1")), path, "sim").not_seen == []
    text = HEAD + "for _ in range(2):\n    bytes(5)\n    x.set(h, stream=load)\nx.get()\n"
    words = "The host was not seen to write the host memory of the copies at line 12."
    assert words in analyse(record(text), path, "sim").not_seen


def test_sides_and_names(report, tmp_path):
    """A side has the absolute file, the line, the kind of access, and the variable of the stream or the thread."""
    text = HEAD + "for k in range(2):\n    with work[k]: bufs[k] += 1\nwith load: bufs[1] *= 2\n"
    [race] = report(text)["races"]
    file = str(tmp_path / "program.py")
    assert race["first"] == {"file": file, "line": 11, "what": "write", "name": "work[1]"}
    assert race["second"] == {"file": file, "line": 12, "what": "write", "name": "load"}
    assert race["item"] == "bufs[1]"
    assert race["fix"] == {
        "kind": "wait_event",
        "text": "load.wait_event(event), with event = work[1].record() after line 11",
        "file": file,
        "line": 12,
    }


EVENTS = """\
up = cp.cuda.Event()
def scale(a):
    a *= 2
x.set(h, stream=load)
RECORD
h[:] = 1  # host
with work[0]:  # block
    scale(x)
"""


@pytest.mark.parametrize(
    ("call", "host", "device"),
    [
        ("up.record(load)", "up.synchronize()", "work[0].wait_event(up)"),
        ("load.record(up)", "up.synchronize()", "work[0].wait_event(up)"),
        ("pass", "load.synchronize()", "work[0].wait_event(event), with event = load.record() after line 13"),
        ("up.record(load); up.record(work[1])", "load.synchronize()", None),
    ],
)
def test_a_fix_names_an_event_of_the_program(report, call, host, device):
    """A fix names an event that is recorded after the first access, if one variable holds events of one stream only.

    In a function that works on its caller's stream, the fix belongs before the caller's ``with``.
    """
    text = HEAD + EVENTS.replace("RECORD", call)
    first, second = (race["fix"] for race in report(text)["races"])
    assert (first["text"], first["line"]) == (host, line_of(text, "# host"))
    assert second["line"] == line_of(text, "# block")
    assert device is None or second["text"] == device


def test_the_host_is_a_side(report):
    """The host's access to a pinned array is a side, and the fix synchronises the stream."""
    [race] = report(HEAD + "x.get(stream=load, out=h, blocking=False)\nh[2:4].sum()\n")["races"]
    assert (race["first"]["what"], race["first"]["name"]) == ("copy", "load")
    assert (race["second"]["what"], race["second"]["name"]) == ("read", "MainThread")
    assert (race["item"], race["fix"]["kind"], race["fix"]["text"]) == ("h", "synchronize", "load.synchronize()")


def test_counts(report):
    """The count of a race is the number of pairs of executions."""
    [race] = report(HEAD + "for _ in range(3):\n    with load: x += 1\nfor _ in range(4):\n    with work[0]: x += 1\n")[
        "races"
    ]
    assert race["count"] == 12


def test_both_directions(report):
    """Two lines of a loop race in both orders of their executions."""
    text = HEAD + "for _ in range(3):\n    with load: x += 1\n    with work[0]: x += 1\n"
    found = report(text)["races"]
    lines = [(race["first"]["line"], race["second"]["line"], race["count"]) for race in found]
    assert lines == [(11, 12, 6), (12, 11, 3)]


def test_another_file(report, tmp_path):
    """Lines in a module under the program's folder are the program's lines."""
    (tmp_path / "helper.py").write_text("def double(x):\n    x *= 2\n")
    text = HEAD + f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport helper\n"
    [race] = report(text + "with load: helper.double(x)\nwith work[0]: x += 1\n")["races"]
    assert (race["first"]["file"], race["first"]["line"]) == (str(tmp_path / "helper.py"), 2)
    assert race["second"]["line"] == 14


REDUNDANT = {
    "implied": "with load: x += 1\nwork[0].wait_event(load.record())\nwork[0].wait_event(load.record())\nwith work[0]: x += 1\n",
    "no data": "with load: x += 1\nwork[0].wait_event(load.record())\nwith work[0]: bufs[0] += 1\n",
}


@pytest.mark.parametrize("why", REDUNDANT)
def test_redundant(why, report):
    """A needless wait says whether other calls give the order, or no data is ordered."""
    found = report(HEAD + REDUNDANT[why])["redundant"]
    waits = [(one["line"], one["why"], one["count"]) for one in found if one["call"] == "wait_event"]
    assert waits == ([(11, why, 1), (12, why, 1)] if why == "implied" else [(11, why, 1)])


def test_a_call_that_waits_for_nothing(report):
    """A wait for an event that was never recorded orders no data."""
    found = report(HEAD + "load.wait_event(cp.cuda.Event())\nwith load: x += 1\n")["redundant"]
    assert [(one["line"], one["why"]) for one in found if one["call"] == "wait_event"] == [(10, "no data")]


def test_synchronize_before_a_copy_that_waits(report):
    """A synchronisation right before a blocking copy is needless."""
    text = HEAD + "with load:\n    x += 1\n    load.synchronize()  # needless\n    r = x.get()\nr.sum()\n"
    found = report(text)["redundant"]
    assert (line_of(text, "# needless"), "implied") in [(one["line"], one["why"]) for one in found]


def test_a_query_is_not_redundant(report):
    """`done` orders the host's accesses, and is never listed as needless."""
    found = report(HEAD + "with load: x += 1\nload.done\nload.done\n")["redundant"]
    assert all(one["line"] == 9 for one in found)


BLOCKING = {
    "r = x.get()\nx += 1\nr[0] = 1\nprint(r.sum())": [("get", 1, 13)],
    "r = cp.asnumpy(x)\nprint(r)": [("asnumpy", 1, 11)],
    "x.get(out=h)\nx.set(h)": [("get", 1, 11)],
    "r = x.get()": [("get", 1, None)],
    "for i in range(3):\n    r = x.get()\n    if i: r.sum()": [("get", 3, 12)],
    "v = float(x[0])": [("float", 1, 10)],
    "if x[0] > 1: pass": [("bool", 1, 10)],
    "print(x[0].item(), int(x[1]))": [("item", 1, 10), ("int", 1, 10)],
    "v = cp.nonzero(x)": [("nonzero", 1, 10)],
    "x[x > 1]": [("getitem", 1, 10)],
    "x.get(blocking=False)": [],
    "x.set(h)": [],
    "cp.asarray(h, blocking=True)": [("asarray", 1, 10)],
}


@pytest.mark.parametrize("text", BLOCKING)
def test_blocking(text, report):
    """Copies that make the host wait are listed, with the line where the host first uses the result."""
    found = report(HEAD + text + "\n")["blocking"]
    assert [(one["call"], one["count"], one["used"]) for one in found] == BLOCKING[text]


UNWRITTEN = {
    "z = cp.empty(8)\nz.sum()": [(10, 11, 1)],
    "z = cp.empty_like(x)\nz.get()": [(10, 11, 1)],
    "z = cp.ndarray(8)\nfor _ in range(2): float(z[3])": [(10, 11, 2)],
    "z = cp.empty(8)\nz[:4] = 1\nz[:4].sum()": [],
    "z = cp.empty(8)\nz[:4] = 1\nz[2:6].sum()": [(10, 12, 1)],
    "z = cp.empty(8)\nz[::2] = 1\nz[::2].sum()\nz[1::2].sum()": [(10, 13, 1)],
    "z = cp.empty(8)\nz[::2] = 1\nz[1::2] = 1\nz.sum()": [],
    "z = cp.empty((4, 4))\nz[:, 1:3] = 1\nz[1, 1:3].sum()\nz[1, :2].sum()": [(10, 13, 1)],
    "z = cp.empty(8)\nz[[1, 5]] = 1\nz[5].get()\nz[4].get()": [(10, 13, 1)],
    "z = cp.empty(8)\nz.set(h)\nz.get()": [],
    "z = cp.empty(8)\nz += 1\nz.sum()": [(10, 11, 1)],
    "z = cp.empty(8)\ny = z.copy()\ny.sum()": [(10, 11, 1)],
    "z = cp.empty(8, 'f4').view('f8')\nz[0] = 1\nz[0].get()\nz.get()": [(10, 13, 1)],
    "z = cp.zeros(8)\nz.sum()": [],
    "z = cp.empty(0)\nz.sum()": [],
    "z, y = cp.empty(8), cp.empty(8)\n(z + y).sum()": [(10, 11, 2)],
}


@pytest.mark.parametrize("text", UNWRITTEN)
def test_uninitialised(text, report):
    """A read of device memory that was allocated and never written is listed with both lines."""
    found = report(HEAD + text + "\n")["uninitialised"]
    assert [(one["first"]["line"], one["second"]["line"], one["count"]) for one in found] == UNWRITTEN[text]


def test_edges(report):
    """The dependences go from the latest accesses of the same bytes, with the number of pairs of executions."""
    text = HEAD + "for _ in range(3):\n    x += 1\n    x.sum()\n    x[:4] = 0\n    x.get()\n"
    found = {(one["first"], one["second"], one["kind"]): one["count"] for one in report(text)["edges"]}
    add, total, zero, get = 11, 12, 13, 14
    assert {key: n for key, n in found.items() if key[0] > 9} == {
        (add, total, "flow"): 3,
        (add, zero, "anti"): 3,
        (add, zero, "output"): 3,
        (add, get, "flow"): 3,
        (total, zero, "anti"): 3,
        (total, add, "anti"): 2,
        (zero, get, "flow"): 3,
        (zero, add, "flow"): 2,
        (zero, add, "output"): 2,
        (get, add, "anti"): 2,
        (add, add, "flow"): 2,
        (add, add, "anti"): 2,
        (add, add, "output"): 2,
    }
    assert found[7, add, "flow"] == 1


TEXTS = {
    "race": HEAD + "with load: x.set(h)\nwith work[0]: x += 1\nr = x.get(stream=work[0])\nprint(r.sum())\n",
    "clean": HEAD + "with load:\n    x.set(h)\n    x += 1\n    r = x.get()\nprint(r.sum())\n",
    "unwritten": HEAD
    + "z = cp.empty(8)\nwith load: y = z + x\nload.synchronize()\nload.synchronize()\ny.get().sum()\n",
    "empty": "print('hello')\n",
}


@pytest.mark.parametrize("name", TEXTS)
def test_golden_texts(name, record, tmp_path, monkeypatch):
    """The printed report is the one that was read and approved; delete the file to write it again."""
    monkeypatch.chdir(tmp_path)
    log = record(TEXTS[name])
    found = analyse(log, str(tmp_path / "program.py"), "sim")
    console = Console(file=StringIO(), width=100)
    console.print(report_view(found, line_graph(log, found)))
    text = "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"
    golden = GOLDEN / f"{name}.txt"
    if not golden.exists():
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()


def test_a_graph_of_lines(record, tmp_path):
    """The graph has a node for each line that accesses arrays, and the dependences that go forward."""
    log = record(HEAD + "for _ in range(3):\n    x += 1\n    x.sum()\n")
    found = analyse(log, str(tmp_path / "program.py"), "sim")
    graph = line_graph(log, found)
    assert [node.location for node in graph.nodes] == [f"program.py:{line}" for line in (7, 8, 11, 12)]
    kinds = {(edge.source.name, edge.target.name, edge.kind) for edge in graph.edges}
    assert ("11: x += 1", "12: x.sum()", "flow") in kinds
    assert ("7: x = cp.zeros(8)", "11: x += 1", "flow") in kinds
