"""Memory that cannot be a list item, memory that cannot be written, and memory that changes between call and run."""

from __future__ import annotations

import array
import ctypes
import mmap
import re
import sys
from multiprocessing import shared_memory
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import offload as omp
from offload import acc, from_, in_, inout, out, to, tofrom
from tests.foreign.kinds import Exchanged, library, needs

if TYPE_CHECKING:
    from collections.abc import Callable


def _bump(x: Any) -> None:
    for i in range(x.shape[0]):
        x[i] += 1


USES: dict[str, Callable[[Any], Any]] = {
    "argument": omp.target(lambda x: None),
    "keyword": lambda x: omp.target(lambda *, x: None)(x=x),
    "map": lambda x: omp.target(map=[to(x)])(lambda: None)(),
    "map of a parameter": omp.target(map=[to("x")])(lambda x: None),
    "firstprivate": lambda x: omp.target(firstprivate=[x])(lambda: None)(),
    "target_data": lambda x: omp.target_data(map=[tofrom(x)]).__enter__(),
    "enter data": lambda x: omp.target_enter_data(map=[to(x)]),
    "update": lambda x: omp.target_update(to=[x]),
    "depend": out,
    "depend of a parameter": omp.task(depend=[in_("x")])(lambda x: None),
    "memcpy to it": lambda x: omp.target_memcpy(x, np.zeros(3)),
    "memcpy from it": lambda x: omp.target_memcpy(np.zeros(3), x),
    "rect": lambda x: omp.target_memcpy_rect(x, np.zeros(3)),
    "copy": lambda x: omp.copy(np.zeros(3), x),
    "is_present": omp.target_is_present,
    "associate": lambda x: omp.target_associate_ptr(x, None),
    "declare_target": omp.declare_target,
    "section": lambda x: omp.section(x, (0, 1)) if omp.target_is_present(x) else None,
    "task_reduction": lambda x: omp.taskgroup(task_reduction={"+": [x]}).__enter__(),
    "acc.copyin": acc.copyin,
    "acc.data": lambda x: acc.data(copyin=[x]).__enter__(),
    "acc.parallel": acc.parallel(lambda x: None),
    "target_loop": omp.target_loop(_bump),
}


def refused(item: Any, why: str) -> None:
    """Check that each use of an object is the same error, and leaves nothing."""
    found = {}
    for name, use in USES.items():
        try:
            found[name] = f"returned {use(item)!r}"
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    wanted = f"ClauseError: the memory of this {type(item).__name__} cannot be a list item: {why}"
    assert {name: text for name, text in found.items() if text != wanted} == {}


# -- objects whose memory is none --------------------------------------------------------------------------
def _released() -> memoryview:
    view = memoryview(bytearray(12))
    view.release()
    return view


def _closed() -> mmap.mmap:
    memory = mmap.mmap(-1, 12)
    memory.close()
    return memory


def test_buffers_that_are_released(sim: omp.Runtime) -> None:
    """A released memoryview, and a mapping that is closed, are errors that say so."""
    refused(_released(), "operation forbidden on released memoryview object")
    refused(_closed(), "mmap closed or invalid")


class Described:
    """An object with an array interface that is given, or raised."""

    def __init__(self, **described: Any) -> None:
        self._memory = np.zeros(12)
        self._described = described

    @property
    def __array_interface__(self) -> Any:
        if "error" in self._described:
            raise self._described["error"]
        return {**self._memory.__array_interface__, **self._described}


@pytest.mark.parametrize(
    ("described", "why"),
    [
        ({"error": OSError("the file is gone")}, "the file is gone"),
        ({"typestr": "zz"}, "data type 'zz' not understood"),
        ({"strides": (4,)}, "its stride of 4 bytes is below an element's 8"),
        ({"strides": (-4,)}, "its stride of -4 bytes is below an element's 8"),
    ],
)
def test_array_interfaces(sim: omp.Runtime, described: dict[str, Any], why: str) -> None:
    """An interface that raises, or that describes no array of whole elements, is an error."""
    refused(Described(**described), why)


