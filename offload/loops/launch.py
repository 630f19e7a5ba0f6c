"""Start the loops of a call: on the host's threads, or on the stream of a device task.

A `Launcher` is the body of a loop function's task. On the host it runs the nests and returns. In a device task it
enqueues them, and the task's `DeviceTask.findings` later get the results and the failures. So nobody waits, and the
error is the task's. In another construct's target body (`launch_in_body`) results go to device arrays in the order of
the stream, and only errors stay with the task. `offload.loops.running.plan` decides from the numbers of a call.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from offload.arrays.items import is_device_array, label
from offload.errors import ClauseError, UnsupportedError, UsageError
from offload.loops.running.arguments import NestRun, on_host, results_of
from offload.loops.running.configurations import tell_launches
from offload.loops.running.cuda_runs import ON_CUDA, CudaRun, shaped
from offload.loops.running.looks import Looks, after, change
from offload.loops.running.parallel_runs import host_runs, run_in_parallel
from offload.loops.running.plan import form_of, numbers_of, plans_of, ranged
from offload.loops.running.preparation import described, kernels_of, n_threads_of, prepared, view_at
from offload.loops.running.runs import NestForm
from offload.loops.running.specialise import LoopProgram
from offload.loops.settled_calls import keep_settled
from offload.runtime.current import here
from offload.tasks import hooked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from offload.devices.base import Device, Kernels
    from offload.loops.running.clauses import LoopWords
    from offload.loops.running.cuda_runs import CudaForm
    from offload.loops.running.specialise import Specialisation
    from offload.loops.settled_calls import SettledCall
    from offload.loops.speculative.verdict_memory import Remembered
    from offload.runtime.launch import DeviceTask

# A run of a nest, whose results and failure are there once the stream has passed it.
FinishedRun: TypeAlias = NestRun | CudaRun

_NO_OUTPUTS: Final[Mapping[str, Any]] = {}
_NO_NAMES: Final[Mapping[str, Any]] = {}


class Launcher:
    """The body of a loop function's task."""

    __slots__ = (
        "__wrapped__",
        "_is_alone",
        "begin",
        "is_mapped",
        "program",
        "settled",
        "specialisation",
        "starts",
        "take",
        "values",
    )

    # Why a graph of a device cannot have the loop in it; empty if it can.
    why_not_captured = ""

    def __init__(self, program: LoopProgram, *, is_alone: bool = False) -> None:
        self.__wrapped__ = program.function  # by which a graph looks at what a body reaches
        self.program = program  # the function, with its clauses
        self._is_alone = is_alone  # on the host, one thread runs the loop
        # Of the arguments, where they were known at the call: their types, and what is left to fill in.
        self.specialisation: Specialisation | None = None
        self.settled: SettledCall | None = None  # found by the call's name: only addresses and floats are left
        self.values: dict[str, Any] | None = None  # the arguments by name, if they are those of the one task that runs
        self.is_mapped = False  # whether the binding of the call says what the loop writes to
        # called before the first kernel is enqueued, when all is prepared; not in a settled call
        self.starts: Callable[[], None] | None = None
        # called with the result before the task is complete; it returns the task's value
        self.take: Callable[[Any], Any] | None = None
        # called when the body begins; it returns scalars by name, which replace arguments of the call
        self.begin: Callable[[], Mapping[str, Any]] | None = None

    @property
    def sent_as(self) -> Any:
        """The body that stands for it in another process; `UnsupportedError` if there can be none."""
        return SentLoop.of(self, is_alone=self._is_alone)

    def look(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Look at the arguments: `LoopError` for wrong types, `ClauseError` if the loop writes to a read-only array."""
        values = self.program.bound(args, kwargs)
        self.specialisation = self.program.specialise(values)
        check_writeable(self.specialisation, values)

    def begun(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments of a call with the scalars that replace some when the body begins."""
        if self.begin is None:
            return args
        now = self.begin()
        pairs = list(zip(self.program.parameters, args, strict=False))
        found = tuple([now.get(name, value) for name, value in pairs])
        if any(new.__class__ is not old.__class__ for new, old in zip(found, args, strict=True)):
            self.specialisation = None  # it holds for other types
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        task: Any = here().task
        if self.begin is not None:
            args = self.begun(args)
        is_on_device = task is not None and task.place is not None
        if is_on_device and not kwargs and self.values is None:
            settled = self.settled or self.program.settled(args)
            if settled is not None and settled.start(args, task, changes=not self.is_mapped):
                return None  # a settled call has no results
        values = self.program.bound(args, kwargs) if self.values is None else self.values
        spec = self.specialisation or self.program.specialise(values)
        if not is_on_device:
            result = self._on_host(spec, values)
            return result if self.take is None else self.take(result)
        if not self.is_mapped:
            change(task, [values[name] for name in spec.changed])
        self._on_device(spec, values, task, args)
        if self.take is not None:
            task.leave(self.take)
        return None

    def _on_host(self, spec: Specialisation, values: Mapping[str, Any]) -> Any:
        """Run the loop on the host's arrays, and return the function's result."""
        return run_on_host(spec, values, is_alone=self._is_alone)

    def _on_device(
        self, spec: Specialisation, values: Mapping[str, Any], task: DeviceTask, args: tuple[Any, ...]
    ) -> None:
        """Enqueue the loop, and give the task a function that checks its outcome."""
        runs = enqueue(spec, values, task, args, starts=self.starts)
        if runs or spec.typed.function.returns:
            task.leave(lambda _: outcome_of(spec, runs))


class SentLoop:
    """The body of a loop function's task in another process. All calls of a program share one."""

    def __init__(self, program: LoopProgram, *, is_alone: bool) -> None:
        self.program = program
        self._is_alone = is_alone
        self.__name__ = program.name

    @classmethod
    def of(cls, launcher: Launcher, *, is_alone: bool) -> SentLoop:
        """Return the body that stands for a launcher."""
        if type(launcher) is not Launcher:
            raise UnsupportedError(
                f"{launcher.program.directive} {launcher.program.name!r}: speculate= and several devices are not "
                "supported on a Dask cluster; leave speculate= out, and call the loop once for each device"
            )
        shared: dict[bool, SentLoop] = launcher.program.__dict__.setdefault("_sent", {})
        return shared.get(is_alone) or shared.setdefault(is_alone, cls(launcher.program, is_alone=is_alone))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Start the loop in the device task that runs here."""
        return Launcher(self.program, is_alone=self._is_alone)(*args, **kwargs)

    def __reduce__(self) -> Any:
        program = self.program
        names, texts = program.source.texts()
        return sent_loop, (program.function, program.words, program.directive, names, texts, self._is_alone)


def sent_loop(
    function: Callable[..., Any],
    words: LoopWords,
    directive: str,
    names: dict[str, Any],
    texts: tuple[Any, ...],
    is_alone: bool,  # by pickle
) -> SentLoop:
    """Return the body in the process that has received it."""
    known: Any = function
    for name, value in names.items():
        known.__globals__.setdefault(name, value)
    from offload.loops.front.source import received  # as `offload.loops.common` does

    received(texts)
    return SentLoop(LoopProgram(function, words, directive), is_alone=is_alone)


def launcher_for(program: LoopProgram, args: tuple[Any, ...], kind: type[Launcher] = Launcher) -> Launcher:
    """Return the body of a task with scalars and device arrays; equal calls share one. `LoopError`: wrong types."""
    settled: SettledCall | None = program.settled(args)
    if settled is not None and settled.launcher is not None:
        return settled.launcher  # type: ignore[no-any-return]  # it is one
    launcher = kind(program)
    if settled is not None:
        settled.launcher, launcher.settled, launcher.specialisation = launcher, settled, settled.spec
    else:
        launcher.values = values = program.bound(args, _NO_NAMES)
        launcher.specialisation = program.specialise(values)
    return launcher


def launch_in_body(program: LoopProgram, args: tuple[Any, ...], kwargs: Mapping[str, Any], task: Any) -> Any:
    """Start a loop in a target body: on a device in the order of the body's stream, on the host at once.

    Return the scalars of the function as device arrays without dimensions, or on the host as NumPy scalars. Raises
    `UsageError` for a host array in a body on a device, and `UnboundLocalError` for a scalar that gets no value because
    the loop has no iteration.
    """
    if not kwargs and task.place is not None and not program.is_speculative:
        settled = program.settled(args)
        if settled is not None and settled.start(args, task, changes=True):
            return None
    values = program.bound(args, kwargs)
    if program.is_speculative:
        raise UsageError(
            f"{program.directive} {program.name!r}: speculate= is not allowed in a target body, where loops are "
            "enqueued without a wait; call the loop outside the region, or without the clause"
        )
    spec = program.specialise(values)
    if task.place is None:
        return run_on_host(spec, values)
    device, stream = task.place.device, task.lane.stream
    returns = spec.typed.function.returns
    outputs = {name: device.alloc((), np.dtype(spec.typed.scalars[name].dtype), stream) for name in returns}
    if task.plan is not None:
        change(task, [values[name] for name in spec.changed])
    try:
        runs = enqueue(spec, values, task, args, outputs)
    except ClauseError:
        _refuse_host_arrays(program, values)
        raise
    if runs:

        def look(value: Any) -> Any:
            _raise_failure(runs)
            return value

        task.leave(look)
    return shaped_results(spec, _with_values(outputs, runs)) if returns else None


def _with_values(outputs: Mapping[str, Any], runs: Sequence[FinishedRun]) -> dict[str, Any]:
    """Return those device arrays that runs give a value: each, except last values of a nest without iterations."""
    valued: set[str] = set()
    for run in runs:
        blank: Any = run.blank
        nest = blank.form.nest
        valued.update(item.name for item in nest.reductions)
        valued.update(name for name in nest.last if blank.size or blank.is_given(name))
    return {name: array for name, array in outputs.items() if name in valued}


def _refuse_host_arrays(program: LoopProgram, values: Mapping[str, Any]) -> None:
    """Raise `UsageError` if there is a host array among the arguments of a call in a body on a device."""
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            raise UsageError(
                f"{program.name!r} in a target body: argument {name!r}, {label(value):.60}, is a host array; pass the "
                "device arrays that the body receives"
            )


# -- where a loop runs -------------------------------------------------------------------------------


def with_first_values(
    spec: Specialisation, values: Mapping[str, Any], task: DeviceTask | None = None
) -> Mapping[str, Any]:
    """Return the arguments of a call, with copies of `firstprivate` arrays that the loop may change.

    Each iteration copies the argument when it begins. If the argument shares memory with an array that the loop writes,
    it would find other values than at the call. In a device task copies are made on its stream.
    """
    first = [name for name, word in spec.own.items() if word == "firstprivate"]
    if not first:
        return values
    device = None if task is None else task.place.device
    views = {name: view_at(device, values[name]) for name in {*first, *spec.changed}}
    shared = [name for name in first if any(views[name].may_share(views[other]) for other in spec.changed)]
    return {**values, **{name: _copy_of(values[name], task) for name in shared}}


def _copy_of(array: Any, task: DeviceTask | None) -> Any:
    if task is None:
        return array.copy()
    device: Any = task.place.device
    stream: Any = task.lane.stream  # type: ignore[union-attr]  # the body has one
    copy = device.alloc(array.shape, array.dtype, stream)
    device.copy(copy, array, stream)  # between arrays of one device, which needs no thread
    task.leave(partial(after, copy))
    return copy


def run_on_host(spec: Specialisation, values: Mapping[str, Any], *, is_alone: bool = False) -> Any:
    """Run the nests, in one thread if that ``is_alone``, and return the function's result."""
    check_writeable(spec, values)
    values = with_first_values(spec, values)
    runs = run_in_parallel(spec, values, is_alone=is_alone)
    return outcome_of(spec, runs) if spec.typed.function.returns else None


def enqueue(
    spec: Specialisation,
    values: Mapping[str, Any],
    task: DeviceTask,
    args: tuple[Any, ...],
    outputs: Mapping[str, Any] = _NO_OUTPUTS,
    verdict: Remembered | None = None,
    starts: Callable[[], None] | None = None,
    *,
    settles: bool = True,
) -> Sequence[FinishedRun]:
    """Enqueue the nests on the lane of a device task, and return those of their runs that are to be looked at.

    ``args`` are the values that were passed by position. ``outputs`` are device arrays without dimensions for scalars
    that come out, which are written in the order of the stream. ``verdict`` is why a speculative loop is here, and
    ``settles`` whether other calls with such arguments may be like this one. ``starts`` is called when all is prepared.
    """
    device: Device = task.place.device
    kernels = kernels_of(device, spec.program)
    stream: Any = task.lane.stream  # type: ignore[union-attr]  # the body has one
    values = with_first_values(spec, values, task)
    if kernels.dialect == "cuda":
        return _enqueue_cuda(spec, values, task, args, kernels, outputs, verdict, starts, settles=settles)
    runtime: Any = task.construct.runtime
    runs = host_runs(spec, values, device, n_threads_of(spec.program), runtime.rng, task)
    loaded = []
    for run in runs:
        run.form.compile()
        loaded.append(kernels.load(run.form)[run.form.names[0]])
    if starts is not None:
        starts()
    for run, kernel in zip(runs, loaded, strict=True):
        kernel.launch(stream, (run.n_chunks,), (1,), 0, run)
    tell_launches(task, runs)
    if outputs:
        stream.launch(_write, runs, outputs)
    return runs


def _enqueue_cuda(
    spec: Specialisation,
    values: Mapping[str, Any],
    task: DeviceTask,
    args: tuple[Any, ...],
    kernels: Kernels,
    outputs: Mapping[str, Any],
    verdict: Remembered | None,
    starts: Callable[[], None] | None,
    *,
    settles: bool,
) -> Sequence[FinishedRun]:
    """Enqueue the nests on a CUDA stream; return those runs that are to be kept and looked at."""
    device: Device = task.place.device
    stream: Any = task.lane.stream  # type: ignore[union-attr]  # the body has one
    blanks, addresses, steady = prepared(spec, values, device, ON_CUDA, task)
    if len(blanks) == 1 and not blanks[0].has_own:  # the usual case, of which nothing is left
        if settles and not spec.tells_floats and steady is not None and len(args) == len(spec.program.parameters):
            if verdict is not None and verdict.contents:
                versions = {name: contents.version for name, contents in verdict.contents.items()}
                steady = steady._replace(versions={**steady.versions, **versions})
            keep_settled(spec, args, blanks[0], steady, addresses, verdict)
        if starts is not None:
            blanks[0].loaded(kernels)
            starts()
        blanks[0].launch(blanks[0].filled(addresses, values), kernels, stream)
        tell_launches(task, blanks)
        return ()
    runs = [CudaRun(blank, values, outputs) for blank in blanks]
    for run in runs:
        run.prepare(addresses, kernels, device, stream)
    if starts is not None:
        starts()
    for run in runs:  # from here on nothing raises but a lost device: what is in use is kept
        run.enqueue(kernels, device, stream)
    tell_launches(task, runs)
    return [run for run in runs if run.is_kept]


def forms_for(
    program: LoopProgram, values: Mapping[str, Any], device: Device | None, *, knows: bool = False
) -> Sequence[NestForm] | Sequence[CudaForm]:
    """Return the nests as they are compiled for a call with such arguments; host arrays stand for those of a device.

    On CUDA that is the first call with such index arrays, or one that ``knows`` their elements.
    """
    kernels = None if device is None else kernels_of(device, program)
    spec = program.specialise(values)
    numbers = numbers_of(spec, values, partial(described, device))
    is_c = kernels is None or kernels.dialect == "c"
    plans = ranged(spec, numbers, Looks(values)) if is_c or knows else plans_of(spec, numbers)
    if is_c:
        return [form_of(spec, number, plan) for number, plan in enumerate(plans)]
    return [shaped(spec, number, plan, numbers).form for number, plan in enumerate(plans)]


def compile_for(program: LoopProgram, values: Mapping[str, Any], device: Device | None) -> None:
    """Compile the results of `forms_for`, also for later calls if host arrays have the indices."""
    forms = [*forms_for(program, values, device)]
    if not any(is_device_array(value) for value in values.values()):
        forms += forms_for(program, values, device, knows=True)
    for form in dict.fromkeys(forms):
        if isinstance(form, NestForm):
            form.compile()
        elif device is not None:
            form.loaded(kernels_of(device, program))


def check_writeable(spec: Specialisation, values: Mapping[str, Any]) -> None:
    """Raise `ClauseError` where the loop writes to a host array that cannot be written."""
    for name in spec.changed:
        value = values[name]
        if isinstance(value, np.ndarray) and not value.flags.writeable:
            raise ClauseError(
                f"{spec.program.directive} {spec.program.name!r}: the loop writes to {name!r}, which is read-only; "
                "make the array writeable, or pass a copy"
            )


# -- what comes of it --------------------------------------------------------------------------------


def _raise_failure(runs: Sequence[FinishedRun]) -> None:
    failures = [run.failure() for run in runs]  # of all, so that those of a graph start anew
    for failure in failures:
        if failure is not None:
            raise failure


def outcome_of(spec: Specialisation, runs: Sequence[FinishedRun], others: Mapping[str, Any] = _NO_NAMES) -> Any:
    """Return the function's result after its runs, or raise their error; ``others`` has scalars of other nests."""
    _raise_failure(runs)
    return outcome(spec, {**others, **results_of(runs)})


def outcome(spec: Specialisation, found: Mapping[str, Any]) -> Any:
    """Return the function's result, from the scalars that have come out."""
    kinds = spec.typed.scalars
    return shaped_results(
        spec,
        {
            name: found[name].item() if kinds[name].is_weak else found[name]
            for name in spec.typed.function.returns
            if name in found
        },
    )


def shaped_results(spec: Specialisation, returned: Mapping[str, Any]) -> Any:
    """Return values as the function's ``return`` has them, or by name if the construct asks for that."""
    function = spec.typed.function
    if spec.program.words.by_name:
        return returned
    for name in function.returns:
        if name not in returned:
            raise UnboundLocalError(f"{spec.program.name}: {name!r} has no value, because the loop has no iteration")
    values = tuple(returned[name] for name in function.returns)
    if function.returns_tuple:
        return values
    return values[0] if values else None


def _write(runs: Sequence[NestRun], outputs: Mapping[str, Any]) -> None:
    """Write results to device arrays, in the order of the stream; an array without a result keeps its contents."""
    found = results_of(runs)
    for name, array in outputs.items():
        if name in found:
            on_host(array)[...] = found[name]


# -- sanitized runtimes ------------------------------------------------------------------------------


def noted_on_device(plain: Any) -> Any:
    """Return a launcher's method that enqueues a loop and tells the sanitizer of its accesses."""

    def on_device(
        self: Any, spec: Specialisation, values: Mapping[str, Any], task: DeviceTask, args: tuple[Any, ...]
    ) -> None:
        from offload.loops.sanitized import note_on_device  # few programs are sanitized

        note_on_device(spec, values, task)
        plain(self, spec, values, task, args)

    return on_device


def noted_on_host(plain: Any) -> Any:
    """Return a launcher's method that runs a loop on the host and tells the sanitizer of its accesses."""

    def on_host(self: Any, spec: Specialisation, values: Mapping[str, Any]) -> Any:
        from offload.loops.sanitized import note_on_host  # the same

        note_on_host(spec, values, here())
        return plain(self, spec, values)

    return on_host


def _noted_in_body(plain: Any) -> Any:
    def launch(program: LoopProgram, args: tuple[Any, ...], kwargs: Mapping[str, Any], task: Any) -> Any:
        if not program.is_speculative:  # which is refused
            from offload.loops.sanitized import note_on_device, note_on_host  # the same

            values = program.bound(args, kwargs)
            spec = program.specialise(values)
            if task.place is None:
                note_on_host(spec, values, here())
            else:
                note_on_device(spec, values, task)
        return plain(program, args, kwargs, task)

    return launch


hooked.register(Launcher, "_on_device", noted_on_device, "sanitize")
hooked.register(Launcher, "_on_host", noted_on_host, "sanitize")
hooked.register(sys.modules[__name__], "launch_in_body", _noted_in_body, "sanitize")
