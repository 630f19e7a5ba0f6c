"""Recipes of device tasks: a place and a work in the stead of a body (`offload.tasks.recipe`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.runtime.launch import DeviceTask
from offload.tasks.recipe import Recipe
from offload.tasks.states import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from offload.runtime.place import DevicePlace
    from offload.runtime.works import Work
    from offload.tasks.region import Region
    from offload.tasks.site import Site
    from offload.tasks.task import Task
    from offload.tasks.values import Values

_WAITING = TaskState.WAITING  # to look one up costs 0.15 µs
_new = object.__new__


class DeviceRecipe(Recipe):
    """The recipe of the device tasks of one encounter.

    Attributes
    ----------
    body : callable or None
        None where no code of the program runs.
    place : DevicePlace
    work : Work
        Their work there. It refers to no memory that it maps, even if it is kept for long.
    """

    __slots__ = ("place", "values", "work")

    values: Values | None
    kind: type[DeviceTask] = DeviceTask
    """The class of the tasks."""

    def __init__(
        self,
        site: Site,
        place: DevicePlace,
        work: Work,
        body: Callable[..., Any] | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        label: str | None = None,
        priority: int = 0,
    ) -> None:
        self.site = site  # as `Recipe.__init__` does, which a call of it would cost half as much again
        self.body = body
        self.args = args
        self.kwargs = kwargs
        self.label = label
        self.priority = priority
        self.queue = self.values = None
        self.survives = False
        self.place = place
        self.work = work

    @property
    def given(self) -> list[Any]:
        """Empty: device work fulfils no event, and its arguments are device memory."""
        return []

    @property
    def places(self) -> tuple[DevicePlace, ...]:
        """All places that the tasks are carried out on."""
        return self.work.places or (self.place,)

    def make(self, frame: Region, sources: Sequence[Task | None] = ()) -> DeviceTask:
        work, place = self.work, self.place
        task = _new(self.kind)  # each field is set here: an `__init__` would take as long again
        task.construct = self.site
        task.body = body = self.body
        task.args = self.args
        task.kwargs = self.kwargs
        task.frame = frame
        task.inherited = frame.inherited
        task.state_ = _WAITING
        task.finished = task.special = task.launched = task._is_watched = False  # noqa: SLF001  # its maker
        task.failure = task.successors = task.dependences = task.value = task.early = task.run = None
        task.predecessors = ()
        task.place = place
        task.launches_inline = body is None or not place.device.bodies_block
        task.work = work
        task.queue = self.queue
        task.lane = task.point = task.after = task.held = task.plan = None
        if self.label is not None:
            task.label = self.label
        if self.priority:
            task.priority = self.priority
        if work.takes_device_arrays:
            task.after = place.device.caller_event()
        work.mark(task)
        if self.survives:
            task.survives = True
        if self.values is not None:
            task.received = self.values.of(sources)
            if place.plans:
                task.waits_in_stream_order = False  # a plan needs the values, and they come with completion
        return task

    def moved(self, runtime: Any) -> Self:
        other = super().moved(runtime)
        other.place, other.work = runtime.places[self.place.device.number], self.work.moved(runtime)
        return other


def recipe_at(site: Site, place: DevicePlace | None, work: Work) -> Recipe:
    """Return the recipe of a work at a place; on the host, for which that is None, of empty tasks."""
    return Recipe(site) if place is None else DeviceRecipe(site, place, work)
