"""A thread of a pool does a task's work, and its future fulfils the event."""

import concurrent.futures

import numpy as np

import offload as omp
from offload import in_, out

pool = concurrent.futures.ThreadPoolExecutor(2)


@omp.task(depend=[out("x")])
def load(x, value, done):
    done.fulfill_on(pool.submit(x.fill, value))


@omp.task(depend=[in_("x"), out("y")])
def use(x, y):
    y[...] = x + 1


x, y = np.zeros(4), np.zeros(4)
done = omp.Event()
load.options(detach=done)(x, 5, done)
use(x, y)
omp.taskwait()
print(y.tolist())
pool.shutdown()
