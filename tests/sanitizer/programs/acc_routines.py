"""Data of OpenACC by routines, some of them on a queue."""

import numpy as np

from offload import acc


@acc.parallel(present=["x"])
def double(x):
    x *= 2


x, y = np.arange(4.0), np.ones(4)
acc.copyin(x)
acc.create(y)
acc.update_device(y)
double(x)
double.options(async_=1)(y)
acc.update_self_async(y, 1)
acc.wait(1)
print(y.tolist())
acc.copyout(x)
acc.delete(y)
print(x.tolist())
