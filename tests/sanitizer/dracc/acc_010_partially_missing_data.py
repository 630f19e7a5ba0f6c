"""Matrix-vector product; the region creates the matrix, and only its first row is copied.

After DRACC_OACC_010_MxV_Partially_Missing_Data_yes.c of DRACC (RWTH Aachen University, MIT License).
"""

import numpy as np

from offload import acc

C = 512


@acc.parallel
def kernel(a, b, c):
    c += b @ a  # second


def mult(a, b, c):
    with acc.data(copyin=[a], create=[b], copy=[c]):  # first, fix
        acc.update(device=[b[:1]])
        kernel(a, b, c)


def check(c):
    print("Memory Access Issue visible:", not (c == C).all())


a, b, c = np.ones(C, int), np.ones((C, C), int), np.zeros(C, int)
mult(a, b, c)
check(c)
