"""Speculative functions with several nests: each nest has a strategy of its own, and CPython's results."""

from __future__ import annotations

import contextlib
import linecache
import os
import subprocess
import sys
import textwrap
import warnings
from itertools import count
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import offload as omp
from offload import acc
from offload.devices.sim.device import SimDevice
from offload.loops.running import plan, runs
from offload.loops.running.build import Builder
from offload.loops.speculative import several
from offload.loops.speculative.strategies import Strategies
from tests.conftest import checked
from tests.loops.cuda_device import HostCuda
from tests.loops.cuda_form import GXX
from tests.profiles import examples

N = 24
NAMES = ("x", "y", "z", "p", "q")
_NUMBERS = count()

# A nest's text; `p` is a permutation, `q` has an element twice, and `w` is the name of `x` once more.
NESTS = {
    "proved": "for i in range(x.size):\n    A[i] = B[i] + i",
    "sum": "s = 2\nfor i in range(x.size):\n    s += A[i]",
    "dependent": "for i in range(1, x.size):\n    A[i] = A[i - 1] + B[i]",
    "scatter": "for i in range(p.size):\n    A[p[i]] = B[i] + A[p[i]]",
    "colliding": "for i in range(q.size):\n    A[q[i]] = B[i] - A[q[i]]",
    "computed": "for i in range(p.size):\n    A[p[i]] = i\n    B[A[p[i]]] = i + 1",
    "aliased": "for i in range(x.size):\n    w[i] = A[i] + w[i]",
    "empty": "for i in range(0):\n    A[i] = 1",
    "two": "for i in range(4):\n    for j in range(6):\n        A[6 * i + j] += B[j]",
}


def function_of(nests):
    """Return the function of some nests, each a name of `NESTS` and two arrays; the last sum is returned."""
    lines = ["n = x.size"]
    has_sum = False
    for name, one, other in nests:
        lines += NESTS[name].replace("A", one).replace("B", other).replace("s = 2", f"s = {2 * len(lines)}").split("\n")
        has_sum = has_sum or name == "sum"
    if has_sum:
        lines.append("return s")
    source = "def f(x, y, z, p, q, w):\n" + "".join(f"    {line}\n" for line in lines)
    file = f"<several {next(_NUMBERS)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names = {}
    exec(compile(source, file, "exec"), names)
    return names["f"]


def arguments(seed=1):
    rng = np.random.default_rng(seed)
    p, q = rng.permutation(N), rng.permutation(N)
    q[3] = q[7]
    x, y, z = (rng.integers(0, N, N) for _ in range(3))
    return [x, y, z, p, q, x]


@st.composite
def functions(draw):
    names = list(NESTS)
    kinds = draw(st.lists(st.sampled_from(names), min_size=2, max_size=4))
    if kinds.count("sum") > 1:  # a scalar belongs to one nest
        kinds = [kind for kind in kinds if kind != "sum"] + ["sum", "proved"]
    return [(kind, *draw(st.permutations(["x", "y", "z"]))[:2]) for kind in kinds]


@contextlib.contextmanager
def one_strategy(strategy):
    """Let calls use one strategy; None: each call chooses."""
    if strategy is None:
        yield
        return
    with mock.patch.object(Strategies, "next", return_value=strategy):
        yield


def agree(function, *, n_calls, is_present, strategy=None, **clauses):
    """Compare calls with CPython's, each with what the calls before have left."""
    loop = acc.kernels_loop(speculate=True, **clauses)(function)
    given, expected = arguments(), arguments()
    with warnings.catch_warnings(), one_strategy(strategy), contextlib.ExitStack() as stack:
        warnings.simplefilter("ignore", omp.OffloadWarning)
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's integers wrap too, and say so
        if is_present:
            stack.enter_context(acc.data(copy=given[:3], copyin=given[3:5]))
        for number in range(n_calls):
            assert loop(*given) == function(*expected), number
            if not is_present:
                same(given, expected)
    same(given, expected)
    return loop


def same(given, expected):
    for name, one, other in zip(NAMES, given, expected, strict=False):
        assert (one == other).all(), name


@settings(max_examples=examples(100, soak=2000))
@given(functions(), st.sampled_from([None, "each", "device", "host"]), st.booleans())
def test_generated_functions(nests, strategy, is_present):
    """Generated functions leave CPython's arrays and return its scalar, whatever strategy their calls use."""
    with checked("sim:1"):
        agree(function_of(nests), n_calls=3, is_present=is_present, strategy=strategy)


