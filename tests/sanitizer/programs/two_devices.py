"""Two devices compute halves; the parts meet on the host."""

import numpy as np

import offload as omp
from offload import in_, inout, out, tofrom


@omp.target(nowait=True, map=[tofrom("half")])
def grow(half):
    half += 1
    half *= 2


@omp.task(depend=[in_("x"), out("total")])
def add_up(x, total):
    total[...] = x.sum()


x, total = np.arange(8.0), np.array(0.0)
for _ in range(2):
    for number, half in enumerate(np.split(x, 2)):
        grow.options(device=number, depend=[inout(half)])(half)
add_up(x, total)
omp.taskwait()
print(x.tolist(), float(total))
