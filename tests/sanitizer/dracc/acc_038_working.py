"""Matrix-vector product without a mistake.

After DRACC_OACC_038_MxV_working_no.c of DRACC (RWTH Aachen University, MIT License).
"""

import numpy as np

from offload import acc

C = 512


@acc.parallel(copyin=["a", "b"], copy=["c"])
def mult(a, b, c):
    c += b @ a


def check(c):
    print("Memory Access Issue visible:", not (c == C).all())


a, b, c = np.ones(C, int), np.ones((C, C), int), np.zeros(C, int)
mult(a, b, c)
check(c)
