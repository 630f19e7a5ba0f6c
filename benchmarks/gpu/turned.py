"""Transpositions by ``target_memcpy_rect`` inside of the device: the row of the section ``rect`` without any rows."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import offload as omp
from benchmarks.harness.measuring import Table, alternate, expect, pairwise, promise
from offload import inout

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from benchmarks.harness.measuring import Section

SIDE = 8192
"""Elements of a side of the matrix."""

_OF_CONTIGUOUS = 0.85
_LEAST_UNDER_WAY = 4
_UNDER_WAY_S = 20e-3

OURS, CONTIGUOUS, BY_CUPY = "offload", "contiguous", "CuPy's copyto"


def add_turned(section: Section, peer: ModuleType, repeat: int) -> None:
    """Add the table of transpositions of 4, 8 and 16 bytes, and what was promised of them."""
    found = {}
    for dtype in ("f4", "f8", "c16"):
        a, b, spare = (omp.target_alloc((SIDE, SIDE), dtype) for _ in range(3))
        peer.fill(a)
        omp.target_memcpy_rect(b, a.T)
        expect(bool((b == a.T).all()), f"a transposition, {dtype}")
        stream = peer.stream_on(a)
        rate = max(peer.timed(peer.contiguous, spare, a, stream, _LEAST_UNDER_WAY) for _ in range(3))
        times = max(_LEAST_UNDER_WAY, math.ceil(_UNDER_WAY_S * rate / a.nbytes))
        calls: dict[str, Callable[[], float]] = {
            OURS: partial(_bytes_per_s, b, a.T, times),
            CONTIGUOUS: partial(peer.timed, peer.contiguous, spare, a, stream, times),
            BY_CUPY: partial(peer.timed, peer.elementwise, b, a.T, stream, _LEAST_UNDER_WAY),
        }
        found[f"{SIDE}², {np.dtype(dtype).itemsize} B"] = alternate(calls, repeat)
        for array in (a, b, spare):
            omp.target_free(array)
    rows = {name: {who: [rate / 1e9 for rate in one] for who, one in rates.items()} for name, rates in found.items()}
    section.tables["turned"] = Table("Transpositions inside of the device, GB/s", rows, "Several copies under way.")
    over = {name: pairwise(rates[OURS], rates[CONTIGUOUS]) for name, rates in found.items()}
    name = "inside of the device, transposed: of contiguous"
    section.targets.append(promise(name, over, _OF_CONTIGUOUS, at_least=True))


def _bytes_per_s(dst: Any, src: Any, times: int) -> float:
    began_s = time.perf_counter()
    for _ in range(times):
        omp.target_memcpy_rect_async(dst, src, depend=[inout(dst)])
    omp.taskwait()
    return float(times * src.nbytes) / (time.perf_counter() - began_s)
