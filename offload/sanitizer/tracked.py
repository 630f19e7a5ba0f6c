"""Tracked arrays: NumPy arrays whose accesses by the program are noted.

`sink` receives the accesses. It is None unless a runtime of the process is sanitized or a program is recorded. Set it
by `set_sink`: the name ``offload.sanitizer.tracked`` is also the function.

Theory of operation
-------------------
`TrackedArray` is a subclass of ndarray that a program cannot tell from ndarray: its instances have ndarray as
``__class__``, and it has ndarray's name. NumPy hands every operation on such an array to this class: ufuncs to
``__array_ufunc__``, functions to ``__array_function__``, and methods are overridden. Most operations are carried out on
plain views of the arrays, so that NumPy's own code accesses plain arrays only, and the result becomes tracked. Numbers
stay NumPy's. Functions that only make views run on the tracked arrays, so that ``base`` is right.

Compiled code that asks for the array's buffer, as ``file.write`` and ``hashlib`` do, comes to ``__buffer__``.

After the operation, the accesses are noted if the program has made them (`accessor`). The library's own work on tracked
arrays is not an access: the frame that called NumPy is the library's.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from offload.arrays import given
from offload.interrupts.frames import is_calling_program, is_own
from offload.sanitizer import buffers
from offload.sanitizer.accesses import KEEPS_LISTS, accesses_of, accesses_of_method, is_native
from offload.sanitizer.flats import TrackedFlags, TrackedFlat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import FrameType

    Arrays: TypeAlias = Sequence[np.ndarray[Any, Any]]

Found: TypeAlias = "list[tuple[TrackedArray, np.ndarray[Any, Any]]]"

frame_at = sys._getframe  # noqa: SLF001  # what `inspect` and `logging` use
_view = np.ndarray.view
_base_of: Any = np.ndarray.base.__get__
_flags_of: Any = np.ndarray.flags.__get__
_flat_of: Any = np.ndarray.flat.__get__
# To set the attribute is deprecated since NumPy 2.5.
_shape: Any = np.ndarray.shape
_set_shape: Any = getattr(np.ndarray, "_set_shape", _shape.__set__)


class Sink(Protocol):
    """The receiver of accesses."""

    def note(self, reads: Arrays, writes: Arrays, device: Any) -> None:
        """Note one operation of the program, on the thread that carries it out.

        ``reads`` and ``writes`` are plain arrays over exactly the elements that the operation reads and writes; some of
        them may be `offload.sanitizer.elements.Scattered`. The reads come first. ``device`` is the device whose hidden
        storage the arrays lie in, or None for host arrays.
        """

    def ignores(self, array: np.ndarray[Any, Any]) -> bool:
        """Tell whether an access to elements of a host array, by the calling thread, need not be noted; count it then.

        Loops over single elements ask, as it takes longer to tell which elements an access has.
        """

    def given_away(self, storage: np.ndarray[Any, Any], device: Any) -> None:
        """Note that the program has received memory whose accesses cannot be seen from now on."""

    def lent(self, storage: np.ndarray[Any, Any]) -> Callable[[], None]:
        """Note that compiled code has received host memory. Return a function that takes the note back.

        It is called if the code has given the memory back before the program goes on. All its accesses are noted then.
        """


sink: Sink | None = None


def set_sink(new: Sink | None) -> Sink | None:
    """Have another sink receive the accesses, or none; return the sink before it."""
    global sink  # one for the process, as arrays belong to no runtime
    before, sink = sink, new
    # The arrays that the program gets from the library are tracked too, if the program has the tracked NumPy.
    given.namespace = face[0] if new is not None and face else np
    return before


face: list[Any] = []
"""The tracked NumPy, once the program has it."""


# -- whose access it is ----------------------------------------------------------------------------

_PASSED = frozenset({"numpy", "copy", "pickle"})
_PASSED_MODULES = frozenset(
    f"offload.{name}"
    for name in (
        *("sanitizer.tracked", "sanitizer.faces", "sanitizer.flats"),
        *("devices.sim.array", "devices.sim.namespace", "devices.sim.random", "devices.sim.watched"),
    )
)
"""These carry out operations that others ask for: the code that called them makes the access."""

_is_passed: dict[Any, bool] = {}


def accessor(frame: FrameType) -> FrameType | None:
    """Return the frame of the program that makes an access, from the frame that NumPy was called in or further in.

    It is None if the library makes the access. If a function of NumPy is itself a body, it is the library's that calls
    bodies.
    """
    outer: FrameType | None = frame
    while outer is not None:
        frame = outer
        module = frame.f_globals.get("__name__")
        is_passed = _is_passed.get(module)
        if is_passed is None:
            is_passed = isinstance(module, str) and (module.partition(".")[0] in _PASSED or module in _PASSED_MODULES)
            _is_passed[module] = is_passed
        if not is_passed:
            return None if is_own(module) and not is_calling_program(frame) else frame  # NumPy's may be a body
        outer = frame.f_back
    return frame


# -- plain and tracked -----------------------------------------------------------------------------


def is_tracked(value: object) -> bool:
    """Tell whether a value is a tracked array; ``isinstance`` holds for every NumPy array."""
    return type(value) is TrackedArray


def tracked(a: np.ndarray[Any, Any]) -> TrackedArray:
    """Return a tracked view of an array.

    Parameters
    ----------
    a : numpy.ndarray
        An array of any shape and dtype. The elements of a subclass's array are tracked as plain elements.

    Returns
    -------
    TrackedArray
        An array over the same memory; ``a`` itself if it is tracked.

    Raises
    ------
    TypeError
        ``a`` is not a NumPy array.

    Examples
    --------
    >>> from offload.sanitizer import tracked
    >>> a = np.zeros(3)
    >>> t = tracked(a)
    >>> t[0] = 1.0
    >>> a
    array([1., 0., 0.])
    """
    if type(a) is TrackedArray:
        return a
    if not isinstance(a, np.ndarray):
        raise TypeError(f"tracked() got a {type(a).__name__}; it takes a NumPy array, such as np.asarray(a)")
    return _view(a, TrackedArray)


def plain(value: Any, found: Found, outer: tuple[Any, ...] = ()) -> Any:
    """Return a value with plain views of the tracked arrays in it, which may lie in lists, tuples and dicts.

    Every tracked array and its view are added to ``found``. A container without any is returned itself, and so is one
    of the containers that it lies in, ``outer``.
    """
    kind = type(value)
    if kind is TrackedArray:
        view = _view(value, np.ndarray)
        found.append((value, view))
        return view
    if (kind is list or kind is tuple or kind is dict) and not any(value is one for one in outer):
        n_before = len(found)
        inner = (*outer, value)
        parts = [plain(part, found, inner) for part in (value.values() if kind is dict else value)]
        if len(found) != n_before:
            return dict(zip(value, parts, strict=True)) if kind is dict else kind(parts)
    return value


def wrapped(result: Any, found: Found, depth: int = 2) -> Any:
    """Return a result with tracked arrays in place of plain ones; arrays that were arguments become those again.

    A function returns arrays in lists and tuples up to a ``depth``. `numpy.histogramdd` needs 2.
    """
    kind = type(result)
    if kind is np.ndarray:
        for array, view in found:
            if result is view:
                return array
        new = _view(result, TrackedArray)
        if result.base is None:
            new._is_whole = True  # noqa: SLF001  # of this file
        return new
    if depth and (kind is list or kind is tuple):
        return kind([wrapped(part, found, depth - 1) for part in result])
    if depth and isinstance(result, tuple) and hasattr(result, "_fields"):
        return kind(*[wrapped(part, found, depth - 1) for part in result])
    return result


def carry_out(function: Callable[..., Any], args: Iterable[Any], kwargs: Mapping[str, Any], frame: FrameType) -> Any:
    """Call a function of NumPy with plain views of tracked arrays, note the accesses, and return a tracked result."""
    found: Found = []
    plain_args = [plain(value, found) for value in args]
    kwargs = plain(dict(kwargs), found) if kwargs else kwargs
    if function in KEEPS_LISTS:  # a list may become an element of an array of objects
        result = function(*(plain(value, found, (value,)) for value in args), **kwargs)
    else:
        result = function(*plain_args, **kwargs)
    if sink is not None and accessor(frame) is not None and not any(map(_is_foreign, (*plain_args, kwargs))):
        note(*accesses_of(function, plain_args, kwargs, result))
    return wrapped(result, found)


def _is_foreign(value: Any) -> bool:
    """Tell whether a value is, or holds, another library's array, which carries the operation out itself."""
    if isinstance(value, np.ndarray):
        return False
    if isinstance(value, list | tuple):
        return any(hasattr(type(part), "__array_function__") and _is_foreign(part) for part in value)
    if isinstance(value, dict):
        return any(map(_is_foreign, value.values()))
    return hasattr(type(value), "__array_function__")


