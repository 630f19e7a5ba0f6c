"""Tasks of a group add to private arrays, which the end of the group combines."""

import numpy as np

import offload as omp
from offload import in_, out


@omp.task(depend=[out("x")])
def fill(x, value):
    x[...] = value


@omp.task(in_reduction={"+": ["total"], "max": ["high"]}, depend=[in_("part")])
def span(part, total, high):
    total += part.sum()
    np.maximum(high, part.max(), out=high)


x, total, high = np.zeros((4, 2)), np.array(1.0), np.array(0.0)
with omp.taskgroup(task_reduction={"+": [total], "max": [high]}):
    for number, part in enumerate(x):
        fill(part, number + 1)
        span(part, total, high)
print(float(total), float(high))
