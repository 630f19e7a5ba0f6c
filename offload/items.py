"""List items: what a ``map``, ``update`` or ``depend`` clause names, and the storage that it covers.

A list item is an array (any view of one), a section of one, a string in OpenMP's notation that is
resolved when the construct is encountered, or, in ``depend`` only, any other hashable value.
"""

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
from offload.storage import HOST, Section, section_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping


MAPPERS: dict[tuple[type, str], Callable[[Any], Any]] = {}
"""By class and name, what `declare_mapper` declared: for the process, since classes are too."""


def mapper_of(item: object, name: str | None = None) -> Callable[[Any], Any] | None:
    """Return the mapper of this name (None: ``"default"``) of the nearest class along the item's MRO, if there is."""
    if not MAPPERS:
        return None
    wanted = name or "default"
    return next((MAPPERS[cls, wanted] for cls in type(item).__mro__ if (cls, wanted) in MAPPERS), None)


SCALARS = frozenset({bool, int, float, complex, str, bytes, type(None), *np.sctypeDict.values()})
"""Types whose values are neither arrays nor anything that has a mapper."""


class Token(NamedTuple):
    """One storage location of its own, named by a hashable value."""

    value: Hashable


def is_device_array(item: object) -> bool:
    """Tell whether ``item`` is an array in the memory of some device."""
    return hasattr(item, "__offload_section__") or hasattr(item, "__cuda_array_interface__")


_DLPACK_HOST = (1, 3)
"""DLPack's device types whose arrays are the host's: kDLCPU and kDLCUDAHost."""

