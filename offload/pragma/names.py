"""The names that blocks use, and the meaning of each name in a block that becomes a function.

Theory of operation
-------------------
A block that is taken becomes a function, so each of its names needs a decision: is it the enclosing function's
variable, a value that is captured, or the block's own variable? Python has no declarations that say so. `RULES` is the
table of the reference as data; `meaning_of` returns the first row that fits. If the answer of C would lose a value that
a Python reader expects to keep, the row asks instead: it is an error.

`Uses` holds how one piece of code uses names of the function that it belongs to. A nested function, a lambda, a
comprehension or a class body contributes its free names only. `Scanner` makes the uses of a function and of all its
blocks in one walk. Rejected: Python's `symtable`, which needs the text, knows no blocks, and takes another parse.
"""

from __future__ import annotations

import ast
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from offload.pragma.trees import PARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class BindingKind(Enum):
    """How a statement binds a name."""

    PLAIN = auto()  # an assignment, a walrus, ``del``, a capture of ``match``, ``nonlocal`` of a nested function
    AUGMENTED = auto()
    LOOP = auto()  # the variable of a ``for``
    AS = auto()  # ``with … as``, ``except … as``, ``case … as``
    IMPORT = auto()
    DEFINITION = auto()  # ``def`` or ``class``

    __hash__ = object.__hash__  # `Enum` has one in Python


OF_A_BLOCK: Final = frozenset({BindingKind.LOOP, BindingKind.AS, BindingKind.IMPORT, BindingKind.DEFINITION})
"""These bindings make a name the block's own variable."""


class Stored:
    """A place that binds a name."""

    __slots__ = ("binding", "node", "update")

    def __init__(self, binding: BindingKind, node: ast.AST, update: ast.AugAssign | None) -> None:
        self.binding = binding
        self.node = node
        self.update = update  # the statement of an `AUGMENTED` one


class NameUse:
    """The uses of a name in a piece of code."""

    __slots__ = ("is_nested", "loads", "stores")

    def __init__(self) -> None:
        self.loads: list[ast.AST] = []  # the places that read it
        self.stores: list[Stored] = []
        self.is_nested = False  # whether a nested function or class uses it

    @property
    def bindings(self) -> frozenset[BindingKind]:
        """The ways in which the code binds the name."""
        return frozenset([stored.binding for stored in self.stores])

    @property
    def updates(self) -> list[ast.AugAssign]:
        """The statements ``x += …`` that bind the name, if nothing else does; else none."""
        found = [stored.update for stored in self.stores if stored.update is not None]
        return found if len(found) == len(self.stores) else []

    def first(self) -> ast.AST | None:
        """Return the first place that binds the name, or the first that reads it if none does."""
        if self.stores:
            return self.stores[0].node
        return self.loads[0] if self.loads else None


class Uses(dict[str, NameUse]):
    """The names that a piece of code uses, in the order in which they appear."""

    __slots__ = ("declared_global", "declared_nonlocal")

    def __init__(self) -> None:
        super().__init__()
        self.declared_global: set[str] = set()
        self.declared_nonlocal: set[str] = set()

    def __missing__(self, name: str) -> NameUse:
        self[name] = use = NameUse()
        return use

    def load(self, name: str, node: ast.AST) -> None:
        """Note that the code reads a name."""
        self[name].loads.append(node)

    def store(self, name: str, binding: BindingKind, node: ast.AST, update: ast.AugAssign | None = None) -> None:
        """Note that the code binds a name."""
        self[name].stores.append(Stored(binding, node, update))

    @property
    def bound(self) -> set[str]:
        """The names that the code binds and does not declare."""
        declared = self.declared_global | self.declared_nonlocal
        return {name for name, use in self.items() if use.stores and name not in declared}


# -- the walk --------------------------------------------------------------------------------------------