@pytest.mark.parametrize("value", [{"error": AttributeError("none here")}, {"data": b"a copy of the contents"}])
def test_array_interfaces_without_memory(sim: omp.Runtime, value: dict[str, Any]) -> None:
    """An object that has no interface after all, or one that is a copy of its contents, is passed as it is."""
    item = Described(**value)
    assert omp.target(lambda x: x is item)(item)
    with pytest.raises(omp.ClauseError, match=r"Described .* is not an array"):
        to(item)


class Producer(Exchanged):
    """A producer of DLPack whose capsule, or device, is given."""

    def __init__(self, export: Callable[..., Any], device: Any = (1, 0)) -> None:
        super().__init__(np.zeros(12))
        self._export, self._device = export, device

    def __dlpack_device__(self) -> Any:
        if isinstance(self._device, Exception):
            raise self._device
        return self._device

    def __dlpack__(self, **_: Any) -> Any:
        return self._export(self._memory)


def _raises(memory: Any) -> Any:
    raise RuntimeError("no export today")


def _pointer(capsule: Any, name: bytes) -> int:
    function = ctypes.pythonapi.PyCapsule_GetPointer
    function.restype, function.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return function(capsule, name)  # type: ignore[no-any-return]


def _of_version_9(memory: Any) -> Any:
    capsule = memory.__dlpack__(max_version=(1, 0))
    ctypes.c_uint32.from_address(_pointer(capsule, b"dltensor_versioned")).value = 9
    return capsule


def _of_4_bits(memory: Any) -> Any:
    capsule = memory.__dlpack__()
    at_bits = 8 + 8 + 4 + 1  # behind the address, the device, the dimensions and the type's code
    ctypes.c_uint8.from_address(_pointer(capsule, b"dltensor") + at_bits).value = 4
    return capsule


@pytest.mark.parametrize(
    ("producer", "why"),
    [
        (Producer(_raises), "no export today"),
        (Producer(_raises, RuntimeError("no device today")), "no device today"),
        (
            Producer(_of_version_9),
            "from_dlpack(): the exported DLPack major version is too high to be imported by this version of NumPy.",
        ),
        (Producer(_of_4_bits), "Unsupported dtype in DLTensor."),
        (Producer(lambda _: None), "PyCapsule_GetPointer called with invalid PyCapsule object"),
    ],
    ids=["raises", "device raises", "version", "bits", "no capsule"],
)
def test_producers(sim: omp.Runtime, producer: Any, why: str) -> None:
    """A producer that raises, or whose capsule has a wrong version, type or form, is an error with its text."""
    refused(producer, why)


TENSORS = {
    "sparse_coo (pass its parts, such as .values(), or its .to_dense()), but": lambda t: t.zeros(3, 3).to_sparse(),
    "sparse_csr (pass its parts, such as .values(), or its .to_dense()), but": lambda t: t.zeros(3, 3).to_sparse_csr(),
    "quantized (pass its .int_repr() or .dequantize()), but": lambda t: t.quantize_per_tensor(
        t.zeros(3), 0.1, 0, t.quint8
    ),
    "on the meta device, without memory, but": lambda t: t.zeros(3, device="meta"),
    "nested (pass the tensors of its .unbind()), but": lambda t: t.nested.nested_tensor([t.zeros(2), t.zeros(3)]),
    "a conjugate view; pass its .resolve_conj()": lambda t: t.zeros(3, dtype=t.complex64).conj(),
    "a negative view; pass its .resolve_neg()": lambda t: t.zeros(3, dtype=t.complex64).conj().imag,
}


@pytest.mark.usefixtures("torch")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", TENSORS)
def test_tensors_that_are_not_dense_memory(sim: omp.Runtime, kind: str) -> None:
    """Sparse, quantised, meta and nested tensors, and views that conjugate or negate, are errors with the remedy."""
    why = f"it is {kind}" + (" a list item is dense memory" if kind.endswith("but") else "")
    refused(TENSORS[kind](library("torch")), why)


