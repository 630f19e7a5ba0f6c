"""The first call of a speculative loop: how much of it is profiled, and what comes of that in the same call."""

from __future__ import annotations

import contextlib
import warnings
from unittest import mock

import numpy as np
import pytest

import offload as omp
from offload import to, tofrom
from offload.loops.running import plan, runs
from offload.loops.running.build import Builder
from offload.loops.speculative import profiles
from offload.loops.speculative.hostside import HostSide
from offload.loops.speculative.speculation import forget
from tests.conftest import checked
from tests.loops.speculation import noted, quiet, slow_host
from tests.loops.test_race_rules import serial
from tests.profiles import few

LONG = 40_000
"""Iterations, more than a first call profiles."""

COMPILED = pytest.mark.skipif(runs.builder.compiler is None, reason="a host without a compiler is not tried")


@pytest.fixture(params=few(1, ["C", "Python"]))
def form(request, monkeypatch):
    """Have loops of the host compiled, or not."""
    if request.param == "Python":
        for module in (plan, runs):
            monkeypatch.setattr(module, "builder", Builder({"OFFLOAD_CC": "none"}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", omp.PerformanceWarning)
        yield request.param


def counted(p, y):
    for i in range(p.size):
        y[p[i]] += 1


def hidden(p, w, y):
    for i in range(p.size):
        w[p[i]] = p[i]
        y[w[p[i]]] += 1


def permutation(n=LONG):
    return np.random.default_rng(5).permutation(n)


def seen(loop, *arguments):
    """Return how many iterations the first call has profiled, and of how many; where the latest call has run."""
    facts = loop.explain(*arguments).to_dict()
    (note,) = [note for note in facts["notes"] if note.startswith("the first call has profiled")]
    words = note.replace(",", "").split()
    return (int(words[5]), int(words[7])), facts["speculation"]["last"]


def check(loop, *arguments, raises=None):
    """Call a loop without a warning; it leaves, and raises, what the serial program does."""
    wanted, error = serial(loop.python, arguments)
    assert error is raises
    with warnings.catch_warnings():
        warnings.simplefilter("error", omp.SpeculationWarning)
        with contextlib.nullcontext() if error is None else pytest.raises(error):
            loop(*arguments)
    for one, other in zip(arguments, wanted, strict=True):
        assert np.array_equal(one, other)


def test_the_beginning_of_a_long_loop_is_profiled_and_the_call_goes_on_in_parallel(form):
    """No effect of the profile is left, and the inspector lets the same call run in parallel."""
    counts = []
    for _ in range(2):
        loop = omp.target_loop(speculate=True)(counted)
        p, y = permutation(), np.zeros(LONG, int)
        with checked("sim:1"), noted() as found:
            check(loop, p, y)
            (n, n_in_all), last = seen(loop, p, y)
        assert found == [None]
        assert last == "device"
        assert n_in_all == LONG
        assert 1000 < n < LONG
        counts.append(n)
    assert counts == [7282] * 2  # by the arguments alone, in either form


def test_a_short_loop_is_profiled_wholly(form):
    """It runs in order with right results, also where only a run tells that it is short."""

    def rows(first, p, y):
        for i in range(p.size):
            for k in range(first[i], first[i + 1]):
                y[p[i]] += k

    loops = [
        (counted, (permutation(300), np.zeros(300, int))),
        (rows, (np.arange(301), permutation(300), np.zeros(300, int))),
    ]
    for function, arguments in loops:
        loop = omp.target_loop(speculate=True)(function)
        with checked("sim:1"), noted() as found:
            check(loop, *arguments)
            assert seen(loop, *arguments) == ((300, 300), "host")
        assert not found


@pytest.mark.parametrize("function", few(1, [hidden, counted]))
@pytest.mark.parametrize("at", [100, LONG - 1])
def test_a_dependence_in_the_first_call_is_no_surprise(function, at):
    """Seen by the profile or met behind it: results are serial, nobody is warned, and the loop runs in order then."""
    loop = omp.target_loop(speculate=True)(function)
    with checked("sim:1", seed=3), noted() as found:
        for call in range(3):
            p, y = permutation(), np.zeros(LONG, int)
            p[at] = p[at - 1] if call == 0 else p[at]
            w = () if function is counted else (np.zeros(LONG, int),)
            check(loop, p, *w, y)
            assert seen(loop, p, *w, y)[1] == "host"
    assert len(found) == (at > 100)


@pytest.mark.parametrize("function", [counted, hidden])
def test_a_later_dependence_is_told(function):
    """The first call was right to run in parallel: another one that may not is warned of, once."""
    loop = omp.target_loop(speculate=True)(function)
    with checked("sim:1", seed=3), noted(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for call in range(3):
            p, y = permutation(), np.zeros(LONG, int)
            p[9] = p[LONG - 9] if call else p[9]
            arguments = (p, y) if function is counted else (p, np.zeros(LONG, int), y)
            wanted, _ = serial(function, arguments)
            loop(*arguments)
            assert np.array_equal(y, wanted[-1])
    (warning,) = [one.message for one in said if issubclass(one.category, omp.SpeculationWarning)]
    assert f"[{p[9]}]" in str(warning)


@pytest.mark.parametrize("function", few(1, [hidden, counted]))
@pytest.mark.parametrize("at", [100, LONG - 1])
def test_a_first_call_that_fails(function, at):
    """In the profile or behind it: the error is the serial program's, and arrays hold what that has written."""
    with checked("sim:1", seed=3), slow_host():
        for around in (None, tofrom):
            loop = omp.target_loop(speculate=True)(function)
            p, y = permutation(), np.zeros(LONG, int)
            p[at] = LONG
            arguments = (p, y) if function is counted else (p, np.zeros(LONG, int), y)
            maps = omp.target_data(map=[around(one) for one in arguments]) if around else contextlib.nullcontext()
            with maps:
                wanted, error = serial(function, arguments)
                with pytest.raises(error, match=f"i={at}"):
                    loop(*arguments)
            for one, other in zip(arguments, wanted, strict=True):
                assert np.array_equal(one, other)


def test_arrays_that_the_device_has_are_fetched_for_a_profile_if_they_are_few():
    """A small loop on present arrays runs in order at first; one on large arrays is inspected, without a profile."""
    for n, expected in ((300, ((300, 300), "host")), (200_000, ((0, 200_000), "device"))):
        loop = omp.target_loop(speculate=True)(counted)
        p, y = permutation(n), np.zeros(n, int)
        with checked("sim:1"), noted() as found:
            with omp.target_data(map=[to(p), tofrom(y)]):
                loop(p, y)
                assert seen(loop, p, y) == expected
                loop(p, y)
                loop(p, y)
            assert (y == 3).all()
        assert found == ([None] if n > 300 else [])


def test_iterations_that_take_long_end_the_profile(form):
    """However long an iteration is, or a trip of the outermost loop, the profile is short; its end says nothing."""

    def inner(n, p, y):
        for i in range(p.size):
            last = 0
            for k in range(n):
                last = k + 1
            y[p[last - n + i]] = i  # one that ended before its time would be outside, or meet

    def joined(p, y):
        for i in range(3):
            for j in range(LONG):
                y[i, p[j]] += 1

    def walked(n, p, y):
        for i in range(p.size):
            k = 0
            while k < n:
                k += 1
            y[p[k - n + i]] = i

    n = 200_000
    cases = [
        (inner, {}, (n, permutation(3), np.zeros(3, int)), (0, 3)),
        (walked, {}, (n, permutation(3), np.zeros(3, int)), (0, 3)),
        (joined, {"collapse": 2}, (permutation(), np.zeros((3, LONG), int)), None),
    ]
    for function, clauses, arguments, expected in cases:
        loop = omp.target_loop(speculate=True, **clauses)(function)
        with checked("sim:1"), noted() as found:
            check(loop, *arguments)
            said, last = seen(loop, *arguments)
        assert found == [None]
        assert last == "device"
        assert said == expected if expected else 0 < said[0] < said[1] == 3 * LONG


def test_arrays_that_share_memory_are_copied_together():
    """The profile works on copies that share memory as the arrays do, and finds what they share."""

    def shifted(p, a, b):
        for i in range(p.size):
            a[p[i]] = b[p[i]] + 1

    p, z = permutation(LONG - 8), np.zeros(LONG, int)
    loop = omp.target_loop(speculate=True)(shifted)
    with checked("sim:1"), noted() as found:
        expected = z.copy()
        shifted(p, expected[:-8], expected[8:])
        loop(p, z[:-8], z[8:])
        assert (z == expected).all()
        assert seen(loop, p, z[:-8], z[8:])[1] == "host"
    assert not found


@pytest.mark.parametrize("is_given", few(1, [False, True]))
@pytest.mark.parametrize("function", [counted, hidden])
def test_large_arrays_are_not_copied_to_be_tried(function, is_given):
    """What is looked at before a call leaves no trace: addresses alone, or nothing where the loop computes them."""
    n = 200_000
    profile = omp.profile_dependences(function, (permutation(9), *[np.zeros(9, int)] * (1 + (function is hidden))))
    loop = omp.target_loop(speculate=profile if is_given else True)(function)
    with checked("sim:1"), noted() as found:
        for call in range(2):
            arguments = (permutation(n), *[np.arange(n) for _ in range(1 + (function is hidden))])
            check(loop, *arguments)
            if not is_given and call == 0:
                assert seen(loop, *arguments) == ((7282 if function is counted else 0, n), "device")
    assert found == [None, None]


@COMPILED
def test_a_loop_that_no_device_is_as_quick_as_stays_on_the_host():
    """Some 40,000 cheap iterations are not worth the copies of their arrays, which most first calls find out."""
    for _ in range(40):  # a busy machine may make the host look slow
        loop = omp.target_loop(speculate=True)(counted)
        where = []
        with checked("sim:1"):
            for _ in range(5):
                p, y = permutation(20_000), np.zeros(20_000, int)
                check(loop, p, y)
                where.append(seen(loop, p, y)[1])
        if where.count("host") >= 3:
            break
    assert where.count("host") >= 3, where


@COMPILED
def test_a_profile_on_the_programs_arrays_is_found_out():
    """Were the beginning of a loop run on the arrays themselves, results would not be those of one run."""
    for function in (counted, hidden):
        loop = omp.target_loop(speculate=True)(function)
        arguments = (permutation(), *[np.zeros(LONG, int) for _ in range(1 + (function is hidden))])
        with checked("sim:1"), noted(), mock.patch.object(profiles, "copies_of", lambda _, given, *__, **___: given):
            loop(*arguments)
        assert (arguments[-1] > 1).any()


def test_what_the_inspector_refuses_runs_on_the_programs_arrays():
    """Nothing has run on the device by then; where the call alone has mapped the arrays, nothing is copied for that."""
    loop = omp.target_loop(speculate=omp.profile_dependences(counted, (permutation(9), np.zeros(9, int))))(counted)
    with checked("sim:1"), slow_host(), mock.patch.object(HostSide, "private", side_effect=AssertionError):
        for last in (0, LONG):  # two iterations that meet, one that is outside
            p, y = permutation(), np.zeros(LONG, int)
            p[-1] = last
            forget(loop)
            wanted, error = serial(counted, (p, y))
            with quiet(), contextlib.nullcontext() if error is None else pytest.raises(error):
                loop(p, y)
            assert np.array_equal(y, wanted[1])
    with checked("sim:1"), slow_host():
        p[-1], y[:] = 0, 7
        loop.options(map=[to("y")])(p, y)
        assert (y == 7).all()
