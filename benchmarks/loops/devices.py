"""Loops on several devices beside one device and, where two GPUs copy to each other, beside programs by hand.

On one GPU: what ``devices=[0]`` costs, and what a kernel takes that is cut, or has tests, and owns everything. On two
or more: loops in their steady state beside one device, and loops that gain nothing by it, from their first call on.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import offload as omp
from benchmarks.harness.measuring import Section, Table, alternate, expect, pairwise, promise
from benchmarks.harness.programs import load_peer
from benchmarks.loops import programs
from benchmarks.loops.device import Case, axpby, made_case
from offload.errors import DeviceUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from benchmarks.harness.measuring import Target

_CALL_US, _CUT, _TESTED = 1.0, 1.02, 1.25
_BAD_AT_MOST, _N_BAD = 1.05, 300
_N_CALLS, _N_TIMED = 400, 10
_STEADY: Final = {"five-point": 1.80, "all pairs": 1.90, "CSR power iteration": 1.60}
"""Times one device's speed that two GPUs are to reach."""

_OF_BY_HAND = 0.95

SPLIT_OF: Final = {"saxpy": "cut", "five-point": "cut", "scatter": "tests", "histogram of 2^20": "tests"}
"""The kernels that are taken apart, and which kind each becomes."""


@omp.target_loop
def scatter(p: Any, x: Any, y: Any) -> None:
    """Put elements where a permutation says."""
    for i in range(x.size):
        y[p[i]] = x[i]


five_point = omp.target_loop(collapse=2)(programs.five_point.python)
csr = omp.target_loop(programs.csr.python)


@omp.target_loop
def all_pairs(x: Any, y: Any, z: Any, ax: Any, ay: Any, az: Any) -> None:
    """Add up what all bodies do to each."""
    for i in range(x.size):
        sx = 0.0
        sy = 0.0
        sz = 0.0
        for j in range(x.size):
            dx = x[j] - x[i]
            dy = y[j] - y[i]
            dz = z[j] - z[i]
            r2 = dx * dx + dy * dy + dz * dz + 0.01
            w = 1.0 / (r2 * np.sqrt(r2))
            sx += w * dx
            sy += w * dy
            sz += w * dz
        ax[i] = sx
        ay[i] = sy
        az[i] = sz


@omp.target_loop
def along_rows(r: Any) -> None:
    """Carry values along rows, each of which is an iteration."""
    for i in range(r.shape[0]):
        for j in range(1, r.shape[1]):
            r[i, j] -= 0.5 * r[i, j - 1]


@omp.target_loop
def along_columns(r: Any) -> None:
    """Carry values along columns."""
    for i in range(r.shape[1]):
        for j in range(1, r.shape[0]):
            r[j, i] -= 0.5 * r[j - 1, i]


def tiny(x: Any) -> None:
    """Do next to nothing."""
    for i in range(x.size):
        x[i] = 0.5 * x[i] + 1.0


def measure(repeat: int, scale: float = 1.0) -> Section:
    """Measure what can be measured on the GPUs that are there.

    Parameters
    ----------
    repeat : int
        Turns.
    scale : float
        Of the sizes, for a quick look.
    """
    try:
        runtime = omp.Runtime("cuda")
    except DeviceUnavailableError as error:
        why, _, _ = str(error).partition("; ")
        return Section(skipped=f"needs a CUDA device: {why}")
    tables: dict[str, Table] = {}
    targets: list[Target] = []
    with runtime:
        peers = load_peer("loops.loops_cupy")
        for one in (_calls, _kernels, _steady, measure_bad):
            if one in (_steady, measure_bad) and omp.get_num_devices() < 2:
                continue
            found = one(repeat, scale, peers)
            tables |= found.tables
            targets += found.targets
    if omp.get_num_devices() < 2:
        tables["devices_kernels"].note += " Loops on two GPUs are left out: there is one."
    return Section(tables, targets)


# -- one device --------------------------------------------------------------------------------------


