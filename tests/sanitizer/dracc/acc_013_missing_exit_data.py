"""Matrix-vector product; the result is in no clause, and therefore copied back implicitly.

After DRACC_OACC_013_MxV_Missing_Exit_Data_no.c of DRACC (RWTH Aachen University, MIT License).
"""

import numpy as np

from offload import acc

C = 512


@acc.parallel
def kernel(a, b, c):
    c += b @ a


def mult(a, b, c):
    acc.enter_data(copyin=[a, b])
    kernel(a, b, c)
    acc.exit_data(delete=[a, b])


def check(c):
    print("Memory Access Issue visible:", not (c == C).all())


a, b, c = np.ones(C, int), np.ones((C, C), int), np.zeros(C, int)
mult(a, b, c)
check(c)
