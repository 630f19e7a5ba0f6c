"""The default queue of the thread, queues that wait for each other, and a wait for all."""

import numpy as np

from offload import acc


@acc.parallel(present=["x"])
def double(x):
    x *= 2


@acc.parallel(present=["x", "y"])
def add(x, y):
    y += x


x, y = np.arange(4.0), np.ones(4)
with acc.data(copyin=[x], copy=[y]):
    double.options(async_=True)(x)
    acc.wait_async(acc.async_noval, 5)
    add.options(async_=5)(x, y)
    acc.wait(5, async_=6)
    double.options(async_=6)(y)
    acc.wait(6, async_=acc.async_noval)
    double.options(async_=True)(y)
    acc.update(self_=[y], async_=True)
    acc.wait_all()
    print(y.tolist())
