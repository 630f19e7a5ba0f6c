"""The ledger: whom an access of storage has to follow, and when it is over."""

import threading
from types import SimpleNamespace

import pytest

from offload.arrays.sections import HOST, section_of
from offload.data.entries import Entry
from offload.data.ledger import Due, Ledger, PutOffError, is_open


class Lane:
    """A lane that counts its marks, and fails if it is told to."""

    def __init__(self):
        self.points = []
        self.is_lost = False
        self.passed = (0, 0.0)

    def mark(self):
        if self.is_lost:
            raise OSError("lost")
        event = SimpleNamespace(done=False)
        self.points.append(SimpleNamespace(lane=self, sequence=len(self.points) + 1, event=event))
        return self.points[-1]


def part(first, end):
    return section_of(HOST, first, (end - first,), (1,), 1)


WHOLE, LEFT, RIGHT = part(0, 10), part(0, 4), part(6, 10)


@pytest.fixture
def ledger():
    return Ledger(threading.Lock())


@pytest.fixture
def entry():
    return Entry(WHOLE, None, "x")


def accessed(ledger, lane, **access):
    """Open an access, settle it, and return where it ends."""
    ledger.open(lane, **access)
    return ledger.settle(lane)


@pytest.mark.parametrize("section", [WHOLE, LEFT])
def test_uses_follow_writes_that_meet_them(ledger, entry, section):
    """A use follows the writes that share a byte with it, and no use; a write follows both."""
    write = accessed(ledger, Lane(), writes=[(entry, section)])
    use = accessed(ledger, Lane(), uses=[(entry, LEFT)])
    for other in (WHOLE, LEFT, part(3, 5)):
        assert ledger.before([(entry, other)]) == [write]
        assert ledger.before([], [(entry, other)]) == [write, use]
    assert ledger.before([], [(entry, RIGHT)]) == ([write] if section == WHOLE else [])


def test_the_end_follows_all(ledger, entry):
    """The end of an entry follows each of its accesses, but for those that are open."""
    points = [accessed(ledger, Lane(), **{kind: [(entry, LEFT)]}) for kind in ("writes", "uses")]
    ledger.open(Lane(), uses=[(entry, RIGHT)])
    assert ledger.before_end([entry]) == points


@pytest.mark.parametrize("kind", ["writes", "uses"])
def test_what_is_open_hides_nothing(ledger, entry, kind):
    """The end of an entry follows an access of the lane, and of the bytes, of one that is open."""
    lane = Lane()
    point = accessed(ledger, lane, **{kind: [(entry, LEFT)]})
    ledger.open(lane, **{kind: [(entry, LEFT)]})
    assert ledger.before_end([entry]) == [point]
    after = ledger.settle(lane)
    assert after in ledger.before_end([entry])


@pytest.mark.parametrize(
    ("opened", "uses", "writes"),
    [("writes", LEFT, None), ("writes", WHOLE, None), ("writes", None, LEFT), ("uses", RIGHT, LEFT)],
)
def test_put_off(ledger, entry, opened, uses, writes):
    """What would have to follow an open access is put off until that is settled."""
    lane = Lane()
    ledger.open(lane, **{opened: [(entry, LEFT)]})
    wanted = [[(entry, section)] if section else [] for section in (uses, writes)]
    assert is_open(entry)
    with pytest.raises(PutOffError):
        ledger.before(*wanted)
    point = ledger.settle(lane)
    assert not is_open(entry)
    assert ledger.before(*wanted) == [point]


def test_open_uses_hold_up_no_use(ledger, entry):
    """A use goes on beside an open use, and beside an open write of other bytes."""
    ledger.open(Lane(), uses=[(entry, LEFT)], writes=[(entry, RIGHT)])
    assert ledger.before([(entry, LEFT)]) == []


def test_one_event_a_construct(ledger, entry):
    """Whatever a construct has opened ends at one place; one that has opened nothing records none."""
    lane, other = Lane(), Entry(part(20, 30), None, "y")
    point = accessed(
        ledger, lane, uses=[(entry, LEFT)], writes=[(entry, RIGHT), (other, other.section)], back=[part(40, 50)]
    )
    assert lane.points == [point]
    assert ledger.before([(entry, RIGHT), (other, other.section)], [(entry, LEFT)], [part(49, 60)]) == [point] * 4
    assert ledger.settle(lane) is None
    ledger.open(lane)
    assert ledger.settle(lane) is None
    assert lane.points == [point]


def test_a_write_of_all_supersedes(ledger, entry):
    """After a write of the whole entry, which has followed them, earlier writes need not be followed; uses stay."""
    accessed(ledger, Lane(), writes=[(entry, LEFT)])
    use = accessed(ledger, Lane(), uses=[(entry, RIGHT)])
    whole = accessed(ledger, Lane(), writes=[(entry, WHOLE)])
    part_ = accessed(ledger, Lane(), writes=[(entry, RIGHT)])
    assert ledger.before([(entry, LEFT)]) == [whole]
    assert ledger.before([], [(entry, RIGHT)]) == [whole, part_, use]
    noted = Lane().mark()
    ledger.note(noted, [], [(entry, WHOLE)])
    assert ledger.before([(entry, RIGHT)]) == [noted]


