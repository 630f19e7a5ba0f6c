"""The dependence tracker alone: the table of the standard, sets, exclusion, overlaps, all_memory, forgetting."""

import threading
from weakref import ref

import pytest

from offload.arrays.sections import HOST, section_of
from offload.tasks import depend
from offload.tasks.depend import DependType, Tracker

IN, OUT, INOUT, MUTEX, SET = DependType
ALL = None


class Access:
    def __init__(self, type_, *keys):
        self.type = type_
        self.joins = None if type_ in (OUT, INOUT) else type_
        self.keys = None if keys == (ALL,) else keys


def part(low, count, stride=1):
    return section_of(HOST, 1000 + low, (count,), (stride,), 1)


class Program:
    """Adds tasks, which are strings, and remembers which are past."""

    def __init__(self, *, forgets=True):
        self.past = set()
        self.tracker = Tracker(self.past.__contains__) if forgets else Tracker()
        self.mutexes = {}

    def add(self, name, *accesses):
        """Return what a new task follows; each pair is a type and its locations, or an access made before."""
        made = [access if isinstance(access, Access) else Access(access[0], *access[1:]) for access in accesses]
        self.edges = []
        found = set(self.tracker.add(name, made, self.edges)) - {name}
        self.mutexes[name] = set(self.tracker.exclusive)
        self.tracker.exclusive = []
        assert {edge[0] for edge in self.edges} == found
        return found

    def latest(self, *accesses):
        return set(self.tracker.latest([Access(*access) for access in accesses]))

    def exclude(self, *names):
        """Tell whether all these tasks need one mutex."""
        return bool(set.intersection(*[self.mutexes[name] for name in names]))


@pytest.fixture
def program():
    return Program()


@pytest.fixture
def tiny(monkeypatch):
    """Sweep and prune as early as can be."""
    monkeypatch.setattr(depend, "_FIRST_SWEEP", 4)
    monkeypatch.setattr(depend, "_FIRST_PRUNING", 4)
    return Program()


# -- the table -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("new", DependType)
@pytest.mark.parametrize("old", DependType)
def test_the_table(program, old, new):
    """Two tasks are ordered unless both are in, inoutset or mutexinoutset; of these the last exclude each other."""
    unordered = old is new and old in (IN, MUTEX, SET)
    program.add("old", (old, "x"))
    assert program.latest((new, "x")) == (set() if unordered else {"old"})
    assert program.add("new", (new, "x")) == (set() if unordered else {"old"})
    assert program.exclude("old", "new") == (old is new is MUTEX)
    assert program.add("other", (INOUT, "y")) == set()


@pytest.mark.parametrize("closing", DependType)
@pytest.mark.parametrize("kind", [IN, MUTEX, SET])
@pytest.mark.parametrize("before", DependType)
def test_sets(program, before, kind, closing):
    """A set follows what is before it, member by member; the first task of another kind follows all and closes it."""
    if before is kind or closing is kind:
        return
    program.add("before", (before, "x"))
    for member in "abc":
        assert program.add(member, (kind, "x")) == {"before"}
    assert program.add("closing", (closing, "x")) == {"a", "b", "c"}
    assert program.add("d", (kind, "x")) == {"closing"}
    assert program.add("e", (kind, "x")) == {"closing"}
    assert program.add("last", (OUT, "x")) == {"d", "e"}


def test_several_items_are_the_union(program):
    """A task follows what any of its items asks for."""
    program.add("a", (OUT, "x"))
    program.add("b", (IN, "y"))
    program.add("c", (OUT, "z"))
    assert program.add("n", (IN, "x", "y"), (INOUT, "z")) == {"a", "c"}


def test_no_task_follows_itself(program):
    """Items that one task names several times, with overlaps and in all types, make no edge to itself."""
    kinds = [(type_, key) for type_ in DependType for key in ("x", part(0, 8), part(4, 8))]
    assert program.add("a", *kinds, *reversed(kinds)) == set()
    assert program.edges == []
    assert program.add("b", (IN, part(6, 1))) == {"a"}
    assert program.add("c", (SET, "x")) == {"a"}


