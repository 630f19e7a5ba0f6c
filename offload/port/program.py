"""The tree of a CuPy program: its scopes, the modules that its names stand for, and the names that hold streams.

Theory of operation
-------------------
`ProgramText` reads a file once. It knows for each node its scope and its parent, and for each name of a scope all
values that the program binds to it. Two questions are answered from that, for any expression, without running it:

* `ProgramText.dotted`: which object of a module it names. ``cp.cuda.Stream`` is ``cupy.cuda.Stream``, whatever the
  program calls the module, and also if it bound ``cuda = cp.cuda`` before.
* `ProgramText.kind`: whether it holds streams, events, devices or memory pools (`SYNC`). These have no place in a task
  form, so the statements that only handle them disappear. A container of nothing else is `SYNC` too. A tuple of a
  stream and a buffer is a `TupleOf`, whose elements a task form can take apart. A value that mixes them in another way
  is `MIXED`, and a program that has one is refused.

The kind of a variable is the join of the kinds of all its bindings, so it does not depend on the flow of control. The
kind of a parameter is the join over the calls in the file.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Kind: TypeAlias = "str | TupleOf | SeqOf"

Found = TypeVar("Found")

OTHER: Final = "other"
NONE: Final = "none"  # None, and containers without elements: compatible with every kind
SYNC: Final = "sync"
MIXED: Final = "mixed"
_UNDECIDED: Kind = NONE
"""The kind of a value that depends on itself, as long as nothing else decides."""

_ENCODING: Final = re.compile(r"\A((?:[^\S\n]*(?:#[^\n]*)?\n)?[^\S\n]*#.*?coding[:=][^\S\n]*)[-_.a-zA-Z0-9]+")
"""The line about the encoding, as PEP 263 has it: a comment in the first or second line."""

FunctionNode: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"
FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_LOOPS: Final = (ast.For, ast.While, ast.AsyncFor)
_SCOPES: Final = (ast.Module, *FUNCTIONS, ast.ClassDef, ast.Lambda, *_COMPREHENSIONS)

STREAM_CLASSES: Final = frozenset({"cupy.cuda.Stream", "cupy.cuda.stream.Stream", "cupy.cuda.ExternalStream"})
EVENT_CLASSES: Final = frozenset({"cupy.cuda.Event", "cupy.cuda.stream.Event"})
DEVICE_CLASSES: Final = frozenset({"cupy.cuda.Device", "cupy.cuda.device.Device"})
_CURRENT: Final = frozenset({"cupy.cuda.get_current_stream", "cupy.cuda.stream.get_current_stream"})
_POOLS: Final = frozenset(
    {"cupy.get_default_memory_pool", "cupy.get_default_pinned_memory_pool", "cupy.cuda.MemoryPool"}
    | {"cupy.cuda.PinnedMemoryPool", "cupy.cuda.MemoryAsyncPool"}
)
MAKES_SYNC: Final = STREAM_CLASSES | EVENT_CLASSES | DEVICE_CLASSES | _CURRENT | _POOLS
SYNC_CONSTANTS: Final = frozenset({f"{name}.{end}" for name in STREAM_CLASSES for end in ("null", "ptds")})

_KEEPS_ELEMENTS: Final = frozenset({"list", "tuple", "set", "iter", "reversed", "sorted", "deque", "collections.deque"})
_KEEPS: Final = _KEEPS_ELEMENTS | {"itertools.cycle", "cycle"}
_TAKES_OUT: Final = frozenset({"pop", "popleft", "get", "copy", "values", "record"})
_PUTS_IN: Final = frozenset({"append", "appendleft", "extend", "insert", "add"})


@dataclass(frozen=True, slots=True)
class TupleOf:
    """The kind of a tuple or list with elements of these kinds."""

    parts: tuple[Kind, ...]


@dataclass(frozen=True, slots=True)
class SeqOf:
    """The kind of an iterable of elements of one kind."""

    part: Kind


@dataclass(frozen=True, slots=True)
class NameBinding:
    """A value that the program binds to a name: an expression, and the way from its value to the name's.

    A step of the way is the index of an unpacked element, or -1 for an element of an iteration.
    """

    value: ast.expr | None
    way: tuple[int, ...] = ()
    parameter: tuple[FunctionNode, str] | None = None
    definition: ast.stmt | None = None  # a `def` or `class`
    module: str | None = None  # an import
    puts: bool = False  # the value becomes an element of the container that the name holds


@dataclass(slots=True)
class ProgramScope:
    """The names of a module, a function, a class or a comprehension."""

    node: ast.AST
    parent: ProgramScope | None
    bound: dict[str, list[NameBinding]] = field(default_factory=dict)
    outer: dict[str, str] = field(default_factory=dict)  # names declared `global` or `nonlocal`

    @property
    def is_function(self) -> bool:
        """Whether names of the scope live for one call."""
        return isinstance(self.node, FUNCTIONS)

    @property
    def is_module(self) -> bool:
        """Whether it is the module's."""
        return isinstance(self.node, ast.Module)

    def home_of(self, name: str) -> ProgramScope | None:
        """Return the scope whose variable a name means here; None for a builtin."""
        scope: ProgramScope | None = self
        if self.outer.get(name) == "global":
            while scope is not None and not scope.is_module:
                scope = scope.parent
            return scope
        is_first = True
        while scope is not None:
            is_seen = is_first or not isinstance(scope.node, ast.ClassDef)
            if is_seen and name in scope.bound and name not in scope.outer:
                return scope
            scope, is_first = scope.parent, False
        return None


