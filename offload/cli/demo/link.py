"""The slab in host memory, and how fast bytes get to the device and back when nothing else is done."""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.constructs.hostmemory import empty_pinned
from offload.constructs.routines import array_namespace
from offload.errors import ClauseError

if TYPE_CHECKING:
    from offload.devices.base import Device

    Array = np.ndarray[Any, Any]

_MEASURED_NBYTES = 256 << 20  # Bytes each way that a measurement of the link takes: 5 ms on PCIe 5

_TO_DEVICE, _TO_HOST = 1, 2  # cudaMemcpyKind


def host_slab(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return uninitialised host memory that the devices copy from and to by themselves: pinned on CUDA.

    Raise `ClauseError` if memory is short.
    """
    nbytes = math.prod(shape) * dtype.itemsize
    physical_nbytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        if nbytes > physical_nbytes:
            raise MemoryError  # noqa: TRY301  # told below, with that of the allocation
        return empty_pinned(shape, dtype)
    except MemoryError as error:
        raise ClauseError(
            f"the field takes {nbytes:,} bytes of host memory as {dtype}{list(shape)}; this machine has "
            f"{physical_nbytes:,}: transform a smaller field"
        ) from error


def measure_link(device: Device, slab: Array, buffers: list[Any]) -> tuple[float, str]:
    """Return the bytes per second of each direction, and how that was measured. Overwrites the slab."""
    # On CUDA two streams copy at once, between pinned memory and two buffers (or halves of one). On the simulated
    # device, whose link is this machine's memory, it is `numpy.copyto` in one direction at a time.
    flat = slab.reshape(-1)
    if device.kind != "cuda":
        buffer = buffers[0].unwrap()
        count = min(buffer.size, flat.size)
        rates = []
        for _ in range(3):
            began_s = time.perf_counter()
            np.copyto(buffer[:count], flat[:count])
            np.copyto(flat[:count], buffer[:count])
            rates.append(2 * count * slab.itemsize / (time.perf_counter() - began_s))
        return max(rates), "numpy.copyto, one direction"
    return _measure_cuda(flat, buffers), "pinned copies, both ways at once"


def _measure_cuda(flat: Array, buffers: list[Any]) -> float:
    first = buffers[0]
    cuda = array_namespace(first).cuda
    half = -(-first.size // 2)
    inward, outward = (first, buffers[1]) if len(buffers) > 1 else (first[:half], first[-half:])
    count = min(inward.size, -(-flat.size // 2))
    nbytes = count * flat.itemsize
    host = flat.__array_interface__["data"][0]
    last = host + flat.nbytes - nbytes
    with first.device:
        streams = cuda.Stream(non_blocking=True), cuda.Stream(non_blocking=True)
        rates: list[float] = []
        for _ in range(3):
            turns = max(1, _MEASURED_NBYTES // nbytes)
            for stream in streams:
                stream.synchronize()
            began_s = time.perf_counter()
            for _ in range(turns):
                cuda.runtime.memcpyAsync(inward.data.ptr, host, nbytes, _TO_DEVICE, streams[0].ptr)
                cuda.runtime.memcpyAsync(last, outward.data.ptr, nbytes, _TO_HOST, streams[1].ptr)
            for stream in streams:
                stream.synchronize()
            rates.append(turns * nbytes / (time.perf_counter() - began_s))
    return max(rates)
