"""The examples with directive strings do the same as their decorator forms, with no more lines."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest

import offload as omp
from offload.cli.demo.examples import load_example

EXAMPLES = Path(__file__).parents[2] / "examples"
PAIRS = [("pragma_fft3d", "fft3d"), ("pragma_cholesky", "cholesky"), ("pragma_acc_columns", "acc_columns")]


def lines(text: str) -> int:
    """Return the number of lines that are not empty."""
    return sum(bool(line.strip()) for line in text.splitlines())


@pytest.mark.parametrize(("strings", "decorators"), PAIRS)
def test_an_example_is_not_longer(strings, decorators):
    """The file with directive strings has at most as many lines as the file with decorators."""
    with_strings, with_decorators = (
        (EXAMPLES / f"{name}.py").read_text(encoding="utf-8") for name in (strings, decorators)
    )
    assert lines(with_strings) <= lines(with_decorators)


def test_a_pipeline_is_not_longer():
    """The pipeline of the transform and the tiled factorization are not longer either, function by function."""
    fft3d, cholesky = load_example("fft3d"), load_example("cholesky")
    others = load_example("pragma_fft3d"), load_example("pragma_cholesky")
    ours = [inspect.getsource(others[0].pipeline), inspect.getsource(others[1].cholesky)]
    theirs = [
        inspect.getsource(fft3d.pipeline) + inspect.getsource(fft3d.library_call.__wrapped__),
        "".join(inspect.getsource(getattr(cholesky, name)) for name in ("factor", "solve", "update", "cholesky")),
    ]
    assert [lines(one) <= lines(other) for one, other in zip(ours, theirs, strict=True)] == [True, True]


def edges(graph, directives):
    """Return who follows whom among the tasks of some directives, by the order of generation."""
    tasks = [task for task in graph.tasks if task.directive in directives]
    number = {task: index for index, task in enumerate(tasks)}
    return len(tasks), {
        (number[one.source], number[one.target]) for one in graph.edges if one.source in number and one.target in number
    }


def longest_chain(program, *arguments, **keywords):
    """Return the number of tasks on the critical path of a program that does not run, so that times do not count."""
    with omp.record(execute=False) as graph:
        program(*arguments, **keywords)
    return len(graph.critical_path())


@pytest.mark.parametrize(("n", "m"), [(12, 4), (30, 7)])
def test_cholesky(runtime, n, m):
    """Both programs give the same factor, bit for bit, by the same graph with a critical path of the same length."""
    b = np.random.default_rng(1).standard_normal((n, n))
    found = []
    for name in ("cholesky", "pragma_cholesky"):
        a = b @ b.T + n * np.eye(n)
        program = load_example(name).cholesky
        with omp.record() as graph:
            program(a, m)
        found.append((np.tril(a).tobytes(), edges(graph, {"task"}), longest_chain(program, a, m)))
    assert found[0] == found[1]
    assert found[0][-1] > 3


@pytest.mark.parametrize("asynchronous", [False, True])
def test_columns(runtime, asynchronous):
    """Both programs give the same matrix, bit for bit, by the same operations."""
    start = np.random.default_rng(1).uniform(-1, 1, (30, 31))
    found = []
    for name in ("acc_columns", "pragma_acc_columns"):
        matrix = start.copy(order="F")
        program = load_example(name).process
        with omp.record() as graph:
            program(matrix, 5, asynchronous=asynchronous)
        chain = longest_chain(program, matrix, 5, asynchronous=asynchronous)
        found.append((matrix.tobytes(), [task.directive for task in graph.tasks], chain))
    assert found[0] == found[1]
    assert found[0][-1] > 3


def test_fft3d(runtime):
    """Both programs give the same transform by the same number of tasks, with critical paths of the same length."""
    found = []
    for name in ("fft3d", "pragma_fft3d"):
        example, planner = load_example(name), load_example("fft3d")
        rng = np.random.default_rng(1)
        slab = rng.standard_normal((12, 16, 16)) + 1j * rng.standard_normal((12, 16, 16))
        expected = np.fft.fftn(slab)
        buffers = [omp.target_alloc(4 * 16 * 16, slab.dtype) for _ in range(3)]
        passes = planner.passes_over(slab, buffers, planes=6, rows=8)
        with omp.record() as graph:
            example.fft3d(slab, passes)
        result = slab.copy()
        chain = longest_chain(example.fft3d, slab, passes)
        del passes
        for buffer in buffers:
            omp.target_free(buffer)
        np.testing.assert_allclose(result, expected, atol=1e-10)
        n_tasks, order = edges(graph, {"task", "target_memcpy_rect"})
        found.append((result.tobytes(), n_tasks, order, chain))
    assert found[0] == found[1]
    assert found[0][-1] > 3
