"""Logs that are slightly wrong: each is found out by the rows of the table, by a second loop, or by a call to come."""

from __future__ import annotations

import random

import numpy as np
import pytest

import offload as omp
from offload import release, to
from offload.loops.running.specialise import Specialisation
from offload.loops.speculative import log_runs, speculation, verdict_memory
from offload.loops.speculative.log_runs import Log
from offload.loops.speculative.race import alone
from offload.loops.tree.slices import Maker
from offload.loops.watched import exchange_log
from tests.conftest import checked
from tests.loops.speculation import VECTORS, made, quiet
from tests.loops.steps import Words, loop_of, verdict

pytestmark = [pytest.mark.mutants, pytest.mark.usefixtures("free_core")]

N = 12


def rows_are_right():
    """Tell whether the log says of each row what the table says, run after run with the same words."""
    rng = random.Random(3)
    for vector in VECTORS:
        loop, values = loop_of(vector.function(), tuple(vector.values()))
        words = Words()
        if any(verdict(loop, values, rng, words) != vector.is_parallel for _ in range(3)):
            return False
    return True


def own_write_is_own():
    """Tell whether a read of what the iteration may have written passes."""
    text = "if q[i]:\n            a[p[i]] = 1\n        b[i] = a[p[i]]"
    arrays = np.zeros(9), np.zeros(9), np.arange(9), np.ones(9, int)
    loop, values = loop_of(made(text, "a", "b", "p", "q"), (*arrays, 9))
    return verdict(loop, values, random.Random(5))


def two_loops_in_a_row():
    """Tell whether a loop that uses what the one before has written passes, and passes again."""

    def fill(p, y):
        for i in range(p.size):
            y[p[i]] = y[p[i]] + i

    with checked("sim:1"), quiet(), alone():
        loop = omp.target_loop(fill, speculate="always")
        p, y = np.random.default_rng(1).permutation(N), np.zeros(N)
        last = []
        omp.target_enter_data(map=[to(p, y)])
        for shift in (0, 1, 2):
            p[:] = np.roll(p, shift)
            omp.target_update(to=[p])
            loop(p, y)
            last.append(loop.explain(p, y).to_dict()["speculation"]["last"])
        omp.target_exit_data(map=[release(p, y)])
        return last == ["device"] * 3


def shifted(p, y, by):
    for i in range(p.size):
        y[(p[i] * by) % 12] = i


def calls_are_right(change):
    """Tell whether a call whose indices or scalar are others is right, after one that was remembered."""
    with checked("sim:1", seed=4), quiet(), alone():
        loop = omp.target_loop(shifted, speculate=True)
        p, y, expected = np.arange(N), np.zeros(N, int), np.zeros(N, int)
        omp.target_enter_data(map=[to(p, y)])
        for _ in range(3):
            loop(p, y, 1)
        by = 1
        if change == "contents":
            p[:] = 3 * (p // 3)
            omp.target_update(to=[p])
        else:
            by = 4
        loop(p, y, by)
        omp.target_update(from_=[y])
        omp.target_exit_data(map=[release(p, y)])
        shifted(p, expected, by)
        changed = np.unique(p * by % 12)
        return bool((y[changed] == expected[changed]).all())


def test_without_a_mutant():
    """What is asked of mutants holds of what they are made from."""
    assert rows_are_right()
    assert own_write_is_own()
    assert two_loops_in_a_row()
    assert calls_are_right("contents")
    assert calls_are_right("scalar")


def test_greater_or_equal(monkeypatch):
    """``old >= base``: the words of no loop at all are called another iteration's."""
    compare = Maker.compare
    monkeypatch.setattr(
        Maker, "compare", lambda self, left, op, right: compare(self, left, ">=" if op == ">" else op, right)
    )
    assert not rows_are_right()


def test_the_base_stays(monkeypatch):
    """A base that is not raised: what the loop before has left is called another iteration's."""
    monkeypatch.setattr(Log, "close", Log.give_back)
    assert not two_loops_in_a_row()


def test_no_pass(monkeypatch):
    """Without the pass a writer and another reader never meet."""
    monkeypatch.setattr(log_runs.LoggedLoop, "passes", lambda self, where: [])
    vector = next(vector for vector in VECTORS if vector.text.startswith("y[i] = a[5"))
    function, arguments = vector.function(), vector.values()
    with checked("sim:1", seed=1), alone():
        loop = omp.target_loop(function, speculate="always")
        loop(*arguments)
        assert loop.explain(*arguments).to_dict()["speculation"]["last"] == "device"


def test_the_own_write_is_anothers(monkeypatch):
    """A read after the own write that is logged as another iteration's meets it."""
    load = exchange_log.LogWriter.load

    def mutant(self, place):
        name, self.id = self.id, self.first
        try:
            return load(self, place)
        finally:
            self.id = name

    monkeypatch.setattr(exchange_log.LogWriter, "load", mutant)
    assert not own_write_is_own()


@pytest.mark.parametrize("change", ["scalar", "contents"])
def test_verdicts_without_scalars_or_versions(monkeypatch, change):
    """Verdicts that are remembered without the scalars, or without the versions, let a call through that collides."""
    verdict_key, call_key = speculation.key_from, Specialisation.key

    def without_versions(*args):
        found = verdict_key(*args)
        return None if found is None else found[:3]

    if change == "scalar":
        monkeypatch.setattr(Specialisation, "key", lambda *args: (call_key(*args)[0], ()))
    else:
        for module in (speculation, verdict_memory):
            monkeypatch.setattr(module, "key_from", without_versions)
    assert not calls_are_right(change)
