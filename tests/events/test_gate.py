"""The gate with a fake device: order, at most one callback a stream, watching, failures, the end."""

import contextlib
import sys
import threading
from unittest import mock

import pytest

from offload.devices.streams import Point
from offload.errors import DeviceLostError
from offload.events.gate import Gate
from offload.events.wakeup import LockWakeup, SemaphoreWakeup


class FakeDevice:
    """Events that pass when the test says so, and callbacks that it fires."""

    def __init__(self):
        self.callbacks = []
        self.passed_events = set()
        self.error = None

    def passed(self, event):
        if event in self.passed_events:
            return True
        if self.error is not None:
            raise self.error
        return False

    def wake(self, stream, wakeup):
        self.callbacks.append(wakeup)

    def reuse(self, events):
        assert self.passed_events.issuperset(events)

    def fire(self):
        self.callbacks.pop(0).post()


class FakeLane:
    stream = None

    def __init__(self, device):
        self.device = device


class Item:
    """Notes when it is told."""

    is_quiet = True

    def __init__(self):
        self.told = threading.Event()
        self.errors = []

    def passed(self, error):
        self.errors.append(error)
        self.told.set()

    def wait(self):
        assert self.told.wait(60)
        return self.errors


@pytest.fixture
def device():
    return FakeDevice()


def looked_at_here(gate):
    """Have only the thread of the test look: the completer, which looks when it likes, comes late."""
    look = gate.look

    def looks_here():
        return threading.current_thread() is threading.main_thread() and look()

    return mock.patch.object(gate, "look", looks_here)


@contextlib.contextmanager
def completer_late(gate):
    """Have the completer come late: it stands in its next look until the block ends.

    One whose looks found nothing would go to sleep in a long block, and what is told again would find it asleep.
    """
    may_go_on = threading.Event()

    def stands():
        may_go_on.wait()
        return False

    try:
        with mock.patch.object(gate, "look", stands):
            yield
    finally:
        may_go_on.set()


@pytest.fixture(params=[LockWakeup, SemaphoreWakeup])
def gate(request, device):
    """A gate that ends with the test."""
    gate = Gate(request.param())
    yield gate
    device.error = device.error or OSError("the test has ended")  # or the gate would wait for what has not passed
    gate.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "offload-completer"]


def test_an_item_passes_after_the_callback(gate, device):
    """An item that somebody waits for is told once its event has passed and the callback has fired."""
    lane, item = FakeLane(device), Item()
    gate.add(Point(lane, 0, "e"), item, watched=True)
    assert len(device.callbacks) == 1
    assert not item.told.is_set()
    device.passed_events.add("e")
    device.fire()
    assert item.wait() == [None]


def test_one_callback_a_lane(gate, device):
    """Items behind a callback wait for the next, which is enqueued when that one has fired."""
    lane, items = FakeLane(device), [Item() for _ in range(10)]
    gate.hurry()
    for number, item in enumerate(items):
        gate.add(Point(lane, 0, number), item)
    assert len(device.callbacks) == 1
    device.passed_events.update(range(4))
    device.fire()
    for item in items[:4]:
        assert item.wait() == [None]
    assert not items[4].told.is_set()
    device.passed_events.update(range(10))
    for _ in range(200):  # the completer enqueues the next callback after it has told
        if items[-1].told.wait(0.01):
            break
    assert items[-1].wait() == [None]


def test_nobody_waits(gate, device):
    """While nobody waits there is no callback, and items are told all the same."""
    lane, items = FakeLane(device), [Item(), Item()]
    for number, item in enumerate(items):
        gate.add(Point(lane, 0, number), item)
    device.passed_events.update((0, 1))
    for item in items:
        assert item.wait() == [None]
    assert device.callbacks == []


def test_hurry(gate, device):
    """Somebody who waits for everything puts a callback on each lane that has none."""
    items = [Item(), Item()]
    for number, item in enumerate(items):
        gate.add(Point(FakeLane(device), 0, number), item)
    assert device.callbacks == []
    gate.hurry()
    gate.hurry()
    assert len(device.callbacks) == 2
    device.passed_events.update((0, 1))
    device.fire()
    for item in items:
        assert item.wait() == [None]
    gate.relax()
    gate.relax()
    later = Item()
    gate.add(Point(FakeLane(device), 0, 0), later)
    assert later.wait() == [None]
    assert len(device.callbacks) == 1


