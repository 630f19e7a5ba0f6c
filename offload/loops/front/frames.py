"""The state while a function is lowered: the meanings of its names, and the statements so far.

A `Frame` belongs to one function: the loop function, or one that it calls. The functions of `values`, `calls`,
`assignments`, `counting`, `statements` and `inline` take it as their first argument, and find each other in `Rules`.

To lower an expression returns the IR's expression and appends the statements that come before it to `Frame.out`. If an
operand to the right changes elements, the operand is *kept*: its value goes to a variable first (`Frame.in_order`), so
effects stay in Python's order. No statement that lowering adds assigns a variable of the program.
"""

from __future__ import annotations

import ast
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, cast

from offload.loops.tree import ir
from offload.loops.tree.nodes import changes_elements, children, has_load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import CodeType, FunctionType

    from offload.errors import LoopError
    from offload.loops.front.layouts import AnyLayout
    from offload.loops.front.source import FunctionSource

# Levels of statements, expressions and inlined functions, which are two: each pass takes some four calls for one, and
# Python has 1,000 in all; Python's own text, without a compiler, may be indented 100 times.
MOST_NESTED: Final = 90

# Statements and expressions of inlined functions: half a second of lowering.
MOST_INLINED: Final = 10_000

# Expressions that are deeper are taken apart, so that all later passes may call themselves for each level.
_HIGHEST: Final = 24


@dataclass(frozen=True, slots=True)
class Scalar:
    """A local variable, or one of a loop."""

    name: str


@dataclass(frozen=True, slots=True)
class PassedConstant:
    """A constant that a caller passes."""

    constant: ir.Constant


@dataclass(frozen=True, slots=True)
class LocalArray:
    """An array that the iteration makes."""

    name: str
    shape: tuple[int, ...]  # constants


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the loop function."""

    name: str


@dataclass(frozen=True, slots=True)
class PassedLayout:
    """An array type, as an argument of the call or of an inlined function."""

    layout: AnyLayout  # part of the key of what is compiled


@dataclass(frozen=True, slots=True)
class Row:
    """A view of an array: some of its axes have an index, and the others are whole. It may be the whole array."""

    array: Parameter | LocalArray
    # Of the leading axes; None: the axis is whole, as are all that follow. The values cannot change while a name stands
    # for the row.
    places: tuple[ir.Expression | None, ...] = ()
    is_over: bool = False  # whether the block that named it has ended, so nothing may use the name

    def at(self, parts: Sequence[ir.Expression | None]) -> Row:
        """Return the row that indices, or None for a slice of a whole axis, make of this one."""
        given = iter(parts)
        places = [next(given, None) if place is None else place for place in self.places]
        return Row(self.array, (*places, *given))


@dataclass(frozen=True, slots=True)
class Absent:
    """A parameter that is None at this call."""


Binding = Scalar | PassedConstant | LocalArray | Parameter | PassedLayout | Row | Absent


@dataclass(frozen=True, slots=True)
class ReducedItem:
    """A reduction's item while it is one: a scalar or an array of the nest's clause, or a scalar of an inner loop's."""

    operator: ir.ReductionOperator
    kind: Literal["scalar", "array", "inner"]  # ``inner``: of a loop in the iteration


class Rules(NamedTuple):
    """The functions that lower a node of any kind; each takes the frame that the node is in."""

    expression: Callable[[Frame, ast.expr], ir.Expression]  # any but a call
    call: Callable[[Frame, ast.Call], ir.Expression]  # lowers a call to its value
    statement: Callable[[Frame, ast.stmt], None]  # appends to `Frame.out`
    # the values of a call of a plain function, whose statements take its place; None if it returns nothing
    inlined: Callable[[Frame, FunctionType, ast.Call], tuple[ir.Expression, ...] | None]


