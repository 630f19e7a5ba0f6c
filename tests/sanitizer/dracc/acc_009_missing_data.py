"""Matrix-vector product; the matrix is in no clause, and therefore mapped implicitly.

After DRACC_OACC_009_MxV_Missing_Data_no.c of DRACC (RWTH Aachen University, MIT License).
"""

import numpy as np

from offload import acc

C = 512


@acc.parallel
def kernel(a, b, c):
    c += b @ a


def mult(a, b, c):
    with acc.data(copyin=[a], copy=[c]):
        kernel(a, b, c)


def check(c):
    print("Memory Access Issue visible:", not (c == C).all())


a, b, c = np.ones(C, int), np.ones((C, C), int), np.zeros(C, int)
mult(a, b, c)
check(c)
