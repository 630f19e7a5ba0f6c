"""Works: the steps of a device task on its lane.

`Work` is the contract, with which `offload.runtime.launch` launches; here are those of data constructs and copies.
Target regions have theirs in `offload.constructs.target_work`, captured graphs in `offload.graphs.work`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.data.entries import Counter
from offload.devices.retired import refuse_retired

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from offload.data.items import MapItem
    from offload.data.plans import Entered
    from offload.devices.streams import Lane, Point
    from offload.runtime.place import DevicePlace


class Work:
    """The steps of one device task on its lane: the contract between a construct and a launch.

    A launch calls `begin`, then `run` if that is not None, then `end`, or `abort` where the body failed. Where `begin`
    or `end` has added to ``staged``, which are copies of pageable memory that only threads can make, the launch goes on
    when those are carried out, after `settle`. A work is begun once; `again` gives one for another launch. A work that
    is begun may be dropped, for a launch that has raised `PutOffError`: then `begin` has changed nothing.

    This class does nothing in each of these steps, and so does a kind of work that has no use for one.

    Attributes
    ----------
    run : callable or None
        The body, without arguments.
    takes_device_arrays : bool
        Whether the task follows what the calling thread's own stream holds, since that may fill the arrays.
    ends_region : bool
        Whether it ends what another task has begun, so that a cancellation must not discard it.
    point : Point or None
        Where on the lane the work ends; None where that has not been marked.
    held : list
        What must live until the lane gets there; `Released` first, if there is one.
    """

    __slots__ = ("held", "point")

    run: Callable[[], Any] | None = None
    takes_device_arrays: bool = False
    ends_region: bool = False

    def __init__(self) -> None:
        self.held: list[object] = []
        self.point: Point | None = None

    @property
    def program(self) -> tuple[Callable[..., Any] | None, Iterable[Any]]:
        """The program's own function that `run` calls, None without one, and the arguments of the program's call."""
        return None, ()

    def again(self) -> Work:
        """Return a work that does what this one is to do, and has done nothing."""
        return self

    def begin(self, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        """Enqueue what comes before the body.

        Raises
        ------
        PutOffError
            The launch is to be tried again later; nothing has changed.
        MapError, DeviceMemoryError
            Nothing has changed, but for what ``place.ledger.take_kept`` gives, which is in use on the lane.
        """

    def settle(self, place: DevicePlace, lane: Lane) -> None:
        """Take note that the copies that were staged have been carried out, or have failed."""

    def end(self, place: DevicePlace, lane: Lane, staged: list[Any]) -> list[object]:
        """Enqueue what comes after the body, and return what must live until the lane gets there."""
        return self.held

    def abort(self, place: DevicePlace, lane: Lane) -> list[object]:
        """Undo what `begin` did, without a copy back, and return what must live until the lane gets there."""
        return self.held


def present_items(plan: Entered) -> list[MapItem]:
    """Return the items of a construct without those that were absent and need not have been present."""
    if None not in plan.entries:
        return [*plan.items]
    return [
        item for item, entry in zip(plan.items, plan.entries, strict=True) if entry is not None or not item.if_present
    ]


class EmptyWork(Work):
    """Do nothing but follow, and be followed; ``before`` is a place on a stream."""

    __slots__ = ("_before",)

    def __init__(self, before: Point | None = None) -> None:
        super().__init__()
        self._before = before

    def again(self) -> EmptyWork:
        return EmptyWork(self._before)

    def begin(self, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        if self._before is not None:
            lane.wait_for([self._before])


class EnterDataWork(Work):
    """Map items, as ``target enter data`` and the entry of ``target data`` do; count in ``counter``.

    ``plan`` is what `begin` has carried out, None before.
    """

    __slots__ = ("_counter", "items", "plan")

    def __init__(self, items: list[MapItem], counter: Counter = Counter.DYNAMIC) -> None:
        super().__init__()
        self.items = items
        self._counter = counter
        self.plan: Entered | None = None

    def again(self) -> EnterDataWork:
        return EnterDataWork(self.items, self._counter)

    def begin(self, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        self.plan = place.enter(self.items, lane, staged, self._counter)
        self.point = self.plan.point
        self.held = [item.host for item in self.items]

    def settle(self, place: DevicePlace, lane: Lane) -> None:
        self.point = place.settle(lane)

    def abort(self, place: DevicePlace, lane: Lane) -> list[object]:
        return place.undo(self.plan, lane) if self.plan is not None else []


class ExitDataWork(Work):
    """Unmap items, as ``target exit data`` does; with ``finalizes`` all references of ``counter`` go."""

    __slots__ = ("_counter", "_finalizes", "items")

    def __init__(self, items: list[MapItem], counter: Counter = Counter.DYNAMIC, *, finalizes: bool = False) -> None:
        super().__init__()
        self.items = items
        self._counter = counter
        self._finalizes = finalizes

    def again(self) -> ExitDataWork:
        return type(self)(self.items, self._counter, finalizes=self._finalizes)

    def begin(self, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        self.held, self.point = place.exit(
            self.items,
            lane,
            staged,
            self._counter,
            ends_region=self.ends_region,
            finalizes=self._finalizes,
            may_be_put_off=True,
        )

    def settle(self, place: DevicePlace, lane: Lane) -> None:
        self.point = place.settle(lane)


class EndDataWork(ExitDataWork):
    """Unmap items, as the end of ``target data`` does."""

    __slots__ = ()

    ends_region = True


class CopyWork(Work):
    """Copy between two arrays of one shape, of which ``own`` are on the device, one at least.

    ``second`` is the other device, if the other array is on one; the copy follows what the calling thread's own stream
    holds there, too, when the work is made.
    """

    __slots__ = ("_after", "_dst", "_own", "_second", "_src")

    takes_device_arrays = True

    def __init__(self, dst: Any, src: Any, own: tuple[Any, ...], second: Any = None) -> None:
        super().__init__()
        self._dst = dst
        self._src = src
        self._own = own
        self._second = second
        self._after = None if second is None else second.caller_event()

    def again(self) -> CopyWork:
        return CopyWork(self._dst, self._src, self._own, self._second)

    def begin(self, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        for array in self._own:  # freed since the call?
            refuse_retired(place.device, array)
        if self._after is not None:
            place.device.wait_event(lane.stream, self._after)
        place.copy(self._dst, self._src, lane, staged)
        self.held = [self._dst, self._src]


class FillWork(Work):
    """Set every byte of an array of the device."""

    __slots__ = ("_array", "_value")

    takes_device_arrays = True

    def __init__(self, array: Any, value: int) -> None:
        super().__init__()
        self._array = array
        self._value = value

    def again(self) -> FillWork:
        return FillWork(self._array, self._value)

    def begin(self, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        refuse_retired(place.device, self._array)
        place.device.fill(self._array, self._value, lane.stream)
        self.held = [self._array]


class UpdateWork(Work):
    """Copy items to or from the device, as their map types say."""

    __slots__ = ("_items",)

    def __init__(self, items: Sequence[MapItem]) -> None:
        super().__init__()
        self._items = items

    def again(self) -> UpdateWork:
        return UpdateWork(self._items)

    def begin(self, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        self.held, self.point = place.update(self._items, lane, staged)

    def settle(self, place: DevicePlace, lane: Lane) -> None:
        self.point = place.settle(lane)
