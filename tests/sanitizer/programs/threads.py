"""Two threads of the host give work to one queue, one after the other."""

import threading

import numpy as np

import offload as omp
from offload import acc


@acc.parallel(present=["x"])
def double(x):
    x *= 2


@acc.parallel(present=["x"])
def shift(x):
    x += 1


def other(x):
    shift.options(async_=1)(x)


x = np.ones(4)
with acc.data(copy=[x]):
    double.options(async_=1)(x)
    thread = threading.Thread(target=other, args=(x,))
    thread.start()
    thread.join()
    double.options(async_=1)(x)
    acc.wait(1)
    acc.update(self_=[x])
    print(x.tolist())
omp.barrier()
