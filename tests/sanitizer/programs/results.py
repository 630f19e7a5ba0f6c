"""Tasks that follow other tasks by their results, by an argument and as an item."""

import numpy as np

import offload as omp
from offload import in_


@omp.task
def load(x, value):
    x[...] = value
    return value


@omp.task
def add(x, value):
    return float(x.sum()) + value


x, y = np.zeros(3), np.zeros(3)
first = load(x, 1)
second = add.options(depend=[in_(first)])(x, 1)
third = add(y, load(y, 2))
print(second.result(), third.result())
last = load(y, 5)
last.result()
print(y.tolist())
