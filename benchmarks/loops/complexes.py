"""Loops of complex numbers beside the same by hand: the inner loops of NAS FT, and the Mandelbrot set.

On the host the peer is C, by the same compiler with the same options, on one thread; on a CUDA device it is the best of
several shapes of a `RawKernel`.
"""

from __future__ import annotations

import ctypes
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import offload as omp
from benchmarks.harness.measuring import Section, Table, alternate, expect, pairwise, promise
from benchmarks.harness.programs import load_peer
from benchmarks.loops.device import timed_s
from offload.errors import DeviceUnavailableError, UnsupportedError
from offload.loops.running.build import builder

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_AT_LEAST = 0.95
_M = 8
"""Of transforms of 2**M elements, many at a time."""
_LIMIT = 200
_TURN_S = 0.02

OURS, PEER = "the loop", "by hand"


def fftz2(sign: Any, l: Any, m: Any, u: Any, x: Any, y: Any) -> None:  # noqa: E741  # NAS's own names
    """Carry out step ``l`` of Stockham's transforms of ``2**m`` elements, one in each column."""
    n1 = x.shape[0] // 2
    lk = 1 << (l - 1)
    li = 1 << (m - l)
    for i in range(li):
        for k in range(lk):
            for j in range(x.shape[1]):
                w = u[li + i] if sign >= 1 else u[li + i].conjugate()
                a = x[i * lk + k, j]
                b = x[i * lk + k + n1, j]
                y[2 * i * lk + k, j] = a + b
                y[2 * i * lk + k + lk, j] = w * (a - b)


def evolve(u0: Any, u1: Any, twiddle: Any) -> None:
    """Let a field in Fourier space evolve by one step."""
    for i in range(u0.size):
        u0[i] = u0[i] * twiddle[i]
        u1[i] = u0[i]


def mandelbrot(counts: Any, limit: Any) -> None:
    """Count the steps after which points have left the circle."""
    for i in range(counts.shape[0]):
        for j in range(counts.shape[1]):
            c = complex(-2.0 + 3.0 * j / counts.shape[1], -1.5 + 3.0 * i / counts.shape[0])
            z = 0j
            k = 0
            while k < limit and z.real * z.real + z.imag * z.imag <= 4.0:
                z = z * z + c
                k += 1
            counts[i, j] = k


LOOPS: dict[str, tuple[Callable[..., None], int]] = {"fftz2": (fftz2, 3), "evolve": (evolve, 1)}
LOOPS["mandelbrot"] = mandelbrot, 2
"""The loops by name, each with the number of loops of its nest."""


def roots() -> np.ndarray[Any, Any]:
    """Return the table of roots of unity as NAS has it: those of step ``l`` begin at ``2**(m - l)``."""
    u = np.ones(1 << _M, complex)
    for j in range(_M):
        n = 1 << j
        u[n : 2 * n] = np.exp(1j * np.pi * np.arange(n) / n)
    return u


