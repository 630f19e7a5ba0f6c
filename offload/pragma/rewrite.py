"""Rewriting: from a function with directives to one that encounters constructs.

Theory of operation
-------------------
The definition is found in the source text, copied and changed. It is compiled inside of a function that is never
called: that function has the variables of enclosing functions as parameters, so Python's compiler gives the definition
the same free variables as the original, and one for each directive besides. The compiled code then becomes a function
with the original's globals, cells and defaults. All nodes keep the file and the lines of the program.

Rejected: `exec` of the definition. It would evaluate defaults and decorators twice, and a function that calls itself
would find a name of the factory.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import functools
import linecache
import re
import sys
import warnings
from types import CellType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from offload.errors import DirectiveWarning, OffloadError, UsageError
from offload.pragma import encounter, items, trees
from offload.pragma.blocks import BlockScanner
from offload.pragma.emit import Emitter, Spec
from offload.pragma.marks import SpellingMark
from offload.pragma.meanings import Meanings
from offload.pragma.names import free_names
from offload.pragma.placing import at_node
from offload.pragma.syntax import Span
from offload.texts import (
    PLAIN_TEXT,
    FunctionText,
    TextError,
    copied,
    decorators_around,
    first_line,
    framed,
    functions_of,
    text_in,
    text_of,
    tree_of,
)

if TYPE_CHECKING:
    from offload.errors import PragmaError
    from offload.pragma.blocks import FoundDirectives
    from offload.pragma.comments import UnreadComment
    from offload.pragma.syntax import Directive

_FUTURE: Final = functools.reduce(
    int.__or__, [getattr(__future__, name).compiler_flag for name in __future__.all_feature_names]
)
_FUNCTION: Final = ".function"
_FACTORY: Final = ".factory"


def decorated(thing: Any, *, default: str = "") -> Any:
    """Return a function, or a class, whose directives are rewritten.

    Parameters
    ----------
    thing : function or class
        A function; or a class, each function of which is rewritten and replaced.
    default : str
        "shared", or empty.
    """
    frame = sys._getframe(1)  # noqa: SLF001  # the caller's line shows which decorator is being applied
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("offload.pragma"):
        frame = frame.f_back
    place = frame.f_code.co_filename, frame.f_lineno
    if isinstance(thing, type):
        for name, function, wrap in functions_of(thing):
            if _is_generated(function, place[0]):
                continue
            made = rewritten(function, default, None)
            if made is not function:
                setattr(thing, name, wrap(made))
        return thing
    return rewritten(thing, default, place)


def rewritten(function: Any, default: str, place: tuple[str, int] | None) -> Any:
    """Return a function that encounters the constructs of its directives; the same one if it has none.

    Parameters
    ----------
    function : function
        The function.
    default : str
        "shared", or empty.
    place : tuple of str and int, or None
        The file and the line of the decorator; None for a function of a decorated class.

    Raises
    ------
    PragmaError
        A directive is wrong, a block cannot be taken, or a decorator stands below.
    UsageError
        There is no source text.
    """
    if not isinstance(function, FunctionType):
        _refuse_object(function, place)
    made = vars(function).get(PLAIN_TEXT)
    if made is not None and made.args[-1] is function.__code__:
        return function  # rewritten already; a decorator above it may have copied the attribute
    template = _template_of(function, default, place)
    return function if template is None else template.made(function)


def _is_generated(function: FunctionType, file: str) -> bool:
    """Tell whether a function of a class has no directive because of its kind: a lambda, or one that a decorator made.

    `dataclass` makes functions from texts of its own, which belong to no file.
    """
    code = function.__code__
    if code.co_name == "<lambda>":
        return True
    return code.co_filename != file and code.co_filename.startswith("<") and not text_in(code.co_filename, function)


def _refuse_object(thing: Any, place: tuple[str, int] | None) -> None:
    """Raise the error of an object that another decorator has made, or that is no function."""
    inner = thing
    while not isinstance(inner, FunctionType):
        inner = getattr(inner, "__wrapped__", None) or getattr(inner, "__func__", None)
        if inner is None:
            raise UsageError(
                f"directives decorates a function that is written with `def`, or a class, not {type(thing).__name__} "
                f"{thing!r:.60}"
            )
    text = _text_of(inner)
    _check_decorators(text, place)
    raise at_node(
        text.definition,
        f"directives: {inner.__name__} is already {type(thing).__name__}; decorate the plain function",
        text,
    )


def _text_of(function: FunctionType) -> FunctionText:
    try:
        return text_of(function)
    except TextError as error:
        raise UsageError(f"directives: {error}") from None


def _check_decorators(text: FunctionText, place: tuple[str, int] | None) -> None:
    """Raise `PragmaError` if a decorator stands below the one that is being applied."""
    if place is None:
        return
    file, line = place
    if file == text.file:
        around = decorators_around(text.definition, line)
        if around.own is not None:
            if around.below:
                raise _below(around.below, text)
            return
    # The function may be one that a decorator below has made: then the definition at the line is another one.
    if not linecache.getline(file, line).lstrip().startswith("@"):
        return
    whole = "".join(linecache.getlines(file))
    for node in ast.walk(tree_of(whole)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.decorator_list:
            around = decorators_around(node, line)
            if around.own is not None and around.below:
                raise _below(around.below, FunctionText(file, whole, node))


def _below(decorators: tuple[ast.expr, ...], text: FunctionText) -> PragmaError:
    return at_node(
        decorators[-1],
        "a decorator below @directives would be lost, because the function is made from its text; write @directives "
        "below it",
        text,
    )


# -- templates -------------------------------------------------------------------------------------------


class Template:
    """The compiled code of a rewritten function; a nested function is made from it at each call of the one around."""

    def __init__(
        self, code: CodeType, blocks: dict[str, CodeType], specs: list[Spec], text: FunctionText, kind: str
    ) -> None:
        self.code = code
        self.blocks = blocks  # by the identifiers of definitions
        self.specs = specs
        self.text = text
        self.kind = kind  # the class around the function; empty if there is none

    def made(self, function: FunctionType) -> FunctionType:
        """Return the function with the globals, cells and defaults of another one."""
        names = function.__globals__
        code = function.__code__
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        if self.kind:  # nests ask for names as they are written
            cells |= {_as_written(name, self.kind): cell for name, cell in cells.items()}
        cells[trees.LIBRARY] = CellType(items)
        cells[trees.RUNTIME] = CellType(encounter)
        cells[trees.MODULE] = CellType(encounter.ModuleScope.of(function.__module__ or ""))
        for spec in self.specs:
            cells[spec.cell] = CellType()
        for spec in self.specs:
            cells[spec.cell].cell_contents = self._object(spec, function, names, cells)
        made = FunctionType(self.code, names, function.__name__, function.__defaults__, _closure(self.code, cells))
        made.__kwdefaults__ = function.__kwdefaults__
        functools.update_wrapper(made, function)
        setattr(made, PLAIN_TEXT, functools.partial(_plain_text, self.text, function, made.__code__))
        return made

    def _object(self, spec: Spec, function: FunctionType, names: dict[str, Any], cells: dict[str, CellType]) -> Any:
        if spec.nest is not None:
            from offload.pragma.nests import NestEncounter

            try:
                nest = NestEncounter(spec.nest, spec.call, self.text, names, cells)
            except OffloadError as error:
                spec.call.reword(error)
                raise
            if spec.lost is not None:
                raise spec.lost
            return nest
        if not spec.function:
            return encounter.StayingBlock(spec.call)
        code = self.blocks[spec.function]
        body = FunctionType(code, names, code.co_name, None, _closure(code, cells))
        body.__module__ = function.__module__
        body.__qualname__ = code.co_qualname
        kind = encounter.LoopBlock if spec.call.directive.name == "taskloop" else encounter.TakenBlock
        return kind(spec.call, body, encounter.BlockNames(**spec.names))


def _plain_text(
    text: FunctionText, function: FunctionType, own: CodeType, asked: CodeType
) -> tuple[Any, str, str] | None:
    """Return the definition of a function without its directives, with its text and its file, if that is ``asked``."""
    if asked is not own:
        return None
    from offload.pragma.plain import without_directives

    return without_directives(text, _Seen(function).spelling_of), text.text, text.file


def _closure(code: CodeType, cells: dict[str, CellType]) -> tuple[CellType, ...]:
    return tuple([cells[name] for name in code.co_freevars])


_TEMPLATES: dict[int, tuple[ref[CodeType], dict[str, Template | None]]] = {}
"""The templates of functions by their code: a nested function is decorated at each call of the one around it."""


def _templates_of(code: CodeType) -> dict[str, Template | None]:
    """Return the templates of this code object. An equal one may have other directives, since code has no comments."""
    key = id(code)
    if key not in _TEMPLATES:
        forget = _TEMPLATES.pop  # at exit, the module's names may be gone before the code is
        _TEMPLATES[key] = ref(code, lambda _: forget(key, None)), {}
    return _TEMPLATES[key][1]


def _template_of(function: FunctionType, default: str, place: tuple[str, int] | None) -> Template | None:
    known = _templates_of(function.__code__)
    if default not in known:
        text = _text_of(function)
        _check_decorators(text, place)
        known[default] = _compiled(function, text, default)
    return known[default]


def _compiled(function: FunctionType, text: FunctionText, default: str) -> Template | None:
    """Return the template of a function; None if it has no directives."""
    faults: list[PragmaError] = []
    seen = _Seen(function)
    definition: Any = _with_comments(text, function.__module__, seen, faults)
    finding = BlockScanner(text, definition, seen.spelling_of).scan()
    finding.errors += [((error.lineno or 0, 0), error) for error in faults]
    if not (finding.directives or finding.n_decorators):
        finding.check()
        return None
    kind = _class_of(function.__code__.co_qualname)
    free = frozenset([_as_written(name, kind) for name in function.__code__.co_freevars]) - {"__class__"}
    meanings = Meanings(finding, free, default, seen)
    _check_names(function, finding, meanings)
    emitter = Emitter(finding, meanings, kind, seen.is_fixed)
    emitter.emit()
    for line, message in finding.doubts:
        _warn(message, text, line, function.__module__)
    code, blocks = _Compilation(function, text, emitter).codes()
    return Template(code, blocks, emitter.specs, text, kind)


def _with_comments(text: FunctionText, module: str | None, seen: _Seen, faults: list[PragmaError]) -> Any:
    """Return a copy of a function's definition in which its directive comments are statements."""
    if not _may_have_directives(text):
        return framed(text.definition)
    from offload.pragma.comments import insert_comments, near_misses  # which need a tokenizer

    unread: list[UnreadComment] = []
    definition = insert_comments(text, faults, unread)
    for comment in unread:
        if any(seen.may_rewrite(one) for node in comment.around for one in node.decorator_list):
            continue
        name = comment.around[-1].name
        message = (
            f"`{comment.written}` is in the nested {name}, which has no @directives, so it is an ordinary comment; "
            f"write @directives above {name}"
        )
        _warn(message, text, comment.line, module)
    for one in near_misses(text):
        message = (
            f"`{one.written}` is not a directive, because of the blank after `#`; write `{one.meant}`, with "
            "`# fmt: off` above it if a formatter adds the blank"
        )
        _warn(message, text, one.line, module)
    return definition


