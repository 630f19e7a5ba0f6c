"""Device memory by routines: copies of ranges and boxes, and a fill."""

import numpy as np

import offload as omp
from offload import in_, inout, out


@omp.target(nowait=True, depend=[inout("box")])
def bump(box):
    box += 1


cube = np.arange(24.0).reshape(2, 3, 4)
box, back = omp.target_alloc((2, 2, 2), np.float64), np.zeros((2, 2, 2))
omp.target_memcpy_rect_async(box, cube, volume=(2, 2, 2), src_offsets=(0, 1, 2), depend=[out(box)])
bump(box)
omp.target_memcpy_async(back, box, depend=[in_(box), out(back)])
omp.taskwait(depend=[in_(back)])
print(back.tolist())
omp.target_memset_async(box, 0, depend=[out(box)])
bump(box)
omp.target_memcpy_async(back, box, depend=[in_(box)])
omp.taskwait()
print(back.tolist())
omp.target_free(box)