@pytest.mark.parametrize("first", DependType)
@pytest.mark.parametrize("second", DependType)
@pytest.mark.parametrize("later", DependType)
def test_an_item_of_two_types(program, first, second, later):
    """Who names an item in two types is ordered towards a later task if one of them is."""
    program.add("old", (OUT, "x"))
    assert program.add("both", (first, "x"), (second, "x")) == {"old"}
    unordered = first is second is later and later in (IN, MUTEX, SET)
    assert program.add("later", (later, "x")) == ({"old"} if unordered else {"both"})


# -- kinds of edges ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (OUT, IN, "flow"),
        (INOUT, IN, "flow"),
        (OUT, INOUT, "flow"),
        (INOUT, INOUT, "flow"),
        (IN, OUT, "anti"),
        (IN, INOUT, "anti"),
        (OUT, OUT, "output"),
        (INOUT, OUT, "output"),
        (MUTEX, IN, "set"),
        (OUT, MUTEX, "set"),
        (SET, OUT, "set"),
        (IN, SET, "set"),
        (SET, MUTEX, "set"),
    ],
)
def test_edges_name_kind_and_location(program, old, new, kind):
    """An edge says what kind of dependence on which item of the new task it is, for a joiner of a set as well."""
    program.add("old", (old, "x"))
    program.add("new", (new, "x"))
    assert program.edges == [("old", kind, "x")]
    if new in (IN, MUTEX, SET):
        program.add("joiner", (new, "x"))
        assert program.edges == [("old", kind, "x")]


def test_edges_of_overlaps(program):
    """An edge to a task that named overlapping storage names the new task's item."""
    program.add("old", (OUT, part(0, 8)))
    program.add("new", (IN, part(4, 8)))
    assert program.edges == [("old", "flow", part(4, 8))]


@pytest.mark.parametrize(("type_", "kind"), [(OUT, "output"), (INOUT, "flow")])
def test_edges_of_all_memory(program, type_, kind):
    """The edges of all_memory name no location, and none leads to the task itself."""
    program.add("fence", (OUT, ALL))
    program.add("reader", (IN, "x"))
    program.add("all", (IN, "x"), (IN, "y"), (type_, ALL))
    assert ("reader", "anti", None) in program.edges
    assert ("fence", kind, None) in program.edges


# -- overlaps ------------------------------------------------------------------------------------------
def test_overlaps_are_exact(program):
    """Sections are ordered if and only if they share a byte, strides included."""
    program.add("even", (OUT, part(0, 8, 2)))
    assert program.add("odd", (OUT, part(1, 8, 2))) == set()
    assert program.add("middle", (IN, part(4, 2))) == {"even", "odd"}
    assert program.add("beyond", (OUT, part(16, 4))) == set()
    assert program.add("all", (OUT, part(0, 16))) == {"middle", "even", "odd"}
    assert program.add("again", (OUT, part(1, 8, 2))) >= {"all"}


def test_what_was_seen_first_does_not_matter(program):
    """A location that is first read after its parts were written follows all of them, and they follow it."""
    for k in range(4):
        program.add(f"w{k}", (OUT, part(4 * k, 4)))
    assert program.add("r", (IN, part(0, 16))) == {"w0", "w1", "w2", "w3"}
    assert program.add("w", (OUT, part(0, 4))) == {"r", "w0"}


@pytest.mark.parametrize("kind", [IN, MUTEX, SET])
def test_sets_reach_across_overlaps(program, kind):
    """Tasks of one set type on overlapping locations are unordered, and follow what is before the other's set."""
    program.add("w", (OUT, part(0, 8)))
    program.add("a", (kind, part(0, 8)))
    assert program.add("b", (kind, part(4, 8))) == {"w"}
    assert program.add("c", (kind, part(0, 8))) == {"w"}
    assert program.add("last", (OUT, part(6, 1))) == {"a", "b", "c"}
    assert program.exclude("a", "b") == program.exclude("b", "c") == (kind is MUTEX)


def test_address_spaces_are_apart(program):
    """The same address in another space is another location."""
    program.add("host", (OUT, part(0, 8)))
    assert program.add("device", (OUT, part(0, 8)._replace(space=0))) == set()


