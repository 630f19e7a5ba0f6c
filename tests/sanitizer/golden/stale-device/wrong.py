"""The second step works on the data of the first one."""

import numpy as np

import offload as omp
from offload import tofrom


@omp.target
def advance(x):
    x[1:] += x[:-1]


x = np.ones(100)
with omp.target_data(map=[tofrom(x)]):
    advance(x)
    x[:10] = 0
    advance(x)
print(x.sum())
