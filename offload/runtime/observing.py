"""Observers: how a runtime is equipped to call them, and the costs.

Theory of operation
-------------------
A run without an observer checks nothing at an operation. There is no ``if`` on the path of a task. Instead, an observed
runtime is *equipped* (`equip`):

* Its engine becomes an `ObservedEngine` by its class, or one of two that cost less. Its links note edges.
* Its places become an `ObservedPlace` by their class.
* While any runtime of the process is equipped, a few methods of task classes are replaced (`offload.tasks.hooked`).

When the last observer goes, all of this is taken back. `tool` attaches an observer to every runtime of the process,
also to those that come later. ``OFFLOAD_NOTIFY`` attaches one to its runtime. `equip` works out the calls that
the observers of a runtime want. It is called when a runtime is made, and when an observer comes or goes.

Observers are called in the middle of the engine's steps. If one raises, it is detached, and a warning says so once.

A `TaskLog` is an observer of our own. A task costs it one call of ``list.extend`` at its end (`offload.events.log`).
"""

from __future__ import annotations

import sys
import threading
import warnings
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from threading import get_ident
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from offload.arrays.items import all_memory, label
from offload.errors import ClauseError, CleanupWarning
from offload.events.log import TaskLog
from offload.events.observer import METHODS, NO_CALLS, Calls, nothing
from offload.interrupts.forks import in_forked_child
from offload.interrupts.shields import Shield
from offload.runtime import registry
from offload.runtime.launch import DeviceTask
from offload.runtime.place import DevicePlace
from offload.runtime.stamps import TimedCopy, noter, set_up, settle, stamp
from offload.tasks import hooked
from offload.tasks.depend import Tracker
from offload.tasks.engine import Engine
from offload.tasks.links import follow, follows_launched
from offload.tasks.recipe import Recipe
from offload.tasks.site import Site
from offload.tasks.states import TaskState
from offload.tasks.task import Task
from offload.views.lines import Notifier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from offload.data.plans import Enqueuers, Plan
    from offload.devices.streams import Lane

_FAILED = TaskState.FAILED

_lock = threading.RLock()
_attached: list[_Attachment] = []
_equipped: set[Any] = set()
_telling: dict[Task, int] = {}  # the complete tasks that observers are being told of, with the thread that tells
_TELLING_S = 5.0  # how long the end of `tool` waits for them: an observer may wait for what comes after it


class _Attachment:
    """An observer, for one runtime or for all."""

    __slots__ = ("has_failed", "is_over", "observer", "runtime")

    def __init__(self, observer: Any, runtime: Any = None) -> None:
        self.observer = observer
        self.runtime = runtime
        self.has_failed = False
        self.is_over = False  # another thread may have read its calls before, and not yet called

    def call(self, name: str) -> Callable[..., None] | None:
        """Return a call of a method that never raises; None if the observer does not have the method."""
        method = getattr(self.observer, name, None)
        if not callable(method):
            return None

        def call(*args: Any) -> None:
            if self.is_over:
                return
            with Shield():  # an interruption that comes meanwhile is the program's, and no failure of the observer
                try:
                    method(*args)
                except BaseException as error:  # noqa: BLE001  # the engine's steps go on
                    self._fail(name, error)

        return call

    def _fail(self, name: str, error: BaseException) -> None:
        with _lock:
            has_failed, self.has_failed = self.has_failed, True
        if has_failed:
            return
        detach(self)
        text = f"{type(self.observer).__name__}.{name} raised {error!r:.300}; the observer has been detached"
        try:
            warnings.warn(text, CleanupWarning, stacklevel=3)
        except BaseException:  # noqa: BLE001  # warnings are errors here, and this is no place to raise
            if sys.stderr is not None:
                with suppress(OSError, ValueError):
                    sys.stderr.write(f"offload: {text}\n")


