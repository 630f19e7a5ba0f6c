"""Handles: the client's arrays that lie in the memory of a worker's device.

A handle knows its shape, dtype and strides, and makes views of itself. Its elements are on the worker, so arithmetic
belongs in a body. The memory goes back when the last handle does.
"""

from __future__ import annotations

import mmap
import operator
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from offload.arrays.items import add_section_reader
from offload.arrays.sections import c_strides, section_of
from offload.devices.dask.wire import RemoteView
from offload.errors import RuntimeClosedError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from offload.arrays.sections import Section
    from offload.devices.retirement import Retired


class RemoteBlock:
    """One allocation on a worker's device.

    Attributes
    ----------
    number : int
        Its number in the runtime: positive if the client made it, negative if a body did.
    address : int
        Its place in the address space of its device. Only this process uses these addresses.
    made_by : str
        The construct that makes it, for messages.
    on_demand : bool
        Whether the worker allocates it at its first use, and not by an operation.
    """

    __slots__ = (
        "__weakref__",
        "_freed",
        "account",
        "address",
        "device",
        "made_by",
        "nbytes",
        "number",
        "on_demand",
        "retired",
    )

    def __init__(self, device: Any, number: int, nbytes: int, address: int, account: Any, *, on_demand: bool) -> None:
        self.device = device
        self.number = number
        self.nbytes = nbytes
        self.address = address
        self.account = account  # counts the bytes until it goes
        self.on_demand = on_demand
        self.made_by = ""
        self.retired: Retired | None = None
        self._freed = device.line.freed

    def retire(self, retired: Retired) -> None:
        """Give the memory back, and have every handle refuse."""
        if self.retired is None:
            self.retired = retired
            self.account.retire(retired)
            self._freed.append(self.number)

    def __del__(self) -> None:
        if getattr(self, "retired", self) is None and hasattr(self, "_freed"):
            self._freed.append(self.number)  # one step: a finalizer may run at any moment


class RemoteFlags:
    """The order of the elements of a handle."""

    __slots__ = ("c_contiguous", "f_contiguous", "writeable")

    def __init__(self, *, c_contiguous: bool, f_contiguous: bool) -> None:
        self.c_contiguous = c_contiguous
        self.f_contiguous = f_contiguous
        self.writeable = True

    @property
    def contiguous(self) -> bool:
        """Whether it is contiguous in one of the two orders."""
        return self.c_contiguous or self.f_contiguous

    forc = contiguous


def _refused(name: str) -> Callable[..., Any]:
    def refuse(self: RemoteArray, *_: Any, **__: Any) -> Any:
        raise self._no_arithmetic(name)

    refuse.__name__ = name
    return refuse


