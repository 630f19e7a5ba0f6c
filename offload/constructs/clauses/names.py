"""List items as strings, and the names that a call makes visible to them."""

from __future__ import annotations

import ast
import inspect
import operator
from contextlib import suppress
from functools import lru_cache
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from offload.errors import ClauseError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

from offload.arrays.foreign import check_numbers
from offload.arrays.items import SCALARS, _slice_of, as_host
from offload.interrupts.shields import pass_on
from offload.runtime.keywords import meant

_GRAMMAR = "write name, name[i], name[lower:length:stride] or name.member, or give the array itself with .options(…)"


# How an item goes on from a value: a member, an index, or (lower, length, stride).
Step = str | CodeType | tuple[CodeType | None, ...]


class SymbolicItem(NamedTuple):
    """A parsed string: a name, and the members, indices and sections after it."""

    text: str  # as it was written
    name: str  # the first name in it
    steps: tuple[Step, ...]  # the members, indices and sections after it

    def is_part_of(self, value: Any) -> bool:
        """Tell whether the text, whose name means ``value``, names a section of that array, not its contents."""
        return bool(self.steps) and hasattr(value, "shape") and not any(isinstance(step, str) for step in self.steps)

    def reaches_into(self, value: Any) -> bool:
        """Tell whether the text, whose name means ``value``, names a member or an element that it holds."""
        return bool(self.steps) and not self.is_part_of(value)

    def resolve(self, names: Mapping[str, Any], computes: str = "") -> Any:
        """Return the array (or part of it) that the text means, given the names visible at the call.

        A clause that ``computes`` with the elements says its name. Raise `UnsupportedError` if NumPy lacks their type.
        """
        try:
            value = names[self.name]
        except KeyError:
            raise ClauseError(f"list item {self.text!r}: {unseen(self.name, names)}") from None
        steps = self.steps
        while steps:
            if isinstance(steps[0], str):
                value, steps = self._member(value, steps[0]), steps[1:]
            elif hasattr(value := _host(value, computes), "shape"):
                n_dims = next((at for at, step in enumerate(steps) if isinstance(step, str)), len(steps))
                value, steps = self._section(value, steps[:n_dims], names), steps[n_dims:]
            else:
                value, steps = self._element(value, steps[0], names), steps[1:]
        if self.steps and type(value) in SCALARS:
            raise ClauseError(
                f"list item {self.text!r}: it is {type(value).__name__} {value!r:.60}, a value without storage; name "
                "an array, or pass a value of your own, such as a tuple, with .options(…)"
            )
        return _host(value, computes)

    def _member(self, value: Any, name: str) -> Any:
        try:
            return getattr(value, name)
        except Exception as error:
            pass_on(error)
            raise ClauseError(
                f"list item {self.text!r}: {type(value).__name__} {value!r:.60} has no member {name!r} ({error}); name "
                "one that it has, or pass the array itself with .options(…)"
            ) from error

    def _element(self, value: Any, step: Any, names: Mapping[str, Any]) -> Any:
        if not isinstance(value, (list, tuple)):
            raise ClauseError(
                f"list item {self.text!r}: {type(value).__name__} {value!r:.60} has neither dimensions nor numbered "
                "elements; an index is for an array, a list or a tuple; pass the array itself with .options(…)"
            )
        if isinstance(step, tuple):
            raise ClauseError(
                f"list item {self.text!r}: a section of a {type(value).__name__} has no storage; name each element by "
                "its number, or pass the elements with .options(…)"
            )
        return value[self._index(step, len(value), f"the {type(value).__name__}", names)]

    def element_of(self, value: Sequence[Any], names: Mapping[str, Any]) -> int:
        """Return the number of the element of a list or tuple that the text, whose name means it, names first."""
        return self._index(self.steps[0], len(value), f"the {type(value).__name__}", names)  # type: ignore[arg-type]  # an index

    def _section(self, value: Any, dims: tuple[Any, ...], names: Mapping[str, Any]) -> Any:
        if len(dims) > len(value.shape):
            raise ClauseError(
                f"list item {self.text!r}: it has {len(dims)} dimensions, but the array has {len(value.shape)}; give "
                "at most that many"
            )
        index: list[int | slice] = []
        for axis, (dim, size) in enumerate(zip(dims, value.shape, strict=False)):
            if isinstance(dim, CodeType):
                index.append(self._index(dim, size, f"dimension {axis}", names))
            else:
                triple = tuple(None if code is None else self._evaluate(code, names) for code in dim)
                index.append(_slice_of(triple, value.shape, axis, self.text))
        return value[(*index, ...)]  # also where every dimension has an index: a 0-d view, not a copy of the element

    def _index(self, code: CodeType, size: int, of: str, names: Mapping[str, Any]) -> int:
        given = self._evaluate(code, names)
        try:
            at = operator.index(given)
        except TypeError:
            raise ClauseError(
                f"list item {self.text!r}: the index of {of} is {type(given).__name__} {given!r:.40}; use an int, for "
                "example i // 2, or lower:length:stride"
            ) from None
        if not 0 <= at < size:
            allowed = f"goes from 0 to {size - 1}" if size else "is empty"
            raise ClauseError(f"list item {self.text!r}: index {at} is outside of {of}, which {allowed}")
        return at

    def _evaluate(self, code: CodeType, names: Mapping[str, Any]) -> Any:
        try:
            return eval(code, {"__builtins__": {}}, names)  # noqa: S307  # the program's own text
        except NameError as error:
            raise ClauseError(f"list item {self.text!r}: {unseen(error.name or str(error), names)}") from error
        except Exception as error:
            pass_on(error)
            raise ClauseError(
                f"list item {self.text!r}: {error}; an index is an integer expression of parameters and visible names"
            ) from error


