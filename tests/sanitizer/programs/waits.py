"""Waits for the tasks of some items, and an empty task that joins others."""

import numpy as np

import offload as omp
from offload import in_, inout, out


@omp.task(depend=[out("x")])
def fill(x, value):
    x[...] = value


@omp.task
def total(parts):
    return float(parts.sum())


x, y, parts = np.zeros(4), np.zeros(4), np.zeros((3, 4))
fill(x, 1)
fill(y, 2)
omp.taskwait(depend=[in_(x)])
print(x.tolist())
for number, part in enumerate(parts):
    fill(part, number)
omp.taskwait(depend=[in_(*parts), out(("filled",))], nowait=True)
sums = [total.options(depend=[in_(("filled",))])(parts) for _ in range(2)]
omp.taskwait(depend=[inout(y)])
y += 1
print([task.result() for task in sums])
print(y.tolist())
