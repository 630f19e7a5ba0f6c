"""OpenACC's loops: ``parallel loop``, ``kernels loop``, ``loop`` and ``routine``.

A loop under one of the constructs is a compute region (`offload.acc.compute`) whose body starts the loop: its clauses
of data, queues and devices are those of ``acc.parallel``, what speaks of iterations is `offload.loops`'. ``acc.loop``
in a body is read with the text, and gives the range back when Python runs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.acc.compute import ComputeFunction
from offload.constructs.call import decorate
from offload.constructs.clauses.maps import check_clauses
from offload.errors import ClauseError
from offload.loops.functions import DeviceLoop
from offload.loops.running.clauses import COMMON_CHECKS, DEVICE_CHECKS, check_order
from offload.loops.words import check_called
from offload.runtime.keywords import takes_clauses

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FunctionType

    from offload.loops.running.clauses import LoopWords


class ComputeLoop(DeviceLoop, ComputeFunction):
    """A function whose calls are OpenACC compute regions around a loop."""

    _checks = {**ComputeFunction._checks, **DEVICE_CHECKS}  # noqa: RUF012, SLF001  # a table; its own base

    __slots__ = ()


class ParallelLoop(ComputeLoop):
    """A function under ``parallel loop``."""

    _directive = "acc parallel loop"
    __slots__ = ()


class KernelsLoop(ComputeLoop):
    """A function under ``kernels loop``."""

    _directive = "acc kernels loop"
    __slots__ = ()

    def _words(self, clauses: Mapping[str, Any]) -> LoopWords:
        words = super()._words(clauses)
        return words._replace(several=True, order=words.order or "auto")


def parallel_loop(function: Any = None, /, **clauses: Any) -> Any:
    """Make each call of a function a loop on the device: its iterations are independent.

    The function is a nest of ``for … in range(…)``, as `offload.target_loop` takes it, with `acc.loop` around ranges of
    which more is to be said.

    Parameters
    ----------
    copy, copyin, copyout, create, present, no_create, deviceptr, default
        As for `parallel`. Arrays in no clause are ``copyin`` where the loop only reads them, ``copyout`` where it
        provably writes all of them and reads none, else ``copy``.
    if_, self_, async_, wait, device, depend, name
        As for `parallel`.
    gang, worker, vector : bool or int
        On which levels of a device iterations fall: blocks, rows of threads in a block, threads of a row; or how many.
    num_gangs, num_workers, vector_length : int
        The same, of all loops.
    seq, independent, auto : bool
        Iterations run in order, none behind one that fails; beside each other, which is the default; beside each other
        where that is proved, else in order, with a `PerformanceWarning`.
    collapse : int
        So many of the outermost loops, perfectly nested, are one iteration space.
    tile : tuple of int
        So many loops are, and are carried out in blocks of these sizes.
    reduction, private, firstprivate, lastprivate, atomic, schedule, num_threads, cache, check, bounds, fastmath
        As for `offload.target_loop`.
    devices, filter, exchange
        As for `offload.target_loop`: one loop on several devices.

    Returns
    -------
    ParallelLoop
        Calling it returns what the function returns, or with ``async_`` a `Task`; in a compute or target body it
        enqueues the loop on the body's stream and returns device arrays without dimensions. ``.options(…)``,
        ``.python``, ``.compile(…)``, ``.source(…)``, ``.explain(…)`` as of `offload.target_loop`.

    Raises
    ------
    LoopError
        At the decorator: the function is outside of what loops can be. At a call: its arguments are, or its iterations
        provably depend on each other.
    ClauseError, NotPresentError, MapError, DeviceMemoryError
        As for `parallel`; the loop writes to an array that is read-only.
    IndexError, ZeroDivisionError, AssertionError
        With ``async_`` from the next wait; with array, index, iteration and line.

    Notes
    -----
    *Blocks* and *costs* as `parallel`; the first call with arguments of new types compiles. OpenACC 3.3, 2.9 "Loop
    Construct", 2.11 "Combined Constructs" (section numbers of OpenACC are unchecked).
    """
    return decorate(ParallelLoop, function, clauses)


def kernels_loop(function: Any = None, /, **clauses: Any) -> Any:
    """Make each call of a function loops on the device, one after another, each parallel where that is proved.

    The function has one or more nests, with scalar statements before and between them. Each nest is one kernel, and
    ``auto`` unless it says otherwise, by `acc.loop` around its range. Scalars that an iteration takes over from the one
    before, by one operator, and that the function returns, are reductions without a clause.

    Parameters, returns, errors and blocking as for `parallel_loop`.

    Notes
    -----
    A loop of which nothing is proved runs in order, and says so once, in a `PerformanceWarning`. Scalars of one nest
    are not seen in the next. OpenACC 3.3, 2.11 "Combined Constructs".
    """
    return decorate(KernelsLoop, function, clauses)


@takes_clauses
def loop(
    iterations: range,
    *,
    gang: bool | int = False,
    worker: bool | int = False,
    vector: bool | int = False,
    seq: bool = False,
    independent: bool = False,
    auto: bool = False,
    collapse: int = 1,
    tile: tuple[int, ...] | None = None,
    reduction: Mapping[str, Sequence[str]] | None = None,
    private: Sequence[str] = (),
) -> range:
    """Say of a loop in a loop function how its iterations run: ``for k in acc.loop(range(n), vector=True)``.

    Clauses are written as constants: they are read with the text.

    Parameters
    ----------
    iterations : range
        Of the loop; written as a call of ``range``.
    gang, worker, vector, seq, independent, auto, collapse, tile
        As for `parallel_loop`.
    reduction : dict of str to list of str
        By operator, scalars of the body, which are complete after the loop.
    private : list of str
        Arrays of which each iteration has its own; scalars that are assigned in it need no clause.

    Returns
    -------
    range
        What was passed, so that the undecorated function runs.

    Raises
    ------
    ClauseError
        No range, or a wrong clause. Where the loop is compiled it is a `LoopError` of rule ``loop``.

    Notes
    -----
    OpenACC 3.3, 2.9 "Loop Construct".
    """
    if not isinstance(iterations, range):
        raise ClauseError(
            f"acc loop: {type(iterations).__name__} {iterations!r:.40} is not a range; write loop(range(…))"
        )
    levels = {"gang": gang, "worker": worker, "vector": vector}
    order = {"seq": seq, "independent": independent, "auto": auto}
    shape = {"collapse": collapse, "tile": tile, "reduction": reduction, "private": private}
    check_order("acc loop", check_clauses("acc loop", {**levels, **order, **shape}, COMMON_CHECKS))
    return iterations


def routine(function: FunctionType) -> FunctionType:
    """Mark a plain function as one that loops call, as a decorator, too.

    It is checked at once; other functions are when a loop that calls them is made.

    Parameters
    ----------
    function : function
        A plain function of scalars and arrays.

    Returns
    -------
    function
        The function as it is.

    Raises
    ------
    LoopError
        The function is outside of what loops can call.

    Notes
    -----
    The clauses ``gang``, ``worker``, ``vector`` and ``seq`` are not needed: the loops in it say it. OpenACC 3.3, 2.15.1
    "Routine Directive".
    """
    check_called(function)
    return function
