"""A host task makes pieces, a region changes them, and a host task adds them up."""

import numpy as np

import offload as omp
from offload import in_, inout, out, tofrom


@omp.task(depend=[out("piece")])
def make(piece, value):
    piece[...] = value


@omp.target(nowait=True, map=[tofrom("piece")], depend=[inout("piece")])
def change(piece):
    piece *= piece


@omp.task(depend=[in_("piece"), inout("total")])
def add(piece, total):
    total += piece.sum()


pieces, total = np.zeros((2, 4)), np.array(0.0)
for value in range(4):
    piece = pieces[value % 2]
    make(piece, value)
    change(piece)
    add(piece, total)
omp.taskwait()
print(pieces.tolist(), float(total))
