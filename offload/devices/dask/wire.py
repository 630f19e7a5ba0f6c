"""The format of plans, which the client sends to workers, and of the reports that come back.

Everything here is plain tuples, so that pickling a plan takes microseconds per node. One segment shares its objects:
a view that a hundred nodes use is sent once.
"""

from __future__ import annotations

from time import perf_counter, time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypeAlias

    import numpy as np

    # An operation: its name, and its arguments, which `Op` lists.
    Operation: TypeAlias = tuple[Any, ...]
    # How a node has ended: one of the kinds of `Ended`, with its detail.
    End: TypeAlias = tuple[str, Any]
    # When the stream got to the `Op.TIME` of a node, in seconds of the clock that all machines have.
    NodeTimes: TypeAlias = Sequence[float | None]


def common_clock_s() -> float:
    """Return what to add to `perf_counter` for the clock that all machines have; of three readings, the closest one."""
    found = []
    for _ in range(3):
        before_s, at_s, after_s = perf_counter(), time(), perf_counter()
        found.append((after_s - before_s, at_s - (before_s + after_s) / 2))
    return min(found)[1]


class RemoteView(NamedTuple):
    """An array in the memory of a device of a worker.

    ``block`` is the number of its allocation. ``nbytes`` is the size of an allocation that the worker makes at its
    first use, and 0 if an operation makes it. Strides are in bytes, and so is ``offset``, of the first element.
    """

    block: int
    nbytes: int
    device: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]


class Op:
    """The names of operations, with their arguments."""

    ALLOC = "alloc"  # block, nbytes, whether the construct releases it as a mapping
    FILL = "fill"  # view, value
    POISON = "poison"  # view, dtype
    IN = "in"  # view, number of the host array among the segment's data
    OUT = "out"  # view, number of the copy among the segment's
    MOVE = "move"  # view, view: between devices of the worker
    INDEXED = "indexed"  # view, view, view or None, view or None: `Device.copy_indexed`
    EXPORT = "export"  # view, number of the export, which is unique in the runtime
    IMPORT = "import"  # view, number of the export
    TIME = "time"  # the client's list for it: note when the stream gets here
    CALL = "call"  # number of the body, arguments, named arguments, whether these two are pickled


class Ended:
    """The ways in which a node ends."""

    OK = "ok"  # the value, if it is plain; else as a `Pickled`
    FAILED = "failed"  # the exception, as a `Carried`
    NOT_RUN = "not run"  # the number of the node that failed, on which this one depends
    MISSING = "missing"  # the number of a block that was to be made by a node that failed
    LOST = "lost"  # the labels of the data that was there; only the client says so


class Pickled(NamedTuple):
    """A value of a body, pickled by the worker."""

    data: bytes


class Carried(NamedTuple):
    """An exception on its way to the client: pickled, or by its type and text; and its traceback as text."""

    data: bytes | None
    text: str
    trace: str


class Rebuilt:
    """Pickles an exception whose class takes other arguments than it keeps: it is made again without ``__init__``."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __reduce__(self) -> Any:
        return rebuilt, (type(self._error), self._error.args, self._error.__dict__)


def rebuilt(kind: type[BaseException], args: tuple[Any, ...], attributes: dict[str, Any]) -> BaseException:
    """Return the exception of a `Rebuilt`."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


class WireNode(NamedTuple):
    """A node of a plan; ``depends`` and ``follows`` are numbers of nodes of this segment, or of earlier ones."""

    number: int
    device: int  # among the worker's
    depends: tuple[int, ...]
    follows: tuple[int, ...]
    operations: Sequence[Operation]
    site: int  # among the segment's
    name: str
    is_awaited: bool  # somebody waits for it: its end is reported at once


class WireSegment(NamedTuple):
    """The plan that a worker gets as one Dask task."""

    runtime: str  # the number of the client's runtime
    incarnation: str  # of the runtime's devices there; another one refuses the plan
    number: int
    attempt: int  # how often it has been sent before: it is sent again when another worker, which it needed, is lost
    freed: Sequence[int]  # blocks that nobody uses any more
    bodies: Mapping[int, bytes]  # functions that the worker does not have, pickled
    dropped: Sequence[int]  # functions that nobody calls any more
    sites: Sequence[tuple[str, str, str]]  # directive, name and location
    nodes: Sequence[WireNode]
    failed: Sequence[int]  # earlier nodes that are known to have failed, or not to have run
    data: Sequence[Any]  # host arrays; an int is the number of an argument of the segment's Dask task


class SegmentReport(NamedTuple):
    """The result of a segment: how its nodes have ended, copies to the client, copies to other workers, and times."""

    ends: dict[int, End]
    outs: dict[tuple[int, int], Any]
    exports: dict[int, Any]
    times: Mapping[int, NodeTimes]


def part_of(report: SegmentReport, exports: Sequence[int], *, for_client: bool) -> SegmentReport:
    """Return what one reader needs of a report: its exports and the failures; the client also needs ends and values."""
    ends = report.ends if for_client else {number: end for number, end in report.ends.items() if end[0] != Ended.OK}
    return SegmentReport(
        ends,
        report.outs if for_client else {},
        {number: report.exports[number] for number in exports if number in report.exports},
        report.times if for_client else {},
    )
