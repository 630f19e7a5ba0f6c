"""Data that enters and exits by calls, with updates in between."""

import numpy as np

import offload as omp
from offload import alloc, from_, release, to


@omp.target
def advance(x, y):
    y[...] = x + 1
    x *= 2


x, y = np.arange(4.0), np.zeros(4)
omp.target_enter_data(map=[to(x), alloc(y)])
advance(x, y)
omp.target_update(from_=[y])
print(y.tolist())
x[...] = 10
omp.target_update(to=[x])
advance(x, y)
omp.target_exit_data(map=[from_(x), from_(y)])
print(x.tolist(), y.tolist())
omp.target_enter_data(map=[to(y)])
omp.target_exit_data(map=[release(y)])
