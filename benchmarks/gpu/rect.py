"""Strided copies beside contiguous ones and ``cudaMemcpy2DAsync``: inside of the device, and over the link.

Rows lie two apart on one side, so that they do not run together, and together on the other. A box of three dimensions
has 16 planes, with a gap between them. What is compared is how fast bytes move: several copies are under way, equally
many in all samples of a table, enqueued one after the other, in tasks or by hand, and waited for once. To make one task
and to wait takes longer than a copy inside of the device. What one synchronous call reaches stands beside it.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import offload as omp
from benchmarks.gpu.turned import add_turned
from benchmarks.harness.measuring import Section, Table, alternate, expect, pairwise, promise
from offload import inout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from benchmarks.harness.measuring import Target

    Rates = dict[str, list[float]]
    Found = dict[str, tuple[int, Rates]]

NBYTES = 256 << 20
_PAGEABLE_NBYTES = 64 << 20
_N_PLANES = 16
_SLACK = 2
"""Rows between two planes, which keep a box from being one of fewer dimensions."""

_DEVICE_ROWS = (64, 256, 1 << 10, 4 << 10, 64 << 10, 1 << 20)
_PINNED_ROWS = (64, 256, 1 << 10, 16 << 10, 1 << 20)
_PAGEABLE_ROWS = (256, 4 << 10, 64 << 10)

_OF_CONTIGUOUS = 0.9
_LEAST_ROW = 1 << 10
_OVER_2D = 2.0
_BEHIND = 0.5
_LEAST_BEHIND_ROW = 64
"""Rows from here on where cudaMemcpy2DAsync reaches less than half of a contiguous copy: twice as much can be had."""

_UNDER_WAY_S = 20e-3
_LEAST_UNDER_WAY = 4
"""Copies of a sample: as many as take so long in one piece, and at least so many.

