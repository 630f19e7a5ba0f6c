"""Tasks that exclude each other, and tasks that promise not to disturb each other."""

import numpy as np

import offload as omp
from offload import in_, inoutset, mutexinoutset, out


@omp.task(depend=[out("total", "table")])
def clear(total, table):
    total[...] = 0
    table[...] = 0


@omp.task(depend=[mutexinoutset("total")])
def add(total, value):
    total += value


@omp.task(depend=[inoutset("table")])
def scatter(table, rows):
    table[rows] += 1


@omp.task(depend=[in_("total", "table")])
def show(total, table):
    return [total.tolist(), table.tolist()]


total, table = np.ones(2), np.ones(6)
clear(total, table)
for value in range(4):
    add(total, value)
for rows in ([0, 3], [1, 4], [2, 5]):
    scatter(table, rows)
print(show(total, table).result())
