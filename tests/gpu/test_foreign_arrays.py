"""Device arrays of other libraries: what says by an interface or DLPack that it is on the GPU passes as a view."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import offload as omp
from offload.arrays.items import array_section
from tests.gpu.conftest import cupy

pytestmark = pytest.mark.gpu


class ByInterface:
    """An array that only says where it is."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = array.__cuda_array_interface__


class ByDLPack:
    """An array that only exports itself."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.__dlpack_device__ = array.__dlpack_device__
        self.__dlpack__ = array.__dlpack__


@pytest.mark.parametrize("kind", [ByInterface, ByDLPack])
@pytest.mark.parametrize("clauses", [{}, {"is_device_ptr": ["x"]}, {"has_device_addr": ["x"]}, {"nowait": True}])
def test_foreign_arrays_pass_as_views(kind: Any, clauses: dict[str, Any]) -> None:
    """The body receives a CuPy array over the same memory, of the same shape, strides and dtype."""
    array = cupy.arange(24, dtype="f4").reshape(4, 6)[::2]

    def body(x: Any) -> None:
        assert isinstance(x, cupy.ndarray)
        assert x.data.ptr == array.data.ptr
        assert (x.shape, x.strides, x.dtype) == (array.shape, array.strides, array.dtype)
        x += 1

    with omp.Runtime("cuda:0", check=True):
        omp.target(body, **clauses)(kind(array))
        omp.taskwait()
    assert (array.get() == np.arange(24, dtype="f4").reshape(4, 6)[::2] + 1).all()


def test_arrays_of_torch() -> None:
    """A tensor on the device passes as it is, and one in host memory is mapped; the body gets tensors for both."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    tensor, host = torch.zeros(8, device="cuda:0"), torch.ones(8)

    @omp.target
    def body(x: Any, h: Any) -> None:
        assert x is tensor
        assert h.is_cuda
        x += 2 * h
        h += 1

    with omp.Runtime("cuda:0", check=True):
        body(tensor, host)
    assert (tensor.cpu().numpy() == 2).all()
    assert (host == 2).all()


def test_the_arrays_of_a_body() -> None:
    """A body receives CuPy arrays or tensors for all of its arrays, as the clause says."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    tensor, host, array = torch.zeros(8, device="cuda:0"), torch.zeros(8), np.zeros(8)

    def body(*arrays: Any) -> list[type]:
        for x in arrays:
            x[:] = x + 1
        return [type(x) for x in arrays]

    with omp.Runtime("cuda:0", check=True):
        assert omp.target(body, arrays="cupy")(tensor, host, array) == 3 * [cupy.ndarray]
        assert omp.target(body, arrays="torch")(tensor, host, array, cupy.zeros(3)) == 4 * [torch.Tensor]
        assert omp.target(body)(tensor, host, array) == [torch.Tensor, torch.Tensor, cupy.ndarray]
        with pytest.raises(AttributeError) as caught:
            omp.target(lambda x: x.copy_(tensor))(array)
        assert caught.value.__notes__[0].startswith('ndarray is not a tensor; omp.target(arrays="torch")')
    assert (tensor == 3).all()
    assert (host == 3).all()
    assert (array == 3).all()


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_types_that_cupy_lacks(name: str) -> None:
    """They are moved by their bytes, and reach the body as tensors of their type."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = torch.arange(64).float().to(getattr(torch, name))
    back = torch.zeros_like(x)

    @omp.target(map=[omp.to("x"), omp.from_("y")])
    def body(x: Any, y: Any) -> None:
        assert x.dtype is y.dtype is back.dtype
        y.copy_(x.float() * 2)

    with omp.Runtime("cuda:0", check=True):
        body(x, back)
    assert (back.float() == (x.float() * 2).to(x.dtype).float()).all()


