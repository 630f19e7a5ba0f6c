"""The accesses of a nest that a log needs: those without a proof, unless they change no answer.

A log asks whether an element has two writers, or a writer and another reader. Left out are:

* an access whose element a log of the same kind has on every path before, in the same trip;
* a load whose iteration also stores to the element, on every path through the load: other writers meet the store;
* trailing dimensions of an array whose rows share nothing and are touched as a whole.

Value numbers tell equal elements (`meetings`). An access that varies in no loop around it is logged *once* an
iteration. Atomic steps are logged as stores, in arrays that are also used plainly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from offload.loops.proofs.independence import is_injective
from offload.loops.proofs.meetings import element_of, number_of, storages
from offload.loops.proofs.reach import accesses
from offload.loops.tree import ir
from offload.loops.tree.nodes import expressions_of, walk
from offload.loops.tree.uses import numbered_apart
from offload.loops.watched.cells import groups_of

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterator, Mapping

    from offload.loops.proofs.numbers import LaunchNumbers
    from offload.loops.proofs.reach import ElementAccess, NestAccesses
    from offload.loops.tree.ir import Expression, Nest, Statement, Typed

    Numbers = frozenset[Hashable]


class Needed(NamedTuple):
    """The needs of a log."""

    nest: Nest  # the nest; each access has a number of its own
    originals: Mapping[int, int]  # which number it had before
    # The accesses that are logged, by their own numbers; atomic steps as stores.
    loads: frozenset[int]
    stores: frozenset[int]
    once: frozenset[int]  # those of them that are logged once an iteration
    left_out: Mapping[str, int]  # of arrays, how many of the last dimensions are not told apart
    written: frozenset[str]  # arrays whose storage the nest may write


def needed(typed: Typed, nest: Nest, launch: LaunchNumbers, unknown: Collection[int]) -> Needed:
    """Return the accesses that a log of a nest needs; ``unknown`` has those, by `at`, with no proof."""
    nest, originals = numbered_apart(nest)
    found = accesses(typed, nest, launch)
    listed = {access.at: access for access in found.listed if originals[access.at] in unknown}
    left_out = _left_out(found, listed)
    order = _NeedOrder(listed, _numbers(found, listed, left_out))
    order.behind(nest.body, frozenset(), None)
    order.block(nest.body, frozenset())
    kept = order.loads | order.stores
    return Needed(
        nest,
        originals,
        frozenset(order.loads),
        frozenset(order.stores),
        frozenset(at for at in kept if _is_once(found, listed[at], left_out)),
        left_out,
        found.written,
    )


def _numbers(
    found: NestAccesses, listed: Mapping[int, ElementAccess], left_out: Mapping[str, int]
) -> dict[int, Hashable]:
    """Return the value number of the cell of each access."""
    views = found.launch.views
    written = {access.array for access in listed.values() if access.kind != "load"}
    known = storages(views, written)
    if known is None:  # views of other elements: no two are told to be the same
        return {at: at for at in listed}
    numbers: dict[int, Hashable] = {}
    for at, access in listed.items():
        element = element_of(found, known, access)
        kept = element.dimensions[: len(element.dimensions) - left_out.get(access.array, 0)]
        numbers[at] = element.storage, tuple(number_of(*dimension) for dimension in kept)
    return numbers


def _left_out(found: NestAccesses, listed: Mapping[int, ElementAccess]) -> dict[str, int]:
    """Return how many of the last dimensions of arrays need not be told apart."""
    of: dict[str, list[ElementAccess]] = {}
    for access in listed.values():
        of.setdefault(access.array, []).append(access)
    views = found.launch.views
    alone = {names[0] for names in groups_of(views) if len(names) == 1 and is_injective(views[names[0]])}
    left_out = {}
    for array, all_ in of.items():
        numbers = range(_most_left_out(found, all_), 0, -1) if array in alone else ()
        n = next((n for n in numbers if _one_row(all_, n)), 0)
        if n:
            left_out[array] = n
    return left_out


def _most_left_out(found: NestAccesses, accesses_of: list[ElementAccess]) -> int:
    """Return how many of the last dimensions no parallel iterator enters; the first one stays."""
    axes = frozenset(range(len(found.launch.axes)))
    space, n = found.space, 0
    for indices in zip(*(reversed(access.indices[1:]) for access in accesses_of), strict=True):
        if not all(space.is_pure(index.form) and axes.isdisjoint(space.loops(index.form)) for index in indices):
            break
        n += 1
    return n


def _one_row(accesses_of: list[ElementAccess], n_left_out: int) -> bool:
    rows = {access.indices[:-n_left_out] for access in accesses_of}
    behind = {access.indices[-n_left_out:] for access in accesses_of}
    return len(rows) == 1 and (len(behind) == 1 or all(access.is_certain for access in accesses_of))


def _is_once(found: NestAccesses, access: ElementAccess, left_out: Mapping[str, int]) -> bool:
    """Whether an access in a loop has one cell in all of the iteration."""
    kept = access.indices[: len(access.indices) - left_out.get(access.array, 0)]
    n_axes, space = len(found.launch.axes), found.space
    return all(space.is_pure(index.form) and all(loop < n_axes for loop in space.loops(index.form)) for index in kept)


class _NeedOrder:
    """Goes through an iteration, backwards for the code after a statement, then forwards for the code before it."""

    def __init__(self, listed: Mapping[int, ElementAccess], numbers: Mapping[int, Hashable]) -> None:
        self._listed = listed  # accesses about which nothing is proved, by `at`
        self._numbers = numbers  # of their cells, by `at`
        self._behind: dict[int, Numbers] = {}  # cells that are certainly stored to from a statement on, by its `id`
        self.loads: set[int] = set()  # those to log, by `at`
        self.stores: set[int] = set()  # those to log, by `at`

    # -- the stores that come behind ---------------------------------------------------------------------

    def behind(self, statements: tuple[Statement, ...], after: Numbers, loop: Numbers | None) -> Numbers:
        """Note for each statement which elements are certainly stored to from it on; return it for the first.

        ``after`` has the elements stored to after them, ``loop`` those after the innermost loop around them, if any.
        """
        for statement in reversed(statements):
            match statement:
                case ir.Break() | ir.Continue():
                    after = frozenset() if loop is None else loop
                case ir.Store() | ir.Atomic() if statement.at in self._listed:
                    after |= {self._numbers[statement.at]}
            key = id(statement)
            self._behind[key] = self._behind.get(key, after) & after  # one object may stand in two places
            match statement:
                case ir.If():
                    after = self.behind(statement.then, after, loop) & self.behind(statement.otherwise, after, loop)
                case ir.For() | ir.While():
                    self.behind(statement.body, after, after)
        return after

    # -- what came before --------------------------------------------------------------------------------

    def block(self, statements: tuple[Statement, ...], done: Numbers) -> Numbers:
        """Go through statements, given the cells logged before them; return the cells logged after them."""
        for statement in statements:
            done = self._statement(statement, done)
        return done

    def _statement(self, node: Statement, done: Numbers) -> Numbers:
        behind = self._behind[id(node)]
        for part in expressions_of(node):
            done = self._expression(part, done, behind, is_certain=True)
        match node:
            case ir.Store() | ir.Atomic() if node.at in self._listed:
                number = self._numbers[node.at]
                if (number, "store") not in done:
                    self.stores.add(node.at)
                done |= {(number, "store"), (number, "load")}
            case ir.If():
                then, otherwise = self.block(node.then, done), self.block(node.otherwise, done)
                done = then & otherwise
            case ir.For() | ir.While():
                self.block(node.body, done)
        return done

    def _expression(self, node: Expression, done: Numbers, behind: Numbers, *, is_certain: bool) -> Numbers:
        for part, is_always in _parts(node):
            known = self._expression(part, done, behind, is_certain=is_certain and is_always)
            done = known if is_always else done
        if isinstance(node, ir.Load) and node.at in self._listed:
            number = self._numbers[node.at]
            if (number, "load") not in done and number not in behind:
                self.loads.add(node.at)
                done |= {(number, "load")}
        return done


def _parts(node: Expression) -> Iterator[tuple[Expression, bool]]:
    """Yield the expressions that an expression is made of, and whether it always evaluates them."""
    match node:
        case ir.Select():
            yield from ((node.condition, True), (node.then, False), (node.otherwise, False))
        case ir.Logical():
            yield from ((node.left, True), (node.right, False))
        case _:
            yield from ((part, True) for part in expressions_of(node))


def stored_before(of: Needed, storages: Mapping[str, str]) -> frozenset[int]:
    """Return the accesses that are likely to reach an element which the iteration has stored to.

    Those are the loads after a store of the same storage, or in one loop with it, and the stores after a loop that
    stores there. ``storages`` gives the storage of each array.
    """
    seeing = _Seeing(of, storages)
    seeing.block(of.nest.body, frozenset(), frozenset())
    return frozenset(seeing.found)


class _Seeing:
    def __init__(self, of: Needed, storages: Mapping[str, str]) -> None:
        self._of, self._storages = of, storages
        self.found: set[int] = set()  # by `at`

    def block(
        self, statements: tuple[Statement, ...], stored: frozenset[str], looped: frozenset[str]
    ) -> frozenset[str]:
        """Go through statements, given the storages that stores, and loops, before them store to."""
        for node in statements:
            for load in walk(*expressions_of(node)):
                if isinstance(load, ir.Load) and load.at in self._of.loads and self._storages[load.array] in stored:
                    self.found.add(load.at)
            match node:
                case ir.Store() | ir.Atomic() if node.at in self._of.stores:
                    storage = self._storages[node.array]
                    if storage in looped:
                        self.found.add(node.at)
                    stored |= {storage}
                case ir.If():
                    stored = self.block(node.then, stored, looped) | self.block(node.otherwise, stored, looped)
                case ir.For() | ir.While():
                    inside = self._stored_in(node)
                    self.block(node.body, stored | inside, looped)
                    stored, looped = stored | inside, looped | inside
        return stored

    def _stored_in(self, loop: ir.For | ir.While) -> frozenset[str]:
        nodes = [node for node in walk(*loop.body) if isinstance(node, ir.Store | ir.Atomic)]
        return frozenset([self._storages[node.array] for node in nodes if node.at in self._of.stores])
