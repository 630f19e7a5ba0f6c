"""Matrix-vector product; only half of the result is copied back.

After DRACC_OACC_020_MxV_Partially_outdated_Data_yes.c of DRACC (RWTH Aachen University, MIT License).
"""

import numpy as np

from offload import acc

C = 512


@acc.parallel
def kernel(a, b, c):
    c += b @ a  # first


def mult(a, b, c):
    with acc.data(copyin=[a, b, c]):  # fix
        kernel(a, b, c)
        acc.update(self_=[c[: C // 2]])


def check(c):
    print("Memory Access Issue visible:", not (c == C).all())  # second


a, b, c = np.ones(C, int), np.ones((C, C), int), np.zeros(C, int)
mult(a, b, c)
check(c)
