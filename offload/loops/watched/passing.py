"""The nest that looks over the words of a log, when the loop has run: the last question of `speculate`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from offload.loops.tree import ir
from offload.loops.tree.making import Maker
from offload.loops.tree.slices import INT
from offload.loops.watched.exchange_log import ID
from offload.loops.watched.flagging import WRITER_AND_READER, flagged
from offload.loops.watched.watching import Watched

if TYPE_CHECKING:
    from offload.loops.tree.ir import Statement, Typed
    from offload.loops.watched.exchange_log import Logged


def final_pass(typed: Typed, log: Logged, storage: str) -> Watched:
    """Return the nest that looks over the words of a storage for a cell with a writer and another reader.

    It is given the arrays and the scalars of the log.
    """
    place = typed.function.place
    make = Maker(place)
    writers, readers = log.writers[storage], log.readers[storage]
    passing = _Pass(typed, place)
    passing.arrays = {writers: ir.LoopArrayType("uint32", 1), readers: ir.LoopArrayType("uint32", 1)}
    passing.arrays[log.flag] = ir.LoopArrayType("int64", 1)
    passing.scalars = {"w_e": INT, log.base: ID, "w_w": ID, "w_r": ID, "w_n": INT}
    passing.flag = log.flag
    number = log.storages.index(storage)
    cell, base = make.name("w_e"), make.name(log.base, ID)
    written, read = make.name("w_w", ID), make.name("w_r", ID)
    meets = make.both(
        make.compare(written, ">", base), make.compare(read, ">", base), make.compare(read, "!=", written)
    )
    body: tuple[Statement, ...] = (
        make.let("w_w", make.load(writers, cell, passing.at(), ID)),
        make.let("w_r", make.load(readers, cell, passing.at(), ID)),
        make.when(meets, flagged(passing, WRITER_AND_READER, number, cell, (written, read))),
    )
    axis = ir.LoopAxis(variable="w_e", start=make.number(0), stop=make.name("w_n"), step=make.number(1), place=place)
    nest = ir.Nest(axes=(axis,), body=body, clauses=ir.LoopClauses(), place=place)
    function = replace(
        typed.function,
        parts=(nest,),
        parameters=(),
        arrays=(writers, readers, log.flag),
        returns=(),
        absent=frozenset(),
    )
    made = replace(typed, function=function, scalars=passing.scalars, arrays=passing.arrays, notes=())
    return Watched(made, nest, passing.modes, {})


class _Pass:
    """What `flagged` asks for, of the pass."""

    def __init__(self, typed: Typed, place: ir.SourceLine) -> None:
        self.make = Maker(place)
        self.modes: dict[int, ir.Mode] = {}  # of its accesses: all are inside
        self.arrays: dict[str, ir.LoopArrayType] = {}
        self.scalars: dict[str, ir.Type] = {}
        self.flag = ""

    def at(self) -> int:
        number = len(self.modes)
        self.modes[number] = "off"
        return number

    def fresh(self, name: str, of: ir.Type = INT) -> str:
        name = f"{name}{len(self.scalars)}"
        self.scalars[name] = of
        return name