def _calls(repeat: int, scale: float, _peers: ModuleType) -> Section:
    """Measure what a call with ``devices=[0]`` takes beyond one without."""
    arrays = [np.ones(1024) for _ in range(3)]
    n_calls = max(50, int(_N_CALLS * scale))
    plain = axpby.options(nowait=True)
    spread = axpby.options(nowait=True, devices=[0])

    def us(call: Callable[..., object]) -> float:
        began_s = time.perf_counter()
        for _ in range(n_calls):
            call(2.0, 3.0, *arrays)
        omp.taskwait()
        return (time.perf_counter() - began_s) * 1e6 / n_calls

    with omp.target_data(map=[omp.tofrom(array) for array in arrays]):
        source = [one.source(2.0, 3.0, *arrays) for one in (plain, spread)]
        expect(source[0] == source[1], "devices=[0], another kernel")
        runs = alternate({"without": partial(us, plain), "devices=[0]": partial(us, spread)}, repeat)
    table = Table("A call of a loop with three arrays and two scalars, µs", {name: {"µs": runs[name]} for name in runs})
    beyond = [ours - theirs for ours, theirs in zip(runs["devices=[0]"], runs["without"], strict=True)]
    table.rows["devices=[0], beyond"] = {"µs": beyond}
    return Section({"devices_calls": table}, [promise("devices=[0], beyond none, µs", {"µs": beyond}, _CALL_US)])


def _kernels(repeat: int, scale: float, peers: ModuleType) -> Section:
    """Measure kernels that are cut, or have tests, and own everything, beside the plain ones."""
    table = Table("A kernel of one of several devices, which owns everything, ms", note="Times of the device.")
    ratios: dict[str, dict[str, list[float]]] = {"cut": {}, "tests": {}}
    for label, kind in SPLIT_OF.items():
        case = made_case(peers.cupy, label, scale, scatter)
        whole = _whole(case)
        case.arguments[-1][...] = 0
        run_once(partial(case.loop, *case.arguments), case.arguments)
        expected = case.arguments[-1].copy()
        case.arguments[-1][...] = 0
        run_once(whole, case.arguments)
        expect(peers.cupy.allclose(case.arguments[-1], expected, rtol=1e-12), f"{label}, {kind}")
        calls: dict[str, Callable[[], object]] = {"plain": partial(case.loop, *case.arguments), kind: whole}
        runs = alternate({name: partial(_device_ms, call) for name, call in calls.items()}, repeat)
        for name, samples in runs.items():
            table.rows.setdefault(name, {})[label] = samples
        ratios[kind][label] = pairwise(runs[kind], runs["plain"])
    for kind, found in ratios.items():
        table.rows[f"{kind} / plain"] = found
    return Section(
        {"devices_kernels": table},
        [
            promise("a cut kernel, over its plain form", ratios["cut"], _CUT),
            promise("a kernel with tests, over its plain form", ratios["tests"], _TESTED),
        ],
    )


def _whole(case: Case) -> Callable[[], None]:
    """Return what starts, in a body, the kernel that the first of two devices has where the other owns nothing."""
    from offload.loops.running.cuda_runs import CudaRun
    from offload.loops.sets import device_runs

    program = case.loop._program  # noqa: SLF001  # no program has a way to this
    values = program.bound(case.arguments, {})
    spec = program.specialise(values)
    device = omp.current_runtime().places[0].device
    kernels: Any = device.kernels
    before = device_runs.weights_of
    device_runs.weights_of = lambda n_devices: (1, *[0] * (n_devices - 1))
    try:
        divided = device_runs.on_devices(spec, values, device, 2)
        (nest,) = divided.nests(None)
        blank = nest.taken("split").blanks[0]
    finally:
        device_runs.weights_of = before
    addresses = {name: device.address(values[name]) or 0 for name in spec.given}

    def call() -> None:
        stream = omp.current_stream()
        run = CudaRun(blank, values, {})
        run.prepare(addresses, kernels, device, stream)
        run.enqueue(kernels, device, stream)
        kept.append(run)

    kept: list[Any] = []
    return call


def run_once(call: Callable[[], object], arguments: Sequence[Any]) -> None:
    """Call in a body, which follows what the program's own stream has to do for these arguments."""

    @omp.target
    def body(*_: Any) -> None:
        call()

    body(*arguments)


def _device_ms(call: Callable[[], object]) -> float:
    """Return what a call in a body takes of the device, of several."""
    kernels: Any = omp.current_runtime().places[0].device.kernels
    found: list[Any] = []

    @omp.target
    def body() -> None:
        stream = omp.current_stream()
        found.append(kernels.time(stream))
        for _ in range(_N_TIMED):
            call()
        found.append(kernels.time(stream))

    body()
    return float(kernels.seconds(*found)) * 1e3 / _N_TIMED