def test_tensors_with_gradients_on_the_device() -> None:
    """They pass as they are, so that a body can go backwards through them; no array of CuPy can be made of them."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    weight = torch.ones(4, device="cuda:0", requires_grad=True)

    @omp.target
    def step(w: Any, x: Any) -> None:
        (w * x).sum().backward()

    with omp.Runtime("cuda:0", check=True):
        step(weight, torch.full((4,), 3.0))
        omp.target(lambda x: x.sum(), arrays="cupy", nowait=True, depend=[omp.in_(weight)])(weight)
        omp.taskwait()
    assert (weight.grad == 3).all()


def test_arrays_of_another_kind_of_device() -> None:
    """A CuPy array on a simulated device, and a simulated one on a GPU, are errors that name both."""
    with omp.Runtime("cuda:0,sim:1", check=True):
        simulated = omp.target_alloc(4, device=1)
        with pytest.raises(omp.MapError, match=r"sim:.*cuda:0"):
            omp.target(lambda x: None, device=0)(simulated)
        for array in (cupy.zeros(3), ByInterface(cupy.zeros(3)), ByDLPack(cupy.zeros(3))):
            with pytest.raises(omp.MapError, match=r"cuda.*sim:"):
                omp.target(lambda x: None, device=1)(array)
        omp.target_free(simulated)


def test_a_type_that_cupy_has_no_arrays_of() -> None:
    """A tensor that CuPy cannot view is an error that names its type."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    tensor = torch.zeros(8, device="cuda:0", dtype=torch.float8_e5m2)
    with omp.Runtime("cuda:0", check=True), pytest.raises(omp.UnsupportedError, match="float8_e5m2"):
        omp.target(lambda x: None, arrays="cupy")(tensor)


def test_a_tensor_is_viewed_without_a_wait() -> None:
    """CuPy's stream does not wait for PyTorch's; the construct follows that by itself."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    given = []

    class Tensor(torch.Tensor):
        def __dlpack__(self, *args: Any, stream: Any = None, **kwargs: Any) -> Any:
            given.append(stream)
            return super().__dlpack__(*args, stream=stream, **kwargs)

    tensor = torch.zeros(8, device="cuda:0").as_subclass(Tensor)
    with omp.Runtime("cuda:0", check=True):
        omp.target(lambda x: x.fill(3), arrays="cupy")(tensor)
    assert set(given) == {-1}
    assert (tensor == 3).all()


@pytest.mark.parametrize("kind", [ByInterface, ByDLPack])
def test_a_stream_of_cupy_that_captures(kind: Any) -> None:
    """No array of another library can be ordered before a stream that captures a graph."""
    array = kind(cupy.zeros(8))
    stream = cupy.cuda.Stream(non_blocking=True)
    with omp.Runtime("cuda:0", check=True), stream:
        stream.begin_capture()
        try:
            with pytest.raises(omp.UsageError, match="capturing a CUDA graph"):
                omp.target(lambda x: None)(array)
        finally:
            with suppress(cupy.cuda.runtime.CUDARuntimeError):
                stream.end_capture()


class Described:
    """An array that says where it is by the interface alone."""

    def __init__(self, array: Any) -> None:
        self.__cuda_array_interface__ = array.__cuda_array_interface__


def test_the_storage_of_an_array_of_cupy_is_that_of_its_interface() -> None:
    """The storage that is read from CuPy's attributes is the one that the array describes."""
    whole = cupy.zeros((6, 5, 4), "f4")
    parts = [
        np.s_[:],
        np.s_[2:4],
        np.s_[:, 1:, ::2],
        np.s_[::-1, 3],
        np.s_[0, 0, 0],
        np.s_[..., None],
        np.s_[2:2],
        np.s_[:0, 1:],
    ]
    for array in [
        *(whole[part] for part in parts),
        whole.T,
        cupy.broadcast_to(whole[0], (3, 5, 4)),
        cupy.asfortranarray(whole),
    ]:
        assert array_section(array) == array_section(Described(array))
