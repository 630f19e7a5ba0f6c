"""Arguments of ``*`` and ``**`` parameters in clauses of decorated functions, through the public interface."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import acc, alloc, from_, in_, inout, out, to, tofrom


@pytest.fixture(params=[True, False], ids=["device", "if_=False"])
def if_(request):
    return request.param


def add_one(*tiles, **named):
    for tile in (*tiles, *named.values()):
        tile[...] += 1


# -- map --------------------------------------------------------------------------------------------
def test_a_clause_applies_to_each_array(runtime, if_):
    """``to("tiles")`` maps each array of the call `to`, so that none is copied back; on the host they are changed."""

    @omp.target(map=[to("tiles")], if_=if_)
    def total(n, *tiles):
        found = sum(float(tile.sum()) for tile in tiles) + n
        add_one(*tiles)
        return found

    a, b = np.ones(3), np.ones((2, 2))
    assert total(2, a, b) == 9
    assert (a == (1 if if_ else 2)).all()
    assert (b == (1 if if_ else 2)).all()
    assert total(2) == 2  # it names nothing


def test_what_is_no_array_passes(runtime):
    """Scalars, strings, None and device arrays in a tuple that is wholly named are what they are without the clause."""

    @omp.target(map=[from_("rest")])
    def body(*rest):
        kinds = tuple(value for value in rest if not hasattr(value, "shape"))
        for value in rest:
            if hasattr(value, "shape"):
                value[...] = 3
        return kinds

    a, d = np.ones(3), omp.target_alloc(4, "f8")
    assert body(a, 1, "x", None, d) == (1, "x", None)
    assert (a == 3).all()
    assert (d.get() == 3).all()
    omp.target_free(d)


def test_arguments_by_keyword(runtime):
    """``"named"`` names all arguments that ``**named`` takes, ``"a"`` the one of that name."""
    a, b, c = np.ones(2), np.ones(2), np.ones(2)
    omp.target(add_one, map=[to("named")])(a=a, b=b)
    assert (a == 1).all()
    assert (b == 1).all()
    omp.target(add_one, map=[to("a"), tofrom("tiles")])(c, a=a, b=b)
    assert (a == 1).all()
    assert (b == 2).all()
    assert (c == 2).all()


def test_one_of_them(runtime, if_):
    """``"tiles[i]"`` names one argument, and ``"tiles[i][1:2]"`` a section of it, which the body receives."""

    @omp.target(map=[tofrom("tiles[i][1:2]"), to("tiles[1-i]")], if_=if_)
    def body(i, *tiles):
        sizes = tuple(tile.size for tile in tiles)
        for tile in tiles:
            tile[...] = 9
        return sizes

    a, b = np.zeros(4), np.zeros(3)
    assert body(0, a, b) == (2, 3)
    assert a.tolist() == [0, 9, 9, 0]
    assert (b == (0 if if_ else 9)).all()


def test_nowait_and_present_data(runtime):
    """A deferred region finds what a region around it maps."""
    a, b = np.zeros(4), np.zeros(4)
    with omp.target_data(map=[tofrom(a, b)]):
        region = omp.target(add_one, map=[alloc("tiles", present=True)], depend=[inout("tiles")], nowait=True)
        for _ in range(5):
            region(a, b)
    assert (a == 5).all()
    assert (b == 5).all()


def test_replayed(runtime):
    """A replayed region maps and orders what was recorded."""
    region = omp.target(add_one, map=[tofrom("tiles")], depend=[inout("tiles")], nowait=True)
    a, b = np.zeros(4), np.zeros(4)

    @omp.taskgraph
    def steps(a, b):
        region(a, b)
        region(b)

    for _ in range(4):
        steps(a, b)
    assert (a == 4).all()
    assert (b == 8).all()


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("tiles[2]", "outside of the tuple, which goes from 0 to 1"),
        ("tiles[0:1]", "a section of a tuple has no storage"),
        ("tile", "no parameter or visible name"),
    ],
)
def test_what_names_none(runtime, text, wrong):
    """An element that the call does not pass, a section of the tuple, and another name are refused at the call."""
    with pytest.raises(omp.ClauseError, match=wrong):
        omp.target(map=[to(text)], nowait=True)(lambda *tiles: None)(np.ones(2), np.ones(2))


def test_the_rules_for_each_array(runtime):
    """What a single array must be, each has to be: an array of Python objects is refused."""
    with pytest.raises(omp.ClauseError, match="dtype object"):
        omp.target(add_one, map=[to("tiles")])(np.ones(2), np.array([None]))


# -- data-sharing clauses ---------------------------------------------------------------------------
@pytest.mark.parametrize("clause", ["firstprivate", "private"])
def test_storage_of_their_own(runtime, if_, clause):
    """Each array has device storage of its own; what is no array is captured as without the clause."""

    @omp.target(**{clause: "tiles"}, if_=if_)
    def body(*tiles):
        for tile in tiles[:-1]:
            tile[...] = tiles[-1]
        return float(sum(tile.sum() for tile in tiles[:-1]))

    a, b = np.ones(3), np.ones(3)
    assert body(a, b, 7) == 42
    assert (a == 1).all()
    assert (b == 1).all()


def test_elements_in_several_clauses(runtime):
    """Elements may be in clauses of their own, each in one."""

    @omp.target(defaultmap="none", firstprivate="tiles[0]", private="tiles[1]", map=[tofrom("tiles[2]")])
    def body(*tiles):
        for tile in tiles:
            tile[...] = 5

    a, b, c = np.zeros(2), np.zeros(2), np.zeros(2)
    body(a, b, c)
    assert [a[0], b[0], c[0]] == [0, 0, 5]
    with pytest.raises(omp.ClauseError, match=r"'tiles\[3\]'.*in no clause"):
        body(a, b, c, np.zeros(2))
    twice = omp.target(lambda *tiles: None, firstprivate=["tiles", "tiles[0]"])
    with pytest.raises(omp.ClauseError, match=r"'tiles\[0\]' is named twice"):
        twice(a, b)
    both = omp.target(lambda *tiles: None, firstprivate=["tiles[1]"], map=[to("tiles")])
    with pytest.raises(omp.ClauseError, match=r"'tiles\[1\]' is in map and in firstprivate"):
        both(a, b)


def test_device_arrays(runtime):
    """``is_device_ptr`` wants each array to be the device's."""
    d = omp.target_alloc(4, "f8")
    body = omp.target(add_one, is_device_ptr="tiles")
    d[...] = 0
    body(d, d)
    assert (d.get() == 2).all()
    with pytest.raises(omp.ClauseError, match=r"'tiles\[1\]' is ndarray"):
        body(d, np.ones(2))
    omp.target_free(d)


