"""OpenACC's routines about devices, under their names without ``acc_``, over OpenMP's.

OpenACC's current device is the task's default-device-var (`offload.get_default_device`): each standard's routines see
the device that the other's have set. OpenACC numbers the devices of each type from 0, OpenMP all of a runtime; these
are the same where they are of one type. ``device=`` of the constructs is OpenMP's number.

Section numbers of OpenACC are unchecked.
"""

from __future__ import annotations

import platform
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar, assert_never

import numpy as np

from offload.constructs.queueing import wait_for
from offload.constructs.routines import get_default_device, set_default_device
from offload.devices import kinds
from offload.devices.host import Host
from offload.devices.kind import Kind
from offload.errors import ClauseError, DeviceUnavailableError
from offload.runtime.current import current_runtime, encounter, here
from offload.runtime.keywords import takes_clauses

if TYPE_CHECKING:
    from offload.runtime.place import DevicePlace
    from offload.runtime.runtime import Runtime

    _Place = DevicePlace | None  # None is the host


class DeviceType(StrEnum):
    """A type of device. You can also use the member's value, a string.

    Examples
    --------
    >>> acc.DeviceType("sim") is acc.device_sim
    True
    >>> [device_type.value for device_type in acc.DeviceType]
    ['none', 'default', 'host', 'not_host', 'nvidia', 'sim']
    """

    NONE = "none"
    DEFAULT = "default"  # that of the runtime's initial default device
    HOST = "host"
    NOT_HOST = "not_host"  # any but the host
    NVIDIA = "nvidia"
    SIM = "sim"  # simulated


class DeviceProperty(StrEnum):
    """A property of a device, for `get_property`. You can also use the member's value, a string.

    Examples
    --------
    >>> [prop.value for prop in acc.DeviceProperty]
    ['memory', 'free_memory', 'shared_memory_support', 'name', 'vendor', 'driver']
    >>> acc.get_property(0, acc.device_sim, acc.DeviceProperty.NAME)
    'sim:0'
    """

    MEMORY = "memory"  # bytes
    FREE_MEMORY = "free_memory"  # bytes
    SHARED_MEMORY_SUPPORT = "shared_memory_support"  # whether it reaches all of the host's memory
    NAME = "name"
    VENDOR = "vendor"
    DRIVER = "driver"  # its version


device_none: Final = DeviceType.NONE
device_default: Final = DeviceType.DEFAULT
device_host: Final = DeviceType.HOST
device_not_host: Final = DeviceType.NOT_HOST
device_nvidia: Final = DeviceType.NVIDIA
device_sim: Final = DeviceType.SIM

property_memory: Final = DeviceProperty.MEMORY
property_free_memory: Final = DeviceProperty.FREE_MEMORY
property_shared_memory_support: Final = DeviceProperty.SHARED_MEMORY_SUPPORT
property_name: Final = DeviceProperty.NAME
property_vendor: Final = DeviceProperty.VENDOR
property_driver: Final = DeviceProperty.DRIVER

_OWN_TYPES: Final = frozenset(DeviceType)  # another kind's word stays a plain string

_Word = TypeVar("_Word", bound=StrEnum)


def get_num_devices(device_type: DeviceType | str) -> int:
    """Return the number of devices of a type in the current runtime; there is one host, and no device of type ``none``.

    Parameters
    ----------
    device_type : DeviceType or str
        The type.

    Raises
    ------
    ClauseError
        The argument is not a type of device.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_get_num_devices".

    Examples
    --------
    >>> acc.get_num_devices(acc.device_sim), acc.get_num_devices("host")
    (1, 1)
    """
    return len(_places(current_runtime(), _type_of(device_type, "get_num_devices")))