@contextmanager
def tool(observer: Any) -> Iterator[Any]:
    """Attach an observer of tasks, copies, mappings and waits.

    Parameters
    ----------
    observer : object
        An object with any of these methods:

        * ``task_created(task)``, ``task_started(task)``, ``task_completed(task)``: a task was generated, its body
          begins (a device task has been given its stream), it is complete.
        * ``copied(task, direction, nbytes)``: a device has been given a copy. The direction is ``"to"`` the device,
          ``"from"`` it, or ``"device"`` for a copy between devices or on one. The task is the one whose launch enqueues
          the copy, or None.
        * ``mapped(task, item, nbytes, event)``: storage for a list item has been created on a device (``"alloc"``) or
          removed (``"delete"``).
        * ``waited(what, seconds)``: the calling thread has waited.

    Yields
    ------
    object
        The observer. The end of the block detaches it.

    Raises
    ------
    ClauseError
        The object has none of these methods.

    Notes
    -----
    The observer sees all runtimes of the process, also those that are opened in the block. Each method is called on the
    thread where the event happens, so an observer must expect several threads. It must not wait for tasks. If a method
    raises, the observer is detached, and a `CleanupWarning` says so; the program goes on. The end of the block waits up
    to 5 s until the observer has been told of each task that is complete. A program without an observer checks nothing.

    Examples
    --------
    >>> class Names:
    ...     def task_completed(self, task):
    ...         print(task.name, task.state)
    >>> with omp.tool(Names()):
    ...     value = omp.task(name="load")(lambda: 3)().result()
    load complete
    """
    attachment = attach(observer)
    try:
        yield observer
        if hasattr(observer, "task_completed"):
            _let_tell()
    finally:
        detach(attachment)


def _let_tell() -> None:
    """Wait until observers have been told of every task that the program may have seen complete."""
    here, until_s = get_ident(), perf_counter() + _TELLING_S
    told = [task for task, thread in _telling.copy().items() if thread != here]
    while perf_counter() < until_s and any(task in _telling for task in told):
        sleep(1e-4)


def attach(observer: Any, runtime: Any = None) -> _Attachment:
    """Attach an observer to all runtimes, or to one, until `detach`; raise `ClauseError` if it has no method."""
    if not (isinstance(observer, TaskLog) or any(callable(getattr(observer, name, None)) for name in METHODS)):
        raise ClauseError(
            f"tool: {observer!r:.60} has none of the methods of an observer; give it at least one of "
            f"{', '.join(METHODS[:6])}"
        )
    attachment = _Attachment(observer, runtime)
    with _lock:
        _attached.append(attachment)
        _equip_all()
    return attachment


def detach(attachment: _Attachment) -> None:
    """Detach an observer; do nothing if it is not attached."""
    with _lock:
        attachment.is_over = True
        if attachment in _attached:
            _attached.remove(attachment)
            if isinstance(attachment.observer, TaskLog):
                attachment.observer.name_threads()
            _equip_all()


def renew() -> None:
    """Equip all runtimes again, as an observer wants something else now."""
    with _lock:
        _equip_all()


def _equip_all() -> None:
    for runtime in {*registry.runtimes, *_equipped}:
        equip(runtime)


def equip(runtime: Any, level: int = 0) -> None:
    """Equip a runtime for its present observers, if there are any; ``level`` is the value of ``OFFLOAD_NOTIFY``.

    Other threads go on meanwhile. An observer that stays must not miss anything. So the equipment of a runtime is
    replaced, and never taken back first.
    """
    with _lock:
        if level:
            _attached.append(_Attachment(Notifier(level, partial(_number_of, runtime.places)), runtime))
        found = [one for one in _attached if one.runtime is None or one.runtime is runtime]
        if found and not runtime._is_closed:  # noqa: SLF001  # `leave` has been called
            _put(runtime, found)
        else:
            _strip(runtime)
        _replace_methods()


def _put(runtime: Any, found: Sequence[_Attachment]) -> None:
    runtime.calls = calls = _calls_of(found)
    _equipped.add(runtime)
    _equip_engine(runtime.engine, calls)
    if calls.waited is not None or calls.logs:
        vars(runtime)["wait_for"] = _wait_of(partial(type(runtime).wait_for, runtime), calls)
    else:
        vars(runtime).pop("wait_for", None)
    tells = any(callable(getattr(one.observer, name, None)) for one in found for name in METHODS[6:])
    runtime.notify = calls if tells else None
    for place in runtime.places:
        place.calls, place.notify = calls, runtime.notify
        place.__class__ = ObservedPlace
    for log in calls.logs:
        if log.wants_starts:
            set_up(log, runtime)


