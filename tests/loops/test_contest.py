"""Every order of events of a race: one commit, of a result that is good, when nobody runs any more."""

from __future__ import annotations

import pytest

from offload.loops.speculative.contest import Contest, History, Instruction, RaceEvent, start_of

COMMITS = {Instruction.COMMIT_DEVICE, Instruction.COMMIT_HOST, Instruction.RAISE, Instruction.RESTORE}
STARTS = [(True, False), (True, True), (False, True)]
OWN = {
    "device": [RaceEvent.DEVICE_CLEAN, RaceEvent.DEVICE_WRONG],
    "host": [RaceEvent.HOST_DONE, RaceEvent.HOST_RAISED],
}


def may_follow(contest, given):
    """Return the events that may come: of the sides that run, of the clock, of the program."""
    events = []
    if contest.device in ("running", "stopping"):
        events += OWN["device"]
    if contest.device == "stopping":
        events.append(RaceEvent.DEVICE_STOPPED)
    if contest.host in ("running", "stopping"):
        events += OWN["host"]
    if contest.host == "stopping":
        events.append(RaceEvent.HOST_STOPPED)
    if Instruction.STOP_DEVICE not in given and Instruction.STOP_HOST not in given:
        events.append(RaceEvent.DUE)
    return [*events, RaceEvent.GIVE_UP]


def histories(machine=Contest):
    """Yield every order of events until a race is over, with the instructions that came of each."""
    waiting = []
    for device, host in STARTS:
        contest, given = machine.begun(device=device, host=host)
        waiting.append((contest, (), given))
    while waiting:
        contest, events, given = waiting.pop()
        if contest.is_over:
            yield events, given
            continue
        for event in may_follow(contest, given):
            if events.count(event) >= 2:  # what may come again and again changes nothing the second time
                continue
            after, more = contest.after(event)
            waiting.append((after, (*events, event), (*given, *more)))


def violated(events, given):
    """Return what is wrong with a race; None if nothing is."""
    commits = [one for one in given if one in COMMITS]
    if len(commits) != 1 or given[-1] is not commits[0]:
        return "not one commit, at the end"
    for side in ("DEVICE", "HOST"):
        started = Instruction[f"START_{side}"] in given
        ended = [one for one in events if one.name.startswith(side)]
        if len(ended) != started:
            return f"{side} has not ended once for each start"
    commit = commits[0]
    deciding = (RaceEvent.DEVICE_CLEAN, RaceEvent.HOST_DONE, RaceEvent.HOST_RAISED, RaceEvent.GIVE_UP)
    decisive = next((one for one in events if one in deciding), None)
    allowed = {
        RaceEvent.DEVICE_CLEAN: Instruction.COMMIT_DEVICE,
        RaceEvent.HOST_DONE: Instruction.COMMIT_HOST,
        RaceEvent.HOST_RAISED: Instruction.RAISE,
        RaceEvent.GIVE_UP: Instruction.RESTORE,
    }.get(decisive)
    if commit is not allowed and not (commit is Instruction.RESTORE and RaceEvent.GIVE_UP in events):
        return f"{decisive} is followed by {commit}"
    return None


def test_in_every_order_of_events_one_good_result_is_committed_when_nobody_runs():
    """Of all orders none ends in two commits, in a device's that was wrong, or while a side runs."""
    n = 0
    for events, given in histories():
        assert violated(events, given) is None, (events, given)
        n += 1
    assert n > 300


class CommitsAtOnce(Contest):
    """A mutant: commits when the winner is known, whoever still runs."""

    def settled(self):
        from dataclasses import replace

        return replace(self, is_over=True), (self.outcome,)


class CommitsBeforeTheVerdict(Contest):
    """A mutant: takes whatever the device leaves."""

    def after(self, event):
        return super().after(RaceEvent.DEVICE_CLEAN if event is RaceEvent.DEVICE_WRONG else event)


@pytest.mark.parametrize("mutant", [CommitsAtOnce, CommitsBeforeTheVerdict])
def test_mutants_are_found(mutant):
    """A machine that commits too early breaks a rule in some order."""
    assert any(violated(events, given) for events, given in histories(mutant))


