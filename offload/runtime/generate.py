"""Generating tasks: how a construct's task gets to the engine, deferred or run by the encountering thread.

A construct finds the runtime and the region that it is encountered in (`offload.runtime.current.here`), describes its
task by a recipe, and gives that to `generate`. A host task of which nothing but its dependences matters needs no recipe
(`generate_host`): it costs 3 µs, of which a recipe would be a tenth.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

from offload.errors import RuntimeClosedError
from offload.interrupts.finalizers import put_off
from offload.interrupts.frames import caller
from offload.interrupts.shields import in_one_piece, is_interruption, late, lower_shield, raise_shield
from offload.tasks import hooked
from offload.tasks.depend import Followed
from offload.tasks.engine import MANY_LIVE, stays
from offload.tasks.failures import see
from offload.tasks.goals import Goal, TaskEnd
from offload.tasks.presence import Entered
from offload.tasks.region import FINAL, RECORDS
from offload.tasks.states import TaskState
from offload.tasks.task import Task
from offload.tasks.waiting import Wait, attend

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from offload.interrupts.shields import Shielded
    from offload.runtime.current import Scope
    from offload.runtime.runtime import Runtime
    from offload.tasks.recipe import Recipe
    from offload.tasks.region import Region
    from offload.tasks.site import Site

_GLANCE_S = 30e-6
"""How often a thread that launches looks whether somebody can go on who waits for device work."""

_MOMENT_S, _MOMENTS = 10e-6, 4
"""The pause that it leaves to them then: a sleep is some 60 µs long at least, as long as a thread takes to wake up."""

_WAITING = TaskState.WAITING  # to look one up costs 0.15 µs
_NONE: Sequence[Any] = ()
_new = object.__new__


class Ordering:
    """The order of a task besides its dependences; this one adds no order, and only knows the task.

    `generate` calls the methods under a shield, so that no interruption comes in between.
    """

    __slots__ = ("task",)

    def __init__(self) -> None:
        self.task: Task | None = None
        """The task, from `enter` on. Where `generate` has raised it is one that an interruption has left, and that runs
        all the same; after any other exception None."""

    def enter(self, scope: Scope, region: Region, recipe: Recipe, task: Task) -> None:
        """Set the task's further predecessors (``follows``, ``orderings``): it has been made, and is entered next."""
        recorder = region.recorder
        if recorder is None or recorder.executes:
            self.task = task

    def recorded(self) -> Sequence[Any]:
        """Return the dependences that the graph of a recorder has besides."""
        return ()

    def entered(self, scope: Scope, task: Task) -> None:
        """Take note that the task has been entered, and perhaps launched."""

    def failed(self, task: Task, error: BaseException) -> None:
        """Take note that `generate` raises."""
        if not is_interruption(error):
            self.task = None


