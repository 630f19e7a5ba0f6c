"""The devices of a runtime, by their numbers, their arrays and their streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.data.associations import take_declared
from offload.data.declarations import declarations
from offload.errors import (
    ClauseError,
    DeviceUnavailableError,
    EventError,
    HostFallbackWarning,
    RuntimeClosedError,
)
from offload.interrupts.frames import caller, warn
from offload.runtime.place import DevicePlace
from offload.runtime.settings import TargetOffload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.devices.base import Device
    from offload.devices.streams import Lane
    from offload.runtime.settings import Settings
    from offload.tasks.engine import Engine
    from offload.tasks.region import Region
    from offload.tasks.site import Call


initial_device = -1
"""The host's device number, besides ``get_initial_device()``."""

invalid_device = -2
"""A device number that never exists."""


class Places:
    """Where constructs may go.

    Attributes
    ----------
    engine : Engine
        Says whether the runtime is open.
    places : list of DevicePlace
        Those of the devices, by their numbers.
    settings : Settings
        What the environment says.
    initial_device : int
        The host's number, which is that of devices.
    """

    engine: Engine

    def __init__(self, settings: Settings, devices: Sequence[Device]) -> None:
        self.settings = settings
        self.places = [DevicePlace(device) for device in devices]
        self.initial_device = len(self.places)
        self.has_mixed_kinds = len({place.device.kind for place in self.places}) > 1
        self._allocated: dict[int, tuple[Any, str, Call]] = {}
        self._warned_host = False

    def place(self, frame: Region, device_num: int | None, *, if_: bool = True) -> DevicePlace | None:
        """Return the place that a construct with this device number goes to; None for the host.

        With ``if_`` false that is the host, as asked for; a number that was given must exist all the same.

        Raises
        ------
        ClauseError
            No device has this number.
        DeviceUnavailableError
            There is no device at all, and ``OMP_TARGET_OFFLOAD`` is MANDATORY.
        """
        if device_num is not None:
            place = self.find_place(device_num)
            if not self.places:
                self._require_devices()
            return place if if_ else None
        self._ensure_open()
        if self.places and if_:
            try:
                return self.find_place(frame.inherited.default_device)
            except ClauseError as error:
                number = self.settings.acc_device_num
                if number is not None and frame.inherited.default_device in (invalid_device, number):
                    raise ClauseError(
                        f"ACC_DEVICE_NUM={number}: device {number} does not exist; this runtime has devices 0 to "
                        f"{len(self.places) - 1}, and OpenACC does not count the host"
                    ) from None
                error.add_note("it is the default device: see OMP_DEFAULT_DEVICE")
                raise
        if not self.places:
            self._require_devices()
        if if_ and not self._warned_host:
            self._warned_host = True
            running = frame.task  # whose construct stands for a body without lines of the program
            warn(
                "there is no device: target regions run on the host",
                HostFallbackWarning,
                running.construct.location if running is not None else "",
            )
        return None

    def default_place(self, frame: Region) -> DevicePlace | None:
        """Return the place of the region's default device if it can be used as it is; else `place` says why not."""
        number = frame.inherited.default_device
        if self.engine.closed or number < 0:
            return None
        try:
            place = self.places[number]
        except IndexError:
            return None
        return place if place.declared == declarations.version else None

    def find_place(self, number: int) -> DevicePlace | None:
        """Return the place of a device number; None for the host's numbers, whatever ``OMP_TARGET_OFFLOAD`` says.

        Raises
        ------
        ClauseError
            No device has this number.
        """
        self._ensure_open()
        if 0 <= number < len(self.places):
            place = self.places[number]
            if place.declared != declarations.version:
                take_declared(place)
            return place
        if number in (self.initial_device, initial_device):
            return None
        raise ClauseError(
            f"device {number} does not exist; this runtime has "
            + (f"devices 0 to {len(self.places) - 1}, and" if self.places else "no device, only")
            + f" the host, {self.initial_device} or -1"
        )

    def _ensure_open(self) -> None:
        if self.engine.is_closed:
            raise RuntimeClosedError(self.engine.closed)

    def _require_devices(self) -> None:
        if self.settings.target_offload is TargetOffload.MANDATORY:
            raise DeviceUnavailableError(
                "OMP_TARGET_OFFLOAD=MANDATORY, but this runtime has no device; "
                "give it one (devices=, OFFLOAD_DEVICES), or set OMP_TARGET_OFFLOAD=DEFAULT"
            )

    def place_of(self, array: Any) -> DevicePlace | None:
        """Return the place whose device holds ``array``; None if it is none of this runtime's device arrays."""
        for place in self.places:  # a generator takes three times as long, at each copy
            if place.device.is_array(array):
                return place
        return None

    def lane_of(self, stream: Any) -> Lane:
        """Return the lane of a native stream, the pool's or a foreign one.

        Raises
        ------
        EventError
            It is not a stream of a device of this runtime.
        """
        for place in self.places:
            if place.device.owns_stream(stream):
                return place.lane_of(stream)
        raise EventError(
            f"{type(stream).__name__} {stream!r:.60} is not a stream of a device of this runtime; "
            "use current_stream(), stream(n) or a cupy.cuda.Stream of the device"
        )

    def note_allocation(self, array: Any, what: str) -> None:
        """Remember a block of ``target_alloc`` until it is freed."""
        where = caller()
        self._allocated[id(array)] = (array, what, (where.f_code, where.f_lasti))

    def forget_allocation(self, array: Any) -> str | None:
        """Forget a live block of ``target_alloc`` and return what was noted of it; None if ``array`` is none."""
        found = self._allocated.pop(id(array), None)
        return None if found is None else found[1]
