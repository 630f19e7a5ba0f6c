"""Host tasks that produce, change and consume two arrays."""

import numpy as np

import offload as omp
from offload import in_, inout, out


@omp.task(depend=[out("x")])
def produce(x, value):
    x[...] = value


@omp.task(depend=[inout("x")])
def change(x):
    x *= 3


@omp.task(depend=[in_("x"), out("y")])
def consume(x, y):
    y[...] = x + 1


x, y = np.zeros(4), np.zeros(4)
for value in (1, 2):
    produce(x, value)
    change(x)
    consume(x, y)
omp.taskwait()
print(x.tolist(), y.tolist())
