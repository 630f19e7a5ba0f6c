"""Nests of loops under directives as loop functions.

Theory of operation
-------------------
A nest becomes a function of `offload.loops`: its parameters are the variables of the enclosing function that an
iteration reads, its body is the ``for``, and its ``return`` has the variables that receive results. All nodes keep
their lines, so the errors of loops name the lines of the program. Names of the module and of closures stay free,
as in every loop function, unless they are arrays.

C decides by declarations which variables an iteration has for itself. Here the flow through an iteration decides
(`names_in`): a scalar that is assigned on each path before it is read is the iteration's own. A scalar that may be read
first is a parameter, so loops recognise scans and refuse other values that pass between iterations.

A few facts are known only when the nest is encountered: whether a reduction variable is a number or an array of one
element, and whether a name that is called is a function or an array type. The function has a form for each (`Case`).
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from offload.pragma.nest_clauses import check_defaults, kind_of, words_of
from offload.pragma.nest_names import called_by_attribute, called_in, indexed_in, names_in, order_of, without_members
from offload.pragma.nest_sections import shifted
from offload.pragma.nest_statements import OFFLOAD, Inside, loop_in
from offload.pragma.syntax import Member
from offload.pragma.trees import mangled
from offload.texts import copied

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from offload.pragma.nest_clauses import NestKind
    from offload.pragma.nest_names import IterationNames
    from offload.pragma.nest_sections import Shift
    from offload.pragma.placing import DirectiveText
    from offload.pragma.syntax import Directive, Item
    from offload.texts import FunctionText

__all__ = ["PLAIN", "Case", "DirectiveNest", "NestScope", "loop_in", "nest_of"]

Scope: TypeAlias = Literal["local", "closure", "module"]


@dataclass(frozen=True, slots=True)
class Case:
    """Facts about the values at an encounter, on which the form of the loop function depends."""

    arrays: frozenset[str] = frozenset()  # results that are arrays, changed in place
    elements: frozenset[str] = frozenset()  # arrays without dimensions that the text uses as numbers
    outside: frozenset[str] = frozenset()  # functions and modules, which are no arguments
    unbound: frozenset[str] = frozenset()  # names without a value
    shifts: tuple[Shift, ...] = ()  # arrays of which a clause names a section


PLAIN: Final = Case()


@dataclass(frozen=True, slots=True)
class NestScope:
    """The names around a nest."""

    known: frozenset[str]  # variables of the enclosing function, those of closures among them
    free: frozenset[str] = frozenset()  # those of closures
    # Whether a name of the module or of a closure has a value that loops know without an argument: a number, a
    # function, a module, an array type.
    is_fixed: Callable[[str], bool] = lambda _: True
    # The directive that a call is, as `rewrite` finds it; None if it is another call.
    met: Callable[[ast.Call], DirectiveText | None] = lambda _: None
    kind: str = ""  # the name of the class in whose body the function stands

    def of(self, name: str, declared: frozenset[str]) -> Scope:
        """Return whose variable a name is; ``declared`` are those in ``global``."""
        if name in self.free:
            return "closure"
        return "local" if name in self.known and name not in declared else "module"


@dataclass(frozen=True, slots=True)
class DirectiveNest:
    """A nest as a loop function."""

    definition: ast.FunctionDef  # in the plain case
    parameters: tuple[str, ...]  # the variables whose values `NestEncounter.meet` takes, in this order
    results: tuple[str, ...]  # the variables of the enclosing function that receive values
    name: str  # of the loop function: ``pipeline.<omp parallel for, line 8>``
    kind: NestKind  # the construct that it stands for
    words: Mapping[str, Any]  # the clauses of the construct that are constants
    arguments: tuple[str, ...]  # those of ``parameters`` that the loop function takes
    indexed: frozenset[str]  # those that the text indexes
    assigned: frozenset[str]  # those that the text assigns
    returned: tuple[str, ...]  # the names under which the loop function has ``results``
    loop: ast.For
    where: DirectiveText
    # The names of data clauses whose items have subscripts.
    sectioned: frozenset[str]
    # The arguments that are members of objects: ``self_x`` stands for ``self.x``.
    members: Mapping[str, tuple[str, ...]]
    may_have_modules: bool  # whether an argument may be a module, of which the text calls functions
    # The function's variables in no clause that each iteration assigns, each with whether an iteration may read it
    # first. The variables keep their values.
    own: Mapping[str, bool]
    # The constructs of functions without variables of enclosing functions, by globals and case: a function that is
    # decorated at each call of another one shares them.
    made: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def form(self, case: Case) -> ast.FunctionDef:
        """Return the definition for a case; it has the given name, and shares no node with other forms."""
        plain = self.definition
        loop = copied(self.loop)
        if case.shifts:
            loop = shifted(loop, case.shifts)
        if case.elements:
            loop = _Elements(case.elements).visit(loop)
        names = [name for name in self.arguments if name not in case.outside | case.unbound]
        names += [name for shift in case.shifts for name in shift.parameters]
        returned = [one for name, one in zip(self.results, self.returned, strict=True) if name not in case.arrays]
        return _function(plain.name, names, returned, loop, (plain.lineno, plain.end_lineno or plain.lineno))

    @property
    def names(self) -> tuple[str, ...]:
        """All names that the text has."""
        return tuple(sorted({node.id for node in ast.walk(self.loop) if isinstance(node, ast.Name)}))


def nest_of(
    statement: ast.For, directive: Directive, where: DirectiveText, text: FunctionText, scope: NestScope
) -> DirectiveNest:
    """Return the nest under a directive as a loop function.

    Parameters
    ----------
    statement : ast.For
        The loop, from `loop_in`. It is not changed.
    directive, where, text
        The parsed directive, where it stands, and the text of the enclosing function.
    scope : NestScope
        The names around the nest.

    Raises
    ------
    PragmaError
        At the directive, or at a token of it or of a directive inside the nest.
    """
    kind, words = kind_of(directive), words_of(directive, where)
    inside = Inside(scope.met, where, directive)
    loop = inside.nest(copied(statement), words)
    declared = _declared(text.definition)
    members = without_members(loop, lambda name: scope.of(name, declared) == "local")
    scope = replace(scope, known=scope.known | members.keys())
    names = names_in(loop, len(inside.associated))
    _take_updates(words, inside, names, kind)
    arguments = _arguments(directive, loop, words, names, scope, declared)
    check_defaults(directive, where, words, names, arguments, declared | scope.free)
    listed = {name for of in words["reduction"].values() for name in of} | names.counted | inside.private
    listed |= {name for word in ("private", "firstprivate", "lastprivate") for name in words[word]}
    own = {name: name in names.exposed for name in sorted(names.stored - listed)}
    results, words = _results(inside, words, names)
    indexed = indexed_in(loop)
    order = [*(name for name in order_of(loop) if name in arguments), *sorted(arguments.difference(order_of(loop)))]
    first = [one for name, one in results.items() if name not in indexed]
    lines = where.line, statement.end_lineno or where.line
    return DirectiveNest(
        definition=_function(text.definition.name, order, first, copied(loop), lines),
        parameters=tuple(dict.fromkeys((*(members.get(name, (name,))[0] for name in order), *results))),
        results=tuple(results),
        name=f"{text.definition.name}.<{directive.language} {directive.name}, line {where.line}>",
        kind=kind,
        words=words,
        arguments=tuple(order),
        indexed=indexed,
        assigned=frozenset(order) & frozenset(names.stored),
        returned=tuple(results.values()),
        loop=loop,
        where=where,
        members={name: mangled(path, scope.kind) for name, path in members.items() if name in arguments},
        may_have_modules=not arguments.isdisjoint(called_by_attribute(loop) - indexed),
        own=own,
        sectioned=frozenset(item.name for item in _mapped(directive) if item.steps and item.name in arguments),
    )


def _results(inside: Inside, words: dict[str, Any], names: IterationNames) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the variables that receive results, each with its name in the nest, and the clauses for the nest."""
    last = {name: _last_name(inside, name, names) for name in words["lastprivate"]}
    mentioned = names.read | names.stored | names.counted
    reduced = [name for of in words["reduction"].values() for name in of]
    results = {name: last.get(name, name) for name in (*reduced, *last) if name in mentioned}
    words["lastprivate"] = [last[name] for name in last if name in mentioned]
    return results, _mentioned_only(words, mentioned | set(last.values()))


