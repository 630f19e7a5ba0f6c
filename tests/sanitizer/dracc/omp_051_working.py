"""Matrix-vector product without a mistake.

After DRACC_OMP_051_MxV_working_no.c of DRACC (RWTH Aachen University, MIT License).
"""

import numpy as np

from offload import target, to, tofrom

C = 512


@target(map=[to("a"), to("b"), tofrom("c")])
def mult(a, b, c):
    c += b @ a


def check(c):
    print("Memory Access Issue visible:", not (c == C).all())


a, b, c = np.ones(C, int), np.ones((C, C), int), np.zeros(C, int)
mult(a, b, c)
check(c)
