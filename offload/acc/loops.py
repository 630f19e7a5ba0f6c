"""OpenACC's loops: ``parallel loop``, ``kernels loop``, ``loop`` and ``routine``.

A loop under one of the constructs is a compute region (`offload.acc.compute`) whose body starts the loop: its clauses
of data, queues and devices are the clauses of ``acc.parallel``, and clauses about iterations are handled by
`offload.loops`. ``acc.loop`` in a body is read with the text, and gives the range back when Python runs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from offload.acc.compute import ComputeFunction
from offload.constructs.call import decorate
from offload.constructs.clauses.maps import check_clauses
from offload.errors import ClauseError
from offload.loops.functions import DeviceLoop
from offload.loops.running.clauses import COMMON_CHECKS, DEVICE_CHECKS, check_order
from offload.loops.words import check_called
from offload.runtime.keywords import shows_clauses, takes_clauses

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeVar, Unpack

    from offload.acc.signatures import Async, ComputeLoopCall, ComputeLoopClauses, ComputeLoopKeywords, NoQueue
    from offload.constructs.clauses.signatures import Number, P, R
    from offload.loops.running.clauses import LoopWords
    from offload.loops.signatures import Level, LoopReductions, Names
    from offload.tasks.task import Task

    Function = TypeVar("Function", bound=Callable[..., Any])


class ComputeLoop(DeviceLoop, ComputeFunction):
    """A function whose calls are OpenACC compute regions around a loop."""

    _checks = {**ComputeFunction._checks, **DEVICE_CHECKS}  # noqa: RUF012, SLF001  # a table; its own base

    __slots__ = ()


class ParallelLoop(ComputeLoop):
    """A loop function under ``parallel loop``. `parallel_loop` makes it."""

    _directive = "acc parallel loop"
    __slots__ = ()


class KernelsLoop(ComputeLoop):
    """A loop function under ``kernels loop``. `kernels_loop` makes it."""

    _directive = "acc kernels loop"
    __slots__ = ()

    def _words(self, clauses: Mapping[str, Any]) -> LoopWords:
        # A kernels region may have several loops, and analysis decides which of them are parallel.
        words = super()._words(clauses)
        return words._replace(several=True, order=words.order or "auto")


@overload
def parallel_loop(
    function: Callable[P, R], /, *, async_: NoQueue = None, **clauses: Unpack[ComputeLoopKeywords]
) -> ComputeLoopCall[P, R, R]: ...
@overload
def parallel_loop(
    function: Callable[P, R], /, *, async_: Async, **clauses: Unpack[ComputeLoopKeywords]
) -> ComputeLoopCall[P, R, Task[R]]: ...
@overload
def parallel_loop(
    function: None = None, /, *, async_: NoQueue = None, **clauses: Unpack[ComputeLoopKeywords]
) -> Callable[[Callable[P, R]], ComputeLoopCall[P, R, R]]: ...
@overload
def parallel_loop(
    function: None = None, /, *, async_: Async, **clauses: Unpack[ComputeLoopKeywords]
) -> Callable[[Callable[P, R]], ComputeLoopCall[P, R, Task[R]]]: ...
@shows_clauses("offload.acc.signatures")
def parallel_loop(function: Callable[..., Any] | None = None, /, **clauses: Unpack[ComputeLoopClauses]) -> Any:
    """Make each call of a function a loop on the device: its iterations are independent.

    The function is a nest of ``for … in range(…)``, as for `offload.target_loop`. Write `acc.loop` around a range to
    give a loop clauses.

    Parameters
    ----------
    copy, copyin, copyout, create, present, no_create, deviceptr, default
        The clauses of `parallel`. An array in no clause is ``copyin`` if the loop only reads it. It is ``copyout`` if
        the loop provably writes all of it and reads none, and otherwise ``copy``.
    if_, self_, async_, wait, device, depend, name
        The clauses of `parallel`.
    gang, worker, vector : bool or int
        The levels of a device on which iterations run: blocks, rows of threads in a block, threads of a row. A number
        sets their size.
    num_gangs, num_workers, vector_length : int
        The same sizes, for all loops.
    seq, independent, auto : bool
        ``seq``: iterations run in order, and stop at the first that fails. ``independent``: iterations run in parallel,
        which is the default. ``auto``: iterations run in parallel if they are proved independent, and otherwise in
        order, with a `PerformanceWarning`.
    collapse : int
        The number of outermost, perfectly nested loops that form one iteration space.
    tile : tuple of int
        Form one iteration space of as many loops as there are numbers, and run it in blocks of these sizes.
    reduction, private, firstprivate, lastprivate, atomic, schedule, num_threads, cache
        The clauses of `offload.target_loop`.
    check, bounds, fastmath, reassociate
        The clauses of `offload.target_loop` that say how the loop is checked and compiled.
    devices, filter, exchange
        The clauses of `offload.target_loop`: one loop on several devices.

    Returns
    -------
    ParallelLoop
        Each call returns the result of the function, or with ``async_`` a `Task`. In a compute or target body, a call
        enqueues the loop on the body's stream and returns device arrays without dimensions. ``.options(…)``,
        ``.python``, ``.compile(…)``, ``.source(…)`` and ``.explain(…)`` work as for `offload.target_loop`.

    Raises
    ------
    LoopError
        At the decorator: the function is outside of the subset. At a call: its arguments are, or its iterations
        provably depend on each other.
    ClauseError, NotPresentError, MapError, DeviceMemoryError
        See `parallel`; or the loop writes to a read-only array.
    IndexError, ZeroDivisionError, AssertionError
        The error names array, index, iteration and line. With ``async_``, the next wait raises it.

    Notes
    -----
    A call blocks, and copies, as a call of `parallel` does. The first call with arguments of new types compiles.
    OpenACC 3.3, 2.9 "Loop Construct", 2.11 "Combined Constructs" (section numbers of OpenACC are unchecked).

    Examples
    --------
    >>> @acc.parallel_loop(reduction={"+": ["total"]})
    ... def dot(x, y):
    ...     total = 0.0
    ...     for i in range(x.size):
    ...         total += x[i] * y[i]
    ...     return total
    >>> print(dot(np.arange(4.0), np.ones(4)))
    6.0
    """
    return decorate(ParallelLoop, function, clauses)


@overload
def kernels_loop(
    function: Callable[P, R], /, *, async_: NoQueue = None, **clauses: Unpack[ComputeLoopKeywords]
) -> ComputeLoopCall[P, R, R]: ...
@overload
def kernels_loop(
    function: Callable[P, R], /, *, async_: Async, **clauses: Unpack[ComputeLoopKeywords]
) -> ComputeLoopCall[P, R, Task[R]]: ...
@overload
def kernels_loop(
    function: None = None, /, *, async_: NoQueue = None, **clauses: Unpack[ComputeLoopKeywords]
) -> Callable[[Callable[P, R]], ComputeLoopCall[P, R, R]]: ...
@overload
def kernels_loop(
    function: None = None, /, *, async_: Async, **clauses: Unpack[ComputeLoopKeywords]
) -> Callable[[Callable[P, R]], ComputeLoopCall[P, R, Task[R]]]: ...
@shows_clauses("offload.acc.signatures")
def kernels_loop(function: Callable[..., Any] | None = None, /, **clauses: Unpack[ComputeLoopClauses]) -> Any:
    """Make each call of a function loops on the device, one after another, each parallel where that is proved.

    The function has one or more nests, with scalar statements before and between them. Each nest is one kernel. It is
    ``auto`` unless `acc.loop` around its range says otherwise. A scalar that passes from one iteration to the next, by
    one operator, and that the function returns, is a reduction without a clause.

    Parameters, returns, errors and blocking as for `parallel_loop`.

    Notes
    -----
    If nothing is proved for a loop, it runs in order, and offload issues a `PerformanceWarning` once. Scalars of one
    nest are not visible in the next. OpenACC 3.3, 2.11 "Combined Constructs".

    Examples
    --------
    >>> @acc.kernels_loop
    ... def scale_and_sum(x):
    ...     for i in range(x.size):
    ...         x[i] = 2 * x[i]
    ...     total = 0.0
    ...     for i in range(x.size):
    ...         total += x[i]
    ...     return total
    >>> print(scale_and_sum(np.arange(4.0)))
    12.0
    """
    return decorate(KernelsLoop, function, clauses)


@takes_clauses
def loop(
    iterations: range,
    *,
    gang: Level = False,
    worker: Level = False,
    vector: Level = False,
    seq: bool = False,
    independent: bool = False,
    auto: bool = False,
    collapse: Number = 1,
    tile: Sequence[int] | None = None,
    reduction: LoopReductions = None,
    private: Names = (),
) -> range:
    """Say how the iterations of a loop in a loop function run: ``for k in acc.loop(range(n), vector=True)``.

    Write clauses as constants, because offload reads them from the source.

    Parameters
    ----------
    iterations : range
        The iterations, written as a call of ``range``.
    gang, worker, vector, seq, independent, auto, collapse, tile
        The clauses of `parallel_loop`.
    reduction : dict of str to list of str
        Maps an operator to scalars of the body, which are complete after the loop.
    private : list of str
        Arrays of which each iteration has its own copy. Scalars that the loop assigns need no clause.

    Returns
    -------
    range
        The argument ``iterations``, so the undecorated function also runs.

    Raises
    ------
    ClauseError
        The argument is not a range, or a clause is wrong. A compiled loop raises a `LoopError` of rule ``loop``
        instead.

    Notes
    -----
    OpenACC 3.3, 2.9 "Loop Construct".

    Examples
    --------
    >>> @acc.parallel_loop
    ... def row_sums(a, y):
    ...     for i in range(a.shape[0]):
    ...         s = 0.0
    ...         for k in acc.loop(range(a.shape[1]), vector=True, reduction={"+": ["s"]}):
    ...             s += a[i, k]
    ...         y[i] = s
    >>> y = np.zeros(2)
    >>> row_sums(np.ones((2, 5)), y)
    >>> y
    array([5., 5.])
    """
    if not isinstance(iterations, range):
        raise ClauseError(
            f"acc loop: {type(iterations).__name__} {iterations!r:.40} is not a range; write loop(range(…))"
        )
    # The loop around has read the clauses from its text. Python itself only checks them.
    levels = {"gang": gang, "worker": worker, "vector": vector}
    order = {"seq": seq, "independent": independent, "auto": auto}
    shape = {"collapse": collapse, "tile": tile, "reduction": reduction, "private": private}
    check_order("acc loop", check_clauses("acc loop", {**levels, **order, **shape}, COMMON_CHECKS))
    return iterations


def routine(function: Function) -> Function:
    """Mark a plain function as one that loops call, as a decorator, too.

    The function is checked at once. Unmarked functions are checked when a loop that calls them is made.

    Parameters
    ----------
    function : function
        A plain function of scalars and arrays.

    Returns
    -------
    function
        The function, unchanged.

    Raises
    ------
    LoopError
        The function is outside of the subset.

    Notes
    -----
    You do not need the clauses ``gang``, ``worker``, ``vector`` and ``seq``, because the function's loops determine
    them. OpenACC 3.3, 2.15.1 "Routine Directive".

    Examples
    --------
    >>> @acc.routine
    ... def square(v):
    ...     return v * v
    >>> @acc.parallel_loop
    ... def squares(x):
    ...     for i in range(x.size):
    ...         x[i] = square(x[i])
    >>> x = np.arange(4.0)
    >>> squares(x)
    >>> x
    array([0., 1., 4., 9.])
    """
    check_called(function)  # type: ignore[arg-type]  # it refuses others
    return function