def test_own_copies_are_marked_on_demand(ledger, entry):
    """Copies to a region's own entries put others off while they are enqueued, and are marked once if one asks."""
    lane = Lane()
    ledger.open_own(lane, [entry])
    with pytest.raises(PutOffError):
        ledger.before([(entry, LEFT)])
    ledger.end_own(lane, [entry], Due(lane))
    assert (lane.points, ledger.settle(lane)) == ([], None)
    (end,) = ledger.before_end([entry])
    assert (end.lane, lane.points) == (lane, [])
    (found,) = ledger.before([(entry, LEFT)])
    assert found is end
    assert ledger.before([(entry, WHOLE)]) == [end]
    assert (found.event, found.sequence, len(lane.points)) == (lane.points[0].event, 1, 1)


def test_own_copies_that_are_staged(ledger, entry):
    """Staged copies to a region's own entries are open until they settle, as all others."""
    lane = Lane()
    ledger.open_own(lane, [entry])
    ledger.end_own(lane, [entry], None)
    with pytest.raises(PutOffError):
        ledger.before([(entry, LEFT)])
    point = ledger.settle(lane)
    assert ledger.before([(entry, LEFT)]) == [point] == lane.points


def test_copies_back(ledger):
    """What makes an entry of host storage follows the copies back to it, until those have arrived."""
    lane, other = Lane(), Lane()
    first = accessed(ledger, lane, back=[LEFT])
    second = accessed(ledger, lane, back=[part(2, 8)])
    third = other.mark()
    ledger.note(third, [], back=[WHOLE])
    assert set(map(id, ledger.before([], fresh=[part(3, 9)]))) == {id(first), id(second), id(third)}
    assert ledger.before([], fresh=[part(10, 20)]) == []
    ledger.arrived(first)
    assert ledger.before([], fresh=[LEFT]) == [third, second]
    ledger.open(lane, back=[part(10, 20)])
    with pytest.raises(PutOffError):
        ledger.before([], fresh=[part(15, 16)])
    last = ledger.settle(lane)
    ledger.arrived(last)
    assert ledger.back_on
    last.event = None  # as the gate has it of what has passed
    ledger.arrived(third)
    assert not ledger.back_on
    assert ledger.before([], fresh=[WHOLE, part(10, 20)]) == []


def test_copies_back_arrive_in_any_order(ledger):
    """One that has arrived behind one of another lane, which had not, is forgotten with that."""
    lane, other = Lane(), Lane()
    first = accessed(ledger, lane, back=[LEFT])
    second = other.mark()
    ledger.note(second, [], back=[RIGHT])
    other.passed = second.sequence, 1.0
    ledger.arrived(second)
    assert len(ledger.back_on) == 2
    lane.passed = first.sequence, 2.0
    ledger.arrived(first)
    assert not ledger.back_on
    assert ledger.before([], fresh=[WHOLE]) == []


def test_copies_back_of_one_array_follow_each_other(ledger):
    """Of several copies back of the same bytes the last stands for all, until it has arrived itself."""
    lane = Lane()
    points = [accessed(ledger, lane, back=[WHOLE]) for _ in range(3)]
    for point in points[:2]:
        ledger.arrived(point)
        assert ledger.before([], fresh=[LEFT]) == points[2:]
    ledger.arrived(points[2])
    assert ledger.before([], fresh=[LEFT]) == []
    assert not ledger.back_on


def test_a_lost_lane_leaves_nothing_open(ledger, entry):
    """Where the end of the accesses cannot be marked, nobody is put off for ever."""
    lane = Lane()
    lane.is_lost = True
    ledger.open(lane, [(entry, LEFT)], [(entry, RIGHT)], [part(20, 30)])
    with pytest.raises(OSError, match="lost"):
        ledger.settle(lane)
    assert ledger.before([(entry, WHOLE)], [(entry, WHOLE)], [part(20, 30)]) == []
    assert not entry.writes
    assert not entry.uses


@pytest.mark.parametrize("may_query", [True, False])
def test_accesses_do_not_pile_up(entry, may_query):
    """Those that are over are dropped now and then, unless events must not be asked; others stay."""
    ledger = Ledger(threading.Lock())
    ledger.may_query = may_query
    running = accessed(ledger, Lane(), uses=[(entry, LEFT)])
    for _ in range(400):
        lane = Lane()
        accessed(ledger, lane, uses=[(entry, RIGHT)]).event.done = True
    assert (len(entry.uses) < 140) == may_query
    assert running in ledger.before_end([entry])


def test_kept(ledger):
    """What a failed construct leaves on a lane is given once."""
    lane = Lane()
    ledger.keep(lane, [1])
    ledger.keep(lane, [2])
    assert ledger.take_kept(lane) == [1, 2]
    assert ledger.take_kept(lane) is None
