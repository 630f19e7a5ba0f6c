"""One region with an array of each map type."""

import numpy as np

import offload as omp
from offload import alloc, from_, to, tofrom


@omp.target(map=[to("x"), from_("y"), tofrom("z"), alloc("scratch")])
def mix(x, y, z, scratch):
    scratch[...] = x + z
    y[...] = 2 * scratch
    z += x


x, y, z, scratch = np.arange(5.0), np.empty(5), np.ones(5), np.zeros(5)
mix(x, y, z, scratch)
x += 1
mix(x, y, z, scratch)
print(y.tolist(), z.tolist())