class ProgramText:
    """A program's text and tree.

    Parameters
    ----------
    path : str
        The file, for messages.
    text : str
        Its text.

    Raises
    ------
    SyntaxError
        The text is not Python.
    """

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.lines = text.split("\n")
        self._starts = [0, *accumulate(len(line) + 1 for line in self.lines)]
        self.tree = ast.parse(text, path)
        self.parents: dict[ast.AST, ast.AST] = {}
        self.scopes: dict[ast.AST, ProgramScope] = {}  # of each node, the scope that it is evaluated in
        self.inner: dict[ast.AST, ProgramScope] = {}  # of each module, function, …: the scope that it opens
        self.attributes: dict[str, list[NameBinding]] = {}  # by names of attributes, the values that are stored there
        self.calls: dict[FunctionNode, list[ast.Call]] = {}
        self._calls_of_names: list[ast.Call] = []
        self._kinds: dict[ast.AST, Kind] = {}
        self._busy: set[object] = set()
        self._methods: dict[str, list[FunctionNode]] = {}
        self.returned: dict[ast.AST, list[ast.expr]] = {}
        self._stores: dict[tuple[int, str], list[ast.AST]] = {}  # by scope and name, where a variable is bound
        _Binder(self).bind()
        self._find_calls()

    # -- the text ----------------------------------------------------------------------------------
    def segment(self, node: ast.AST) -> str:
        """Return the source text of a node."""
        if not hasattr(node, "lineno"):
            return ast.unparse(node)
        start, stop = self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        return self.text[start:stop]

    def offset(self, line: int, column: int) -> int:
        """Return the place of a line and a column, in bytes of UTF-8, in characters of the text."""
        return self._starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

    def statement(self, node: ast.AST) -> ast.stmt:
        """Return the innermost statement that a node belongs to."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def is_elif(self, node: ast.stmt) -> bool:
        """Tell whether a statement is the ``elif`` of another one."""
        return isinstance(node, ast.If) and self.segment(node).startswith("elif")

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes around a node, innermost first."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def function_of(self, node: ast.AST) -> ast.AST:
        """Return the function that a node is in, or the module."""
        scope = self.scopes[node]
        while not (scope.is_function or scope.is_module or isinstance(scope.node, ast.Lambda)):
            assert scope.parent is not None
            scope = scope.parent
        return scope.node

    # -- modules -----------------------------------------------------------------------------------
    def dotted(self, node: ast.AST | None) -> str | None:
        """Return the full name of the object of a module that an expression names; None if it names none."""
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return None if base is None else f"{base}.{node.attr}"
        if not isinstance(node, ast.Name):
            return None
        home = self.scopes[node].home_of(node.id)
        if home is None:
            return f"builtins.{node.id}"
        bound = home.bound[node.id]
        if bound[0].module is not None:
            return bound[0].module
        value = bound[0].value
        if len(bound) > 1 or bound[0].way or bound[0].puts or not isinstance(value, (ast.Attribute, ast.Name)):
            return None
        found = self._once(("dotted", value), partial(self.dotted, value), None)
        return found if found is not None and found.startswith(("cupy", "numpy")) else None

    def changes(self, scope: ProgramScope, name: str) -> bool:
        """Tell whether a variable is bound more than once, or in a loop."""
        if not self._stores:
            for node in self.parents:
                if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                    home = self.scopes[node].home_of(node.id)
                    self._stores.setdefault((id(home), node.id), []).append(node)
        stores = self._stores.get((id(scope), name), [])
        return len(stores) > 1 or any(isinstance(one, _LOOPS) for node in stores for one in self.ancestors(node))

    # -- kinds -------------------------------------------------------------------------------------
    def kind(self, node: ast.expr | None) -> Kind:
        """Return whether an expression holds streams and events."""
        if node is None:
            return NONE
        known = self._kinds.get(node)
        if known is not None:
            return known
        found = self._once(node, partial(self._kind, node), _UNDECIDED)
        if not self._busy:
            self._kinds[node] = found
        return found

    def variable(self, scope: ProgramScope, name: str) -> Kind:
        """Return the kind of a variable of a scope."""
        return self._once((id(scope), name), lambda: join(map(self._bound_kind, scope.bound[name])), _UNDECIDED)

    def attribute(self, name: str) -> Kind:
        """Return the kind of the values that the program stores in attributes of a name."""
        return self._once(("attribute", name), lambda: join(map(self._bound_kind, self.attributes[name])), _UNDECIDED)

    def _once(self, key: object, find: Callable[[], Found], otherwise: Found) -> Found:
        """Return the answer to a question about the program; the other answer, if this one depends on itself."""
        if key in self._busy:
            return otherwise
        self._busy.add(key)
        try:
            return find()
        finally:
            self._busy.discard(key)

    def _bound_kind(self, bound: NameBinding) -> Kind:
        if bound.parameter is not None:
            return self._parameter(*bound.parameter)
        if bound.value is None:
            return OTHER
        kind = self.kind(bound.value)
        for step in bound.way:
            kind = element(kind, step)
        if bound.puts and kind != SYNC:
            return SeqOf(kind) if has_sync(kind) else kind
        return kind

    def _kind(self, node: ast.expr) -> Kind:
        match node:
            case ast.Constant(value=None):
                return NONE
            case ast.Name():
                home = self.scopes[node].home_of(node.id)
                return OTHER if home is None else self.variable(home, node.id)
            case ast.Attribute():
                if self.dotted(node) in SYNC_CONSTANTS:
                    return SYNC
                if self.dotted(node) is not None or node.attr not in self.attributes:
                    return OTHER
                return self.attribute(node.attr)
            case ast.Subscript(slice=ast.Constant(value=int() as index)) if index >= 0:
                return element(self.kind(node.value), index)
            case ast.Subscript(slice=ast.Slice()):
                return self.kind(node.value)
            case ast.Subscript():
                return element(self.kind(node.value), -1)
            case ast.Tuple(elts=elts) | ast.List(elts=elts) | ast.Set(elts=elts):
                return gathered([self.kind(elt) for elt in elts])
            case ast.ListComp(elt=elt) | ast.SetComp(elt=elt) | ast.GeneratorExp(elt=elt):
                return sequence(self.kind(elt))
            case ast.Dict(values=values):
                return whole([self.kind(value) for value in values])
            case ast.DictComp(value=value):
                return whole([self.kind(value)])
            case ast.IfExp(body=one, orelse=other):
                return join((self.kind(one), self.kind(other)))
            case ast.BoolOp(values=values):
                return join(map(self.kind, values))
            case ast.BinOp(left=left, right=right, op=ast.Add()):
                return join((self.kind(left), self.kind(right)))
            case ast.BinOp(left=left, op=ast.Mult()):
                return whole([self.kind(left)])
            case ast.NamedExpr(value=value) | ast.Starred(value=value):
                return self.kind(value)
            case ast.Call():
                return self._call(node)
        return OTHER

    def _call(self, node: ast.Call) -> Kind:
        name = (self.dotted(node.func) or "").removeprefix("builtins.")
        args = [self.kind(arg) for arg in node.args]
        if name in MAKES_SYNC:
            return SYNC
        if name == "zip":
            return sequence(gathered([element(arg, -1) for arg in args], keep=True))
        if name == "enumerate":
            return sequence(gathered([OTHER, *(element(arg, -1) for arg in args[:1])], keep=True))
        if name in _KEEPS and len(args) < 2:
            return args[0] if args else NONE
        if name == "next" and args:
            return element(args[0], -1)
        if name == "dict" and not args:
            return whole([self.kind(keyword.value) for keyword in node.keywords])
        if isinstance(node.func, ast.Attribute):
            of = self.kind(node.func.value)
            if has_sync(of):
                if node.func.attr == "items":
                    return SeqOf(TupleOf((OTHER, SYNC)))
                return element(of, -1) if node.func.attr in _TAKES_OUT else OTHER
        if name in {"dataclasses.field", "field"}:
            factories = [keyword.value for keyword in node.keywords if keyword.arg == "default_factory"]
            return SYNC if factories and self.dotted(factories[0]) in MAKES_SYNC else OTHER
        called = self.called(node)
        if called is None or called.name == "__init__":
            return OTHER
        return join(map(self.kind, self.returned.get(called, ()))) if self.returned.get(called) else OTHER

    def _parameter(self, function: FunctionNode, name: str) -> Kind:
        return self._once((function, name), partial(self._passed_kind, function, name), _UNDECIDED)

    def _passed_kind(self, function: FunctionNode, name: str) -> Kind:
        kinds = [self.kind(arg) for call in self.calls.get(function, ()) for arg in self.passed(call, function, name)]
        default = default_of(function, name)
        return join([*kinds, self.kind(default)]) if kinds or default is not None else OTHER

    # -- functions of the file ---------------------------------------------------------------------
    def called(self, call: ast.Call) -> FunctionNode | None:
        """Return the function of this file that a call calls; a class counts as its ``__init__``."""
        func = call.func
        if isinstance(func, ast.Name):
            home = self.scopes[func].home_of(func.id)
            bound = home.bound[func.id] if home is not None else []
            definition = bound[0].definition if len(bound) == 1 else None
            if isinstance(definition, ast.ClassDef):
                found = [part for part in definition.body if isinstance(part, FUNCTIONS) and part.name == "__init__"]
                return found[0] if found else None
            return definition if isinstance(definition, FUNCTIONS) else None
        if isinstance(func, ast.Attribute) and self.dotted(func) is None:
            methods = self._methods.get(func.attr, [])
            return methods[0] if len(methods) == 1 else None
        return None

    def fields_of(self, call: ast.Call) -> dict[str, ast.expr] | None:
        """Return the arguments by fields, if a call makes an object of a class of this file that only has fields."""
        func = call.func
        home = self.scopes[func].home_of(func.id) if isinstance(func, ast.Name) else None
        bound = home.bound[func.id] if home is not None and isinstance(func, ast.Name) else []
        node = bound[0].definition if len(bound) == 1 else None
        if not isinstance(node, ast.ClassDef) or self.called(call) is not None:
            return None
        decorators = [one.func if isinstance(one, ast.Call) else one for one in node.decorator_list]
        is_data = any(self.dotted(one) == "dataclasses.dataclass" for one in decorators)
        if not is_data and not any(self.dotted(base) == "typing.NamedTuple" for base in node.bases):
            return None
        names = [
            part.target.id
            for part in node.body
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
        ]
        found = dict(zip(names, call.args, strict=False))
        return found | {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}

    def passed(self, call: ast.Call, function: FunctionNode, name: str) -> list[ast.expr]:
        """Return the argument that a call passes for a parameter, or none."""
        arguments = function.args
        names = [arg.arg for arg in (*arguments.posonlyargs, *arguments.args)][self.n_hidden(call, function) :]
        found = [value for given, value in zip(names, call.args, strict=False) if given == name]
        return found + [keyword.value for keyword in call.keywords if keyword.arg == name]

    def n_hidden(self, call: ast.Call, function: FunctionNode) -> int:
        """Return how many parameters a call fills by itself: 1 for ``self``."""
        is_method = isinstance(self.parents[function], ast.ClassDef)
        is_static = any(self.dotted(one) == "builtins.staticmethod" for one in function.decorator_list)
        return int(is_method and not is_static)

    def _find_calls(self) -> None:
        for node, parent in self.parents.items():
            if isinstance(node, FUNCTIONS) and isinstance(parent, ast.ClassDef):
                self._methods.setdefault(node.name, []).append(node)
        for call in self._calls_of_names:
            for name, value in (self.fields_of(call) or {}).items():
                self.attributes.setdefault(name, []).append(NameBinding(value))
            called = self.called(call)
            if called is not None:
                self.calls.setdefault(called, []).append(call)

    def note_call(self, call: ast.Call) -> None:
        """Note a call, for `calls`."""
        self._calls_of_names.append(call)


# -- kinds ---------------------------------------------------------------------------------------------


def has_sync(kind: Kind) -> bool:
    """Tell whether a value of a kind is, or contains, a stream or an event."""
    if isinstance(kind, TupleOf):
        return any(map(has_sync, kind.parts))
    if isinstance(kind, SeqOf):
        return has_sync(kind.part)
    return kind in (SYNC, MIXED)


def join(kinds: Iterable[Kind]) -> Kind:
    """Return the kind of a value that is of one of these kinds."""
    found: Kind = NONE
    for kind in kinds:
        if found in {NONE, kind}:
            found = kind
        elif kind == NONE:
            continue
        elif isinstance(kind, TupleOf) and isinstance(found, TupleOf) and len(kind.parts) == len(found.parts):
            found = TupleOf(tuple(join(pair) for pair in zip(found.parts, kind.parts, strict=True)))
        elif isinstance(kind, SeqOf) and isinstance(found, SeqOf):
            found = SeqOf(join((found.part, kind.part)))
        else:
            found = MIXED if has_sync(kind) or has_sync(found) else OTHER
    return found


def whole(kinds: list[Kind]) -> Kind:
    """Return the kind of a container of elements of these kinds, which are not told apart."""
    if all(kind == NONE for kind in kinds):
        return NONE
    if all(kind in (SYNC, NONE) for kind in kinds):
        return SYNC
    return MIXED if any(map(has_sync, kinds)) else OTHER


def gathered(kinds: list[Kind], *, keep: bool = False) -> Kind:
    """Return the kind of a display with elements of these kinds; ``keep``: its elements are told apart in any case."""
    kind = whole(kinds)
    return TupleOf(tuple(kinds)) if kind == MIXED or (keep and kind == SYNC) else kind


def sequence(kind: Kind) -> Kind:
    """Return the kind of an iterable of elements of a kind."""
    return kind if isinstance(kind, str) else SeqOf(kind)


def element(kind: Kind, index: int) -> Kind:
    """Return the kind of an element: the one at an index, or any (-1)."""
    if isinstance(kind, SeqOf):
        return kind.part
    if isinstance(kind, TupleOf):
        return kind.parts[index] if 0 <= index < len(kind.parts) else join(kind.parts)
    return kind


def default_of(function: FunctionNode, name: str) -> ast.expr | None:
    """Return the default of a parameter."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    for arg, default in zip(reversed(positional), reversed(arguments.defaults), strict=False):
        if arg.arg == name:
            return default
    for arg, keyword_default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if arg.arg == name:
            return keyword_default
    return None


