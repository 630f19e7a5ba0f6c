"""What a loop leaves behind when iterations of it fail: what each of them had written before, as in Python.

Where iterations run beside each other the others do as well; where they run in order none follows the failed one.
"""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload.devices.sim.device import SimDevice
from tests.conftest import checked
from tests.loops.cuda_form import GXX
from tests.profiles import few

N = 40


def loaded(low, high, p, x, y):
    for i in range(low, high):
        y[i, 0] = 1.0
        y[i, 1] = x[p[i]]
        y[i, 2] = 2.0


def stored(low, high, p, x, y):
    for i in range(low, high):
        y[i, 0] = 3.0
        x[p[i]] = i
        y[i, 1] = 4.0


def branched(low, high, p, x, y):
    for i in range(low, high):
        if x[p[i]] > 5:
            y[i, 0] = 1.0
        else:
            y[i, 1] = 1.0
        if i % 2 == 0:
            y[i, 2] = 5.0


def looped(low, high, p, x, y):
    for i in range(low, high):
        for k in range(4):
            t = x[p[i] - 1 + k % 2]
            y[i, k] = t + k


def behind(low, high, p, x, y):
    for i in range(low, high):
        t = x[p[i]]
        for k in range(4):
            y[i, k] = t + k


def repeated(low, high, p, x, y):
    for i in range(low, high):
        k = 0
        while k < 4 and x[p[i]] >= 0:
            y[i, k] = 1.0
            k += 1
        y[i, 3] = 7.0


def divided(low, high, p, x, y):
    for i in range(low, high):
        y[i, 0] = 1.0
        y[i, 1] = 100 // (p[i] % 5)
        y[i, 2] = 2.0


def stepped(low, high, p, x, y):
    for i in range(low, high):
        for k in range(0, 4, p[i] % 5):
            y[i, k] = 1.0
        y[i, 3] = 2.0


def in_order(low, high, p, x, y):
    for i in range(low, high):
        y[i, 0], y[i, 1] = x[i], x[p[i]]


def atomic(low, high, p, x, h, y):
    for i in range(low, high):
        h[i % 7] += int(x[p[i]]) + 1
        y[i, 0] = 1.0


def exchanged(low, high, p, x, h, y):
    for i in range(low, high):
        t = x[p[i]]
        omp.atomic.add(h, i % 7, int(t) + 1)
        omp.atomic.cas(h, 7 + i, 0, i)


def summed(low, high, p, x, s):
    for i in range(low, high):
        s[()] += int(x[p[i]]) + 1


def left_over(low, high, p, x, t):
    for i in range(low, high):
        t[0] = i
        t[1] = x[p[i]]


def shared(low, high, p, x, y):
    for i in range(low, high):
        t = x[p[i]]
        y[i, 3] = t
        for k in omp.loop(range(3), bind="parallel"):
            y[i, k] = t + k


LOOPS = {
    **{
        one.__name__: (one, {})
        for one in (loaded, stored, branched, looped, behind, repeated, divided, stepped, in_order)
    },
    "atomic": (atomic, {"atomic": ["h"]}),
    "exchanged": (exchanged, {}),
    "summed": (summed, {"reduction": {"+": ["s"]}}),
    "left over": (left_over, {"lastprivate": ["t"]}),
    "shared": (shared, {}),
}
QUICK = {"loaded", "looped", "divided", "in_order", "atomic", "summed"}
WRONG = [[3, 20, N - 1], [], [0], [17]]


@pytest.fixture(params=["host", "sim", pytest.param("cuda", marks=pytest.mark.skipif(GXX is None, reason="no g++"))])
def construct(request, monkeypatch):
    """What makes loops of functions, in a runtime."""
    if request.param == "cuda":
        from tests.loops.cuda_device import HostCuda  # looks for compilers

        monkeypatch.setattr(SimDevice, "kernels", HostCuda())
    with checked("sim:1"):
        yield omp.parallel_loop if request.param == "host" else omp.target_loop


def arguments_of(name, wrong):
    """Return the arguments of a loop by name, in which these iterations fail."""
    rng = np.random.default_rng(1)
    p = rng.permutation(N) + 1
    p[p % 5 == 0] -= 1
    if name == "stored":
        p = np.arange(N)[::-1].copy()
    elif name not in {"divided", "stepped"}:
        p = np.clip(p, 1, N - 2)
    else:
        p += p % 5 == 0
    p[wrong] = 0 if name in {"divided", "stepped"} else 1000
    arguments = {"p": p, "x": np.arange(N) + 0.5, "y": np.zeros((N, 4)), "h": np.zeros(7 + N, int)}
    arguments |= {"s": np.zeros((), int), "t": np.zeros(2)}
    function = LOOPS[name][0]
    return {one: arguments[one] for one in function.__code__.co_varnames[2 : function.__code__.co_argcount]}


def run(loop, given, *, fails):
    """Run a loop, which fails or does not."""
    if fails:
        with pytest.raises((IndexError, ArithmeticError, ValueError)):
            loop(0, N, **given)
    else:
        loop(0, N, **given)


@pytest.mark.parametrize("name", few(QUICK, LOOPS))
@pytest.mark.parametrize("wrong", few(1, WRONG))
def test_iterations_end_where_they_fail(construct, name, wrong):
    """Each element is what the iterations make of it one by one, where those that fail end as Python's do."""
    function, clauses = LOOPS[name]
    expected, given = arguments_of(name, wrong), arguments_of(name, wrong)
    for i in range(N):
        before = {one: array.copy() for one, array in expected.items()} if name == "left over" else None
        try:
            with np.errstate(divide="raise"):
                function(i, i + 1, **expected)
        except (IndexError, FloatingPointError, ValueError):
            expected = before or expected  # an array of the iteration's own comes out of the last one, if that ends
    run(construct(**clauses)(function), given, fails=bool(wrong))
    for one, array in given.items():
        if name == "left over" and N - 1 in wrong:
            expected["t"] = np.zeros(2)
        assert (array == expected[one]).all(), one


@pytest.mark.parametrize("name", few(QUICK, LOOPS))
@pytest.mark.parametrize("wrong", few(1, WRONG))
def test_nothing_follows_an_iteration_in_order_that_fails(construct, name, wrong):
    """With ``seq`` a loop leaves what the undecorated function leaves, which stops where an iteration fails."""
    function, clauses = LOOPS[name]
    expected, given = arguments_of(name, wrong), arguments_of(name, wrong)
    with np.errstate(divide="raise"):
        run(function, expected, fails=bool(wrong))
    if name == "left over" and wrong:
        expected["t"] = np.zeros(2)  # an array of the iteration's own comes out of the last one
    run(construct(seq=True, **clauses)(function), given, fails=bool(wrong))
    for one, array in given.items():
        assert (array == expected[one]).all(), one
