"""Clauses are checked when they are made; constructs refuse what they do not take."""

import pickle

import numpy as np
import pytest

import offload as omp
from offload import acc, alloc, delete, from_, in_, inout, out, release, to, tofrom
from offload.arrays.items import Token, locator
from offload.constructs.clauses.dependences import check_depend, check_depend_now
from offload.constructs.clauses.maps import (
    as_tuple,
    check_clauses,
    check_device,
    check_map,
    check_name,
    check_priority,
    symbolic,
)
from offload.errors import ClauseError, DependError, EventError
from offload.tasks.depend import DependType

A = np.zeros(4)


KINDS = (in_, out, inout, omp.mutexinoutset, omp.inoutset)


def test_depend_types():
    """Each maker has its type; in, mutexinoutset and inoutset are joined by the next task of the type."""
    assert [kind(A).type for kind in KINDS] == list(DependType)
    assert [kind(A).joins for kind in KINDS] == [
        DependType.IN,
        None,
        None,
        DependType.MUTEXINOUTSET,
        DependType.INOUTSET,
    ]
    assert in_(A, ("t", 1)).keys == (locator(A), Token(("t", 1)))
    assert repr(inout(A, "x[0:2]")) == "inout(float64[4], x[0:2])"


def test_all_memory():
    """all_memory has no keys, makes other items redundant, and can only be written."""
    for kind in (out, inout):
        assert kind(omp.all_memory).keys is kind(A, omp.all_memory).keys is None
        assert kind("x", omp.all_memory).resolved({"x": A}).keys is None
        assert kind(omp.all_memory, A[2:2]).keys is None
    assert repr(out(omp.all_memory)) == "out(all_memory)"
    assert pickle.loads(pickle.dumps(omp.all_memory)) is omp.all_memory
    for kind in (in_, omp.mutexinoutset, omp.inoutset):
        for items in ((omp.all_memory,), (A, omp.all_memory), ("x", omp.all_memory)):
            with pytest.raises(DependError):
                kind(*items)


def test_depobj():
    """A depend object is what it is when it is used: updated, the next use has the other type; destroyed, none."""
    depobj = omp.depobj(inout(A))
    before = check_depend_now("taskwait", depobj)
    depobj.update("inoutset")
    (after,) = check_depend_now("taskwait", depobj)
    assert [clause.type for clause in (*before, after)] == [DependType.INOUT, DependType.INOUTSET]
    assert after.keys == before[0].keys
    everything = omp.depobj(out(omp.all_memory))
    for wrong, type_ in ((depobj, "sink"), (everything, "in")):
        with pytest.raises(DependError):
            wrong.update(type_)
    assert check_depend_now("taskwait", everything)[0].type is DependType.OUT
    depobj.destroy()
    for use in (depobj.destroy, lambda: depobj.update("in"), lambda: check_depend_now("taskwait", depobj)):
        with pytest.raises(DependError):
            use()
    for wrong in (A, "x", depobj, in_("x")):
        with pytest.raises(DependError):
            omp.depobj(wrong)


def test_depend_errors():
    """No item, or something that is no location, is an error."""
    for kind in KINDS:
        with pytest.raises(DependError):
            kind()
        with pytest.raises(ClauseError):
            kind([1, 2])
        with pytest.raises(ClauseError):
            kind(np.array([None]))
    for wrong in (A, "x", [A], to(A), 3):
        with pytest.raises(DependError):
            check_depend(wrong)
    assert check_depend(in_(A))[0].keys == check_depend([in_(A)])[0].keys
    assert check_depend(()) == ()
    with pytest.raises(ClauseError):
        check_depend_now("taskwait", in_("x"))


