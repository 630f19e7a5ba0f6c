"""Matrix-vector product; ``exit data`` copies half of the result.

After DRACC_OMP_027_MxV_Partially_Missing_Exit_Data_yes.c of DRACC (RWTH Aachen University, MIT License).
"""

import numpy as np

from offload import from_, release, target, target_enter_data, target_exit_data, to

C = 512


@target
def kernel(a, b, c):
    c += b @ a  # first


def mult(a, b, c):
    target_enter_data(map=[to(a, b, c)])
    kernel(a, b, c)
    target_exit_data(map=[from_(c[: C // 2]), release(a, b)])  # fix


def check(c):
    print("Memory Access Issue visible:", not (c == C).all())  # second


a, b, c = np.ones(C, int), np.ones((C, C), int), np.zeros(C, int)
mult(a, b, c)
check(c)
