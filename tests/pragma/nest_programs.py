"""Functions with nests under directives, carried out statement by statement without the rewriting of functions.

`carry_out` runs the statements of a function's body one after another. A ``with omp("…")`` around a nest is
encountered as generated code does it; all other statements are Python's.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from offload.pragma import items, placing
from offload.pragma.calls import DirectiveCall
from offload.pragma.loops import NestScope, loop_in, nest_of
from offload.pragma.nests import NestEncounter, fixed_in
from offload.texts import FunctionText, text_of

if TYPE_CHECKING:
    from collections.abc import Callable


class Names:
    """The names where a directive stands, as `DirectiveCall.values` asks for them."""

    library = ast.Name("<items>", ast.Load())

    def read(self, name: str) -> ast.expr:
        """Return an expression for the value of a bare name."""
        return ast.Name(name, ast.Load())

    def location(self, name: str) -> ast.expr:
        """Return an expression for the location of a variable."""
        return ast.Constant(name)


def met_in(text: FunctionText) -> Callable[[ast.Call], Any]:
    """Return the function that finds the directive of a call ``omp("…")`` or ``acc("…")``."""

    def met(call: ast.Call) -> Any:
        match call.func:
            case ast.Name(id="omp" | "acc" as language):
                return placing.of_literal(call, language, text)
        return None

    return met


class Function:
    """A function with nests, of which each is a loop function."""

    def __init__(self, function: Any) -> None:
        self._text = text_of(function)
        self._function = function
        code = function.__code__
        self._cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        known = frozenset((*code.co_varnames, *code.co_cellvars, *code.co_freevars))
        self._scope = NestScope(
            known, frozenset(self._cells), fixed_in(function.__globals__, self._cells), met_in(self._text)
        )
        self.encounters: dict[int, Any] = {}
        for node in self._text.definition.body:
            if isinstance(node, ast.With) and (where := self._scope.met(node.items[0].context_expr)) is not None:
                directive = where.parsed()
                nest = nest_of(loop_in(node, where), directive, where, self._text, self._scope)
                call = DirectiveCall(directive)
                encounter = NestEncounter(nest, call, self._text, function.__globals__, self._cells)
                self.encounters[node.lineno] = SimpleNamespace(nest=nest, call=call, encounter=encounter, tasks=[])

    def __call__(self, *args: Any) -> dict[str, Any]:
        """Carry the body out, and return the variables at its end."""
        names = inspect.signature(self._function).bind(*args).arguments
        outside = {**self._function.__globals__, **{name: cell.cell_contents for name, cell in self._cells.items()}}
        variables: dict[str, Any] = {"<items>": items, **names}
        for node in self._text.definition.body:
            if node.lineno in self.encounters:
                self._meet(self.encounters[node.lineno], outside, variables)
            elif not isinstance(node, ast.Return):
                exec(compile(ast.Module([node], []), self._text.file, "exec"), outside | {}, variables)
        return variables

    def _meet(self, found: Any, outside: dict[str, Any], variables: dict[str, Any]) -> None:
        expression = ast.fix_missing_locations(ast.Expression(found.call.values(Names())))
        values = eval(compile(expression, "<values>", "eval"), outside | variables)
        everything = outside | variables
        given = [everything.get(name, items.UNBOUND) for name in found.nest.parameters]

        def store(*results: Any) -> None:
            pairs = zip(found.nest.results, results, strict=True)
            variables.update({name: value for name, value in pairs if value is not items.UNBOUND})

        task = found.encounter.meet(values, given, store)
        if task is not None:
            found.tasks.append(task)


def source(text: str) -> str:
    """Return a program's text without its indentation."""
    return textwrap.dedent(text)
