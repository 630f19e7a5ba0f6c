"""A graph is recorded without running it, and then computed twice."""

import numpy as np

import offload as omp
from offload import in_, inout, out


@omp.task(depend=[inout("x")])
def double(x):
    x *= 2


@omp.task(depend=[in_("x"), out("y")])
def copy(x, y):
    y[...] = x + 1


x, y = np.ones(3), np.zeros(3)
with omp.record(execute=False) as graph:
    double(x)
    copy(x, y)
    double(x)
for _ in range(2):
    graph.compute(scheduler="threads")
    print(x.tolist(), y.tolist())
