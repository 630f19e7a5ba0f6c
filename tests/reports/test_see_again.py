"""Programs of several runtimes, threads and devices under the tools that show a run."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import zipfile
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import offload as omp
from offload.events.log import TaskLog
from offload.reports.live import LiveFrame, NameCounts, table_of
from offload.reports.profile import profile
from offload.reports.records import RunRecord, TaskRecord, records
from offload.runtime.live import LiveView


def test_the_live_view_counts_each_runtimes_devices():
    """Devices of two runtimes that have the same number have their own counts."""
    x = np.zeros(1000)
    view = LiveView(Console(file=StringIO(), width=100))
    try:
        with omp.Runtime("sim:1"), omp.Runtime("sim:1"):
            omp.target(lambda x: None)(x)
            counts = [(one.in_nbytes, one.out_nbytes) for one in view.frame().devices]
    finally:
        view.end()
    assert sorted(counts) == [(0, 0), (8000, 8000)]


def test_a_device_is_busy_while_a_task_runs_there():
    """The share of a device counts a task that has not ended."""
    begun, goes_on = threading.Event(), threading.Event()

    def body(x):
        begun.set()
        goes_on.wait(60)

    view = LiveView(Console(file=StringIO(), width=100))
    try:
        with omp.Runtime("sim:1", num_threads=2):
            omp.target(body, nowait=True)(np.zeros(10))
            assert begun.wait(60)
            view.frame()
            share = view.frame().devices[0].busy
            goes_on.set()
    finally:
        view.end()
    assert share > 0.99


def test_threads_that_have_ended_have_names():
    """A thread that uses a runtime and ends is in the log by its name, also if another has its identifier later."""
    log = TaskLog()
    with omp.tool(log), omp.Runtime("none"):
        for name in ("first", "second"):
            thread = threading.Thread(target=lambda: omp.task(int)().result(), name=name)
            thread.start()
            thread.join()
    assert {"first", "second"} <= {name for names in records(log).threads.values() for name in names.split(", ")}


ROOT = Path(__file__).parents[2]


def run(folder, *words, **more):
    """Run ``python`` with some words in a folder."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OFFLOAD_DEVICES": "sim:1", **more}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=env, check=False, capture_output=True, text=True, timeout=110
    )


@pytest.mark.parametrize("program", [["p.py"], ["-c", "print(__loader__, __spec__)"]])
def test_the_loader_is_pythons(tmp_path, program):
    """The program's ``__loader__`` is of the class that Python uses, so that its source and data can be found."""
    (tmp_path / "p.py").write_text("print(type(__loader__), __loader__.get_source('__main__'))\n")
    plain, shown = run(tmp_path, *program), run(tmp_path, "-m", "offload", "run", *program)
    assert plain.stdout
    assert shown.stdout == plain.stdout


def test_a_program_without_source(tmp_path):
    """An archive and compiled code are refused by name."""
    with zipfile.ZipFile(tmp_path / "app.pyz", "w") as archive:
        archive.writestr("__main__.py", "print(1)")
    (tmp_path / "code.pyc").write_bytes(b"\0" * 16)
    for name in ("app.pyz", "code.pyc"):
        done = run(tmp_path, "-m", "offload", "run", name)
        assert done.returncode == 2
        assert f"{name!r} has no source code" in done.stderr


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tasks_of_one_function_are_told_apart(width):
    """Names of directives differ at the end, which a narrow table keeps."""
    names = [f"a_function_of_the_program.<omp task, line {line}>" for line in (46, 49, 53)]
    tasks = [
        TaskRecord(at, name, "task", "p.py:1", "complete", at, at, at + 1.0, 1) for at, name in enumerate(names, 1)
    ]
    console = Console(file=StringIO(), width=width)
    console.print(profile(RunRecord(tasks, [], begin_s=0.0, end_s=5.0)))
    live = LiveFrame(1.0, [NameCounts(name, 1) for name in names])
    console.print(table_of(live))
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    for line in (46, 49, 53):
        assert len([text for text in lines if f"{line}>" in text]) >= 2


def test_tasks_that_did_not_complete_are_not_all_failed():
    """A task that was cancelled is counted as not completed."""
    tasks = [TaskRecord(1, "t", "task", "p.py:1", "cancelled", 0.0, 0.0, 1.0, 1)]
    console = Console(file=StringIO(), width=100)
    console.print(profile(RunRecord(tasks, [], begin_s=0.0, end_s=5.0)))
    assert "t (1 not completed)" in console.file.getvalue()


HOOKS = {
    "fails": "lambda *_: 1 / 0",
    "exits": "lambda *_: sys.exit(7)",
    "exits with a text": "lambda *_: sys.exit('text')",
    "none": "None",
}


@pytest.mark.parametrize("hook", HOOKS.values(), ids=HOOKS)
def test_a_hook_that_fails(tmp_path, hook):
    """A ``sys.excepthook`` that fails or exits gives the output and status of Python, without frames of the command."""
    (tmp_path / "p.py").write_text(f"import sys\nsys.excepthook = {hook}\nraise ValueError('original')\n")
    plain, shown = run(tmp_path, "p.py"), run(tmp_path, "-m", "offload", "run", "p.py")
    assert shown.returncode == plain.returncode
    assert shown.stderr == plain.stderr


def test_a_folder_that_does_not_exist(tmp_path):
    """The error of a trace that cannot be written names the file of the call."""
    with omp.Runtime("none"), omp.record() as graph:
        omp.task(int)()
    with pytest.raises(FileNotFoundError) as caught:
        graph.trace(tmp_path / "none" / "t.json")
    assert str(caught.value).endswith(f"{str(tmp_path / 'none' / 't.json')!r}")
