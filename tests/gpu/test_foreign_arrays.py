"""Device arrays of other libraries: what says by an interface or DLPack that it is on the GPU passes as a view."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import offload as omp
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
    """A tensor on the device is an array there; one in host memory passes as it is."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    tensor, host = torch.zeros(8, device="cuda:0"), torch.zeros(8)

    @omp.target
    def body(x: Any, h: Any) -> None:
        assert isinstance(x, cupy.ndarray)
        assert h is host
        x += 2

    with omp.Runtime("cuda:0", check=True):
        body(tensor, host)
    assert (tensor.cpu().numpy() == 2).all()


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