@pytest.mark.usefixtures("jax")
def test_arrays_of_jax_that_are_gone(sim: omp.Runtime) -> None:
    """An array that was deleted, or donated to a jitted function, is an error that says so."""
    jax, jnp = library("jax"), library("jax.numpy")
    deleted, donated = jnp.zeros(3), jnp.zeros(3)
    deleted.delete()
    jax.jit(lambda x: x + 1, donate_argnums=0)(donated)
    for item in (deleted, donated):
        refused(item, "it has been deleted or donated")


# -- memory that cannot be written -------------------------------------------------------------------------
WRITES: dict[str, Callable[[Any], Any]] = {
    "map(from: {})": lambda x: omp.target(map=[from_(x)])(lambda: None)(),
    "map(tofrom: {})": lambda x: omp.target_data(map=[tofrom(x)]).__enter__(),
    "map(from: {}) ": lambda x: omp.target_exit_data(map=[from_(x)]),
    "target_update(from: {})": lambda x: omp.target_update(from_=[x]),
    "copy(x: {})": lambda x: acc.parallel(copy=[x])(lambda: None)(),
    "copyout(x: {})": lambda x: acc.data(copyout=[x]).__enter__(),
}
COPIES: dict[str, Callable[[Any], Any]] = {
    "target_memcpy": lambda x: omp.target_memcpy(x, np.zeros(12, "u1")),
    "target_memcpy_async": lambda x: omp.target_memcpy_async(x, np.zeros(12, "u1")),
}


def check_writes(item: Any, described: str, why: str) -> None:
    """Check that each clause that would write an object is a `MapError` that says why, and each copy an error."""
    for what, write in WRITES.items():
        with pytest.raises(omp.MapError) as caught:
            write(item)
        assert str(caught.value).startswith(f"{what.strip().format(described)}: {why}, so nothing can be copied"), what
    for name in ("target_memcpy", "target_memcpy_async"):
        with pytest.raises(omp.ClauseError) as failed:
            COPIES[name](item)
        assert str(failed.value).startswith("target_memcpy: the destination ")  # as bytes
        assert str(failed.value).endswith(f" cannot be written: {why}")
    assert not omp.target_is_present(item)


@pytest.mark.parametrize("item", [bytes(12), memoryview(bytes(12)), memoryview(bytearray(12)).toreadonly()])
def test_read_only_buffers(sim: omp.Runtime, item: Any) -> None:
    """Bytes and read-only views are mapped `to`; every clause that would write them is an error, and writes nothing."""
    check_writes(item, "uint8[12]", "the array is read-only")
    with omp.target_data(map=[to(item)]):
        assert omp.target_is_present(item)
        omp.target_update(to=[item])
    assert not omp.target_is_present(item)


def test_bytes_are_values(sim: omp.Runtime) -> None:
    """As an argument, and in depend, bytes are a value; clauses that map or copy take their memory."""
    data = b"some text"
    assert omp.target(lambda x: x is data)(data)
    assert in_(data).keys == in_(bytes([*data])).keys
    with omp.buffers(1, len(data), "u1") as (d,):
        omp.target_memcpy(d, data)
        assert bytes(d.get()) == data
    with omp.target_data(map=[to(data)]):
        assert bytes(omp.get_mapped_ptr(data).get()) == data


@pytest.mark.usefixtures("torch")
def test_tensors_that_require_grad(sim: omp.Runtime) -> None:
    """Such a tensor is read; each clause that would write it says what to write instead."""
    torch = library("torch")
    for tensor in (torch.ones(12, dtype=torch.float32, requires_grad=True), torch.nn.Parameter(torch.ones(12))):
        check_writes(tensor, "float32[12]", "the tensor requires grad (pass its .detach())")
        with pytest.raises(omp.ClauseError, match=r"cannot be written: the tensor requires grad \(pass its \.detach"):
            omp.taskgroup(task_reduction={"+": [tensor]}).__enter__()
        assert omp.target(map=[to("x")])(lambda x: float(x.sum()))(tensor) == 12
        omp.target(map=[tofrom("x")])(lambda x: x.add_(1) is None)(tensor.detach())
        assert (tensor == 2).all()


