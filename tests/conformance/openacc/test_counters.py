"""The structured and the dynamic counter: OpenACCV-V section 3.1, and what OpenMP's constructs do to them."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import acc
from tests.conformance.openacc.looking import bump, counters, increment, on_device

N = 32


def add(c, a, b):
    c += a + b


def change(a, b):
    a += 1
    b[...] = 2


EXITS = {
    "delete": lambda a: acc.exit_data(delete=[a]),
    "delete, finalize": lambda a: acc.exit_data(delete=[a], finalize=True),
    "copyout": lambda a: acc.exit_data(copyout=[a]),
    "copyout, finalize": lambda a: acc.exit_data(copyout=[a], finalize=True),
    "acc_delete": acc.delete,
    "acc_delete_finalize": acc.delete_finalize,
    "acc_copyout": acc.copyout,
    "acc_copyout_finalize": acc.copyout_finalize,
    "OpenMP delete": lambda a: omp.target_exit_data(map=[omp.delete(a)]),
    "OpenMP release": lambda a: omp.target_exit_data(map=[omp.release(a)]),
    "OpenMP from": lambda a: omp.target_exit_data(map=[omp.from_(a)]),
}
"""What takes one dynamic reference, or all."""

ENTRIES = {
    "copyin": lambda a: acc.enter_data(copyin=[a]),
    "create": lambda a: acc.enter_data(create=[a]),
    "acc_copyin": acc.copyin,
    "acc_create": acc.create,
    "OpenMP to": lambda a: omp.target_enter_data(map=[omp.to(a)]),
}
"""What takes a dynamic reference."""


# -- the suite's cases -------------------------------------------------------------------------------
def test_data_copyout_reference_counts(runtime):
    """data_copyout_reference_counts.c: an inner copyout copies nothing while an outer region holds the data."""
    a, b, c = np.full(N, 1.0), np.full(N, 2.0), np.zeros(N)
    with acc.data(copyin=[c]):
        with acc.data(copyin=[a, b], copyout=[c]):
            acc.parallel(present=[a, b, c])(add)(c, a, b)
            assert counters(runtime, c) == (2, 0)
        assert (c == 0).all()
        assert (on_device(c) == 3).all()
    assert (c == 0).all()
    assert not acc.is_present(c)


def test_exit_data_copyout_reference_counts_t1(runtime):
    """exit_data_copyout_reference_counts.c: T1, exit data copyout inside a region copies nothing, nor does its end."""
    a, b, c = np.full(N, 1.0), np.full(N, 2.0), np.zeros(N)
    acc.enter_data(copyin=[c])
    with acc.data(copyin=[a, b, c]):
        acc.parallel(present=[a, b, c])(add)(c, a, b)
        acc.exit_data(copyout=[c])
        assert (c == 0).all()
        assert counters(runtime, c) == (1, 0)
    assert (c == 0).all()
    assert not acc.is_present(c)


def test_exit_data_copyout_reference_counts_t2(runtime):
    """exit_data_copyout_reference_counts.c: T2, exit data copyout after the region copies."""
    a, b, c = np.full(N, 1.0), np.full(N, 2.0), np.zeros(N)
    acc.enter_data(copyin=[c])
    with acc.data(copyin=[a, b, c]):
        acc.parallel(present=[a, b, c])(add)(c, a, b)
    assert (c == 0).all()
    acc.exit_data(copyout=[c])
    assert (c == 3).all()
    assert not acc.is_present(c)


def test_exit_data_copyout_reference_counts_t3(runtime):
    """exit_data_copyout_reference_counts.c: T3, two dynamic references need two exits."""
    c = np.zeros(N)
    acc.enter_data(copyin=[c])
    acc.enter_data(copyin=[c])
    bump(c)
    acc.exit_data(copyout=[c])
    assert (c == 0).all()
    acc.exit_data(copyout=[c])
    assert (c == 1).all()


@pytest.mark.parametrize("finalize", [False, True])
def test_exit_data_finalize(runtime, finalize):
    """exit_data_finalize.c: after two enter data one exit does nothing to the host; with finalize it ends both."""
    a, b = np.zeros(N), np.zeros(N)
    acc.enter_data(copyin=[a], create=[b])
    acc.enter_data(copyin=[a], create=[b])
    acc.parallel(present=[a, b])(change)(a, b)
    acc.exit_data(copyout=[a, b], finalize=finalize)
    assert acc.is_present(a) is acc.is_present(b) is not finalize
    assert (a == finalize).all()
    assert (b == 2 * finalize).all()
    acc.exit_data(copyout=[a, b])
    assert (a == 1).all()
    assert (b == 2).all()


def test_enter_exit_data_if(runtime):
    """enter_exit_data_if.c: with if(0) neither counts nor moves anything, and a region inside creates nothing anew."""
    a = np.ones(N)
    acc.enter_data(copyin=[a], if_=False)
    assert not acc.is_present(a)
    acc.enter_data(copyin=[a], if_=True)
    acc.enter_data(copyin=[a], if_=False)
    a[...] = -1
    with acc.data(create=[a]):
        bump(a)
        assert (on_device(a) == 2).all()
        assert counters(runtime, a) == (1, 1)
    assert (a == -1).all()
    acc.exit_data(copyout=[a], if_=False)
    acc.exit_data(delete=[a], finalize=True, if_=False)
    assert counters(runtime, a) == (0, 1)
    assert (a == -1).all()
    acc.exit_data(copyout=[a], if_=np.True_)
    assert (a == 2).all()
    assert not acc.is_present(a)


# -- two counters ------------------------------------------------------------------------------------
@pytest.mark.parametrize("leave", EXITS)
def test_nothing_dynamic_ends_a_region(runtime, leave):
    """What takes dynamic references cannot take the data from a region, which copies back at its end all the same."""
    a = np.zeros(N)
    with acc.data(copy=[a]):
        bump(a)
        EXITS[leave](a)
        assert counters(runtime, a) == (1, 0)
        assert (a == 0).all()
        bump(a)
    assert (a == 2).all()
    assert not acc.is_present(a)


@pytest.mark.parametrize("leave", EXITS)
@pytest.mark.parametrize("enter", ENTRIES)
def test_an_exit_in_a_region_takes_dynamic_references(runtime, enter, leave):
    """Inside a region an exit takes the dynamic reference, or all of them, transfers nothing, and stops at 0."""
    a = np.zeros(N)
    takes_all = "finalize" in leave or leave == "OpenMP delete"
    with acc.data(copyin=[a]):
        ENTRIES[enter](a)
        ENTRIES[enter](a)
        assert counters(runtime, a) == (1, 2)
        bump(a)
        for left in (0, 0, 0) if takes_all else (1, 0, 0):
            EXITS[leave](a)
            assert counters(runtime, a) == (1, left)
    assert (a == 0).all()
    assert not acc.is_present(a)


@pytest.mark.parametrize("leave", EXITS)
def test_exit_without_enter(runtime, leave):
    """The exit of what was never mapped does nothing and is no error."""
    a = np.ones(N)
    EXITS[leave](a)
    acc.enter_data(copyin=[a[4:8]])
    EXITS[leave](a[:4])
    assert counters(runtime, a[4:8]) == (0, 1)
    acc.exit_data(delete=[a[4:8]])
    EXITS[leave](a[4:8])
    assert (a == 1).all()


@pytest.mark.parametrize("enter", ENTRIES)
def test_dynamic_data_outlives_a_region(runtime, enter):
    """Data entered inside a region stays after its end, which copies nothing; the exit does."""
    a = np.zeros(N)
    with acc.data(copy=[a]):
        ENTRIES[enter](a)
        bump(a)
    assert (a == 0).all()
    assert counters(runtime, a) == (0, 1)
    acc.exit_data(copyout=[a])
    assert (a == 1).all()


def test_the_last_one_copies(runtime):
    """A region that takes the last reference copies for itself, though an exit inside was the last dynamic one."""
    a = np.zeros(N)
    acc.enter_data(copyin=[a])
    with acc.data(copyout=[a]):
        bump(a)
        acc.exit_data(delete=[a])
        assert (a == 0).all()
    assert (a == 1).all()


@pytest.mark.parametrize("last", ["delete", "copyout"])
def test_the_last_exit_decides(runtime, last):
    """Of several exits the last one decides whether anything is copied back."""
    a = np.zeros(N)
    acc.enter_data(copyin=[a])
    acc.enter_data(copyin=[a])
    bump(a)
    acc.exit_data(**{"delete" if last == "copyout" else "copyout": [a]})
    assert (a == 0).all()
    acc.exit_data(**{last: [a]})
    assert (a == (last == "copyout")).all()


@pytest.mark.parametrize("construct", [acc.parallel, acc.kernels, acc.serial])
@pytest.mark.parametrize("word", ["copy", "copyin", "copyout", "create", "present", "no_create"])
def test_compute_regions_count_for_themselves(runtime, construct, word):
    """A compute region counts in the structured counter for its time, and leaves the dynamic one as it is."""
    a = np.zeros(N)
    acc.copyin(a)
    construct(**{word: [a]})(increment)(a)
    construct(increment)(a)
    assert counters(runtime, a) == (0, 1)
    assert (a == 0).all()
    acc.copyout(a)
    assert (a == 2).all()


@pytest.mark.parametrize("word", ["copy", "copyin", "copyout", "create", "present", "no_create"])
@pytest.mark.parametrize("prefix", ["", "p", "present_or_"])
def test_present_data_is_counted_and_not_copied(runtime, word, prefix):
    """Each clause of a region on present data counts, and transfers nothing at entry or end."""
    if prefix and word in ("present", "no_create"):
        prefix = ""
    a = np.zeros(N)
    acc.enter_data(copyin=[a])
    a[...] = 7
    with acc.data(**{prefix + word: [a]}):
        assert counters(runtime, a) == (1, 1)
        assert (on_device(a) == 0).all()
        bump(a)
    assert counters(runtime, a) == (0, 1)
    assert (a == 7).all()
    acc.exit_data(copyout=[a])
    assert (a == 1).all()


@pytest.mark.parametrize("word", ["copyin", "pcopyin", "present_or_copyin", "create", "pcreate", "present_or_create"])
def test_entering_present_data(runtime, word):
    """Enter data on present data counts, and transfers nothing; zero does not either."""
    a = np.ones(N)
    with acc.data(copyin=[a]):
        a[...] = 7
        acc.enter_data(**{word: [a]})
        acc.enter_data(create=[acc.zero(a)])
        assert counters(runtime, a) == (1, 2)
        assert (on_device(a) == 1).all()
    acc.exit_data(pcopyout=[a])
    assert (a == 7).all()
    acc.exit_data(present_or_copyout=[a])
    assert (a == 1).all()


def test_parts_of_what_is_present(runtime):
    """A part of present data counts for all of it, and is copied back alone; the rest keeps the host's values."""
    a = np.zeros(N)
    acc.enter_data(copyin=[a])
    with acc.data(copy=[a[4:8]]):
        bump(a)
        assert counters(runtime, a) == (1, 1)
        acc.exit_data(delete=[a[8:]])
        assert counters(runtime, a) == (1, 0)
    assert a.sum() == 4
    assert (a[4:8] == 1).all()
    assert not acc.is_present(a[4:8])


