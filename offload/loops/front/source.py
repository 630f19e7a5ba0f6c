"""The text of a function, and the meanings of the names in it.

The definition is found in the tree of its whole file, so every node has its line. It is compiled once and compared with
the running code, to detect a file that changed after its import. A name from outside is *frozen* (a scalar, part of the
kernel's key), an array type (part of it as well), *known* (a library function with a form for loops, found by
identity), *plain* (a function to inline) or *unfit*. Loop functions that cloudpickle sends by value carry their texts
(`FunctionSource.texts`); the receiver keeps them by their code (`received`). NumPy is not imported here.
"""

from __future__ import annotations

import ast
import builtins
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from operator import is_
from types import CellType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast, get_args

from offload.errors import LoopError
from offload.loops.front.layouts import METHODS, is_layout
from offload.loops.tree import ir
from offload.texts import PLAIN_TEXT, TextError, columns_of, first_line, marked, named, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offload.loops.front.layouts import AnyLayout

DTYPES: Final[frozenset[str]] = frozenset(get_args(ir.Dtype))


@dataclass(frozen=True, slots=True)
class Frozen:
    """A scalar of the module or of a closure; `dtype` is None for one of Python's, which is weak."""

    value: bool | int | float | complex
    dtype: ir.Dtype | None = None  # None: Python's number, weak


@dataclass(frozen=True, slots=True)
class KnownName:
    """A module, a function or a type that loops have a form for: ``"numpy"``, ``"math.sin"``, ``"range"``."""

    name: str  # ``math.sin``, whatever the program calls it


@dataclass(frozen=True, slots=True)
class Plain:
    """A function of Python's."""

    function: FunctionType  # is inlined


@dataclass(frozen=True, slots=True)
class OutsideLayout:
    """An array type of the module or of a closure."""

    layout: AnyLayout  # is part of the key, as a frozen scalar is


@dataclass(frozen=True, slots=True)
class Unfit:
    """Anything else; `what` describes it, as ``"of type list"``."""

    what: str  # for the message


Meaning = Frozen | KnownName | Plain | OutsideLayout | Unfit

# Modules whose names are known by where they are said to be; they take part in no arithmetic.
_TEXTUAL: Final = ("offload", "offload.acc", "offload.atomic")

_MODULES: Final = ("math", "cmath", "numpy", *_TEXTUAL)


