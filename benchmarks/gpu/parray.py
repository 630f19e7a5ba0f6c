"""Typed copies inside of a device and over the link, beside contiguous copies and CuPy.

Each pair of types is timed with several copies under way, as in the section ``rect``; results are checked first.
"""

from __future__ import annotations

import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import offload as omp
from benchmarks.gpu.rect import under_way
from benchmarks.harness.measuring import Section, Table, alternate, expect, pairwise, promise
from offload import inout
from offload.parray import ArrayType, copy, dim, disp, func

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType

    from benchmarks.harness.measuring import Target

    View = Callable[[Any], Any]
    Rates = dict[str, list[float]]

_SIDE = 8192
_CUBE = 512
_TABLE = 3 << 22
"""Elements of a table: more of 4 bytes than the device's cache holds, and not so many that types take minutes."""
_LEAST_UNDER_WAY = 4
_TABLES_UNDER_WAY = 48
_CALLS = 300
_SMALL = (16, 16)

OURS, ONE_CALL, CONTIGUOUS, ASSIGNED, PACKED = (
    "offload",
    "offload, one call",
    "contiguous",
    "copyto",
    "ascontiguousarray",
)
GATHER, SCATTER, TAKE, PUT = "offload, gather", "offload, scatter", "take", "put"
TYPED, RECT = "copy", "target_memcpy_rect"

_OF_ROWS, _OF_TURNED, _OF_NARROW, _OF_SHORT = 0.95, 0.85, 0.55, 0.60
_OF_LINK_ROWS, _OF_LINK = 0.97, 0.90
_LEAST_WIDTH = 4
_ADDED_US = 20.0
_OVER_LONGER = 1.25
_PASSES = 6


class Case(NamedTuple):
    """A pair of types of one dtype: the source is read through ``at`` by CuPy, the target written through ``to``."""

    name: str
    goal: float
    dtype: str
    source: ArrayType
    target: ArrayType
    at: View
    to: View


def turned(dtype: str, goal: float) -> Case:
    """Return the transposition of a square matrix."""
    side = _SIDE if np.dtype(dtype).itemsize >= _LEAST_WIDTH else 2 * _SIDE  # 256 MB at least
    A = ArrayType((side, side))  # as the manual writes it
    name = f"transposition {side}², {np.dtype(dtype).itemsize} B"
    return Case(
        name,
        goal,
        dtype,
        A,
        ArrayType((A[1], A[0])),
        lambda x: x.reshape(side, side),
        lambda x: x.reshape(side, side).T,
    )