def _warn(message: str, text: FunctionText, line: int, module: str | None) -> None:
    # Python gives no warning for a module without a name.
    warnings.warn_explicit(message, DirectiveWarning, text.file, line, module or text.file)


def _may_have_directives(text: FunctionText) -> bool:
    """Tell whether some comment of a function, or right after it, has the word of a sentinel."""
    lines, end = text.lines, text.definition.end_lineno or 0
    for row in range(text.definition.lineno, len(lines) + 1):
        line = lines[row - 1]
        if "#" in line:
            if "omp" in line or "acc" in line:
                return True
        elif row > end and line.strip():
            break
    return False


class _Seen:
    """The values of names when a function is decorated."""

    def __init__(self, function: FunctionType) -> None:
        code = function.__code__
        self._globals = function.__globals__
        self._local = {*code.co_varnames, *code.co_cellvars}
        self._cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        self._spellings: dict[str, Any] = {}

    def value_of(self, name: str) -> Any:
        """Return the value of a name; None if it has none."""
        if name in self._cells:
            try:
                return self._cells[name].cell_contents
            except ValueError:
                return None
        if name in self._local:
            return None
        return self._globals.get(name, getattr(builtins, name, None))

    def spelling_of(self, node: ast.expr) -> SpellingMark | None:
        """Return the spelling that an expression is: a name, or attributes of one."""
        if isinstance(node, ast.Name):
            if node.id not in self._spellings:
                value = self.value_of(node.id)
                self._spellings[node.id] = value if isinstance(value, SpellingMark) else None
            return self._spellings[node.id]  # type: ignore[no-any-return]  # a spelling, or None
        words: list[str] = []
        while isinstance(node, ast.Attribute):
            words.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or not words:
            return None
        value = self.value_of(node.id)
        for word in words:
            value = getattr(value, word, None) if isinstance(value, (ModuleType, type)) else None
        return value if isinstance(value, SpellingMark) else None

    def may_rewrite(self, decorator: ast.expr) -> bool:
        """Tell whether a decorator is `directives`, `omp` or the like, or may be: local names have no value yet."""
        node = decorator.func if isinstance(decorator, ast.Call) else decorator
        words: list[str] = []
        while isinstance(node, ast.Attribute):
            words.insert(0, node.attr)
            node = node.value
        value = self.value_of(node.id) if isinstance(node, ast.Name) else None
        for word in words:
            value = getattr(value, word, None)
        return value is None or getattr(value, "__module__", "").startswith("offload.pragma")

    def is_of_module(self, name: str) -> bool:
        """Tell whether a name is a variable of the module that has a value."""
        return name not in self._local and name not in self._cells and name in self._globals

    def is_fixed(self, name: str) -> bool:
        """Tell whether a loop knows the value of a name without an argument."""
        from offload.pragma.nests import is_fixed

        return is_fixed(self.value_of(name))

    def is_data(self, name: str) -> bool:
        """Tell whether a module-level name may hold an array when a block is encountered."""
        if name not in self._globals:
            return not hasattr(builtins, name)
        return not isinstance(self._globals[name], (ModuleType, FunctionType, type)) and not callable(
            self._globals[name]
        )


