"""What a loop's target task does on the devices of a set: maps, runs, unmaps, on each of them.

`offload.runtime.together` and `leaving` map for all constructs with ``devices=``. The body is given `Replicated`
arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.constructs.target_work import Known, TargetWork, put
from offload.errors import MapError
from offload.loops.replicas import Replicated, SetLauncher
from offload.runtime.leaving import leave_sets
from offload.runtime.together import Together, enter, leave, settle, undo
from offload.runtime.works import present_items

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.constructs.clauses.binding import Binding
    from offload.data.entries import Counter
    from offload.data.plans import CountedEnter
    from offload.devices.streams import Lane
    from offload.loops.clauses import SetWords
    from offload.loops.launch import Launcher
    from offload.loops.specialise import LoopProgram
    from offload.runtime.place import DevicePlace


def set_work(
    program: LoopProgram,
    words: SetWords,
    body: Launcher,
    binding: Binding,
    places: tuple[DevicePlace, ...],
    counter: Counter,
) -> TargetWork:
    """Return the work of a call on these places.

    A call that has device arrays, arrays of its own, or objects that mappers take apart, is one device's.
    """
    if binding.takes_device_arrays or binding.privates or binding.copies:
        return TargetWork(body, binding.args, binding.kwargs, binding, counter)
    launcher = set_body(program, words, places)
    launcher.specialisation = body.specialisation
    return SetWork(launcher, binding.args, binding.kwargs, binding, counter)


def set_body(program: LoopProgram, words: SetWords, places: tuple[DevicePlace, ...]) -> SetLauncher:
    """Return the body of a call on these places."""
    return SetLauncher(program, words, places)


def work_on(body: SetLauncher, args: tuple[Any, ...], binding: Binding, counter: Counter) -> SetWork:
    """Return the work of a call by position, of host arrays and scalars."""
    return SetWork(body, args, {}, binding, counter)


class SetWork(TargetWork):
    """A loop on several devices: map everywhere, run, unmap."""

    __slots__ = ("places",)

    def __init__(
        self, body: SetLauncher, args: Any, kwargs: Mapping[str, Any], binding: Binding, counter: Counter
    ) -> None:
        super().__init__(body, args, kwargs, binding, counter)
        self.places = body.places

    def begin(self, launch: Any, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        body: Any = self.body
        states = body.settled(self._binding)
        if states is not None:
            alone = place.enter_as_before(self._binding.items, states, lane, self._counter)
            if alone is not None:
                self._begin_alone(launch, place, lane, alone)
                return
        try:
            self._begin(launch, lane, staged)
        except MapError:
            if not body.is_default:
                raise
            super().begin(launch, place, lane, staged)  # nobody has named the devices: as without them

    def _begin_alone(self, launch: Any, place: DevicePlace, lane: Lane, plan: CountedEnter) -> None:
        """Begin as a loop on the first device does: who has what is as it was, and stays so."""
        binding = self._binding
        changed = binding.may_change() if binding.changed is None else binding.changed
        place.change([plan.entries[number] for number in changed], lane)
        args, kwargs = list(self.args), dict(self.kwargs)
        for slot, host, address, number in binding.arrays:
            put(args, kwargs, slot, self._view(plan, place, lane, number, host, address))
        launch.plan, launch.args, launch.kwargs = plan, args, kwargs
        launch.device_nums = (place.device.number,)

    def _begin(self, launch: Any, lane: Lane, staged: list[Any]) -> None:
        binding, gate = self._binding, launch.construct.runtime.gate
        plan = enter(launch, gate, self.places, binding.items, lane, staged, self._counter, adopts=True)
        launch.plan = plan
        args, kwargs = list(self.args), dict(self.kwargs)
        for slot, host, address, number in binding.arrays:
            if plan.entries[number] is None and host.size:  # absent, and need not be present: the launch refuses it
                put(args, kwargs, slot, host)
                continue
            arrays = tuple(
                self._view(of_place, at, lane, number, host, address)
                for of_place, at in zip(plan.plans, self.places, strict=True)
            )
            put(args, kwargs, slot, Replicated(plan.sets[number], host, address, arrays))
        launch.args, launch.kwargs = args, kwargs

    def check(self, launch: Any, value: Any) -> None:
        """Do nothing: a loop returns no storage."""

    def settle(self, launch: Any, place: DevicePlace, lane: Lane) -> None:
        if launch.fork is None:
            super().settle(launch, place, lane)
        else:
            launch.point = settle(launch, self.places, lane)

    def end(self, launch: Any, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        if not isinstance(launch.plan, Together):
            super().end(launch, place, lane, staged)
            return
        plan, gate = launch.plan, launch.construct.runtime.gate
        binding, body = self._binding, self.body
        launch.point = leave(plan, lane)
        if launch.point is not None:
            body.settle(binding, plan)  # type: ignore[union-attr]  # it is a SetLauncher
            if binding.key is not None:
                key, binding.key = binding.key, None
                with place.lock:
                    _ = place.table.remember(key, Known(binding))
        else:
            launch.held, launch.point = leave_sets(
                launch, gate, self.places, present_items(plan), lane, staged, self._counter, ends_region=True
            )

    def abort(self, launch: Any, place: DevicePlace, lane: Lane) -> None:
        if not isinstance(launch.plan, Together):
            super().abort(launch, place, lane)
        else:
            launch.held = undo(launch.plan, lane)