def test_strings_wait_for_the_call():
    """Items written as strings have no storage before the call; a string value is a location then."""
    clause = inout("x[0:n]", ("t",))
    assert clause.is_symbolic
    assert clause.keys == ()
    resolved = clause.resolved({"x": A, "n": 2})
    assert resolved.keys == (locator(A[:2]), Token(("t",)))
    assert in_("name").resolved({"name": "text"}).keys == (Token("text"),)
    assert clause.resolved({"x": A, "n": 0}).keys == (Token(("t",)),)
    assert symbolic([clause])
    assert symbolic(["x"])
    assert symbolic([to("x")])
    assert not symbolic([in_(A), to(A), A])


@pytest.mark.parametrize("kind", [to, from_, tofrom, alloc, release, delete])
def test_map_errors(kind):
    """A map clause takes arrays of numbers, views and strings; nothing else."""
    assert kind(A, "x[1:2]").items[0] is A
    for wrong in ((), (3,), ([1.0],), (None,), (np.array(["a", None]),), ("1x",), (("t", 1),)):
        with pytest.raises(ClauseError):
            kind(*wrong)


def test_values():
    """Device numbers, priorities and names are what they should be."""
    assert [check_device(value) for value in (None, 0, np.int32(3), -1)] == [None, 0, 3, -1]
    assert check_priority(np.int64(4)) == 4
    assert check_name(None) is None
    for check, wrong in ((check_device, True), (check_device, 1.0), (check_device, "0"), (check_priority, -1)):
        with pytest.raises(ClauseError):
            check(wrong)
    for check, wrong in ((check_priority, True), (check_priority, "high"), (check_name, 3), (check_map, 3)):
        with pytest.raises(ClauseError):
            check(wrong)
    assert as_tuple([1, 2]) == as_tuple((1, 2)) == (1, 2)
    assert as_tuple(1) == (1,)
    with pytest.raises(ClauseError, match=r"'b'.*a"):
        check_clauses("target", {"b": 1}, {"a": int})


def test_constructs_refuse_what_they_do_not_take():
    """A wrong clause, value or decorated object is an error before anything is generated."""
    for make in (
        lambda: omp.task(nowait=True),
        lambda: omp.task(map=[to(A)]),
        lambda: omp.target(detach=omp.Event()),
        lambda: omp.target(priority=-1),
        lambda: omp.target(device="cuda"),
        lambda: omp.target(map=[in_(A)]),
        lambda: omp.task(3),
        lambda: omp.target(3),
        lambda: omp.task(lambda: None).options(maps=1),
        lambda: omp.target(lambda: None).options(nowiat=True),
    ):
        with pytest.raises(ClauseError):
            make()
    with pytest.raises(DependError):
        omp.task(depend=[A])
    with pytest.raises(EventError):
        omp.task(detach=3)


def test_options_replace_clauses_in_a_copy():
    """``options`` returns a copy; the clauses given replace the old ones wholly, the others stay."""
    original = omp.target(nowait=True, name="one", device=0)(lambda: None)
    copy = original.options(name="two", nowait=False)
    assert original._clauses.given == {"nowait": True, "name": "one", "device": 0}
    assert copy._clauses.given == {"nowait": False, "name": "two", "device": 0}
    assert copy.__name__ == original.__name__
    event = omp.Event()
    assert omp.task(lambda: None).options(detach=event)._clauses.given["detach"] is event


@pytest.mark.parametrize(
    ("construct", "clause"),
    [
        (omp.target, "if_"),
        (omp.target, "nowait"),
        (omp.task, "if_"),
        (omp.task, "final"),
        (omp.taskgraph, "nogroup"),
        (omp.parallel_loop, "nowait"),
        (acc.parallel, "self_"),
    ],
)
def test_a_string_is_no_condition(construct, clause):
    """An expression of C's in quotes is an error where it is given, in the decorator or in options."""
    with pytest.raises(omp.ClauseError, match=rf"{clause}: 'n > 10'.*\.options\({clause}="):
        construct(**{clause: "n > 10"})
    function = construct(lambda: None) if construct is not omp.parallel_loop else None
    if function is not None:
        with pytest.raises(omp.ClauseError, match="'n > 10'"):
            function.options(**{clause: "n > 10"})
