"""A loop on the devices of a set: one device task on the first device, the primary.

The arrays of a call are on every device, as entries of replica sets (`offload.data.replicas`). `sets.divisions` knows
the reads and writes of each nest before anything is enqueued. The primary's lane *forks* to a lane of each other
device. For each nest, missing data is copied on the lanes of the devices that miss it; then kernels run; then the
primary's lane *joins* the others. So a task that follows this one follows all of it, and the host waits for nothing.

The table of replicas changes under the locks that are held while the copies are enqueued. A failed launch stays in the
ledgers. Errors of kernels are the task's, and name the device.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from offload.arrays.items import SCALARS
from offload.data.boxes import Needs
from offload.data.exchanges import before, make_current, receive
from offload.data.forks import Fork
from offload.data.replicas import locked
from offload.devices.streams import using
from offload.errors import ClauseError
from offload.loops.launch import Launcher, outcome
from offload.loops.running.arguments import results_of
from offload.loops.running.configurations import configuration_of, tell_launch
from offload.loops.running.looks import Looks
from offload.loops.running.preparation import observe_each, where_on
from offload.loops.sets.device_runs import joint_run, on_devices
from offload.loops.sets.divisions import MODES, Lie
from offload.runtime.current import here
from offload.tasks import hooked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from offload.constructs.clauses.binding import Binding
    from offload.data.boxes import State
    from offload.data.replicas import ReplicaSet
    from offload.devices.streams import Lane
    from offload.loops.proofs.bounds import ArrayPart
    from offload.loops.running.clauses import SetWords
    from offload.loops.running.specialise import Specialisation
    from offload.loops.sets.device_runs import JointRun
    from offload.loops.sets.divisions import Asked, Divided, DividedNest, Taken
    from offload.loops.sets.filter import FilterMode
    from offload.loops.sets.modes import Chooser
    from offload.runtime.launch import DeviceTask
    from offload.runtime.place import DevicePlace


class Replicated(NamedTuple):
    """An array argument on the devices of a set."""

    replicas: ReplicaSet | None  # None of an array without elements
    host: Any  # what the call passed
    address: int  # of its element `[0, …, 0]`
    arrays: tuple[Any, ...]  # in the order of the devices


class SetLauncher(Launcher):
    """The body of a loop function's task on several devices; ``one`` is the body that it would have on one device."""

    __slots__ = ("_places", "_settled", "_taken_by", "_words")

    def __init__(self, one: Launcher, words: SetWords, places: tuple[DevicePlace, ...]) -> None:
        super().__init__(one.program)
        self.specialisation = one.specialisation
        self.is_mapped = True  # what is written is noted where it is said who has it
        self._words = words  # the clauses about devices
        self._places = places  # the primary's first
        # what `settle` keeps; None if the call was not the first device's alone
        self._settled: tuple[Any, ...] | None = None
        self._taken_by = one.take  # when all devices have left what looks at the outcome

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Enqueue the loop on all devices, of arguments whose arrays are `Replicated`."""
        values = self.program.bound(args, kwargs)
        arrays = {name: value for name, value in values.items() if isinstance(value, Replicated)}
        if not arrays and any(value.__class__ not in SCALARS for value in values.values()):  # without replicas: as any
            self.take = self._taken_by
            return super().__call__(*args, **kwargs)
        task: Any = here().task
        first = {**values, **{name: array.arrays[0] for name, array in arrays.items()}}
        spec = self.specialisation or self.program.specialise(first)
        call = _JointCall(spec, first, arrays, self._places, task, self._words)
        before = call.states
        one = tuple([value.arrays[0] if isinstance(value, Replicated) else value for value in args])
        others = {name: first[name] for name in kwargs}

        def alone(starts: Callable[[], None] | None) -> None:
            self.starts = starts
            super(SetLauncher, self).__call__(*one, **others)

        chooser = call.run(alone)
        is_settled = chooser.resting == "single" and call.may_settle and before == call.states
        self._settled = (self._places, self._words, chooser) if is_settled else None
        if self._taken_by is not None:
            task.leave(self._taken_by)
        return None

    def settle(self, binding: Binding, plan: Any) -> None:
        """Remember that calls with these arrays and numbers are the first device's alone, if this one was.

        They are as long as nothing is to be tried, and the items' tables are in the states in which they are now.
        """
        if self._settled is not None:
            binding.settled = *self._settled, tuple([replicas.table.state for replicas in plan.sets])


class _JointCall:
    """One call on the devices of a set."""

    def __init__(
        self,
        spec: Specialisation,
        values: Mapping[str, Any],
        arrays: Mapping[str, Replicated],
        places: Sequence[DevicePlace],
        task: DeviceTask,
        words: SetWords,
    ) -> None:
        self.spec, self.values, self.task, self.words = spec, values, task, words
        self.places = tuple(places)  # the primary's first
        self.lane: Lane = task.lane  # type: ignore[assignment]  # the body has one
        self.arrays: Sequence[Mapping[str, Any]] = [
            {name: arrays[name].arrays[number] for name in spec.given if name in arrays}
            for number in range(len(places))
        ]
        self.sets: list[ReplicaSet] = []  # those in which arguments lie
        self.lies: dict[str, Lie] = {}  # where arguments lie in them
        for name, array in arrays.items():
            if array.replicas is not None:
                if array.replicas not in self.sets:
                    self.sets.append(array.replicas)
                group = self.sets.index(array.replicas)
                self.lies[name] = Lie(
                    group, array.replicas.layout, array.address, array.host, self.order_in(array.replicas)
                )
        self.key = tuple([(name, lie.key) for name, lie in self.lies.items()])  # stands for all of `lies`

    @property
    def device(self) -> Any:
        return self.places[0].device

    @property
    def states(self) -> list[State]:
        """The states of the tables now."""
        return [replicas.table.state for replicas in self.sets]

    @property
    def may_settle(self) -> bool:
        """Whether a call may be an ordinary one of the first device, if that is best."""
        plan: Any = self.task.plan
        is_plain = not (self.words.is_eager or self.spec.program.words.checks)
        return is_plain and plan.only_counts and None not in plan.sets

    def run(self, alone: Callable[[Callable[[], None] | None], None]) -> Chooser:
        """Enqueue all of it; return who has chosen the way.

        If one device does all, ``alone`` enqueues the loop on it as if there were no other, and calls its argument when
        all is prepared.
        """
        began_s = time.perf_counter()
        spec, task, device = self.spec, self.task, self.device
        where: Any = where_on(device, spec.program)
        divided = on_devices(spec, self.values, device, len(self.places))
        looks = _SetLooks(where.looks(spec, self.values, task), self)
        nests = divided.nests(looks)
        chooser = divided.chooser(self.words.filter, tuple([place.device.space for place in self.places]))
        with spec.lock:
            mode, is_timed = chooser.next()
        taken = [self._taken(nest, mode) for nest in nests]
        if spec.program.words.checks:
            self._observe(divided, looks, where)
        if self.words.filter == "always":
            self._refuse(nests)
        ways = [one.way for one, _ in taken]
        is_alone = not (self.words.is_eager or spec.program.words.checks) and all(
            way.devices in ((0,), ()) for way in ways
        )
        runs = [] if is_alone else [joint_run(self, one, where) for one, _ in taken]
        chooser.latest = min((way.mode for way in ways), key=MODES.index, default="single")
        numbers = sorted({0}.union(*[way.devices for way in ways]))
        task.device_nums = tuple([self.places[number].device.number for number in numbers])
        before_nbytes = self._sent_nbytes()
        asked = [asks for _, asks in taken]
        if is_alone:
            times = self._enqueue_alone(alone, asked, is_timed=is_timed)
        else:
            times = self._enqueue(runs, asked, is_timed=is_timed)
        chooser.sent_nbytes = sent_nbytes = self._sent_nbytes() - before_nbytes
        returns = spec.typed.function.returns
        if times is not None:
            host_s = time.perf_counter() - began_s
            task.watch()  # what comes of it is for the next calls
            task.leave(lambda value: self._note_time(chooser, mode, host_s, times, sent_nbytes, value))
        if not is_alone:  # which has left what looks at its own
            task.leave(lambda value: self._outcome(runs) if returns else self._look(runs, value))
        return chooser

    def order_in(self, replicas: ReplicaSet) -> tuple[int, ...]:
        """Return the number in a set of each device."""
        if replicas.places == self.places:
            return tuple(range(len(self.places)))
        return tuple([replicas.number_of(place) for place in self.places])

    def _by_number(self, replicas: ReplicaSet, lanes: Sequence[Lane]) -> dict[int, Lane]:
        """Return lanes by the numbers that their devices have in a set."""
        return dict(zip(self.order_in(replicas), lanes, strict=False))

    def _sent_nbytes(self) -> int:
        return sum([replicas.sent_nbytes for replicas in self.sets])

    def _taken(self, nest: DividedNest[Any], mode: Any) -> tuple[Taken[Any], tuple[Asked, ...]]:
        """Return the way of a mode, or the next one for which boxes tell all writers."""
        for one in (mode, "duplicate", "single"):
            taken = nest.taken(one)
            asked = taken.asked(self.lies, self.key)
            if asked is not None:
                return taken, asked
        raise AssertionError("one device writes all elements")

    def _refuse(self, nests: Sequence[DividedNest[Any]]) -> None:
        """Raise `ClauseError` where a loop has to be split that cannot be."""
        for nest in nests:
            if "split" not in nest.ways.by_mode and nest.ways.filtering.cutter.count and nest.ways.is_written:
                program, place = self.spec.program, nest.ways.filtering.accesses.nest.place
                raise ClauseError(
                    f'{program.directive} {program.name!r}, filter="always": the loop in line {place.line} cannot be '
                    f'split: {nest.ways.why}; leave filter out, or write filter="never"'
                )

    # -- enqueueing ----------------------------------------------------------------------------------

    def _enqueue_alone(
        self, alone: Callable[[Callable[[], None] | None], None], asked: Iterable[tuple[Asked, ...]], *, is_timed: bool
    ) -> Sequence[tuple[Any, Any]] | None:
        """Enqueue the work of one device; otherwise as `_enqueue`.

        The host's work before the kernels does not count as time of the device, which may be idle meanwhile. In a first
        call with such index arrays, that work includes compiling.
        """
        kernels, stream = self.device.kernels, self.lane.stream
        begin = kernels.time(stream) if is_timed else None
        sent_nbytes = self._sent_nbytes()
        for asks in asked:
            self._exchange(asks, [self.lane])
        if not is_timed:
            alone(None)
            return None
        spans = [] if self._sent_nbytes() == sent_nbytes else [(begin, kernels.time(stream))]
        began = [kernels.time(stream)]
        alone(lambda: began.append(kernels.time(stream)))
        return [*spans, (began[-1], kernels.time(stream))]

    def _enqueue(
        self, runs: Sequence[JointRun], asked: Sequence[tuple[Asked, ...]], *, is_timed: bool
    ) -> Sequence[tuple[Any, Any]] | None:
        """Enqueue nests and the copies that they need; return the beginnings and ends of parts, if it is timed."""
        places, kernels = self.places, self.device.kernels
        stream = self.lane.stream
        begin = kernels.time(stream) if is_timed else None
        for run in runs:  # the others copy into what the first one allocates, behind the fork
            run.prepare(0, self.device, stream)
        fork = Fork(self.task.construct.runtime.gate, self.lane, places)
        lanes = fork.lanes
        try:
            for number, lane in enumerate(lanes[1:], 1):
                with using(places[number].device, lane.stream):
                    for run in runs:
                        run.prepare(number, places[number].device, lane.stream)
            for number, (run, asks) in enumerate(zip(runs, asked, strict=True)):
                if number:
                    fork.align()
                self._exchange(asks, lanes)
                self._launch(run, lanes)
                if run.joins:
                    fork.meet()
                    run.finish(self.device, stream)
            if self.words.is_eager:
                fork.align()
                self._complete(lanes)
            fork.join()
        except BaseException:
            fork.give_back()
            raise
        return [(begin, kernels.time(stream))] if is_timed else None

    def _launch(self, run: JointRun, lanes: Sequence[Lane]) -> None:
        """Enqueue a nest on all devices that have a part in it."""
        run.enqueue(0, self.device, self.lane.stream)
        for number in run.way.devices:
            if number:
                device, stream = self.places[number].device, lanes[number].stream
                with using(device, stream):
                    run.enqueue(number, device, stream)
            if (part := run.run_on(number)) is not None:
                tell_launch(self.task, self.places[number], part.blank.form.nest, configuration_of(part))

    def _exchange(self, asked: Iterable[Asked], lanes: Sequence[Lane]) -> None:
        """Make devices current where they need to be, and mark the elements that they are about to write.

        Until the task is over nothing is known of the contents of that: the marks of the fork are behind.
        """
        with locked(self.places):
            for one in asked:
                replicas = self.sets[one.group]
                by_number = self._by_number(replicas, lanes)
                for number, lane in by_number.items():
                    entry = replicas.entries[number]
                    if entry.writes:
                        lane.wait_for(before(replicas.places[number], ((entry, entry.section),)))
                if one.needs is not None:
                    self._make_current(replicas, one.needs, by_number)
                if one.writes is not None:
                    replicas.table.wrote(one.writes)
                    for entry in replicas.entries:
                        entry.change(self.lane)

    def _make_current(self, replicas: ReplicaSet, needs: Needs, lanes: Mapping[int, Lane]) -> None:
        if len(lanes) == len(self.places):
            make_current(replicas, needs, lanes)
            return
        for number, lane in lanes.items():  # one device is to be current, whatever the table would have others fetch
            for box in needs.boxes[number]:
                receive(replicas, number, box, lane)

    def _complete(self, lanes: Sequence[Lane]) -> None:
        """Make all devices current everywhere."""
        with locked(self.places):
            for replicas in self.sets:
                whole = ((replicas.table.space,),) * len(lanes)
                make_current(replicas, Needs(whole), self._by_number(replicas, lanes))

    # -- looks ---------------------------------------------------------------------------------------

    def is_current(self, name: str) -> bool:
        """Tell whether the primary has all of an array's set."""
        lie = self.lies.get(name)
        if lie is None:
            return True
        table = self.sets[lie.group].table
        return table.is_current(lie.order[0], table.space)

    def _observe(self, divided: Divided[Any], looks: Looks, where: Any) -> None:
        """Run nests whose iterations are to be observed, on copies of the primary's arrays, made current before."""
        plans = divided.plans(looks)
        if not any(plan.observed for plan in plans):
            return
        with locked(self.places):
            for replicas in self.sets:
                receive(replicas, self.order_in(replicas)[0], replicas.table.space, self.lane)
        self.lane.stream.synchronize()
        arrays = {name: self.values[name] for name in self.spec.given}
        observe_each(self.spec, plans, divided.numbers, arrays, self.task, where.on_host)

    # -- what comes of it ----------------------------------------------------------------------------

    def _outcome(self, runs: Sequence[JointRun]) -> Any:
        self._raise_failure(runs)
        return outcome(self.spec, results_of(runs))

    def _note_time(
        self,
        chooser: Chooser,
        mode: FilterMode,
        host_s: float,
        times: Sequence[tuple[Any, Any]],
        sent_nbytes: int,
        value: Any,
    ) -> Any:
        devices_s = sum([self.device.kernels.seconds(*span) for span in times])
        with self.spec.lock:
            chooser.note(mode, devices_s, host_s, sent_nbytes)
        return value

    def _look(self, runs: Sequence[JointRun], value: Any) -> Any:
        self._raise_failure(runs)
        return value

    def _raise_failure(self, runs: Sequence[JointRun]) -> None:
        failures = [run.failure() for run in runs]
        for failure in failures:
            if failure is not None:
                number, error = failure
                error.add_note(f"found on device {self.places[number].device.number}")
                raise error


class _SetLooks(Looks):
    """Looks at arrays of which the primary has all: in other arrays, another device may have changed elements since."""

    def __init__(self, looks: Looks, call: _JointCall) -> None:
        self._looks = looks
        self._call = call

    def __call__(self, parts: Sequence[ArrayPart], most: int | None) -> Any:
        return self._looks([part for part in parts if self._call.is_current(part.array)], most)


def _noted_exchange(plain: Any) -> Any:
    """Return `_JointCall._exchange` for sanitized runtimes: a nest follows it."""

    def exchange(self: _JointCall, asked: Iterable[Asked], lanes: Sequence[Lane]) -> None:
        from offload.loops.sanitized import note_on_devices  # few programs are sanitized

        plain(self, asked, lanes)
        of_devices = {place.device: lane for place, lane in zip(self.places, lanes, strict=False)}
        note_on_devices(self.task, asked, self.sets, of_devices)

    return exchange


hooked.register(_JointCall, "_exchange", _noted_exchange, "sanitize")
