"""Arrays of other libraries in host memory, as NumPy arrays of the same memory, and tensors for a body.

An object exposes host memory by NumPy's ``__array_interface__``, by DLPack, or as a buffer. A reader returns a NumPy
array over that memory, which keeps the object's storage alive; `offload.arrays.items.as_host` calls it. No library is
imported here: a tensor can only come from a program that has imported PyTorch.
"""

from __future__ import annotations

import ctypes
import sys
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from offload.errors import ClauseError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    Host = np.ndarray[Any, Any]
    Reader = Callable[[Any], Any]

DLPACK_HOST: Final = (1, 3)
"""DLPack's device types of host memory: kDLCPU and kDLCUDAHost."""

_UNSIGNED = 1  # kDLUInt

_OWN = (np.ndarray, np.generic, str, bytes, int, float, complex, type(None))
"""Classes that need no view: arrays, and values that are passed by value although some expose memory."""

READERS: dict[type, Reader | None] = {}
"""By class, once an object of it has been seen, the function that returns an object's view.

None if no object of the class exposes host memory.
"""

_MOST_CLASSES = 512  # Programs may make classes without end


def reader_of(item: Any) -> Reader | None:
    """Find, and remember, the reader for an object's class.

    A reader raises `ClauseError` if the memory cannot be used, for example of a sparse tensor or a released buffer. It
    returns the object itself if that exposes no host memory, as a tensor on a device.
    """
    kind = type(item)  # which a proxy does not hide, as ``__class__``
    read: Reader | None = None
    if kind is bytes:  # but no subclass, whose objects are names
        read = _of_bytes
    elif not isinstance(item, (type, *_OWN)) and not hasattr(item, "__offload_section__"):
        if is_tensor(item):
            read = _of_tensor
        elif hasattr(kind, "__array_interface__"):
            read = _of_interface
        elif getattr(kind, "__dlpack__", None) and getattr(kind, "__dlpack_device__", None):
            read = _of_dlpack
        elif _is_buffer(item):
            read = _of_buffer
        elif hasattr(item, "__dict__"):
            read = _of_attributes
    if len(READERS) < _MOST_CLASSES:
        READERS[kind] = read
    return read


def _is_buffer(item: Any) -> bool:
    """Tell whether objects of a class are buffers of elements: of ctypes, only the arrays are."""
    if isinstance(item, _CTYPES):
        return isinstance(item, ctypes.Array) and _is_of_numbers(item)  # a function of C exposes its pointer, too
    try:
        memoryview(item).release()
    except TypeError:
        return False
    except (BufferError, ValueError):
        return True  # a buffer that is closed or released
    return True


def _is_of_numbers(item: Any) -> bool:
    """Tell whether NumPy has arrays of the elements of an array of ctypes: not of pointers, and not of text."""
    try:
        return np.asarray(item).dtype.kind in "biufcVS"
    except ValueError:
        return False


_CTYPES = ctypes.c_int.__mro__[-2]  # the base of all values of ctypes; it lacks a public name


def _of_attributes(item: Any) -> Any:
    return _of_interface(item) if "__array_interface__" in item.__dict__ else item


def _of_interface(item: Any) -> Any:
    try:
        try:
            described = item.__array_interface__
        except AttributeError:  # the class has it, but not this object
            return item
        # Some classes return a copy of their contents here, as bytes. They expose no memory.
        if described is None or described.get("data").__class__ is not tuple:
            return item
        view = np.asarray(item)
    except Exception as error:
        raise _unusable(item, error) from error
    for size, stride in zip(view.shape, view.strides, strict=True):
        if size > 1 and 0 < abs(stride) < view.itemsize:
            raise _unusable(item, f"its stride of {stride} bytes is below an element's {view.itemsize}")
    return view


_CHARACTER = np.dtype("S1")  # of C's char, in which buffers have bytes


def _of_bytes(item: bytes) -> Host:
    return np.frombuffer(item, np.uint8)  # `asarray` takes them for a text


def _of_buffer(item: Any) -> Host:
    try:
        view = np.asarray(item)
        if view.dtype.hasobject:
            memoryview(item).release()  # NumPy takes a buffer that is released for an object
    except Exception as error:
        raise _unusable(item, error) from error
    return view.view(np.uint8) if view.dtype == _CHARACTER else view


def _unusable(item: Any, why: object) -> ClauseError:
    return ClauseError(f"the memory of this {type(item).__name__} cannot be a list item: {why}")


# -- DLPack ----------------------------------------------------------------------------------------


