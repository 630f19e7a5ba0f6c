"""Launches of CUDA kernels, their arguments and their outcome, on a simulated device that runs CUDA on the host."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import tofrom
from offload.errors import InternalError
from tests.loops.cuda_form import GXX
from tests.loops.oracle import copy_of
from tests.loops.programs import program
from tests.loops.test_launch_rules import clauses_of
from tests.profiles import few

pytestmark = pytest.mark.skipif(GXX is None, reason="no g++")


@omp.target_loop
def saxpy(a, x, y):
    for i in range(y.size):
        y[i] += a * x[i]


@omp.target_loop(reduction={"+": ["s"], "max": ["m"]}, lastprivate=["t"])
def totals(x):
    s = 0
    m = -1.0
    for i in range(x.size):
        t = x[i] + 0.5
        s += i
        m = max(m, x[i])
    return s, m, t


@omp.target_loop
def scatter(p, x, y):
    for i in range(p.size):
        y[p[i]] = x[i]


@omp.target_loop(atomic=["h"])
def histogram(k, h):
    for i in range(k.size):
        h[k[i]] += 1


def test_a_loop_is_one_launch_of_exactly_its_iterations(cuda):
    """A loop of 1,000 iterations is four blocks of 256 threads, with 32-bit indices, and gives what Python gives."""
    x, y = np.arange(1000.0), np.ones(1000)
    saxpy(2.0, x, y)
    assert (y == 1 + 2 * x).all()
    assert cuda.launches == [("loop", (4, 1, 1), (256, 1, 1), 0)]
    assert "int32_t trips0" in saxpy.source(2.0, x, y)


def test_results_come_with_the_task(cuda):
    """Reductions and lastprivate scalars are what the call returns; a second kernel of one block finishes them."""
    x = np.arange(1000.0)
    assert totals(x) == totals.python(x)
    assert [launch[:3] for launch in cuda.launches] == [
        ("loop", (4, 1, 1), (256, 1, 1)),
        ("finish", (1, 1, 1), (1024, 1, 1)),
    ]
    task = totals.options(nowait=True)(x)
    assert task.result() == totals.python(x)


def test_no_iteration_is_no_launch(cuda):
    """Without iterations a reduction is its value before the loop, and the nest's own kernel is not launched."""

    @omp.target_loop(reduction={"+": ["s"]})
    def total(x):
        s = 3
        for i in range(x.size):
            s += x[i]
        return s

    assert total(np.zeros(0, int)) == 3
    assert [name for name, *_ in cuda.launches] == ["finish"]


def test_no_iteration_leaves_what_was_there(cuda):
    """Without iterations a lastprivate scalar is what it was before the loop, in a body as well."""

    @omp.target_loop(lastprivate=["t"])
    def last(x):
        t = 2.5
        for i in range(x.size):
            t = x[i]
        return t

    @omp.target(map=[tofrom("out")])
    def body(x, out):
        out[0] = last(x)[()]

    out = np.zeros(1)
    body(np.zeros(0), out)
    assert (last(np.zeros(0)), out[0]) == (2.5, 2.5)


def test_an_array_of_one_element_is_reduced_in_place(cuda):
    """A reduction's item that is a parameter holds the result, combined with what it held."""

    @omp.target_loop(reduction={"+": ["s"]})
    def into(x, s):
        for i in range(x.size):
            s += x[i]

    s = np.array(5)
    into(np.arange(700), s)
    assert s == 5 + np.arange(700).sum()


def test_a_report_is_the_tasks_own_error(cuda):
    """An index out of range is the IndexError of its task; the device goes on, and the next call is right."""
    p, x, y = np.arange(600), np.arange(600.0), np.zeros(600)
    p[400] = 700
    with pytest.raises(IndexError, match=r"index 700 .*'y' .*i=400"):
        scatter(p, x, y)
    p[400] = 400
    scatter(p, x, y)
    assert (y == x).all()


