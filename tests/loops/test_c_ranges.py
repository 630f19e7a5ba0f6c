"""Loops whose checks are made once, before them: they do what loops with checks in each trip do, errors included."""

from __future__ import annotations

import numpy as np
import pytest

from offload.loops.emit import c_statements
from offload.loops.emit.emit_c import CVariant, emit
from offload.loops.emit.emit_cuda import CudaVariant, emit_cuda
from offload.loops.front.parse import NestClauses, parse
from offload.loops.front.source import FunctionSource
from offload.loops.front.types import infer
from offload.loops.running import build
from offload.loops.tree import ir
from tests.loops.c_form import form
from tests.loops.cuda_form import GXX, cuda_form
from tests.loops.forms import FoundError, run, types_of
from tests.loops.nodes import HERE, I, assign, constant, function_of, load, name, store

FORMS = {"c": form(), "cuda32": cuda_form(index_bits=32), "cuda64": cuda_form()}
MISSING = {"c": build.builder.compiler is None, "cuda32": GXX is None, "cuda64": GXX is None}


def rows(p, c, v, x, y):
    for i in range(y.size):
        s = 0
        last = -1
        for k in range(p[i, 0], p[i, 1]):
            s += v[k] * x[c[k]]
            if s > 90:
                break
            last = k
        y[i] = 100 * s + last


def moved(p, c, v, x, y):
    for i in range(y.size):
        s = 0
        m = 3
        for k in range(p[i, 1], p[i, 0], -1):
            s += v[k - 1] - v[m - k] * v[i + k - m]
        for k in range(p[i, 0], p[i, 1], 3):
            if v[k] > 2:
                continue
            s += x[-k + 2] + c[i * 2 - k]
        for k in range(p[i, 1], p[i, 0], -2):
            s += v[k] + v[c[k] + i]
        y[i] = s


def stored(p, c, v, x, y):
    for i in range(1):
        for j in range(y.size):
            for k in range(p[j, 0], p[j, 1]):
                v[k] = v[k] + 1
                x[c[k]] = x[k - 1]
        for k in range(p[i, 0], p[i, 1]):
            t = np.zeros(2, np.int64)
            t[k] = p[i, k] // c[k]
            y[k] = t[k]


def quotients(p, c, v, x, y):
    for i in range(y.size):
        s = x[c[i]]
        for k in range(p[i, 0], p[i, 1]):
            s += v[k] // x[c[k]]
            if s > 1000:
                assert s > 0, "more"
        t = 5
        for k in range(p[i, 0], p[i, 1]):
            t = x[c[k]]
            s += v[t] + c[x[t]]
        y[i] = s + t


def given(rng, dtype, *, may_be_empty):
    """Return arguments; some ranges and indices leave their arrays, some are negative, some ranges are empty."""
    n = int(rng.integers(1, 5))
    far = rng.choice([0, 0, 1, 3, 50])
    p = np.sort(rng.integers(-far, 9 + far, (n, 2)), axis=1)[:, :: rng.choice([1, 1, -1])]
    c = rng.integers(-far, 5 + far, rng.choice([0, 6, 9, 9][not may_be_empty :]))
    if rng.random() < 0.2:
        limits = np.iinfo(dtype)
        p[rng.integers(n)] = rng.choice([limits.min, limits.max]) // 2 * 2
    return {
        "p": np.ascontiguousarray(p).astype(dtype),
        "c": c.astype(dtype),
        "v": rng.integers(-2, 9, 9),
        "x": rng.integers(-3, 9, rng.choice([0, 5, 5, 9][not may_be_empty :])),
        "y": np.zeros(n, np.int64),
    }


def outcome(function, arguments, made):
    """Return what a form finds wrong, and what it leaves."""
    arguments = {name: array.copy() for name, array in arguments.items()}
    found = None
    try:
        run(function, arguments, made, 1)
    except FoundError as error:
        found = (error.what, error.place, error.index, error.dimension, error.trips)
    return found, {name: array.tolist() for name, array in arguments.items()}


CASES = [
    pytest.param(
        made,
        python,
        dtype,
        marks=[]
        if (made, dtype, python) == ("c", "int64", rows)
        else pytest.mark.slow
        if (made, dtype) == ("c", "int64") or (made, dtype, python) == ("cuda32", "int32", rows)
        else pytest.mark.soak,
    )
    for python in (rows, moved, stored, quotients)
    for made, dtype in (("c", "int64"), ("c", "int32"), ("cuda32", "int32"), ("cuda32", "int64"), ("cuda64", "int32"))
]


