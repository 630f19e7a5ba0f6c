"""What the sanitizer costs: whole programs of 100,000 operations, and one array operation beside 20 live accesses."""

from __future__ import annotations

import contextlib
import io
import resource
import subprocess
import sys
import time
from pathlib import Path

import offload as omp
from offload import in_, inout, tofrom
from offload.sanitizer import numpy as np

MOST_S, MOST_NBYTES, MOST_OPERATION_S = 60, 2e9, 60e-6
N_LIVE = 20
N_TIMED, N_REPEATS = 200, 25
RUN = str(Path(__file__).parents[1] / "run.py")


def host_arrays(n):
    """Operate on host arrays: half of the operations while deferred tasks are in flight, so that each is compared."""
    arrays = [np.zeros(64) for _ in range(16)]
    for k in range(n // 2):
        arrays[k % 16] += 1
    gate = omp.Event()
    omp.task(detach=gate)(lambda: None)()
    for k in range(n - n // 2):
        arrays[k % 16] += 1
    gate.fulfill()
    omp.taskwait()


def device_arrays(n):
    """Operate on device arrays in deferred regions of 100 operations each."""

    @omp.target(nowait=True, depend=[inout("x")])
    def region(x):
        for _ in range(100):
            x += 1

    arrays = [np.zeros(64) for _ in range(16)]
    with omp.target_data(map=[tofrom(*arrays)]):
        for k in range(n // 100):
            region(arrays[k % 16])


def tasks(n):
    """Generate tasks in chains, each with an operation on a host array, and wait for them now and then."""

    @omp.task(depend=[inout("x"), in_("y")])
    def step(x, y):
        x += y

    arrays = [np.zeros(64) for _ in range(17)]
    for k in range(n // 2):
        step(arrays[k % 16], arrays[16])
        if k % 1000 == 999:
            omp.taskwait()


def regions(n):
    """Generate deferred regions, each of which maps its array and has one operation."""

    @omp.target(nowait=True, map=[tofrom("x")], depend=[inout("x")])
    def step(x):
        x += 1

    arrays = [np.zeros(64) for _ in range(16)]
    for k in range(n // 4):  # two copies and the region itself are operations too
        step(arrays[k % 16])
        if k % 1000 == 999:
            omp.taskwait()


PROGRAMS = {"host arrays": host_arrays, "device arrays": device_arrays, "tasks": tasks, "regions": regions}


def measured(name, n):
    """Run one program in this process; return the time, and the memory that the process has had at most."""
    with contextlib.redirect_stderr(io.StringIO()):
        start_s = time.perf_counter()
        with omp.Runtime("sim", sanitize=True) as runtime:
            PROGRAMS[name](n)
        wall_s = time.perf_counter() - start_s
    assert not runtime.findings
    return wall_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def operation_s(*, on_device):
    """Return what the sanitizer adds to an operation that meets 20 live accesses, each a write of another task.

    The operations that are timed are in stretches of their own, so that each is compared. The least of several times
    counts: the machine may have other work.
    """
    times = []

    def once(operation):
        start_s = time.process_time()
        for _ in range(N_TIMED):
            operation()
            omp.Event().fulfill()  # what comes next is another stretch
        return (time.process_time() - start_s) / N_TIMED

    def timed(operation):
        return min(once(operation) for _ in range(N_REPEATS))

    def write(x, k):
        x[3 * k : 3 * k + 3] = k

    def last(x):
        times.append(timed(x.sum) - timed(int))

    def run(**options):
        x = np.zeros(64)
        clauses = {"depend": [inout(x)]} | ({"nowait": True} if on_device else {})
        construct = (omp.target if on_device else omp.task)(**clauses)
        with (
            contextlib.redirect_stderr(io.StringIO()),
            omp.Runtime("sim", **options) as runtime,
            omp.target_data(map=[tofrom(x)]),
        ):
            for k in range(N_LIVE):
                construct(write)(x, k)
            construct(last)(x)
            omp.taskwait()
        assert not runtime.findings

    run()
    run(sanitize=True)
    return times[1] - times[0]


def run(n):
    """Print the figures; 1 if one of them is above what the reference allows."""
    rows = []
    for name in PROGRAMS:
        command = [sys.executable, RUN, "sanitizer", "--cost-of", name, "--operations", str(n)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        wall_s, nbytes = map(float, done.stdout.split())
        rows.append((name, wall_s <= MOST_S and nbytes <= MOST_NBYTES, f"{wall_s:6.1f} s  {nbytes / 1e6:7.0f} MB"))
    for name, on_device in (("one host operation", False), ("one device operation", True)):
        each_s = operation_s(on_device=on_device)
        rows.append((f"{name}, {N_LIVE} live", each_s <= MOST_OPERATION_S, f"{each_s * 1e6:6.1f} µs"))
    print(f"{n:,} operations under the sanitizer, each program in a process of its own")
    for name, is_good, figures in rows:
        print(f"  {name:32} {figures}{'' if is_good else '  too much'}")
    return int(not all(is_good for _, is_good, _ in rows))
