"""A hundred calls of loops that are only probably parallel, beside the best single choice."""

from __future__ import annotations

import time
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from unittest.mock import patch
from warnings import catch_warnings, simplefilter

import numpy as np

import offload as omp
from benchmarks.harness.measuring import Table, alternate
from benchmarks.loops import probably
from offload.loops.speculative.race import race
from offload.loops.speculative.speculation import forget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

OURS: Final = "speculate=True"
IN_ORDER, ON_DEVICE = "in order on the host", "on the device"
CALLS: Final = 100
_CHEAP: Final = 10_000
_ALLOWED_MS: Final = 1.0
"""What a call may take of which nothing is known yet: the first; and one that races, besides its copies."""


class Case(NamedTuple):
    """A loop, the arguments of each call, and how it is called.

    Attributes
    ----------
    arguments : callable
        By the number of the call.
    is_legal : bool
        It may run in parallel with all of them.
    is_present : bool
        Its arrays are mapped around the calls, else by each.
    """

    name: str
    loop: Callable[..., Any]
    arguments: Callable[[int], Sequence[Any]]
    is_legal: bool
    is_present: bool


def measure_never(repeat: int, size: float) -> tuple[Table, dict[str, float]]:
    """Measure a hundred calls, against all on the device without logs, where that is legal, and all in order.

    Returns
    -------
    table : Table
    allowed_ms : dict of str to float
        By case, what the first call, and those that raced, may take besides: a millisecond each, and those that raced
        copies of what the loop writes, for the competitor and to be undone.
    """
    table, allowed_ms = Table(f"{CALLS} calls, ms"), dict[str, float]()
    for case in _cases(size):
        forms: dict[str, Any] = {OURS: {"speculate": True}, IN_ORDER: {"seq": True, "if_": False}}
        if case.is_legal:
            forms[ON_DEVICE] = {"independent": True}
        measured = {
            form: partial(
                _hundred_ms,
                omp.target_loop(**clauses)(case.loop),
                case.arguments,
                is_present=case.is_present and "if_" not in clauses,
            )
            for form, clauses in forms.items()
        }
        with _races() as raced:
            found = alternate(measured, repeat)
        for form, samples in found.items():
            table.rows.setdefault(form, {})[case.name] = samples
        allowed_ms[case.name] = _ALLOWED_MS + len(raced) / (repeat + 1) * (_ALLOWED_MS + _copies_ms(case))
    return table, allowed_ms


def _cases(size: float) -> Iterator[Case]:
    """Yield the six loops, a recurrence, a cheap loop, and one that collides once."""
    for program in probably.programs(size):
        given = probably.arguments_of(program)
        yield Case(program.name, program.speculative[0], partial(_same, given), is_legal=True, is_present=True)
    n = max(256, int((1 << 24) * size))
    rng = np.random.default_rng(7)
    places, x = rng.permutation(n + 1), rng.random(n)
    hidden = (places[1:].copy(), places[:-1].copy(), x, np.zeros(n + 1))
    yield Case("recurrence", probably.recurrence, partial(_same, hidden), is_legal=False, is_present=False)
    few = rng.permutation(_CHEAP), rng.random(_CHEAP), np.zeros(_CHEAP)
    yield Case("10^4 cheap iterations", probably.update, partial(_same, few), is_legal=True, is_present=False)
    good, y = rng.permutation(n), np.zeros(n)
    bad = good.copy()
    bad[n // 2] = bad[0]
    yield Case(
        "collides on call 10",
        probably.update,
        lambda call: (bad if call == 10 else good, x, y),
        is_legal=False,
        is_present=False,
    )


def _same(given: Sequence[Any], _call: int) -> Sequence[Any]:
    return given


@contextmanager
def _races() -> Iterator[list[None]]:
    """Give the list of the races in a block, which has an item for each."""
    raced: list[None] = []

    def counted(attempt: Any) -> Any:
        raced.append(None)
        return race(attempt)

    with patch("offload.loops.speculative.speculation.race", counted):
        yield raced


def _copies_ms(case: Case) -> float:
    """Return what two copies take of the arrays of floats that a loop may write."""
    arrays = [one for one in case.arguments(0) if isinstance(one, np.ndarray) and one.dtype.kind == "f"]
    took_ms = []
    for _ in range(3):
        began_s = time.perf_counter()
        for array in arrays:
            array.copy()
        took_ms.append((time.perf_counter() - began_s) * 1e3)
    return 2 * min(took_ms)


def _hundred_ms(loop: Any, arguments: Callable[[int], Sequence[Any]], *, is_present: bool) -> float:
    """Return what a hundred calls take of a loop that is compiled and remembers nothing."""
    forget(loop)
    arrays = [one for one in arguments(0) if isinstance(one, np.ndarray)]
    around = omp.target_data(map=[omp.tofrom(one) for one in arrays]) if is_present else nullcontext()
    with catch_warnings():
        simplefilter("ignore", omp.SpeculationWarning)
        began_s = time.perf_counter()
        with around:
            for call in range(CALLS):
                loop(*arguments(call))
        return (time.perf_counter() - began_s) * 1e3
