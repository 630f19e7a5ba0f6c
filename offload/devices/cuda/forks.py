"""CUDA in forked processes: a child cannot use it if a process that it was forked from has, and says so here.

CUDA's calls fail in such a child by an error that does not name the cause, and memory of the parent may not be there.
The library notes its own use. Whether the program has used CuPy by itself, a child learns by the first call that fails.
"""

from __future__ import annotations

from offload.errors import UsageError
from offload.interrupts.forks import in_forked_child

ADVICE = (
    "CUDA does not work in a process that was forked from one that has used it; start the process by spawn or "
    "forkserver, as with multiprocessing.get_context('spawn')"
)

_NOT_INITIALIZED = 3  # cudaErrorInitializationError

_is_used = False
_is_child = False
_was_used = False  # Whether this process has used CUDA; was forked; and was so from one that had used CUDA


def note_use() -> None:
    """Note that this process uses CUDA."""
    global _is_used  # noqa: PLW0603  # the process's one state
    _is_used = True


def check_fork() -> None:
    """Raise `UsageError` if this process was forked from one that has used CUDA."""
    if _was_used:
        raise UsageError(f"CUDA devices: {ADVICE}, or use devices='sim'")


def error_of_fork(error: BaseException) -> UsageError | None:
    """Return the error to raise for an error of CUDA if a fork is the cause; else None."""
    status = getattr(error, "status", None)
    if not _is_child or not (_was_used or status == _NOT_INITIALIZED):
        return None
    return UsageError(f"{error}: {ADVICE}, or use devices='sim'")


@in_forked_child
def _after_fork() -> None:
    global _is_child, _was_used  # as above
    _is_child, _was_used = True, _was_used or _is_used
