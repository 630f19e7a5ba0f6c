"""A nest that runs in parallel without a proof, with the exchange log next to its accesses.

Each cell (`cells`) of a logged storage has a word ``wr``, and a word ``rd`` if reads are logged. An iteration has the
id ``base + 1 + it``; ``many`` is ``base + 1 + N``. The next loop starts with a higher base, so nothing is cleared. ::

    store:  old = exchange(&wr[c], id);  if (old > base && old != id) flag
    load:   if (rd[c] != many) { old = fetch_max(&rd[c], id); if (old > base && old != id) fetch_max(&rd[c], many) }
    pass:   over the cells: if (wr[c] > base && rd[c] > base && rd[c] != wr[c]) flag

Two writers meet in the exchanges; two readers leave ``many``; the pass finds a writer and one other reader. Steps are
relaxed, and the answer does not depend on the schedule (tests/loops/test_log_rules.py). docs/design/loops.md describes
own stores, sections, and how a wrong run stays harmless.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from offload.loops.tree import ir
from offload.loops.tree.nodes import mapped, walk
from offload.loops.tree.slices import INT, TRUTH, Maker
from offload.loops.tree.uses import numbered
from offload.loops.watched.needs import stored_before
from offload.loops.watched.sections import following
from offload.loops.watched.watching import AccessPlace, Watch, Watched

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from offload.loops.proofs.numbers import Trips
    from offload.loops.tree.ir import Expression, Nest, Statement, Typed
    from offload.loops.tree.nodes import Node
    from offload.loops.watched.cells import Cells
    from offload.loops.watched.needs import Needed
    from offload.loops.watched.sections import LogSection


# -- the flag -----------------------------------------------------------------------------------------
#
# Whoever finds something first says what. The flag is claimed by a compare-and-swap, and read before, so that many
# who find something do not wait for each other.


# What was found, with the storage above `WHAT_BITS`; the cell; both ids, the finder's in the high half; `OPEN`.
FLAG_WORDS: Final = 4

# The word that is not 0 where some section is not in order, so that nothing is known (`sections`).
OPEN: Final = 3

WHAT_BITS: Final = 8
ID_BITS: Final = 32

# What can be found. A reader beyond all iterations stands for several; the last two have no cell and no ids.
TWO_WRITERS, WRITER_AND_READER, OUTSIDE, FUEL = 1, 2, 3, 4


def opened(writer: LogWriter | _Pass) -> Statement:
    """Return a statement that flags an unknown result."""
    make, flag = writer.make, writer.flag
    place, said = make.number(OPEN), make.number(1)
    is_said = make.compare(make.load(flag, place, writer.at(), INT), "!=", make.number(0))
    return make.when(make.without(is_said), make.store(flag, place, said, writer.at()))


def flagged(
    writer: LogWriter | _Pass,
    what: int,
    storage: int = 0,
    cell: Expression | None = None,
    ids: Sequence[Expression] = (),
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


# -- loops that garbage may keep running --------------------------------------------------------------


def tainted_loops(nest: Nest, arrays: Collection[str]) -> frozenset[int]:
    """Return the loops, by their `id`, whose trips may follow from elements of these arrays.

    A variable assigned in a branch or a loop that follows from them follows from them as well.
    """
    taint = _Taint(arrays)
    size = -1
    while size < taint.size:
        size = taint.size
        taint.block(nest.body, is_tainted=False)
    return frozenset(taint.loops)


class _Taint:
    def __init__(self, arrays: Collection[str]) -> None:
        self.arrays = set(arrays)  # with garbage in them
        self.names: set[str] = set()  # scalars that may be garbage
        self.loops: set[int] = set()  # by `id`

    @property
    def size(self) -> int:
        return len(self.arrays) + len(self.names) + len(self.loops)

    def has(self, *expressions: Expression | None) -> bool:
        """Tell whether one of these follows from the arrays."""
        return any(
            (isinstance(node, ir.Name) and node.name in self.names)
            or (isinstance(node, ir.Load) and node.array in self.arrays)
            for expression in expressions
            if expression is not None
            for node in walk(expression)
        )

    def block(self, statements: tuple[Statement, ...], *, is_tainted: bool) -> None:
        for statement in statements:
            self.statement(statement, is_tainted=is_tainted)

    def statement(self, node: Statement, *, is_tainted: bool) -> None:
        match node:
            case ir.Assign(name=name, value=value) | ir.Reduce(name=name, value=value):
                if is_tainted or self.has(value):
                    self.names.add(name)
            case ir.Store():
                if is_tainted or self.has(node.value, *node.indices):
                    self.arrays.add(node.array)
            case ir.Atomic():
                if is_tainted or self.has(node.value, node.expected, *node.indices):
                    self.arrays.add(node.array)
                if node.result is not None and node.array in self.arrays:
                    self.names.add(node.result)
            case ir.Local(name=name, fill=fill):
                if is_tainted or self.has(fill):
                    self.arrays.add(name)
            case ir.If():
                inside = is_tainted or self.has(node.condition)
                self.block(node.then, is_tainted=inside)
                self.block(node.otherwise, is_tainted=inside)
            case ir.For():
                self.loop(node, is_tainted=is_tainted or self.has(node.start, node.stop, node.step))
                if id(node) in self.loops:
                    self.names.add(node.variable)
            case ir.While():
                self.loop(node, is_tainted=is_tainted or self.has(node.condition))

    def loop(self, node: ir.For | ir.While, *, is_tainted: bool) -> None:
        if is_tainted:
            self.loops.add(id(node))
        self.block(node.body, is_tainted=is_tainted)


# -- the log ------------------------------------------------------------------------------------------


NO_SECTIONS: Final[Mapping[str, LogSection]] = MappingProxyType({})
ID: Final = ir.Type("uint32")
MOST_IDS: Final = (1 << 32) - 1
# Loops of that many iterations are not speculated.
MOST_ITERATIONS: Final = 1 << 31

# Trips of a loop that may never end. One that has more is called a violation, and the loop runs in order.
_FUEL: Final = 1 << 20

# A loop that may never end looks at the flag in one trip of so many, plus one.
_LOOK: Final = 1023


class Logged(NamedTuple):
    """A nest with a log."""

    watched: Watched  # the nest, with the log's statements
    # By storage, the names of the arrays of its words, of uint32.
    writers: Mapping[str, str]
    readers: Mapping[str, str]
    flag: str  # the name of the flag: an array of `FLAG_WORDS` words of int64, zero at first
    # Scalars of uint32: what words that are old do not exceed; what stands for several readers; the id of the iteration
    # whose trips are all 0.
    base: str
    many: str
    first: str
    n_cells: Mapping[str, int]  # of each storage that is logged
    storages: tuple[str, ...]  # the number of a storage in the flag is its place here
    sectioned: tuple[str, ...] = ()  # the storages that have no words, as iterations have sections of them


class LogWriter(Watch):
    """Writes a nest with a log."""

    takes_indices = True

    def __init__(
        self,
        typed: Typed,
        modes: Mapping[int, ir.Mode],  # by the accesses' numbers in the nest as it was
        cells: Mapping[str, Cells],
        of: Needed,  # the nest, and what is logged
        axes: Sequence[Trips],
        parts: Mapping[str, LogSection] = NO_SECTIONS,  # of the storages that need no words
        *,
        checks: bool = False,  # flag an access outside of its array, whether it is logged or not
    ) -> None:
        own = {at: modes.get(before, "check") for at, before in of.originals.items()}
        nodes = numbered(of.nest)
        in_parts = {at for at in of.loads | of.stores if cells[nodes[at].array].storage in parts}
        self.logged_at = watched = (of.loads | of.stores) - in_parts  # accesses, by `at`, that words are kept for
        if checks:  # a section that is in order is inside of its array
            watched |= {at for at, mode in own.items() if mode == "check"} - in_parts
        super().__init__(typed, of.nest, own, cells, watched, of.once)
        # sections that stand for words, by storage
        self.of, self.axes, self.parts, self.checks = of, axes, parts, checks
        self.flag = self.array("w_flag", "int64")  # the name of its array
        self.base, self.many, self.first = (self.scalar(name, ID) for name in ("w_base", "w_many", "w_first"))
        self.id = self.scalar("w_id", ID)  # the scalar with the iteration's id
        self.fuel = self.scalar("w_fuel")  # the scalar that counts trips of dangerous loops
        self.writers: dict[str, str] = {}  # names of arrays of words, by storage
        self.readers: dict[str, str] = {}  # names of arrays of words, by storage
        self.storages: dict[str, int] = {}  # their numbers in the flag
        logged = {cells[node.array].storage for at, node in numbered(of.nest).items() if at in of.stores}
        # accesses, by `at`, that may come to an element which the iteration has stored to
        self.again = stored_before(of, {name: one.storage for name, one in cells.items()})
        # loops, by `id`, that may never end while values are garbage
        self.dangerous = tainted_loops(of.nest, {name for name, one in cells.items() if one.storage in logged})

    def logged(self) -> Logged:
        """Return the nest with its log."""
        watched = self.made()
        n_cells = {one.storage: one.n_cells for one in self.cells.values()}
        return Logged(
            watched,
            self.writers,
            self.readers,
            self.flag,
            self.base,
            self.many,
            self.first,
            {storage: n_cells[storage] for storage in self.storages},
            tuple(self.storages),
            tuple(self.parts),
        )

    # -- statements --------------------------------------------------------------------------------------

    def head(self) -> list[Statement]:
        make = self.make = Maker(self.nest.place)
        number = make.convert(self.iteration([axis.trips for axis in self.axes]), ID)
        lines: list[Statement] = [make.let(self.id, make.binary("+", number, make.name(self.first, ID)))]
        if self.dangerous:
            lines.append(make.let(self.fuel, make.number(_FUEL)))
        return lines + self.in_order() if self.parts else lines

    def in_order(self) -> list[Statement]:
        """Return statements that flag a section of this iteration that is not before those of the next one."""
        make, is_so = self.make, self.fresh("w_y", TRUTH)
        before: list[Statement] = []
        behind: list[Statement] = []
        inside: list[Expression] = []
        beyond: list[Expression] = [make.name(is_so, TRUTH)]
        step = make.number(self.axes[0].step)
        variable = self.nest.axes[0].variable
        for storage, part in self.parts.items():
            low, high = self.extreme("min", part.lows, before), self.extreme("max", part.highs, before)
            later = self.extreme("min", [following(one, variable, step) for one in part.lows], behind)
            inside += [make.compare(make.number(0), "<=", low), make.compare(high, "<", make.extent(storage, 0))]
            beyond += [make.compare(low, "<=", later), make.compare(high, "<", later)]
        one = make.number(1, ID)
        has_next = make.compare(
            make.binary("+", make.name(self.id, ID), one), "<", make.name(self.many, ID)
        )  # where it has none, nothing that its section is made of need be there
        return [
            *before,
            make.let(is_so, make.both(*inside)),
            make.when(has_next, *behind, make.let(is_so, make.both(*beyond))),
            make.when(make.without(make.name(is_so, TRUTH)), opened(self)),
        ]

    def extreme(self, function: str, values: Sequence[Expression], lines: list[Statement]) -> ir.Name:
        """Return the scalar that is the least or greatest of some values."""
        make, name = self.make, self.fresh("w_e")
        found: Expression | None = None
        for value in values:
            own = mapped(value, self.own_load)
            if found is not None:
                own = ir.FunctionCall(place=make.place, function=function, arguments=(make.name(name), own), type=INT)
            lines.append(make.let(name, own))
            found = own
        return make.name(name)

    def own_load(self, node: Node) -> Node:
        """Return a load with a number of its own."""
        return replace(node, at=self.at(self.modes[node.at])) if isinstance(node, ir.Load) else node

    def trip(self, loop: ir.For | ir.While) -> list[Statement]:
        if id(loop) not in self.dangerous:
            return []
        make, seen = self.make, self.fresh("w_l")
        fuel, leave = make.name(self.fuel), ir.Break(place=loop.place)
        is_time = make.binary("&", fuel, make.number(_LOOK))
        look = make.step("+", self.flag, make.number(0), make.number(0), self.at(), seen)
        return [
            make.let(self.fuel, make.binary("-", fuel, make.number(1))),
            make.when(make.compare(fuel, "<", make.number(0)), flagged(self, FUEL), leave),
            make.when(
                make.compare(is_time, "==", make.number(0)),
                look,
                make.when(make.compare(make.name(seen), "!=", make.number(0)), leave),
            ),
        ]

    def store(self, place: AccessPlace) -> list[Statement]:
        if place.node.at not in self.logged_at:
            return []
        make, number = self.make, self._storage(place)
        words = self._words(self.writers, "w_wr", place)

        def note(cell: Expression) -> list[Statement]:
            old, own = self.fresh("w_a", ID), make.name(self.id, ID)
            notes: list[Statement] = [
                make.step("exchange", words, cell, own, self.at(place.mode), old),
                make.when(self._is_another(old), flagged(self, TWO_WRITERS, number, cell, (own, make.name(old, ID)))),
            ]
            return [make.when(self._is_new(words, cell, place.mode), *notes)] if place.node.at in self.again else notes

        return self.each_cell(place, note)

    def load(self, place: AccessPlace) -> list[Statement]:
        if place.node.at not in self.logged_at:
            return []
        make = self.make
        self._storage(place)
        writers = self._words(self.writers, "w_wr", place)
        words = self._words(self.readers, "w_rd", place)
        many = make.name(self.many, ID)

        def note(cell: Expression) -> list[Statement]:
            old = self.fresh("w_a", ID)
            test: Expression = make.compare(make.load(words, cell, self.at(place.mode), ID), "!=", many)
            if place.node.at in self.again:
                test = make.both(self._is_new(writers, cell, place.mode), test)
            return [
                make.when(
                    test,
                    make.step("max", words, cell, make.name(self.id, ID), self.at(place.mode), old),
                    make.when(self._is_another(old), make.step("max", words, cell, many, self.at(place.mode), None)),
                )
            ]

        return self.each_cell(place, note)

    def outside(self, place: AccessPlace) -> list[Statement]:
        if not self.checks:
            return []
        return [flagged(self, OUTSIDE)]

    # -- parts of them -----------------------------------------------------------------------------------

    def _storage(self, place: AccessPlace) -> int:
        storage = self.cells[place.node.array].storage
        return self.storages.setdefault(storage, len(self.storages))

    def _words(self, of: dict[str, str], name: str, place: AccessPlace) -> str:
        storage = self.cells[place.node.array].storage
        if storage not in of:
            of[storage] = self.array(f"{name}_{storage}", "uint32")
        return of[storage]

    def _is_new(self, writers: str, cell: Expression, mode: ir.Mode) -> Expression:
        """Return the test that the iteration has not stored to a cell."""
        make = self.make
        return make.compare(make.load(writers, cell, self.at(mode), ID), "!=", make.name(self.id, ID))

    def _is_another(self, old: str) -> Expression:
        """Return the test that a word was of this loop, and of another iteration."""
        make = self.make
        was = make.name(old, ID)
        return make.both(
            make.compare(was, ">", make.name(self.base, ID)), make.compare(was, "!=", make.name(self.id, ID))
        )


# -- the pass over the words when the loop has run ------------------------------------------------------


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
    """The writer of the pass, as `flagged` needs it."""

    def __init__(self, typed: Typed, place: ir.SourceLine) -> None:
        self.make = Maker(place)
        self.modes: dict[int, ir.Mode] = {}  # of its accesses: all are inside
        self.arrays: dict[str, ir.LoopArrayType] = {}
        self.scalars: dict[str, ir.Type] = {}
        self.flag = ""  # the name of its array

    def at(self) -> int:
        number = len(self.modes)
        self.modes[number] = "off"
        return number

    def fresh(self, name: str, of: ir.Type = INT) -> str:
        name = f"{name}{len(self.scalars)}"
        self.scalars[name] = of
        return name
