"""A group waits for the tasks in it and for their children."""

import numpy as np

import offload as omp
from offload import in_, out


@omp.task(depend=[out("x")])
def fill(x, value):
    x[...] = value


@omp.task(depend=[out("x")])
def fill_parts(x):
    with omp.taskgroup():
        fill(x[:2], 1)
        fill(x[2:], 2)


@omp.task
def fill_later(x):
    fill(x[:2], 3)
    fill(x[2:], 4)


@omp.task(depend=[in_("x")])
def total(x):
    return float(x.sum())


x, y = np.zeros(4), np.zeros(4)
fill_parts(x)
print(total(x).result())
with omp.taskgroup():
    fill_later(y)
print(y.tolist())