def _number_of(places: Sequence[DevicePlace], array: Any) -> int | None:
    return next((place.device.number for place in places if place.device.is_array(array)), None)


def leave(runtime: Any) -> None:
    """Take the equipment of a runtime back, which is closed."""
    with _lock:
        if runtime.calls is not None:
            for log in runtime.calls.logs:
                log.name_threads()
                settle(log, [place.device for place in runtime.places])
        _attached[:] = [one for one in _attached if one.runtime is not runtime]
        _strip(runtime)
        _replace_methods()
        _labelled.cache_clear()  # its sites keep their runtimes


def name_thread(runtime: Any, thread: threading.Thread) -> None:
    """Note the name of a thread that uses a runtime: it may have ended when the reports are made."""
    calls = runtime.calls  # the observers may go meanwhile
    if calls is not None:
        for log in calls.logs:
            log.name_thread(thread)


def _replace_methods() -> None:
    needs = {"any"} if _equipped else set()
    if any(runtime.calls.task_started is not None for runtime in _equipped):
        needs.add("starts")
    if any(log.wants_kinds for runtime in _equipped for log in runtime.calls.logs):
        needs.add("kinds")
    hooked.replace(needs)


def _strip(runtime: Any) -> None:
    if runtime.calls is None:
        return
    runtime.calls = runtime.notify = None
    _equipped.discard(runtime)
    _strip_engine(runtime.engine)
    vars(runtime).pop("wait_for", None)
    for place in runtime.places:
        place.notify, place.calls = None, NO_CALLS
        if place.__class__ is ObservedPlace:
            place.__class__ = DevicePlace  # type: ignore[assignment]  # its former class


def _calls_of(found: Sequence[_Attachment]) -> Calls:
    """Return the calls of several observers together."""
    together: dict[str, Any] = {}
    for name in METHODS:
        calls = [call for one in found if (call := one.call(name)) is not None]
        together[name] = calls[0] if len(calls) == 1 else _chain(calls) if calls else None
    result = Calls(**together)
    result.logs = tuple([one.observer for one in found if isinstance(one.observer, TaskLog)])
    return result


def _chain(calls: Sequence[Callable[..., None]]) -> Callable[..., None]:
    def call(*args: Any) -> None:
        for each in calls:
            each(*args)

    return call


# -- host tasks: the engine ------------------------------------------------------------------------
def _equip_engine(engine: Engine, calls: Calls) -> None:
    """Give an engine the class that its observers need, and links that note edges."""
    logs = calls.logs
    if len(logs) != 1 or calls.task_created is not None or calls.task_completed is not None:
        if engine.__class__ is Engine or not logs:
            _give(engine, calls)
        else:  # with the fields of the class before: a thread may be in one of its methods, and the log stays
            engine.calls = calls  # type: ignore[attr-defined]  # it is observed
        engine.__class__ = ObservedEngine
    else:
        _give(engine, calls, logs[0])
        engine.__class__ = LoggedEngine if logs[0].wants_starts else CountedEngine
    edges = [log for log in logs if log.wants_starts]
    engine.follow, engine.follows_launched = _links_of(edges) if edges else (follow, follows_launched)


def _strip_engine(engine: Engine) -> None:
    engine.__class__ = Engine
    engine.follow, engine.follows_launched = follow, follows_launched
    _give(engine, NO_CALLS)


def _give(engine: Any, calls: Calls, log: TaskLog | None = None) -> None:
    """Give an engine the fields of all observed engines.

    Observers come and go while threads work, so a method of one class may find the fields of another. Therefore all
    have all fields. A field that no observer wants does nothing, and no field takes arguments of two kinds.
    """
    engine.calls = calls
    engine.log_end = nothing if log is None else log.note_end
    engine.log_task = nothing if log is None or not log.wants_starts else log.tasks.extend
    engine.count_task = nothing if log is None or log.wants_starts else log.done.append
    engine.log_handles = {} if log is None else log.handles


# The engine's own methods, as functions: a call by way of `super` takes 0.1 µs more.
_submit, _finish, _wait = Engine.submit, Engine.finish, Engine.wait
_finish_special = Engine._finish_special  # noqa: SLF001  # a subclass overrides it below


