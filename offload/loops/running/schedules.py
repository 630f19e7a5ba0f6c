"""How the outermost trips of a loop on the host are cut into chunks, as ``schedule`` says.

Chunks follow from the number of trips alone, so that results do not depend on how many threads there are. With every
schedule, a free thread takes the next chunk: kinds differ in the chunks. ``static`` has some of equal length, few
enough to combine in no time; ``dynamic`` many, for trips that are unequally long; ``guided`` long ones first and then
shorter ones, each a share of the remaining trips. A size that is given is that of chunks, or of the shortest.
"""

from __future__ import annotations

from typing import Final

# Chunks of a loop: enough that threads which are late or slow even out, few enough to combine in no time.
CHUNKS: Final = 64

_MANY: Final = 16 * CHUNKS
# Where `schedule` gives the size of a chunk: 512 KB of partial results for each item of a reduction.
_MOST: Final = 1 << 16

# The part of what is left that a guided chunk has: half of what each of 16 threads would have.
_SHARE: Final = 32


def n_chunks(trips: int, rows: int, schedule: tuple[str, int | None] | None, *, shuffles: bool) -> int:
    """Return the number of chunks of the outermost loop's trips; many if they are to be shuffled.

    A chunk boundary falls between ``rows``, which are fewer than the trips if loops are tiled.
    """
    kind, size = schedule or ("static", None)
    if kind == "guided" and rows == trips:
        return max(len(guided(trips, size or 1)) - 1, 0)
    if size is not None:
        return min(-(-trips // size), _MOST)
    return min(rows, _MANY if shuffles or kind == "dynamic" else CHUNKS)


def guided(trips: int, least: int) -> list[int]:
    """Return where guided chunks begin, and where the last one ends."""
    bounds = [0]
    least = max(least, -(-trips // _MOST))
    while bounds[-1] < trips:
        left = trips - bounds[-1]
        bounds.append(bounds[-1] + min(left, max(least, -(-left // _SHARE))))
    return bounds
