"""The accesses of a nest at a launch: which elements, in which order, and whether every iteration carries them out.

`accesses` walks once through the body of an iteration. Scalars have values (`affine`): a single assignment is seen
through; where paths join, different values become a new atom. An access is *certain* if it is carried out at every
point of the nest and of all loops around it. Only a certain access proves that something *will* happen. Assertions are
not branches. An element of an array that the nest does not write is one value, numbered by its place; other loads are
new values each time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from offload.loops.proofs.affine import LIMITS, AffineForm, IntegerValue, IntegerValues, Space, limits_of
from offload.loops.tree import ir
from offload.loops.tree.nodes import checked_in, constant_step, dtype_of, locals_in, names_assigned, walk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.loops.proofs.numbers import LaunchNumbers
    from offload.loops.tree.uses import Numbered

Kind: TypeAlias = Literal["load", "store", "atomic", "check"]


@dataclass(frozen=True, slots=True)
class ElementAccess:
    """One access, as often as its text is carried out; text that is evaluated in two places makes two, of one `at`."""

    at: int  # the number in the text
    array: str  # by the name in the text
    dtype: ir.Dtype
    kind: Kind  # a step on an element is atomic; a check touches no element
    place: ir.SourceLine  # for messages
    indices: tuple[IntegerValue, ...]  # as `int64`, before negative ones are wrapped
    loops: tuple[int, ...]  # the atoms of the inner loops around it whose trips are countable, outermost first
    is_certain: bool  # carried out at every point of its box


@dataclass(frozen=True, slots=True)
class NestAccesses:
    """The accesses of a nest at a launch; none if it has no iteration."""

    nest: ir.Nest
    launch: LaunchNumbers  # where everything but trips and elements is a number
    # In the order of the text. What stands in a loop that never has a trip is not there.
    listed: tuple[ElementAccess, ...]
    space: Space  # the atoms of their indices; those of the axes have the axes' numbers
    extents: Mapping[str, tuple[int, ...]]  # of parameters and local arrays, and sizes of array types by their calls
    own: frozenset[str]  # arrays of which each iteration has its own, and calls of array types
    written: frozenset[str]  # parameters whose storage the nest may write
    # Variables of inner loops that nothing else assigns, and that 32 bits hold, with the bounds of their loops and the
    # numbers of their trips.
    narrow: frozenset[str]


def accesses(typed: ir.Typed, nest: ir.Nest, launch: LaunchNumbers) -> NestAccesses:
    """Return the accesses of a nest at a launch."""
    nodes = list(walk(*nest.body))
    locals_ = locals_in(nest) | checked_in(nest)
    own = frozenset(locals_) | frozenset(nest.privates)
    stored = {node.array for node in nodes if isinstance(node, ir.Store | ir.Atomic)} - own
    stored |= {reduction.name for reduction in nest.reductions} & launch.views.keys()
    written = frozenset(
        array
        for array, view in launch.views.items()
        if array in stored or any(view.may_share(launch.views[other]) for other in stored)
    )
    extents = {array: view.extents for array, view in launch.views.items()} | locals_
    going = _AccessWalk(typed, launch, extents, own | written)
    if all(axis.trips > 0 for axis in launch.axes):
        going.iteration(nest)
    names = names_assigned(*nest.body)
    narrow = frozenset(name for name, fits in going.narrow.items() if fits and name not in names)
    return NestAccesses(nest, launch, tuple(going.listed), going.space, extents, own, written, narrow)


@dataclass(slots=True)
class _AccessWalk:
    """One pass through an iteration. `scalars` is None where no path arrives."""

    typed: ir.Typed
    launch: LaunchNumbers
    extents: Mapping[str, tuple[int, ...]]  # of arrays that are parameters, and of local ones
    changing: frozenset[str]  # arrays whose elements may change in the nest
    space: Space = field(default_factory=Space)  # of the atoms of all indices
    listed: list[ElementAccess] = field(default_factory=list)  # the accesses so far
    scalars: dict[str, IntegerValue] | None = field(default_factory=dict)  # their values on this path
    loops: tuple[int, ...] = ()  # the inner loops around, by the atoms of their trips
    is_certain: bool = True  # whether every iteration comes here
    # of loops' variables: whether 32 bits hold them, in all loops so far
    narrow: dict[str, bool] = field(default_factory=dict)
    values: IntegerValues = field(init=False)  # arithmetic in that space

    def __post_init__(self) -> None:
        self.values = IntegerValues(self.space)

    # -- statements --------------------------------------------------------------------------------------

    def iteration(self, nest: ir.Nest) -> None:
        for axis, trips in zip(nest.axes, self.launch.axes, strict=True):
            trip = self.space.trip(AffineForm((trips.trips - 1) * abs(trips.step)), abs(trips.step))
            assert trip is not None  # the launch has iterations
            self.assign(axis.variable, self.values.settle(trip * trips.step + trips.start, "int64"))
        self.forget(nest.body)
        self.block(nest.body)

    def block(self, statements: tuple[ir.Statement, ...]) -> None:
        """Go through statements in order; those behind one that may leave the block are not certain."""
        is_certain = self.is_certain
        for statement in statements:
            if self.scalars is None:
                break
            self.statement(statement)
            self.is_certain = self.is_certain and not _leaves(statement)
        self.is_certain = is_certain

    def statement(self, statement: ir.Statement) -> None:
        match statement:
            case ir.Assign():
                self.assign(statement.name, self.value(statement.value))
            case ir.Store():
                self.value(statement.value)
                self.access("store", statement, self.indices(statement.indices))
            case ir.Reduce():
                self.value(statement.value)
            case ir.Atomic():
                self.atomic(statement)
            case ir.If():
                self.branch(statement)
            case ir.For():
                self.loop(statement)
            case ir.While():
                self.repeat(statement)
            case ir.Assert():
                self.value(statement.condition)
            case ir.IndexCheck():
                self.access("check", statement, self.indices(statement.indices))
            case ir.Local():
                if statement.fill is not None:
                    self.value(statement.fill)
            case ir.Break() | ir.Continue():
                self.scalars = None
            case _:
                raise AssertionError(statement)

    def atomic(self, statement: ir.Atomic) -> None:
        indices = self.indices(statement.indices)
        self.value(statement.value)
        if statement.expected is not None:
            self.value(statement.expected)
        self.access("atomic", statement, indices)
        if statement.result is not None:
            self.assign(statement.result, self.new(self.typed.scalars[statement.result].dtype))

    def branch(self, statement: ir.If) -> None:
        self.value(statement.condition)
        before, is_certain = self.known().copy(), self.is_certain
        self.is_certain = False
        self.block(statement.then)
        then, self.scalars = self.scalars, before
        self.block(statement.otherwise)
        self.is_certain = is_certain
        self.join(then)

    def join(self, other: dict[str, IntegerValue] | None) -> None:
        """Go on where two paths meet: the one gone last, and another."""
        if self.scalars is None or other is None:
            self.scalars = other if self.scalars is None else self.scalars
            return
        for name in sorted(self.scalars.keys() | other.keys()):  # atoms are numbered alike in every process
            mine, others = self.scalars.get(name), other.get(name)
            if mine is None or others is None:  # unbound on one path, so that nothing reads it
                self.scalars.pop(name, None)
            elif mine != others:
                self.scalars[name] = self.joined(mine, others)

    def joined(self, one: IntegerValue, other: IntegerValue) -> IntegerValue:
        low, high = min(one.low, other.low), max(one.high, other.high)
        return IntegerValue(self.space.unknown((low, high), self.around()), low, high)

    def loop(self, statement: ir.For) -> None:
        start, stop, step = (self.value(bound) for bound in (statement.start, statement.stop, statement.step))
        name, fits = statement.variable, _fits_32(start, stop, constant_step(statement))
        self.narrow[name] = fits and self.narrow.get(name, True) and self.typed.scalars[name].dtype == "int64"
        is_certain, loops = self.is_certain, self.loops
        variable = self.variable(start, stop, step)
        if variable is None:
            return
        head = self.known().copy()
        self.is_certain = self.is_certain and not any(map(_breaks, statement.body))
        self.forget(statement.body)
        self.assign(statement.variable, variable)
        self.block(statement.body)
        self.is_certain, self.loops, self.scalars = is_certain, loops, head
        self.forget(statement.body)

    def variable(self, start: IntegerValue, stop: IntegerValue, step: IntegerValue) -> IntegerValue | None:
        """Enter a loop and return its variable, or None if it never has a trip."""
        if not step.form.is_constant or not step.form.constant:
            self.is_certain = False
            low, high = min(start.low, stop.low + 1), max(start.high, stop.high - 1)
            return IntegerValue(self.space.unknown((low, high), self.around()), low, high)
        first, last, by = self.values.exact(start), self.values.exact(stop), step.form.constant
        room = (last - first if by > 0 else first - last) - 1
        trip = self.space.trip(room, abs(by))
        if trip is None:
            return None
        self.is_certain = self.is_certain and self.space.extremes(room)[0] >= 0
        self.loops = (*self.loops, trip.terms[0][0])
        return self.values.settle(first + trip * by, "int64")

    def repeat(self, statement: ir.While) -> None:
        is_certain, self.is_certain = self.is_certain, False
        self.forget(statement.body)
        head = self.known().copy()
        self.value(statement.condition)
        self.block(statement.body)
        self.is_certain, self.scalars = is_certain, head
        self.forget(statement.body)

    def assign(self, name: str, value: IntegerValue) -> None:
        self.known()[name] = value

    def forget(self, statements: tuple[ir.Statement, ...]) -> None:
        """Make a new value of every scalar that statements assign."""
        for name in sorted(names_assigned(*statements) & self.typed.scalars.keys()):
            self.assign(name, self.new(self.typed.scalars[name].dtype))

    def known(self) -> dict[str, IntegerValue]:
        assert self.scalars is not None  # a block ends where no path arrives
        return self.scalars

    def new(self, dtype: ir.Dtype) -> IntegerValue:
        low, high = limits_of(dtype)
        return IntegerValue(self.space.unknown((low, high), self.around()), low, high)

    def around(self) -> frozenset[int]:
        return frozenset(range(len(self.launch.axes))).union(self.loops)

    # -- expressions -------------------------------------------------------------------------------------

    def value(self, expression: ir.Expression) -> IntegerValue:
        dtype = dtype_of(expression)
        match expression:
            case ir.Constant():
                return self.constant(expression.value, dtype)
            case ir.Name():
                return self.name(expression.name, dtype)
            case ir.Extent():
                return self.values.settle(AffineForm(self.extents[expression.array][expression.dimension]), dtype)
            case ir.Trip():
                return self.new(dtype)
            case ir.Load():
                return self.load(expression, dtype)
            case ir.Unary():
                return self.unary(expression, dtype)
            case ir.Binary():
                left, right = self.value(expression.left), self.value(expression.right)
                return self.values.binary(expression.operator, left, right, dtype)
            case ir.Compare():
                return self.structural(expression.operator, (expression.left, expression.right), dtype)
            case ir.Logical():
                left = self.value(expression.left)
                right = self.perhaps(expression.right)
                return self.values.opaque((expression.operator, left.form, right.form), dtype, (left.form, right.form))
            case ir.Select():
                return self.select(expression, dtype)
            case ir.Convert():
                return self.values.convert(self.value(expression.operand), dtype, dtype_of(expression.operand))
            case ir.FunctionCall():
                return self.call(expression, dtype)
            case _:
                raise AssertionError(expression)

    def constant(self, value: bool | complex, dtype: ir.Dtype) -> IntegerValue:
        if dtype in LIMITS:
            assert not isinstance(value, complex)  # as the type says
            return self.values.settle(AffineForm(int(value)), dtype)
        return self.values.opaque(("constant", repr(value)), dtype, ())

    def name(self, name: str, dtype: ir.Dtype) -> IntegerValue:
        known = self.known()
        if name not in known:
            scalar = self.launch.scalars.get(name)
            if scalar is None or dtype not in LIMITS:
                known[name] = self.values.opaque(("scalar", name), dtype, ())
            else:
                known[name] = self.constant(scalar, dtype)
        return known[name]

    def load(self, load: ir.Load, dtype: ir.Dtype) -> IntegerValue:
        indices = self.indices(load.indices)
        self.access("load", load, indices)
        if load.array in self.changing:
            return self.new(dtype)
        forms = tuple(index.form for index in indices)
        interval = self.launch.contents.get(load.at, limits_of(dtype))
        form = self.space.value(("load", load.array, forms), interval, forms, frozenset({load.at}))
        atom = self.space.atoms[form.terms[0][0]]
        return IntegerValue(form, atom.low, atom.high)

    def unary(self, expression: ir.Unary, dtype: ir.Dtype) -> IntegerValue:
        operand = self.value(expression.operand)
        is_integer = dtype in LIMITS and dtype != "bool"
        match expression.operator:
            case "+":
                return operand
            case "-" if is_integer:
                return self.values.settle(-operand.form, dtype)
            case "~" if is_integer and not dtype.startswith("u"):
                return self.values.settle(-operand.form - 1, dtype)
            case operator:
                return self.values.opaque((operator, operand.form), dtype, (operand.form,))

    def select(self, expression: ir.Select, dtype: ir.Dtype) -> IntegerValue:
        condition = self.value(expression.condition)
        then, otherwise = self.perhaps(expression.then), self.perhaps(expression.otherwise)
        if then == otherwise:
            return then
        parts = condition.form, then.form, otherwise.form
        interval = min(then.low, otherwise.low), max(then.high, otherwise.high)
        return self.values.opaque(("select", *parts), dtype, parts, interval)

    def call(self, expression: ir.FunctionCall, dtype: ir.Dtype) -> IntegerValue:
        function = expression.function.removeprefix("numpy.").removesuffix("imum")  # of integers they are one
        if dtype not in LIMITS or function not in {"abs", "min", "max"}:
            return self.structural(expression.function, expression.arguments, dtype)
        arguments = [self.value(argument) for argument in expression.arguments]
        if function == "abs":
            return self.values.absolute(arguments[0], dtype)
        return self.values.choose(function, arguments[0], arguments[1], dtype)

    def structural(self, operation: str, operands: tuple[ir.Expression, ...], dtype: ir.Dtype) -> IntegerValue:
        forms = tuple(self.value(operand).form for operand in operands)
        return self.values.opaque((operation, *map(dtype_of, operands), forms), dtype, forms)

    def perhaps(self, expression: ir.Expression) -> IntegerValue:
        """Return the value of an expression that is not always evaluated."""
        is_certain, self.is_certain = self.is_certain, False
        value = self.value(expression)
        self.is_certain = is_certain
        return value

    def indices(self, indices: tuple[ir.Expression, ...]) -> tuple[IntegerValue, ...]:
        return tuple(self.values.convert(self.value(index), "int64", dtype_of(index)) for index in indices)

    def access(self, kind: Kind, node: Numbered, indices: tuple[IntegerValue, ...]) -> None:
        dtype = "bool" if kind == "check" else self.typed.arrays[node.array].dtype
        self.listed.append(
            ElementAccess(node.at, node.array, dtype, kind, node.place, indices, self.loops, self.is_certain)
        )


def _fits_32(start: IntegerValue, stop: IntegerValue, step: int | None) -> bool:
    """Whether 32 bits hold the bounds of a loop, its variable and the numbers of its trips."""
    low, high = LIMITS["int32"]
    if min(start.low, stop.low) < low or max(start.high, stop.high) > high:
        return False
    # By steps of one its variable counts; trips of others are no more than its bounds are apart.
    return step in (1, -1) or max(stop.high - start.low, start.high - stop.low) <= high


def _leaves(statement: ir.Statement) -> bool:
    """Whether the code after a statement, in the same trip, may be skipped."""
    match statement:
        case ir.Break() | ir.Continue():
            return True
        case ir.If():
            return any(map(_leaves, statement.then)) or any(map(_leaves, statement.otherwise))
        case _:
            return False


def _breaks(statement: ir.Statement) -> bool:
    """Whether a statement may end the loop that it stands in."""
    match statement:
        case ir.Break():
            return True
        case ir.If():
            return any(map(_breaks, statement.then)) or any(map(_breaks, statement.otherwise))
        case _:
            return False
