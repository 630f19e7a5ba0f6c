"""Properties of simulated devices that are known before there is one."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from offload.devices.kind import Kind, Opening, parse_nbytes

if TYPE_CHECKING:
    from offload.devices.base import Device

MEMORY = "OFFLOAD_SIM_MEMORY"
"""Bytes of memory of each simulated device."""


class SimKind(Kind):
    """Simulated devices, as many as one wants."""

    name = "sim"
    acc_type = "sim"
    reports_arrays = True
    variables = MappingProxyType({MEMORY: parse_nbytes})

    def open(self, opening: Opening) -> Device:
        """Return a new device."""
        from offload.devices.sim.device import SimDevice  # 10 ms of the time of `import offload`

        nbytes = opening.values[MEMORY]
        memory = {} if nbytes is None else {"memory_nbytes": nbytes}
        if opening.watch is not None:
            from offload.devices.sim.watched import WatchedSimDevice

            return WatchedSimDevice(opening.watch, opening.number, rng=opening.rng, poisons=opening.poisons, **memory)
        return SimDevice(opening.number, rng=opening.rng, poisons=opening.poisons, **memory)
