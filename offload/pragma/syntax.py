"""A parsed directive as values: words, clauses and list items, with the places where they stand in the string.

The values are immutable and have no NumPy in them. They are named tuples: a frozen dataclass takes five times as long
to import, and twice as long to make. Positions count characters of the string, from 0. A tree from Python's parser
(`PythonText.node`) belongs to the parser's cache: copy it before you put it into another tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import ast

Language: TypeAlias = Literal["omp", "acc"]


class Span(NamedTuple):
    """Characters of a directive's string: ``text[begin:end]``."""

    begin: int
    end: int


class PythonText(NamedTuple):
    """A Python expression in a directive."""

    text: str  # as it is written
    span: Span
    node: ast.expr  # never changed

    def __eq__(self, other: object) -> bool:
        return other.__class__ is PythonText and self[:2] == other[:2]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:2])


class Triple(NamedTuple):
    """One dimension of a section, lower : length : stride; None stands for a part that is left out."""

    lower: PythonText | None
    length: PythonText | None  # of a slice: the stop
    stride: PythonText | None
    span: Span
    is_slice: bool = False  # start : stop : step, as in PyOMP's programs


class Member(NamedTuple):
    """A step ``.name``."""

    name: str
    span: Span  # of the name


class Subscript(NamedTuple):
    """A step ``[…]``: one entry for each dimension. `...` is a `PythonText` whose node is ``Constant(Ellipsis)``."""

    dimensions: tuple[PythonText | Triple, ...]
    span: Span  # with the brackets


Step: TypeAlias = Member | Subscript


class Item(NamedTuple):
    """A list item: an expression, then members and subscripts that apply to it in turn.

    ``a.b[i][l:n]`` has the root ``a`` and three steps. An expression that ends in neither has no steps: ``(n,)``,
    ``f(b[1:3])``, ``1 + x``.
    """

    text: str  # as it is written
    span: Span
    root: PythonText
    steps: tuple[Step, ...]
    name: str  # the name that the item begins with; empty if the root is not a name

    @property
    def is_name(self) -> bool:
        """Whether the item is a name and nothing else."""
        return bool(self.name) and not self.steps


class Iterator(NamedTuple):
    """``i = begin : end : step`` of an ``iterator`` modifier."""

    name: str
    begin: PythonText
    end: PythonText
    step: PythonText | None
    span: Span


class Modifier(NamedTuple):
    """A modifier of a clause, such as ``always``, ``mapper(name)``, ``strict``, ``zero`` or ``devnum: d``."""

    name: str
    argument: PythonText | None  # ``mapper`` and ``devnum`` have one
    span: Span


class Clause(NamedTuple):
    """A clause. ``depend(in: x)`` has the kind ``in``; ``num_threads(4)`` has one expression."""

    name: str  # as `tables` spells it: ``copyin`` for ``pcopyin``, ``to`` of ``target update`` …
    word: Span  # of the name as it is written
    span: Span  # of the whole clause
    kind: str = ""
    """The word that decides: a dependence type, a map type (``alloc`` for ``storage``), an operator of a reduction as
    `declare_reduction` and the constructs know it (``+ * & | ^ and or min max`` or a declared name), a behaviour
    (``default``, ``defaultmap``, ``proc_bind``, ``schedule``, ``order``, ``bind``), ``targetsync``, an update type."""
    kind_span: Span | None = None
    modifiers: tuple[Modifier, ...] = ()
    iterators: tuple[Iterator, ...] = ()
    items: tuple[Item, ...] = ()
    """The list items of clauses that take a list."""
    expressions: tuple[PythonText, ...] = ()
    """The arguments of clauses that take values: ``if``, ``device``, ``async``, ``wait``, ``collapse``, ``tile`` …"""

    def has(self, modifier: str) -> bool:
        """Tell whether the clause has a modifier."""
        return any(one.name == modifier for one in self.modifiers)


class Directive(NamedTuple):
    """A parsed string."""

    language: Language
    text: str
    name: str
    """The words as `tables` spells them, separated by blanks: ``target enter data``, ``atomic``, ``parallel loop``."""
    span: Span  # of these words
    arguments: tuple[Item, ...] = ()
    """The arguments in brackets after the words: of ``depobj(o)``, ``critical(name)``, ``wait(list)``, ``cache(…)``."""
    arguments_modifiers: tuple[Modifier, ...] = ()
    """Of acc ``wait(devnum: d: queues: 1)``."""
    clauses: tuple[Clause, ...] = ()
    """In the order of the string."""

    def all(self, name: str) -> tuple[Clause, ...]:
        """Return the clauses of a name."""
        return tuple(clause for clause in self.clauses if clause.name == name)

    def clause(self, name: str) -> Clause | None:
        """Return the first clause of a name, or None."""
        return next((clause for clause in self.clauses if clause.name == name), None)
