"""List items: the arrays and sections that a ``map``, ``update`` or ``depend`` clause names, and their storage.

A list item is an array (any view of one), a section of one, a string in OpenMP's notation that is
resolved when the construct is encountered, or, in ``depend`` only, any other hashable value.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, ValuesView
from ctypes import c_size_t
from io import IOBase
from operator import index
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from offload.arrays.foreign import DLPACK_HOST, READERS, check_numbers, is_tensor, reader_of, tensor_place
from offload.arrays.sections import HOST, Section, section_of
from offload.errors import ClauseError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence


# By class and name, what `declare_mapper` declared: for the process, since classes are too.
MAPPERS: dict[tuple[type, str], Callable[[Any], Any]] = {}


def mapper_of(item: object, name: str | None = None) -> Callable[[Any], Any] | None:
    """Return the mapper of this name (None: ``"default"``) of the nearest class along the item's MRO, if there is."""
    if not MAPPERS:
        return None
    wanted = name or "default"
    return next((MAPPERS[cls, wanted] for cls in type(item).__mro__ if (cls, wanted) in MAPPERS), None)


# Types whose values are neither arrays nor anything that has a mapper.
SCALARS = frozenset({bool, int, float, complex, str, bytes, type(None), *np.sctypeDict.values()})

# Types whose values are locations of their own in ``depend``, if they can be hashed.
VALUES = SCALARS | {tuple, frozenset, range}


class Token(NamedTuple):
    """One storage location of its own, named by a hashable value."""

    value: Hashable


class PlaceToken(Token):
    """The place of a number that a clause names besides the number itself.

    A recorded graph shows an edge because of it only between tasks that have no other edge.
    """

    __slots__ = ()


def as_host(item: Any) -> Any:
    """Return the NumPy array over the host memory that an object of another library exposes; else the object itself.

    A mapper of the object's class comes first. Raise `ClauseError` if the memory cannot be used.
    """
    if MAPPERS and mapper_of(item) is not None:
        return item
    kind = type(item)
    read = READERS[kind] if kind in READERS else reader_of(item)
    return item if read is None else read(item)


def held_host(item: Any) -> Any:
    """Return an object that no clause names as `as_host` does; leave ``bytes``, and memory that cannot be used."""
    if item.__class__ in SCALARS:
        return item
    try:
        return as_host(item)
    except ClauseError:
        return item


def with_numbers(value: Any, what: str) -> Any:
    """Return a value as `as_host` does, for code that computes with the elements.

    Raise `UnsupportedError` for a tensor whose numbers NumPy lacks; messages call the value ``what``.
    """
    if value.__class__ is np.ndarray or value.__class__ in SCALARS:
        return value
    host = as_host(value)
    check_numbers(value, host, what)
    return host