@pytest.mark.parametrize(("made", "python", "dtype"), CASES)
def test_checks_before_a_loop_change_nothing(made, python, dtype, monkeypatch):
    """Elements, and the error that is reported, are those of the loop whose every trip checks, and CPython's."""
    if MISSING[made]:
        pytest.skip("no compiler")
    function = parse(FunctionSource.of(python), NestClauses(checks=True))
    kinds = set()
    rng = np.random.default_rng(7)
    for _ in range(30 if dtype == "int64" else 80):
        arguments = given(rng, dtype, may_be_empty=(made, dtype) == ("c", "int32"))
        got = outcome(function, arguments, FORMS[made])
        with monkeypatch.context() as patched:
            patched.setattr(c_statements, "once_checked", lambda *_: None)
            assert outcome(function, arguments, FORMS[made]) == got
        kind = raised(python, arguments)
        kinds.add(kind)
        assert (got[0] is not None) == (kind is not None)
        if kind is None:
            assert got[1] == {name: array.tolist() for name, array in arguments.items()}
    assert {None, IndexError} <= kinds


def raised(python, arguments):
    """Run a function in CPython, and return the class of what it raises."""
    try:
        python(**{name: array.astype(object) if name in "pc" else array for name, array in arguments.items()})
    except (IndexError, ZeroDivisionError, RuntimeWarning) as error:  # the last one is of NumPy's divisions
        return type(error)
    return None


def cuda_text(python, arguments, modes=()):
    """Return the CUDA of a function's nest, as checks are if nothing is said of them."""
    return text_of(parse(FunctionSource.of(python), NestClauses()), arguments, modes)


def text_of(function, arguments, modes=()):
    typed = infer(function, *types_of(function, arguments))
    return emit_cuda(typed, typed.function.nests[0], CudaVariant(modes=modes)).source.partition('extern "C"')[2]


SPARSE = {"p": np.zeros((3, 2), "i4"), "c": np.zeros(9, "i4"), "v": np.zeros(9), "x": np.zeros(9), "y": np.zeros(3)}


def test_a_loop_of_rows_tries_its_columns():
    """The first form has no check of places that the variable tells, and tries the others; the second checks each."""
    text = cuda_text(rows, SPARSE)
    first, second = text[text.index("if (all_inside(") :].split("if (!is_done) {")
    assert "clamped" not in first
    assert first.count("tried(") == 1
    assert second.count("clamped(") == 3
    assert "tried(" not in second


def test_a_loop_without_checks_is_computed_in_lanes():
    """Where the checks of a declared reduction are made before it, its first form runs in lanes."""
    inner = ir.For(
        place=HERE,
        variable="k",
        start=I,
        stop=load("x", constant(0), at=2),
        step=constant(1),
        body=(ir.Reduce(place=HERE, name="s", operator="+", value=load("y", name("k"), at=0)),),
        clauses=ir.LoopClauses(reductions=(ir.LoopReduction("+", "s"),)),
    )
    function = function_of(assign("s", constant(1.0)), inner, store("y", name("s"), at=1))
    arguments = {"x": np.full(3, 3), "y": np.ones(3)}
    typed = infer(function, *types_of(function, arguments))
    text = emit(typed, typed.function.nests[0], CVariant()).source
    first, second = text[text.index("if (all_inside(") :].split("} else {")
    assert "reduction(+:v_s)" in first
    assert "reduction" not in second
    if not MISSING["c"]:
        run(function, arguments, FORMS["c"], 1)
        assert arguments["y"].tolist() == [4, 3, 2]


def nested(v, y):
    for i in range(y.size):
        for k in range(y[i]):
            v[k] = 0
            for m in range(v[k]):
                y[m] = v[m] + v[k]
        n = 0
        while n < y[i]:
            v[n] = n
            n += 1
        for k in range(y[i]):
            y[k + k] = v[k * k]


def test_only_innermost_loops_are_written_twice():
    """Of nested loops the inner one has two forms; one whose indices move otherwise stays as it is, so does a while."""
    text = cuda_text(nested, {"v": np.zeros(9, int), "y": np.zeros(3, int)})
    assert text.count("all_inside(") == 3
    assert text.count("for (int64_t k2") == 2
    assert text.count("for (int64_t k1") == 2
    assert text.count("while (") == 1


def long_one(v, y):
    for i in range(y.size):
        for k in range(y[i]):
            v[k] = v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k]
            v[k] = v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k]
            v[k] = v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k]
            v[k] = v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k]
            v[k] = v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k]
            v[k] = v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k]
            v[k] = v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k] + v[k]


def test_long_loops_are_written_once():
    """A loop of many operations is not written twice."""
    assert "all_inside(" not in cuda_text(long_one, {"v": np.zeros(9, int), "y": np.zeros(3, int)})


def told(q, c, x, y):
    for i in range(y.size):
        t = c[q[0]]
        s = 0
        for k in range(q[1]):
            s += x[c[q[0]] - t + 1] + c[q[k]]
        y[i] = s


def test_what_follows_from_a_missed_element_is_not_reached():
    """An index that needs no check because two elements are one is not computed from what stands for one of them."""
    text = cuda_text(
        told, {"q": np.zeros(3, int), "c": np.zeros(3, int), "x": np.zeros(3), "y": np.zeros(3)}, ((5, "off"),)
    )
    assert "p_x" in text
    assert "tried(" not in text
