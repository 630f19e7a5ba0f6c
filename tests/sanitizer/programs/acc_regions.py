"""Compute regions with each data clause, one after the other."""

import numpy as np

from offload import acc


@acc.parallel(copyin=["x"], copyout=["y"])
def square(x, y):
    y[...] = x * x


@acc.kernels(copy=["y"], create=["work"])
def reverse(y, work):
    work[...] = y
    y[...] = work[::-1]


@acc.serial(present=["y"])
def largest(y):
    return float(y.max())


x, y, work = np.arange(5.0), np.empty(5), np.empty(5)
square(x, y)
reverse(y, work)
with acc.data(copyin=[y]):
    print(largest(y))
print(y.tolist())