@pytest.mark.slow
@pytest.mark.skipif(GXX is None, reason="no g++")
@settings(max_examples=examples(50))
@given(functions(), st.booleans())
def test_as_cuda(nests, is_present):
    """The same where the host does not see the device's memory, and kernels are CUDA's."""
    with mock.patch.object(SimDevice, "kernels", HostCuda()), checked("sim:1"):
        agree(function_of(nests), n_calls=3, is_present=is_present)


@pytest.mark.skipif(GXX is None, reason="no g++")
def test_one_function_as_cuda(cuda):
    """A function with a nest of each strategy, where kernels are CUDA's."""
    nests = [("proved", "x", "y"), ("dependent", "y", "x"), ("scatter", "z", "y"), ("sum", "z", "x")]
    for strategy in ("each", "device"):
        agree(function_of(nests), n_calls=2, is_present=strategy == "each", strategy=strategy)


@pytest.mark.parametrize("where", ["python", "host", "always"])
def test_other_ways_to_run(where, monkeypatch):
    """Without a compiler, on the host's device, and where each call uses its log."""
    if where == "python":
        for module in (plan, runs):
            monkeypatch.setattr(module, "builder", Builder({"OFFLOAD_CC": "none"}))
    clauses = {"host": {"if_": False}, "always": {"speculate": "always"}}.get(where, {})
    nests = [("proved", "x", "y"), ("scatter", "y", "x"), ("dependent", "z", "y"), ("computed", "z", "x")]
    for chosen in (nests, nests[::-1], [*nests[1:], ("sum", "z", "x")]):
        function = function_of(chosen)
        loop = acc.kernels_loop(**{"speculate": True, **clauses})(function)
        given, expected = arguments(), arguments()
        with checked("sim:1"), warnings.catch_warnings():
            warnings.simplefilter("ignore", omp.OffloadWarning)
            for _ in range(3):
                assert loop(*given) == function(*expected)
        same(given, expected)


# -- what each nest does -----------------------------------------------------------------------------------


def mixed(p, x, y, z):
    for i in range(x.size):
        x[i] = x[i] + 1
    for i in range(p.size):
        y[p[i]] = x[i]
    for i in range(1, x.size):
        z[i] = z[i - 1] + y[i]
    for i in range(x.size):
        x[i] = z[i] - y[i]


def mixed_arguments(p=None):
    p = np.random.default_rng(1).permutation(N) if p is None else p
    return [p, np.arange(N), np.zeros(N, int), np.ones(N, int)]


def said(loop, *given):
    return [one["speculation"] for one in loop.explain(*given).to_dict()["nests"]]


def test_each_nest_has_its_strategy(sim):
    """Proved nests run in parallel on the device, unproved ones as they are found, dependent ones in order."""
    loop = acc.kernels_loop(speculate=True)(mixed)
    given = mixed_arguments()
    modes = ["off", "inspector", "sequential", "off"]
    assert [one["mode"] for one in said(loop, *given)] == modes
    with acc.data(copy=given[1:], copyin=given[:1]), one_strategy("each"):
        for _ in range(3):
            loop(*given)
        found = said(loop, *given)
    assert [one["last"] for one in found] == ["device", "device", "host", "device"]
    assert found[0]["why"] == "in parallel: its iterations are proved to be independent"
    assert found[1]["why"] == "in parallel: its iterations were independent for such arguments"
    assert found[2]["why"] == "in order: its iterations are proved to depend on each other"
    text = str(loop.explain(*given))
    assert "speculation: sequential, logged: nothing; the latest call on the host in order: its iterations are" in text


def test_a_nest_that_is_found_dependent(sim):
    """One nest's dependence does not make the others run in order."""
    loop = acc.kernels_loop(speculate=True)(mixed)
    q = np.random.default_rng(1).permutation(N)
    q[3] = q[7]
    for _ in range(3):
        given, expected = mixed_arguments(q), mixed_arguments(q)
        with one_strategy("each"):
            loop(*given)
        mixed(*expected)
        same_mixed(given, expected)
    found = said(loop, *given)
    assert [one["last"] for one in found] == ["device", "host", "host", "device"]
    assert "seen to depend" in found[1]["why"]


def same_mixed(given, expected):
    for one, other in zip(given, expected, strict=True):
        assert (one == other).all()


