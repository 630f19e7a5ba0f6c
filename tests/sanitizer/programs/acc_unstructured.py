"""Data of OpenACC that enters and exits by directives, with updates in both directions."""

import numpy as np

from offload import acc


@acc.parallel(present=["x", "y"])
def advance(x, y):
    y[...] = x + y
    x *= 2


x, y = np.ones(4), np.zeros(4)
acc.enter_data(copyin=[x], create=[acc.zero(y)])
advance(x, y)
acc.update(self_=[x])
x[1:] += 10
acc.update(device=[x[1:]])
advance(x, y)
acc.update(self_=[y])
print(y.tolist())
acc.exit_data(copyout=[x], delete=[y])
print(x.tolist())
