"""The current streams of PyTorch and Warp, which are the task's stream while a body runs.

A library takes part if the program has imported it: each question is a look into `sys.modules`, and nothing is imported
here. A library that cannot use CUDA, or that another thread is still importing, counts as absent. Numba and JAX have no
current stream: Numba's kernels name theirs, and JAX has its own.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any, Protocol

from offload.errors import DirectiveWarning, UnsupportedError
from offload.interrupts.frames import warn

if TYPE_CHECKING:
    from collections.abc import Callable

_LEGACY_STREAM = 1  # cudaStreamLegacy, another name of the null stream; to PyTorch it would be a stream of its own


class LibraryStreams(Protocol):
    """The current stream of one device in a library."""

    label: str  # the library's name, for people

    def enter(self, ptr: int) -> Any:
        """Make the stream with this address current for the calling thread; return the argument of `leave`."""

    def leave(self, outer: Any) -> None:
        """Make the stream from before current again."""

    def current(self) -> int:
        """Return the address of the calling thread's current stream."""


class TorchStreams:
    """PyTorch's current stream of a device, of which each thread has its own."""

    __slots__ = ("_get", "_get_ptr", "_index", "_set", "_type")

    label = "PyTorch"

    def __init__(self, module: Any, index: int) -> None:
        # `torch.cuda.set_stream` calls these functions, and does more around them. They initialise nothing: a body may
        # be the first of the program that uses PyTorch's CUDA.
        native = module._C  # noqa: SLF001  # as above
        self._index = index
        self._get: Callable[[int], tuple[int, int, int]] = native._cuda_getCurrentStream  # noqa: SLF001  # as above
        self._get_ptr: Callable[[int], int] = native._cuda_getCurrentRawStream  # noqa: SLF001  # as above
        self._set: Callable[[int, int, int], None] = native._cuda_setStream  # noqa: SLF001  # as above
        self._type = self._get(index)[2]

    def enter(self, ptr: int) -> tuple[int, int, int]:
        if ptr == _LEGACY_STREAM:
            ptr = 0
        index = self._index
        outer = self._get(index)
        self._set(ptr, index, self._type)  # the id of an external stream is its address
        if self._get_ptr(index) != ptr:
            self._set(*outer)
            raise UnsupportedError(
                "offload cannot make a task's stream current in this version of PyTorch; use PyTorch 2.1 to 2.14, or "
                "report the version that you have"
            )
        return outer

    def leave(self, outer: tuple[int, int, int]) -> None:
        self._set(*outer)

    def current(self) -> int:
        return self._get_ptr(self._index)


# Warp has one current stream of a device for all threads. So bodies run one at a time where Warp has been imported. One
# lock serves all devices: with several, threads could take them in different orders.
_warp_lock = threading.RLock()


class WarpStreams:
    """Warp's current stream of a device, which all threads share."""

    __slots__ = ("_device", "_streams", "_warp")

    label = "Warp"

    def __init__(self, module: Any, index: int) -> None:
        self._warp = module
        self._device = module.get_device(f"cuda:{index}")
        self._streams: dict[int, Any] = {}  # Warp's, by address

    def enter(self, ptr: int) -> Any:
        warp, device = self._warp, self._device
        _warp_lock.acquire()
        try:
            outer = warp.get_stream(device)
            stream = self._streams.get(ptr)
            if stream is None:
                stream = self._streams[ptr] = warp.Stream(device, cuda_stream=ptr)
            warp.set_stream(stream, device)
        except BaseException:
            _warp_lock.release()
            raise
        return outer

    def leave(self, outer: Any) -> None:
        try:
            self._warp.set_stream(outer, self._device)
        finally:
            _warp_lock.release()

    def current(self) -> int:
        with _warp_lock:  # not the stream of a body on another thread
            return int(self._warp.get_stream(self._device).cuda_stream or 0)


_KINDS: dict[str, type[TorchStreams | WarpStreams]] = {"torch": TorchStreams, "warp": WarpStreams}


class Libraries:
    """The libraries besides CuPy whose current stream of one device is the task's while a body runs."""

    __slots__ = ("_index", "_known")

    def __init__(self, index: int) -> None:
        self._index = index  # CUDA's device ordinal
        # by name, each with its module; None for a library that cannot use the device
        self._known: dict[str, tuple[Any, LibraryStreams | None]] = {}

    def enter(self, ptr: int) -> list[tuple[LibraryStreams, Any]]:
        """Make the stream with this address current in each library, on the device, which is CUDA's current one.

        Return the argument of `leave`.
        """
        entered: list[tuple[LibraryStreams, Any]] = []
        try:
            for streams in self._present():
                entered.append((streams, streams.enter(ptr)))  # noqa: PERF401  # kept also if the next one raises
        except BaseException:
            self.leave(entered)
            raise
        return entered

    def leave(self, entered: list[tuple[LibraryStreams, Any]]) -> None:
        """Make the streams from before current again, in each library, also if another one raises."""
        try:
            while entered:
                streams, outer = entered.pop()
                streams.leave(outer)
        finally:
            if entered:
                self.leave(entered)

    def currents(self) -> list[tuple[str, int]]:
        """Return the label of each library, with the address of the calling thread's current stream there."""
        return [(streams.label, streams.current()) for streams in self._present()]

    def _present(self) -> list[LibraryStreams]:
        found = []
        for name in _KINDS:
            module = sys.modules.get(name)
            if module is not None:
                known = self._known.get(name)
                streams = known[1] if known is not None and known[0] is module else self._look_at(name, module)
                if streams is not None:
                    found.append(streams)
        return found

    def _look_at(self, name: str, module: Any) -> LibraryStreams | None:
        """Return a library's streams of the device; None if it has none, or is not imported yet."""
        if getattr(getattr(module, "__spec__", None), "_initializing", False):
            return None  # it is asked again
        streams: LibraryStreams | None
        try:
            streams = _KINDS[name](module, self._index)
        except Exception:  # noqa: BLE001  # a build without CUDA, no driver that it can use, a device that it cannot see
            streams = None
        self._known[name] = module, streams
        return streams


def imported() -> int:
    """Return which of the libraries the program has imported: a bit for each."""
    modules = sys.modules
    return ("torch" in modules) | ("warp" in modules) << 1


def warn_of_late_import(before: int) -> None:
    """Warn that a library, not in ``before``, was imported while a body ran, whose work there went to another stream.

    Another thread may have imported it, and the body may not have used it.
    """
    late = imported() & ~before
    names = " and ".join(name for bit, name in enumerate(_KINDS) if late >> bit & 1)
    warn(
        f"{names} was imported while a target body ran; if the body has used it, that work is not part of the task; "
        f"import {names} before the construct",
        DirectiveWarning,
    )


def device_index(stream: object) -> int | None:
    """Return the ordinal of the CUDA device that a stream of any library says it belongs to; None if it says nothing.

    CuPy's say ``device_id``, PyTorch's ``device_index``, Warp's ``device.ordinal``, cuda.core's ``device.device_id``.
    """
    device = getattr(stream, "device", None)
    for holder, name in ((stream, "device_id"), (stream, "device_index"), (device, "ordinal"), (device, "device_id")):
        index = getattr(holder, name, None)
        if type(index) is int:
            return index
    return None