# -- scopes --------------------------------------------------------------------------------------------


class _Binder:
    """Fills the tables of a `ProgramText`."""

    def __init__(self, program: ProgramText) -> None:
        self.program = program

    def bind(self) -> None:
        program = self.program
        scope = program.inner[program.tree] = ProgramScope(program.tree, None)
        program.scopes[program.tree] = scope
        for child in ast.iter_child_nodes(program.tree):
            self._visit(child, program.tree, scope)

    def _visit(self, node: ast.AST, parent: ast.AST, scope: ProgramScope) -> None:
        program = self.program
        program.parents[node] = parent
        program.scopes[node] = scope
        self._note(node, scope)
        if not isinstance(node, _SCOPES):
            for child in ast.iter_child_nodes(node):
                self._visit(child, node, scope)
            return
        inner = program.inner[node] = ProgramScope(node, scope)
        outside = _evaluated_outside(node)
        for child in ast.iter_child_nodes(node):
            self._visit(child, node, scope if child in outside else inner)

    def _note(self, node: ast.AST, scope: ProgramScope) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._target(target, scope, value, ())
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if isinstance(scope.node, ast.ClassDef):
                if value is not None:
                    self.program.attributes.setdefault(name, []).append(NameBinding(value))
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self._target(target, scope, value, ())
            case ast.AugAssign(target=target, value=value, op=ast.Add()):
                self._target(target, scope, value, ())
            case ast.AugAssign(target=ast.Name(id=name)):
                self._add(scope, name, NameBinding(None))
            case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
                self._target(target, scope, value, (-1,))
            case ast.comprehension(target=target, iter=value):
                self._target(target, scope, value, (-1,))
            case ast.withitem(context_expr=value, optional_vars=target) if target is not None:
                self._target(target, scope, value, ())
            case ast.NamedExpr(target=target, value=value):
                self._target(target, _function_scope(scope), value, ())
            case ast.Import(names=names):
                for alias in names:
                    first = alias.name.partition(".")[0]
                    self._add(
                        scope, alias.asname or first, NameBinding(None, module=alias.name if alias.asname else first)
                    )
            case ast.ImportFrom(names=names, module=module, level=level):
                for alias in names:
                    full = f"{'.' * level}{module or ''}.{alias.name}"
                    self._add(scope, alias.asname or alias.name, NameBinding(None, module=full))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                self._add(scope, name, NameBinding(None, definition=node))
            case ast.arg(arg=name):
                function = scope.node
                is_def = isinstance(function, FUNCTIONS)
                self._add(scope, name, NameBinding(None, parameter=(function, name) if is_def else None))  # type: ignore[arg-type]  # narrowed by is_def
            case ast.Global(names=words) | ast.Nonlocal(names=words):
                self._outer(node, words, scope)
            case ast.ExceptHandler(name=str() as name):
                self._add(scope, name, NameBinding(None))
            case ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name):
                self._add(scope, name, NameBinding(None))
            case ast.Return(value=value) if value is not None:
                self.program.returned.setdefault(scope.node, []).append(value)
            case ast.Call():
                self._call(node, scope)

    def _outer(self, node: ast.Global | ast.Nonlocal, names: list[str], scope: ProgramScope) -> None:
        for name in names:
            scope.outer[name] = "global" if isinstance(node, ast.Global) else "nonlocal"
            scope.bound.pop(name, None)

    def _call(self, node: ast.Call, scope: ProgramScope) -> None:
        self.program.note_call(node)
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr in _PUTS_IN and node.args:
            value, is_whole = node.args[-1], func.attr == "extend"
            if isinstance(func.value, (ast.Name, ast.Attribute)):
                self._store(func.value, scope, NameBinding(value, puts=not is_whole))

    def _target(self, target: ast.expr, scope: ProgramScope, value: ast.expr, way: tuple[int, ...]) -> None:
        match target:
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                for index, elt in enumerate(elts):
                    self._target(elt, scope, value, (*way, index))
            case ast.Starred(value=inner):
                self._target(inner, scope, value, way[:-1])
            case ast.Subscript(value=ast.Name() | ast.Attribute() as base):
                self._store(base, scope, NameBinding(value, way, puts=True))
            case ast.Name() | ast.Attribute():
                self._store(target, scope, NameBinding(value, way))

    def _store(self, target: ast.Name | ast.Attribute, scope: ProgramScope, bound: NameBinding) -> None:
        if isinstance(target, ast.Attribute):
            self.program.attributes.setdefault(target.attr, []).append(bound)
            return
        home = scope if not bound.puts else (scope.home_of(target.id) or scope)
        if bound.puts and target.id not in home.bound:
            return  # an element of a container that is bound elsewhere, later or not at all
        self._add(home, target.id, bound)

    def _add(self, scope: ProgramScope, name: str, bound: NameBinding) -> None:
        how = scope.outer.get(name)
        if how == "global":
            while scope.parent is not None:
                scope = scope.parent
        elif how == "nonlocal":
            assert scope.parent is not None
            scope = scope.parent.home_of(name) or scope
        scope.bound.setdefault(name, []).append(bound)


