"""DRACC CUDA 010: a matrix times a vector; the copy of the matrix to the device is missing."""

import cupy as cp
import numpy as np

C = 512
a = np.ones(C, np.int32)
b = np.ones((C, C), np.int32)
c = np.zeros(C, np.int32)
d_a = cp.empty(C, np.int32)
d_b = cp.empty((C, C), np.int32)
d_c = cp.empty(C, np.int32)
d_a.set(a)
d_c[...] = d_b @ d_a
cp.cuda.runtime.deviceSynchronize()
d_c.get(out=c)
print("Memory Access Issue visible:", bool((c != C).any()))
