"""What data clauses take as list items, what they refuse, and the host as the device."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import acc
from offload.arrays.items import MAPPERS
from tests.conformance.openacc.looking import bump, increment, on_device

N = 32
CONSTRUCTS = [acc.parallel, acc.kernels, acc.serial]
REFUSED = "a block was entered though its region was refused"


class Vector:
    """An object with a mapper."""

    def __init__(self):
        self.data = np.zeros(N)
        self.weights = np.ones(N)


@pytest.fixture
def vector():
    before = dict(MAPPERS)
    omp.declare_mapper(Vector, lambda v: [omp.tofrom(v.data), omp.to(v.weights)])
    yield Vector()
    MAPPERS.clear()
    MAPPERS.update(before)


# -- list items --------------------------------------------------------------------------------------
VIEWS = [np.s_[4:12], np.s_[:, 2:5], np.s_[::2], np.s_[1:6:2, ::3], np.s_[3], np.s_[::-1], np.s_[..., -1], np.s_[2, 3]]


@pytest.mark.parametrize("at", VIEWS, ids=str)
def test_views(runtime, at):
    """A view is present by itself: its elements are copied and changed, and none that it leaves out."""
    a = np.zeros((16, 8))
    view = a[at]
    expected = a.copy()
    expected[at] = 1
    if not isinstance(view, np.ndarray):
        view = a[(*at, ...)]  # 0-d
    with acc.data(copy=[view]):
        assert acc.is_present(view)
        assert on_device(view).shape == view.shape
        bump(view)
        assert (a == 0).all()
    assert (a == expected).all()
    acc.enter_data(copyin=[view])
    bump(view)
    acc.exit_data(copyout=[view])
    assert (a == 2 * expected).all()


def test_sections_of_one_array(runtime):
    """Disjoint sections of one array are list items of their own, in one clause or in two."""
    a = np.zeros(N)
    with acc.data(copy=[a[:8], a[8:16]], copyin=[a[16:]]):
        for part in (a[:8], a[8:16], a[16:]):
            bump(part)
        assert not acc.is_present(a)
    assert (a == np.repeat([1, 0], 16)).all()


def test_empty_arrays(runtime):
    """An array without elements maps nothing and is no error."""
    a = np.zeros((0, 4))
    with acc.data(copy=[a]):
        assert not acc.is_present(a)
        assert acc.deviceptr(a) is None
    acc.enter_data(copyin=[a])
    acc.exit_data(copyout=[a])
    acc.update(self_=[a], device=[a])
    with acc.data(present=[a]):
        acc.parallel(present=["a"])(lambda a: None)(a)


def test_one_array_alone(runtime):
    """A clause takes one array as well as a list or tuple of them."""
    a, b = np.zeros(N), np.zeros(N)
    with acc.data(copy=a, copyin=(b,)):
        bump(a, b)
    assert (a == 1).all()
    acc.enter_data(copyin=a, create=b)
    acc.exit_data(copyout=a, delete=b)


def test_objects_with_mappers(runtime, vector):
    """An object in a data clause stands for the arrays that its mapper maps, as the clause has them."""

    def weigh(v):
        v.data += v.weights
        v.weights[...] = 5

    with acc.data(copy=[vector]):
        assert acc.is_present(vector.data)
        assert acc.is_present(vector.weights)
        acc.parallel(present=[vector])(weigh)(vector)
        acc.update(self_=[vector])
        assert (vector.data == 1).all()
        vector.data[...] = 3
        acc.update(device=[vector])
        acc.parallel(present=["v"])(weigh)(vector)
    assert (vector.data == 4).all(), "the weights of the host went to the device with the update"
    assert (vector.weights == 1).all()
    acc.enter_data(copyin=[vector])
    acc.parallel(weigh)(vector)
    acc.exit_data(copyout=[vector])
    assert (vector.data == 5).all()
    acc.enter_data(create=[vector])
    acc.exit_data(delete=[vector])
    assert not acc.is_present(vector.weights)
    with acc.data(no_create=[vector]):
        assert not acc.is_present(vector.data)
    with pytest.raises(omp.NotPresentError, match=r"present\(Vector"), acc.data(present=[vector]):
        pytest.fail(REFUSED)


# -- what is refused ---------------------------------------------------------------------------------
def test_duplicates(runtime):
    """The same data in two clauses, or twice in one, is a ClauseError that names both; nothing is mapped."""
    x = np.zeros(N)
    for clauses in ({"copy": [x[:]], "copyin": [x]}, {"create": [x, x]}, {"present": [x], "copyout": [x]}):
        word, other = (*clauses, *clauses)[:2]
        with pytest.raises(omp.ClauseError, match=rf"x.*in {word} and in {other}"), acc.data(**clauses):
            pytest.fail(REFUSED)
    with pytest.raises(omp.ClauseError, match=r"x.*copyin.*create"):
        acc.enter_data(copyin=[x], create=[x])
    with pytest.raises(omp.ClauseError, match=r"x.*copyout.*delete"):
        acc.exit_data(copyout=[x], delete=[x])
    with pytest.raises(omp.ClauseError, match=r"x.*copyin.*copyout"):
        acc.parallel(copyin=["x"], copyout=["x"])(lambda x: None)(x)
    assert not acc.is_present(x)


def test_wrong_clauses(runtime):
    """A clause that a construct does not have is a ClauseError that names it and those that there are."""
    x = np.zeros(N)
    for word in ("copyall", "map", "delete", "use_device", "present_or_present", "pno_create"):
        with pytest.raises(omp.ClauseError, match=rf"acc data has no clause '{word}'.*copyin"), acc.data(**{word: [x]}):
            pytest.fail(REFUSED)
    for word in ("copy", "copyout", "present", "delete", "self_"):
        with pytest.raises(omp.ClauseError, match=rf"acc enter_data has no clause '{word}'.*create"):
            acc.enter_data(**{word: [x]})
    for word in ("copy", "copyin", "present", "create"):
        with pytest.raises(omp.ClauseError, match=rf"acc exit_data has no clause '{word}'.*delete"):
            acc.exit_data(**{word: [x]})
    for construct in CONSTRUCTS:
        with pytest.raises((omp.ClauseError, TypeError), match="delete"):
            construct(delete=["x"])(lambda x: None)


def test_no_clause(runtime):
    """A data construct without a data clause is a ClauseError that says what to give; an empty list is none."""
    for clauses in ({}, {"copy": []}, {"if_": False}, {"async_": 1}, {"deviceptr": []}):
        with pytest.raises(omp.ClauseError, match="acc data has no data clause"), acc.data(**clauses):
            pytest.fail(REFUSED)
    with pytest.raises(omp.ClauseError, match=r"enter_data has no data clause.*create"):
        acc.enter_data()
    with pytest.raises(omp.ClauseError, match=r"exit_data has no data clause.*delete"):
        acc.exit_data(finalize=True)


@pytest.mark.parametrize("wrong", ["x", "x[0:4]", 1.0, None, ..., [[1.0]], {"x": 1}], ids=str)
def test_what_is_no_array(runtime, wrong):
    """Strings, numbers and other objects are refused where arrays are needed; nothing is mapped."""
    x = np.zeros(N)
    if wrong is None or isinstance(wrong, dict):
        wrong = [wrong]
    for word in ("copy", "copyin", "copyout", "create", "present", "no_create"):
        with pytest.raises(omp.DirectiveError), acc.data(**{word: [x, wrong]}):
            pytest.fail(REFUSED)
    with pytest.raises(omp.DirectiveError):
        acc.enter_data(copyin=[x, wrong])
    with pytest.raises(omp.DirectiveError):
        acc.exit_data(delete=[wrong])
    assert not acc.is_present(x)


def test_what_cannot_be_mapped(runtime):
    """Arrays of Python objects, masked arrays, device arrays and unknown device numbers are refused."""
    x, d = np.zeros(N), acc.malloc(8)
    for wrong in (np.array([None]), np.ma.array([1.0]), d):
        with pytest.raises(omp.DirectiveError), acc.data(copy=[wrong]):
            pytest.fail(REFUSED)
        with pytest.raises(omp.DirectiveError):
            acc.enter_data(copyin=[wrong])
    acc.free(d)
    for number in (omp.get_num_devices() + 1, -3, "0", 1.5):
        with pytest.raises(omp.ClauseError):
            acc.enter_data(copyin=[x], device=number)
        with pytest.raises(omp.ClauseError), acc.data(copyin=[x], device=number):
            pytest.fail(REFUSED)


def test_the_host_as_the_device(runtime):
    """With the host's number nothing is mapped, there or elsewhere."""
    a = np.zeros(N)
    for number in (omp.get_initial_device(), omp.initial_device):
        with acc.data(copy=[a], device=number):
            assert acc.is_present(a, device=number)
            assert not acc.is_present(a)
            acc.parallel(present=[a], device=number)(increment)(a)
    assert (a == 2).all()


