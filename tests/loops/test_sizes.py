"""Loop functions that are long, deep, or call much: compiled in little time, or refused, with the remedy."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import sys

import numpy as np
import pytest

import offload as omp
from offload.loops.running import plan, runs
from offload.loops.running.build import Builder
from tests.conftest import checked

pytestmark = pytest.mark.filterwarnings("ignore:.*no C compiler:offload.PerformanceWarning")

HEAD = "import numpy as np\n"
LIMIT_S = 6.0  # a second or two, on a machine that is slow
_numbers = itertools.count()


def seconds():
    """Return the time of processors, the compilers' included: the machine may have other work."""
    return sum(os.times()[:4])


@pytest.fixture(params=["threads", "python"])
def loop(request, monkeypatch):
    """Makes a loop function, for the compiled form and for Python's."""
    if request.param == "python":
        for module in (plan, runs):
            monkeypatch.setattr(module, "builder", Builder({"OFFLOAD_CC": "none"}))
    return omp.parallel_loop


@pytest.fixture(autouse=True)
def runtime():
    with checked("sim:1"):
        yield


@pytest.fixture
def written(tmp_path):
    """Return a function that makes a loop's function of the text of its iteration."""

    def make(body, parameters="x", before="", where="x.size"):
        text = f"{HEAD}{before}def f({parameters}):\n    for i in range({where}):\n"
        text += "".join(f"        {line}\n" for line in body.splitlines())
        file = tmp_path / f"program_{next(_numbers)}.py"
        file.write_text(text)
        spec = importlib.util.spec_from_file_location(file.stem, file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.f

    return make


def agrees(loop, function, *arguments):
    """Run a loop and CPython on copies; tell whether they agree, and that the first call took little time."""
    mine, others = ([argument.copy() for argument in arguments] for _ in range(2))
    begin = seconds()
    loop(function)(*mine)
    assert seconds() - begin < LIMIT_S
    function(*others)
    return all(np.array_equal(one, other) for one, other in zip(mine, others, strict=True))


@pytest.mark.parametrize("n", [26, 400])
def test_a_sum_may_have_many_terms(loop, written, n):
    """Hundreds of terms, which CPython adds from the left, are no depth of calls."""
    function = written("x[i] = " + " + ".join(f"x[i] * {k}" for k in range(n)))
    assert agrees(loop, function, np.linspace(0, 1, 16))


def test_an_effect_within_a_long_sum_comes_in_its_place(loop, written):
    """What a term changes is seen by those to its right, and not by those to its left."""
    before = "def bump(a, i):\n    a[i] += 1\n    return a[i]\n"
    terms = ["x[i]", "bump(x, i)", *["1"] * 30, "x[i] * 10", "bump(x, i) * 100", *["2"] * 30, "x[i] * 1000"]
    function = written(f"x[i] = {' + '.join(terms)}", before=before)
    assert agrees(loop, function, np.arange(8))


def test_a_long_condition_decides_from_the_left(loop, written):
    """A part behind one that decides is not evaluated: its index would be out of range."""
    parts = ["i * 3 < x.size", *[f"x[i * 3] > -{k}" for k in range(100)], "x[i * 3] % 2 == 0"]
    assert agrees(loop, written(f"if {' and '.join(parts)}:\n    x[i] = 1"), np.arange(12))


def test_operations_may_be_nested_deep(loop, written):
    """Forty calls in each other, forty conditional expressions, indices of indices."""
    nested, chosen, index = "x[i]", "x[i]", "p[i]"
    for k in range(40):
        nested = f"min({nested}, {k}.5)" if k % 2 else f"max({nested}, -{k})"
        chosen = f"x[i] + {k} if x[i] > {k} else {chosen}" if k % 2 else f"({chosen})"
        index = f"p[{index}]"
    function = written(f"x[i] = {nested} + ({chosen}) + x[{index}] * 0", "x, p")
    assert agrees(loop, function, np.arange(16.0), np.roll(np.arange(16), 3))


def test_many_branches_are_decided_in_their_order(loop, written):
    """Eighty times ``elif``."""
    body = "if x[i] < 0: x[i] = -1\n" + "\n".join(f"elif x[i] < {k}: x[i] = {k * k}" for k in range(80))
    assert agrees(loop, written(body), np.arange(-3, 90))


def test_a_scalar_may_have_its_type_from_the_end_of_a_long_chain(loop, written):
    """Types that go back through 200 assignments are found at once."""
    lines = [*[f"s{k} = 0" for k in range(200)], "for j in range(250):"]
    lines += [*[f"    s{k} = s{k + 1} + 1" for k in range(199)], "    s199 = x[i]", "x[i] = s0"]
    assert agrees(loop, written("\n".join(lines)), np.linspace(0, 1, 4))


def test_a_large_body_is_compiled_in_less_time(written, monkeypatch):
    """What is beyond a number of characters is compiled otherwise, and gives the same."""
    for module in (plan, runs):
        monkeypatch.setattr(module, "builder", Builder(os.environ, large_nchars=1000))
    body = "\n".join(f"x[i * 20 + {k}] = x[i * 20 + {k + 1}] + 1" for k in range(19))
    assert agrees(omp.parallel_loop, written(body, where="4"), np.arange(120.0))


def test_of_too_many_accesses_nothing_is_known_and_the_report_says_so(written):
    """Pairs beyond the limit are left out, soon, and `explain` notes it."""
    indices = "p[(i + {0}) % 8], p[(i * {0}) % 8], p[(i + 2 * {0}) % 8]"
    function = written("\n".join(f"x[{indices.format(k)}] = {k}" for k in range(110)), "x, p", where="8")
    begin = seconds()
    report = omp.parallel_loop(function).explain(np.zeros((8, 8, 8)), np.arange(8)).to_dict()
    assert seconds() - begin < LIMIT_S
    assert report["nests"][0]["verdict"] == "unknown"
    assert any("pairs of accesses were not compared" in note for note in report["notes"])


def test_an_index_that_says_nothing_does_not_hide_what_another_says(written):
    """Of six indices five may be negative; the sixth is the iteration's own, and so are the elements."""
    function = written("x[i, p[i], p[i], p[i], p[i], p[i]] = i", "x, p", where="2")
    report = omp.parallel_loop(function).explain(np.zeros((2,) * 6), np.array([-1, 0]))
    assert report.to_dict()["nests"][0]["verdict"] == "parallel"


@pytest.mark.parametrize(
    ("body", "before", "rule", "says"),
    [
        (
            "x[i] = g14(x[i])",
            "def g0(x): return x + 1\n"
            + "".join(f"def g{k}(x): return g{k - 1}(x) + g{k - 1}(x * 2)\n" for k in range(1, 15)),
            "call",
            "10,000 statements and expressions",
        ),
        (
            "x[i] = g60(x[i])",
            "def g0(x): return x + 1\n" + "".join(f"def g{k}(x): return g{k - 1}(x)\n" for k in range(1, 61)),
            "branch",
            "90 levels",
        ),
        (
            "if x[i] < 0: x[i] = -1\n" + "\n".join(f"elif x[i] < {k}: x[i] = {k}" for k in range(300)),
            "",
            "branch",
            "90 levels",
        ),
        ("x[i] = " + "-" * 120 + "x[i]", "", "branch", "90 levels"),
        ("x[i] = " + " < ".join(["x[i]"] * 120), "", "branch", "90 levels"),
    ],
    ids=["doubling calls", "deep calls", "elif", "signs", "comparisons"],
)
def test_what_is_too_much_is_refused_by_the_decorator(written, body, before, rule, says):
    """A limit is a `LoopError` with the rule, the line and the remedy, and no RecursionError; it comes soon."""
    function = written(body, before=before)
    begin = seconds()
    with pytest.raises(omp.LoopError, match=says) as caught:
        omp.parallel_loop(function)
    assert seconds() - begin < LIMIT_S
    assert caught.value.rule == rule
    assert caught.value.line > 1


def test_a_sum_that_python_cannot_read_again_is_refused(written):
    """Python compiles longer sums than it makes trees of; these are a `LoopError` too."""
    try:
        function = written("x[i] = " + " + ".join(["x[i]"] * 2_500))
    except RecursionError:
        pytest.skip("this Python compiles no such sum either")
    with (
        contextlib.suppress(omp.LoopError)
        if sys.version_info >= (3, 12)
        else pytest.raises(omp.LoopError, match="split it")
    ):
        omp.parallel_loop(function)


def test_a_deep_expression_is_compiled_from_deep_in_the_stack(written):
    """A caller some three hundred calls deep has room enough."""
    nested = "x[i]"
    for k in range(80):
        nested = f"({nested} * {k} + 1)"
    function = written(f"x[i] = {nested}")

    def below(depth):
        if depth:
            return below(depth - 1)
        x = np.zeros(3)
        omp.parallel_loop(function)(x)
        return x

    expected = np.zeros(3)
    function(expected)
    assert np.array_equal(below(300), expected)
