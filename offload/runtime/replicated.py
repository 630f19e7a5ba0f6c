"""Works of constructs on several devices: what a data construct does where it has ``devices=``.

Each is made of the work that the same construct has on one device (`spread`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.runtime.leaving import leave_sets, update_sets
from offload.runtime.together import enter, settle, undo
from offload.runtime.works import EnterDataWork, EnterRegionWork, ExitDataWork, Work, present_items

if TYPE_CHECKING:
    from offload.devices.streams import Lane
    from offload.runtime.forks import Marks
    from offload.runtime.place import DevicePlace
    from offload.runtime.works import Launch, UpdateWork


class SpreadWork(Work):
    """A work on several places, which the construct does not name itself where that ``is_default``."""

    __slots__ = ("_gate", "_is_default", "places")

    def __init__(self, places: tuple[DevicePlace, ...], gate: Marks, *, is_default: bool) -> None:
        self.places: tuple[DevicePlace, ...] = places
        self._gate = gate
        self._is_default = is_default

    def settle(self, launch: Launch, place: DevicePlace, lane: Lane) -> None:
        launch.point = settle(launch, self.places, lane)


class EnterSetsWork(SpreadWork):
    """Map items on several places."""

    __slots__ = ("_one",)

    def __init__(self, one: EnterDataWork, places: tuple[DevicePlace, ...], gate: Marks, *, is_default: bool) -> None:
        super().__init__(places, gate, is_default=is_default)
        self._one = one

    def begin(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        one = self._one
        together = launch.plan = enter(
            launch, self._gate, self.places, one.items, lane, staged, one.counter, is_default=self._is_default
        )
        launch.point = together.point
        for plan in together.plans:
            one.note_call(launch, plan)
        if isinstance(one, EnterRegionWork):
            launch.entered = present_items(together)

    def abort(self, launch: Launch, place: DevicePlace, lane: Lane) -> None:
        if launch.plan is not None:
            launch.held = undo(launch.plan, lane)


class ExitSetsWork(SpreadWork):
    """Unmap items on several places."""

    __slots__ = ("_one", "ends_region")

    def __init__(self, one: ExitDataWork, places: tuple[DevicePlace, ...], gate: Marks, *, is_default: bool) -> None:
        super().__init__(places, gate, is_default=is_default)
        self._one = one
        self.ends_region = one.ends_region

    def begin(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        one = self._one
        launch.held, launch.point = leave_sets(
            launch,
            self._gate,
            self.places,
            one.items_of(launch),
            lane,
            staged,
            one.counter,
            ends_region=one.ends_region,
            finalizes=one.finalizes,
            may_be_put_off=True,
            is_default=self._is_default,
        )
        launch.received = None


class UpdateSetsWork(SpreadWork):
    """Copy items to all devices, or to the host."""

    __slots__ = ("_one",)

    def __init__(self, one: UpdateWork, places: tuple[DevicePlace, ...], gate: Marks, *, is_default: bool) -> None:
        super().__init__(places, gate, is_default=is_default)
        self._one = one

    def begin(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        launch.held, launch.point = update_sets(
            launch, self._gate, self.places, self._one.items, lane, staged, is_default=self._is_default
        )


def spread(
    work: EnterDataWork | ExitDataWork | UpdateWork,
    places: tuple[DevicePlace, ...],
    gate: Marks,
    *,
    is_default: bool,
) -> Work:
    """Return the work of a construct on several places."""
    if isinstance(work, EnterDataWork):
        return EnterSetsWork(work, places, gate, is_default=is_default)
    if isinstance(work, ExitDataWork):
        return ExitSetsWork(work, places, gate, is_default=is_default)
    return UpdateSetsWork(work, places, gate, is_default=is_default)