_DLPACK_NAMES = {2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda", 14: "oneapi"}


def is_foreign(item: object) -> bool:
    """Tell whether ``item``, not a NumPy array, is another library's array in the memory of a device, by DLPack."""
    described = getattr(item, "__dlpack_device__", None)
    return described is not None and not isinstance(item, type) and int(described()[0]) not in _DLPACK_HOST


def holder(array: Any) -> str:
    """Return the name of the device that a device array is on, as far as the array says."""
    device = getattr(array, "device", None)
    if hasattr(array, "__offload_section__"):
        return str(getattr(device, "name", device))
    if hasattr(array, "__dlpack_device__"):
        kind, index = array.__dlpack_device__()
        return f"{_DLPACK_NAMES.get(int(kind), f'DLPack device type {int(kind)},')}:{index}"
    return f"cuda:{getattr(device, 'id', '?')}"


def array_section(array: Any) -> Section:
    """Return the storage that a host or device array covers.

    Raises
    ------
    ClauseError
        ``array`` is no array, or an array of Python objects.
    """
    if isinstance(array, np.ndarray):
        if array.__class__ is not np.ndarray and isinstance(array, (np.ma.MaskedArray, np.matrix)):
            raise ClauseError(
                f"a {type(array).__name__} cannot be a list item: the device knows neither masks nor matrix products; "
                "pass plain arrays, for example x.data and x.mask"
            )
        if array.dtype.hasobject:
            raise ClauseError(
                f"an array of dtype {array.dtype} cannot be a list item: it holds references to Python objects, "
                "which mean nothing on a device; use a numeric or structured dtype"
            )
        strides = None if array.flags.c_contiguous else array.strides
        return section_of(HOST, array.__array_interface__["data"][0], array.shape, strides, array.itemsize)
    own = getattr(array, "__offload_section__", None)
    if own is not None:
        section: Section = own()
        return section
    described = getattr(array, "__cuda_array_interface__", None)
    if described is not None:
        itemsize = np.dtype(described["typestr"]).itemsize
        space = ("cuda", int(getattr(getattr(array, "device", None), "id", 0)))
        return section_of(space, described["data"][0], described["shape"], described.get("strides"), itemsize)
    raise ClauseError(
        f"{type(array).__name__} {array!r:.60} is not a list item; use an array, a view of one, section(…) or a string"
    )


def locator(item: Any) -> Section | Token:
    """Return what a ``depend`` item names: the storage of an array, or a location of its own.

    Raises
    ------
    ClauseError
        The item is neither an array nor hashable.
    """
    if isinstance(item, np.ndarray) or is_device_array(item):
        return array_section(item)
    try:
        hash(item)
    except TypeError:
        raise ClauseError(
            f"{type(item).__name__} {item!r:.60} cannot be a depend item; "
            "use an array, section(…), a string or a hashable value"
        ) from None
    return Token(item)


def label(item: Any) -> str:
    """Return a short text for messages and graphs."""
    if isinstance(item, str):
        return item
    if isinstance(item, Token):
        return repr(item.value)
    if isinstance(item, np.ndarray) or is_device_array(item):
        shape = ", ".join(map(str, getattr(item, "shape", "?")))
        return f"{getattr(item, 'dtype', type(item).__name__)}[{shape}]"
    return repr(item)


class Label:
    """What `label` says of an array, put together when somebody reads it: no task that succeeds needs it."""

    __slots__ = ("_array", "_name")

    def __init__(self, array: Any, name: str = "") -> None:
        self._array = array
        self._name = name

    def __str__(self) -> str:
        return f"{self._name}: {label(self._array)}" if self._name else label(self._array)


def section(a: Any, *dims: tuple[int | None, ...]) -> Any:
    """Return the array section of ``a`` that OpenMP writes ``a[lower:length:stride]…``.

    Parameters
    ----------
    a : array
        A host or device array.
    *dims : (lower, length) or (lower, length, stride)
        One for each leading dimension; ``length`` is a number of elements, None takes the default (0, all that
        is left, 1). Missing trailing dimensions are whole.

    Returns
    -------
    array
        A view of ``a``; to name a view is the same.

    Raises
    ------
    ClauseError
        More dimensions than the array has, a stride below 1, or elements outside of the array.

    Notes
    -----
    OpenMP 5.2, 3.2.5 "Array Sections".
    """
    if not isinstance(a, np.ndarray) and not is_device_array(a):
        raise ClauseError(f"section: {type(a).__name__} {a!r:.60} is not an array")
    if len(dims) > a.ndim:
        raise ClauseError(f"section names {len(dims)} dimensions of an array that has {a.ndim}; name at most those")
    return a[tuple(_slice_of(dim, size, axis) for axis, (dim, size) in enumerate(zip(dims, a.shape, strict=False)))]


def _slice_of(dim: tuple[int | None, ...], size: int, axis: int, what: str = "section") -> slice:
    if type(dim) is not tuple or len(dim) not in (2, 3):
        raise ClauseError(f"{what}: dimension {axis} is {dim!r}; write (lower, length) or (lower, length, stride)")
    lower = 0 if dim[0] is None else int(dim[0])
    stride = 1 if len(dim) == 2 or dim[2] is None else int(dim[2])
    if stride < 1:
        raise ClauseError(f"{what}: stride {stride} in dimension {axis}; a stride is at least 1")
    length = max(0, -(-(size - lower) // stride)) if dim[1] is None else int(dim[1])
    last = lower + (length - 1) * stride
    if lower < 0 or length < 0 or lower > size or (length and last >= size):
        raise ClauseError(
            f"{what}: ({lower} : {length} : {stride}) reaches outside of dimension {axis}, which has {size} elements; "
            "the first number is at least 0, the second a count of elements, not an end"
        )
    return slice(lower, last + 1 if length else lower, stride)


# -- items written as strings ----------------------------------------------------------------------


_GRAMMAR = "write name, name[i], name[lower:length:stride] or name.member, or give the array itself by .options(…)"

Step = str | CodeType | tuple[CodeType | None, ...]
"""How an item goes on from a value: a member, an index, or (lower, length, stride)."""


class SymbolicItem(NamedTuple):
    """A parsed string: a name, and what follows it: members, indices, sections."""

    text: str
    name: str
    steps: tuple[Step, ...]

    def is_part_of(self, value: Any) -> bool:
        """Tell whether the text, whose name means ``value``, names a section of that array, not what it holds."""
        return bool(self.steps) and hasattr(value, "shape") and not any(isinstance(step, str) for step in self.steps)

    def reaches_into(self, value: Any) -> bool:
        """Tell whether the text, whose name means ``value``, names a member or an element that it holds."""
        return bool(self.steps) and not self.is_part_of(value)

    def resolve(self, names: Mapping[str, Any]) -> Any:
        """Return the array (or part of it) that the text means, given the names visible at the call."""
        try:
            value = names[self.name]
        except KeyError:
            raise ClauseError(f"list item {self.text!r}: {unseen(self.name)}") from None
        steps = self.steps
        while steps:
            if isinstance(steps[0], str):
                value, steps = self._member(value, steps[0]), steps[1:]
            elif hasattr(value, "shape"):
                n_dims = next((at for at, step in enumerate(steps) if isinstance(step, str)), len(steps))
                value, steps = self._section(value, steps[:n_dims], names), steps[n_dims:]
            else:
                value, steps = self._element(value, steps[0], names), steps[1:]
        if self.steps and type(value) in SCALARS:
            raise ClauseError(
                f"list item {self.text!r}: it is {type(value).__name__} {value!r:.60}, a value without storage; name "
                "an array, or order by a value of your own, such as a tuple, given by .options(…)"
            )
        return value

    def _member(self, value: Any, name: str) -> Any:
        try:
            return getattr(value, name)
        except Exception as error:
            raise ClauseError(
                f"list item {self.text!r}: {type(value).__name__} {value!r:.60} has no member {name!r} ({error}); "
                "name one that it has, or give the array itself by .options(…)"
            ) from error

    def _element(self, value: Any, step: Any, names: Mapping[str, Any]) -> Any:
        if not isinstance(value, (list, tuple)):
            raise ClauseError(
                f"list item {self.text!r}: {type(value).__name__} {value!r:.60} has neither dimensions nor elements by "
                "number; an index is for an array, a list or a tuple; give the array itself by .options(…)"
            )
        if isinstance(step, tuple):
            raise ClauseError(
                f"list item {self.text!r}: a section of a {type(value).__name__} is no storage; name its elements, "
                "each by its number, or give them by .options(…)"
            )
        return value[self._index(step, len(value), f"the {type(value).__name__}", names)]

    def _section(self, value: Any, dims: tuple[Any, ...], names: Mapping[str, Any]) -> Any:
        if len(dims) > len(value.shape):
            raise ClauseError(
                f"list item {self.text!r}: it names {len(dims)} dimensions of an array that has {len(value.shape)}; "
                "name at most those"
            )
        index: list[int | slice] = []
        for axis, (dim, size) in enumerate(zip(dims, value.shape, strict=False)):
            if isinstance(dim, CodeType):
                index.append(self._index(dim, size, f"dimension {axis}", names))
            else:
                triple = tuple(None if code is None else self._evaluate(code, names) for code in dim)
                index.append(_slice_of(triple, size, axis, f"list item {self.text!r}"))
        return value[(*index, ...)]  # also where every dimension has an index: a 0-d view, not a copy of the element

    def _index(self, code: CodeType, size: int, of: str, names: Mapping[str, Any]) -> int:
        at = self._evaluate(code, names)
        if not 0 <= at < size:
            allowed = f"goes from 0 to {size - 1}" if size else "is empty"
            raise ClauseError(f"list item {self.text!r}: index {at} is outside of {of}, which {allowed}")
        return at

    def _evaluate(self, code: CodeType, names: Mapping[str, Any]) -> int:
        try:
            return operator.index(eval(code, {"__builtins__": {}}, names))  # noqa: S307  # the program's own text
        except NameError as error:
            raise ClauseError(f"list item {self.text!r}: {unseen(error.name or str(error))}") from error
        except Exception as error:
            raise ClauseError(
                f"list item {self.text!r}: {error}; an index is an integer expression of parameters and visible names"
            ) from error


def unseen(name: str) -> str:
    """Return what messages say of a name that a string uses and a call does not see."""
    return (
        f"there is no parameter or visible name {name!r}; a string sees parameters, globals, and those variables of "
        "enclosing functions that the body mentions: mention it there, make it a parameter, or give the array itself "
        "by .options(…)"
    )


@lru_cache(maxsize=1024)
def parse_item(text: str) -> SymbolicItem:
    """Parse a list item in OpenMP's notation: ``x``, ``x[0:n]``, ``a[i][0:n:2]`` (lower : length : stride), ``o.x``.

    Raises
    ------
    ClauseError
        The text is not a name followed by members, indices or sections.
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


class VisibleNames:
    """The names that a string item of a decorated function may use: its parameters, closure and globals.

    A callable of C may not tell its parameters; then a call has names for its keywords only.
    """

    __slots__ = ("_function", "_positional", "_signature", "positions")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._signature: inspect.Signature | None = None
        with suppress(TypeError, ValueError):
            self._signature = inspect.signature(function)
        self.positions = {
            name: number
            for number, (name, parameter) in enumerate(self.parameters.items())
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        }
        is_plain = self._signature is not None and len(self.positions) == len(self.parameters)
        self._positional = tuple(self.positions) if is_plain else None

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        return self._signature.parameters if self._signature is not None else {}

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

    def at_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the names visible at a call with these arguments, as they are now."""
        names = dict(getattr(self._function, "__globals__", {}))
        code = getattr(self._function, "__code__", None)
        for name, cell in zip(
            code.co_freevars if code else (), getattr(self._function, "__closure__", None) or (), strict=False
        ):
            try:
                names[name] = cell.cell_contents
            except ValueError:
                continue  # a closure variable that has no value yet
        if self._positional is not None and not kwargs and len(args) == len(self._positional):
            names.update(zip(self._positional, args, strict=True))  # as `bind` does, at a tenth of the price
            return names
        if self._signature is None:
            names.update(kwargs)
            return names
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        names.update(kwargs)  # those that `**` takes have names too, and a parameter of the same name hides them
        names.update(bound.arguments)
        return names
