"""The rule of when requests are looked at again, under a clock that is part of the test."""

from __future__ import annotations

import random

import pytest

from offload.events.pace import Pace

POLL_S = 1e-6
MB = 1_000_000


class Scripted:
    """A thread that polls as the rule says, on a machine where polls and naps cost what the test says."""

    def __init__(self, nap_cost_s=20e-6, idle_s=POLL_S, n_bytes=0):
        self.pace = Pace(idle_s)
        self.pace.opened(n_bytes)
        self.nap_cost_s = nap_cost_s
        self.now_s = self.cpu_s = 0.0
        self.naps = []  # when each began, and how long it is

    def poll(self, took_s=POLL_S, n_open=1):
        """Poll as often as the rule says, and nap if it says so; return the nap."""
        self._spend(took_s * self.pace.n_polls)
        nap_s = self.pace.nap_s(took_s, n_open, self.now_s, self.cpu_s)
        if nap_s:
            self.naps.append((self.now_s, nap_s))
            self.now_s += nap_s
            self._spend(self.nap_cost_s)
        return nap_s

    def poll_until(self, end_s, took_s=POLL_S):
        """Poll until a time at which nothing is complete yet."""
        while self.now_s < end_s:
            self.poll(took_s)

    def spin(self, took_s=3 * POLL_S):
        """Poll until the rule lets the thread nap; return the processor time of that."""
        began_s = self.cpu_s
        while not self.poll(took_s) and self.cpu_s < began_s + 60:
            pass
        self.poll()  # it is not judged
        return self.cpu_s - began_s

    def _spend(self, time_s):
        self.now_s += time_s
        self.cpu_s += time_s


@pytest.mark.parametrize("nap_cost_s", [2e-6, 20e-6, 80e-6, 150e-6])
def test_what_is_open_for_long_takes_little(nap_cost_s):
    """Whether a nap costs 2 or 150 µs, a request that is open for 10 s takes at most 2 % of a core."""
    thread = Scripted(nap_cost_s)
    thread.poll_until(10)
    assert thread.cpu_s <= 0.02 * 10


@pytest.mark.parametrize("nap_cost_s", [2e-6, 20e-6, 80e-6, 300e-6])
def test_a_nap_is_a_small_part_of_the_wait(nap_cost_s):
    """A nap is 20 µs, or at most 2 % of the time since something moved."""
    thread = Scripted(nap_cost_s)
    thread.poll_until(1)
    assert thread.naps[0][1] == pytest.approx(20e-6)
    assert all(nap_s <= max(20e-6, 0.0200001 * began_s) for began_s, nap_s in thread.naps)


def test_where_naps_are_cheap_they_end_at_two_milliseconds():
    """Where a nap costs 20 µs the longest one is 2 ms, where it costs 80 µs it is 64 times that."""
    cheap, dear = Scripted(20e-6), Scripted(80e-6)
    for thread in (cheap, dear):
        thread.poll_until(3)
    assert max(nap_s for _, nap_s in cheap.naps) == 2e-3
    assert max(nap_s for _, nap_s in dear.naps) == pytest.approx(64 * (80e-6 + 2 * POLL_S), rel=0.01)


def test_a_machine_that_becomes_quicker():
    """What a nap costs is learnt anew: within a second the naps fit the machine as it is now."""
    thread = Scripted(200e-6)
    thread.poll_until(2)
    assert thread.naps[-1][1] > 10e-3
    thread.nap_cost_s = 10e-6
    thread.poll_until(3)
    assert thread.naps[-1][1] == 2e-3


def test_one_that_takes_long_once():
    """One nap after which something has come in between does not make the next ones long."""
    thread = Scripted(20e-6)
    thread.poll_until(2)
    thread.nap_cost_s = 300e-6
    thread.poll()
    thread.nap_cost_s = 20e-6
    thread.poll_until(2.1)
    assert max(nap_s for _, nap_s in thread.naps) <= 3e-3


def test_no_nap_while_data_moves():
    """Polls that take twice as long as the shortest one follow each other at once, while open bytes explain them."""
    thread = Scripted(n_bytes=1_000 * MB)
    thread.poll_until(1e-3)
    while thread.poll():  # whose nap is over: the next one is not judged
        pass
    began = len(thread.naps)
    assert not any(thread.poll(took_s=3 * POLL_S) for _ in range(1_000))
    assert len(thread.naps) == began


def test_no_nap_in_a_first_transfer():
    """Where every poll so far has moved data it is known all the same what an idle one takes."""
    thread = Scripted(n_bytes=1_000 * MB)
    assert not any(thread.poll(took_s=3 * POLL_S) for _ in range(1_000))
    thread = Scripted(idle_s=5 * POLL_S, n_bytes=1_000 * MB)  # too much: what is seen is less
    assert thread.poll() > 0
    thread.poll()
    assert not any(thread.poll(took_s=3 * POLL_S) for _ in range(1_000))


def test_after_data_has_moved_naps_are_short():
    """Where polls have moved data the time without movement begins anew, and with it the naps."""
    thread = Scripted(n_bytes=16 * MB)
    thread.poll_until(1)
    for _ in range(20):
        thread.poll(took_s=3 * POLL_S)
    naps = [thread.poll() for _ in range(3)]
    assert max(naps) == pytest.approx(20e-6)


def test_a_few_slow_polls_are_no_movement():
    """On a core that was idle some polls are slow by themselves: the naps stay as long as they were."""
    thread = Scripted(n_bytes=16 * MB)
    thread.poll_until(1)
    for _ in range(5):
        thread.poll(took_s=3 * POLL_S)
    assert max(thread.poll() for _ in range(3)) == 2e-3