def generate(
    scope: Scope, region: Region, recipe: Recipe, depend: Sequence[Any], wait: bool, order: Ordering | None = None
) -> Task:
    """Generate a task: deferred, or with ``wait`` and in a final region run now by this thread.

    An undeferred task that fails raises its exception here. Before there is a task, a closed runtime raises
    `RuntimeClosedError`, and a thread that would wait for itself raises `UsageError`.
    """
    runtime, mode = scope.runtime, region.mode
    engine = runtime.engine
    if engine.closed and engine.refuses(region):  # before the task takes its event
        raise RuntimeClosedError(engine.closed)
    if mode & FINAL:
        wait = True
    if wait and depend:
        _refuse_to_block(runtime, region, depend)
    saved = raise_shield(scope)  # as `Shield` does, at half the price
    task = failure = None
    try:
        task = recipe.make(region)
        if not recipe.site.is_call and (not wait or mode & RECORDS):
            where = caller(3)  # who calls `generate` is the library
            task.caller_code, task.caller_at = where.f_code, where.f_lasti
        orderings = follows = _NONE
        if order is not None:
            order.enter(scope, region, recipe, task)
            orderings, follows = task.orderings, task.follows
        if mode & RECORDS and not _record(scope, region, recipe, task, depend, order, is_deferred=not wait):
            return task
        if wait:
            task.owner = scope.parker
            task.special = task.is_asked = True
        is_ready = engine.submit(task, depend, orderings, follows)
        if wait:
            failure = _run(scope, saved[0], task, is_ready=is_ready)
            if failure is not None:
                see(task)  # not in `_run`: it clears the frames that the failure refers to, and that one would be left
                raise failure  # noqa: TRY301  # it leaves by the same way as what interrupts the wait
        elif is_ready:  # as `begin` does, whose call every task would pay for
            rng = runtime.rng
            if task.launches_inline if rng is None else task.waits_in_stream_order and rng.random() < 0.5:
                engine.launch(task, scope)
            else:
                engine.make_ready(task)
        if order is not None:
            order.entered(scope, task)
        if task.launched and not wait:  # else it may be many others that it waits for, and not its stream
            if engine.look is not None and ((gate := runtime.gate).watched or gate.has_told):
                _step_aside(runtime)
        elif not wait and len(region.children.live) > MANY_LIVE:
            engine.throttle(scope, region)
    except BaseException as error:
        _give_up(runtime, task, order, error, is_deferred=not wait, has_failed=failure is not None)
        task = recipe = order = failure = None  # type: ignore[assignment]  # the traceback refers to this frame, and they to the failure
        raise
    finally:
        lower_shield(scope, saved)
    return task


def _record(
    scope: Scope,
    region: Region,
    recipe: Recipe,
    task: Task,
    depend: Sequence[Any],
    order: Ordering | None,
    *,
    is_deferred: bool,
) -> bool:
    """Give a task to the recorder of its region; return whether it runs as well."""
    recorder = region.recorder
    more = () if order is None else order.recorded()
    recorder.add(task, recipe, (*depend, *task.orderings, *more), deferred=is_deferred)
    if recorder.executes:
        return True
    task.state_ = TaskState.RECORDED
    if order is not None:
        order.entered(scope, task)
    return False


@in_one_piece
def generate_host(
    scope: Scope,
    region: Region,
    site: Site,
    caller: FrameType,
    body: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    depend: Sequence[Any],
) -> Task:
    """Generate a deferred host task, in a region where nothing but its dependences matters."""
    task = _new(Task)  # and what `Task.__init__` does, whose call takes 0.1 µs
    task.construct = site
    task.caller_code = caller.f_code
    task.caller_at = caller.f_lasti
    task.body = body
    task.args = args
    task.kwargs = kwargs or None
    task.frame = region
    task.inherited = region.inherited
    task.state_ = _WAITING
    task.finished = task.special = False
    task.failure = task.successors = task.dependences = task.value = None
    engine = scope.runtime.engine
    try:
        if engine.submit(task, depend):
            engine.make_ready(task)
    except BaseException:
        engine.mend(task)
        raise
    if len(region.children.live) > MANY_LIVE:
        engine.throttle(scope, region)
    if late.is_due:
        late.deliver()
    return task


def begin(scope: Scope, task: Task) -> None:
    """Launch a deferred task that is ready on this thread, if it only enqueues, or hand it to another."""
    runtime = scope.runtime
    rng = runtime.rng  # with one a body may run inside of the call or later: let nobody rely on either
    if task.launches_inline if rng is None else task.waits_in_stream_order and rng.random() < 0.5:
        runtime.engine.launch(task, scope)
    else:
        runtime.engine.make_ready(task)


def _step_aside(runtime: Runtime) -> None:
    """Complete a task that somebody waits for, if its device work has passed, and leave the GIL to who follows it.

    A launch lets go of the GIL for less time than a thread needs to wake up, be it the completer or a worker.
    """
    gate, engine = runtime.gate, runtime.engine
    now_s = perf_counter()
    if gate.watched and now_s >= runtime.glances_s:
        runtime.glances_s = now_s + _GLANCE_S
        gate.glance()
    if gate.has_told:
        gate.has_told = False
        for _ in range(_MOMENTS):
            if not engine.woken:
                return
            sleep(_MOMENT_S)


