"""Sections in order: which loops have them, that nothing is invented or missed, and what comes where they are not."""

from __future__ import annotations

import random
from itertools import pairwise
from unittest import mock

import numpy as np
import pytest

import offload as omp
from offload.loops.speculative import log_runs
from offload.loops.speculative.log_runs import LoggedRun
from offload.loops.tree.slices import Maker
from offload.loops.watched import exchange_log, sections
from tests.conftest import checked
from tests.loops.speculation import noted, quiet
from tests.loops.steps import loop_of, truth, verdict
from tests.profiles import few

N = 40


def scale(pointers, factors, values):
    for i in range(factors.size):
        for k in range(pointers[i], pointers[i + 1]):
            values[k] *= factors[i]


def blocks(begin, length, values):
    for i in range(begin.size):
        first = begin[i]
        for k in range(first + 1, first + length[i]):
            values[k] = values[k - 1] + 1
        for j in range(length[i] - 1):
            values[first + length[i] - 2 - j] += values[first + length[i] - 1 - j]


def backwards(ends, values):
    for i in range(ends.size - 1, 0, -1):
        for k in range(ends[i] - 1, ends[i - 1] - 1, -1):
            values[k] = i


def branches(begin, length, values):
    for i in range(begin.size):
        first = begin[i]
        if length[i] > 2:
            first = first + 1
        for k in range(first, first + length[i]):
            values[k] = 2 * values[k]


def scattered(pointers, place, values):
    for i in range(pointers.size - 1):
        for k in range(pointers[i], pointers[i + 1]):
            values[place[k]] = 2 * values[place[k]]


def moved(begin, values):
    for i in range(begin.size):
        k = begin[i]
        while values[k] > 0:
            values[k] = 0
            k += 1


def single(place, values):
    for i in range(place.size):
        values[place[i]] = 2 * values[place[i]]


def rows(rng, most=5, dtype=np.int32):
    pointers = np.zeros(N + 1, dtype)
    np.cumsum(rng.integers(0, most, N), out=pointers[1:])
    return pointers


