"""A task completes when the host fulfils its event."""

import numpy as np

import offload as omp
from offload import in_, out


@omp.task(depend=[out("x")])
def receive(x):
    pass


@omp.task(depend=[in_("x"), out("y")])
def use(x, y):
    y[...] = 2 * x


x, y = np.zeros(4), np.zeros(4)
arrived = omp.Event()
receive.options(detach=arrived)(x)
use(x, y)
x[...] = 7
arrived.fulfill()
omp.taskwait()
print(y.tolist())
