"""The runtime routines that programs of PyOMP and OMP4Py call, under their OpenMP names.

`offload.pragma.omp4py` and `offload.pragma.pyomp` both export all of them. A ``parallel`` block has a team of one
thread (§3 of the reference), and the routines say so: one thread, number 0, and no active parallel region. Tasks run
on the runtime's workers, which are no team; a thread number there would index arrays that are too short, so it is
refused instead.
"""

from __future__ import annotations

import ast
from time import perf_counter
from typing import TYPE_CHECKING, Any

from offload.constructs.routines import (
    get_default_device,
    get_num_devices,
    in_explicit_task,
    is_initial_device,
    set_default_device,
)
from offload.errors import UnsupportedError
from offload.pragma.placing import at_node

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.texts import FunctionText

__all__ = [
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


# -- teams and threads (OpenMP 5.2, 18.2 "Thread Team Routines") ---------------------------------------


def omp_get_num_threads() -> int:
    """Return the number of threads of the current team: always 1.

    Notes
    -----
    OpenMP 5.2, 18.2 "Thread Team Routines": omp_get_num_threads (section numbers unchecked).

    Examples
    --------
    >>> from offload.pragma.omp4py import omp_get_num_threads
    >>> omp_get_num_threads()
    1
    """
    return 1


def omp_get_max_threads() -> int:
    """Return the number of threads that a ``parallel`` block could have: always 1.

    Notes
    -----
    OpenMP 5.2, 18.2 "Thread Team Routines": omp_get_max_threads (section numbers unchecked).

    Examples
    --------
    >>> from offload.pragma.omp4py import omp_get_max_threads
    >>> omp_get_max_threads()
    1
    """
    return 1


def omp_set_num_threads(num_threads: int) -> None:
    """Accept a number of threads; it has no effect.

    Write ``num_threads`` on a worksharing loop, or ``Runtime(num_threads=…)``, to choose how many threads work.

    Parameters
    ----------
    num_threads : int
        A number of threads.

    Notes
    -----
    OpenMP 5.2, 18.2 "Thread Team Routines": omp_set_num_threads (section numbers unchecked).

    Examples
    --------
    >>> from offload.pragma.omp4py import omp_get_num_threads, omp_set_num_threads
    >>> omp_set_num_threads(8)
    >>> omp_get_num_threads()
    1
    """


def omp_get_thread_num() -> int:
    """Return the number of the calling thread in its team: 0.

    Returns
    -------
    int
        0, outside of the bodies of tasks.

    Raises
    ------
    UnsupportedError
        In the body of a task. Any worker may run it, and workers have no numbers in a team.

    Notes
    -----
    OpenMP 5.2, 18.2 "Thread Team Routines": omp_get_thread_num (section numbers unchecked). A worksharing loop whose
    body calls it is refused when the function is decorated.

    Examples
    --------
    >>> from offload.pragma.omp4py import omp_get_thread_num
    >>> omp_get_thread_num()
    0
    """
    if in_explicit_task():
        raise UnsupportedError(
            "omp_get_thread_num() was called in the body of a task, which any worker may run. "
            "Call it outside of tasks, or index by the task's own number."
        )
    return 0


def omp_in_parallel() -> bool:
    """Tell whether the caller runs in an active parallel region: always False, because a team has one thread.

    Notes
    -----
    OpenMP 5.2, 18.2 "Thread Team Routines": omp_in_parallel (section numbers unchecked). A region is active if its
    team has more than one thread.

    Examples
    --------
    >>> from offload.pragma.omp4py import omp_in_parallel
    >>> omp_in_parallel()
    False
    """
    return False


def omp_get_num_teams() -> int:
    """Return the number of teams: always 1.

    Notes
    -----
    OpenMP 5.2, 18.4 "Teams Region Routines": omp_get_num_teams (section numbers unchecked).

    Examples
    --------
    >>> from offload.pragma.pyomp import omp_get_num_teams
    >>> omp_get_num_teams()
    1
    """
    return 1


def omp_get_team_num() -> int:
    """Return the number of the caller's team: always 0.

    Notes
    -----
    OpenMP 5.2, 18.4 "Teams Region Routines": omp_get_team_num (section numbers unchecked).

    Examples
    --------
    >>> from offload.pragma.pyomp import omp_get_team_num
    >>> omp_get_team_num()
    0
    """
    return 0


# -- time (OpenMP 5.2, 18.10 "Timing Routines") --------------------------------------------------------


def omp_get_wtime() -> float:
    """Return the seconds that have passed since a fixed point in the past.

    Returns
    -------
    float
        Seconds, from the clock `time.perf_counter`.

    Notes
    -----
    OpenMP 5.2, 18.10 "Timing Routines": omp_get_wtime (section numbers unchecked).

    Examples
    --------
    >>> from offload.pragma.omp4py import omp_get_wtime
    >>> start = omp_get_wtime()
    >>> omp_get_wtime() >= start
    True
    """
    return perf_counter()


# -- devices (OpenMP 5.2, 18.7 "Device Information Routines") ------------------------------------------


def omp_get_num_devices() -> int:
    """Return the number of devices of the current runtime, without the host.

    Notes
    -----
    OpenMP 5.2, 18.7 "Device Information Routines": omp_get_num_devices (section numbers unchecked).

    Examples
    --------
    >>> from offload.pragma.pyomp import omp_get_num_devices
    >>> with omp.Runtime("sim:2"):
    ...     omp_get_num_devices()
    2
    """
    return get_num_devices()


def omp_get_default_device() -> int:
    """Return the device number that directives without a ``device`` clause use.

    Notes
    -----
    OpenMP 5.2, 18.7 "Device Information Routines": omp_get_default_device (section numbers unchecked).

    Examples
    --------
    >>> from offload.pragma.pyomp import omp_get_default_device
    >>> with omp.Runtime("sim:2"):
    ...     omp_get_default_device()
    0
    """
    return get_default_device()


def omp_set_default_device(device_num: int) -> None:
    """Choose the device number that directives without a ``device`` clause use.

    Parameters
    ----------
    device_num : int
        A device number of the current runtime.

    Raises
    ------
    ClauseError
        The current runtime has no device of this number.

    Notes
    -----
    OpenMP 5.2, 18.7 "Device Information Routines": omp_set_default_device (section numbers unchecked).

    Examples
    --------
    >>> from offload.pragma.pyomp import omp_get_default_device, omp_set_default_device
    >>> with omp.Runtime("sim:2"):
    ...     omp_set_default_device(1)
    ...     omp_get_default_device()
    1
    """
    set_default_device(device_num)


def omp_is_initial_device() -> bool:
    """Tell whether the caller runs on the host.

    Notes
    -----
    OpenMP 5.2, 18.7 "Device Information Routines": omp_is_initial_device (section numbers unchecked).

    Examples
    --------
    >>> from offload.pragma.pyomp import omp_is_initial_device
    >>> omp_is_initial_device()
    True
    """
    return is_initial_device()


# -- worksharing loops ---------------------------------------------------------------------------------


def refuse_thread_numbers(loop: ast.For, value_of: Callable[[str], Any], text: FunctionText) -> None:
    """Raise an error at the first call of `omp_get_thread_num` in a worksharing loop.

    Parameters
    ----------
    loop : ast.For
        The nest, with the lines of the program.
    value_of : callable
        Returns the value that a name has when the function is decorated, or None.
    text : FunctionText
        The text of the function.

    Raises
    ------
    UnsupportedPragmaError
        An iteration asks for the number of its thread. Any thread may run an iteration, or the device.
    """
    calls = [node for node in ast.walk(loop) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        if _meant(call.func, value_of) is omp_get_thread_num:
            raise at_node(
                call,
                "omp_get_thread_num() is not supported in a worksharing loop, because any thread may run an iteration; "
                "index by the loop variable",
                text,
                is_unsupported=True,
            )


def _meant(node: ast.expr, value_of: Callable[[str], Any]) -> Any:
    """Return the value of a name or of an attribute of one; None for other expressions."""
    if isinstance(node, ast.Name):
        return value_of(node.id)
    return getattr(_meant(node.value, value_of), node.attr, None) if isinstance(node, ast.Attribute) else None
