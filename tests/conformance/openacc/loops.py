"""Plain functions that the cases of this directory make loops of, and how they look at loops."""

import numpy as np

import offload as omp
from offload import acc

N = 200
CONSTRUCTS = [acc.parallel_loop, acc.kernels_loop]


def double(x, y):
    for i in range(x.size):
        y[i] = 2 * x[i]


def increment(x):
    for i in range(x.size):
        x[i] += 1


def add(x, y):
    for i in range(x.size):
        y[i] += x[i]


def running(a):
    for i in range(1, a.size):
        a[i] += a[i - 1]


def trace(c, order):
    """Leave the iterations in the order in which they are carried out."""
    for i in range(order.size):
        k = omp.atomic.add(c, 0, 1)
        order[k] = i


def cells(c, order, n, m):
    for i in range(n):
        for j in range(m):
            k = omp.atomic.add(c, 0, 1)
            order[k] = m * i + j


def scale(a, factor):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            a[i, j] *= factor


def total(x):
    s = 0
    for i in range(x.size):
        s += x[i]
    return s


def order_of(loop, n=N):
    """Return the order in which a loop made of `trace` carries out its iterations."""
    order = np.full(n, -1)
    loop(np.zeros(1, int), order)
    assert sorted(order) == list(range(n))
    return order.tolist()


def loops_of(loop, *args):
    """Return what the report says of each loop."""
    return [one for nest in loop.explain(*args).to_dict()["nests"] for one in nest["loops"]]
