"""The contract between a runtime and an observer, whose methods the runtime calls on the thread that does the work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Observer(Protocol):
    """An observer of one runtime.

    Devices and async queues are given by their numbers, ``location`` is ``file:line``.
    """

    def launch(self, directive: str, name: str, location: str, device_num: int, queue: Any) -> None:
        """Tell of a body, or a graph, that a device task launches; ``queue`` is an async queue's number or None."""

    def kernel(self, name: str, location: str, device_num: int, queue: Any, configuration: str) -> None:
        """Report the launch of a loop's kernel on a device, and its configuration."""

    def copy(self, dst: Any, src: Any, device_num: int, queue: int | None, text: object) -> None:
        """Tell of a copy that a device has been given; ``text`` is the name of its list item."""

    def wait(self, what: str, device_num: int | None = None, queues: Sequence[int] = ()) -> None:
        """Tell that the program waits, for the operations of these queues or as ``what`` says."""

    def speculate(self, name: str, location: str, device_num: int, text: str) -> None:
        """Tell how a loop that is only probably parallel runs, and why."""
