"""Wrong programs: mypy and pyright report each line that ends with ``# wrong``, and no other line."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import offload as omp
from offload import Task, acc, in_, to, tofrom

Array = NDArray[np.float64]
X = np.zeros(4)


# -- clauses that do not exist ---------------------------------------------------------------------


@omp.target(nowiat=True)  # wrong
def target_body(x: Array) -> None:
    """Have a misspelled clause."""


@omp.task(dpend=[in_("x")])  # wrong
def task_body(x: Array) -> None:
    """Have a misspelled clause."""


@omp.taskgraph(graphid=1)  # wrong
def graph_body(x: Array) -> None:
    """Have a misspelled clause."""


@omp.taskloop(grain_size=4)  # wrong
def taskloop_body(part: range) -> None:
    """Have a misspelled clause."""


@omp.target_loop(colapse=2)  # wrong
def loop_body(x: Array) -> None:
    """Have a misspelled clause."""


@omp.parallel_loop(map=[to("x")])  # wrong
def host_loop_body(x: Array) -> None:
    """Have a clause of another construct."""


@acc.parallel(copy_in=["x"])  # wrong
def parallel_body(x: Array) -> None:
    """Have a misspelled clause."""


@acc.kernels(nowait=True)  # wrong
def kernels_body(x: Array) -> None:
    """Have a clause of OpenMP."""


@acc.serial(asycn_=1)  # wrong
def serial_body(x: Array) -> None:
    """Have a misspelled clause."""


@acc.parallel_loop(gangs=True)  # wrong
def acc_loop_body(x: Array) -> None:
    """Have a misspelled clause."""


@acc.kernels_loop(tiles=(2,))  # wrong
def acc_loops_body(x: Array) -> None:
    """Have a misspelled clause."""


@acc.declare(copies=["x"])  # wrong
def declared_body(x: Array) -> None:
    """Have a misspelled clause."""


omp.target_data(map=[tofrom(X)], devcie=0)  # wrong
omp.target_enter_data(map=[to(X)], nowiat=True)  # wrong
omp.target_exit_data(map=[X], dpend=[])  # wrong
omp.target_update(to=[X], nowiat=True)  # wrong
omp.taskloop(range(4), print, num_task=2)  # wrong
omp.taskgroup(task_reductions={"+": [X]})  # wrong
omp.taskwait(depends=[in_(X)])  # wrong
omp.interop(target_sync=True)  # wrong
omp.record(executes=False)  # wrong
omp.copy(X, X, no_wait=True)  # wrong
omp.target_memcpy_async(X, X, depends=[])  # wrong
omp.loop(range(4), binds="teams")  # wrong
omp.buffers(2, 4, devcie=0)  # wrong
acc.data(copy_in=[X])  # wrong
acc.enter_data(copyins=[X])  # wrong
acc.exit_data(copyout=[X], finalise=True)  # wrong
acc.update(to=[X])  # wrong
acc.host_data(use_device=[X], ifpresent=True)  # wrong
acc.wait(1, asycn_=2)  # wrong
acc.loop(range(4), gangs=True)  # wrong
to(X, allways=True)  # wrong

# -- values of clauses that are not allowed --------------------------------------------------------

omp.target(nowait="yes")  # wrong
omp.target(defaultmap="sometimes")  # wrong
omp.target(depend=["x"])  # wrong
omp.target(priority="high")  # wrong
omp.task(detach=True)  # wrong
omp.task(name=3)  # wrong
omp.target_loop(schedule="random")  # wrong
omp.target_loop(filter="sometimes")  # wrong
omp.parallel_loop(fastmath="faster")  # wrong
omp.target_data(map=[X], device="0")  # wrong
acc.parallel(default="all")  # wrong
acc.parallel(async_="queue")  # wrong
acc.data(copy=[X], wait="all")  # wrong

# -- functions under a directive -------------------------------------------------------------------


@omp.target
def total(x: Array) -> float:
    """Return a number."""
    return float(x.sum())


@omp.task
def double(n: int) -> int:
    """Return a number."""
    return 2 * n


@acc.parallel(copy=["x"])
def region(x: Array) -> float:
    """Return a number."""
    return 1.0


@omp.parallel_loop
def shift(x: Array) -> None:
    """Return nothing."""
    for i in range(4):
        x[i] += 1.0


@omp.taskgraph
def pipeline(x: Array) -> None:
    """Record a task."""
    total(x)


total.options(nowiat=True)  # wrong
double.options(nowait=True)  # wrong
region.options(asycn_=1)  # wrong
shift.options(nowiat=True)  # wrong
pipeline.options(graphid=2)  # wrong
total("x")  # wrong
total(X, X)  # wrong
total()  # wrong
total(X).result()  # wrong
double(2) + 1  # wrong
double("2")  # wrong
pipeline(3, 4)  # wrong
region(X).result()  # wrong
shift.python(3)  # wrong
value: float = total.options(nowait=True)(X)  # wrong
task: Task[str] = double(2)  # wrong
queued: float = region.options(async_=1)(X)  # wrong