def test_a_warning_names_one_nest(sim):
    """A nest that turns out dependent after parallel calls gives one warning; later calls are right."""
    loop = acc.kernels_loop(speculate=True)(mixed)
    with one_strategy("each"):
        for _ in range(3):
            loop(*mixed_arguments())
        q = np.random.default_rng(1).permutation(N)
        q[3] = q[7]
        given = mixed_arguments(q)
        with pytest.warns(omp.SpeculationWarning, match="by y"):
            loop(*given)
    expected = mixed_arguments(q)
    mixed(*expected)
    same_mixed(given, expected)


def test_neighbours_in_order_are_copied_once(sim):
    """Arrays are fetched once for nests in order that follow each other."""

    def chain(x, y):
        for i in range(x.size):
            y[i] = 2 * x[i]
        for i in range(1, x.size):
            x[i] = x[i - 1] + y[i]
        for i in range(1, x.size):
            x[i] = x[i - 1] - y[i]

    loop = acc.kernels_loop(speculate=True)(chain)
    x, y = np.arange(N), np.zeros(N, int)
    with (
        acc.data(copy=[x, y]),
        one_strategy("each"),
        mock.patch.object(several, "on_host", wraps=several.on_host) as on,
    ):
        loop(x, y)
    assert on.call_count == 1
    expected = [np.arange(N), np.zeros(N, int)]
    chain(*expected)
    assert (x == expected[0]).all()
    assert (y == expected[1]).all()


def test_strategies_are_tried(sim):
    """Calls try each strategy, and settle; results are right all the time."""
    for is_present in (False, True):
        seen = []
        after = Strategies.after

        def noted(self, strategy, seconds, after=after, seen=seen):
            seen.append(strategy)
            return after(self, strategy, seconds)

        with mock.patch.object(Strategies, "after", noted):
            agree(
                function_of([("proved", "x", "y"), ("dependent", "y", "z"), ("scatter", "z", "x")]),
                n_calls=14,
                is_present=is_present,
            )
        assert seen[:10] == ["each"] * 4 + ["device"] * 3 + ["host"] * 3


def test_all_dependent_nests_map_nothing(sim):
    """If each nest is proved dependent, the call stays on the program's arrays from the start."""

    def both(x, y):
        for i in range(1, x.size):
            x[i] = x[i - 1] + 1
        for i in range(1, y.size):
            y[i] = y[i - 1] + x[i]

    loop = acc.kernels_loop(speculate=True)(both)
    for _ in range(6):
        given, expected = [np.arange(N), np.ones(N, int)], [np.arange(N), np.ones(N, int)]
        with mock.patch.object(type(sim.places[0].device), "alloc", side_effect=AssertionError):
            loop(*given)
        both(*expected)
        same_mixed(given, expected)
    assert [one["last"] for one in said(loop, *given)] == ["host", "host"]


# -- failures ----------------------------------------------------------------------------------------------


def failing(x, y, p, d):
    for i in range(x.size):
        x[i] = x[i] + 1
    for i in range(p.size):
        y[p[i]] = 100 // d[i]
    for i in range(x.size):
        x[i] = 0


@pytest.mark.parametrize("is_present", [False, True])
@pytest.mark.parametrize("is_colliding", [False, True])
@pytest.mark.parametrize("n_before", [0, 3])
@pytest.mark.parametrize("strategy", ["each", "device", "host"])
def test_a_failing_nest_ends_the_call(sim, strategy, n_before, is_present, is_colliding):
    """The call raises the serial program's error, and its writes until then stay; later nests do not run."""
    loop = acc.kernels_loop(speculate=True)(failing)
    p = np.random.default_rng(1).permutation(N)
    if is_colliding:
        p[3] = p[7]
    d = np.ones(N, int)
    x, y = np.arange(N), np.zeros(N, int)
    ex, ey = np.arange(N), np.zeros(N, int)
    with one_strategy(strategy), contextlib.ExitStack() as stack:
        for _ in range(n_before):
            loop(np.arange(N), np.zeros(N, int), p, d)
        d[9] = 0
        if is_present:
            stack.enter_context(acc.data(copy=[x, y], copyin=[p, d]))
        with pytest.raises(ZeroDivisionError):
            loop(x, y, p, d)
    with pytest.raises(ZeroDivisionError):
        serial_failing(ex, ey, p, d)
    assert (x == ex).all()
    assert (y == ey).all()


def serial_failing(x, y, p, d):
    """Do as CPython would if NumPy raised."""
    x += 1
    for i in range(p.size):
        if d[i] == 0:
            raise ZeroDivisionError
        y[p[i]] = 100 // d[i]


