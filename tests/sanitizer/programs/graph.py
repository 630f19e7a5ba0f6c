"""A recorded graph of host tasks that runs again for each value."""

import numpy as np

import offload as omp
from offload import in_, inout, out


@omp.task(depend=[inout("y"), in_("dt")])
def advance(y, dt):
    y += dt


@omp.task(depend=[in_("y"), out("total")])
def add_up(y, total):
    total[...] = y.sum()


@omp.taskgraph
def steps(y, dt, total):
    advance(y[:2], dt)
    advance(y[2:], dt)
    advance(y[:2], dt)
    add_up(y, total)


y, dt, total = np.zeros(4), np.array(0.0), np.array(0.0)
for value in (1, 2, 3):
    dt[...] = value
    steps(y, dt, total)
    print(float(total))
print(y.tolist())
