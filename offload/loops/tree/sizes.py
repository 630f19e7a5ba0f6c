"""Numbers of threads that clauses ask for, and the limits of a block of CUDA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Threads of a warp: the least row, and the one whose threads exchange values without shared memory.
ROW: Final = 32

# The threads of a row in a program that is debugged: `vector_length(1)`, the one length that is no multiple of 32.
ONE_LANE: Final = 1

# Of a block.
MOST_THREADS: Final = 1024

# An index in front of a section is moved by so much: it must not count from the section's end.
FAR: Final = 1 << 62


def size_error(sizes: Iterable[tuple[str, int]]) -> str:
    """Return the error in the numbers of threads that clauses ask for; empty if there is none."""
    said = dict(sizes)
    lanes, workers = lanes_of(said), workers_of(said)
    clause = "vector_length" if "vector_length" in said else "vector"
    if lanes not in {None, ONE_LANE} and lanes % ROW:
        return (
            f"{clause}={lanes} is neither {ONE_LANE} nor a multiple of {ROW}, the number of threads in a row; use "
            f"{-(-lanes // ROW) * ROW}"
        )
    if lanes is not None and lanes > ROW and workers is not None and workers > 1:
        return (
            f"{clause}={lanes} with {workers} workers; more than {ROW} lanes allow only one worker: leave out one of "
            "them"
        )
    width = max(lanes or ROW, ROW)  # a block has as many rows of one lane as of 32
    if width * (workers or 1) > MOST_THREADS:
        return (
            f"{width} lanes times {workers or 1} workers are more than the {MOST_THREADS} threads of a block; use fewer"
        )
    return ""


def lanes_of(said: Mapping[str, int]) -> int | None:
    """Return the threads of a row that clauses ask for."""
    return said.get("vector_length", said.get("vector"))


def workers_of(said: Mapping[str, int]) -> int | None:
    """Return the rows of a block that clauses ask for."""
    return said.get("num_workers", said.get("worker"))
