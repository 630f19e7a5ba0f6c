"""The transform over ranks of ``examples/fft3d_mpi.py``, as the sections of this benchmark run it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.fft import fftn

from benchmarks.harness.programs import load_example

if TYPE_CHECKING:
    from mpi4py import MPI

    from benchmarks.mpi.job import Job

DTYPE = np.dtype("c16")
SCHEDULES = ("planes", "pencils")


class Transform:
    """A field of random numbers that is cut in slabs, and one schedule for it; a context manager.

    Parameters
    ----------
    job : Job
    shape : tuple of int
        Of the field.
    schedule : str
        ``"planes"`` or ``"pencils"``.
    pieces : int
        Of a rank.
    comm : mpi4py.MPI.Comm, optional
        What exchanges; by default the job's.
    library : callable, optional
        What makes the transforms of device buffers; by default the device's.
    """

    def __init__(
        self,
        job: Job,
        shape: tuple[int, int, int],
        schedule: str,
        pieces: int,
        comm: MPI.Intracomm | None = None,
        library: Any = None,
    ) -> None:
        program = load_example("fft3d_mpi")
        self.plan = program.Plan(shape, comm or job.comm, pieces=pieces, in_pencils=schedule == "pencils")
        self._run = program.fft3d
        self._memory = program.Job(self.plan, DTYPE, bulk=True, library=library)
        self._field = random_field(shape)
        self._job = job

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._memory.free()

    @property
    def nbytes(self) -> int:
        """The bytes of this rank's part."""
        return int(self._memory.source.nbytes)

    @property
    def n_passes(self) -> int:
        """How often all of it visits the device."""
        return sum(bool(step.first) + bool(step.then) for step in self.plan.steps)

    def fill(self) -> None:
        """Put the field to where it is transformed from."""
        self._memory.source[...] = self._field[self.plan.mine]

    def run(self, *, bulk: bool) -> Any:
        """Transform what was filled in; return the result."""
        return self._run(self._memory, bulk=bulk)

    def slowest_s(self, *, bulk: bool) -> float:
        """Transform the field; return the seconds of the slowest rank."""
        self.fill()
        return self._job.slowest_s(lambda: self.run(bulk=bulk))

    def check(self) -> None:
        """Compare what both forms give with SciPy's transform."""
        expected = fftn(self._field)
        for bulk in (True, False):
            self.fill()
            result = self.run(bulk=bulk)
            error = abs(result - expected[self.plan.result]).max(initial=0.0) / abs(expected).max()
            self._job.expect(error < 1e-12, f"the transform, {'bulk' if bulk else 'tasks'}, with error {error:.1e}")


def random_field(shape: tuple[int, int, int]) -> Any:
    """Return the same field on each rank."""
    rng = np.random.default_rng(1)
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