class ObservedEngine(Engine):
    """The engine of a runtime that is observed; `_give` sets the fields."""

    calls: Calls
    log_end: Callable[..., None]
    log_task: Callable[[Any], None]
    count_task: Callable[[Any], None]
    log_handles: dict[Any, float]

    def submit(self, task: Task, dependences: Any, orderings: Any = (), follows: Any = ()) -> bool:
        task.created_s, task.maker = perf_counter(), get_ident()
        task.note_number()
        calls = self.calls
        for log in calls.logs:
            if dependences and log.wants_starts:
                log.handles[ref(task)] = task.created_s
        if calls.task_created is not None:
            calls.task_created(task)
        return _submit(self, task, dependences, orderings, follows)

    def finish(self, task: Task, failure: BaseException | None = None, failed: TaskState = _FAILED) -> Task | None:
        calls = self.calls
        for log in calls.logs:
            log.note_end(task, failure, failed)
        if calls.task_completed is not None:
            task.special = True
            _telling[task] = get_ident()
        try:
            return _finish(self, task, failure, failed)
        finally:
            _telling.pop(task, None)

    def _finish_special(self, task: Task) -> None:
        """Report that a task is complete: its state and failure are visible, and no thread that sleeps has gone on."""
        if self.calls.task_completed is not None:
            self.calls.task_completed(task)
        _telling.pop(task, None)
        _finish_special(self, task)  # not by `super`: the observer may have gone by now, and this class with it

    def wait(self, scope: Any, goal: Any, *, helps: bool = True) -> None:
        with _waiting(self.calls, goal):
            _wait(self, scope, goal, helps=helps)


class LoggedEngine(ObservedEngine):
    """The engine of a runtime that a single log observes: the most frequent tasks cost as little as possible."""

    def submit(self, task: Task, dependences: Any, orderings: Any = (), follows: Any = ()) -> bool:
        task.created_s, task.maker = perf_counter(), get_ident()
        if dependences:
            self.log_handles[ref(task)] = task.created_s
        return _submit(self, task, dependences, orderings, follows)

    def finish(self, task: Task, failure: BaseException | None = None, failed: TaskState = _FAILED) -> Task | None:
        if task.special or failure is not None or task.__class__ is not Task:
            self.log_end(task, failure, failed)
        else:
            try:
                self.log_task((task.construct, task.created_s, task.start_s, task.end_s, get_ident(), task.maker))
            except AttributeError:  # generated before it was observed
                self.log_end(task, failure, failed)
        return _finish(self, task, failure, failed)


class CountedEngine(ObservedEngine):
    """The engine of a runtime whose tasks are only counted."""

    submit = Engine.submit

    def finish(self, task: Task, failure: BaseException | None = None, failed: TaskState = _FAILED) -> Task | None:
        if task.__class__ is Task:
            self.count_task(task.construct)
        else:
            self.log_end(task, failure, failed)
        return _finish(self, task, failure, failed)


@contextmanager
def _waiting(calls: Calls, goal: Any) -> Iterator[None]:
    start_s = perf_counter()
    try:
        yield
    finally:
        end_s = perf_counter()
        what = str(goal)
        for log in calls.logs:
            if log.wants_starts:
                log.waits.append((what, get_ident(), start_s, end_s))
        if calls.waited is not None:
            calls.waited(what, end_s - start_s)


def _made_in(log: TaskLog, reference: Any) -> float | None:
    """Return when a task was generated that may be gone; None if the log has not seen it."""
    with suppress(TypeError):  # it was gone before its hash was asked for
        return log.handles.get(reference)
    return None


def _links_of(logs: Sequence[TaskLog]) -> tuple[Any, Any]:
    """Return functions that note the edges of a task, and make it follow the tasks that the tracker has found."""

    def note(task: Task, found: Sequence[Any]) -> None:
        if not hasattr(task, "created_s"):  # it was generated before the runtime was observed
            return
        for log in logs:
            for reference in found:
                other = reference()  # without a time it is no task of the program's
                made_s = _made_in(log, reference) if other is None else getattr(other, "created_s", None)
                if made_s is not None and made_s != task.created_s:
                    log.edges.extend((made_s, task.created_s))

    def observed_follow(engine: Any, task: Task, found: Sequence[Any]) -> bool:
        note(task, found)
        return follow(engine, task, found)

    def observed_follows_launched(task: Task, found: Sequence[Any]) -> bool:
        if not follows_launched(task, found):
            return False  # `follow` is asked next
        note(task, found)
        return True

    return observed_follow, observed_follows_launched


