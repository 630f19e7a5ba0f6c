"""The result stays on the device."""

import numpy as np

from offload import target, to


@target(map=[to("y"), to("x")])
def saxpy(a, x, y):
    y += a * x


x, y = np.ones(100), np.zeros(100)
saxpy(2.0, x, y)
print(y.sum())