Until the host has heard of the last one it may take 0.35 ms (section `tasks`, host successors): 2 % of that.
"""

_LINK_OF_CONTIGUOUS = 0.97
_LEAST_LINK_ROW = 256

OURS, ONE_CALL, CONTIGUOUS, BY_2D = "offload", "offload, one call", "contiguous", "cudaMemcpy2DAsync"


class Case(NamedTuple):
    """A box and where it is copied: ``strided`` to or from ``packed``."""

    name: str
    row_nbytes: int
    dst: Any
    src: Any
    plain: tuple[Any, Any]


class Pools:
    """Memory that the boxes of all cases are cut from: filled once, in each kind of memory."""

    def __init__(self, empty_pinned: Callable[..., Any]) -> None:
        """Make room for boxes of `NBYTES`, strided and packed."""
        nbytes = NBYTES
        most = 2 * nbytes + _N_PLANES * _SLACK * max(_DEVICE_ROWS)
        noise = np.random.default_rng(1).integers(256, size=1 << 20, dtype=np.uint8)
        self.host = {
            "pinned": (empty_pinned((most,), np.uint8), empty_pinned((nbytes,), np.uint8)),
            "pageable": (np.empty(most, np.uint8), np.empty(nbytes, np.uint8)),
        }
        for far, close in self.host.values():
            far[:] = np.resize(noise, most)
            close[:] = np.resize(noise[::-1], nbytes)
        self.device = tuple(omp.target_alloc(size, "u1") for size in (most, nbytes, nbytes))
        omp.target_memcpy(self.device[0], self.host["pinned"][0])
        for close in self.device[1:]:
            omp.target_memcpy(close, self.host["pinned"][1])

    def free(self) -> None:
        """Free the arrays of the device."""
        for array in self.device:
            omp.target_free(array)


def measure(peer: ModuleType, repeat: int) -> Section:
    """Measure boxes of 256 MB (pageable 64 MB) for rows of several lengths.

    Parameters
    ----------
    peer : module
        ``benchmarks/gpu/copies_cupy.py``.
    repeat : int
        Turns.
    """
    pools = Pools(peer.empty_pinned)
    section = Section()
    cases = _inside(pools)
    inside = _table(section, "device", "Inside of the device, GB/s, boxes of 256 MB", cases, peer, repeat)
    cases = _over_link(pools, "pinned")
    pinned = _table(section, "pinned", "To and from pinned memory, GB/s, boxes of 256 MB", cases, peer, repeat)
    cases, repeat = _over_link(pools, "pageable"), min(repeat, 5)
    title = "To and from pageable memory, GB/s, boxes of 64 MB"
    pageable = _table(section, "pageable", title, cases, peer, repeat, alone=True)
    pools.free()
    behind = _falls_behind(inside)
    if not behind:
        section.tables["device"].note += " In no case does cudaMemcpy2DAsync reach less than half of a contiguous copy."
    section.targets = _targets(inside, behind, pinned, pageable)
    add_turned(section, peer, repeat)
    return section


def _table(
    section: Section,
    key: str,
    title: str,
    cases: Iterator[Case],
    peer: ModuleType,
    repeat: int,
    *,
    alone: bool = False,
) -> Found:
    """Add the table of some cases, with several copies under way or each ``alone``; return row lengths and rates."""
    found: Found = {}
    times = 1 if alone else 0
    for case in cases:
        _check(case)
        stream = peer.stream_on(case.dst if not isinstance(case.dst, np.ndarray) else case.src)
        if not times:
            rate = max(peer.timed(peer.contiguous, *case.plain, stream, _LEAST_UNDER_WAY) for _ in range(3))
            times = under_way(case.src.nbytes, rate)
        calls: dict[str, Callable[[], float]] = {
            OURS: partial(copied_bytes_per_s, case.dst, case.src, times),
            ONE_CALL: partial(_one_call_bytes_per_s, case.dst, case.src),
            CONTIGUOUS: partial(peer.timed, peer.contiguous, *case.plain, stream, times),
            BY_2D: partial(peer.timed, peer.rows, case.dst, case.src, stream, times),
        }
        found[case.name] = case.row_nbytes, alternate(calls, repeat)
    rows = {
        name: {who: [rate / 1e9 for rate in one] for who, one in rates.items()} for name, (_, rates) in found.items()
    }
    note = f"Copies under way until one wait: {times}" + (f', but 1 in "{ONE_CALL}".' if times > 1 else ".")
    section.tables[key] = Table(title, rows, note)
    return found


def under_way(nbytes: int, bytes_per_s: float) -> int:
    """Return how many copies of so many bytes make a sample, by what a contiguous one reaches."""
    return max(_LEAST_UNDER_WAY, math.ceil(_UNDER_WAY_S * bytes_per_s / nbytes))


def copied_bytes_per_s(dst: Any, src: Any, times: int) -> float:
    """Copy a box by `target_memcpy_rect_async` so many times, wait, and return the bytes copied a second."""
    began_s = time.perf_counter()
    for _ in range(times):
        omp.target_memcpy_rect_async(dst, src, depend=[inout(dst)])
    omp.taskwait()
    took_s = time.perf_counter() - began_s
    return float(times * src.nbytes) / took_s


def _one_call_bytes_per_s(dst: Any, src: Any) -> float:
    """Copy a box by `target_memcpy_rect` and return the bytes copied a second."""
    began_s = time.perf_counter()
    omp.target_memcpy_rect(dst, src)
    took_s = time.perf_counter() - began_s
    return float(src.nbytes) / took_s


# -- boxes ---------------------------------------------------------------------------------------------


def shapes(nbytes: int, row_nbytes: int) -> Iterator[tuple[int, ...]]:
    """Yield a box of two and one of three dimensions, of so many bytes."""
    rows = nbytes // row_nbytes
    yield rows, row_nbytes
    yield _N_PLANES, rows // _N_PLANES, row_nbytes


def strided(flat: Any, shape: tuple[int, ...]) -> Any:
    """Return a box in flat memory, every other row, with a gap after each plane."""
    *planes, rows, row_nbytes = shape
    whole = (*planes, 2 * rows + _SLACK, row_nbytes)
    return flat[: math.prod(whole)].reshape(whole)[..., : 2 * rows : 2, :]


def _packed(flat: Any, shape: tuple[int, ...]) -> Any:
    return flat[: math.prod(shape)].reshape(shape)


def _inside(pools: Pools) -> Iterator[Case]:
    far, close, spare = pools.device
    for row_nbytes in _DEVICE_ROWS:
        for shape in shapes(close.size, row_nbytes):
            name = f"{len(shape)}-D, rows of {size(row_nbytes)}"
            packed = _packed(close, shape)
            yield Case(name, row_nbytes, packed, strided(far, shape), (_packed(spare, shape), packed))


def _over_link(pools: Pools, memory: str) -> Iterator[Case]:
    far, close = pools.host[memory]
    _, inward, _ = pools.device
    nbytes, rows_nbytes = (inward.size, _PINNED_ROWS) if memory == "pinned" else (_PAGEABLE_NBYTES, _PAGEABLE_ROWS)
    for row_nbytes in rows_nbytes:
        for shape in shapes(nbytes, row_nbytes):
            box, device, host = strided(far, shape), _packed(inward, shape), _packed(close, shape)
            name = f"{len(shape)}-D, rows of {size(row_nbytes)}"
            yield Case(f"to the device, {name}", row_nbytes, device, box, (device, host))
            yield Case(f"to the host, {name}", row_nbytes, box, device, (host, device))


def size(nbytes: int) -> str:
    """Return a number of bytes with its unit, in powers of 1024."""
    for unit in ("B", "KB"):
        if nbytes < 1024:
            return f"{nbytes} {unit}"
        nbytes //= 1024
    return f"{nbytes} MB"


def _check(case: Case) -> None:
    """Copy a box once and compare some of its rows, and what lies between them."""
    dst, src = case.dst, case.src
    some = (..., slice(None, None, max(1, src.shape[-2] // 499)), slice(None))
    wanted = _on_host(src[some])
    if not isinstance(dst, np.ndarray):
        omp.target_memset(dst, 0)
        omp.target_memcpy_rect(dst, src)
        expect((_on_host(dst[some]) == wanted).all(), f"a copy, {case.name}")
        return
    dst[some] = ~wanted
    between = np.array(_between(dst)[some])
    omp.target_memcpy_rect(dst, src)
    expect((dst[some] == wanted).all(), f"a copy, {case.name}")
    expect((_between(dst)[some] == between).all(), f"what is beside a copy, {case.name}")


def _between(box: Any) -> Any:
    """Return the rows that lie between those of a strided box."""
    whole = np.lib.stride_tricks.as_strided(box, (*box.shape[:-1], 2 * box.shape[-1]))
    return whole[..., box.shape[-1] :]


def _on_host(array: Any) -> Any:
    return np.array(array) if isinstance(array, np.ndarray) else array.get()


# -- promises ------------------------------------------------------------------------------------------


def _falls_behind(inside: Found) -> Found:
    """Return the cases in which cudaMemcpy2DAsync reaches less than half of a contiguous copy."""
    return {
        name: (row, rates)
        for name, (row, rates) in inside.items()
        if row >= _LEAST_BEHIND_ROW and np.median(pairwise(rates[BY_2D], rates[CONTIGUOUS])) < _BEHIND
    }


def _targets(inside: Found, behind: Found, pinned: Found, pageable: Found) -> list[Target]:
    def over(found: Found, other: str, least_row: int) -> dict[str, list[float]]:
        return {name: pairwise(rates[OURS], rates[other]) for name, (row, rates) in found.items() if row >= least_row}

    targets = [
        promise(
            "inside of the device, rows of 1 KB and more: strided / contiguous",
            over(inside, CONTIGUOUS, _LEAST_ROW),
            _OF_CONTIGUOUS,
            at_least=True,
        ),
        promise(
            "pinned, rows of 256 B and more: strided / contiguous",
            over(pinned, CONTIGUOUS, _LEAST_LINK_ROW),
            _LINK_OF_CONTIGUOUS,
            at_least=True,
        ),
        promise("pageable: strided / cudaMemcpy2DAsync", over(pageable, BY_2D, 0), _OVER_2D, at_least=True),
    ]
    if behind:
        name = "inside of the device where cudaMemcpy2DAsync is below half of contiguous: strided / cudaMemcpy2DAsync"
        targets.insert(1, promise(name, over(behind, BY_2D, 0), _OVER_2D, at_least=True))
    return targets