def layout_of(array: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    """Return everything that two arrays over the same host memory, taken alike, have in common."""
    described = array.__array_interface__
    return described["data"], array.shape, array.strides, array.dtype  # with whether it is read-only


SECTION_READERS: dict[type, Callable[[Any], Section]] = {}
"""For each class of device arrays that a kind of device knows, the function that returns an array's storage.

Other arrays are asked for their interface. A CuPy array takes 2 µs to describe itself so, and a clause asks several
times.
"""


def add_section_reader(kind: type, read: Callable[[Any], Section]) -> None:
    """Register the function that returns the storage of an array of a class, which has no memory of the host."""
    SECTION_READERS[kind] = read
    READERS[kind] = None


def host_items(items: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return list items with a NumPy array for each object of another library that exposes host memory."""
    for item in items:
        if item.__class__ not in _PLAIN:
            return tuple([item if item.__class__ in _PLAIN else as_host(item) for item in items])
    return items


def identities_of(items: tuple[Any, ...], hosts: tuple[Any, ...]) -> list[Any]:
    """Return keys of list items: the id of a NumPy array, and the layout of the view of another library's array."""
    return [id(host) if host is item else layout_of(host) for item, host in zip(items, hosts, strict=True)]


_PLAIN = (np.ndarray, str)


def is_device_array(item: object) -> bool:
    """Tell whether ``item`` is an array in the memory of some device."""
    if type(item) in SECTION_READERS:
        return True
    if isinstance(item, type):
        return False  # the class of such arrays, which has the names below, too
    if hasattr(item, "__offload_section__"):
        return True
    try:
        return hasattr(item, "__cuda_array_interface__")
    except Exception:  # noqa: BLE001  # a library may refuse to export the array
        return is_tensor(item) and tensor_place(item)[0] == "cuda"


_DLPACK_NAMES = {2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda", 14: "oneapi"}


def is_foreign(item: object) -> bool:
    """Tell whether ``item``, not a NumPy array, is another library's array in the memory of a device, by DLPack."""
    described = getattr(item, "__dlpack_device__", None)
    if described is None or isinstance(item, type):
        return False
    try:
        return int(described()[0]) not in DLPACK_HOST
    except Exception:  # noqa: BLE001  # a tensor without memory, for example
        return False


def dlpack_place(array: Any) -> tuple[str, int]:
    """Return the device of an array by DLPack, as a section of device memory names it."""
    kind, index = map(int, array.__dlpack_device__())
    return _DLPACK_NAMES.get(kind, f"DLPack device type {kind},"), index


def holder(array: Any) -> str:
    """Return the name of the device that a device array is on, as far as the array says."""
    device = getattr(array, "device", None)
    if hasattr(array, "__offload_section__"):
        return str(getattr(device, "name", device))
    if hasattr(array, "__dlpack_device__"):
        kind, index = dlpack_place(array)
        return f"{kind}:{index}"
    return f"cuda:{getattr(device, 'id', '?')}"


# -- addresses -------------------------------------------------------------------------------------
# NumPy says the address of an array in `__array_interface__`, where it describes the dtype as well: 1.2 µs, as much as
# all the rest of a list item. The address is the first field of an array behind what every Python object begins with
# (`PyArrayObject_fields`, which NumPy's C API has had from its beginning), and is read there in 0.2 µs.

_HEAD_NBYTES = object.__basicsize__
_read = c_size_t.from_address


def _asked(array: np.ndarray[Any, Any]) -> int:
    """Return the address as NumPy says it."""
    address: int = array.__array_interface__["data"][0]
    return address


def address_reader(head_nbytes: int = _HEAD_NBYTES) -> Callable[[np.ndarray[Any, Any]], int]:
    """Return a function that reads addresses from arrays if it agrees with NumPy about some arrays; else NumPy's."""

    def looked_up(array: np.ndarray[Any, Any]) -> int:
        return _read(id(array) + head_nbytes).value

    whole = np.zeros((4, 6))
    arrays = (whole, whole[1:, 2:], whole[::-1, ::2], whole[:0], np.zeros(()), np.zeros(3, "u1").view(np.recarray))
    return looked_up if all(looked_up(array) == _asked(array) for array in arrays) else _asked


address_of = address_reader()  # Return the address of element ``(0, …, 0)`` of a host array, in bytes


class _Asking:
    """Asks NumPy for the address of an array."""

    __slots__ = ("_array",)

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array

    @property
    def value(self) -> int:
        return _asked(self._array)


def address_cell(array: np.ndarray[Any, Any]) -> Any:
    """Return an object whose ``value`` is the current address of a host array, while the array lives."""
    # To make it takes as long as `address_of`, to read it a sixth of that.
    return _Asking(array) if address_of is _asked else _read(id(array) + _HEAD_NBYTES)


_new_tuple = tuple.__new__


def array_section(array: Any) -> Section:
    """Return the storage that a host or device array covers.

    Raise `ClauseError` if ``array`` is no array, or an array of Python objects.
    """
    is_plain = array.__class__ is np.ndarray
    if is_plain or isinstance(array, np.ndarray):
        if not is_plain and isinstance(array, (np.ma.MaskedArray, np.matrix)):
            raise ClauseError(
                f"a {type(array).__name__} cannot be a list item, because device arrays have neither masks nor matrix "
                "products; pass plain arrays, for example x.data and x.mask"
            )
        if array.dtype.hasobject:
            raise ClauseError(
                f"an array of dtype {array.dtype} cannot be a list item: it holds references to Python objects, which "
                "a device cannot use; use a numeric or structured dtype"
            )
        if array.flags.c_contiguous:  # what `section_of` returns, whose call takes 0.2 µs
            return _new_tuple(Section, (HOST, address_of(array), (), array.nbytes))
        return section_of(HOST, address_of(array), array.shape, array.strides, array.itemsize)
    read = SECTION_READERS.get(type(array))
    if read is not None:
        return read(array)
    if is_device_array(array):
        own = getattr(array, "__offload_section__", None)
        section: Section = _device_section(array) if own is None else own()
        return section
    host = as_host(array)
    if host is not array:
        return array_section(host)
    raise ClauseError(
        f"{type(array).__name__} {array!r:.60} is not a list item; use an array, a view of one, section(…) or a string"
    )


def _device_section(array: Any) -> Section:
    """Return the storage of another library's array in the memory of a CUDA device."""
    if is_tensor(array):  # which does not describe itself if it requires grad
        itemsize = array.element_size()
        strides = [stride * itemsize for stride in array.stride()]
        return section_of(tensor_place(array), array.data_ptr(), tuple(array.shape), strides, itemsize)
    described = array.__cuda_array_interface__
    itemsize = np.dtype(described["typestr"]).itemsize
    index = getattr(getattr(array, "device", None), "id", None)
    if index is None:
        index = array.__dlpack_device__()[1] if hasattr(array, "__dlpack_device__") else 0
    return section_of(
        ("cuda", int(index)), described["data"][0], described["shape"], described.get("strides"), itemsize
    )


def locator(item: Any) -> Section | Token:
    """Return the location of a ``depend`` item: the storage of an array, or a location of its own.

    Raise `ClauseError` if the item is neither an array nor hashable, or is an iterator.
    """
    if item.__class__ not in VALUES:
        if isinstance(item, np.ndarray) or is_device_array(item):
            return array_section(item)
        host = as_host(item)
        if host is not item:
            return array_section(host)
        _refuse_unordered(item)
    try:
        hash(item)
    except TypeError:
        raise ClauseError(
            f"{type(item).__name__} {item!r:.60} cannot be a depend item; "
            "use an array, section(…), a string or a hashable value"
        ) from None
    return Token(item)


_OF_ELEMENTS = (Iterator, AsyncIterator, ValuesView)


def _refuse_unordered(item: Any) -> None:
    """Raise `ClauseError` for an object that can be hashed, but not as the storage that the program means by it."""
    kind = type(item).__name__
    if isinstance(item, _OF_ELEMENTS) and not isinstance(item, IOBase):  # a file is a location of its own
        raise ClauseError(
            f"depend: {kind} {item!r:.60} is an iterator, not the items that it yields; name each of them, for example "
            "in_(*tiles)"
        )


def label(item: Any) -> str:
    """Return a short text for messages and graphs."""
    if isinstance(item, str):
        return item
    if isinstance(item, Token):
        return repr(item.value)
    if isinstance(item, np.ndarray) or is_tensor(item) or is_device_array(item):
        return str(Label(item))
    return repr(item)


class Label:
    """The text of `label` for an array, made only when it is read: a task that succeeds does not need it."""

    # The label does not keep the array.

    __slots__ = ("_dtype", "_name", "_shape")

    def __init__(self, array: Any, name: str = "") -> None:
        self._name = name
        try:
            self._dtype, self._shape = array.dtype, array.shape
        except AttributeError:
            self._dtype = getattr(array, "dtype", None) or type(array).__name__
            self._shape = getattr(array, "shape", "?")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Label):
            return NotImplemented
        return (self._name, self._dtype, self._shape) == (other._name, other._dtype, other._shape)

    def __hash__(self) -> int:
        return hash((self._name, self._dtype, self._shape))

    def __str__(self) -> str:
        text = f"{self._dtype}[{', '.join(map(str, self._shape))}]"
        return f"{self._name}: {text}" if self._name else text


class LeafLabel(Label):
    """The label of an array that a mapper maps: the name is the class of the object, and the mapper is kept."""

    __slots__ = ("mapper",)

    def __init__(self, array: Any, name: str, mapper: Callable[[Any], Any] | None) -> None:
        super().__init__(array, name)
        self.mapper = mapper


def section(a: Any, *dims: tuple[int | None, ...]) -> Any:
    """Return the array section of ``a`` that OpenMP writes ``a[lower:length:stride]…``.

    Parameters
    ----------
    a : array
        A host or device array.
    *dims : (lower, length) or (lower, length, stride)
        One tuple for each leading dimension. ``length`` is a number of elements. None takes the default: lower 0, all
        remaining elements, stride 1. Missing trailing dimensions are whole.

    Returns
    -------
    array
        A view of ``a``. You can also write the view itself in a clause.

    Raises
    ------
    ClauseError
        There are more dimensions than the array has, a stride is below 1, elements are outside of the array, or a value
        is not an integer.

    Notes
    -----
    OpenMP 5.2, 3.2.5 "Array Sections".

    Examples
    --------
    >>> a = np.arange(10)
    >>> omp.section(a, (2, 3))  # a[2:3] in OpenMP: three elements from a[2]
    array([2, 3, 4])
    >>> omp.section(a, (0, 3, 2))
    array([0, 2, 4])
    """
    whole = getattr(a, "__offload_whole__", None)  # a part of an attribute, in a body, counts on the host's array
    if whole is None:
        whole = a = a if is_tensor(a) else as_host(a)  # a tensor's views are tensors
    if not (isinstance(whole, np.ndarray) or is_tensor(whole) or is_device_array(whole)):
        raise ClauseError(f"section: {type(a).__name__} {a!r:.60} is not an array")
    if len(dims) > whole.ndim:
        raise ClauseError(f"section has {len(dims)} dimensions, but the array has {whole.ndim}; give at most that many")
    return a[tuple(_slice_of(dim, whole.shape, axis) for axis, dim in enumerate(dims))]


def _slice_of(dim: tuple[int | None, ...], shape: Sequence[int], axis: int, text: str = "") -> slice:
    """Return the slice of lower, length and stride in a dimension; ``text`` is an item of a string."""
    what, size = f"list item {text!r}" if text else "section", shape[axis]
    if type(dim) is not tuple or len(dim) not in (2, 3):
        raise ClauseError(f"{what}: dimension {axis} is {dim!r}; write (lower, length) or (lower, length, stride)")
    try:
        lower = 0 if dim[0] is None else index(dim[0])
        length = None if dim[1] is None else index(dim[1])
        stride = 1 if len(dim) == 2 or dim[2] is None else index(dim[2])
    except TypeError:
        from offload.arrays.wrong import not_integers  # only errors need it

        raise not_integers(dim, axis, text) from None
    if stride < 1:
        raise ClauseError(f"{what}: stride {stride} in dimension {axis}; a stride must be at least 1")
    if length is None:
        length = max(0, -(-(size - lower) // stride))
    last = lower + (length - 1) * stride
    if lower < 0 or length < 0 or lower > size or (length and last >= size):
        where = f"dimension {axis}, which has {size} elements"
        if len(shape) > 1:
            where = f"dimension {axis} of shape {tuple(shape)}; give each dimension its own lower and length"
        raise ClauseError(
            f"{what}: ({lower} : {length} : {stride}) reaches outside {where}; lower must be at least 0, and length is "
            "a count of elements, not an end"
        )
    return slice(lower, last + 1 if length else lower, stride)


# -- items written as strings ----------------------------------------------------------------------


class AllMemory:
    """The type of `all_memory`, the list item that stands for all storage in `out` and `inout`.

    Examples
    --------
    >>> x, y = np.zeros(3), np.zeros(3)
    >>> fill = omp.task(depend=[omp.out("a")])(lambda a: a.fill(2))
    >>> tasks = fill(x), fill(y)
    >>> total = omp.task(depend=[omp.inout(omp.all_memory)])(lambda: x.sum() + y.sum())
    >>> float(total().result())  # runs after both
    12.0
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "all_memory"

    def __reduce__(self) -> str:
        return "all_memory"


# OpenMP's ``omp_all_memory``: in ``out`` and ``inout``, every storage location there is (5.2, 3.2.2).
all_memory: Final = AllMemory()
