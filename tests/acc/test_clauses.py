"""OpenACC's clauses: what each maps, in which spellings, which queues async-arguments and wait clauses mean."""

from __future__ import annotations

import inspect
import threading
import types
import weakref

import numpy as np
import pytest

from offload import acc
from offload.acc.clauses import (
    ENTER_SPELLINGS,
    EXIT_SPELLINGS,
    FIRST_DEFAULT,
    MEANINGS,
    SPELLINGS,
    Names,
    check_async,
    check_distinct,
    check_wait,
    data_clause,
    data_clauses,
    default_number,
    device_arrays,
    excuse_empty,
    host_arrays,
    names_of,
    number_of,
    presence,
    queue_of,
    queues_of,
)
from offload.constructs.clauses.mapping import map_items
from offload.data.maptypes import MapConstruct, MapType
from offload.errors import ClauseError
from offload.runtime.queues import Queues
from offload.tasks.depend import DependType

A, B = np.zeros(4), np.zeros(4)
NOBODY = Names(None)

NOVAL, SYNC, DEFAULT = acc.async_noval, acc.async_sync, acc.async_default
NO_ASYNC = [-4, -17, 1.0, "1", (1,), [], ..., np.float64(2), np.int64(-5)]


@pytest.fixture
def queues():
    """The queues of a runtime, without one: those of the host have no stream."""
    return Queues()


# -- async-arguments ---------------------------------------------------------------------------------
def test_constants():
    """The three constants are negative and distinct, so that no number of a queue is one of them."""
    assert len({NOVAL, SYNC, DEFAULT}) == 3
    assert max(NOVAL, SYNC, DEFAULT) < 0


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, None), (False, None), (True, NOVAL), (0, 0), (7, 7), (10**12, 10**12), (np.int8(3), 3)]
    + [(constant, constant) for constant in (NOVAL, SYNC, DEFAULT)]
    + [(np.int64(SYNC), SYNC)],
)
def test_check_async(value, expected):
    """An async-argument is a number of at least 0, a constant, or a truth value; the result is a plain int."""
    checked = check_async(value)
    assert checked == expected
    assert type(checked) is type(expected)


@pytest.mark.parametrize("value", NO_ASYNC, ids=repr)
def test_check_async_refuses(value):
    """Anything else is an error that names the clause and what is allowed."""
    with pytest.raises(ClauseError, match=r"set_default_async: .*acc\.async_noval"):
        check_async(value, "set_default_async")


def test_default_queue(queues):
    """The default queue is 0 until the thread chooses another one; async_default stays the first."""
    assert default_number(queues) == number_of(queues, NOVAL) == number_of(queues, DEFAULT) == FIRST_DEFAULT == 0
    queues.local.default = 5
    assert (number_of(queues, NOVAL), number_of(queues, DEFAULT), number_of(queues, 3)) == (5, 0, 3)
    queues.local.default = SYNC
    assert default_number(queues) == SYNC
    assert number_of(queues, NOVAL) is None


def test_default_queue_of_a_thread(queues):
    """Each host thread has a default of its own."""
    queues.local.default = 5
    seen = []
    thread = threading.Thread(target=lambda: seen.append(number_of(queues, NOVAL)))
    thread.start()
    thread.join()
    assert seen == [0]


def test_queue_of(queues):
    """Synchronous arguments mean no queue; equal numbers mean one queue, also where one is the default."""
    assert queue_of(queues, None, None) is queue_of(queues, None, SYNC) is None
    assert queue_of(queues, None, NOVAL) is queue_of(queues, None, DEFAULT) is queue_of(queues, None, 0)
    assert queue_of(queues, None, 1) is not queue_of(queues, None, 9), "though they would share a stream"


# -- wait clauses ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ()),
        (False, ()),
        (True, None),
        ([], ()),
        (3, (3,)),
        ([3, 3, 1], (3, 3, 1)),
        ((SYNC, 2), (SYNC, 2)),
        ([True, 2], (NOVAL, 2)),
        ([NOVAL, DEFAULT], (NOVAL, DEFAULT)),
        (np.int32(4), (4,)),
    ],
)
def test_check_wait(value, expected):
    """True is all queues; a list holds async-arguments, in which True is the default queue."""
    assert check_wait(value) == expected


@pytest.mark.parametrize("value", [[1, bad] for bad in (None, -4, "1", 2.5)], ids=repr)
def test_check_wait_refuses(value):
    """What is no async-argument is an error that names the clause, also in a list."""
    with pytest.raises(ClauseError, match="wait_any: "):
        check_wait(value, "wait_any")