# -- names of enclosing functions --------------------------------------------------------------------------


def _check_names(function: FunctionType, finding: FoundDirectives, meanings: Meanings) -> None:
    """Note an error for a name of an enclosing function that only a string has: Python keeps no cell for it."""
    code = function.__code__
    known = {*code.co_names, *code.co_freevars, *code.co_varnames, *code.co_cellvars}
    outer: set[str] | None = None
    for found in finding.directives:
        for name in (*found.reads, *found.binds):
            if name in known or meanings.is_variable(name):
                continue
            if outer is None:
                outer = _variables_around(finding.text)
            if name in outer:
                finding.refuse(
                    found.where.refusal(
                        f"{name} is a variable of an enclosing function, and only a directive's string mentions it, so "
                        "Python keeps no reference to it; mention it in the function's text",
                        _span_of_name(found.directive, name),
                    ),
                    found.node,
                )


def _span_of_name(directive: Directive, name: str) -> Span | None:
    """Return where a name stands in a directive's string; None if that is not known."""
    found = re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", directive.text[directive.span.end :])
    if found is None:
        return None
    return Span(directive.span.end + found.start(), directive.span.end + found.end())


def _variables_around(text: FunctionText) -> set[str]:
    """Return the variables of the functions around a definition."""
    line = first_line(text.definition)
    found: set[str] = set()
    pending: list[tuple[Any, tuple[Any, ...]]] = [(tree_of(text.text), ())]
    while pending:
        node, around = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if node.name == text.definition.name and first_line(node) == line:
                for outer in around:
                    found |= free_names(outer).bound
                return found
            around = (*around, node)
        children = ast.iter_child_nodes(node)
        pending += [(one, around) for one in children if isinstance(one, (ast.stmt, ast.ExceptHandler, ast.match_case))]
    return found


