"""Properties of CUDA devices that are known before CuPy is imported."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from offload.devices.cuda.forks import ADVICE, check_fork, error_of_fork, note_use
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
    in_forks = ADVICE

    def count(self) -> int:
        """Return how many devices CuPy sees; see the contract.

        Raise `UsageError` if this process was forked from one that has used CUDA.
        """
        check_fork()
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
        note_use()
        return count

    def open(self, opening: Opening) -> Device:
        """Return the device with an index of CUDA's; raises as `count`."""
        check_fork()
        from offload.devices.cuda.device import CudaDevice

        note_use()
        try:
            return CudaDevice(opening.number, opening.index)
        except RuntimeError as error:  # as CuPy's are
            forked = error_of_fork(error)
            if forked is None:
                raise
            raise forked from error

    def driver_version(self) -> str:
        """Return the version of CUDA that the driver has."""
        version = ctypes.c_int()
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
        return f"{version.value // 1000}.{version.value % 1000 // 10}"
