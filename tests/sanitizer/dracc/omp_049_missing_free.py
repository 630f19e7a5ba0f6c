"""Matrix-vector product; the matrix stays on the device.

After DRACC_OMP_049_MxV_missing_free_other.c of DRACC (RWTH Aachen University, MIT License).
"""

import numpy as np

from offload import from_, release, target, target_enter_data, target_exit_data, to

C = 512


@target
def kernel(a, b, c):
    c += b @ a


def mult(a, b, c):
    target_enter_data(map=[to(a, b, c)])  # first
    kernel(a, b, c)  # fix
    target_exit_data(map=[from_(c), release(a)])


def check(c):
    print("Memory Access Issue visible:", not (c == C).all())


a, b, c = np.ones(C, int), np.ones((C, C), int), np.zeros(C, int)
mult(a, b, c)
check(c)
