"""Programs in the style of OMP4Py and PyOMP: with a changed import, they give the results that they give there."""

import importlib.util
import math
from pathlib import Path

import numpy as np
import pytest

import offload
from offload.pragma import omp4py, pyomp

_FOLDER = Path(__file__).parent / "peers"


def _load(name):
    spec = importlib.util.spec_from_file_location(name, _FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


four = _load("omp4py_programs")
numba = _load("pyomp_programs")


# -- OMP4Py --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [four.quarter_circle, four.quarter_circle_typed])
def test_omp4py_reduction(function, runtime):
    """A worksharing loop with a reduction gives the sum, with and without annotations."""
    assert function(2000) == pytest.approx(math.pi / 4, abs=1e-4)


def test_omp4py_recursive_tasks(runtime):
    """Recursive tasks store their results in shared variables, which no clause names."""
    assert four.count_paths(4, 4, 3) == math.comb(8, 4)


def test_omp4py_sort(runtime):
    """Tasks that sort halves in place leave a sorted array."""
    values = np.random.default_rng(1).random(60)
    expected = np.sort(values)
    four.merge_sort(values, 8)
    assert np.array_equal(values, expected)


def test_omp4py_parallel_block_with_loops(runtime):
    """Loops with a reduction, ``single`` and ``barrier`` in one ``parallel`` block converge to the solution."""
    a = np.array([[4.0, 1.0, 0.0], [1.0, 5.0, 2.0], [0.0, 2.0, 6.0]])
    x, norm = four.relax(a, np.array([5.0, 8.0, 8.0]), 60)
    assert np.allclose(x, 1.0)
    assert norm < 1e-9


def test_omp4py_factor(runtime):
    """Two worksharing loops for each column factor a matrix."""
    a = np.random.default_rng(2).random((6, 6)) + 6 * np.eye(6)
    lower, upper = np.zeros((6, 6)), np.zeros((6, 6))
    four.factor(a, lower, upper)
    assert np.allclose(lower @ upper, a)


def test_omp4py_declarations(runtime):
    """Declarations in a loop, which CPython ignores, are ignored here, too."""
    out = np.zeros(3)
    four.row_sums_typed(np.ones((3, 3)), out)
    assert out.tolist() == [1.0, 2.0, 3.0]


def test_omp4py_critical_and_atomic(runtime):
    """``critical``, ``atomic``, ``master`` and ``barrier`` run once, in a team of one thread."""
    assert four.tally(["a", "b", "a"]) == ({"a": 2, "b": 1, "threads": 1}, 3)


def test_omp4py_sections(runtime):
    """Sections store their results in shared variables."""
    assert four.halves(np.arange(10.0)) == (10.0, 35.0)


def test_omp4py_default_is_shared(runtime):
    """A task assigns the variable of the function around it; ``private`` and ``firstprivate`` change that."""
    assert four.shared_by_default() == 2
    assert four.own_copies() == (1, 1)


def test_omp4py_decorates_later(runtime):
    """`omp` decorates a function that exists already."""
    queue = []
    omp4py.omp(four.decorated_later)(queue)
    assert queue == [0]


def test_omp4py_class(runtime):
    """Each method of a decorated class is rewritten, a static method too."""
    ledger = four.Ledger(4)
    ledger.add(np.arange(4.0))
    ledger.add(np.arange(4.0))
    assert ledger.sums.tolist() == [0.0, 2.0, 4.0, 6.0]
    assert ledger.total() == 12.0
    assert four.Ledger.doubled(np.ones(3)).tolist() == [2.0, 2.0, 2.0]


def test_omp4py_gather(runtime):
    """Tasks use Python's locks and lists, and each has its own index."""
    assert four.gather(6) == [0, 1, 4, 9, 16, 25]


def test_omp4py_names():
    """``import *`` gives the directive and the routines of §6, and nothing else."""
    assert set(omp4py.__all__) == {"omp", *_ROUTINES}
    assert set(pyomp.__all__) == {"njit", "openmp_context", *_ROUTINES}


# -- PyOMP ---------------------------------------------------------------------------------------------


def test_pyomp_loops(runtime):
    """Worksharing loops fill arrays and reduce, on the host and on the device."""
    a, b = np.arange(9.0), np.zeros(9)
    numba.smooth(a, b)
    assert b.tolist() == [0.0, *(i - 0.5 for i in range(1, 9))]
    expected = sum((-1) ** i / (i + 1) for i in range(200))
    assert numba.log_two(200) == pytest.approx(expected)
    assert numba.log_two_on_device(200) == pytest.approx(expected)


def test_pyomp_product(runtime):
    """A combined construct with private loop variables multiplies matrices on the device."""
    random = np.random.default_rng(3)
    a, b, c = random.random((5, 5)), random.random((5, 5)), np.full((5, 5), 9.0)
    numba.product(a, b, c)
    assert np.allclose(c, a @ b)


def _diffused(u, steps):
    for _ in range(steps):
        wide = np.pad(u, 1)
        u = 0.5 * u + 0.125 * (wide[1:-1, 2:] + wide[1:-1, :-2] + wide[2:, 1:-1] + wide[:-2, 1:-1])
    return u


@pytest.mark.parametrize("steps", [1, 4])
def test_pyomp_unstructured_data(steps, runtime):
    """Arrays stay on the device from ``target enter data`` to ``target exit data``, while loops swap them."""
    u = np.random.default_rng(4).random((6, 6))
    expected = _diffused(u, steps)
    assert np.allclose(numba.diffuse(u.copy(), np.zeros((6, 6)), steps), expected)


def test_pyomp_tasks(runtime):
    """Tasks share what their clauses name, and depend on one variable."""
    assert numba.add_by_tasks(np.arange(50.0)) == 1225.0
    assert numba.fill(5).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    x = 0
    for i in range(6):
        x = 2 * x + i
    assert numba.chain(6) == x


def test_pyomp_sections_are_slices(runtime):
    """``a[b:e]`` in a clause is the section from b to e, as in Python."""
    assert numba.move(12, 2, 6).tolist() == [0.0, 0.0, 6.0, 7.0, 8.0, 9.0, *[0.0] * 6]


def test_pyomp_updates(runtime):
    """``target update`` copies the slice that it names, and nothing else."""
    seen, last = numba.refresh(8)
    assert seen.tolist() == [1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0]
    assert last.tolist() == [4.0, 4.0, 4.0, 4.0, 20.0, 20.0, 4.0, 4.0]


def test_pyomp_slice_past_the_end(runtime):
    """A slice in a clause that extends past its array is an error, as any section is."""
    with pytest.raises(offload.ClauseError, match="b"):
        numba.move(8, 0, 6)


def test_pyomp_team(runtime):
    """A ``parallel`` block has a team of one thread, and the routines say so."""
    assert numba.team() == (1, (0, 1, 0, 1))


def test_pyomp_scalar(runtime):
    """A number in ``map(tofrom: x)`` comes back."""
    assert numba.scalar_from_device(41) == 42
    assert numba.number_in_target() == 0


def test_pyomp_context_needs_njit(runtime):
    """A block in a function without ``@njit`` raises at the ``with``."""
    with pytest.raises(offload.UsageError, match=r"njit|directives"), pyomp.openmp_context("parallel"):
        pass


# -- the routines --------------------------------------------------------------------------------------

_ROUTINES = {
    "omp_get_default_device",
    "omp_get_max_threads",
    "omp_get_num_devices",
    "omp_get_num_teams",
    "omp_get_num_threads",
    "omp_get_team_num",
    "omp_get_thread_num",
    "omp_get_wtime",
    "omp_in_parallel",
    "omp_is_initial_device",
    "omp_set_default_device",
    "omp_set_num_threads",
}


@pytest.mark.parametrize("module", [omp4py, pyomp])
def test_routines(module, runtime):
    """The routines describe the runtime and a team of one thread."""
    module.omp_set_num_threads(7)
    assert (module.omp_get_num_threads(), module.omp_get_max_threads(), module.omp_get_thread_num()) == (1, 1, 0)
    assert (module.omp_get_num_teams(), module.omp_get_team_num(), module.omp_in_parallel()) == (1, 0, False)
    assert module.omp_get_num_devices() == offload.get_num_devices()
    assert module.omp_is_initial_device()
    assert module.omp_get_wtime() <= module.omp_get_wtime()
    before = module.omp_get_default_device()
    module.omp_set_default_device(offload.get_num_devices())
    assert offload.get_default_device() == offload.get_num_devices()
    module.omp_set_default_device(before)
    assert module.omp_get_default_device() == before


def test_thread_number_in_a_task(runtime):
    """`omp_get_thread_num` in a task fails the task, because any worker may run it."""
    with pytest.raises(ExceptionGroup) as caught:
        four.thread_in_task([])
    assert caught.group_contains(offload.UnsupportedError, match="omp_get_thread_num")


def test_thread_number_in_a_loop():
    """A worksharing loop whose body calls `omp_get_thread_num` is refused at decoration, at the call's line."""

    def numbered(a):
        with pyomp.openmp_context("parallel for"):
            for i in range(len(a)):
                a[i] = pyomp.omp_get_thread_num()

    with pytest.raises(offload.UnsupportedError, match="omp_get_thread_num") as caught:
        pyomp.njit(numbered)
    error = caught.value
    assert isinstance(error, offload.PragmaError)
    assert error.lineno == numbered.__code__.co_firstlineno + 3
    assert error.text[error.offset - 1 : error.end_offset - 1] == "pyomp.omp_get_thread_num()"


@pyomp.njit
def _ends(x, y, names, n):
    with pyomp.openmp_context("target map(tofrom: x[-2:]) map(tofrom: y[:-n])"):
        x[-1] += 1
        y[0] += 1
    with pyomp.openmp_context("target teams loop map(tofrom: x[-2:])"):
        for i in range(2, 4):
            x[i] += 1
    with pyomp.openmp_context("target data map(to: x[-3:-1:2])"):
        pass
    with pyomp.openmp_context("task depend(inout: x[-2:]) depend(in: names[1:-1])"):
        x[-2:] *= 10
    with pyomp.openmp_context("task depend(inout: x[2:3])"):
        x[2] += n
    pyomp.openmp_context("taskwait")


def test_pyomp_negative_bounds(runtime):
    """Negative bounds of slices in clauses count from the end of the array."""
    x, y = np.zeros(4), np.zeros(3)
    _ends(x, y, "abcd", 2)
    assert x.tolist() == [0, 0, 12, 20]
    assert y.tolist() == [1, 0, 0]
    with pytest.raises(offload.ClauseError, match="reaches outside"):
        _ends(x, y, "abcd", 5)
