"""Calls of loops, where they are to run: on the host's threads, or on the stream of a device task.

Theory of operation
-------------------
A `Launcher` is the body of a loop function's task. On the host it runs the nests one after another, and returns. In a
device task it enqueues them on the task's stream and leaves with the task what looks at the outcome when the stream has
passed them (`DeviceTask.findings`): the results, and what a kernel has found wrong. So nobody waits, and the error is
the task's own. In another construct's target body (`launch_in_body`) results are written to device arrays in the order
of the stream, and only errors are left with the task.

What is decided before, from the numbers of the call, is `offload.loops.plan`'s.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from offload.arrays.items import address_of, label
from offload.devices.retired import refuse_retired
from offload.errors import ClauseError, UnsupportedError, UsageError
from offload.loops import pool
from offload.loops.arguments import on_host
from offload.loops.cuda_runs import CudaRun, shaped
from offload.loops.numbers import View
from offload.loops.plan import check, form_of, numbers_of, plans_of, ranged
from offload.loops.prepared import runs_of
from offload.loops.runs import NestForm
from offload.runtime.current import here

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from offload.devices.base import Device, Kernels
    from offload.loops.arguments import NestRun
    from offload.loops.cuda_runs import CudaForm
    from offload.loops.specialise import LoopProgram, Specialisation
    from offload.runtime.launch import DeviceTask

_NO_OUTPUTS: Final[Mapping[str, Any]] = {}


class Run(Protocol):
    """A run of a nest, once the stream has passed it."""

    @property
    def results(self) -> Mapping[str, Any]:
        """The scalars that come out."""

    def failure(self) -> Exception | None:
        """Return what the kernel has found wrong."""


class Launcher:
    """The body of a loop function's task.

    Parameters
    ----------
    program : LoopProgram
    is_alone : bool
        On the host, one thread runs the loop.

    Attributes
    ----------
    specialisation : Specialisation or None
        That of the arguments, where they were known at the call.
    """

    __slots__ = ("__wrapped__", "_is_alone", "_program", "specialisation")

    def __init__(self, program: LoopProgram, *, is_alone: bool = False) -> None:
        self.__wrapped__ = program.function  # by which a graph looks at what a body reaches
        self._program = program
        self._is_alone = is_alone
        self.specialisation: Specialisation | None = None

    def look(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Look at the arguments of a call on the host; raise what is wrong with their types, and read-only arrays."""
        values = self._program.bound(args, kwargs)
        self.specialisation = self._program.specialise(values)
        check_writeable(self.specialisation, values)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        values = self._program.bound(args, kwargs)
        spec = self.specialisation or self._program.specialise(values)
        task: Any = here().task
        if task is None or task.place is None:
            return _run_on_host(spec, values, 1 if self._is_alone else _n_threads(self._program))
        runs = _enqueue(spec, values, task)
        _leave(task, lambda _: _outcome(spec, runs))
        return None


def launch_in_body(program: LoopProgram, args: tuple[Any, ...], kwargs: Mapping[str, Any], task: Any) -> Any:
    """Start a loop in a target body: on a device in the order of the body's stream, on the host at once.

    Returns
    -------
    Device arrays without dimensions for what the function returns, on the host NumPy's scalars.

    Raises
    ------
    UsageError
        A host array, in a body on a device.
    """
    values = program.bound(args, kwargs)
    spec = program.specialise(values)
    if task.place is None:
        return _run_on_host(spec, values, _n_threads(program))
    device, stream = task.place.device, task.lane.stream
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            raise UsageError(
                f"{program.name!r} in a target body: argument {name!r}, {label(value):.60}, is a host array; pass the "
                "device arrays that the body is given"
            )
    outputs = {}
    for name in spec.typed.function.returns:
        outputs[name] = device.alloc((), np.dtype(spec.typed.scalars[name].dtype), stream)
    runs = _enqueue(spec, values, task, outputs)

    def look(value: Any) -> Any:
        _raise_failure(runs)
        return value

    _leave(task, look)
    return _shaped(spec, outputs)


# -- where a loop runs -------------------------------------------------------------------------------


