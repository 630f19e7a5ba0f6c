"""`update`, `update_self`, `update_device`: what moves, and what is absent."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import acc
from tests.conformance.openacc.looking import bump, counters, on_device

N = 32
VIEWS = [np.s_[:], np.s_[4:12], np.s_[:, 2:5], np.s_[::3], np.s_[1:6:2, ::3], np.s_[::-1], np.s_[..., -1]]


@pytest.mark.parametrize("word", ["self_", "host"])
def test_update(runtime, word):
    """self and host copy to the host, device to the device, whatever the counters, which stay as they are."""
    a, b = np.zeros(N), np.zeros(N)
    with acc.data(copyin=[a]):
        acc.enter_data(copyin=[a, b])
        bump(a, b)
        b[...] = 5
        acc.update(**{word: [a]}, device=[b])
        assert (a == 1).all()
        assert (on_device(b) == 5).all()
        assert counters(runtime, a) == (1, 1)
        assert counters(runtime, b) == (0, 1)
    acc.exit_data(delete=[a, b])


def test_update_routines(runtime):
    """acc_update_self and acc_update_device copy one array, or a view of one."""
    a = np.zeros(N)
    acc.copyin(a)
    bump(a)
    acc.update_self(a[: N // 2])
    assert (a == np.repeat([1, 0], N // 2)).all()
    a[...] = 7
    acc.update_device(a[::2])
    a[...] = 0
    acc.update_self(a)
    assert (a == np.tile([7, 1], N // 2)).all()
    acc.delete(a)


@pytest.mark.parametrize("at", VIEWS, ids=str)
def test_update_of_views(runtime, at):
    """Of a view its elements are copied, either way, and none that lie between."""
    a = np.zeros((16, 8))
    acc.enter_data(copyin=[a])
    bump(a)
    expected = a.copy()
    expected[at] = 1
    acc.update(self_=[a[at]])
    assert (a == expected).all()
    a[...] = 9
    acc.update(device=[a[at]])
    expected[...] = 1
    expected[at] = 9
    assert (on_device(a) == expected).all()
    acc.exit_data(delete=[a])


def test_both_ways(runtime):
    """Disjoint parts of an array may move either way in one update; what shares storage is refused, and names both."""
    x = np.zeros(N)
    acc.enter_data(copyin=[x])
    bump(x)
    x[...] = 5
    acc.update(self_=[x[::2]], device=[x[1::2]])
    assert (x == np.tile([1, 5], N // 2)).all()
    assert (on_device(x) == np.tile([1, 5], N // 2)).all()
    for clauses in ({"self_": [x], "device": [x]}, {"host": [x[:4]], "device": [x[3:]]}):
        with pytest.raises(omp.ClauseError, match=r"device.*self_"):
            acc.update(**clauses)
    acc.exit_data(delete=[x])


def test_update_of_absent_data(runtime):
    """Absent data, and data present in part, is a NotPresentError that names clause and variable; nothing is copied."""
    x, other = np.zeros(N), np.zeros(N)
    acc.enter_data(copyin=[other, x[: N // 2]])
    bump(other)
    for state in ("in part", "not present"):
        with pytest.raises(omp.NotPresentError, match=rf"self\(x.*{state}"):
            acc.update(self_=[other, x])
        with pytest.raises(omp.NotPresentError, match=rf"self\(x.*{state}"):
            acc.update(host=[x])
        with pytest.raises(omp.NotPresentError, match=rf"device\(x.*{state}"):
            acc.update(self_=[other], device=[x])
        with pytest.raises(omp.NotPresentError, match=rf"self.*{state}"):
            acc.update_self(x)
        with pytest.raises(omp.NotPresentError, match=rf"device.*{state}"):
            acc.update_device(x)
        assert (other == 0).all()
        acc.exit_data(delete=[x[: N // 2]])
    acc.exit_data(delete=[other])


def test_if_present(runtime):
    """With if_present what is absent, or present in part, is left out; the rest moves."""
    a, b, c = np.zeros(N), np.zeros(N), np.zeros(N)
    acc.enter_data(copyin=[b, c[: N // 2]])
    bump(b, c[: N // 2])
    acc.update(self_=[a, b, c], if_present=True)
    acc.update(device=[a, c], if_present=True)
    acc.update(self_=[a], if_present=True)
    assert (a == 0).all()
    assert (b == 1).all()
    assert (c == 0).all()
    assert not acc.is_present(a)
    acc.exit_data(delete=[b, c[: N // 2]])


def test_update_if(runtime):
    """With if_=False nothing moves, and absent data is no error."""
    a = np.zeros(N)
    acc.update(self_=[a], device=[], if_=False)
    acc.enter_data(copyin=[a])
    bump(a)
    acc.update(self_=[a], if_=False)
    assert (a == 0).all()
    a[...] = 5
    acc.update(device=[a], if_=0)
    acc.update(self_=[a], if_=1)
    assert (a == 1).all()
    acc.exit_data(delete=[a])


def test_update_of_each_device(runtime):
    """device_num names the device, as device is the clause."""
    a = np.zeros(N)
    for number in range(omp.get_num_devices()):
        acc.enter_data(copyin=[a], device=number)
        acc.parallel(present=[a], device=number)(lambda a, n: a.fill(n + 1))(a, number)
    for number in range(omp.get_num_devices()):
        acc.update(self_=[a], device_num=number)
        assert (a == number + 1).all()
        a[...] = 0
        acc.update_self(a, device=number)
        assert (a == number + 1).all()
        acc.exit_data(delete=[a], device=number)
    with pytest.raises(omp.ClauseError):
        acc.update(self_=[a], device_num=omp.get_num_devices() + 1)


def test_update_of_what_cannot_be_written(runtime):
    """A read-only array can be updated on the device; to copy to it is a MapError that names clause and variable."""
    x = np.zeros(N)
    acc.enter_data(copyin=[x])
    bump(x)
    x.flags.writeable = False
    with pytest.raises(omp.MapError, match=r"self\(x.*read-only"):
        acc.update(self_=[x])
    with pytest.raises(omp.MapError, match=r"self.*read-only"):
        acc.update_self(x)
    acc.update(device=[x])
    assert (on_device(x) == 0).all()
    acc.exit_data(delete=[x])


def test_what_update_refuses(runtime):
    """No list item, strings, numbers, device arrays and unknown clauses are errors."""
    x, d = np.zeros(N), acc.malloc(8)
    for clauses in ({}, {"self_": []}, {"if_present": True}):
        with pytest.raises(omp.ClauseError, match="update names no list item"):
            acc.update(**clauses)
    with pytest.raises(omp.ClauseError, match=r"update self.*is a string"):
        acc.update(self_=["x"])
    for wrong in (1.0, object(), [None], d):
        with pytest.raises(omp.DirectiveError):
            acc.update(device=[wrong])
        with pytest.raises(omp.DirectiveError):
            acc.update_self(wrong)
    with pytest.raises(omp.ClauseError, match=r"update_device.*str"):
        acc.update_device("x")
    with pytest.raises(TypeError):
        acc.update(from_=[x])
    acc.free(d)


def test_the_same_twice(runtime):
    """An array twice in one direction is copied, and counts for nothing more."""
    a = np.zeros(N)
    acc.enter_data(copyin=[a])
    bump(a)
    acc.update(self_=[a, a[2:]], host=[a])
    assert (a == 1).all()
    acc.exit_data(delete=[a])


def test_update_in_a_region_of_openmp(runtime):
    """update moves what OpenMP has mapped, and target_update what acc has."""
    a = np.zeros(N)
    with omp.target_data(map=[omp.to(a)]):
        bump(a)
        acc.update(self_=[a])
        assert (a == 1).all()
    acc.copyin(a)
    bump(a)
    omp.target_update(from_=[a], present=True)
    assert (a == 2).all()
    acc.delete(a)


@pytest.mark.usefixtures("host")
def test_update_on_the_host():
    """Without a device nothing moves and nothing is absent; what is wrong stays wrong."""
    x = np.ones(N)
    acc.update(self_=[x])
    acc.update(device=[x])
    acc.update_self(x)
    acc.update_device(x)
    assert (x == 1).all()
    with pytest.raises(omp.ClauseError, match="names no list item"):
        acc.update()
    with pytest.raises(omp.ClauseError, match=r"device.*self_"):
        acc.update(self_=[x], device=[x])
