"""The loop IR: a loop function without Python's grammar and without C's.

`parse` makes an untyped `ParsedFunction` for each set of arguments that are None. `types` returns a `Typed` function:
each expression has a type, and each conversion is a `Convert`. Later passes read typed functions only, and add no rules
of arithmetic. `parse` lowers much: calls are inlined, tuples split, `else` of a loop becomes a flag, effects stand
alone as statements. Expressions have no effects: an emitter may evaluate one twice, or never.

Names are identifiers of C and Python; emitters add a prefix. Nodes are values: a pass returns new ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Dtype = Literal[
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
Operator = Literal["+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>"]
Relation = Literal["<", "<=", "==", "!=", ">=", ">"]
ReductionOperator = Literal["+", "*", "min", "max", "&", "|", "^", "and", "or"]
AtomicOperator = Literal["+", "-", "*", "min", "max", "&", "|", "^", "exchange", "cas"]
# What is done about an index: nothing, negative ones are wrapped, or wrapped and checked.
Mode = Literal["off", "wrap", "check"]

# What the private and local arrays of an iteration may have: a thread's share of a GPU's memory for such.
MOST_PRIVATE_NBYTES: Final = 16 << 10


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the program's text."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Type:
    """The type of a scalar.

    A weak one is a number of Python's, ``int64``, ``float64``, ``complex128`` or ``bool`` where it is held: it takes
    the type of a strong partner.
    """

    dtype: Dtype
    is_weak: bool = False  # it gives way to a strong type

    def __str__(self) -> str:
        return f"{self.dtype} weak" if self.is_weak else self.dtype


@dataclass(frozen=True, slots=True)
class LoopArrayType:
    """The type of an array: that of its elements, and how many dimensions it has."""

    dtype: Dtype
    ndim: int  # dimensions

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(':' * self.ndim)}]"


# -- expressions -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A node that has a value and no effect. `types` sets ``type``."""

    place: SourceLine
    type: Type | None = None  # None before types are inferred


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant(Expression):
    """A number or truth value of the text, or a scalar that was frozen (NumPy's are strong: its type is given)."""

    value: bool | int | float | complex


@dataclass(frozen=True, slots=True, kw_only=True)
class Name(Expression):
    """The value of a scalar: a parameter, a local one, a loop's variable."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent(Expression):
    """``a.shape[k]``; typed functions have no negative dimension, and none of a row."""

    array: str
    dimension: int
    # How many the array must have, where its shape is taken apart: `n, m = a.shape`.
    n_dimensions: int | None = None
    taken: tuple[bool, ...] = ()  # of a row: whether each leading axis has an index, so that it is no dimension


@dataclass(frozen=True, slots=True, kw_only=True)
class Trip(Expression):
    """The trip of an associated loop, by its number; code that watches a nest counts iterations by it (`speculate`)."""

    axis: int  # by its number, outermost first


@dataclass(frozen=True, slots=True, kw_only=True)
class Size(Expression):
    """``a.size``; a product of extents in typed functions."""

    array: str
    taken: tuple[bool, ...] = ()  # as in `Extent`


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank(Expression):
    """``a.ndim``; a constant in typed functions."""

    array: str
    taken: tuple[bool, ...] = ()  # as in `Extent`


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(Expression):
    """An element of an array, local ones included; ``at`` numbers the accesses of a function."""

    array: str
    indices: tuple[Expression, ...]
    at: int  # the number of the access, by which bounds are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Unary(Expression):
    """An operator with one operand."""

    operator: Literal["-", "+", "~", "not"]
    operand: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary(Expression):
    """An operator with two operands; of typed functions both have one type."""

    operator: Operator
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare(Expression):
    """A comparison, by value: in typed functions both sides have one type, or are integers of two."""

    operator: Relation
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Logical(Expression):
    """``and``, ``or`` of truth values; the right side is evaluated if it decides."""

    operator: Literal["and", "or"]
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Select(Expression):
    """A conditional expression; only the side that is taken is evaluated."""

    condition: Expression
    then: Expression
    otherwise: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class Convert(Expression):
    """``int(e)``, ``np.float32(e)`` and the like, or a node of `types`: as C casts, to ``bool`` by ``!= 0``."""

    to: Type
    operand: Expression


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCall(Expression):
    """A function of numbers, by one name: ``"math.sin"``, ``"numpy.sin"``, or of Python ``"abs" "min" "max" "round"``.

    ``min`` and ``max`` have two arguments; ``round`` has one. ``complex`` makes a number of two real ones;
    ``"complex.real"``, ``"complex.imag"`` and ``"complex.conjugate"`` are attributes of any number. In typed functions,
    ``"complex.quotient"`` and ``"complex.powi"`` are operators of two of Python's complex numbers: CPython rounds
    quotients and powers in another way than NumPy.
    """

    function: str
    arguments: tuple[Expression, ...]


# -- statements ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A node that is carried out."""

    place: SourceLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign(Statement):
    """``name = value``; ``annotation`` fixes the type of the variable."""

    name: str
    value: Expression
    annotation: Type | None = None  # the type that the program gives it


