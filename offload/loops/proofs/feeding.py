"""Which statements of one iteration feed which, by scalars and by elements of arrays.

Statements are *points*, in the order of the text. One walk keeps the points that gave each scalar its value, and the
writes to arrays that are still visible. A loop is walked twice; a value from another trip or out of a loop has
*crossed* it. A load looks back through the visible writes: a write to the same element (`meetings`) feeds it and hides
earlier ones if it is on every path; any write that may be to this element feeds it. An atomic update needs no feed, as
the owner of its element carries out all writes. Values of indices, branches and loop bounds are needed `EVERYWHERE`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from offload.loops.proofs.meetings import Passed, element_of, meeting, number_of
from offload.loops.tree import ir
from offload.loops.tree.nodes import can_divide_by_zero, expressions_of, names_assigned, names_given, walk
from offload.loops.tree.slices import Slice, slice_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from offload.loops.proofs.affine import AffineForm, IntegerValue
    from offload.loops.proofs.meetings import LoopStorage, Meeting
    from offload.loops.proofs.reach import ElementAccess, NestAccesses


# Who needs what control and addresses follow from: every device.
EVERYWHERE: Final = -1

# Who needs what the sequentially last iteration leaves: who has that iteration.
BLOCK: Final = -2

# How often a loop is gone through: what one trip leaves to the next is the same after the second.
ROUNDS: Final = 2


@dataclass(frozen=True, slots=True, eq=False)
class FlowPoint:
    """A statement at its place."""

    number: int  # in the order of the text
    statement: ir.Statement  # with all that it encloses
    loops: tuple[int, ...]  # the loops around it, by their numbers, outermost first
    # What it encloses.
    body: tuple[FlowPoint, ...] = ()
    otherwise: tuple[FlowPoint, ...] = ()  # of an ``if``


class FlowEdge(NamedTuple):
    """A value of the point `source` is needed by the point `user`, or `EVERYWHERE`, or by a `BLOCK`.

    `crossed` has the loops through whose trips it has passed on its way.
    """

    source: int
    user: int  # a point, `EVERYWHERE` or `BLOCK`
    crossed: frozenset[int]


@dataclass(frozen=True, slots=True)
class Feeding:
    """Which statements of an iteration feed which."""

    points: tuple[FlowPoint, ...]  # all of them, by number
    edges: frozenset[FlowEdge]  # which point's value which point needs
    # Of each store and atomic update, by `at`, how its indices can be had at the head of the iteration or a loop.
    slices: Mapping[int, tuple[Slice | None, ...]]
    users: Mapping[int, set[int]]  # the points that need what a load reads, by `at`


def points_of(statements: tuple[ir.Statement, ...]) -> tuple[FlowPoint, ...]:
    """Return the points of an iteration's outermost statements."""
    count = iter(range(1 << 60))

    def made(statement: ir.Statement, loops: tuple[int, ...]) -> FlowPoint:
        number = next(count)
        match statement:
            case ir.For() | ir.While():
                inside = (*loops, number)
                return FlowPoint(number, statement, loops, tuple([made(one, inside) for one in statement.body]))
            case ir.If():
                body = tuple([made(one, loops) for one in statement.then])
                return FlowPoint(
                    number, statement, loops, body, tuple([made(one, loops) for one in statement.otherwise])
                )
            case _:
                return FlowPoint(number, statement, loops)

    return tuple([made(statement, ()) for statement in statements])


def all_points(points: tuple[FlowPoint, ...]) -> Iterator[FlowPoint]:
    """Yield points and all that they enclose, in the order of their numbers."""
    for point in points:
        yield point
        yield from all_points(point.body)
        yield from all_points(point.otherwise)


def feeding(points: tuple[FlowPoint, ...], accesses: NestAccesses, storages: Mapping[str, LoopStorage]) -> Feeding:
    """Return which point feeds which; each access of the points has an `at` of its own."""
    going = _FlowWalk(accesses, storages, tuple(all_points(points)))
    state = going.block(points, _State({}, {}, ()))
    nest = accesses.nest
    ends = [one for one in (state, *going.ends) if one is not None]
    for end in ends:
        for name in nest.last:
            going.scalar(name, BLOCK, end)
        for visible in end.written:
            if nest.privates.get(visible.array) == "lastprivate":
                going.edges.add(FlowEdge(visible.number, BLOCK, visible.crossed))
    return Feeding(going.points, frozenset(going.edges), going.slices, going.users)


# -- the walk --------------------------------------------------------------------------------------------


class _FlowSource(NamedTuple):
    number: int  # of the point that gave the value
    crossed: frozenset[int] = frozenset()  # the loops, by number, through whose trips it has come

    def crossing(self, loop: int) -> _FlowSource:
        return self._replace(crossed=self.crossed | {loop})


