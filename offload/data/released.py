"""What constructs have unmapped, until no work needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.devices.retired import Retired

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offload.data.entries import Entry
    from offload.devices.base import Device


class Released:
    """Buffers of mappings that a construct has ended, until no work needs them."""

    __slots__ = ("_buffers",)

    def __init__(self, entries: Iterable[Entry], device: Device) -> None:
        self._buffers: list[tuple[Device, Any, object]] = [(device, entry.buffer, entry.label) for entry in entries]

    def add(self, entries: Iterable[Entry], device: Device) -> None:
        """Add those of another device."""
        self._buffers += [(device, entry.buffer, entry.label) for entry in entries]

    def retire(self) -> None:
        """Note that they have gone back: arrays over them that somebody has kept are not to be used any more."""
        for device, buffer, label_ in self._buffers:
            device.retire(buffer, Retired(label_))
