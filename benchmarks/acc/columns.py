"""OpenACC's column-chunk pattern: a matrix processed by blocks of columns, one queue a block."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from offload import acc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ASYNCHRONOUS, BLOCKING = "asynchronous, a queue a block", "blocking"


def blocks(matrix: Any, n_blocks: int) -> Iterator[Any]:
    """Yield the blocks of columns of a matrix in Fortran order, so that each is contiguous."""
    n_columns = matrix.shape[1] // n_blocks
    for low in range(0, n_columns * n_blocks, n_columns):
        yield matrix[:, low : low + n_columns]


def process(matrix: Any, n_blocks: int, compute: Any, *args: Any, asynchronous: bool) -> None:
    """Copy each block to the device, compute there, and copy it back.

    Parameters
    ----------
    matrix : array
        Present on the device.
    n_blocks : int
        A divisor of the number of columns.
    compute : ComputeFunction
        Called with the block and ``args``; its first parameter is in ``present``.
    asynchronous : bool
        Each block in a queue of its own, and one wait at the end; else each operation is waited for.
    """
    for number, block in enumerate(blocks(matrix, n_blocks)):
        queue = number if asynchronous else None
        acc.update(device=[block], async_=queue)
        compute.options(async_=queue)(block, *args)
        acc.update(self_=[block], async_=queue)
    if asynchronous:
        acc.wait()


def timed(process: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    began_s = time.perf_counter()
    process()
    return time.perf_counter() - began_s