def set_device_type(device_type: DeviceType | str) -> None:
    """Make a device of a type the current task's default device: the first one, unless it is of that type already.

    Parameters
    ----------
    device_type : DeviceType or str
        `device_default` returns to the runtime's initial default device; `device_none` changes nothing.

    Raises
    ------
    ClauseError
        The argument is not a type of device.
    DeviceUnavailableError
        The runtime has no such device.
    UsageError
        The call is in a target or compute region.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_set_device_type".

    Examples
    --------
    >>> acc.set_device_type(acc.device_host)
    >>> acc.get_device_type()
    <DeviceType.HOST: 'host'>
    >>> acc.set_device_type(acc.device_default)
    """
    what = "set_device_type"
    _select(_type_of(device_type, what), what)


def get_device_type() -> DeviceType | str:
    """Return the type of the current task's default device; ``none`` if that does not exist.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_get_device_type".

    Examples
    --------
    >>> acc.get_device_type() == "sim"
    True
    """
    return _type_at(current_runtime(), get_default_device())


def set_device_num(n: int, device_type: DeviceType | str) -> None:
    """Make a device the default device of the current task; its later children inherit it.

    Parameters
    ----------
    n : int
        The device's number within the type. A negative number means the first device of the type.
    device_type : DeviceType or str
        `device_none` keeps the type.

    Raises
    ------
    ClauseError
        The argument is not a type of device, the number is not an integer, or it is beyond the last device of the type.
    DeviceUnavailableError
        The runtime has no device of the type.
    UsageError
        The call is in a target or compute region.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_set_device_num".

    Examples
    --------
    >>> with omp.Runtime("sim:2"):
    ...     acc.set_device_num(1, acc.device_sim)
    ...     acc.get_device_num(acc.device_sim)
    1
    """
    what = "set_device_num"
    runtime = current_runtime()
    wanted = _type_of(device_type, what)
    if wanted is DeviceType.NONE:
        wanted = get_device_type()
    if type(n) is int and n < 0:
        n = 0
    set_default_device(_number_of(runtime, _place(runtime, n, wanted, what)))


def get_device_num(device_type: DeviceType | str) -> int:
    """Return the number, within its type, of the device of a type that is in use.

    Parameters
    ----------
    device_type : DeviceType or str
        The type.

    Returns
    -------
    int
        The number of the current task's default device, if it is of the type. Otherwise 0, the device that
        `set_device_type` would choose.

    Raises
    ------
    ClauseError
        The argument is not a type of device.
    DeviceUnavailableError
        The runtime has no device of the type.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_get_device_num".

    Examples
    --------
    >>> acc.get_device_num(acc.device_sim)
    0
    """
    what = "get_device_num"
    runtime = current_runtime()
    wanted = _type_of(device_type, what)
    if wanted is DeviceType.NONE:
        wanted = get_device_type()
    numbers = [_number_of(runtime, place) for place in _available(runtime, wanted, what)]
    current = get_default_device()
    return numbers.index(current) if current in numbers else 0  # within the type


def get_property(n: int, device_type: DeviceType | str, what: DeviceProperty | str) -> int | bool | str:
    """Return a property of a device.

    Parameters
    ----------
    n : int
        The device's number within the type.
    device_type : DeviceType or str
        `device_host` is the host.
    what : DeviceProperty or str
        The property.

    Returns
    -------
    int, bool or str
        Bytes for ``memory`` and ``free_memory``. For ``shared_memory_support``, whether the device can access all host
        memory without copies. Strings for ``name``, ``vendor`` and ``driver`` (its version).

    Raises
    ------
    ClauseError
        The type of device or the property does not exist, the number is not an integer, or it is beyond the last device
        of the type.
    DeviceUnavailableError
        The runtime has no device of the type.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_get_property"; C has ``acc_get_property_string`` for strings.

    Examples
    --------
    >>> acc.get_property(0, acc.device_sim, acc.property_name)
    'sim:0'
    >>> acc.get_property(0, "sim", "free_memory") > 0
    True
    """
    runtime = current_runtime()
    asked = _word(DeviceProperty, what, "get_property: {} is not a property")
    place = _place(runtime, n, _type_of(device_type, "get_property"), "get_property")
    device: Any = Host(runtime.initial_device) if place is None else place.device
    kind = kinds.known_as(device.kind)  # None for the host, and for devices of Dask workers
    match asked:
        case DeviceProperty.MEMORY:
            return int(device.memory_info()[1])
        case DeviceProperty.FREE_MEMORY:
            return int(device.memory_info()[0])
        case DeviceProperty.SHARED_MEMORY_SUPPORT:
            return place is None or bool(place.device.can_access(np.empty(1)))  # any host memory will do
        case DeviceProperty.NAME:
            return str(device.name)
        case DeviceProperty.VENDOR:
            maker = kinds.known_as(_native_kind(device))
            return Kind.vendor if maker is None else maker.vendor
        case DeviceProperty.DRIVER:
            return platform.python_version() if kind is None else kind.driver_version()
        case _:
            assert_never(asked)


