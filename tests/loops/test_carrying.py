"""Scalars that pass from iteration to iteration, in loops whose iterations run in order: CPython's values."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offload as omp
from offload import acc
from offload.loops.emit.python_form import python_form
from offload.loops.front.parse import NestClauses, parse
from offload.loops.front.source import FunctionSource
from tests.loops import forms
from tests.loops.carried_programs import carried
from tests.loops.cuda_form import GXX, cuda_form
from tests.loops.oracle import compare, copy_of, function_of_text
from tests.profiles import examples

IN_ORDER = {
    "seq": lambda f, **clauses: omp.target_loop(f, seq=True, **clauses),
    "auto": lambda f, **clauses: omp.target_loop(f, auto=True, **clauses),
    "check": lambda f, **clauses: omp.target_loop(f, check=True, **clauses),
    "speculate": lambda f, **clauses: omp.target_loop(f, speculate=True, **clauses),
    "always": lambda f, **clauses: omp.target_loop(f, speculate="always", **clauses),
    "kernels": acc.kernels_loop,
    "host": lambda f, **clauses: omp.parallel_loop(f, seq=True, **clauses),
    "several": lambda f, **clauses: omp.target_loop(f, seq=True, devices="all", **clauses),
}


@pytest.fixture(autouse=True)
def a_runtime():
    """Open a runtime of the test's own."""
    with omp.Runtime("sim:1"):
        yield


def agrees(program, run):
    """Run a program by CPython and otherwise, and compare everything."""
    expected = copy_of(program.arguments)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        returned = function_of_text(program.text)(**expected)
        got = copy_of(program.arguments)
        found = run(function_of_text(program.text), got)
    try:
        for name, values in expected.items():
            if isinstance(values, np.ndarray):
                compare(got[name], values, name, exact=True)
        if returned is not None:
            compare(np.asarray(found), np.asarray(returned), "returned", exact=True)
    except AssertionError as error:
        error.add_note(program.text)
        raise


@given(st.integers(0, 10**6))
def test_the_python_form_in_order_gives_what_cpython_gives(seed):
    """Any program that carries scalars, with one chunk."""
    program = carried(seed)

    def run(function, arguments):
        clauses = NestClauses(order="seq", lastprivate=program.last)
        return forms.run(parse(FunctionSource.of(function), clauses, frozenset()), arguments, python_form, 1)

    agrees(program, run)


@pytest.mark.hypothesis
@pytest.mark.parametrize("seed", range(examples(60, 5_000)))
def test_each_construct_in_order_gives_what_cpython_gives(seed):
    """The C form, by the construct that the seed takes, also where bounds are not checked."""
    program = carried(seed)
    construct = IN_ORDER[list(IN_ORDER)[seed % len(IN_ORDER)]]
    agrees(program, lambda function, arguments: construct(function, lastprivate=program.last)(**arguments))


@pytest.mark.hypothesis
@pytest.mark.skipif(GXX is None, reason="no g++")
@pytest.mark.parametrize("seed", range(examples(50, 1_000)))
def test_one_cuda_thread_in_order_gives_what_cpython_gives(seed):
    """The text of CUDA, in which a variable outside of the loops has a scalar that is carried."""
    program = carried(seed)

    def run(function, arguments):
        clauses = NestClauses(order="seq", lastprivate=program.last)
        form = cuda_form(is_ordered=True)
        return forms.run(parse(FunctionSource.of(function), clauses, frozenset()), arguments, form, 1)

    agrees(program, run)


# -- the program's view ----------------------------------------------------------------------------------


def running(x, y):
    s = 0.0
    for i in range(x.size):
        s = 0.5 * s + x[i]
        y[i] = s


def twice(x, y):
    s = 0.0
    for i in range(x.size):
        s += x[i]
        y[i] = s
    s = 1.0
    for i in range(x.size):
        y[i] += s
        s = 0.1 * y[i]


def squared(a):
    s = 0.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            s = 0.5 * s + a[i, j]
            a[i, j] = s


X = np.random.default_rng(3).random(40)


def after(function, *arguments):
    given_ = [one.copy() for one in arguments]
    returned = function(*given_)
    return returned, given_


def test_a_loop_that_is_said_to_be_parallel_carries_nothing():
    """The message names the clause by which iterations run in order."""
    with pytest.raises(omp.LoopError, match="seq=True") as caught:
        omp.target_loop(running)
    assert caught.value.rule == "carried"
    with pytest.raises(omp.LoopError, match="from another iteration"):
        acc.parallel_loop(running, independent=True)
    with pytest.raises(omp.LoopError, match="from another iteration"):
        omp.target_loop(running, seq=True, private=["s"])


