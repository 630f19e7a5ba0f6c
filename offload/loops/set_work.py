"""The work of a loop's target task on the devices of a set: map, run and unmap on each of them.

`offload.data.sets` maps for all constructs with ``devices=``. The body is given `Replicated`
arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.constructs.target_work import TargetWork, put
from offload.data.memo import Layouts
from offload.data.sets import DeviceSet
from offload.errors import MapError
from offload.loops.replicas import Replicated, SetLauncher
from offload.loops.sets.device_runs import on_devices
from offload.runtime.works import present_items

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.constructs.clauses.binding import Binding
    from offload.data.boxes import State
    from offload.data.entries import Counter
    from offload.devices.streams import Lane
    from offload.loops.running.clauses import SetWords
    from offload.runtime.place import DevicePlace


def set_work(words: SetWords, binding: Binding, places: tuple[DevicePlace, ...], counter: Counter) -> TargetWork:
    """Return the work of a call on these places.

    A call that has device arrays, arrays of its own, or objects that mappers take apart, is one device's.
    """
    if binding.takes_device_arrays or binding.privates or binding.copies:
        return TargetWork(binding, counter)
    work = SetWork(binding, counter)
    work.words, work.places, work.has_end = words, places, True
    return work


class SetWork(TargetWork):
    """A loop on several devices: map everywhere, run, unmap.

    If an earlier call with the same arrays has found that the first device alone is best, and no replica has changed
    since, a call takes the way of a call on one device: the same entry, the same views, the same body.
    """

    __slots__ = ("places", "words")

    words: SetWords
    places: tuple[DevicePlace, ...]  # the primary's first

    def begin(self, launch: Any, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        settled = self.binding.settled
        if settled is not None:
            places, words, chooser, states = settled
            if (chooser.chosen or chooser.resting) == "single" and places == self.places and words == self.words:
                launch.device_nums = (place.device.number,)
                chooser.latest, chooser.sent_nbytes = "single", 0
                if self._begin_alone(launch, place, lane, states):
                    return
                launch.device_nums = ()
        elif self._is_best_alone(launch, place):
            launch.device_nums = (place.device.number,)
            super().begin(launch, place, lane, staged)
            return
        try:
            self._begin(launch, lane, staged)
        except MapError:
            if self.words.devices is not None:
                raise
            super().begin(launch, place, lane, staged)  # nobody has named the devices: as without them
        else:
            launch.body = SetLauncher(launch.body, self.words, self.places)

    def _is_best_alone(self, launch: Any, place: DevicePlace) -> bool:
        """Tell whether no array is present, and sending all arrays to each device would cost more than it gains.

        The times of ways are known from earlier calls, which were made on all devices.
        """
        body = launch.body
        spec, words = body.specialisation, self.words
        if spec is None or words.filter == "always" or words.is_eager or body.program.words.checks:
            return False
        for each in self.places:
            with each.lock:
                if any(each.table.search(item.section, item) != (None, None) for item in self.items):
                    return False
        values = body.program.bound(launch.args, launch.kwargs or {})
        divided = on_devices(spec, values, place.device, len(self.places))
        chooser = divided.chooser(words.filter, tuple([each.device.space for each in self.places]))
        sent_nbytes = (len(self.places) - 1) * sum([item.section.nbytes for item in self.items])
        return chooser.is_best_alone(sent_nbytes)

    def _begin_alone(self, launch: Any, place: DevicePlace, lane: Lane, states: Sequence[State]) -> bool:
        """Begin as a loop on the first device does, if tables are in these states, and so stay in them."""
        binding = self.binding
        before, views = self._entry(launch.args)
        plan = place.enter(
            binding.items, lane, [], self.counter, before=before, states=states, changed=binding.may_change
        )
        if plan is None:
            return False
        if plan is before:
            launch.plan, launch.args = before, views
            return True
        args, kwargs = list(launch.args), dict(launch.kwargs or {})
        for slot, host, address, number in binding.arrays:
            put(args, kwargs, slot, self._view(plan, place, lane, number, host, address))
        self._note(plan, args)
        launch.plan, launch.args, launch.kwargs = plan, args, kwargs
        return True

    def _begin(self, launch: Any, lane: Lane, staged: list[Any]) -> None:
        binding, on = self.binding, DeviceSet(self.places, launch.construct.runtime.gate)
        plan = launch.plan = on.enter(binding.items, lane, staged, self.counter, adopts=True)
        launch.spread(self.places[1:])
        args, kwargs = list(launch.args), dict(launch.kwargs or {})
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
        launch.point = place.settle(lane)

    def end(self, launch: Any, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        plan, binding = launch.plan, self.binding
        if plan is None or plan.on is None:  # a loop of numbers has no plan
            super().end(launch, place, lane, staged)
            return
        items = present_items(plan)
        held, launch.point = plan.on.exit(items, lane, staged, self.counter, region=plan, ends_region=True)
        if not held:  # nothing goes
            launch.body.settle(binding, plan)
            if self.key is not None and self.layouts is None:
                self.layouts = Layouts(self.items)
                with place.lock:
                    _ = place.table.remember(self)
        else:
            launch.held = held
            launch.spread(self.places[1:])

    def abort(self, launch: Any, place: DevicePlace, lane: Lane) -> None:
        if launch.plan is not None:
            launch.held = (launch.plan.on or place).undo(launch.plan, lane)