def _of_dlpack(item: Any) -> Any:
    try:
        if int(item.__dlpack_device__()[0]) not in DLPACK_HOST:
            return item
        dtype = getattr(item, "dtype", None)
        if isinstance(dtype, np.dtype) and dtype.isbuiltin != 1:  # of ml_dtypes, which NumPy does not read
            return np.from_dlpack(_Bytes(item)).view(dtype)
        return np.from_dlpack(item)
    except Exception as error:
        raise _unusable(item, "it has been deleted or donated" if _is_deleted(item) else error) from error


def _is_deleted(item: Any) -> bool:
    """Tell whether an array of JAX has lost its memory."""
    said = getattr(item, "is_deleted", None)
    return callable(said) and bool(said())


class _Tensor(ctypes.Structure):
    """``DLTensor``, with which an unversioned capsule begins."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


class _Bytes:
    """An array of a dtype that NumPy does not read from DLPack, as unsigned integers of the same width."""

    __slots__ = ("_item",)

    def __init__(self, item: Any) -> None:
        self._item = item

    def __dlpack_device__(self) -> Any:
        return self._item.__dlpack_device__()

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self._item.__dlpack__()
        found = _pointer_of(capsule, b"dltensor")
        _Tensor.from_address(found).code = _UNSIGNED  # of this capsule's own description
        return capsule


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


# -- tensors of PyTorch ----------------------------------------------------------------------------

_INTEGERS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}  # tensors of types that NumPy lacks, by element size


class _OfGradient:
    """The memory of a tensor that requires grad, which is the base of all views of it."""

    __slots__ = ("__array_interface__", "_view")

    def __init__(self, view: Host) -> None:
        described = dict(view.__array_interface__)
        described["data"] = described["data"][0], True  # read-only
        self.__array_interface__ = described
        self._view = view  # keeps the memory


def is_tensor(item: object) -> bool:
    """Tell whether an object is a tensor of PyTorch, on whichever device."""
    if (kind := type(item)) in READERS:
        return READERS[kind] is _of_tensor
    try:
        return "torch" in sys.modules and isinstance(item, sys.modules["torch"].Tensor)
    except (AttributeError, TypeError):  # PyTorch is just being imported, or something stands for it
        return False


def is_model(item: object) -> bool:
    """Tell whether an object is a module of PyTorch, whose parameters may be device arrays."""
    try:
        return "torch.nn" in sys.modules and isinstance(item, sys.modules["torch.nn"].Module)
    except (AttributeError, TypeError):  # as above
        return False


def tensor_place(tensor: Any) -> tuple[str, int]:
    """Return the device of a tensor, as a section of device memory names it."""
    return tensor.device.type, tensor.device.index or 0


def _of_tensor(tensor: Any) -> Any:
    torch = sys.modules["torch"]
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized or tensor.is_meta:
        raise _unusable(tensor, f"it is {_kind_of(tensor)}, but a list item is dense memory")
    if not tensor.is_cpu:
        return tensor
    requires_grad = tensor.requires_grad
    plain = tensor.detach() if requires_grad else tensor
    try:
        try:
            view = plain.numpy()
        except TypeError:
            view = plain.view(getattr(torch, _INTEGERS[tensor.itemsize])).numpy()
    except Exception as error:
        raise _unusable(tensor, _lazy_change(tensor) or error) from error
    return np.asarray(_OfGradient(view)) if requires_grad else view


def _kind_of(tensor: Any) -> str:
    """Return the kind of a tensor that is not dense memory, and the way to a dense one."""
    if tensor.is_nested:
        return "nested (pass the tensors of its .unbind())"
    if tensor.is_quantized:
        return "quantized (pass its .int_repr() or .dequantize())"
    if tensor.is_meta:
        return "on the meta device, without memory"
    return f"{str(tensor.layout).rpartition('.')[2]} (pass its parts, such as .values(), or its .to_dense())"


def _lazy_change(tensor: Any) -> str:
    """Return the change that a view of a tensor makes to the elements in memory; nothing if it makes none."""
    if tensor.is_conj():
        return "it is a conjugate view; pass its .resolve_conj()"
    return "it is a negative view; pass its .resolve_neg()" if tensor.is_neg() else ""


def read_only_reason(array: Host) -> str:
    """Return why an array is read-only, for messages about a write to it."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return (
        "the tensor requires grad (pass its .detach())" if isinstance(base, _OfGradient) else "the array is read-only"
    )


