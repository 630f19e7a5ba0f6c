"""A nest that runs in order and takes note of which iterations depend on each other.

Each cell (`cells`) has three words: the access that wrote it last, the one that read it last, and the last reader of
another iteration before that. A word is the iteration, from 1, and the number of the access in its low bits; 0 is
nobody.

A read after another iteration's write is a flow dependence, a write after another iteration's read anti, a write after
another's write output. A record for each array and kind has the count, the least and greatest distance, and the first.
An array is *exposed* if an iteration reads an element that it has not written before.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple

from offload.loops.tree import ir
from offload.loops.tree.nodes import walk
from offload.loops.tree.slices import INT, Maker
from offload.loops.watched.inspecting import address_slice
from offload.loops.watched.watching import AccessPlace, Watch, Watched

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from offload.loops.proofs.independence import DependenceKind
    from offload.loops.tree.ir import Expression, Nest, Statement, Typed
    from offload.loops.watched.cells import Cells

KINDS: Final[tuple[DependenceKind, ...]] = "flow", "anti", "output"
# The words of a cell; there are four, so that none lies across two lines of a cache. Where no load is noted, which is
# usual if a profile is to be quick, there is the first alone: memory is what it costs.
WRITER, READER, OTHER, _WORDS = 0, 1, 2, 4

# The words of a record; behind them is the element of the first event, an index a dimension.
COUNT, LEAST, GREATEST, SOURCE, SINK, HEAD = 0, 1, 2, 3, 4, 5

# Steps of an access that is noted: it touches words all over memory, a trip of an inner loop takes a nanosecond.
NOTE: Final = 8

# Of a word, for the access. Those beyond the last number share it.
_MOST_ACCESS_BITS: Final = 12

# The type of a word, by whether it is narrow.
_WORD: Final[Mapping[bool, ir.Type]] = {True: ir.Type("uint32"), False: ir.Type("int64")}


class Profiled(NamedTuple):
    """A nest that takes note."""

    watched: Watched  # the nest, with its notes
    # Names of the arrays that it is given, zero at first: the words of each cell; the records, of int64; a word of
    # int64 for each array.
    cells: str
    records: str
    exposed: str  # a word is 1 if an iteration reads what it has not written
    # Cells, and the words of each.
    n_cells: int
    n_in_cell: int
    # Those that are watched; the records of the n-th, one for each kind, begin with record `3*n`.
    arrays: tuple[str, ...]
    numbers: tuple[int, ...]  # the accesses, by `at`, in the order of their numbers
    n_words: int  # of a record
    dtype: ir.Dtype  # of the words of cells
    access_bits: int  # low bits of a word that tell the access
    steps: str | None  # the name of an array of one int64, 0 at first, in which steps are counted, where they are


class ProfileWriter(Watch):
    """Writes a nest that takes note of its accesses."""

    def __init__(
        self,
        typed: Typed,
        nest: Nest,
        modes: Mapping[int, ir.Mode],
        cells: Mapping[str, Cells],
        watched: Collection[int],  # the loads and stores, by `at`
        trips: Sequence[int],  # of each axis
        once: Collection[int] = (),  # the accesses that are noted once an iteration
        most: int | None = None,  # steps are counted, and loops of an iteration end after more
        *,
        is_slice: bool = False,  # the nest does nothing but take notes (`offload.loops.watched.inspecting`)
    ) -> None:
        super().__init__(typed, nest, modes, cells, watched, once)
        self.trips = trips  # of each axis
        self.most, self.is_slice = most, is_slice  # steps until loops of an iteration end
        self.bits = min(max(len(self.watched) - 1, 1).bit_length(), _MOST_ACCESS_BITS)  # of a word, for the access
        self.word = _WORD[(prod(trips) + 1) << self.bits <= 0xFFFFFFFF]  # narrow where that holds all iterations
        self.words = self.array("w_cells", self.word.dtype)  # the name of the array of cells
        self.records = self.array("w_records", "int64")
        self.exposed = self.array("w_exposed", "int64")
        # the name of the array that counts steps; None: they are not counted
        self.steps = None if most is None else self.array("w_steps", "int64")
        nodes = [node for node in walk(*nest.body) if isinstance(node, ir.Load)]
        self.n_in_cell = _WORDS if any(node.at in self.watched for node in nodes) else 1  # words of a cell
        self.names: dict[str, int] = {}  # arrays that are watched, and their numbers
        self.numbers: dict[int, int] = {}  # of accesses, by `at`
        self.firsts: dict[str, str] = {}  # the scalar that says where the cells of a storage begin
        self.n_words = HEAD + max((len(one.steps) for one in cells.values()), default=0)  # of a record
        self.me = self.scalar("w_me")  # the scalar with the iteration, in the high bits of a word

    def profiled(self) -> Profiled:
        """Return the nest with its notes."""
        made = self.made()
        first_cells: dict[str, int] = {}
        n_cells = 0
        for name in self.names:
            storage = self.cells[name].storage
            if storage not in first_cells:
                first_cells[storage] = n_cells
                n_cells += self.cells[name].n_cells
        given = {**made.given, **{scalar: first_cells[storage] for storage, scalar in self.firsts.items()}}
        return Profiled(
            made._replace(given=given),
            self.words,
            self.records,
            self.exposed,
            n_cells,
            self.n_in_cell,
            tuple(self.names),
            tuple(self.numbers),
            self.n_words,
            self.word.dtype,
            self.bits,
            self.steps,
        )

    def head(self) -> list[Statement]:
        make = self.make
        serial = make.binary("+", self.iteration(self.trips), make.number(1))
        return [make.let(self.me, make.binary("*", serial, make.number(1 << self.bits))), *self._stepped(1)]

    def made(self) -> Watched:
        found = super().made()
        if self.is_slice:
            words = {self.words, self.records, self.exposed} | ({self.steps} if self.steps else set())
            found = address_slice(found, words, self.nest.privates)
        if self.steps is None:
            return found
        most = self.number_given("w_most", self.most or 0)
        nest = replace(found.nest, body=self._with_trips(found.nest.body, most))
        function = replace(found.typed.function, parts=(nest,))
        typed = replace(found.typed, function=function, scalars={**found.typed.scalars, **self.scalars})
        return Watched(typed, nest, self.modes, self.given)

    def _with_trips(self, statements: tuple[Statement, ...], most: Expression) -> tuple[Statement, ...]:
        """Return statements in whose loops each trip is counted, and is the last one if there are too many."""
        found: list[Statement] = []
        for node in statements:
            match node:
                case ir.For() | ir.While():
                    self.make = make = Maker(node.place)
                    taken = make.load(self.steps or "", make.number(0), self.at(), INT)
                    leave = make.when(make.compare(taken, ">", most), ir.Break(place=node.place))
                    body = self._with_trips(node.body, most)
                    found.append(replace(node, body=(*self._stepped(1), leave, *body)))
                case ir.If():
                    then, otherwise = self._with_trips(node.then, most), self._with_trips(node.otherwise, most)
                    found.append(replace(node, then=then, otherwise=otherwise))
                case _:
                    found.append(node)
        return tuple(found)

    def _stepped(self, n: int) -> list[Statement]:
        """Return statements that count steps, if they are counted."""
        if self.steps is None:
            return []
        make = self.make
        taken = make.load(self.steps, make.number(0), self.at(), INT)
        return [make.store(self.steps, make.number(0), make.plus(taken, make.number(n)), self.at())]

    def load(self, place: AccessPlace) -> list[Statement]:
        make, source, sink = self.make, self.fresh("w_s"), self._sink(place)
        number = self.names.setdefault(place.node.array, len(self.names))
        me = make.name(self.me)

        def note(cell: Expression) -> list[Statement]:
            base, before, reader = self.fresh("w_b"), self.fresh("w_w"), self.fresh("w_r")
            is_mine = make.compare(make.name(before), ">=", me)
            return [
                make.let(base, self._base(place, cell)),
                make.let(before, self._word(base, WRITER)),
                make.when(make.without(is_mine), self._mark(number)),
                make.when(
                    make.both(make.without(is_mine), self._is_later(before, source)), *self._take(source, before)
                ),
                make.let(reader, self._word(base, READER)),
                make.when(make.compare(make.name(reader), "<", me), self._put(base, OTHER, make.name(reader))),
                self._put(base, READER, sink),
            ]

        notes = self.each_cell(place, note)
        event = self._event(source, "flow", place, number)
        return [*self._stepped(NOTE), make.let(source, make.number(0)), *notes, *event]

    def store(self, place: AccessPlace) -> list[Statement]:
        make, read, written, sink = self.make, self.fresh("w_s"), self.fresh("w_s"), self._sink(place)
        number = self.names.setdefault(place.node.array, len(self.names))
        me = make.name(self.me)

        def iteration(word: Expression) -> Expression:
            return make.binary(">>", word, make.number(self.bits))

        def note(cell: Expression) -> list[Statement]:
            base, before, reader = self.fresh("w_b"), self.fresh("w_w"), self.fresh("w_r")
            since = make.compare(iteration(make.name(before)), "<=", iteration(make.name(reader)))
            is_mine = make.compare(make.name(before), ">=", me)
            readers = [
                make.let(reader, self._word(base, READER)),
                make.when(make.compare(make.name(reader), ">=", me), make.let(reader, self._word(base, OTHER))),
                make.when(make.both(since, self._is_later(reader, read)), *self._take(read, reader)),
            ]
            return [
                make.let(base, self._base(place, cell)),
                make.let(before, self._word(base, WRITER)),
                *(readers if has_readers else []),
                make.when(
                    make.both(make.without(is_mine), self._is_later(before, written)), *self._take(written, before)
                ),
                self._put(base, WRITER, sink),
            ]

        has_readers = self.n_in_cell > 1
        notes = self.each_cell(place, note)
        return [
            *self._stepped(NOTE),
            *([make.let(read, make.number(0))] if has_readers else []),
            make.let(written, make.number(0)),
            *notes,
            *(self._event(read, "anti", place, number) if has_readers else []),
            *self._event(written, "output", place, number),
        ]

    # -- words -------------------------------------------------------------------------------------------

    def _sink(self, place: AccessPlace) -> Expression:
        """Return the word of this access in this iteration."""
        number = self.numbers.setdefault(place.node.at, len(self.numbers))
        return self.make.plus(self.make.name(self.me), self.make.number(min(number, (1 << self.bits) - 1)))

    def _base(self, place: AccessPlace, cell: Expression) -> Expression:
        storage = self.cells[place.node.array].storage
        name = self.firsts.setdefault(storage, f"w_f_{storage}")
        cell = self.make.plus(self.number_given(name, 0), cell)
        return self.make.binary("*", cell, self.make.number(self.n_in_cell)) if self.n_in_cell > 1 else cell

    def _word(self, base: str, word: int) -> Expression:
        place = self.make.plus(self.make.name(base), self.make.number(word))
        return self.make.convert(self.make.load(self.words, place, self.at(), self.word), INT)

    def _put(self, base: str, word: int, value: Expression) -> Statement:
        place = self.make.plus(self.make.name(base), self.make.number(word))
        return self.make.store(self.words, place, self.make.convert(value, self.word), self.at())

    def _is_later(self, word: str, than: str) -> Expression:
        """Return the test that a word is somebody's, and a later one's than was found in the cells before."""
        return self.make.compare(self.make.name(word), ">", self.make.name(than))

    def _take(self, found: str, word: str) -> list[Statement]:
        return [self.make.let(found, self.make.name(word))]

    def _mark(self, number: int) -> Statement:
        return self.make.store(self.exposed, self.make.number(number), self.make.number(1), self.at())

    # -- records -----------------------------------------------------------------------------------------

    def _event(self, source: str, kind: DependenceKind, place: AccessPlace, number: int) -> list[Statement]:
        """Return statements that count an access if it depends on another iteration's."""
        make = self.make
        record = (3 * number + KINDS.index(kind)) * self.n_words
        distance = self.fresh("w_d")

        def word(at: int) -> Expression:
            return make.load(self.records, make.number(record + at), self.at(), INT)

        def put(at: int, value: Expression) -> Statement:
            return make.store(self.records, make.number(record + at), value, self.at())

        def bounded(at: int, *, is_least: bool) -> Statement:
            test = make.compare(make.name(distance), "<" if is_least else ">", word(at))
            return make.when(test, put(at, make.name(distance)))

        here, there = (make.binary(">>", make.name(one), make.number(self.bits)) for one in (self.me, source))
        first = [
            put(LEAST, make.name(distance)),
            put(GREATEST, make.name(distance)),
            put(SOURCE, make.name(source)),
            put(SINK, self._sink(place)),
            *[put(HEAD + dimension, index) for dimension, index in enumerate(place.indices)],
        ]
        event = make.when(
            make.compare(make.name(source), ">", make.number(0)),
            make.let(distance, make.binary("-", here, there)),
            make.when(
                make.compare(word(COUNT), "==", make.number(0)),
                *first,
                otherwise=(bounded(LEAST, is_least=True), bounded(GREATEST, is_least=False)),
            ),
            put(COUNT, make.plus(word(COUNT), make.number(1))),
        )
        return [event]
