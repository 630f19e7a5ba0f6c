"""The directives in a function: where they stand, the blocks that they apply to, and the names that each block uses.

One walk over the definition finds everything (`BlockScanner`). A *region* is code that is one function in the end: the
function itself, or a block that is taken. Each `Found` directive stands in a region; one that is taken has a region of
its own inside. The walk checks what it can see on the way: a block where a statement is needed, control that leaves a
block, two directives on one ``with``. It goes on after an error, so that the first one in reading order is raised.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final

from offload.errors import PragmaError
from offload.pragma import placing, trees
from offload.pragma.names import BindingKind, Scanner, Uses, arguments_of
from offload.pragma.placing import at_node
from offload.pragma.tables import Form, row_of
from offload.pragma.waits import may_wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.pragma.placing import DirectiveText
    from offload.pragma.syntax import Clause, Directive, Item
    from offload.texts import FunctionText

TEAMS: Final = frozenset({"parallel", "parallel masked", "parallel sections"})
"""The constructs whose ``default``, ``shared`` and ``private`` concern the blocks inside."""


class CodeRegion:
    """Code that is one function in the end, and its names."""

    __slots__ = ("block", "outer", "uses")

    def __init__(self, outer: CodeRegion | None, block: Found | None) -> None:
        self.outer = outer  # the region around it
        self.block = block  # the directive whose block it is; None for the function itself
        self.uses = Uses()

    def is_in(self, other: CodeRegion) -> bool:
        """Tell whether the region is another one, or inside of it."""
        region: CodeRegion | None = self
        while region is not None:
            if region is other:
                return True
            region = region.outer
        return False


class Found:
    """A directive in a function."""

    def __init__(self, where: DirectiveText, directive: Directive, node: Any, holder: list[ast.stmt]) -> None:
        self.where = where
        self.directive = directive
        self.row = row_of(directive)
        self.form = self.row.form
        self.node = node  # the ``with``, or the expression statement
        self.holder = holder  # the list of statements that has it
        self.region: CodeRegion  # in which it stands
        self.around: Found | None = None  # the directive whose block it is in
        self.bound: frozenset[str] = frozenset()  # names that surely have a value there
        self.inner: CodeRegion | None = None  # the region of a block that is taken
        self.own_uses: Uses | None = None  # the names of a block that stays, under ``default(none)``
        self.is_team = False  # a ``parallel`` or ``single`` that is taken, since it has private variables
        self.reads, self.binds = _names_in_string(directive)  # where it stands

    def rebinds(self, name: str) -> bool:
        """Tell whether a block that stays around this one, in the same function, gives a name a device array."""
        around = self.around
        while around is not None and around.inner is None:
            if name in around.names_of("use_device_ptr", "use_device_addr", "use_device"):
                return True
            around = around.around
        return False

    def names_of(self, *clauses: str) -> list[str]:
        """Return the bare names and roots of the items in some clauses, in the order of the string."""
        return [item.name for clause in self.clauses(*clauses) for item in clause.items if item.name]

    def clauses(self, *names: str) -> list[Clause]:
        """Return the clauses with one of these names."""
        return [clause for clause in self.directive.clauses if clause.name in names]

    def kind_of(self, clause: str) -> str:
        """Return the word in a clause such as ``default``; empty if there is no such clause."""
        found = self.directive.clause(clause)
        return found.kind if found is not None else ""

    @property
    def statement(self) -> ast.stmt:
        """The statement as it stands in its list."""
        return self.node  # type: ignore[no-any-return]  # it is one

    def defaults_from(self, outermost: str) -> str:
        """Return the default for names in no clause: of the construct, of a ``parallel`` around it, or another."""
        found: Found | None = self
        while found is not None:
            if (found is self or found.row.name in TEAMS) and (kind := found.kind_of("default")):
                return kind
            found = found.around
        return outermost


class FoundDirectives:
    """The result of the walk over a function.

    Parameters
    ----------
    met : callable
        Returns the directive that a call is; None for another call.
    """

    def __init__(
        self,
        text: FunctionText,
        definition: Any,
        region: CodeRegion,
        met: Callable[[ast.Call], DirectiveText | None],
    ) -> None:
        self.text = text
        self.definition = definition
        self.region = region
        self.met = met
        self.directives: list[Found] = []  # in the order of the text
        self.n_decorators = 0  # directive comments above nested functions
        self.regions = [region]
        self.errors: list[tuple[tuple[int, int], PragmaError]] = []
        self.doubts: list[tuple[int, str]] = []  # what is allowed and probably a mistake: the line, and a message

    def refuse(self, error: PragmaError, node: Any) -> None:
        """Note an error at a node; `check` raises the first in reading order."""
        self.errors.append(((node.lineno, node.col_offset), error))

    def check(self) -> None:
        """Raise the first error in reading order."""
        if self.errors:
            _, error = min(self.errors, key=lambda one: one[0])
            raise error.with_traceback(None) from None


_LEAVING: Final[dict[type[ast.AST], str]] = {
    ast.Return: "`return` leaves",
    ast.Yield: "`yield` leaves",
    ast.YieldFrom: "`yield from` leaves",
    ast.Await: "`await` leaves",
    ast.AsyncFor: "`async for` leaves",
    ast.AsyncWith: "`async with` leaves",
}

_SUSPENDING: Final = frozenset({ast.Await, ast.AsyncFor, ast.AsyncWith})

_SECTIONS: Final = frozenset({"sections", "parallel sections"})

_LEAVING_LOOPS: Final[dict[type[ast.AST], str]] = {ast.Break: "`break` leaves", ast.Continue: "`continue` leaves"}


class BlockScanner(Scanner):
    """The walk over a function that finds its directives.

    Parameters
    ----------
    spelling_of : callable
        Returns the spelling (`omp`, `acc` …) that an expression is when the function is decorated, or None.
    """

    def __init__(self, text: FunctionText, definition: Any, spelling_of: Callable[[ast.expr], Any]) -> None:
        region = CodeRegion(None, None)
        super().__init__(region.uses)
        self.found = FoundDirectives(text, definition, region, self._met)
        self._spelling_of = spelling_of
        self._region = region
        self._around: Found | None = None
        self._bound: set[str] = set()
        self._imported: dict[str, int] = {}  # names from `offload.pragma` that the function imports, and the lines
        self._n_loops = 0  # loops inside of the innermost block that is taken

    def scan(self) -> FoundDirectives:
        """Walk over the definition."""
        definition = self.found.definition
        for argument in arguments_of(definition.args):
            self.uses.store(argument.arg, BindingKind.PLAIN, argument)
            self._bound.add(argument.arg)
        self.statements(definition.body)
        return self.found

    # -- statements ----------------------------------------------------------------------------------
    def statement(self, node: ast.stmt, holder: list[ast.stmt]) -> bool:
        kind = node.__class__
        if kind is ast.With or kind is ast.AsyncWith:
            calls = [self._directive_in(item.context_expr) for item in node.items]  # type: ignore[attr-defined]  # `with`
            if calls.count(None) != len(calls):
                self._block(node, holder, calls)
                return True
        elif isinstance(node, ast.Expr):
            value = node.value.value if isinstance(node.value, ast.Await) else node.value
            spelling = self._directive_in(value)
            if spelling is not None:
                self._alone(node, value, holder, spelling)
                return True
        elif kind is ast.AnnAssign and self._region.block is not None:
            self._drop_annotation(node, holder)
        return False

    def _drop_annotation(self, node: Any, holder: list[ast.stmt]) -> None:
        """Make a plain assignment of one to a name: Python allows no annotation for a variable of another function."""
        if isinstance(node.target, ast.Name):
            plain = trees.declaring([node.target.id]) if node.value is None else ast.Assign([node.target], node.value)
            at = next(at for at, one in enumerate(holder) if one is node)
            holder[at] = trees.located(plain, node, [node.target, node.value])

    def statements(self, nodes: list[ast.stmt]) -> None:
        outer = self._bound
        self._bound = set(outer)
        for node in nodes:
            if not self.statement(node, nodes):
                self.visit(node)
                self._bound.update(_surely_bound(node))
        self._bound = outer

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self.bind(node.target, BindingKind.LOOP)
        outer = self._bound
        self._bound = outer | set(_targets(node.target))
        self._n_loops += 1
        self.statements(node.body)
        self._n_loops -= 1
        self._bound = outer
        self.statements(node.orelse)

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Note a nested function; comments above it call `omp` itself, for which no name need stand."""
        written = node.decorator_list
        node.decorator_list = [one for one in written if not hasattr(one, "directive_text")]
        super()._definition(node)
        node.decorator_list = written
        for one in written:
            where: DirectiveText | None = getattr(one, "directive_text", None)
            if where is not None and isinstance(one, ast.Call):
                self.found.n_decorators += 1
                one.func = trees.located(trees.member(trees.name(trees.RUNTIME), "over_a_function"), one)
                one.args = [trees.located(ast.Constant(text), one) for text in (where.language, where.text)]

    def _while(self, node: ast.While) -> None:
        self.visit(node.test)
        self._n_loops += 1
        self.statements(node.body)
        self._n_loops -= 1
        self.statements(node.orelse)

    def _leaving(self, node: Any) -> None:
        """Note an error if a node takes control out of the block that is taken, and look at its parts."""
        block: Any = self._region.block
        what = _LEAVING.get(node.__class__, "")
        if not what and self._n_loops == 0:
            what = _LEAVING_LOOPS.get(node.__class__, "")
        if block is not None and what:
            self._refuse(
                at_node(
                    node,
                    f"{what} the block of {block.directive.name}, which becomes a function; move it out of the block",
                    self.found.text,
                ),
                node,
            )
        if node.__class__ in _SUSPENDING:
            self._check_lock(node, what.removesuffix(" leaves"))
        if isinstance(node, ast.AsyncFor):
            self._for(node)
        elif isinstance(node, ast.AsyncWith):
            self._with(node)
        else:
            self.children(node)

    def _comprehension(self, node: Any) -> None:
        """Note an error if a comprehension under a lock awaits, and the names of its parts."""
        for part in ast.walk(node) if self._lock_here(self._around) is not None else ():
            if isinstance(part, ast.Await) or (isinstance(part, ast.comprehension) and part.is_async):
                self._check_lock(node, "`await`" if isinstance(part, ast.Await) else "`async for`")
                break
        super()._comprehension(node)

    def _check_lock(self, node: Any, what: str) -> None:
        """Note an error if the coroutine lets others run while it holds a lock."""
        lock = self._lock_here(self._around)
        if lock is not None and self._region.block is None:
            message = (
                f"{what} waits, and is inside of {lock.directive.name}: other tasks could run there and need the lock; "
                "move it out of the block"
            )
            self._refuse(at_node(node, message, self.found.text), node)

    # -- directives ----------------------------------------------------------------------------------
    def _directive_in(self, node: Any) -> Any:
        """Return the spelling of a call that is a directive; None for anything else."""
        if node.__class__ is not ast.Call:
            return None
        known = getattr(node, "directive_text", None)  # `comments` sets it
        if self._imported and known is None:
            self._refuse_import(node)
        return self._spelling_of(node.func) if known is None else known

    def _import_from(self, node: ast.ImportFrom) -> None:
        self._import(node)
        if node.module is not None and node.module.startswith("offload.pragma"):
            found = [alias for alias in node.names if alias.name in ("omp", "acc", "openmp_context")]
            self._imported |= {alias.asname or alias.name: node.lineno for alias in found}

    def _refuse_import(self, node: Any) -> None:
        """Note an error for a directive whose object the function itself imports."""
        name = getattr(node.func, "id", "")
        line = self._imported.get(name)
        if line is not None and len(node.args) == 1 and isinstance(getattr(node.args[0], "value", None), str):
            message = (
                f"{name} is imported in line {line}, inside of the function, so it is not known when the function "
                "is decorated; import it outside of the function"
            )
            self._refuse(at_node(node, message, self.found.text), node)

    def _met(self, call: ast.Call) -> DirectiveText | None:
        """Return the directive that a call is; None for another call."""
        spelling = self._directive_in(call)
        if spelling is None:
            return None
        known: DirectiveText | None = getattr(call, "directive_text", None)
        return known if known is not None else placing.of_literal(call, spelling.language, self.found.text)

    def _read(self, call: Any, spelling: Any, node: Any, holder: list[ast.stmt]) -> Found | None:
        """Return the directive of a call, parsed; None after an error."""
        try:
            known = getattr(call, "directive_text", None)
            where = known if known is not None else placing.of_literal(call, spelling.language, self.found.text)
            directive = where.parsed()
        except PragmaError as error:
            self._refuse(error, call)
            return None
        found = Found(where, directive if known is not None else spelling.read(directive), node, holder)
        found.region, found.around, found.bound = self._region, self._around, frozenset(self._bound)
        return found

    def _alone(self, node: ast.Expr, call: Any, holder: list[ast.stmt], spelling: Any) -> None:
        found = self._read(call, spelling, node, holder)
        if found is None:
            return
        if found.form is not Form.ALONE:
            what = "one `for` loop" if found.form in (Form.LOOP, Form.NEST) else "a block"
            if found.form is Form.INNER:
                self._refuse(self._stray(found), call)
                return
            self._refuse(
                found.where.refusal(
                    f"{found.directive.name} needs {what}; write `with {found.directive.language}(…):` around it"
                ),
                call,
            )
            return
        self._note(found)

    def _stray(self, found: Found) -> PragmaError:
        return found.where.refusal(
            f"{found.directive.language} {found.directive.name} is allowed only inside of a nest of loops under a loop "
            "directive"
        )

    def _block(self, node: Any, holder: list[ast.stmt], calls: list[Any]) -> None:
        at = next(at for at, spelling in enumerate(calls) if spelling is not None)
        item = node.items[at]
        found = self._read(item.context_expr, calls[at], node, holder)
        if found is not None:
            error = self._wrong_item(node, found, item, at)
            if error is not None:
                self._refuse(*error)
                found = None
        if found is None:
            self.statements(node.body)  # for the names, and for errors below
            return
        self._note(found)
        if found.form in (Form.NEST, Form.LOOP):
            self._loop(found, node)
        elif found.form is Form.INNER:
            self._refuse(self._stray(found), item.context_expr)
        elif found.form is Form.STAYS or found.form is Form.ALONE:
            if found.form is Form.STAYS and is_taken_team(found):
                found.is_team = True
                self._inside(found, node.body)
                return
            outer, self._around = self._around, found
            if found.row.name in TEAMS and found.kind_of("default") == "none":
                self._listed(found, node.body)
            else:
                self.statements(node.body)
            self._around = outer
        else:
            self._inside(found, node.body)

    def _wrong_item(self, node: Any, found: Found, item: ast.withitem, at: int) -> tuple[PragmaError, Any] | None:
        """Return the error of a ``with`` that has more than one directive, with the node where it is."""
        text = self.found.text
        if item.optional_vars is not None:
            message = f"{found.directive.name} gives no value to bind; remove `as …`"
            return at_node(item.optional_vars, message, text), item.optional_vars
        if len(node.items) > 1:
            other = node.items[1 if at == 0 else at].context_expr
            return (
                at_node(other, "a directive needs a `with` of its own; write the other item in a second `with`", text),
                other,
            )
        if isinstance(node, ast.AsyncWith) and found.form not in (Form.STAYS, Form.ALONE):
            message = f"{found.directive.name} takes its block as a function; write `with` without `async`"
            return at_node(node, message, text), node
        return None

    def _inside(self, found: Found, body: list[ast.stmt], *targets: ast.expr) -> None:
        """Walk over the body of a block that is taken."""
        outer = self._region, self.uses, self._around, self._bound, self._n_loops
        found.inner = region = CodeRegion(self._region, found)
        self.found.regions.append(region)
        self._region, self.uses, self._around, self._bound, self._n_loops = region, region.uses, found, set(), 0
        for target in targets:
            self.bind(target, BindingKind.LOOP)
            self._n_loops = 1  # `continue` stays in the loop
            self._refuse_break(found, body)
        self.statements(body)
        self._region, self.uses, self._around, self._bound, self._n_loops = outer

    def _listed(self, found: Found, body: list[ast.stmt]) -> None:
        """Walk over a block that stays, and note its names: ``default(none)`` wants each in a clause."""
        outer, self.uses = self.uses, Uses()
        self.statements(body)
        found.own_uses, self.uses = self.uses, outer
        for name, use in found.own_uses.items():
            outer[name].loads += use.loads
            outer[name].stores += use.stores
            outer[name].is_nested = outer[name].is_nested or use.is_nested
        outer.declared_global |= found.own_uses.declared_global
        outer.declared_nonlocal |= found.own_uses.declared_nonlocal

    def _refuse_break(self, found: Found, body: list[ast.stmt]) -> None:
        node = _break_in(body)
        if node is not None:
            message = f"`break` leaves the loop of {found.directive.name}, whose iterations are in several tasks"
            self._refuse(at_node(node, message, self.found.text), node)

    def _loop(self, found: Found, node: Any) -> None:
        """Walk over the loop of a directive that needs exactly one."""
        loop = node.body[0] if len(node.body) == 1 else None
        if found.form is Form.NEST:
            found.inner = region = CodeRegion(self._region, found)
            self.found.regions.append(region)
            scanner = _PlainScanner(region.uses)
            scanner.statements(node.body)
            return
        if not isinstance(loop, ast.For) or loop.orelse:
            self._refuse(
                found.where.refusal(f"{found.directive.name}: exactly one `for` without `else` is needed here"),
                node.items[0].context_expr,
            )
            return
        self.visit(loop.iter)
        self._inside(found, loop.body, loop.target)

    def _note(self, found: Found) -> None:
        """Note a directive, and the names that its string has."""
        if found.form is Form.SECTION and (found.around is None or found.around.row.name not in _SECTIONS):
            self._refuse(
                found.where.refusal("section stands only directly in the block of a sections directive"), found.node
            )
        lock = self._lock_around(found)
        if lock is not None:
            self._refuse(
                found.where.refusal(
                    f"{found.directive.name} waits, and is inside of {lock.directive.name}: other tasks could run "
                    "there and need the lock; move it out of the block"
                ),
                found.node,
            )
        self.found.directives.append(found)
        for name in found.reads:
            self.uses.load(name, found.node)
        for name in found.binds:
            self.uses.store(name, BindingKind.PLAIN, found.node)

    def _lock_around(self, found: Found) -> Found | None:
        """Return the block around a directive that may wait whose lock it would hold; None if there is none."""
        return self._lock_here(found.around) if may_wait(found.directive) else None

    def _lock_here(self, around: Found | None) -> Found | None:
        """Return the innermost of some blocks whose lock the thread holds; None if there is none."""
        while around is not None and (around.inner is None or around.is_team):
            if around.row.name in ("critical", "atomic") and around.directive.language == "omp":
                return around
            around = around.around
        return None

    def _refuse(self, error: PragmaError, node: Any) -> None:
        self.found.refuse(error, node)

    visitors = {  # noqa: RUF012  # a table, never changed
        **Scanner.visitors,
        ast.For: _for,
        ast.ImportFrom: _import_from,
        ast.While: _while,
        **dict.fromkeys((ast.ListComp, ast.SetComp, ast.DictComp), _comprehension),
        ast.FunctionDef: _definition,
        ast.AsyncFunctionDef: _definition,
        **dict.fromkeys((*_LEAVING, *_LEAVING_LOOPS), _leaving),
    }