class FunctionSource:
    """The text of a function."""

    __slots__ = ("__dict__", "definition", "file", "function", "text")

    def __init__(self, function: FunctionType, definition: ast.FunctionDef, text: str, file: str) -> None:
        self.function = function  # whose text it is
        self.definition = definition  # its lines are those of the file
        self.file = file  # the file, perhaps one of another process
        # The text of the whole file; of a function that was sent, of its own lines, with blank ones before them.
        self.text = text

    @classmethod
    def of(cls, function: object) -> FunctionSource:
        """Return the source of a function.

        Raises `LoopError` of rule ``source`` if it is not a Python function, has no text, or was compiled from another
        text.
        """
        if not isinstance(function, FunctionType):
            raise LoopError(
                f"{function!r} is of type {type(function).__name__}, but a loop must be a plain function; define it "
                "with `def`",
                rule="source",
            )
        key = _key(function.__code__)
        if key not in _DEFINITIONS:
            plain = getattr(function, PLAIN_TEXT, lambda _: None)(function.__code__)
            _DEFINITIONS[key] = plain or _definition(function)
        return cls(function, *_DEFINITIONS[key])

    @property
    def place(self) -> ir.SourceLine:
        """The line of ``def``."""
        return ir.SourceLine(self.file, self.definition.lineno)

    @property
    def parameters(self) -> tuple[ast.arg, ...]:
        """Its parameters, in their order, without ``*args``."""
        arguments = self.definition.args
        return (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)

    @cached_property
    def own(self) -> frozenset[str]:
        """The names of its parameters."""
        return frozenset(parameter.arg for parameter in self.parameters)

    @property
    def by_position(self) -> list[str]:
        """The names of the parameters that take positional arguments."""
        return [one.arg for one in (*self.definition.args.posonlyargs, *self.definition.args.args)]

    @cached_property
    def identifiers(self) -> frozenset[str]:
        """Every name that its text has, locals, parameters and others."""
        names = {node.id for node in ast.walk(self.definition) if isinstance(node, ast.Name)}
        return frozenset(names | {parameter.arg for parameter in self.parameters})

    @cached_property
    def assigned(self) -> frozenset[str]:
        """The names that its text assigns, variables of loops among them."""
        nodes = (node for statement in self.definition.body for node in ast.walk(statement))
        return frozenset(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))

    @cached_property
    def free(self) -> tuple[str, ...]:
        """The names that it reads from outside, sorted."""
        nodes = (node for statement in self.definition.body for node in ast.walk(statement))
        read = {node.id for node in nodes if isinstance(node, ast.Name)}
        return tuple(sorted(read - self.assigned - {parameter.arg for parameter in self.parameters}))

    @cached_property
    def called(self) -> frozenset[str]:
        """The parameters that its text, or a function that it calls, uses as array types: it calls them."""
        return self._called(())

    def _called(self, callers: tuple[CodeType, ...]) -> frozenset[str]:
        calls = [node for node in ast.walk(self.definition) if isinstance(node, ast.Call)]
        found = {_root(node.func) for node in calls}
        for node in calls:
            meaning = self.meaning(node.func.id) if isinstance(node.func, ast.Name) else None
            if isinstance(meaning, Plain) and meaning.function.__code__ not in callers:
                with suppress(LoopError):  # of a function without a text
                    inner = FunctionSource.of(meaning.function)
                    types = inner._called((*callers, meaning.function.__code__))  # noqa: SLF001  # its own kind
                    names = [parameter.arg for parameter in inner.parameters]
                    given = [*zip(names, node.args, strict=False), *((one.arg, one.value) for one in node.keywords)]
                    found |= {_root(value) for name, value in given if name in types}
        return frozenset(found & {parameter.arg for parameter in self.parameters})

    def line_of(self, node: ast.AST) -> str:
        """Return the text of a node, as it is written, as far as its first line goes."""
        segment = ast.get_source_segment(self.text, node) or ""
        return segment.splitlines()[0] if segment else ""

    def refusal(self, node: ast.AST, rule: str, what: str) -> LoopError:
        """Return the error for a node that breaks a rule; `what` has the reason and the remedy."""
        line = getattr(node, "lineno", self.definition.lineno)
        name = self.definition.name
        error = LoopError(f"{self.file}:{line}, in {name}: `{self.line_of(node)}`: {what}", self.file, line, rule)
        error.add_note(self._marked(node, line))
        return error

    def _marked(self, node: ast.AST, line: int) -> str:
        """Return the first line of a node, with carets under the node."""
        text = self.text.split("\n")[line - 1]
        return marked(self.file, line, text, *columns_of(node, text))

    def meaning(self, name: str) -> Meaning | None:
        """Return the present meaning of a name from outside; None if it is defined nowhere."""
        try:
            return meaning_of(self._value(name))
        except NameError:
            return None

    def meant(self, node: ast.expr) -> Meaning | None:
        """Return the meaning of a name from outside, or of a module's name."""
        match node:
            case ast.Name(id=name) if name not in self.assigned and name not in self.own:
                return self.meaning(name)
            case ast.Attribute(value=module, attr=name):
                known = self.meant(module)
                return attribute(known, name) if isinstance(known, KnownName) else None
            case _:
                return None

    def key(self) -> tuple[object, ...]:
        """Return the present values that the function depends on besides its arguments.

        These are the values and types of the scalars that it reads from outside, and the functions that it calls, with
        their own dependences. `outlook` tells whether it is worth asking again.
        """
        return tuple(self.facts())

    def texts(self) -> tuple[dict[str, Any], tuple[Text, ...]]:
        """Return the globals and texts with which another process can make the function and those that it calls now.

        The globals are those of the module that the texts name. `received` takes the texts.
        """
        found, module = self.outlook(), self.function.__globals__
        names = {name: value for names, name, value in found.names if names is module and value is not _ABSENT}
        return names, tuple([_sent(self if one is self.function else FunctionSource.of(one)) for one, _ in found.codes])

    def outlook(self) -> Outlook:
        """Return the values that names from outside have now, those that `key` follows from."""
        found = Outlook([], [], [], [])
        self._look(found)
        return found

    def _look(self, found: Outlook) -> None:
        function = self.function
        code = function.__code__
        found.codes.append((function, code))
        for name in self.free:
            if name in code.co_freevars:
                cell = (function.__closure__ or ())[code.co_freevars.index(name)]
                value = _contents(cell)
                found.cells.append((cell, value))
            else:
                value = function.__globals__.get(name, _ABSENT)
                found.names.append((function.__globals__, name, value))
                if value is _ABSENT:
                    value = vars(builtins).get(name, _ABSENT)
                    found.names.append((vars(builtins), name, value))
            match meaning_of(value):
                case Plain(called) if all(called is not seen for seen, _ in found.codes):
                    found.defaults.append((called, called.__defaults__, _by_name(called)))
                    FunctionSource.of(called)._look(found)  # noqa: SLF001  # its own kind

    def facts(self, callers: tuple[CodeType, ...] = ()) -> Iterator[object]:
        """Yield the parts of `key`, those of functions within `callers` once."""
        code = self.function.__code__
        yield code
        for name in self.free:
            match self.meaning(name):
                case Frozen(value, dtype):
                    yield name, dtype or type(value).__name__, repr(value)  # repr tells -0.0 from 0.0, nan equals nan
                case KnownName(known):
                    yield name, known
                case OutsideLayout(layout):
                    yield name, layout
                case Plain(function) if function.__code__ not in (*callers, code):
                    yield name, repr(function.__defaults__), repr(function.__kwdefaults__)
                    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
                    yield from filter(is_layout, defaults)
                    yield from FunctionSource.of(function).facts((*callers, code))

    def _value(self, name: str) -> Any:
        code = self.function.__code__
        if name in code.co_freevars:
            try:
                return (self.function.__closure__ or ())[code.co_freevars.index(name)].cell_contents
            except ValueError:
                raise NameError(name) from None
        if name in self.function.__globals__:
            return self.function.__globals__[name]
        if hasattr(builtins, name):
            return getattr(builtins, name)
        raise NameError(name)


