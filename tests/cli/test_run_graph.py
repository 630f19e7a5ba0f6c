"""``offload run --graph``: the graph of the whole run has the waits, as one that ``record`` makes."""

from __future__ import annotations

import re
from html import unescape

import pytest

from offload.reports.graphs import Fences, Made, Waited, graph_of
from offload.reports.records import RunRecord, TaskRecord
from tests.cli.test_run import run

HEAD = """
import numpy as np, offload as omp
x, y = np.zeros(3), np.zeros(3)
def task(name, *depend, **clauses):
    return omp.task(lambda: None, name=name, depend=list(depend), **clauses)()
"""
BODIES = {
    "taskwait": "task('a')\ntask('b')\nomp.taskwait()\ntask('c')\nomp.taskwait()\nomp.taskwait()\ntask('d')",
    "chain": "task('a', omp.out(x))\ntask('b', omp.inout(x))\nomp.taskwait()\ntask('c', omp.in_(x))",
    "group": "task('a')\nwith omp.taskgroup():\n    task('b')\n    task('c')\ntask('d')\nomp.taskwait()\ntask('e')",
    "barrier": "task('a')\nomp.barrier()\ntask('b')",
    "undeferred": "task('a')\ntask('b', if_=False)\ntask('c')\nomp.taskwait()",
    "synchronous": "omp.target(lambda x: None, name='a')(x)\ntask('b')\nomp.target(lambda x: None, name='c')(x)",
    "nothing": "omp.taskwait()\ntask('a')\nomp.barrier()\nomp.taskwait()",
}


def edges_of(path):
    """Return the edges of a Mermaid flowchart by the names of their ends."""
    text = path.read_text(encoding="utf-8")
    names = {}
    for number, label in re.findall(r'^ +n(\d+)[(\[]+"(.*?)<br>', text, re.MULTILINE):
        names[number] = re.sub(r"[^a-z]", "", unescape(label.replace("#", "&#")))
    return sorted((names[a], names[b]) for a, b in re.findall(r"^ +n(\d+) .*?>.*? ?n(\d+)$", text, re.MULTILINE))


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_waits_are_those_of_a_record(program, tmp_path, body):
    """The graph of a run has the tasks, waits and edges that the graph of a record around the program has."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    recorded = program(HEAD + f"with omp.record() as graph:\n{lines}\ngraph.visualize('r.mmd')\n", "recorded.py")
    assert run(tmp_path, recorded).returncode == 0
    assert run(tmp_path, "--graph", "g.mmd", program(HEAD + body + "\n")).returncode == 0
    assert edges_of(tmp_path / "g.mmd") == edges_of(tmp_path / "r.mmd") != []


def test_waits_of_tasks_and_coroutines(program, tmp_path):
    """Waits in a task and in a coroutine, and for one task, order what the same code generates afterwards."""
    path = program(
        HEAD + "import asyncio\nevent = omp.Event()\n"
        "def outer():\n    task('a')\n    omp.taskwait()\n    task('b')\nomp.task(outer)().result()\n"
        "held = task('held', detach=event)\nlast = task('last', omp.in_(held))\n"
        "import threading, time\nfrom offload.interrupts.frames import frames_of_threads\n"
        "main = threading.get_ident()\ndef fulfil():\n"
        "    while frames_of_threads()[main].f_code.co_name != 'park': time.sleep(0.001)\n"
        "    event.fulfill()\n"
        "waits = threading.Thread(target=fulfil)\nwaits.start()\nlast.result()\nwaits.join()\ntask('c')\n"
        "async def main():\n    task('d')\n    await omp.taskwait()\n    task('e')\nasyncio.run(main())\n"
    )
    found = run(tmp_path, "--graph", "g.mmd", path)
    assert (found.returncode, found.stderr) == (0, "")
    edges = edges_of(tmp_path / "g.mmd")
    for edge in (("a", "taskwait"), ("taskwait", "b"), ("last", "result"), ("result", "c"), ("d", "taskwait"),
                 ("taskwait", "e")):  # fmt: skip
        assert edge in edges
    assert ("taskwait", "c") not in edges


def record_of(number, created_s, end_s):
    return TaskRecord(number, f"t{number}", "task", "f.py:1", "complete", created_s, created_s, end_s, 1)


def test_an_edge_agrees_with_the_times():
    """A task that had not ended when a wait was given up is not before it, nor is a later task after such a task."""
    run_of = RunRecord([record_of(1, 1.0, 9.0), record_of(2, 1.5, 2.0), record_of(3, 4.0, 5.0)], [])
    made = [Made(1.0, (0,), is_deferred=False), Made(1.5, (0,), is_deferred=True), Made(4.0, (0,), is_deferred=True)]
    graph = graph_of(run_of, [], Fences(made, [Waited(3.0, "taskwait", "f.py:2", 0, (0,), ())]))
    assert [(edge.source.name, edge.target.name) for edge in graph.edges] == [("t2", "taskwait"), ("taskwait", "t3")]
