"""``benchmarks/run.py parray``: typed copies on the host, what a call adds, what plans cost, copies over threads."""

from __future__ import annotations

import os
import platform
import time
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

import offload as omp
from benchmarks.harness import sections
from benchmarks.harness.measuring import Section, Table, alternate, expect, pairwise, promise
from offload.parray import ArrayType, copy, dim, disp, plan, threads

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

_SIDE = 4096
_TEAMS = (4, 16)
_N_CALLS = 200
_N_WINDOWS = 100
_OTHER_OF_NUMPY, _TURNED_OF_NUMPY = 0.95, 2.0
_ADDED_US, _COLD_MS, _WINDOW_US, _BOX_US = 20.0, 2.0, 200.0, 10.0

OURS, NUMPY = "copy", "np.copyto"
TYPED, RECT = "copy", "target_memcpy_rect"

_fresh = count(1)
"""Numbers that make types which were never planned before."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Measure typed copies: host (transpositions and other boxes beside NumPy's assignment of the same views), "
        "calls (what a warm call adds to target_memcpy_rect of ready-made views, on the host and in a simulated "
        "device), cold (types made from nothing and their plan), threads (a list of arrays to another one, beside the "
        "same boxes one by one). Results are checked before they are timed. It reports: the exit status is 0 also "
        "where targets are missed."
    )
    sections.add_choice(parser, SECTIONS)
    sections.add_repeat(parser)
    sections.add_forms(parser)


def run(args: argparse.Namespace) -> int:
    """Run the benchmark.

    Raises
    ------
    ClauseError
        A number below 1.
    InternalError
        A result was wrong.
    """
    sections.check_repeat(args)
    measures = {name: partial(_measure, name, args.repeat) for name in SECTIONS if name in (args.section or SECTIONS)}
    machine = {
        "cores": str(len(os.sched_getaffinity(0))),
        "load": f"{os.getloadavg()[0]:.1f}",
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        "offload": omp.__version__,
    }
    sections.show(args, sections.measure_each(measures, machine, args.repeat))
    return 0


def _measure(name: str, repeat: int) -> Section:
    with omp.Runtime("sim"):
        return SECTIONS[name](repeat)


def _took_ms(call: Callable[[], Any]) -> float:
    began_s = time.perf_counter()
    call()
    return (time.perf_counter() - began_s) * 1e3


def _each_us(n_calls: int, call: Callable[[], Any]) -> float:
    began_s = time.perf_counter()
    for _ in range(n_calls):
        call()
    return (time.perf_counter() - began_s) / n_calls * 1e6


# -- sections --------------------------------------------------------------------------------------------


def _host(repeat: int) -> Section:
    n = _SIDE
    A, shift = ArrayType((n, n)), n // 16
    part = n - shift
    turned = ArrayType((A[1], A[0]))
    window = ArrayType((dim(part, disp(shift), A[0]), dim(part, disp(shift), A[1])))
    B = ArrayType((n // 64, 64, n // 64, 64))
    blocked = ArrayType((B[0], B[2], B[1], B[3]))
    mixed = ArrayType((n // 64, n // 64, 64, 64))

    def plain(x: Any) -> Any:
        return x.reshape(n, n)

    def inner(x: Any) -> Any:
        return plain(x)[shift:, shift:]

    cases: list[tuple[str, str, ArrayType, ArrayType, Any, Any]] = [
        (f"transposition {n}² {dtype}", dtype, A, turned, plain, lambda x: x.reshape(n, n).T)
        for dtype in ("f8", "f4", "c16", "u1")
    ]
    cases += [
        ("window", "f8", window, ArrayType((part, part)), inner, lambda x: x.reshape(part, part)),
        (
            "blocks of 64 x 64",
            "f8",
            mixed,
            blocked,
            lambda x: x.reshape(n // 64, n // 64, 64, 64),
            lambda x: x.reshape(n // 64, 64, n // 64, 64).transpose(0, 2, 1, 3),
        ),
        ("contiguous", "f8", A, A, plain, plain),
    ]
    table = Table("Typed copies on the host, ms")
    ratios: dict[str, list[float]] = {}
    for name, dtype, source, target, at, to in cases:
        s = np.random.default_rng(1).integers(0, 120, source.span * np.dtype(dtype).itemsize, "u1").view(dtype)
        t = np.zeros(target.span, dtype)
        copy(source, s, to=(target, t))
        expect((to(t) == at(s)).all(), name)
        calls: dict[str, Callable[[], Any]] = {
            OURS: partial(_took_ms, partial(copy, source, s, to=(target, t))),
            NUMPY: partial(_took_ms, partial(np.copyto, to(t), at(s))),
        }
        rates = alternate(calls, repeat)
        table.rows[name] = rates
        ratios[name] = pairwise(rates[NUMPY], rates[OURS])
    is_promised = (f"transposition {n}² f8", f"transposition {n}² f4")
    large = {name: one for name, one in ratios.items() if name in is_promised}
    others = {name: one for name, one in ratios.items() if not name.startswith("transposition")}
    targets = [
        promise("transpositions: over np.copyto", large, _TURNED_OF_NUMPY, at_least=True),
        promise("other boxes: over np.copyto", others, _OTHER_OF_NUMPY, at_least=True),
    ]
    return Section({"host": table}, targets)


def _calls(repeat: int) -> Section:
    A = ArrayType((16, 16))
    B = ArrayType((A[1], A[0]))
    table = Table("A warm call, 1 KB, µs")
    added: dict[str, list[float]] = {}
    for where in ("host to host", "inside of a simulated device"):
        s, t = (np.ones(A.span, "f4") if where == "host to host" else omp.target_alloc(A.span, "f4") for _ in range(2))
        at, to = A.view(s), B.view(t)
        calls: dict[str, Callable[[], Any]] = {
            TYPED: partial(_each_us, _N_CALLS, partial(copy, A, s, to=(B, t))),
            RECT: partial(_each_us, _N_CALLS, partial(omp.target_memcpy_rect, to, at)),
        }
        times = table.rows[where] = alternate(calls, repeat)
        added[where] = [ours - theirs for ours, theirs in zip(times[TYPED], times[RECT], strict=True)]
        if not isinstance(s, np.ndarray):
            omp.target_free(s)
            omp.target_free(t)
    return Section({"calls": table}, [promise("a warm call: µs that copy adds", added, _ADDED_US)])


def _cold(repeat: int) -> Section:
    rows: dict[str, dict[str, list[float]]] = {}
    window = partial(_moved_window, ArrayType((1 << 20, 1 << 20)), ArrayType((80, 80)))
    for name, side in (("10³ elements", 10), ("10¹² elements", 10_000)):
        rows[f"two types of 8 leaves and their plan, {name}"] = alternate(
            {"µs": lambda side=side: _each_us(10, lambda: _made_pair(side))},  # type: ignore[misc]  # bound now
            repeat,
        )
    rows["a window moved by one, and its plan"] = alternate({"µs": lambda: _each_us(_N_WINDOWS, window)}, repeat)
    pairs = {name: [us / 1e3 for us in row["µs"]] for name, row in rows.items() if name.startswith("two")}
    windows = {name: row["µs"] for name, row in rows.items() if name.startswith("a window")}
    targets = [
        promise("two types from nothing, and their plan, ms", pairs, _COLD_MS),
        promise("one of many windows, and its plan, µs", windows, _WINDOW_US),
    ]
    return Section({"cold": Table("Types made from nothing, and their plans", rows)}, targets)


def _made_pair(side: int) -> object:
    """Make two types of 8 leaves, of ``side`` cubed or to the third, and plan a copy that was never planned."""
    half = side // 2
    tree = (next(_fresh), half, 2, half, 2, 1, half, 2)
    A = ArrayType(tree)
    B = ArrayType((A[0], A[6], A[7], A[5], A[3], A[4], A[1], A[2]))
    return plan(A, B)


def _moved_window(whole: ArrayType, part: ArrayType) -> object:
    """Make a window of a large array that differs from the last one in a displacement, and plan its copy."""
    return plan(ArrayType((dim(80, disp(next(_fresh)), whole[0]), dim(80, disp(7), whole[1]))), part)


def _threads(repeat: int) -> Section:
    table = Table("A copy over p threads in p x p boxes, µs a box")
    over: dict[str, list[float]] = {}
    for p in _TEAMS:
        M, D = threads(p), ArrayType((p, 64))
        S, T = ArrayType((M, D[0], D[1])), ArrayType((D[0], M, D[1]))
        for where in ("host", "simulated device"):
            s, t = ([_array(where, D.span, k) for k in range(p)] for _ in range(2))
            boxes = [
                (_row(t[box.target_thread], box.target_offset), _row(s[box.source_thread], box.source_offset))
                for box in plan(S, T).boxes
                if box.source_thread is not None and box.target_thread is not None
            ]
            calls: dict[str, Callable[[], Any]] = {
                TYPED: partial(_each_us, 1, partial(copy, S, s, to=(T, t))),
                "target_memcpy_rect_async": partial(_each_us, 1, partial(_one_by_one, boxes)),
            }
            name = f"{p} x {p}, {where}"
            times = alternate(calls, repeat)
            table.rows[name] = {who: [one / p**2 for one in each] for who, each in times.items()}
            ours, theirs = table.rows[name].values()
            over[name] = [a - b for a, b in zip(ours, theirs, strict=True)]
            for array in (*s, *t):
                if not isinstance(array, np.ndarray):
                    omp.target_free(array)
    return Section({"threads": table}, [promise("over threads: µs a box that copy adds", over, _BOX_US)])


def _array(where: str, size: int, k: int) -> Any:
    return np.full(size, float(k)) if where == "host" else omp.target_alloc(size, "f8")


def _row(array: Any, offset: int) -> Any:
    return array[offset : offset + 64]


def _one_by_one(boxes: list[tuple[Any, Any]]) -> None:
    for to, at in boxes:
        omp.target_memcpy_rect_async(to, at)
    omp.taskwait()


SECTIONS: dict[str, Callable[[int], Section]] = {
    "host": _host,
    "calls": _calls,
    "cold": _cold,
    "threads": _threads,
}
"""What measures each section: takes the number of turns, in a runtime with a simulated device."""
