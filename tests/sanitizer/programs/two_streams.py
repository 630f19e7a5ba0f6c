"""Two streams of the program's own, ordered by recorded events."""

import numpy as np

import offload as omp


def scale(d, e):
    e[...] = d * 2


def shift(d):
    d += 1


one, two = omp.stream(11), omp.stream(12)
d, e = omp.target_alloc(4, np.float64), omp.target_alloc(4, np.float64)
found = np.zeros(4)
omp.target_memcpy(d, np.arange(4.0))
one.launch(shift, d)
ready = one.record()
two.wait_event(ready)
two.launch(scale, d, e)
used = two.record()
one.wait_event(used)
one.launch(shift, d)
two.synchronize()
omp.target_memcpy(found, e)
print(found.tolist())
one.synchronize()
omp.target_memcpy(found, d)
print(found.tolist())
omp.target_free(d)
omp.target_free(e)