def _take_updates(words: dict[str, Any], inside: Inside, names: IterationNames, kind: NestKind) -> None:
    """Take scalars under ``atomic``, and in a kernels loop those that are only updated, as reductions."""
    named = {name for of in words["reduction"].values() for name in of}
    named |= {name for word in ("private", "firstprivate", "lastprivate") for name in words[word]}
    for name, operator in inside.reduced.items():
        if name not in named:
            words["reduction"].setdefault(operator, []).append(name)
            named.add(name)
    if kind == "acc.kernels_loop":
        for name, operator in inside.updated().items():
            if name not in named and name in names.exposed:
                words["reduction"].setdefault(operator, []).append(name)


# Clauses whose list items are parameters of the construct's function, used in it or not.
_MAPPING: Final = frozenset(
    {
        *("map", "is_device_ptr", "has_device_addr", "copy", "copyin", "copyout", "create", "present", "no_create"),
        *("deviceptr", "attach"),
    }
)


def _arguments(
    directive: Directive,
    loop: ast.For,
    words: Mapping[str, Any],
    names: IterationNames,
    scope: NestScope,
    declared: frozenset[str],
) -> frozenset[str]:
    """Return the names whose values the loop function takes."""
    reduced = {name for of in words["reduction"].values() for name in of}
    given = {*words["firstprivate"], *reduced}
    # Clauses name whole variables by parameters, and parts by their values.
    moved = {
        item.name
        for item in _mapped(directive)
        if item.name and not any(isinstance(step, Member) for step in item.steps)
        if item.is_name or item.name in names.read | names.stored
    }
    indexed, called = indexed_in(loop), called_in(loop)
    found = set()
    for name in names.read | names.exposed | (given & names.stored):
        if name == OFFLOAD or (name in names.stored | names.counted and name not in names.exposed | given):
            continue
        is_local = scope.of(name, declared) == "local"
        is_array = name in indexed or not (name in called or scope.is_fixed(name))
        if is_local or name in given or name in names.stored or is_array:
            found.add(name)
    return frozenset(found | moved)


