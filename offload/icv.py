"""Settings: what the environment and the caller say, parsed and checked once, when a runtime is made."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from offload.errors import ClauseError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?\s*", re.IGNORECASE)
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """One device that was asked for: its kind and its index among those of the kind."""

    kind: Literal["cuda", "sim"]
    index: int


@dataclass(frozen=True, slots=True)
class Settings:
    """What a runtime is made from.

    Attributes
    ----------
    devices : str or None
        ``OFFLOAD_DEVICES``.
    sim_memory_nbytes : int or None
        ``OFFLOAD_SIM_MEMORY``: bytes of memory of each simulated device.
    hang_s : float
        ``OFFLOAD_HANG_S``: seconds without progress after which a wait says what it waits for.
    """

    devices: str | None
    sim_memory_nbytes: int | None
    hang_s: float


def read_settings(env: Mapping[str, str] | None) -> Settings:
    """Read the settings from ``env``, or from the process's environment.

    Raises
    ------
    ClauseError
        A variable has a value that means nothing.
    """
    env = os.environ if env is None else env
    hang = env.get("OFFLOAD_HANG_S", "30")
    try:
        hang_s = float(hang)
    except ValueError:
        hang_s = -1.0
    if not 0 < hang_s < 1e9:
        raise ClauseError(f"OFFLOAD_HANG_S={hang!r} is not a number of seconds above 0")
    memory = env.get("OFFLOAD_SIM_MEMORY")
    return Settings(
        devices=env.get("OFFLOAD_DEVICES") or None,
        sim_memory_nbytes=None if not memory else parse_nbytes(memory, "OFFLOAD_SIM_MEMORY"),
        hang_s=hang_s,
    )


def parse_nbytes(text: str, name: str) -> int:
    """Return a number of bytes written as ``1000000``, ``64M`` or ``2GiB`` (powers of 1024).

    Raises
    ------
    ClauseError
        ``text`` is no such number, or 0.
    """
    match = _SIZE.fullmatch(text)
    nbytes = int(float(match[1]) * _UNITS[match[2].lower()]) if match else 0
    if nbytes < 1:
        raise ClauseError(f"{name}={text!r} is not a size; write bytes, or a number with K, M, G or T")
    return nbytes


def parse_devices(spec: str, count_cuda: int) -> list[DeviceSpec]:
    """Return the devices that a specification names: ``cuda``, ``cuda:0,2``, ``sim:4``, ``none``, or a list of those.

    Parameters
    ----------
    spec : str
        Parts separated by commas; a bare number continues the list of the part before it.
    count_cuda : int
        How many CUDA devices there are, for ``cuda`` alone.

    Raises
    ------
    ClauseError
        A part means nothing, or names a device twice.
    """
    devices: list[DeviceSpec] = []
    listing = False
    sims = 0
    for part in (text.strip().lower() for text in spec.split(",")):
        kind, colon, number = part.partition(":")
        if colon and not number:
            kind = ""  # nothing after the colon: not understood
        if part == "none":
            listing = False
        elif kind == "cuda" and (not number or number.isdecimal()):
            listing = bool(number)
            indices = [int(number)] if number else range(count_cuda)
            devices += [DeviceSpec("cuda", index) for index in indices]
        elif part.isdecimal() and listing:
            devices.append(DeviceSpec("cuda", int(part)))
        elif kind == "sim" and (not number or (number.isdecimal() and int(number) > 0)):
            listing = False
            count = int(number or 1)
            devices += [DeviceSpec("sim", sims + index) for index in range(count)]
            sims += count
        else:
            raise ClauseError(
                f"devices={spec!r}: {part!r} means nothing; write cuda, cuda:0,2, sim, sim:4, none or a list of those"
            )
    if len(set(devices)) < len(devices):
        raise ClauseError(f"devices={spec!r} names a device twice")
    return devices
