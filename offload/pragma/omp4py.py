"""OMP4Py's programs: the same `omp`, as a decorator and as a directive, and the routines that they call.

Change ``from omp4py import *`` (or ``from omp4py.pure import *``) to ``from offload.pragma.omp4py import *``. As in
OMP4Py, names that are in no clause of a task are variables of the enclosing function: the default is ``shared``.
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
from offload.pragma.spelling import DirectiveSpelling

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.pragma.spelling import Decorated, WrittenDirective

__all__ = [
    "omp",
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
]


class Omp4pySpelling(DirectiveSpelling):
    """OMP4Py's `omp`."""

    @overload
    def __call__(self, directive: str, /) -> WrittenDirective: ...
    @overload
    def __call__(self, decorated: Decorated, /, **options: Any) -> Decorated: ...
    @overload
    def __call__(self, /, **options: Any) -> Callable[[Decorated], Decorated]: ...
    def __call__(self, directive: Any = None, /, **options: Any) -> Any:
        """Take a directive, or decorate a function or a class.

        Parameters
        ----------
        directive : str, function or class, optional
            A directive; or a function or a class, whose directives are rewritten. Without it, return the decorator.
        **options
            OMP4Py's options, such as ``compile``. They have no effect.

        Returns
        -------
        WrittenDirective, function, class or callable
            The directive, the rewritten function or class, or the decorator.

        Raises
        ------
        PragmaError
            A directive is wrong, or a block cannot be taken.
        UsageError
            A directive with list items is encountered in a function that is not decorated.

        Notes
        -----
        OpenMP 5.2, 3.2 "Directive Format", here as strings.

        Examples
        --------
        >>> from offload.pragma.omp4py import omp
        >>> @omp(compile=True)
        ... def total(x):
        ...     s = 0.0
        ...     with omp("parallel for reduction(+: s)"):
        ...         for i in range(len(x)):
        ...             s += x[i]
        ...     return s
        >>> float(total(np.ones(5)))
        5.0
        """
        return self if directive is None else super().__call__(directive)

    def __reduce__(self) -> str:
        return "omp"


omp = Omp4pySpelling("omp", "omp4py.omp", default="shared")
