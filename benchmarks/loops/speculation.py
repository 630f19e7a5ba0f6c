"""Loops that are only probably parallel, beside the same loops plain, by hand, and as serial C.

Programs are large, and the serial C of some takes ten seconds a step. So it runs once, for one step and for two, and
the rest is reckoned; a profile is measured at a part of the size; results are compared on the device, after two steps.
What is known of a program is printed on stderr when it is known.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import mean, median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

import offload as omp
from benchmarks.harness.measuring import Section, Table, alternate, expect, pairwise, promise
from benchmarks.harness.programs import load_peer
from benchmarks.loops import failing, probably
from benchmarks.loops.never import CALLS, OURS, measure_never
from benchmarks.loops.serial import SerialLoops
from offload.errors import DeviceUnavailableError
from offload.loops.speculative.race import alone
from offload.loops.speculative.speculation import forget

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from benchmarks.harness.measuring import Target
    from benchmarks.loops.probably import Loops, Program

    Samples = list[float]

PLAIN, LOGGED, REMEMBERED, SERIAL = "plain, asserted", "logs in every launch", "remembered verdicts", "serial C"
BY_HAND = "RawKernel"
FIRST, PROFILE = "first call, inspector", "profile"

_LOG_SHARE, _WORST_SHARE, _WORST_LOG = 0.28, 0.60, 2.2
_REMEMBERED, _INSPECTED = 1.05, 2.5
_OVER_SERIAL, _OVER_SERIAL_MEAN, _OVER_PLAIN = 3.2, 10.0, 0.95
_PROFILE = 10.0
_NEVER_SLOWER = 1.05
_NEVER_SIZE: Final = 1 / 128
_FAILING_SIZE: Final = 1 / 2
_LITTLE: Final = 1 / 16
"""The part of the sizes at which a profile is measured, which takes up to ten times as long as serial C."""

_STEPS: Final = 2
"""Of programs whose results are compared."""

_SIMULATED_SIZE: Final = 0.05
"""Up to here a simulated device will do, to show that it works."""

_SIMULATED: Final = "On a simulated device: the figures say nothing."
_RECKONED: Final = "Serial C has run one step and two, once; what the others take follows from these."
_COPIERS: Final = 8


class Tables(NamedTuple):
    """What is measured of the six programs."""

    whole: Table
    calls: Table
    kernels: Table
    profiles: Table


def measure(repeat: int, size: float = 1.0) -> Section:
    """Measure six programs and single calls of their loops, and loops that have to run in order.

    Parameters
    ----------
    repeat : int
        Turns.
    size : float
        Of the arrays, for a quick look.
    """
    try:
        runtime, is_real = omp.Runtime("cuda:0"), True
    except DeviceUnavailableError as error:
        if size > _SIMULATED_SIZE:
            why, _, _ = str(error).partition("; ")
            return Section(skipped=f"needs a CUDA device: {why}")
        runtime, is_real = omp.Runtime("sim:1"), False
    tables = Tables(
        Table("Six programs with all copies, ms", note=_RECKONED),
        Table("One call, arrays present, ms"),
        Table("One call, its kernels alone, ms of the device"),
        Table("A profile beside serial C, at a sixteenth of the size, ms"),
    )
    with runtime:
        serial = SerialLoops()
        peers = load_peer("loops.loops_cupy") if is_real else None
        began_s = time.perf_counter()
        waiting, little = probably.programs(size), probably.programs(size * _LITTLE)
        _tell(f"{len(waiting)} programs made", began_s)
        while waiting:
            measured = _Measured(waiting.pop(0), little.pop(0), serial, peers, tables)
            measured.check()
            measured.whole(repeat)
            measured.calls(repeat)
            measured.profile(repeat)
            for table in tables:
                _tell_table(table, measured.name)
            _tell(measured.name, began_s)
            del measured
        never, allowed_ms = measure_never(max(3, repeat // 2), size * _NEVER_SIZE)
        for name in never.columns():
            _tell_table(never, name)
        failed = failing.measure(repeat, size * _FAILING_SIZE)
        for name in failed.columns():
            _tell_table(failed, name)
        _tell("all", began_s)
    if not is_real:
        for table in (*tables, never, failed):
            table.note = _SIMULATED
    names = ("speculation", "speculation_calls", "speculation_kernels", "speculation_profiles")
    found = {name: table for name, table in zip(names, tables, strict=True) if table.rows}
    targets = _targets(tables, never, allowed_ms) + failing.targets(failed)
    return Section({**found, "never_slower": never, "failing": failed}, targets)


def _tell(what: str, began_s: float) -> None:
    """Say how far it is, so that a run that is ended leaves what it has found."""
    sys.stderr.write(f"speculation: {what}, {time.perf_counter() - began_s:.0f} s\n")
    sys.stderr.flush()


def _tell_table(table: Table, column: str) -> None:
    for row, samples in table.rows.items():
        if column in samples:
            sys.stderr.write(f"  {column}: {table.title}: {row}: {median(samples[column]):.4g}\n")


# -- programs --------------------------------------------------------------------------------------------


class _Measured:
    """One of the six programs, and its forms.

    Parameters
    ----------
    program, little : Program
        The second one is much smaller.
    serial : SerialLoops
    peers : module or None
        What has the kernels by hand, where there is a GPU.
    tables : Tables
        Where samples go.
    """

    def __init__(self, program: Program, little: Program, serial: Loops, peers: Any, tables: Tables) -> None:
        self.program, self.little, self.serial, self.peers, self.tables = program, little, serial, peers, tables
        self.name = program.name
        self.profiles = {loop: _profile(little, loop) for loop in program.speculative}
        self.forms: dict[str, Loops] = {
            PLAIN: _loops(program),
            LOGGED: _loops(program, speculate="always"),
            REMEMBERED: _loops(program, self.profiles),
        }

    def check(self) -> None:
        """Compare the results of all forms after some steps; time the serial ones."""
        program, expected = self.program, dict[str, Any]()
        arrays: Any = np if self.peers is None else self.peers.cupy
        before = {name: program.arrays[name].copy() for name in program.changed}
        took_s = _whole_s(program, SERIAL, self.serial, 1)
        for name, loops in {SERIAL: self.serial, **self.forms}.items():
            _reset(program, before)
            both_s = _whole_s(program, name, loops, _STEPS)
            if name == SERIAL:
                took_s += max(both_s - took_s, 0.0) * (program.n_steps - 1)
            for one in program.written:
                got = arrays.array(program.arrays[one])
                is_right = arrays.allclose(got, expected.setdefault(one, got), rtol=1e-6, atol=1e-12)
                expect(is_right, f"{self.name}, {name}")
        self._enter(self.tables.whole, {SERIAL: [took_s * 1e3]})

    def whole(self, repeat: int) -> None:
        """Measure the program with all copies."""
        measured = {
            name: partial(_whole_s, self.program, name, loops, self.program.n_steps)
            for name, loops in self.forms.items()
        }
        found = alternate(measured, repeat)
        self._enter(self.tables.whole, {name: [one * 1e3 for one in samples] for name, samples in found.items()})

    def calls(self, repeat: int) -> None:
        """Measure single calls of the loop that may be parallel, and their kernels."""
        program, peers = self.program, self.peers
        fresh = _loops(program, self.profiles)

        def first() -> float:
            for loop in program.speculative:
                forget(getattr(fresh, loop.__name__))
            return _once_s(program, fresh) * 1e3

        with _mapped(program):
            by_hand = {} if peers is None else {BY_HAND: _by_hand(program, peers)}
            order = (PLAIN, REMEMBERED, LOGGED)  # neither of the first two pays for what a race has left to be cleared
            measured: dict[str, Callable[[], float]] = {
                name: partial(_call_ms, program, name, self.forms[name]) for name in order
            }
            self._enter(self.tables.calls, alternate({**by_hand, **measured, FIRST: first}, repeat))
            if peers is not None:
                kernels: dict[str, Callable[[], float]] = {
                    name: partial(peers.kernels_ms, call) for name, call in measured.items()
                }
                self._enter(self.tables.kernels, alternate(kernels, repeat))

    def profile(self, repeat: int) -> None:
        """Measure a profile beside serial C."""
        little = self.little

        def profiled() -> float:
            began_s = time.perf_counter()
            _profile(little, little.speculative[0])
            return (time.perf_counter() - began_s) * 1e3

        measured: dict[str, Callable[[], float]] = {
            SERIAL: partial(_call_ms, little, SERIAL, self.serial),
            PROFILE: profiled,
        }
        self._enter(self.tables.profiles, alternate(measured, max(3, repeat // 2)))

    def _enter(self, table: Table, found: Mapping[str, Samples]) -> None:
        for name, samples in found.items():
            table.rows.setdefault(name, {})[self.name] = samples


def _by_hand(program: Program, peers: Any) -> Callable[[], float]:
    """Return what times the kernel by hand, on arrays of its own."""
    name, host = program.speculative[0].__name__, probably.arguments_of(program)
    given = [peers.cupy.asarray(one) if isinstance(one, np.ndarray) else one for one in host]
    call = peers.probably(name, probably.n_iterations(name, host))

    def timed_ms() -> float:
        began_s = time.perf_counter()
        call(*given)
        peers.synchronize()
        return (time.perf_counter() - began_s) * 1e3

    return timed_ms


def _loops(program: Program, profiles: Mapping[Any, Any] | None = None, **clauses: Any) -> Any:
    """Return the loops of a program for the device; those that may be parallel with a profile, or with clauses.

    Without either they are said to be independent.
    """
    made = {}
    for loop in program.speculative:
        given = (clauses or {"independent": True}) if profiles is None else {"speculate": profiles[loop]}
        made[loop.__name__] = omp.target_loop(**given)(loop)
    for loop in program.plain:
        reduction = {"reduction": {"+": ["s"]}} if loop is probably.dot else {}
        made[loop.__name__] = omp.target_loop(**reduction)(loop)
    return SimpleNamespace(**made)


def _profile(program: Program, loop: Any) -> Any:
    """Return what a run in order has seen of a loop, with its arguments in the program."""
    return omp.profile_dependences(loop, probably.arguments_of(program))


def _reset(program: Program, before: Mapping[str, Any]) -> None:
    """Give arrays the contents that they had, by threads."""
    with ThreadPoolExecutor(_COPIERS) as threads:
        for name, values in before.items():
            n = max(1, -(-len(values) // _COPIERS))
            for begin in range(0, len(values), n):
                threads.submit(np.copyto, program.arrays[name][begin : begin + n], values[begin : begin + n])


def _mapped(program: Program) -> AbstractContextManager[Any]:
    changed = program.changed
    maps = [omp.tofrom(array) if name in changed else omp.to(array) for name, array in program.arrays.items()]
    return omp.target_data(map=maps)


def _whole_s(program: Program, name: str, loops: Loops, n_steps: int) -> float:
    """Return the seconds of a whole program of some steps, with all copies."""
    began_s = time.perf_counter()
    if name == SERIAL:
        program.run(loops, program.arrays, n_steps)
    else:
        with alone(name == LOGGED), _mapped(program):
            program.run(loops, program.arrays, n_steps)
    return time.perf_counter() - began_s


def _call_ms(program: Program, name: str, loops: Loops) -> float:
    with alone(name == LOGGED):
        return _once_s(program, loops) * 1e3


def _once_s(program: Program, loops: Loops) -> float:
    began_s = time.perf_counter()
    program.once(loops, program.arrays)
    return time.perf_counter() - began_s


# -- promises --------------------------------------------------------------------------------------------


def _targets(tables: Tables, never: Table, allowed_ms: Mapping[str, float]) -> list[Target]:
    rows, calls, kernels = tables.whole.rows, tables.calls.rows, tables.kernels.rows or tables.calls.rows
    names = list(rows[PLAIN])
    share = {n: [r - 1 for r in pairwise(rows[LOGGED][n], rows[PLAIN][n])] for n in names}
    log = {n: pairwise(kernels[LOGGED][n], kernels[PLAIN][n]) for n in names}
    remembered = {n: pairwise(calls[REMEMBERED][n], calls[PLAIN][n]) for n in names}
    first = {n: pairwise(calls[FIRST][n], calls[PLAIN][n]) for n in names}
    over_serial = {n: [median(rows[SERIAL][n]) / one for one in rows[REMEMBERED][n]] for n in names}
    over_plain = {n: pairwise(rows[PLAIN][n], rows[REMEMBERED][n]) for n in names}
    taken = tables.profiles.rows
    profile = {n: [one / median(taken[SERIAL][n]) for one in taken[PROFILE][n]] for n in names}
    slower = {}
    for name, samples in never.rows[OURS].items():
        others = [median(row[name]) for form, row in never.rows.items() if form != OURS and name in row]
        slower[name] = [(one - allowed_ms[name]) / min(others) for one in samples]
    return [
        _in_the_mean("share of logs, whole programs", share, _LOG_SHARE),
        promise("share of logs, the worst", share, _WORST_SHARE),
        promise("kernels of a call with logs, over plain", log, _WORST_LOG),
        promise("remembered verdicts, a call over plain", remembered, _REMEMBERED),
        promise("the first call, with the inspector, over plain", first, _INSPECTED),
        promise("serial C over ours, whole programs", over_serial, _OVER_SERIAL, at_least=True),
        _in_the_mean("serial C over ours, in the mean", over_serial, _OVER_SERIAL_MEAN, at_least=True),
        _in_the_mean("plain over remembered, in the mean", over_plain, _OVER_PLAIN, at_least=True),
        promise("a profile, over serial C", profile, _PROFILE),
        promise(
            f"{CALLS} calls, less what the first and races may take, over the best single choice", slower, _NEVER_SLOWER
        ),
    ]


def _in_the_mean(name: str, figures: Mapping[str, Samples], limit: float, *, at_least: bool = False) -> Target:
    figure = float(mean(median(samples) for samples in figures.values()))
    return promise(name, {"mean": [figure]}, limit, at_least=at_least)
