"""Who chooses among the ways of a loop on several devices: the model, trials in pairs, bounds, times that come late."""

from __future__ import annotations

from offload.loops.sets.modes import CALL_S, FORK_S, N_TIMED, SPREAD_S, Chooser, Cost, expected_s


def given(chooser, n):
    return [chooser.next() for _ in range(n)]


def tried(*modes, n_timed=1):
    """Return the calls in which ways are tried: the first of each is not timed."""
    return [(mode, n > 0) for mode in modes for n in range(1 + n_timed)]


AGAIN = tried("single", n_timed=N_TIMED - 1)


def test_each_way_is_tried_twice_and_the_second_call_counts():
    """The best expected comes first, then one device: two calls each, the second is timed; then the quickest."""
    chooser = Chooser({"split": 1e-3, "duplicate": 2.5e-3, "single": 2e-3})
    assert given(chooser, 5) == [*tried("split", "single"), ("split", False)]
    chooser.note("split", 2e-3)
    chooser.note("single", 1e-3)
    assert given(chooser, 2) == [("single", False)] * 2
    assert "split took 2000 µs; single took 1000 µs; duplicate would take 1015 µs at least" in chooser.why


def test_one_device_says_what_is_worth_a_trial():
    """Where one device comes first the others wait for its times, and are tried if they may be quicker than that."""
    expected = {"split": 26e-6, "duplicate": 27e-6, "single": 11e-6}
    long, short = Chooser(expected), Chooser(expected)
    for chooser, seconds in ((long, 3 * SPREAD_S), (short, SPREAD_S)):
        assert given(chooser, 4) == [*tried("single"), ("single", False), ("single", False)]
        assert chooser.resting == "single"
        chooser.note("single", seconds)
    assert (short.chosen, short.candidates) == ("single", ("single",))
    assert "split would take 200 µs at least; duplicate would take 215 µs at least" in short.why
    assert given(long, 4) == [*AGAIN, ("single", False)]
    for seconds in (2 * SPREAD_S, 4 * SPREAD_S):
        assert long.resting == "single"
        long.note("single", seconds)
    assert long.resting is None
    assert given(long, 3) == [*tried("split"), ("single", False)]
    long.note("split", 0.5 * SPREAD_S)
    assert (long.chosen, long.candidates) == ("split", ("split", "single"))
    assert "split took 100 µs; single took 400 µs; duplicate would take 415 µs" in long.why


def test_a_call_that_was_held_up_decides_nothing():
    """One device is timed again before other ways are tried for its time, or win by it; the quickest call counts."""
    chooser = Chooser({"split": 26e-6, "single": 11e-6})
    given(chooser, 2)
    chooser.note("single", 50 * SPREAD_S)
    assert given(chooser, 3) == AGAIN
    chooser.note("single", 0.5 * SPREAD_S)
    chooser.note("single", 40 * SPREAD_S)
    assert (chooser.chosen, chooser.candidates) == ("single", ("single",))
    for second_s, chosen in ((1e-3, "single"), (8e-3, "split")):
        chooser = Chooser({"split": 1e-3, "single": 2e-3})
        given(chooser, 4)
        chooser.note("single", 9e-3)
        chooser.note("split", 5e-3)
        assert given(chooser, 4) == [*AGAIN, ("split", False)]
        chooser.note("single", second_s)
        chooser.note("single", 9e-3)
        assert chooser.chosen == chosen


def test_what_the_host_takes_counts():
    """A way whose calls take the host longer is no quicker for what the devices take; it bounds no other way."""
    chooser = Chooser({"split": 1e-3, "single": 2e-3})
    given(chooser, 4)
    chooser.note("split", 0.1e-3, 0.5e-3)
    chooser.note("single", 0.25e-3, 0.3e-3)
    assert chooser.chosen == "single"
    assert "split took 500 µs; single took 300 µs" in chooser.why
    short = Chooser({"split": 26e-6, "single": 11e-6})
    given(short, 2)
    short.note("single", 0.5 * SPREAD_S, 5 * SPREAD_S)
    assert short.candidates == ("single",)
    assert short.why == (
        "single took 1000 µs; split would take 200 µs at least; "
        "the device took 100 µs of single's 1000 µs, and other strategies can shorten only that part"
    )


