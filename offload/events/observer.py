"""The contract between a runtime and an observer, whose methods the runtime calls on the thread that does the work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

METHODS = (
    "task_created",
    "task_started",
    "task_completed",
    "copied",
    "mapped",
    "waited",
    "launch",
    "kernel",
    "copy",
    "wait",
    "speculate",
)
"""The names of the methods that an observer may have."""


class Observer(Protocol):
    """The methods of an observer, each of which it may leave out.

    Tasks are those of the program (`offload.Task`). Devices and async queues are given by their numbers, ``location``
    is ``file:line``.
    """

    def task_created(self, task: Any) -> None:
        """Note that a thread has generated a task, which may now wait for its predecessors."""

    def task_started(self, task: Any) -> None:
        """Note that the body of a host task begins, or that a device task has been given its stream."""

    def task_completed(self, task: Any) -> None:
        """Note that a task is complete: its ``state`` says how it ended."""

    def copied(self, task: Any, direction: str, nbytes: int) -> None:
        """Note that a device has been given a copy: ``"to"`` it, ``"from"`` it, or from ``"device"`` to device.

        ``task`` is the task whose launch enqueues the copy; None if there is none.
        """

    def mapped(self, task: Any, item: str, nbytes: int, event: str) -> None:
        """Note that storage for a list item has been created on a device (``"alloc"``) or removed (``"delete"``)."""

    def waited(self, what: str, seconds: float) -> None:
        """Note that the calling thread has waited, for what, and for how long."""

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


class Calls:
    """The calls that the observers of one runtime want: for each method a function, or None if nobody has it.

    The five last ones can always be called: where no observer has the method, they do nothing.
    """

    __slots__ = (*METHODS, "logs")

    def __init__(self, **calls: Any) -> None:
        self.logs: tuple[Any, ...] = ()  # those that collect what happens, without a call for each task
        for name in METHODS:
            setattr(self, name, calls.get(name))
        for name in METHODS[6:]:
            if getattr(self, name) is None:
                setattr(self, name, nothing)

    task_created: Any
    task_started: Any
    task_completed: Any
    copied: Any
    mapped: Any
    waited: Any
    launch: Any
    kernel: Any
    copy: Any
    wait: Any
    speculate: Any


def nothing(*_: Any, **__: Any) -> None:
    """Do nothing: no observer has this method."""


NO_CALLS = Calls()
"""The calls of no observer."""
