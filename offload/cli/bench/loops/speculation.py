"""Loops that are only probably parallel, beside the same loops plain, in order, and as serial C."""

from __future__ import annotations

import time
from contextlib import nullcontext
from functools import partial
from statistics import mean, median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from warnings import catch_warnings, simplefilter

import numpy as np

import offload as omp
from offload.cli.bench.loops import probably
from offload.cli.bench.loops.serial import SerialLoops
from offload.cli.bench.measuring import Section, Table, alternate, expect, pairwise, promise
from offload.cli.demo.examples import load_benchmark
from offload.errors import DeviceUnavailableError
from offload.loops.race import alone
from offload.loops.speculation import forget

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from offload.cli.bench.loops.probably import Loops, Program
    from offload.cli.bench.targets import Target

    Samples = list[float]

PLAIN, LOGGED, REMEMBERED, SERIAL = "plain, asserted", "logs in every launch", "remembered verdicts", "serial C"
BY_HAND = "RawKernel"
FIRST, PROFILE, OURS = "first call, inspector", "profile", "speculate=True"

_LOG_SHARE, _WORST_SHARE, _WORST_LOG = 0.28, 0.60, 2.2
_REMEMBERED, _INSPECTED = 1.05, 2.5
_OVER_SERIAL, _OVER_SERIAL_MEAN, _OVER_PLAIN = 3.2, 10.0, 0.95
_PROFILE = 10.0
_NEVER_SLOWER = 1.05
_CALLS, _NEVER_SIZE, _CHEAP = 100, 1 / 64, 10_000
_SIMULATED_SIZE: Final = 0.05
"""Up to here a simulated device will do, to show that it works."""