class _PlainScanner(Scanner):
    """The walk over a nest, whose directives are read elsewhere: their strings bind nothing."""


def is_taken_team(found: Found) -> bool:
    """Tell whether a construct that stays has variables of its own, so that its block becomes a function."""
    return found.row.name in ("parallel", "parallel masked", "parallel sections", "single") and (
        bool(found.clauses("private", "firstprivate")) or found.kind_of("default") in ("private", "firstprivate")
    )


def names_in_string(found: Found) -> tuple[list[str], list[str]]:
    """Return the names that a directive's string reads, and those that it binds, where the directive stands."""
    return found.reads, found.binds


def _names_in_string(directive: Directive) -> tuple[list[str], list[str]]:
    reads: list[str] = []
    binds: list[str] = []
    for item in directive.arguments:
        if directive.name == "critical":
            continue  # the name of a lock
        if directive.name == "depobj" and directive.clause("depend") is not None:
            binds.append(item.name)
        else:
            reads += _names_of_item(item)
    for clause in directive.clauses:
        hidden = {iterator.name for iterator in clause.iterators}
        names: list[str] = []
        for item in clause.items:
            names += _names_of_item(item)
        for iterator in clause.iterators:
            names += _names_of(iterator.begin.node) + _names_of(iterator.end.node)
            if iterator.step is not None:
                names += _names_of(iterator.step.node)
        for expression in clause.expressions:
            names += _names_of(expression.node)
        for modifier in clause.modifiers:
            if modifier.argument is not None and modifier.name != "mapper":
                names += _names_of(modifier.argument.node)
        if clause.name == "private":
            continue
        if clause.name == "detach" and directive.language == "omp":
            binds += names
        if clause.name == "init" and directive.name == "interop":
            binds += names
            continue
        reads += [name for name in names if name not in hidden and name != "omp_all_memory"]
    return list(dict.fromkeys(reads)), list(dict.fromkeys(binds))


