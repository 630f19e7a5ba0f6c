"""OpenACC's clauses as type checkers, editors and `inspect.signature` see them.

`offload.constructs.clauses.signatures` describes the parts of such a file, which no program imports. In place
of ``nowait``, ``async_`` decides the type of a call's result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, TypeAlias, TypedDict, overload

from offload.constructs.clauses.signatures import Encountered, NameKeyword, P, Q, R_co, V_co
from offload.loops import signatures
from offload.loops.signatures import DeviceLoopKeywords, LoopCall

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self, Unpack

    from offload.constructs.clauses.signatures import Depends, Devices, ListItems, Number, Reductions, Truth
    from offload.tasks.task import Task

# -- values ----------------------------------------------------------------------------------------

Async: TypeAlias = "Number | None"
"""An async-argument: a number of at least 0, True, `async_sync`, `async_noval`, `async_default`."""

NoQueue: TypeAlias = "Literal[False, -2] | None"
"""An async-argument that makes an operation synchronous; `async_sync` is -2."""

Wait: TypeAlias = "Number | Sequence[Number] | None"
"""Async-arguments; True for all queues."""

Strings: TypeAlias = "str | Sequence[str]"
"""List items of a function."""

DEFAULTS: dict[str, Any] = {
    "copy": (),  # data clauses
    "copyin": (),
    "copyout": (),
    "create": (),
    "present": (),
    "no_create": (),
    "delete": (),  # of `exit_data` alone
    "device_resident": (),  # of `declare` alone, as ``link`` is
    "link": (),
    "deviceptr": (),
    "default": None,  # for data in no clause
    "async_": None,  # queues
    "wait": (),
    "self_": False,
    **signatures.DEFAULTS,
    "pcopy": (),  # older spellings, last in signatures
    "pcopyin": (),
    "pcopyout": (),
    "pcreate": (),
    "present_or_copy": (),
    "present_or_copyin": (),
    "present_or_copyout": (),
    "present_or_create": (),
}
"""As in `offload.constructs.clauses.signatures`."""

# -- clauses ---------------------------------------------------------------------------------------


class CopyinClauses(TypedDict, total=False):
    """The data clauses that a beginning of data may have, without ``copy`` and ``copyout``."""

    copyin: ListItems
    pcopyin: ListItems
    present_or_copyin: ListItems
    create: ListItems
    pcreate: ListItems
    present_or_create: ListItems


class CopyoutClauses(TypedDict, total=False):
    """The spellings of ``copyout``."""

    copyout: ListItems
    pcopyout: ListItems
    present_or_copyout: ListItems


class ExitClauses(CopyoutClauses, total=False):
    """The data clauses of `offload.acc.exit_data`."""

    delete: ListItems


class RegionClauses(CopyinClauses, CopyoutClauses, total=False):
    """The data clauses of `offload.acc.data` and of compute regions."""

    copy: ListItems
    pcopy: ListItems
    present_or_copy: ListItems
    present: ListItems
    no_create: ListItems


class ParameterClauses(RegionClauses, total=False):
    """The clauses of `offload.acc.declare` for the parameters of a function."""

    deviceptr: ListItems


class DeclareClauses(ParameterClauses, total=False):
    """The clauses of `offload.acc.declare`."""

    device_resident: ListItems
    link: ListItems


class NamedClauses(TypedDict, total=False):
    """The clauses of `offload.acc.declare` for the parameters of a function, whose list items are strings."""

    copy: Strings
    pcopy: Strings
    present_or_copy: Strings
    copyin: Strings
    pcopyin: Strings
    present_or_copyin: Strings
    copyout: Strings
    pcopyout: Strings
    present_or_copyout: Strings
    create: Strings
    pcreate: Strings
    present_or_create: Strings
    present: Strings
    no_create: Strings
    deviceptr: Strings


class QueueKeywords(TypedDict, total=False):
    """The clauses of operations of queues that are calls, without ``async_``."""

    wait: Wait
    if_: Truth
    devices: Devices
    depend: Depends


class EnterKeywords(CopyinClauses, QueueKeywords, total=False):
    """The clauses of `offload.acc.enter_data`, without ``async_``."""

    device: Number | None


class ExitKeywords(ExitClauses, QueueKeywords, total=False):
    """The clauses of `offload.acc.exit_data`, without ``async_``."""

    device: Number | None
    finalize: bool


class MoveKeywords(QueueKeywords, total=False):
    """The clauses of `offload.acc.update`, without ``async_``."""

    self_: ListItems
    host: ListItems
    device: ListItems
    if_present: bool
    device_num: Number | None


class ComputeRegionKeywords(ParameterClauses, NameKeyword, total=False):
    """The clauses that compute regions and their loops share, without ``async_``."""

    default: Literal["none", "present"] | None
    if_: Truth
    self_: Truth
    wait: Wait
    device: Number | None
    depend: Depends
    private: ListItems
    firstprivate: ListItems
    num_gangs: Number | None
    num_workers: Number | None
    vector_length: Number | None


class ComputeKeywords(ComputeRegionKeywords, total=False):
    """The clauses of `offload.acc.parallel`, `kernels` and `serial`, without ``async_``."""

    reduction: Reductions


class AllComputeClauses(ComputeKeywords, total=False):
    """The clauses of `offload.acc.parallel`, `kernels` and `serial`."""

    async_: Async


class ComputeLoopKeywords(ComputeRegionKeywords, DeviceLoopKeywords, total=False):
    """The clauses of `offload.acc.parallel_loop` and `kernels_loop`, without ``async_``."""


class ComputeLoopClauses(ComputeLoopKeywords, total=False):
    """The clauses of `offload.acc.parallel_loop` and `kernels_loop`."""

    async_: Async


# -- functions under a directive -------------------------------------------------------------------


class ComputeCall(Encountered[P, V_co], Generic[P, R_co, V_co]):
    """A function under `offload.acc.parallel`, `kernels` or `serial`."""

    __wrapped__: Callable[P, R_co]

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(
        self: ComputeCall[Concatenate[Any, Q], R_co, V_co], instance: object, owner: type | None = None
    ) -> ComputeCall[Q, R_co, V_co]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Bind like a function."""

    @overload
    def options(self, *, async_: NoQueue, **clauses: Unpack[ComputeKeywords]) -> ComputeCall[P, R_co, R_co]: ...
    @overload
    def options(self, *, async_: Async, **clauses: Unpack[ComputeKeywords]) -> ComputeCall[P, R_co, Task[R_co]]: ...
    @overload
    def options(self, **clauses: Unpack[ComputeKeywords]) -> Self: ...
    def options(self, **clauses: Any) -> Any:
        """Return a copy with these clauses replaced."""


