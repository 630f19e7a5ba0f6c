"""A recorded graph of regions on data that is mapped around it."""

import numpy as np

import offload as omp
from offload import in_, inout, out, tofrom


@omp.target(nowait=True, depend=[in_("x"), out("y")])
def square(x, y):
    y[...] = x * x


@omp.target(nowait=True, depend=[in_("y"), inout("x")])
def add(x, y):
    x += y


@omp.taskgraph
def step(x, y):
    square(x, y)
    add(x, y)


x, y = np.full(4, 0.5), np.zeros(4)
with omp.target_data(map=[tofrom(x), tofrom(y)]):
    for _ in range(3):
        step(x, y)
    omp.target_update(from_=[x])
    print(x.tolist())
print(y.tolist())