class Scanner:
    """A walk over statements of one function, which notes the uses of names.

    A subclass looks at statements and calls first: `statement` and `call` return whether they have dealt with a node.
    """

    def __init__(self, uses: Uses | None = None) -> None:
        self.uses = Uses() if uses is None else uses

    # -- hooks ---------------------------------------------------------------------------------------
    def statement(self, node: ast.stmt, holder: list[ast.stmt]) -> bool:
        """Deal with a statement of a list, or return False."""
        return False

    # -- statements ----------------------------------------------------------------------------------
    def statements(self, nodes: list[ast.stmt]) -> None:
        """Note the uses of names in statements."""
        for node in nodes:
            if not self.statement(node, nodes):
                self.visit(node)

    def visit(self, node: ast.AST) -> None:
        """Note the uses of names in a node."""
        self._walk([node])

    def children(self, node: ast.AST) -> None:
        """Note the uses of names in the parts of a node."""
        self._walk(list(PARTS[node.__class__](node)))

    def _walk(self, pending: list[Any]) -> None:
        """Note the uses of names in nodes, lists of nodes and None, the last one first."""
        uses, visitors = self.uses, self.visitors
        while pending:
            node = pending.pop()
            kind = node.__class__
            if kind is ast.Name and node.ctx.__class__ is ast.Load:
                uses[node.id].loads.append(node)
            elif kind is ast.Constant or node is None:
                continue
            elif (visitor := visitors.get(kind)) is not None:
                visitor(self, node)
            elif kind is not list:
                pending += PARTS[kind](node)
            elif node and isinstance(node[0], ast.stmt):
                self.statements(node)
            else:
                pending += reversed(node)

    def bind(self, target: ast.AST, binding: BindingKind) -> None:
        """Note the names that a target binds."""
        kind = target.__class__
        if kind is ast.Name:
            self.uses.store(target.id, binding, target)  # type: ignore[attr-defined]  # a name
        elif kind is ast.Tuple or kind is ast.List:
            for part in target.elts:  # type: ignore[attr-defined]  # a tuple or a list
                self.bind(part, binding)
        elif kind is ast.Starred:
            self.bind(target.value, binding)  # type: ignore[attr-defined]  # starred
        else:  # of an attribute or a subscript, the object is read
            self.children(target)

    # -- names ---------------------------------------------------------------------------------------
    def _name(self, node: ast.Name) -> None:
        """Note that the code binds a name; `_walk` notes those that it reads."""
        self.uses.store(node.id, BindingKind.PLAIN, node)

    def _augmented(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        if isinstance(node.target, ast.Name):
            self.uses.store(node.target.id, BindingKind.AUGMENTED, node.target, node)
        else:
            self.children(node.target)

    def _annotated(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
        self.bind(node.target, BindingKind.PLAIN)

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self.bind(node.target, BindingKind.LOOP)
        self.statements(node.body)
        self.statements(node.orelse)

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            self.visit(item.context_expr)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, BindingKind.AS)
        self.statements(node.body)

    def _except(self, node: ast.ExceptHandler) -> None:
        if node.type is not None:
            self.visit(node.type)
        if node.name is not None:
            self.uses.store(node.name, BindingKind.AS, node)
        self.statements(node.body)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            self.uses.store(alias.asname or alias.name.partition(".")[0], BindingKind.IMPORT, node)

    def _capture(self, node: ast.MatchAs | ast.MatchStar | ast.MatchMapping) -> None:
        name = node.rest if isinstance(node, ast.MatchMapping) else node.name
        if name is not None:
            is_as = isinstance(node, ast.MatchAs) and node.pattern is not None
            self.uses.store(name, BindingKind.AS if is_as else BindingKind.PLAIN, node)
        self.children(node)

    def _type_alias(self, node: Any) -> None:
        self.uses.store(node.name.id, BindingKind.PLAIN, node.name)
        self.visit(node.value)

    def _global(self, node: ast.Global) -> None:
        self.uses.declared_global.update(node.names)

    def _nonlocal(self, node: ast.Nonlocal) -> None:
        self.uses.declared_nonlocal.update(node.names)

    # -- nested scopes -------------------------------------------------------------------------------
    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
        self._defaults(node.args)
        for argument in arguments_of(node.args):
            if argument.annotation is not None:
                self.visit(argument.annotation)
        if node.returns is not None:
            self.visit(node.returns)
        self.uses.store(node.name, BindingKind.DEFINITION, node)
        self._take(free_names(node), node)

    def _class(self, node: ast.ClassDef) -> None:
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)
        self.uses.store(node.name, BindingKind.DEFINITION, node)
        inner = Scanner()
        inner.statements(node.body)
        # A name that the class body reads and binds may be either: the class's, or the one outside.
        self._take_from(inner.uses, node, inner.uses.declared_global)
        for name, use in inner.uses.items():
            if name in inner.uses.bound and use.loads:
                self.uses.load(name, node)

    def _lambda(self, node: ast.Lambda) -> None:
        self._defaults(node.args)
        self._take(free_names(node), node)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        self.visit(node.generators[0].iter)  # which Python evaluates in the scope around
        inner = _ComprehensionScanner(self)
        for generator in node.generators:
            inner.bind(generator.target, BindingKind.LOOP)
        for at, generator in enumerate(node.generators):
            if at > 0:
                inner.visit(generator.iter)
            for condition in generator.ifs:
                inner.visit(condition)
        for part in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            inner.visit(part)
        own = inner.uses.bound
        for name, use in inner.uses.items():
            if name not in own and use.loads:
                self.uses.load(name, use.loads[0])

    def _walrus(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self.uses.store(node.target.id, BindingKind.PLAIN, node.target)

    def _defaults(self, arguments: ast.arguments) -> None:
        for default in (*arguments.defaults, *arguments.kw_defaults):
            if default is not None:
                self.visit(default)

    def _take(self, inner: Uses, node: ast.AST) -> None:
        self._take_from(inner, node, set())

    def _take_from(self, inner: Uses, node: ast.AST, hidden: set[str]) -> None:
        """Note the names of a nested scope that are not its own."""
        own = inner.bound | hidden | inner.declared_global
        for name, use in inner.items():
            if name in own:
                continue
            if use.stores:  # by ``nonlocal``
                self.uses.store(name, BindingKind.PLAIN, node)
            if use.loads:
                self.uses.load(name, node)
            self.uses[name].is_nested = True

    visitors: dict[type, Callable[[Any, Any], None]] = {  # noqa: RUF012  # a table, never changed
        ast.Name: _name,
        ast.AugAssign: _augmented,
        ast.AnnAssign: _annotated,
        ast.For: _for,
        ast.AsyncFor: _for,
        ast.With: _with,
        ast.AsyncWith: _with,
        ast.ExceptHandler: _except,
        ast.Import: _import,
        ast.ImportFrom: _import,
        ast.MatchAs: _capture,
        ast.MatchStar: _capture,
        ast.MatchMapping: _capture,
        ast.Global: _global,
        ast.Nonlocal: _nonlocal,
        ast.FunctionDef: _definition,
        ast.AsyncFunctionDef: _definition,
        ast.ClassDef: _class,
        ast.Lambda: _lambda,
        ast.ListComp: _comprehension,
        ast.SetComp: _comprehension,
        ast.DictComp: _comprehension,
        ast.GeneratorExp: _comprehension,
        ast.NamedExpr: _walrus,
        **({ast.TypeAlias: _type_alias} if hasattr(ast, "TypeAlias") else {}),  # since Python 3.12
    }
    """The method for each class of nodes that is not just the sum of its parts."""


class _ComprehensionScanner(Scanner):
    """The walk over a comprehension: a walrus in it binds a name of the function around it."""

    def __init__(self, outer: Scanner) -> None:
        super().__init__()
        self._outer = outer

    def bind_outside(self, node: ast.NamedExpr) -> None:
        """Note a walrus."""
        if isinstance(self._outer, _ComprehensionScanner):
            self._outer.bind_outside(node)
        else:
            self._outer.uses.store(node.target.id, BindingKind.PLAIN, node.target)

    def _walrus(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self.bind_outside(node)

    visitors = {**Scanner.visitors, ast.NamedExpr: _walrus}  # noqa: RUF012  # a table, never changed


def free_names(node: Scope) -> Uses:
    """Return the uses of a nested function or lambda; its parameters are among the names that it binds."""
    inner = Scanner()
    for argument in arguments_of(node.args):
        inner.uses.store(argument.arg, BindingKind.PLAIN, argument)
    if isinstance(node, ast.Lambda):
        inner.visit(node.body)
    else:
        inner.statements(node.body)
    return inner.uses


def arguments_of(arguments: ast.arguments) -> list[ast.arg]:
    """Return all parameters; the first positional one comes first."""
    found = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    found += [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    return found


# -- the table -------------------------------------------------------------------------------------------


class Meaning(Enum):
    """The meaning of a name in a block that is taken."""

    SHARED = auto()  # the enclosing function's variable
    OWN = auto()  # the block's own variable, unbound at first
    COPIED = auto()  # the block's own variable, with a copy of the value at the encounter
    RESULT = auto()  # the block's own variable; the enclosing variable receives its last value
    DEVICE = auto()  # the device array of a data clause
    DECLARED = auto()  # ``global`` or ``nonlocal``
    CAPTURED = auto()  # a parameter with the value at the encounter
    IN_PLACE = auto()  # the same; the object must change in place
    ASKS = auto()  # an error, which asks for a clause
    SAYS_BOTH = auto()  # an error: another block has the name in ``shared``
    UNLISTED = auto()  # an error: ``default(none)``


class NameFacts(NamedTuple):
    """The facts about a name in a block that decide its meaning."""

    bindings: frozenset[BindingKind] = frozenset()
    is_loaded: bool = False  # the block reads it
    clause: str = ""  # "shared", "private", "firstprivate", "result" (map(from: …) and its like), "data", "reduction"
    is_declared: bool = False  # ``global`` or ``nonlocal``
    is_read_elsewhere: bool = False  # the function reads it outside of the block
    is_bound_elsewhere: bool = False  # it has a value before the block, perhaps
    is_shared_elsewhere: bool = False  # another block of the function has it in ``shared``
    default: str = ""  # of the construct, of a construct around it, or of the decorator

    @property
    def is_assigned(self) -> bool:
        """Whether the block binds the name."""
        return bool(self.bindings)


class Rule:
    """A row of the table: a condition and what it means."""

    def __init__(self, text: str, fits: Callable[[NameFacts], bool], meaning: Meaning) -> None:
        self.text = text
        self.fits = fits
        self.meaning = meaning


def _has_default(word: str) -> Callable[[NameFacts], bool]:
    return lambda facts: facts.default == word and not facts.clause and not facts.bindings & OF_A_BLOCK


RULES: Final[tuple[Rule, ...]] = (
    Rule("in shared(x)", lambda facts: facts.clause == "shared", Meaning.SHARED),
    Rule("in private(x)", lambda facts: facts.clause == "private", Meaning.OWN),
    Rule("in firstprivate(x)", lambda facts: facts.clause == "firstprivate", Meaning.COPIED),
    Rule("in reduction(+: x)", lambda facts: facts.clause == "reduction", Meaning.RESULT),
    Rule(
        "in map(from: s), map(tofrom: s), copy(s), copyout(s), and assigned",
        lambda facts: facts.clause == "result" and facts.is_assigned,
        Meaning.RESULT,
    ),
    Rule("in another data clause", lambda facts: facts.clause in ("result", "data"), Meaning.DEVICE),
    Rule("global or nonlocal", lambda facts: facts.is_declared, Meaning.DECLARED),
    Rule(
        "default(shared)",
        lambda facts: facts.default == "shared" and BindingKind.LOOP not in facts.bindings,
        Meaning.SHARED,
    ),
    Rule("default(none)", _has_default("none"), Meaning.UNLISTED),
    Rule("default(private)", _has_default("private"), Meaning.OWN),
    Rule("default(firstprivate)", _has_default("firstprivate"), Meaning.COPIED),
    Rule(
        "only read, and in shared(x) of another block",
        lambda facts: facts.is_shared_elsewhere and not facts.bindings & OF_A_BLOCK,
        Meaning.SAYS_BOTH,
    ),
    Rule("only read", lambda facts: not facts.is_assigned, Meaning.CAPTURED),
    Rule(
        "a loop variable, `as` name, import or def of the block",
        lambda facts: bool(facts.bindings & OF_A_BLOCK),
        Meaning.OWN,
    ),
    Rule(
        "assigned, and read nowhere else in the function",
        lambda facts: not facts.is_read_elsewhere and not (facts.is_bound_elsewhere and facts.is_loaded),
        Meaning.OWN,
    ),
    Rule(
        "assigned, read nowhere else, and its value before the block may be read in it",
        lambda facts: not facts.is_read_elsewhere,
        Meaning.CAPTURED,
    ),
    Rule("changed by `x += …` only", lambda facts: facts.bindings == {BindingKind.AUGMENTED}, Meaning.IN_PLACE),
    Rule("assigned in any other way", lambda _: True, Meaning.ASKS),
)
"""The reference's table: the first row that fits decides."""


@lru_cache(maxsize=512)
def meaning_of(facts: NameFacts) -> Meaning:
    """Return what a name is in a block that is taken, or what to ask."""
    return next(rule.meaning for rule in RULES if rule.fits(facts))


def names_in(expressions: Iterable[ast.expr]) -> Uses:
    """Return the names that expressions use."""
    scanner = Scanner()
    for one in expressions:
        scanner.visit(one)
    return scanner.uses
