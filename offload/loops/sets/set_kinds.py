"""How loops on several devices are prepared on each kind of these: what is compiled, looked at and run.

See `offload.loops.replicas`, which launches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from offload.loops.running.arguments import Blank, on_host
from offload.loops.running.cuda_runs import ON_CUDA, CudaBlank, shaped
from offload.loops.running.looks import DeviceLooks, Looks
from offload.loops.running.plan import form_of
from offload.loops.running.preparation import described, located
from offload.loops.running.where import kernels_of, n_threads_of
from offload.loops.sets.device_runs import CudaJointRun, HostJointRun
from offload.loops.sets.divisions import divided_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from offload.devices.base import Device
    from offload.loops.running.clauses import SetWords
    from offload.loops.running.plan import Numbers
    from offload.loops.running.specialise import Specialisation
    from offload.loops.sets.device_runs import JointRun
    from offload.loops.sets.divisions import Divided, Taken
    from offload.loops.sets.ways import NestPiece
    from offload.runtime.launch import DeviceTask
    from offload.runtime.place import DevicePlace


def equal_weights(n_devices: int) -> tuple[int, ...]:
    """Return the shares of devices in iterations."""
    return (1,) * n_devices


# What a launch takes; tests put others in its place.
weights_of = equal_weights


class SetCall(Protocol):
    """A call on several devices."""

    spec: Specialisation
    values: Mapping[str, Any]  # its arguments; arrays of the first device
    arrays: Sequence[Mapping[str, Any]]  # of each device, by name
    places: tuple[DevicePlace, ...]
    task: DeviceTask


class SetsOnHost:
    """How nests are prepared where the host's processor is that of all devices."""

    def looks(self, spec: Specialisation, arrays: Mapping[str, Any], task: DeviceTask) -> Looks:
        return Looks(arrays, task)

    def on_host(self, arrays: Mapping[str, Any], task: DeviceTask | None) -> Mapping[str, np.ndarray[Any, Any]]:
        return {name: on_host(array) for name, array in arrays.items()}

    def blank(self, spec: Specialisation, number: int, piece: NestPiece, numbers: Numbers) -> Blank[Any]:
        form = form_of(spec, number, piece.plan)
        fields = form.kernel.fields if form.is_compiled else ()
        return Blank(form, fields, piece.scalars, spec.free, numbers.views, piece.axes)

    def compile(self, blank: Blank[Any], device: Device) -> None:
        blank.form.compile()

    def run(self, call: SetCall, taken: Taken[Any]) -> JointRun:
        runtime: Any = call.task.construct.runtime
        n_threads = n_threads_of(call.spec.program)
        return HostJointRun(
            taken.way, taken.blanks, call.arrays, _addresses(call, taken), call.values, n_threads, runtime.rng
        )


class SetsOnCuda:
    """How nests are prepared for CUDA devices."""

    def looks(self, spec: Specialisation, arrays: Mapping[str, Any], task: DeviceTask) -> Looks:
        return DeviceLooks(arrays, task, spec)

    def on_host(self, arrays: Mapping[str, Any], task: DeviceTask | None) -> Mapping[str, np.ndarray[Any, Any]]:
        return ON_CUDA.on_host(arrays, task)

    def blank(self, spec: Specialisation, number: int, piece: NestPiece, numbers: Numbers) -> CudaBlank:
        of = shaped(spec, number, piece.plan, numbers)
        return CudaBlank(of, piece.scalars, spec.free, numbers.views, piece.axes)

    def compile(self, blank: CudaBlank, device: Device) -> None:
        device.kernels.load(blank.form)  # type: ignore[union-attr]  # it has been asked

    def run(self, call: SetCall, taken: Taken[Any]) -> JointRun:
        return CudaJointRun(taken.way, taken.blanks, _addresses(call, taken), call.values)


def _addresses(call: SetCall, taken: Taken[Any]) -> list[Mapping[str, int]]:
    """Return where arrays lie on each device; nobody asks of devices without a part."""
    found: list[Mapping[str, int]] = []
    for number, place in enumerate(call.places):
        arrays = call.arrays[number] if not number or number in taken.way.devices else {}
        found.append({name: place.device.address(array) or 0 for name, array in arrays.items()})
    return found


_KINDS: Final[Mapping[str, SetsOnHost | SetsOnCuda]] = {"c": SetsOnHost(), "cuda": SetsOnCuda()}


def kind_of(device: Device, spec: Specialisation) -> SetsOnHost | SetsOnCuda:
    """Return how loops are prepared on devices of this one's kind; raise `UnsupportedError` where they are not."""
    return _KINDS[kernels_of(device, spec.program).dialect]


def on_devices(spec: Specialisation, values: Mapping[str, Any], device: Device, n_devices: int) -> Divided[Any]:
    """Return what a call with these arguments leads to on so many devices; host arrays stand for those of the first."""
    kind = kind_of(device, spec)
    return divided_for(
        spec,
        values,
        lambda array: described(device, array),
        lambda array: located(device, array),
        weights_of(n_devices),
        lambda number, piece, numbers: kind.blank(spec, number, piece, numbers),
        device.kind,
    )


def compile_ways(spec: Specialisation, values: Mapping[str, Any], words: SetWords, devices: Sequence[Device]) -> None:
    """Compile, for all devices, what calls with such arguments may run."""
    divided = on_devices(spec, values, devices[0], len(devices))
    for mode in divided.chooser(words.filter, tuple([device.space for device in devices])).candidates:
        for nest in divided.nests(None):
            for device, blank in zip(devices, nest.taken(mode).blanks, strict=True):
                kind_of(device, spec).compile(blank, device)


def sources(spec: Specialisation, values: Mapping[str, Any], words: SetWords, devices: Sequence[Device]) -> list[str]:
    """Return the text of each nest, as the next call with such arguments would run it on the first device."""
    divided = on_devices(spec, values, devices[0], len(devices))
    mode = divided.chooser(words.filter, tuple([device.space for device in devices])).now
    return [nest.taken(mode).blanks[0].form.source for nest in divided.nests(None)]
