"""Operations: how each construct and routine of OpenACC becomes a task, in a queue or at once."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from offload.acc.clauses import check_async, check_wait, orderings_of, queue_of, queues_of
from offload.constructs.clauses.dependences import check_depend_now
from offload.constructs.clauses.maps import check_device
from offload.constructs.queueing import enqueue, enter, wait_for
from offload.constructs.replicas import check_devices, places_of, refuse_both, spread
from offload.interrupts.frames import caller
from offload.interrupts.shields import is_interruption, lower_shield, raise_shield
from offload.runtime.current import here
from offload.runtime.generate import encounter
from offload.runtime.launch import DeviceTask
from offload.runtime.recipe import DeviceRecipe, recipe_at
from offload.tasks.links import holds_up, order
from offload.tasks.site import Site
from offload.tasks.values import Values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from offload.acc.clauses import Needs
    from offload.data.items import MapItem
    from offload.runtime.current import Scope
    from offload.runtime.place import DevicePlace
    from offload.runtime.queues import Queue
    from offload.runtime.works import EnterDataWork, ExitDataWork, UpdateWork, Work
    from offload.tasks.recipe import Recipe
    from offload.tasks.region import Region
    from offload.tasks.task import Task


_NONE: tuple[Any, ...] = ()

NOTHING: Final[Needs] = (), (), False
"""What an operation needs that neither maps nor uses anything that is mapped."""


class Operation:
    """One encounter of a construct: where it is, in which queue, and what that waits for.

    Attributes
    ----------
    place : DevicePlace or None
        The device; None with ``if_=False``, and on the host.
    places : tuple of DevicePlace or None
        All devices of a construct with ``devices``, that one first.
    queue : Queue or None
        None: the calling thread waits.
    site : Site
        Where the program has called; ``code`` is that frame, where it is known.
    """

    __slots__ = (
        "_after",
        "_depend",
        "_is_default",
        "frame",
        "name",
        "place",
        "places",
        "queue",
        "runtime",
        "scope",
        "site",
        "task",
    )

    def __init__(
        self,
        name: str,
        *,
        async_: Any = None,
        wait: Any = None,
        if_: Any = True,
        device: Any = None,
        devices: Any = _NONE,
        depend: Any = _NONE,
        code: FrameType | None = None,
    ) -> None:
        number = check_async(async_)
        values = check_wait(wait) if wait is not None else ()
        self._depend: Sequence[Any] = () if depend is _NONE else check_depend_now(name, depend)
        self.name = name
        scope = self.scope = here()
        runtime = self.runtime = scope.runtime
        frame = self.frame = scope.frame(name)
        places = None
        self._is_default = devices is None
        if devices is not _NONE and (devices is not None or runtime.settings.loop_devices is not None):
            device, devices = check_device(device), check_devices(devices)
            refuse_both(name, devices, device)
            places = places_of(runtime, devices, device)
        at: DevicePlace | None = runtime.default_place(frame) if device is None else None
        if places is not None:
            at = places[0]
        elif at is None:
            at = runtime.place(frame, check_device(device))
        queues = runtime.queues
        self.place = at if if_ else None
        self.places = places if if_ else None
        if code is None:
            code = caller()
        self.site = Site(name, name, (code.f_code, code.f_lasti), runtime)
        self.queue: Queue | None = None if number is None else queue_of(queues, at, number)
        self._after: Sequence[Queue] = queues_of(queues, at, values) if values != () else ()
        self.task: Task | None = None  # the task of a `run` that an interruption has left

    def run(
        self,
        work: EnterDataWork | ExitDataWork | UpdateWork,
        items: Sequence[MapItem],
        *,
        changes: bool,
        ends: Task | None = None,
    ) -> Task:
        """Generate the task of a work, which needs its items present, or ``changes`` that; on the host it does nothing.

        Without a queue it is complete on return, and what it waits for before it is generated. One that ``ends`` a
        region, which that task has begun, knows that, and runs though an operation before it has failed.
        """
        place, places, queue, frame = self.place, self.places, self.queue, self.frame
        done: Work = work
        if places is not None and len(places) > 1:
            done = spread(work, places, self.runtime.gate, is_default=self._is_default)
            needs: Needs = items, places, changes
        else:
            needs = items, (place,), changes
        if queue is None or place is None or frame.recorder is not None or not frame.inherited.is_plain:
            return self._run(done, needs, ends=ends)
        task = self.task = DeviceTask.of(self.site, frame, place, done)
        if ends is not None:
            task.survives, task.received = True, Values((), (ends,))
        try:
            put(self.scope, frame, queue, task, self._depend, self._after, needs)
        except BaseException as error:
            self._failed(error)
            raise
        self.task = None
        return task

    def _run(self, work: Work, needs: Needs, *, ends: Task | None) -> Task:
        """Generate the task of a work where more than the queue matters."""
        recipe = recipe_at(self.site, self.place, work)
        if ends is not None:
            recipe.survives = True
            if isinstance(recipe, DeviceRecipe):
                recipe.values = Values((), (ends,))
        try:
            task = generate(
                self.scope, self.frame, recipe, self._depend, self.queue, self._after, needs, self._generated
            )
        except BaseException as error:
            self._failed(error)
            raise
        self.task = None
        return task

    def _generated(self, task: Task) -> None:
        self.task = task

    def _failed(self, error: BaseException) -> None:
        """Forget a task that has mapped nothing; one that an interruption has left has, or will."""
        if not is_interruption(error):
            self.task = None

    def run_recipe(self, recipe: Recipe) -> Task:
        """Generate a task of a recipe."""
        return generate(self.scope, self.frame, recipe, self._depend, self.queue, self._after, NOTHING)

    def end_run(self, work: ExitDataWork, items: Sequence[MapItem], entry: Task) -> Task:
        """Generate the task that ends the region which ``entry`` has begun: the wait clause was that one's."""
        self._after = ()
        code = caller()
        self.site = Site(self.name, self.name, (code.f_code, code.f_lasti), self.runtime)
        if self.scope.thread != get_ident():  # a generator is ended elsewhere than it was begun
            self.scope = self.runtime.here()
            self.frame = self.scope.frame(self.name)
        return self.run(work, items, changes=True, ends=entry)


