"""A stream of the program's own waits for a task."""

import numpy as np

import offload as omp
from offload import inout, out


def scale(d, factor):
    d *= factor


@omp.target(nowait=True, depend=[inout("d")])
def shift(d):
    d += 1


own = omp.stream(9)
d, found = omp.target_alloc(4, np.float64), np.zeros(4)
omp.target_memcpy_async(d, np.ones(4), depend=[out(d)])
task = shift(d)
task.wait_on(own)
own.launch(scale, d, 10)
own.synchronize()
omp.target_memcpy(found, d)
print(found.tolist())
omp.target_free(d)
