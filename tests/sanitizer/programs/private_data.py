"""Arrays that a region gets as copies of its own."""

import numpy as np

import offload as omp
from offload import from_, in_, out, to


@omp.target(nowait=True, map=[to("x"), from_("y")], firstprivate=["offset"], private=["work"])
def add(x, y, offset, work):
    work[...] = x + offset
    offset += 1
    y[...] = work


x, y, offset, work = np.arange(3.0), np.empty(3), np.ones(3), np.zeros(3)
first = add.options(depend=[in_(x), out(y)])(x, y, offset, work)
offset[...] = 5
omp.taskwait()
print(y.tolist(), offset.tolist(), work.tolist())
