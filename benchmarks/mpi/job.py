"""The job that is measured: its ranks, and how they do something together."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from benchmarks.harness.measuring import alternate
from offload.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.harness.measuring import Samples


@dataclass(frozen=True)
class Job:
    """What a section measures with. All ranks measure the same in step; what the first one returns is shown.

    Attributes
    ----------
    comm : mpi4py.MPI.Intracomm
        Of all ranks.
    repeat : int
        Runs of each, in turn.
    is_quick : bool
        Whether to measure as little as shows that it works.
    """

    comm: MPI.Intracomm
    repeat: int
    is_quick: bool

    def slowest_s(self, call: Callable[[], object]) -> float:
        """Call on all ranks, which begin together; return the seconds of the slowest one, on each."""
        gc.collect()
        self.comm.Barrier()
        began_s = time.perf_counter()
        call()
        return self.most(time.perf_counter() - began_s)

    def in_turn_s(self, calls: Mapping[str, Callable[[], object]]) -> dict[str, Samples]:
        """Call all in turn, after one turn that warms up; return the seconds of the slowest rank in each turn."""
        return alternate({name: partial(self.slowest_s, call) for name, call in calls.items()}, self.repeat)

    def most(self, figure: float) -> float:
        """Return the highest of a figure that each rank has, on each."""
        return float(self.comm.allreduce(figure, op=MPI.MAX))

    def expect(self, is_right: Any, what: str) -> None:
        """Raise `InternalError` on all ranks if what was computed is wrong on one.

        A time of a wrong result means nothing.
        """
        wrong = [rank for rank, right in enumerate(self.comm.allgather(bool(is_right))) if not right]
        if wrong:
            raise InternalError(f"mpi: {what} gave a wrong result on rank {', '.join(map(str, wrong))}")
