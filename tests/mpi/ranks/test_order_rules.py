"""Properties of the order of calls (`offload.mpi.order`): programs at random against pairs of calls that conflict."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offload.mpi.order import Turn, Turns

ANY = "any"
ENVELOPES = st.tuples(st.sampled_from([0, 1, ANY]), st.sampled_from([5, 6, ANY]))
CALLS = st.one_of(
    st.just(("collective",)),
    st.tuples(st.just("send"), st.sampled_from([0, 1]), st.sampled_from([5, 6])),
    ENVELOPES.map(lambda envelope: ("receive", *envelope)),
    st.tuples(st.just("both"), st.sampled_from([0, 1]), st.sampled_from([5, 6]), ENVELOPES),
)


def parts(call):
    """Return what a call is among others: a key of sends and collectives, and an envelope of receives."""
    kind, *rest = call
    if kind == "receive":
        return None, tuple(rest)
    if kind == "both":
        return tuple(rest[:2]), rest[2]
    return tuple(rest) or kind, None


def conflict(call, other):
    """Tell whether two calls are in order."""
    (key, envelope), (other_key, other_envelope) = parts(call), parts(other)
    if key is not None and key == other_key:
        return True
    if envelope is None or other_envelope is None:
        return False
    return envelope == other_envelope or ANY in envelope or ANY in other_envelope


class Recorded:
    """A call that notes when it is issued or fails."""

    given_up = ""

    def __init__(self, order, number, call, log, raises):
        self.order, self.number, self.log, self.raises = order, number, log, raises
        self.turn = Turn(self)
        key, envelope = parts(call)
        is_wildcard = envelope is not None and ANY in envelope
        order.enter(self.turn, [key] if key is not None else [], receives=envelope, is_wildcard=is_wildcard)

    def go(self):
        if self.turn.left_out:
            self.log.append(("fails", self.number))
            return self.order.leave_out(self.turn, "")
        self.log.append(("issued", self.number))
        if self.raises:
            return self.order.leave_out(self.turn, f"call {self.number}")
        return self.order.passed(self.turn)


def carry_out(due):
    due = list(due)
    while due:
        due.extend(due.pop(0).call.go())


@st.composite
def programs(draw):
    """Calls, which of them raise, and an order in which they arrive, are left out, or have not been encountered yet."""
    calls = draw(st.lists(CALLS, max_size=10))
    fates = draw(st.lists(st.sampled_from(["runs", "runs", "runs", "raises", "does not run"]), min_size=len(calls)))
    events = [("enter", k) for k in range(len(calls))]
    for k in draw(st.permutations(range(len(calls)))):
        events.insert(draw(st.integers(events.index(("enter", k)) + 1, len(events))), ("ends", k))
    return calls, fates, events


@given(programs())
def test_calls_are_issued_in_order(program):
    """Of two calls in order the first is issued first, each as soon as it may be; none after one that is left out."""
    calls, fates, events = program
    order, log, turns = Turns(), [], {}
    ended = set()
    for event, k in events:
        if event == "enter":
            turns[k] = Recorded(order, k, calls[k], log, raises=fates[k] == "raises")
            continue
        ended.add(k)
        turn = turns[k].turn
        if fates[k] == "does not run":
            carry_out(order.leave_out(turn, f"call {k}"))
        elif order.arrive(turn):
            carry_out([turn])
        check(calls, fates, turns, ended, log)
    assert sorted(k for _, k in log) == [k for k in range(len(calls)) if fates[k] != "does not run"]
    kept = {**order._last, **order._last_received, **order._wildcard}.values()
    assert all(turn.left_out and turn.call is None for turn in kept)


def check(calls, fates, turns, ended, log):
    """Compare what has happened with what each pair of calls says."""
    left_out, issued = set(), set()
    for k in sorted(turns):
        earlier = [j for j in turns if j < k and conflict(calls[j], calls[k])]
        is_free = all(j in issued or j in left_out for j in earlier)
        if left_out.intersection(earlier):
            left_out.add(k)
            assert (("fails", k) in log) == (k in ended and fates[k] != "does not run")
            assert ("issued", k) not in log
        elif k in ended and fates[k] == "does not run":
            left_out.add(k)
        elif k in ended and is_free:
            assert ("issued", k) in log
            if fates[k] == "raises":
                left_out.add(k)
            issued.add(k)
        else:
            assert not {("issued", k), ("fails", k)}.intersection(log)
        if ("issued", k) in log:
            before = log[: log.index(("issued", k))]
            assert all(("issued", j) in before for j in earlier)


def test_calls_that_are_given_up():
    """A call behind one that is given up is left out, and so are those behind it, whatever comes of the first."""
    order, log = Turns(), []
    first = Recorded(order, 0, ("collective",), log, raises=False)
    first.given_up = "call 0"
    behind = [Recorded(order, k, ("collective",), log, raises=False) for k in (1, 2)]
    assert [one.turn.left_out for one in behind] == ["call 0", "call 0"]
    for one in behind:
        if order.arrive(one.turn):
            carry_out([one.turn])
    assert log == [("fails", 1), ("fails", 2)]
