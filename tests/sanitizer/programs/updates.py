"""The host and the device change one array in turn."""

import numpy as np

import offload as omp
from offload import tofrom


@omp.target
def double(x):
    x *= 2


x = np.arange(8.0)
with omp.target_data(map=[tofrom(x)]):
    for step in range(3):
        double(x)
        omp.target_update(from_=[x[4:]])
        x[4:] += step
        omp.target_update(to=[x[4:]])
    print(x[4:].tolist())
    double(x)
print(x.tolist())
