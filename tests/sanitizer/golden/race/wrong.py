"""Nothing orders the two regions."""

import numpy as np

import offload as omp
from offload import tofrom


@omp.target(nowait=True)
def fill(x):
    x[...] = 3


@omp.target(nowait=True, map=[tofrom("y")])
def add(x, y):
    y += x


x, y = np.zeros(100), np.zeros(100)
with omp.target_data(map=[tofrom(x)]):
    fill(x)
    add(x, y)
print(y.sum())
