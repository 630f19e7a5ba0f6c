"""The memory of a speculative loop, and the input and outcome of an attempt to run it in parallel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from offload.loops.speculative.contest import History

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from offload.loops.proofs.dependences import DependenceProfile
    from offload.loops.running.memo import CallRecord
    from offload.loops.running.plan import NestPlan, Numbers
    from offload.loops.running.specialise import Specialisation
    from offload.loops.speculative.log_runs import LoggedLoop, Violation
    from offload.runtime.launch import DeviceTask

Winner = Literal["device", "host"]


@dataclass(slots=True)
class Memory:
    """The memory of all calls of a loop with arguments of certain types. Threads take the lock of the loop."""

    profile: DependenceProfile | None = None  # the program has given it, or the first call has seen it
    is_sequential: bool = False  # a dependence was seen or met: from now on the loop runs in order
    last: Winner | None = None  # where the latest call has run
    seen: tuple[int, int] | None = None  # iterations that the first call has profiled, and all that it had


def history_of(record: CallRecord) -> History:
    """Return the history of races of calls with the numbers of a record."""
    found: History | None = record.history
    return found or History()


def note_time(spec: Specialisation, record: CallRecord, known: Callable[[History], History]) -> History:
    """Update the history of calls with the numbers of a record by ``known``; return the new history."""
    with spec.lock:
        record.history = history = known(history_of(record))
    return history


class Attempt(NamedTuple):
    """A call that is to run in parallel, and may not."""

    # The loop, the numbers of the call on the device, and what is decided for them.
    spec: Specialisation
    numbers: Numbers
    plan: NestPlan
    loop: LoggedLoop  # with its log
    values: Mapping[str, Any]  # the arguments, by name: device arrays and scalars
    addresses: Mapping[str, int]  # of the arrays' elements `[0, …, 0]` on the device
    # The one that the call is made in. Its copies-in are on its lane.
    task: DeviceTask


class Outcome(NamedTuple):
    """The outcome of an attempt. The results of the winner are in the arrays of the attempt."""

    winner: Winner  # whose results count
    violation: Violation | Exception | None  # what the device has found, of whatever the host has won
    results: Mapping[str, Any]  # the scalars that come out
    error: Exception | None = None  # what the serial program raises; the arrays hold what that has written
    raced: bool = True  # whether the device took part
