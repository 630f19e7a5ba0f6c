"""Loops on several devices: a run of a nest on each of them, their combined results, and what calls prepare.

Partial results of reductions are put side by side in the order of the devices, and combined as those of one device: on
the host by its processor, on CUDA by the kernel ``finish`` on the first device. So a result depends on the number of
devices only. Both kinds have `prepare`, which may fail, for the first device first, since the others copy into its
memory; `enqueue`; and `finish`, for the first device's stream after it has joined the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from offload.loops.running.arguments import NestRun
from offload.loops.running.cuda_runs import ON_CUDA, CudaRun
from offload.loops.running.plan import numbers_of
from offload.loops.running.preparation import described, kernels_of, located, n_threads_of, where_on
from offload.loops.running.runs import NestForm
from offload.loops.sets.divisions import Divided

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offload.devices.base import Device
    from offload.loops.running.arguments import Blank
    from offload.loops.running.clauses import SetWords
    from offload.loops.running.cuda_runs import CudaBlank
    from offload.loops.running.specialise import Specialisation
    from offload.loops.sets.divisions import Taken, Way
    from offload.runtime.launch import DeviceTask
    from offload.runtime.place import DevicePlace


class HostJointRun:
    """A run of a nest where the host's processor is the processor of all devices."""

    def __init__(
        self,
        way: Way,
        blanks: Sequence[Blank[NestForm]],  # one for each device
        arrays: Sequence[Mapping[str, Any]],  # of each device, by name
        addresses: Sequence[Mapping[str, int]],  # of the elements ``[0, …, 0]``
        values: Mapping[str, Any],  # the arguments of the call, for the scalars that each run has for itself
        n_threads: int,
        rng: Any = None,
    ) -> None:
        self.way = way
        nest = blanks[0].form.nest
        # whether `finish` has something to combine, for which all devices have to be waited for
        self.joins = bool(nest.reductions or nest.last)
        self._runs = {
            number: _PieceRun(blanks[number], arrays[number], addresses[number], values, n_threads, rng)
            for number in {0, *way.devices}
        }

    def prepare(self, number: int, device: Device, stream: Any) -> None:
        """Compile, and allocate the memory that a device needs, by its number in the set; raise `DeviceMemoryError`."""
        run = self._runs.get(number)
        if run is not None:
            run.form.compile()

    def enqueue(self, number: int, device: Device, stream: Any) -> None:
        """Enqueue the nest on a device."""
        run = self._runs.get(number)
        if run is not None and run.n_chunks:
            kernels: Any = device.kernels  # it has been asked
            kernels.load(run.form)[run.form.names[0]].launch(stream, (run.n_chunks,), (1,), 0, run)

    def run_on(self, number: int) -> NestRun | None:
        """Return the run on a device, by its number in the set; None if it has none."""
        return self._runs.get(number)

    def finish(self, device: Device, stream: Any) -> None:
        """Enqueue the kernels that combine partial results, on the first device."""
        if self.joins:
            stream.launch(self._finish)

    def _finish(self) -> None:
        """Combine the partial results of all devices onto the first one's values."""
        first = self._runs[0]
        nest = first.form.nest
        parts = [run.partials for number, run in sorted(self._runs.items()) if number < self.way.summed]
        partials = [part for part in parts if part is not None and len(part)]
        together = np.concatenate(partials) if partials else np.zeros((0, first.blank.n_words), np.uint64)
        first.combine(together)
        of_last = self._runs.get(self.way.last)
        if nest.last and of_last is not None:
            of_last.take_last()
            first.results |= {name: of_last.results[name] for name in nest.last if name in of_last.results}

    def failure(self) -> tuple[int, Exception] | None:
        """Return the error of a kernel, with the number of its device, when the streams have passed."""
        return _first_failure(self._runs)

    @property
    def results(self) -> Mapping[str, Any]:
        """The scalars that come out, when the streams have passed."""
        return self._runs[0].results


class _PieceRun(NestRun):
    """A device's part of a run: its partial results stay as they are."""

    is_part = True

    __slots__ = ()


