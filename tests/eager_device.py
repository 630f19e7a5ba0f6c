"""A kind of device of one's own, in one file: it carries out everything at once, on the thread that asks for it.

Its memory is NumPy's and its streams are always idle, so that a program runs on it as it does on CUDA, bodies inside of
``nowait`` calls included. `offload.devices.base.Device` is all that it knows of the runtime.
"""

from __future__ import annotations

import itertools
import math
import sys
import threading
import weakref
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from offload.arrays.sections import Section, section_of
from offload.devices import kinds
from offload.devices.kind import Kind, Opening, parse_nbytes
from offload.errors import DeviceMemoryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.devices.retirement import Retired
    from offload.events.wakeup import Wakeup


class EagerKind(Kind):
    """Devices ``eager``, ``eager:2``, …."""

    name = "eager"
    acc_type = "eager"
    variables = MappingProxyType({"OFFLOAD_EAGER_MEMORY": parse_nbytes})

    def open(self, opening: Opening) -> EagerDevice:
        """Return a new device."""
        return EagerDevice(opening.number, opening.values["OFFLOAD_EAGER_MEMORY"] or 1 << 30)


class EagerDevice:
    """A device whose work is done when it is enqueued."""

    kind = "eager"
    bodies_block = False
    waits_look = True
    poisons = False
    kernels = None
    wakes_by_driver = False
    _serial = itertools.count()

    def __init__(self, number: int, memory_nbytes: int) -> None:
        self.number = number
        self.name = f"eager:{number}"
        self.space: object = ("eager", next(self._serial))
        self._memory_nbytes = memory_nbytes
        self._blocks: weakref.WeakSet[Block] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._current = threading.local()

    # -- streams ---------------------------------------------------------------------------------
    def new_stream(self) -> EagerStream:
        return EagerStream(self)

    def owns_stream(self, stream: object) -> bool:
        return isinstance(stream, EagerStream) and stream.device is self

    def adopt(self, stream: Any) -> Any:
        return stream

    def record(self, stream: EagerStream) -> EagerEvent:
        return EagerEvent()

    def wait_event(self, stream: EagerStream, event: EagerEvent) -> None:
        pass

    def passed(self, event: EagerEvent) -> bool:
        return True

    def reuse(self, events: list[EagerEvent]) -> None:
        pass

    def wake(self, stream: EagerStream, wakeup: Wakeup) -> None:
        wakeup.post()

    def use(self, stream: EagerStream) -> EagerStream | None:
        outer = getattr(self._current, "stream", None)
        self._current.stream = stream
        return outer

    def restore(self, outer: EagerStream | None) -> None:
        self._current.stream = outer

    def caller_event(self) -> None:
        return None

    # -- memory ----------------------------------------------------------------------------------
    def memory_info(self) -> tuple[int, int]:
        return self._memory_nbytes - self.live_nbytes(), self._memory_nbytes

    def live_nbytes(self) -> int:
        with self._lock:
            return sum(block.nbytes for block in self._blocks)

    def alloc(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: EagerStream) -> EagerArray:
        nbytes = math.prod(shape) * dtype.itemsize
        free_nbytes, _ = self.memory_info()
        if nbytes > free_nbytes:
            raise DeviceMemoryError(f"no room for {nbytes} bytes on {self.name}", nbytes, free_nbytes)
        return EagerArray(np.empty(shape, dtype), self.block(nbytes))

    def block(self, nbytes: int) -> Block:
        block = Block(self, nbytes)
        with self._lock:
            self._blocks.add(block)
        return block

    def view(
        self,
        buffer: EagerArray,
        offset_nbytes: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype[Any],
    ) -> EagerArray:
        memory = buffer.storage.reshape(-1, order="A").view(np.uint8)
        return EagerArray(np.ndarray(shape, dtype, memory, offset_nbytes, strides), buffer.block)

    def copy(self, dst: Any, src: Any, stream: EagerStream) -> None:
        np.copyto(storage_of(dst), storage_of(src))

    def repeat(self, dst: Any, src: Any) -> Callable[[EagerStream], None]:
        return lambda stream: self.copy(dst, src, stream)

    def copy_indexed(self, dst: EagerArray, src: EagerArray, to: Any, at: Any, stream: EagerStream) -> None:
        n = (at if to is None else to).storage.size
        dst.storage[slice(n) if to is None else to.storage] = src.storage[slice(n) if at is None else at.storage]

    def fill(self, array: EagerArray, value: int, stream: EagerStream) -> None:
        array.storage.fill(value)

    def poison(self, buffer: EagerArray, dtype: np.dtype[Any], stream: EagerStream) -> None:
        pass

    def host_memory(self, nbytes: int) -> None:
        return None

    def copies_async(self, host: np.ndarray[Any, Any]) -> bool:
        return True

    def can_access(self, host: np.ndarray[Any, Any]) -> bool:
        return False

    def is_array(self, value: object) -> bool:
        return isinstance(value, EagerArray) and value.device is self

    def renew(self, buffer: EagerArray) -> bool:
        """Tell whether nobody has an array over the memory of a buffer: the buffer and `sys` refer to its block."""
        return sys.getrefcount(buffer.block) == 2

    def retire(self, array: EagerArray, retired: Retired) -> None:
        array.block.retired = retired

    def retired(self, array: EagerArray) -> Retired | None:
        return array.block.retired

    def as_array(self, value: Any) -> Any | None:
        return value if self.is_array(value) else None

    def section(self, array: EagerArray) -> Section:
        storage = array.storage
        address = storage.__array_interface__["data"][0]
        return section_of(self.space, address, storage.shape, storage.strides, storage.itemsize)

    def address(self, array: object) -> int | None:
        return (
            array.storage.__array_interface__["data"][0]
            if isinstance(array, EagerArray) and self.is_array(array)
            else None
        )

    def namespace(self) -> Namespace:
        return Namespace(self, np)

    # -- graphs, life ------------------------------------------------------------------------------
    def graph_capture(self) -> None:
        return None

    def check(self, stream: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def close(self) -> None:
        pass


class EagerEvent:
    """An event that has passed."""

    done = True

    def synchronize(self) -> None:
        """Return at once."""


class EagerStream:
    """A stream that is always idle."""

    done = True

    def __init__(self, device: EagerDevice) -> None:
        self.device = device

    def synchronize(self) -> None:
        pass

    def record(self, event: EagerEvent | None = None) -> EagerEvent:
        return EagerEvent() if event is None else event

    def wait_event(self, event: EagerEvent) -> None:
        pass

    def launch_host_func(self, callback: Callable[[Any], Any], arg: Any) -> None:
        callback(arg)


class Block:
    """One allocation, alive as long as an array in it."""

    def __init__(self, device: EagerDevice, nbytes: int) -> None:
        self.device = device
        self.nbytes = nbytes
        self.retired: Retired | None = None


class EagerArray(NDArrayOperatorsMixin):
    """An array on the device: NumPy's functions and operators work on it, and refuse to mix it with the host's."""

    def __init__(self, storage: np.ndarray[Any, Any], block: Block) -> None:
        self._storage = storage
        self.block = block
        self.device = block.device

    @property
    def storage(self) -> np.ndarray[Any, Any]:
        """The memory; it refuses where that has gone back."""
        if self.block.retired is not None:
            raise self.block.retired.error(self)
        return self._storage

    shape = property(lambda self: self._storage.shape)
    dtype = property(lambda self: self._storage.dtype)
    strides = property(lambda self: self._storage.strides)
    ndim = property(lambda self: self._storage.ndim)
    size = property(lambda self: self._storage.size)
    itemsize = property(lambda self: self._storage.itemsize)
    nbytes = property(lambda self: self._storage.nbytes)
    flags = property(lambda self: self._storage.flags)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError("implicit conversion of a device array to a host array; use .get()")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return apply(self.device, getattr(ufunc, method), inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return apply(self.device, func, args, kwargs)

    def __offload_section__(self) -> Section:
        return self.device.section(self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(name)
        value = getattr(self.storage, name)
        return Function(self.device, value, self) if callable(value) else wrap(self.device, value, [self])

    def __getitem__(self, index: Any) -> Any:
        items = index if type(index) is tuple else (index,)
        if isinstance(index, str) or any(isinstance(item, (EagerArray, list, type(Ellipsis))) for item in items):
            return apply(self.device, np.ndarray.__getitem__, (self, index), {})
        return EagerArray(self.storage[(*items, ...)], self.block)  # a view, also of one element

    def __setitem__(self, index: Any, value: Any) -> None:
        apply(self.device, np.ndarray.__setitem__, (self, index, value), {})

    def __len__(self) -> int:
        return len(self._storage)

    def __bool__(self) -> bool:
        return bool(self.storage)

    def __float__(self) -> float:
        return float(self.storage)

    def __int__(self) -> int:
        return int(self.storage)

    def __index__(self) -> int:
        return self.storage.__index__()

    def get(self) -> np.ndarray[Any, Any]:
        """Return a copy on the host."""
        return self.storage.copy()

    def item(self, *args: Any) -> Any:
        return self.storage.item(*args)

    def __repr__(self) -> str:
        return f"EagerArray({self._storage!r})"


class Function:
    """A function of NumPy's whose arrays are on a device."""

    def __init__(self, device: EagerDevice, function: Any, *owners: EagerArray) -> None:
        self._device = device
        self._function = function
        self._owners = list(owners)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = getattr(self._function, "__name__", "")
        return apply(self._device, self._function, args, kwargs, self._owners, host_allowed="array" in name)


class Namespace:
    """NumPy, with arrays on a device."""

    def __init__(self, device: EagerDevice, module: ModuleType) -> None:
        self._device = device
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        if isinstance(value, ModuleType):
            return Namespace(self._device, value)
        return Function(self._device, value) if callable(value) and not isinstance(value, type) else value

    def asnumpy(self, array: Any) -> Any:
        return array.get() if isinstance(array, EagerArray) else np.asarray(array)


def apply(
    device: EagerDevice,
    function: Any,
    args: Any,
    kwargs: Any,
    owners: list[EagerArray] | None = None,
    *,
    host_allowed: bool = False,
) -> Any:
    """Call a function of NumPy's on the memory of device arrays, and wrap what it returns."""
    found = list(owners or ())

    def unwrap(value: Any) -> Any:
        if isinstance(value, EagerArray):
            found.append(value)
            return value.storage
        if isinstance(value, np.ndarray) and value.ndim and not host_allowed:
            raise TypeError(f"an operation mixes a host array of shape {value.shape} with a device array")
        return type(value)([unwrap(part) for part in value]) if type(value) in (list, tuple) else value

    result = function(*[unwrap(value) for value in args], **{name: unwrap(value) for name, value in kwargs.items()})
    return wrap(device, result, found)


def wrap(device: EagerDevice, result: Any, found: list[EagerArray]) -> Any:
    """Return a device array for one of NumPy's: in the memory of an array that was found, or in memory of its own."""
    if isinstance(result, np.generic):
        result = np.asarray(result)
    if not isinstance(result, np.ndarray):
        return result
    for array in found:
        if result is array.storage:
            return array
        if np.may_share_memory(result, array.storage):
            return EagerArray(result, array.block)
    return EagerArray(result, device.block(result.nbytes))


def storage_of(array: Any) -> np.ndarray[Any, Any]:
    """Return the memory of a device array, or the host array that is given."""
    return array.storage if isinstance(array, EagerArray) else array


kinds.register(EagerKind())
