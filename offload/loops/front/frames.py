"""What lowering knows of a function that it is in: what its names stand for, and where statements go.

Theory of operation
-------------------
A `Frame` lowers one function: the loop function itself, or one that it calls. The layers on top of it (`values`,
`calls`, `assignments`, `statements`, `inline`) are one object, each a base class of the next, since expressions call
functions whose bodies are statements made of expressions. `Work` is what the frames of one loop function share.

Lowering an expression returns what it is worth, and appends to `Frame.out` what has to be carried out before. Where
something to the right of an operand changes elements, the operand is *kept*: its value goes to a variable first
(`Frame.in_order`), so that the order of effects is Python's. Only what reads elements needs that: no statement that
lowering adds assigns a variable of the program.

A name of a function is bound to what it stands for. That of a parameter is bound to the parameter, number or array:
which it is its uses tell, and they have to agree. A function that is inlined has its own bindings, to what its caller
passes: an array passed on is the same array, under the same name of the IR.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, cast

from offload.loops.tree import ir
from offload.loops.tree.nodes import changes_elements, children, has_load

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator, Sequence
    from types import CodeType

    from offload.errors import LoopError
    from offload.loops.front.source import Source

MOST_NESTED: Final = 90
"""Levels of statements, expressions and inlined functions, which are two: each pass takes some four calls for one, and
Python has 1,000 in all; Python's own text, without a compiler, may be indented 100 times."""

MOST_INLINED: Final = 10_000
"""Statements and expressions of inlined functions: half a second of lowering."""

_HIGHEST: Final = 24
"""Expressions that are deeper are taken apart, so that all later passes may call themselves for each level."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A local variable, or one of a loop."""

    name: str


@dataclass(frozen=True, slots=True)
class Value:
    """A constant that a caller passes."""

    constant: ir.Constant


@dataclass(frozen=True, slots=True)
class LocalArray:
    """An array that the iteration makes."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the loop function."""

    name: str


@dataclass(frozen=True, slots=True)
class Absent:
    """A parameter that is None at this call."""


Binding = Scalar | Value | LocalArray | Parameter | Absent


@dataclass(frozen=True, slots=True)
class Item:
    """A reduction's item while it is one: a scalar or an array of the nest's clause, or a scalar of an inner loop's."""

    operator: ir.ReductionOperator
    kind: Literal["scalar", "array", "inner"]


@dataclass(slots=True)
class Work:
    """What all frames of a loop function share.

    Attributes
    ----------
    taken : set of str
        Names that no new variable may have.
    arrays, numbers : dict of str to Place
        The parameters that were used as the one and as the other, and where first.
    items : dict of str to Item
        The reductions that the present statement is within.
    atomics, variables : frozenset of str
        The arrays in ``atomic``, and the variables of the associated loops.
    levels : tuple of str
        Those of the loops that the present statement is within, ``"gang"`` and so on, outermost first.
    flags : set of str
        Variables that tell whether a loop was left by ``break``.
    callers : list of code
        The functions that the present statement is within, outermost first.
    origins : dict of str to str
        What new names were made of, for messages.
    nesting : int
        How deep the present statement or expression is, functions that are inlined included.
    n_inlined : int
        The statements and expressions that inlining has made so far.
    """

    taken: set[str]
    checks: bool
    arrays: dict[str, ir.Place] = field(default_factory=dict)
    numbers: dict[str, ir.Place] = field(default_factory=dict)
    items: dict[str, Item] = field(default_factory=dict)
    atomics: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()
    levels: tuple[str, ...] = ()
    flags: set[str] = field(default_factory=set)
    callers: list[CodeType] = field(default_factory=list)
    origins: dict[str, str] = field(default_factory=dict)
    is_in_nest: bool = False
    local_nbytes: int = 0
    n_accesses: int = 0
    nesting: int = 0
    n_inlined: int = 0
    _numbers: dict[str, int] = field(default_factory=dict)
    _heights: dict[int, tuple[ir.Expression, int]] = field(default_factory=dict)

    def fresh(self, name: str) -> str:
        """Return a name that no variable has, made of one that tells what it is."""
        number = self._numbers.get(name, 1)
        while f"{name}_{number}" in self.taken:
            number += 1
        self._numbers[name] = number + 1
        self.taken.add(f"{name}_{number}")
        self.origins[f"{name}_{number}"] = self.origins.get(name, name)
        return f"{name}_{number}"

    def height(self, value: ir.Expression) -> int:
        """Return how deep an expression is; what it is made of has mostly been asked for before."""
        found = self._heights.get(id(value))
        if found is None:  # the expression is kept, so that no other one gets its id
            height = 1 + max(map(self.height, cast("list[ir.Expression]", children(value))), default=0)
            found = self._heights[id(value)] = value, height
        return found[1]

    def at(self) -> int:
        """Return the number of a new access."""
        self.n_accesses += 1
        return self.n_accesses - 1


