"""The flag of a log, which has the first finding.

It is claimed by a compare-and-swap, and read before, so that many who find something do not wait for each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from offload.loops.tree import ir
from offload.loops.tree.slices import INT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.loops.tree.ir import Expression, Statement
    from offload.loops.tree.making import Maker

# What was found, with the storage above `WHAT_BITS`; the cell; both ids, the finder's in the high half; `OPEN`.
FLAG_WORDS: Final = 4

# The word that is not 0 where some section is not in order, so that nothing is known (`sections`).
OPEN: Final = 3

WHAT_BITS: Final = 8
ID_BITS: Final = 32

# What can be found. A reader beyond all iterations stands for several; the last two have no cell and no ids.
TWO_WRITERS, WRITER_AND_READER, OUTSIDE, FUEL = 1, 2, 3, 4


class Writer(Protocol):
    """A writer of a nest that has a flag."""

    make: Maker
    flag: str  # the name of its array

    def at(self) -> int: ...
    def fresh(self, name: str, of: ir.Type = INT) -> str: ...


def opened(writer: Writer) -> Statement:
    """Return a statement that flags an unknown result."""
    make, flag = writer.make, writer.flag
    place, said = make.number(OPEN), make.number(1)
    is_said = make.compare(make.load(flag, place, writer.at(), INT), "!=", make.number(0))
    return make.when(make.without(is_said), make.store(flag, place, said, writer.at()))


def flagged(
    writer: Writer, what: int, storage: int = 0, cell: Expression | None = None, ids: Sequence[Expression] = ()
) -> Statement:
    """Return a statement that takes the flag, if it is free, and stores the finding; ``ids`` are two."""
    make, flag = writer.make, writer.flag
    seen = make.load(flag, make.number(0), writer.at(), INT)
    before = writer.fresh("w_n")
    claim = ir.Atomic(
        place=make.place,
        array=flag,
        indices=(make.number(0),),
        operator="cas",
        value=make.number(what | storage << WHAT_BITS),
        at=writer.at(),
        expected=make.number(0),
        result=before,
    )
    is_free = make.compare(seen, "==", make.number(0))
    if cell is None:
        return make.when(is_free, claim)
    mine, others = (make.convert(one, INT) for one in ids)
    both = make.binary("|", make.binary("<<", mine, make.number(ID_BITS)), others)
    says = [make.store(flag, make.number(k), word, writer.at()) for k, word in enumerate((cell, both), 1)]
    is_mine = make.compare(make.name(before), "==", make.number(0))
    return make.when(is_free, claim, make.when(is_mine, *says))