# -- mutexes -------------------------------------------------------------------------------------------
def test_each_item_has_a_mutex(program):
    """A task needs the mutex of each of its items; those without mutexinoutset need none."""
    program.add("a", (MUTEX, "x", "y"))
    program.add("b", (MUTEX, "y", "z"))
    program.add("c", (MUTEX, "z"))
    program.add("d", (IN, "u"), (SET, "v"), (OUT, "w"))
    assert [len(program.mutexes[name]) for name in "abcd"] == [2, 2, 1, 0]
    assert program.exclude("a", "b")
    assert program.exclude("b", "c")
    assert not program.exclude("a", "c")


def test_mutexes_of_a_clause_used_again(program):
    """A clause needs its mutexes each time, those of locations that were first named meanwhile included."""
    clause = Access(MUTEX, part(0, 8))
    program.add("a", clause)
    program.add("b", (MUTEX, part(4, 8)))
    program.add("c", clause)
    assert program.exclude("a", "b", "c")


def test_parts_share_no_mutex(program):
    """Parts that share no byte do not exclude each other; the whole excludes each of them, and they it."""
    program.add("w", (INOUT, part(0, 8)))
    program.add("a", (MUTEX, part(0, 4)))
    program.add("b", (MUTEX, part(4, 4)))
    program.add("all", (MUTEX, part(0, 8)))
    program.add("c", (MUTEX, part(4, 4)))
    assert not program.exclude("a", "b")
    assert all(program.exclude("all", name) for name in "abc")
    assert program.exclude("b", "c")


# -- waits ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("type_", DependType)
def test_latest_enters_nothing(program, type_):
    """What a wait would follow is found without becoming part of the program."""
    program.add("w", (OUT, part(0, 8)))
    for _ in range(2):
        assert program.latest((type_, part(4, 8)), (type_, "y")) == {"w"}
        assert program.tracker.exclusive == []
    assert program.add("v", (OUT, part(0, 8)), (OUT, "y")) == {"w"}
    assert program.latest((OUT, ALL)) == {"v"}


# -- all_memory ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("type_", [OUT, INOUT])
def test_all_memory(program, type_):
    """all_memory follows every task that named anything, and every later one follows it; two are ordered."""
    program.add("a", (IN, "x"))
    program.add("b", (MUTEX, part(0, 8)))
    program.add("c", (SET, part(4, 8)))
    assert program.add("all", (type_, ALL)) >= {"a", "c"}
    assert program.add("again", (type_, ALL)) == {"all"}
    assert program.add("x", (IN, "x")) == {"again"}
    assert program.add("fresh", (IN, "fresh")) == {"again"}
    assert program.add("part", (MUTEX, part(2, 1))) == {"again"}
    assert program.add("last", (type_, ALL)) >= {"x", "fresh", "part"}


@pytest.mark.parametrize("first", [True, False])
def test_all_memory_makes_other_items_redundant(program, first):
    """Other items of such a task change nothing: neither what it follows nor what follows it."""
    program.add("w", (OUT, "x"))
    program.add("v", (OUT, "y"))
    items = [(OUT, "x"), (IN, part(0, 8))]
    assert program.add("all", *([] if first else items), (OUT, ALL), *(items if first else [])) == {"w", "v"}
    assert program.add("reader", (IN, "x")) == {"all"}
    assert program.add("other", (OUT, part(0, 8))) == {"all"}


def test_tasks_without_depend_are_unaffected(program):
    """A task without clauses neither follows all_memory nor is followed by it."""
    assert program.add("none") == set()
    assert program.add("all", (OUT, ALL)) == set()
    assert program.add("none again") == set()
    assert program.add("all again", (OUT, ALL)) == {"all"}


def test_a_clause_outlives_all_memory(program):
    """A clause that was used before all_memory follows it afterwards."""
    clause = Access(IN, "x")
    program.add("a", clause)
    program.add("all", (OUT, ALL))
    assert program.add("b", clause) == {"all"}
    assert program.add("c", (OUT, "x")) == {"b"}


