"""Data on two devices at once, which the host brings together."""

import numpy as np

import offload as omp
from offload import from_, release, to


@omp.target
def add(x, y, value):
    y[...] = x + value


x, y = np.arange(4.0), np.zeros(4)
omp.target_enter_data(map=[to(x, y)], device=0)
omp.target_enter_data(map=[to(x, y)], device=1)
add.options(device=0)(x, y, 1)
omp.target_update(from_=[y], device=0)
print(y.tolist())
y += 100
x[...] = y
omp.target_update(to=[x], device=1)
add.options(device=1)(x, y, 2)
omp.target_exit_data(map=[release(x), release(y)], device=0)
omp.target_exit_data(map=[release(x), from_(y)], device=1)
print(y.tolist())
