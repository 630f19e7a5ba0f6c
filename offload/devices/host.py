"""The host as a device: the operations that users may call. Target regions on the host map nothing and copy nothing."""

from __future__ import annotations

import os


class Host:
    """The initial device."""

    __slots__ = ("kind", "name", "number")

    def __init__(self, number: int) -> None:
        self.number = number  # the number of non-host devices
        self.kind = "host"
        self.name = os.uname().nodename if hasattr(os, "uname") else "host"  # the machine's

    def synchronize(self) -> None:
        """Do nothing: the host has no streams."""

    def memory_info(self) -> tuple[int, int]:
        """Return (free, total) physical memory in bytes; zeros where the platform does not say."""
        try:
            page_nbytes = os.sysconf("SC_PAGE_SIZE")
            return os.sysconf("SC_AVPHYS_PAGES") * page_nbytes, os.sysconf("SC_PHYS_PAGES") * page_nbytes
        except (AttributeError, ValueError, OSError):
            return 0, 0

    def __repr__(self) -> str:
        return f"<Host {self.name!r}, device {self.number}>"