class TensorForm:
    """How a body receives an array: as a tensor of PyTorch over the same memory."""

    __slots__ = ("_host", "_tensor")

    def __init__(self, tensor: Any = None, host: Host | None = None) -> None:
        self._tensor = tensor  # the argument; None for an array that was passed as another library's
        self._host = host  # its view, for a region that runs on the host

    def check_numbers(self, what: str) -> None:
        """Raise `UnsupportedError` if ``what``, which computes with the array, would take it for other numbers."""
        if self._host is not None:
            check_numbers(self._tensor, self._host, what)

    def __call__(self, array: Any) -> Any:
        """Return the tensor for a host array, or for an array of a device."""
        if self._host is not None and array is self._host and array.flags.writeable:
            return self._tensor.detach()
        torch: Any = sys.modules["torch"]
        unwrap = getattr(array, "unwrap", None)  # of the simulated device's arrays
        try:
            if isinstance(array, np.ndarray):  # a tensor cannot be read-only: the body gets a copy, as on a device
                tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
            elif unwrap is not None:
                tensor = torch.from_numpy(unwrap())
            else:
                tensor = torch.as_tensor(array, device=f"cuda:{array.device.id}")
        except (TypeError, ValueError) as error:
            raise ClauseError(
                f"PyTorch has no tensors over {array.dtype}[{', '.join(map(str, array.shape))}]: {error}; "
                'use arrays="cupy"'
            ) from error
        # The storage of a type that NumPy lacks has integers of its width.
        mine = tensor.dtype if self._tensor is None else self._tensor.dtype
        return tensor if tensor.dtype is mine else tensor.view(mine)


def lacks_tensor_name(error: AttributeError) -> bool:
    """Tell whether an array of a device lacks an attribute that tensors of PyTorch have."""
    # Only classes are asked: an object may run code of the program's when it looks for a name.
    kind, name = type(error.obj), error.name
    tensor = getattr(sys.modules.get("torch"), "Tensor", kind)
    is_array = hasattr(kind, "__offload_section__") or hasattr(kind, "__cuda_array_interface__")
    return is_array and isinstance(name, str) and hasattr(tensor, name) and not hasattr(kind, name)


def _has_own_type(tensor: Any, array: Any) -> bool:
    """Tell whether a view of a tensor has integers for a type that NumPy lacks."""
    return str(tensor.dtype) != f"torch.{array.dtype.name}"


def type_of(item: Any, array: Any) -> Any:
    """Return the type of an object's elements: the dtype of its array, or a tensor's own where NumPy lacks that."""
    return item.dtype if is_tensor(item) and _has_own_type(item, array) else array.dtype


def tensor_memory(tensor: Any) -> tuple[int, int] | None:
    """Return the address of a tensor's memory, and the bytes that it has; None for a tensor without memory."""
    try:
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    except (RuntimeError, NotImplementedError):  # a sparse or meta tensor
        return None


def check_numbers(item: Any, host: Host, what: str) -> None:
    """Raise `UnsupportedError` if offload would compute with a view whose integers are other numbers of a tensor."""
    if item is not host and is_tensor(item) and _has_own_type(item, host):
        raise UnsupportedError(
            f"{what}: offload cannot compute with tensors of {item.dtype}; convert it, for example with .float()"
        )


def in_kind_of(item: Any, array: Host) -> Any:
    """Return an array as a tensor if ``item`` is one, else as it is."""
    return TensorForm()(array) if is_tensor(item) else array


def formed(body: Callable[..., Any], forms: Forms, *, all_tensors: bool = False) -> Callable[..., Any]:
    """Return a body that receives some of its arguments in these forms, or a tensor for each array."""
    if body.__class__ is not FunctionType and hasattr(body, "formed"):
        return body.formed(forms)  # type: ignore[no-any-return]  # of OpenACC's reductions, which compute around the body
    if all_tensors:
        body = partial(with_tensors, body)
    return partial(with_forms, body, forms) if forms else body


Forms: TypeAlias = tuple[tuple[int | str, TensorForm], ...]
"""Arguments, by position or name, each with its form."""


def with_forms(function: Callable[..., Any], forms: Forms, *args: Any, **kwargs: Any) -> Any:
    """Call a body with some of its arguments, by position or name, in these forms."""
    given = list(args)
    for slot, form in forms:
        into: Any = given if slot.__class__ is int else kwargs
        into[slot] = form(into[slot])
    return function(*given, **kwargs)


def with_tensors(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a body with a tensor for each array among its arguments."""
    form = TensorForm()

    def as_tensor(value: Any) -> Any:
        if is_tensor(value):  # first: one that requires grad raises if it is asked for the interface
            return value
        is_array = isinstance(value, np.ndarray) or hasattr(value, "__offload_section__")
        return form(value) if is_array or hasattr(value, "__cuda_array_interface__") else value

    return function(*map(as_tensor, args), **{name: as_tensor(value) for name, value in kwargs.items()})
