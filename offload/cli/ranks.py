"""The command line on several ranks."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from offload.errors import DependError, OffloadError, TransportError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mpi4py import MPI

# How long a launcher may take to read what a rank has written: MPICH's drops the rest when the job is aborted.
_FORWARDED_S = 0.1


@contextmanager
def printed_once(argv: Sequence[str]) -> Iterator[None]:
    """Let only rank 0 print in the block, if the arguments are those of a job of ranks."""
    rank = 0
    if "--mpi" in argv:
        with suppress(ImportError, RuntimeError):  # told by who needs it
            from mpi4py import MPI

            rank = MPI.COMM_WORLD.rank
    if rank == 0:
        yield
        return
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


def end_all(comm: MPI.Comm, error: BaseException, part: str = "") -> NoReturn:
    """Print why this rank ended, remove the incomplete file, and end all ranks: others may wait for this one."""
    with suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # by which the first of them ends the others
    time.sleep(min(3 * _FORWARDED_S * comm.rank, 2))  # where several fail at once, the first of them tells
    leaves = [error]
    while any(isinstance(leaf, BaseExceptionGroup) for leaf in leaves):
        leaves = [
            one for leaf in leaves for one in (leaf.exceptions if isinstance(leaf, BaseExceptionGroup) else [leaf])
        ]
    leaf = next((leaf for leaf in leaves if not isinstance(leaf, (TransportError, DependError))), leaves[0])
    if isinstance(leaf, KeyboardInterrupt):
        text, status = "interrupted", 130
    elif isinstance(leaf, SystemExit):
        text, status = "terminated", leaf.code if isinstance(leaf.code, int) else 1
    elif isinstance(leaf, (OffloadError, OSError)):
        text, status = f"error: rank {comm.rank}: {leaf}", 2
    else:
        text, status = f"error: rank {comm.rank}:\n{''.join(traceback.format_exception(leaf))}", 1
    if part:
        with suppress(OSError):
            Path(part).unlink(missing_ok=True)
    if sys.stderr is not None:
        sys.stderr.write(f"offload: {text.rstrip()}\n")
        sys.stderr.flush()
        time.sleep(_FORWARDED_S)
    comm.Abort(status)
    os._exit(status)  # where that returns, as it may to one of several threads
