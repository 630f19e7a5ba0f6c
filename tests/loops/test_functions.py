"""The decorators of loops: clauses that are refused, parsing at the decorator, and what a loop function offers."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import numpy as np
import pytest

import offload as omp
from offload import from_, in_, to

pytestmark = pytest.mark.usefixtures("sim")

CONSTRUCTS = (omp.target_loop, omp.parallel_loop)


def copy(x, y):
    for i in range(x.size):
        y[i] = x[i]


def total(x):
    s = 0.0
    for i in range(x.size):
        s += x[i]
    return s


@omp.target_loop
def at_module_level(x, y):
    for i in range(x.size):
        y[i] = x[i] + 1


WRONG = [
    {"collapse": 0},
    {"collapse": "two"},
    {"collapse": True},
    {"reduction": ["s"]},
    {"reduction": {"-": ["s"]}},
    {"reduction": {"+": [3]}},
    {"reduction": {"+": ["nobody"]}},
    {"reduction": {"+": ["s"], "max": ["s"]}},
    {"private": ["nobody"]},
    {"private": 3},
    {"private": ["a[0]"]},
    {"private": ["x"], "firstprivate": ["x"]},
    {"lastprivate": ["s"], "reduction": {"+": ["s"]}},
    {"atomic": [3]},
    {"schedule": "fast"},
    {"schedule": ("static", 0)},
    {"schedule": ("static", 2, 3)},
    {"num_threads": 0},
    {"num_teams": -1},
    {"thread_limit": 1.5},
    {"gang": 0},
    {"vector": "wide"},
    {"seq": 1},
    {"seq": True, "auto": True},
    {"seq": True, "vector": True},
    {"tile": 8},
    {"tile": (8, 0)},
    {"cache": [3]},
    {"cache": ["a["]},
    {"check": "yes"},
    {"bounds": True},
    {"bounds": "never"},
    {"fastmath": True},
    {"fastmath": "quick"},
    {"no_such_clause": 1},
]


@pytest.mark.parametrize("construct", CONSTRUCTS)
@pytest.mark.parametrize("clauses", WRONG, ids=str)
def test_wrong_clauses_are_refused(construct, clauses):
    """A wrong value, name or combination is a ClauseError of the decorator, and of `options`."""
    with pytest.raises(omp.ClauseError):
        construct(**clauses)(total)
    with pytest.raises(omp.ClauseError):
        construct(reduction={"+": ["s"]})(total).options(**{"reduction": {"+": ["s"]}, **clauses})


@pytest.mark.parametrize(
    "clauses",
    [{"devices": "all"}, {"devices": [0, 1]}, {"filter": "always"}, {"exchange": "eager"}, {"speculate": True}],
    ids=str,
)
def test_a_parallel_loop_has_no_clauses_of_devices(clauses):
    """Several devices and speculation are a ClauseError there."""
    with pytest.raises(omp.ClauseError, match="has no clause"):
        omp.parallel_loop(**clauses)(copy)


@pytest.mark.parametrize("clauses", [{"devices": None}, {"filter": "auto"}, {"exchange": "lazy"}, {"speculate": False}])
def test_what_changes_nothing_is_taken(sim, clauses):
    """A target loop takes the defaults of those clauses, and runs as without them."""
    x, y = np.arange(8.0), np.zeros(8)
    omp.target_loop(**clauses)(copy)(x, y)
    assert (y == x).all()


@pytest.mark.parametrize(
    "clauses",
    [
        {"collapse": 1, "schedule": "guided", "num_threads": 2},
        {"schedule": ("dynamic", 4)},
        {"num_teams": 4, "thread_limit": 64},
        {"gang": True, "vector": 64},
        {"tile": (8,)},
        {"cache": ["x[i-1:3]"]},
        {"bounds": False},
        {"fastmath": "contract"},
        {"atomic": []},
        {"independent": True},
    ],
    ids=str,
)
def test_clauses_that_change_no_result(clauses):
    """Clauses of speed leave the result as it is."""
    x, y = np.arange(200.0), np.zeros(200)
    omp.parallel_loop(**clauses)(copy)(x, y)
    assert (x == y).all()


def test_clauses_of_target_are_not_those_of_a_parallel_loop():
    """A parallel loop maps nothing, and has no device."""
    for clauses in ({"map": [to("x")]}, {"device": 0}, {"defaultmap": "none"}):
        with pytest.raises(omp.ClauseError):
            omp.parallel_loop(**clauses)(copy)


def test_what_needs_no_types_is_raised_by_the_decorator():
    """A function that is no loop is a LoopError of the decorator, with file, line and rule."""

    def no_loop(x):
        pass

    def carried(x):
        s = 0.0
        for i in range(x.size):
            s = s + x[i]
        return s

    for function, rule in ((no_loop, "range"), (carried, "carried")):
        with pytest.raises(omp.LoopError) as caught:
            omp.target_loop(function)
        assert caught.value.rule == rule
        assert caught.value.file == __file__
        assert caught.value.line >= function.__code__.co_firstlineno
    omp.target_loop(reduction={"+": ["s"]})(carried)
    for odd in (math.sin, len, 3):
        with pytest.raises(omp.DirectiveError):
            omp.target_loop(odd)


def test_options_parse_anew():
    """`options` that speak of the loop are checked against its text."""
    with pytest.raises(omp.DirectiveError):
        omp.target_loop(copy).options(collapse=2)
    with pytest.raises(omp.DirectiveError):
        omp.target_loop(reduction={"+": ["s"]})(total).options(reduction=None)


def test_other_clauses_are_those_of_target():
    """Clauses of `target` are checked as there."""
    for clauses in ({"map": [to("nobody")]}, {"device": "gpu"}, {"priority": -1}, {"depend": "x"}):
        with pytest.raises(omp.DirectiveError):
            omp.target_loop(**clauses)(copy)
    omp.target_loop(map=[to("x")], depend=[in_("x")], nowait=True, priority=1, name="copy")(copy)


def test_what_loop_clauses_name_needs_no_map():
    """Where `defaultmap` wants each argument in a clause, those of reductions and private variables count."""

    def fill(t, s, y):
        for i in range(y.size):
            t[0] = i
            y[i] = t[0]
            s[0] += t[0]

    clauses = {"private": ["t"], "reduction": {"+": ["s"]}, "defaultmap": "none"}
    t, s, y = np.zeros(1), np.zeros(1), np.zeros(5)
    with pytest.raises(omp.ClauseError, match="'y'"):
        omp.target_loop(**clauses)(fill)(t, s, y)
    omp.target_loop(**clauses, map=[from_("y")])(fill)(t, s, y)
    assert (t[0], s[0], y[4]) == (0, 10, 4)


def test_what_a_loop_function_offers():
    """A loop function keeps its name and its Python form, and shows source and report without running."""
    loop = omp.target_loop(copy)
    assert loop.python is copy
    assert loop.__name__ == "copy"
    x, y = np.arange(5.0), np.zeros(5)
    loop.compile(x, y)
    assert "loop" in loop.source(x, y)
    report = loop.explain(x, y)
    assert not y.any()
    facts = report.to_dict()
    assert facts["function"] == "copy"
    assert (facts["file"], facts["line"], facts["device"]) == (__file__, copy.__code__.co_firstlineno, "sim:0")
    assert facts["types"]["x"] == "float64[:]"
    (nest,) = facts["nests"]
    assert (nest["line"], nest["verdict"], nest["dependences"]) == (copy.__code__.co_firstlineno + 1, "parallel", [])
    assert facts["arrays"] == {
        "x": {"access": "read", "map": "to", "bounds": "launch"},
        "y": {"access": "write", "map": "from", "bounds": "launch"},
    }
    assert (facts["filter"]["mode"], facts["speculation"]["mode"]) == ("off", "off")
    assert "parallel" in str(report)


def test_explain_tells_what_a_call_would_refuse():
    """The report of a loop whose iterations depend on each other has the dependence, where a call raises."""

    @omp.parallel_loop
    def smooth(a, m):
        for i in range(1, a.size):
            a[i] = a[i - m]

    a = np.zeros(9)
    (nest,) = smooth.explain(a, 1).to_dict()["nests"]
    line = smooth.python.__code__.co_firstlineno + 3
    assert nest["verdict"] == "sequential"
    assert nest["dependences"] == [{"array": "a", "kind": "flow", "distance": 1, "lines": [line, line]}]
    with pytest.raises(omp.LoopError):
        smooth(a, 1)


def test_bounds_in_the_report():
    """Indices from data are checked in the kernel, unless `bounds=False`."""

    @omp.parallel_loop
    def gather(p, x, y):
        for i in range(p.size):
            y[i] = x[p[i]]

    given = np.arange(3), np.zeros(3), np.zeros(3)
    assert gather.explain(*given).to_dict()["arrays"]["x"]["bounds"] in {"kernel", "range"}
    assert gather.options(bounds=False).explain(*given).to_dict()["arrays"]["x"]["bounds"] == "off"


def test_loop_functions_pickle_by_name():
    """A loop function of a module is pickled by its name."""
    assert pickle.loads(pickle.dumps(at_module_level)) is at_module_level


def test_loop_returns_the_range():
    """`omp.loop` gives back the range that it is called with, and checks its clauses."""
    given = range(1, 5)
    assert omp.loop(given, bind="parallel", collapse=2, reduction={"+": ["s"]}) is given
    for wrong in ({"bind": "gang"}, {"collapse": 0}, {"reduction": {"?": ["s"]}}):
        with pytest.raises(omp.ClauseError):
            omp.loop(given, **wrong)
    with pytest.raises(omp.ClauseError):
        omp.loop([1, 2])


def test_declare_target_marks_functions():
    """A plain function is checked at once and returned as it is; what loops cannot call is a LoopError."""

    @omp.declare_target
    def square(v):
        return v * v

    def unfit(v):
        with Path("x"):
            return v

    assert square(3) == 9
    with pytest.raises(omp.LoopError):
        omp.declare_target(unfit)

    @omp.parallel_loop
    def squares(x):
        for i in range(x.size):
            x[i] = square(x[i])

    x = np.arange(5)
    squares(x)
    assert x.tolist() == [0, 1, 4, 9, 16]


def rows_summed(a):
    s, m = 0.0, -1e300
    for i in range(a.shape[0]):
        for j in omp.loop(range(a.shape[1]), bind="parallel", reduction={"+": ["s"]}):
            s += a[i, j]
        for j in omp.loop(range(a.shape[1]), bind="parallel", reduction={"+": ["s"]}):
            s += 1
            m = max(m, a[i, j])
    return s, m


def test_reductions_of_the_construct_and_of_a_loop_in_it():
    """An item of the construct that a loop in the iteration names as well is the construct's."""
    summed = omp.parallel_loop(reduction={"+": ["s"], "max": ["m"]})(rows_summed)
    assert summed(np.arange(12.0).reshape(3, 4)) == (78.0, 11.0)