# -- several devices ---------------------------------------------------------------------------------


def _steady(repeat: int, scale: float, peers: ModuleType) -> Section:
    """Measure time loops in their steady state, on all devices and on one."""
    n_devices = omp.get_num_devices()
    table = Table(f"Time loops on {n_devices} devices and on one, ms a step")
    gains: dict[str, list[float]] = {}
    targets = []
    for label, make in _PROGRAMS.items():
        step, arrays, written = make(scale)
        calls: dict[str, Callable[[], float]] = {}
        results = {}
        for name, words in (("one device", {"device": 0}), ("all devices", {"devices": "all"})):
            mine = [array.copy() for array in arrays]
            entered = omp.target_data(map=[omp.tofrom(array) for array in mine], **words)
            entered.__enter__()  # both stay mapped, so that turns alternate
            calls[name] = partial(_steps_ms, partial(step, mine, words))
            results[name] = mine, entered
        by_hand = peers.FivePoint(n_devices, *arrays) if label == "five-point" else None
        if by_hand is not None:
            calls["by hand"] = partial(_by_hand_ms, by_hand)
        runs = alternate(calls, repeat)
        for _, entered in results.values():
            entered.__exit__(None, None, None)
        (one, _), (every, _) = results.values()
        expect(np.allclose(one[written], every[written], rtol=1e-10), f"{label} on several devices")
        for name, samples in runs.items():
            table.rows.setdefault(name, {})[label] = samples
        gains[label] = pairwise(runs["one device"], runs["all devices"])
        if label in _STEADY:
            targets.append(promise(f"{label}, times one device", {label: gains[label]}, _STEADY[label], at_least=True))
        if by_hand is not None:
            of = pairwise(runs["by hand"], runs["all devices"])
            table.rows["by hand / all devices"] = {label: of}
            targets.append(promise(f"{label}, of a program by hand", {label: of}, _OF_BY_HAND, at_least=True))
    table.rows["one device / all devices"] = gains
    return Section({"devices_steady": table}, targets)


_STEPS = 20


def _steps_ms(step: Callable[[], object]) -> float:
    """Return what a step takes, of several, when ways have been tried and data is where it stays."""
    for _ in range(10):
        step()
    omp.taskwait()
    began_s = time.perf_counter()
    for _ in range(_STEPS):
        step()
    omp.taskwait()
    return (time.perf_counter() - began_s) * 1e3 / _STEPS


def _by_hand_ms(peer: Any) -> float:
    for _ in range(4):
        peer.step()
    peer.synchronize()
    began_s = time.perf_counter()
    for _ in range(_STEPS):
        peer.step()
    peer.synchronize()
    return (time.perf_counter() - began_s) * 1e3 / _STEPS


def _five_points(scale: float) -> tuple[Any, list[Any], int]:
    side = max(64, int(16384 * scale**0.5))
    a = np.random.default_rng(1).random((side, side))

    def step(arrays: list[Any], words: dict[str, Any]) -> None:
        loop = five_point.options(nowait=True, depend=[omp.in_("a"), omp.inout("b")], **words)
        loop(arrays[0], arrays[1])
        loop(arrays[1], arrays[0])

    return step, [a, a.copy()], 0


def _all_pairs(scale: float) -> tuple[Any, list[Any], int]:
    n = max(512, int((1 << 17) * scale))
    arrays = [*np.random.default_rng(2).random((3, n)), *np.zeros((3, n))]

    def step(arrays: list[Any], words: dict[str, Any]) -> None:
        all_pairs.options(**words)(*arrays)

    return step, [np.ascontiguousarray(array) for array in arrays], 3


def _power_iteration(scale: float) -> tuple[Any, list[Any], int]:
    rows, width = max(1024, int((1 << 22) * scale)), 27
    rng = np.random.default_rng(3)
    near = np.arange(rows)[:, None] + rng.integers(-20_000, 20_001, (rows, width))
    columns = np.clip(near, 0, rows - 1).astype(np.int32).ravel()
    pointers = (np.arange(rows + 1) * width).astype(np.int32)
    arrays = [pointers, columns, rng.random(rows * width) / width, rng.random(rows), np.zeros(rows)]

    def step(arrays: list[Any], words: dict[str, Any]) -> None:
        *matrix, x, y = arrays
        loop = csr.options(nowait=True, depend=[omp.in_("x"), omp.inout("y")], **words)
        loop(*matrix, x, y)
        loop(*matrix, y, x)

    return step, arrays, 3