def _host(value: Any, computes: str) -> Any:
    """Return the NumPy array over memory that a value exposes, as `as_host` does; else the value."""
    if value.__class__ is np.ndarray or value.__class__ in SCALARS:
        return value
    host = as_host(value)
    if computes:
        check_numbers(value, host, computes)
    return host


def refused_text(what: str, text: str) -> ClauseError:
    """Return the error of a string among the list items of a call, which has no function to look names up in."""
    try:
        item = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        item = ast.Name("a")
    dims: list[str] = []
    while isinstance(item, ast.Subscript):
        parts = item.slice.elts if isinstance(item.slice, ast.Tuple) else [item.slice]
        dims[:0] = [_pair(part) for part in parts]
        item = item.value
    written = f"section({ast.unparse(item)}, {', '.join(dims)})" if dims else "the array itself"
    return ClauseError(f"{what}: {text!r:.60} is a string, which only decorators take as a list item; write {written}")


def _pair(dim: ast.expr) -> str:
    """Return the tuple that `section` takes for a dimension of a list item in OpenMP's notation."""
    given = (dim.lower, dim.upper, dim.step) if isinstance(dim, ast.Slice) else (dim, ast.Constant(1))
    texts = ["None" if part is None else ast.unparse(part) for part in given]
    return f"({', '.join(texts[:2] if texts[2:] == ['None'] else texts)})"


def unseen(name: str, names: Iterable[str] = ()) -> str:
    """Return the text of messages about a name in a string that a call, which sees ``names``, does not see."""
    hint = meant(name, names)
    return (
        f"there is no parameter or visible name {name!r}{hint}{' A' if hint else '; a'} string can name parameters, "
        "globals, and variables of enclosing functions that the body mentions: mention it there, make it a parameter, "
        "or pass the array itself with .options(…)"
    )


