"""PyOMP's programs: `njit`, `openmp_context` and the routines that they call.

Import these names from ``offload.pragma.pyomp`` and no longer from ``numba`` and ``numba.openmp``. Nothing is compiled
but worksharing loops. As in PyOMP, sections in clauses are Python's slices, start : stop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from offload.pragma.routines import (
    omp_get_default_device,
    omp_get_max_threads,
    omp_get_num_devices,
    omp_get_num_teams,
    omp_get_num_threads,
    omp_get_team_num,
    omp_get_thread_num,
    omp_get_wtime,
    omp_in_parallel,
    omp_is_initial_device,
    omp_set_default_device,
    omp_set_num_threads,
)
from offload.pragma.slices import sliced
from offload.pragma.spelling import DirectiveSpelling

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.pragma.spelling import Decorated

__all__ = [
    "njit",
    "omp_get_default_device",
    "omp_get_max_threads",
    "omp_get_num_devices",
    "omp_get_num_teams",
    "omp_get_num_threads",
    "omp_get_team_num",
    "omp_get_thread_num",
    "omp_get_wtime",
    "omp_in_parallel",
    "omp_is_initial_device",
    "omp_set_default_device",
    "omp_set_num_threads",
    "openmp_context",
]


class PyompSpelling(DirectiveSpelling):
    """PyOMP's `openmp_context`."""

    def __reduce__(self) -> str:
        return "openmp_context"


openmp_context = PyompSpelling("omp", "openmp_context", read=sliced)


@overload
def njit(function: Decorated, /, **options: Any) -> Decorated: ...
@overload
def njit(*signatures: Any, **options: Any) -> Callable[[Decorated], Decorated]: ...
def njit(*arguments: Any, **options: Any) -> Any:  # noqa: ARG001  # Numba's options have no effect
    """Rewrite the directives in a function, as `directives` does; nothing is compiled but worksharing loops.

    Parameters
    ----------
    *arguments
        The function; or signatures of Numba, which have no effect.
    **options
        Numba's options, such as ``fastmath``. They have no effect.

    Returns
    -------
    function or callable
        The rewritten function, or the decorator.

    Raises
    ------
    PragmaError
        A directive is wrong, or a block cannot be taken.
    UsageError
        The source text of the function is not available.

    Notes
    -----
    OpenMP 5.2, 3.2 "Directive Format", here as strings.

    Examples
    --------
    >>> from offload.pragma.pyomp import njit, openmp_context as openmp
    >>> @njit
    ... def scale(x):
    ...     with openmp("target map(tofrom: x[1:3])"):
    ...         x[1:3] *= 2
    >>> x = np.ones(4)
    >>> scale(x)
    >>> x
    array([1., 2., 2., 1.])
    """
    from offload.pragma.rewrite import decorated

    if arguments and callable(arguments[0]):
        return decorated(arguments[0])
    return decorated
