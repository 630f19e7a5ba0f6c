"""Carries out the operations of the stand-in and records them: NumPy on ``sim``, CuPy on ``cuda``."""

from __future__ import annotations

import mmap
import operator
import os
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.errors import UnsupportedError
from offload.port.arrays import PortArray, PortMemory
from offload.port.extents import part_of
from offload.sanitizer.accesses import accesses_of, accesses_of_method
from offload.sanitizer.elements import Scattered, byte_bounds, unknown_part
from offload.sanitizer.tracked import tracked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from offload.port.extents import AccessPart
    from offload.port.log import OperationKind
    from offload.port.recorder import ProgramRecorder

    Storage = np.ndarray[Any, Any]

_UNWRITTEN = frozenset({"empty", "empty_like"})
"""Functions whose new array is not initialised."""

_TAKES_HOST = frozenset({"choice", "permutation", "put", "repeat", "take"})
"""Functions that take host arrays next to device arrays, and copy them at once."""

WAITS = frozenset(
    {"argwhere", "bincount", "compress", "extract", "flatnonzero", "intersect1d", "nonzero", "setdiff1d", "setxor1d"}
    | {"trim_zeros", "union1d", "unique", "unique_all", "unique_counts", "unique_inverse", "unique_values"}
)
"""Functions whose result has a size that depends on the data: CuPy copies the size to the host, which waits."""

_BY_VALUE = frozenset(
    {"choose", "compress", "extract", "place", "put", "put_along_axis", "putmask", "select", "take"}
    | {"take_along_axis", "where"}
)
"""Functions that access elements that data on the device selects. On ``cuda`` these elements are not known."""

_WRITES_FIRST = frozenset({"copyto", "place", "put", "put_along_axis", "putmask"})
_BY_INDEX = frozenset({"put", "put_along_axis", "take", "take_along_axis"})
"""Of `_BY_VALUE`: functions with an index, which selects an element for certain if it is not empty."""

_SELECTS_FIRST = frozenset({"choose", "select", "where"})
"""Of `_BY_VALUE`: functions whose first array selects elements of the others."""

_BASIC = (int, slice, type(None), type(Ellipsis), np.integer)


