"""Operations: how each construct and routine of OpenACC becomes a task, in a queue or at once."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any

from offload.acc.clauses import check_async, check_wait, presence, queue_of, queues_of
from offload.clauses import check_device
from offload.current import current_scope_of, here
from offload.dependences import check_depend_now
from offload.launch import device_maker
from offload.queueing import enqueue, wait_for
from offload.sites import call_site
from offload.tasks.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from offload.data.present import MapItem
    from offload.launch import DevicePlace
    from offload.queues import Queue
    from offload.runtime import Runtime
    from offload.tasks.region import Frame
    from offload.tasks.scope import Scope


class Operation:
    """One encounter of a construct: where it is, in which queue, and what that waits for.

    Attributes
    ----------
    place : DevicePlace or None
        The device; None with ``if_=False``, and on the host.
    queue : Queue or None
        None: the calling thread waits.
    """

    __slots__ = ("_after", "_depend", "frame", "name", "place", "queue", "runtime", "scope", "task")

    def __init__(
        self,
        name: str,
        *,
        async_: Any = None,
        wait: Any = None,
        if_: Any = True,
        device: Any = None,
        depend: Any = (),
    ) -> None:
        number = check_async(async_)
        values = check_wait(wait)
        self._depend: Sequence[Any] = check_depend_now(name, depend)
        self.name = name
        self.scope: Scope = here()
        self.runtime: Runtime = self.scope.runtime
        self.frame: Frame = self.scope.frame(name)
        at: DevicePlace | None = self.runtime.place(self.frame, check_device(device))
        queues = self.runtime.queues
        self.place = at if if_ else None
        self.queue: Queue | None = queue_of(queues, at, number)
        self._after: list[Queue] = queues_of(queues, at, values)
        self.task: Task | None = None  # what `run` had generated when it was interrupted

    def run(self, work: Any, items: Iterable[MapItem], *, changes: bool, ends: bool = False) -> Task:
        """Generate the task of a work, which needs its items present, or ``changes`` that; on the host it does nothing.

        Without a queue it is complete on return, and what it waits for before it is generated. One that ``ends`` a
        region runs though an operation before it has failed.
        """
        site = call_site(self.name, self.runtime)
        make: Any
        if self.place is None:

            def make(frame: Frame) -> Task:
                return Task(site, _nothing, (), None, frame)
        else:
            make = device_maker(site, None, self.place, work)

        def kept(frame: Frame) -> Task:
            task: Task = make(frame)
            if ends:
                task.survives = True
            self.task = task
            return task

        orderings = presence(items, self.place, changes=changes)
        try:
            task = generate(self.scope, self.frame, kept, self._depend, self.queue, self._after, orderings)
        except Exception:
            self.task = None  # it has mapped nothing
            raise
        self.task = None
        return task

    def run_made(self, make: Callable[[Frame], Task]) -> Task:
        """Generate a task that is made elsewhere."""
        return generate(self.scope, self.frame, make, self._depend, self.queue, self._after)

    def end_run(self, work: Any, items: Iterable[MapItem]) -> Task:
        """Generate the task that ends a region: the wait clause was the entry's."""
        self._after = []
        if self.scope.thread != get_ident():  # a generator is ended elsewhere than it was begun
            self.scope = current_scope_of(self.runtime)
            self.frame = self.scope.frame(self.name)
        return self.run(work, items, changes=True, ends=True)


def generate(
    scope: Scope,
    frame: Frame,
    make: Callable[[Frame], Task],
    depend: Sequence[Any],
    queue: Queue | None,
    after: list[Queue],
    orderings: Sequence[Any] = (),
) -> Task:
    """Generate a task in a queue, after others; without a queue wait for those, then for the task.

    Along ``orderings``, dependences too, no failure goes.
    """

    def ordered(frame: Frame) -> Task:
        task = make(frame)
        task.orderings = orderings
        return task

    if queue is not None:
        return enqueue(scope, frame, queue, ordered, depend, after)
    if after:
        wait_for(scope, frame, after, "the wait clause")
    task: Task = scope.runtime.encounter(scope, frame, ordered, depend, deferred=False)
    return task


def _nothing() -> None:
    """Do nothing: the body of an operation without a device."""
