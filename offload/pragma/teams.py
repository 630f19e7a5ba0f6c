"""Blocks of ``parallel``, ``masked``, ``single``, ``sections``, ``critical`` and ``atomic``: a team of one thread.

The standard lets an implementation give a ``parallel`` region one thread. So the block runs once, where it stands, and
the tasks generated in it run on the runtime's workers. The implicit barrier at its end is the end of an implicit
taskgroup, which ``cancel taskgroup`` passes by.
"""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.constructs.clauses.maps import check_count
from offload.constructs.groups import Taskgroup
from offload.errors import ClauseError, UnsupportedError, UsageError
from offload.interrupts.finalizers import refuse_inside
from offload.tasks import hooked

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

    from offload.constructs.clauses.signatures import Number, Truth


class TeamBlock(Taskgroup):
    """A block whose end waits for the tasks generated in it, and for their descendants; used once.

    Attributes
    ----------
    num_threads : int or None
        The clause of a ``parallel``, for the worksharing loops in its block.
    """

    __slots__ = ("num_threads",)

    def __init__(self, directive: str, num_threads: int | None = None) -> None:
        super().__init__((), directive, is_implicit=True)
        self.num_threads = num_threads

    def __enter__(self) -> None:
        super().__enter__()
        assert self._region is not None, "entered"
        self._region.group.num_threads = self.num_threads


def parallel(num_threads: Number | None = None, if_: Truth = True) -> TeamBlock:
    """Run a block in a team of one thread; its end waits for the tasks generated in it, and for their descendants.

    Parameters
    ----------
    num_threads : int, optional
        The number of threads for worksharing loops in the block.
    if_ : bool
        False: these loops run on one thread.

    Returns
    -------
    context manager
        For ``with``, and in a coroutine for ``async with``.

    Raises
    ------
    ClauseError
        ``num_threads`` is not a number of at least 1.
    ExceptionGroup
        At the end of the block: tasks failed, and their failures have not been retrieved.

    Notes
    -----
    OpenMP 5.2, 10.1 "parallel Construct" (section number unchecked).

    Examples
    --------
    >>> from offload.pragma import directives, omp as pragma
    >>> @directives
    ... def fill(x):
    ...     with pragma("parallel"):
    ...         with pragma("task"):
    ...             x[:] = 7
    >>> x = np.zeros(3)
    >>> fill(x)
    >>> x
    array([7., 7., 7.])
    """
    count = check_count("parallel num_threads", num_threads)
    return TeamBlock("parallel", count if if_ else 1)


def parallel_masked(num_threads: Number | None = None, if_: Truth = True, filter: Number = 0) -> TeamBlock:
    """Run a block as `parallel` does; the parameter ``filter`` is as for `masked`."""
    count = check_count("parallel masked num_threads", num_threads)
    _check_filter("parallel masked", filter)
    return TeamBlock("parallel masked", count if if_ else 1)


def masked(filter: Number = 0) -> AbstractContextManager[None]:
    """Run a block on the only thread of the team, whose number is 0. Its end does not wait.

    Raises
    ------
    ClauseError
        ``filter`` is not a number.
    UnsupportedError
        ``filter`` is another number than 0: no thread would run the block.
    """
    _check_filter("masked", filter)
    return nullcontext()


def _check_filter(directive: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ClauseError(f"{directive} filter: {value!r:.40} is not a thread number; use an int")
    if value != 0:
        raise UnsupportedError(
            f"{directive} filter: the team has one thread, whose number is 0, and {value} names no thread; write "
            "filter(0), or leave the clause out"
        )


def single(nowait: Truth = False) -> AbstractContextManager[None]:
    """Run a block once; without ``nowait`` its end waits as the end of `parallel` does."""
    return nullcontext() if nowait else TeamBlock("single")


def sections(nowait: Truth = False) -> AbstractContextManager[None]:
    """Run a block whose sections are tasks; without ``nowait`` its end waits for them."""
    return nullcontext() if nowait else TeamBlock("sections")


def parallel_sections(
    num_threads: Number | None = None, if_: Truth = True, nowait: Truth = False
) -> AbstractContextManager[None]:
    """Run a block as `sections` does, in a `parallel` region."""
    count = check_count("parallel sections num_threads", num_threads)
    return nullcontext() if nowait else TeamBlock("parallel sections", count if if_ else 1)


class Critical:
    """A block that one thread of the process runs at a time, of all blocks of the name; used once or more."""

    __slots__ = ("_lock",)

    def __init__(self, lock: _Exclusion) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        refuse_inside(self._lock.directive)
        self._lock.take()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.give()


class _Exclusion:
    """The lock of a name. A thread that holds it cannot take it again: a task that ran in between would break in."""

    __slots__ = ("_lock", "_owner", "directive")

    def __init__(self, directive: str) -> None:
        self.directive = directive
        self._lock = threading.Lock()
        self._owner: int | None = None

    def take(self) -> None:
        thread = threading.get_ident()
        if self._owner == thread:
            raise UsageError(
                f"{self.directive}: this thread is already in a block of this name, and would wait for itself; let the "
                "inner block have another name"
            )
        self._lock.acquire()
        self._owner = thread

    def give(self) -> None:
        self._owner = None
        self._lock.release()


def _noted_take(plain: Any) -> Any:
    """Return `_Exclusion.take` for sanitized runtimes: a block comes after the one that had the lock before."""

    def take(self: _Exclusion) -> None:
        plain(self)
        for orders in [*hooked.orders.values()]:
            orders.takes(self)

    return take


def _noted_give(plain: Any) -> Any:
    def give(self: _Exclusion) -> None:
        for orders in [*hooked.orders.values()]:
            orders.gives(self)
        plain(self)

    return give


hooked.register(_Exclusion, "take", _noted_take, "sanitize")
hooked.register(_Exclusion, "give", _noted_give, "sanitize")

_exclusions: dict[str, _Exclusion] = {}  # by name; of the process, as the standard has it
_ATOMIC = _Exclusion("atomic")


def critical(name: str = "") -> Critical:
    """Run a block that excludes all other ``critical`` blocks of the same name, in all threads of the process.

    Raises
    ------
    UsageError
        At the entry: the thread is in a block of this name.

    Notes
    -----
    The entry blocks while another thread is in such a block. OpenMP 5.2, 15.2 "critical Construct" (section number
    unchecked).
    """
    directive = f"critical({name})" if name else "critical"
    return Critical(_exclusions.setdefault(name, _Exclusion(directive)))


def atomic() -> Critical:
    """Run a block that excludes all other ``atomic`` blocks, in all threads of the process."""
    return Critical(_ATOMIC)