def _names_of_item(item: Item) -> list[str]:
    names = _names_of(item.root.node)
    for step in item.steps:
        for entry in getattr(step, "dimensions", ()):
            parts = (entry,) if hasattr(entry, "node") else (entry.lower, entry.length, entry.stride)
            for part in parts:
                if part is not None:
                    names += _names_of(part.node)
    return names


def _names_of(node: Any) -> list[str]:
    if node.__class__ is ast.Name:
        return [node.id]
    if node.__class__ is ast.Constant:
        return []
    scanner = Scanner()
    scanner.visit(node)
    return [name for name, use in scanner.uses.items() if use.loads]


def _targets(node: ast.AST) -> list[str]:
    """Return the names in a target."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, (ast.Tuple, ast.List)):
        return [name for part in node.elts for name in _targets(part)]
    return _targets(node.value) if isinstance(node, ast.Starred) else []


def _surely_bound(node: ast.stmt) -> list[str]:
    """Return names that have a value after a simple statement."""
    match node:
        case ast.Assign():
            return [name for target in node.targets for name in _targets(target)]
        case ast.AugAssign():
            return _targets(node.target)
        case ast.AnnAssign():
            return _targets(node.target) if node.value is not None else []
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.Import() | ast.ImportFrom():
            return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
        case _:
            return []


def _break_in(body: list[ast.stmt]) -> ast.Break | None:
    """Return the first ``break`` that leaves the loop which these statements are the body of."""
    for node in body:
        if isinstance(node, ast.Break):
            return node
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            parts: list[list[Any]] = [node.orelse]
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        else:
            parts = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
            parts += [handler.body for handler in getattr(node, "handlers", [])]
            parts += [case.body for case in getattr(node, "cases", [])]
        for part in parts:
            found = _break_in(part)
            if found is not None:
                return found
    return None
