"""MPI as it is found: whether several threads may call it, and the meaning of its errors."""

from __future__ import annotations

from functools import cache

from mpi4py import MPI

from offload.errors import TransportError, UsageError
from offload.interrupts.forks import in_forked_child

# The thread levels that do not do.
_LEVELS = {
    MPI.THREAD_SINGLE: "MPI_THREAD_SINGLE",
    MPI.THREAD_FUNNELED: "MPI_THREAD_FUNNELED",
    MPI.THREAD_SERIALIZED: "MPI_THREAD_SERIALIZED",
}

_is_forked = False
_is_ready = False  # Whether MPI was found to be as needed, in this process: then all that can change is that it ends


def check_mpi(what: str) -> None:
    """Raise `UsageError` if MPI cannot be called from several threads, or not at all."""
    # MPI 4.1, 11.6.2 "Clarifications"; ``what`` begins the message.
    global _is_ready  # noqa: PLW0603  # the process's one state
    if _is_ready and not MPI.Is_finalized():
        return
    if _is_forked:
        raise UsageError(f"{what}: this process was forked, and MPI belongs to its parent; start ranks with mpiexec")
    if MPI.Is_finalized():
        raise UsageError(f"{what}: MPI is finalised; do this before MPI.Finalize()")
    if not MPI.Is_initialized():
        raise UsageError(f"{what}: MPI is not initialised; call MPI.Init_thread(), or leave mpi4py.rc.initialize on")
    level = MPI.Query_thread()
    if level < MPI.THREAD_MULTIPLE:
        raise UsageError(
            f"{what}: MPI was initialised with thread level {_LEVELS.get(level, level)}, but is called from several "
            'threads here; set mpi4py.rc.thread_level = "multiple" before `from mpi4py import MPI`, or wait for the '
            "request yourself and then call event.fulfill()"
        )
    _is_ready = True


# The classes of errors that follow the failure of a rank; mpi4py says unknown for what a library does not have.
_OF_FAILED_RANKS = {MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED} - {MPI.ERR_UNKNOWN}


def transport_error(error: MPI.Exception, operation: str) -> TransportError:
    """Return the error of an operation of MPI that has failed."""
    kind = error.Get_error_class()
    name = _error_names().get(kind, f"MPI error class {kind}")
    text = f"{operation} failed: {name}, {error.Get_error_string().removeprefix(f'{name}: ')}"
    failed = _failed_ranks() if kind in _OF_FAILED_RANKS else []
    if failed:
        text += f"; failed ranks of MPI_COMM_WORLD: {', '.join(map(str, failed))}"
    found = TransportError(text, kind, name, operation)
    found.__cause__ = error
    return found


def is_pending(error: MPI.Exception) -> bool:
    """Tell whether a receive from any rank is open still after the failure of one."""
    kind = error.Get_error_class()
    return kind == MPI.ERR_PROC_FAILED_PENDING and kind in _OF_FAILED_RANKS


def _failed_ranks() -> list[int]:
    """Return the ranks of `MPI.COMM_WORLD` that this process knows to have failed."""
    failed = world = MPI.GROUP_NULL
    try:
        failed, world = MPI.COMM_WORLD.Get_failed(), MPI.COMM_WORLD.Get_group()
        return sorted(failed.Translate_ranks(None, world))
    except (MPI.Exception, NotImplementedError):
        return []
    finally:
        for group in (failed, world):
            if group != MPI.GROUP_NULL and group != MPI.GROUP_EMPTY:  # noqa: PLR1714  # groups are not hashable
                group.Free()


@cache
def _error_names() -> dict[int, str]:
    """Return the names of MPI's error classes."""
    names = [name for name in dir(MPI) if name.startswith("ERR_")]
    return {getattr(MPI, name): f"MPI_{name}" for name in names if isinstance(getattr(MPI, name), int)}


@in_forked_child
def _after_fork() -> None:
    global _is_forked, _is_ready  # as above
    _is_forked, _is_ready = True, False
