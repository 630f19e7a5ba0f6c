"""OpenACC's queues: a matrix by blocks of columns, one queue a block, beside CuPy's streams by hand.

The computation takes about as long as a copy one way, so that no stage hides the others: with all of them under way at
once the time is that of one, without that of three.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.acc.columns import ASYNCHRONOUS, BLOCKING, blocks, process, timed
from benchmarks.harness.measuring import Section, Table, alternate, expect, pairwise, promise
from offload import acc

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

N_BLOCKS = 16
SHAPE = (1 << 20, 16 * N_BLOCKS)
"""Rows and columns of float32: blocks of 64 MB."""

BY_HAND = "by hand, a stream a block"

_SPEED_UP = 1.8
_OVER_BY_HAND = 1.10
_DECAY = 1 - 2.0**-11


def measure(peer: ModuleType, repeat: int) -> Section:
    """Measure a matrix of 1 GiB in pinned memory.

    Parameters
    ----------
    peer : module
        ``benchmarks/gpu/columns_cupy.py``.
    repeat : int
        Turns.
    """
    matrix = peer.empty_pinned(SHAPE[::-1], np.float32).T
    matrix[...] = 1
    pieces = list(blocks(matrix, N_BLOCKS))
    passes = peer.passes_like_a_copy(pieces[0])
    by_hand = peer.Columns(pieces)
    relax = peer.relax

    def body(x: Any, passes: int) -> None:
        relax(x, passes)

    compute = acc.parallel(body, present=["x"])
    forms = {ASYNCHRONOUS: True, BLOCKING: False}
    calls: dict[str, Callable[[], float]] = {
        name: partial(timed, partial(process, matrix, N_BLOCKS, compute, passes, asynchronous=asynchronous))
        for name, asynchronous in forms.items()
    }
    calls[BY_HAND] = partial(by_hand, passes)
    with acc.data(create=[matrix]):
        for name, call in calls.items():
            check(matrix, passes, call, f"columns, {name}")
        matrix[...] = 1
        runs = alternate(calls, repeat)
    nbytes = pieces[0].nbytes
    table = Table(
        f"{N_BLOCKS} blocks of columns of {nbytes >> 20} MB in pinned memory: to the device, a kernel, back; ms",
        {name: {"all": _ms(samples), "a block": _ms(samples, N_BLOCKS)} for name, samples in runs.items()},
        note=f"The kernel makes {passes:,} passes over a block, which take about as long as a copy of it one way.",
    )
    over = {
        f"{BLOCKING} / asynchronous": pairwise(runs[BLOCKING], runs[ASYNCHRONOUS]),
        "asynchronous / by hand": pairwise(runs[ASYNCHRONOUS], runs[BY_HAND]),
    }
    ratios = Table("The same, turn by turn", {name: {"ratio": samples} for name, samples in over.items()})
    speed_up, by_hands = over.items()
    targets = [
        promise(f"acc, {speed_up[0]}", {f"{N_BLOCKS} blocks": speed_up[1]}, _SPEED_UP, at_least=True),
        promise(f"acc, {by_hands[0]}", {f"{N_BLOCKS} blocks": by_hands[1]}, _OVER_BY_HAND),
    ]
    return Section({"columns": table, "ratios": ratios}, targets)


def check(matrix: Any, passes: int, run: Callable[[], object], what: str) -> None:
    """Run once and raise `InternalError` if one of some rows of the result is wrong."""
    some = matrix[:: max(1, len(matrix) // 61)]
    before = np.linspace(2, 3, some.size).reshape(some.shape)
    some[...] = before
    run()
    expected = 2 + (before - 1) * _DECAY**passes
    expect(abs(some - expected).max() < 1e-3, what)


def _ms(samples: list[float], count: int = 1) -> list[float]:
    return [one * 1e3 / count for one in samples]
