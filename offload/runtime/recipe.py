"""Recipes of device tasks: a place and a work in the stead of a body (`offload.tasks.recipe`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.runtime.launch import DeviceTask
from offload.tasks.recipe import Recipe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.runtime.place import DevicePlace
    from offload.runtime.works import Work
    from offload.tasks.received import Values
    from offload.tasks.region import Region, Site
    from offload.tasks.task import Task


class DeviceRecipe(Recipe):
    """What the device tasks of one encounter are made of.

    Attributes
    ----------
    place : DevicePlace
    work : Work
        What they do there. It is never begun, so that it refers to no device memory, however long somebody keeps it.
    """

    __slots__ = ("place", "values", "work")

    def __init__(self, site: Site, place: DevicePlace, work: Work, label: str | None = None, priority: int = 0) -> None:
        super().__init__(site, label=label, priority=priority)
        self.place = place
        self.work = work
        self.values: Values | None = None

    @property
    def given(self) -> list[Any]:
        """Nothing: device work fulfils no event, and what it is given is device memory."""
        return []

    def make(self, frame: Region, sources: Sequence[Task | None] = ()) -> DeviceTask:
        task = DeviceTask.of(self.site, frame, self.place, self.work.again())
        if self.values is not None:
            task.work.values = self.values.of(sources)  # type: ignore[union-attr]  # a ReceivingWork
        queue = self.queue
        if queue is not None and queue.place is not None:
            task.queue = queue
        self._mark(task)
        return task


def recipe_at(site: Site, place: DevicePlace | None, work: Work) -> Recipe:
    """Return the recipe of a work at a place; on the host, for which that is None, of empty tasks."""
    return Recipe(site) if place is None else DeviceRecipe(site, place, work)