@pytest.mark.usefixtures("torch")
def test_numbers_that_numpy_lacks(sim: omp.Runtime) -> None:
    """Such tensors are mapped and copied; whatever would compute with their bytes is an error, and changes nothing."""
    torch = library("torch")
    tensor = torch.ones(4, dtype=torch.bfloat16)
    computing = [
        lambda: omp.taskgroup(task_reduction={"+": [tensor]}).__enter__(),
        lambda: omp.taskloop(num_tasks=2, reduction={"+": ["x"]})(lambda part, x: None)(range(4), tensor),
        lambda: omp.taskloop(num_tasks=2, reduction={"+": ["x[0:2]"]})(lambda part, x: None)(range(4), tensor),
        lambda: acc.parallel(reduction={"+": ["x"]})(lambda x: None)(tensor),
        lambda: acc.parallel(reduction={"+": [tensor]})(lambda x: None)(tensor),
        lambda: acc.parallel(reduction={"+": ["x"]})(lambda x: None)(x=tensor),
        lambda: omp.target_loop(_bump)(tensor),
        lambda: omp.target_loop(_bump)(x=tensor),
    ]
    for compute in computing:
        with pytest.raises(omp.UnsupportedError, match=r"tensors of torch\.bfloat16; convert it, .* \.float\(\)"):
            compute()
    assert (tensor == 1).all()
    assert omp.target(lambda x: (x.add_(1), str(x.dtype))[1])(tensor) == "torch.bfloat16"
    assert (tensor == 2).all()


# -- a program of PyTorch that writes what offload does not take -------------------------------------------
class Tensor:
    """Stands for PyTorch's class where that is not installed."""

    def copy_(self, other: Tensor) -> None:
        """Have a name that arrays of a device lack."""


class Module:
    """Stands for the class of PyTorch's models."""


@pytest.fixture(params=["fake", pytest.param("torch", marks=needs("torch"))])
def library_of_tensors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """PyTorch, or classes that stand for its own."""
    if request.param == "torch":
        return library("torch")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Tensor, nn=SimpleNamespace(Module=Module)))
    monkeypatch.setitem(sys.modules, "torch.nn", SimpleNamespace(Module=Module))
    return sys.modules["torch"]


def notes_of(body: Callable[[Any], Any], item: Any) -> str:
    """Return the notes on the failure of a body."""
    with pytest.raises(AttributeError) as caught:
        omp.target(body)(item)
    return "\n".join(caught.value.__notes__)


class OfCuda:
    """Stands for an array of CuPy."""

    __cuda_array_interface__ = {"shape": (3,), "typestr": "<f8", "data": (64, False), "version": 3}  # noqa: RUF012