def test_lanes_are_independent(gate, device):
    """An item of one lane does not wait for another lane."""
    held, free = Item(), Item()
    gate.hurry()
    gate.add(Point(FakeLane(device), 0, "held"), held)
    gate.add(Point(FakeLane(device), 0, "free"), free)
    device.passed_events.add("free")
    device.callbacks.pop().post()
    assert free.wait() == [None]
    assert not held.told.is_set()
    device.passed_events.add("held")
    device.fire()
    held.wait()


def test_watched_items_are_noticed_without_a_callback(gate, device):
    """An item far ahead of the callback is asked for while somebody waits for it."""
    lane, first, second = FakeLane(device), Item(), Item()
    point = Point(lane, 2, 2)
    gate.add(Point(lane, 1, 1), first)
    gate.add(point, second)
    gate.watch(point)
    device.passed_events.update((1, 2))
    assert first.wait() == [None]
    assert second.wait() == [None]


def test_watching_what_has_passed_watches_nothing(gate, device):
    """An item that has passed is not watched: the completer would ask for ever."""
    item = Item()
    point = Point(FakeLane(device), 0, 1)
    gate.watch(point)
    gate.add(point, item, watched=True)
    device.passed_events.add(1)
    device.fire()
    item.wait()
    gate.watch(point)
    assert not gate.watched
    assert point.item is None


def test_a_glance_tells_what_somebody_waits_for(gate, device):
    """A thread that launches tells the oldest watched item once its event has passed; nobody tells it again."""
    lane, items = FakeLane(device), [Item() for _ in range(3)]
    with completer_late(gate):
        for number, item in enumerate(items):
            gate.add(Point(lane, number, f"e{number}"), item, watched=number > 0)
        assert not gate.glance()
        device.passed_events = {"e0", "e1"}
        assert gate.glance()
        assert [item.errors for item in items] == [[], [None], []]
        assert not gate.glance()
        device.passed_events.add("e2")
    gate.look()
    assert [item.wait() for item in items] == [[None]] * 3
    assert not gate.watched


def test_a_glance_leaves_what_is_not_quiet_to_the_completer(gate, device):
    """What runs code of the user's is told by the completer, or by a thread that waits."""
    lane, item = FakeLane(device), Item()
    item.is_quiet = False
    device.passed_events = {"e"}
    with completer_late(gate):
        gate.add(Point(lane, 0, "e"), item, watched=True)
        assert not gate.glance()
        assert not item.errors
    assert item.wait() == [None]


@pytest.mark.parametrize("teller", ["glance", "look"])
def test_an_item_whose_telling_is_cut_short_is_told_again(gate, device, teller):
    """A signal handler may raise while a thread that launches or waits tells an item; then the completer does."""

    class Cut(Item):
        def passed(self, error):
            if threading.current_thread() is threading.main_thread():
                raise TimeoutError("a handler's")
            super().passed(error)

    lane, item, later = FakeLane(device), Cut(), Item()
    tell = getattr(gate, teller)
    with completer_late(gate):
        gate.add(Point(lane, 0, "e"), item, watched=True)
        gate.add(Point(lane, 1, "f"), later, watched=True)
        device.passed_events = {"e", "f"}
        with pytest.raises(TimeoutError):
            tell()
    assert item.wait() == later.wait() == [None]


def test_a_lane_that_was_left_without_points_is_let_go(gate, device):
    """A signal handler may end a look between taking the last point of a lane and letting the lane go."""
    lane, item = FakeLane(device), Item()
    with completer_late(gate):
        gate.add(Point(lane, 0, "e"), item)
        gate._lanes[lane].clear()
        gate.hurry()
        gate.relax()
    gate.look()
    assert not gate._lanes
    gate.add(Point(lane, 1, "f"), item)
    device.passed_events = {"f"}
    assert item.wait() == [None]


def test_an_index_error_of_a_handler_is_raised(gate, device):
    """What ends the telling of all is not taken for the end of what there is to tell."""

    class Cut(Item):
        def passed(self, error):
            if threading.current_thread() is threading.main_thread():
                [].pop()
            super().passed(error)

    lane, item = FakeLane(device), Cut()
    look = gate.look
    with completer_late(gate):
        gate.add(Point(lane, 0, "e"), item, watched=True)
        device.passed_events = {"e"}
        with pytest.raises(IndexError):
            look()
    assert item.wait() == [None]


