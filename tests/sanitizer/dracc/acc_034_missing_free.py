"""Matrix-vector product; the matrix stays on the device.

After DRACC_OACC_034_MxV_missing_free_other.c of DRACC (RWTH Aachen University, MIT License).
"""

import numpy as np

from offload import acc

C = 512


@acc.parallel
def kernel(a, b, c):
    c += b @ a


def mult(a, b, c):
    acc.enter_data(copyin=[a, b, c])  # first
    kernel(a, b, c)  # fix
    acc.exit_data(copyout=[c], delete=[a])


def check(c):
    print("Memory Access Issue visible:", not (c == C).all())


a, b, c = np.ones(C, int), np.ones((C, C), int), np.zeros(C, int)
mult(a, b, c)
check(c)