def _wait_of(plain: Any, calls: Calls) -> Any:
    """Return the way in which an observed runtime waits."""

    def wait_for(scope: Any, goal: Any) -> None:
        with _waiting(calls, goal):
            plain(scope, goal)

    return wait_for


@lru_cache(maxsize=1024)
def _labelled(site: Site, name: str) -> Site:
    """Return a site for the tasks of one that have this label."""
    found = Site(site.directive, name, site.where, site.runtime, is_target=site.is_target)
    found.caller = site.caller
    return found


def _observed_mark(plain: Any) -> Any:
    def mark(self: Recipe, task: Task) -> None:
        plain(self, task)
        if self.label is not None:  # then the end of a task need not look for a label
            task.construct = _labelled(task.construct, self.label)

    return mark


hooked.register(Recipe, "_mark", _observed_mark)


def _observed_advance(plain: Any) -> Any:
    def advance(self: Task, engine: Any, scope: Any) -> Task | None:
        if (self.special or engine.can_cancel) and engine.hinders(self):
            return None
        try:
            hooked.tell_start(self)
            return plain(self, engine, scope)  # type: ignore[no-any-return]
        finally:
            del self  # its failure has the frame of the body, which keeps the frames of its callers

    return advance


hooked.register(Task, "advance", _observed_advance, "starts")


def _observed_end_of_body(plain: Any) -> Any:
    def body_ended(self: Task, engine: Any, failure: BaseException | None) -> Task | None:
        event = self.event
        if event is not None and failure is None:  # the event sets `end_s`, on another thread
            is_request = hasattr(getattr(event, "source", None), "requests")
            self.left = perf_counter(), get_ident(), "request" if is_request else "detached"
        return plain(self, engine, failure)  # type: ignore[no-any-return]

    return body_ended


hooked.register(Task, "body_ended", _observed_end_of_body)


def _observed_add(plain: Any) -> Any:
    def add(self: Tracker, handle: Any, accesses: Sequence[Any], edges: Any = None) -> list[Any]:
        task: Any = handle() if isinstance(handle, ref) else None
        calls = None if task is None else task.construct.runtime.calls
        if edges is not None or calls is None or not hasattr(task, "created_s"):
            return plain(self, handle, accesses, edges)  # type: ignore[no-any-return]
        own: list[tuple[Any, str, Any]] = []
        found: list[Any] = plain(self, handle, accesses, own)
        for log in calls.logs:
            for before, kind, key in own:
                made_s = _made_in(log, before)
                if made_s is not None and made_s != task.created_s:
                    log.kinds.append((made_s, task.created_s, kind, _label_of(key, accesses)))
        return found

    return add


hooked.register(Tracker, "add", _observed_add, "kinds")


def _label_of(key: Any, accesses: Sequence[Any]) -> str:
    """Return the name that the clauses give to a location."""
    for access in accesses:
        for other, item in zip(access.keys or (), access.items, strict=False):
            if other == key:
                return label(item)
    return label(all_memory if key is None else key)


# -- device tasks ----------------------------------------------------------------------------------
class _Launching(threading.local):
    """The task that the calling thread launches."""

    task: Any = None


_launching = _Launching()


def _observed_launch(plain: Any) -> Any:
    def advance(self: DeviceTask, engine: Any, scope: Any) -> Task | None:
        outer, _launching.task = _launching.task, self
        try:
            return plain(self, engine, scope)  # type: ignore[no-any-return]
        finally:
            _launching.task = outer
            del self, outer  # its failure has the frame of the body, which keeps the frames of its callers

    return advance


def _observed_begin(plain: Any) -> Any:
    def begin(self: DeviceTask) -> bool:
        goes_on: bool = plain(self)
        calls = self.construct.runtime.calls
        if calls is not None and self.lane is not None:
            if calls.task_started is not None:
                calls.task_started(self)
            if self.body is None and self.construct.directive == "taskgraph":
                _tell_launch(self, calls)
        return goes_on

    return begin