def test_an_item_is_told_whole_or_not_at_all(gate, device):
    """A thread that launches deep in a recursion does not begin to tell what it could not end."""
    lane, item = FakeLane(device), Item()

    def dive(depth):
        if depth:
            dive(depth - 1)
        else:
            gate.glance()

    with completer_late(gate):
        gate.add(Point(lane, 0, "e"), item, watched=True)
        device.passed_events = {"e"}
        depth = sys.getrecursionlimit()
        while not item.errors:
            depth -= 1
            with contextlib.suppress(RecursionError):
                dive(depth)
            assert not gate.watched or not item.errors
    assert item.wait() == [None]


def test_a_glance_at_a_failed_device_tells_nothing(gate, device):
    """The completer finds out what has failed."""
    lane, item = FakeLane(device), Item()
    with completer_late(gate):
        gate.add(Point(lane, 0, "e"), item, watched=True)
        device.error = DeviceLostError("broken")
        assert not gate.glance()
    assert isinstance(item.wait()[0], DeviceLostError)


def test_a_lane_behind_and_a_lane_ahead(gate, device):
    """Few questions find how far a lane has got, wherever that is."""
    for n_passed in (0, 1, 2, 3, 7, 50, 98, 99, 100):
        lane, items = FakeLane(device), [Item() for _ in range(100)]
        gate.hurry()
        for number, item in enumerate(items):
            gate.add(Point(lane, number, (n_passed, number)), item)
        device.passed_events.update((n_passed, number) for number in range(n_passed))
        while True:  # each look finds a part; a callback follows while something is left
            while device.callbacks:
                device.fire()
            if not n_passed or items[n_passed - 1].told.wait(0.01):
                break
        assert [bool(item.errors) for item in items] == [number < n_passed for number in range(100)]
        device.passed_events.update((n_passed, number) for number in range(100))
        for item in items:
            while not item.told.wait(0.01) and device.callbacks:
                device.fire()
        gate.relax()


def test_a_failed_device_fails_its_items(gate, device):
    """No callback comes after an error; the items are failed all the same, those that had passed are not."""
    lane, before, after = FakeLane(device), Item(), Item()
    gate.add(Point(lane, 0, "before"), before)
    gate.add(Point(lane, 0, "after"), after)
    device.passed_events.add("before")
    device.error = OSError("lost")
    assert before.wait() == [None]
    assert after.wait() == [device.error]


def test_a_device_that_takes_no_callback(gate, device):
    """A device that cannot enqueue a callback is asked at once."""
    device.error = OSError("lost")

    def refuse(stream, wakeup):
        raise device.error

    device.wake = refuse
    item = Item()
    gate.add(Point(FakeLane(device), 0, 1), item)
    assert item.wait() == [device.error]


def test_an_item_may_add_another(gate, device):
    """What an item does when told may use the gate."""
    lane, second = FakeLane(device), Item()

    class First:
        def passed(self, error):
            gate.add(Point(lane, 0, 2), second)

    device.passed_events.update((1, 2))
    gate.hurry()
    gate.add(Point(lane, 0, 1), First())
    device.fire()
    for _ in range(200):
        if second.told.wait(0.01):
            break
        if device.callbacks:
            device.fire()
    assert second.wait() == [None]


@pytest.mark.parametrize("kind", [LockWakeup, SemaphoreWakeup])
def test_wakeups(kind):
    """Posts before a wait let it through, several are one, and a wait ends at its time."""
    wakeup = kind()
    wakeup.post()
    wakeup.post()
    wakeup.wait(None)
    wakeup.wait(0.001)
    thread = threading.Thread(target=wakeup.post)
    thread.start()
    wakeup.wait(None)
    thread.join()


def test_who_waits_for_one_point_tells_its_lane(gate, device):
    """What is before a point on its lane is told with it; what is behind it, and on other lanes, is not."""
    lane, other = FakeLane(device), FakeLane(device)
    items = [Item() for _ in range(4)]
    points = [Point(lane, number, number) for number in range(3)] + [Point(other, 0, "other")]
    with completer_late(gate):
        for point, item in zip(points, items, strict=True):
            gate.add(point, item)
        assert not gate.arrives(points[1])
        device.passed_events = {0, 1, 2, "other"}
        assert gate.arrives(points[1])
        assert [item.errors for item in items] == [[None], [None], [], []]
        assert points[1].event is None
        assert gate.arrives(points[1])  # again: it had passed
        assert [item.errors for item in items] == [[None], [None], [], []]
    assert items[2].wait() == items[3].wait() == [None]


