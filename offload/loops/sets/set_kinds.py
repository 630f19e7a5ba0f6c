"""How loops on several devices are prepared, compiled and run; `offload.loops.replicas` launches them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from offload.loops.running.cuda_runs import ON_CUDA
from offload.loops.running.plan import numbers_of
from offload.loops.running.preparation import described, located
from offload.loops.running.runs import NestForm
from offload.loops.running.where import kernels_of, n_threads_of, where_on
from offload.loops.sets.device_runs import CudaJointRun, HostJointRun
from offload.loops.sets.divisions import Divided

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offload.devices.base import Device
    from offload.loops.running.clauses import SetWords
    from offload.loops.running.specialise import Specialisation
    from offload.loops.sets.device_runs import JointRun
    from offload.loops.sets.divisions import Taken
    from offload.runtime.launch import DeviceTask
    from offload.runtime.place import DevicePlace


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
