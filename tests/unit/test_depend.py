"""The dependence tracker alone: the table of the standard, overlaps, forgetting."""

import numpy as np
import pytest

from offload.storage import HOST, section_of
from offload.tasks.depend import Tracker


class Access:
    def __init__(self, writes, *keys):
        self.reads, self.writes = not writes, writes
        self.keys = keys


class Sibling:
    past = False

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return self.name


def reads(*keys):
    return Access(False, *keys)


def writes(*keys):
    return Access(True, *keys)


def part(low, count, stride=1):
    return section_of(HOST, 1000 + low, (count,), (stride,), 1)


class Program:
    """Adds tasks by name and remembers what each followed."""

    def __init__(self, **kwargs):
        self.tracker = Tracker(**kwargs)
        self.tasks = {}

    def add(self, name, *accesses):
        task = self.tasks[name] = Sibling(name)
        self.edges = []
        return {other.name for other in self.tracker.add(task, accesses, self.edges)}


@pytest.mark.parametrize(
    ("old", "new", "ordered"),
    [(reads, reads, False), (reads, writes, True), (writes, reads, True), (writes, writes, True)],
)
def test_the_table(old, new, ordered):
    """Two readers are not ordered; every other pair is."""
    program = Program()
    program.add("old", old("x"))
    assert program.add("new", new("x")) == ({"old"} if ordered else set())
    assert program.add("other", writes("y")) == set()


def test_a_writer_follows_every_reader_and_no_more():
    """A writer follows the readers of its item, which have followed the writer before; a reader that writer only."""
    program = Program()
    program.add("w", writes("x"))
    assert program.add("r1", reads("x")) == {"w"}
    assert program.add("r2", reads("x")) == {"w"}
    assert program.add("w2", writes("x")) == {"r1", "r2"}
    assert program.add("r3", reads("x")) == {"w2"}


def test_several_items_are_one_edge():
    """A predecessor is named once, however many items it shares."""
    program = Program()
    program.add("w", writes("x", "y"), writes("z"))
    assert program.add("n", reads("x"), writes("y", "z")) == {"w"}


def test_no_task_follows_itself():
    """Items that one task names twice, with overlaps and in both types, make no edge to itself."""
    program = Program()
    assert program.add("a", reads("x"), writes("x"), reads(part(0, 8)), writes(part(4, 8)), reads(part(4, 8))) == set()
    assert program.edges == []
    assert program.add("b", reads(part(6, 1))) == {"a"}


def test_overlaps_are_exact():
    """Sections are ordered if and only if they share a byte, strides included."""
    program = Program()
    program.add("even", writes(part(0, 8, 2)))
    assert program.add("odd", writes(part(1, 8, 2))) == set()
    assert program.add("middle", reads(part(4, 2))) == {"even", "odd"}
    assert program.add("beyond", writes(part(16, 4))) == set()
    assert program.add("all", writes(part(0, 16))) == {"middle", "even", "odd"}
    assert program.add("again", writes(part(1, 8, 2))) >= {"all"}


def test_what_was_seen_first_does_not_matter():
    """A location that is first read after its parts were written follows all of them."""
    program = Program()
    for k in range(4):
        program.add(f"w{k}", writes(part(4 * k, 4)))
    assert program.add("r", reads(part(0, 16))) == {"w0", "w1", "w2", "w3"}
    assert program.add("w", writes(part(0, 4))) == {"r", "w0"} or program.add("v", writes(part(0, 4))) == {"w"}


def test_edges_name_kind_and_location():
    """The edges say what kind of dependence on which item they are."""
    program = Program()
    program.add("w", writes("x"))
    program.add("r", reads("x"))
    assert [(task.name, kind, key) for task, kind, key in program.edges] == [("w", "flow", "x")]
    program.add("v", writes("x"))
    assert [(task.name, kind, key) for task, kind, key in program.edges] == [("r", "anti", "x")]
    program.add("u", writes("x"))
    assert [(task.name, kind, key) for task, kind, key in program.edges] == [("v", "output", "x")]


def test_latest_enters_nothing():
    """What a wait would follow is found without becoming part of the program."""
    program = Program()
    program.add("w", writes("x"))
    for _ in range(2):
        assert {task.name for task in program.tracker.latest([reads("x")])} == {"w"}
    assert program.add("v", writes("x")) == {"w"}


@pytest.mark.parametrize("fresh", [lambda k: ("t", k), lambda k: part(100 * k, 50)])
def test_past_cells_are_swept(fresh):
    """Fresh locations without end run in constant memory; what is not past stays."""
    program = Program()
    program.add("kept", writes(part(-1000, 4)))
    for k in range(20_000):
        task = Sibling(str(k))
        program.tracker.add(task, [writes(fresh(k))])
        task.past = True
    assert len(program.tracker) <= 2048
    assert program.add("after", reads(part(-998, 10))) == {"kept"}


def test_a_tracker_for_graphs_forgets_nothing():
    """With ``forgets=False`` a past task is still a predecessor."""
    program = Program(forgets=False)
    for k in range(3000):
        program.add(str(k), writes(("t", k)))
        program.tasks[str(k)].past = True
    assert program.add("r", reads(("t", 0))) == {"0"}


def test_readers_that_are_past_are_dropped():
    """An item that is only ever read keeps few of its readers."""
    program = Program()
    for k in range(5000):
        task = Sibling(str(k))
        program.tracker.add(task, [reads("x")])
        task.past = True
    (cell,) = program.tracker._cells.values()
    assert len(cell.readers) <= 64


def test_a_matrix_of_tiles():
    """Each tile of a matrix depends on its own row and column only."""
    a = np.zeros((8, 8))
    address = a.ctypes.data
    program = Program()

    def tile(i, j):
        view = a[2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
        return section_of(HOST, address + view.ctypes.data - address, view.shape, view.strides, 8)

    for i in range(4):
        for j in range(4):
            assert program.add(f"{i}{j}", writes(tile(i, j))) == set()
    row = a[2]
    assert program.add("row", reads(section_of(HOST, row.ctypes.data, row.shape, None, 8))) == {"10", "11", "12", "13"}
