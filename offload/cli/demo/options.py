"""Options that name a device and its memory: an error names the option as you gave it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import offload as omp
from offload.devices.kind import parse_nbytes
from offload.errors import ClauseError, DeviceUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping


def open_runtime(devices: str | None, env: Mapping[str, str]) -> omp.Runtime:
    """Return a runtime on the devices that ``--devices`` names, else ``OFFLOAD_DEVICES``."""
    spec = devices or env.get("OFFLOAD_DEVICES")
    try:
        return omp.Runtime(devices, env=env)
    except (ClauseError, DeviceUnavailableError) as error:
        text = str(error)
        if not spec or text.startswith(("OFFLOAD_", "OMP_", "--")):  # it names a setting
            raise
        name = "--devices " if devices else "OFFLOAD_DEVICES="
        text = (
            text.removeprefix(f"devices={spec!r}").removeprefix(":").lstrip().replace("devices='sim'", "--devices sim")
        )
        raise type(error)(f"{name}{spec}: {text}") from error


def size_option(name: str, text: str | None) -> int | None:
    """Return the bytes of an option, None if it was not given; raise `ClauseError` if it is not a size above 0."""
    if text is None:
        return None
    try:
        return parse_nbytes(text, name)
    except ClauseError as error:
        raise ClauseError(
            f"{name} {text}: write a number of bytes above 0, as it is or with K, M, G or T, "
            "which are powers of 1024, as in 64M"
        ) from error