def test_more_than_what_is_present(runtime):
    """An item that extends what is present is an error that names both, and the construct has changed nothing."""
    x, other = np.zeros(N), np.zeros(N)
    acc.enter_data(copyin=[x[:8]])
    for attempt in (
        lambda: acc.enter_data(copyin=[other, x]),
        lambda: acc.enter_data(create=[other, x[4:]]),
        lambda: acc.data(copy=[other, x]).__enter__(),
        lambda: acc.copyin(x),
        lambda: acc.create(x[7:9]),
        lambda: acc.parallel(copyin=[x])(increment)(x),
    ):
        with pytest.raises(omp.MapError, match=r"(copyin|create|copy)\(.*float64"):
            attempt()
        assert counters(runtime, x[:8]) == (0, 1)
        assert not acc.is_present(other)
    acc.exit_data(delete=[x])  # present in part: ignored as absent data is
    assert counters(runtime, x[:8]) == (0, 1)
    acc.exit_data(delete=[x[:8]])


def test_a_region_that_raises(runtime):
    """A region left by an exception gives its reference back and copies; the exception goes on."""
    a, b = np.zeros(N), np.zeros(N)
    acc.enter_data(copyin=[b])
    with pytest.raises(KeyError), acc.data(copy=[a], present=[b]):
        bump(a, b)
        raise KeyError
    assert (a == 1).all()
    assert counters(runtime, a) == (0, 0)
    assert counters(runtime, b) == (0, 1)
    acc.exit_data(copyout=[b])
    assert (b == 1).all()


