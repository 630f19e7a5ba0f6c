"""What is said inside of loop functions, and of functions that they call: ``loop`` and ``declare_target``."""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any

from offload.constructs import associations
from offload.constructs.clauses.maps import check_count
from offload.errors import ClauseError
from offload.loops.running.clauses import check_loop_reduction
from offload.runtime.keywords import takes_clauses

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@takes_clauses
def loop(
    iterations: range, bind: str | None = None, collapse: int = 1, reduction: Mapping[str, Sequence[str]] | None = None
) -> range:
    """Say of a loop inside of a loop function how its iterations run: ``for k in omp.loop(range(n), …)``.

    Parameters
    ----------
    iterations : range
        Of the loop; written as a call of ``range``.
    bind : {"teams", "parallel", "thread"}, optional
        Iterations fall on blocks of a device, on threads of a block, or on one thread, in order.
    collapse : int
        So many loops, perfectly nested, are one iteration space.
    reduction : dict of str to list of str
        By operator, scalars of the body.

    Returns
    -------
    range
        What was passed, so that the undecorated function runs.

    Raises
    ------
    ClauseError
        No range, or a wrong clause.

    Notes
    -----
    OpenMP 5.2, 11.7 "loop Construct" (section numbers unchecked).
    """
    if not isinstance(iterations, range):
        raise ClauseError(f"loop: {type(iterations).__name__} {iterations!r:.40} is not a range; write loop(range(…))")
    if bind not in _BINDS:
        raise ClauseError(f"loop bind: {bind!r:.40} is not allowed; use 'teams', 'parallel' or 'thread'")
    check_count("collapse", collapse)
    check_loop_reduction(reduction)
    return iterations


_BINDS = (None, "teams", "parallel", "thread")


@takes_clauses
def declare_target(array: Any, link: bool = False, device_type: str = "any") -> Any:
    """Give an array storage on every device that lasts until the runtime closes; or mark a function that loops call.

    Each device gets it at its first use, of this runtime and of later ones, with the values that the host has then.
    Maps only count from then on: values move by ``always`` and by `target_update`. On a device that maps the array
    already, it begins when that mapping has ended. The declaration lasts as long as the memory of ``array``.

    Parameters
    ----------
    array : array or function
        A host array, or a view of one. Or a plain function that loops call, which is checked at once; other functions
        are when a loop that calls them is made.
    link : bool
        No storage until the array is mapped; then it counts as any other.
    device_type : {"any", "nohost", "host"}
        ``"host"``: no storage on devices. The other two mean the same, as the host's array is there in any case.

    Returns
    -------
    function or None
        The function as it is, so that this is a decorator, too.

    Raises
    ------
    ClauseError
        No host array and no function, or another ``device_type``.
    LoopError
        The function is outside of what loops can call.
    MapError
        It overlaps an array declared before in part, or its rows interleave.

    Notes
    -----
    *Costs* a copy of the array at the first use of each device, for which that construct waits; it may raise
    `DeviceMemoryError`. OpenMP 5.2, 7.8 "Declare Target Directives".
    """
    if not isinstance(array, FunctionType):
        associations.declare_target(array, link, device_type)
        return None
    check_called(array)
    return array


def check_called(function: FunctionType) -> None:
    """Raise `LoopError` unless loops can call a function."""
    from offload.loops.front.parse import check_plain
    from offload.loops.front.source import FunctionSource

    check_plain(FunctionSource.of(function))
