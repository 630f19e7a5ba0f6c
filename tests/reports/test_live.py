"""The live view and bars of progress: what they count, and that they never stop the program."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

import offload as omp
from offload.errors import ClauseError
from offload.reports.live import MOST_ROWS, DeviceCounts, LiveFrame, NameCounts, line_of, table_of
from offload.runtime.live import LiveView
from tests.profiles import few
from tests.strict import STRICT

ROOT = Path(__file__).parents[2]


@pytest.fixture
def view():
    """Return a live view that draws nothing by itself."""
    found = LiveView()
    yield found
    found.end()


def test_tasks_are_counted_by_state(view):
    """A frame has the tasks by name: done, ready, and waiting for others, and who has waited longest."""
    event = omp.Event()
    x = np.zeros(4)
    with omp.Runtime("none", num_threads=1):
        omp.task(int, name="first")().result()
        held = omp.task(int, detach=event, depend=[omp.out(x)], name="held")()
        omp.task(int, depend=[omp.in_(x)], name="behind")()
        while str(held.state) != "detached":
            omp.taskyield()
        frame = view.frame()
        event.fulfill()
        omp.taskwait()
        last = view.frame()
    counts = {one.name: (one.done, one.running, one.ready, one.waiting) for one in frame.names}
    assert counts == {"first": (1, 0, 0, 0), "held": (0, 1, 0, 0), "behind": (0, 0, 0, 1)}
    assert frame.longest.startswith("behind-")
    assert held.key in frame.longest
    assert {one.name: one.done for one in last.names} == {"first": 1, "held": 1, "behind": 1}


def test_devices_are_counted(view):
    """A frame has the mapped bytes of each device, and those copied in and out."""
    x = np.zeros(1000)
    with omp.Runtime("sim:2"), omp.target_data(map=[omp.tofrom(x)], device=1):
        omp.target_update(from_=[x], device=1)
        (first, second) = view.frame().devices
    assert (first.name, first.mapped_nbytes, first.in_nbytes) == ("sim:0", 0, 0)
    assert (second.name, second.mapped_nbytes, second.in_nbytes, second.out_nbytes) == ("sim:1", 8000, 8000, 8000)


@pytest.mark.parametrize("width", [20, 80])
@pytest.mark.parametrize("n_names", [0, 1, 500])
def test_a_frame_is_small(width, n_names):
    """A frame has at most so many lines, whatever is in it."""
    names = [NameCounts(f"[red]name {at}\n</script>" * 20, at, 1, 2, 3) for at in range(n_names)]
    frame = LiveFrame(3.0, names, [DeviceCounts("sim:0", 0.5, 10, 10, 10)] * 20, 1e5, "x waits " * 50)
    console = Console(file=io.StringIO(), width=width, height=100)
    console.print(table_of(frame))
    assert len(console.file.getvalue().splitlines()) <= MOST_ROWS
    assert "done" in line_of(frame)


@pytest.mark.parametrize("count", few(1, [3_000, 100_000]))
def test_very_many_tasks(view, count):
    """A frame of very many tasks is made, says how many wait, and is as small as any."""
    event, x = omp.Event(), np.zeros(1)
    with omp.Runtime("none", num_threads=0):
        omp.task(int, detach=event, depend=[omp.out(x)])()
        follower = omp.task(int, depend=[omp.in_(x)], name="behind")
        for _ in range(count):
            follower()
        frame = view.frame()
        event.fulfill()
        omp.taskwait()
    assert next(one for one in frame.names if one.name == "behind").waiting == count
    console = Console(file=io.StringIO(), width=80, height=100)
    console.print(table_of(frame))
    assert f"{count} waiting" in console.file.getvalue()


@pytest.mark.parametrize("width", [10, 20, 40, 60, 80, 120])
def test_no_line_of_a_frame_is_broken(width):
    """On each width every line has a name and the tasks that are done, and no line is longer than the terminal."""
    names = [NameCounts("x" * 100, 7, 7, 7, 7), NameCounts("y\x1b[2J", 7)]
    frame = LiveFrame(3.0, names, [DeviceCounts("sim:0" * 9, 0.5, 10, 10, 10)], 1e5, "z\x07 waits " * 50)
    console = Console(file=io.StringIO(), width=width, height=100)
    console.print(table_of(frame))
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 7
    assert max(map(cell_len, lines)) <= width
    assert "\x1b" not in console.file.getvalue()
    assert "\x07" not in console.file.getvalue()
    if width >= 20:
        assert all("7" in line for line in lines[2:4])
        assert lines[2][0] == "x"


PROGRAM = """
import time, offload as omp
with omp.progress("[red]squares"):
    for n in range(20):
        omp.task(pow, name="</script>")(n, 2)
    omp.taskwait()
    time.sleep(0.3)
print("done")
"""


def on_terminal(*words, env=None, columns=80):
    """Run a program whose stderr is a terminal; return its stdout and what the terminal got."""
    controller, terminal = pty.openpty()
    parts = []

    def follow():  # at once: a terminal that nobody reads takes some kilobytes, and a slow program draws more
        with suppress(OSError):
            while part := os.read(controller, 65536):
                parts.append(part)

    reader = threading.Thread(target=follow)
    reader.start()
    try:
        done = subprocess.run(
            [sys.executable, *STRICT, *words],
            env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": str(columns), "TERM": "xterm", **(env or {})},
            stdout=subprocess.PIPE, stderr=terminal, text=True, timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(terminal)
        reader.join()
        os.close(controller)
    return done, b"".join(parts).decode()


@pytest.mark.parametrize("columns", [20, 80])
@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}, {"PYTHONIOENCODING": "ascii"}])
def test_progress_on_a_terminal(env, columns):
    """On a terminal a bar is drawn, with the label as it is; the program's output is its own."""
    done, shown = on_terminal("-c", PROGRAM, env=env, columns=columns)
    assert (done.returncode, done.stdout) == (0, "done\n")
    if env.get("TERM") == "dumb":
        assert shown == ""
    elif env != {"PYTHONIOENCODING": "ascii"} and columns == 80:
        assert "[red]squares" in shown
        assert "20/20" in shown


def test_progress_off_a_terminal(tmp_path):
    """Off a terminal nothing is shown."""
    done = subprocess.run(
        [sys.executable, *STRICT, "-c", PROGRAM], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("env", [{}, {"TERM": "dumb"}, {"PYTHONIOENCODING": "ascii"}])
@pytest.mark.parametrize("columns", [20, 100])
def test_live_on_a_terminal(env, columns):
    """``--live`` draws the tasks by name on stderr."""
    done, shown = on_terminal("-m", "offload", "run", "--live", "-c", PROGRAM, env=env, columns=columns)
    assert (done.returncode, done.stdout) == (0, "done\n")
    if not env and columns == 100:
        assert "</script>" in shown
        assert "20 done" in shown


def test_the_label_is_a_string():
    """Another label is an error at once, also where nothing would be shown."""
    with pytest.raises(ClauseError, match="label"), omp.progress(3):
        pass


def test_closed_stderr():
    """Without a stderr the program runs as ever."""
    code = "import sys, os\nsys.stderr.close()\nsys.stderr = None\n" + PROGRAM
    done = subprocess.run(
        [sys.executable, "-m", "offload", "run", "--live", "--profile", "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == "done\n"
