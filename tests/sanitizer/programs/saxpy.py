"""Steps on data that stays on the device; each step follows the one before by a dependence."""

import numpy as np

import offload as omp
from offload import in_, inout, to, tofrom


@omp.target(nowait=True)
def saxpy(a, x, y):
    y += a * x


x, y = np.arange(6.0), np.zeros(6)
with omp.target_data(map=[to(x), tofrom(y)]):
    for _ in range(3):
        saxpy.options(depend=[in_(x), inout(y)])(2.0, x, y)
print(y.tolist())
