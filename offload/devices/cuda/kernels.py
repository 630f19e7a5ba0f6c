"""Kernels of a CUDA device: text that NVRTC compiles, and launches with one structure of arguments.

Each text is compiled and loaded once a device, under a lock, and stays loaded, because streams and graphs hold its
addresses. Compiled code is kept on disk. A launch allocates nothing: the driver copies the structure, also into a graph
under capture. See docs/design/theory.md, "Compiled kernels".
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
from typing import TYPE_CHECKING, Any, Literal

import cupy
from cupy.cuda import driver, nvrtc
from cupy.cuda import runtime as cuda
from cupy.cuda.function import Module

from offload.devices import diskcache
from offload.errors import DeviceLostError, InternalError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offload.devices.base import Program

_NO_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT
_NUM_REGS = 4  # CU_FUNC_ATTRIBUTE_NUM_REGS


class CudaKernels:
    """Loads functions for the CUDA device of ordinal ``index``; see `offload.devices.base.Kernels`."""

    dialect: Literal["c", "cuda"] = "cuda"

    def __init__(self, index: int, name: str) -> None:
        self._index = index
        self._name = name
        self._lock = threading.Lock()  # one thread compiles at a time
        self._loaded: dict[tuple[str, tuple[str, ...]], Mapping[str, CudaKernel]] = {}
        self._capability = int(cupy.cuda.Device(index).compute_capability)
        self.target = f"sm_{self._capability}"

    def load(self, program: Program) -> Mapping[str, CudaKernel]:
        """Compile a program, once, and return its kernels by name; raise `InternalError` if NVRTC rejects the text."""
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
        """Return the seconds between two such events."""
        return float(cupy.cuda.get_elapsed_time(first, last)) * 1e-3

    def _compiled(self, program: Program) -> Mapping[str, CudaKernel]:
        options = ("-std=c++17", *program.options)
        key = _key(program.source, options, self.target)
        where = diskcache.folder(os.environ)
        code = diskcache.read(where, key, "cubin")
        if code is None:
            try:
                code = _code(program.source, options, self._capability)
            except nvrtc.NVRTCError as error:
                said = "\n".join([str(error), *getattr(error, "__notes__", ())])
                raise InternalError(f"{self._name}: NVRTC cannot compile the generated code:\n{said}") from error
            diskcache.store(where, key, "cubin", code)
        try:
            with cupy.cuda.Device(self._index):
                module = Module()
                module.load(code)
                functions = {name: module.get_function(name) for name in program.names}
                for function in functions.values():
                    driver.funcGetAttribute(_NUM_REGS, function.ptr)  # asking loads it
        except (cuda.CUDARuntimeError, driver.CUDADriverError) as error:
            raise DeviceLostError(f"{self._name}: {error}") from error
        return {name: CudaKernel(function, self._index, self._name) for name, function in functions.items()}


def _key(source: str, options: Sequence[str], target: str) -> str:
    """Return the name of the code of a text: 64 hexadecimal digits. It starts no compiler."""
    parts = (source, *options, target, cupy.__version__, str(cuda.runtimeGetVersion()))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _code(source: str, options: Sequence[str], capability: int) -> bytes:
    """Return compiled code for a device of this capability, or for an older one if NVRTC does not know it."""
    # An `NVRTCError` carries NVRTC's output as a note.
    known = [int(one) for one in nvrtc.getSupportedArchs()]
    is_known = capability in known
    of = f"sm_{capability}" if is_known else f"compute_{max(one for one in known if one <= capability)}"
    program = nvrtc.createProgram(source, "loop.cu", (), ())
    try:
        nvrtc.compileProgram(program, (f"-arch={of}", *options))
        return nvrtc.getCUBIN(program) if is_known else nvrtc.getPTX(program)  # type: ignore[no-any-return]  # CuPy's
    except nvrtc.NVRTCError as error:
        error.add_note(nvrtc.getProgramLog(program))
        raise
    finally:
        nvrtc.destroyProgram(program)


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
        """Enqueue it; see the contract. Grid and block have three numbers each; the call copies ``arguments``."""
        at = ctypes.c_void_p(ctypes.addressof(arguments))
        call = (self._address, *grid, *block, shared_nbytes, stream.ptr, ctypes.addressof(at), 0)
        try:
            driver.launchKernel(*call)  # CuPy's own would look at the argument again
        except driver.CUDADriverError as error:
            if error.status != _NO_CONTEXT:
                raise DeviceLostError(f"{self._name}: {error}") from error
            cuda.setDevice(self._index)  # the first call of CUDA on this thread
            driver.launchKernel(*call)
