"""Modules that look like CuPy to the porter and compute by NumPy, so that ``--on cuda`` runs without a GPU.

Only the names that the porter asks of CuPy are here. Arrays are a subclass of NumPy's with CuPy's attribute ``data``,
``get`` and ``set``. Streams carry everything out at once.
"""

from __future__ import annotations

import weakref
from types import ModuleType, SimpleNamespace

import numpy as np


class Memory:
    """What CuPy has for an allocation."""

    def __init__(self, ptr):
        self.ptr = ptr


_memories = weakref.WeakValueDictionary()


class Array(np.ndarray):
    """An array with the attributes of CuPy's."""

    @property
    def data(self):
        owner = self
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        ptr = self.__array_interface__["data"][0]
        memory = _memories.get(id(owner))
        if memory is None or memory.owner() is not owner:
            memory = _memories[id(owner)] = Memory(ptr)
            memory.owner = weakref.ref(owner)
            _kept.append(memory)
        return SimpleNamespace(ptr=ptr, mem=memory)

    def get(self, stream=None, order="C", out=None, blocking=True):
        plain = np.asarray(self)
        if out is None:
            return np.array(plain, order=order)
        out[...] = plain
        return out

    def set(self, arr, stream=None):
        np.asarray(self)[...] = arr


_kept = []  # memories live as long as the tests


def _like_cupy(value):
    """Return a function of NumPy whose results are arrays of the device."""

    def call(*args, **kwargs):
        return _arrays(value(*args, **kwargs))

    call.__name__ = getattr(value, "__name__", "call")
    for name in ("reduce", "accumulate", "outer", "at", "reduceat"):
        if isinstance(value, np.ufunc):
            setattr(call, name, _like_cupy(getattr(value, name)))
    return call


def _arrays(result):
    if isinstance(result, np.ndarray):
        return result if isinstance(result, Array) else result.view(Array)
    if isinstance(result, np.generic):
        return np.asarray(result).view(Array)
    if type(result) in {list, tuple}:
        return type(result)([_arrays(part) for part in result])
    return result


class _Names:
    def __init__(self, module):
        self._module = module

    def __getattr__(self, name):
        value = getattr(self._module, name)
        if isinstance(value, ModuleType):
            return _Names(value)
        if name in {"array", "asarray", "ascontiguousarray"}:
            return lambda a, **kwargs: np.array(a, **{**kwargs, "copy": True}).view(Array)
        if name == "default_rng":
            return lambda *args: _Names(value(*args))
        if name in {"mgrid", "ogrid", "r_", "c_"}:
            return SimpleNamespace(__getitem__=lambda key: _arrays(value[key]))
        return _like_cupy(value) if callable(value) and not isinstance(value, type) else value


class Stream:
    """A stream that carries everything out at once."""

    null = None
    done = True

    def __init__(self, null=False, non_blocking=False, priority=None):
        self.ptr = 0 if null else id(self)

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        pass

    def use(self):
        return self

    def synchronize(self):
        pass

    def wait_event(self, event):
        pass

    def launch_host_func(self, callback, arg):
        callback(arg)


Stream.null = Stream(null=True)


class Event:
    """An event that is always done."""

    done = True

    def __init__(self, block=False, disable_timing=False, interprocess=False):
        pass

    def record(self, stream=None):
        pass

    def synchronize(self):
        pass


class RawKernel:
    """A kernel that does nothing."""

    def __init__(self, code, name, options=(), backend="nvrtc"):
        pass

    def __call__(self, grid, block, args):
        assert not any(type(arg).__module__.startswith("offload") for arg in args)


class ElementwiseKernel:
    """A kernel that adds its inputs."""

    name = "added"

    def __init__(self, in_params, out_params, operation, name="added"):
        self._count = len(in_params.split(","))

    def __call__(self, *args):
        total = sum(args[: self._count][1:], args[0])
        if len(args) == self._count:
            return _arrays(total)
        args[self._count][...] = total
        return args[self._count]


cupy = _Names(np)
cupy.ndarray = Array
cupy.__version__ = "14.2.0"
cupy.RawKernel, cupy.ElementwiseKernel = RawKernel, ElementwiseKernel
cupy.cuda = SimpleNamespace(
    Stream=Stream,
    Event=Event,
    get_elapsed_time=lambda start, end: 0.0,
    runtime=SimpleNamespace(deviceSynchronize=lambda: None, getDeviceCount=lambda: 1),
)
cupyx = SimpleNamespace(empty_pinned=np.empty, zeros_pinned=np.zeros)