@dataclass(frozen=True, slots=True, kw_only=True)
class Store(Statement):
    """``array[indices] = value``."""

    array: str
    indices: tuple[Expression, ...]
    value: Expression
    at: int  # the number of the access


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduce(Statement):
    """An update of a reduction's item: a scalar, or a parameter whose argument has one element.

    ``s -= e`` is an update by ``+`` whose value ``is_taken_away``: negated once it has the item's type, which `types`
    does, so that typed functions have none.
    """

    name: str
    operator: ReductionOperator
    value: Expression
    is_taken_away: bool = False  # the program writes ``-=``


@dataclass(frozen=True, slots=True, kw_only=True)
class Atomic(Statement):
    """One step on an element; ``result`` is the scalar that gets the old value, ``expected`` that of ``cas``."""

    array: str
    indices: tuple[Expression, ...]
    operator: AtomicOperator
    value: Expression
    at: int  # the number of the access
    expected: Expression | None = None  # of a compare-and-swap
    result: str | None = None  # the scalar that gets the old value


@dataclass(frozen=True, slots=True, kw_only=True)
class If(Statement):
    """A branch."""

    condition: Expression
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopClauses:
    """The clauses of ``omp.loop``, ``acc.loop`` or the construct about a loop; `sizes` has those such as ``gang=64``.

    `level` is ``"gang"``, ``"worker"``, ``"vector"``, joined by ``" "`` where several fall on one loop, or ``""``.
    """

    level: str = ""
    sizes: tuple[tuple[str, int], ...] = ()
    order: Literal["", "seq", "independent", "auto"] = ""
    collapse: int = 1
    tile: tuple[int, ...] = ()  # one size a loop
    reductions: tuple[LoopReduction, ...] = ()  # that the loop declares
    private: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoopReduction:
    """One item of a ``reduction`` clause."""

    operator: ReductionOperator
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class For(Statement):
    """A loop of an iteration. Its bounds are evaluated once; the variable is its alone while it runs."""

    variable: str
    start: Expression
    stop: Expression
    step: Expression
    body: tuple[Statement, ...]
    clauses: LoopClauses = field(default_factory=LoopClauses)  # of ``omp.loop``


@dataclass(frozen=True, slots=True, kw_only=True)
class While(Statement):
    """A ``while`` without ``else``."""

    condition: Expression
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Break(Statement):
    """``break`` in the innermost loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Continue(Statement):
    """``continue`` in the innermost loop; without one it ends the iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assert(Statement):
    """``assert condition, "text"``, where the call checks."""

    condition: Expression
    text: str  # of the condition, for the message


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexCheck(Statement):
    """The indices of an array type's call are in range: from 0, since negative ones do not count from the end.

    The check has the number and the bounds of an access. An index out of range ends the iteration.
    """

    array: str  # the call, as the program writes it: no array has such a name
    indices: tuple[Expression, ...]  # of the call, those in tuples one after the other
    sizes: tuple[int, ...]  # of the dimensions that they count
    at: int  # the number of the check among the accesses


