"""The clauses of OpenMP's constructs as type checkers, editors and `inspect.signature` see them.

A program never imports this file. Type checkers read it, and `offload.runtime.keywords.shows_clauses` imports it when
somebody asks for a signature. At run time the tables of checks say which clauses exist. A test compares both.

A class ``…Clauses`` has all clauses of a construct. A class ``…Keywords`` lacks the clause that decides the type of a
call's result, such as ``nowait``; overloads name that clause. A class ``…Call`` is the result of a decorator. A call of
it takes the parameters of the function.
"""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypedDict,
    TypeVar,
    overload,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
    from typing import Self, Unpack

    import numpy as np

    from offload.constructs.clauses.dependences import Dependence, DepObj
    from offload.constructs.clauses.maps import MapClause
    from offload.events.event import Event
    from offload.tasks.task import Task

# -- values ----------------------------------------------------------------------------------------

ListItem: TypeAlias = Any
"""An array of any library, a view or section of one, an object with a mapper; a string in clauses of decorators."""

ListItems: TypeAlias = "ListItem | Sequence[ListItem]"
"""List items; one stands for a list of one."""

Maps: TypeAlias = "MapClause | ListItem | Sequence[MapClause | ListItem]"
"""`to(…)`, `from_(…)`, `tofrom(…)` and so on; a bare list item has the construct's own map type."""

Depends: TypeAlias = "Dependence | DepObj | Sequence[Dependence | DepObj]"
"""`in_(…)`, `out(…)`, `inout(…)`, `mutexinoutset(…)`, `inoutset(…)`, or a `depobj`."""

Reductions: TypeAlias = "Mapping[str, ListItems] | None"
"""List items by operator: ``{"+": [total]}``."""

Truth: TypeAlias = "bool | int | np.bool_"
"""A condition, as C has it."""

Number: TypeAlias = "int | np.integer[Any]"
"""A whole number, of Python or NumPy."""

Devices: TypeAlias = 'Literal["all"] | Sequence[int] | np.ndarray[Any, Any] | None'
"""Device numbers of one kind, the primary's first."""

Behaviour: TypeAlias = Literal["alloc", "to", "from", "tofrom", "firstprivate", "none", "present", "default"]
"""The behaviours of ``defaultmap``."""

Category: TypeAlias = Literal["scalar", "aggregate", "pointer", "all"]
"""The categories of ``defaultmap``."""

DEFAULTS: dict[str, Any] = {
    "map": (),
    "firstprivate": (),
    "private": (),
    "is_device_ptr": (),
    "has_device_addr": (),
    "arrays": None,
    "defaultmap": "default",
    "graph_id": None,
    "graph_reset": False,
    "grainsize": None,
    "num_tasks": None,
    "strict": False,
    "reduction": None,
    "in_reduction": None,
    "depend": (),
    "detach": None,
    "nowait": False,
    "nogroup": False,
    "device": None,
    "if_": True,
    "final": False,
    "priority": 0,
    "name": None,
}
"""What each clause says if it is not given, in the order in which signatures show them. To give a clause this value
changes nothing."""

# -- clauses ---------------------------------------------------------------------------------------


class NameKeyword(TypedDict, total=False):
    """The label of tasks in graphs, traces and errors."""

    name: str | None


class TaskingKeywords(NameKeyword, total=False):
    """The clauses of all constructs that generate tasks."""

    if_: Truth
    priority: Number


class DependKeywords(TaskingKeywords, total=False):
    """Those, with ``depend``."""

    depend: Depends


class RegionKeywords(DependKeywords, total=False):
    """The clauses that target regions and loops on a device have in common, without ``nowait``."""

    map: Maps
    device: Number | None
    firstprivate: ListItems
    private: ListItems
    is_device_ptr: ListItems
    has_device_addr: ListItems
    defaultmap: Behaviour | Mapping[Category, Behaviour]


class TargetKeywords(RegionKeywords, total=False):
    """The clauses of `offload.target`, without ``nowait``."""

    arrays: Literal["cupy", "torch"] | None


class TargetRegionClauses(TargetKeywords, total=False):
    """The clauses of `offload.target`."""

    nowait: bool


class TaskClauses(DependKeywords, total=False):
    """The clauses of `offload.task`."""

    detach: Event | None
    final: bool
    in_reduction: Reductions


class SplitKeywords(TaskingKeywords, total=False):
    """The clauses of `offload.taskloop`, without ``nogroup`` and reductions."""

    grainsize: Number | None
    num_tasks: Number | None
    strict: bool
    final: bool


class TaskloopKeywords(SplitKeywords, total=False):
    """The clauses of `offload.taskloop`, without ``nogroup``."""

    reduction: Reductions
    in_reduction: Reductions


class TaskloopClauses(TaskloopKeywords, total=False):
    """The clauses of `offload.taskloop`."""

    nogroup: bool


class TaskgraphClauses(NameKeyword, total=False):
    """The clauses of `offload.taskgraph`."""

    graph_id: Hashable
    graph_reset: bool
    if_: Truth
    nogroup: bool


