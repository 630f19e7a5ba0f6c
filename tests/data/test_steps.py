"""The steps of constructs: what the table and the ledger answer, compared as lists."""

from types import SimpleNamespace

import pytest

from offload.arrays.sections import HOST, section_of
from offload.data.items import MapItem
from offload.data.ledger import OPEN, Ledger, PutOffError
from offload.data.maptypes import MapType
from offload.data.present_table import PresentTable
from offload.data.steps import entry_steps, exit_steps

ALLOC, TO, FROM, TOFROM, DELETE = MapType.ALLOC, MapType.TO, MapType.FROM, MapType.TOFROM, MapType.DELETE


class Lane:
    """A lane that counts its marks."""

    def __init__(self):
        self.n_marks = 0

    def mark(self):
        self.n_marks += 1
        return SimpleNamespace(lane=self, sequence=self.n_marks, event=SimpleNamespace(done=False))


class Books:
    """A table and a ledger, and what carries plans out where there is neither memory nor a stream."""

    def __init__(self):
        self.table = PresentTable()
        self.ledger = Ledger()
        self.opened = {}

    def open(self, plan, lane=None):
        """Commit a plan, and open its accesses."""
        lane = lane or Lane()
        if plan.counter is not None:
            self.table.commit(plan, [object()] * len(plan.created))
        if plan.used:
            self.ledger.release((lane, plan.used, (), ()), lane.mark())
        self.opened[lane] = lane, plan.reads, plan.writes, plan.back
        self.ledger.release(self.opened[lane], OPEN)
        return lane

    def settle(self, lane):
        """Return where what is open on a lane ends; None if nothing is."""
        claim = self.opened.pop(lane)
        if not any(claim[1:]):
            return None
        point = lane.mark()
        self.ledger.release(claim, point)
        return point

    def carry_out(self, plan):
        """Commit a plan, and return where it ends."""
        return self.settle(self.open(plan))

    def entering(self, *items):
        return entry_steps(self.table.enter(items), self.ledger)

    def leaving(self, *items, **more):
        return exit_steps(self.table.exit(items), self.ledger, **more)

    def updating(self, *items):
        plan = self.table.update(items)
        plan.waits = self.ledger.acquire(plan.reads, plan.writes)
        return plan

    def uses(self, *items):
        """Let a kernel use items that are present, and return where it ends."""
        lane = Lane()
        point = lane.mark()
        self.ledger.release((lane, self.table.enter(items).uses, (), ()), point)
        return point


def x(first, end, map_type=TOFROM, **more):
    """Return ``x[first:end]`` of a vector of bytes."""
    section = section_of(HOST, first, (end - first,), (1,), 1)
    return MapItem(section, first, (end - first,), (1,), 1, map_type, label=f"x[{first}:{end}]", **more)


STEPS = [
    "created",
    "waits",
    "reads",
    "writes",
    "back",
    "copies_kept",
    "used",
    "zeroed",
    "copies_in",
    "copies_out",
    "failures",
]


def lists(plan):
    """Return what a plan does on its lane, by name."""
    return {name: value for name in STEPS if (value := getattr(plan, name))}


@pytest.fixture
def books():
    return Books()


def test_an_entry_makes_storage(books):
    """New storage is allocated, filled if it begins with zeros, copied to, and open as a whole."""
    big, inside, zeros = x(0, 10, TO), x(2, 4, TO), x(20, 30, ALLOC, zeroes=True)
    steps = books.entering(inside, big, zeros)
    first, second = steps.created
    assert [entry.section for entry in steps.created] == [big.section, zeros.section]
    assert lists(steps) == {
        "created": [first, second],
        "zeroed": [second],
        "copies_in": [(big, first)],
        "writes": [(first, first.section), (second, second.section)],
    }
    assert books.table.live() == 0


def test_an_entry_follows(books):
    """New storage follows copies back of its bytes, a part that is used the copies to it, one that is copied to all."""
    point = books.carry_out(books.entering(x(0, 10, TO), x(20, 30, ALLOC)))
    kernel = books.uses(x(0, 5))
    back = books.carry_out(books.leaving(x(20, 30, FROM)))
    assert books.entering(x(0, 5)).waits == [point]
    steps = books.entering(x(6, 9), x(2, 4, TO, always=True), x(20, 25, FROM))
    (old, written, new) = steps.entries
    assert old is written
    assert sorted(map(id, steps.waits)) == sorted(map(id, [point, point, point, kernel, back]))
    assert steps.writes == [(new, new.section), (old, x(2, 4).section)]
    assert [item.label for item, _ in steps.copies_in] == ["x[2:4]"]


