"""Expressions that may hold arrays, such as ``buf[i % 2]``, their values in a run, and their text in a clause.

A *chain* is a name, followed by attributes and subscripts whose indices have no effects. Evaluating it changes nothing,
so the observed run does that at each statement, and a task form may do it in a clause. Each beginning of a chain is a
chain as well: ``buf`` and ``buf[i % 2]`` are prefixes of ``buf[i % 2][:n]``.
"""

from __future__ import annotations

import ast
from collections import ChainMap
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from offload.interrupts.frames import is_own

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import CodeType

    from offload.arrays.sections import Section

    SectionOf = Callable[[Any], "Section | None"]

_PURE_CALLS: Final = frozenset({"len", "min", "max", "abs", "int", "divmod", "slice"})
_VIEWS: Final = frozenset({"T", "real"})
_BASIC: Final = (int, np.integer, slice, type(Ellipsis), type(None))
_PLAIN: Final = (int, float, complex, str, bytes, np.generic, type(None), np.dtype, slice)


class Held(NamedTuple):
    """The value of a chain when a statement ran.

    ``what`` is "device" or "host" for arrays, and "value" for numbers and strings. It is "changing" for a number that a
    list, a dictionary, a host array or an object held: it may hold another one later. All the rest is an "object".
    ``is_plain``: each subscript of an array is an index from 0 or a slice within the array, so that a clause can spell
    it.
    """

    what: str
    section: Section | None = None
    shape: tuple[int, ...] = ()
    dtype: str = ""
    is_plain: bool = True


@dataclass(frozen=True, eq=False, slots=True)
class Chain:
    """An expression of a program that may hold an array."""

    node: ast.expr
    root: str
    names: frozenset[str]  # that it uses, with the root
    steps: tuple[ast.Attribute | ast.Subscript, ...]  # innermost first

    def prefix(self, length: int) -> ast.expr:
        """Return the expression of the first ``length`` steps."""
        if length == len(self.steps):
            return self.node
        return self.steps[length].value


def chains_in(node: ast.AST) -> Iterator[Chain]:
    """Yield the longest chains of a statement's own expressions, in reading order; a compound statement's are its head.

    Names that a comprehension binds make no chain; the part before their use does.
    """
    for child in own_expressions(node):
        yield from _chains(child, frozenset())


