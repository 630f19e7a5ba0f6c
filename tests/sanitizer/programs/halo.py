"""Only the edges of a field move between the steps, one of them with a stride."""

import numpy as np

import offload as omp
from offload import alloc, to, tofrom


@omp.target(map=[tofrom("u"), alloc("v")])
def smooth(u, v):
    v[...] = u
    u[1:-1, 1:-1] = (v[:-2, 1:-1] + v[2:, 1:-1]) / 2


u, v = np.arange(30.0).reshape(5, 6), np.empty((5, 6))
with omp.target_data(map=[to(u), alloc(v)]):
    for step in range(2):
        u[0] = step
        u[:, 0] = -step
        omp.target_update(to=[u[0], u[:, 0]])
        smooth(u, v)
        omp.target_update(from_=[u[1], u[:, 4]])
        print(u[1].tolist(), u[:, 4].tolist())
    omp.target_update(from_=[u])
print(u.tolist())
