"""Generating tasks: how a construct's task gets to the engine, deferred or run by the encountering thread.

Constructs find the runtime and the region that they are encountered in with `here`, make a task, and give it to
`encounter`, or to `defer` where nothing but the task's own clauses matters.
"""

from __future__ import annotations

from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

from offload.errors import (
    RuntimeClosedError,
)
from offload.interrupts.finalizers import put_off
from offload.interrupts.frames import caller
from offload.interrupts.shields import Shield, lower_shield, raise_shield
from offload.tasks.depend import Followed
from offload.tasks.engine import MANY_LIVE
from offload.tasks.failures import see
from offload.tasks.goals import Goal, TaskEnd
from offload.tasks.states import TaskState
from offload.tasks.task import Task
from offload.tasks.waiting import attend

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offload.runtime.current import Scope
    from offload.runtime.runtime import Runtime
    from offload.tasks.recipe import Recipe
    from offload.tasks.region import Region

_GLANCE_S = 30e-6
"""How often a thread that launches looks whether somebody can go on who waits for device work."""

_MOMENT_S, _MOMENTS = 10e-6, 4
"""The pause that it leaves to them then: a sleep is some 60 µs long at least, as long as a thread takes to wake up."""


def encounter(
    scope: Scope,
    frame: Region,
    recipe: Recipe,
    dependences: Sequence[Any],
    *,
    deferred: bool,
    orderings: Sequence[Any] = (),
    recorded: Sequence[Any] = (),
    told: Callable[[Task], object] | None = None,
) -> Task:
    """Generate a task: deferred, or run now by this thread, which waits until it is complete.

    In a final task nothing is deferred. An undeferred task that fails raises its exception here. Along ``orderings``,
    dependences too, no failure goes. Those that are ``recorded`` are for the graph of a recorder only. ``told`` is
    called with the task before it is entered, and no interrupt comes in between; not where it is only recorded.
    """
    runtime = scope.runtime
    engine = runtime.engine
    if engine.closed and engine.refuses(frame):  # before the task takes its event
        raise RuntimeClosedError(engine.closed)
    deferred = deferred and not frame.inherited.is_final
    if engine.coroutines is not None and not deferred and dependences:
        _refuse_to_block(runtime, frame, dependences)
    if not deferred:
        for dependence in dependences:
            for item in dependence.items:
                if isinstance(item, Followed) and isinstance(item.what, Task):
                    runtime.check_wait(item.what)
    with Shield(scope):
        recorder = frame.recorder
        task = recipe.make(frame)
        if (deferred or recorder is not None) and not recipe.site.is_call:
            where = caller(2)
            task.caller_code, task.caller_at = where.f_code, where.f_lasti
        if orderings:
            task.orderings = orderings
        if told is not None and (recorder is None or recorder.executes):
            told(task)
        if recorder is not None:
            recorder.add(task, recipe, (*dependences, *orderings, *recorded), deferred=deferred)
            if not recorder.executes:
                task.state_ = TaskState.RECORDED
                return task
        if deferred:
            submit(scope, frame, task, dependences, task.orderings, task.follows)
            return task
        failure = run_undeferred(scope, task, dependences)
        if failure is not None:
            see(task)
            try:
                raise failure
            finally:
                del task, recipe, told, recorder, failure  # the traceback must not refer to what refers to the failure
        return task


def run(scope: Scope, frame: Region, task: Task, dependences: Sequence[Any]) -> Any:
    """Do what `encounter` does with an undeferred task where nothing but its own clauses matters; return its value.

    The dependences are on storage. A caller has to let go of the task where this raises: the traceback refers to frames
    that have it, and it refers to the failure.
    """
    if dependences and scope.runtime.engine.coroutines is not None:
        _refuse_to_block(scope.runtime, frame, dependences)
    saved = raise_shield(scope)
    try:
        failure = run_undeferred(scope, task, dependences)
        if failure is not None:
            see(task)
            raise failure  # noqa: TRY301  # it leaves by the same way as what interrupts the wait
        value = task.value
    except BaseException:
        failure = None
        del task
        lower_shield(scope, saved)
        raise
    lower_shield(scope, saved)
    return value


