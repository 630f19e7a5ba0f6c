"""Queues of two devices, and an edge that goes from one to the other through the host."""

import numpy as np

from offload import acc


@acc.parallel(present=["x"])
def grow(x):
    x[1:] += x[:-1]


left, right = np.arange(4.0), np.ones(4)
with acc.data(copy=[left], device=0), acc.data(copy=[right], device=1):
    for _ in range(2):
        grow.options(device=0, async_=1)(left)
        acc.update(self_=[left[-1:]], device_num=0, async_=1)
        acc.wait(1, device=0)
        right[:1] = left[-1:]
        acc.update(device=[right[:1]], device_num=1, async_=1)
        grow.options(device=1, async_=1)(right)
        acc.wait(1, device=1)
print(left.tolist(), right.tolist())
