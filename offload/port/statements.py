"""Questions about statements of a program: names that they bind, suites, and the forms that copies have."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple

from offload.port.chains import names_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from offload.port.chains import Chain, Held
    from offload.port.program import ProgramText


class CopyShape(NamedTuple):
    """A statement that has the form of a copy."""

    target: ast.expr
    source: ast.expr
    to_host: bool


def copy_shape(program: ProgramText, node: ast.stmt) -> CopyShape | None:
    """Return the two sides of a statement that has the form of a copy between host and device."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=device, attr="set"), args=[host, *_])):
            return CopyShape(device, host, to_host=False)
        case ast.Expr(value=ast.Call() as call):
            side = _got(program, call)
            out = [keyword.value for keyword in call.keywords if keyword.arg == "out"]
            return CopyShape(out[0], side, to_host=True) if side is not None and out else None
        case ast.Assign(targets=[ast.Subscript() as target], value=ast.Call() as call):
            side = _got(program, call)
            if side is not None and not any(keyword.arg in {"out", "order"} for keyword in call.keywords):
                return CopyShape(whole_array(target), side, to_host=True)
            if program.dotted(call.func) in {"cupy.asarray", "cupy.array"} and len(call.args) == 1:
                return None if call.keywords else CopyShape(whole_array(target), call.args[0], to_host=False)
    return None


def _got(program: ProgramText, call: ast.Call) -> ast.expr | None:
    """Return the device array that a call copies to the host."""
    if program.dotted(call.func) == "cupy.asnumpy" and call.args:
        return call.args[0]
    func = call.func
    is_get = isinstance(func, ast.Attribute) and func.attr == "get" and program.dotted(func) is None
    return func.value if is_get else None  # type: ignore[attr-defined]  # is_get


def whole_array(target: ast.Subscript) -> ast.expr:
    """Return the array, if a subscript means all of it."""
    match target.slice:
        case ast.Constant(value=value) if value is Ellipsis:
            return target.value
        case ast.Slice(lower=None, upper=None, step=None):
            return target.value
    return target


def suites_of(node: ast.AST) -> list[list[ast.stmt]]:
    """Return the suites of a compound statement, in reading order."""
    suites = [getattr(node, name) for name in ("body", "orelse", "finalbody") if getattr(node, name, None)]
    for name in ("handlers", "cases"):
        suites += [part.body for part in getattr(node, name, [])]
    return sorted((suite for suite in suites if isinstance(suite, list)), key=lambda suite: suite[0].lineno)


def bindings_in(node: ast.stmt) -> Iterator[tuple[str, ast.stmt]]:
    """Yield the names that a statement binds in its function, with the statements; loop variables do not count."""
    for part in ast.walk(node):
        targets: list[ast.expr] = []
        if isinstance(part, ast.Assign):
            targets = part.targets
        elif isinstance(part, ast.AnnAssign):
            targets = [part.target]
        for target in targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                    yield name.id, part  # type: ignore[misc]  # it has targets
        if isinstance(part, ast.NamedExpr):
            yield part.target.id, node


def bound_names(node: ast.stmt) -> set[str]:
    """Return all names that a statement binds, with loop variables."""
    found = {name for name, _ in bindings_in(node)}
    for part in ast.walk(node):
        if isinstance(part, (ast.For, ast.AsyncFor)):
            found |= {name.id for name in ast.walk(part.target) if isinstance(name, ast.Name)}
        if isinstance(part, ast.withitem) and part.optional_vars is not None:
            found |= names_in(part.optional_vars)
    return found


def read_first(group: Iterable[ast.stmt], name: str) -> int | None:
    """Return the line where a block reads a name that it binds later, or in the same statement; None if it does not."""
    for node in group:
        leaves = [one for one in ast.walk(node) if isinstance(one, ast.stmt) and not hasattr(one, "body")]
        for leaf in sorted(leaves, key=lambda one: (one.lineno, one.col_offset)):
            uses = [one for one in ast.walk(leaf) if isinstance(one, ast.Name) and one.id == name]
            if any(isinstance(one.ctx, ast.Load) for one in uses):
                return leaf.lineno
            if any(found == name for found, _ in bindings_in(leaf)):
                return None
    return None


def is_quiet(node: ast.stmt) -> bool:
    """Tell whether a statement only binds names, so that it may run later."""
    if isinstance(node, ast.Assign):
        return all(isinstance(target, (ast.Name, ast.Tuple)) for target in node.targets)
    if isinstance(node, ast.AnnAssign):
        return isinstance(node.target, ast.Name)
    return isinstance(node, (ast.Pass, ast.Break, ast.Continue))


def stored_bases(program: ProgramText, changes_in_place: Callable[[ast.AugAssign], bool]) -> set[str]:
    """Return the texts of containers that the program stores into, and ``.name`` of attributes that it sets twice."""
    found: set[str] = set()
    counts: dict[str, int] = {}
    in_place = {node.target for node in program.parents if isinstance(node, ast.AugAssign) and changes_in_place(node)}
    for node in program.parents:
        if node in in_place:
            continue
        match node:
            case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()):
                found.add(ast.unparse(value))
            case ast.Attribute(attr=name, ctx=ast.Store()):
                counts[name] = counts.get(name, 0) + 1
            case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in _CHANGES:
                found.add(ast.unparse(value))
    return found | {f".{name}" for name, count in counts.items() if count > 1}


_CHANGES: Final = frozenset({"reverse", "insert", "pop", "remove", "sort", "rotate", "popleft", "appendleft", "clear"})


def passes_stored(stored: set[str], chain: Chain, held: tuple[Held | None, ...], length: int) -> bool:
    """Tell whether a prefix of a chain passes through a container that the program stores into."""
    for step, container in zip(chain.steps[:length], held, strict=False):
        if container is not None and container.what == "object":
            key = f".{step.attr}" if isinstance(step, ast.Attribute) else ast.unparse(step.value)
            if key in stored:
                return True
    return False


def normal_text(node: ast.expr) -> str:
    """Return the text of an expression; a whole array is the array."""
    if isinstance(node, ast.Subscript):
        return normal_text(node.value) if whole_array(node) is not node else ast.unparse(node)
    return ast.unparse(node)


def root_of(node: ast.expr) -> str:
    """Return the name that a chain begins with."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else "array"


def short_text(node: ast.stmt) -> str:
    """Return the first line of a statement, for a message."""
    return f"`{ast.unparse(node).splitlines()[0]:.60}`"
