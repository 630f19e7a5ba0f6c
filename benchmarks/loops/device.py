"""Loops on a CUDA device beside kernels written by hand: what the kernels take, and what it takes to start them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import offload as omp
from benchmarks.harness.measuring import Section, Table, alternate, expect, pairwise, promise
from benchmarks.harness.programs import load_peer
from benchmarks.loops import programs
from offload import acc
from offload.errors import DeviceUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_KERNELS_AT_LEAST, _RAW_CHECKED_AT_LEAST = 0.95, 0.75
_CALL_US = 6.0
_REPLAY_AT_MOST = 1.2
_N_CALLS = 1000
_IN_GRAPH, _REPLAYED_SIZE = 20, 1 << 20
_TURN_S = 0.02
"""What a turn of one contestant takes, at least."""

PRESENT, UNCHECKED, CHECKED = "target_loop, present arrays", "device arrays, bounds=False", "device arrays"
PEER, REPLAYED = "RawKernel", "taskgraph / CuPy's graph"


@omp.target_loop
def saxpy(a: Any, x: Any, y: Any) -> None:
    """Add a multiple of a vector to another one."""
    for i in range(y.size):
        y[i] += a * x[i]


@omp.target_loop
def axpby(a: Any, b: Any, x: Any, y: Any, z: Any) -> None:
    """Combine two vectors."""
    for i in range(z.size):
        z[i] = a * x[i] + b * y[i]


five_point = omp.target_loop(collapse=2)(programs.five_point.python)
csr = omp.target_loop(programs.csr.python)
matmul = omp.target_loop(collapse=2)(programs.matmul.python)
histogram = omp.target_loop(atomic=["counts"])(programs.histogram.python)


@omp.target_loop
def csr_by_warps(pointers: Any, columns: Any, values: Any, x: Any, y: Any) -> None:
    """Multiply a sparse matrix by a vector; a gang has a row, and shares it."""
    for i in acc.loop(range(y.size), gang=True):
        s = 0.0
        for k in acc.loop(range(pointers[i], pointers[i + 1]), vector=True, reduction={"+": ["s"]}):
            s += values[k] * x[columns[k]]
        y[i] = s


@dataclass(frozen=True)
class Case:
    """A loop and its arguments on the device.

    Attributes
    ----------
    label : str
    loop : TargetLoop
        The peer's forms are made by the function of the same name.
    arguments : tuple
        The last one is the array that is written.
    dtype : str
        The peer's, of real numbers.
    """

    label: str
    loop: Any
    arguments: tuple[Any, ...]
    dtype: str = "float64"


def measure_kernels(repeat: int, scale: float = 1.0) -> Section:
    """Measure loops beside the best of several kernels by hand.

    Parameters
    ----------
    repeat : int
        Turns.
    scale : float
        Of the sizes, for a quick look.
    """
    return _on_cuda(partial(_kernels, repeat, scale))


def measure_launch(repeat: int, scale: float = 1.0) -> Section:
    """Measure what a call costs beyond a kernel that is started by hand. Parameters as `measure_kernels`."""
    return _on_cuda(partial(_launch, repeat, max(50, int(_N_CALLS * scale))))


def _on_cuda(measure: Callable[[ModuleType], Section]) -> Section:
    try:
        runtime = omp.Runtime("cuda:0")
    except DeviceUnavailableError as error:
        why, _, _ = str(error).partition("; ")
        return Section(skipped=f"needs a CUDA device: {why}")
    with runtime:
        return measure(load_peer("loops.loops_cupy"))


# -- kernels -----------------------------------------------------------------------------------------


def _kernels(repeat: int, scale: float, peers: ModuleType) -> Section:
    table = Table("Loops on a CUDA device, ms a call")
    ratios: dict[str, dict[str, list[float]]] = {PRESENT: {}, UNCHECKED: {}, CHECKED: {}}
    shapes = []
    for make in _cases(peers.cupy, scale):
        case = make()
        peer, by_hand = _peer(peers, case)
        shapes.append(f"{case.label}: {peer}")
        for name, samples in _measured(peers.synchronize, case, by_hand, repeat).items():
            table.rows.setdefault(name, {})[case.label] = [one * 1e3 for one in samples]
        for name, found in ratios.items():
            found[case.label] = pairwise(table.rows[PEER][case.label], table.rows[name][case.label])
    table.note = "The best by hand is " + "; ".join(shapes) + "."
    for name, found in ratios.items():
        table.rows[f"RawKernel / {name}"] = found
    doubles = [label for label in ratios[PRESENT] if label in PROMISED]
    return Section(
        {"kernels": table},
        [
            promise(
                f"RawKernel / {name}",
                {label: ratios[name][label] for label in doubles},
                _KERNELS_AT_LEAST,
                at_least=True,
            )
            for name in (PRESENT, UNCHECKED)
        ]
        + [promise(f"RawKernel / {CHECKED}", {"CSR": ratios[CHECKED]["CSR"]}, _RAW_CHECKED_AT_LEAST, at_least=True)],
    )


PROMISED = ("saxpy", "five-point", "CSR", "matmul", "histogram of 256", "histogram of 2^20")
"""The columns that something was promised about; the others are told beside."""


def _cases(cupy: Any, scale: float) -> list[Callable[[], Case]]:
    """Return what makes each loop and its arguments: one after another, since they are large."""
    made: list[Callable[[], Case]] = []
    for dtype in ("float64", "float32"):
        suffix = "" if dtype == "float64" else f", {dtype}"
        made.append(partial(_saxpy, cupy, f"saxpy{suffix}", int((1 << 27) * scale), dtype))
        made.append(partial(_five_point, cupy, f"five-point{suffix}", int(8192 * scale**0.5), dtype))
        made.append(partial(_csr, cupy, f"CSR{suffix}", csr, int((1 << 21) * scale), 27, dtype))
        made.append(partial(_matmul, cupy, f"matmul{suffix}", int(2048 * scale ** (1 / 3)), dtype))
    made.append(partial(_histogram, cupy, "histogram of 256", int((1 << 26) * scale), 256))
    made.append(partial(_histogram, cupy, "histogram of 2^20", int((1 << 26) * scale), 1 << 20))
    made.append(
        partial(_csr, cupy, "CSR, gang and vector, rows of 500", csr_by_warps, int((1 << 17) * scale), 500, "float64")
    )
    return made


def made_case(cupy: Any, label: str, scale: float, scatter: Any) -> Case:
    """Return one of these cases, or a scatter by a permutation, with this loop function."""
    match label:
        case "saxpy":
            return _saxpy(cupy, label, int((1 << 27) * scale), "float64")
        case "five-point":
            return _five_point(cupy, label, int(8192 * scale**0.5), "float64")
        case "histogram of 2^20":
            return _histogram(cupy, label, int((1 << 26) * scale), 1 << 20)
        case _:
            n = int((1 << 26) * scale)
            return Case(label, scatter, (cupy.random.permutation(n), _random(cupy, n, "float64"), cupy.zeros(n)))


def _random(cupy: Any, shape: Any, dtype: str) -> Any:
    return cupy.random.default_rng(1).random(shape, dtype=dtype)


def _saxpy(cupy: Any, label: str, n: int, dtype: str) -> Case:
    return Case(label, saxpy, (0.5, _random(cupy, n, dtype), cupy.zeros(n, dtype)), dtype)


def _five_point(cupy: Any, label: str, side: int, dtype: str) -> Case:
    return Case(label, five_point, (_random(cupy, (side, side), dtype), cupy.zeros((side, side), dtype)), dtype)


def _csr(cupy: Any, label: str, loop: Any, rows: int, width: int, dtype: str) -> Case:
    pointers = cupy.arange(rows + 1, dtype="i4") * width
    near = cupy.arange(rows)[:, None] + cupy.random.default_rng(2).integers(-20_000, 20_001, (rows, width))
    columns = cupy.clip(near, 0, rows - 1).astype("i4").ravel()
    del near
    return Case(
        label,
        loop,
        (pointers, columns, _random(cupy, rows * width, dtype), _random(cupy, rows, dtype), cupy.zeros(rows, dtype)),
        dtype,
    )


def _matmul(cupy: Any, label: str, edge: int, dtype: str) -> Case:
    a, b = _random(cupy, (edge, edge), dtype), _random(cupy, (edge, edge), dtype)
    return Case(label, matmul, (a, b, cupy.zeros((edge, edge), dtype)), dtype)


def _histogram(cupy: Any, label: str, n: int, bins: int) -> Case:
    values = cupy.random.default_rng(3).integers(0, bins, n, dtype="i4")
    return Case(label, histogram, (values, cupy.zeros(bins, "i4")))


def _peer(peers: ModuleType, case: Case) -> tuple[str, Callable[..., None]]:
    """Return the best of the forms by hand, with its name."""
    forms = getattr(peers, case.loop.python.__name__)(case.dtype)
    if case.loop is histogram:
        forms = {name: form for name, form in forms.items() if peers.fits(name, case.arguments[-1])}
    found: tuple[str, Callable[..., None]] = peers.best(forms, case.arguments)
    return found


def _measured(
    synchronize: Callable[[], object], case: Case, by_hand: Callable[..., None], repeat: int
) -> dict[str, list[float]]:
    """Return seconds a call, of the peer and of ours, when the results of all are alike."""
    written = case.arguments[-1]
    written[...] = 0
    by_hand(*case.arguments)
    expected = written.get()
    host = [array.get() if hasattr(array, "get") else array for array in case.arguments]
    host[-1][...] = 0
    last = list(case.loop.python.__code__.co_varnames)[len(host) - 1]
    ours = case.loop.options(nowait=True, depend=[omp.inout(last)])
    calls = {
        PEER: (by_hand, case.arguments),
        PRESENT: (ours, tuple(host)),
        UNCHECKED: (ours.options(bounds=False), case.arguments),
        CHECKED: (ours, case.arguments),
    }
    with omp.target_data(map=[omp.to(array) for array in host if isinstance(array, np.ndarray)]):
        for name, (call, arguments) in calls.items():
            if name != PRESENT:
                written[...] = 0
            call(*arguments)
            omp.taskwait()
            if name == PRESENT:
                omp.target_update(from_=[host[-1]])
            found = host[-1] if name == PRESENT else written.get()
            rtol = 1e-4 if case.dtype == "float32" else 1e-10
            expect(np.allclose(found, expected, rtol=rtol), f"{case.label}, {name}")
        times = max(3, round(_TURN_S / timed_s(synchronize, by_hand, case.arguments, 3)))
        return alternate({name: partial(timed_s, synchronize, *call, times) for name, call in calls.items()}, repeat)


def timed_s(
    synchronize: Callable[[], object], call: Callable[..., object], arguments: tuple[Any, ...], times: int
) -> float:
    """Return what one call takes of several that follow each other."""
    synchronize()
    began_s = time.perf_counter()
    for _ in range(times):
        call(*arguments)
    omp.taskwait()
    synchronize()
    return (time.perf_counter() - began_s) / times


# -- calls -------------------------------------------------------------------------------------------


def _launch(repeat: int, n_calls: int, peers: ModuleType) -> Section:
    cupy = peers.cupy
    x, y, z = (cupy.ones(1024) for _ in range(3))
    by_hand = peers.axpby()

    def in_body(call: Callable[..., object]) -> float:
        """Return µs a call in a target body."""

        @omp.target
        def body(x: Any, y: Any, z: Any) -> float:
            began_s = time.perf_counter()
            for _ in range(n_calls):
                call(2.0, 3.0, x, y, z)
            return (time.perf_counter() - began_s) * 1e6 / n_calls

        return float(body(x, y, z))

    def deferred(call: Callable[..., object]) -> float:
        """Return µs a call of a construct with ``nowait``, until all have completed."""
        began_s = time.perf_counter()
        for _ in range(n_calls):
            call(2.0, 3.0, x, y, z)
        omp.taskwait()
        return (time.perf_counter() - began_s) * 1e6 / n_calls

    @omp.target(nowait=True)  # type: ignore[untyped-decorator]  # with clauses it may be anything
    def started(a: float, b: float, x: Any, y: Any, z: Any) -> None:
        by_hand(a, b, x, y, z)

    z[...] = 0
    axpby(2.0, 3.0, x, y, z)
    expect(bool((z == 5).all()), "axpby")
    z[...] = 0
    started(2.0, 3.0, x, y, z)
    omp.taskwait()
    expect(bool((z == 5).all()), "axpby, RawKernel")
    loop, kernel, nowait, target = (
        "a loop in a body",
        "RawKernel in a body",
        "a loop, nowait",
        "target nowait of a RawKernel",
    )
    runs = alternate(
        {
            loop: partial(in_body, axpby),
            kernel: partial(in_body, by_hand),
            nowait: partial(deferred, axpby.options(nowait=True)),
            target: partial(deferred, started),
        },
        repeat,
    )
    table = Table("A call of a loop with three arrays and two scalars, µs", {name: {"µs": runs[name]} for name in runs})
    targets = []
    for one, other in ((loop, kernel), (nowait, target)):
        beyond = [ours - theirs for ours, theirs in zip(runs[one], runs[other], strict=True)]
        table.rows[f"{one}, beyond {other}"] = {"µs": beyond}
        targets.append(promise(f"{one}, beyond {other}, µs", {"µs": beyond}, _CALL_US))
    replays = _replays(repeat, n_calls // 10, peers, by_hand)
    over = replays.rows[REPLAYED]
    targets.append(promise("a replay, over CuPy's graph", over, _REPLAY_AT_MOST))
    return Section({"launch": table, "replay": replays}, targets)


def _replays(repeat: int, n_replays: int, peers: ModuleType, by_hand: Callable[..., None]) -> Table:
    """Measure replays of loops that follow each other, beside a graph of CuPy with the same kernels."""
    cupy = peers.cupy
    x, y, z = (cupy.ones(_REPLAYED_SIZE) for _ in range(3))

    @omp.taskgraph(nogroup=True)  # type: ignore[untyped-decorator]  # as above; calls do not wait, as launches do not
    def region(x: Any, y: Any, z: Any) -> None:
        for _ in range(_IN_GRAPH // 2):
            axpby.options(nowait=True, depend=[omp.in_(y), omp.inout(z)])(0.5, 0.5, x, y, z)
            axpby.options(nowait=True, depend=[omp.in_(z), omp.inout(y)])(0.5, 0.5, x, z, y)

    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        for _ in range(_IN_GRAPH // 2):
            by_hand(0.5, 0.5, x, y, z)
            by_hand(0.5, 0.5, x, z, y)
        graph = stream.end_capture()

    def ours() -> float:
        began_s = time.perf_counter()
        for _ in range(n_replays):
            region(x, y, z)
        omp.taskwait()
        return (time.perf_counter() - began_s) * 1e6 / n_replays

    def theirs() -> float:
        began_s = time.perf_counter()
        for _ in range(n_replays):
            graph.launch(stream)
        stream.synchronize()
        return (time.perf_counter() - began_s) * 1e6 / n_replays

    ours()
    (record,) = region.records
    expect(record.is_captured, f"replay ({record.why_not})")
    runs = alternate({"taskgraph": ours, "CuPy's graph": theirs}, repeat)
    expect(bool((y == 1).all()), "replay")
    table = Table(
        f"{_IN_GRAPH} loops of {_REPLAYED_SIZE:,} elements that follow each other, µs a replay",
        {name: {"µs": runs[name]} for name in runs},
    )
    table.rows[REPLAYED] = {"times": pairwise(runs["taskgraph"], runs["CuPy's graph"])}
    return table
