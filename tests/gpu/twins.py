"""Devices of the kind ``twin``: any number of them on one GPU, for what takes several and needs no more than one.

Each has streams, events, code and storage of its own, and the same memory: what a loop on several devices does with
CUDA, but for copies between GPUs.
"""

from __future__ import annotations

from offload.devices.cuda.device import CudaDevice
from offload.devices.kind import Kind, Opening
from offload.devices.kinds import register


class TwinKind(Kind):
    """Devices ``twin:2``, ``twin:3``, …."""

    name = "twin"

    def open(self, opening: Opening) -> CudaDevice:
        return TwinDevice(opening.number)


class TwinDevice(CudaDevice):
    """One of several on the first GPU."""

    kind = "twin"

    def __init__(self, number: int) -> None:
        super().__init__(number, 0)
        self.space = "twin", number
        self.name = f"twin:{number}"


register(TwinKind())
