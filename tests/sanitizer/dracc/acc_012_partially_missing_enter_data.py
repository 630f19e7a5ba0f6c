"""Matrix-vector product; ``enter data`` creates the matrix, and only its first row is copied.

After DRACC_OACC_012_MxV_Partially_Missing_Enter_Data_yes.c of DRACC (RWTH Aachen University, MIT License).
"""

import numpy as np

from offload import acc

C = 512


@acc.parallel
def kernel(a, b, c):
    c += b @ a  # second


def mult(a, b, c):
    acc.enter_data(copyin=[a, c], create=[b])  # first
    acc.update(device=[b[:1]])
    kernel(a, b, c)  # fix
    acc.exit_data(copyout=[c], delete=[a, b])


def check(c):
    print("Memory Access Issue visible:", not (c == C).all())


a, b, c = np.ones(C, int), np.ones((C, C), int), np.zeros(C, int)
mult(a, b, c)
check(c)
