"""Leases: the devices and data of a worker for the runtimes of clients.

A lease is renewed by its runtime. One that is not renewed in time, since the client has died, is closed, and so is each
when the worker closes.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from distributed.diagnostics.plugin import WorkerPlugin

from offload.devices import kinds
from offload.errors import DeviceUnavailableError, NotPresentError, OffloadError
from offload.runtime import registry
from offload.runtime.opening import version as own_version
from offload.runtime.runtime import Runtime
from offload.tasks.scope import current_scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from distributed import Worker

    from offload.devices.dask.wire import RemoteView
    from offload.runtime.place import DevicePlace

_BYTE = np.dtype("u1")
_PLUGIN = "offload"

_MOST_BEGUN = 1000
"""Segments that a lease remembers to have begun. Dask keeps fewer whose tasks it could run again."""

_leases: dict[tuple[str, str], Lease] = {}
"""By the address of the worker, as a process may have several, and the number of the client's runtime."""


class MissingBlockError(OffloadError):
    """A plan uses a block that was to be made by a node that has failed."""

    def __init__(self, block: int) -> None:
        super().__init__(block)
        self.block = block


class Lease:
    """The devices of a worker, as one runtime of a client has them.

    Attributes
    ----------
    topic : str
        Of the events for the client. It is the identity of Dask's client: after that, the scheduler drops them.
    incarnation : str
        A plan for another one is refused: it counts on data that is not here.
    blocks : dict
        The allocations of the runtime, by their numbers, as arrays of bytes.
    bodies : dict
        The functions that the client has sent, by their numbers.
    begun : dict of int
        The last segments that have been begun, by their numbers: Dask may try to run one again, which no body must
        notice.
    runs : dict
        The last segments that were begun, whose reports Dask may lose.
    revoked : set
        Segments that are not to be begun, with their attempts: the client sends them again.
    """

    def __init__(self, address: str, number: str, topic: str, lease_s: float, n_threads: int, *, poisons: bool) -> None:
        self.address = address  # of the worker
        self.number = number
        self.topic = topic
        self.incarnation = uuid.uuid4().hex[:12]
        self.runtime = Runtime(_spec(), num_threads=n_threads, check=poisons)
        registry.set_aside(self.runtime)
        self.blocks: dict[int, Any] = {}
        self.bodies: dict[int, Any] = {}
        self.revoked: set[tuple[int, int]] = set()
        self.begun: dict[int, None] = {}
        self.runs: dict[int, Any] = {}
        self.sites: dict[Any, Any] = {}
        self._views: dict[int, dict[Any, Any]] = {}  # the arrays over each block, by their views
        self._withheld: set[int] = set()  # blocks of nodes that have failed: they are not made at their first use
        self._n_returned = 0
        self._lock = threading.Lock()
        self._lease_s = lease_s
        self._until_s = 0.0
        self.renew()
        # The thread that generates the tasks of plans, one segment after the other.
        self._generating = ThreadPoolExecutor(1, "offload-plans", initializer=self._become_current)

    def _become_current(self) -> None:
        current_scope.set(self.runtime.scope())

    @property
    def places(self) -> list[DevicePlace]:
        """The places of the devices."""
        return self.runtime.places

    @property
    def is_over(self) -> bool:
        """Whether it was not renewed in time."""
        return time.monotonic() > self._until_s

    def renew(self) -> None:
        """Keep the lease for another while."""
        self._until_s = time.monotonic() + self._lease_s

    def generate(
        self, loop: asyncio.AbstractEventLoop, function: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call a function on the thread that generates tasks."""
        return loop.run_in_executor(self._generating, function, *args)

    # -- blocks ----------------------------------------------------------------------------------------
    def block(self, number: int, nbytes: int, place: DevicePlace, lane: Any) -> Any:
        """Return an allocation; one that is made at its first use has ``nbytes``."""
        found = self.blocks.get(number)
        if found is None:
            if not nbytes or number in self._withheld:
                raise MissingBlockError(number)
            with self._lock:
                found = self.blocks.get(number)
                if found is None:
                    found = self.blocks[number] = place.device.alloc((nbytes,), _BYTE, lane.stream)
        return found

    def view(self, spec: RemoteView, lane: Any) -> Any:
        """Return the device array of a view."""
        found = self._views.get(spec.block, {}).get(spec)
        if found is None:
            place = self.places[spec.device]
            if not spec.shape or 0 not in spec.shape:
                buffer = self.block(spec.block, spec.nbytes, place, lane)
                found = place.device.view(buffer, spec.offset, spec.shape, spec.strides, spec.dtype)
            else:
                found = place.device.alloc(spec.shape, spec.dtype, lane.stream)
            self._views.setdefault(spec.block, {})[spec] = found
        return found

    def free(self, numbers: Iterable[int]) -> None:
        """Forget allocations, whose memory goes back when no work needs it."""
        for number in numbers:
            self._withheld.discard(number)
            self.blocks.pop(number, None)
            self._views.pop(number, None)

    def withhold(self, numbers: Iterable[int]) -> None:
        """Free allocations of a node that has failed; later nodes must not find them until the client frees them."""
        self.free(numbers)
        self._withheld.update(numbers)

    def begin(self, segment: int) -> None:
        """Note that a segment is begun."""
        self.begun[segment] = None
        while len(self.begun) > _MOST_BEGUN:
            del self.begun[next(iter(self.begun))]

    def keep_array(self, array: Any, place: DevicePlace) -> tuple[Any, int, int, int]:
        """Keep an array of a body for the client.

        Return it, or a copy without gaps, and the number and size of its allocation, and where it begins there.
        """
        device = place.device
        if array.size:
            section = device.section(array)
            for number, buffer in [*self.blocks.items()]:
                whole = device.section(buffer)
                if whole.space == section.space and whole.address <= section.address and section.end <= whole.end:
                    return array, number, whole.nbytes, _address(device, array) - whole.address
        if not (array.flags.c_contiguous or array.flags.f_contiguous):
            array = array.copy()
        with self._lock:
            self._n_returned += 1
            number = -self._n_returned
        whole_array = array if array.flags.c_contiguous else array.T
        whole_array = whole_array.reshape(-1)
        self.blocks[number] = whole_array.view(_BYTE) if array.size else whole_array
        return array, number, int(array.nbytes), 0

    def close(self) -> None:
        """Close the devices, with all that is on them."""
        if _leases.get((self.address, self.number)) is self:
            del _leases[self.address, self.number]
        self._generating.shutdown(wait=False, cancel_futures=True)
        self.blocks.clear()
        self._views.clear()
        self.bodies.clear()
        self.runs.clear()
        self.runtime.drop()


def _address(device: Any, array: Any) -> int:
    address = device.address(array)
    assert address is not None, "an array of the device"
    return int(address)


def _spec() -> str:
    """Return the devices of this worker: the environment's, else one CUDA device, else one simulated device."""
    named = os.environ.get("OFFLOAD_DEVICES")
    if named and not named.strip().lower().startswith("dask"):
        return named
    cuda = kinds.find("cuda")
    assert cuda is not None, "it is built in"
    try:
        cuda.count()
    except DeviceUnavailableError:
        return "sim:1"
    return "cuda:0"  # dask-cuda's workers see all GPUs of the host, their own first


def lease_of(address: str, number: str, incarnation: str) -> Lease:
    """Return a lease; raise `NotPresentError` if it is over, or was one of an earlier process."""
    found = _leases.get((address, number))
    if found is None or found.incarnation != incarnation:
        raise NotPresentError(
            "this worker has no data of the runtime any more: it has been started again, or the lease is over"
        )
    found.renew()
    return found


def known_run(address: str, number: str, segment: int) -> Any:
    """Return a segment of a runtime that was begun here, if it is one of the last; else None."""
    lease = _leases.get((address, number))
    return None if lease is None else lease.runs.get(segment)


class LeaseKeeper(WorkerPlugin):
    """Closes the leases that are over, and all of them when the worker closes."""

    def setup(self, worker: Worker) -> None:
        """Begin to look."""
        self._task = asyncio.get_running_loop().create_task(self._look())

    async def teardown(self, worker: Worker) -> None:
        """End all leases."""
        self._task.cancel()
        for lease in [*_leases.values()]:
            if lease.address == worker.address:
                lease.close()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(min([5.0, *[lease._lease_s / 4 for lease in _leases.values()]]))  # noqa: SLF001  # same file
            for lease in [*_leases.values()]:
                if lease.is_over:
                    lease.close()


# -- functions that the client calls, by `offload.devices.dask.calls` -------------------------------


async def open_lease(
    number: str,
    topic: str,
    version: str,
    lease_s: float,
    poisons: bool,
    worker: Worker,
) -> tuple[str, list[tuple[str, str, int]]]:
    """Open the devices for a runtime; return the incarnation, and the name, kind and memory of each device.

    Raises
    ------
    DeviceUnavailableError
        This process has another version of the package, or no device.
    """
    if version != own_version():
        raise DeviceUnavailableError(f"this worker has offload {own_version()}; it needs {version}")
    if _PLUGIN not in worker.plugins:
        await worker.plugin_add(LeaseKeeper(), name=_PLUGIN)
    loop = asyncio.get_running_loop()
    n_threads = worker.state.nthreads  # as many bodies at a time as Dask would run tasks
    address = worker.address
    if (address, number) in _leases:  # of an opening that was given up
        _leases[address, number].close()
    lease = await loop.run_in_executor(None, lambda: Lease(address, number, topic, lease_s, n_threads, poisons=poisons))
    if not lease.places:
        lease.close()
        raise DeviceUnavailableError("OFFLOAD_DEVICES of this worker names no device")
    _leases[address, number] = lease
    devices = [place.device for place in lease.places]
    return lease.incarnation, [(device.name, device.kind, device.memory_info()[1]) for device in devices]


def number_devices(address: str, number: str, numbers: list[int], n_devices: int) -> None:
    """Give the devices the numbers that they have in the client's runtime, which bodies ask for."""
    lease = _leases[address, number]
    for place, at in zip(lease.places, numbers, strict=False):
        place.device.number = at
    lease.runtime.initial_device = n_devices


def renew_lease(address: str, number: str) -> None:
    """Keep the lease of a runtime for another while."""
    lease = _leases.get((address, number))
    if lease is not None:
        lease.renew()


def revoke_segments(address: str, number: str, segments: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Keep segments from being begun; return those that have not been begun yet."""
    lease = _leases[address, number]
    found = [(segment, attempt) for segment, attempt in segments if segment not in lease.begun]
    lease.revoked.update(found)
    return found


async def close_lease(address: str, number: str) -> None:
    """End the lease of a runtime."""
    lease = _leases.get((address, number))
    if lease is not None:
        await asyncio.get_running_loop().run_in_executor(None, lease.close)


def live_leases() -> dict[str, dict[str, int]]:
    """Return the blocks and bytes that runtimes have here, by their numbers; for tests and reports."""
    return {
        number: {
            "blocks": len(lease.blocks),
            "nbytes": sum(place.device.live_nbytes() for place in lease.places),
            "bodies": len(lease.bodies),
        }
        for (_, number), lease in _leases.items()
    }
