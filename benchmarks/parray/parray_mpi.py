"""The turn of a slab FFT between MPI ranks, by a typed copy and by mpi4py, and what datatypes cost beside packing.

Run it: ``mpiexec -n 2 python benchmarks/run.py parray_mpi``, with ``--sizes`` for others, ``--repeat``, ``--runs`` for
the table of run lengths alone, ``--json``. A field of N x N x N complex numbers is distributed along z, and then along
y:

* ``copy``: ``copy(Z, a, to=(Y, b))``, `offload.parray`;
* ``Alltoallw``: datatypes made by hand, once, on the same two layouts;
* ``Alltoall``: NumPy packs for each rank, and puts the pieces together.

Contestants take turns; a turn is the time of the slowest rank. Results are checked before. The table of runs times one
message of 32 MB between two ranks that has runs of so many bytes with gaps at one end, by a datatype and packed there:
`offload.parray.messages` takes the one or the other by it.
"""

import json
import time
from statistics import median

import numpy as np
from mpi4py import MPI

import offload as omp
from offload.parray import ArrayType, copy, dim, disp, messages, ranks

COMM = MPI.COMM_WORLD
RUN_NBYTES = 32 << 20


def timed(call):
    """Return the seconds of the slowest rank."""
    COMM.Barrier()
    began_s = time.perf_counter()
    call()
    took_s = time.perf_counter() - began_s
    return COMM.allreduce(took_s, MPI.MAX)


def alternate(calls, repeat):
    found = {name: [] for name in calls}
    for turn in range(-1, repeat):
        for name, call in calls.items():
            took_s = timed(call)
            if turn >= 0:
                found[name].append(took_s * 1e3)
    return found


class Turn:
    """One size of the turn: a field, and the three ways to turn it."""

    def __init__(self, n):
        part = n // COMM.size
        M, H = ranks(COMM.size, COMM), ArrayType((part, (n, n)))
        self.n, self.part = n, part
        self.Z, self.Y = ArrayType((M, H)), ArrayType((H[1, 0], (M, H[0]), H[1, 1]))
        z = np.arange(COMM.rank * part, (COMM.rank + 1) * part)[:, None, None]
        self.a = (z * n * n + np.arange(n * n).reshape(n, n)).astype("c16")  # [z here][y][x]
        self.b = np.zeros((part, n, n), "c16")  # [y here][z][x]
        self.out, self.into = (np.zeros((COMM.size, part, part, n), "c16") for _ in range(2))
        row, item = MPI.BYTE.Create_contiguous(16 * n), 16
        sent = row.Create_hvector(part, 1, n * item).Create_hvector(part, 1, n * n * item).Commit()
        received = row.Create_hvector(part, 1, n * n * item).Create_hvector(part, 1, n * item).Commit()
        ones, places = [1] * COMM.size, [part * n * item * q for q in range(COMM.size)]
        self.send, self.receive = ((ones, places, [one] * COMM.size) for one in (sent, received))

    def by_copy(self):
        copy(self.Z, self.a, to=(self.Y, self.b))

    def by_datatypes(self):
        COMM.Alltoallw([self.a.view("u1"), *self.send], [self.b.view("u1"), *self.receive])

    def by_packing(self):
        n, part = self.n, self.part
        self.out[...] = self.a.reshape(part, COMM.size, part, n).transpose(1, 0, 2, 3)
        COMM.Alltoall(self.out, self.into)
        self.b.reshape(part, COMM.size, part, n)[...] = self.into.transpose(2, 0, 1, 3)

    def check(self):
        n, part = self.n, self.part
        y = np.arange(COMM.rank * part, (COMM.rank + 1) * part)[:, None, None]
        wanted = np.arange(n)[:, None] * n * n + y * n + np.arange(n)
        for call in (self.by_copy, self.by_datatypes, self.by_packing):
            self.b[...] = 0
            call()
            assert (self.b == wanted).all(), call.__name__


def measure_turns(sizes, repeat):
    found = {}
    for n in sizes:
        turn = Turn(n)
        turn.check()
        calls = {"copy": turn.by_copy, "Alltoallw": turn.by_datatypes, "Alltoall": turn.by_packing}
        found[f"N = {n}"] = alternate(calls, repeat)
    return found


def measure_runs(repeat):
    """Time messages of rank 0 to rank 1 of runs with gaps, at the one end or the other, by a datatype and packed."""
    found, kept = {}, (messages.LEAST_SENT_NBYTES, messages.LEAST_RECEIVED_NBYTES)
    M = ranks(2, COMM)
    for run in (8, 32, 64, 128, 256, 1024, 4096, 16384):
        count = RUN_NBYTES // run
        whole = ArrayType((count, (2, run)))  # every second run
        for end in ("sent", "received"):
            sides = [(whole[0], whole[1, 1]), (count, run)][:: 1 if end == "sent" else -1]
            source, target = (ArrayType((dim(1, disp(k), M), *side)) for k, side in enumerate(sides))
            x = np.ones(source.span, "u1") if COMM.rank == 0 else None
            y = np.zeros(target.span, "u1") if COMM.rank == 1 else None

            def moved(least, pair=((source, x), (target, y))):
                messages.LEAST_SENT_NBYTES = messages.LEAST_RECEIVED_NBYTES = least
                copy(*pair[0], to=pair[1])

            ways = {"datatype": lambda moved=moved: moved(0), "packed": lambda moved=moved: moved(1 << 20)}
            found[f"{end}, runs of {run} B"] = alternate(ways, repeat)
    messages.LEAST_SENT_NBYTES, messages.LEAST_RECEIVED_NBYTES = kept
    return found


def add_arguments(parser):
    """Declare the options."""
    parser.description = __doc__
    parser.add_argument("--sizes", type=int, nargs="+", default=[256, 320])
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--runs", action="store_true", help="the table of run lengths alone")
    parser.add_argument("--json", action="store_true")


def run(given):
    """Measure and print."""
    if COMM.size < 2:
        raise omp.ClauseError("parray_mpi: start it with mpiexec, on two ranks at least")
    with omp.Runtime("sim"):
        found = {} if given.runs else measure_turns(given.sizes, given.repeat)
        found |= measure_runs(given.repeat) if given.runs or given.json else {}
    if COMM.rank == 0:
        library = MPI.Get_library_version().splitlines()[0].strip()
        if given.json:
            print(json.dumps({"ranks": COMM.size, "library": library, "ms": found}))
            return
        print(f"{COMM.size} ranks, {library}; ms, medians of {given.repeat} (lowest to highest)")
        for name, row in found.items():
            cells = [f"{who} {median(ms):.1f} ({min(ms):.1f} to {max(ms):.1f})" for who, ms in row.items()]
            print(f"{name}: {', '.join(cells)}")