# -- depend -----------------------------------------------------------------------------------------
@pytest.fixture
def none():
    """A runtime without devices."""
    with omp.Runtime("none", num_threads=2, check=True) as runtime:
        yield runtime


def test_each_is_a_list_item(none):
    """``out("tiles")`` orders by each array of the call, whatever stands beside it."""
    event = omp.Event()
    a, b, c = np.zeros(2), np.zeros(2), np.zeros(2)
    write = omp.task(lambda *tiles: None, depend=[out("tiles")], detach=event)(a, b, 3, "name")
    read = omp.task(lambda n, *tiles, **named: None, depend=[in_("tiles", "named")])
    assert read(3, b).dependencies == (write,)
    assert read(3, c, k=a[1:]).dependencies == (write,)
    assert read(3, c, 3, "name").dependencies == ()
    assert read(3).dependencies == read(4).dependencies == ()
    event.fulfill()
    omp.taskwait()


def test_one_is_a_list_item(none):
    """``out("tiles[1]")`` orders by that array alone."""
    event = omp.Event()
    a, b = np.zeros(2), np.zeros(2)
    write = omp.task(lambda *tiles: None, depend=[out("tiles[1]")], detach=event)(a, b)
    read = omp.task(lambda *tiles: None, depend=[in_("tiles")])
    assert read(a).dependencies == ()
    assert read(a, b).dependencies == (write,)
    event.fulfill()
    omp.taskwait()


def test_a_tuple_without_arrays_is_a_value(none):
    """Where the call passes no array the tuple is a location of its own, as any hashable value."""
    event = omp.Event()
    step = omp.task(lambda *ij: None, depend=[inout("ij")])
    first = step.options(detach=event)(1, 2)
    assert step(1, 2).dependencies == (first,)
    assert step(2, 1).dependencies == ()
    assert step().dependencies == step().dependencies == ()
    event.fulfill()
    omp.taskwait()


def test_objects_and_tasks_among_them(none):
    """Objects with a mapper stand for what they map, tasks and events are followed."""

    class Pair:
        def __init__(self):
            self.x = np.zeros(2)

    omp.declare_mapper(Pair, lambda pair: [tofrom(pair.x)])
    pair, event = Pair(), omp.Event()
    write = omp.task(lambda x: None, depend=[out("x")], detach=event)(pair.x)
    read = omp.task(lambda *items: None, depend=[in_("items")])(1, pair)
    assert read.dependencies == (write,)
    late = omp.task(lambda *items: items[0].is_fulfilled, depend=[in_("items")])(event)
    event.fulfill()
    assert late.result()
    omp.taskwait()


# -- OpenACC ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("construct", [acc.parallel, acc.kernels, acc.serial])
def test_openacc(runtime, construct):
    """The data clauses of a compute region name them alike."""
    a, b, c = np.ones(3), np.ones(3), np.ones(3)
    construct(add_one, copyin="tiles", private="named")(a, b, k=c)
    assert (a == 1).all()
    assert (b == 1).all()
    assert (c == 1).all()
    construct(add_one, copy="tiles[0]", copyin="tiles[1]", async_=3)(a, b)
    acc.wait(3)
    assert (a == 2).all()
    assert (b == 1).all()


def test_openacc_reduction(runtime):
    """``reduction`` of ``"totals"`` gives a private array for each."""

    @acc.parallel(copyin="x", reduction={"+": ["totals"]})
    def body(x, *totals):
        for total in totals:
            total[...] += x.sum()

    a, b = np.array([1.0]), np.array([2.0])
    body(np.ones(4), a, b)
    assert a[0] == 5
    assert b[0] == 6
    with pytest.raises(omp.ClauseError):
        body(np.ones(4), a, np.array([None]))


def test_without_a_device(none):
    """On the host nothing is mapped, and what is private is."""
    a, b = np.zeros(2), np.zeros(2)
    with pytest.warns(omp.HostFallbackWarning):
        omp.target(add_one, map=[to("tiles")])(a, b)
    assert (a == 1).all()
    omp.target(add_one, firstprivate="tiles")(a, b)
    assert (a == 1).all()