class ComputeLoopCall(LoopCall[P, R_co, V_co]):
    """A function under `offload.acc.parallel_loop` or `kernels_loop`."""

    @overload
    def options(self, *, async_: NoQueue, **clauses: Unpack[ComputeLoopKeywords]) -> ComputeLoopCall[P, R_co, R_co]: ...
    @overload
    def options(
        self, *, async_: Async, **clauses: Unpack[ComputeLoopKeywords]
    ) -> ComputeLoopCall[P, R_co, Task[R_co]]: ...
    @overload
    def options(self, **clauses: Unpack[ComputeLoopKeywords]) -> Self: ...
    def options(self, **clauses: Any) -> Any:
        """Return a copy with these clauses replaced."""


class DeclaredCall(Generic[P, R_co]):
    """A function under `offload.acc.declare`."""

    __name__: str
    __qualname__: str
    __wrapped__: Callable[P, R_co]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function in a data region."""
        raise NotImplementedError

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(
        self: DeclaredCall[Concatenate[Any, Q], R_co], instance: object, owner: type | None = None
    ) -> DeclaredCall[Q, R_co]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Bind like a function."""

    def options(self, **clauses: Unpack[ParameterClauses]) -> Self:
        """Return a copy with these clauses replaced."""
        raise NotImplementedError
