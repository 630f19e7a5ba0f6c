"""The memory of a speculative loop: attempts to run it in parallel, and calls that may run as any other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from offload.loops.running.looks import contents_at
from offload.loops.running.memo import float_bits
from offload.loops.speculative.contest import History

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from offload.data.versions import Contents
    from offload.loops.proofs.dependences import DependenceProfile
    from offload.loops.running.memo import CallRecord
    from offload.loops.running.plan import NestPlan, Numbers
    from offload.loops.running.preparation import Apart
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
    why: str = ""  # how the latest call has run, and why, in words
    line: int | None = None  # that of the nest, of a function that has several
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


# -- verdicts -----------------------------------------------------------------------------------------
#
# A verdict is found by the versions of the arrays that addresses are made of, by scalars and by the numbers of the
# call. Which of these a loop asks for is kept for the numbers (`VerdictBasis`), so that a call evaluates nothing.


PROVED: Final = "its iterations are proved to be independent"
REMEMBERED: Final = "its iterations were independent for such arguments"


class Remembered(NamedTuple):
    """A call that may run as any other loop does, as one before it."""

    memory: Memory  # of all calls of the loop
    # Other calls with the same numbers may as long as arrays at the same addresses have these; None: not so.
    contents: Mapping[str, Contents] | None
    why: str  # for those who look on


class VerdictBasis(NamedTuple):
    """The facts about a verdict that follow from the numbers of a call."""

    is_parallel: bool  # it is proved
    arrays: tuple[str, ...]  # those of whose contents a verdict follows
    floats: tuple[str, ...]  # parameters from which it follows and that are no part of the numbers
    apart: Apart  # arrays that share no memory, of which alone this is so


def remembered(spec: Specialisation, values: Mapping[str, Any], task: DeviceTask) -> Remembered | None:
    """Return the memory of a call that may run in parallel, and tell the observers; None if there is none."""
    found = recalled(spec, values, task)
    if found is not None:
        tell(task, found.memory, "device", f"in parallel: {found.why}")
    return found


def recalled(spec: Specialisation, values: Mapping[str, Any], task: DeviceTask) -> Remembered | None:
    """Return the memory of a call that may run in parallel; None if there is none."""
    memory: Memory | None = spec.speculation
    if memory is None:
        return None
    record = spec.calls.use(spec.key(values))
    known: VerdictBasis | None = None if record is None else record.known
    if record is None or known is None:
        return None
    locate = task.place.device.address
    addresses: dict[str, Any] = {name: locate(values[name]) for name in spec.given}
    if None in addresses.values() or not known.apart.holds(addresses):
        return None
    if known.is_parallel:
        return Remembered(memory, {}, PROVED)
    if spec.program.words.speculate == "always" or memory.is_sequential:
        return None
    contents = contents_of(known, values, task)
    verdict = record.facts.use(key_from(None, known, values, addresses, contents))
    return Remembered(memory, None if known.floats else contents, REMEMBERED) if verdict else None


def contents_of(known: VerdictBasis, values: Mapping[str, Any], task: DeviceTask) -> dict[str, Contents] | None:
    """Return the contents of the arrays that a verdict follows from; None if one is not known."""
    found = {}
    for name in known.arrays:
        contents = contents_at(task, values[name])
        if contents is None:
            return None
        found[name] = contents
    return found


def key_from(
    lies: Hashable,
    known: VerdictBasis,
    values: Mapping[str, Any],
    addresses: Mapping[str, int],
    contents: Mapping[str, Contents] | None,
) -> Any:
    """Return the key that a verdict follows from, besides the call's key; None if it is not known.

    ``lies`` is as in `Numbers`.
    """
    if contents is None:
        return None
    versions = tuple([(one.version, addresses[name]) for name, one in contents.items()])
    return "verdict", lies, tuple([float_bits(values[name]) for name in known.floats]), versions


def tell(task: DeviceTask, memory: Memory, where: Literal["device", "host"], text: str) -> None:
    """Note the side on which a call runs, and why; tell the observers."""
    memory.last, memory.why = where, text
    notify = task.place.notify
    if notify is not None:
        of_nest = "" if memory.line is None else f"line {memory.line}: "
        notify.speculate(task.name, task.construct.location, task.place.device.number, of_nest + text)