def cases(scale: float, side: int = 512) -> dict[str, tuple[str, tuple[Any, ...], int]]:
    """Return the columns: the loop, its arguments of the host, and the number of the one that is compared.

    ``side`` is that of the Mandelbrot set, in points.
    """
    rng = np.random.default_rng(1)

    def numbers(*shape: int) -> np.ndarray[Any, Any]:
        return rng.normal(size=shape) + 1j * rng.normal(size=shape)

    x = numbers(1 << _M, max(8, int((1 << 15) * scale)))  # as many as in class A of NAS
    found: dict[str, tuple[str, tuple[Any, ...], int]] = {}
    for step in (1, _M // 2, _M):
        found[f"fftz2, step {step}"] = "fftz2", (1, step, _M, roots(), x, np.zeros_like(x)), 5
    n = max(64, int((1 << 23) * scale))
    found["evolve"] = "evolve", (numbers(n), np.zeros(n, complex), np.exp(-rng.random(n) / 1e6)), 1
    side = max(16, int(side * scale**0.5))
    found["Mandelbrot"] = "mandelbrot", (np.zeros((side, side), np.int32), _LIMIT), 0
    return found


# -- the host ----------------------------------------------------------------------------------------


def measure(repeat: int, scale: float = 1.0) -> Section:
    """Measure on one thread of the host.

    Parameters
    ----------
    repeat : int
        Turns.
    scale : float
        Of the sizes, for a quick look.
    """
    table, ratios = Table("Loops of complex numbers on one thread of the host, ms a call"), {}
    with omp.Runtime("none", num_threads=1):
        for label, (name, arguments, compared) in cases(scale).items():
            function, depth = LOOPS[name]
            calls = {OURS: omp.parallel_loop(collapse=depth, num_threads=1)(function), PEER: _by_hand(name)}
            _check(label, calls, arguments, compared)
            runs = alternate({who: partial(_timed_s, call, arguments) for who, call in calls.items()}, repeat)
            for who, samples in runs.items():
                table.rows.setdefault(who, {})[label] = [one * 1e3 for one in samples]
            ratios[label] = pairwise(runs[PEER], runs[OURS])
    table.rows["by hand / the loop"] = ratios
    return Section({"complex": table}, [promise("C by hand / loops", ratios, _AT_LEAST, at_least=True)])


def _by_hand(name: str) -> Callable[..., None]:
    """Return a function of C, which is called as the loop function of that name is."""
    source = Path(__file__).with_name("complexes_by_hand.c")
    if builder.compiler is None or not source.exists():
        raise UnsupportedError(f"the peer needs a C compiler and {source}")
    function = ctypes.CFUNCTYPE(None)(builder.load(source.read_text(), name))

    def call(*arguments: Any) -> None:
        of = arguments[4].shape if name == "fftz2" else arguments[0].shape
        given = [*arguments, *of] if name != "mandelbrot" else [arguments[0], *of, arguments[1]]
        words = [ctypes.c_void_p(a.ctypes.data) if isinstance(a, np.ndarray) else ctypes.c_int64(a) for a in given]
        function(*words)

    return call


def _check(
    label: str, calls: dict[str, Callable[..., object]], arguments: tuple[Any, ...], compared: int, rtol: float = 0.0
) -> None:
    """Compare the results of all on copies of the arguments."""
    results = []
    for call in calls.values():
        given = [one.copy() if hasattr(one, "copy") else one for one in arguments]
        call(*given)
        omp.taskwait()
        made = given[compared]
        results.append(made.get() if hasattr(made, "get") else made)
    for name, one in zip(calls, results, strict=True):
        expect(np.allclose(one, results[0], rtol=rtol, atol=0.0), f"{label}, {name}")
        expect(bool(one.any()), f"{label}, {name}")


def _timed_s(call: Callable[..., object], arguments: tuple[Any, ...]) -> float:
    began_s = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - began_s


# -- a CUDA device -----------------------------------------------------------------------------------


def measure_on_cuda(repeat: int, scale: float = 1.0) -> Section:
    """Measure on a CUDA device. Parameters as `measure`."""
    try:
        runtime = omp.Runtime("cuda:0")
    except DeviceUnavailableError as error:
        why, _, _ = str(error).partition("; ")
        return Section(skipped=f"needs a CUDA device: {why}")
    with runtime:
        return _on_cuda(repeat, scale, load_peer("loops.complexes_cupy"))


def _on_cuda(repeat: int, scale: float, peers: ModuleType) -> Section:
    import cupy

    table, ratios, shapes = Table("Loops of complex numbers on a CUDA device, ms a call"), {}, []
    for label, (name, host, compared) in cases(4 * scale, side=2048).items():
        arguments = tuple(cupy.asarray(one) if isinstance(one, np.ndarray) else one for one in host)
        shape, by_hand = peers.best(getattr(peers, name)(), arguments)
        shapes.append(f"{label}: {shape}")
        function, depth = LOOPS[name]
        written = list(function.__code__.co_varnames)[compared]
        ours = omp.target_loop(collapse=depth)(function).options(nowait=True, depend=[omp.inout(written)])
        calls = {OURS: ours, PEER: by_hand}
        _check(label, calls, arguments, compared)
        synchronize = cupy.cuda.Device().synchronize
        times = max(3, round(_TURN_S / timed_s(synchronize, by_hand, arguments, 3)))
        runs = alternate(
            {who: partial(timed_s, synchronize, call, arguments, times) for who, call in calls.items()}, repeat
        )
        for who, samples in runs.items():
            table.rows.setdefault(who, {})[label] = [one * 1e3 for one in samples]
        ratios[label] = pairwise(runs[PEER], runs[OURS])
    table.rows["by hand / the loop"] = ratios
    table.note = "The best by hand is " + "; ".join(shapes) + "."
    return Section({"complex_cuda": table}, [promise("RawKernel / loops", ratios, _AT_LEAST, at_least=True)])
