"""Loop functions on present data, on a queue and as a deferred task."""

import numpy as np

import offload as omp
from offload import acc, in_, inout


@acc.parallel_loop(present=["x", "y"])
def saxpy(a, x, y):
    for i in range(x.size):
        y[i] = a * x[i] + y[i]


@omp.target_loop(nowait=True, depend=[in_("x"), inout("y")])
def add(x, y):
    for i in range(x.size):
        y[i] = y[i] + x[i]


x, y = np.arange(5.0), np.zeros(5)
with acc.data(copyin=[x], copy=[y]):
    saxpy.options(async_=1)(2.0, x, y)
    saxpy.options(async_=1)(3.0, x, y)
    acc.wait(1)
    acc.update(self_=[y])
    print(y.tolist())
add(x, y)
omp.taskwait()
print(y.tolist())