@takes_clauses
def init(device_type: DeviceType | str = DeviceType.DEFAULT) -> None:
    """Prepare the devices of a type, and make one of them the default device as `set_device_type` does.

    Parameters
    ----------
    device_type : DeviceType or str
        The type, as for `set_device_type`.

    Raises
    ------
    ClauseError, DeviceUnavailableError, UsageError
        See `set_device_type`.

    Notes
    -----
    A runtime opens its devices when it is made. Therefore `init` only has to allocate the storage of `declare_target`,
    with the host's current values. The call blocks until these are copied. OpenACC 3.3, 3.2 "acc_init".

    Examples
    --------
    >>> acc.init(acc.device_sim)
    >>> acc.get_device_type() == acc.device_sim
    True
    """
    runtime = current_runtime()
    wanted = _type_of(device_type, "init")
    _select(wanted, "init")
    for place in _places(runtime, wanted):
        if place is not None:
            runtime.find_place(place.device.number)  # it gets the declared arrays


@takes_clauses
def shutdown(device_type: DeviceType | str = DeviceType.DEFAULT) -> None:
    """Wait for the operations of all queues of all devices of a type. The devices and their data stay available.

    Parameters
    ----------
    device_type : DeviceType or str
        The type, as for `set_device_type`.

    Raises
    ------
    ClauseError
        The argument is not a type of device.
    ExceptionGroup
        Operations of the queues have failed, and their failures have not been retrieved.
    UsageError
        The call is in a target or compute region.

    Notes
    -----
    A runtime closes its devices when it ends. Therefore you can use them again at once, as the standard requires. The
    call blocks as `wait` does. OpenACC 3.3, 3.2 "acc_shutdown".

    Examples
    --------
    >>> x = np.zeros(3)
    >>> task = acc.parallel(async_=1)(lambda x: x.fill(2))(x)
    >>> acc.shutdown(acc.device_sim)
    >>> x
    array([2., 2., 2.])
    """
    scope, frame = encounter("acc shutdown")
    runtime = scope.runtime
    places = _places(runtime, _type_of(device_type, "shutdown"))
    queues = [queue for place in places for queue in runtime.queues.known(place)]
    wait_for(scope, frame, queues, "acc.shutdown")


def on_device(device_type: DeviceType | str) -> bool:
    """Tell whether the calling code runs on a device of a type.

    Parameters
    ----------
    device_type : DeviceType or str
        Code outside of target and compute regions, and in regions that run on the host, is on `device_host`, and on
        `device_none`. All other code is on `device_not_host`.

    Raises
    ------
    ClauseError
        The argument is not a type of device.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_on_device". The standard does not define `device_default` here; it is the type that it stands
    for.

    Examples
    --------
    >>> acc.on_device(acc.device_host)
    True
    >>> acc.parallel(lambda: acc.on_device(acc.device_not_host))()
    True
    """
    scope = here()
    wanted = _type_of(device_type, "on_device")
    if wanted is DeviceType.DEFAULT:
        wanted = _default_type(scope.runtime)
    if scope.device is None:
        return wanted in (DeviceType.HOST, DeviceType.NONE)
    return wanted in (DeviceType.NOT_HOST, _type_of_device(scope.device))


