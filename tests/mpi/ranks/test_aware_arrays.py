"""Device arrays given as they are: by a stand-in for a library that is aware of CUDA, as none may be installed.

The stand-in is told by ``OFFLOAD_MPI_GPU=1``; its methods take the arrays through the host where a real library would
reach into the device's memory. Needs a GPU: `tests/gpu/test_mpi.py` starts it.
"""

from __future__ import annotations

import os
from typing import ClassVar

import cupy
import numpy as np
import pytest
from mpi4py import MPI

import offload as omp
from offload import in_, mpi, out


class Aware(MPI.Intracomm):
    """A communicator that notes what it is given; messages to the own rank alone."""

    given: ClassVar[list] = []
    devices: ClassVar[list] = []

    def _noted(self, array):
        assert isinstance(array, cupy.ndarray)
        assert array.flags.c_contiguous
        self.given.append(array)
        self.devices.append(cupy.cuda.runtime.getDevice())
        return array

    def Isend(self, buf, dest, tag=0):
        """Send what the array has now: nobody waits for the device any more."""
        array, host = self._noted(buf), np.empty(buf.shape, buf.dtype)
        cupy.cuda.runtime.memcpy(host.ctypes.data, array.data.ptr, host.nbytes, 2)
        return self.isend(host, dest, tag)

    def Irecv(self, buf, source, tag=0):
        """Receive, and have it on the device when the request is complete."""
        array = self._noted(buf)
        host = self.recv(source=source, tag=tag)
        cupy.cuda.runtime.memcpy(array.data.ptr, host.ctypes.data, host.nbytes, 1)
        return MPI.REQUEST_NULL


@pytest.fixture
def aware(comm):
    Aware.given, Aware.devices = [], []
    return Aware(comm)


def test_what_is_given(runtime, aware):
    """A contiguous array goes as it is, a column by a packed copy; both have what the regions before wrote."""
    assert mpi.is_gpu_aware(), os.environ.get("OFFLOAD_MPI_GPU")
    field = omp.target_alloc((6, 8), float)
    omp.target(nowait=True, depend=[out(field)])(lambda field: field.fill(3))(field)
    mpi.isend(field[0], 0, 1, comm=aware).result()  # the stand-in's receive blocks
    mpi.irecv(field[1], 0, 1, comm=aware)
    omp.target(nowait=True, depend=[omp.inout(field)])(lambda field: cupy.multiply(field, 2, field))(field)
    mpi.isend(field[:, 2], 0, 2, comm=aware).result()
    mpi.irecv(field[:, 3], 0, 2, comm=aware)
    omp.target(nowait=True, depend=[omp.inout(field)])(lambda field: field[:, 4].fill(9))(field)
    found = np.zeros((6, 8))
    omp.target_memcpy_async(found, field, depend=[in_(field)])
    omp.taskwait()
    expected = np.full((6, 8), 6.0)
    expected[:, 4] = 9
    assert (found == expected).all()
    sent, received, packed, unpacked = aware.given
    assert sent.data.ptr == field.data.ptr
    assert received.data.ptr == field[1].data.ptr
    assert packed.shape == unpacked.shape == (6,)
    with field.device:  # or CuPy would compute on the current device
        assert not cupy.shares_memory(packed, field)
    assert set(aware.devices) == {field.device.id}
    aware.given.clear()  # what was packed goes with the last reference
    omp.target_free(field)
