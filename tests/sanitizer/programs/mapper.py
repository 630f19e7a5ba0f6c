"""An object whose class has a mapper."""

import numpy as np

import offload as omp
from offload import inout, to, tofrom


class Particles:
    def __init__(self, n):
        self.position = np.zeros(n)
        self.velocity = np.ones(n)


omp.declare_mapper(Particles, lambda p: [tofrom(p.position), to(p.velocity)])


@omp.target(nowait=True, depend=[inout("p")])
def move(p, dt):
    p.position += dt * p.velocity


p = Particles(4)
move(p, 0.5)
omp.taskwait()
print(p.position.tolist())
with omp.target_data(map=[p]):
    move(p, 0.5)
    move(p, 1)
print(p.position.tolist())
p.velocity[...] = 3
move(p, 1).result()
print(p.position.tolist())
