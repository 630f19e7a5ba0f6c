"""An array goes through two buffers of a device, piece by piece."""

import numpy as np

import offload as omp
from offload import in_, inout, out


@omp.target(nowait=True)
def square(d):
    d *= d


source, result = np.arange(12.0), np.zeros(12)
with omp.buffers(2, 3) as ring:
    for k in range(4):
        piece = slice(3 * k, 3 * k + 3)
        omp.copy(ring[k], source[piece], depend=[out(ring[k])], nowait=True)
        square.options(depend=[inout(ring[k])])(ring[k])
        omp.copy(result[piece], ring[k], depend=[in_(ring[k])], nowait=True)
print(result.tolist())