def _refuse_to_block(runtime: Runtime, region: Region, depend: Sequence[Any]) -> None:
    """Raise `UsageError` before a task is made that this thread would wait for, and keep from beginning."""
    coroutines, recorder = runtime.engine.coroutines, region.recorder
    if coroutines is not None and (recorder is None or recorder.executes):
        before = [task for handle in region.tracker.latest(depend) if (task := handle()) is not None]
        coroutines.refuse(Goal("a construct that is not deferred", before))
    for dependence in depend:
        for item in dependence.items:
            if isinstance(item, Followed) and isinstance(item.what, Task):
                runtime.check_wait(item.what)


def _run(scope: Scope, thread: Shielded, task: Task, *, is_ready: bool) -> BaseException | None:
    """Run a task on this thread once its predecessors allow, wait until it is complete, and return its failure.

    The caller has the shield of this thread up, raises the failure, and marks it as seen.
    """
    if is_ready:  # else it may be ready meanwhile
        task.is_ready = True
    runtime = scope.runtime
    engine = runtime.engine
    item: Any = task  # of the gate, which tells device tasks only
    helps = scope.task is not None  # else a worker will: a user may hold a lock across the construct
    with Entered(scope):
        while not (task.finished or task.state_ is TaskState.DETACHED):
            if task.is_ready:
                if put_off.calls:
                    put_off.carry_out()  # it may be what a launch without memory is to be tried again for
                task.is_ready = False
                engine.run(scope, task, stays)
            elif task.launched and task.is_asked:
                has_passed = attend(engine, scope, (task,), helps=helps)
                task.is_asked = False
                if has_passed:
                    runtime.gate.tell(task.point, item)
                else:
                    runtime.gate.add(task.point, item, watched=True)
            else:
                Wait(engine, scope, _Encounter(task), thread, helps=helps).run()
    return task.failure


def _give_up(
    runtime: Runtime, task: Any, order: Ordering | None, error: BaseException, *, is_deferred: bool, has_failed: bool
) -> None:
    """Leave a task, whose generation raises, in a state that others can go on with; None where there is none yet."""
    if task is None:
        return
    if is_deferred:
        runtime.engine.mend(task)
    elif not has_failed:  # an interruption of the wait: other threads go on with the task
        runtime.engine.disown(task)
        if task.is_asked:
            task.is_asked = False
            if task.launched:
                runtime.gate.add(task.point, task)
    if order is not None:
        order.failed(task, error)


class _Encounter(TaskEnd):
    """The next thing to do for an undeferred task, or its end; both wake its owner, who waits for them."""

    __slots__ = ("hurries",)
    calls = False

    def __init__(self, task: Task) -> None:
        self.tasks = (task,)
        self.sets = ()
        self.hurries = not task.launched  # else the gate watches its point

    def done(self) -> bool:
        task: Any = self.tasks[0]
        return task.is_ready or task.finished or task.state_ is TaskState.DETACHED

    def __str__(self) -> str:  # not before: to look up the line takes as long as to wait
        construct = self.tasks[0].construct
        return f"{construct.directive} {self.tasks[0].name!r} at {construct.location}"


def _noted_run(plain: Any) -> Any:
    """Return `_run` for sanitized runtimes: what the caller does next comes after the task."""

    def run(scope: Scope, thread: Shielded, task: Task, *, is_ready: bool) -> BaseException | None:
        failure: BaseException | None = plain(scope, thread, task, is_ready=is_ready)
        try:
            with suppress(RecursionError):  # the limit is no failure of the task
                if (orders := hooked.orders.get(scope.runtime)) is not None:
                    orders.encountered(task)
            return failure
        finally:
            del task, failure  # its frames refer to this one

    return run


hooked.register(sys.modules[__name__], "_run", _noted_run, "sanitize")
