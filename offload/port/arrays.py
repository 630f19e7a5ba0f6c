"""The device array of the stand-in: a proxy over NumPy's array on ``sim``, over CuPy's on ``cuda``.

A proxy has two arrays. ``data`` computes. ``shadow`` is a NumPy array of the same shape and strides, whose addresses
tell the bytes of an access. On ``sim`` they are one array. On ``cuda`` the shadow lies in address space that is
reserved and never touched.

The proxy behaves as CuPy's array: elements and reductions are 0-d device arrays, it does not become a host array by
itself, and it does not mix with one.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from offload.arrays.proxies import ArrayProxy
from offload.port.extents import part_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from offload.port.extents import AccessPart

    Storage = np.ndarray[Any, Any]


class ArrayCalls(Protocol):
    """The operations that a proxy hands on; see `offload.port.machine.ArrayMachine`."""

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call a NumPy function or ufunc."""

    def call_method(self, name: str, array: PortArray, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call a method of the array."""

    def get_item(self, array: PortArray, index: Any) -> PortArray:
        """Return ``array[index]``."""

    def set_item(self, array: PortArray, index: Any, value: Any) -> None:
        """Carry out ``array[index] = value``."""

    def to_host(
        self,
        array: PortArray,
        call: str,
        stream: Any = None,
        order: str = "C",
        out: Any = None,
        *,
        blocking: bool = True,
    ) -> Storage:
        """Copy to the host."""

    def scalar(self, array: PortArray, call: str) -> Any:
        """Return the array as NumPy's, for a number or text on the host, after a copy that the host waits for."""

    def from_host(self, array: PortArray, host: Any, stream: Any) -> None:
        """Copy from the host."""

    def part_of(self, array: PortArray, data: Any) -> PortArray:
        """Return the proxy of a view of ``array.data``."""

    def new(self, shape: Any, dtype: Any, order: str) -> PortArray:
        """Return a new array whose elements are not written."""

    def unsupported(self, what: str, why: str = "", *, owner: str = "cupy") -> Exception:
        """Return the error for something that the stand-in does not have."""

    @property
    def device(self) -> Any:
        """The device of all arrays."""


class PortMemory:
    """One allocation on the device, as long as an array lies in it."""

    __slots__ = ("native", "nbytes", "number", "origin", "root")

    def __init__(self, number: int, root: Storage, origin: int, nbytes: int, native: Any) -> None:
        self.number = number  # of the storage, in the log
        self.root = root  # keeps the memory of the shadows
        self.origin = origin  # the address of the first byte
        self.nbytes = nbytes
        self.native = native  # CuPy's object for the memory, and the pointer of its first byte; None on the host

    def contains(self, address: int) -> bool:
        """Tell whether the byte at an address of a shadow is in this memory."""
        return self.origin <= address < self.origin + self.nbytes


class MemoryPointer:
    """The attribute ``data`` of an array, for its address."""

    __slots__ = ("_calls", "ptr")

    def __init__(self, ptr: int, calls: ArrayCalls) -> None:
        self.ptr = ptr
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._calls.unsupported(name, owner="cupy.cuda.MemoryPointer")


def _method(name: str) -> Callable[..., Any]:
    def method(self: PortArray, *args: Any, **kwargs: Any) -> Any:
        return self.calls.call_method(name, self, args, kwargs)

    method.__name__, method.__doc__ = name, f"See `numpy.ndarray.{name}`."
    return method


class PortArray(ArrayProxy):
    """An array on the device; ``cupy.ndarray`` is a subclass, which knows what carries out the operations.

    Parameters
    ----------
    shape, dtype, order
        As CuPy's: the elements are not initialised.
    memptr, strides
        Refused.
    """

    __slots__ = ("array_data", "memory")
    __hash__ = None  # type: ignore[assignment]  # as CuPy's and NumPy's

    calls: ClassVar[ArrayCalls]
    array_data: Any
    memory: PortMemory

    def __init__(
        self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: str = "C"
    ) -> None:
        if memptr is not None or strides is not None:
            raise self.calls.unsupported("ndarray(memptr=…, strides=…)")
        made = self.calls.new(shape, dtype, order)
        self.array_data, self._storage, self.memory = made.array_data, made.array_shadow, made.memory

    @classmethod
    def over(cls, data: Any, shadow: Storage, memory: PortMemory) -> PortArray:
        """Return the proxy of an array."""
        array = object.__new__(cls)
        array.array_data, array._storage, array.memory = data, shadow, memory
        return array

    @property
    def array_shadow(self) -> Storage:
        """The array whose addresses tell the bytes of an access."""
        return self._storage

    @property
    def storage_number(self) -> int:
        """The number of the storage in the log."""
        return self.memory.number

    @property
    def whole_part(self) -> AccessPart:
        """The bytes of the array."""
        return part_of(self._storage, self.memory.number, self.memory.origin)

    # -- what can be said without a look at the elements -----------------------------------------
    @property
    def device(self) -> Any:
        """The device."""
        return self.calls.device

    @property
    def data(self) -> MemoryPointer:
        """The address of the first element."""
        return MemoryPointer(self._storage.__array_interface__["data"][0], self.calls)

    @property
    def base(self) -> Any:
        """None: which array a view was made from is not known."""
        return None

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each dimension."""
        return self._storage.shape  # type: ignore[no-any-return]

    @shape.setter
    def shape(self, shape: Any) -> None:
        reshaped = self.reshape(shape)
        if reshaped.memory is not self.memory:
            raise AttributeError("incompatible shape")
        self.array_data, self._storage = reshaped.array_data, reshaped.array_shadow

    # -- protocols of NumPy ----------------------------------------------------------------------
    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if not all(isinstance(value, _OPERANDS) for value in inputs) and method == "__call__":
            return NotImplemented
        return self.calls.call(ufunc if method == "__call__" else getattr(ufunc, method), inputs, kwargs)

    def __array_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        return self.calls.call(func, args, kwargs)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Storage:
        raise TypeError(
            "implicit conversion of a device array to a host array is not allowed; use .get(), as CuPy requires"
        )

    @property
    def __cuda_array_interface__(self) -> Any:
        raise self.calls.unsupported("ndarray.__cuda_array_interface__", "another library's accesses cannot be seen")

    # -- to and from the host --------------------------------------------------------------------
    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> Storage:
        """Copy to a host array: a new one, or ``out``."""
        return self.calls.to_host(self, "get", stream, order, out, blocking=blocking)

    def set(self, arr: Any, stream: Any = None) -> None:
        """Copy from a host array of the same shape and dtype."""
        self.calls.from_host(self, arr, stream)

    def item(self, *args: Any) -> Any:
        """Return one element as a Python scalar."""
        return self.calls.scalar(self, "item").item(*args)

    def tolist(self) -> Any:
        """Return the elements as Python scalars, in lists."""
        return self.calls.scalar(self, "tolist").tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        """Return the bytes of the elements."""
        return self.calls.scalar(self, "tobytes").tobytes(order)  # type: ignore[no-any-return]

    def __float__(self) -> float:
        return float(self.calls.scalar(self, "float").item())

    def __int__(self) -> int:
        return int(self.calls.scalar(self, "int").item())

    def __complex__(self) -> complex:
        return complex(self.calls.scalar(self, "complex").item())

    def __bool__(self) -> bool:
        if self.size > 1:
            raise ValueError("the truth value of an array with more than one element is ambiguous; use any() or all()")
        return bool(self.calls.scalar(self, "bool"))

    def __index__(self) -> int:
        return operator.index(self.calls.scalar(self, "int").item())

    def __bytes__(self) -> bytes:
        return self.tobytes()

    def __format__(self, format_spec: str) -> str:
        return format(self.calls.scalar(self, "format")[()], format_spec)

    def __repr__(self) -> str:
        return repr(self.calls.scalar(self, "repr"))

    def __str__(self) -> str:
        return str(self.calls.scalar(self, "str"))

    def __reduce__(self) -> Any:
        raise self.calls.unsupported("pickle of an array", "pickle its .get()")

    # -- parts -----------------------------------------------------------------------------------
    @property
    def T(self) -> PortArray:  # noqa: N802  # NumPy's name
        """The transposed array, a view."""
        return self.calls.part_of(self, self.array_data.T)

    @property
    def real(self) -> PortArray:
        """The real part, a view."""
        return self.calls.part_of(self, self.array_data.real)

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value

    @property
    def imag(self) -> PortArray:
        """The imaginary part: a view, or zeros for a real array."""
        if self.dtype.kind == "c":
            return self.calls.part_of(self, self.array_data.imag)
        return self.calls.call(np.zeros_like, (self,), {})  # type: ignore[no-any-return]

    @imag.setter
    def imag(self, value: Any) -> None:
        if self.dtype.kind != "c":
            raise TypeError("cupy.ndarray does not have imaginary part to set")
        self.imag[...] = value

    def view(self, dtype: Any = None) -> PortArray:
        """Return a view, also with another dtype."""
        return self.calls.part_of(self, self.array_data.view() if dtype is None else self.array_data.view(dtype))

    def __getitem__(self, index: Any) -> PortArray:
        return self.calls.get_item(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.calls.set_item(self, index, value)

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    # -- ndarray's methods -----------------------------------------------------------------------
    all, any, argmax, argmin = map(_method, ("all", "any", "argmax", "argmin"))
    argpartition, argsort, astype, choose = map(_method, ("argpartition", "argsort", "astype", "choose"))
    clip, compress, conj, conjugate = map(_method, ("clip", "compress", "conj", "conjugate"))
    copy, cumprod, cumsum, diagonal = map(_method, ("copy", "cumprod", "cumsum", "diagonal"))
    dot, fill, flatten, max, mean = map(_method, ("dot", "fill", "flatten", "max", "mean"))
    min, nonzero, partition, prod, put = map(_method, ("min", "nonzero", "partition", "prod", "put"))
    ravel, repeat, reshape, round = map(_method, ("ravel", "repeat", "reshape", "round"))
    searchsorted, sort, squeeze, std, sum = map(_method, ("searchsorted", "sort", "squeeze", "std", "sum"))
    swapaxes, take, trace, transpose, var = map(_method, ("swapaxes", "take", "trace", "transpose", "var"))


_OPERANDS = (PortArray, bool, int, float, complex, np.generic, np.ndarray)
