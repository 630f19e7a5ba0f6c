"""An array with storage on the device for the whole run."""

import numpy as np

import offload as omp


@omp.target
def scale(table, x):
    x *= table


table, x = np.arange(4.0), np.ones(4)
omp.declare_target(table)
scale(table, x)
print(x.tolist())
table += 1
omp.target_update(to=[table])
scale(table, x)
print(x.tolist())