def test_a_poll_that_looked_too_short_is_forgotten():
    """Where one poll looked a tenth as long as all others, the thread naps again within seconds of spinning."""
    thread = Scripted(n_bytes=10_000 * MB)
    thread.poll(POLL_S / 10)
    thread.poll_until(10)
    assert thread.naps[-1][0] > 9.9
    assert thread.cpu_s < 8


def test_slow_polls_without_open_bytes():
    """Where no bytes are open nothing can move: however slow polls are, the thread naps as ever."""
    thread = Scripted()
    thread.poll_until(1)
    n_naps, cpu_s = len(thread.naps), thread.cpu_s
    thread.poll_until(2, took_s=10 * POLL_S)
    assert min(nap_s for _, nap_s in thread.naps[n_naps:]) >= 2e-3
    assert thread.cpu_s - cpu_s < 0.03


def test_slow_polls_for_a_message_of_some_bytes():
    """Slow polls keep the thread from napping for microseconds in all, where some bytes are open."""
    thread = Scripted(n_bytes=1_000)
    thread.poll_until(1)
    assert thread.spin() < 0.1e-3


@pytest.mark.parametrize("n_bytes", [MB, 16 * MB])
def test_slow_polls_are_believed_as_long_as_open_bytes_explain_them(n_bytes):
    """Before the thread naps slow polls take as long as what is open does at 0.5 GB/s, and a batch of them more."""
    thread = Scripted(n_bytes=n_bytes)
    thread.poll_until(0.1)
    assert n_bytes / 0.5e9 <= thread.spin() <= n_bytes / 0.5e9 + 0.5e-3
    assert thread.spin() < 0.5e-3


def test_what_is_complete_explains_no_slow_poll():
    """With a request its bytes go: the next slow poll is followed by a nap."""
    thread = Scripted()
    for n_bytes in (3 * MB, MB // 7, 16 * MB):
        thread.pace.opened(n_bytes)
    for n_bytes in (16 * MB, 3 * MB, MB // 7):
        thread.pace.closed(n_bytes)
    thread.poll()
    thread.poll()
    assert thread.poll(took_s=3 * POLL_S) > 0


def test_a_request_that_stays_open_among_many_that_do_not():
    """It inherits nothing of what those leave that come and are complete: once its own part is spent, it is."""
    thread = Scripted(n_bytes=MB)
    thread.spin()
    for _ in range(1_000):
        thread.pace.opened(MB)
        thread.pace.begin()
        assert thread.poll(took_s=3 * POLL_S) == 0
        thread.pace.closed(MB)
    thread.poll()
    assert thread.spin() < 0.5e-3


def test_each_request_has_what_its_own_bytes_explain():
    """One that has waited in vain takes nothing from another that is opened beside it."""
    thread = Scripted(n_bytes=MB)
    thread.spin()
    thread.pace.opened(16 * MB)
    assert thread.spin() > 31e-3


def test_data_that_comes_late():
    """Where the other side is late, and one poll of three was slow all the time, its data moves without a nap."""
    thread, rng = Scripted(n_bytes=MB), random.Random(1)
    while thread.now_s < 60:
        thread.poll(took_s=rng.choice([POLL_S, POLL_S, 3 * POLL_S]))
    while thread.poll():
        pass
    assert not any(thread.poll(took_s=3 * POLL_S) for _ in range(10))


def test_slow_polls_that_go_on_for_ever():
    """Whatever polls look like, a wait of a minute for 16 MB takes 3 % of a core."""
    thread = Scripted(n_bytes=16 * MB)
    thread.poll_until(60, took_s=3 * POLL_S)
    assert thread.cpu_s < 0.03 * 60


def test_polls_at_once_take_no_longer_than_a_moment():
    """While data moves there are many polls before the next judgement, and few where each takes long."""
    quick, slow = Scripted(n_bytes=1_000 * MB), Scripted(n_bytes=1_000 * MB)
    for thread, took_s in ((quick, 3 * POLL_S), (slow, 1e-3)):
        assert thread.pace.n_polls == 1
        for _ in range(20):
            thread.poll(took_s)
        assert thread.pace.is_moving
    assert quick.pace.n_polls > 50
    assert slow.pace.n_polls == 1


@pytest.mark.parametrize("shortest_s", [0.0, -POLL_S])
def test_what_the_clock_cannot_tell_is_no_movement(shortest_s):
    """Polls that differ by less than the grain of the clock are idle, also where some seem to take no time or less."""
    thread = Scripted()
    thread.pace = Pace(shortest_s, grain_s=2 * POLL_S)
    thread.pace.opened(1_000 * MB)
    thread.poll_until(1)
    assert thread.cpu_s < 0.05


def test_the_first_poll_after_a_nap_is_not_judged():
    """However long it takes, it is followed by another one, which is."""
    thread = Scripted()
    assert thread.poll() > 0
    assert thread.poll(took_s=50 * POLL_S) == 0
    assert thread.poll() > 0


def test_lists_of_each_length_have_a_shortest_poll_of_their_own():
    """A longer list takes longer to ask for, and that is no movement."""
    thread = Scripted()
    thread.pace = Pace(POLL_S, POLL_S / 50)
    thread.pace.opened(16 * MB)
    assert thread.poll(took_s=20 * POLL_S, n_open=1_000) > 0


def test_something_new_is_polled_for_at_once():
    """What is new or has completed ends the story: the next poll is judged, and naps are as after a movement."""
    thread = Scripted()
    thread.poll_until(1)
    thread.pace.moved_s = thread.now_s
    thread.pace.begin()
    assert thread.poll() == pytest.approx(20e-6)