class ArrayMachine:
    """The operations on arrays.

    Parameters
    ----------
    recorder : ProgramRecorder
        Receives the operations.
    xp : module
        NumPy or CuPy.
    """

    def __init__(self, recorder: ProgramRecorder, xp: Any) -> None:
        self.recorder = recorder
        self.xp = xp
        self.is_cuda = xp is not np
        self.device: Any = None  # set by the streams
        self.current: Callable[[], Any]  # returns the stream of this thread; set by the streams
        self.chosen: Callable[[Any], Any]  # returns the stream that is given, else that of this thread; likewise
        self.array_class: type[PortArray] = type("ndarray", (PortArray,), {"__slots__": (), "calls": self})

    # -- calls -----------------------------------------------------------------------------------
    def _quiet(self) -> AbstractContextManager[None]:
        """Return a block without warnings of arithmetic, which a GPU does not issue either."""
        return nullcontext() if self.is_cuda else np.errstate(all="ignore")

    def call(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        compute: Callable[..., Any] | None = None,
        *,
        name: str = "",
    ) -> Any:
        """Call a NumPy function with device arrays among its arguments.

        ``compute`` is the function that is carried out, if that is another one, such as CuPy's.
        """
        name = name or _name_of(function)
        call = _ArrayCall(self, name, args, kwargs, takes_host=name in _TAKES_HOST)
        with self._quiet():
            result = (compute or function)(*call.data, **call.named_data)
        wrapped = call.wrap(result)
        if self.is_cuda and (name in _BY_VALUE or isinstance(kwargs.get("where"), PortArray)):
            call.note_unknown(writes_first=name in _WRITES_FIRST, is_mask=name not in _BY_INDEX)
        else:
            shadows, named = call.shadows()
            try:
                reads, writes = accesses_of(function, shadows, named, call.shadow(wrapped))
            except UnsupportedError:
                raise self.unsupported(name) from None
            call.note(reads, writes)
        return call.finish(wrapped, is_written=name not in _UNWRITTEN)

    def call_method(self, name: str, array: PortArray, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call a method of an array."""
        call = _ArrayCall(self, name, (array, *args), kwargs, takes_host=name in _TAKES_HOST)
        with self._quiet():
            result = getattr(call.data[0], name)(*call.data[1:], **call.named_data)
        wrapped = call.wrap(result)
        if self.is_cuda and name in _BY_VALUE:
            call.note_unknown(writes_first=name in _WRITES_FIRST, is_mask=name not in _BY_INDEX)
        else:
            shadows, named = call.shadows()
            call.note(*accesses_of_method(name, shadows[0], shadows[1:], named, call.shadow(wrapped)))
        return call.finish(wrapped)

    def get_item(self, array: PortArray, index: Any) -> PortArray:
        """Return ``array[index]``: a view, or a copy of the elements that an array selects."""
        items = index if type(index) is tuple else (index,)
        if isinstance(index, str):
            return self.part_of(array, array.array_data[index])
        if all(type(item) is not bool and isinstance(item, _BASIC) for item in items):
            # A view, also of a single element: the trailing Ellipsis keeps NumPy from making a scalar of it.
            return self.part_of(array, array.array_data[items if Ellipsis in items else (*items, ...)])
        call = _ArrayCall(self, "getitem", (array, items), {}, takes_host=True)
        wrapped = call.wrap(call.data[0][call.data[1]])
        has_mask = any(_is_mask(item) for item in items)
        if self.is_cuda:
            call.note_unknown(is_mask=has_mask)
        else:
            call.note(*accesses_of(operator.getitem, (array.array_shadow, call.data[1]), {}))
        call.waits = has_mask
        return call.finish(wrapped)  # type: ignore[no-any-return]

    def set_item(self, array: PortArray, index: Any, value: Any) -> None:
        """Carry out ``array[index] = value``."""
        items = index if type(index) is tuple else (index,)
        if isinstance(value, np.ndarray) and value.ndim:
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill; use .set(), as CuPy requires")
        if isinstance(value, list | tuple):
            raise TypeError(f"a {type(value).__name__} cannot be assigned to a device array; convert it with asarray")
        is_basic = isinstance(index, str) or all(type(i) is not bool and isinstance(i, _BASIC) for i in items)
        if is_basic and isinstance(value, PortArray) and _is_same(self.get_item(array, index), value):
            return  # the second step of ``d[a:b] += 1``: CuPy does nothing then either
        call = _ArrayCall(self, "setitem", (array, items, value), {}, takes_host=True)
        with self._quiet():
            call.data[0][index if is_basic else call.data[1]] = call.data[2]
        if self.is_cuda and not is_basic:
            call.note_unknown(writes_first=True, is_mask=any(_is_mask(item) for item in items))
        else:
            shadows, _ = call.shadows()
            call.note(*accesses_of(operator.setitem, (shadows[0], index if is_basic else shadows[1], shadows[2]), {}))
        call.finish(None)

    # -- arrays ----------------------------------------------------------------------------------
    def part_of(self, array: PortArray, data: Any) -> PortArray:
        """Return the proxy of a view."""
        return self.array_class.over(data, self._shadow_in(array.memory, data), array.memory)

    def new(self, shape: Any, dtype: Any, order: str) -> PortArray:
        """Return a new array whose elements are not written."""
        return self.adopt(self.xp.empty(shape, dtype, order), "empty")

    def adopt(self, data: Any, call: str) -> PortArray:
        """Return the proxy of an array that lies in memory of its own."""
        if self.is_cuda:
            low, nbytes = _span(data)
            root = np.frombuffer(mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | _NORESERVE), np.uint8)
            origin, native = root.ctypes.data, (data.data.mem, low)
        else:
            root = data
            while isinstance(root.base, np.ndarray):
                root = root.base
            origin, end = byte_bounds(root)
            nbytes, native = max(end - origin, 1), None
        shape_of = root if not self.is_cuda else data
        with self.recorder.lock:
            record = self.recorder.add_storage("device", shape_of, call, nbytes)
        memory = PortMemory(record.number, root, origin, nbytes, native)
        return self.array_class.over(data, self._shadow_in(memory, data), memory)

    def _shadow_in(self, memory: PortMemory, data: Any) -> Storage:
        if not self.is_cuda:
            return data  # type: ignore[no-any-return]
        if not data.size:
            return np.empty(data.shape, data.dtype)
        offset = data.data.ptr - memory.native[1]
        return np.ndarray(data.shape, data.dtype, memory.root, offset, data.strides)

    # -- to and from the host ----------------------------------------------------------------------
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
        """Copy to a host array, new and tracked or given, on a stream; ``blocking``: then wait for the stream."""
        stream = self.chosen(stream)
        if out is None:
            is_fortran = order.upper() == "F" or (order.upper() == "A" and array.flags.fnc)
            given = tracked(np.empty(array.shape, array.dtype, "F" if is_fortran else "C"))
        else:
            _check_out(array, out)
            given = out
        plain = given.view(np.ndarray)
        writes = [self.recorder.host_part(plain)] if plain.size else []
        reads = [array.whole_part] if plain.size else []
        operation = self.recorder.add("to host", call, stream.number, reads, writes, blocks=blocking)
        if not self.is_cuda:
            np.copyto(plain, array.array_data)
            self.recorder.arrived(operation, plain)
            return given
        if plain.size:
            array.array_data.get(stream.native, out=plain, blocking=False)
            if self.recorder.wants_digests:
                stream.native.launch_host_func(lambda _: self.recorder.arrived(operation, plain), None)
        if blocking:
            stream.native.synchronize()
        return given

    def scalar(self, array: PortArray, call: str) -> Any:
        """Return the elements for a number or text on the host, after a copy that the host waits for."""
        stream = self.current()
        operation = self.recorder.add("to host", call, stream.number, [array.whole_part], blocks=True)
        plain = array.array_data.get() if self.is_cuda else np.array(array.array_data)
        self.recorder.arrived(operation, plain)
        return plain

    def from_host(self, array: PortArray, host: Any, stream: Any) -> None:
        """Copy from a host array on a stream, as ``ndarray.set`` does."""
        if not isinstance(host, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if array.dtype != host.dtype:
            raise TypeError(f"{host.dtype} array cannot be set to {array.dtype} array")
        if array.shape != host.shape:
            raise ValueError(f"Shape mismatch. Old shape: {array.shape}, new shape: {host.shape}")
        if not (array.flags.c_contiguous or array.flags.f_contiguous):
            raise RuntimeError("Cannot set to non-contiguous array")
        order = "C" if array.flags.c_contiguous else "F"
        stream = self.chosen(stream)
        plain = host.view(np.ndarray)
        self.note_upload("set", stream, [plain], [array.whole_part] if array.size else [], order=order)
        if self.is_cuda:
            array.array_data.set(plain, stream.native)
        else:
            np.copyto(array.array_data, plain)

    def upload(
        self, call: str, make: Callable[..., Any], value: Any, kwargs: dict[str, Any], *, blocks: bool
    ) -> PortArray:
        """Return a new device array with the data of a host object, as ``asarray`` does."""
        hosts: list[Storage] = []
        plain = _plain(value, hosts)
        order = str(kwargs.get("order") or "K").upper()
        made = self.adopt(make(plain, **kwargs), call)
        if hosts and hosts[0] is plain and order in {"K", "A"}:
            order = "F" if plain.flags.fnc else "C"
        is_same = len(hosts) == 1 and hosts[0] is plain and plain.ndim > 0 and plain.dtype == made.dtype
        writes = [made.whole_part] if made.size else []
        self.note_upload(call, self.current(), hosts, writes, order=order if is_same else "", blocks=blocks)
        return made

    def note_upload(
        self,
        call: str,
        stream: Any,
        hosts: Sequence[Storage],
        writes: Sequence[AccessPart],
        *,
        order: str,
        blocks: bool = False,
    ) -> None:
        """Record a copy to the device: it reads one pinned array of this order when the stream gets there."""
        recorder = self.recorder
        read = [host for host in hosts if host.size]
        parts = [recorder.host_part(host) for host in read]
        is_late = len(read) == 1 and bool(order) and recorder.is_pinned(read[0])
        if is_late:
            flags = read[0].flags
            is_late = flags.c_contiguous if order == "C" else flags.f_contiguous
        recorder.add(
            "to device",
            call,
            stream.number,
            parts if is_late else (),
            writes,
            host_reads=() if is_late else tuple(parts),
            blocks=blocks,
        )

    def draw(
        self,
        compute: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        name: str,
    ) -> Any:
        """Call a function that draws random numbers."""
        call = _ArrayCall(self, name, args, kwargs, takes_host=True)
        result = compute(*call.data, **call.named_data)
        if isinstance(result, int | float):
            result = self.xp.asarray(result)
        wrapped = call.wrap(result)
        call.note_random(is_in_place=name == "shuffle")
        return call.finish(wrapped, uses_random=True)

    def unsupported(self, what: str, why: str = "", *, owner: str = "cupy") -> UnsupportedError:
        """Return the error for something that the stand-in does not have."""
        place = self.recorder.place()
        where = f"{os.path.relpath(place.file)}:{place.line}"
        why = why or _REMEDIES.get(what.rpartition(".")[2], "")
        reason = f": {why}" if why else "; it is not among the arrays, streams, events and kernels that it knows"
        return UnsupportedError(f"{where}: offload port does not support {owner}.{what}{reason}")


_CAPTURE = "call the operations of a captured graph directly, without the capture"
_REMEDIES = {
    **dict.fromkeys(("Graph", "begin_capture", "end_capture", "is_capturing"), _CAPTURE),
    **dict.fromkeys(("nvtx", "profile", "profiler"), "leave the profiler's calls out of this run"),
    **dict.fromkeys(("copy_from_host", "copy_from_host_async"), "write d.set(h, stream=stream)"),
    **dict.fromkeys(("copy_to_host", "copy_to_host_async"), "write d.get(stream=stream, out=h, blocking=False)"),
    **dict.fromkeys(
        ("copy_from", "copy_from_async", "copy_from_device", "copy_from_device_async"),
        "write d[...] = other in a `with stream:`",
    ),
    **dict.fromkeys(("memset", "memset_async"), "write d[...] = value in a `with stream:`"),
    "ExternalStream": "make a cupy.cuda.Stream in the program",
    "PinnedMemoryPointer": "use cupyx.empty_pinned, which returns an array",
    "alloc_pinned_memory": "use cupyx.empty_pinned, which returns an array",
}
"""What to write instead of names of CuPy that programs with streams often use."""

_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)


class _ArrayCall:
    """One call: its arguments for computing, their shadows, and the accesses found so far."""

    def __init__(
        self, machine: ArrayMachine, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], *, takes_host: bool
    ) -> None:
        self._machine = machine
        self._name = name
        self._args, self._kwargs = args, kwargs
        self._takes_host = takes_host
        self._found: list[PortArray] = []
        self._hosts: list[Storage] = []
        self._made: list[PortArray] = []
        self._reads: list[AccessPart] = []
        self._writes: list[AccessPart] = []
        self.waits = name in WAITS or (name == "where" and len(args) == 1)
        self.data = [self._unwrap(value) for value in args]
        self.named_data = {key: self._unwrap(value) for key, value in kwargs.items()}

    def _unwrap(self, value: Any) -> Any:
        if isinstance(value, PortArray):
            self._found.append(value)
            return value.array_data
        if isinstance(value, np.ndarray):
            if value.ndim and not self._takes_host:
                raise TypeError(f"Unsupported type {np.ndarray}: {self._name} mixes a host array with a device array")
            self._hosts.append(value.view(np.ndarray))
            return self._hosts[-1]
        if isinstance(value, list | tuple) and type(value) in {list, tuple}:
            return type(value)([self._unwrap(part) for part in value])
        if type(value) is dict:
            return {key: self._unwrap(part) for key, part in value.items()}
        return value

    def shadows(self) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments as arrays whose addresses tell the bytes."""
        if not self._machine.is_cuda:
            return self.data, self.named_data
        return [self.shadow(value) for value in self._args], {k: self.shadow(v) for k, v in self._kwargs.items()}

    def shadow(self, value: Any) -> Any:
        """Return an object with shadows for proxies."""
        if isinstance(value, PortArray):
            return value.array_shadow
        if type(value) in {list, tuple}:
            return type(value)([self.shadow(part) for part in value])
        if type(value) is dict:
            return {key: self.shadow(part) for key, part in value.items()}
        return value

    def wrap(self, result: Any) -> Any:
        """Return a result with proxies: of an argument, of a view of one, or of a new array."""
        machine = self._machine
        if isinstance(result, machine.xp.ndarray):
            for array in self._found:
                if result is array.array_data:
                    return array
            memory = self._memory_of(result)
            if memory is not None:
                return machine.array_class.over(result, machine._shadow_in(memory, result), memory)  # noqa: SLF001
            return self._new(result)
        if isinstance(result, np.generic):
            return self._new(machine.xp.asarray(result))
        if isinstance(result, tuple) and hasattr(result, "_fields"):
            return type(result)(*(self.wrap(part) for part in result))
        if type(result) in {list, tuple}:
            return type(result)([self.wrap(part) for part in result])
        return result

    def _new(self, data: Any) -> PortArray:
        made = self._machine.adopt(data, self._name)
        self._made.append(made)
        return made

    def _memory_of(self, result: Any) -> PortMemory | None:
        for array in self._found:
            if self._machine.is_cuda:
                if result.size and result.data.mem is array.memory.native[0]:
                    return array.memory
            elif np.may_share_memory(result, array.array_data):  # by bounds: allocations do not interleave
                return array.memory
        return None

    def note(self, reads: Sequence[Storage], writes: Sequence[Storage]) -> None:
        """Note accesses of parts of the arguments."""
        self._reads += [part for array in reads if (part := self._part(array)) is not None]
        self._writes += [part for array in writes if (part := self._part(array)) is not None]

    def note_unknown(self, *, writes_first: bool = False, is_mask: bool) -> None:
        """Note that elements are accessed that an argument on the device selects, so that they are not known.

        They are elements of the first array; of the others, if the first one selects them; of all, under ``where``.
        """
        out, where = self._kwargs.get("out"), self._kwargs.get("where")
        outs = out if isinstance(out, tuple) else (out,)
        for at, array in enumerate(self._found):
            part = array.whole_part
            is_selected = (at == 0) != (self._name in _SELECTS_FIRST)
            if is_selected if where is None else array is not where:
                memory = array.memory
                part = part_of(unknown_part(array.array_shadow), memory.number, memory.origin, may_be_empty=is_mask)
            is_out = any(array is one for one in outs)
            (self._writes if is_out or (at == 0 and writes_first) else self._reads).append(part)

    def note_random(self, *, is_in_place: bool) -> None:
        """Note the accesses of a function that draws random numbers."""
        for array in self._found:
            is_out = self._kwargs.get("out") is array
            if not is_out:
                self._reads.append(array.whole_part)
            if is_out or is_in_place:
                self._writes.append(array.whole_part)

    def _part(self, array: Storage) -> AccessPart | None:
        address = byte_bounds(array)[0]
        for proxy in self._found:
            memory = proxy.memory
            if memory.contains(address):
                is_whole = array is proxy.array_shadow
                if self._machine.is_cuda and not is_whole and isinstance(array, Scattered):
                    array = unknown_part(proxy.array_shadow)
                return part_of(array, memory.number, memory.origin, may_be_empty=True)
        return None

    def finish(self, wrapped: Any, *, is_written: bool = True, **fields: Any) -> Any:
        """Record the operation, if elements were accessed, and return the result."""
        machine, recorder = self._machine, self._machine.recorder
        with recorder.lock:
            if self._reads and isinstance(wrapped, bool | int | float | complex):
                wrapped = self._new(machine.xp.asarray(wrapped))  # CuPy leaves such results on the device
            if is_written:
                self._writes += [made.whole_part for made in self._made if made.size]
            host_reads = tuple(recorder.host_part(host) for host in self._hosts if host.size)
            if self._reads or self._writes:
                kind: OperationKind = "kernel"
                stream = machine.current().number
                recorder.add(kind, self._name, stream, self._reads, self._writes, host_reads=host_reads, **fields)
                if self.waits:
                    recorder.add("to host", self._name, stream, self._reads, blocks=True)
        return wrapped


def _name_of(function: Any) -> str:
    owner = getattr(function, "__self__", None)
    name = str(getattr(function, "__name__", function))
    return f"{owner.__name__}.{name}" if isinstance(owner, np.ufunc) else name


def _is_same(one: PortArray, other: PortArray) -> bool:
    """Tell whether two arrays have the same elements at the same places."""
    return one.data.ptr == other.data.ptr and one.shape == other.shape and one.strides == other.strides


def _is_mask(item: Any) -> bool:
    if isinstance(item, bool):
        return True
    return isinstance(item, PortArray | np.ndarray) and item.dtype == np.bool_


def _plain(value: Any, hosts: list[Storage]) -> Any:
    """Return a host object with plain arrays, which are added to ``hosts``."""
    if isinstance(value, np.ndarray):
        hosts.append(value.view(np.ndarray))
        return hosts[-1]
    if type(value) in {list, tuple}:
        return type(value)([_plain(part, hosts) for part in value])
    return value


def _span(data: Any) -> tuple[int, int]:
    """Return the address of the lowest byte of an array of CuPy, and the bytes up to the highest one: at least 1."""
    below, above = 0, data.itemsize
    for n, stride in zip(data.shape, data.strides, strict=True):
        if n > 1:
            below -= min((n - 1) * stride, 0)
            above += max((n - 1) * stride, 0)
    return int(data.data.ptr) - below, below + above if data.size else 1


def _check_out(array: PortArray, out: Any) -> None:
    """Raise the errors of CuPy's ``get(out=…)``."""
    if not isinstance(out, np.ndarray):
        raise TypeError("Only numpy.ndarray can be obtained from cupy.ndarray")
    if array.dtype != out.dtype:
        raise TypeError(f"{out.dtype} array cannot be obtained from {array.dtype} array")
    if array.shape != out.shape:
        raise ValueError(f"Shape mismatch. Expected shape: {array.shape}, actual shape: {out.shape}")
    if not (out.flags.c_contiguous or out.flags.f_contiguous):
        raise RuntimeError("`out` cannot be specified when copying to non-contiguous ndarray")
