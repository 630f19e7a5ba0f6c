"""Loops that are split into tasks, one of them without a wait at its end, and a sum by a reduction."""

import numpy as np

import offload as omp


@omp.taskloop(num_tasks=3)
def shift(rows, by):
    rows += by


grid, total = np.arange(12.0).reshape(6, 2), np.array(0.0)
shift(grid, 1)
tasks = shift.options(nogroup=True)(grid, 10)
omp.taskwait()
print(grid.tolist(), len(tasks))


@omp.taskloop(grid, num_tasks=4, reduction={"+": [total]})
def add(rows, total):
    total += rows.sum()


print(float(total))