# -- on the host -------------------------------------------------------------------------------------
@pytest.mark.usefixtures("host")
def test_data_on_the_host(vector):
    """Without a device the host's arrays are what bodies work on, whatever the clause; wrong clauses stay wrong."""
    a, b, c, d = (np.zeros(N) for _ in range(4))
    with acc.data(copy=[a], copyin=[b], copyout=[c], create=[d], deviceptr=[a]):
        bump(a, b, c, d)
    with acc.data(present=[a], no_create=[b], copy=[vector]):
        bump(a, b)
    acc.kernels(deviceptr=[a], copy=[b])(increment)(a, b)
    with pytest.raises(omp.ClauseError, match=r"deviceptr.*str"), acc.data(deviceptr=["a"]):
        pytest.fail(REFUSED)
    assert [array[0] for array in (a, b, c, d)] == [3, 3, 1, 1]
    with pytest.raises(omp.ClauseError, match="no clause 'copyall'"), acc.data(copyall=[a]):
        pytest.fail(REFUSED)
    with pytest.raises(omp.ClauseError, match="copy and in copyin"), acc.data(copy=[a], copyin=[a]):
        pytest.fail(REFUSED)
    with pytest.raises(omp.ClauseError, match="has no data clause"), acc.data():
        pytest.fail(REFUSED)
    a.flags.writeable = False
    with pytest.raises(omp.MapError, match=r"copyout\(a.*read-only"), acc.data(copyout=[a]):
        pytest.fail(REFUSED)