def test_an_exit_of_all(books):
    """What goes is followed as a whole, copied to the host outside of the lock, and marked by its copies back alone."""
    item = x(0, 10, FROM)
    point = books.carry_out(books.entering(item))
    kernel = books.uses(item)
    steps = books.leaving(item)
    (entry,) = steps.removed
    assert lists(steps) == {"waits": [point, kernel], "copies_out": [(item, entry)], "back": [item.section]}
    assert (steps.failures, books.table.live()) == ([], 1)


def test_an_exit_of_a_part(books):
    """What stays is copied and marked under the lock; one that only counts waits for nothing."""
    goes, stays = x(0, 10, FROM), x(20, 30, FROM)
    books.carry_out(books.entering(goes))
    for _ in range(3):
        books.carry_out(books.entering(stays))
    (kept,) = [entry for entry in books.table.entries() if entry.section == stays.section]
    always = x(22, 24, FROM, always=True)
    steps = books.leaving(goes, always)
    assert lists(steps) == {
        "waits": [*next(iter(steps.removed)).writes.values(), *kept.writes.values()],
        "copies_kept": [(always, kept)],
        "used": [(kept, always.section)],
        "copies_out": [(goes, steps.removed[0])],
        "back": [goes.section],
    }
    books.carry_out(steps)
    assert lists(books.leaving(stays)) == {"used": [(kept, stays.section)]}


def test_an_update(books):
    """Copies to the device follow all that meets them, copies from it the writes; both are open until they are made."""
    written = books.carry_out(books.entering(x(0, 10, TO)))
    kernel = books.uses(x(0, 10))
    (entry,) = books.table.entries()
    to, from_, absent = x(0, 4, TO), x(6, 8, FROM), x(20, 30, TO)
    steps = books.updating(to, absent, from_)
    assert lists(steps) == {
        "waits": [written, written, kernel],
        "copies_in": [(to, entry)],
        "writes": [(entry, to.section)],
        "copies_out": [(from_, entry)],
        "reads": [(entry, from_.section)],
    }
    assert (steps.counter, steps.failures) == (None, None)
    assert lists(books.updating(absent)) == {}


@pytest.mark.parametrize(
    ("opened", "put_off", "goes_on"),
    [
        (
            lambda books: books.updating(x(0, 4, TO)),
            [
                lambda books: books.entering(x(2, 8)),
                lambda books: books.updating(x(3, 4, FROM)),
                lambda books: books.leaving(x(5, 6, FROM), may_be_put_off=True),
            ],
            [
                lambda books: books.entering(x(4, 8)),
                lambda books: books.updating(x(4, 5, TO)),
                lambda books: books.leaving(x(5, 6, FROM)),
            ],
        ),
        (
            lambda books: books.updating(x(0, 4, FROM)),
            [lambda books: books.entering(x(3, 9, TO, always=True)), lambda books: books.updating(x(0, 1, TO))],
            [lambda books: books.entering(x(0, 10)), lambda books: books.updating(x(0, 4, FROM))],
        ),
        (
            lambda books: books.leaving(x(0, 10, FROM)),
            [lambda books: books.entering(x(9, 12, ALLOC))],
            [lambda books: books.entering(x(10, 12, TO)), lambda books: books.updating(x(0, 10, TO))],
        ),
    ],
    ids=["update to", "update from", "exit"],
)
def test_put_off(books, opened, put_off, goes_on):
    """While copies are under way, what has to follow them is put off and changes nothing; anything else goes on."""
    books.carry_out(books.entering(x(0, 10, TO)))
    lane = books.open(opened(books))
    version = books.table.version
    for construct in put_off:
        with pytest.raises(PutOffError):
            construct(books)
    for construct in goes_on:
        construct(books)
    assert books.table.version == version
    point = books.settle(lane)
    for construct in put_off:
        assert point in construct(books).waits