def _function_scope(scope: ProgramScope) -> ProgramScope:
    while isinstance(scope.node, _COMPREHENSIONS) and scope.parent is not None:
        scope = scope.parent
    return scope


def _evaluated_outside(node: ast.AST) -> set[ast.AST]:
    """Return the children of a scope's node that are evaluated in the scope around it."""
    if isinstance(node, FUNCTIONS):
        return {*node.decorator_list, *([node.returns] if node.returns else [])}
    if isinstance(node, ast.ClassDef):
        return {*node.decorator_list, *node.bases, *node.keywords}
    return set()


# -- text ----------------------------------------------------------------------------------------------


def program_text(path: str) -> str:
    """Return the text of a file of Python; tabs that indent lines become four blanks each.

    Its line about the encoding says UTF-8, in which a task form is written.

    Raises
    ------
    SyntaxError, UnicodeDecodeError
        The text is not Python.
    """
    with tokenize.open(path) as file:
        text = _ENCODING.sub(r"\g<1>utf-8", file.read(), count=1)
    if "\t" not in text:
        return text
    ast.parse(text, path)  # it may be no Python at all
    kept = string_lines(text)
    lines = text.split("\n")
    return "\n".join(line if k + 1 in kept else _without_tabs(line) for k, line in enumerate(lines))


def _without_tabs(line: str) -> str:
    code = line.lstrip(" \t")
    return line[: len(line) - len(code)].replace("\t", "    ") + code


def string_lines(text: str) -> set[int]:
    """Return the lines that begin inside of a string."""
    found: set[int] = set()
    starts: list[int] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        name = tokenize.tok_name[token.type]
        if name == "STRING":
            found |= set(range(token.start[0] + 1, token.end[0] + 1))
        elif name == "FSTRING_START":
            starts.append(token.start[0])
        elif name == "FSTRING_END":
            found |= set(range(starts.pop() + 1, token.end[0] + 1))
    return found