def _recurrences(scale: float) -> tuple[Any, list[Any], int]:
    side = max(64, int(16384 * scale**0.5))

    def step(arrays: list[Any], words: dict[str, Any]) -> None:
        along_rows.options(nowait=True, depend=[omp.inout("r")], **words)(*arrays)
        along_columns.options(nowait=True, depend=[omp.inout("r")], **words)(*arrays)

    return step, [np.random.default_rng(4).random((side, side))], 0


_PROGRAMS: Final = {
    "five-point": _five_points,
    "all pairs": _all_pairs,
    "CSR power iteration": _power_iteration,
    "rows and columns in turn": _recurrences,
}
"""What makes each: a step, of two sweeps where two arrays take turns, its arrays, and which of these is compared.

Of recurrences in turn along rows and columns each step sends half of the matrix to each device, twice: what two devices
save at most is what half of the two loops takes, less that.
"""


def measure_bad(repeat: int, scale: float, _peers: ModuleType) -> Section:
    """Measure loops that gain nothing by several devices, from their first call on."""
    table = Table(f"{_N_BAD} calls from the first on, ms")
    ratios: dict[str, list[float]] = {}
    whys = []
    for label, (function, clauses, make) in BAD.items():
        arrays = make(scale)
        ways: dict[str, dict[str, Any]] = {
            "one device": {},
            "split": {"devices": "all", "filter": "always"},
            "all devices": {"devices": "all"},
        }
        found: dict[Any, str] = {}
        runs = alternate(
            {name: partial(_first_ms, function, {**clauses, **words}, arrays, found) for name, words in ways.items()},
            repeat,
        )
        for name, samples in runs.items():
            table.rows.setdefault(name, {})[label] = samples
        best = [min(one, split) for one, split in zip(runs["one device"], runs["split"], strict=True)]
        ratios[label] = pairwise(runs["all devices"], best)
        whys.append(f"{label}: {found['all', None]}")
    table.note = "Chosen: " + "; ".join(whys) + "."
    table.rows["all devices / the better one"] = ratios
    return Section({"devices_bad": table}, [promise("bad cases, over the better one", ratios, _BAD_AT_MOST)])


def _first_ms(function: Any, clauses: dict[str, Any], arrays: list[Any], modes: dict[Any, str]) -> float:
    """Return what calls of a loop take that has never been called, whose code is compiled; note its way."""
    fresh = omp.target_loop(function, nowait=True, depend=[omp.inout(arrays[-1])], **clauses)
    fresh.compile(*arrays)
    with omp.target_data(map=[omp.tofrom(array) for array in arrays], devices=clauses.get("devices")):
        omp.taskwait()
        began_s = time.perf_counter()
        for _ in range(_N_BAD):
            fresh(*arrays)
        omp.taskwait()
        took_ms = (time.perf_counter() - began_s) * 1e3
        modes[str(clauses.get("devices")), clauses.get("filter")] = fresh.explain(*arrays).to_dict()["filter"]["mode"]
    return took_ms


def _bad_scatter(scale: float) -> list[Any]:
    n = int((1 << 22) * scale)
    rng = np.random.default_rng(5)
    return [rng.permutation(n), rng.random(n), np.zeros(n)]


def _bad_histogram(scale: float) -> list[Any]:
    rng = np.random.default_rng(6)
    return [rng.integers(0, 1 << 20, int((1 << 24) * scale), dtype=np.int32), np.zeros(1 << 20, np.int32)]


BAD: Final[dict[str, tuple[Any, dict[str, Any], Callable[[float], list[Any]]]]] = {
    "histogram of 2^20": (programs.histogram.python, {"atomic": ["counts"]}, _bad_histogram),
    "scatter": (scatter.python, {}, _bad_scatter),
    "five-point, 512 x 512": (
        programs.five_point.python,
        {"collapse": 2},
        lambda _: [np.ones((512, 512)), np.zeros((512, 512))],
    ),
    "tiny loops": (tiny, {}, lambda _: [np.ones(64)]),
}
"""What makes each: a function, its clauses, and its arrays."""
