"""``--model P``: what the transform over ranks would take on P ranks of machines like this one, on paper.

This file measures the constants of `benchmarks.mpi.prediction`, on all ranks of this job at once. Where the ranks
share the cores of one machine each constant has that in it, but not what they take from each other when all is under
way; so the model is held against the transform itself first, on the ranks that there are.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

import offload as omp
from benchmarks.harness.measuring import Section, Table, alternate
from benchmarks.mpi.prediction import Machine, exchange_s, pass_s, predict
from benchmarks.mpi.transform import DTYPE, SCHEDULES, Transform
from offload import in_, out

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.mpi.job import Job

FIELD_EDGE, FIELD_ITEMSIZE, FIELD_PIECES = 12_288, 8, 30
"""What is predicted: complex64."""

_NBYTES, _QUICK_NBYTES = 16 << 20, 1 << 16
_EDGE, _QUICK_EDGE = 128, 16
_PIECES = 8
_TINY_EDGE, _TINY_PIECES = 16, 32
_MESSAGES = 200


def measure(job: Job, n_ranks: int) -> Section:
    """Measure the constants; return them, the model beside the transform here, and the model on ``n_ranks``."""
    with omp.Runtime("sim:1"):
        runs = constants(job)
        machine = Machine(*(median(samples) for samples in runs.values()))
        beside = _beside(job, machine)
    section = Section()
    section.tables["constants"] = Table(
        "Constants of the model",
        {
            "f, transform, s/GB": {"": _scaled(runs["transform_s"], 1e9)},
            "l, link each way at once, s/GB": {"": _scaled(runs["link_s"], 1e9)},
            "n, network, s/GB": {"": _scaled(runs["network_s"], 1e9)},
            "o, a piece, µs": {"": _scaled(runs["overhead_s"], 1e6)},
            "m, a message, µs": {"": _scaled(runs["message_s"], 1e6)},
        },
        f"Measured on {job.comm.size} ranks at once, on the simulated device.",
    )
    edge = _QUICK_EDGE if job.is_quick else _EDGE
    section.tables["beside"] = Table(
        f"The model beside the transform on {job.comm.size} ranks, {edge}³ complex128, {_PIECES} pieces, ms", beside
    )
    section.tables["model"] = _predicted(machine, n_ranks)
    return section


def constants(job: Job) -> dict[str, list[float]]:
    """Return samples of what `Machine` has, in its order: seconds a byte, or seconds."""
    nbytes = _QUICK_NBYTES if job.is_quick else _NBYTES
    n = max(job.comm.size, nbytes // DTYPE.itemsize // job.comm.size * job.comm.size)
    sent, received = np.ones(n, DTYPE), np.empty(n, DTYPE)
    edge = round(n ** (1 / 3))
    shape = (edge, edge, edge)
    with Transform(job, (_TINY_EDGE,) * 3, "planes", _TINY_PIECES) as tiny:
        device = _Device(job, shape)
        try:
            calls: dict[str, Callable[[], float]] = {
                "transform_s": lambda: device.transform_s() / device.nbytes,
                "link_s": lambda: device.copies_s() / device.nbytes,
                "network_s": lambda: _network_s(job, sent, received),
                "overhead_s": lambda: tiny.slowest_s(bulk=False) / (tiny.n_passes * _TINY_PIECES),
                "message_s": lambda: _message_s(job),
            }
            return alternate(calls, job.repeat)
        finally:
            device.free()


class _Device:
    """Two device buffers and two arrays of the host, to measure a transform and copies with."""

    def __init__(self, job: Job, shape: tuple[int, int, int]) -> None:
        from benchmarks.harness.programs import load_example

        self._job = job
        self._hosts = [np.ones(shape, DTYPE) for _ in range(2)]
        self._buffers = [omp.target_alloc(shape, DTYPE) for _ in range(2)]
        self.nbytes = self._hosts[0].nbytes
        program = load_example("fft3d")
        self._call = program.library_call
        self._libraries = [program.library()(self._buffers[0], axes) for axes in ((1, 2), (0,))]

    def free(self) -> None:
        self._libraries.clear()
        while self._buffers:
            omp.target_free(self._buffers.pop())

    def transform_s(self) -> float:
        """Return the seconds of a visit: the mean of along y and x, and along z."""
        omp.target_memcpy(self._buffers[0], self._hosts[0])
        return self._job.slowest_s(self._transform) / len(self._libraries)

    def _transform(self) -> None:
        for library in self._libraries:
            done = omp.Event()
            self._call.options(depend=[omp.inout(self._buffers[0])], detach=done)(library, self._buffers[0], done)
        omp.taskwait()

    def copies_s(self) -> float:
        """Return the seconds of a copy each way at once."""
        return self._job.slowest_s(self._copy)

    def _copy(self) -> None:
        (here, there), (one, other) = self._hosts, self._buffers
        omp.target_memcpy_async(one, here, depend=[in_(here), out(one)])
        omp.target_memcpy_async(there, other, depend=[in_(other), out(there)])
        omp.taskwait()


def _network_s(job: Job, sent: Any, received: Any) -> float:
    """Return the seconds a byte that goes to another rank; a rank's own block is empty, as in the transform."""
    size, rank = job.comm.size, job.comm.rank
    if size == 1:
        return 0.0
    counts = np.full(size, len(sent) // size)
    displacements = np.cumsum(counts) - counts
    counts[rank] = 0
    seconds = job.slowest_s(
        lambda: job.comm.Alltoallv([sent, (counts, displacements)], [received, (counts, displacements)])
    )
    return seconds / (int(counts.sum()) * DTYPE.itemsize)


def _message_s(job: Job) -> float:
    """Return the seconds of a message: those of an exchange of 8 bytes with each, over the number of ranks."""
    sent, received = np.zeros(job.comm.size), np.zeros(job.comm.size)

    def exchange() -> None:
        for _ in range(_MESSAGES):
            job.comm.Alltoall(sent, received)

    return job.slowest_s(exchange) / _MESSAGES / job.comm.size


def _beside(job: Job, machine: Machine) -> dict[str, dict[str, list[float]]]:
    """Return the model's and the measured times, in milliseconds."""
    edge = _QUICK_EDGE if job.is_quick else _EDGE
    rows: dict[str, dict[str, list[float]]] = {}
    for schedule in SCHEDULES:
        with Transform(job, (edge,) * 3, schedule, _PIECES) as transform:
            transform.check()
            predicted = predict(machine, transform.nbytes, _PIECES, job.comm.size)
            forms = {"tasks": False, "bulk": True}
            runs = alternate(
                {name: partial(transform.slowest_s, bulk=bulk) for name, bulk in forms.items()}, job.repeat
            )
        for name, bulk in forms.items():
            modelled_s = getattr(predicted, f"{'bulk_' if bulk else ''}{schedule}_s")
            rows[f"{schedule}, {name}"] = {"model": [modelled_s * 1e3], "measured": _scaled(runs[name], 1e3)}
    return rows


def _predicted(machine: Machine, n_ranks: int) -> Table:
    """Return the table of a field of which each rank has as much whatever their number."""
    nbytes = FIELD_EDGE**3 * FIELD_ITEMSIZE / n_ranks
    rows = {}
    for ranks in sorted({2, *(n for n in (8, 64, 512) if n < n_ranks), n_ranks}):
        times = predict(machine, nbytes, FIELD_PIECES, ranks)
        rows[f"{ranks:,}"] = {
            "X, a pass": [pass_s(machine, nbytes, FIELD_PIECES)],
            "N, exchanges": [exchange_s(machine, nbytes, FIELD_PIECES, ranks)],
            "planes": [times.planes_s],
            "pencils": [times.pencils_s],
            "bulk, planes": [times.bulk_planes_s],
            "bulk, pencils": [times.bulk_pencils_s],
            "bulk / tasks": [
                min(times.bulk_planes_s, times.bulk_pencils_s) / min(times.planes_s, times.pencils_s),
            ],
        }
    return Table(
        f"The model, s: {nbytes / 1e9:.3g} GB a rank, {FIELD_PIECES} pieces; on {n_ranks:,} ranks that is "
        f"{FIELD_EDGE:,}³ complex64",
        rows,
        "Ranks by the row; the constants are those above, whatever the number of ranks, so each network is as fast as "
        "this one between its ranks.",
    )


def _scaled(samples: list[float], factor: float) -> list[float]:
    return [one * factor for one in samples]