# -- types and numbers -------------------------------------------------------------------------------


def _type_of(given: Any, what: str) -> DeviceType | str:
    """Return a type of device: one of `DeviceType`, or the word of another kind that is known."""
    if isinstance(given, str) and not isinstance(given, DeviceType):
        for kind in kinds.known():
            if kind.acc_type == given:
                return _type_of_kind(kind.name)
    return _word(DeviceType, given, what + ": {} is not a type of device")


def _type_of_kind(name: str) -> DeviceType | str:
    """Return the type of the devices of a kind."""
    kind = kinds.known_as(name)
    if kind is None or kind.acc_type is None:
        return DeviceType.NOT_HOST
    return DeviceType(kind.acc_type) if kind.acc_type in _OWN_TYPES else kind.acc_type


def _type_of_device(device: Any) -> DeviceType | str:
    return _type_of_kind(_native_kind(device))


def _native_kind(device: Any) -> str:
    """Return the kind of a device; for a device of a Dask worker, the kind that it has there."""
    return str(getattr(device, "native_kind", device.kind))


def _word(words: type[_Word], given: Any, message: str) -> _Word:
    try:
        return words(given)
    except ValueError:
        raise ClauseError(f"{message.format(f'{given!r:.40}')}; use {', '.join(map(repr, map(str, words)))}") from None


def _type_at(runtime: Runtime, number: int) -> DeviceType | str:
    """Return the type of a device by OpenMP's number."""
    if number == runtime.initial_device:
        return DeviceType.HOST
    if 0 <= number < len(runtime.places):
        return _type_of_device(runtime.places[number].device)
    return DeviceType.NONE


def _default_type(runtime: Runtime) -> DeviceType | str:
    """Return the type that `device_default` stands for."""
    found = _type_at(runtime, runtime.default_device)
    if found is DeviceType.NONE and runtime.places:  # the variables name no device
        return _type_at(runtime, 0)
    return found


def _places(runtime: Runtime, wanted: DeviceType | str) -> list[_Place]:
    """Return the devices of a type, in the order of their numbers."""
    if wanted is DeviceType.DEFAULT:
        wanted = _default_type(runtime)
    if wanted is DeviceType.NONE:
        return []
    if wanted is DeviceType.HOST:
        return [None]
    return [place for place in runtime.places if wanted in (DeviceType.NOT_HOST, _type_of_device(place.device))]


def _available(runtime: Runtime, wanted: DeviceType | str, what: str) -> list[_Place]:
    """Return the devices of a type, which has some."""
    places = _places(runtime, wanted)
    if not places:
        raise DeviceUnavailableError(
            f"{what}: this runtime has no device of type {str(wanted)!r}; add one with devices= or OFFLOAD_DEVICES"
        )
    return places


def _place(runtime: Runtime, n: Any, wanted: DeviceType | str, what: str) -> _Place:
    """Return a device by its number within its type."""
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)):
        raise ClauseError(f"{what}: {n!r:.40} is not a device number; use an int of at least 0")
    places = _available(runtime, wanted, what)
    if not 0 <= n < len(places):
        raise ClauseError(
            f"{what}: there is no device {n} of type {str(wanted)!r}; this runtime has 0 to {len(places) - 1}"
        )
    return places[n]


def _number_of(runtime: Runtime, place: _Place) -> int:
    """Return OpenMP's number of a device."""
    return runtime.initial_device if place is None else place.device.number


def _select(wanted: DeviceType | str, what: str) -> None:
    """Make a device of a type the default device."""
    runtime = current_runtime()
    if wanted is DeviceType.NONE:
        return
    # A device of the type that is in use already stays in use.
    numbers = [_number_of(runtime, place) for place in _available(runtime, wanted, what)]
    current = runtime.default_device if wanted is DeviceType.DEFAULT else get_default_device()
    set_default_device(current if current in numbers else numbers[0])
