"""Directives inside a nest of loops: inner loops, atomic statements and cache hints, in the language of loops.

``loop`` around a ``for`` becomes `acc.loop` around its range, which knows the levels of both standards. A statement
under ``atomic`` becomes a call of `offload.atomic`, or a reduction if it updates a scalar. The text names both by
`OFFLOAD`, under a name that no program has.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final, TypeVar

from offload.loops.tree.updates import update_of, updated_only
from offload.pragma.nest_clauses import constant_of, inner_words_of
from offload.pragma.tables import Form, row_of
from offload.texts import copied

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from offload.loops.tree.updates import ItemUpdate
    from offload.pragma.placing import DirectiveText
    from offload.pragma.syntax import Directive

OFFLOAD: Final = "<offload>"

_UPDATES: Final[Mapping[str, str]] = {
    "+": "add",
    "-": "sub",
    "*": "*",  # under a name that no program can write: the module has no such function
    "min": "min",
    "max": "max",
    "&": "and_",
    "|": "or_",
    "^": "xor",
}
_BINARY: Final[Mapping[str, type[ast.operator]]] = {
    "+": ast.Add,
    "-": ast.Sub,
    "*": ast.Mult,
    "&": ast.BitAnd,
    "|": ast.BitOr,
    "^": ast.BitXor,
}

_REMEDIES: Final[Mapping[str, str]] = {
    "critical": "use reduction or atomic, or a taskloop, whose body may be any Python",
    "task": "use a taskloop, whose body may be any Python",
    "single": "do it before or after the loop",
    "masked": "do it before or after the loop",
    "barrier": "end the nest, and begin another one",
}
_Node = TypeVar("_Node", bound=ast.AST)

_OWN_SCALARS: Final = "a scalar that an iteration assigns is the iteration's own"


def loop_in(block: ast.With | ast.AsyncWith, where: DirectiveText) -> ast.For:
    """Return the one loop in the block of a directive; `PragmaError` at the directive if there is anything else."""
    body = block.body
    match body:
        case [ast.For() as loop]:
            if loop.orelse:
                raise where.refusal(
                    "one `for … in range(…)` is needed here, without an `else`; write it after the loop"
                )
            if _is_range(loop.iter) and isinstance(loop.target, ast.Name):
                return loop
    found = {ast.While: "a `while`", ast.AsyncFor: "an `async for`", ast.For: "another `for`"}
    what = f"{len(body)} statements" if len(body) != 1 else found.get(type(body[0]), "another statement")
    raise where.refusal(f"one `for … in range(…)` is needed here, and nothing else; the block has {what}")


def _is_range(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"


class Inside:
    """The statements of a nest, with its inner directives put into the language of loops."""

    def __init__(
        self, met: Callable[[ast.Call], DirectiveText | None], where: DirectiveText, directive: Directive
    ) -> None:
        self._met = met
        self._where = where  # of the nest's directive
        self._directive = directive
        self.associated: list[ast.For] = []  # the loops that form one iteration space
        self.cache: list[str] = []  # items of ``cache``
        self.reduced: dict[str, str] = {}  # scalars that are updated under ``atomic``, with the operator
        self.private: set[str] = set()  # scalars in ``private`` of an inner directive

    def nest(self, loop: ast.For, words: dict[str, Any]) -> ast.For:
        """Put a nest into the language of loops, in place; add to the clauses of its construct."""
        tile, collapse = words.get("tile", ()), words.get("collapse", 1)
        self.associated = self._nested(loop, len(tile) or collapse, self._where, words)
        self._block(self.associated[-1].body)
        if self.cache:
            words["cache"] = self.cache
        return loop

    def updated(self) -> Mapping[str, str]:
        """Return the scalars that an iteration only updates, by one operator each."""
        return updated_only(self.associated[-1].body, _function_of)

    def _nested(self, loop: ast.For, n_loops: int, where: DirectiveText, words: Mapping[str, Any]) -> list[ast.For]:
        loops = [loop]
        clause = "tile" if words.get("tile") else "collapse"
        while len(loops) < n_loops:
            body = loops[-1].body
            if len(body) != 1 or not isinstance(body[0], ast.For) or body[0].orelse:
                raise where.refusal(
                    f"{clause} needs {n_loops} loops nested with nothing between them, but only {len(loops)} "
                    f"{'is' if len(loops) == 1 else 'are'} nested so; move the statements into the innermost loop"
                )
            loops.append(body[0])
        return loops

    # -- statements

    def _block(self, statements: list[ast.stmt]) -> None:
        """Put statements into the language of loops, in their list."""
        made: list[ast.stmt] = []
        for node in statements:
            made += self._statement(node)
        statements[:] = made

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, ast.With) and (texts := self._texts(node)):
            return self._with(texts, node.body, node)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            text = self._met(node.value)
            return [node] if text is None else self._alone(text, node)
        if isinstance(node, ast.AnnAssign) and node.value is None:
            return [ast.copy_location(ast.Pass(), node)]  # Python ignores it; OMP4Py's typed programs declare so
        for name in ("body", "orelse"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block:
                self._block(block)
        return [node]

    def _texts(self, node: ast.With) -> list[DirectiveText]:
        calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
        texts = [text for call in calls if (text := self._met(call)) is not None]
        return texts if len(texts) == len(node.items) else []

    def _with(self, texts: Sequence[DirectiveText], body: list[ast.stmt], node: ast.stmt) -> list[ast.stmt]:
        where, directive = texts[0], texts[0].parsed()
        if len(texts) > 1:
            body = self._with(texts[1:], body, node)
        row = row_of(directive)
        is_loop = row.is_inner_too or (row.form is Form.NEST and directive.name.startswith("parallel "))
        if not is_loop or directive.name == "cache":
            raise self._refusal(where, directive)
        if directive.name == "atomic":
            return self._atomic(where, directive, body, node)
        loop = loop_in(ast.With([], body), where)
        self._inner(loop, directive, where)
        return [loop]

    def _alone(self, where: DirectiveText, node: ast.Expr) -> list[ast.stmt]:
        directive = where.parsed()
        if directive.name != "cache":
            raise self._refusal(where, directive)
        self.cache += [item.text for item in directive.arguments]
        return [ast.copy_location(ast.Pass(), node)]

    def _refusal(self, where: DirectiveText, directive: Directive) -> Exception:
        form = row_of(directive).form
        if form is Form.NEST or directive.name in ("loop", "atomic", "cache"):
            return where.refusal(f"`{directive.name}` cannot stand so inside a nest of loops; put it around a `for`")
        instead = _REMEDIES.get(directive.name, "it takes loop, for, simd, atomic and cache")
        return where.refusal(
            f"`{directive.name}` cannot stand inside the compiled nest of `{self._directive.name}`; {instead}"
        )

    # -- inner loops

    def _inner(self, loop: ast.For, directive: Directive, where: DirectiveText) -> None:
        words = inner_words_of(directive, where)
        self.private.update(words.get("private", ()))
        n_loops = len(words.get("tile", ())) or words.get("collapse", 1)
        loops = self._nested(loop, n_loops, where, words)
        keywords = [ast.keyword(word, constant_of(value)) for word, value in words.items()]
        if keywords:
            function = ast.Attribute(ast.Attribute(_offload(), "acc", ast.Load()), "loop", ast.Load())
            call = ast.Call(function, [loop.iter], keywords)
            loop.iter = _at(call, loop.iter)
        self._block(loops[-1].body)

    # -- atomic statements

    def _atomic(
        self, where: DirectiveText, directive: Directive, body: list[ast.stmt], node: ast.stmt
    ) -> list[ast.stmt]:
        said = {clause.name for clause in directive.clauses}
        if "capture" in said:
            return [self._captured(where, body, node)]
        if len(body) != 1:
            raise where.refusal(f"atomic: one statement is needed here, not {len(body)}")
        if "read" in said:
            match body:
                case [ast.Assign(targets=[ast.Name()], value=ast.Subscript())]:
                    return body
            if isinstance(body[0], ast.Assign) and isinstance(body[0].value, ast.Name):
                raise where.refusal(f"atomic read: {_OWN_SCALARS}; leave the directive out")
            raise where.refusal("atomic read: write `v = x[i]`, with one element of an array")
        if "write" in said:
            match body:
                case [ast.Assign(targets=[ast.Subscript() as target], value=value)]:
                    return [_at(ast.Expr(_atomically("exchange", target, value)), body[0])]
            if isinstance(body[0], ast.Assign) and isinstance(body[0].targets[0], ast.Name):
                name = body[0].targets[0].id
                raise where.refusal(
                    f"atomic write: {_OWN_SCALARS}; put {name} into lastprivate or reduction, or use an array of one "
                    f"element: {name}[0]"
                )
            raise where.refusal("atomic write: write `x[i] = value`, with one element of an array")
        return [self._updated(where, body[0])]

    def _updated(self, where: DirectiveText, node: ast.stmt) -> ast.stmt:
        scalar = update_of(node, _scalar, _function_of)
        if scalar is not None:
            if self.reduced.setdefault(scalar.name, scalar.operator) != scalar.operator:
                raise where.refusal(
                    f"atomic: {scalar.name} is updated by {self.reduced[scalar.name]!r} and {scalar.operator!r}; use "
                    "one operator, or an array of one element"
                )
            return node
        target, update = self._update_of(where, node)
        operator, value = self._term(where, update)
        return _at(ast.Expr(_atomically(_UPDATES[operator], target, value)), node)

    def _update_of(self, where: DirectiveText, node: ast.stmt) -> tuple[ast.Subscript, ItemUpdate]:
        update = update_of(node, _element, _function_of)
        inner = node.body[0] if isinstance(node, ast.If) else node
        target = inner.targets[0] if isinstance(inner, ast.Assign) else getattr(inner, "target", None)
        if update is None or not isinstance(target, ast.Subscript):
            raise where.refusal(
                "atomic: write an update of one element, such as `x[i] += value` or `x[i] = max(x[i], value)`, with an "
                "operator of + - * & | ^ min max"
            )
        return target, update

    def _term(self, where: DirectiveText, update: ItemUpdate) -> tuple[str, ast.expr]:
        if len(update.terms) != 1 or update.operator not in _UPDATES:
            raise where.refusal("atomic: write one value and one operator of + - * & | ^ min max: `x[i] += value`")
        term = update.terms[0]
        return ("-" if term.is_taken_away else update.operator), term.node

    def _captured(self, where: DirectiveText, body: list[ast.stmt], node: ast.stmt) -> ast.stmt:
        """Return the assignment of the element before or after the update."""
        match body:
            case [ast.Assign(targets=[ast.Tuple(elts=[ast.Name() as name, target])], value=ast.Tuple(elts=[old, new]))]:
                body = [_at(ast.Assign([name], old), node), _at(ast.Assign([target], new), node)]
        match body:
            case [ast.Assign(targets=[ast.Name() as name], value=ast.Subscript() as element), second]:
                text = ast.unparse(element)
                update = update_of(second, _element, _function_of)
                if update is not None and update.name == text:
                    target, update = self._update_of(where, second)
                    operator, value = self._term(where, update)
                    return _at(ast.Assign([name], _atomically(_UPDATES[operator], target, value)), node)
                match second:
                    case ast.Assign(targets=[ast.Subscript() as target], value=value) if ast.unparse(target) == text:
                        return _at(ast.Assign([name], _atomically("exchange", target, value)), node)
            case [first, ast.Assign(targets=[ast.Name() as name], value=ast.Subscript() as element)]:
                update = update_of(first, _element, _function_of)
                if update is not None and update.name == ast.unparse(element):
                    target, update = self._update_of(where, first)
                    operator, value = self._term(where, update)
                    old = _atomically(_UPDATES[operator], target, value)
                    return _at(ast.Assign([name], _combined(operator, old, copied(value))), node)
        raise where.refusal(
            "atomic capture: write `v = x[i]` and an update of x[i], such as `x[i] += value`, as two statements, in "
            "either order"
        )


def _combined(operator: str, old: ast.expr, value: ast.expr) -> ast.expr:
    if operator in _BINARY:
        return ast.BinOp(old, _BINARY[operator](), value)
    return ast.Call(ast.Name(operator, ast.Load()), [old, value], [])


def _offload() -> ast.expr:
    return ast.Name(OFFLOAD, ast.Load())


def _atomically(function: str, target: ast.Subscript, value: ast.expr) -> ast.expr:
    called = ast.Attribute(ast.Attribute(_offload(), "atomic", ast.Load()), function, ast.Load())
    array = copied(target.value)
    return ast.Call(called, [array, copied(target.slice), value], [])


def _at(node: _Node, like: ast.AST) -> _Node:
    return ast.fix_missing_locations(ast.copy_location(node, like))


def _scalar(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) else None


def _element(node: ast.expr) -> str | None:
    return ast.unparse(node) if isinstance(node, ast.Subscript) else None


def _function_of(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) else None