@dataclass(frozen=True, slots=True, kw_only=True)
class Local(Statement):
    """``name = np.zeros(shape, dtype)`` and the like: of the iteration, without contents if without ``fill``."""

    name: str
    shape: tuple[int, ...]
    dtype: Dtype
    fill: Expression | None  # None: the elements hold anything


# -- functions -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopAxis:
    """An associated loop: its bounds are of launch time."""

    variable: str
    start: Expression
    stop: Expression
    step: Expression
    place: SourceLine


@dataclass(frozen=True, slots=True)
class Scan:
    """How a nest runs as a scan of the scalars that it carries: their totals first, then the iterations."""

    items: tuple[LoopReduction, ...]  # the scalars, with the operators of their updates, as the nest carries them
    # What computes the totals of one iteration: it updates each item by `Reduce`, and writes to no array of others.
    totals: tuple[Statement, ...]
    started: tuple[str, ...]  # items whose values before the loop are in the totals of the first iteration
    loaded: frozenset[str]  # arrays that totals are made of
    early: frozenset[str]  # arrays that an iteration may write before it reads all of these
    first: frozenset[str]  # arrays that give items their values before the loop


@dataclass(frozen=True, slots=True, kw_only=True)
class Nest:
    """A nest of associated loops, outermost first, and the body of one iteration."""

    axes: tuple[LoopAxis, ...]  # the associated loops, outermost first
    body: tuple[Statement, ...]  # of one iteration
    clauses: LoopClauses  # of the construct
    place: SourceLine
    reductions: tuple[LoopReduction, ...] = ()
    # Arrays of which each iteration has its own: `"private"`, `"firstprivate"`, `"lastprivate"`.
    privates: Mapping[str, str] = field(default_factory=dict)
    last: tuple[str, ...] = ()  # scalars of which the sequentially last iteration's value is returned
    # Scalars that an iteration takes over from the one before, the first from the host: iterations run in order.
    carried: tuple[str, ...] = ()
    scan: Scan | None = None  # how they run in parallel all the same; the launch decides about that

    @property
    def passed(self) -> tuple[str, ...]:
        """The scalars that iterations in order pass on, in the order of their words; those that come out are first."""
        return (*(item.name for item in self.reductions), *self.last, *self.carried)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedFunction:
    """A loop function."""

    name: str
    place: SourceLine
    # In their order. Those that are None at the call are in `absent`, and nowhere else.
    parameters: tuple[str, ...]
    absent: frozenset[str]  # parameters that are None
    arrays: tuple[str, ...]  # the parameters that are indexed, or whose shape is asked for
    # Scalar statements, which the host carries out before a launch, and nests, in the order of the text. What reads
    # array elements stands in a nest.
    parts: tuple[Statement | Nest, ...]
    returns: tuple[str, ...]  # scalars; each is in a nest's reductions or `last`
    returns_tuple: bool  # ``return a,`` and not ``return a``
    # The array types that it calls, as the program writes them, as `explain` shows them.
    layouts: Mapping[str, object] = field(default_factory=dict)

    @property
    def nests(self) -> tuple[Nest, ...]:
        return tuple(part for part in self.parts if isinstance(part, Nest))


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """A function whose expressions have types."""

    function: ParsedFunction
    scalars: Mapping[str, Type]  # of parameters, locals and loops' variables
    arrays: Mapping[str, LoopArrayType]  # of parameters and local arrays
    notes: tuple[str, ...] = ()  # what the user may want to know: accumulators narrower than 8 bytes
