"""The ledger: whom an access of storage has to follow, and when it is over."""

import gc
from types import SimpleNamespace

import numpy as np
import pytest

import offload as omp
from offload.arrays.sections import HOST, section_of
from offload.data.entries import Entry
from offload.data.ledger import OPEN, DuePoint, Ledger, PutOffError, is_open
from offload.devices.streams import Point


class Lane:
    """A lane that keeps its marks."""

    def __init__(self):
        self.points = []

    def mark(self):
        event = SimpleNamespace(done=False)
        self.points.append(SimpleNamespace(lane=self, sequence=len(self.points) + 1, event=event))
        return self.points[-1]


def part(first, end):
    return section_of(HOST, first, (end - first,), (1,), 1)


WHOLE, LEFT, RIGHT = part(0, 10), part(0, 4), part(6, 10)


@pytest.fixture
def ledger():
    return Ledger()


@pytest.fixture
def entry():
    return Entry(WHOLE, None, "x")


def opened(ledger, lane, uses=(), writes=(), back=()):
    """Open accesses, and return the claim."""
    claim = lane, uses, writes, back
    ledger.release(claim, OPEN)
    return claim


def ended(ledger, claim):
    """Release a claim where its lane is now, and return that point."""
    point = claim[0].mark()
    ledger.release(claim, point)
    return point


def accessed(ledger, lane, **access):
    """Open an access, end it, and return where."""
    return ended(ledger, opened(ledger, lane, **access))


@pytest.mark.parametrize("section", [WHOLE, LEFT])
def test_uses_follow_writes_that_meet_them(ledger, entry, section):
    """A use follows the writes that share a byte with it, and no use; a write follows both."""
    write = accessed(ledger, Lane(), writes=[(entry, section)])
    use = accessed(ledger, Lane(), uses=[(entry, LEFT)])
    for other in (WHOLE, LEFT, part(3, 5)):
        assert ledger.acquire([(entry, other)]) == [write]
        assert ledger.acquire([], [(entry, other)]) == [write, use]
    assert ledger.acquire([], [(entry, RIGHT)]) == ([write] if section == WHOLE else [])


def test_the_end_follows_all(ledger, entry):
    """The end of an entry follows each of its accesses, but for those that are open."""
    points = [accessed(ledger, Lane(), **{kind: [(entry, LEFT)]}) for kind in ("writes", "uses")]
    opened(ledger, Lane(), uses=[(entry, RIGHT)])
    assert ledger.acquire(ended=[entry]) == points


@pytest.mark.parametrize("kind", ["writes", "uses"])
def test_what_is_open_hides_nothing(ledger, entry, kind):
    """The end of an entry follows an access of the lane, and of the bytes, of one that is open."""
    lane = Lane()
    point = accessed(ledger, lane, **{kind: [(entry, LEFT)]})
    claim = opened(ledger, lane, **{kind: [(entry, LEFT)]})
    assert ledger.acquire(ended=[entry]) == [point]
    assert ended(ledger, claim) in ledger.acquire(ended=[entry])


@pytest.mark.parametrize(
    ("kind", "uses", "writes"),
    [("writes", LEFT, None), ("writes", WHOLE, None), ("writes", None, LEFT), ("uses", RIGHT, LEFT)],
)
def test_put_off(ledger, entry, kind, uses, writes):
    """What would have to follow an open access is put off until that is settled."""
    claim = opened(ledger, Lane(), **{kind: [(entry, LEFT)]})
    wanted = [[(entry, section)] if section else [] for section in (uses, writes)]
    assert is_open(entry)
    with pytest.raises(PutOffError):
        ledger.acquire(*wanted)
    point = ended(ledger, claim)
    assert not is_open(entry)
    assert ledger.acquire(*wanted) == [point]


def test_open_uses_hold_up_no_use(ledger, entry):
    """A use goes on beside an open use, and beside an open write of other bytes."""
    opened(ledger, Lane(), uses=[(entry, LEFT)], writes=[(entry, RIGHT)])
    assert ledger.acquire([(entry, LEFT)]) == []


def test_one_point_a_construct(ledger, entry):
    """Whatever a construct has opened ends at one point."""
    lane, other = Lane(), Entry(part(20, 30), None, "y")
    other.generation = entry.generation = 1
    point = accessed(
        ledger, lane, uses=[(entry, LEFT)], writes=[(entry, RIGHT), (other, other.section)], back=[part(40, 50)]
    )
    assert ledger.acquire([(entry, RIGHT), (other, other.section)], [(entry, LEFT)], [part(49, 60)]) == [point] * 4