class Hostile:
    """An object that fails in its own way when it is asked for a name that it lacks."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name) if name == "copy_" else ValueError(name)


def test_a_body_that_needs_tensors(sim: omp.Runtime, library_of_tensors: Any) -> None:
    """If an array of a device lacks a name that tensors have, the failure says how a body receives tensors."""
    with omp.buffers(1, 3) as (d,):
        assert 'SimArray is not a tensor; omp.target(arrays="torch") gives' in notes_of(lambda x: x.copy_(x), d)
        assert 'OfCuda is not a tensor; omp.target(arrays="torch")' in notes_of(lambda _: OfCuda().copy_, d)  # type: ignore[attr-defined]  # it lacks that
        for body in (
            lambda x: x.no_such_name,
            lambda _: np.zeros(3).copy_,  # type: ignore[attr-defined]  # it lacks that
            lambda _: Hostile().copy_,
            lambda _: library_of_tensors.Tensor().no_such_name,
        ):
            assert "arrays=" not in notes_of(body, d)
        failed = omp.target(lambda x: x.copy_(x), nowait=True)(d)

        def again(_: Any, error: Any = failed.exception()) -> None:  # noqa: B008  # the failure of this call
            raise error

        assert notes_of(again, d).count("arrays=") == 1


def test_a_body_that_fails_without_pytorch(sim: omp.Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that has not imported PyTorch reads nothing of tensors."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with omp.buffers(1, 3) as (d,):
        assert "tensor" not in notes_of(lambda x: x.copy_(x), d)


def test_models_in_a_map(sim: omp.Runtime, library_of_tensors: Any) -> None:
    """A clause that maps a model says that it needs no map; other objects may have a mapper."""
    ours = "a model needs no map: move it with .to(device)"
    for item, remedy in ((library_of_tensors.nn.Module(), ours), (object(), "has a mapper")):
        for use in ("map", "map of a parameter", "target_data", "enter data", "acc.data"):
            with pytest.raises((omp.ClauseError, omp.MapError), match=re.escape(remedy)):
                USES[use](item)


@needs("torch")
@pytest.mark.parametrize("allocate", [lambda *of: omp.buffers(1, *of).__enter__(), omp.empty_pinned, omp.target_alloc])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dtypes_of_pytorch(sim: omp.Runtime, allocate: Callable[..., Any], dtype: str) -> None:
    """An allocation with a dtype of PyTorch is refused, and the error names NumPy's."""
    kind = getattr(library("torch"), dtype)
    with pytest.raises(omp.ClauseError, match=rf"dtype {kind} is not valid .* a NumPy dtype such as np\.float32"):
        allocate((2, 3), kind)


# -- memory that changes between call and run --------------------------------------------------------------
def bump(x: Any) -> None:
    x += 1


class Held:
    """A region that writes an object, and begins after the block."""

    def __init__(self, item: Any) -> None:
        self._event, self._item = omp.Event(), item

    def __enter__(self) -> Any:
        omp.task(detach=self._event, depend=[out(("held", 1))])(lambda: None)()
        return omp.target(nowait=True, depend=[in_(("held", 1)), inout(self._item)])(bump)(self._item)

    def __exit__(self, *_: object) -> None:
        self._event.fulfill()
        omp.taskwait()


@pytest.mark.parametrize(
    ("item", "change", "text"),
    [
        (bytearray(12), lambda b: b.append(1), "cannot be re-sized"),
        (array.array("d", [0] * 4), lambda a: a.append(1), "cannot resize an array that is exporting buffers"),
        (mmap.mmap(-1, 12), lambda m: m.close(), "cannot close exported pointers exist"),
    ],
    ids=["bytearray", "array.array", "mmap"],
)
def test_buffers_that_change(sim: omp.Runtime, item: Any, change: Any, text: str) -> None:
    """A buffer that a region uses cannot be resized or closed before that; afterwards it can."""
    with Held(item), pytest.raises(BufferError, match=text):
        change(item)
    assert np.frombuffer(item, "f8" if isinstance(item, array.array) else "u1").tolist() == [1] * len(item)
    change(item)


def test_presence_holds_a_buffer(sim: omp.Runtime) -> None:
    """A buffer cannot be resized while it is present."""
    item = bytearray(12)
    with omp.target_data(map=[tofrom(item)]), pytest.raises(BufferError, match="cannot be re-sized"):
        item.append(1)
    item.append(1)


def test_shared_memory_that_is_closed(sim: omp.Runtime) -> None:
    """Shared memory cannot be closed while a region uses it."""
    memory = shared_memory.SharedMemory(create=True, size=64)
    memory.unlink()
    with Held(memory.buf[:12]), pytest.raises(BufferError):
        memory.close()
    memory = shared_memory.SharedMemory(create=True, size=64)
    memory.unlink()
    memory.close()


