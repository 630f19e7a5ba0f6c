"""The array stays on the device."""

import numpy as np

import offload as omp
from offload import release, to

x = np.ones(100)
omp.target_enter_data(map=[to(x)])
omp.target_exit_data(map=[release(x)])