def _observed_body(plain: Any) -> Any:
    def run(self: DeviceTask, *args: Any) -> BaseException | None:
        calls = self.construct.runtime.calls
        if calls is None:
            return plain(self, *args)  # type: ignore[no-any-return]
        _tell_launch(self, calls)
        logs = [log for log in calls.logs if log.wants_starts]
        if not logs:
            return plain(self, *args)  # type: ignore[no-any-return]
        first, start_s = stamp(self.place, self.lane), perf_counter()
        try:
            return plain(self, *args)  # type: ignore[no-any-return]
        finally:
            last = stamp(self.place, self.lane)
            for log in logs:
                span = (self.number, self.place.device, log.lane_number(self.lane), first, last, "", 0, self.name)
                log.spans.append(("body", *span))
                log.spans.append(("launch", *span[:2], get_ident(), start_s, perf_counter(), *span[5:]))

    return run


def _tell_launch(task: DeviceTask, calls: Calls) -> None:
    site = task.construct
    queue = None if task.queue is None else task.queue.number
    calls.launch(site.directive, task.name, site.location, task.device_num, queue)


hooked.register(DeviceTask, "advance", _observed_launch)
hooked.register(DeviceTask, "_begin", _observed_begin)
hooked.register(DeviceTask, "_run_body", _observed_body)
hooked.register(DeviceTask, "_append_body", _observed_body)


# As with the engine: the class may be another one before `super` is asked.
_begin_update, _commit = DevicePlace._begin_update, DevicePlace._commit  # noqa: SLF001


class ObservedPlace(DevicePlace):
    """The place of a device in a runtime that is observed; its observers may go in the middle of a method."""

    def copy(self, dst: Any, src: Any, lane: Lane, staged: list[Any], text: object = None) -> None:
        calls = self.calls
        logs = calls.logs
        is_timed = any(log.wants_starts for log in logs)
        first = stamp(self, lane) if is_timed else None
        copy = self.device.copy(dst, src, lane.stream)
        calls.copy(dst, src, self.device.number, lane.number if lane.of_queue else None, text)
        direction = "to" if isinstance(src, np.ndarray) else "from" if isinstance(dst, np.ndarray) else "device"
        task = _launching.task
        nbytes = int(dst.nbytes)
        if calls.copied is not None:
            calls.copied(task, direction, nbytes)
        for log in logs:
            if not log.wants_starts:
                log.note_copy(self.device, direction, nbytes)
                continue
            number = task.number if task is not None else 0
            at = number, self.device, log.lane_number(lane)
            label = text if isinstance(text, str) else "" if text is None else str(text)
            if copy is None:
                last = stamp(self, lane)
                log.spans.append(("copy", *at, first, last, direction, nbytes, label))
            else:
                copy = TimedCopy(copy, noter(log, at, direction, nbytes, label))
        if copy is not None:
            staged.append(copy)

    def _begin_update(self, plan: Plan, lane: Lane, enqueuers: Enqueuers) -> Any:
        return _begin_update(self, plan, lane, None)  # each copy is told of, in no hold of the lock

    def _commit(self, plan: Plan, lane: Lane, staged: list[Any]) -> None:
        _commit(self, plan, lane, staged)
        calls = self.calls
        mapped, task = calls.mapped, _launching.task
        for event, entries in (("alloc", plan.created), ("delete", getattr(plan, "removed", ()))):
            for entry in entries:
                if mapped is not None:
                    mapped(task, str(entry.label), int(entry.nbytes), event)
                nbytes = int(entry.nbytes) if event == "alloc" else -int(entry.nbytes)
                for log in calls.logs:
                    if log.wants_starts:
                        log.maps.append((perf_counter(), self.device.number, nbytes))


@in_forked_child
def _after_fork() -> None:
    """Forget the logs of the parent, and its runtimes; an observer of the program goes on in the child."""
    global _lock  # noqa: PLW0603  # another thread of the parent may have it
    _lock = threading.RLock()
    _attached[:] = [one for one in _attached if one.runtime is None and not isinstance(one.observer, TaskLog)]
    _equipped.clear()
    hooked.replace({"any", "starts"} if _attached else ())
