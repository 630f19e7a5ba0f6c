"""Operations: how each construct and routine of OpenACC becomes a task, in a queue or at once."""

from __future__ import annotations

from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from offload.acc.clauses import check_async, check_wait, orderings_of, queue_of, queues_of
from offload.constructs.clauses.dependences import check_depend_now
from offload.constructs.clauses.maps import check_device
from offload.constructs.queueing import QueueEntry, wait_for
from offload.constructs.replicas import check_devices, places_of, refuse_both, spread
from offload.interrupts.frames import caller
from offload.runtime.current import encounter
from offload.runtime.generate import generate
from offload.runtime.recipe import DeviceRecipe
from offload.tasks.recipe import Recipe
from offload.tasks.site import Site
from offload.tasks.values import Values

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from offload.acc.clauses import Needs
    from offload.data.items import MapItem
    from offload.runtime.place import DevicePlace
    from offload.runtime.queues import Queue
    from offload.runtime.works import EnterDataWork, ExitDataWork, UpdateWork, Work
    from offload.tasks.task import Task


_NONE: tuple[Any, ...] = ()

NOTHING: Final[Needs] = (), (), False
"""The needs of an operation that neither maps nor uses mapped data."""


class QueueOperation:
    """One encounter of a construct: its place, its queue, and the operations that it waits for."""

    __slots__ = (
        "_after",  # the queues of the wait clause
        "_depend",  # the dependences, checked
        "_is_default",  # nobody has named devices: `OFFLOAD_LOOP_DEVICES` has
        "_order",  # of the last `run`, if that has raised
        "call",  # where the program has called: code, and the instruction in it
        "frame",  # the region that it is encountered in
        "name",  # the construct's, for messages and sites
        "place",  # the device; None with ``if_=False``, and on the host
        "places",  # all devices of a construct with ``devices``, ``place`` first; None where that is the only one
        "queue",  # None: the calling thread waits
        "runtime",
        "scope",
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
        self.scope, self.frame = scope, frame = encounter(name)
        runtime = self.runtime = scope.runtime
        places = None
        self._is_default = devices is None
        if devices is not _NONE and (devices is not None or runtime.settings.loop_devices is not None):
            device, devices = check_device(device), check_devices(devices)
            refuse_both(name, devices, device)
            places = places_of(runtime, devices, device)
        at: DevicePlace | None = runtime.default_place(frame) if device is None else None
        if places is not None:
            at = places[0]
            if len(places) == 1:
                places = None
        elif at is None:
            at = runtime.place(frame, check_device(device))
        queues = runtime.queues
        self.place = at if if_ else None
        self.places = places if if_ else None
        if code is None:
            code = caller()
        self.call = code.f_code, code.f_lasti
        self.queue: Queue | None = (
            None if number is None else queues[at, number] if number >= 0 else queue_of(queues, at, number)
        )
        self._after: Sequence[Queue] = queues_of(queues, at, values) if values != () else ()
        self._order: QueueEntry | None = None

    @property
    def site(self) -> Site:
        """The construct there, a new one each time."""
        return Site(self.name, self.name, self.call, self.runtime)

    def run(
        self,
        work: EnterDataWork | ExitDataWork | UpdateWork,
        items: Sequence[MapItem],
        *,
        changes: bool,
        ends: Task | None = None,
        site: Site | None = None,
    ) -> Task:
        """Generate the task of a work, which needs its items present, or ``changes`` that; on the host it does nothing.

        Without a queue it is complete on return, and its predecessors are complete before it is generated. One that
        ``ends`` a region, which that task has begun, knows that, and runs though an operation before it has failed.
        """
        place, places = self.place, self.places
        done: Work = work
        on: tuple[DevicePlace | None, ...] = (place,)
        if places is not None:
            done, on = spread(work, places, self.runtime.gate, is_default=self._is_default), places
        if site is None:
            site = self.site
        recipe = Recipe(site) if place is None else DeviceRecipe(site, place, done)
        if ends is not None:
            recipe.survives = True
            if isinstance(recipe, DeviceRecipe):
                recipe.values = Values((), (ends,))
        return self.run_recipe(recipe, (items, on, changes))

    def run_recipe(self, recipe: Recipe, needs: Needs = NOTHING) -> Task:
        """Generate a task of a recipe; ``task`` is set meanwhile, and stays so where an interruption has left it."""
        queue, after = self.queue, self._after
        if queue is None and after:
            wait_for(self.scope, self.frame, after, "the wait clause")
        order = self._order = QueueEntry(queue, after, partial(orderings_of, self.runtime.queues, needs))
        task = generate(self.scope, self.frame, recipe, self._depend, wait=queue is None, order=order)
        self._order = None
        return task

    @property
    def task(self) -> Task | None:
        """The task of a `run` that an interruption has left."""
        return None if self._order is None else self._order.task

    def end_run(self, work: ExitDataWork, items: Sequence[MapItem], entry: Task) -> Task:
        """Generate the task that ends the region which ``entry`` has begun: the wait clause was that one's."""
        self._after = ()
        code = caller()
        self.call = code.f_code, code.f_lasti
        if self.scope.thread != get_ident():  # a generator is ended elsewhere than it was begun
            self.scope = self.runtime.here()
            self.frame = self.scope.frame(self.name)
        return self.run(work, items, changes=True, ends=entry)