def test_a_write_of_all_supersedes(ledger, entry):
    """After a write of the whole entry, which has followed them, earlier writes need not be followed; uses stay."""
    accessed(ledger, Lane(), writes=[(entry, LEFT)])
    use = accessed(ledger, Lane(), uses=[(entry, RIGHT)])
    whole = accessed(ledger, Lane(), writes=[(entry, WHOLE)])
    part_ = accessed(ledger, Lane(), writes=[(entry, RIGHT)])
    assert ledger.acquire([(entry, LEFT)]) == [whole]
    assert ledger.acquire([], [(entry, RIGHT)]) == [whole, part_, use]
    lane = Lane()
    noted = lane.mark()
    ledger.release((lane, (), [(entry, WHOLE)], ()), noted)
    assert ledger.acquire([(entry, RIGHT)]) == [noted]


def test_a_due_point_is_marked_on_demand(ledger, entry):
    """The end of a region's copies to its own storage is marked when somebody asks, not at the end of the entry."""
    lane = Lane()
    claim = opened(ledger, lane, writes=[(entry, WHOLE)])
    with pytest.raises(PutOffError):
        ledger.acquire([(entry, LEFT)])
    ledger.release(claim, DuePoint(lane))
    (end,) = ledger.acquire(ended=[entry])
    assert (end.lane, lane.points) == (lane, [])
    (found,) = ledger.acquire([(entry, LEFT)])
    assert found is end
    assert ledger.acquire([(entry, WHOLE)]) == [end]
    assert (found.event, found.sequence, len(lane.points)) == (lane.points[0].event, 1, 1)


def test_copies_back(ledger, entry):
    """What makes an entry of host storage follows the copies back to it, until those have arrived."""
    lane, other = Lane(), Lane()
    first = accessed(ledger, lane, back=[LEFT])
    second = accessed(ledger, lane, back=[part(2, 8)])
    third = accessed(ledger, other, back=[WHOLE])
    everything = {id(first), id(second), id(third)}
    assert set(map(id, ledger.acquire(fresh=[part(3, 9)]))) == everything
    assert set(map(id, ledger.acquire(writes=[(entry, WHOLE)]))) == everything, "a new entry"
    assert ledger.acquire(fresh=[part(10, 20)]) == []
    first.event = None  # as the gate has it of what has passed
    assert set(map(id, ledger.acquire(fresh=[LEFT]))) == everything - {id(first)}
    claim = opened(ledger, lane, back=[part(10, 20)])
    with pytest.raises(PutOffError):
        ledger.acquire(fresh=[part(15, 16)])
    last = ended(ledger, claim)
    assert ledger.acquire(fresh=[part(15, 16)]) == [last]
    for point in (second, third, last):
        point.event = None
    assert ledger.acquire(fresh=[WHOLE, part(10, 20)]) == []
    assert not ledger.back


def test_copies_back_of_one_array_follow_each_other(ledger):
    """Of several copies back of the same bytes the last stands for all, until it has arrived itself."""
    points = [accessed(ledger, Lane(), back=[WHOLE]) for _ in range(3)]
    for point in points[:2]:
        assert ledger.acquire(fresh=[LEFT]) == points[2:]
        point.event = None
    points[2].event = None
    assert ledger.acquire(fresh=[LEFT]) == []
    assert not ledger.back


@pytest.mark.parametrize("may_query", [True, False])
def test_copies_back_do_not_pile_up(ledger, may_query):
    """Those that are over are dropped now and then, unless events must not be asked; others stay."""
    ledger.may_query = may_query
    running = accessed(ledger, Lane(), back=[WHOLE])
    for k in range(400):
        accessed(ledger, Lane(), back=[part(100 + k, 101 + k)]).event.done = True
    assert (len(ledger.back) < 140) == may_query
    assert ledger.acquire(fresh=[LEFT]) == [running]


def test_a_lost_lane_leaves_nothing_open(ledger, entry):
    """Where the end of the accesses cannot be marked, nobody is put off for ever."""
    ledger.release(opened(ledger, Lane(), [(entry, LEFT)], [(entry, RIGHT)], [part(20, 30)]), None)
    assert ledger.acquire([(entry, WHOLE)], [(entry, WHOLE)], [part(20, 30)]) == []
    assert not entry.writes
    assert not entry.uses


@pytest.mark.parametrize("may_query", [True, False])
def test_accesses_do_not_pile_up(entry, may_query):
    """Those that are over are dropped now and then, unless events must not be asked; others stay."""
    ledger = Ledger()
    ledger.may_query = may_query
    running = accessed(ledger, Lane(), uses=[(entry, LEFT)])
    for _ in range(400):
        lane = Lane()
        accessed(ledger, lane, uses=[(entry, RIGHT)]).event.done = True
    assert (len(entry.uses) < 140) == may_query
    assert running in ledger.acquire(ended=[entry])


def test_a_closed_runtime_keeps_no_points():
    """Functions keep the runtime of their last call; a point would keep an event of its device."""
    bump = omp.target(lambda x: x.fill(1))
    x = np.zeros(10)
    with omp.Runtime("sim:1") as runtime:
        for _ in range(3):
            bump(x)
            bump.options(nowait=True)(x)
            omp.taskwait()
        device = runtime.places[0].device
    gc.collect()
    assert not [thing for thing in gc.get_objects() if type(thing) is Point and thing.lane.device is device]
