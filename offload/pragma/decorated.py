"""``@omp("…")`` over a ``def``: the same object as the API's decorator gives.

Theory of operation
-------------------
Nothing is rewritten. List items become the strings that the API's decorators take, and constants go to the decorator
as they are. If that covers all clauses, the result is the API's own object.

Other expressions are evaluated at each call, in a function that is made of them once: its parameters are those names
that the decorated function has as parameters or closure variables; other names are globals of the function. An
`EvaluatedFunction` calls it and encounters the construct with `options`.
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
from typing import TYPE_CHECKING, Any, Final

from offload.constructs.call import DirectiveFunction
from offload.constructs.clauses.names import VisibleNames
from offload.constructs.pickling import reduced, restore
from offload.errors import ClauseError
from offload.pragma import items
from offload.pragma.calls import DirectiveCall
from offload.pragma.encounter import ModuleScope, copied
from offload.pragma.syntax import PythonText, Span, Subscript, Triple
from offload.pragma.tables import Form, row_of
from offload.runtime.keywords import meant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Self, SupportsIndex

    from offload.pragma.placing import DirectiveText
    from offload.pragma.syntax import Clause, Directive, Item


def decorated(function: Callable[..., Any], where: DirectiveText, directive: Directive | None = None) -> Any:
    """Return a function under the construct of a directive string.

    Parameters
    ----------
    function : callable
        The function.
    where : DirectiveText
        The string, for the errors.
    directive : Directive, optional
        The parsed string, if a spelling reads it in another way than the parser.

    Raises
    ------
    PragmaError
        The directive does not decorate functions, or a clause names something that the function cannot see.
    ClauseError, LoopError
        As the API's decorator raises.
    """
    directive = where.parsed() if directive is None else directive
    row = row_of(directive)
    if not (row.makes_function or row.form is Form.NEST):
        raise where.refusal(
            f"{directive.language}: `{directive.name}` does not decorate a function; write it in a function under "
            f"@directives, as `with {directive.language}(…):` or as a statement"
        )
    if not callable(function):
        raise ClauseError(
            f"{directive.name} decorates a function, not {type(function).__name__} {function!r:.60}; write it over a "
            "def"
        )
    visible = _SeenNames(function)
    _check(directive, where, visible)
    call = DirectiveCall(directive, frozenset(visible.names.parameters))
    is_copied = call.key == "task" and visible.parameters_in(directive, "firstprivate")
    if call.is_fixed and not is_copied:
        return call.decorate(function)
    return EvaluatedFunction(function, {"directive": directive, "options": {}})


class EvaluatedFunction:
    """A function under a directive some of whose clauses are evaluated at each call. `decorated` makes it."""

    __slots__ = ("__dict__", "_construct", "_given", "_instance")

    def __init__(self, function: Callable[..., Any], clauses: dict[str, Any]) -> None:
        directive: Directive = clauses["directive"]
        self._function = function
        self._directive = directive
        visible = _SeenNames(function)
        self._call = DirectiveCall(directive, frozenset(visible.names.parameters))
        self._evaluator = _Evaluator(self._call, visible)
        self._copied = visible.parameters_in(directive, "firstprivate") if self._call.key == "task" else ()
        self._plain = self._call.decorate(function)
        has_own = isinstance(function, type)
        functools.update_wrapper(self, function, updated=() if has_own else functools.WRAPPER_UPDATES)
        self._instance: tuple[Any, ...] = ()  # the object of a method
        self._apply(clauses)

    def _apply(self, clauses: dict[str, Any]) -> None:
        """Take the clauses that `options` has replaced."""
        self._given: dict[str, Any] = clauses["options"]
        self._construct = self._plain.options(**self._given) if self._given else self._plain
        self._instance = ()

    def options(self, **clauses: Any) -> Self:
        """Return a copy with these clauses replaced; the directive's other clauses are still evaluated at each call.

        Raises
        ------
        ClauseError
            The construct has no such clause, or a value is wrong.
        """
        return self._copy(self._construct.options(**clauses), {**self._given, **clauses}, self._instance)

    def _copy(self, construct: Any, given: dict[str, Any], instance: tuple[Any, ...]) -> Self:
        copy: Self = object.__new__(self.__class__)
        copy.__dict__ = self.__dict__
        copy._construct, copy._given, copy._instance = construct, given, instance
        return copy

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate the clauses, and encounter the construct."""
        values = self._evaluator((*self._instance, *args), kwargs)
        given = self._call.evaluated(values)
        for word in self._given:
            given.pop(word, None)
        construct = self._construct.options(**given) if given else self._construct
        if self._copied:
            args, kwargs = self._with_copies(args, kwargs)
        return construct(*args, **kwargs)

    def _with_copies(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with copies of the arrays that ``firstprivate`` of a task names."""
        positions = self._evaluator.visible.names.positions
        first = len(self._instance)
        if any(
            name not in kwargs and positions.get(name, first + len(args)) - first >= len(args) for name in self._copied
        ):
            args, kwargs = self._with_defaults(args, kwargs)
        given: list[Any] = [*args]
        named = {**kwargs}
        for name in self._copied:
            at = positions.get(name, -1) - first
            if name in named:
                named[name] = copied(named[name])
            elif 0 <= at < len(given):
                given[at] = copied(given[at])
        return tuple(given), named

    def _with_defaults(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with the defaults of the parameters that the call does not give."""
        import inspect  # few calls need it

        try:
            bound = inspect.signature(self._function).bind(*self._instance, *args, **kwargs)
        except TypeError:
            return args, kwargs  # the construct raises its own error
        bound.apply_defaults()
        return bound.args[len(self._instance) :], bound.kwargs

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind like a function: under a method, ``self`` is the first argument."""
        if instance is None:
            return self
        return self._copy(self._construct.__get__(instance, owner), self._given, (instance,))

    def __getattr__(self, name: str) -> Any:
        """Return what the construct has of its own, such as ``explain`` of a loop function."""
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._construct, name)

    def __repr__(self) -> str:
        return repr(self._construct)

    # -- pickling ----------------------------------------------------------------------------------------
    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """Pickle the function as the API's are: by its name, or with its clauses."""
        clauses = {
            "directive": self._directive,
            "options": self._given,
            "names": tuple(self._evaluator.globals),  # which the function takes along to another process
        }
        pickled = reduced(self, clauses)
        return pickled if not self._instance else (_bound, (self._unbound(), self._instance[0]))

    def _unbound(self) -> EvaluatedFunction:
        return self._copy(self._plain.options(**self._given) if self._given else self._plain, self._given, ())

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        """Restore a pickled function."""
        restore(self, state)

    def _texts(self) -> tuple[dict[str, Any], tuple[Any, ...]]:
        """Return the globals and texts that the construct needs in a process without its file."""
        texts: tuple[dict[str, Any], tuple[Any, ...]] = self._plain._texts()  # noqa: SLF001  # of a loop
        return texts

    def _receive(self, texts: tuple[Any, ...]) -> None:
        """Keep the texts that came with the function."""


def _bound(function: EvaluatedFunction, instance: object) -> Any:
    return function.__get__(instance)


# -- evaluation at a call ----------------------------------------------------------------------------

_ITEMS: Final = "_offload_items"
_LOCATIONS: Final = "_offload_locations"


class _SeenNames:
    """The names that the clauses of a decorated function can use."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        inner: Any = function
        while isinstance(inner, DirectiveFunction) or (
            not hasattr(inner, "__code__") and hasattr(inner, "__wrapped__")
        ):
            inner = inner.__wrapped__
        self.code = getattr(inner, "__code__", None)
        self.names = VisibleNames(function)
        cells = getattr(inner, "__closure__", None) or ()
        self.cells = dict(zip(self.code.co_freevars if self.code else (), cells, strict=False))
        self.globals: dict[str, Any] = getattr(inner, "__globals__", {})

    @property
    def locals(self) -> frozenset[str]:
        """The parameters and other variables of the function."""
        own = (*self.code.co_varnames, *self.code.co_cellvars) if self.code else ()
        return frozenset((*self.names.parameters, *own))

    def has(self, name: str) -> bool:
        """Tell whether an expression of a clause can use a name at a call."""
        return (
            name in self.names.parameters
            or name in self.cells
            or name in self.globals
            or hasattr(builtins, name)
            or self.code is None
            or name in self.code.co_names
        )

    def parameters_in(self, directive: Directive, clause: str) -> tuple[str, ...]:
        """Return the parameters that a clause names."""
        named = [item.name for one in directive.all(clause) for item in one.items]
        return tuple([name for name in named if name in self.names.parameters])


class _Naming:
    """Names as the function has them that evaluates the clauses of a decorated function."""

    def __init__(self, visible: _SeenNames) -> None:
        self._visible = visible
        self.bare: set[int] = set()  # the nodes that may be unbound, by identity
        self._kept: list[ast.expr] = []
        self.variables: dict[str, Any] = {}  # locations in ``depend``, by name

    @property
    def library(self) -> ast.expr:
        return ast.Name(_ITEMS, ast.Load())

    def read(self, name: str) -> ast.expr:
        node = ast.Name(name, ast.Load())
        self._kept.append(node)
        self.bare.add(id(node))
        return node

    def location(self, name: str) -> ast.expr:
        """Return the location of a variable around the function; a parameter means its value, as with the API."""
        if name in self._visible.names.parameters:
            return ast.Call(ast.Attribute(self.library, "own", ast.Load()), [self.read(name)], [])
        visible = self._visible
        # Blocks in rewritten functions name variables by the same objects.
        activation = visible.cells.get(name) or ModuleScope.of(getattr(visible.function, "__module__", None) or "")
        self.variables[name] = items.variable(activation, name)
        return ast.Subscript(ast.Name(_LOCATIONS, ast.Load()), ast.Constant(name), ast.Load())


class _Evaluator:
    """Evaluates the clauses of a decorated function with the arguments of a call."""

    def __init__(self, call: DirectiveCall, visible: _SeenNames) -> None:
        self.visible = visible
        naming = _Naming(visible)
        body = call.values(naming)
        _mangle(body, _class_of(visible.function))
        names = [node for node in ast.walk(body) if isinstance(node, ast.Name)]
        parameters = visible.names.parameters
        self._names = [
            name for name in dict.fromkeys(node.id for node in names) if name in parameters or name in visible.cells
        ]
        # the names that have to have a value
        self._needed = {node.id for node in names if id(node) not in naming.bare}
        self.globals = [name for name in dict.fromkeys(node.id for node in names) if name in visible.globals]
        given = [ast.arg(name) for name in (*self._names, _ITEMS, _LOCATIONS)]
        function = ast.Lambda(ast.arguments([], given, None, [], [], None, []), body)
        code = compile(ast.fix_missing_locations(_at_first_line(ast.Expression(function))), "<directive>", "eval")
        self._evaluate = eval(code, visible.globals)  # noqa: S307  # the program's own text
        self._last = items, naming.variables

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the values of the clauses at a call."""
        passed = self._passed(args, kwargs) if self._names else {}
        given = [passed[name] if name in passed else self._free(name) for name in self._names]
        values: tuple[Any, ...] = self._evaluate(*given, *self._last)
        return values

    def _passed(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        names = self.visible.names
        if not kwargs and names.n_positional == len(args):
            return dict(zip(names.positions, args, strict=True))
        import inspect

        try:
            # A taskloop passes parameters of its own, which the call does not give.
            bound = inspect.signature(self.visible.function).bind_partial(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{getattr(self.visible.function, '__name__', 'function')}: {error}") from None
        bound.apply_defaults()
        return bound.arguments

    def _free(self, name: str) -> Any:
        cell = self.visible.cells.get(name)
        try:
            if cell is not None:
                return cell.cell_contents
        except ValueError:
            pass
        if name in self._needed and name in self.visible.names.parameters:
            import inspect

            function = self.visible.function
            shown = f"{getattr(function, '__name__', 'function')}{inspect.signature(function)}"
            raise TypeError(f"{shown}: missing a required argument: {name!r}")
        if name in self._needed:
            raise NameError(f"name {name!r} in a directive string has no value at this call", name=name)
        return items.UNBOUND


def _at_first_line(tree: ast.Expression) -> ast.Expression:
    for node in ast.walk(tree):
        if isinstance(node, (ast.expr, ast.keyword, ast.arg)):
            node.lineno = node.end_lineno = 1
            node.col_offset = node.end_col_offset = 0
    return tree


def _class_of(function: Any) -> str:
    """Return the class in whose body a function stands; empty outside of a class."""
    outer = getattr(function, "__qualname__", "").split(".")[:-1]
    return outer[-1].lstrip("_") if outer and outer[-1] != "<locals>" else ""


def _mangle(tree: ast.AST, cls: str) -> None:
    """Give private names of a class the form that Python gives them in its body."""
    for node in ast.walk(tree) if cls else ():
        if isinstance(node, ast.Attribute) and node.attr.startswith("__") and not node.attr.endswith("__"):
            node.attr = f"_{cls}{node.attr}"


# -- checks at the decoration ------------------------------------------------------------------------

_LOCAL_CLAUSES: Final = ("private", "lastprivate", "reduction")
"""Clauses of loop functions that name variables of the function itself."""


def _check(directive: Directive, where: DirectiveText, visible: _SeenNames) -> None:
    """Raise the first error, in reading order, about the names of clauses."""
    is_loop = row_of(directive).form is Form.NEST
    for clause in directive.clauses:
        if clause.name in ("private", "shared", "firstprivate", "default") and directive.name in ("task", "taskloop"):
            _check_sharing(directive, clause, where, visible)
            continue
        has_locals = is_loop and clause.name in (*_LOCAL_CLAUSES, "firstprivate")
        for name, span in _names_of(clause):
            if not (visible.has(name) or (has_locals and name in visible.locals)):
                raise where.refusal(_unseen(clause, name, visible), span)


def _check_sharing(directive: Directive, clause: Clause, where: DirectiveText, visible: _SeenNames) -> None:
    """Refuse data-sharing clauses of a task that a function cannot have: its variables are its own anyway."""
    name = clause.name
    if name == "default":
        if clause.kind != "shared" and (free := [one for one in visible.cells if not _is_listed(directive, one)]):
            raise where.refusal(
                f"default({clause.kind}): {free[0]!r} of an enclosing function is in no clause; make it a parameter, "
                f"or write shared({free[0]})",
                clause.span,
            )
        return
    for item in clause.items:
        is_parameter, is_own = item.name in visible.names.parameters, item.name in visible.locals
        if not (is_own or visible.has(item.name)):
            raise where.refusal(_unseen(clause, item.name, visible), item.span)
        if name == "private" and (is_parameter or not is_own):
            what = "a parameter, whose value the call gives" if is_parameter else "a variable around the function"
            raise where.refusal(
                f"private({item.name}): {item.name!r} is {what}; a function's other variables are private, so use a "
                "variable of its own",
                item.span,
            )
        if name == "firstprivate" and (not is_parameter or directive.name == "taskloop"):
            raise where.refusal(
                f"firstprivate({item.name}): on a function, only a task's parameters can be copied at the call; "
                + ("copy it in the body" if is_parameter else "make it a parameter"),
                item.span,
            )


def _is_listed(directive: Directive, name: str) -> bool:
    return any(item.name == name for clause in directive.clauses for item in clause.items)


def _unseen(clause: Clause, name: str, visible: _SeenNames) -> str:
    known = ", ".join(visible.names.parameters) or "none"
    return (
        f"{clause.name}: there is no parameter or visible name {name!r}{meant(name, visible.names.parameters)}; the "
        f"parameters are {known}. Mention a variable of an enclosing function in the body, or make it a parameter"
    )


def _names_of(clause: Clause) -> Iterator[tuple[str, Span]]:
    """Yield the names that a clause reads, each with its place in the string."""
    bound: set[str] = set()
    for iterator in clause.iterators:
        yield from _names_in((iterator.begin, iterator.end, iterator.step), bound)
        bound.add(iterator.name)
    if clause.name not in ("use", "init"):
        yield from _names_in((one for item in clause.items for one in _expressions_of(item)), bound)
    arguments = [modifier.argument for modifier in clause.modifiers if modifier.name != "mapper"]
    yield from _names_in((*arguments, *clause.expressions), bound)


def _expressions_of(item: Item) -> Iterator[PythonText | None]:
    if item.root.text != "omp_all_memory":
        yield item.root
    for step in item.steps:
        for entry in step.dimensions if isinstance(step, Subscript) else ():
            yield from (entry.lower, entry.length, entry.stride) if isinstance(entry, Triple) else (entry,)


def _names_in(expressions: Iterable[PythonText | None], bound: set[str]) -> Iterator[tuple[str, Span]]:
    for expression in expressions:
        if expression is None:
            continue
        nodes = [node for node in ast.walk(expression.node) if isinstance(node, ast.Name)]
        inner = {node.id for node in nodes if isinstance(node.ctx, ast.Store)}
        inner |= {node.arg for node in ast.walk(expression.node) if isinstance(node, ast.arg)}
        found = []
        for name in {node.id for node in nodes} - bound - inner:
            place = re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", expression.text)
            begin = expression.span.begin + (place.start() if place is not None else 0)
            found.append((begin, name))
        for begin, name in sorted(found):
            yield name, Span(begin, begin + len(name))
