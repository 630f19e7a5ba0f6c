"""SAXPY; the host reads the result without a wait for the region.

After DRACC_OMP_035_SAXPY_without_Task_Barrier_yes.c of DRACC (RWTH Aachen University, MIT License).
"""

import numpy as np

from offload import target, taskwait, to, tofrom

C = 4096


@target(map=[to("y"), tofrom("x")], nowait=True)  # first
def saxpy(a, x, y):
    x *= a
    x += y


def check(x):
    print("Memory Access Issue visible:", not (x == 3).all())  # second, fix


a, x, y = 5.0, np.zeros(C), np.full(C, 3.0)
saxpy(a, x, y)
check(x)
taskwait()
