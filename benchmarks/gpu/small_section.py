"""Small operations: copies, regions and OpenACC's operations of a few microseconds, beside the same by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.harness.measuring import Section, Table, pairwise

if TYPE_CHECKING:
    from types import ModuleType

_UNTIL = {
    "issued": "Small operations, µs an operation until the last call has returned",
    "done": "Small operations, µs an operation until all are done",
}
"""Titles by the points in time that ``benchmarks/gpu/small.py`` names."""


def measure(program: ModuleType, peer: ModuleType, repeat: int) -> Section:
    """Measure each operation until it is issued and until it is done, and compare it turn by turn with CuPy's.

    Parameters
    ----------
    program : module
        ``benchmarks/gpu/small.py``.
    peer : module
        ``benchmarks/gpu/small_cupy.py``: the same operations by hand.
    repeat : int
        Turns.

    Raises
    ------
    InternalError
        The data has not seen every operation.
    """
    samples = program.measure(peer, repeat)
    tables = {until: Table(title) for until, title in _UNTIL.items()}
    over = Table("The same, over the operations by hand")
    for row, found in samples.items():
        for until, table in tables.items():
            sides = {side: found.get(f"{side}, {until}") for side in (program.OURS, program.BY_HAND)}
            here = {side: times for side, times in sides.items() if times}
            if here:
                table.rows[row] = here
            if len(here) == 2:
                over.rows.setdefault(row, {})[until] = pairwise(*here.values())
    tables["done"].note = (
        f"{program.N_OPERATIONS} operations a sample, with clauses, views and functions made before. Operations that "
        "constructs order have an event and a wait between them by hand; those of one queue of OpenACC are in one "
        "stream. A blocking operation has been issued when it is done."
    )
    return Section({**tables, "over": over})
