"""A nest that is watched: statements next to each access of some of its arrays record it.

The added statements are ordinary IR, so every emitter prints them: `exchange_log` writes the log of a parallel run,
`profiling` the notes of a run in order. Notes of loads stand before the statement that reads, in its order; those of an
operand that is not always evaluated stand in a branch. The condition of a ``while`` moves into its body. A store is
noted after its value and indices are known. An index that reads an element is evaluated once. A checked access is noted
if it is inside its array.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from offload.loops.tree import ir
from offload.loops.tree.nodes import has_load, walk
from offload.loops.tree.slices import INT, TRUTH, Maker, as_index
from offload.loops.tree.uses import NUMBERED

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from offload.loops.tree.ir import Expression, Nest, Statement, Type, Typed
    from offload.loops.watched.cells import Cells


class Watched(NamedTuple):
    """A nest that is watched."""

    typed: Typed  # the function, with that nest alone, and the arrays and scalars that it is given besides
    nest: Nest
    modes: Mapping[int, ir.Mode]  # of all its accesses
    given: Mapping[str, int]  # the scalars that say where cells are, with their values at the launch


class AccessPlace(NamedTuple):
    """The place that an access goes to."""

    node: ir.Load | ir.Store | ir.Atomic  # with indices that have been evaluated
    cell: Expression  # the first of its cells
    width: int  # how many there are
    indices: tuple[Expression, ...]  # None is negative
    # How an index that is the cell is checked; otherwise it is inside of its array, and `"off"`.
    mode: ir.Mode = "off"


class Watch(ABC):
    """Writes a nest that is watched."""

    # Where cells are the elements of an array of one dimension, a cell may be the program's own index. Then one check
    # before a loop covers the access and its note.
    takes_indices = False

    def __init__(
        self,
        typed: Typed,
        nest: Nest,
        modes: Mapping[int, ir.Mode],
        cells: Mapping[str, Cells],
        watched: Collection[int],  # the accesses, by `at`
        once: Collection[int] = (),  # those that are noted once an iteration, in whatever loops they stand
    ) -> None:
        self.typed = typed  # the function as it was
        self.nest = nest  # as it was
        self.modes: dict[int, ir.Mode] = dict(modes)  # of its accesses, those of notes included
        self.cells = cells
        self.watched = frozenset(watched)  # by `at`
        self.arrays: dict[str, ir.LoopArrayType] = {}  # that the nest is given besides
        self.scalars: dict[str, Type] = {}  # that it has besides
        self.given: dict[str, int] = {}  # scalars with their values at the launch
        self.make = Maker(nest.place)  # makes nodes at the line that is written now
        self._taken = {*typed.scalars, *typed.arrays}  # names of the function
        # accesses, by `at`, that are noted once
        self._once_at, self._once, self._n_loops = frozenset(once), list[str](), 0
        # the greatest number of an access so far
        self._at = max((node.at for node in walk(*nest.body) if isinstance(node, NUMBERED)), default=0)

    # -- what a log or a profile does --------------------------------------------------------------------

    @abstractmethod
    def head(self) -> list[Statement]:
        """Return the statements at the beginning of an iteration; written last."""

    @abstractmethod
    def load(self, place: AccessPlace) -> list[Statement]:
        """Return the statements that note a load."""

    @abstractmethod
    def store(self, place: AccessPlace) -> list[Statement]:
        """Return the statements that note a store, or an atomic step."""

    def outside(self, place: AccessPlace) -> list[Statement]:
        """Return the statements that note an access outside of its array."""
        return []

    def trip(self, loop: ir.For | ir.While) -> list[Statement]:
        """Return the statements at the beginning of each trip of a loop."""
        return []

    # -- what they are given -----------------------------------------------------------------------------

    def made(self) -> Watched:
        """Return the nest."""
        body = self.block(self.nest.body)
        head = self.head()
        head += [self.make.let(name, self.make.number(0, TRUTH)) for name in self._once]
        nest = replace(self.nest, body=(*head, *body))
        function = self.typed.function
        function = replace(
            function,
            parts=(nest,),
            arrays=(*function.arrays, *self.arrays),
        )
        typed = replace(
            self.typed,
            function=function,
            scalars={**self.typed.scalars, **self.scalars},
            arrays={**self.typed.arrays, **self.arrays},
        )
        return Watched(typed, nest, self.modes, self.given)

    def scalar(self, name: str, of: Type = INT) -> str:
        """Return the name of a scalar that the program does not have, the same for the same name."""
        while name in self._taken:
            name += "_"
        self.scalars[name] = of
        return name

    def fresh(self, name: str, of: Type = INT) -> str:
        """Return the name of a scalar that nothing has yet."""
        count = len(self.scalars)
        return self.scalar(f"{name}{count}", of)

    def array(self, name: str, dtype: ir.Dtype) -> str:
        """Return the name of an array of one dimension that the program does not have."""
        while name in self._taken:
            name += "_"
        self.arrays[name] = ir.LoopArrayType(dtype, 1)
        return name

    def at(self, mode: ir.Mode = "off") -> int:
        """Return the number of an access whose index is checked so."""
        self._at += 1
        self.modes[self._at] = mode
        return self._at

    # -- statements --------------------------------------------------------------------------------------

    def block(self, statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
        return tuple([made for statement in statements for made in self.statement(statement)])

    def statement(self, node: Statement) -> list[Statement]:
        """Return a statement with its notes before it."""
        is_loop = isinstance(node, ir.For | ir.While)
        self._n_loops += is_loop
        made = self._statement(node)
        self._n_loops -= is_loop
        return made

    def _statement(self, node: Statement) -> list[Statement]:
        self.make = Maker(node.place)
        out: list[Statement] = []
        match node:
            case ir.Assign() | ir.Reduce():
                node = replace(node, value=self.expression(node.value, out))
            case ir.Store():
                node = replace(node, value=self.expression(node.value, out))
                node = self.written(node, out)
            case ir.Atomic():
                node = self.atomic(node, out)
            case ir.If():
                node = replace(node, condition=self.expression(node.condition, out))
                node = replace(node, then=self.block(node.then), otherwise=self.block(node.otherwise))
            case ir.For():
                start, stop, step = (self.expression(one, out) for one in (node.start, node.stop, node.step))
                body = (*self.trip(node), *self.block(node.body))
                node = replace(node, start=start, stop=stop, step=step, body=body)
            case ir.While():
                node = self.repeated(node)
            case ir.Assert():
                node = replace(node, condition=self.expression(node.condition, out))
            case ir.IndexCheck():
                indices = tuple([self.kept(self.expression(index, out), out) for index in node.indices])
                node = replace(node, indices=indices)
            case ir.Local() if node.fill is not None:
                node = replace(node, fill=self.expression(node.fill, out))
        return [*out, node]

    def repeated(self, node: ir.While) -> ir.While:
        """Return a ``while`` whose condition, if it is watched, is tested in the body."""
        before: list[Statement] = []
        condition = self.expression(node.condition, before)
        trip = self.trip(node)
        body = self.block(node.body)
        if not before:
            return replace(node, body=(*trip, *body))
        make = Maker(node.place)
        leave = make.when(make.without(condition), ir.Break(place=node.place))
        always = ir.Constant(place=node.place, value=True, type=TRUTH)
        return replace(node, condition=always, body=(*trip, *before, leave, *body))

    def atomic(self, node: ir.Atomic, out: list[Statement]) -> ir.Atomic:
        node = self.written(node, out, notes=False)
        expected = None if node.expected is None else self.expression(node.expected, out)
        node = replace(node, value=self.expression(node.value, out), expected=expected)
        if node.at in self.watched:
            self.noted(node, out, self.store)
        return node

    def written(self, node: Any, out: list[Statement], *, notes: bool = True) -> Any:
        """Return a store or an atomic step whose indices have been evaluated."""
        indices = tuple([self.kept(self.expression(index, out), out) for index in node.indices])
        node = replace(node, indices=indices)
        if notes and node.at in self.watched:
            self.noted(node, out, self.store)
        return node

    # -- expressions -------------------------------------------------------------------------------------

    def expression(self, node: Expression, out: list[Statement], *, is_certain: bool = True) -> Expression:
        """Return an expression, and put the notes of its loads in their order."""
        match node:
            case ir.Load():
                indices = [self.expression(index, out, is_certain=is_certain) for index in node.indices]
                if node.at not in self.watched:
                    return replace(node, indices=tuple(indices))
                if is_certain:
                    indices = [self.kept(index, out) for index in indices]
                load = replace(node, indices=tuple(indices))
                self.noted(load, out, self.load)
                return load
            case ir.Select():
                condition = self.expression(node.condition, out, is_certain=is_certain)
                then, otherwise = self.perhaps(node.then), self.perhaps(node.otherwise)
                if then or otherwise:
                    out.append(self.make.when(condition, *then, otherwise=tuple(otherwise)))
                return replace(node, condition=condition)
            case ir.Logical():
                left = self.expression(node.left, out, is_certain=is_certain)
                right = self.perhaps(node.right)
                if right:
                    condition = left if node.operator == "and" else self.make.without(left)
                    out.append(self.make.when(condition, *right))
                return replace(node, left=left)
            case _:
                changes: dict[str, Any] = {}
                for one in fields(node):
                    value = getattr(node, one.name)
                    if isinstance(value, ir.Expression):
                        changes[one.name] = self.expression(value, out, is_certain=is_certain)
                    elif isinstance(value, tuple) and value and isinstance(value[0], ir.Expression):
                        parts = [self.expression(part, out, is_certain=is_certain) for part in value]
                        changes[one.name] = tuple(parts)
                return replace(node, **changes) if changes else node

    def perhaps(self, node: Expression) -> list[Statement]:
        """Return the notes of an expression that is not always evaluated; it stays as it is."""
        out: list[Statement] = []
        self.expression(node, out, is_certain=False)
        return out

    def kept(self, index: Expression, out: list[Statement]) -> Expression:
        """Return an index that is evaluated once: where it reads an element, a scalar."""
        if not has_load(index):
            return index
        assert index.type is not None
        name = self.fresh("w_k", index.type)
        out.append(self.make.let(name, index))
        return self.make.name(name, index.type)

    # -- cells -------------------------------------------------------------------------------------------

    def noted(self, node: Any, out: list[Statement], note: Callable[[AccessPlace], list[Statement]]) -> None:
        """Append the statements that note an access, which are carried out if it is inside of its array."""
        make, mode = self.make, self.modes.get(node.at, "check")
        cells = self.cells[node.array]
        if self.takes_indices and mode != "off" and cells.are_elements:
            (index,) = node.indices
            if notes := note(AccessPlace(node, index, 1, (index,), mode)):
                out += self._perhaps_once(node.at, notes)
                return
        tests: list[Expression] = []
        wrapped: list[Expression] = []
        before: list[Statement] = []
        for dimension, index in enumerate(map(as_index, node.indices)):
            if mode == "off":
                wrapped.append(index)
                continue
            raw, inside = self.fresh("w_i"), self.fresh("w_j")
            extent, value = make.extent(node.array, dimension), make.name(raw)
            before.append(make.let(raw, index))
            below = make.compare(value, "<", make.number(0))
            before.append(make.let(inside, make.select(below, make.binary("+", value, extent), value)))
            wrapped.append(make.name(inside))
            if mode == "check":
                tests += [make.compare(make.number(0), "<=", make.name(inside))]
                tests += [make.compare(make.name(inside), "<", extent)]
        place = AccessPlace(node, self.cell(node.array, cells, wrapped), cells.width, tuple(wrapped))
        notes = self._perhaps_once(node.at, note(place))
        outside = self.outside(place) if tests else []
        if outside:
            out += [*before, make.when(make.both(*tests), *notes, otherwise=tuple(outside))]
        elif notes:
            out += [*before, *([make.when(make.both(*tests), *notes)] if tests else notes)]

    def _perhaps_once(self, at: int, notes: list[Statement]) -> list[Statement]:
        if not notes or not self._n_loops or at not in self._once_at:
            return notes
        make, name = self.make, self.fresh("w_d", TRUTH)
        self._once.append(name)
        is_new = make.without(make.name(name, TRUTH))
        return [make.when(is_new, make.let(name, make.number(1, TRUTH)), *notes)]

    def cell(self, array: str, cells: Cells, indices: list[Expression]) -> Expression:
        """Return the first cell of an element. Numbers of the launch that are not 0 or 1 are scalars."""
        make = self.make
        total: Expression = make.number(0)
        if cells.offset:
            total = self.number_given(f"w_o_{array}", cells.offset)
        for dimension, (index, step) in enumerate(zip(indices, cells.steps, strict=True)):
            if not step:
                continue
            if step != 1:
                step_of = self.number_given(f"w_s{dimension}_{array}", step)
                total = make.plus(total, make.binary("*", index, step_of))
            else:
                total = make.plus(total, index)
        return total

    def number_given(self, name: str, value: int) -> ir.Name:
        """Return a scalar that has this value at the launch."""
        name = self.scalar(name)
        self.given[name] = value
        return self.make.name(name)

    def iteration(self, trips: Sequence[int]) -> Expression:
        """Return which iteration of a serial loop it is, from 0, by the trips of each axis."""
        make = self.make
        total: Expression = ir.Trip(place=make.place, axis=0, type=INT)
        for axis, extent in enumerate(trips[1:], 1):
            total = make.binary("*", total, self.number_given(f"w_t{axis}", extent))
            total = make.binary("+", total, ir.Trip(place=make.place, axis=axis, type=INT))
        return total

    def each_cell(self, place: AccessPlace, note: Callable[[Expression], list[Statement]]) -> list[Statement]:
        """Return the statements for each cell of an access."""
        if place.width == 1:
            return note(place.cell)
        make = self.make
        variable = self.fresh("w_c")
        first = self.fresh("w_f")
        body = note(make.plus(make.name(first), make.name(variable)))
        loop = ir.For(
            place=make.place,
            variable=variable,
            start=make.number(0),
            stop=make.number(place.width),
            step=make.number(1),
            body=tuple(body),
        )
        return [make.let(first, place.cell), loop]
