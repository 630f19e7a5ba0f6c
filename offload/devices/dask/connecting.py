"""The connection to a cluster: which one is meant, and whether its workers fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distributed import Client

from offload.devices.dask import calls
from offload.errors import DeviceUnavailableError, OffloadError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def found_client(client: Any) -> tuple[str, Any]:
    """Return the address of the scheduler of a client, or of the default client if that is None, and its security.

    An address is returned as it is.

    Raises
    ------
    DeviceUnavailableError
        There is no default client.
    UsageError
        The client is asynchronous or closed.
    """
    if isinstance(client, str):
        return client, None
    if client is None:
        try:
            client = Client.current()  # type: ignore[no-untyped-call]  # Dask has few types
        except ValueError as error:
            raise DeviceUnavailableError(
                "devices='dask': there is no default client; make a distributed.Client first, or write 'dask:ADDRESS'"
            ) from error
    if client.asynchronous:
        raise UsageError(
            "Runtime(client): the client is asynchronous, but constructs block; make a Client outside of an event loop"
        )
    if client.status != "running":
        raise UsageError(f"Runtime(client): the client is {client.status}; make a new one")
    return client.scheduler.address, client.security


def order_of(name: object) -> tuple[int, int, str]:
    """Return the place of a worker's name in the order of devices: numbers first, as numbers."""
    text = str(name)
    return (0, int(text), "") if text.isdecimal() else (1, 0, text)


async def check_versions(client: Any, workers: Mapping[str, object]) -> None:
    """Raise `DeviceUnavailableError` for a worker with another version of Python or of this package."""
    versions = await client.get_versions(packages=["offload"])
    own = versions["client"]["packages"]
    here = own["python"].split(".")[:2]
    for address, name in workers.items():
        there = (versions["workers"].get(address) or {}).get("packages")
        if there is None:
            continue  # it has left
        python = there["python"].split(".")[:2]
        if python != here:
            raise DeviceUnavailableError(
                f"devices='dask': worker {name} ({address}) has Python {'.'.join(python)}, and this process has "
                f"{'.'.join(here)}; the workers need the same minor version"
            )
        if own["offload"] is not None and there["offload"] != own["offload"]:
            has = "is without offload" if there["offload"] is None else f"has offload {there['offload']}"
            raise DeviceUnavailableError(
                f"devices='dask': worker {name} ({address}) {has}; it needs version {own['offload']}, as this process"
            )


async def open_leases(
    client: Any, addresses: Sequence[str], *arguments: Any
) -> dict[str, tuple[str, list[tuple[str, str, int]]]]:
    """Have workers open their devices; return the incarnation of each, and the names and sizes of its devices.

    Raises
    ------
    DeviceUnavailableError
        A worker has left, or cannot open its devices.
    """
    found = await client.run(calls.open_lease, *arguments, workers=[*addresses], on_error="return")
    for address in addresses:
        if address not in found:
            raise DeviceUnavailableError(f"devices='dask': the worker at {address} has left the cluster; try again")
        error = found[address]
        if isinstance(error, BaseException):
            advice = "" if isinstance(error, OffloadError) else "; it needs the same version of offload as this process"
            raise DeviceUnavailableError(
                f"devices='dask': the worker at {address} cannot open its devices ({type(error).__name__}: "
                f"{error}){advice}"
            ) from error
    return found  # type: ignore[no-any-return]  # Dask has few types
