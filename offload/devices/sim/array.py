"""The array of the simulated device.

It wraps a NumPy array that nobody else sees, and behaves as CuPy's: NumPy's functions and operators work on
it, elements and reductions are 0-d device arrays, and it neither becomes a host array by itself nor mixes
with one. It is not an ndarray, because a subclass cannot refuse ``host[...] = d`` or ``np.asarray(d)``.

Every operation goes through the device's `apply`: unwrap the arguments, wait for the current stream, call NumPy, wrap
the result. A result that lies in the memory of an argument shares its block; any other is charged to the
device's account, so that temporaries count as they do on a GPU.

`get`, `set`, `item` and `unwrap` use an array's storage without `apply`, and say so to the device's `settle`. A device
whose arrays are watched has other forms of `apply` and `settle` (`offload.devices.sim.watched`).
"""
# ruff: noqa: SLF001  # the functions at the end are the class's own

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from offload.arrays import given
from offload.arrays.items import add_section_reader
from offload.arrays.proxies import ArrayProxy
from offload.devices.sim.poison import poison
from offload.devices.sim.protocols import StorageUse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from offload.arrays.sections import Section
    from offload.devices.sim.memory import SimBlock
    from offload.devices.sim.protocols import ArraysDevice

Storage: TypeAlias = np.ndarray[Any, Any]

# These take an array to write to as first argument, or would carry the data to the host in silence.
_WRITES_FIRST = frozenset({np.copyto, np.place, np.put, np.putmask, np.fill_diagonal, np.put_along_axis})
_LEAVES_DEVICE = frozenset({np.save, np.savez, np.savez_compressed, np.savetxt})

_WRITING = frozenset({"fill", "partition", "put", "sort"})
"""Methods that write elements of their array. Others write at most to ``out``, which is never the first argument."""

_READING = frozenset({"axis", "dtype", "keepdims"})
"""Named arguments with which no function of NumPy writes to a single argument besides."""

# These come here for `like=` alone, whose array says where the new one goes.
_CREATES: frozenset[Any] = frozenset(
    (
        *(np.arange, np.array, np.asanyarray, np.asarray, np.ascontiguousarray, np.asfortranarray, np.empty, np.eye),
        *(np.frombuffer, np.fromfile, np.fromfunction, np.fromiter, np.fromstring, np.full, np.genfromtxt),
        *(np.identity, np.loadtxt, np.ones, np.require, np.tri, np.zeros),
    )
)

CALLS_BACK = frozenset({np.apply_along_axis, np.apply_over_axes, np.mask_indices, np.pad, np.piecewise})
"""These call functions of the program with arrays: `apply_with_functions` is for them."""


def _method(name: str) -> Callable[..., Any]:
    """Return a method that calls ndarray's of that name, after the work of the current stream."""
    function = getattr(np.ndarray, name)

    def method(self: SimArray, *args: Any, **kwargs: Any) -> Any:
        writes = name in _WRITING or "out" in kwargs or any(isinstance(arg, SimArray) for arg in args[1:])
        return self._device.apply(function, (self, *args), kwargs, writes=writes)

    method.__name__, method.__doc__ = name, f"See `numpy.ndarray.{name}`."
    return method


def _view_method(name: str) -> Callable[..., Any]:
    """Return a method that makes a view, as ndarray's of that name does. It reads nothing, so it waits for nothing."""
    function = getattr(np.ndarray, name)

    def method(self: SimArray, *args: Any, **kwargs: Any) -> Any:
        return self._part(function(self._storage, *args, **kwargs))

    method.__name__, method.__doc__ = name, f"See `numpy.ndarray.{name}`."
    return method


