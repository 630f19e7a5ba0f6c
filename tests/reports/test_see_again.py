"""Programs of several runtimes, threads and devices under the tools that show a run."""

from __future__ import annotations

import threading
from io import StringIO

import numpy as np
from rich.console import Console

import offload as omp
from offload.events.log import TaskLog
from offload.reports.records import records
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
