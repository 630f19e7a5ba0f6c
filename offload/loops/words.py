"""The words inside of loop functions, and of functions that they call: ``loop`` and ``declare_target``."""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any, overload

from offload.constructs import associations
from offload.constructs.clauses.maps import check_count
from offload.errors import ClauseError
from offload.loops.running.clauses import check_loop_reduction
from offload.runtime.keywords import takes_clauses

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal, TypeVar

    from offload.constructs.clauses.signatures import Number
    from offload.loops.signatures import LoopReductions

    Function = TypeVar("Function", bound=Callable[..., Any])


@takes_clauses
def loop(
    iterations: range,
    bind: Literal["teams", "parallel", "thread"] | None = None,
    collapse: Number = 1,
    reduction: LoopReductions = None,
) -> range:
    """Say how the iterations of a loop inside of a loop function run: ``for k in omp.loop(range(n), …)``.

    Parameters
    ----------
    iterations : range
        The iterations, written as a call of ``range``.
    bind : {"teams", "parallel", "thread"}, optional
        Iterations run on blocks of a device, on threads of a block, or on one thread, in order.
    collapse : int
        The number of perfectly nested loops that form one iteration space.
    reduction : dict of str to list of str
        Maps an operator to scalars of the body.

    Returns
    -------
    range
        The argument ``iterations``, so the undecorated function also runs.

    Raises
    ------
    ClauseError
        The argument is not a range, or a clause is wrong.

    Notes
    -----
    OpenMP 5.2, 11.7 "loop Construct" (section numbers unchecked).

    Examples
    --------
    >>> @omp.target_loop
    ... def row_sums(a, y):
    ...     for i in range(a.shape[0]):
    ...         s = 0.0
    ...         for k in omp.loop(range(a.shape[1]), bind="parallel", reduction={"+": ["s"]}):
    ...             s += a[i, k]
    ...         y[i] = s
    >>> y = np.zeros(2)
    >>> row_sums(np.ones((2, 5)), y)
    >>> y
    array([5., 5.])
    """
    if not isinstance(iterations, range):
        raise ClauseError(f"loop: {type(iterations).__name__} {iterations!r:.40} is not a range; write loop(range(…))")
    if bind not in _BINDS:
        raise ClauseError(f"loop bind: {bind!r:.40} is not allowed; use 'teams', 'parallel' or 'thread'")
    check_count("collapse", collapse)
    check_loop_reduction(reduction)
    return iterations


_BINDS = (None, "teams", "parallel", "thread")


@overload
def declare_target(array: Function) -> Function: ...
@overload
def declare_target(array: Any, link: bool = False, device_type: Literal["any", "nohost", "host"] = "any") -> None: ...
@takes_clauses
def declare_target(array: Any, link: bool = False, device_type: Literal["any", "nohost", "host"] = "any") -> Any:
    """Give an array storage on every device that lasts until the runtime closes; or mark a function that loops call.

    Each device gets the storage at its first use, of this runtime and of later ones, with the values that the host has
    then. From then on maps only count. Use ``always`` or `target_update` to move values. If a device already maps the
    array, the storage begins when that mapping has ended. The declaration lasts as long as the memory of ``array``.

    Parameters
    ----------
    array : array or function
        A host array, a view of one, or a plain function that loops call. Such a function is checked at once. Undeclared
        functions are checked when a loop that calls them is made.
    link : bool
        True: no storage until the array is mapped; then it counts like any other array.
    device_type : {"any", "nohost", "host"}
        ``"host"``: no storage on devices. The other two have the same meaning, because the host's array exists in any
        case.

    Returns
    -------
    function or None
        The function, unchanged. Therefore you can use `declare_target` as a decorator.

    Raises
    ------
    ClauseError
        The argument is neither a host array nor a function, or ``device_type`` is wrong.
    LoopError
        Loops cannot call the function.
    MapError
        The array overlaps a part of an array declared before, or it is a view whose rows interleave.

    Notes
    -----
    The first use on each device copies the array, and that construct waits for the copy; it may raise
    `DeviceMemoryError`. OpenMP 5.2, 7.8 "Declare Target Directives".

    Examples
    --------
    >>> weights = np.array([0.25, 0.5, 0.25])
    >>> omp.declare_target(weights)
    >>> @omp.target
    ... def total(w):
    ...     return w.sum()
    >>> float(total(weights)), omp.target_is_present(weights)
    (1.0, True)

    Declare a function that loops call:

    >>> @omp.declare_target
    ... def square(x):
    ...     return x * x
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
