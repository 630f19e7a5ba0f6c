"""Matrix-vector product; the result is never copied back.

After DRACC_OMP_032_MxV_outdated_Data_yes.c of DRACC (RWTH Aachen University, MIT License).
"""

import numpy as np

from offload import target, to

C = 512


@target(map=[to("a"), to("b"), to("c")])  # fix
def mult(a, b, c):
    c += b @ a  # first


def check(c):
    print("Memory Access Issue visible:", not (c == C).all())  # second


a, b, c = np.ones(C, int), np.ones((C, C), int), np.zeros(C, int)
mult(a, b, c)
check(c)