@pytest.mark.parametrize("clause", ["auto", "check"])
def test_who_has_not_said_that_a_loop_runs_in_order_is_told(clause):
    """Once, with the scalar and the line."""
    loop = omp.target_loop(running, **{clause: True})
    with pytest.warns(omp.PerformanceWarning, match="s passes a value from one iteration to the next"):
        loop(X, np.zeros(40))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop(X, np.zeros(40))
        omp.target_loop(running, seq=True)(X, np.zeros(40))
    assert loop.explain(X, np.zeros(40)).to_dict()["nests"][0]["verdict"] == "sequential"


@pytest.mark.filterwarnings("ignore::offload.PerformanceWarning")
def test_each_nest_carries_its_own():
    """Of several nests."""
    assert np.array_equal(after(acc.kernels_loop(twice), X, np.zeros(40))[1][1], after(twice, X, np.zeros(40))[1][1])


def test_collapsed_loops_carry_from_row_to_row():
    """The last trip of a row precedes the first of the next."""
    a = X.reshape(5, 8)
    loop = omp.target_loop(squared, seq=True, collapse=2)
    assert np.array_equal(after(loop, a)[1][0], after(squared, a)[1][0])


def test_a_failure_ends_the_loop_as_in_python():
    """What was written before stays."""

    def f(p, y):
        s = 0
        for i in range(p.size):
            s += y[p[i]]
            y[i] = s

    p = np.array([1, 2, 9, 0])
    y, expected = np.arange(4), np.arange(4)
    with pytest.raises(IndexError):
        f(p, expected)
    with pytest.raises(IndexError, match="i=2"):
        omp.target_loop(f, seq=True)(p, y)
    assert np.array_equal(y, expected)


# -- starts in the nest of a reduction -------------------------------------------------------------------


def latest(x):
    t = 0.0
    for i in range(x.shape[0]):
        t = 0.0
        for j in range(x.shape[1]):
            t = max(t, x[i, j])
    return t


def of_rows(x, y):
    t = 0.0
    for i in range(x.shape[0]):
        t = x[i, 0]
        for j in range(x.shape[1]):
            if x[i, j] > t:  # noqa: PLR1730  # the other way to write it
                t = x[i, j]
        y[i] = t
    return t


def first_only(x):
    t = -1.0
    for i in range(x.shape[0]):
        if i == 2:
            t = 0.25
        t = max(t, x[i, 0])
    return t


def least_and_where(x):
    t = 9.0
    k = -1
    for i in range(x.shape[0]):
        if x[i, 1] < t:
            t = x[i, 1]
            k = i
    return t, k


A = X.reshape(10, 4)


@pytest.mark.parametrize("form", ["python", "cpu", "several"])
@pytest.mark.filterwarnings("ignore::offload.PerformanceWarning")
def test_a_reduction_may_start_in_its_nest(form, monkeypatch):
    """``t = value`` in the nest of ``min`` or ``max``: the result is that of the iterations since the last start."""
    if form == "python":
        monkeypatch.setattr("offload.loops.running.build.builder._choice", None)
        monkeypatch.setattr("offload.loops.running.build.builder._has_chosen", True)
    clauses = {"devices": "all"} if form == "several" else {}
    greatest = {"reduction": {"max": ["t"]}, **clauses}
    assert omp.target_loop(latest, **greatest)(A) == latest(A)
    y, expected = np.zeros(10), np.zeros(10)
    assert omp.target_loop(of_rows, **greatest)(A, y) == of_rows(A, expected)
    assert np.array_equal(y, expected)
    assert omp.target_loop(first_only, **greatest)(A) == first_only(A)
    where = omp.target_loop(least_and_where, reduction={"min": ["t"]}, lastprivate=["k"], **clauses)
    assert where(A) == least_and_where(A)


def test_a_start_in_each_iteration_leaves_a_loop_parallel():
    """Nothing is carried then."""
    facts = omp.target_loop(latest, reduction={"max": ["t"]}).explain(A).to_dict()
    assert facts["nests"][0]["verdict"] == "parallel"


def test_a_sum_has_no_start_in_its_nest():
    """The item of a sum is used in sums only, and so is that of a maximum that is changed otherwise."""

    def f(x):
        t = 0.0
        for i in range(x.size):
            t = 1.0
            t += x[i]
        return t

    def g(x):
        t = 0.0
        for i in range(x.size):
            t = 2 * t
            t = max(t, x[i])
        return t

    for function, operator in ((f, "+"), (g, "max")):
        with pytest.raises(omp.LoopError) as caught:
            omp.target_loop(function, reduction={operator: ["t"]})
        assert caught.value.rule == "reduction"