def test_an_event_that_cannot_come_raises_and_changes_nothing():
    """The machine refuses what contradicts its books."""
    contest, _ = Contest.begun(device=True, host=False)
    for event in (RaceEvent.HOST_DONE, RaceEvent.HOST_STOPPED, RaceEvent.DEVICE_STOPPED):
        with pytest.raises(ValueError, match=event.name):
            contest.after(event)
    over, given = contest.after(RaceEvent.DEVICE_CLEAN)
    assert given == (Instruction.COMMIT_DEVICE,)
    with pytest.raises(ValueError, match="over"):
        over.after(RaceEvent.GIVE_UP)


def raced(history, **words):
    return history.with_race(**{"raced": True, "device_s": None, "host_s": None, **words})


def test_three_races_begin_together_then_the_competitor_waits():
    """It is due at 1.5 times what the device takes, at the latest after a twentieth of the serial time."""
    history = History()
    for _ in range(3):
        assert start_of(history) == (True, 0.0)
        history = raced(history, winner="device", device_s=0.1, host_s=40.0)
    assert start_of(history).host_after_s == pytest.approx(0.15)
    assert start_of(raced(history, winner="device", host_s=2.0)).host_after_s == pytest.approx(0.1)
    assert start_of(history, always=True) == (True, 0.0)
    assert start_of(history, can_compete=False) == (True, None)


def tried_in(history, n_calls):
    """Return the calls, of the next so many, in which the device takes part and loses."""
    tried = []
    for call in range(1, n_calls + 1):
        start = start_of(history)
        assert start.host_after_s == 0.0
        assert start.device != history.is_hosts
        if start.device:
            tried.append(call)
        history = raced(history, winner="host", raced=True) if start.device else history.stayed(1e-3)
    return tried


def test_while_the_host_keeps_winning_the_device_is_tried_every_fiftieth_call():
    """The host runs alone; a race that the device wins turns that round."""
    history = History()
    for _ in range(3):
        history = raced(history, winner="host")
    assert tried_in(history, 150) == [50, 100, 150]
    assert start_of(raced(history, winner="device", device_s=1.0)).device


def test_a_device_that_costs_more_is_tried_less_often():
    """What it takes to try it is a fiftieth of what the calls between take, at most."""
    history = History().measured(host_s=1e-3).measured(device_s=4e-3)
    assert tried_in(history, 500) == [200, 400]
    assert tried_in(History().measured(host_s=1e-3).measured(device_s=1.0001e-3), 100) == [51]


def test_sides_that_were_timed_by_themselves_decide_like_races():
    """Once both times are known the quicker side has won, and is asked again every fiftieth call."""
    history = History().measured(host_s=1e-3)
    assert history.winner is None
    assert start_of(history).device
    assert not history.is_hosts
    assert history.measured(device_s=2e-3).winner == "host"
    assert not start_of(history.measured(device_s=2e-3)).device
    assert history.measured(device_s=2e-3).is_hosts
    assert history.measured(device_s=5e-4).winner == "device"
    assert not history.measured(device_s=5e-4).is_hosts


def test_what_no_device_can_be_as_quick_as_is_the_hosts():
    """A loop that takes less than any call on a device is not tried there, until it takes longer for some time."""
    history = History(least_s=2e-4).measured(host_s=1e-4)
    assert history.is_hosts
    assert not History(least_s=2e-4).is_hosts
    assert not History(least_s=2e-4).measured(host_s=3e-4).is_hosts
    for _ in range(3):
        history = history.stayed(1.0)  # another may have had the core
        assert history.is_hosts
    assert not history.stayed(1.0).is_hosts
    assert history.stayed(1e-5).stayed(1e-5).stayed(1.0).is_hosts


def test_a_host_that_has_become_slow_wins_no_more():
    """What was said of it by a millisecond is put right by the calls that it has; one that was held up says little."""
    history = History().measured(host_s=1e-4).measured(device_s=1e-3)
    assert history.is_hosts
    n_calls = 0
    while history.is_hosts:
        history = history.stayed(5e-3)
        n_calls += 1
    assert 5 < n_calls < 20
    assert history.winner == "device"
    assert History().measured(host_s=9e-4).measured(device_s=1e-3).stayed(1.0).is_hosts