def test_every_device_may_have_what_one_is_sent():
    """All devices doing all is tried where one device had to be sent something: that may be what takes so long."""
    for sent_nbytes, expected in ((0, ("split", "single")), (1 << 20, ("split", "duplicate", "single"))):
        chooser = Chooser({"split": 1e-3, "duplicate": 2.5e-3, "single": 2e-3})
        given(chooser, 4)
        chooser.note("split", 3e-3)
        for _ in range(N_TIMED if sent_nbytes else 1):
            chooser.note("single", 2e-3, sent_nbytes=sent_nbytes)
        assert chooser.candidates == expected


def test_what_cannot_win_is_not_tried():
    """A way that the model expects to take more than three times the best is struck out, and `why` says so."""
    chooser = Chooser({"split": 3.5e-3, "single": 1e-3})
    assert given(chooser, 3) == [("single", False)] * 3
    assert chooser.why == "split is expected to take 3500 µs"
    assert Chooser({"split": 3e-3, "single": 1e-3}).candidates == ("split", "single")
    assert Chooser({"split": 1e-3, "single": 3.5e-3}).chosen == "split"


def test_without_one_device_all_are_tried():
    """Where the model has struck out one device nothing bounds the others: each is tried, the best expected first."""
    chooser = Chooser({"split": 2e-3, "duplicate": 1e-3, "single": 4e-3})
    assert given(chooser, 4) == tried("duplicate", "split")


def test_until_times_are_known():
    """While times are on their way the best one so far is taken; before there is any, what the model expects to be."""
    chooser = Chooser({"split": 1.0e-3, "single": 1.2e-3})
    given(chooser, 4)
    assert chooser.next() == ("split", False)
    chooser.note("single", 0.5e-3)
    assert chooser.next() == ("single", False)
    chooser.note("split", 0.4e-3)
    assert given(chooser, 4) == [*AGAIN, ("split", False)]


def test_a_gain_of_less_than_a_twentieth_is_none():
    """Another way than one device has to be 5 % quicker, or the devices are left to others."""
    for seconds, chosen in ((1.0e-3, "single"), (0.96e-3, "single"), (0.94e-3, "split")):
        chooser = Chooser({"split": 1e-3, "single": 1e-3})
        given(chooser, 4)
        chooser.note("split", seconds)
        for _ in range(N_TIMED):
            chooser.note("single", 1.0e-3)
        assert chooser.now == chosen


def test_what_the_host_would_have_to_send():
    """Where nothing is present the time of copies to other devices is added to that of a way that needs them."""
    chooser = Chooser({"split": 1e-3, "single": 2e-3})
    assert not chooser.is_best_alone(1 << 30)  # nothing is known
    given(chooser, 4)
    assert not chooser.is_best_alone(1 << 30)
    chooser.note("split", 1e-3)
    for _ in range(N_TIMED):
        chooser.note("single", 2e-3)
    given(chooser, 3)
    assert [chooser.is_best_alone(nbytes) for nbytes in (0, 5_000_000, 20_000_000)] == [False, False, True]


def test_what_the_model_expects():
    """The slowest device decides; several devices cost a fork and a join; what is sent comes on top."""
    assert expected_s([Cost(0, 0, 0)]) == CALL_S
    assert expected_s([Cost(0, 0, 0)] * 2) == CALL_S + FORK_S
    one = expected_s([Cost(1 << 30, 0, 0)])
    two = expected_s([Cost(1 << 29, 0, 0)] * 2)
    sent = expected_s([Cost(1 << 29, 0, 1 << 29)] * 2)
    assert two < one < sent