def cases(seed):
    """Return loops with sections, their arguments, and whether these are in order."""
    rng = np.random.default_rng(seed)
    dtype = [np.int8, np.int16, np.int32, np.int64][seed % 4]
    p = rows(rng, 3 if dtype is np.int8 else 5, dtype)
    begin, length = p[:-1].copy(), np.diff(p).astype(dtype)
    at = rng.permutation(N)
    values = np.ones(int(p[-1]) + 3)
    yield scale, (p, rng.random(N), values.copy()), True
    yield blocks, (begin, np.maximum(length, 1), values.copy()), not (length == 0).any()
    yield blocks, (begin[at], length[at], values.copy()), False
    yield backwards, (p, values.copy()), False
    tangled = p.copy()
    tangled[N // 2] = min(int(p[-1]), 100)
    yield scale, (tangled, rng.random(N), values.copy()), bool((np.diff(tangled.astype(int)) >= 0).all())
    longer = length.copy()
    longer[N // 3] += 2
    whole, stretched = np.arange(0, 2 * N, 2).astype(dtype), np.full(N, 2, dtype)
    yield blocks, (whole, stretched.copy(), np.ones(2 * N)), True
    stretched[N // 3] += 1
    yield blocks, (whole, stretched, np.ones(2 * N)), False
    yield blocks, (begin, longer, values.copy()), None


def touched(function, arguments):
    """Return what iterations access of `values`: of (iteration, kind, element)."""
    of = []

    class Watched(np.ndarray):
        def __getitem__(self, key):
            of.append((now[0], "load", int(key) % self.size))
            return super().__getitem__(key)

        def __setitem__(self, key, value):
            of.append((now[0], "store", int(key) % self.size))
            super().__setitem__(key, value)

    now = [0]

    def counted(*bounds):
        for number, value in enumerate(range(*bounds)):
            if depth[0] == 0:
                now[0] = number
            depth[0] += 1
            yield value
            depth[0] -= 1

    depth = [0]
    given = [one.copy() for one in arguments]
    given[-1] = given[-1].view(Watched)
    code = function.__globals__ | {"range": counted}
    type(function)(function.__code__, code)(*given)
    return of


@pytest.mark.parametrize("function", [scale, blocks, backwards], ids=lambda one: one.__name__)
def test_loops_whose_inner_loops_move_have_sections(function):
    """What is touched between two ends that index arrays give has no words."""
    arguments = next(given for one, given, _ in cases(2) if one is function)
    loop, _ = loop_of(function, arguments)
    assert loop.logged.sectioned == ("values",)
    assert loop.logged.storages == ()


@pytest.mark.parametrize("function", [branches, scattered, moved, single], ids=lambda one: one.__name__)
def test_others_have_words(function):
    """Ends that a branch, an element or a condition decides about cannot be had at the head; one element has a word."""
    p = rows(np.random.default_rng(1))
    arguments = {
        branches: (p[:-1], np.diff(p), np.ones(300)),
        scattered: (p, np.arange(p[-1]), np.ones(300)),
        moved: (p[:-1], np.ones(300)),
        single: (p, np.ones(300)),
    }[function]
    loop, _ = loop_of(function, arguments)
    assert loop.logged.sectioned == ()
    assert loop.logged.storages == ("values",)


@pytest.mark.parametrize("seed", few(3, range(25)))
def test_the_answer_is_exact(seed):
    """In any order of steps the verdict is what the accesses say; where sections are in order no words are needed."""
    for function, arguments, is_in_order in cases(seed):
        loop, values = loop_of(function, arguments)
        assert verdict(loop, values, random.Random(seed)) == truth(touched(function, arguments)), function
        if is_in_order is not None:
            assert loop.is_doubtful != is_in_order, function


@pytest.mark.parametrize("mode", few(1, ["always", True]))
@pytest.mark.parametrize("device", few(1, ["sim:1", "cuda"]))
def test_on_a_device(mode, device, request):
    """Results are the serial ones, whatever the order of rows; a doubt is settled once, then the loop has words."""
    if device == "cuda":
        request.getfixturevalue("cuda")
    loops = {one: omp.target_loop(one, speculate=mode) for one in (scale, blocks, backwards)}
    with checked("sim:1") if device != "cuda" else mock.MagicMock():
        for seed in (2, 3):
            for function, arguments, _ in cases(seed):
                expected = [one.copy() for one in arguments]
                function(*expected)
                is_parallel = truth(touched(function, arguments))
                given = [one.copy() for one in arguments]
                with noted() as found, quiet():
                    loops[function](*given)
                assert all(np.array_equal(got, right) for got, right in zip(given, expected, strict=True))
                if mode == "always":
                    assert [one is None for one in found][:1] == [is_parallel]


def test_no_words_are_made(sim):
    """A log by sections takes no memory but its flag, be it cut into chunks."""
    p, factors = rows(np.random.default_rng(3)), np.full(N, 2.0)
    values = np.ones(p[-1])
    loop = omp.target_loop(scale, speculate="always")
    sizes = []

    def close(run, of=LoggedRun.close):
        sizes.append((run.loop.logged.n_cells, run.logged))
        of(run)

    def launch(run, begin, end, of=LoggedRun.launch):
        cuts = [begin, *[cut for cut in (7, 31) if begin < cut < end], end]
        for first, last in pairwise(cuts):
            of(run, first, last)

    with mock.patch.object(LoggedRun, "close", close), mock.patch.object(LoggedRun, "launch", launch), noted():
        loop(p, factors, values)
    assert sizes == [({}, ("values",))]
    assert (values == 2).all()


def test_what_the_rows_say_is_remembered(sim):
    """An inspector that compares ends alone gives a verdict, and the next call asks for nothing."""
    p, factors = rows(np.random.default_rng(3)), np.full(N, 2.0)
    values = np.ones(p[-1])
    profile = omp.profile_dependences(scale, (p, factors, values))
    loop = omp.target_loop(scale, speculate=profile)
    with omp.target_data(map=[omp.to(p, factors), omp.tofrom(values)]), noted() as found:
        for _ in range(3):
            loop(p, factors, values)
    assert found == [None]
    assert (values == 8).all()


@pytest.mark.parametrize("low", [-5, 3])
def test_rows_outside_of_their_array(sim, low):
    """A section that is not inside of its array is in no order: the exact log or the serial program says what it is."""
    begin, length = np.arange(low, low + 3 * N, 3), np.full(N, 3)
    values = np.arange(3.0 * N)
    expected = values.copy()

    def twice(begin, length, values):
        for i in range(begin.size):
            for k in range(begin[i], begin[i] + length[i]):
                values[k] *= 2

    loop = omp.target_loop(twice, speculate="always")
    if low > 0:
        with noted(), quiet(), pytest.raises(IndexError):
            loop(begin, length, values)
        return
    twice(begin, length, expected)
    with noted() as found, quiet():
        loop(begin, length, values)
    assert found == [None, None]  # in doubt, and settled
    assert (values == expected).all()


def test_memory_for_words_may_be_missing(sim):
    """Where there is none to settle a doubt the loop runs in order, in a race and behind an inspector."""
    p = rows(np.random.default_rng(5))
    at = np.random.default_rng(6).permutation(N)
    begin, length = p[:-1][at].copy(), np.diff(p)[at].copy()

    def doubled(begin, length, values):
        for i in range(begin.size):
            for k in range(begin[i], begin[i] + length[i]):
                values[k] *= 2

    def refuse(*_args):
        raise omp.DeviceMemoryError("none left")

    profile = omp.profile_dependences(doubled, (begin, length, np.ones(p[-1])))
    for mode in ("always", profile):
        values = np.ones(p[-1])
        with noted(), mock.patch.object(log_runs.Log, "_made", refuse), quiet():
            omp.target_loop(doubled, speculate=mode)(begin, length, values)
        assert (values == 2).all()


def verdicts_are_right():
    """Tell whether some verdicts are what the accesses say, and rows that touch each other are in order."""
    for seed in range(8):
        for function, arguments, is_in_order in cases(seed):
            loop, values = loop_of(function, arguments)
            try:
                if verdict(loop, values, random.Random(seed)) != truth(touched(function, arguments)):
                    return False
            except IndexError:
                return False
            if is_in_order and loop.is_doubtful:
                return False
    return True


@pytest.mark.mutants
@pytest.mark.parametrize("mutant", ["next one not asked", "this one again", "lows alone", "one too many", "no doubt"])
def test_mutants(monkeypatch, mutant):
    """A comparison that is slightly wrong is found out."""
    assert verdicts_are_right()
    monkeypatch.undo()
    compare, extreme = Maker.compare, exchange_log.LogWriter.extreme
    if mutant == "next one not asked":
        monkeypatch.setattr(
            Maker, "compare", lambda m, a, o, b: compare(m, a, "==" if getattr(b, "name", "") == "w_many" else o, b)
        )
    elif mutant == "this one again":
        monkeypatch.setattr(exchange_log, "following", lambda one, *_: one)
    elif mutant == "lows alone":
        monkeypatch.setattr(
            exchange_log.LogWriter, "extreme", lambda log, _, values, lines: extreme(log, "min", values, lines)
        )
    elif mutant == "one too many":
        monkeypatch.setattr(sections, "_sum", lambda value, _: value)
    else:
        monkeypatch.setattr(exchange_log, "opened", lambda log: log.make.let(log.fresh("w_u"), log.make.number(0)))
    assert not verdicts_are_right()
