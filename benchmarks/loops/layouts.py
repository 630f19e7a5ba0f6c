"""Loops through array types beside the same loops with the digits written by hand, on the host and on a CUDA device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import offload as omp
from benchmarks.harness.measuring import Section, Table, alternate, expect, pairwise, promise
from benchmarks.harness.programs import load_peer
from benchmarks.loops.device import timed_s
from offload.errors import DeviceUnavailableError
from offload.parray import ArrayType, dim, disp, threads, wrap

if TYPE_CHECKING:
    from collections.abc import Callable

_THREADS = 2
_AT_LEAST = 0.95
_TURN_S = 0.02

TYPES, BY_HAND = "through types", "by hand"


@dataclass(frozen=True)
class Pair:
    """A loop through types, and the same with the digits by hand; both take a source and a target."""

    label: str
    loop: Callable[..., None]
    by_hand: Callable[..., None]
    collapse: int
    shape: tuple[int, ...]  # of the target
    size: int  # of the source


def pairs(scale: float) -> list[Pair]:
    """Return the manual's uses of types in kernels: transposition, tiles, a cyclic distribution, and a cycle."""
    side = max(64, int(4096 * scale**0.5) // 64 * 64)
    return [_by_leaves(side), _by_number(side), _tiles(side, 32), _cyclic(side * side, 4, 16), _cycle(side * side)]


def _by_leaves(side: int) -> Pair:
    plain = ArrayType((side, side // 2))
    turned = ArrayType((ArrayType((side // 2, side))[1], ArrayType((side // 2, side))[0]))
    rows, columns = plain.shape

    def loop(a: Any, b: Any) -> None:
        for i in range(plain.shape[0]):
            for j in range(plain.shape[1]):
                b[turned(i, j)] = a[plain(i, j)]

    def by_hand(a: Any, b: Any) -> None:
        for i in range(rows):
            for j in range(columns):
                b[j * rows + i] = a[i * columns + j]

    return Pair("transposition", loop, by_hand, 2, (plain.size,), plain.size)


def _by_number(side: int) -> Pair:
    plain = ArrayType((side // 2, side))
    turned = ArrayType((plain[1], plain[0]))
    rows, columns, size = side // 2, side, plain.size

    def loop(a: Any, b: Any) -> None:
        for k in range(turned.size):
            b[k] = a[turned(k)]

    def by_hand(a: Any, b: Any) -> None:
        for k in range(size):
            b[k] = a[k % rows * columns + k // rows]

    return Pair("transposition, one index", loop, by_hand, 1, (size,), size)


def _tiles(side: int, edge: int) -> Pair:
    whole = ArrayType(((side // edge, edge), (side // edge, edge)))
    tiled = ArrayType((whole[0, 0], whole[1, 0], whole[0, 1], whole[1, 1]))
    n_tiles = side // edge

    def loop(a: Any, b: Any) -> None:
        for p in range(tiled.shape[0]):
            for q in range(tiled.shape[1]):
                for i in range(tiled.shape[2]):
                    for j in range(tiled.shape[3]):
                        b[tiled.ravel(p, q, i, j)] = a[tiled(p, q, i, j)]

    def by_hand(a: Any, b: Any) -> None:
        for p in range(n_tiles):
            for q in range(n_tiles):
                for i in range(edge):
                    for j in range(edge):
                        b[((p * n_tiles + q) * edge + i) * edge + j] = a[(p * edge + i) * side + q * edge + j]

    return Pair(f"tiles of {edge} x {edge}", loop, by_hand, 2, (whole.size,), whole.size)


def _cyclic(size: int, n_threads: int, block: int) -> Pair:
    local = ArrayType((size // n_threads // block, block))
    dealt = ArrayType((local[0], threads(n_threads), local[1]))

    def loop(a: Any, b: Any) -> None:
        for k in range(dealt.size):
            b[dealt(k)] = a[k]

    def by_hand(a: Any, b: Any) -> None:
        for k in range(size):
            b[k // block % n_threads, k // (block * n_threads) * block + k % block] = a[k]

    return Pair("block-cyclic", loop, by_hand, 1, (n_threads, dealt.span), size)


def _cycle(size: int) -> Pair:
    shifted = ArrayType(dim(size, disp(5), wrap(size)))

    def loop(a: Any, b: Any) -> None:
        for k in range(shifted.size):
            b[shifted(k)] = a[k]

    def by_hand(a: Any, b: Any) -> None:
        for k in range(size):
            b[(k + 5) % size] = a[k]

    return Pair("cycle", loop, by_hand, 1, (size,), size)


def measure(repeat: int, scale: float = 1.0) -> Section:
    """Measure each pair on two threads of the host, and on a CUDA device if there is one.

    Parameters
    ----------
    repeat : int
        Turns.
    scale : float
        Of the sizes, for a quick look.
    """
    with omp.Runtime("none", num_threads=_THREADS):
        tables = {"types_host": _table("the host", omp.parallel_loop, np, lambda: None, repeat, scale)}
    try:
        runtime = omp.Runtime("cuda:0")
    except DeviceUnavailableError as error:
        tables["types_host"].note = f"Nothing was measured on a CUDA device: {str(error).partition('; ')[0]}."
    else:
        with runtime:
            peers = load_peer("loops.loops_cupy")
            construct = partial(omp.target_loop, nowait=True, depend=[omp.inout("b")])
            tables["types_cuda"] = _table("a CUDA device", construct, peers.cupy, peers.synchronize, repeat, scale)
    targets = [
        promise(f"{BY_HAND} / {TYPES}, {name[6:]}", table.rows[f"{BY_HAND} / {TYPES}"], _AT_LEAST, at_least=True)
        for name, table in tables.items()
    ]
    return Section(tables, targets)


def _table(
    where: str,
    construct: Callable[..., Any],
    namespace: Any,
    synchronize: Callable[[], object],
    repeat: int,
    scale: float,
) -> Table:
    table = Table(f"Loops through array types on {where}, ms a call")
    ratios = table.rows.setdefault(f"{BY_HAND} / {TYPES}", {})
    for pair in pairs(scale):
        a = namespace.arange(float(pair.size))
        calls, results = {}, []
        for name, function in ((TYPES, pair.loop), (BY_HAND, pair.by_hand)):
            call, b = construct(collapse=pair.collapse)(function), namespace.zeros(pair.shape)
            call(a, b)
            omp.taskwait()
            results.append(b)
            calls[name] = partial(timed_s, synchronize, call, (a, b))
        expect(bool((results[0] == results[1]).all()), pair.label)
        times = max(3, round(_TURN_S / calls[BY_HAND](3)))
        runs = alternate({name: partial(call, times) for name, call in calls.items()}, repeat)
        for name, samples in runs.items():
            table.rows.setdefault(name, {})[pair.label] = [one * 1e3 for one in samples]
        ratios[pair.label] = pairwise(runs[BY_HAND], runs[TYPES])
    return table
