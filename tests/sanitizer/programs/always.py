"""Regions that copy present data each time."""

import numpy as np

import offload as omp
from offload import alloc, from_, to


@omp.target(map=[to("x", always=True), from_("y", always=True)])
def square(x, y):
    y[...] = x * x


x, y = np.arange(4.0), np.zeros(4)
with omp.target_data(map=[alloc(x, y)]):
    for _ in range(2):
        square(x, y)
        print(y.tolist())
        x += 1