def test_each_device_has_its_counters(runtime):
    """What is entered on one device is absent on the others."""
    a = np.zeros((omp.get_num_devices(), N))
    for number, row in enumerate(a):
        acc.enter_data(copyin=[row], device=number)
        assert [acc.is_present(row, device=n) for n in range(len(a))] == [n == number for n in range(len(a))]
        acc.parallel(present=[row], device=number)(increment)(row)
    for number in range(len(a)):
        acc.exit_data(copyout=[a[number]], device=number)
    assert (a == 1).all()


# -- with OpenMP -------------------------------------------------------------------------------------
def test_openmp_sees_data_of_a_region(runtime):
    """A target region over data of acc.data uses that, and copies nothing, whatever its map type."""
    a = np.zeros(N)
    with acc.data(copy=[a]):
        a[...] = 7
        for clauses in ({}, {"map": [omp.tofrom(a)]}, {"map": [omp.from_(a)]}, {"map": [omp.alloc(a, present=True)]}):
            omp.target(**clauses)(increment)(a)
            assert counters(runtime, a) == (1, 0)
        assert (a == 7).all()
        omp.target_update(from_=[a])
        assert (a == 4).all()
        omp.target(map=[omp.tofrom(a, always=True)])(increment)(a)
        assert (a == 5).all()
        assert omp.target_is_present(a)
        bump(a)
    assert (a == 6).all()