def test_firstprivate_is_copied_at_the_call(sim):
    """Each nest gets the contents that a `firstprivate` array had at the call, whatever nests before it wrote."""

    def nests(x, t, y):
        for i in range(x.size):
            x[i] = 7
        for i in range(y.size):
            t[0] = t[0] + i
            y[i] = t[0]
        for i in range(1, y.size):
            y[i] = y[i - 1] + y[i]

    loop = acc.kernels_loop(speculate=True, firstprivate=["t"])(nests)
    for _ in range(4):
        x, y = np.arange(4), np.zeros(4, int)
        loop(x, x[1:2], y)
        assert x.tolist() == [7] * 4
        assert y.tolist() == [1, 3, 6, 10]


def test_nowait_and_queues(sim):
    """A deferred call does the same."""
    loop = acc.kernels_loop(speculate=True, async_=1)(mixed)
    given, expected = mixed_arguments(), mixed_arguments()
    for _ in range(3):
        loop(*given)
        acc.wait(1)
        mixed(*expected)
    same_mixed(given, expected)


def test_notices_name_the_nest(tmp_path):
    """A line of OFFLOAD_NOTIFY has the line of the nest and the reason."""
    program = """
        import numpy as np
        import offload as omp
        from offload import acc

        def f(x, y):
            for i in range(x.size):
                x[i] = i
            for i in range(1, y.size):
                y[i] = y[i - 1] + x[i]

        with omp.Runtime("sim:1"):
            acc.kernels_loop(f, speculate=True)(np.zeros(9), np.zeros(9))
    """
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(program))
    environment = {**os.environ, "OFFLOAD_NOTIFY": "1"}
    done = subprocess.run([sys.executable, file], env=environment, capture_output=True, text=True, check=True)
    lines = [line.partition("device=0 ")[2] for line in done.stderr.splitlines() if line.startswith("speculate")]
    assert lines == [
        "line 7: in parallel: its iterations are proved to be independent",
        "line 9: in order: its iterations are proved to depend on each other",
    ]


# -- the choice --------------------------------------------------------------------------------------------


def test_times_decide():
    """Each strategy is called until it is timed; then the quickest is taken."""
    times = {"each": 3.0, "device": 2.0, "host": 1.0}
    known, taken = Strategies(), []
    for _ in range(40):
        strategy = known.next(["each", "device", "host"])
        taken.append(strategy)
        known = known.after(strategy, times[strategy])
    assert taken[:10] == ["each"] * 4 + ["device"] * 3 + ["host"] * 3
    assert set(taken[10:]) == {"host"}


def test_the_first_calls_do_not_count():
    """Calls that compile are slow, and are not timed."""
    known = Strategies()
    for seconds in (9.0, 8.0, 1.0, 2.0):
        known = known.after("each", seconds)
    assert known.seconds("each") == 1.0


@given(st.floats(1.1, 20.0), st.integers(100, 400))
def test_others_are_tried_again(costs, n):
    """Other strategies are tried again, and take at most a fiftieth of the time."""
    times = {"each": costs, "host": 1.0}
    known, taken = Strategies(), []
    for _ in range(n):
        taken.append(known.next(["each", "host"]))
        known = known.after(taken[-1], times[taken[-1]])
    n_again = taken[7:].count("each")
    assert n_again <= n / (50 * costs) + 1
    assert n < 8 + 50 * costs + 1 or n_again


def test_a_strategy_that_becomes_quicker_is_taken():
    """If the loser has become quicker when it is tried again, it is taken from then on."""
    known = Strategies()
    for number in range(200):
        strategy = known.next(["each", "host"])
        seconds = {"each": 2.0 if number < 20 else 0.5, "host": 1.0}[strategy]
        known = known.after(strategy, seconds)
    assert known.next(["each", "host"]) == "each"


def test_no_nest_runs_after_one_that_has_failed():
    """Whatever strategy earlier calls have chosen, the arrays of later nests stay as they are."""

    def three(a, b, q):
        for j in range(q.size):
            b[q[j]] = j
        for k in range(4):
            a[q[k]] = k
        for i in range(a.size):
            b[i] = 3 * i

    loop = acc.kernels_loop(speculate=True)(three)
    with checked("sim:1"):
        for turn in range(12):
            a, b, q = np.full(6, -1.0), np.zeros(6), np.array([0, 1, 1, 2, 3, 4])
            loop(a, b, q)
            if turn >= 3:
                q[5], a[:] = 99, -1
                with pytest.raises(IndexError):
                    loop(a, b, q)
                assert (a == -1).all()
