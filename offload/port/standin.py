"""The modules `cupy` and `cupyx` that a program receives: their names, and what each stands for."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.port.arrays import PortArray
from offload.port.kernels import KernelSide
from offload.port.randoms import RandomNames
from offload.port.streams import CudaSide
from offload.port.typed import fuse, typed_kernel
from offload.sanitizer.accesses import is_known
from offload.sanitizer.tracked import tracked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from offload.port.kernels import KernelAccesses
    from offload.port.machine import ArrayMachine
    from offload.port.recorder import ProgramRecorder

_COPIES_IN = frozenset({"array", "asanyarray", "asarray", "ascontiguousarray", "asfortranarray"})
"""Functions that take host objects and give a device array."""

_LIKE = frozenset({"empty_like", "full_like", "ones_like", "zeros_like"})
"""Functions that take a host array for its shape and type alone."""

_HOST_ONLY = frozenset(
    {"apply_along_axis", "apply_over_axes", "asmatrix", "bmat", "busdaycalendar", "frombuffer", "frompyfunc"}
    | {"fromiter", "genfromtxt", "loadtxt", "matrix", "memmap", "ndenumerate", "nditer", "nested_iters"}
    | {"piecewise", "poly1d", "recarray", "vectorize"}
)
"""Names of NumPy that work on host arrays, or call functions of the program with host arrays."""

_GRIDS = frozenset({"c_", "mgrid", "ogrid", "r_"})
_SAVES = {"save": 1, "savez": 1, "savez_compressed": 1, "savetxt": 1}
_TEXTS = frozenset({"array2string", "array_repr", "array_str"})
_MODULES = frozenset({"fft", "linalg"})
_POOL_NAMES = frozenset(
    {"MemoryAsyncPool", "MemoryPool", "PinnedMemoryPool", "get_default_memory_pool", "get_default_pinned_memory_pool"}
    | {"set_allocator", "set_pinned_memory_allocator"}
)


class StandInModule(ModuleType):
    """A module whose names are found by a function.

    Parameters
    ----------
    name : str
        Such as ``"cupy.cuda"``.
    find : callable
        Returns what a name stands for, and raises `offload.UnsupportedError` for others.
    names : mapping
        The names that are known at once.
    """

    def __init__(self, name: str, find: Callable[[str], Any], names: Mapping[str, Any]) -> None:
        super().__init__(name, f"The stand-in of `offload port` for {name}.")
        self.__dict__.update(names)
        self.__dict__["__path__"] = []  # a package: its modules are imported by name
        self.__dict__["_find"] = find

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = self.__dict__["_find"](name)
        self.__dict__[name] = value
        return value


class NoPool:
    """A memory pool that keeps no memory: each method does nothing and returns 0."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _does_nothing


def _does_nothing(*_: Any, **__: Any) -> int:
    return 0


class DeviceFunction:
    """A function of NumPy, or a ufunc, that gives device arrays.

    Parameters
    ----------
    machine : ArrayMachine
        Carries out the call.
    function : callable
        NumPy's.
    compute : callable
        The function that computes: the same one, or CuPy's.
    """

    def __init__(self, machine: ArrayMachine, function: Any, compute: Any) -> None:
        self._machine, self._function, self._compute = machine, function, compute
        self.__name__ = str(getattr(function, "__name__", function))
        self.__doc__ = getattr(function, "__doc__", None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._machine.call(self._function, args, kwargs, self._compute)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._function, name)  # reduce, accumulate, outer, at, … of a ufunc; nin, types, …
        return DeviceFunction(self._machine, value, getattr(self._compute, name)) if callable(value) else value

    def __repr__(self) -> str:
        return f"<function cupy.{self.__name__}>"


class DeviceGrid:
    """``mgrid``, ``ogrid``, ``r_`` or ``c_``."""

    def __init__(self, machine: ArrayMachine, name: str) -> None:
        self._machine, self._name = machine, name

    def __getitem__(self, key: Any) -> Any:
        grid, compute = getattr(np, self._name), getattr(self._machine.xp, self._name)
        return self._machine.call(grid.__getitem__, (key,), {}, compute.__getitem__, name=self._name)


