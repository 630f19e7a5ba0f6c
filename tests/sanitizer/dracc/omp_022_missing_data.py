"""Matrix-vector product; the matrix is allocated on the device and never copied there.

After DRACC_OMP_022_MxV_Missing_Data_yes.c of DRACC (RWTH Aachen University, MIT License).
"""

import numpy as np

from offload import alloc, target, to, tofrom

C = 512


@target(map=[to("a"), tofrom("c"), alloc("b")])  # first, fix
def mult(a, b, c):
    c += b @ a  # second


def check(c):
    print("Memory Access Issue visible:", not (c == C).all())


a, b, c = np.ones(C, int), np.ones((C, C), int), np.zeros(C, int)
mult(a, b, c)
check(c)