def _mapped(directive: Directive) -> list[Item]:
    """Return the list items of data clauses."""
    return [item for clause in directive.clauses if clause.name in _MAPPING for item in clause.items]


def _declared(definition: ast.AST) -> frozenset[str]:
    """Return the names that a function declares ``global``."""
    return frozenset(name for node in ast.walk(definition) if isinstance(node, ast.Global) for name in node.names)


def _last_name(inside: Inside, name: str, names: IterationNames) -> str:
    """Return the scalar that has the last value of a name; give one to the variable of a loop."""
    if name not in names.counted:
        return name
    last = f"last_{name}"
    while last in names.read | names.stored | names.counted:
        last += "_"
    associated = inside.associated
    for node in ast.walk(associated[0]):
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name) and node.target.id == name:
            statement = ast.Assign([ast.Name(last, ast.Store())], ast.Name(name, ast.Load()))
            block = (associated[-1] if node in associated else node).body
            block.insert(0, ast.fix_missing_locations(ast.copy_location(statement, node)))
            break
    return last


def _mentioned_only(words: Mapping[str, Any], mentioned: set[str] | frozenset[str]) -> dict[str, Any]:
    """Return the clauses without names that the nest does not have, which loops would refuse; none are empty."""
    found = dict(words)
    for word in ("private", "firstprivate", "lastprivate"):
        found[word] = [name for name in words[word] if name in mentioned]
    reduction = {of: [name for name in items if name in mentioned] for of, items in words["reduction"].items()}
    found["reduction"] = {of: items for of, items in reduction.items() if items}
    return {word: value for word, value in found.items() if value or value is False}


def _function(
    name: str, parameters: list[str], returned: list[str], loop: ast.For, lines: tuple[int, int]
) -> ast.FunctionDef:
    """Return a loop function; ``lines`` are its first and its last."""
    body: list[ast.stmt] = [loop]
    if returned:
        values: list[ast.expr] = [ast.Name(one, ast.Load()) for one in returned]
        body.append(ast.copy_location(ast.Return(ast.Tuple(values, ast.Load())), loop))
    definition = ast.FunctionDef(
        name=name,
        args=ast.arguments([], [ast.arg(one) for one in parameters], None, [], [], None, []),
        body=body,
        decorator_list=[],
        lineno=lines[0],
        col_offset=0,
        end_lineno=lines[1],
        end_col_offset=0,
    )
    if "type_params" in ast.FunctionDef._fields:  # from Python 3.12 on
        definition.type_params = []  # type: ignore[attr-defined,unused-ignore]
    return ast.fix_missing_locations(definition)


class _Elements(ast.NodeTransformer):
    """Index the only element of arrays without dimensions, where the text has their names alone."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:  # the name that NodeTransformer calls
        if node.id not in self._names:
            return node
        index = ast.Subscript(ast.Name(node.id, ast.Load()), ast.Tuple([], ast.Load()), node.ctx)
        return ast.fix_missing_locations(ast.copy_location(index, node))

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:  # the same
        if not isinstance(node.value, ast.Name):
            node.value = self.visit(node.value)
        node.slice = self.visit(node.slice)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:  # the same
        if not isinstance(node.value, ast.Name):
            node.value = self.visit(node.value)
        return node
