"""Sweeps between two arrays on the device, whose residual the host reads now and then."""

import numpy as np

import offload as omp
from offload import in_, inout, out, to, tofrom


@omp.target(nowait=True, depend=[in_("old"), inout("new")])
def sweep(old, new):
    new[1:-1] = (old[:-2] + old[2:]) / 2


@omp.target(nowait=True, depend=[in_("old", "new"), out("change")])
def measure(old, new, change):
    change[...] = abs(new - old).max()


u, v, change = np.array([0.0, 0, 0, 0, 16]), np.array([0.0, 0, 0, 0, 16]), np.zeros(1)
with omp.target_data(map=[tofrom(u), to(v), to(change)]):
    for step in range(4):
        old, new = (u, v) if step % 2 == 0 else (v, u)
        sweep(old, new)
        measure(old, new, change)
        omp.target_update(from_=[change], depend=[inout(change)])
        print(float(change[0]))
print(u.tolist())
