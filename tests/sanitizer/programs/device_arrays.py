"""The device array of mapped data is passed to regions."""

import numpy as np

import offload as omp
from offload import inout, tofrom


@omp.target(nowait=True, is_device_ptr=["d"])
def bump(d, by):
    d += by


x = np.zeros(4)
with omp.target_data(map=[tofrom(x)], use_device_ptr=[x]) as (d,):
    bump.options(depend=[inout(d)])(d, 1)
    bump.options(depend=[inout(d)])(d, 2)
    omp.taskwait()
    omp.target_update(from_=[x[:2]])
    print(x[:2].tolist())
    bump.options(depend=[inout(d)])(d, 3)
print(x.tolist())
