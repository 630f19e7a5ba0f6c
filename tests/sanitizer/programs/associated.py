"""Device memory of the program's own as the storage of a host array."""

import numpy as np

import offload as omp


@omp.target
def bump(x):
    x += 1


x, d = np.zeros(4), omp.target_alloc(4, np.float64)
omp.target_associate_ptr(x, d)
omp.target_update(to=[x])
bump(x)
omp.target_update(from_=[x])
print(x.tolist())
omp.target_disassociate_ptr(x)
omp.target_free(d)
