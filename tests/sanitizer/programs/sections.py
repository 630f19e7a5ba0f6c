"""Parts of arrays in strings, in OpenMP's notation."""

import numpy as np

import offload as omp
from offload import in_, inout, out, to, tofrom


@omp.target(nowait=True, map=[tofrom("v[first:n:2]")], depend=[inout("v[first:n:2]")])
def negate(v, first, n):
    v *= -1


@omp.target(nowait=True, map=[to("v[0:4]"), tofrom("sums[k:1]")], depend=[in_("v[0:4]"), out("sums[k:1]")])
def add_up(v, sums, k):
    sums[0] = v.sum()


v, sums = np.arange(10.0), np.zeros(3)
negate(v, 1, 3)
negate(v, 0, 3)
add_up(v, sums, 1)
negate(v, 2, 4)
omp.taskwait()
print(v.tolist(), sums.tolist())
