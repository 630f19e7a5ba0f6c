"""A loop in order, in any slices, leaves what CPython leaves: results, and where it raises, all that came before."""

from __future__ import annotations

import random
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import offload as omp
from offload.loops.running import runs
from offload.loops.running.ordered_runs import ordered_runs, run_in_order
from tests.conftest import checked
from tests.loops.oracle import compare, copy_of
from tests.loops.programs import program
from tests.loops.test_bad_input_rules import FUNCTIONS, INDICES, computed, scatter, segments, wrapped
from tests.loops.test_launch_rules import clauses_of
from tests.profiles import examples, few

FORMS = ["compiled", "python"]


def specialised(function, values, **clauses):
    """Return a loop with the types of its arguments."""
    return omp.target_loop(**clauses)(function)._program.specialise(values)


def sliced(spec, values, rng):
    """Run all nests in slices of random lengths; return what comes out, or raise."""
    results = {}
    for run in ordered_runs(spec, values):
        done = 0
        while done < run.trips and not run.has_failed:
            end = min(run.trips, done + rng.choice([0, 1, 1, 2, 3, 7]))
            run.run(done, end)
            done = end
        results |= run.finish()
        failure = run.failure()
        if failure is not None:
            raise failure
    return results


def in_form(form):
    """Have loops in order in a form; without a compiler it is Python in any case."""
    fake = type("NoCompiler", (), {"compiler": None})
    return mock.patch.object(runs, "builder", fake if form == "python" else runs.builder)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", few(2, range(5000, 5012)))
def test_any_slices_give_what_cpython_gives(form, seed):
    """Arrays and scalars that come out of a loop that was interrupted after any trips are those of the serial run."""
    made = program(seed)
    arguments = copy_of(made.arguments)
    with checked("sim:1"), in_form(form):
        spec = specialised(made.function(), arguments, **clauses_of(made), seq=True)
        found = sliced(spec, arguments, random.Random(seed))
    names = spec.typed.function.returns
    returned = tuple(found[name] for name in names)
    made.check(returned if spec.typed.function.returns_tuple else returned[0] if names else None, arguments)


def both(p, x, y, n):
    for i in range(p.size):
        n[0] += 1
        y[i % y.size] = x[p[i] + n[0] - 1 - i]
        n[1] += 1


def total(p, x, y, s):
    for i in range(p.size):
        s += x[p[i]]
        y[i % y.size] = i
        s += i


def rows(p, x, y, k):
    for i in range(p.size):
        for j in range(3):
            y[(i + j) % y.size] = int(x[p[i]]) // int(p[(i + j) % p.size] + k - j)


def chosen(p, x, y, k):
    for i in range(p.size):
        if x[p[i]] > 2 or p[i] % k == 1:
            y[i % y.size] += x[p[i] - k]
        else:
            y[p[i]] = -1


def stepped(p, x, y, k):
    for i in range(p.size):
        y[i % y.size] = -5
        for j in range(0, 6, p[i]):
            y[j % y.size] += k


def asserted(p, x, y, k):
    for i in range(p.size):
        y[i % y.size] += 1
        assert x[p[i]] > k - 4, "too small"
        y[i % y.size] += 10


SERIAL = [*FUNCTIONS, rows, chosen, stepped, asserted, both, total]
CLAUSES = {rows: {"collapse": 2}, total: {"reduction": {"+": ["s"]}}}
LOOPS = {
    (function, form): omp.target_loop(function, seq=True, check=True, **CLAUSES.get(function, {}))
    for function in SERIAL
    for form in FORMS
}
ERRORS = IndexError, ZeroDivisionError, ValueError, AssertionError


@pytest.mark.parametrize("function", few(4, SERIAL), ids=lambda function: function.__name__)
@settings(max_examples=examples(40))
@given(st.sampled_from(FORMS), st.data())
def test_a_fault_leaves_what_cpython_leaves(function, form, data):
    """A loop raises where CPython does, its exception, and every array holds what had been written until then."""
    p = data.draw(st.lists(st.one_of(st.integers(-3, 5), INDICES), min_size=1, max_size=8))
    x = data.draw(st.lists(st.integers(0, 5), min_size=len(p) if function is scatter else 1, max_size=8))
    n = data.draw(st.integers(len(p) + (function is computed), 9))  # else the call refuses, before anything changes
    k = data.draw(st.sampled_from([1, 2, 3, -1, 5]))
    dtype = data.draw(st.sampled_from(["int8", "int64"]))
    p = [wrapped(index, dtype) for index in p]
    if function in {segments, stepped} and any(abs(one) > 100 for one in p):
        p = [one % 11 for one in p]  # CPython has to end
    last = np.array([0, 0]) if function is both else np.array([0]) if function is total else k
    arguments = [np.array(p, dtype), np.array(x), np.zeros(n, np.int64), last]
    expected = [one.copy() if isinstance(one, np.ndarray) else one for one in arguments]
    error = got = None
    try:
        with np.errstate(all="ignore"):
            function(*expected)
    except ERRORS as raised:
        error = type(raised)
    program_of_loop = LOOPS[function, form]._program
    values = program_of_loop.bound(tuple(arguments), {})
    with checked("sim:1"), in_form(form):
        spec = program_of_loop.specialise(values)
        try:
            sliced(spec, values, random.Random(n)) if k > 1 else run_in_order(spec, values)
        except ERRORS as raised:
            got = type(raised)
    assert got is error
    for one, other in zip(arguments, expected, strict=True):
        compare(np.asarray(one), np.asarray(other), function.__name__, exact=True)