class SimArray(ArrayProxy):
    """An array in the memory of a simulated device.

    Parameters
    ----------
    storage : numpy.ndarray
        The hidden storage, any shape and dtype.
    device : ArraysDevice
        The device that it belongs to.
    block : SimBlock
        The allocation that ``storage`` lies in.
    """

    __slots__ = ("_block", "_device")

    def __init__(self, storage: Storage, device: ArraysDevice, block: SimBlock) -> None:
        self._storage = storage
        self._device = device
        self._block = block  # shared by all views of one allocation

    @property
    def device(self) -> ArraysDevice:
        """The device whose memory this is in."""
        return self._device

    # -- NumPy's protocols -----------------------------------------------------------------------
    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        for output in kwargs.get("out", ()):
            if isinstance(output, np.ndarray):
                raise mixing_error(output)
        if method not in ("at", "reduceat"):  # their second argument is an index
            for value in inputs:
                if isinstance(value, (list, tuple)):
                    raise mixing_error(value)
                if not isinstance(value, _OPERANDS):
                    return NotImplemented
        elif isinstance(inputs[0], np.ndarray):
            raise mixing_error(inputs[0])
        function = ufunc if method == "__call__" else getattr(ufunc, method)
        for output in kwargs.get("out", ()):
            if isinstance(output, SimArray):
                output._note_write()
        return self._device.apply(function, inputs, kwargs, writes=method == "at")

    def __array_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        if not all(issubclass(kind, (SimArray, np.ndarray)) for kind in types):
            return NotImplemented
        if func in _CREATES:
            return getattr(self._device.namespace(), func.__name__)(*args, **kwargs)
        if func in _LEAVES_DEVICE:
            raise conversion_error()
        if func in CALLS_BACK:
            return apply_with_functions(func, args, kwargs, None)
        if isinstance(kwargs.get("out"), np.ndarray):
            raise mixing_error(kwargs["out"])
        if func in _WRITES_FIRST and args and isinstance(args[0], np.ndarray):
            raise mixing_error(args[0])
        only_reads = len(args) == 1 and kwargs.keys() <= _READING and func.__module__.startswith("numpy")
        return self._device.apply(func, args, kwargs, writes=not only_reads)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Storage:
        raise conversion_error()

    def __array_finalize__(self, made_from: SimArray) -> None:
        """Do nothing: as CuPy's, for subclasses, whose views are of the subclass."""

    def __offload_section__(self) -> Section:
        """Return the storage that the array covers, for ``depend`` clauses."""
        return self._device.section(self)

    # -- to and from the host --------------------------------------------------------------------
    def get(
        self, stream: Any = None, order: Any = "C", out: Storage | None = None, *, blocking: bool = True
    ) -> Storage:
        """Copy to a host array: a new one in ``order``, or ``out`` (same shape and dtype), which is returned.

        Waits for ``stream`` where one is given, and for the current one; always, as ``blocking`` only allows it.
        """
        if stream is not None:
            stream.synchronize()
        storage = self._settled()
        if out is None:
            return given.namespace.array(storage, order=order, copy=True)  # type: ignore[no-any-return]
        if not isinstance(out, np.ndarray):
            raise TypeError(f"out= of get() is a {type(out).__name__}; it must be a NumPy array")
        _check_same(out, storage, "get(out=…)")
        np.copyto(out, storage)
        return out

    def set(self, arr: Storage, stream: Any = None) -> None:
        """Copy from a host array of the same shape and dtype. Waits as `get` does."""
        if not isinstance(arr, np.ndarray):
            raise TypeError(f"set() got a {type(arr).__name__}; it takes a NumPy array")
        _check_same(arr, self._storage, "set()")
        if stream is not None:
            stream.synchronize()
        self._note_write()
        np.copyto(self._settled(StorageUse.WRITE), arr)

    def unwrap(self) -> Storage:
        """Return the hidden storage, for a library that needs a NumPy array. Waits for the current stream."""
        self._note_write()
        return self._settled(StorageUse.GIVE_AWAY)

    def _note_write(self) -> None:
        """Note that elements are written, or may be."""
        if self._storage.size:
            self._block.is_unwritten = False

    def _settled(self, use: StorageUse = StorageUse.READ, *index: Any) -> Storage:
        """Return the storage once the body's work on its stream is done; raise if the storage has been freed."""
        if self._block.retired is not None:
            raise self._block.retired.error(self)
        self._device.settle(self._storage, use, index)
        return self._storage

    def item(self, *args: Any) -> Any:
        """Return one element as a Python scalar."""
        return self._settled(StorageUse.READ, *args).item(*args)

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bytes__(self) -> bytes:
        return self._settled().tobytes()

    def __complex__(self) -> complex:
        return complex(self.item())

    def __bool__(self) -> bool:
        return bool(self._settled())

    def __index__(self) -> int:
        return operator.index(self._settled())

    def __format__(self, format_spec: str) -> str:
        if self.ndim:
            return format(str(self), format_spec)
        return format(self._settled(), format_spec)

    # -- parts -----------------------------------------------------------------------------------
    @property
    def T(self) -> SimArray:  # noqa: N802  # NumPy's name
        """The transposed array, a view."""
        return self._part(self._storage.T)

    @property
    def real(self) -> SimArray:
        """The real part, a view."""
        return self._part(self._storage.real)

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value

    @property
    def imag(self) -> SimArray:
        """The imaginary part: a view, or zeros for a real array."""
        if self._storage.dtype.kind == "c":
            return self._part(self._storage.imag)
        return self._device.apply(np.zeros_like, (self,), {}, writes=False)  # type: ignore[no-any-return]

    @imag.setter
    def imag(self, value: Any) -> None:
        if self._storage.dtype.kind != "c":
            raise TypeError(f"cannot set the imaginary part of an array of {self.dtype}; it is real")
        self.imag[...] = value

    def _part(self, storage: Storage) -> SimArray:
        if self._block.retired is not None:
            raise self._block.retired.error(self)
        return SimArray(storage, self._device, self._block)

    def view(self, dtype: Any = None) -> SimArray:
        """Return a view: with another dtype, or, as NumPy and CuPy do, of a subclass."""
        if isinstance(dtype, type) and issubclass(dtype, SimArray):
            return dtype(self._part(self._storage)._storage, self._device, self._block)
        return self._part(self._storage if dtype is None else self._storage.view(dtype))

    # -- elements --------------------------------------------------------------------------------
    def __getitem__(self, index: Any) -> SimArray:
        if isinstance(index, str):
            return self._part(self._storage[index])
        items = index if type(index) is tuple else (index,)
        if _is_basic(items):
            # A view, also of a single element: the trailing Ellipsis keeps NumPy from making a scalar of it.
            items = items if Ellipsis in items else (*items, Ellipsis)
            return self._part(self._storage[items])
        return self._device.apply(operator.getitem, (self, items), {}, writes=False)  # type: ignore[no-any-return]

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, (list, tuple)):
            raise mixing_error(value)
        self._device.apply(operator.setitem, (self, index, value), {}, writes=False)
        if self._block.is_unwritten:
            items = index if type(index) is tuple else (index,)
            (self[items] if _is_basic(items) else self)._note_write()  # a slice may have no elements

    # -- copies ----------------------------------------------------------------------------------
    def __reduce__(self) -> Any:
        raise TypeError("a device array cannot be pickled: it belongs to a device of this process; pickle its .get()")

    def __repr__(self) -> str:
        if self._device.fate.error is not None:
            return f"<SimArray of shape {self.shape}, {self.dtype}, on {self._device.name}, which is lost>"
        if self._block.retired is not None:
            return f"<SimArray of shape {self.shape}, {self.dtype}, on {self._device.name}, storage gone back>"
        body = np.array2string(self._settled(), separator=", ", prefix="SimArray(")
        return f"SimArray({body}, dtype={self.dtype}, device='{self._device.name}')"

    def __str__(self) -> str:
        return str(self._settled())

    # -- ndarray's methods -----------------------------------------------------------------------
    swapaxes, squeeze, transpose = map(_view_method, ("swapaxes", "squeeze", "transpose"))
    all, any, argmax, argmin = map(_method, ("all", "any", "argmax", "argmin"))
    argpartition, argsort, astype, choose = map(_method, ("argpartition", "argsort", "astype", "choose"))
    clip, compress, conj, conjugate = map(_method, ("clip", "compress", "conj", "conjugate"))
    copy, cumprod, cumsum, diagonal = map(_method, ("copy", "cumprod", "cumsum", "diagonal"))
    dot, fill, flatten, max, mean = map(_method, ("dot", "fill", "flatten", "max", "mean"))
    min, nonzero, partition, prod, put = map(_method, ("min", "nonzero", "partition", "prod", "put"))
    ravel, repeat, reshape, round = map(_method, ("ravel", "repeat", "reshape", "round"))
    searchsorted, sort, std, sum, take = map(_method, ("searchsorted", "sort", "std", "sum", "take"))
    tobytes, tolist, trace, var = map(_method, ("tobytes", "tolist", "trace", "var"))


