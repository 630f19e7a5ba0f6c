"""The engine and the handle of a task, as far as tasks and those who wait for them need to know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from offload.tasks.region import AnyTask

if TYPE_CHECKING:
    import threading
    from collections import deque
    from collections.abc import Callable
    from typing import Self

    from offload.tasks.region import Region
    from offload.tasks.scope import Parker, Scope
    from offload.tasks.states import TaskState

T = TypeVar("T")


class Completions(Protocol):
    """What finds out that device work has passed; `offload.events.gate.Gate` has the documentation."""

    def hurry(self) -> None: ...

    def relax(self) -> None: ...

    def look(self) -> object: ...

    def arrives(self, point: Any) -> bool: ...


class Handle(AnyTask, Protocol):
    """A task as its user has it; `offload.tasks.task.Task` has the documentation."""

    value: Any
    callbacks: list[Callable[[Self], Any]] | None

    def done(self) -> bool: ...

    def result(self, timeout: float | None = None) -> Any: ...

    def add_done_callback(self, fn: Callable[[Self], Any]) -> None: ...

    def watch(self) -> None: ...


class Runner(Protocol[T]):
    """The engine as its tasks, which are some ``T``, know it; `offload.tasks.engine.Engine` has the documentation."""

    can_cancel: bool
    lock: threading.Lock

    def hinders(self, task: T) -> bool: ...

    def adopt(self, frame: Region) -> None: ...

    def finish(self, task: T, failure: BaseException | None = None, failed: TaskState = ...) -> T | None: ...

    def end_in_turn(self, task: T, failure: BaseException, state: TaskState) -> None: ...

    def make_ready(self, task: T) -> None: ...

    def release_early(self, task: T) -> T | None: ...


class Crew(Protocol[T]):
    """The engine as coroutines that wait know it; `offload.tasks.engine.Engine` has the documentation."""

    lock: threading.Lock
    threads: list[threading.Thread]
    parked: deque[Parker]
    ready: Any
    coroutines: Any
    activity: int
    hang_s: float
    hurry: Callable[[], None]
    relax: Callable[[], None]

    def take(self) -> T | None: ...

    def execute(self, task: T | None, scope: Scope) -> None: ...

    def wake_one(self) -> None: ...

    def unlist(self, parker: Parker) -> None: ...


class Pool(Runner[T], Crew[T], Protocol[T]):
    """The engine as threads that wait know it; `offload.tasks.engine.Engine` has the documentation."""

    nested: list[Parker]
    takers: list[object]
    look: Callable[[], object] | None
    arrives: Callable[[Any], bool] | None
    staging: set[Any]
    gives_up: bool
    gives_up_bodies: bool

    @property
    def is_busy(self) -> bool: ...

    def leave_work(self) -> None: ...

    def take_descendant(self, frame: Region) -> T | None: ...

    def keep(self, task: T, error: BaseException) -> None: ...
