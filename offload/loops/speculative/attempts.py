"""What is remembered of a speculative loop, and what an attempt to run it in parallel is given and returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from offload.loops.speculative.contest import History

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from offload.loops.proofs.dependences import DependenceProfile
    from offload.loops.running.plan import NestPlan, Numbers
    from offload.loops.running.specialise import Specialisation
    from offload.loops.speculative.logged import LoggedLoop, Violation
    from offload.runtime.launch import DeviceTask

_MOST: Final = 64
"""Verdicts that are remembered, those that were used last."""

Winner = Literal["device", "host"]


@dataclass(slots=True)
class Memory:
    """What is remembered of the calls of a loop with arguments of certain types. Threads take the lock of the loop.

    Attributes
    ----------
    profile : DependenceProfile or None
        What the program has given, or the first call has seen.
    is_sequential : bool
        A dependence was seen or met: from now on the loop runs in order.
    verdicts : dict
        What was found for certain contents and numbers: True where iterations are independent. The latest last.
    last : str or None
        Where the latest call has run.
    races : dict
        By the numbers of calls, what races took (`offload.loops.speculative.contest.History`).
    seen : tuple of (int, int) or None
        How many iterations the first call has profiled, and of how many.
    stays : dict
        Calls that have run on the program's own arrays: what tells them, and their numbers.
    """

    profile: DependenceProfile | None = None
    is_sequential: bool = False
    verdicts: dict[Any, bool] = field(default_factory=dict)
    last: Winner | None = None
    seen: tuple[int, int] | None = None
    races: dict[Any, Any] = field(default_factory=dict)
    stays: dict[Any, Any] = field(default_factory=dict)
    calls: dict[Any, Any] = field(default_factory=dict)

    def known(self, key: Any) -> bool | None:
        """Return what was found by a key; None where nothing was, or the key is None."""
        verdict = None if key is None else self.verdicts.pop(key, None)
        if verdict is not None:
            self.verdicts[key] = verdict
        return verdict

    def time(self, key: Any, known: Callable[[History], History]) -> History:
        """Note what is known of such a call, given what was."""
        history: History = self.races.pop(key, None) or History()
        if len(self.races) >= _MOST:
            del self.races[next(iter(self.races))]
        self.races[key] = history = known(history)
        return history

    def keep(self, key: Any, *, verdict: bool) -> None:
        """Remember what was found; in place of what was not used for longest, if there is much."""
        if key is None:
            return
        self.verdicts.pop(key, None)
        if len(self.verdicts) >= _MOST:
            del self.verdicts[next(iter(self.verdicts))]
        self.verdicts[key] = verdict


class Attempt(NamedTuple):
    """A call that is to run in parallel, and may not.

    Attributes
    ----------
    spec, numbers, plan
        The loop, the numbers of the call on the device, and what is decided for them.
    loop : LoggedLoop
    values : mapping
        The arguments, by name: device arrays and scalars.
    addresses : mapping of str to int
        Of the arrays' elements ``[0, …, 0]`` on the device.
    task : DeviceTask
        The one that the call is made in. Its copies-in are on its lane.
    memory : Memory
    """

    spec: Specialisation
    numbers: Numbers
    plan: NestPlan
    loop: LoggedLoop
    values: Mapping[str, Any]
    addresses: Mapping[str, int]
    task: DeviceTask
    memory: Memory


class Outcome(NamedTuple):
    """What has become of an attempt. The results of the winner are in the arrays of the attempt.

    Attributes
    ----------
    winner : str
    violation : Violation, Exception or None
        What the device has found, of whatever the host has won.
    results : dict
        The scalars that come out.
    error : Exception or None
        What the serial program raises; the arrays hold what that has written.
    raced : bool
        Whether the device took part.
    """

    winner: Winner
    violation: Violation | Exception | None
    results: Mapping[str, Any]
    error: Exception | None = None
    raced: bool = True