class CudaJointRun:
    """A run on CUDA devices, used as `HostJointRun`; ``addresses`` are those of elements ``[0, …, 0]``."""

    def __init__(
        self, way: Way, blanks: Sequence[CudaBlank], addresses: Sequence[Mapping[str, int]], values: Mapping[str, Any]
    ) -> None:
        self.way = way
        self._blanks = blanks  # one a device
        self._addresses = addresses  # of each device's arrays
        devices = {0, *way.devices}
        # whether partial results of several devices are combined
        self.joins = way.summed > 1 and bool(blanks[0].form.nest.reductions)
        self._runs = {number: CudaRun(blanks[number], values, {}) for number in devices}  # by the number of the device
        self._begins: dict[int, int] = {}  # of each device: the first of its blocks among those of all
        self._n_blocks = 0  # of all devices
        for number in sorted(devices):
            self._begins[number] = self._n_blocks
            if number < way.summed and blanks[number].size:
                self._n_blocks += blanks[number].grid.n_blocks

    def prepare(self, number: int, device: Device, stream: Any) -> None:
        run = self._runs.get(number)
        if run is not None:
            n_blocks = self._n_blocks if self.joins and number == 0 else None
            run.prepare(self._addresses[number], device.kernels, device, stream, n_blocks=n_blocks)  # type: ignore[arg-type]  # it has been asked

    def enqueue(self, number: int, device: Device, stream: Any) -> None:
        run = self._runs.get(number)
        kernels: Any = device.kernels
        if run is None:
            return
        if not self.joins:
            run.enqueue(kernels, device, stream, finishes=number < self.way.summed)
            return
        run.enqueue(kernels, device, stream, finishes=False)
        if number and run.blank.size and run.partials is not None:
            n_words = run.blank.n_reduced
            first, count = self._begins[number] * n_words, run.blank.grid.n_blocks * n_words
            to = device.view(self._runs[0].partials, 8 * first, (count,), (8,), run.partials.dtype)
            device.copy(to, run.partials[:count], stream)

    def run_on(self, number: int) -> CudaRun | None:
        return self._runs.get(number)

    def finish(self, device: Device, stream: Any) -> None:
        if self.joins:
            self._runs[0].finish(device.kernels, stream)  # type: ignore[arg-type]  # it has been asked

    def failure(self) -> tuple[int, Exception] | None:
        return _first_failure(self._runs)

    @property
    def results(self) -> Mapping[str, Any]:
        first, of_last = self._runs[0], self._runs.get(self.way.last)
        last = first.blank.form.nest.last
        found = {name: value for name, value in first.results.items() if name not in last}
        if last and of_last is not None:
            found |= {name: value for name, value in of_last.results.items() if name in last}
        return found


JointRun: TypeAlias = HostJointRun | CudaJointRun


def _first_failure(runs: Mapping[int, NestRun | CudaRun]) -> tuple[int, Exception] | None:
    """Return the error of the first device that has found one, of runs by their devices' numbers."""
    found = [(number, run.failure()) for number, run in sorted(runs.items())]  # of all, so that each starts anew
    return next(((number, error) for number, error in found if error is not None), None)


# -- calls --------------------------------------------------------------------------------------------
#
# `offload.loops.replicas` launches them.


def weights_of(n_devices: int) -> tuple[int, ...]:
    """Return the shares of devices in iterations; tests and benchmarks put others in its place."""
    return (1,) * n_devices


class SetCall(Protocol):
    """A call on several devices."""

    spec: Specialisation
    values: Mapping[str, Any]  # its arguments; arrays of the first device
    arrays: Sequence[Mapping[str, Any]]  # of each device, by name
    places: tuple[DevicePlace, ...]
    task: DeviceTask


def joint_run(call: SetCall, taken: Taken[Any], where: Any) -> JointRun:
    """Return a run of a nest on the devices of a call; ``where`` is how its nests are prepared."""
    addresses = _addresses(call, taken)
    if where is ON_CUDA:
        return CudaJointRun(taken.way, taken.blanks, addresses, call.values)
    runtime: Any = call.task.construct.runtime
    n_threads = n_threads_of(call.spec.program)
    return HostJointRun(taken.way, taken.blanks, call.arrays, addresses, call.values, n_threads, runtime.rng)


def _addresses(call: SetCall, taken: Taken[Any]) -> list[Mapping[str, int]]:
    """Return where arrays lie on each device; nobody asks of devices without a part."""
    found: list[Mapping[str, int]] = []
    for number, place in enumerate(call.places):
        arrays = call.arrays[number] if not number or number in taken.way.devices else {}
        found.append({name: place.device.address(array) or 0 for name, array in arrays.items()})
    return found


def on_devices(spec: Specialisation, values: Mapping[str, Any], device: Device, n_devices: int) -> Divided[Any]:
    """Return the division of a call with these arguments on ``n_devices``; host arrays stand for the first device's."""
    weights = weights_of(n_devices)
    addresses = {name: located(device, values[name]) for name in spec.given}
    facts = spec.record(spec.key(values)).facts
    key: tuple[Any, ...] = "divided", device.kind, weights
    found: Divided[Any] | None = facts.get(key)
    if found is not None and found.apart.holds(addresses):
        return found
    base = min(addresses.values(), default=0)
    near = *key, *[address - base for address in addresses.values()]
    found = facts.get(near)
    if found is None:
        numbers = numbers_of(spec, values, lambda array: described(device, array))
        made = Divided(spec, numbers, weights, where_on(device, spec.program))
        found = facts.keep(key if made.apart.holds(addresses) else near, made)
    return found


def compile_ways(spec: Specialisation, values: Mapping[str, Any], words: SetWords, devices: Sequence[Device]) -> None:
    """Compile, for all devices, the kernels that calls with such arguments may run."""
    divided = on_devices(spec, values, devices[0], len(devices))
    for mode in divided.chooser(words.filter, tuple([device.space for device in devices])).candidates:
        for nest in divided.nests(None):
            for device, blank in zip(devices, nest.taken(mode).blanks, strict=True):
                if isinstance(blank.form, NestForm):
                    blank.form.compile()
                else:
                    blank.form.loaded(kernels_of(device, spec.program))


def sources(spec: Specialisation, values: Mapping[str, Any], words: SetWords, devices: Sequence[Device]) -> list[str]:
    """Return the text of each nest, as the next call with such arguments would run it on the first device."""
    divided = on_devices(spec, values, devices[0], len(devices))
    mode = divided.chooser(words.filter, tuple([device.space for device in devices])).now
    return [nest.taken(mode).blanks[0].form.source for nest in divided.nests(None)]