def own_expressions(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the expressions that a statement evaluates by itself, without the statements in it."""
    for name, value in ast.iter_fields(node):
        if name in {"body", "orelse", "finalbody", "handlers", "cases", "decorator_list"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child


def _chains(node: ast.AST, bound: frozenset[str]) -> Iterator[Chain]:
    if isinstance(node, (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        yield from _longest(node, bound)
        return
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
        bound |= {name.id for part in node.generators for name in ast.walk(part.target) if isinstance(name, ast.Name)}
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.expr_context)):
            yield from _chains(child, bound)


def _longest(node: ast.expr, bound: frozenset[str]) -> Iterator[Chain]:
    steps: list[ast.Attribute | ast.Subscript] = []
    at: ast.expr = node
    while isinstance(at, (ast.Attribute, ast.Subscript)):
        steps.append(at)
        at = at.value
    steps.reverse()
    if not isinstance(at, ast.Name):
        yield from _chains(at, bound)
        for step in steps:
            if isinstance(step, ast.Subscript):
                yield from _chains(step.slice, bound)
        return
    if at.id not in bound:
        kept: list[ast.Attribute | ast.Subscript] = []
        for step in steps:
            if isinstance(step, ast.Subscript) and not (is_pure(step.slice) and names_in(step.slice).isdisjoint(bound)):
                break
            kept.append(step)
        last = kept[-1] if kept else at
        yield Chain(last, at.id, frozenset(names_in(last)), tuple(kept))
    for step in steps:
        if isinstance(step, ast.Subscript):
            yield from _chains(step.slice, bound)


def is_pure(node: ast.AST) -> bool:
    """Tell whether evaluating an expression has no effect, so that it may be evaluated twice."""
    match node:
        case ast.Constant() | ast.Name():
            return True
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            return name in _PURE_CALLS and all(map(is_pure, args))
        case (
            ast.BinOp() | ast.UnaryOp() | ast.BoolOp() | ast.Compare() | ast.IfExp() | ast.Attribute() | ast.Subscript()
        ):
            return all(map(is_pure, _operands(node)))
        case ast.Slice() | ast.Tuple():
            return all(map(is_pure, _operands(node)))
    return False


def _operands(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context)):
            yield child


def names_in(node: ast.AST) -> set[str]:
    """Return the names that an expression or statement mentions."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


# -- in the observed run -------------------------------------------------------------------------------


class ChainReader:
    """Evaluates a chain in a frame of the program, prefix by prefix."""

    __slots__ = ("_root", "_steps")

    def __init__(self, chain: Chain) -> None:
        self._root = chain.root
        self._steps = [
            (step.attr, None, ()) if isinstance(step, ast.Attribute) else (None, _code(step.slice), _slices(step.slice))
            for step in chain.steps
        ]

    def held(
        self, variables: Mapping[str, Any], namespace: dict[str, Any], section_of: SectionOf
    ) -> tuple[Held | None, ...]:
        """Return the value of each prefix, the bare name first; None from the first step that cannot be evaluated."""
        found: list[Held | None] = []
        plain, changing = True, False
        with suppress(Exception):  # the program will raise it itself, or not get here
            value = variables[self._root] if self._root in variables else namespace[self._root]
            found.append(one := described(value, section_of))
            for name, index, slices in self._steps:
                if not _is_open(value):
                    break
                is_array = one.section is not None
                changing = changing or _may_change(value, is_array=is_array)
                if name is not None:
                    value = _attribute(value, name, is_array=is_array)
                else:
                    # The program's own index. A slice is no expression by itself, so `_KEY` gives it.
                    known = ChainMap(_KEY, variables) if True in slices else variables  # type: ignore[arg-type]  # read
                    key = eval(index, namespace, known)  # type: ignore[arg-type]  # noqa: S307
                    plain = plain and _is_plain(value, key, slices)
                    value = _element(value, key, is_array=is_array)
                found.append(one := described(value, section_of, is_plain=plain, is_changing=changing))
        return (*found, *[None] * (len(self._steps) + 1 - len(found)))


def _slices(node: ast.expr) -> tuple[bool, ...]:
    """Return which parts of an index are written as slices."""
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return tuple(isinstance(part, ast.Slice) for part in parts)


def _code(node: ast.expr) -> CodeType:
    wrapped = node
    if True in _slices(node):
        wrapped = ast.Subscript(ast.Name("__offload_key__", ast.Load()), node, ast.Load())
    return compile(ast.fix_missing_locations(ast.Expression(wrapped)), "<index>", "eval")


class _Key:
    """Gives the key of a subscript."""

    def __getitem__(self, key: Any) -> Any:
        return key


_KEY: Final = {"__offload_key__": _Key()}


def described(value: Any, section_of: SectionOf, *, is_plain: bool = True, is_changing: bool = False) -> Held:
    """Return a description of a value of the program."""
    if isinstance(value, np.ndarray):
        return Held("host", section_of(value), value.shape, value.dtype.str, is_plain)
    if isinstance(value, _PLAIN) or (isinstance(value, tuple) and all(isinstance(part, _PLAIN) for part in value)):
        return Held("changing" if is_changing else "value", is_plain=is_plain)
    section = section_of(value)
    if section is not None:
        return Held("device", section, tuple(value.shape), np.dtype(value.dtype).str, is_plain)
    return Held("object", is_plain=is_plain)


def _is_open(value: Any) -> bool:
    """Tell whether parts of a value may be looked at: not of modules, nor of the stand-in's streams and events."""
    if isinstance(value, ModuleType):
        return False
    return hasattr(type(value), "storage_number") or not is_own(type(value).__module__)


def _attribute(value: Any, name: str, *, is_array: bool) -> Any:
    if is_array and name == "imag" and np.dtype(value.dtype).kind != "c":
        raise TypeError  # it would compute
    return getattr(value, name)


def _element(value: Any, key: Any, *, is_array: bool) -> Any:
    if isinstance(value, (list, tuple, dict)) or (is_array and _is_basic(key)):
        return value[key]
    raise TypeError


def _is_basic(key: Any) -> bool:
    parts = key if isinstance(key, tuple) else (key,)
    return all(isinstance(part, _BASIC) and not isinstance(part, bool) for part in parts)


def _is_plain(value: Any, key: Any, written: tuple[bool, ...]) -> bool:
    """Tell whether a clause can spell a subscript; ``written`` says which parts are slices in the text."""
    if isinstance(value, (list, tuple, dict)):
        return True
    parts = list(key) if isinstance(key, tuple) else [key]
    if any(part is None for part in parts) or tuple(isinstance(part, slice) for part in parts) != written:
        return False
    if Ellipsis in parts:
        return len(parts) == 1
    return all(_fits(part, length) for part, length in zip(parts, value.shape, strict=False))


def _fits(part: Any, length: int) -> bool:
    if not isinstance(part, slice):
        return bool(0 <= part < length)
    first = 0 if part.start is None else part.start
    last = length if part.stop is None else part.stop
    return part.step in {None, 1} and bool(0 <= first < last <= length)


def _may_change(value: Any, *, is_array: bool) -> bool:
    """Tell whether a part of a value may be another one later; an array of the device stays where it is."""
    if isinstance(value, (list, dict, np.ndarray)):
        return True
    return hasattr(value, "__dict__") and not is_array and not isinstance(value, type)


# -- in a clause ---------------------------------------------------------------------------------------


def clause_text(node: ast.expr) -> str:
    """Return the item of a clause for an expression whose subscripts of arrays are plain (`Held.is_plain`).

    A clause counts lower : length, so the ends of slices become lengths.
    """
    if isinstance(node, ast.Attribute):
        return f"{clause_text(node.value)}.{node.attr}"
    if isinstance(node, ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        inner = ", ".join(_part_text(part) for part in parts)
        return f"{clause_text(node.value)}[{inner}]"
    return ast.unparse(node)


def _part_text(part: ast.expr) -> str:
    if not isinstance(part, ast.Slice):
        return ast.unparse(part)
    first = "" if part.lower is None else ast.unparse(part.lower)
    if part.upper is None:
        return f"{first}:"
    if part.lower is None or _same(part.lower, ast.Constant(0)):
        return f"{first}:{ast.unparse(part.upper)}"
    return f"{first}:{length_text(part.lower, part.upper)}"


def length_text(lower: ast.expr, upper: ast.expr) -> str:
    """Return the length of a slice, shortened if the end is the start and something."""
    match upper, lower:
        case ast.Constant(value=int() as last), ast.Constant(value=int() as first):
            return str(last - first)
    match upper:
        case ast.BinOp(left=left, op=ast.Add(), right=right) if _same(left, lower):
            return ast.unparse(right)
        case ast.BinOp(left=left, op=ast.Add(), right=right) if _same(right, lower):
            return ast.unparse(left)
    match upper, lower:  # (i + 1) * n, after i * n
        case (
            ast.BinOp(left=ast.BinOp(left=one, op=ast.Add(), right=ast.Constant(value=1)), op=ast.Mult(), right=size),
            ast.BinOp(left=other, op=ast.Mult(), right=same),
        ) if _same(one, other) and _same(size, same):
            return ast.unparse(size)
    return ast.unparse(ast.BinOp(upper, ast.Sub(), lower))


def _same(one: ast.AST, other: ast.AST) -> bool:
    return ast.dump(one) == ast.dump(other)