class Frame:
    """A function that is being lowered."""

    def __init__(
        self,
        work: Work,
        source: Source,
        names: dict[str, Binding],
        out: list[ir.Statement],
        is_called: bool = True,
    ) -> None:
        self.work = work
        self.source = source
        self.names = names
        self.out = out
        self.loops: list[str | None] = []  # around the present statement, in this function, with their flags
        self.is_inlined = is_called
        work.callers.append(source.function.__code__)

    # -- refusals and places

    def place(self, node: ast.AST) -> ir.Place:
        """Return the line of a node."""
        return ir.Place(self.source.file, getattr(node, "lineno", self.source.definition.lineno))

    def refusal(self, node: ast.AST, rule: str, what: str) -> LoopError:
        """Return the error for a node that breaks a rule; `what` says why, and what to do."""
        return self.source.refusal(node, rule, what)

    # -- statements

    @contextmanager
    def block(self) -> Iterator[list[ir.Statement]]:
        """Collect the statements that are lowered meanwhile, instead of appending them."""
        outer, self.out = self.out, []
        try:
            yield self.out
        finally:
            self.out = outer

    def named(self, value: ir.Expression, name: str) -> ir.Name:
        """Assign a value to a new variable, and return that."""
        variable = self.work.fresh(name)
        self.out.append(ir.Assign(place=value.place, name=variable, value=value))
        return ir.Name(place=value.place, name=variable)

    def bounded(self, value: ir.Expression) -> ir.Expression:
        """Return an expression for the same value that is not too deep."""
        return self.named(value, "part") if self.work.height(value) > _HIGHEST else value

    @contextmanager
    def nested(self, node: ast.AST) -> Iterator[None]:
        """Count a level while what is in a statement or an expression is lowered; refuse too many."""
        work = self.work
        if self.is_inlined:
            work.n_inlined += 1
            if work.n_inlined > MOST_INLINED:
                raise self.refusal(
                    node,
                    "call",
                    "functions that are called are inlined, and those of this loop make more than"
                    f" {MOST_INLINED:,} statements and expressions; call them less often, or write a loop",
                )
        work.nesting += 1
        if work.nesting > MOST_NESTED:
            raise self.refusal(
                node,
                "branch",
                f"statements, expressions and calls are nested here more than {MOST_NESTED} levels deep (each `elif`"
                " is one); assign parts to variables first, or write a loop over a table",
            )
        try:
            yield
        finally:
            work.nesting -= 1

    def kept(self, value: ir.Expression) -> ir.Expression:
        """Return an expression for a value as it is now, whatever happens to elements."""
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
        raise NotImplementedError

    # -- names

    def is_local(self, name: str) -> bool:
        """Tell whether a name is one of this function, and not from outside."""
        return name in self.names or name in self.source.assigned

    def variable(self, name: str) -> Binding:
        """Return what a name of this function is bound to; one that has no value yet is a scalar."""
        if name not in self.names:
            self.names[name] = Scalar(self.work.fresh(name) if self.is_inlined else name)
        return self.names[name]

    def use_as_number(self, parameter: Parameter, node: ast.AST) -> None:
        """Note that a parameter is used as a number."""
        self.work.numbers.setdefault(parameter.name, self.place(node))
        self._agree(parameter.name, node)

    def use_as_array(self, parameter: Parameter, node: ast.AST) -> None:
        """Note that a parameter is used as an array."""
        self.work.arrays.setdefault(parameter.name, self.place(node))
        self._agree(parameter.name, node)

    def _agree(self, name: str, node: ast.AST) -> None:
        array, number = self.work.arrays.get(name), self.work.numbers.get(name)
        if array is not None and number is not None:
            raise self.refusal(
                node,
                "index",
                f"{name} is used as an array (line {array.line}) and as a number (line {number.line}); give one index"
                f" for every dimension, {name}[()] if it has none, and write the loop over the rest",
            )
