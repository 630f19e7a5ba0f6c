"""Work on a stream of the program's own, between two tasks."""

import numpy as np

import offload as omp
from offload import in_, inout, out


def scale(d, factor):
    d *= factor


own = omp.stream(7)
d, found = omp.target_alloc(4, np.float64), np.zeros(4)
omp.target_memcpy_async(d, np.arange(4.0), depend=[out(d)])
for factor in (2, 5):
    with omp.interop(depend=[inout(d)], stream=own):
        own.launch(scale, d, factor)
omp.target_memcpy_async(found, d, depend=[in_(d), out(found)])
omp.taskwait()
print(found.tolist())
omp.target_free(d)