def generate(
    scope: Scope,
    frame: Region,
    recipe: Recipe,
    depend: Sequence[Any],
    queue: Queue | None,
    after: Sequence[Queue],
    needs: Needs,
    told: Callable[[Task], object] | None = None,
) -> Task:
    """Generate a task in a queue, after others; without a queue wait for those, then for the task.

    ``told`` as for `encounter`.
    """
    if queue is not None and frame.is_plain:
        return put(scope, frame, queue, recipe.make(frame), depend, after, needs)
    orderings = orderings_of(scope.runtime.queues, needs)
    if queue is not None:
        return enqueue(scope, frame, queue, recipe, depend, after, orderings, told)
    if after:
        wait_for(scope, frame, after, "the wait clause")
    return encounter(scope, frame, recipe, depend, deferred=False, orderings=orderings, told=told)


def put(
    scope: Scope,
    frame: Region,
    queue: Queue,
    task: Task,
    depend: Sequence[Any],
    after: Sequence[Queue],
    needs: Needs,
) -> Task:
    """Generate a task in a queue, as `generate` does, in a region where nothing but its own clauses matters.

    Most operations have been launched when this returns, and so have all before them. Then none is entered with its
    needs, since whoever comes later finds what it has mapped.
    """
    runtime = scope.runtime
    tracker = frame.tracker
    saved = raise_shield(scope)  # as `Shield` does, at half the price
    try:
        if tracker.ordered and holds_up(tracker):
            enter(scope, frame, queue, task, depend, after, orderings_of(runtime.queues, needs))
        else:
            enter(scope, frame, queue, task, depend, after)
            if not (task.launched or task.finished):
                order(task, orderings_of(runtime.queues, needs))
    finally:
        lower_shield(scope, saved)
    return task
