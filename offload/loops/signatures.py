"""The clauses of loop functions as type checkers, editors and `inspect.signature` see them.

`offload.constructs.clauses.signatures` describes the parts of such a file, which no program imports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypedDict, overload

from offload.constructs.clauses import signatures
from offload.constructs.clauses.signatures import DependKeywords, Encountered, P, R_co, RegionKeywords, V_co

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from typing import Self, Unpack

    from offload.constructs.clauses.signatures import Devices, Number
    from offload.loops.explain import LoopReport
    from offload.loops.proofs.dependences import DependenceProfile
    from offload.tasks.task import Task

# -- values ----------------------------------------------------------------------------------------

Names: TypeAlias = "str | Sequence[str] | AbstractSet[str] | None"
"""Names of parameters and variables; one stands for a list of one."""

LoopReductions: TypeAlias = "Mapping[str, Names] | None"
"""Names by operator: ``{"+": ["s"]}``."""

ScheduleKind: TypeAlias = Literal["static", "dynamic", "guided"]
"""How iterations are divided among threads."""

Level: TypeAlias = "bool | Number | None"
"""Whether iterations fall on this level of a device, or on how many units."""

DEFAULTS: dict[str, Any] = {
    "map": (),
    "collapse": 1,
    "reduction": None,
    "private": (),
    "firstprivate": (),
    "lastprivate": (),
    "atomic": (),
    "schedule": None,
    "num_threads": None,
    "num_teams": None,
    "thread_limit": None,
    "num_gangs": None,
    "num_workers": None,
    "vector_length": None,
    "gang": False,
    "worker": False,
    "vector": False,
    "seq": False,
    "independent": False,
    "auto": False,
    "tile": None,
    "cache": (),
    "check": False,
    "speculate": False,
    "bounds": "auto",
    "fastmath": False,
    "reassociate": False,
    "devices": None,
    "filter": "auto",
    "exchange": "lazy",
    **signatures.DEFAULTS,
}
"""As in `offload.constructs.clauses.signatures`."""

# -- clauses ---------------------------------------------------------------------------------------


class IterationKeywords(TypedDict, total=False):
    """The clauses of every loop construct but those of the same name as `offload.target` has."""

    collapse: Number | None
    reduction: LoopReductions
    lastprivate: Names
    atomic: Names
    schedule: ScheduleKind | tuple[ScheduleKind, Number | None] | None
    num_threads: Number | None
    num_teams: Number | None
    thread_limit: Number | None
    num_gangs: Number | None
    num_workers: Number | None
    vector_length: Number | None
    gang: Level
    worker: Level
    vector: Level
    seq: bool | None
    independent: bool | None
    auto: bool | None
    tile: Sequence[int] | None
    cache: str | Sequence[str] | None
    check: bool | None
    bounds: Literal["auto", False]
    fastmath: Literal[False, "contract", "fast"]
    reassociate: bool | None


class DeviceLoopKeywords(IterationKeywords, total=False):
    """Those, with the clauses of loops on devices."""

    devices: Devices
    filter: Literal["auto", "always", "never"]
    exchange: Literal["lazy", "eager"]
    speculate: bool | Literal["always"] | DependenceProfile | None


class HostLoopKeywords(DependKeywords, IterationKeywords, total=False):
    """The clauses of `offload.parallel_loop`, without ``nowait``."""

    private: Names
    firstprivate: Names


class HostLoopClauses(HostLoopKeywords, total=False):
    """The clauses of `offload.parallel_loop`."""

    nowait: bool


class TargetLoopKeywords(RegionKeywords, DeviceLoopKeywords, total=False):
    """The clauses of `offload.target_loop`, without ``nowait``."""


class TargetLoopClauses(TargetLoopKeywords, total=False):
    """The clauses of `offload.target_loop`."""

    nowait: bool


# -- functions under a directive -------------------------------------------------------------------


class LoopCall(Encountered[P, V_co], Generic[P, R_co, V_co]):
    """A loop function. It is no method: loops cannot use ``self``."""

    __wrapped__: Callable[P, R_co]

    @property
    def python(self) -> Callable[P, R_co]:
        """The undecorated function."""
        raise NotImplementedError

    def compile(self, *args: Any, device: int | None = None, **kwargs: Any) -> None:
        """Compile the loop for such arguments; run nothing."""

    def source(self, *args: Any, device: int | None = None, **kwargs: Any) -> str:
        """Return the C, or CUDA, that the loop becomes for such arguments."""
        raise NotImplementedError

    def explain(self, *args: Any, device: int | None = None, **kwargs: Any) -> LoopReport:
        """Return the report on the loop for such arguments."""
        raise NotImplementedError


class TargetLoopCall(LoopCall[P, R_co, V_co]):
    """A function under `offload.target_loop`."""

    @overload
    def options(
        self, *, nowait: Literal[True], **clauses: Unpack[TargetLoopKeywords]
    ) -> TargetLoopCall[P, R_co, Task[R_co]]: ...
    @overload
    def options(
        self, *, nowait: Literal[False], **clauses: Unpack[TargetLoopKeywords]
    ) -> TargetLoopCall[P, R_co, R_co]: ...
    @overload
    def options(self, *, nowait: bool, **clauses: Unpack[TargetLoopKeywords]) -> TargetLoopCall[P, R_co, Any]: ...
    @overload
    def options(self, **clauses: Unpack[TargetLoopKeywords]) -> Self: ...
    def options(self, **clauses: Any) -> Any:
        """Return a copy with these clauses replaced."""


class HostLoopCall(LoopCall[P, R_co, V_co]):
    """A function under `offload.parallel_loop`."""

    @overload
    def options(
        self, *, nowait: Literal[True], **clauses: Unpack[HostLoopKeywords]
    ) -> HostLoopCall[P, R_co, Task[R_co]]: ...
    @overload
    def options(
        self, *, nowait: Literal[False], **clauses: Unpack[HostLoopKeywords]
    ) -> HostLoopCall[P, R_co, R_co]: ...
    @overload
    def options(self, *, nowait: bool, **clauses: Unpack[HostLoopKeywords]) -> HostLoopCall[P, R_co, Any]: ...
    @overload
    def options(self, **clauses: Unpack[HostLoopKeywords]) -> Self: ...
    def options(self, **clauses: Any) -> Any:
        """Return a copy with these clauses replaced."""
