"""What a loop's target task does on the devices of a set: maps, runs, unmaps, on each of them.

`offload.runtime.together` and `leaving` map for all constructs with ``devices=``. The body is given `Replicated`
arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.constructs.target_work import TargetWork, put
from offload.loops.replicas import Replicated, SetLauncher
from offload.runtime.leaving import leave_sets
from offload.runtime.together import enter, leave, settle, undo
from offload.runtime.works import present_items

if TYPE_CHECKING:
    from offload.constructs.clauses.binding import Binding
    from offload.data.entries import Counter
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
    if binding.takes_device_arrays or binding.privates or binding.copies or not binding.arrays:
        return TargetWork(body, binding.args, binding.kwargs, binding, counter)
    launcher = SetLauncher(program, words, places)
    launcher.specialisation = body.specialisation
    return SetWork(launcher, binding, places, counter)


class SetWork(TargetWork):
    """A loop on several devices: map everywhere, run, unmap."""

    __slots__ = ("places",)

    def __init__(self, body: SetLauncher, binding: Binding, places: tuple[DevicePlace, ...], counter: Counter) -> None:
        super().__init__(body, binding.args, binding.kwargs, binding, counter)
        self.places = places

    def begin(self, launch: Any, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        binding, gate = self._binding, launch.construct.runtime.gate
        plan = enter(launch, gate, self.places, binding.items, lane, staged, self._counter, adopts=True)
        launch.plan = plan
        args, kwargs = list(self.args), dict(self.kwargs)
        for slot, host, address, number in binding.arrays:
            arrays = tuple(
                self._view(of_place, at, lane, number, host, address)
                for of_place, at in zip(plan.plans, self.places, strict=True)
            )
            put(args, kwargs, slot, Replicated(plan.sets[number], host, address, arrays))
        launch.args, launch.kwargs = args, kwargs

    def check(self, launch: Any, value: Any) -> None:
        """Do nothing: a loop returns no storage."""

    def settle(self, launch: Any, place: DevicePlace, lane: Lane) -> None:
        launch.point = settle(launch, self.places, lane)

    def end(self, launch: Any, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        plan, gate = launch.plan, launch.construct.runtime.gate
        launch.point = leave(plan, lane)
        if launch.point is None:
            launch.held, launch.point = leave_sets(
                launch, gate, self.places, present_items(plan), lane, staged, self._counter, ends_region=True
            )

    def abort(self, launch: Any, place: DevicePlace, lane: Lane) -> None:
        if launch.plan is not None:
            launch.held = undo(launch.plan, lane)