# -- clauses used again --------------------------------------------------------------------------------
def test_trackers_share_a_clause():
    """A clause that two trackers use in turn orders the tasks of each among themselves only."""
    first, second = Program(), Program()
    clause = Access(INOUT, "x")
    for k in range(3):
        assert first.add(f"a{k}", clause) == ({f"a{k - 1}"} if k else set())
        assert second.add(f"b{k}", clause) == ({f"b{k - 1}"} if k else set())


def test_threads_share_a_clause():
    """Threads that use one clause at the same time, each with its own tracker, do not see each other's tasks."""
    clause = Access(INOUT, "x", "y", "z")
    start = threading.Barrier(4)
    wrong = []

    def generate(name):
        tracker = Tracker()
        start.wait()
        previous = []
        for k in range(2000):
            if set(tracker.add((name, k), [clause])) != set(previous):
                wrong.append((name, k))
            previous = [(name, k)]

    threads = [threading.Thread(target=generate, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# -- forgetting ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("fresh", [lambda k: ("t", k), lambda k: part(100 * k, 50), lambda k: part(10 * k, 50)])
def test_past_cells_are_swept(monkeypatch, fresh):
    """Fresh locations without end run in constant memory; what is not past stays."""
    monkeypatch.setattr(depend, "_FIRST_SWEEP", 64)
    program = Program()
    program.add("kept", (OUT, part(-1000, 4)))
    for k in range(2_000):
        program.add(k, (OUT, fresh(k)))
        program.past.add(k)
        assert len(program.tracker) <= 64
        links = [other for cell in program.tracker._cells.values() for other in cell.linked]
        assert len(links) <= 64 * 8
    assert program.add("after", (IN, part(-998, 10))) == {"kept"}
    assert program.add("all", (OUT, ALL)) >= {"kept", "after"}


def test_a_tracker_without_is_past_forgets_nothing(monkeypatch):
    """A tracker for graphs still knows every task."""
    monkeypatch.setattr(depend, "_FIRST_SWEEP", 4)
    monkeypatch.setattr(depend, "_FIRST_PRUNING", 4)
    program = Program(forgets=False)
    for k in range(300):
        program.add(k, (OUT, ("t", k)), (IN, "x"))
    assert program.add("r", (IN, ("t", 0))) == {0}
    assert program.add("w", (OUT, "x")) == set(range(300))


def test_a_sweep_in_the_middle_of_a_task(tiny):
    """A task that names more fresh items than the tracker keeps is found by each of them."""
    known = Access(INOUT, "x")
    tiny.add("first", known)
    tiny.add("live", known)
    for k in range(3):
        tiny.add(k, (OUT, ("old", k)))
        tiny.past.add(k)
    clauses = [Access(OUT, ("new", k), part(10 * k, 10)) for k in range(10)]
    assert tiny.add("many", known, *clauses) == {"live"}
    assert len(tiny.tracker) == 21
    assert tiny.latest((IN, "x")) == {"many"}
    for k in range(10):
        assert tiny.latest((IN, ("new", k))) == {"many"}
        assert tiny.latest((IN, part(10 * k + 5, 1))) == {"many"}
    assert tiny.add("again", *clauses) == {"many"}


def test_what_makes_a_sweep_is_known_after_it(tiny):
    """A location whose tasks were past when it was named, so that it was swept, is one that others find."""
    for k in range(4):
        tiny.add(k, (OUT, part(8 * k, 8)))
        tiny.past.add(k)
    assert tiny.add("a", (OUT, part(0, 8)), (OUT, part(0, 4))) <= {0}
    assert len(tiny.tracker) == 2
    assert tiny.latest((IN, part(0, 8))) == {"a"}
    assert tiny.latest((IN, part(4, 8))) == {"a"}
    assert tiny.latest((OUT, ALL)) == {"a"}


def test_a_clause_used_again_after_a_sweep(tiny):
    """A clause whose locations were swept is as one that is new, and one whose locations were kept finds them."""
    swept, kept = Access(INOUT, "swept", part(0, 8)), Access(INOUT, "kept")
    tiny.add("a", swept)
    tiny.add("b", kept)
    tiny.past.add("a")
    for k in range(9):
        tiny.add(k, (OUT, ("t", k)))
        tiny.past.add(k)
    assert tiny.add("c", swept, kept) == {"b"}
    assert tiny.add("d", (IN, part(4, 8))) == {"c"}
    assert tiny.add("e", (IN, "kept"), (IN, "swept")) == {"c"}


def test_a_fence_that_is_past_is_swept(tiny):
    """Locations named after a sweep follow a fence only if it is not past."""
    for past in (False, True):
        tiny.add("fence", (OUT, ALL))
        if past:
            tiny.past.add("fence")
        for k in range(20):
            tiny.add(k, (OUT, ("t", past, k)))
            tiny.past.add(k)
        assert tiny.add("fresh", (IN, "fresh")) == (set() if past else {"fence"})
        tiny.add("all", (OUT, ALL))


def test_sweeps_are_few(monkeypatch):
    """With most locations in use, a sweep that gains nothing is not tried again for every fresh one."""
    monkeypatch.setattr(depend, "_FIRST_SWEEP", 64)
    asked = []
    tracker = Tracker(lambda handle: asked.append(handle) or handle % 5 > 2)  # two in five are past
    for k in range(2000):
        tracker.add(k, [Access(OUT, ("t", k))])
    assert len(asked) < 10 * 2000


@pytest.mark.parametrize("kind", [IN, SET, MUTEX])
def test_members_that_are_past_are_dropped(program, kind):
    """A set without end keeps few of its members, and none that is past of those before it."""
    for k in range(100):
        program.add(("before", k), (SET if kind is IN else IN, "x"))
        program.past.add(("before", k))
    for k in range(5000):
        program.add(k, (kind, "x"))
        program.past.add(k)
    (cell,) = program.tracker._cells.values()
    assert len(cell.last) <= 64
    assert cell.before == []
    program.past.clear()
    assert program.add("w", (OUT, "x")) >= {4999}


def test_members_that_are_live_are_kept(program):
    """Pruning loses no live member, and does not look at all of them for each new one."""
    asked = []
    program.tracker._is_past = lambda handle: asked.append(handle) or handle in program.past
    for k in range(3000):
        program.add(k, (IN, "x"))
        if k >= 1000:
            program.past.add(k - 1000)  # 1,000 are live at a time
    assert len(asked) < 3 * 3000
    assert program.add("w", (OUT, "x")) >= set(range(2000, 3000))


def test_handles_are_never_looked_into(tiny):
    """Weak references to tasks that are gone are dropped, and one to a live task that they followed is not."""

    class Task:
        __hash__ = __eq__ = None  # neither hashed nor compared

    tracker = Tracker(lambda handle: handle() is None)
    live = Task()
    tracker.add(ref(live), [Access(OUT, "x")])
    for k in range(20):
        tracker.add(ref(Task()), [Access(IN, "x"), Access(OUT, ("t", k))])
    assert {id(handle()) for handle in tracker.latest([Access(IN, "x")])} == {id(live)}
    assert len(tracker) <= 4
    assert tracker.add(ref(live), [Access(OUT, "x"), Access(INOUT, ALL)])


def test_cleared_is_empty(program):
    """A tracker that is cleared knows no task, and clauses that were used with it find nothing."""
    clause = Access(INOUT, part(0, 8))
    program.add("a", clause)
    program.tracker.clear()
    assert len(program.tracker) == 0
    assert program.add("b", clause) == set()


# -- a program -----------------------------------------------------------------------------------------
def test_a_matrix_of_tiles(program):
    """Each tile of a matrix depends on its own row and column only."""

    def tile(i, j):
        return section_of(HOST, 1000 + 16 * i * 8 + 16 * j, (2, 2), (64, 8), 8)

    for i in range(4):
        for j in range(4):
            assert program.add(f"{i}{j}", (OUT, tile(i, j))) == set()
    row = section_of(HOST, 1000 + 2 * 64, (8,), None, 8)
    assert program.add("row", (IN, row)) == {"10", "11", "12", "13"}
    column = section_of(HOST, 1000 + 24, (8,), (64,), 8)
    assert program.add("column", (OUT, column)) == {"01", "11", "21", "31", "row"}
