"""The loops of a plain function, each as a loop function of its own.

An *outline* of a ``for`` is a function whose parameters are the variables from around the loop, and whose body is the
loop. The bounds of the range become parameters too, so each entry of the loop has its own numbers. The nodes keep their
lines, so messages name the lines of the program.
"""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from offload.errors import LoopError
from offload.loops.front.source import FunctionSource, keep_text
from offload.loops.tree.updates import updated_only

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FunctionType
    from typing import Any

BOUNDS: Final = ("range_start", "range_stop", "range_step")

_LOOPS: Final = (ast.For, ast.While)


@dataclass(frozen=True, slots=True)
class LoopSite:
    """A ``for`` of a function."""

    number: int  # in the order of the text
    node: ast.For
    around: tuple[ast.stmt, ...]  # the statements that enclose it, outermost first
    enclosing: tuple[int, ...]  # the numbers of the ``for`` among them

    @property
    def line(self) -> int:
        return self.node.lineno

    @property
    def variable(self) -> str:
        """The variable, as it is written."""
        return ast.unparse(self.node.target)


@dataclass(frozen=True, slots=True)
class Outline:
    """A loop as a function."""

    function: FunctionType
    parameters: tuple[str, ...]  # variables from around the loop, without the bounds
    lastprivate: tuple[str, ...]  # scalars whose value after the loop is read


def sites_of(definition: ast.FunctionDef) -> list[LoopSite]:
    """Return each ``for`` of a function, in the order of the text; functions inside it have none."""
    found: list[LoopSite] = []

    def look(statements: Sequence[ast.stmt], around: tuple[ast.stmt, ...], enclosing: tuple[int, ...]) -> None:
        for node in statements:
            inner = enclosing
            if isinstance(node, ast.For):
                found.append(LoopSite(len(found), node, around, enclosing))
                inner = (*enclosing, len(found) - 1)
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                for block in blocks_of(node):
                    look(block, (*around, node), inner)

    look(definition.body, (), ())
    return found


def has_several(definition: ast.FunctionDef) -> bool:
    """Tell whether a function has loops neither of which is inside the other, or a loop in a ``while``."""
    sites = sites_of(definition)
    if any(site.enclosing != tuple(range(site.number)) for site in sites):
        return True
    return any(isinstance(node, ast.While) for site in sites[:1] for node in site.around)


