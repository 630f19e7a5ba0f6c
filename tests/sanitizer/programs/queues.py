"""Two arrays on two queues, and one step that needs both."""

import numpy as np

from offload import acc


@acc.parallel(present=["x"])
def step(x):
    x[...] = 2 * x + 1


@acc.parallel(present=["a", "b", "both"])
def multiply(a, b, both):
    both[...] = a * b


a, b, both = np.arange(4.0), np.ones(4), np.zeros(4)
with acc.data(create=[a, b, both]):
    for x, queue in ((a, 1), (b, 2)):
        acc.update(device=[x], async_=queue)
        step.options(async_=queue)(x)
        step.options(async_=queue)(x)
        acc.update(self_=[x], async_=queue)
    multiply.options(async_=2, wait=[1])(a, b, both)
    acc.update(self_=[both], async_=2)
    acc.wait(1, 2)
    print(a.tolist(), b.tolist(), both.tolist())
