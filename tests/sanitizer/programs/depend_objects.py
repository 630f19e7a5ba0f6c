"""A depend object, and a task that depends on all memory."""

import numpy as np

import offload as omp
from offload import all_memory, in_, inout, out


@omp.task
def fill(x, value):
    x[...] = value


@omp.task
def total(*arrays):
    return float(sum(array.sum() for array in arrays))


x, y = np.zeros(3), np.zeros(3)
writes = omp.depobj(out(x))
fill.options(depend=[writes])(x, 1)
fill.options(depend=[out(y)])(y, 2)
both = total.options(depend=[inout(all_memory)])(x, y)
fill.options(depend=[out(y)])(y, 4)
writes.update("in")
reader = total.options(depend=[writes])(x)
last = total.options(depend=[in_(y)])(y)
print(both.result(), reader.result(), last.result())