def _run_on_host(spec: Specialisation, values: Mapping[str, Any], n_threads: int) -> Any:
    """Run the nests, and return what the function returns."""
    check_writeable(spec, values)
    runs = runs_of(spec, values, host_view, _host_address, n_threads, None)
    for run in runs:
        run.form.run((run.n_chunks,), run)
        failure = run.failure()
        if failure is not None:
            raise failure
    return _outcome(spec, runs) if spec.typed.function.returns else None


def _enqueue(
    spec: Specialisation, values: Mapping[str, Any], task: DeviceTask, outputs: Mapping[str, Any] = _NO_OUTPUTS
) -> Sequence[Run]:
    """Enqueue the nests on the lane of a device task, and return their runs.

    ``outputs`` are device arrays without dimensions for scalars that come out, which are written in the order of the
    stream.
    """
    device: Device = task.place.device
    kernels = kernels_of(device, spec.program)
    for name in spec.typed.arrays:
        array = values.get(name)
        if device.is_array(array) and device.retired(array) is not None:
            refuse_retired(device, array)
    runtime: Any = task.construct.runtime
    lane: Any = task.lane
    if kernels.dialect == "cuda":
        return _enqueue_cuda(spec, values, lane.stream, device, outputs)
    runs = runs_of(
        spec,
        values,
        partial(device_view, device),
        partial(_device_address, device),
        _n_threads(spec.program),
        runtime.rng,
    )
    for run in runs:
        run.form.compile()
        kernel = kernels.load(run.form)[run.form.names[0]]
        kernel.launch(lane.stream, (run.n_chunks,), (1,), 0, run)
    if outputs:
        lane.stream.launch(_write, runs, outputs)
    return runs


def _enqueue_cuda(
    spec: Specialisation,
    values: Mapping[str, Any],
    stream: Any,
    device: Device,
    outputs: Mapping[str, Any],
) -> Sequence[Run]:
    numbers = numbers_of(spec, values, partial(device_view, device))
    arrays = {name: values[name] for name in numbers.views}
    plans = plans_of(spec, numbers)
    check(spec, plans)
    if any(plan.observed for plan in plans):
        raise UnsupportedError(
            f"{spec.program.directive} {spec.program.name!r}: check=True, and that iterations are independent is not "
            "proved; a loop is observed on the host and on simulated devices only, so far"
        )
    kernels = kernels_of(device, spec.program)
    runs: list[CudaRun] = []
    for number, plan in enumerate(plans):
        of = shaped(spec, number, plan, numbers)
        run = CudaRun(of, numbers.scalars[number], arrays, numbers.views, numbers.axes[number], outputs)
        run.prepare(kernels, device, stream)
        runs.append(run)
    for run in runs:  # from here on nothing raises but a lost device: what is in use is kept
        run.enqueue(device, stream)
    return runs


def forms_for(
    program: LoopProgram, values: Mapping[str, Any], device: Device | None
) -> Sequence[NestForm] | Sequence[CudaForm]:
    """Return the nests as they are compiled for a call with such arguments; host arrays stand for those of a device."""
    kernels = None if device is None else kernels_of(device, program)
    spec = program.specialise(values)
    numbers = numbers_of(spec, values, lambda array: view_at(device, array))
    if kernels is None or kernels.dialect == "c":
        plans = ranged(spec, numbers, lambda name: on_host(values[name]))
        return [form_of(spec, number, plan) for number, plan in enumerate(plans)]
    return [shaped(spec, number, plan, numbers).form for number, plan in enumerate(plans_of(spec, numbers))]


def compile_for(program: LoopProgram, values: Mapping[str, Any], device: Device | None) -> None:
    """Compile what `forms_for` returns."""
    for form in forms_for(program, values, device):
        if isinstance(form, NestForm):
            form.compile()
        elif device is not None:
            kernels_of(device, program).load(form)


def check_writeable(spec: Specialisation, values: Mapping[str, Any]) -> None:
    """Raise `ClauseError` where the loop writes to a host array that cannot be written."""
    for name in spec.changed:
        value = values[name]
        if isinstance(value, np.ndarray) and not value.flags.writeable:
            raise ClauseError(
                f"{spec.program.directive} {spec.program.name!r}: the loop writes to {name!r}, which is read-only; "
                "make the array writeable, or pass a copy"
            )


