"""Target regions whose device is the host: the recipe of their tasks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from offload.constructs.receiving import rebuilt_on_host
from offload.tasks.recipe import Recipe
from offload.tasks.values import Receiver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.constructs.clauses.binding import Binding
    from offload.tasks.region import Region
    from offload.tasks.task import Task
    from offload.tasks.values import Values


class HostRegion(Recipe):
    """The recipe of the tasks of a region whose device is the host: each has private arguments of its own."""

    __slots__ = ("binding", "values")

    binding: Binding
    values: Values | None

    def make(self, frame: Region, sources: Sequence[Task | None] = ()) -> Task:
        task = super().make(frame)
        task.args, task.kwargs = self.binding.on_host()
        if self.values is not None:
            form = partial(rebuilt_on_host, self.binding.keeps_tensors)
            task.body = Receiver(self.body, self.values.of(sources), form)
        return task
