"""The matrix is never copied to the device."""

import numpy as np

from offload import target, to, tofrom


@target(map=[to("a"), to("x"), tofrom("y")])
def multiply(a, x, y):
    y += a @ x


a, x, y = np.ones((20, 30)), np.ones(30), np.zeros(20)
multiply(a, x, y)
print(y.sum())
