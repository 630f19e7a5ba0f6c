"""Which devices a runtime has: from a specification such as ``cuda:0,sim:2`` to devices that are open."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from offload.devices import kinds
from offload.devices.kind import Kind, Opening
from offload.errors import ClauseError, DeviceUnavailableError, UnsupportedError
from offload.runtime.settings import TargetOffload

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from offload.devices.base import Device
    from offload.devices.kind import ArrayWatch
    from offload.runtime.settings import Settings


MOST_MADE = 1024
"""Devices of a kind that makes them, at most: far more than a machine has GPUs, and they open within a second."""

_MOST_DIGITS = 18
"""Python refuses to convert thousands of digits. No number of devices or index has as many as this."""


class DaskClient(Protocol):
    """A `distributed.Client`, as far as a runtime has to know one."""

    asynchronous: bool
    status: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """One device that was asked for: its kind and its index among those of the kind."""

    kind: Kind
    index: int


def open_devices(
    spec: Any,
    settings: Settings,
    rng: random.Random | None,
    poisons: bool = False,
    watch: ArrayWatch | None = None,
) -> list[Device]:
    """Open the devices of a specification, numbered in its order; none under ``OMP_TARGET_OFFLOAD=DISABLED``.

    Parameters
    ----------
    spec : str, distributed.Client or None
        As `Runtime` takes it; None is all CUDA devices, or else one simulated device.
    settings : Settings
        The variables of the kinds, and whether devices are wanted at all.
    rng : random.Random, optional
        Orders the work of devices that support a seed.
    poisons : bool
        Have devices that can poison fill uninitialised memory with a conspicuous pattern.
    watch : ArrayWatch, optional
        Receives the operations on the arrays of devices that support it, which the simulated devices do.

    Raises
    ------
    ClauseError
        The specification means nothing, or a variable of a kind that it names.
    UnsupportedError
        Operations on the arrays of a device cannot be observed, and there is a ``watch``.
    DeviceUnavailableError
        It names a device that does not exist here, or a kind that opens devices of another.
    """
    named = _cluster_of(spec)
    if settings.target_offload is TargetOffload.DISABLED:
        if named is None:
            parse_devices(spec or "none", lambda _: 0)  # a mistake is one all the same
        return []
    if named is not None:
        if watch is not None:
            raise cannot_watch("dask")
        return _open_cluster(*named, settings, poisons=poisons)
    if spec is None:
        spec = _default_spec()
    counts: dict[str, int] = {}

    def count_of(kind: Kind) -> int:
        if watch is not None and not kind.reports_arrays:
            raise cannot_watch(kind.name)
        if kind.name not in counts:
            counts[kind.name] = kind.count()
        return counts[kind.name]

    wanted = parse_devices(spec, count_of)
    for device in wanted:
        kind = device.kind
        if watch is not None and not kind.reports_arrays:
            raise cannot_watch(kind.name)
        if kind.has_indices and device.index >= count_of(kind):
            raise DeviceUnavailableError(
                f"devices={spec!r}: there is no device {kind.name}:{device.index}; there are {count_of(kind)} of them"
            )
    opened: list[Device] = []
    for number, device in enumerate(wanted):
        values = settings.of_kind(device.kind)
        own_rng = None if rng is None else type(rng)(rng.random())
        made = device.kind.open(Opening(number, device.index, values, own_rng, poisons, watch))
        if made.kind != device.kind.name:
            raise DeviceUnavailableError(
                f"devices={spec!r}: the kind {device.kind.name!r} has opened a device of kind {made.kind!r:.40}; "
                "the two names must be the same"
            )
        opened.append(made)
    return opened


def refuse_unwatched(spec: str | None) -> None:
    """Raise `UnsupportedError` if a specification names devices whose array operations cannot be observed."""
    if spec is None:
        return
    if _cluster_of(spec) is not None:
        raise cannot_watch("dask")

    def count_of(kind: Kind) -> int:
        raise cannot_watch(kind.name)

    for device in parse_devices(spec, count_of):
        if not device.kind.reports_arrays:
            raise cannot_watch(device.kind.name)


def cannot_watch(kind: str) -> UnsupportedError:
    """Return the error for a kind of device whose array operations cannot be observed."""
    return UnsupportedError(
        f"sanitize: array operations on devices of kind {kind!r} cannot be observed; use devices='sim', or "
        "OFFLOAD_DEVICES=sim"
    )


def version() -> str:
    """Return the version of the package, which a higher room has."""
    return str(sys.modules["offload"].__version__)


def is_client(value: object) -> bool:
    """Tell whether something is a client of a Dask cluster; imports nothing."""
    module = sys.modules.get("distributed")
    return module is not None and isinstance(value, module.Client)


def _cluster_of(spec: Any) -> tuple[Any] | None:
    """Return the client, the address of a scheduler, or None for the default client, in a tuple; None for no cluster.

    Raise `ClauseError` where a cluster is named among other devices.
    """
    if not isinstance(spec, str):
        return None if spec is None else (spec,)
    parts = [part.strip() for part in spec.split(",")]
    clusters = [part for part in parts if part.lower() == "dask" or part.lower().startswith("dask:")]
    if not clusters:
        return None
    if len(parts) > 1:
        raise ClauseError(
            f"devices={spec!r:.60}: the devices of a Dask cluster cannot be mixed with others; write 'dask', or "
            "'dask:ADDRESS', alone"
        )
    address = parts[0][5:].strip()
    if parts[0][4:5] == ":" and not address:
        raise ClauseError(f"devices={spec!r}: 'dask:' needs the address of a scheduler, as in 'dask:tcp://host:8786'")
    return (address or None,)


def _open_cluster(client: Any, settings: Settings, *, poisons: bool) -> list[Device]:
    """Open the devices of a cluster's workers."""
    from offload.devices.dask.cluster import Cluster  # imports distributed
    from offload.devices.dask.connecting import found_client

    address, security = found_client(client)
    cluster = Cluster(address, security, lease_s=settings.lease_s, poisons=poisons, version=version())
    return [*cluster.open()]


