"""The runtime and its engine, as far as tasks and those who wait for them need to know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import threading
    from collections import deque
    from collections.abc import Callable, Sized

    from offload.events.gate import Gate
    from offload.events.observer import Calls
    from offload.tasks.parker import Parker
    from offload.tasks.region import AnyTask, Region, TaskSet
    from offload.tasks.states import TaskState

T = TypeVar("T")


class AnyRuntime(Protocol):
    """The runtime as its tasks know it; `offload.runtime.runtime.Runtime` has the documentation.

    `Scope`, `Task` and `Lane` stand above this file, and are ``Any`` here.
    """

    @property
    def engine(self) -> Pool[Any]: ...

    @property
    def gate(self) -> Gate: ...

    @property
    def calls(self) -> Calls | None: ...

    @property
    def has_mixed_kinds(self) -> bool: ...

    def scope(self) -> Any: ...

    def check_wait(self, task: Any) -> Any: ...

    def wait_for_task(self, task: Any, timeout_s: float | None) -> None: ...

    def note_wait(self, task: Any) -> None: ...

    def lane_of(self, stream: Any) -> Any: ...


class Completions(Protocol):
    """The object that finds out that device work has passed; `offload.events.gate.Gate` has the documentation."""

    def hurry(self) -> None: ...

    def relax(self) -> None: ...

    def look(self) -> object: ...

    def arrives(self, point: Any) -> bool: ...


class Runner(Protocol[T]):
    """The engine as its tasks, which are some ``T``, know it; `offload.tasks.engine.Engine` has the documentation."""

    can_cancel: bool
    lock: threading.Lock
    max_priority: int
    parkers: list[Parker]
    ready: Any

    def hinders(self, task: T) -> bool: ...

    def adopt(self, frame: Region) -> None: ...

    def finish(self, task: T, failure: BaseException | None = None, failed: TaskState = ...) -> T | None: ...

    def finish_elsewhere(self, task: T, failure: BaseException | None = None, failed: TaskState = ...) -> None: ...

    def end_in_turn(self, task: T, failure: BaseException, state: TaskState) -> None: ...

    def make_ready(self, task: T) -> None: ...

    def release_early(self, task: T) -> T | None: ...


class Crew(Protocol):
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

    def take_failures(self, tasks: TaskSet) -> list[AnyTask]: ...

    def execute(self, task: Any, scope: Any) -> bool: ...

    def wake_one(self) -> None: ...

    def unlist(self, parker: Parker) -> None: ...


class Pool(Runner[T], Crew, Protocol[T]):
    """The engine as threads that wait know it; `offload.tasks.engine.Engine` has the documentation."""

    closed: str
    nested: list[Parker]
    takers: list[object]
    look: Callable[[], object] | None
    arrives: Callable[[Any], bool] | None
    staging: set[Any]
    attends_s: float
    gives_up: bool
    gives_up_bodies: bool
    given_up: list[BaseException]

    def wait(self, scope: Any, goal: Any, *, helps: bool = ...) -> None: ...  # a `Goal`, which has tasks of all kinds

    @property
    def is_closed(self) -> bool: ...

    @property
    def is_busy(self) -> bool: ...

    def leave_work(self) -> None: ...

    def has_work(self, within: Region | None = None) -> bool: ...

    def run(
        self,
        scope: Any,
        task: T | None,
        goes_on: Any = ...,
        n_more: int = 0,
        *,
        within: Region | None = ...,
        pending: Sized = ...,
    ) -> int: ...
