"""Who chooses among the ways of a loop on several devices: the model, trials in pairs, times that come late."""

from __future__ import annotations

from offload.loops.modes import CALL_S, FORK_S, Chooser, Cost, expected_s


def given(chooser, n):
    return [chooser.next() for _ in range(n)]


def test_each_way_is_tried_twice_and_the_second_call_counts():
    """Ways come in their order, two calls each, of which the second is timed; then the quickest is taken."""
    chooser = Chooser({"split": 1e-3, "duplicate": 1e-3, "single": 1e-3})
    trials = [(mode, is_timed) for mode in ("split", "duplicate", "single") for is_timed in (False, True)]
    assert given(chooser, 6) == trials
    for mode, seconds in (("split", 2e-3), ("duplicate", 3e-3), ("single", 1e-3)):
        chooser.note(mode, seconds)
    assert given(chooser, 2) == [("single", False)] * 2
    assert "single took 1000 µs" in chooser.why


def test_what_cannot_win_is_not_tried():
    """A way that the model expects to take more than three times the best is struck out, and `why` says so."""
    chooser = Chooser({"split": 3.5e-3, "single": 1e-3})
    assert given(chooser, 3) == [("single", False)] * 3
    assert chooser.why == "split is expected to take 3500 µs"
    assert Chooser({"split": 3e-3, "single": 1e-3}).candidates == ("split", "single")


def test_until_times_are_known():
    """While times are on their way the best one so far is taken: of those without a time what the model expects."""
    chooser = Chooser({"split": 1.2e-3, "single": 1e-3})
    given(chooser, 4)
    assert chooser.next() == ("single", False)
    chooser.note("split", 0.5e-3)
    assert chooser.next() == ("split", False)
    chooser.note("single", 0.4e-3)
    assert chooser.next() == ("single", False)


def test_the_chosen_one_stays():
    """Another way has to be 5 % faster: what is a little quicker by a later time changes nothing."""
    chooser = Chooser({"split": 1e-3, "single": 1e-3})
    given(chooser, 4)
    chooser.note("split", 1.0e-3)
    chooser.note("single", 1.1e-3)
    chooser.note("single", 0.96e-3)
    assert chooser.now == "split"
    chooser.note("single", 0.94e-3)
    assert chooser.now == "single"


def test_what_the_model_expects():
    """The slowest device decides; several devices cost a fork and a join; what is sent comes on top."""
    assert expected_s([Cost(0, 0, 0)]) == CALL_S
    assert expected_s([Cost(0, 0, 0)] * 2) == CALL_S + FORK_S
    one = expected_s([Cost(1 << 30, 0, 0)])
    two = expected_s([Cost(1 << 29, 0, 0)] * 2)
    sent = expected_s([Cost(1 << 29, 0, 1 << 29)] * 2)
    assert two < one < sent
