"""The host fulfils the event of one task, and a thread of a pool the event of another."""

import concurrent.futures

import numpy as np

import offload as omp
from offload import in_, out


@omp.task(depend=[out("x")])
def open_buffer(x):
    x[...] = 1


@omp.task(depend=[in_("x"), out("y")])
def use(x, y):
    y[...] = x + 1


x, y, z = np.zeros(4), np.zeros(4), np.zeros(4)
opened = omp.Event()
first = open_buffer.options(detach=opened)(x)
use(z, y)
omp.taskwait(depend=[in_(y)])
print(y.tolist())
opened.fulfill()
use(x, y)
omp.taskwait()
print(y.tolist())
done = omp.Event()
ready = omp.task(lambda: None, detach=done, depend=[out(z)])()
with concurrent.futures.ThreadPoolExecutor(1) as pool:
    done.fulfill_on(pool.submit(float, 3))
    use(z, y)
    omp.taskwait()
print(first.done(), ready.done(), y.tolist())
