"""What constructs have unmapped, until no work needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.devices.retirement import Retired

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offload.data.entries import Entry
    from offload.data.plans import OwnEnter
    from offload.devices.base import Device


class Released:
    """Buffers of mappings that a construct has ended, until no work needs them.

    A region that had mapped all for itself gives its ``plan``, with the buffers: until they are retired, a launch that
    the device carries out after this one may `take` it.
    """

    __slots__ = ("_buffers", "_device", "_plans")

    def __init__(self, entries: Iterable[Entry], device: Device, plan: OwnEnter | None = None) -> None:
        self._buffers: list[tuple[Device, Any, object]] = [(device, entry.buffer, entry.label) for entry in entries]
        self._device = device
        self._plans = [] if plan is None else [plan]

    def add(self, entries: Iterable[Entry], device: Device) -> None:
        """Add those of another device."""
        self._buffers += [(device, entry.buffer, entry.label) for entry in entries]

    @property
    def plan(self) -> OwnEnter | None:
        """That of the region, as long as nobody has taken it."""
        for plan in self._plans:  # another thread may take it between a look and an index
            return plan
        return None

    def take(self) -> OwnEnter | None:
        """Take the plan, with its buffers, to use them again; None if another thread has been quicker."""
        try:
            return self._plans.pop()  # one step: whoever takes it out has it
        except IndexError:
            return None

    def retire(self) -> None:
        """Note that they have gone back: arrays over them that somebody has kept are not to be used any more."""
        for device, buffer, label_ in self._buffers:
            device.retire(buffer, Retired(label_))
        plan = self.take() if self._plans else None
        if plan is not None:
            for entry in plan.entries:
                self._device.retire(entry.buffer, Retired(entry.label))