class DataKeywords(TypedDict, total=False):
    """The clauses of data constructs that are calls, without ``map`` and ``nowait``."""

    depend: Depends
    device: Number | None
    devices: Devices
    if_: Truth


class UpdateKeywords(DataKeywords, total=False):
    """The clauses of `offload.target_update`, without ``nowait``."""

    to: ListItems
    from_: ListItems
    present: bool


# -- functions under a directive -------------------------------------------------------------------

P = ParamSpec("P")  # the parameters of the body
Q = ParamSpec("Q")  # the same without the first, of a method
R = TypeVar("R")  # what the body returns
R_co = TypeVar("R_co", covariant=True)
"""What the body returns."""
V_co = TypeVar("V_co", covariant=True)
"""What a call returns."""


class Encountered(Generic[P, V_co]):
    """A function whose calls encounter a construct. An argument may be a `Task` whose value the body gets."""

    __name__: str
    __qualname__: str

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> V_co: ...
    @overload
    def __call__(self, task: Task, /, *args: Any, **kwargs: Any) -> V_co: ...
    @overload
    def __call__(self, first: Any, task: Task, /, *args: Any, **kwargs: Any) -> V_co: ...
    @overload
    def __call__(self, first: Any, second: Any, task: Task, /, *args: Any, **kwargs: Any) -> V_co: ...
    @overload
    def __call__(self, first: Any, second: Any, third: Any, task: Task, /, *args: Any, **kwargs: Any) -> V_co: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Encounter the construct."""


class TargetCall(Encountered[P, V_co], Generic[P, R_co, V_co]):
    """A function under `offload.target`."""

    __wrapped__: Callable[P, R_co]

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(
        self: TargetCall[Concatenate[Any, Q], R_co, V_co], instance: object, owner: type | None = None
    ) -> TargetCall[Q, R_co, V_co]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Bind like a function."""

    @overload
    def options(
        self, *, nowait: Literal[True], **clauses: Unpack[TargetKeywords]
    ) -> TargetCall[P, R_co, Task[R_co]]: ...
    @overload
    def options(self, *, nowait: Literal[False], **clauses: Unpack[TargetKeywords]) -> TargetCall[P, R_co, R_co]: ...
    @overload
    def options(self, *, nowait: bool, **clauses: Unpack[TargetKeywords]) -> TargetCall[P, R_co, Any]: ...
    @overload
    def options(self, **clauses: Unpack[TargetKeywords]) -> Self: ...
    def options(self, **clauses: Any) -> Any:
        """Return a copy with these clauses replaced."""


class TaskCall(Encountered[P, "Task[R_co]"], Generic[P, R_co]):
    """A function under `offload.task`."""

    __wrapped__: Callable[P, Any]

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(
        self: TaskCall[Concatenate[Any, Q], R_co], instance: object, owner: type | None = None
    ) -> TaskCall[Q, R_co]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Bind like a function."""

    def options(self, **clauses: Unpack[TaskClauses]) -> Self:
        """Return a copy with these clauses replaced."""
        raise NotImplementedError


class TaskDecorator(Protocol):
    """The decorator that `offload.task` with clauses returns; the task of an ``async def`` has the awaited value."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> TaskCall[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskCall[P, R]: ...
    def __call__(self, function: Any, /) -> Any:
        """Decorate a function."""


class TaskloopCall(Generic[P, R_co, V_co]):
    """A function under `offload.taskloop`: a call takes the whole range in place of a part of it."""

    __name__: str
    __qualname__: str
    __wrapped__: Callable[Concatenate[Any, P], R_co]

    def __call__(self, iterable: Iterable[Any], /, *args: P.args, **kwargs: P.kwargs) -> V_co:
        """Encounter the construct."""
        raise NotImplementedError

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(
        self: TaskloopCall[Concatenate[Any, Q], R_co, V_co], instance: object, owner: type | None = None
    ) -> TaskloopCall[Q, R_co, V_co]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Bind like a function."""

    @overload
    def options(
        self, *, nogroup: Literal[True], **clauses: Unpack[SplitKeywords]
    ) -> TaskloopCall[P, R_co, list[Task[R_co]]]: ...
    @overload
    def options(self, *, nogroup: Literal[False], **clauses: Unpack[SplitKeywords]) -> TaskloopCall[P, R_co, None]: ...
    @overload
    def options(self, **clauses: Unpack[SplitKeywords]) -> Self: ...
    @overload
    def options(self, **clauses: Unpack[TaskloopClauses]) -> TaskloopCall[..., R_co, Any]: ...
    def options(self, **clauses: Any) -> Any:
        """Return a copy with these clauses replaced."""


class TaskgraphCall(Generic[P]):
    """A function under `offload.taskgraph`."""

    __name__: str
    __qualname__: str
    __wrapped__: Callable[P, Any]
    records: tuple[Any, ...]  # of `offload.constructs.taskgraph.Record`, which imports this file

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Encounter the construct."""

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(
        self: TaskgraphCall[Concatenate[Any, Q]], instance: object, owner: type | None = None
    ) -> TaskgraphCall[Q]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Bind like a function."""

    def options(self, **clauses: Unpack[TaskgraphClauses]) -> Self:
        """Return a copy with these clauses replaced."""
        raise NotImplementedError