@dataclass(slots=True)
class Lowering:
    """The state that all frames of a loop function share."""

    rules: Rules
    taken: set[str]  # the names that no new variable may have
    checks: bool  # whether `assert` stays
    # the parameters used as arrays and as numbers, each with the place of its first use; none is in both
    arrays: dict[str, ir.SourceLine] = field(default_factory=dict)
    # scalars that stand for loops' trips, with their lines
    numbers: dict[str, ir.SourceLine] = field(default_factory=dict)
    items: dict[str, ReducedItem] = field(default_factory=dict)  # the reductions around the present statement
    atomics: frozenset[str] = frozenset()  # the arrays in `atomic`
    variables: frozenset[str] = frozenset()  # of the associated loops
    # names of the IR that keep their value while the present statement is lowered: of loops and of parameters
    steady: set[str] = field(default_factory=set)
    indexed: dict[FunctionType, frozenset[str]] = field(default_factory=dict)  # the names that each uses as arrays
    levels: tuple[str, ...] = ()  # "gang", … of the loops around the present statement, outermost first
    flags: set[str] = field(default_factory=set)  # variables that tell whether `break` left a loop
    callers: list[CodeType] = field(default_factory=list)  # the functions around the present statement, outermost first
    origins: dict[str, str] = field(default_factory=dict)  # the names that new names were made of, for messages
    is_in_nest: bool = False  # whether the statement that is lowered now is in a nest
    local_nbytes: int = 0  # of the arrays that an iteration makes
    layouts: dict[str, object] = field(default_factory=dict)  # the array types that are called, by their texts
    # the sizes that the indices of array types are checked against, by the names of the calls in checks
    calls: dict[str, tuple[int, ...]] = field(default_factory=dict)
    n_accesses: int = 0  # so far; an access's `at` is its number
    nesting: int = 0  # levels of statements and expressions around the present one, inlined functions included
    n_inlined: int = 0  # statements and expressions that inlining has made
    _numbers: dict[str, int] = field(default_factory=dict)  # the next number to try for a new name
    # by id; the expression is kept with its height, so no other expression gets its id
    _heights: dict[int, tuple[ir.Expression, int]] = field(default_factory=dict)

    def fresh(self, name: str) -> str:
        """Return a new name, made from one that describes the variable."""
        number = self._numbers.get(name, 1)
        while f"{name}_{number}" in self.taken:
            number += 1
        self._numbers[name] = number + 1
        self.taken.add(f"{name}_{number}")
        self.origins[f"{name}_{number}"] = self.origins.get(name, name)
        return f"{name}_{number}"

    def height(self, value: ir.Expression) -> int:
        """Return the depth of an expression; the depths of its parts are mostly known."""
        found = self._heights.get(id(value))
        if found is None:
            height = 1 + max(map(self.height, cast("list[ir.Expression]", children(value))), default=0)
            found = self._heights[id(value)] = value, height
        return found[1]

    def call_text(self, text: str, sizes: tuple[int, ...]) -> str:
        """Return the name of a call of an array type: its text, with a mark if other sizes have that text."""
        while self.calls.setdefault(text, sizes) != sizes:
            text += "'"
        return text

    def at(self) -> int:
        """Return the number of a new access."""
        self.n_accesses += 1
        return self.n_accesses - 1


