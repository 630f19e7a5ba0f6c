"""The 3-D transform over ranks against `scipy.fft`, on any number of ranks."""

from __future__ import annotations

import os

import numpy as np
import pytest
from mpi4py import MPI
from scipy import fft

import offload as omp
from offload.cli.demo.examples import load_example

example = load_example("fft3d_mpi")
parts = load_example("fft3d_parts")
IN_CI = [(16, 16, 16), (30, 30, 30), (7, 13, 5), (11, 4, 9)]
SOME = [("complex128", False), ("complex64", True)]
ALL = [(dtype, inverse) for dtype in ("complex64", "complex128") for inverse in (False, True)]
SHAPES, KINDS = ([*IN_CI, (64, 64, 64)], ALL) if os.environ.get("OFFLOAD_TESTS_FFT") == "all" else (IN_CI, SOME)
TOLERANCE = {"complex64": 1e-5, "complex128": 1e-12}


def grids(n):
    """Return all grids of so many ranks."""
    return [(rows, n // rows) for rows in range(1, n + 1) if n % rows == 0]


@pytest.fixture(scope="module")
def fields():
    """Give a field and its transform, forward or inverse, of each shape."""
    made = {}

    def give(shape, inverse):
        if (shape, inverse) not in made:
            rng = np.random.default_rng(1)
            field = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
            made[shape, inverse] = field, (fft.ifftn if inverse else fft.fftn)(field)
        return made[shape, inverse]

    return give


def check(comm, plan, dtype, field, expected, *, in_flight, both):
    """Transform a field in tasks, or in both forms, and compare this rank's part."""
    job = example.Job(plan, dtype, in_flight=in_flight, bulk=True)
    try:
        results = []
        for bulk in (True, False) if both else (False,):
            job.source[...] = field[plan.mine]
            results.append(example.fft3d(job, bulk=bulk).copy())
            error = np.abs(results[-1] - expected[plan.result]).max() / np.abs(expected).max()
            assert error <= TOLERANCE[np.dtype(dtype).name]
        assert all((one == results[0]).all() for one in results)
    finally:
        job.free()


def a_quarter(plan, dtype, in_flight):
    """Return a runtime whose device has a quarter of the memory of this rank's part, or as much as the buffers take."""
    part, item = np.prod(plan.shapes[0]), np.dtype(dtype).itemsize
    needed = in_flight * plan.n_rings * plan.n_buffer
    env = {"OFFLOAD_SIM_MEMORY": str(max(part // 4, needed) * item)}
    return omp.Runtime("sim:1", env=env, check=True), needed <= part / 4


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("dtype", "inverse"), KINDS)
def test_transform(comm, fields, shape, dtype, inverse):
    """Slabs and pencils, in planes and pencils, in any number of pieces, even and not, give what scipy.fft gives."""
    field, expected = fields(shape, inverse)
    n_quarters = 0
    counts = [(10, 1)] if shape[0] > 16 else [(3, 3)] if dtype == "complex64" else [(1, 1), (3, 3), (8, 2)]
    if shape[0] == 30 and dtype == "complex128":
        counts.append((4, 3))
    for grid in grids(comm.size):
        ways = example.communicators(comm, grid)
        for in_pencils in (False, True):
            for pieces, in_flight in counts:
                plan = example.Plan(shape, *ways, pieces=pieces, in_pencils=in_pencils, inverse=inverse)
                runtime, is_quarter = a_quarter(plan, dtype, in_flight)
                n_quarters += is_quarter
                with runtime:
                    check(comm, plan, dtype, field, expected, in_flight=in_flight, both=pieces in {3, 4})
        for way in ways:
            way.Free()
    assert n_quarters or shape[0] < 30


def test_there_and_back(comm, fields):
    """The inverse takes over what the transform has left on each rank, and gives the field back."""
    shape = (9, 10, 11)
    field, _ = fields(shape, inverse=False)
    with omp.Runtime("sim:1", check=True):
        there, back = (
            example.Job(example.Plan(shape, comm, pieces=3, inverse=inverse), complex) for inverse in (False, True)
        )
        there.source[...] = field[there.plan.mine]
        back.source[...] = example.fft3d(there)
        np.testing.assert_allclose(example.fft3d(back), field[there.plan.mine], atol=1e-12)
        there.free()
        back.free()


def test_every_rank_calls_as_often(comm):
    """Ranks that have nothing of a piece take part in its exchange as well, and what goes to oneself is not sent."""
    counts = []

    class Counted(MPI.Intracomm):
        def Ialltoallv(self, sent, received):  # mpi4py's
            counts.append((int(sent[1][0].sum()), int(sent[1][0][self.rank])))
            return super().Ialltoallv(sent, received)

    shape = (comm.size + 1, comm.size, 3)
    with omp.Runtime("sim:1", check=True):
        plan = example.Plan(shape, Counted(comm), pieces=4)
        job = example.Job(plan, complex)
        job.source[...] = 1
        result = example.fft3d(job)
        assert abs(result.sum() - (plan.result[1].start == 0) * np.prod(shape)) < 1e-9
        job.free()
    assert len(counts) == 4
    assert sum(sent for sent, _ in counts) == plan.n_exchanged
    assert all(own == 0 for _, own in counts)


def test_few_copies(comm):
    """Blocks of ranks whose parts are equal take one copy, however many they are."""
    assert parts.runs(parts.bounds(1000, 10)) == [[0, 10]]
    assert parts.runs(parts.bounds(1004, 10)) == [[0, 4], [4, 10]]
    assert parts.runs(parts.bounds(1004, 10), 2) == [[0, 2], [3, 4], [4, 10]]


def test_a_library_that_fails(comm):
    """A transform that raises fails the call on its rank, and nothing is left where no other rank waits."""

    class Failing(load_example("fft3d").SimulatedFFT):
        def run(self, array):
            raise ArithmeticError("no")

    with omp.Runtime("sim:1", check=True):
        plan = example.Plan((6, 6, 6), MPI.COMM_SELF.Dup(), pieces=2)
        job = example.Job(plan, complex, library=Failing)
        job.source[...] = 1
        with pytest.raises(BaseExceptionGroup):
            example.fft3d(job)
        job.free()