def test_who_waits_for_one_point_hears_of_a_lost_device(gate, device):
    """A point that never passes is one that has come to its end."""
    lane, item = FakeLane(device), Item()
    point = Point(lane, 0, "e")
    with looked_at_here(gate):
        gate.add(point, item)
        device.error = DeviceLostError("gone")
        assert gate.arrives(point)
    assert item.wait() == [device.error]


def test_where_others_look_callbacks_are_for_long_waits(device):
    """A point that somebody waits for has a callback only once looks have been in vain for some time; all are told."""
    gate = Gate(LockWakeup(), others_look=True)
    lane, soon, late = FakeLane(device), Item(), Item()
    device.passed_events.add("soon")
    gate.add(Point(lane, 0, "soon"), soon, watched=True)
    assert soon.wait() == [None]
    assert not device.callbacks
    gate.hurry()
    gate.add(Point(lane, 1, "late"), late)
    while not device.callbacks:
        assert not late.told.wait(0.01)
    device.passed_events.add("late")
    device.fire()
    assert late.wait() == [None]
    gate.relax()
    assert not gate.close()


@contextlib.contextmanager
def _posts(gate):
    """Give a list that grows with each wake-up of the completer."""
    posts, wakeup = [], gate._wakeup

    class Noted:
        def post(self):
            posts.append(None)
            wakeup.post()

        wait = staticmethod(wakeup.wait)  # the completer waits again meanwhile, if the block takes some time

    gate._wakeup = Noted()
    yield posts
    gate._wakeup = wakeup


@pytest.mark.parametrize("calls", ["add", "watch", "hurry"])
def test_where_others_look_the_completer_is_called_when_it_dozes(device, calls):
    """Somebody who begins to wait wakes a completer that looks rarely, by whichever way that is."""
    gate = Gate(LockWakeup(), others_look=True)
    lane, item, point = FakeLane(device), Item(), Point(FakeLane(device), 0, "e")
    first = Item()
    device.passed_events.add("first")
    gate.add(Point(lane, 0, "first"), first)
    assert first.wait() == [None]
    with _posts(gate) as posts:
        gate.add(point, item, watched=calls == "add")
        if calls == "watch":
            gate.watch(point)
        elif calls == "hurry":
            gate.hurry()
        assert posts
    device.passed_events.add("e")
    assert item.wait() == [None]
    if calls == "hurry":
        gate.relax()
    gate.close()


class NosyPoint(Point):
    """A point of which the sequence cannot be read without something else happening, as another thread would do it."""

    meanwhile = None
    _sequence = 0

    @property
    def sequence(self):
        happens, self.meanwhile = self.meanwhile, None
        if happens is not None:
            happens()
        return self._sequence

    @sequence.setter
    def sequence(self, value):
        self._sequence = value


def test_a_point_is_added_while_its_lane_is_emptied(gate, device):
    """A point that is added just when the last one of its lane is taken away is told all the same, once."""
    lane, first, second = FakeLane(device), Item(), Item()
    nosy = NosyPoint(lane, 0, "e")
    gate.add(nosy, first)
    device.passed_events.add("e")
    nosy.meanwhile = gate.look
    gate.add(Point(lane, 1, "f"), second)
    assert first.wait() == [None]
    assert not second.told.is_set()
    device.passed_events.add("f")
    gate.look()
    assert second.wait() == [None]


def test_a_point_is_added_while_others_are_counted(gate, device):
    """A point that is added while the gate asks about those before it is not taken for passed with them."""
    lane, items = FakeLane(device), [Item() for _ in range(3)]
    asked = device.passed

    def passed(event):
        if device.passed is not asked:
            device.passed = asked
            gate.add(Point(lane, 2, 2), items[2])
        return asked(event)

    with looked_at_here(gate):
        for number in range(2):
            gate.add(Point(lane, number, number), items[number])
        device.passed_events |= {0, 1}
        device.passed = passed
        gate.look()
        assert [item.told.is_set() for item in items] == [True, True, False]
        device.passed_events.add(2)
        gate.look()
        assert items[2].wait() == [None]


def test_points_in_any_order(gate, device):
    """Points that come to the gate in another order than they were marked are told in that of their marks."""
    lane, told = FakeLane(device), []

    class Noting(Item):
        def __init__(self, number):
            super().__init__()
            self.number = number

        def passed(self, error):
            told.append(self.number)
            super().passed(error)

    with looked_at_here(gate):
        for number in (0, 3, 1, 4, 2):
            gate.add(Point(lane, number, number), Noting(number))
        for number in range(5):
            device.passed_events.add(number)
            gate.look()
            assert told == list(range(number + 1))
