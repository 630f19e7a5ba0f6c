"""The shape of a launch on CUDA: blocks, threads, the width of indices, and which arrays are copied to a block.

One thread has one iteration, in blocks of 256 for one axis and of 32 x 8 for more. The numbers of a launch alone
decide, never the device, so partial results are the same wherever a loop runs. With teams
(`offload.loops.front.levels`) the axes are one line of iterations, and a block has one team or several rows of 32.

There are fewer threads than iterations if the hardware's limit or a clause says so, or if blocks copy an array of
atomics: a copy pays only if its block has many iterations for each element (docs/design/loops.md).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from offload.loops.tree.sizes import MOST_THREADS, ROW

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from offload.loops.front.levels import Team
    from offload.loops.proofs.numbers import Trips, View

THREADS: Final = 256
_MOST_BLOCKS: Final = (2**31 - 1, 65_535, 65_535)

# What a block's copies of arrays of atomics may have: several blocks fit onto a multiprocessor then.
COPIES_NBYTES: Final = 32 << 10

# Iterations of a block for each element that it has a copy of.
_COPY_WORTH: Final = 16

# Threads of a block with copies, if no clause says how many.
COPY_THREADS: Final = 512

# Threads of a launch with copies: as many as a GPU of 132 multiprocessors runs at a time, each of which then has the
# same work. A histogram of 2**26 into 256 on an H100: 528 blocks of 512 take 0.121 ms, 1056 of 256 0.124, 1024 of 256,
# which leave some multiprocessors idle in the end, 0.126, 2112 of 256 0.130.
_COPY_AT_A_TIME: Final = 132 * 2048

# Blocks of a launch with reductions, each of which leaves a partial result: one block combines these, while all others
# have ended, so that there are to be few; a GPU of 132 multiprocessors runs some 1,000 at a time.
REDUCED_BLOCKS: Final = 4096

# Blocks that keep a GPU busy: with more iterations a block has several teams.
_FULL: Final = 512

# Iterations that a thread has of a tile of a scan with one item, threads of a block, if no clause says how many, and
# threads that a multiprocessor is to run at a time: these bound the registers of a thread.
_SCAN_ROWS: Final = 24
_SCAN_THREADS: Final = 256
SCAN_THREADS_AT_A_TIME: Final = 1024

# Words of a sum that tiles publish: of 32 bits and a mark each.
SUM_WORDS: Final = 2

_BEYOND_32: Final = 2**31


class Grid(NamedTuple):
    """The shape of a launch."""

    # Along x, y and z.
    blocks: tuple[int, int, int]
    threads: tuple[int, int, int]  # along x, y and z, of a block
    is_strided: bool  # whether there may be fewer threads than iterations along some axis

    @property
    def n_blocks(self) -> int:
        return math.prod(self.blocks)

    @property
    def n_threads(self) -> int:
        """Threads of a block."""
        return math.prod(self.threads)


class BlockCopies(NamedTuple):
    """The arrays of which each block has a copy in shared memory."""

    places: dict[str, int]  # where each begins, in words of 8 bytes
    nbytes: int  # of all


class Shape(NamedTuple):
    """The clauses about the shape of a launch."""

    most_blocks: int | None = None  # `num_teams`, `num_gangs`, or the number of `gang`
    n_threads: int | None = None  # `thread_limit`, or `num_workers` times `vector_length`
    tile: tuple[int, ...] = ()  # threads of a block along the axes, outermost first


def shape_of(sizes: Iterable[tuple[str, int]], tile: tuple[int, ...]) -> Shape:
    """Return the shape that clauses ask for, by their names and numbers."""
    said = dict(sizes)
    blocks = [said[name] for name in ("num_teams", "num_gangs", "gang") if name in said]
    threads = said.get("thread_limit")
    lanes = said.get("vector_length", said.get("vector"))
    rows = said.get("num_workers", said.get("worker"))
    if threads is None and (lanes or rows):
        threads = (lanes or ROW) * (rows or 1)
    return Shape(min(blocks, default=None), threads, tile)


def grid_of(trips: Sequence[int], shape: Shape = Shape(), *, is_ordered: bool = False) -> Grid:  # noqa: B008  # a value
    """Return the grid for iterations: ``trips`` of each axis, outermost first, none 0; in order, one thread has all."""
    if is_ordered:
        return Grid((1, 1, 1), (ROW, 1, 1), is_strided=False)
    threads = _threads(len(trips), shape)
    along = (trips[-1], trips[-2] if len(trips) > 1 else 1, math.prod(trips[:-2]))
    exact = [-(-n // of_block) for n, of_block in zip(along, threads, strict=True)]
    blocks = [min(n, most) for n, most in zip(exact, _MOST_BLOCKS, strict=True)]
    if shape.most_blocks is not None:
        left = shape.most_blocks
        for axis in range(3):
            blocks[axis] = min(blocks[axis], max(1, left))
            left //= blocks[axis]
    return Grid((blocks[0], blocks[1], blocks[2]), threads, is_strided=blocks != exact)


def scan_rows(n_items: int) -> int:
    """Return how many iterations of a tile a thread has, of a scan of so many items: it keeps all their totals."""
    return max(_SCAN_ROWS // n_items, 2)


def scan_grid(iterations: int, rows: int, shape: Shape) -> tuple[Grid, int]:
    """Return the grid of a scan, and the number of tiles: a block takes one after another if blocks are fewer."""
    threads, _, _ = _threads(1, Shape(n_threads=min(shape.n_threads or _SCAN_THREADS, _SCAN_THREADS)))
    tiles = -(-iterations // (threads * rows))
    blocks = min(tiles, _MOST_BLOCKS[0], shape.most_blocks or tiles)
    return Grid((blocks, 1, 1), (threads, 1, 1), is_strided=blocks != tiles), tiles


def scan_words(tiles: int, n_items: int) -> int:
    """Return how many words a scan needs: how many tiles are taken, and sums of tiles, groups, and groups of these."""
    groups = -(-tiles // ROW)
    return 1 + (tiles + groups + -(-groups // ROW)) * n_items * SUM_WORDS


def rows_of(team: Team, iterations: int) -> Team:
    """Return a team with the number of teams that a block has."""
    rows = min(THREADS // ROW, max(1, iterations // _FULL))
    return team if team.rows else team._replace(rows=1 << rows.bit_length() - 1)


def team_grid(iterations: int, team: Team, most_blocks: int | None = None) -> Grid:
    """Return the grid for iterations that teams have; `rows_of` has said how many a block has."""
    exact = -(-iterations // team.rows)
    blocks = min(exact, _MOST_BLOCKS[0], most_blocks or exact)
    return Grid((blocks, 1, 1), (team.lanes, team.workers * team.rows, 1), is_strided=blocks != exact)


def _threads(n_axes: int, shape: Shape) -> tuple[int, int, int]:
    tile = shape.tile
    if len(tile) in (1, 2) and math.prod(tile) <= MOST_THREADS and math.prod(tile) % ROW == 0 and len(tile) <= n_axes:
        return (tile[-1], tile[0] if len(tile) > 1 else 1, 1)
    rows = min(max(THREADS if shape.n_threads is None else shape.n_threads, ROW), MOST_THREADS) // ROW
    return (ROW * rows, 1, 1) if n_axes == 1 else (ROW, rows, 1)


def copies_of(elements: Mapping[str, tuple[int, int]], iterations: int) -> BlockCopies:
    """Return the arrays of which blocks get copies; ``elements`` has the number and the size in bytes of elements."""
    places: dict[str, int] = {}
    end = 0
    for name, (count, itemsize) in sorted(elements.items()):
        words = -(-count * itemsize // 8)
        if 0 < words <= COPIES_NBYTES // 8 - end and iterations >= _COPY_WORTH * count:
            places[name], end = end, end + words
    return BlockCopies(places, 8 * end)


def blocks_with_copies(counts: Iterable[int], iterations: int, n_threads: int) -> int:
    """Return how many blocks of ``n_threads`` a launch may have whose blocks have copies of so many elements."""
    return max(1, min(_COPY_AT_A_TIME // n_threads, iterations // (_COPY_WORTH * max(counts))))


def index_bits(
    axes: Sequence[Trips], views: Iterable[View], grid: Grid, team: Team | None = None, in_line: int = 0
) -> Literal[32, 64]:
    """Return how wide numbers have to be that have to do with places.

    32 bits do where extents, numbers of elements, distances in bytes, variables of axes and trips are below 2**31;
    to trips, the threads of the whole grid or of its teams are added. ``in_line`` are the iterations of all tiles, of a
    scan, which has one line of iterations.
    """
    if in_line:
        numbers = [in_line]
    elif team is not None:
        numbers = [math.prod(axis.trips for axis in axes) + grid.blocks[0] * team.rows]
    else:
        numbers = [math.prod(axis.trips for axis in axes[:-2]) + grid.blocks[2]]
        for axis, blocks, threads in zip(reversed(axes[-2:]), grid.blocks, grid.threads, strict=False):
            numbers.append(axis.trips + blocks * threads)
    for axis in axes:
        numbers += [abs(axis.start), abs(axis.step * axis.trips), abs(axis.start + axis.step * axis.trips)]
    for view in views:
        reach = sum(abs(stride) * (extent - 1) for stride, extent in zip(view.strides, view.extents, strict=True))
        numbers += [*view.extents, math.prod(view.extents), reach + view.itemsize]
    return 32 if max(numbers) < _BEYOND_32 else 64