add_section_reader(SimArray, SimArray.__offload_section__)


_BASIC_INDICES = frozenset({int, slice, type(None), type(Ellipsis)})
_OPERANDS = (SimArray, int, float, complex, np.generic, np.ndarray)


def apply(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    device: ArraysDevice | None = None,
    *,
    host_allowed: bool = False,
    writes: bool = True,
) -> Any:
    """Call a NumPy function with the storage of the device arrays among its arguments, and wrap the result.

    Parameters
    ----------
    function, args, kwargs
        The call. Device arrays are also found in lists, tuples and dicts.
    device : ArraysDevice, optional
        The device of the result; by default the device of the arguments.
    host_allowed : bool
        Let host arrays pass: for functions that copy to the device.
    writes : bool
        Whether the function may write elements of the arguments, as far as nobody has noted it.

    Raises
    ------
    TypeError
        Arrays of the host or of two devices are mixed.
    DeviceLostError, DeviceMemoryError
        The device failed before, or has no memory for the result.
    RegionClosedError
        The storage of an argument has gone back.
    """
    found: list[SimArray] = []
    unwrapped = [_unwrap(value, found, host_allowed) for value in args]
    named = {name: _unwrap(value, found, host_allowed) for name, value in kwargs.items()} if kwargs else {}
    device = _common_device(found, device)
    if writes:
        for array in found:
            array._note_write()
    device.settle()
    result = function(*unwrapped, **named)
    if device.poisons and (function is np.empty or function is np.empty_like):
        poison(result, result.dtype)
    if host_allowed and isinstance(result, np.ndarray) and not _is_in(result, found):
        result = np.array(result, order="K", copy=True)
    return _wrap(result, found, device)