def test_results_in_a_body_stay_on_the_device(cuda):
    """In a target body results are device arrays without dimensions, which the next loop may take."""

    @omp.target(map=[tofrom("x"), tofrom("out")])
    def body(x, out):
        s, m, t = totals(x)
        out[0], out[1], out[2] = s[()], m[()], t[()]

    x, out = np.arange(300.0), np.zeros(3)
    body(x, out)
    assert tuple(out) == totals.python(x)


def test_small_arrays_of_atomics_are_copied_into_blocks(cuda):
    """A histogram of many values has few blocks, each with a copy in shared memory."""
    k, h = np.arange(20_000) % 100, np.zeros(100)
    histogram(k, h)
    assert (h == 200).all()
    assert cuda.launches == [("loop", (12, 1, 1), (512, 1, 1), 800)]


def test_few_iterations_need_no_copies(cuda):
    """With fewer iterations than 16 an element atomics go to the array itself."""
    histogram(np.arange(100) % 10, np.zeros(10))
    assert cuda.launches == [("loop", (1, 1, 1), (256, 1, 1), 0)]


def test_clauses_give_the_shape(cuda):
    """`num_teams` and `thread_limit` are blocks and threads; further iterations are gone on to."""
    x, y = np.arange(1000.0), np.ones(1000)
    saxpy.options(num_teams=2, thread_limit=64)(1.0, x, y)
    assert (y == 1 + x).all()
    assert cuda.launches == [("loop", (2, 1, 1), (64, 1, 1), 0)]


def test_few_blocks_leave_partial_results(cuda):
    """However long a loop with a reduction is, one block can combine what its blocks leave."""
    launch = totals.explain(np.broadcast_to(1.0, 2**27)).to_dict()["nests"][0]["launch"]
    assert launch == {"grid": [4096, 1, 1], "block": [256, 1, 1]}


def test_views_of_any_strides(cuda):
    """Arrays that are mapped with steps, reversed or transposed are reached by their strides."""

    @omp.target_loop(collapse=2)
    def add(a, b):
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                b[i, j] += a[i, j]

    a, b = np.arange(600.0).reshape(20, 30), np.ones((30, 20))
    add(a[::2, ::-1], b.T[::2])
    expected = np.ones((30, 20))
    add.python(a[::2, ::-1], expected.T[::2])
    assert (b == expected).all()


def test_private_arrays_are_of_a_thread(cuda):
    """Each iteration has its own array, and the sequentially last one's is what the argument holds."""

    @omp.target_loop(lastprivate=["t"])
    def own(x, t):
        for i in range(x.size):
            t[0] = x[i]
            t[1] = 2 * t[0]
            x[i] = t[1]

    x, t = np.arange(500.0), np.zeros(2)
    own(x, t)
    assert (x == 2 * np.arange(500)).all()
    assert t.tolist() == [499, 998]


@pytest.mark.parametrize("seed", few(3, range(5000, 5008)))
def test_programs_give_what_cpython_gives(cuda, seed):
    """Generated loop functions leave and return what CPython makes of them."""
    made = program(seed)
    arguments = copy_of(made.arguments)
    returned = omp.target_loop(**clauses_of(made))(made.function())(**arguments)
    made.check(returned, arguments)


def test_text_that_is_not_compiled_is_an_internal_error(cuda, monkeypatch):
    """The error has what NVRTC says, and the user's line by the mark before the generated one."""

    def refused(program):
        *_, line = [n for n, one in enumerate(program.source.splitlines(), 1) if "q_t" in one]
        raise InternalError(f"cuda:0: NVRTC does not compile it: loop.cu({line}): error: no such thing")

    @omp.target_loop
    def spread(x):
        for i in range(x.size):
            a = x[i]
            t = np.zeros(2)
            x[i] = t[0] + a

    monkeypatch.setattr(cuda, "load", refused)
    first = spread.python.__code__.co_firstlineno
    for call in (spread, spread.compile):
        with pytest.raises(InternalError, match=rf"test_cuda_runs\.py:{first + 5} .*no such thing"):
            call(np.ones(3))


def test_compiling_runs_nothing(cuda):
    """`compile` launches no kernel."""
    saxpy.compile(1.0, np.zeros(3), np.zeros(3))
    assert cuda.launches == []