def test_openmp_counts_in_the_dynamic_counter(runtime):
    """Constructs of OpenMP and enter data undo one another; the end of either's region leaves the other's data."""
    a = np.zeros(N)
    omp.target_enter_data(map=[omp.to(a)])
    assert counters(runtime, a) == (0, 1)
    with omp.target_data(map=[omp.tofrom(a)]):
        assert counters(runtime, a) == (0, 2)
        with acc.data(copy=[a]):
            assert counters(runtime, a) == (1, 2)
            bump(a)
    assert (a == 0).all()
    acc.exit_data(copyout=[a])
    assert (a == 1).all()
    acc.enter_data(copyin=[a])
    bump(a)
    omp.target_exit_data(map=[omp.from_(a)])
    assert (a == 2).all()
    assert not acc.is_present(a)


def test_openmp_delete_in_a_region(runtime):
    """OpenMP's delete takes all dynamic references and leaves the region's data, for target regions too."""
    a = np.zeros(N)
    with acc.data(copyout=[acc.zero(a)]):
        with omp.target_data(map=[omp.to(a)]):
            acc.copyin(a)
            omp.target_exit_data(map=[omp.delete(a)])
            assert counters(runtime, a) == (1, 0)
        omp.target(map=[omp.alloc(a, present=True)])(increment)(a)
    assert (a == 1).all()
    assert not omp.target_is_present(a)


def test_acc_in_a_target_data_region(runtime):
    """Finalize in a region of OpenMP takes its reference too, since that is dynamic; the region's end ignores it."""
    a = np.ones(N)
    with omp.target_data(map=[omp.tofrom(a)]):
        bump(a)
        acc.exit_data(delete=[a], finalize=True)
        assert not acc.is_present(a)
    assert (a == 1).all()


# -- on the host -------------------------------------------------------------------------------------
@pytest.mark.usefixtures("host")
def test_counters_on_the_host():
    """Without a device all constructs and routines do nothing, and bodies change the host's arrays at once."""
    a = np.zeros(N)
    for enter in ENTRIES.values():
        enter(a)
    for leave in EXITS.values():
        with acc.data(copyin=[a]):
            leave(a)
        bump(a)
    assert (a == len(EXITS)).all()
    assert acc.is_present(a)
