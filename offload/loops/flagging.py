"""The flag of a log: whoever finds something first says what.

It is claimed by a compare-and-swap, and read before, so that many who find something do not wait for each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from offload.loops import ir
from offload.loops.slices import INT

if TYPE_CHECKING:
    from offload.loops.ir import Expression, Statement
    from offload.loops.making import Maker

FLAG_WORDS: Final = 6
"""Whether something was found; what; in which storage; in which cell; by whom, as ids less the base, from 1."""

TWO_WRITERS, WRITER_AND_READER, OUTSIDE, FUEL = 1, 2, 3, 4
"""What can be found. A reader beyond all iterations stands for several."""


class Writer(Protocol):
    """What writes a nest that has a flag."""

    make: Maker
    flag: str

    def at(self) -> int: ...
    def fresh(self, name: str, of: ir.Type = INT) -> str: ...


def flagged(writer: Writer, words: list[Expression]) -> Statement:
    """Return what takes the flag, if it is free, and says what was found."""
    make, flag = writer.make, writer.flag
    seen = make.load(flag, make.number(0), writer.at(), INT)
    before = writer.fresh("w_n")
    claim = ir.Atomic(
        place=make.place,
        array=flag,
        indices=(make.number(0),),
        operator="cas",
        value=make.number(1),
        at=writer.at(),
        expected=make.number(0),
        result=before,
    )
    says = [make.store(flag, make.number(k), word, writer.at()) for k, word in enumerate(words, 1)]
    return make.when(
        make.compare(seen, "==", make.number(0)),
        claim,
        make.when(make.compare(make.name(before), "==", make.number(0)), *says),
    )