def test_a_view_that_is_released(sim: omp.Runtime) -> None:
    """A memoryview may be released meanwhile: its memory is kept."""
    memory = bytearray(12)
    view = memoryview(memory)
    with Held(view):
        view.release()
    assert memory == bytes([1] * 12)


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tensors_that_change(sim: omp.Runtime, dtype: str) -> None:
    """A tensor cannot be resized or freed meanwhile; if it gets other storage, the region has the storage of before."""
    torch = library("torch")
    tensor, replaced = torch.zeros(4, dtype=getattr(torch, dtype)), torch.zeros(4, dtype=getattr(torch, dtype))
    with Held(tensor), pytest.raises(RuntimeError, match="not resizable"):
        tensor.untyped_storage().resize_(0)
    assert (tensor == 1).all()
    same = replaced.detach()
    with Held(replaced):
        replaced.set_(torch.full((7,), 5, dtype=replaced.dtype))
    assert (same == 1).all()
    assert (replaced == 5).all()


@pytest.mark.usefixtures("jax")
def test_arrays_of_jax_that_change(sim: omp.Runtime) -> None:
    """An array that is deleted or donated meanwhile is read as it was at the call."""
    jax, jnp = library("jax"), library("jax.numpy")
    for end in (lambda x: x.delete(), jax.jit(lambda x: x + 1, donate_argnums=0)):
        event, item = omp.Event(), jnp.arange(4.0)
        omp.task(detach=event, depend=[out(("held", 1))])(lambda: None)()
        region = omp.target(nowait=True, depend=[in_(("held", 1))], map=[to("x")])(lambda x: float(x.sum()))(item)
        end(item)
        event.fulfill()
        assert region.result() == 6


# -- devices -----------------------------------------------------------------------------------------------
class OnCuda:
    """An array that says that it is on a GPU."""

    def __dlpack_device__(self) -> Any:
        return 2, 0

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("nobody looks into it")


class OnCudaByInterface:
    """An array that describes memory of a GPU."""

    __cuda_array_interface__ = {"shape": (3,), "typestr": "<f8", "data": (64, False), "version": 3}  # noqa: RUF012


@pytest.mark.parametrize("kind", [OnCuda, OnCudaByInterface])
def test_arrays_of_a_gpu(sim: omp.Runtime, kind: Any) -> None:
    """Such an array is an error on a simulated device, alone and next to an array of the host, which is not mapped."""
    item, host = kind(), bytearray(3)
    for arguments in ((item,), (item, host), (host, item)):
        with pytest.raises(omp.MapError, match=r"is on cuda:.*, not on device 0 of this runtime \(sim:0\)"):
            omp.target(lambda *_: None)(*arguments)
    for use in ("map", "enter data", "update", "memcpy to it", "memcpy from it", "is_present", "acc.copyin"):
        if use != "is_present":
            with pytest.raises((omp.ClauseError, omp.MapError)):
                USES[use](item)
    assert not omp.target_is_present(host)


def test_host_and_device_arrays_in_one_call(sim: omp.Runtime) -> None:
    """An array of the device passes through, next to objects that are mapped."""
    host = bytearray(range(3))
    with omp.buffers(1, 3, "u1") as (d,):
        omp.target_memset(d, 5)

        def body(x: Any, y: Any) -> None:
            x += y

        omp.target(body)(host, d)
        omp.target(body)(d, host)
        assert host == bytes([5, 6, 7])
        assert d.get().tolist() == [10, 11, 12]


@pytest.mark.usefixtures("torch")
def test_tensors_and_device_arrays_in_one_call(sim: omp.Runtime) -> None:
    """A body gets what was passed; ``arrays`` makes it one kind, for the device's arrays, too."""
    tensor = library("torch").ones(4)
    with omp.buffers(1, 4, "f4") as (d,):
        omp.target_memset(d, 0)

        def kinds(x: Any, y: Any) -> list[str]:
            return [type(x).__name__, type(y).__name__]

        def body(x: Any, y: Any) -> list[str]:
            x += y
            return kinds(x, y)

        assert omp.target(kinds)(tensor, d) == ["Tensor", "SimArray"]
        assert omp.target(arrays="cupy")(body)(tensor, d) == ["SimArray", "SimArray"]
        assert omp.target(arrays="torch")(body)(d, tensor) == ["Tensor", "Tensor"]
        assert d.get().tolist() == [1] * 4