def _root(node: ast.expr) -> str:
    """Return the name of the type that an expression may be, or be a sub-dimension or a method of; else nothing."""
    if isinstance(node, ast.Attribute) and node.attr in METHODS:
        node = node.value
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


class Outlook(NamedTuple):
    """Values of names from outside. As none of those that count can change, names have to be given others."""

    codes: list[tuple[FunctionType, CodeType]]  # functions that the text names, and the code that each had
    # Of functions that are called: those by place, and those by name.
    defaults: list[tuple[FunctionType, tuple[object, ...] | None, tuple[object, ...]]]
    cells: list[tuple[CellType, object]]  # of closures
    names: list[tuple[dict[str, Any], str, object]]  # of modules, and of the built-in ones

    def holds(self) -> bool:
        """Tell whether the names have these values still; some 50 ns for each."""
        for function, code in self.codes:
            if function.__code__ is not code:
                return False
        for function, by_place, by_name in self.defaults:
            if function.__defaults__ is not by_place or not _are_same(_by_name(function), by_name):
                return False
        for cell, value in self.cells:
            if _contents(cell) is not value:
                return False
        for names, name, value in self.names:  # noqa: SIM110  # a generator costs as much again
            if names.get(name, _ABSENT) is not value:
                return False
        return True


_ABSENT: Final = object()


def _by_name(function: FunctionType) -> tuple[object, ...]:
    defaults = function.__kwdefaults__  # a dict that may change
    return () if defaults is None else (*defaults, *defaults.values())


def _are_same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return len(one) == len(other) and all(map(is_, one, other))