class _Visible(NamedTuple):
    """A write that may be seen, of a whole local array if it has no `at`; `is_certain` if it lies on every path."""

    number: int  # of the point that writes
    array: str
    at: int | None  # of the write
    crossed: frozenset[int] = frozenset()  # the loops through whose trips it has come
    is_certain: bool = True  # it is on every path

    def crossing(self, loop: int) -> _Visible:
        return self._replace(crossed=self.crossed | {loop}, is_certain=False)


SourceType = TypeVar("SourceType", _FlowSource, _Visible)


@dataclass(frozen=True, slots=True)
class _State:
    """The facts that hold on a path; `written` in the order of execution."""

    scalars: Mapping[str, frozenset[_FlowSource]]  # the points that gave each its value
    slices: Mapping[str, Slice]  # how scalars can be had elsewhere
    written: tuple[_Visible, ...]


@dataclass(slots=True)
class _FlowWalk:
    accesses: NestAccesses
    storages: Mapping[str, LoopStorage]
    points: tuple[FlowPoint, ...]  # all, by number
    edges: set[FlowEdge] = field(default_factory=set)  # found so far
    slices: dict[int, tuple[Slice | None, ...]] = field(default_factory=dict)  # of the indices of writes, by `at`
    users: dict[int, set[int]] = field(default_factory=dict)  # of what loads read, by `at`
    ends: list[_State] = field(default_factory=list)  # the states in which the iteration may end early
    listed: dict[int, ElementAccess] = field(init=False)  # the accesses, by `at`
    assigned: frozenset[str] = field(init=False)  # all names that an iteration gives a value
    # of each loop around: the states at ``break``, and at ``continue``
    _leaving: list[tuple[list[_State], list[_State]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.listed = {access.at: access for access in self.accesses.listed}
        self.assigned = frozenset(names_given(*self.accesses.nest.body))

    def block(self, points: tuple[FlowPoint, ...], state: _State | None) -> _State | None:
        for point in points:
            if state is None:
                break
            state = self.statement(point, state)
        return state

    def statement(self, point: FlowPoint, state: _State) -> _State | None:
        number, node = point.number, point.statement
        match node:
            case ir.Assign():
                self.read(node.value, number, state)
                return self.given(state, node.name, number, self.slice(node.value, state))
            case ir.Store():
                self.read(node.value, number, state)
                return self.write(point, node, state)
            case ir.Reduce():
                self.read(node.value, number, state)
            case ir.Atomic():
                for value in (node.value, node.expected):
                    if value is not None:
                        self.read(value, number, state)
                state = self.write(point, node, state)
                return state if node.result is None else self.given(state, node.result, number, None)
            case ir.If():
                self.read(node.condition, EVERYWHERE, state)
                return _joined(self.block(point.body, state), self.block(point.otherwise, state))
            case ir.For() | ir.While():
                return self.loop(point, node, state)
            case ir.Assert():
                self.read(node.condition, EVERYWHERE, state)
            case ir.IndexCheck():
                for index in node.indices:
                    self.read(index, EVERYWHERE, state)
            case ir.Local():
                if node.fill is not None:
                    self.read(node.fill, number, state)
                others = tuple(one for one in state.written if one.array != node.name)
                return replace(state, written=(*others, _Visible(number, node.name, None)))
            case ir.Break() | ir.Continue():
                self.leave(node, state)
                return None
            case _:
                raise AssertionError(node)
        return state

    def leave(self, node: ir.Break | ir.Continue, state: _State) -> None:
        if not self._leaving:
            self.ends.append(state)
        else:
            self._leaving[-1][isinstance(node, ir.Continue)].append(state)

    def given(self, state: _State, name: str, number: int, slice_: Slice | None) -> _State:
        slices = {one: known for one, known in state.slices.items() if one != name}
        if slice_ is not None:
            slices[name] = slice_
        return replace(state, scalars={**state.scalars, name: frozenset({_FlowSource(number)})}, slices=slices)

    def write(self, point: FlowPoint, node: ir.Store | ir.Atomic, state: _State) -> _State:
        for index in node.indices:
            self.read(index, EVERYWHERE, state)
        self.slices[node.at] = tuple([self.slice(index, state) for index in node.indices])
        if node.at not in self.listed:  # in a loop that has no trip
            return state
        return replace(state, written=(*state.written, _Visible(point.number, node.array, node.at)))

    def loop(self, point: FlowPoint, node: ir.For | ir.While, state: _State) -> _State | None:
        if isinstance(node, ir.For):
            for bound in (node.start, node.stop, node.step):
                self.read(bound, EVERYWHERE, state)
        changed = names_assigned(*node.body)
        slices = {name: known for name, known in state.slices.items() if name not in changed}
        head: _State = replace(state, slices=slices)
        left: _State | None = None
        for _ in range(ROUNDS):
            inside = head
            if isinstance(node, ir.While):
                self.read(node.condition, EVERYWHERE, inside)
            else:
                variable = ir.Name(place=node.place, name=node.variable, type=ir.Type("int64", is_weak=True))
                inside = replace(inside, slices={**slices, node.variable: Slice(variable, frozenset({point.number}))})
            self._leaving.append(([], []))
            end = self.block(point.body, inside)
            broken, continued = self._leaving.pop()
            for one in continued:
                end = _joined(end, one)
            left = head
            for one in (*broken, *([] if end is None else [end])):
                left = _joined(left, self.crossing(one, point.number))
            if end is not None:
                merged = _joined(head, self.crossing(end, point.number))
                assert merged is not None
                head = replace(merged, slices=slices)
        assert left is not None
        return replace(left, slices=slices)

    def crossing(self, state: _State, loop: int) -> _State:
        """Return a state as another trip of a loop, or the code after the loop, sees it."""

        def crossed(one: SourceType) -> SourceType:
            return one.crossing(loop) if loop in self.points[one.number].loops else one

        return replace(
            state,
            scalars={name: frozenset(map(crossed, sources)) for name, sources in state.scalars.items()},
            written=tuple(map(crossed, state.written)),
        )

    # -- what is read ------------------------------------------------------------------------------------

    def read(self, expression: ir.Expression, user: int, state: _State) -> None:
        match expression:
            case ir.Name(name=name):
                self.scalar(name, user, state)
            case ir.Load():
                for index in expression.indices:
                    self.read(index, EVERYWHERE, state)
                self.look_back(expression.at, user, state)
            case _:
                for part in expressions_of(expression):
                    self.read(part, user, state)

    def scalar(self, name: str, user: int, state: _State) -> None:
        for source in state.scalars.get(name, ()):
            self.edges.add(FlowEdge(source.number, user, source.crossed))

    def slice(self, expression: ir.Expression, state: _State) -> Slice | None:
        kept = self.accesses.written | self.accesses.own
        return slice_of(expression, state.slices, self.assigned, kept)

    def look_back(self, at: int, user: int, state: _State) -> None:
        access = self.listed.get(at)
        if access is None:
            return
        self.users.setdefault(at, set()).add(user)
        for visible in reversed(state.written):
            meeting = self.meeting(access, visible)
            if meeting == "never":
                continue
            self.edges.add(FlowEdge(visible.number, user, visible.crossed))
            if meeting == "same" and visible.is_certain and not visible.crossed:
                return

    def meeting(self, load: ElementAccess, visible: _Visible) -> Meeting:
        """Return whether a load sees the element of a write."""
        if visible.at is None:
            return "same" if load.array == visible.array else "never"
        write = self.listed[visible.at]
        passed = self.passed(load, write, visible)
        return meeting(self.accesses, self.storages, load, write, passed)

    def passed(self, load: ElementAccess, write: ElementAccess, visible: _Visible) -> Passed | None:
        """Return the trips that were crossed, None where none was."""
        if not visible.crossed:
            return None
        loops = self.points[visible.number].loops
        if len(loops) != len(write.loops):  # some have no trips that can be counted
            return Passed(None, None)
        atoms = [atom for loop, atom in zip(loops, write.loops, strict=True) if loop in visible.crossed]
        common = [atom for atom in atoms if atom in load.loops]
        return Passed(frozenset(atoms), common[0] if common else None)


def _joined(one: _State | None, other: _State | None) -> _State | None:
    """Return the state where two paths meet."""
    if one is None or other is None:
        return other if one is None else one
    names = one.scalars.keys() | other.scalars.keys()
    scalars = {name: one.scalars.get(name, frozenset()) | other.scalars.get(name, frozenset()) for name in names}
    slices = {name: known for name, known in one.slices.items() if other.slices.get(name) == known}
    common = 0
    for mine, others in zip(one.written, other.written, strict=False):
        if mine != others:
            break
        common += 1
    rest = [visible._replace(is_certain=False) for visible in (*one.written[common:], *other.written[common:])]
    return _State(scalars, slices, (*one.written[:common], *dict.fromkeys(rest)))


# -- demand: which device needs a statement -----------------------------------------------------------
#
# A write has a `DemandTerm`: its element, in the dimension by which the array is split. The owner of that element
# carries the write out. The demand of a point is the set of terms of which one has to hold: its own, and those of the
# points that it feeds; None means every device. A term is carried to an earlier point only if its index is available
# there (`slices`), in the same trips. Otherwise every device needs the point, or, in arrays divided like the
# iterations, the device of the iteration.


@dataclass(frozen=True, slots=True)
class DemandTerm:
    """The element that a write updates is a device's own."""

    storage: str  # "" for a block of iterations
    index: AffineForm  # in the dimension by which the storage is split, counted from its first element
    shifts: tuple[int, ...]  # what may be added to the index
    at: int  # the write, where it can be tested at that write alone; else -1
    # The view through which the first such write goes, and the dimension.
    array: str = field(compare=False)
    dimension: int = field(compare=False)  # of the array
    value: IntegerValue = field(compare=False)  # the index, as it stands in the text
    text: ir.Expression = field(compare=False)  # the index in the text
    slice: Slice | None = field(compare=False)  # how the index can be had elsewhere
    is_aligned: bool = field(compare=False)  # whether it holds in the device's block of iterations, and there alone

    @property
    def loops(self) -> frozenset[int]:
        return frozenset() if self.slice is None else self.slice.loops

    @property
    def is_block(self) -> bool:
        return not self.storage


# The terms of which one has to hold; None: needed on every device.
Demand: TypeAlias = "frozenset[DemandTerm] | None"


def own_term(
    accesses: NestAccesses,
    storages: Mapping[str, LoopStorage],
    feeding: Feeding,
    access: ElementAccess,
    node: ir.Store | ir.Atomic,
    dimension: int,
    *,
    is_aligned: bool,
) -> DemandTerm:
    """Return the term of a write, of a storage that is divided in this dimension."""
    element = element_of(accesses, storages, access)
    value, shifts = element.dimensions[dimension]
    slice_ = feeding.slices[access.at][dimension]
    if not accesses.space.is_pure(value.form):
        slice_ = None
    index, shifts = number_of(value, shifts)
    at = -1 if slice_ is not None else access.at
    text = node.indices[dimension]
    return DemandTerm(element.storage, index, shifts, at, access.array, dimension, value, text, slice_, is_aligned)


def demands(
    feeding: Feeding, own: Mapping[int, DemandTerm | None], block: DemandTerm, checked: Collection[int]
) -> dict[int, Demand]:
    """Return the demand of each point that gives a value or writes, by its number.

    ``own`` has the term of each point that writes, and None for an array that every device computes. ``block`` is the
    term of blocks of iterations. The loads in ``checked``, by `at`, may leave their array.
    """
    found: dict[int, Demand] = {EVERYWHERE: None, BLOCK: frozenset({block})}
    for point in feeding.points:
        term = own.get(point.number)
        is_updated = isinstance(point.statement, ir.Reduce)
        terms = {block} if is_updated else set() if term is None else {term}
        found[point.number] = None if point.number in own and term is None else frozenset(terms)
    _close(feeding, found, block)
    for point in feeding.points:
        if not found[point.number] and found[point.number] is not None and _can_fail(point, checked):
            found[point.number] = frozenset({block})  # nobody needs it, but its error
    _close(feeding, found, block)
    return found


def _close(feeding: Feeding, found: dict[int, Demand], block: DemandTerm) -> None:
    """Carry demands backwards until nothing changes."""
    sources = defaultdict(list)
    for edge in feeding.edges:
        sources[edge.user].append(edge)
    waiting = list(sources)
    while waiting:
        user = waiting.pop()
        for edge in sources.get(user, ()):
            before = found[edge.source]
            after = _union(before, _there(found[user], edge.crossed, feeding.points[edge.source].loops, block))
            if after != before:
                found[edge.source] = after
                waiting.append(edge.source)


def _there(demand: Demand, crossed: frozenset[int], loops: tuple[int, ...], block: DemandTerm) -> Demand:
    """Return a demand as it is at a point in these loops, from where a value comes through the trips of others."""
    if demand is None:
        return None
    found = set()
    for term in demand:
        if term.at < 0 and term.loops.isdisjoint(crossed) and term.loops <= frozenset(loops):
            found.add(term)
        elif term.is_aligned:
            found.add(block)
        else:
            return None
    return frozenset(found)


def _union(one: Demand, other: Demand) -> Demand:
    return None if one is None or other is None else one | other


def _can_fail(point: FlowPoint, checked: Collection[int]) -> bool:
    return any(
        can_divide_by_zero(node) or (isinstance(node, ir.Load) and node.at in checked)
        for node in walk(*_values(point.statement))
    )


def _values(statement: ir.Statement) -> Iterable[ir.Expression]:
    match statement:
        case ir.Assign(value=value):
            return (value,)
        case ir.Local(fill=ir.Expression() as fill):
            return (fill,)
        case ir.Store():
            return (statement.value, *statement.indices)
        case _:
            return ()