def apply_with_functions(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], device: ArraysDevice | None
) -> Any:
    """Apply a NumPy function that calls functions among its arguments: these get device arrays."""
    found: list[SimArray] = []
    _unwrap((*args, *kwargs.values()), found, host_allowed=False)
    where = _common_device(found, device)

    def bound(value: Any) -> Any:
        if type(value) in (list, tuple):
            return type(value)([bound(part) for part in value])
        if not callable(value) or isinstance(value, (type, SimArray)):
            return value

        def on_device(*inner: Any, **named: Any) -> Any:
            arrays = [_wrap(part, found, where) if isinstance(part, np.ndarray) else part for part in inner]
            return _unwrap(value(*arrays, **named), [], host_allowed=False)

        return on_device

    return where.apply(function, [bound(value) for value in args], {k: bound(v) for k, v in kwargs.items()}, where)


def mixing_error(value: object) -> TypeError:
    """Return the error for host data in an operation on device arrays."""
    what = f"a host array of shape {value.shape}" if isinstance(value, np.ndarray) else f"a host {type(value).__name__}"
    return TypeError(
        f"an operation mixes {what} with a device array; pass the array as an argument of the target function, which "
        f"then receives the corresponding device array; {_MAKE_HERE}"
    )


def conversion_error() -> TypeError:
    """Return the error for an implicit copy to the host."""
    return TypeError(
        "implicit conversion of a device array to a host array is not allowed; use .get(); to use a host array "
        f"together with a device array, pass it as an argument of the target function; {_MAKE_HERE}"
    )


_MAKE_HERE = "to make an array in the body, write np.zeros(n, like=a) or array_namespace(a).zeros(n)"


def _unwrap(value: Any, found: list[SimArray], host_allowed: bool) -> Any:
    if isinstance(value, SimArray):
        if value._block.retired is not None:
            raise value._block.retired.error(value)
        found.append(value)
        return value._storage
    if isinstance(value, np.ndarray):
        if value.ndim and not host_allowed:
            raise mixing_error(value)
        return value
    if isinstance(value, (list, tuple)):
        parts = [_unwrap(part, found, host_allowed) for part in value]
        return parts if isinstance(value, list) else tuple(parts)
    if type(value) is dict:
        return {key: _unwrap(part, found, host_allowed) for key, part in value.items()}
    return value


def _common_device(found: list[SimArray], device: ArraysDevice | None) -> ArraysDevice:
    if device is None:
        if not found:  # the array that brought us here is inside a container that is not looked into
            raise conversion_error()
        device = found[0]._device
    for array in found:
        if array._device is not device:
            raise TypeError(
                f"an operation mixes arrays of {device.name} and {array._device.name}; "
                "pass both as arguments of the target function, or copy one with target_memcpy"
            )
    return device


def _wrap(result: Any, found: list[SimArray], device: ArraysDevice) -> Any:
    if isinstance(result, np.ndarray):
        for array in found:
            if result is array._storage:
                return array
        if result.base is None:
            return SimArray(result, device, device.memory.take(result.nbytes))
        for array in found:
            if np.may_share_memory(result, array._storage):  # by bounds: allocations do not interleave
                view = type(array)(result, device, array._block)
                view.__array_finalize__(array)
                return view
        whole_nbytes = getattr(result.base, "nbytes", result.nbytes)  # the base may be any object with a buffer
        return SimArray(result, device, device.memory.take(whole_nbytes))
    if isinstance(result, np.generic):
        return SimArray(np.asarray(result), device, device.memory.take(result.nbytes))
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*(_wrap(part, found, device) for part in result))
    if type(result) in (list, tuple):
        return type(result)([_wrap(part, found, device) for part in result])
    return result


def _is_in(result: Storage, found: list[SimArray]) -> bool:
    return any(np.may_share_memory(result, array._storage) for array in found)


def _is_basic(items: tuple[Any, ...]) -> bool:
    """Tell whether an index makes a view."""
    return all(type(item) in _BASIC_INDICES or isinstance(item, np.integer) for item in items)


def _check_same(host: Storage, storage: Storage, where: str) -> None:
    if host.dtype != storage.dtype:
        raise TypeError(f"{where} got {host.dtype} for a device array of {storage.dtype}; they must be the same")
    if host.shape != storage.shape:
        raise ValueError(f"{where} got shape {host.shape} for a device array of {storage.shape}; they must be the same")
