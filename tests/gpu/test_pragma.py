"""Blocks with directives on CUDA: streams, results, libraries' kernels; tests/conformance/pragma has the rest."""

from __future__ import annotations

import numpy as np
import pytest

import offload
from offload.pragma import acc, directives, omp
from tests.conformance.pragma.spelling import CALLS_HEADER, HEADER, import_text
from tests.gpu.conftest import cupy
from tests.pragma.random_programs import SIZE, Programs

pytestmark = pytest.mark.gpu

N = 1 << 12


@directives
def saxpy(a, x, y):
    with omp("target map(to: x) map(tofrom: y)"):
        assert isinstance(x, cupy.ndarray)
        assert not offload.is_initial_device()
        y += a * x


def test_arrays_are_of_cupy(gpu):
    """The arrays of a block are CuPy arrays, on the stream of the task."""
    x, y = np.ones(N), np.zeros(N)
    saxpy(2.0, x, y)
    assert (y == 2).all()


@directives
def chain(x, n, seen):
    with omp("target data map(tofrom: x)"):
        for i in range(n):
            with omp("target nowait depend(inout: x)"):
                x += i
                seen.append(cupy.cuda.get_current_stream().ptr == offload.current_stream().ptr)
        omp("taskwait")


def test_the_stream_of_a_block(gpu):
    """A block's operations go to the stream of its task."""
    x, seen = np.zeros(N), []
    chain(x, 10, seen)
    assert (x == 45).all()
    assert all(seen)


@directives
def totals(x):
    with omp("target map(to: x) map(from: s) nowait depend(out: s)"):
        s = x.sum()
    with omp("task depend(in: s) shared(s) shared(kind)"):
        kind = type(s)
    omp("taskwait")
    with acc("parallel copyin(x) copyout(m)"):
        m = x.max()
    return s, m, kind


def test_results_are_numbers(gpu):
    """A 0-d device array that a block leaves in a number is a number on the host, for dependent tasks, too."""
    s, m, kind = totals(np.arange(10.0))
    assert (float(s), float(m)) == (45, 9)
    assert not isinstance(s, cupy.ndarray)
    assert not issubclass(kind, cupy.ndarray)


@directives
def sections(a, lo, n):
    with omp("target map(tofrom: a[lo:n])"):
        a[lo] = 50
        a[lo + 1 : lo + n] *= 2
        a[lo - 10] += 1


def test_sections_keep_their_indices(gpu):
    """An array of which a section is mapped keeps its indices on the device."""
    a = np.arange(10.0)
    sections(a, 3, 4)
    assert a.tolist() == [0, 1, 2, 51, 8, 10, 12, 7, 8, 9]


@directives
def loops(x, y):
    total = 0.0
    with omp("target data map(to: x) map(from: y)"):
        with omp("target teams distribute parallel for nowait depend(out: y)"):
            for i in range(x.size):
                y[i] = 2 * x[i]
        with omp("target teams distribute parallel for reduction(+: total) depend(in: y)"):
            for i in range(y.size):
                total += y[i]
    with acc("parallel loop gang vector copy(x)"):
        for i in range(x.size):
            x[i] += 1
    return total


def test_loops(gpu):
    """Nests under directives are kernels."""
    x, y = np.arange(float(N)), np.zeros(N)
    assert loops(x, y) == N * (N - 1)
    assert (y == 2 * np.arange(N)).all()
    assert (x == np.arange(N) + 1).all()


@directives
def held(stream, log):
    event, key = offload.Event(), ("log", "done")  # noqa: F841  # the strings name it
    with omp("task detach(event) depend(out: key)"):
        event.fulfill_on(stream)
    with omp("task depend(in: key)"):
        log.append("after the stream")
    return event


def test_detach_on_a_stream(gpu, latch):
    """A task with `detach` completes when the stream that fulfils its event gets there."""
    stream, log = cupy.cuda.Stream(non_blocking=True), []
    latch.hold(stream)
    event = held(stream, log)
    assert not event.is_fulfilled
    assert log == []
    latch.release()
    offload.taskwait()
    assert log == ["after the stream"]


@directives
def host_data(x):
    with omp("target data map(tofrom: x) use_device_ptr(x)"):
        kind = type(x)
        x += 1  # on the current stream of CuPy
        cupy.cuda.get_current_stream().synchronize()
    return kind


def test_use_device(gpu):
    """`use_device_ptr` gives CuPy arrays to the code of the block."""
    x = np.zeros(N)
    assert host_data(x) is cupy.ndarray
    assert (x == 1).all()


@pytest.mark.parametrize("seed", range(30))
def test_random_programs(gpu, tmp_path, seed):
    """Random programs leave on CUDA what their text without directives leaves."""
    programs = Programs(seed, 1)

    def left(text, header):
        module = import_text(tmp_path, text, header)
        arrays = [np.arange(float(SIZE)) * step % 101 for step in (7, 11, 13)]
        value = float(module.program(*arrays, 3))
        offload.taskwait()
        return [array.tolist() for array in arrays], value

    expected = left(programs.text("serial"), HEADER)
    assert left(programs.text("strings"), HEADER) == expected
    assert left(programs.text("calls"), CALLS_HEADER) == expected