def test_queues_of(queues):
    """A wait names each queue once; synchronous arguments name none; all are those that have been used."""
    assert queues_of(queues, None, None) == []
    one, two = queue_of(queues, None, 1), queue_of(queues, None, 2)
    assert queues_of(queues, None, None) == [one, two]
    assert queues_of(queues, None, (2, SYNC, 1, 2)) == [two, one]
    queues.local.default = 2
    assert queues_of(queues, None, (NOVAL, 2)) == [two]
    queues.local.default = SYNC
    assert queues_of(queues, None, (NOVAL, SYNC)) == []
    assert queues_of(queues, None, ()) == []


# -- spellings ---------------------------------------------------------------------------------------
def test_spellings():
    """Copy, copyin, copyout and create have three spellings each; the other words one."""
    words = ("copy", "copyin", "copyout", "create")
    expected = {f"{prefix}{word}": word for word in words for prefix in ("", "p", "present_or_")}
    assert expected | {"no_create": "no_create", "present": "present"} == SPELLINGS
    assert set(ENTER_SPELLINGS.values()) == {"copyin", "create"}
    assert set(EXIT_SPELLINGS) == {"copyout", "pcopyout", "present_or_copyout", "delete"}
    assert {*SPELLINGS.values(), *ENTER_SPELLINGS.values(), *EXIT_SPELLINGS.values()} <= set(MEANINGS)


@pytest.mark.parametrize(
    ("word", "map_type"),
    [
        ("copy", MapType.TOFROM),
        ("copyin", MapType.TO),
        ("copyout", MapType.FROM),
        ("create", MapType.ALLOC),
        ("no_create", MapType.ALLOC),
        ("present", MapType.ALLOC),
    ],
)
def test_meanings(word, map_type):
    """Every spelling means its word's transfers; only `present` demands, only `no_create` ignores what is absent."""
    for spelling in [text for text, meant in SPELLINGS.items() if meant == word]:
        (clause,) = data_clauses("acc data", {spelling: A}, SPELLINGS)
        assert (clause.map_type, clause.word, clause.items) == (map_type, word, (A,))
        assert (clause.present, clause.if_present, clause.zeroes) == (word == "present", word == "no_create", False)


@pytest.mark.parametrize(
    ("spellings", "word"),
    [
        (SPELLINGS, "copyin_"),
        (SPELLINGS, "delete"),
        (SPELLINGS, "pno_create"),
        (ENTER_SPELLINGS, "copy"),
        (ENTER_SPELLINGS, "copyout"),
        (ENTER_SPELLINGS, "present"),
        (EXIT_SPELLINGS, "copyin"),
    ],
)
def test_unknown_clause(spellings, word):
    """A clause that the construct does not have is an error that names both, and what there is."""
    with pytest.raises(ClauseError, match=f"acc this has no clause '{word}'.*{next(iter(spellings))}"):
        data_clauses("acc this", {word: A}, spellings)


def test_empty_clauses():
    """Clauses without items are none."""
    assert data_clauses("acc data", {"copy": (), "create": []}, SPELLINGS) == []


def test_zero():
    """Items in zero make a clause of their own, which zeroes."""
    plain, zeroed = data_clauses("acc data", {"create": [A, acc.zero(B)]}, SPELLINGS)
    assert (plain.items, plain.zeroes) == ((A,), False)
    assert (zeroed.items, zeroed.zeroes, zeroed.word) == ((B,), True, "create")
    (out,) = data_clauses("acc data", {"pcopyout": acc.zero(A, B)}, SPELLINGS)
    assert (out.items, out.zeroes, out.map_type) == ((A, B), True, MapType.FROM)


@pytest.mark.parametrize(
    ("word", "spellings"),
    [(word, SPELLINGS) for word in ("copy", "copyin", "present", "no_create", "pcopy")]
    + [("copyin", ENTER_SPELLINGS), ("copyout", EXIT_SPELLINGS), ("delete", EXIT_SPELLINGS)],
)
def test_zero_elsewhere(word, spellings):
    """Zero belongs to create and to the copyout of a region; the error names the clause."""
    with pytest.raises(ClauseError, match=f"acc this {spellings[word]}: zero"):
        data_clauses("acc this", {word: [acc.zero(A)]}, spellings)
    with pytest.raises(ClauseError):
        acc.zero()


# -- list items --------------------------------------------------------------------------------------
def items(word, *arrays, **more):
    return map_items(MapConstruct.TARGET_DATA, [data_clause(word, arrays, NOBODY, **more)])


def test_items():
    """An evaluated item has the clause's word and flags."""
    (item,) = items("no_create", A)
    assert (item.clause, item.if_present, item.present, item.zeroes) == ("no_create", True, False, False)
    (item,) = items("copyout", A, zeroes=True)
    assert (item.clause, item.zeroes, item.map_type) == ("copyout", True, MapType.FROM)


