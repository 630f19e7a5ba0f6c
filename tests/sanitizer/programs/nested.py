"""Tasks generate regions and wait for them, and the host waits for the tasks."""

import numpy as np

import offload as omp
from offload import in_, inout, tofrom


@omp.target(nowait=True, map=[tofrom("part")])
def square(part):
    part *= part


@omp.task(depend=[inout("row")])
def process(row):
    for part in np.split(row, 2):
        square(part)
    omp.taskwait()
    row += 1


@omp.task(depend=[in_("rows")])
def total(rows):
    return float(rows.sum())


rows = np.arange(12.0).reshape(3, 4)
for row in rows:
    process(row)
print(total(rows).result())
process(rows[0])
omp.barrier()
print(rows.tolist())
