"""What the command line does where it is started on several ranks."""

from __future__ import annotations

import os
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@contextmanager
def printed_once(argv: Sequence[str]) -> Iterator[None]:
    """Have rank 0 alone print what is printed in the block, if the arguments are those of a job of ranks."""
    rank = 0
    if "--mpi" in argv or list(argv[:2]) == ["bench", "mpi"]:
        with suppress(ImportError, RuntimeError):  # told by who needs it
            from mpi4py import MPI

            rank = MPI.COMM_WORLD.rank
    if rank == 0:
        yield
        return
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield
