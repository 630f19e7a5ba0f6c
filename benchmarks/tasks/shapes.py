"""The task graphs that ``benchmarks/run.py tasks`` measures, as data.

A task of these graphs reads some cells and updates one. From that come the clauses that our tasks are given, the
predecessor lists that Dask is given, and the file that the C program reads: all of them make the same graph.
"""

from __future__ import annotations

from itertools import count, takewhile
from math import isqrt
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

STENCIL_WIDTH = 8


class Step(NamedTuple):
    """A task: the cells that it reads (``in``), none, one or several, and the one that it updates (``inout``)."""

    reads: tuple[int, ...]
    updates: int


def make_steps(shape: str, n_tasks: int) -> list[Step]:
    """Return the tasks of a shape in the order of generation.

    Parameters
    ----------
    shape : str
        One of `SHAPES`.
    n_tasks : int
        At least 1: how many tasks there are at most. Wavefront and Cholesky are as large as fits.

    Returns
    -------
    list of Step
        At least one.
    """
    return list(SHAPES[shape](n_tasks))


def n_cells(steps: Sequence[Step]) -> int:
    """Return how many cells there are; they are numbered from 0."""
    return 1 + max(max(step.updates, *step.reads) if step.reads else step.updates for step in steps)


def predecessors(steps: Sequence[Step]) -> list[list[int]]:
    """Return the numbers of the tasks that each one comes directly after.

    Who reads a cell comes after its last update; who updates it, after its readers since then, or after the last
    update where there are none.
    """
    updated: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    before: list[list[int]] = []
    for number, step in enumerate(steps):
        found = {updated[cell] for cell in step.reads if cell in updated}
        if readers.get(step.updates):
            found.update(readers[step.updates])
        elif step.updates in updated:
            found.add(updated[step.updates])
        before.append(sorted(found))
        for cell in step.reads:
            readers.setdefault(cell, []).append(number)
        readers[step.updates] = []
        updated[step.updates] = number
    return before


def last_tasks(before: Sequence[Sequence[int]]) -> list[int]:
    """Return the tasks that nothing comes after."""
    followed = {number for numbers in before for number in numbers}
    return [number for number in range(len(before)) if number not in followed]


def longest_path(before: Sequence[Sequence[int]]) -> int:
    """Return how many tasks the longest path has."""
    lengths: list[int] = []
    for numbers in before:
        lengths.append(1 + max((lengths[number] for number in numbers), default=0))
    return max(lengths)


def cholesky_n_tiles(n_tasks: int) -> int:
    """Return how many tiles a side a matrix may have, so that its factorization has at most so many tasks."""
    return max(1, sum(1 for _ in takewhile(lambda n: n * (n + 1) * (n + 2) // 6 <= n_tasks, count(1))))


def _independent(n_tasks: int) -> Iterator[Step]:
    """Yield tasks that each update a cell of their own."""
    return (Step((), cell) for cell in range(n_tasks))


def _chain(n_tasks: int) -> Iterator[Step]:
    """Yield tasks that all update one cell."""
    return (Step((), 0) for _ in range(n_tasks))


def _stencil(n_tasks: int) -> Iterator[Step]:
    """Yield the tasks of a 3-point stencil on two rows in turn: each reads a cell of the other row and its neighbours.

    That a cell is updated, not overwritten, adds no order: its last update came before those that read it.
    """
    for number in range(n_tasks):
        time_step, column = divmod(number, STENCIL_WIDTH)
        here, there = (time_step % 2) * STENCIL_WIDTH, (1 - time_step % 2) * STENCIL_WIDTH
        columns = range(max(0, column - 1), min(STENCIL_WIDTH, column + 2))
        yield Step(tuple(there + column for column in columns), here + column)


def _wavefront(n_tasks: int) -> Iterator[Step]:
    """Yield the tasks of a sweep over a square, each of which reads the cell above and the one to the left."""
    side = isqrt(n_tasks)
    for row in range(side):
        for column in range(side):
            above = (((row - 1) * side + column),) if row else ()
            left = ((row * side + column - 1),) if column else ()
            yield Step(above + left, row * side + column)


def _cholesky(n_tasks: int) -> Iterator[Step]:
    """Yield the tasks of a blocked Cholesky factorization, right-looking; tile (i, j) is cell i * tiles + j."""
    tiles = cholesky_n_tiles(n_tasks)
    for k in range(tiles):
        yield Step((), k * tiles + k)  # potrf
        for i in range(k + 1, tiles):
            yield Step((k * tiles + k,), i * tiles + k)  # trsm
        for i in range(k + 1, tiles):
            for j in range(k + 1, i):
                yield Step((i * tiles + k, j * tiles + k), i * tiles + j)  # gemm
            yield Step((i * tiles + k,), i * tiles + i)  # syrk


SHAPES: dict[str, Callable[[int], Iterator[Step]]] = {
    "independent": _independent,
    "chain": _chain,
    "stencil": _stencil,
    "wavefront": _wavefront,
    "cholesky": _cholesky,
}
