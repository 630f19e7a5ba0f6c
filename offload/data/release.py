"""Buffers of mappings that have ended, until no work needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.devices.retirement import Retired

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeAlias

    from offload.data.entries import Entry
    from offload.devices.base import Device

    _Buffer: TypeAlias = tuple[Device, Any, int, object]  # with its size and its label


class Released:
    """The entries that a construct has unmapped: its task holds them until its work has passed, and calls `retire`.

    Until then the next launch on the same lane may `take` a buffer that only this lane has used: the stream carries
    both out in its own order.
    """

    __slots__ = ("buffers", "is_retired")

    def __init__(self, entries: Iterable[Entry], device: Device) -> None:
        # By the numbers of entries. To take a buffer out is one step: whoever has taken it has it alone.
        self.buffers: dict[Any, _Buffer] = {}
        self.is_retired = False
        for entry in entries:
            section = entry.section
            nbytes = section.nbytes if section[2] else section[3]
            self.buffers[entry.generation] = device, entry.buffer, nbytes, entry.label

    def add(self, entries: Iterable[Entry], device: Device) -> None:
        """Add the buffers of entries on another device."""
        for entry in entries:
            self.buffers[device.number, entry.generation] = device, entry.buffer, entry.nbytes, entry.label

    def take(self, nbytes: int, taken: dict[Any, _Buffer]) -> Any | None:
        """Return a buffer of this size that nobody else has an array of, and add it to ``taken``; None without one."""
        buffers = self.buffers
        for number in list(buffers):  # one step, where pairs could be collected as garbage in between
            known = buffers.get(number)
            # Who has an array keeps the memory from being used again: it is retired with the rest.
            if known is None or known[2] != nbytes or not known[0].renew(known[1]):
                continue
            if buffers.pop(number, None) is not None:
                taken[number] = known
                return known[1]
        return None

    def give_back(self, taken: dict[Any, _Buffer]) -> None:
        """Take back buffers that have been taken: they are retired with the rest, or now if the rest already is."""
        self.buffers.update(taken)
        if self.is_retired:
            self.retire()

    def retire(self) -> None:
        """Note that they have gone back: arrays over them that somebody has kept are not to be used any more."""
        self.is_retired = True  # first: what is given back from now on is retired by who does that
        buffers = self.buffers
        while buffers:
            try:
                _, (device, buffer, _, label) = buffers.popitem()
            except KeyError:  # another launch has taken the last
                return
            device.retire(buffer, Retired(label))
