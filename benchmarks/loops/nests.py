"""Functions with several nests under ``kernels_loop(speculate=True)``, beside each single choice for all nests."""

from __future__ import annotations

import time
from contextlib import nullcontext
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from warnings import catch_warnings, simplefilter

import numpy as np

import offload as omp
from benchmarks.harness.measuring import Section, Table, alternate, best, expect, pairwise, promise
from offload import acc
from offload.errors import DeviceUnavailableError
from offload.loops.speculative.speculation import forget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OURS: Final = "speculate=True"
IN_ORDER, HOST, PLAIN, ASSERTED = "in order on the host", "on the host's threads", "on the device", "independent"
_SETTLES: Final = 24
"""Calls until the strategy is settled, which are not timed."""

_CALLS: Final = 10
_NEVER_SLOWER: Final = 1.05


class Case(NamedTuple):
    """A function, and the arguments of its calls.

    Attributes
    ----------
    is_legal : bool
        All nests may run in parallel.
    is_present : bool
        Its arrays are mapped around the calls, else by each.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    is_legal: bool
    is_present: bool


def proved(p: Any, x: Any, y: Any, z: Any) -> None:  # noqa: ARG001  # all have one signature
    for i in range(x.size):
        y[i] = x[i] * 0.5 + z[i]
    for i in range(x.size):
        z[i] = y[i] * y[i] + 1.0


def with_scatter(p: Any, x: Any, y: Any, z: Any) -> None:
    for i in range(x.size):
        y[i] = x[i] * 0.5 + 1.0
    for i in range(p.size):
        z[p[i]] = 0.5 * z[p[i]] + y[i]
    for i in range(x.size):
        x[i] = z[i] * 0.25


def with_recurrence(p: Any, x: Any, y: Any, z: Any) -> None:  # noqa: ARG001  # all have one signature
    for i in range(x.size):
        y[i] = x[i] * 0.5 + 1.0
    for i in range(1, x.size):
        z[i] = 0.5 * z[i - 1] + y[i]
    for i in range(x.size):
        x[i] = z[i] * 0.25


def with_short_recurrence(p: Any, x: Any, y: Any, z: Any) -> None:  # noqa: ARG001  # all have one signature
    for i in range(x.size):
        y[i] = x[i] * 0.5 + 1.0
    for i in range(1, 8):
        y[i] = 0.5 * y[i - 1] + z[i]
    for i in range(x.size):
        x[i] = y[i] * 0.25


def _cases(size: float) -> Iterator[Case]:
    n = max(256, int((1 << 23) * size))
    rng = np.random.default_rng(7)
    good = rng.permutation(n)
    bad = good.copy()
    bad[n // 2] = bad[0]
    for is_present in (True, False):
        where = "present" if is_present else "mapped"
        for name, function, p, is_legal in (
            ("proved", proved, good, True),
            ("scatter", with_scatter, good, True),
            ("scatter that collides", with_scatter, bad, False),
            ("recurrence", with_recurrence, good, False),
            ("short recurrence", with_short_recurrence, good, False),
        ):
            arguments = (p, *(rng.random(n) for _ in range(3)))
            yield Case(f"{name}, {where}", function, arguments, is_legal, is_present)


def measure(repeat: int, size: float = 1.0) -> Section:
    """Measure calls in the steady state, after they have settled for a strategy.

    Parameters
    ----------
    repeat : int
        Turns.
    size : float
        Of the arrays.
    """
    try:
        runtime = omp.Runtime("cuda:0")
    except DeviceUnavailableError:
        runtime = omp.Runtime("sim:1")
    table, ratios = Table("One call, ms"), dict[str, list[float]]()
    with runtime:
        table.note = f"On {runtime.places[0].device.name}; arrays of {int((1 << 23) * size):,} doubles."
        for case in _cases(size):
            forms: dict[str, dict[str, Any]] = {
                OURS: {"speculate": True},
                PLAIN: {},
                IN_ORDER: {"seq": True, "if_": False},
                HOST: {"if_": False},
            }
            if case.is_legal:
                forms[ASSERTED] = {"independent": True}
            loops = {form: acc.kernels_loop(**clauses)(case.function) for form, clauses in forms.items()}
            _check(case, loops[OURS])
            found = alternate({form: partial(_call_ms, case, loop) for form, loop in loops.items()}, repeat)
            for form, samples in found.items():
                table.rows.setdefault(form, {})[case.name] = samples
            others = [form for form in forms if form != OURS]
            ratios[case.name] = pairwise(found[OURS], found[best(found, others)])
    over = {name: [float(median(samples))] for name, samples in ratios.items()}
    return Section({"nests": table}, [promise("over the best single choice", over, _NEVER_SLOWER)])


def _check(case: Case, loop: Any) -> None:
    """Compare two calls with CPython's at a small size, where it takes no time."""
    small = [array[:200].copy() for array in case.arguments]
    small[0] = np.argsort(small[0])
    given, expected = [array.copy() for array in small], [array.copy() for array in small]
    with catch_warnings():
        simplefilter("ignore", omp.OffloadWarning)
        for _ in range(2):
            loop(*given)
            case.function(*expected)
    expect(all(map(np.array_equal, given, expected)), case.name)


def _call_ms(case: Case, loop: Any) -> float:
    """Return what a call takes, of a loop that has settled."""
    forget(loop)
    is_mapped = case.is_present and loop._is_offloaded  # noqa: SLF001  # the host's loops take host arrays
    around = acc.data(copy=list(case.arguments)) if is_mapped else nullcontext()
    with catch_warnings(), around:
        simplefilter("ignore", omp.OffloadWarning)
        for _ in range(_SETTLES):
            loop(*case.arguments)
        acc.wait()
        taken_s = []
        for _ in range(_CALLS):  # the quickest counts: a machine that others use is slow at times
            began_s = time.perf_counter()
            loop(*case.arguments)
            acc.wait()
            taken_s.append(time.perf_counter() - began_s)
        return min(taken_s) * 1e3
