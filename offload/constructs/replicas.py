"""The clause ``devices=``: which devices a construct is carried out on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from offload.errors import ClauseError
from offload.runtime.place import initial_device

if TYPE_CHECKING:
    from offload.data.forks import Marks
    from offload.runtime.place import DevicePlace
    from offload.runtime.runtime import Runtime
    from offload.runtime.works import EnterDataWork, ExitDataWork, UpdateWork, Work
    from offload.tasks.region import Region

_ALLOWED = 'write "all", or a list of device numbers of one kind, the primary first'


def check_devices(value: Any) -> str | tuple[int, ...] | None:
    """Return ``"all"`` or device numbers; None where there is no clause.

    Raises
    ------
    ClauseError
        Something else, no number, or one twice. Whether devices exist is checked against the runtime at the call.
    """
    if value is None or (isinstance(value, str) and value == "all"):
        return value
    if not isinstance(value, (list, tuple, range, np.ndarray)):
        raise ClauseError(f"devices: {type(value).__name__} {value!r:.60} names no devices; {_ALLOWED}")
    numbers: list[int] = []
    for number in value:
        if isinstance(number, bool) or not isinstance(number, (int, np.integer)):
            raise ClauseError(f"devices: {number!r:.60} is not a device number; {_ALLOWED}")
        if number in numbers:
            raise ClauseError(
                f"devices={list(numbers)} and {number} again: a device has only one replica; name it once"
            )
        numbers.append(int(number))
    if not numbers:
        raise ClauseError(f"devices: the list is empty; {_ALLOWED}, or leave the clause out")
    return tuple(numbers)


def refuse_both(construct: str, devices: object, device: object) -> None:
    """Raise `ClauseError` where a construct has ``devices=`` and ``device=``."""
    if devices is not None and device is not None:
        raise ClauseError(
            f"{construct} has devices={devices!r:.60} and device={device!r}; name all devices in devices=, the primary "
            "first, or one in device="
        )


def places_of(
    runtime: Runtime, devices: str | tuple[int, ...] | None, device: int | None = None
) -> tuple[DevicePlace, ...] | None:
    """Return the places of a construct with ``devices=``, the primary first.

    Parameters
    ----------
    devices : str or tuple of int or None
        As `check_devices` returns it.
    device : int or None
        The other clause. Without both ``OFFLOAD_LOOP_DEVICES`` is the default of this one where it names the default
        device; where that is ``all``, the default device is the primary. Constructs that have no ``devices=`` are on
        the default device: were it another one, or the host, they would not see data on these devices.

    Returns
    -------
    tuple of DevicePlace or None
        None where the construct has no such clause, and where the variable says nothing about it: there is no device,
        or the default device is not among those named. Then it goes where ``device`` says. One place is the same as
        ``device``.

    Raises
    ------
    ClauseError
        A device does not exist, is the host, or is of another kind than the first.
    """
    is_said = devices is not None  # else `OFFLOAD_LOOP_DEVICES` names them
    if devices is None:
        devices = runtime.settings.loop_devices
        if devices is None or device is not None or not runtime.places:
            return None
    numbers = devices if isinstance(devices, tuple) else tuple(range(len(runtime.places)))
    default = None if is_said else _default_device(runtime)
    # With "all" in the variable, the default device is the primary.
    if devices == "all" and not is_said:
        numbers = tuple(sorted(numbers, key=lambda number: number != default))
    found = []
    for number in numbers:
        if number in (runtime.initial_device, initial_device):
            raise ClauseError(
                f"{_given(devices, is_said=is_said)}: {number} is the host, which has no replica; name other devices "
                "only"
            )
        try:
            place = runtime.find_place(number)
        except ClauseError as error:
            raise ClauseError(f"{_given(devices, is_said=is_said)}: {error}") from None
        assert place is not None, "not the host"
        found.append(place)
    # Replicas are copied from device to device.
    for place in found:
        if place.device.kind != found[0].device.kind:
            raise ClauseError(
                f"{_given(devices, is_said=is_said)}: {found[0].device.name} and {place.device.name} are of two kinds "
                "and cannot copy to each other; list the numbers of devices of one kind"
            )
    # The variable says nothing about regions on a default device that it does not name.
    return tuple(found) if is_said or default in numbers else None


def _default_device(runtime: Runtime) -> int:
    """Return the number of the calling region's default device."""
    scope = runtime.here()
    known = scope.region if scope.region is not None else scope.task
    return runtime.default_device if known is None else known.inherited.default_device


def _given(devices: str | tuple[int, ...], *, is_said: bool) -> str:
    """Return the name of the devices for a message: the clause, or the variable of the environment."""
    if is_said:
        return f"devices={list(devices) if isinstance(devices, tuple) else devices!r}"
    return f"OFFLOAD_LOOP_DEVICES={devices if isinstance(devices, str) else ','.join(map(str, devices))}"


def choose(
    runtime: Runtime,
    frame: Region,
    construct: str,
    devices: str | tuple[int, ...] | None,
    device: int | None,
    *,
    if_: bool,
) -> tuple[tuple[DevicePlace, ...] | None, DevicePlace | None]:
    """Return the places of a construct with both clauses, and the one where its task is; None for the host.

    Raises
    ------
    ClauseError
        Both clauses are given, or as `places_of` and `Places.place` say.
    """
    refuse_both(construct, devices, device)
    places = places_of(runtime, devices, device)
    if places is None:
        return None, runtime.place(frame, device, if_=if_)
    return (places, places[0]) if if_ else (None, None)


def spread(
    work: EnterDataWork | ExitDataWork | UpdateWork,
    places: tuple[DevicePlace, ...],
    gate: Marks,
    *,
    is_default: bool,
) -> Work:
    """Return the work of a construct on several places; on one that is the work itself."""
    if len(places) == 1:
        return work
    from offload.data.sets import DeviceSet  # for few programs: `import offload` is quicker without it

    work.on, work.places = DeviceSet(places, gate, is_default), places
    return work
