"""The handle of a task, as far as those who wait for it need to know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from offload.tasks.region import AnyTask

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from offload.tasks.site import Site


class Handle(AnyTask, Protocol):
    """A task as its user has it; `offload.tasks.task.Task` has the documentation."""

    construct: Site
    value: Any
    callbacks: list[Callable[[Self], Any]] | None
    launch_calls: Sequence[Callable[[], object]]

    def done(self) -> bool: ...

    def result(self, timeout: float | None = None) -> Any: ...

    def add_done_callback(self, fn: Callable[[Self], Any]) -> None: ...

    def watch(self) -> None: ...