def _default_spec() -> str:
    cuda = kinds.find("cuda")
    assert cuda is not None
    try:
        cuda.count()
    except DeviceUnavailableError:
        return "sim:1"
    return "cuda"


def parse_devices(spec: str, count_of: Callable[[Kind], int]) -> list[Wanted]:
    """Return the devices that a specification names: ``cuda``, ``cuda:0,2``, ``sim:4``, ``none``, or a list of those.

    Parameters
    ----------
    spec : str
        Parts separated by commas; a bare number continues the list of the part before it.
    count_of : callable
        Returns how many devices of a kind that ``has_indices`` there are, for its name alone.

    Raises
    ------
    ClauseError
        A part means nothing, or names a device twice; or there are more than `MOST_MADE` devices of a kind that
        makes them.
    DeviceUnavailableError
        A kind has no devices here.
    """
    devices: list[Wanted] = []
    listed: Kind | None = None  # the kind whose list a bare number continues
    made: dict[str, int] = {}
    for part in (text.strip().lower() for text in spec.split(",")):
        name, colon, number = part.partition(":")
        if part == "none":
            listed = None
            continue
        if listed is not None and part.isdecimal():
            devices.append(Wanted(listed, _number(part)))
            continue
        kind = kinds.find(name) if not colon or number.isdecimal() else None  # nothing after the colon: not understood
        listed = kind if kind is not None and kind.has_indices and number else None
        if kind is None or (number and not kind.has_indices and not _number(number)):
            raise ClauseError(
                f"devices={spec!r}: {part!r} is not a kind of device; write {kinds.words()}, none or a list of those"
            )
        if kind.has_indices:
            devices += [Wanted(kind, index) for index in ([_number(number)] if number else range(count_of(kind)))]
        else:
            first = made.get(kind.name, 0)
            made[kind.name] = first + _number(number or "1")
            if made[kind.name] > MOST_MADE:
                raise ClauseError(
                    f"devices={spec!r:.60}: {made[kind.name]:,} devices of kind {kind.name!r}; there can be at most "
                    f"{MOST_MADE:,}; write {kind.name}:4 for four"
                )
            devices += [Wanted(kind, index) for index in range(first, made[kind.name])]
    if len(set(devices)) < len(devices):
        raise ClauseError(f"devices={spec!r} names a device twice; name each device once")
    return devices


def _number(text: str) -> int:
    """Return the number that decimal digits say; one that is too large for any use may be another such number."""
    return int(text.lstrip("0")[:_MOST_DIGITS] or "0")


def not_a_specification(devices: object) -> ClauseError:
    """Return the error for an argument ``devices`` of `Runtime` that is neither a string nor a client."""
    if type(devices).__module__.partition(".")[0] in ("distributed", "dask_cuda"):
        return ClauseError(f"devices={devices!r:.80} is not a client; pass distributed.Client(cluster)")
    return ClauseError(
        f"devices={devices!r:.80} is not a string; write for example 'cuda', 'sim:2' or 'none', or pass a Dask client"
    )


def generator(seed: float | None) -> random.Random | None:
    """Return a generator of a reproducible order; None without a seed."""
    if seed is None:
        return None
    from random import Random  # 3 ms of the time of `import offload`, for those who seed only

    return Random(seed)  # noqa: S311  # no secret