_SIMULATED: Final = "On a simulated device: the figures say nothing."


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
    with runtime:
        serial = SerialLoops()
        peers = load_benchmark("loops_cupy") if is_real else None
        whole = Table("Six programs with all copies, ms")
        calls = Table("One call, arrays present, ms")
        for make in probably.programs(size):
            _program(make(), serial, peers, repeat, whole, calls)
        never = _never_slower(max(3, repeat // 2), size * _NEVER_SIZE)
    if not is_real:
        whole.note = calls.note = never.note = _SIMULATED
    return Section(
        {"speculation": whole, "speculation_calls": calls, "never_slower": never}, _targets(whole, calls, never)
    )


# -- programs --------------------------------------------------------------------------------------------


def _program(program: Program, serial: Loops, peers: Any, repeat: int, whole: Table, calls: Table) -> None:
    """Measure one of the six programs, when all of its forms give one result."""
    profiles = {loop: _profile(program, loop) for loop in program.speculative}
    forms: dict[str, Loops] = {
        PLAIN: _loops(program),
        LOGGED: _loops(program, speculate="always"),
        REMEMBERED: _loops(program, profiles),
        SERIAL: serial,
    }
    before = {name: program.arrays[name].copy() for name in _changed(program)}
    results: dict[str, dict[str, Any]] = {}
    for name, loops in forms.items():
        _reset(program, before)
        _whole_s(program, name, loops)
        results[name] = {one: program.arrays[one].copy() for one in program.written}
        for one in program.written:
            is_right = np.allclose(results[name][one], results[PLAIN][one], rtol=1e-6, atol=1e-12)
            expect(is_right, f"{program.name}, {name}")

    def timed(name: str) -> float:
        _reset(program, before)
        return _whole_s(program, name, forms[name]) * 1e3

    ours = {name: partial(timed, name) for name in forms if name != SERIAL}
    for name, samples in (alternate(ours, repeat) | alternate({SERIAL: partial(timed, SERIAL)}, _few(repeat))).items():
        whole.rows.setdefault(name, {})[program.name] = samples
    _reset(program, before)
    _calls(program, forms, profiles, peers, repeat, calls)


def _calls(
    program: Program, forms: Mapping[str, Loops], profiles: Mapping[Any, Any], peers: Any, repeat: int, table: Table
) -> None:
    """Measure single calls of the loop that may be parallel."""
    fresh = _loops(program, profiles)

    def first() -> float:
        for loop in program.speculative:
            forget(getattr(fresh, loop.__name__))
        return _once_s(program, fresh) * 1e3

    def profiled() -> float:
        began_s = time.perf_counter()
        _profile(program, program.speculative[0])
        return (time.perf_counter() - began_s) * 1e3

    with _mapped(program):
        by_hand = {} if peers is None else {BY_HAND: _by_hand(program, peers)}
        measured: dict[str, Callable[[], float]] = {
            name: partial(_call_ms, program, name, forms[name]) for name in (PLAIN, LOGGED, REMEMBERED)
        }
        found = alternate({**by_hand, **measured, FIRST: first}, repeat)
    found |= alternate({SERIAL: partial(_call_ms, program, SERIAL, forms[SERIAL]), PROFILE: profiled}, _few(repeat))
    for name, samples in found.items():
        table.rows.setdefault(name, {})[program.name] = samples


def _few(repeat: int) -> int:
    """Return the turns of what takes some hundred times longer than the rest, and varies little."""
    return max(1, repeat // 3)


def _by_hand(program: Program, peers: Any) -> Callable[[], float]:
    """Return what times the kernel by hand, on arrays of its own."""
    name, host = program.speculative[0].__name__, _given(program)
    given = [peers.cupy.asarray(one) if isinstance(one, np.ndarray) else one for one in host]
    call = peers.probably(name, probably.n_iterations(name, host))

    def timed_ms() -> float:
        began_s = time.perf_counter()
        call(*given)
        peers.synchronize()
        return (time.perf_counter() - began_s) * 1e3

    return timed_ms


def _loops(program: Program, profiles: Mapping[Any, Any] | None = None, **clauses: Any) -> Any:
    """Return the loops of a program for the device; those that may be parallel with a profile, or with clauses."""
    made = {}
    for loop in program.speculative:
        given = clauses if profiles is None else {"speculate": profiles[loop]}
        made[loop.__name__] = omp.target_loop(**given)(loop)
    for loop in program.plain:
        reduction = {"reduction": {"+": ["s"]}} if loop is probably.dot else {}
        made[loop.__name__] = omp.target_loop(**reduction)(loop)
    return SimpleNamespace(**made)


def _profile(program: Program, loop: Any) -> Any:
    """Return what a run in order has seen of a loop, with its arguments in the program."""
    return omp.profile_dependences(loop, _given(program))


def _given(program: Program) -> tuple[Any, ...]:
    """Return the arguments of a call of the loop that may be parallel."""
    given: list[Any] = []

    def take(*arguments: Any) -> None:
        given.extend(arguments)

    program.once(SimpleNamespace(**{program.speculative[0].__name__: take}), program.arrays)
    return tuple(given)


def _changed(program: Program) -> list[str]:
    return [name for name, array in program.arrays.items() if array.dtype.kind == "f"]


def _reset(program: Program, before: Mapping[str, Any]) -> None:
    for name, values in before.items():
        program.arrays[name][...] = values


def _mapped(program: Program) -> AbstractContextManager[Any]:
    changed = _changed(program)
    maps = [omp.tofrom(array) if name in changed else omp.to(array) for name, array in program.arrays.items()]
    return omp.target_data(map=maps)


def _whole_s(program: Program, name: str, loops: Loops) -> float:
    """Return the seconds of a whole program, with all copies."""
    began_s = time.perf_counter()
    if name == SERIAL:
        program.run(loops, program.arrays, program.n_steps)
    else:
        with alone(name == LOGGED), _mapped(program):
            program.run(loops, program.arrays, program.n_steps)
    return time.perf_counter() - began_s


def _call_ms(program: Program, name: str, loops: Loops) -> float:
    with alone(name == LOGGED):
        return _once_s(program, loops) * 1e3


def _once_s(program: Program, loops: Loops) -> float:
    began_s = time.perf_counter()
    program.once(loops, program.arrays)
    return time.perf_counter() - began_s


# -- never slower ----------------------------------------------------------------------------------------


def _never_slower(repeat: int, size: float) -> Table:
    """Measure a hundred calls, against all on the device without logs, where that is legal, and all in order."""
    table = Table(f"{_CALLS} calls, ms")
    cases: list[tuple[str, Any, Callable[[int], Sequence[Any]], bool]] = []
    for make in probably.programs(size):
        program = make()
        cases.append((program.name, program.speculative[0], partial(_same, _given(program)), True))
    names = [name for name, *_ in cases]  # whose arrays are mapped around the calls; those of the others by each call
    n = max(256, int((1 << 24) * size))
    rng = np.random.default_rng(7)
    places, x = rng.permutation(n + 1), rng.random(n)
    hidden = (places[1:].copy(), places[:-1].copy(), x, np.zeros(n + 1))
    cases.append(("recurrence", probably.recurrence, partial(_same, hidden), False))
    few = rng.permutation(_CHEAP), rng.random(_CHEAP), np.zeros(_CHEAP)
    cases.append(("10^4 cheap iterations", probably.update, partial(_same, few), True))
    good, y = rng.permutation(n), np.zeros(n)
    bad = good.copy()
    bad[n // 2] = bad[0]
    cases.append(("collides on call 10", probably.update, lambda call: (bad if call == 10 else good, x, y), False))
    for name, loop, arguments, is_legal in cases:
        forms: dict[str, Any] = {OURS: {"speculate": True}, "in order on the host": {"seq": True, "if_": False}}
        if is_legal:
            forms["on the device"] = {}
        is_present = name in names
        measured = {
            form: partial(
                _hundred_ms,
                omp.target_loop(**clauses)(loop),
                arguments,
                is_present=is_present and "if_" not in clauses,
            )
            for form, clauses in forms.items()
        }
        for form, samples in alternate(measured, repeat).items():
            table.rows.setdefault(form, {})[name] = samples
    return table


def _same(given: Sequence[Any], _call: int) -> Sequence[Any]:
    return given


def _hundred_ms(loop: Any, arguments: Callable[[int], Sequence[Any]], *, is_present: bool) -> float:
    """Return what a hundred calls take of a loop that is compiled and remembers nothing."""
    forget(loop)
    arrays = [one for one in arguments(0) if isinstance(one, np.ndarray)]
    around = omp.target_data(map=[omp.tofrom(one) for one in arrays]) if is_present else nullcontext()
    with catch_warnings():
        simplefilter("ignore", omp.SpeculationWarning)
        began_s = time.perf_counter()
        with around:
            for call in range(_CALLS):
                loop(*arguments(call))
        return (time.perf_counter() - began_s) * 1e3


# -- promises --------------------------------------------------------------------------------------------


def _targets(whole: Table, calls: Table, never: Table) -> list[Target]:
    rows, names = whole.rows, list(whole.rows[PLAIN])
    share = {n: [r - 1 for r in pairwise(rows[LOGGED][n], rows[PLAIN][n])] for n in names}
    log = {n: pairwise(calls.rows[LOGGED][n], calls.rows[PLAIN][n]) for n in names}
    remembered = {n: pairwise(calls.rows[REMEMBERED][n], calls.rows[PLAIN][n]) for n in names}
    first = {n: pairwise(calls.rows[FIRST][n], calls.rows[PLAIN][n]) for n in names}
    over_serial = {n: [median(rows[SERIAL][n]) / one for one in rows[REMEMBERED][n]] for n in names}
    over_plain = {n: pairwise(rows[PLAIN][n], rows[REMEMBERED][n]) for n in names}
    profile = {n: [one / median(calls.rows[SERIAL][n]) for one in calls.rows[PROFILE][n]] for n in names}
    slower = {}
    for name, samples in never.rows[OURS].items():
        others = [median(row[name]) for form, row in never.rows.items() if form != OURS and name in row]
        slower[name] = [one / min(others) for one in samples]
    return [
        _in_the_mean("share of logs, whole programs", share, _LOG_SHARE),
        promise("share of logs, the worst", share, _WORST_SHARE),
        promise("a call with logs, over plain", log, _WORST_LOG),
        promise("remembered verdicts, a call over plain", remembered, _REMEMBERED),
        promise("the first call, with the inspector, over plain", first, _INSPECTED),
        promise("serial C over ours, whole programs", over_serial, _OVER_SERIAL, at_least=True),
        _in_the_mean("serial C over ours, in the mean", over_serial, _OVER_SERIAL_MEAN, at_least=True),
        _in_the_mean("plain over remembered, in the mean", over_plain, _OVER_PLAIN, at_least=True),
        promise("a profile, over serial C", profile, _PROFILE),
        promise(f"{_CALLS} calls, over the best single choice", slower, _NEVER_SLOWER),
    ]


def _in_the_mean(name: str, figures: Mapping[str, Samples], limit: float, *, at_least: bool = False) -> Target:
    figure = float(mean(median(samples) for samples in figures.values()))
    return promise(name, {"mean": [figure]}, limit, at_least=at_least)
