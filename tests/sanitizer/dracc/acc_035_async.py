"""Matrix-vector product; the host reads the result without a wait for the queue.

After DRACC_OACC_035_MxV_async_yes.c of DRACC (RWTH Aachen University, MIT License).
"""

import numpy as np

from offload import acc

C = 512


@acc.parallel(copyin=["a", "b"], copy=["c"], async_=True)  # first
def mult(a, b, c):
    c += b @ a


def check(c):
    print("Memory Access Issue visible:", not (c == C).all())  # second, fix


a, b, c = np.ones(C, int), np.ones((C, C), int), np.zeros(C, int)
mult(a, b, c)
check(c)
acc.wait()