def blocks_of(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of statements of a statement."""
    for name in ("body", "orelse", "finalbody"):
        yield from filter(None, (getattr(node, name, None),))
    for handler in getattr(node, "handlers", ()):
        yield handler.body
    for case in getattr(node, "cases", ()):
        yield case.body


def outline(source: FunctionSource, site: LoopSite, outside: dict[str, Any]) -> Outline:
    """Return a loop as a function; ``outside`` has the values of names from outside of the program's function."""
    _check_names(source, site)
    node = copy.deepcopy(site.node)
    counted = _range_in(node.iter)
    if counted is not None:
        counted.args = [ast.copy_location(ast.Name(name, ast.Load()), node.iter) for name in BOUNDS]
    locals_ = source.assigned | {parameter.arg for parameter in source.parameters}
    names = _names(node, ast.Load) | _names(node, ast.Store)
    variables = {one for loop in ast.walk(node) if isinstance(loop, ast.For) for one in _names(loop.target, ast.Store)}
    before = _bound_before(source, site)
    given = tuple(sorted((names & locals_ & before) - variables))
    assigned = _names(node, ast.Store) - variables
    updated = updated_only(node.body, _written_name)
    items = tuple(sorted(name for name in updated if name in given))
    last = tuple(sorted(name for name in assigned - set(items) if is_live_after(source.definition, site, name)))
    parameters = [*given, *(BOUNDS if counted is not None else ())]
    body: list[ast.stmt] = [node]
    if returned := [*items, *last]:
        values: list[ast.expr] = [ast.Name(name, ast.Load()) for name in returned]
        body.append(ast.Return(values[0] if len(values) == 1 else ast.Tuple(values, ast.Load())))
    definition = ast.FunctionDef(
        name=source.definition.name,
        args=ast.arguments([], [ast.arg(name) for name in parameters], None, [], [], None, []),
        body=body,
        decorator_list=[],
        lineno=site.line,
        col_offset=0,
        end_lineno=node.end_lineno,
        end_col_offset=node.end_col_offset,
    )
    if "type_params" in ast.FunctionDef._fields:  # from Python 3.12 on
        definition.type_params = []  # type: ignore[attr-defined,unused-ignore]
    ast.copy_location(body[-1], node)
    ast.fix_missing_locations(definition)
    made: dict[str, Any] = dict(outside)
    exec(compile(ast.Module([definition], []), source.file, "exec"), made)  # noqa: S102  # the program's own text
    function: FunctionType = made[definition.name]
    keep_text(function, definition, source.text, source.file)
    return Outline(function, given, last)


def _check_names(source: FunctionSource, site: LoopSite) -> None:
    """Raise `LoopError` for a loop that is no function of its own because of the names in it."""
    names = _names(site.node, ast.Load) | _names(site.node, ast.Store)
    for node in ast.walk(source.definition):
        if isinstance(node, (ast.Global, ast.Nonlocal)) and not names.isdisjoint(node.names):
            raise LoopError(
                f"{min(names & {*node.names})} is a variable of outside; pass it as an argument", rule="name"
            )
    if taken := names & {*BOUNDS}:
        raise LoopError(f"{min(taken)} is a name that the report uses itself; rename the variable", rule="name")
    for loop in ast.walk(site.node):
        for name in _names(loop.target, ast.Store) if isinstance(loop, ast.For) else ():
            if is_live_after(source.definition, site, name):
                raise LoopError(
                    f"{name} is read after the loop, and a loop function does not return its variable; assign it to "
                    "another variable in the loop",
                    rule="name",
                )


def _range_in(iterator: ast.expr) -> ast.Call | None:
    """Return the call of ``range`` that a loop counts; None if it is written otherwise."""
    node = iterator
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "loop" and node.args:
        node = node.args[0]
    is_range = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"
    if not is_range or not isinstance(node, ast.Call) or node.keywords or not 1 <= len(node.args) <= 3:
        return None
    return None if any(isinstance(one, ast.Starred) for one in node.args) else node


def _written_name(node: ast.expr) -> str | None:
    """Return the name of a function, as it is written: ``min`` and ``max`` update reductions."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return f"{module}.{name}"
        case _:
            return None


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, context)}


def _bound_before(source: FunctionSource, site: LoopSite) -> set[str]:
    """Return the names that may have a value when a loop begins."""
    inside = {id(node) for node in ast.walk(site.node)}
    loops = [node for node in site.around if isinstance(node, _LOOPS)]
    outermost = loops[0] if loops else None
    again = set() if outermost is None else {id(node) for node in ast.walk(outermost)}
    found = {parameter.arg for parameter in source.parameters}
    for node in ast.walk(source.definition):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in inside:
            is_above = (node.lineno, node.col_offset) < (site.node.lineno, site.node.col_offset)
            if is_above or id(node) in again:
                found.add(node.id)
    return found


# -- which values are read after a loop ------------------------------------------------------------------


def is_live_after(definition: ast.FunctionDef, site: LoopSite, name: str) -> bool:
    """Tell whether the value that a loop leaves in a variable may be read."""
    inner: ast.stmt = site.node
    for node in (*reversed(site.around), None):
        blocks = [definition.body] if node is None else list(blocks_of(node))
        block = next(block for block in blocks if any(inner is one for one in block))
        place = next(number for number, one in enumerate(block) if one is inner)
        later = block[place + 1 :]
        if isinstance(node, _LOOPS):  # the next iteration
            head: list[ast.stmt] = [ast.Expr(node.test)] if isinstance(node, ast.While) else []
            later = [*later, *head, *block[:place]]
        first = _first_use(later, name)
        if first is not None:
            return first == "read"
        if node is not None:
            inner = node
    return False


def is_used_whole(definition: ast.FunctionDef, site: LoopSite, name: str) -> bool:
    """Tell whether an array may be read after a loop otherwise than by single elements, which a trace sees."""
    inside = {id(node) for node in ast.walk(site.node)}
    elements = {
        id(node.value)
        for node in ast.walk(definition)
        if isinstance(node, ast.Subscript) and not any(isinstance(part, ast.Slice) for part in ast.walk(node.slice))
    }
    again = [node for node in site.around if isinstance(node, _LOOPS)]
    for node in ast.walk(definition):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) and id(node) not in inside:
            is_later = bool(again) or node.lineno > (site.node.end_lineno or site.node.lineno)
            if is_later and id(node) not in elements:
                return True
    return False


def _first_use(statements: Sequence[ast.stmt], name: str) -> str | None:
    """Return whether statements first read a variable, or certainly assign it first; None if they may do neither."""
    for node in statements:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            reads = node.value is not None and name in _names(node.value, ast.Load)
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if reads or any(name in _names(target, ast.Load) for target in targets):
                return "read"
            if any(name in _names(target, ast.Store) for target in targets):
                return "assigned"
            continue
        blocks = list(blocks_of(node))
        inside = {id(part) for block in blocks for one in block for part in ast.walk(one)}
        heads = (part for part in ast.walk(node) if isinstance(part, ast.Name) and id(part) not in inside)
        if any(part.id == name and (isinstance(part.ctx, ast.Load) or not blocks) for part in heads):
            return "read"  # an update reads too
        if isinstance(node, ast.For) and name in _names(node.target, ast.Store):
            continue  # it may have no iteration
        if any(_first_use(block, name) == "read" for block in blocks):
            return "read"
    return None