def test_check_distinct():
    """The same storage in two clauses is an error that names both; other parts, and what is empty, are not."""
    check_distinct("acc data", [*items("copy", A[:2]), *items("copyin", A[2:], B)])
    check_distinct("acc data", [*items("copy", A[:0]), *items("copyin", A[:0])])
    with pytest.raises(ClauseError, match=r"acc data: .*copy and in copyin"):
        check_distinct("acc data", [*items("copy", A), *items("copyin", A)])


def test_check_distinct_of_a_function():
    """Two parameters may be one array, if both are in the same clause."""
    (x,), (y,), (z,) = items("copy", A), items("copy", A), items("copyin", A)
    x.label, y.label, z.label = "x", "y", "z"
    check_distinct("acc parallel", [x, y], of_function=True)
    for pair in ([x, z], [x, items("copy", A)[0]]):
        pair[1].label = "z" if pair[1] is z else "x"
        with pytest.raises(ClauseError, match="acc parallel: "):
            check_distinct("acc parallel", pair, of_function=True)
    with pytest.raises(ClauseError):
        check_distinct("acc data", [x, y])


def test_excuse_empty():
    """Present data without elements is not missed."""
    listed = items("present", A[:0], A)
    excuse_empty(listed)
    assert [item.present for item in listed] == [False, True]


class Place:
    """As much of a place as `presence` asks for."""

    class device:
        number = 3


def test_presence(queues):
    """Operations on one array depend on each other by device, never by the host's storage; the empty ones do not."""
    listed = items("copy", A, A[:0])
    (reads,) = presence(queues, listed, Place, changes=False)
    (writes,) = presence(queues, listed, Place, changes=True)
    assert (reads.type, writes.type) == (DependType.IN, DependType.INOUT)
    assert reads.keys == writes.keys
    assert len(reads.keys) == 1
    assert (
        presence(queues, listed, None, changes=True)
        == presence(queues, items("copy", A[:0]), Place, changes=True)
        == ()
    )


def test_presence_is_remembered_by_storage(queues):
    """Views of one piece of storage have one dependence, others their own; nothing of an array is kept by it."""
    array = np.zeros(1000)
    gone = weakref.ref(array)
    (first,) = presence(queues, items("copy", array[2:6]), Place, changes=False)
    (again,) = presence(queues, items("present", array[2:6]), Place, changes=False)
    (other,) = presence(queues, items("copy", array[2:7]), Place, changes=False)
    assert again is first
    assert other.keys != first.keys
    for low in range(100):
        for high in range(low + 1, 100):
            presence(queues, items("copy", array[low:high]), Place, changes=True)
    assert len(queues.presences) <= 4096
    del array
    assert gone() is None


def test_arrays_of_clauses():
    """A clause that takes host arrays takes no others, and one that takes device arrays no host arrays."""
    assert [array is A for array in host_arrays("acc declare create", [A, B])] == [True, False]
    with pytest.raises(ClauseError, match="acc declare create: list"):
        list(host_arrays("acc declare create", ([1, 2],)))
    with pytest.raises(ClauseError, match="object"):
        list(host_arrays("acc declare create", [np.array([object()])]))
    assert device_arrays("acc data deviceptr", ()) == ()
    with pytest.raises(ClauseError, match="acc data deviceptr: ndarray"):
        device_arrays("acc data deviceptr", A)


# -- names -------------------------------------------------------------------------------------------
def test_names():
    """An array is called as the variable that holds it: a local one first, then one of the module."""
    here, local = Names(inspect.currentframe()), np.zeros(2)
    assert here.of(local) == "local"
    assert here.of(A) == "A"
    unnamed = here.of(np.zeros(2))  # pytest keeps what it asserts in variables
    assert unnamed == ""
    assert here.of("local") == "", "a string is a name itself"
    assert NOBODY.of(A) == ""
    inner = A
    assert here.of(A) == "inner"
    assert inner is A


def test_names_of():
    """The names are those of the first function outside of the package."""
    mine = np.zeros(2)
    assert names_of().of(mine) == "mine"
    inside = types.FunctionType((lambda: names_of()).__code__, {**globals(), "__name__": "offload.inside"})  # noqa: PLW0108  # its code
    assert inside().of(mine) == "mine"


def test_names_in_clauses():
    """A clause knows what the program calls its arrays."""
    mine = np.zeros(2)
    (clause,) = data_clauses("acc data", {"copy": [mine, mine[1:]]}, SPELLINGS)
    assert list(clause.names.values()) == ["mine"]
    assert clause.names[id(mine)] == "mine"