# -- code ------------------------------------------------------------------------------------------------


class _Compilation:
    """The compilation of a rewritten definition, and of the definitions of its blocks."""

    def __init__(self, function: FunctionType, text: FunctionText, emitter: Emitter) -> None:
        self._function = function
        self._text = text
        self._emitter = emitter
        self._free = [name for name in function.__code__.co_freevars if name != "__class__"]

    def codes(self) -> tuple[CodeType, dict[str, CodeType]]:
        """Return the function's code, and the codes of the definitions next to it by their identifiers."""
        old = self._function.__code__
        flags = old.co_flags & _FUTURE
        try:
            code = compile(self._module(), self._text.file or old.co_filename, "exec", flags, dont_inherit=True)
        except SyntaxError as error:
            raise self._refusal(error) from None
        found = {one.co_name: one for one in _codes_in(code)}
        renamed = {name: self._renamed(one, "") for name, one in found.items() if name.startswith(".")}
        made = renamed.pop(_FUNCTION)
        return made.replace(co_filename=old.co_filename), renamed

    def _refusal(self, error: SyntaxError) -> PragmaError:
        """Return the error of something that Python allows in the function, but not in the function of a block."""
        at = ast.Pass(
            lineno=error.lineno or first_line(self._text.definition),
            col_offset=(error.offset or 1) - 1,
            end_lineno=error.end_lineno,
            end_col_offset=(error.end_offset or 1) - 1,
        )
        message = (
            f"{error.msg}: the block becomes a function, where Python does not allow this; move it out of the block"
        )
        return at_node(at, message, self._text)

    def _module(self) -> ast.Module:
        definition: Any = self._emitter.finding.definition
        line = first_line(definition)
        definition.name = _FUNCTION
        # The decorator keeps the first line of the code, which is that of the first decorator.
        definition.decorator_list = [ast.Constant(None, lineno=line, col_offset=0, end_lineno=line, end_col_offset=1)]
        definition.returns = None
        definition.args = arguments = copied(definition.args)  # which the file's tree has too
        arguments.defaults = []
        arguments.kw_defaults = [None] * len(arguments.kwonlyargs)
        for argument in (
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            arguments.vararg,
            arguments.kwarg,
        ):
            if argument is not None:
                argument.annotation = None
        trees.with_no_types(definition)
        body: list[ast.stmt] = [definition, *self._emitter.functions]
        kind = _class_of(self._function.__code__.co_qualname)
        if kind or "__class__" in self._function.__code__.co_freevars:
            body = [_class(kind or "_", body)]
            if kind not in self._free:  # the class's name is the module's
                body.insert(0, trees.located(ast.Global([kind or "_"]), definition))
        parameters = [
            *self._free,
            trees.LIBRARY,
            trees.RUNTIME,
            trees.MODULE,
            *(spec.cell for spec in self._emitter.specs),
        ]
        factory = trees.function(_FACTORY, parameters, body)
        trees.located(factory, definition, body)
        for node in body:
            if isinstance(node, ast.ClassDef):
                trees.located(node, definition, node.body)
        return ast.Module([factory], [])

    def _renamed(self, code: CodeType, around: str) -> CodeType:
        """Return a code with the names that functions have in messages."""
        old = self._function.__code__
        name, qualified = code.co_name, f"{around}.<locals>.{code.co_name}"
        if name == _FUNCTION:
            name, qualified = old.co_name, old.co_qualname
        elif name in self._emitter.names:
            shown = self._emitter.names[name]
            name, qualified = f"{old.co_name}.{shown}", f"{old.co_qualname}.{shown}"
            # A clause names a parameter as the text has it, without the class of a private name.
            kind = _class_of(old.co_qualname)
            code = code.replace(
                co_varnames=tuple([_as_written(one, kind) for one in code.co_varnames]),
                co_cellvars=tuple([_as_written(one, kind) for one in code.co_cellvars]),
            )
        constants = [self._renamed(one, qualified) if isinstance(one, CodeType) else one for one in code.co_consts]
        return code.replace(
            co_name=name, co_qualname=qualified, co_consts=tuple(constants), co_filename=old.co_filename
        )


def _codes_in(code: CodeType) -> list[CodeType]:
    """Return the codes in the factory, or in the class in it."""
    factory = next(one for one in code.co_consts if isinstance(one, CodeType))
    found = [one for one in factory.co_consts if isinstance(one, CodeType)]
    if not any(one.co_name == _FUNCTION for one in found):
        found = [inner for one in found for inner in one.co_consts if isinstance(inner, CodeType)]
    return found


def _class_of(qualified: str) -> str:
    """Return the name of the innermost class around a function, by its qualified name; empty if there is none."""
    words = qualified.split(".")[:-1]
    for at in range(len(words) - 1, -1, -1):
        if words[at] != "<locals>" and (at + 1 == len(words) or words[at + 1] != "<locals>"):
            return words[at]
    return ""


def _as_written(name: str, kind: str) -> str:
    """Return a name without the class that Python's compiler puts in front of a private one (`__x`)."""
    prefix = f"_{kind.lstrip('_')}"
    return name[len(prefix) :] if len(prefix) > 1 and name.startswith(f"{prefix}__") else name


def _class(name: str, body: list[ast.stmt]) -> ast.ClassDef:
    return trees.with_no_types(ast.ClassDef(name, [], [], body, []))


__all__ = ["decorated", "rewritten"]
