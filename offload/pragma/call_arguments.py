"""The keyword arguments of a call that the clauses of a directive stand for.

Theory of operation
-------------------
Each clause becomes arguments of the call (`CallArgument`). An argument either is fixed by the string alone, or has an
expression, which is evaluated where the directive stands; its value then gives the keyword's value. There are three
ways to write list items (`ItemsWay`):

* *In place* (``target data``, ``taskwait`` …): the expression gives the objects themselves.
* *For a block* that becomes a function (``target``, ``task`` …): a bare name is a string, because the block has a
  parameter of that name. So the clause is the same at each encounter and is prepared once. A name whose value cannot be
  mapped, such as a number, is left out of the call at that encounter. Other items are values.
* *For a function* under ``@omp("…")``: an item is the string that the API's decorator takes, wherever that has the same
  meaning there.
"""

from __future__ import annotations

import ast
import builtins
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

from offload.constructs.clauses.maps import MapClause
from offload.pragma.items import MappedPart
from offload.pragma.syntax import Member, PythonText, Subscript, Triple
from offload.pragma.values import (
    called,
    constant,
    constant_of,
    dependence_of,
    elements_of,
    list_of,
    own_copy,
    part_of,
    steps_of,
    tuple_of,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from offload.pragma.syntax import Clause, Item
    from offload.pragma.values import Naming


class ItemsWay(Enum):
    """How the list items of a directive are written."""

    IN_PLACE = auto()
    BLOCK = auto()
    FUNCTION = auto()


class Setting(NamedTuple):
    """All that the translation of a clause depends on, besides the clause."""

    way: ItemsWay
    parameters: frozenset[str] = frozenset()  # of the decorated function


class OptionalName(NamedTuple):
    """A bare name of a block that is left out of the call where its value does not fit."""

    name: str
    is_strict: bool
    """Whether it is left out for any value that cannot be mapped; else for numbers and the like only."""


class CallArgument:
    """An argument by keyword; of several with one keyword, lists are joined, and dicts of lists are merged."""

    __slots__ = ("keyword",)

    is_evaluated = False
    """Whether the argument has an expression."""

    def __init__(self, keyword: str) -> None:
        self.keyword = keyword

    @property
    def optional(self) -> tuple[OptionalName, ...]:
        """The names that may be left out."""
        return ()

    @property
    def named(self) -> tuple[str, ...]:
        """The names that strings of the argument begin with."""
        return ()

    def expression(self, naming: Naming) -> ast.expr:
        """Return the expression for the argument's value where the directive stands."""
        raise NotImplementedError

    def value(self, evaluated: Any, left_out: frozenset[str]) -> Any:
        """Return the value of the keyword, given the value of the expression."""
        return evaluated


class FixedArgument(CallArgument):
    """An argument that the string alone decides."""

    __slots__ = ("_value",)

    def __init__(self, keyword: str, value: Any) -> None:
        super().__init__(keyword)
        self._value = value

    def value(self, evaluated: Any, left_out: frozenset[str]) -> Any:
        return self._value


class EvaluatedArgument(CallArgument):
    """An argument that is the value of an expression of the clause."""

    __slots__ = ("_change", "_expression")

    is_evaluated = True

    def __init__(self, keyword: str, expression: PythonText, change: Callable[[Any], Any] | None = None) -> None:
        super().__init__(keyword)
        self._expression = expression
        self._change = change

    def expression(self, naming: Naming) -> ast.expr:
        return own_copy(self._expression)

    def value(self, evaluated: Any, left_out: frozenset[str]) -> Any:
        return evaluated if self._change is None else self._change(evaluated)


class SeveralArgument(CallArgument):
    """An argument that is made of the values of several expressions."""

    __slots__ = ("_change", "_expressions")

    is_evaluated = True

    def __init__(self, keyword: str, expressions: Sequence[PythonText], change: Callable[[Any], Any]) -> None:
        super().__init__(keyword)
        self._expressions = tuple(expressions)
        self._change = change

    def expression(self, naming: Naming) -> ast.expr:
        return tuple_of(map(own_copy, self._expressions))

    def value(self, evaluated: Any, left_out: frozenset[str]) -> Any:
        return self._change(evaluated)


class NameArgument(CallArgument):
    """An argument that is the value of a bare name, which may be unbound."""

    __slots__ = ("_name",)

    is_evaluated = True

    def __init__(self, keyword: str, name: str) -> None:
        super().__init__(keyword)
        self._name = name

    def expression(self, naming: Naming) -> ast.expr:
        return naming.read(self._name)


class DependArgument(CallArgument):
    """``depend=[…]`` of adjacent clauses. Its expression makes the dependences; an encounter only passes them."""

    __slots__ = ("clauses",)

    is_evaluated = True

    def __init__(self, clauses: Sequence[Clause]) -> None:
        super().__init__("depend")
        self.clauses = tuple(clauses)

    def expression(self, naming: Naming) -> ast.expr:
        return list_of([element for clause in self.clauses for element in dependence_of(clause, naming)])


class ItemsArgument(CallArgument):
    """An argument that is a list of list items, or of clauses that `make` makes of them.

    Parameters
    ----------
    make : callable
        Makes a list of the items.
    optional : {None, False, True}
        For a block, whether a bare name may be left out, and how strictly (`OptionalName`).
    """

    __slots__ = ("_clause", "_make", "_optional", "_setting", "_written")

    def __init__(
        self,
        keyword: str,
        clause: Clause,
        setting: Setting,
        make: Callable[[list[Any]], Any] = list,
        *,
        optional: bool | None = None,
    ) -> None:
        super().__init__(keyword)
        self._clause = clause
        self._setting = setting
        self._make = make
        self._optional = optional
        # the items that are strings, None for those that are evaluated
        self._written = [_written(item, clause, setting) for item in clause.items]

    @property
    def is_evaluated(self) -> bool:  # type: ignore[override]  # of each argument its own
        return None in self._written

    @property
    def optional(self) -> tuple[OptionalName, ...]:
        if self._optional is None or self._setting.way is not ItemsWay.BLOCK:
            return ()
        return tuple([OptionalName(text, self._optional) for text in self._written if text is not None])

    @property
    def named(self) -> tuple[str, ...]:
        pairs = zip(self._clause.items, self._written, strict=True)
        return tuple([item.name for item, text in pairs if text is not None])

    def expression(self, naming: Naming) -> ast.expr:
        items = [
            self._item(item, naming)
            for item, text in zip(self._clause.items, self._written, strict=True)
            if text is None
        ]
        return tuple_of(elements_of(self._clause, items, naming))

    def _item(self, item: Item, naming: Naming) -> ast.expr:
        way = self._setting.way
        if way is ItemsWay.BLOCK and item.steps:
            return part_of(item, naming)
        if way is ItemsWay.FUNCTION and (pieces := _pieces(item)) is not None:
            return called(naming, "written", constant(pieces), *given_steps(item))
        return value_of(item, naming)

    def parts(self, evaluated: Sequence[Any]) -> Iterator[Any]:
        """Yield the `MappedPart`s among the values of the expression."""
        if self._setting.way is ItemsWay.BLOCK and not self._clause.iterators:
            items = [item for item, text in zip(self._clause.items, self._written, strict=True) if text is None]
            yield from (value for item, value in zip(items, evaluated, strict=True) if item.steps)

    def groups(self, evaluated: Sequence[Any]) -> Iterator[Sequence[Any]]:
        """Yield the `MappedPart`s of each item with steps: one, or as many as iterators of the clause give."""
        if not self._clause.iterators:
            yield from ((part,) for part in self.parts(evaluated))
            return
        items = self._clause.items
        yield from (evaluated[at :: len(items)] for at, item in enumerate(items) if item.steps)

    def value(self, evaluated: Any, left_out: frozenset[str]) -> Any:
        names: dict[int, str] = {}  # of the items in messages
        if self._clause.iterators:
            items = [one.view if one.__class__ is MappedPart else one for one in evaluated]
        else:
            has_parts = self._setting.way is ItemsWay.BLOCK
            given = iter(evaluated) if evaluated is not None else iter(())
            items = []
            for item, text in zip(self._clause.items, self._written, strict=True):
                if text is None:
                    value = next(given)
                    value = value.view if has_parts and item.steps else value
                    items.append(value)
                    names[id(value)] = item.text
                elif text not in left_out or self._optional is None:
                    items.append(text)
        made = self._make(items) if items else []
        if names and made and made[0].__class__ is MapClause:
            made[0].names = names
        return made


class ReductionArgument(ItemsArgument):
    """List items by operator: ``reduction={"+": [total]}``."""

    __slots__ = ()

    def __init__(self, keyword: str, clause: Clause, setting: Setting, *, optional: bool | None = None) -> None:
        super().__init__(keyword, clause, setting, optional=optional)

    def value(self, evaluated: Any, left_out: frozenset[str]) -> Any:
        items = super().value(evaluated, left_out)
        return {self._clause.kind: items} if items else {}


def merged(given: dict[str, Any], keyword: str, value: Any) -> None:
    """Enter the value of an argument among those that a call already has."""
    if keyword not in given:
        given[keyword] = value
    elif isinstance(value, list):
        given[keyword] = [*given[keyword], *value]
    elif keyword == "defaultmap":
        given[keyword] = {**_by_category(given[keyword]), **_by_category(value)}
    elif isinstance(value, dict):
        given[keyword] = {**given[keyword]}
        for operator, items in value.items():
            given[keyword][operator] = [*given[keyword].get(operator, ()), *items]
    else:
        given[keyword] = value


def _by_category(behaviour: Any) -> dict[str, str]:
    return behaviour if isinstance(behaviour, dict) else {"all": behaviour}


# -- list items as strings ---------------------------------------------------------------------------


def _written(item: Item, clause: Clause, setting: Setting) -> str | None:
    """Return an item as a string of the API's that is the same at each encounter; None for one that is evaluated."""
    if setting.way is ItemsWay.IN_PLACE or clause.iterators:
        return None
    if setting.way is ItemsWay.BLOCK:
        return item.name if item.is_name else None
    return written_item(item) if all(map(_is_plain, given_steps(item))) else None


def is_static(item: Item, parameters: frozenset[str]) -> bool:
    """Tell whether a string means the same in ``depend`` of the API's decorator as the item does at each call."""
    # A subscript without a section may be Python's own, which the API does not have. A number in an attribute has a
    # place, too.
    if item.is_name:
        return item.name in parameters
    if isinstance(item.steps[-1] if item.steps else None, Member):
        return False
    sections = [
        any(isinstance(entry, Triple) for entry in step.dimensions)
        for step in item.steps
        if isinstance(step, Subscript)
    ]
    return bool(item.name) and all(sections) and all(map(_is_plain, given_steps(item)))


def written_item(item: Item) -> str | None:
    """Return an item of a decorated function's clause as a string; None if no string has its meaning."""
    if _pieces(item) is None:
        return None
    return " ".join(item.text.split())


def _pieces(item: Item) -> tuple[str, ...] | None:
    """Return the text of an item with an empty string for each value in its subscripts; None if it has none.

    An item has none that begins with no name, or has ``...`` next to other entries.
    """
    if not item.name:
        return None
    pieces = [item.name]
    for step in item.steps:
        if isinstance(step, Member):
            pieces.append(f".{step.name}")
            continue
        if any(entry.is_slice if isinstance(entry, Triple) else _is_ellipsis(entry) for entry in step.dimensions):
            return None
        separator = "["
        for entry in step.dimensions:
            pieces.append(separator)
            separator = ", "
            if not isinstance(entry, Triple):
                pieces.append("")
                continue
            pieces += ["", ":"] if entry.lower is not None else [":"]
            pieces += [""] if entry.length is not None else []
            pieces += [":", ""] if entry.stride is not None else []
        pieces.append("]")
    return tuple(pieces)


def given_steps(item: Item) -> list[ast.expr]:
    """Return expressions for the values in an item's subscripts that are not left out."""
    return [node for node in steps_of(item) if not (isinstance(node, ast.Constant) and node.value is None)]


def _is_ellipsis(entry: PythonText) -> bool:
    return isinstance(entry.node, ast.Constant) and entry.node.value is ...


_PLAIN = (
    ast.Constant, ast.BinOp, ast.UnaryOp, ast.Attribute, ast.Subscript, ast.IfExp, ast.Compare, ast.operator,
    ast.unaryop, ast.cmpop, ast.expr_context,
)  # fmt: skip


def _is_plain(node: ast.expr) -> bool:
    """Tell whether the API evaluates an index as Python would: it knows no builtins and no names of comprehensions."""
    return all(map(_is_plain_node, ast.walk(node)))


def _is_plain_node(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return not hasattr(builtins, node.id)
    return isinstance(node, _PLAIN) and not (isinstance(node, ast.Constant) and not isinstance(node.value, int))


# -- the values of clauses ---------------------------------------------------------------------------


def valued(
    keyword: str, expression: PythonText, change: Callable[[Any], Any] | None = None
) -> FixedArgument | EvaluatedArgument:
    """Return the argument for one expression: fixed if it is a constant of Python."""
    is_constant, value = constant_of(expression)
    if is_constant:
        return FixedArgument(keyword, value if change is None else change(value))
    return EvaluatedArgument(keyword, expression, change)


def valued_all(
    keyword: str, expressions: Sequence[PythonText], change: Callable[[Any], Any] = list
) -> FixedArgument | SeveralArgument:
    """Return the argument for several expressions: fixed if all are constants."""
    found = [constant_of(expression) for expression in expressions]
    if all(is_constant for is_constant, _ in found):
        return FixedArgument(keyword, change(tuple([value for _, value in found])))
    return SeveralArgument(keyword, expressions, change)