def note(reads: Arrays, writes: Arrays) -> None:
    """Note accesses of host arrays, if there are any."""
    if sink is not None and (reads or writes):
        sink.note(reads, writes, None)


def give_away(array: Any, frame: FrameType) -> None:
    """Note that the program gets the memory of an array in a form that cannot be seen."""
    if sink is not None and accessor(frame) is not None:
        sink.given_away(_view(array, np.ndarray), None)


# -- the class -------------------------------------------------------------------------------------


class _Kind(type):
    """The class of `TrackedArray`. It makes the class stand for ndarray in a program that has it under that name."""

    def __new__(cls, name: str, bases: tuple[type, ...], names: dict[str, Any]) -> Any:
        if any(isinstance(base, _Kind) for base in bases):
            # A subclass of the program has operations of its own, and is tracked as little as NumPy's subclasses are.
            others = (np.ndarray if isinstance(base, _Kind) else base for base in bases)
            return type(name, tuple(others), names)
        return super().__new__(cls, name, bases, names)

    @property
    def __name__(cls) -> str:  # type: ignore[override]  # of a class it can be set
        return "ndarray"

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is np.ndarray

    def __hash__(cls) -> int:
        return hash(np.ndarray)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, np.ndarray)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, np.ndarray)


class TrackedArray(np.ndarray, metaclass=_Kind):
    """An array whose accesses by the program are noted. Make one by `tracked`."""

    __slots__ = ("_is_whole",)  # and no other attributes, as an array
    _is_whole: bool
    """Whether the array stands for the one that owns its memory, which nobody else has."""

    # -- NumPy's protocols -----------------------------------------------------------------------
    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        function = ufunc if method == "__call__" else getattr(ufunc, method)
        outs = kwargs.get("out")
        if outs is not None and len(outs) == 1:
            kwargs["out"] = outs[0]
        return carry_out(function, inputs, kwargs, frame_at(1))

    def __array_function__(
        self, func: Callable[..., Any], types: Any, args: Iterable[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        if is_native(func):
            return wrapped(super().__array_function__(func, types, args, kwargs), [])
        return carry_out(func, args, kwargs, frame_at(1))

    # -- elements --------------------------------------------------------------------------------
    def __getitem__(self, index: Any) -> Any:
        result = np.ndarray.__getitem__(self, index)
        if type(result) is TrackedArray and type(_base_of(result)) is np.ndarray:
            result = wrapped(_base_of(result), [])  # a copy, by a mask or an index array
        if sink is not None and type(self) is TrackedArray and accessor(frame_at(1)) is not None:
            if _is_element(index) and not isinstance(result, np.ndarray) and sink.ignores(_view(self, np.ndarray)):
                return result
            found: Found = []
            note(*accesses_of_method("__getitem__", plain(self, found), (plain(index, found),), {}))
        return result

    def __setitem__(self, index: Any, value: Any) -> None:
        if type(self) is not TrackedArray:
            np.ndarray.__setitem__(self, index, value)
            return
        array = _view(self, np.ndarray)
        array[index] = value
        if sink is not None and accessor(frame_at(1)) is not None:
            if _is_element(index) and isinstance(value, int | float | complex | np.generic) and sink.ignores(array):
                return
            found: Found = []
            note(*accesses_of_method("__setitem__", array, (plain(index, found), plain(value, found)), {}))

    # -- attributes ------------------------------------------------------------------------------
    @property  # type: ignore[misc]  # it cannot be set
    def __class__(self) -> Any:
        return np.ndarray if type(self) is TrackedArray else type(self)

    @property
    def base(self) -> Any:
        """See `numpy.ndarray.base`."""
        return None if _is_whole(self) else _base_of(self)

    @property
    def flags(self) -> Any:
        """See `numpy.ndarray.flags`."""
        return TrackedFlags(_flags_of(self)) if _is_whole(self) else _flags_of(self)

    @property
    def flat(self) -> Any:
        """See `numpy.ndarray.flat`."""
        return TrackedFlat(self, _flat_of(_view(self, np.ndarray)), partial(_note_elements, self), wrapped)

    @flat.setter
    def flat(self, value: Any) -> None:
        _set(self, "flat", value, self, frame_at(1))

    @property
    def real(self) -> Any:
        """See `numpy.ndarray.real`."""
        return np.ndarray.real.__get__(self)

    @real.setter
    def real(self, value: Any) -> None:
        _set(self, "real", value, self.real, frame_at(1))

    @property
    def imag(self) -> Any:
        """See `numpy.ndarray.imag`."""
        return np.ndarray.imag.__get__(self)

    @imag.setter
    def imag(self, value: Any) -> None:
        _set(self, "imag", value, self.imag, frame_at(1))

    @property
    def data(self) -> Any:
        """See `numpy.ndarray.data`."""
        give_away(self, frame_at(1))
        return np.ndarray.data.__get__(_view(self, np.ndarray))

    @property
    def ctypes(self) -> Any:
        """See `numpy.ndarray.ctypes`."""
        give_away(self, frame_at(1))
        return np.ndarray.ctypes.__get__(self)

    @property
    def _baseclass(self) -> Any:
        # `numpy.ma` asks for the class of an array that it is about to look at without the array's operations.
        give_away(self, frame_at(1))
        return np.ndarray

    # -- methods ---------------------------------------------------------------------------------
    def __dlpack__(self, **options: Any) -> Any:
        give_away(self, frame_at(1))
        return np.ndarray.__dlpack__(self, **options)

    def view(self, *args: Any, **kwargs: Any) -> Any:
        """See `numpy.ndarray.view`."""
        kind = args[-1] if args else kwargs.get("type")
        if kind is np.ndarray and accessor(frame_at(1)) is not None:
            kind = TrackedArray  # for the program it is the same class
            args = (*args[:-1], kind) if args else args
            kwargs = {**kwargs, "type": kind} if not args else kwargs
        result = np.ndarray.view(self, *args, **kwargs)
        if type(result) is not TrackedArray:
            give_away(self, frame_at(1))
        return result

    def resize(self, *shape: Any, refcheck: bool = True) -> None:
        """See `numpy.ndarray.resize`. Other references to the array are not an error if NumPy allocated its memory."""
        if not _is_whole(self):
            np.ndarray.resize(self, *shape, refcheck=refcheck)
            return
        size = int(np.prod(shape[0] if len(shape) == 1 and shape[0] is not None else shape))
        if size == self.size and self.flags.c_contiguous:  # the memory stays
            _set_shape(self, shape[0] if len(shape) == 1 else shape)
            return
        if sink is not None and accessor(frame_at(1)) is not None:
            note([_view(self, np.ndarray)], [])
        new = _view(self, np.ndarray).copy("A")
        new.resize(*shape, refcheck=False)
        order = not new.flags.c_contiguous
        contents: Any = new.ravel("A").tolist() if new.dtype.hasobject else new.tobytes("A")
        self.__setstate__((1, new.shape, new.dtype, order, contents))  # type: ignore[arg-type]  # a plain bool
        self._is_whole = True  # its memory is that of `contents`, which nobody else has


def _buffer(self: Any, flags: int) -> memoryview:
    """Return the buffer for compiled code, and note that it is read, or written if it has to be writable."""
    array = _view(self, np.ndarray)
    view: memoryview = array.__buffer__(flags)  # type: ignore[attr-defined]  # since Python 3.12
    frame = frame_at(1)
    if sink is not None and accessor(frame) is not None and not buffers.is_quiet():
        note(*(([], [array]) if flags & buffers.WRITABLE else ([array], [])))
        buffers.watch(view, frame, sink.lent(array))
    return view


def _new(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Make an array, over the memory of another one if that is given: this is no access."""
    with buffers.quiet():
        return np.ndarray.__new__(cls, *args, **kwargs)


def _is_whole(array: TrackedArray) -> bool:
    try:
        return array._is_whole  # noqa: SLF001  # of this file
    except AttributeError:  # the slot is empty
        return False


def _is_element(index: Any) -> bool:
    """Tell whether an index has only Python's numbers, so that it takes an element or makes a view."""
    if type(index) is tuple:
        return all(type(item) is int for item in index)
    return type(index) is int


def _note_elements(array: TrackedArray, index: Any, *values: Any) -> None:
    """Note that elements of an array are read, or set to a value; the caller's caller is whose access it is."""
    if sink is not None and accessor(frame_at(1)) is not None:
        found: Found = []
        name = "__setitem__" if values else "__getitem__"
        note(*accesses_of_method(name, plain(array, found), (index, *plain(values, found)), {}))


def _set(array: TrackedArray, name: str, value: Any, part: Any, frame: FrameType) -> None:
    """Set elements by an attribute, and note that."""
    found: Found = []
    value = plain(value, found)
    setattr(_view(array, np.ndarray), name, value)
    if sink is not None and accessor(frame) is not None:
        note(*accesses_of_method("__setitem__", _view(part, np.ndarray), (..., value), {}))


_CONVERTED = """
    all any argmax argmin argpartition argsort choose clip compress conj conjugate cumprod cumsum dot dump dumps fill
    item max mean min nonzero partition prod put repeat round searchsorted setfield sort std sum take tobytes tofile
    tolist tostring trace var
    __bool__ __complex__ __contains__ __float__ __format__ __index__ __int__ __reduce__ __reduce_ex__ __repr__ __str__
"""
"""Methods that are carried out on plain views. The operators are ufuncs, and come to ``__array_ufunc__``."""

_GIVE_ELEMENTS = frozenset({"item", "tolist"})
"""Methods whose result is an element, or a list of elements, which may be any objects."""

_NATIVE = "astype byteswap copy flatten ravel reshape __copy__ __deepcopy__"
"""Methods that keep the class of their array, and give an array."""


def _converted(name: str) -> Callable[..., Any]:
    function = getattr(np.ndarray, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if type(self) is not TrackedArray:
            return function(self, *args, **kwargs)
        found: Found = []
        array = plain(self, found)
        args = tuple([plain(value, found) for value in args])
        kwargs = plain(kwargs, found)
        result = function(array, *args, **kwargs)
        if sink is not None and accessor(frame_at(1)) is not None:
            note(*accesses_of_method(name, array, args, kwargs, result))
        return result if name in _GIVE_ELEMENTS else wrapped(result, found)

    return _like(method, function)


def _native(name: str) -> Callable[..., Any]:
    function = getattr(np.ndarray, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = function(self, *args, **kwargs)
        if sink is not None and type(self) is TrackedArray and accessor(frame_at(1)) is not None:
            found: Found = []
            array, *rest = (plain(value, found) for value in (self, *args))
            note(*accesses_of_method(name, array, rest, kwargs, plain(result, found)))
        return result

    return _like(method, function)


def _like(method: Any, function: Any) -> Callable[..., Any]:
    method.__name__, method.__doc__ = function.__name__, function.__doc__
    method.__qualname__ = f"ndarray.{function.__name__}"
    return method  # type: ignore[no-any-return]  # what was given


for _name in _CONVERTED.split():
    if _name in dir(np.ndarray):
        setattr(TrackedArray, _name, _converted(_name))
for _name in _NATIVE.split():
    setattr(TrackedArray, _name, _native(_name))
if buffers.ARE_SEEN:
    TrackedArray.__buffer__ = _like(_buffer, np.ndarray.__buffer__)  # type: ignore[attr-defined]  # since Python 3.12
    TrackedArray.__new__ = _new  # type: ignore[method-assign]  # NumPy asks for the buffer that it is given
# What a program prints of the class, and what errors say of it, is the same as without the sanitizer.
type.__dict__["__name__"].__set__(TrackedArray, "numpy.ndarray")  # what errors of C say
TrackedArray.__qualname__ = "ndarray"
TrackedArray.__module__ = "numpy"


class DeviceWatch:
    """Passes the operations on the arrays of simulated devices to a sink (`offload.devices.kind.ArrayWatch`).

    Parameters
    ----------
    sink : Sink
        Receives the accesses, with the device.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def called(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, device: Any
    ) -> None:
        """Note a call of a NumPy function with the hidden storage of a device's arrays."""
        found: Found = []
        args = [plain(value, found) for value in args]
        kwargs = plain(dict(kwargs), found)
        reads, writes = accesses_of(function, args, kwargs, result)
        if found:  # host arrays, which some functions copy to the device
            hosts = [view for _, view in found]
            self._sink.note([array for array in reads if any(array is host for host in hosts)], [], None)
            reads = [array for array in reads if not any(array is host for host in hosts)]
        if reads or writes:
            self._sink.note(reads, writes, device)

    def accessed(self, reads: Arrays, writes: Arrays, device: Any) -> None:
        """Note an operation that reads and writes the hidden storage of a device's arrays."""
        self._sink.note(reads, writes, device)

    def given_away(self, storage: np.ndarray[Any, Any], device: Any) -> None:
        """Note that the program has received the hidden storage of an array."""
        self._sink.given_away(storage, device)