class CupyStandIn:
    """The modules of a run.

    Parameters
    ----------
    machine : ArrayMachine
        Carries out operations on arrays.
    accesses : KernelAccesses
        The accesses of kernels.
    cupy, cupyx : module or None
        CuPy's own modules on ``cuda``.
    """

    def __init__(self, machine: ArrayMachine, accesses: KernelAccesses, cupy: Any = None, cupyx: Any = None) -> None:
        self.machine = machine
        self.recorder: ProgramRecorder = machine.recorder
        self._cupy, self._cupyx = cupy, cupyx
        self.streams = CudaSide(machine, None if cupy is None else cupy.cuda)
        self.kernels = KernelSide(self.streams, accesses, cupy)
        self.modules: dict[str, ModuleType] = {}
        self._add_modules()

    def _add_modules(self) -> None:
        streams = self.streams
        runtime = self._module("cupy.cuda.runtime", self._none("cupy.cuda.runtime"), self._runtime_names())
        stream_names = {
            "Stream": streams.stream_class,
            "Event": streams.event_class,
            "get_current_stream": streams.current,
            "get_elapsed_time": streams.elapsed,
        }
        stream = self._module("cupy.cuda.stream", self._none("cupy.cuda.stream"), stream_names)
        cuda_names = {
            **stream_names,
            "Device": streams.device_class,
            "runtime": runtime,
            "stream": stream,
            "is_available": lambda: True,
            "get_device_id": lambda: 0,
        }
        cuda = self._module("cupy.cuda", self._find_cuda, cuda_names)
        inner = {name: self._numpy_module(name) for name in _MODULES}
        random = RandomNames(self.machine)
        inner["random"] = self._module("cupy.random", random.find, {})
        self._module("cupy", self._find, {"cuda": cuda, "ndarray": self.machine.array_class, **inner, **self._own()})
        pinned = {f"{name}_pinned": self._pinned(name) for name in ("empty", "zeros")}
        pinned.update({f"{name}_like_pinned": self._pinned_like(name) for name in ("empty", "zeros")})
        self._module("cupyx", self._none("cupyx"), pinned)

    def _module(self, name: str, find: Callable[[str], Any], names: Mapping[str, Any]) -> ModuleType:
        module = self.modules[name] = StandInModule(name, find, names)
        return module

    def _none(self, owner: str) -> Callable[[str], Any]:
        def find(name: str) -> Any:
            raise self.machine.unsupported(name, owner=owner)

        return find

    # -- cupy --------------------------------------------------------------------------------------
    def _own(self) -> dict[str, Any]:
        names: dict[str, Any] = {name: self._copy_in(name) for name in _COPIES_IN}
        names.update((name, self._like(name)) for name in _LIKE)
        names.update((name, self._save(name)) for name in _SAVES)
        names.update((name, self._text(name)) for name in _TEXTS)
        names.update((name, DeviceGrid(self.machine, name)) for name in _GRIDS)
        return {
            **names,
            "__version__": "14.0.0" if self._cupy is None else self._cupy.__version__,
            "asnumpy": self._asnumpy,
            "fromfunction": self._fromfunction,
            "get_array_module": self._get_array_module,
            "is_available": lambda: True,
            "load": self._load,
            "RawKernel": self.kernels.raw_kernel,
            "RawModule": self.kernels.raw_module,
            "ElementwiseKernel": typed_kernel(self.kernels, "ElementwiseKernel"),
            "ReductionKernel": typed_kernel(self.kernels, "ReductionKernel"),
            "fuse": fuse,
        }

    def _find(self, name: str) -> Any:
        if name in _POOL_NAMES:
            return self._pool(name)
        return self._from_numpy(name, np, self.machine.xp, "cupy")

    def _from_numpy(self, name: str, module: Any, compute: Any, owner: str) -> Any:
        value = getattr(module, name, None)
        is_there = value is not None or (hasattr(module, name) and name != "ma")
        if not is_there or name in _HOST_ONLY or isinstance(value, ModuleType) or not hasattr(compute, name):
            raise self.machine.unsupported(name, owner=owner)
        if callable(value) and not isinstance(value, type):
            if not is_known(value):
                raise self.machine.unsupported(name, owner=owner)
            return DeviceFunction(self.machine, value, getattr(compute, name))
        return value

    def _numpy_module(self, name: str) -> ModuleType:
        numpys, computes = getattr(np, name), getattr(self.machine.xp, name)

        def find(member: str) -> Any:
            return self._from_numpy(member, numpys, computes, f"cupy.{name}")

        return self._module(f"cupy.{name}", find, {})

    def _copy_in(self, name: str) -> Callable[..., Any]:
        function, compute = getattr(np, name), getattr(self.machine.xp, name)
        machine = self.machine

        def copy_in(a: Any, *args: Any, blocking: bool = False, **kwargs: Any) -> Any:
            kwargs.update(
                zip(("dtype", "copy", "order") if name == "array" else ("dtype", "order"), args, strict=False)
            )
            if isinstance(a, PortArray) or _has_device_array(a):
                return machine.call(function, (a,), kwargs, compute)
            if not machine.is_cuda:
                return machine.upload(name, _copying(function), a, kwargs, blocks=blocking)
            made = machine.upload(name, compute, a, kwargs, blocks=blocking)
            if blocking:
                machine.current().native.synchronize()
            return made

        copy_in.__name__ = name
        return copy_in

    def _like(self, name: str) -> Callable[..., Any]:
        function, compute = getattr(np, name), getattr(self.machine.xp, name)

        def like(a: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(a, np.ndarray):  # its shape and type count
                kwargs["shape"] = kwargs.get("shape") or a.shape
                kwargs.setdefault("dtype", a.dtype)
                a = self.machine.new((), a.dtype, "C")
            return self.machine.call(function, (a, *args), kwargs, compute)

        like.__name__ = name
        return like

    def _asnumpy(self, a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True) -> Any:
        """Copy a device array to the host, as CuPy's ``asnumpy`` does."""
        if isinstance(a, PortArray):
            return self.machine.to_host(a, "asnumpy", stream, order, out, blocking=blocking)
        plain: Any = tracked(np.asarray(a, order=order if order != "K" else None))  # type: ignore[arg-type]  # a word
        if out is None:
            return a if isinstance(a, np.ndarray) else plain
        out[...] = plain
        return out

    def _fromfunction(self, function: Any, shape: Any, *, dtype: Any = float, **kwargs: Any) -> Any:
        return function(*self.modules["cupy"].indices(shape, dtype=dtype), **kwargs)

    def _get_array_module(self, *args: Any) -> Any:
        """Return `cupy` if an argument is a device array, else the program's `numpy`."""
        if any(isinstance(arg, PortArray) for arg in args):
            return self.modules["cupy"]
        from offload.sanitizer import numpy

        return numpy

    def _save(self, name: str) -> Callable[..., None]:
        def save(file: Any, *args: Any, **kwargs: Any) -> None:
            hosts = [self._asnumpy(arg) if isinstance(arg, PortArray) else arg for arg in args]
            named = {k: self._asnumpy(arg) if isinstance(arg, PortArray) else arg for k, arg in kwargs.items()}
            getattr(np, name)(file, *hosts, **named)

        save.__name__ = name
        return save

    def _load(self, file: Any, *args: Any, **kwargs: Any) -> Any:
        loaded = np.load(file, *args, **kwargs)
        to_device = self.modules["cupy"].asarray
        if isinstance(loaded, np.ndarray):
            return to_device(loaded)
        return {name: to_device(loaded[name]) for name in loaded.files}

    def _text(self, name: str) -> Callable[..., str]:
        def text(a: Any, *args: Any, **kwargs: Any) -> str:
            plain = self.machine.scalar(a, name) if isinstance(a, PortArray) else a
            return str(getattr(np, name)(plain, *args, **kwargs))

        text.__name__ = name
        return text

    # -- cupy.cuda ---------------------------------------------------------------------------------
    def _find_cuda(self, name: str) -> Any:
        if name in _POOL_NAMES:
            return self._pool(name)
        raise self.machine.unsupported(name, owner="cupy.cuda")

    def _pool(self, name: str) -> Any:
        if self._cupy is not None:
            return getattr(self._cupy, name, None) or getattr(self._cupy.cuda, name)
        if name.startswith("set_"):
            return _does_nothing
        pool = NoPool()
        return (lambda: pool) if name.startswith("get_") else NoPool

    def _runtime_names(self) -> dict[str, Any]:
        def set_device(number: int) -> None:
            self.streams.device_class(number)

        return {
            "deviceSynchronize": self.streams.synchronize_device,
            "getDevice": lambda: 0,
            "getDeviceCount": lambda: 1,
            "setDevice": set_device,
        }

    # -- cupyx -------------------------------------------------------------------------------------
    def _pinned(self, name: str) -> Callable[..., Any]:
        """Return ``empty_pinned`` or ``zeros_pinned``."""

        def pinned(shape: Any, dtype: Any = float, order: str = "C") -> Any:
            make = getattr(np, name) if self._cupyx is None else getattr(self._cupyx, f"{name}_pinned")
            given = make(shape, dtype, order)
            self.recorder.add_pinned(given, f"{name}_pinned")
            return tracked(given)

        pinned.__name__ = f"{name}_pinned"
        return pinned

    def _pinned_like(self, name: str) -> Callable[..., Any]:
        """Return ``empty_like_pinned`` or ``zeros_like_pinned``."""
        make = self._pinned(name)

        def pinned(a: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None) -> Any:
            del subok  # as in CuPy, it has no effect
            is_fortran = order == "F" or (order in {"A", "K"} and a.flags.fnc)
            return make(a.shape if shape is None else shape, dtype or a.dtype, "F" if is_fortran else "C")

        pinned.__name__ = f"{name}_like_pinned"
        return pinned


def _has_device_array(value: Any) -> bool:
    return isinstance(value, PortArray) or (
        isinstance(value, list | tuple) and any(_has_device_array(part) for part in value)
    )


def _copying(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return NumPy's function with a result that never shares memory with a host array."""

    def make(value: Any, **kwargs: Any) -> Any:
        made = function(value, **kwargs)
        return made.copy(order="K") if isinstance(value, np.ndarray) and np.may_share_memory(made, value) else made

    return make