class RemoteArray(NDArrayOperatorsMixin):
    """An array in the memory of a worker's device."""

    __slots__ = ("__weakref__", "block", "dtype", "offset", "shape", "spec", "strides")

    # NumPy's operators leave theirs to this class, which refuses.
    __array_priority__ = 1000.0

    def __init__(
        self, block: RemoteBlock, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self.block = block
        self.offset = offset  # of element ``(0, …, 0)``, in bytes
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        self.spec = RemoteView(
            block.number, block.nbytes if block.on_demand else 0, block.device.index, offset, shape, strides, dtype
        )

    # -- what it is ------------------------------------------------------------------------------------
    @property
    def device(self) -> Any:
        """The device that it is on."""
        return self.block.device

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.itemsize

    @property
    def flags(self) -> RemoteFlags:
        """The order of its elements."""
        probe = self._probe()
        return RemoteFlags(c_contiguous=probe.flags.c_contiguous, f_contiguous=probe.flags.f_contiguous)

    def __offload_section__(self) -> Section:
        """Return its storage."""
        return section_of(self.device.space, self.block.address + self.offset, self.shape, self.strides, self.itemsize)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a device array without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[RemoteArray]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"<RemoteArray of shape {self.shape}, {self.dtype}, on {self.device.name}>"

    # -- views -----------------------------------------------------------------------------------------
    def _probe(self) -> np.ndarray[Any, Any]:
        """Return a host array of this layout over no memory to speak of, which NumPy makes views of."""
        low = sum(min(0, (n - 1) * stride) for n, stride in zip(self.shape, self.strides, strict=True) if n)
        high = sum(max(0, (n - 1) * stride) for n, stride in zip(self.shape, self.strides, strict=True) if n)
        memory = _address_space(high - low + self.itemsize if self.size else 0)
        return np.ndarray(self.shape, self.dtype, buffer=memory, offset=-low if self.size else 0, strides=self.strides)

    def _like(self, make: Callable[[np.ndarray[Any, Any]], Any]) -> RemoteArray:
        """Return the view that NumPy makes of a host array of this layout; a copy is an `UnsupportedError`."""
        self._refuse_retired()
        probe = self._probe()
        view = make(probe)
        if not isinstance(view, np.ndarray) or (view.size and not np.may_share_memory(view, probe)):
            raise self._no_arithmetic("an index that makes a copy")
        moved = _address(view) - _address(probe) if view.size else 0
        return RemoteArray(self.block, self.offset + moved, view.shape, view.strides, view.dtype)

    def __getitem__(self, index: Any) -> RemoteArray:
        items = index if type(index) is tuple else (index,)
        if isinstance(index, str):
            return self._like(lambda probe: probe[index])
        if not all(isinstance(item, (int, slice, type(None), type(Ellipsis), np.integer)) for item in items):
            raise self._no_arithmetic("indexing by an array")
        items = items if Ellipsis in items else (*items, Ellipsis)  # of a single element too
        return self._like(lambda probe: probe[items])

    def reshape(self, *shape: Any) -> RemoteArray:
        """Return a view of another shape."""
        return self._like(lambda probe: probe.reshape(*shape))

    def ravel(self) -> RemoteArray:
        """Return a view with one axis."""
        return self.reshape(-1)

    def view(self, dtype: Any = None) -> RemoteArray:
        """Return a view of the same bytes as elements of another dtype."""
        return self._like(lambda probe: probe.view() if dtype is None else probe.view(dtype))

    def transpose(self, *axes: Any) -> RemoteArray:
        """Return a view with the axes in another order."""
        return self._like(lambda probe: probe.transpose(*axes))

    @property
    def T(self) -> RemoteArray:  # noqa: N802  # NumPy's name
        """The transposed view."""
        return self.transpose()

    # -- elements --------------------------------------------------------------------------------------
    def _refuse_retired(self) -> None:
        if self.block.retired is not None:
            raise self.block.retired.error(self)
        if self.device.is_closed:
            raise RuntimeClosedError(
                f"the device array {self.dtype}{list(self.shape)} belongs to a runtime that is closed; copy it with "
                ".get() before the runtime ends"
            )

    def get(self, stream: Any = None, order: Any = "C", out: Any = None, *, blocking: bool = True) -> Any:
        """Copy to a host array: a new one, or ``out`` of the same shape and dtype. Waits for the work on its device."""
        self._refuse_retired()
        host = np.empty(self.shape, self.dtype, order=order) if out is None else out
        if not isinstance(host, np.ndarray) or host.shape != self.shape or host.dtype != self.dtype:
            raise TypeError(f"get(out=…) takes a NumPy array of shape {self.shape} and {self.dtype}")
        self.device.copy_now(host, self)
        return host

    def set(self, arr: Any, stream: Any = None) -> None:
        """Copy from a host array of the same shape and dtype. Waits for the work on its device."""
        self._refuse_retired()
        if not isinstance(arr, np.ndarray) or arr.shape != self.shape or arr.dtype != self.dtype:
            raise TypeError(f"set() takes a NumPy array of shape {self.shape} and {self.dtype}")
        self.device.copy_now(self, arr)

    def item(self, *args: Any) -> Any:
        """Return one element as a Python scalar."""
        return (self[args] if args else self).get().item()

    def tolist(self) -> Any:
        """Return the elements as lists."""
        return self.get().tolist()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __bool__(self) -> bool:
        return bool(self.get())

    def __index__(self) -> int:
        return operator.index(self.get())

    # -- what it refuses -------------------------------------------------------------------------------
    def _no_arithmetic(self, what: str) -> UnsupportedError:
        return UnsupportedError(
            f"{what} on a device array of {self.device.name}: its elements are in another process; do it in the body "
            "of a target region, or copy it with .get()"
        )

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            "implicit conversion of a device array to a host array is not allowed; use .get(), or pass the array to a "
            "target region"
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        raise self._no_arithmetic(ufunc.__name__)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        raise self._no_arithmetic(func.__name__)

    def __reduce__(self) -> Any:
        raise TypeError("a device array cannot be pickled: it belongs to a runtime of this process; pickle its .get()")

    __setitem__ = _refused("an assignment to elements")
    sum, min, max, mean, fill, copy, dot, astype, any, all = map(
        _refused, ("sum", "min", "max", "mean", "fill", "copy", "dot", "astype", "any", "all")
    )


add_section_reader(RemoteArray, RemoteArray.__offload_section__)


def contiguous_array(block: RemoteBlock, shape: tuple[int, ...], dtype: np.dtype[Any]) -> RemoteArray:
    """Return the handle of a whole allocation, in C order."""
    return RemoteArray(block, 0, shape, c_strides(shape, dtype.itemsize), dtype)


def _address(array: np.ndarray[Any, Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


_space = mmap.mmap(-1, 1)


def _address_space(nbytes: int) -> mmap.mmap:
    """Return a buffer of at least ``nbytes`` bytes. They are never touched, so they take no memory."""
    global _space  # noqa: PLW0603  # it only grows
    if len(_space) < nbytes:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        _space = mmap.mmap(-1, max(nbytes, 1 << 20), flags=flags)
    return _space