class Frame:
    """A function that is being lowered."""

    def __init__(
        self,
        lowering: Lowering,
        source: FunctionSource,
        names: dict[str, Binding],
        out: list[ir.Statement],
        is_called: bool = True,
    ) -> None:
        self.lowering = lowering
        self.source = source
        # A parameter of the loop function is bound to itself: its uses tell whether it is a number or an array. An
        # inlined function has its own bindings: an array that its caller passes has the caller's name in the IR.
        self.names = names
        self.out = out  # the statements so far, of the innermost block
        self.rows: set[str] = set()  # the names that stand for rows since the innermost block began
        self.loops: list[str | None] = []  # the flags of the loops around the present statement, in this function
        self.is_inlined = is_called
        lowering.callers.append(source.function.__code__)

    # -- refusals and places

    def place(self, node: ast.AST) -> ir.SourceLine:
        """Return the line of a node."""
        return ir.SourceLine(self.source.file, getattr(node, "lineno", self.source.definition.lineno))

    def refusal(self, node: ast.AST, rule: str, what: str) -> LoopError:
        """Return the error for a node that breaks a rule; `what` has the reason and the remedy."""
        return self.source.refusal(node, rule, what)

    # -- statements

    @contextmanager
    def block(self, *, ends_rows: bool = True) -> Iterator[list[ir.Statement]]:
        """Collect the statements that are lowered meanwhile, instead of appending them.

        A name that was assigned to a row in the block stands for it in the block only. A branch may not be taken, and a
        loop may have no trip, so the name would have no value after them.
        """
        outer, self.out = self.out, []
        rows, self.rows = self.rows, set()
        try:
            yield self.out
        finally:
            self.out = outer
            for name in self.rows if ends_rows else ():
                row = self.names[name]
                assert isinstance(row, Row)
                self.names[name] = replace(row, is_over=True)
            self.rows = rows if ends_rows else rows | self.rows

    def named(self, value: ir.Expression, name: str) -> ir.Name:
        """Assign a value to a new variable, and return that."""
        variable = self.lowering.fresh(name)
        self.out.append(ir.Assign(place=value.place, name=variable, value=value))
        return ir.Name(place=value.place, name=variable)

    def bounded(self, value: ir.Expression) -> ir.Expression:
        """Return an expression for the same value that is not too deep."""
        return self.named(value, "part") if self.lowering.height(value) > _HIGHEST else value

    @contextmanager
    def nested(self, node: ast.AST) -> Iterator[None]:
        """Count a level while the parts of a statement or an expression are lowered; refuse too many."""
        lowering = self.lowering
        if self.is_inlined:
            self.count_inlined(node)
        lowering.nesting += 1
        if lowering.nesting > MOST_NESTED:
            raise self.refusal(
                node,
                "branch",
                f"statements, expressions and calls are nested here more than {MOST_NESTED} levels deep (each `elif`"
                " is one); assign parts to variables first, or write a loop over a table",
            )
        try:
            yield
        finally:
            lowering.nesting -= 1

    def count_inlined(self, node: ast.AST) -> None:
        """Count a statement or an expression that a call becomes; refuse too many."""
        self.lowering.n_inlined += 1
        if self.lowering.n_inlined > MOST_INLINED:
            raise self.refusal(
                node,
                "call",
                f"called functions and array types are inlined, and this loop's give more than {MOST_INLINED:,} "
                "statements and expressions; call them less often, or write a loop",
            )

    def kept(self, value: ir.Expression) -> ir.Expression:
        """Return an expression that keeps the present value when elements change."""
        return self.named(value, "kept") if has_load(value) else value

    def in_order(self, nodes: Sequence[ast.expr]) -> list[ir.Expression]:
        """Lower expressions that Python evaluates one after the other."""
        values: list[ir.Expression] = []
        for node in nodes:
            with self.block() as before:
                value = self.value(node)
            if changes_elements(before):
                values = [self.kept(one) for one in values]
            self.out += before
            values.append(value)
        return values

    def value(self, node: ast.expr) -> ir.Expression:
        """Lower an expression."""
        if (decided := self.decided(node)) is not None:
            return ir.Constant(place=self.place(node), value=decided)
        rules = self.lowering.rules
        with self.nested(node):
            return self.bounded(rules.call(self, node) if isinstance(node, ast.Call) else rules.expression(self, node))

    def statement(self, node: ast.stmt) -> None:
        """Lower a statement."""
        with self.nested(node):
            self.lowering.rules.statement(self, node)

    def statements(self, nodes: Sequence[ast.stmt]) -> None:
        """Lower statements."""
        for node in nodes:
            self.statement(node)

    # -- names

    def is_local(self, name: str) -> bool:
        """Tell whether a name is one of this function, and not from outside."""
        return name in self.names or name in self.source.assigned

    def variable(self, name: str) -> Binding:
        """Return the binding of a name of this function; one that has no value yet is a scalar."""
        if name not in self.names:
            self.names[name] = Scalar(self.lowering.fresh(name) if self.is_inlined else name)
        return self.names[name]

    def decided(self, node: ast.expr) -> bool | None:
        """Return the truth of a test ``is None``, also in ``not``, ``and`` and ``or``; None for other tests."""
        match node:
            case ast.Compare(
                left=ast.Name(id=name), ops=[ast.Is() | ast.IsNot() as word], comparators=[ast.Constant(value=None)]
            ) if self.is_local(name):
                return isinstance(self.names.get(name), Absent) is isinstance(word, ast.Is)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                decided = self.decided(operand)
                return None if decided is None else not decided
            case ast.BoolOp(op=word, values=values):
                decisive = isinstance(word, ast.Or)
                parts = [self.decided(value) for value in values]
                if decisive in parts:
                    return decisive
                return None if None in parts else not decisive
            case _:
                return None

    def use_as_number(self, parameter: Parameter, node: ast.AST) -> None:
        """Note that a parameter is used as a number."""
        self.lowering.numbers.setdefault(parameter.name, self.place(node))
        self._agree(parameter.name, node)

    def use_as_array(self, parameter: Parameter, node: ast.AST) -> None:
        """Note that a parameter is used as an array."""
        self.lowering.arrays.setdefault(parameter.name, self.place(node))
        self._agree(parameter.name, node)

    def _agree(self, name: str, node: ast.AST) -> None:
        array, number = self.lowering.arrays.get(name), self.lowering.numbers.get(name)
        if array is not None and number is not None:
            raise self.refusal(
                node,
                "index",
                f"{name} is used as an array (line {array.line}) and as a number (line {number.line}); give one index"
                f" for every dimension, {name}[()] if it has none, and write the loop over the rest",
            )
