"""One call whose speculation fails, against the loop in order and the copies that such a call makes."""

from __future__ import annotations

import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, Final
from warnings import catch_warnings, simplefilter

import numpy as np

import offload as omp
from benchmarks.harness.measuring import Table, alternate, expect, promise
from benchmarks.loops import probably
from offload.loops.speculative.speculation import forget

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.harness.measuring import Target

    Samples = list[float]

OURS, IN_ORDER, COPIES = "the call", "in order on the host", "copies"

_FULL, _LEAST = 1 << 23, 4096
"""Iterations: of the whole size, and at least."""

_SLOWER, _MORE_MS = 1.05, 1.0
_FIRST: Final = ", first call"


def measure(repeat: int, size: float) -> Table:
    """Measure calls of which two iterations meet, the last two, of loops that are inspected and that are raced.

    Nobody has seen them depend: the first call of a loop, and one with the profile of another input. Each call maps its
    arrays. The copies are those of what it maps, and of what the loop writes, to memory of the competitor and back.
    """
    n = max(_LEAST, int(_FULL * size))
    p, x = np.random.default_rng(8).permutation(n), np.random.default_rng(9).random(n)
    p[-1] = p[-2]
    table = Table("One call whose speculation fails, ms")
    for name, loop in (("inspected", probably.update), ("raced", probably.chase)):
        others = () if loop is probably.update else (np.zeros(n, np.int64),)
        given = (p, *others, x, np.zeros(n))
        good = (np.arange(100), *[one[:100].copy() for one in given[1:]])
        profile = omp.profile_dependences(loop, good)
        in_order = omp.target_loop(seq=True, if_=False)(loop)
        forms: dict[str, Any] = {
            name: omp.target_loop(speculate=profile)(loop),
            name + _FIRST: omp.target_loop(speculate=True)(loop),
        }
        for column, form in forms.items():
            calls = {
                OURS: partial(_call_ms, form, given),
                IN_ORDER: partial(_call_ms, in_order, given),
                COPIES: partial(_copies_ms, given, (*others, given[-1])),
            }
            _check(form, in_order, given)
            for row, samples in alternate(calls, repeat).items():
                table.rows.setdefault(row, {})[column] = samples
    return table


def targets(table: Table) -> list[Target]:
    """Return whether a call takes 1.05 times as long as the loop in order, its copies and a millisecond at most."""
    over = {}
    for column, samples in table.rows[OURS].items():
        in_order, copies = (median(table.rows[row][column]) for row in (IN_ORDER, COPIES))
        over[column] = [one - _SLOWER * in_order - copies for one in samples]
    return [promise("a call whose speculation fails, ms over 1.05 in order and copies", over, _MORE_MS)]


def _call_ms(loop: Any, given: Sequence[Any]) -> float:
    """Return what one call takes of a loop that is compiled and remembers nothing."""
    given[-1][...] = 0.0
    forget(loop)
    with catch_warnings():
        simplefilter("ignore", omp.SpeculationWarning)
        began_s = time.perf_counter()
        loop(*given)
        return (time.perf_counter() - began_s) * 1e3


def _copies_ms(given: Sequence[Any], written: Sequence[Any]) -> float:
    """Return what the copies take."""
    began_s = time.perf_counter()
    with omp.target_data(map=[omp.to(one) for one in given]):
        pass
    for one in written:
        one[...] = one.copy()
    return (time.perf_counter() - began_s) * 1e3


def _check(loop: Callable[..., Any], in_order: Callable[..., Any], given: Sequence[Any]) -> None:
    """Compare the results of both."""
    _call_ms(in_order, given)
    expected = given[-1].copy()
    _call_ms(loop, given)
    expect(np.array_equal(given[-1], expected), "a call whose speculation fails")