def kernels_of(device: Device, program: LoopProgram) -> Kernels:
    """Return how a device is given kernels.

    Raises
    ------
    UnsupportedError
        It runs none, or none of those that loops become.
    """
    kernels = device.kernels
    if kernels is None:
        raise UnsupportedError(
            f"{program.directive} {program.name!r}: loops are not compiled for devices of kind {device.kind!r}; use "
            "if_=False, which runs the loop on the host"
        )
    return kernels


def host_view(array: np.ndarray[Any, Any]) -> View:
    """Return where a host array lies, of a loop that runs there."""
    address = _host_address(array, 0)
    _check_aligned(array)
    return View(array.shape, array.strides, array.itemsize, address)


def mapped_view(array: np.ndarray[Any, Any]) -> View:
    """Return where a host array lies, of a loop that is given a device's."""
    return View(array.shape, array.strides, array.itemsize, address_of(array))


def device_view(device: Device, array: Any) -> View:
    """Return where an array of a device lies."""
    low = sum(stride * (extent - 1) for extent, stride in zip(array.shape, array.strides, strict=True) if stride < 0)
    address = _device_address(device, array, low)
    _check_aligned(array)
    return View(array.shape, array.strides, array.itemsize, address)


def _host_address(array: Any, _low: int) -> int:
    """Return where the element ``[0, …, 0]`` of a host array is."""
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{label(array):.60} is a device array, and the loop runs on the host; pass host arrays")
    return address_of(array)


def _device_address(device: Device, array: Any, low: int) -> int:
    """Return where the element ``[0, …, 0]`` of a device array is, whose first byte is ``low`` from there."""
    if not device.is_array(array):
        raise ClauseError(
            f"{label(array):.60} is no array of device {device.number}, where the loop runs; make it present there, or "
            "map it"
        )
    return device.section(array).address - low


def _check_aligned(array: Any) -> None:
    """Raise `ClauseError` where elements lie at no multiples of their size, as in a view of packed records."""
    is_apart = any(
        stride % array.itemsize for stride, extent in zip(array.strides, array.shape, strict=True) if extent > 1
    )
    if is_apart or not getattr(array.flags, "aligned", True):
        raise ClauseError(
            f"{label(array):.60}: its elements, of {array.itemsize} bytes, lie at no multiples of that; pass a copy"
        )


def view_at(device: Device | None, array: Any) -> View:
    """Return where an array of the host, or of a device, lies."""
    if device is None:
        return host_view(array)
    return mapped_view(array) if isinstance(array, np.ndarray) else device_view(device, array)


def _n_threads(program: LoopProgram) -> int:
    """Return how many threads may work on a loop, the one that starts it included."""
    return min(program.words.num_threads or 1 + len(here().runtime.engine.threads), pool.n_cores())


# -- what comes of it --------------------------------------------------------------------------------


def _leave(task: DeviceTask, finding: Callable[[Any], Any]) -> None:
    """Have a device task look at the outcome of a loop when its work has passed."""
    if task.findings is None:
        task.findings = []
    task.findings.append(finding)


def _raise_failure(runs: Sequence[Run]) -> None:
    failures = [run.failure() for run in runs]  # of all, so that those of a graph start anew
    for failure in failures:
        if failure is not None:
            raise failure


def _outcome(spec: Specialisation, runs: Sequence[Run]) -> Any:
    """Return what the function returns, or raise what was wrong."""
    _raise_failure(runs)
    found = _results(runs)
    returned = {}
    for name in spec.typed.function.returns:
        if name not in found:
            raise UnboundLocalError(f"{spec.program.name}: {name!r} has no value, since the loop has no iteration")
        value = found[name]
        returned[name] = value.item() if spec.typed.scalars[name].is_weak else value
    return _shaped(spec, returned)


def _results(runs: Sequence[Run]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for run in runs:
        found |= run.results
    return found


def _shaped(spec: Specialisation, returned: Mapping[str, Any]) -> Any:
    """Return values as the function's ``return`` has them."""
    function = spec.typed.function
    values = tuple(returned[name] for name in function.returns)
    if function.returns_tuple:
        return values
    return values[0] if values else None


def _write(runs: Sequence[NestRun], outputs: Mapping[str, Any]) -> None:
    """Write results to device arrays, in the order of the stream; what has none keeps what it holds."""
    found = _results(runs)
    for name, array in outputs.items():
        if name in found:
            on_host(array)[...] = found[name]
