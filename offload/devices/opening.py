"""Which devices a runtime has: from a specification such as ``cuda:0,sim:2`` to devices that are open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload.errors import DeviceUnavailableError
from offload.icv import TargetOffload, parse_devices

if TYPE_CHECKING:
    import random

    from offload.devices.base import Device
    from offload.icv import Settings


def open_devices(spec: str | None, settings: Settings, rng: random.Random | None) -> list[Device]:
    """Open the devices of a specification, numbered in its order; none under ``OMP_TARGET_OFFLOAD=DISABLED``.

    Parameters
    ----------
    spec : str or None
        As `Runtime` takes it; None is all CUDA devices, or else one simulated device.
    settings : Settings
        The memory of a simulated device, and whether devices are wanted at all.
    rng : random.Random, optional
        Orders the streams of simulated devices.

    Raises
    ------
    ClauseError
        The specification means nothing.
    DeviceUnavailableError
        It names a device that does not exist here.
    """
    if settings.target_offload is TargetOffload.DISABLED:
        parse_devices(spec or "none", 0)  # a mistake is one all the same
        return []
    wants_cuda = spec is None or "cuda" in spec.lower()
    count_cuda = _count_cuda(required=spec is not None) if wants_cuda else 0
    if spec is None:
        spec = "cuda" if count_cuda else "sim:1"
    opened: list[Device] = []
    for number, wanted in enumerate(parse_devices(spec, count_cuda)):
        if wanted.kind == "cuda":
            from offload.devices.cuda import CudaDevice  # imports CuPy

            if wanted.index >= count_cuda:
                raise DeviceUnavailableError(
                    f"devices={spec!r}: there is no CUDA device {wanted.index}; CuPy sees {count_cuda}"
                )
            opened.append(CudaDevice(number, wanted.index))
        else:
            opened.append(_simulated(number, settings, rng))
    return opened


def _simulated(number: int, settings: Settings, rng: random.Random | None) -> Device:
    from offload.devices.sim import SimDevice  # 10 ms of the time of `import offload`

    memory = {} if settings.sim_memory_nbytes is None else {"memory_nbytes": settings.sim_memory_nbytes}
    return SimDevice(number, rng=None if rng is None else type(rng)(rng.random()), **memory)


def _count_cuda(*, required: bool) -> int:
    """Return how many CUDA devices CuPy sees; without CuPy none, or an error if one was asked for."""
    try:
        from offload.devices.cuda import device_count  # imports CuPy
    except ImportError as error:
        if required:
            raise DeviceUnavailableError(
                f"CUDA devices need CuPy, which cannot be imported ({error}); "
                "install offload[cuda13] or offload[cuda12], or use devices='sim'"
            ) from error
        return 0
    count = device_count()
    if required and not count:
        raise DeviceUnavailableError("CuPy sees no CUDA device; use devices='sim' for the simulated one")
    return count
