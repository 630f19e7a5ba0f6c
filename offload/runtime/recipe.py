"""Recipes of device tasks: a place and a work in the stead of a body (`offload.tasks.recipe`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.runtime.launch import DeviceTask
from offload.tasks.recipe import Recipe, nothing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.runtime.place import DevicePlace
    from offload.runtime.works import Work
    from offload.tasks.region import Region
    from offload.tasks.site import Site
    from offload.tasks.task import Task
    from offload.tasks.values import Values


class DeviceRecipe(Recipe):
    """What the device tasks of one encounter are made of.

    Attributes
    ----------
    place : DevicePlace
    work : Work
        What they do there. It refers to no memory that it maps, however long somebody keeps it.
    """

    __slots__ = ("place", "values", "work")

    values: Values | None

    def __init__(self, site: Site, place: DevicePlace, work: Work, label: str | None = None, priority: int = 0) -> None:
        self.site = site  # as `Recipe.__init__` does, which a call of it would cost half as much again
        self.body = work.body or nothing
        self.args = work.args
        self.kwargs = work.kwargs
        self.label = label
        self.priority = priority
        self.queue = self.values = None
        self.survives = False
        self.place = place
        self.work = work

    @property
    def given(self) -> list[Any]:
        """Nothing: device work fulfils no event, and what it is given is device memory."""
        return []

    def make(self, frame: Region, sources: Sequence[Task | None] = ()) -> DeviceTask:
        task = DeviceTask.of(self.site, frame, self.place, self.work, self.label, self.priority)
        queue = self.queue
        if queue is not None and queue.place is not None:
            task.queue = queue
        if self.survives:
            task.survives = True
        if self.values is not None:
            task.received = self.values.of(sources)
        return task


def recipe_at(site: Site, place: DevicePlace | None, work: Work) -> Recipe:
    """Return the recipe of a work at a place; on the host, for which that is None, of empty tasks."""
    return Recipe(site) if place is None else DeviceRecipe(site, place, work)
