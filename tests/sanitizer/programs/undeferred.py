"""Undeferred and final tasks, and regions that run on the host."""

import numpy as np

import offload as omp
from offload import in_, inout, out


@omp.task(depend=[inout("x")])
def double(x):
    x *= 2


@omp.task(depend=[out("x")])
def fill(x, value):
    x[...] = value


@omp.target(depend=[in_("x")])
def total(x):
    return float(x.sum())


x, y = np.zeros(4), np.zeros(4)
fill(x, 1)
double.options(if_=False)(x)
print(x.tolist())
fill.options(final=True)(y, 2)
print(y.tolist())
fill(x, 3)
print(total.options(if_=False)(x))
fill(x, 4)
print(total(x))
