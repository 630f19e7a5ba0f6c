"""What is known of CUDA devices before CuPy is imported."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from offload.devices.kind import Kind, Opening
from offload.errors import DeviceUnavailableError

if TYPE_CHECKING:
    from offload.devices.base import Device


class CudaKind(Kind):
    """CUDA's devices, in CUDA's order."""

    name = "cuda"
    has_indices = True
    acc_type = "nvidia"
    vendor = "NVIDIA"

    def count(self) -> int:
        """Return how many devices CuPy sees; see the contract."""
        try:
            from offload.devices.cuda.device import device_count  # imports CuPy
        except ImportError as error:
            raise DeviceUnavailableError(
                f"CUDA devices need CuPy, which cannot be imported ({error}); "
                "install offload[cuda13] or offload[cuda12], or use devices='sim'"
            ) from error
        count = device_count()
        if not count:
            raise DeviceUnavailableError("CuPy sees no CUDA device; use devices='sim' for the simulated one")
        return count

    def open(self, opening: Opening) -> Device:
        """Return the device with an index of CUDA's."""
        from offload.devices.cuda.device import CudaDevice

        return CudaDevice(opening.number, opening.index)

    def driver_version(self) -> str:
        """Return the version of CUDA that the driver has."""
        version = ctypes.c_int()
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
        return f"{version.value // 1000}.{version.value % 1000 // 10}"