def powers(x, y, k):
    for i in range(x.size):
        y[i, 0] = math.pow(x[i], 2.5)
        y[i, 1] = np.power(x[i], 2) + np.power(k[i], 0.5)
        y[i, 2] = math.log(x[i], 7)
        y[i, 3] = np.abs(-x[i]) + np.abs(k[i]) + np.abs(k[i] > 0)


def test_powers_and_logarithms_by_a_base():
    """Powers, magnitudes, and logarithms by a base are what CPython and NumPy say."""
    x, k = np.array([0.5, 1.0, 3.0]), np.array([1, 2, 3], np.int8)
    ours, theirs = np.zeros((3, 4)), np.zeros((3, 4))
    powers(x, theirs, k)
    omp.parallel_loop(powers)(x, ours, k)
    np.testing.assert_allclose(ours, theirs, rtol=1e-15)


def halved_place(x):
    for i in range(x.size):
        x[i] = x[i / 2]


def hashed(x):
    for i in range(x.size):
        s = i
        s = (s * 31) & 0xFFFFFFFFFFFFFFFF
        x[i] = s


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (halved_place, "the index of x, i / 2, is a float; write i // 2"),
        (hashed, r"write np.uint64\(18446744073709551615\)"),
    ],
)
def test_messages_about_types_quote_the_text(function, words):
    """What has the wrong type is quoted as it is written, with a remedy that works."""
    with pytest.raises(omp.LoopError, match=words):
        omp.parallel_loop(function)(np.zeros(4))
