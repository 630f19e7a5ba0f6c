"""Matrix-vector product; ``enter data`` allocates the matrix and does not copy it.

After DRACC_OMP_024_MxV_Missing_Enter_Data_yes.c of DRACC (RWTH Aachen University, MIT License).
"""

import numpy as np

from offload import alloc, from_, release, target, target_enter_data, target_exit_data, to

C = 512


@target
def kernel(a, b, c):
    c += b @ a  # second


def mult(a, b, c):
    target_enter_data(map=[to(a, c), alloc(b)])  # first
    kernel(a, b, c)  # fix
    target_exit_data(map=[from_(c), release(a, b)])


def check(c):
    print("Memory Access Issue visible:", not (c == C).all())


a, b, c = np.ones(C, int), np.ones((C, C), int), np.zeros(C, int)
mult(a, b, c)
check(c)