def bound_by(
    function: Callable[..., Any], signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> inspect.BoundArguments:
    """Return the arguments of a call of a function, with defaults; raise `TypeError` that names the function."""
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{getattr(function, '__name__', function)}{signature}: {error}") from None
    bound.apply_defaults()
    return bound


@lru_cache(maxsize=1024)
def parse_item(text: str) -> SymbolicItem:
    """Parse a list item in OpenMP's notation: ``x``, ``x[0:n]``, ``a[i][0:n:2]`` (lower : length : stride), ``o.x``.

    Raise `ClauseError` if the text is not a name followed by members, indices or sections.
    """
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ClauseError(f"list item {text!r}: {error.msg}; {_GRAMMAR}") from None
    steps: list[Step] = []
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        if isinstance(node, ast.Attribute):
            steps.insert(0, node.attr)
        else:
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            steps[:0] = [_dimension(part) for part in parts]
        node = node.value
    if not isinstance(node, ast.Name):
        if steps:
            raise ClauseError(
                f"list item {text!r} does not begin with a name, but with {ast.unparse(node)!r}; {_GRAMMAR}"
            )
        raise ClauseError(f"list item {text!r} is not a name with members, indices or sections; {_GRAMMAR}")
    return SymbolicItem(text, node.id, tuple(steps))


def _dimension(node: ast.expr) -> CodeType | tuple[CodeType | None, ...]:
    if isinstance(node, ast.Slice):
        return tuple(None if part is None else _code(part) for part in (node.lower, node.upper, node.step))
    return _code(node)


def _code(node: ast.expr) -> CodeType:
    return compile(ast.fix_missing_locations(ast.Expression(node)), "<list item>", "eval")


class Starred(NamedTuple):
    """The ``*`` and ``**`` parameters of a function; ``first`` is the position of the first argument of ``*``."""

    args: str | None  # the name of the ``*`` parameter
    first: int
    kwargs: str | None  # the name of the ``**`` parameter


STARRED = "*"  # Under which the names of a call have that; no text can name it


class VisibleNames:
    """The names that a string item of a decorated function may use: its parameters, closure and globals."""

    # A callable of C may not tell its parameters; then a call has names for its keywords only.

    __slots__ = ("_function", "_positional", "_signature", "positions", "starred")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._signature: inspect.Signature | None = None  # None if the callable does not tell
        with suppress(TypeError, ValueError):
            self._signature = inspect.signature(function)
        # of the parameters that may be passed by position
        self.positions = {
            name: number
            for number, (name, parameter) in enumerate(self.parameters.items())
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        }
        by_kind = {parameter.kind: name for name, parameter in self.parameters.items()}
        args, named = by_kind.get(inspect.Parameter.VAR_POSITIONAL), by_kind.get(inspect.Parameter.VAR_KEYWORD)
        self.starred = Starred(args, len(self.positions), named) if args or named else None
        is_plain = self._signature is not None and len(self.positions) == len(self.parameters)
        # None if a call cannot give all parameters by position
        self._positional = tuple(self.positions) if is_plain else None

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        return self._signature.parameters if self._signature is not None else {}

    @property
    def n_positional(self) -> int | None:
        """How many arguments a call has that gives all by position; None where it cannot."""
        return None if self._positional is None else len(self._positional)

    @property
    def takes_any_keyword(self) -> bool:
        return any(parameter.kind is parameter.VAR_KEYWORD for parameter in self.parameters.values())

    def slot(self, name: str, kwargs: Mapping[str, Any]) -> int | str:
        """Return the argument that a name means in a call with these keywords: a position, or the name itself."""
        at = self.positions.get(name)
        if at is None or (name in kwargs and self.parameters[name].kind is not inspect.Parameter.POSITIONAL_ONLY):
            return name
        return at

    def may_have(self, name: str) -> bool:
        """Tell whether a call can find this name: a parameter, a name visible now, or one that the body uses."""
        code = getattr(self._function, "__code__", None)
        return (
            name in self.parameters
            or self.takes_any_keyword
            or code is None
            or name in getattr(self._function, "__globals__", {})
            or name in code.co_freevars
            or name in code.co_names
        )

    def at_call(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, only_parameters: bool = False
    ) -> dict[str, Any]:
        """Return the names visible at a call with these arguments, as they are now."""
        # With ``only_parameters`` nobody asks for others, which may be missing then.
        is_by_position = self._positional is not None and not kwargs and len(args) == len(self._positional)
        if only_parameters and is_by_position:
            return dict(zip(self.positions, args, strict=True))
        names = dict(getattr(self._function, "__globals__", {}))
        code = getattr(self._function, "__code__", None)
        for name, cell in zip(
            code.co_freevars if code else (), getattr(self._function, "__closure__", None) or (), strict=False
        ):
            try:
                names[name] = cell.cell_contents
            except ValueError:
                continue  # a closure variable that has no value yet
        if is_by_position:
            names.update(zip(self.positions, args, strict=True))  # as `bind` does, at a tenth of the price
            return names
        if self._signature is None:
            names.update(kwargs)
            return names
        bound = bound_by(self._function, self._signature, args, kwargs)
        names.update(kwargs)  # those that `**` takes have names too, and a parameter of the same name hides them
        names.update(bound.arguments)
        if self.starred is not None:
            names[STARRED] = self.starred
        return names