def defer(scope: Scope, frame: Region, task: Task, dependences: Sequence[Any]) -> None:
    """Generate a deferred task in a region where nothing but its own clauses matters."""
    if not task.construct.is_call:
        where = caller(2)
        task.caller_code, task.caller_at = where.f_code, where.f_lasti
    saved = raise_shield(scope)  # as `Shield` does, at half the price
    try:
        submit(scope, frame, task, dependences)
    except BaseException:
        scope.runtime.engine.mend(task)
        raise
    finally:
        lower_shield(scope, saved)


def submit(
    scope: Scope,
    frame: Region,
    task: Task,
    dependences: Sequence[Any],
    orderings: Sequence[Any] = (),
    follows: Sequence[Any] = (),
) -> None:
    """Enter a deferred task, and launch or hand it over if it is ready."""
    runtime = scope.runtime
    engine = runtime.engine
    if engine.submit(task, dependences, orderings, follows):
        rng = runtime.rng  # as `begin` does, whose call every task would pay for
        if task.launches_inline if rng is None else task.waits_in_stream_order and rng.random() < 0.5:
            engine.launch(task, scope)
        else:
            engine.make_ready(task)
    if task.launched:  # else it may be many others that it waits for, and not its stream
        gate = runtime.gate
        if gate.watched or gate.has_told:
            _step_aside(runtime)
    elif len(frame.children.live) > MANY_LIVE:
        engine.throttle(scope, frame)


def _step_aside(runtime: Runtime) -> None:
    """Complete a task that somebody waits for, if its device work has passed, and leave the GIL to who follows it.

    A launch lets go of the GIL for less time than a thread needs to wake up, be it the completer or a worker.
    """
    gate, engine = runtime.gate, runtime.engine
    if engine.look is None:
        return
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


def _refuse_to_block(runtime: Runtime, frame: Region, dependences: Sequence[Any]) -> None:
    """Raise `UsageError` before a task is made that this thread would wait for, and keep from beginning."""
    if frame.recorder is None or frame.recorder.executes:
        before = [task for handle in frame.tracker.latest(dependences) if (task := handle()) is not None]
        runtime.engine.coroutines.refuse(Goal("a construct that is not deferred", before))


def begin(scope: Scope, task: Task) -> None:
    """Launch a deferred task that is ready on this thread, if it only enqueues, or hand it to another."""
    runtime = scope.runtime
    rng = runtime.rng  # with one a body may run inside of the call or later: let nobody rely on either
    if task.launches_inline if rng is None else task.waits_in_stream_order and rng.random() < 0.5:
        runtime.engine.launch(task, scope)
    else:
        runtime.engine.make_ready(task)


def run_undeferred(scope: Scope, task: Task, dependences: Sequence[Any]) -> BaseException | None:
    """Run a task on this thread once its predecessors allow, wait until it is complete, and return its failure.

    Whoever calls this raises the failure, and says that it has been seen.
    """
    runtime = scope.runtime
    engine = runtime.engine
    helps = scope.task is not None  # else a worker will: a user may hold a lock across the construct
    task.owner = scope.parker
    task.special = True
    if engine.submit(task, dependences, task.orderings, task.follows):
        task.is_ready = True
    try:
        while not (task.finished or task.state_ is TaskState.DETACHED):
            if task.is_ready:
                if put_off.calls:
                    put_off.carry_out()  # it may be what a launch without memory is to be tried again for
                task.is_ready = False
                engine.begin_undeferred(task, scope)
                if task.launched and not task.finished:
                    attend(engine, scope, (task,), helps=helps)
                continue
            engine.wait(scope, _Encounter(task), helps=helps)
    except BaseException:
        engine.disown(task)
        raise
    return task.failure


class _Encounter(TaskEnd):
    """The next thing to do for an undeferred task, or its end; both wake its owner, who waits for them."""

    __slots__ = ()
    calls = False

    def done(self) -> bool:
        task: Any = self.tasks[0]
        return task.is_ready or task.finished or task.state_ is TaskState.DETACHED

    def __str__(self) -> str:  # not before: to look up the line takes as long as to wait
        construct = self.tasks[0].construct
        return f"{construct.directive} {self.tasks[0].name!r} at {construct.location}"