def _contents(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # it has no value yet
        return _ABSENT


def attribute(module: KnownName, name: str) -> Meaning | None:
    """Return the meaning of a name of a known module; None if it has none."""
    if module.name in _TEXTUAL:
        return KnownName(f"{module.name}.{name}")
    try:
        return meaning_of(getattr(sys.modules[module.name], name))
    except (AttributeError, KeyError):
        return None


def meaning_of(value: Any) -> Meaning:
    """Return the meaning for a loop of a value from outside of the function."""
    kind = type(value)
    if kind.__module__ == "numpy" and hasattr(value, "dtype") and kind.__hash__ is not None:  # arrays have no hash
        dtype = value.dtype.name
        if dtype in DTYPES:
            return Frozen(value.item(), cast("ir.Dtype", dtype))
        return Unfit(f"a NumPy scalar of type {dtype}")
    if isinstance(value, (bool, int, float, complex)):
        kinds: tuple[type[Any], ...] = (bool, int, float, complex)
        return Frozen(next(python(value) for python in kinds if isinstance(value, python)))
    if isinstance(value, ModuleType):
        return KnownName(value.__name__) if value.__name__ in _MODULES else Unfit(f"the module {value.__name__}")
    if (known := _known(value)) is not None:
        return known
    if isinstance(value, FunctionType):
        return Plain(value)
    if is_layout(value):
        return OutsideLayout(value)
    return Unfit("None" if value is None else f"of type {kind.__name__}")


def _known(value: Any) -> KnownName | None:
    """Return the name under which a library has a value, if one that loops know of has it."""
    name = getattr(value, "__name__", None)
    if not isinstance(name, str):
        return None
    if getattr(builtins, name, None) is value:
        return KnownName(name)
    for module in _MODULES:
        found = getattr(sys.modules.get(module), name, None)
        # The sanitizer's functions stand for NumPy's: they have the same class, and are equal.
        if found is value or (found.__class__ is value.__class__ and found == value):
            return KnownName(f"{module}.{name}")
    return None


# -- texts -----------------------------------------------------------------------------------------------


class Text(NamedTuple):
    """The text of one function, for another process: its code, its file, and its lines with those of decorators."""

    code: CodeType  # of the function
    file: str
    lines: str  # the whole file
    made: ast.FunctionDef | None = None  # the definition, if it was made of a part of another function


# The definitions that were found, each with its text and its file, and the keys of those that were made.
_DEFINITIONS: Final[dict[tuple[CodeType, str], tuple[ast.FunctionDef, str, str]]] = {}
_MADE: Final[set[tuple[CodeType, str]]] = set()


def received(texts: tuple[Text, ...]) -> None:
    """Keep the texts that came with a function of another process."""
    for code, file, lines, made in texts:
        n_before = code.co_firstlineno - 1
        # Lines of a method or a closure are indented, so there are lines before them, of which one becomes a block.
        before = "\n" * (n_before - 1) + "if True:\n" if lines[0].isspace() else "\n" * n_before
        text = before + lines
        if made is not None:
            _keep(code, made, text, file)
            continue
        known = _DEFINITIONS.get(_key(code))
        if known is None or known[1:] != (text, file):  # equal codes may be of two texts: types are in no code
            found = named(code, ast.parse(text))
            assert isinstance(found, ast.FunctionDef)
            _DEFINITIONS[_key(code)] = found, text, file


def keep_text(function: FunctionType, definition: ast.FunctionDef, text: str, file: str) -> None:
    """Keep the definition of a function that was made from a part of another one's; its lines are those of the text."""
    _keep(function.__code__, definition, text, file)


def _keep(code: CodeType, definition: ast.FunctionDef, text: str, file: str) -> None:
    _DEFINITIONS[_key(code)] = definition, text, file
    _MADE.add(_key(code))


def _sent(source: FunctionSource) -> Text:
    node = source.definition
    lines = "\n".join(source.text.split("\n")[first_line(node) - 1 : node.end_lineno])
    code = source.function.__code__
    return Text(code, source.file, f"{lines}\n", node if _key(code) in _MADE else None)


def _key(code: CodeType) -> tuple[CodeType, str]:
    """Return the key of a definition: equal codes may be of two files."""
    return code, code.co_filename


_REASONS: Final = {
    "lambda": "a lambda cannot contain loops; write the function with `def`",
    "absent": (
        "offload needs the source code of this function and cannot find it (was it created by `exec`, typed at a "
        "prompt, or defined in a function that cloudpickle sent?); write it to a file, and decorate it at the top "
        "level there"
    ),
}


def _definition(function: FunctionType) -> tuple[ast.FunctionDef, str, str]:
    code = function.__code__
    where = f"{code.co_filename}:{code.co_firstlineno}, {code.co_name}"
    try:
        found = text_of(function)
    except TextError as error:
        reason = _REASONS.get(error.reason)
        message = str(error) if reason is None else f"{where}: {reason}"
        raise LoopError(message, error.file, error.line, "source") from None
    if isinstance(found.definition, ast.AsyncFunctionDef):
        message = f"{where}: a coroutine cannot be a loop; write the function with `def`"
        raise LoopError(message, code.co_filename, code.co_firstlineno, "source")
    return found.definition, found.text, found.file
