"""The members of the simulated device that its parts need; with these protocols no part imports the device."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.arrays.sections import Section
    from offload.devices.sim.fate import Fate
    from offload.devices.sim.memory import MemoryAccount


class StorageUse(enum.Enum):
    """How an operation uses the storage of an array that it has from `ArraysDevice.settle`."""

    READ = enum.auto()
    WRITE = enum.auto()
    GIVE_AWAY = enum.auto()
    """The program gets the storage itself."""


class SimQueue(Protocol):
    """The operations behind a stream; see `offload.devices.sim.lane.SimLane`, whose events are `SimEvent`."""

    number: int
    completed: int
    reached: int
    tail: int

    @property
    def is_idle(self) -> bool: ...
    def put(self, function: Callable[..., Any] | None, args: tuple[Any, ...]) -> None: ...
    def record(self, event: Any, point: int) -> None: ...
    def wait(self, event: Any, point: int) -> None: ...
    def retire(self) -> None: ...
    def runs_here(self) -> bool: ...


class StreamsDevice(Protocol):
    """The members of a device that its streams and events need."""

    name: str
    fate: Fate

    def new_lane(self) -> SimQueue: ...
    def current_stream(self) -> Any: ...


class ArraysDevice(Protocol):
    """The members of a device that its arrays, and the functions that make them, need."""

    poisons: bool
    name: str
    fate: Fate
    memory: MemoryAccount

    @property
    def apply(self) -> Callable[..., Any]: ...
    def settle(self, storage: Any = None, use: StorageUse = StorageUse.READ, index: tuple[Any, ...] = ()) -> None: ...
    def section(self, array: Any) -> Section: ...
    def namespace(self) -> Any: ...