def inside() -> Iterator[Case]:
    """Yield the pairs that are copied inside of a device."""
    n = _SIDE
    W = ArrayType((n, n + 256))
    window = ArrayType((W[0], dim(n, disp(256), W[1])))
    rows, part = (lambda x: x.reshape(n, n + 256)[:, 256:]), (lambda x: x.reshape(n, n))
    yield Case("window, rows of 32 KB", _OF_ROWS, "f4", window, ArrayType((n, n)), rows, part)
    counts = (n // 64, 128, n // 256, 256)
    B = ArrayType(counts)
    permuted = Case(
        "permuted blocks, rows of 1 KB",
        _OF_ROWS,
        "f4",
        ArrayType((counts[0], counts[2], counts[1], counts[3])),
        ArrayType((B[0], B[2], B[1], B[3])),
        lambda x: x.reshape(counts[0], counts[2], counts[1], counts[3]),
        lambda x: x.reshape(counts).transpose(0, 2, 1, 3),
    )
    yield permuted
    for dtype, goal in (("f4", _OF_TURNED), ("f8", _OF_TURNED), ("c16", _OF_TURNED), ("u2", _OF_NARROW), ("u1", 0.0)):
        yield turned(dtype, goal)
    yield pairs(_OF_TURNED)
    c = _CUBE
    R = ArrayType((c, c, c))
    yield Case(
        f"reversal {c}³ c8",
        _OF_TURNED,
        "c8",
        R,
        ArrayType((R[2], R[1], R[0])),
        lambda x: x.reshape(c, c, c),
        lambda x: x.reshape(c, c, c).transpose(2, 1, 0),
    )
    for width, goal in ((32, _OF_TURNED), (8, _OF_SHORT)):
        yield _cyclic(width, goal)
    yield squares(_OF_TURNED)


def _cyclic(width: int, goal: float) -> Case:
    """Return columns dealt in blocks to 8 owners."""
    n, owners = _SIDE, 8
    each = n // owners // width
    L = ArrayType((owners, n, each, width))  # owner, row, block, column
    return Case(
        f"block-cyclic columns, blocks of {4 * width} B",
        goal,
        "f4",
        ArrayType((n, each, owners, width)),
        ArrayType((L[1], L[2], L[0], L[3])),
        lambda x: x.reshape(n, each, owners, width),
        lambda x: x.reshape(owners, n, each, width).transpose(1, 2, 0, 3),
    )


def pairs(goal: float) -> Case:
    """Return a matrix of pairs, transposed."""
    n = _SIDE * 3 // 4
    P = ArrayType(((n, n), 2))
    swapped = ArrayType(((P[0, 1], P[0, 0]), P[1]))
    return Case(
        "pairs [[n][n]][2] f4, transposed",
        goal,
        "f4",
        P,
        swapped,
        lambda x: x.reshape(n, n, 2),
        lambda x: x.reshape(n, n, 2).transpose(1, 0, 2),
    )


def squares(goal: float) -> Case:
    """Return a matrix in squares of 16 x 16, made of rows."""
    n, c = _SIDE, 16
    Q = ArrayType((n // c, n // c, c, c))
    return Case(
        "squares of 16 x 16 f4 into rows",
        goal,
        "f4",
        ArrayType((Q[0], Q[2], Q[1], Q[3])),
        ArrayType((n, n)),
        lambda x: x.reshape(n // c, n // c, c, c).transpose(0, 2, 1, 3).reshape(n // c, c, n // c, c),
        lambda x: x.reshape(n // c, c, n // c, c),
    )


def over_link() -> Iterator[Case]:
    """Yield the pairs that are copied between pinned memory and the device."""
    n = _SIDE
    W = ArrayType((n, n + 1024))
    rows = ArrayType((W[0], dim(n, disp(1024), W[1])))
    yield Case(
        "rows of 32 KB",
        _OF_LINK_ROWS,
        "f4",
        ArrayType((n, n)),
        rows,
        lambda x: x.reshape(n, n),
        lambda x: x.reshape(n, n + 1024)[:, 1024:],
    )
    yield turned("f4", _OF_LINK)
    yield turned("f8", _OF_LINK)
    yield pairs(_OF_LINK)
    yield squares(_OF_LINK)


def measure(peer: ModuleType, tiles: ModuleType, repeat: int) -> Section:
    """Measure copies inside of the device, by tables, over the link, and what a call adds.

    Parameters
    ----------
    peer : module
        ``benchmarks/gpu/copies_cupy.py``.
    tiles : module
        ``examples/parray_tiles.py``.
    repeat : int
        Turns.
    """
    section = Section()
    _inside(section, peer, repeat)
    _indexed(section, peer, repeat)
    _over_link(section, peer, repeat)
    _tiles(section, peer, tiles, repeat)
    _calls(section, repeat)
    return section


def rates_of(case: Case, s: Any, t: Any, peer: ModuleType, repeat: int, copied: Callable[[int], float]) -> Rates:
    """Time a case inside of the device, by ``copied`` with so many copies under way, beside its peers."""
    spare = omp.target_alloc(case.source.size, case.dtype)
    at, to = case.at(s), case.to(t)
    order = np.argsort([-stride for stride in to.strides], kind="stable")
    at, to = at.transpose(order), to.transpose(order)  # along the destination, as CuPy goes
    dense = spare.reshape(at.shape)
    stream = peer.stream_on(t)
    nbytes = at.nbytes
    plain = (spare, t[: spare.size]) if t.size >= spare.size else (spare, s[: spare.size])
    times = under_way(nbytes, max(peer.timed(peer.contiguous, *plain, stream, _LEAST_UNDER_WAY) for _ in range(3)))
    calls: dict[str, Callable[[], float]] = {
        OURS: partial(copied, times),
        CONTIGUOUS: partial(peer.timed, peer.contiguous, *plain, stream, times),
        ASSIGNED: partial(peer.timed, peer.elementwise, to, at, stream, _LEAST_UNDER_WAY),
        PACKED: partial(peer.timed, peer.packed, dense, at, stream, _LEAST_UNDER_WAY),
    }
    found = alternate(calls, repeat)
    omp.target_free(spare)
    return found


def typed_bytes_per_s(case: Case, s: Any, t: Any, nbytes: int, times: int) -> float:
    """Copy so many times, wait, and return the bytes copied a second."""
    began_s = time.perf_counter()
    for _ in range(times):
        copy(case.source, s, to=(case.target, t), nowait=True, depend=[inout(t)])
    omp.taskwait()
    return float(times * nbytes) / (time.perf_counter() - began_s)


def filled(peer: ModuleType, size: int, dtype: str) -> Any:
    """Return a device array of noise."""
    array = omp.target_alloc(size, dtype)
    peer.fill(array)
    return array


def _inside(section: Section, peer: ModuleType, repeat: int) -> None:
    table = section.tables["inside"] = Table("Typed copies inside of the device, GB/s", {}, "CuPy's kernels beside.")
    found: dict[str, tuple[Case, Rates]] = {}
    for case in inside():
        s, t = filled(peer, case.source.span, case.dtype), omp.target_alloc(case.target.span, case.dtype)
        copy(case.source, s, to=(case.target, t))
        expect(bool((case.to(t) == case.at(s)).all()), case.name)
        nbytes = case.source.size * np.dtype(case.dtype).itemsize
        rates = rates_of(case, s, t, peer, repeat, partial(typed_bytes_per_s, case, s, t, nbytes))
        found[case.name] = case, rates
        table.rows[case.name] = {who: [rate / 1e9 for rate in one] for who, one in rates.items()}
        omp.target_free(s)
        omp.target_free(t)
    section.targets += _promises(found)


def _promises(found: Mapping[str, tuple[Case, Rates]]) -> list[Target]:
    targets = []
    for goal in sorted({case.goal for case, _ in found.values()} - {0.0}, reverse=True):
        over = {name: pairwise(one[OURS], one[CONTIGUOUS]) for name, (case, one) in found.items() if case.goal == goal}
        targets.append(promise(f"inside of the device, {len(over)} pairs: of contiguous", over, goal, at_least=True))
    over = {
        name: [ours / max(theirs) for ours, *theirs in zip(one[OURS], one[ASSIGNED], one[PACKED], strict=True)]
        for name, (_, one) in found.items()
    }
    return [*targets, promise("inside of the device, all: over the better of CuPy's", over, 1.0, at_least=True)]


def _indexed(section: Section, peer: ModuleType, repeat: int) -> None:
    table = section.tables["indexed"] = Table("Copies by tables inside of the device, GB/s")
    over: dict[str, list[float]] = {}
    n = _TABLE
    orders = {
        "random": np.random.default_rng(1).permutation(n),
        "transposed": np.arange(n).reshape(1 << (n.bit_length() // 2), -1).T.reshape(-1).copy(),
    }
    for kind, order in orders.items():
        T, F = ArrayType((dim(n, func(order)),)), ArrayType(n)
        for dtype in ("f4", "f8", "c16"):
            s, t = filled(peer, n, dtype), omp.target_alloc(n, dtype)
            numbers = peer.table(order, t)
            pairs = {GATHER: (T, F), SCATTER: (F, T)}
            for who, pair in pairs.items():
                copy(pair[0], s, to=(pair[1], t))
                right = t == s[numbers] if who == GATHER else t[numbers] == s
                expect(bool(right.all()), f"{who}, {kind}")
            stream = peer.stream_on(t)
            calls: dict[str, Callable[[], float]] = {
                who: partial(_pair_bytes_per_s, pair, s, t) for who, pair in pairs.items()
            }
            calls[TAKE] = partial(peer.timed, partial(peer.gathered, numbers), t, s, stream, _TABLES_UNDER_WAY)
            calls[PUT] = partial(peer.timed, partial(peer.scattered, numbers), t, s, stream, _TABLES_UNDER_WAY)
            calls[CONTIGUOUS] = partial(peer.timed, peer.contiguous, t, s, stream, _TABLES_UNDER_WAY)
            rates = alternate(calls, repeat)
            name = f"{dtype}, {kind}"
            table.rows[name] = {who: [rate / 1e9 for rate in one] for who, one in rates.items()}
            over[f"{name}, take"] = pairwise(rates[GATHER], rates[TAKE])
            over[f"{name}, put"] = pairwise(rates[SCATTER], rates[PUT])
            omp.target_free(s)
            omp.target_free(t)
    section.targets.append(promise("by tables: over CuPy's take and put", over, 1.0, at_least=True))


def _pair_bytes_per_s(pair: tuple[ArrayType, ArrayType], s: Any, t: Any) -> float:
    began_s = time.perf_counter()
    for _ in range(_TABLES_UNDER_WAY):
        copy(pair[0], s, to=(pair[1], t), nowait=True, depend=[inout(t)])
    omp.taskwait()
    return float(_TABLES_UNDER_WAY * s.nbytes) / (time.perf_counter() - began_s)


def _over_link(section: Section, peer: ModuleType, repeat: int) -> None:
    table = section.tables["link"] = Table("Typed copies to and from pinned memory, GB/s")
    over: dict[float, dict[str, list[float]]] = {}
    cases = list(over_link())
    most = max(max(case.source.span, case.target.span) * np.dtype(case.dtype).itemsize for case in cases)
    pinned = peer.empty_pinned((most,), np.uint8)
    pinned.reshape(-1)[:] = 1
    for case in cases:
        nbytes = case.source.size * np.dtype(case.dtype).itemsize
        for way in ("to the device", "to the host"):
            is_in = way == "to the device"
            near_side, far_side = (case.source, case.target) if is_in else (case.target, case.source)
            near = pinned[: near_side.span * np.dtype(case.dtype).itemsize].view(case.dtype)
            far, noise = filled(peer, far_side.span, case.dtype), filled(peer, near_side.span, case.dtype)
            omp.target_memcpy(near, noise)
            s, t = (near, far) if is_in else (far, near)
            copy(case.source, s, to=(case.target, t))
            if not is_in:
                omp.target_memcpy(noise, near)
            there, here = (far, noise) if is_in else (noise, far)
            expect(bool((case.to(there) == case.at(here)).all()), f"{case.name}, {way}")
            count = min(far.size, near.size)
            plain = (far[:count], near[:count]) if is_in else (near[:count], far[:count])
            stream = peer.stream_on(far)
            calls: dict[str, Callable[[], float]] = {
                OURS: partial(typed_bytes_per_s, case, s, t, nbytes, _LEAST_UNDER_WAY),
                ONE_CALL: partial(_one_call_bytes_per_s, case, s, t, nbytes),
                CONTIGUOUS: partial(peer.timed, peer.contiguous, *plain, stream, _LEAST_UNDER_WAY),
            }
            rates = alternate(calls, repeat)
            name = f"{case.name}, {way}"
            table.rows[name] = {who: [rate / 1e9 for rate in one] for who, one in rates.items()}
            over.setdefault(case.goal, {})[name] = pairwise(rates[OURS], rates[CONTIGUOUS])
            omp.target_free(far)
            omp.target_free(noise)
    for goal, ratios in over.items():
        name = "pinned, rows" if goal == _OF_LINK_ROWS else "pinned, turned, paired and in squares"
        section.targets.append(promise(f"{name}: of the link", ratios, goal, at_least=True))


def _tiles(section: Section, peer: ModuleType, tiles: ModuleType, repeat: int) -> None:
    """Time the example of tiles beside the link in both ways and the work, each alone."""
    n = _SIDE
    field, result = peer.empty_pinned((2 * n, n), "f4"), peer.empty_pinned((2 * n, n), "f4")
    field[...] = 1
    whole, back = (omp.target_alloc(field.size, "f4") for _ in range(2))
    omp.target_memset(whole, 0)  # whatever was there may overflow when it is worked on

    def work(buffer: Any) -> None:
        for _ in range(_PASSES):
            buffer *= 2.0

    def seconds(call: Callable[[], object]) -> float:
        began_s = time.perf_counter()
        call()
        return time.perf_counter() - began_s

    rows: dict[str, dict[str, list[float]]] = {}
    for n_tiles, n_buffers in ((12, 3), (24, 6)):
        through = partial(tiles.process, field, work, n_tiles=n_tiles, n_buffers=n_buffers, result=result)
        result[...] = 0
        through()
        expect((result == 2.0**_PASSES).all(), f"{n_tiles} tiles")
        calls: dict[str, Callable[[], float]] = {
            "tiles": partial(seconds, through),
            "link, both ways": partial(peer.both_ways, field, result, whole, back),
            "work": partial(seconds, _worked(work, whole)),
        }
        times = alternate(calls, repeat)
        rows[f"{n_tiles} tiles, {n_buffers} buffers"] = {who: [1e3 * s for s in one] for who, one in times.items()}
    note = f"A field of {field.nbytes >> 20} MB through buffers of a quarter of it."
    section.tables["tiles"] = Table("Copy in, work, copy out by tiles, ms", rows, note)
    over = {
        name: [ours / max(link, work) for ours, link, work in zip(*row.values(), strict=True)]
        for name, row in rows.items()
    }
    section.targets.append(promise("tiles: over the longer of link and work", over, _OVER_LONGER))
    omp.target_free(whole)
    omp.target_free(back)


def _worked(work: Callable[[Any], None], array: Any) -> Callable[[], object]:
    """Return what does the work on all of a device array, and waits."""
    return lambda: omp.target()(work)(array)


def _one_call_bytes_per_s(case: Case, s: Any, t: Any, nbytes: int) -> float:
    began_s = time.perf_counter()
    copy(case.source, s, to=(case.target, t))
    return float(nbytes) / (time.perf_counter() - began_s)


def _calls(section: Section, repeat: int) -> None:
    """Time warm calls of 1 KB inside of the device, beside the rectangular copy of ready-made views."""
    A = ArrayType(_SMALL)
    B = ArrayType((A[1], A[0]))
    s, t = omp.target_alloc(A.span, "f4"), omp.target_alloc(B.span, "f4")
    at, to = A.view(s), B.view(t)
    calls: dict[str, Callable[[], float]] = {
        TYPED: partial(call_us, lambda: copy(A, s, to=(B, t))),
        RECT: partial(call_us, lambda: omp.target_memcpy_rect(to, at)),
    }
    times = alternate(calls, repeat)
    section.tables["calls"] = Table("A warm call, 1 KB inside of the device, µs", {"1 KB": times})
    added = [ours - theirs for ours, theirs in zip(times[TYPED], times[RECT], strict=True)]
    section.targets.append(promise("a warm call: µs that copy adds", {"1 KB": added}, _ADDED_US))
    omp.target_free(s)
    omp.target_free(t)


def call_us(call: Callable[[], object], n_calls: int = _CALLS) -> float:
    """Return the microseconds that a call takes, the median of some."""
    times = []
    for _ in range(n_calls):
        began_s = time.perf_counter()
        call()
        times.append(time.perf_counter() - began_s)
    return median(times) * 1e6
