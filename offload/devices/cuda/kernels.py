"""Kernels of a CUDA device: text that NVRTC compiles, and launches with one structure of arguments.

CuPy keeps what it compiles on disk. Each text is compiled and loaded once a device, under a lock, and stays loaded,
since streams and graphs hold its addresses. CUDA loads a kernel's code when it is first used, and waits for running
kernels to do so, which a capture does not survive; so the registers of each are asked for, which loads it.

A launch allocates nothing: the driver copies the structure, also into a graph that is being captured.
"""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING, Any, Literal

import cupy
from cupy.cuda import driver
from cupy.cuda import runtime as cuda
from cupy.cuda.compiler import CompileException

from offload.errors import DeviceLostError, InternalError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.devices.base import Program

_NO_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT


class CudaKernels:
    """How a CUDA device is given functions to run; see `offload.devices.base.Kernels`.

    Parameters
    ----------
    index : int
        CUDA's device ordinal.
    name : str
        The device's, for messages.
    """

    dialect: Literal["c", "cuda"] = "cuda"

    def __init__(self, index: int, name: str) -> None:
        self._index = index
        self._name = name
        self._lock = threading.Lock()
        self._loaded: dict[tuple[str, tuple[str, ...]], Mapping[str, CudaKernel]] = {}
        self.target = f"sm_{cupy.cuda.Device(index).compute_capability}"

    def load(self, program: Program) -> Mapping[str, CudaKernel]:
        """Compile a program, once, and return its kernels by name.

        Raises
        ------
        InternalError
            NVRTC does not take the text.
        DeviceLostError
        """
        key = program.source, tuple(program.options)
        found = self._loaded.get(key)
        if found is None:
            with self._lock:
                found = self._loaded.get(key)
                if found is None:
                    found = self._loaded[key] = self._compiled(program)
        return found

    def time(self, stream: Any) -> Any:
        """Record and return an event of those that know when the stream has passed them."""
        try:
            with cupy.cuda.Device(self._index):
                event = cupy.cuda.Event()
                event.record(stream)
        except cuda.CUDARuntimeError as error:
            raise DeviceLostError(f"{self._name}: {error}") from error
        return event

    def seconds(self, first: Any, last: Any) -> float:
        """Return what has passed between two such events."""
        return float(cupy.cuda.get_elapsed_time(first, last)) * 1e-3

    def _compiled(self, program: Program) -> Mapping[str, CudaKernel]:
        options = ("-std=c++17", *program.options)
        try:
            with cupy.cuda.Device(self._index):
                module = cupy.RawModule(code=program.source, options=options, backend="nvrtc")
                functions = {name: module.get_function(name) for name in program.names}
                for function in functions.values():
                    function.num_regs  # noqa: B018  # asking loads it
        except CompileException as error:
            raise InternalError(f"{self._name}: NVRTC does not compile what was generated:\n{error}") from error
        except (cuda.CUDARuntimeError, driver.CUDADriverError) as error:
            raise DeviceLostError(f"{self._name}: {error}") from error
        return {name: CudaKernel(function.kernel, self._index, self._name) for name, function in functions.items()}


class CudaKernel:
    """A function that a CUDA device runs; see `offload.devices.base.Kernel`."""

    __slots__ = ("_address", "_function", "_index", "_name")

    def __init__(self, function: Any, index: int, name: str) -> None:
        self._function = function  # keeps the code loaded
        self._address = function.ptr
        self._index = index
        self._name = name

    def launch(
        self, stream: Any, grid: tuple[int, ...], block: tuple[int, ...], shared_nbytes: int, arguments: Any
    ) -> None:
        """Enqueue it; see the contract.

        Parameters
        ----------
        grid, block : tuple of int
            Three numbers each.
        arguments : array of ctypes
            The structure; the call copies it.

        Raises
        ------
        DeviceLostError
        """
        at = ctypes.c_void_p(ctypes.addressof(arguments))
        call = (self._address, *grid, *block, shared_nbytes, stream.ptr, ctypes.addressof(at), 0)
        try:
            driver.launchKernel(*call)  # CuPy's own would look at the argument again
        except driver.CUDADriverError as error:
            if error.status != _NO_CONTEXT:
                raise DeviceLostError(f"{self._name}: {error}") from error
            cuda.setDevice(self._index)  # the first call of CUDA on this thread
            driver.launchKernel(*call)
