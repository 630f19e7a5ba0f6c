"""The data clauses of `data`, `enter_data`, `exit_data` and of compute regions: OpenACCV-V section 3.1."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import acc
from tests.conformance.openacc.looking import bump, counters, increment, on_device

N = 32
CONSTRUCTS = [acc.parallel, acc.kernels, acc.serial]


def set_to(value):
    return lambda *arrays: [array.fill(value) for array in arrays] and None


REFUSED = "a block was entered though its region was refused"


# -- the suite's cases -------------------------------------------------------------------------------
def test_data_with_changing_subscript(runtime):
    """data_with_changing_subscript.c: the bounds of the entry are those of the end, whatever the variable is then."""
    a, n = np.zeros(N), 8
    with acc.data(copy=[a[:n]]):
        bump(a[:n])
        n = 4
        assert not acc.is_present(a[: n + 8])
    assert (a == np.repeat([1, 0], [8, N - 8])).all()
    assert not acc.is_present(a[:n])


def test_no_lower_bound(runtime):
    """data_{copy,copyin,copyout,create}_no_lower_bound.c: a section without a lower bound begins at 0."""
    n = N // 2
    a, b, c, d = np.ones(N), np.ones(N), np.ones(N), np.ones(N)

    def body(a, b, c, d, n):
        d[...] = 5
        c[...] = a + b
        a += d

    first = [omp.section(array, (None, n)) for array in (a, b, c, d)]
    with acc.data(copy=[first[0]], copyin=[first[1]], copyout=[first[2]], create=[first[3]]):
        acc.parallel(present=["a[:n]", "b[:n]", "c[0:n]", "d[:n]"])(body)(a, b, c, d, n)
        assert not acc.is_present(a)
        assert acc.is_present(a[:n])
    assert (a == np.repeat([6, 1], n)).all()
    assert (b == 1).all()
    assert (c == np.repeat([2, 1], n)).all()
    assert (d == 1).all()


def test_enter_exit_no_lower_bound(runtime):
    """enter_data_{copyin,create}_no_lower_bound.c, exit_data_{copyout,delete}_no_lower_bound.c: the same of these."""
    n = N // 2
    a, b = np.ones(N), np.ones(N)
    first, other = omp.section(a, (None, n)), omp.section(b, (None, n))

    def body(a, b):
        b[...] = a
        a[...] = 9

    acc.enter_data(copyin=[first], create=[other])
    acc.parallel(present=[first, other])(body)(a[:n], b[:n])
    acc.exit_data(copyout=[omp.section(b, (None, n))], delete=[omp.section(a, (None, n))])
    assert (a == 1).all()
    assert (b == 1).all()
    assert not acc.is_present(first)


def test_parallel_copyout(runtime):
    """parallel_copyout.c: T1, copyout brings values back; T2, of data of a region around it, it does not."""
    a, b = np.arange(N, dtype=float), np.zeros(N)

    def body(a, b):
        b[...] = a

    acc.parallel(copyin=[a], copyout=[b])(body)(a, b)
    assert (b == a).all()
    a += 1
    with acc.data(copyin=[b]):
        acc.parallel(copyin=[a], copyout=[b])(body)(a, b)
        assert (on_device(b) == a).all()
        assert (b == a - 1).all()
    assert (b == a - 1).all()


def test_parallel_implicit_data_attributes(runtime):
    """parallel_implicit_data_attributes.c: T1 to T4, arrays and reduction variables in no clause are copy."""
    a, b, total, largest = np.arange(float(N)), np.zeros(N), np.full((), 10.0), np.array(-1.0)

    def body(a, b, total, largest, factor):
        b[...] = factor * a
        total += a.sum()
        largest[...] = a.max()

    acc.parallel(reduction={"+": ["total"], "max": ["largest"]})(body)(a, b, total, largest, 2.0)
    assert (b == 2 * a).all()
    assert total == 10 + a.sum()
    assert largest == N - 1
    assert not acc.is_present(total)


# -- what each clause does ---------------------------------------------------------------------------
@pytest.mark.parametrize("prefix", ["", "p", "present_or_"])
def test_absent_data(runtime, prefix):
    """copy and copyin transfer at the entry, copy and copyout at the end, create never; then the data is gone."""
    a, b, c, d = (np.full(N, 3.0) for _ in range(4))
    clauses = {"copy": [a], "copyin": [b], "copyout": [c], "create": [d]}
    with acc.data(**{prefix + word: items for word, items in clauses.items()}):
        for array in (a, b, c, d):
            array[...] = 7
        assert (on_device(a) == 3).all()
        assert (on_device(b) == 3).all()
        acc.parallel(present=[c, d])(set_to(0))(c, d)
        bump(a, b, c, d)
    assert [array[0] for array in (a, b, c, d)] == [4, 7, 1, 7]
    assert not any(map(acc.is_present, (a, b, c, d)))


@pytest.mark.parametrize("construct", CONSTRUCTS)
@pytest.mark.parametrize("prefix", ["", "p", "present_or_"])
def test_clauses_of_compute_regions(runtime, construct, prefix):
    """The clauses of a compute region do what those of a data region do, by arrays and by names."""
    a, b, c, d, e = (np.full(N, 3.0) for _ in range(5))

    def body(a, b, c, d, e):
        d[...] = 1
        c[...] = a + b + d
        increment(a, b, e)

    clauses = {"copy": ["a"], "copyin": [b], "copyout": ["c"], "create": [d]}
    construct(**{prefix + word: items for word, items in clauses.items()})(body)(a, b, c, d, e)
    assert [array[0] for array in (a, b, c, d, e)] == [4, 3, 7, 3, 4]


def test_zero(runtime):
    """New storage of create and copyout begins with zeros where zero says so; data that is present keeps its values."""
    a, b, c = np.ones(N), np.ones(N), np.ones(N)
    with acc.data(create=[acc.zero(a)], copyout=[acc.zero(b)]):
        assert (on_device(a) == 0).all()
        bump(a, b)
        acc.enter_data(create=[acc.zero(a), acc.zero(c)])
        assert (on_device(a) == 1).all()
        assert (on_device(c) == 0).all()
    assert (b == 1).all()
    assert (a == 1).all()
    acc.exit_data(copyout=[a, c])
    assert (a == 1).all()
    assert (c == 0).all()
    acc.parallel(copyout=[acc.zero("a", "b")])(lambda a, b: increment(b))(a, b)
    assert (a == 0).all()
    assert (b == 1).all()


@pytest.mark.parametrize("dtype", ["i1", "f4", "c16", "?"])
def test_zero_of_strided_views(runtime, dtype):
    """zero fills what the item has, of any type; what is between the elements of a view stays."""
    a = np.ones((6, 6), dtype)
    with acc.data(copyout=[acc.zero(a[::2, 1:3])]):
        pass
    assert not a[::2, 1:3].any()
    a[::2, 1:3] = 1
    assert a.all()


def test_zero_elsewhere(runtime):
    """zero belongs to create and copyout where data is created; elsewhere it is a ClauseError that says so."""
    x = np.zeros(N)
    for word in ("copy", "copyin", "present", "no_create"):
        with pytest.raises(omp.ClauseError, match=rf"{word}: zero\(float64"), acc.data(**{word: [acc.zero(x)]}):
            pytest.fail(REFUSED)
    with pytest.raises(omp.ClauseError, match=r"copyin.*zero"):
        acc.enter_data(copyin=[acc.zero(x)])
    with pytest.raises(omp.ClauseError, match=r"copyout.*zero"):
        acc.exit_data(copyout=[acc.zero(x)])
    with pytest.raises(omp.ClauseError, match=r"copyin.*zero"):
        acc.parallel(copyin=[acc.zero("x")])(lambda x: None)
    with pytest.raises(omp.ClauseError, match="zero"):
        acc.zero()


def test_no_create(runtime):
    """no_create uses what is present, and of what is absent, or present in part, nothing is created or copied."""
    a, b, c = np.zeros(N), np.zeros(N), np.zeros(N)
    with acc.data(copyin=[a, c[:8]]), acc.data(no_create=[a, b, c]):
        assert counters(runtime, a) == (2, 0)
        assert counters(runtime, c[:8]) == (1, 0)
        assert not acc.is_present(b)
        acc.enter_data(copyin=[b])
    assert counters(runtime, b) == (0, 1), "the end leaves what came in between"
    acc.exit_data(delete=[b])


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_no_create_of_compute_regions(runtime, construct):
    """A body works on the device's data of a no_create item that is present."""
    a = np.zeros(N)
    with acc.data(copyin=[a]):
        construct(no_create=[a])(increment)(a)
        assert (a == 0).all()
        assert (on_device(a) == 1).all()
    assert (a == 0).all()


def test_present(runtime):
    """present finds what is there, also as a part of it."""
    a = np.zeros(N)
    acc.enter_data(copyin=[a])
    with acc.data(present=[a]), acc.data(present=[a[3:7]]):
        bump(a[3:7])
        assert counters(runtime, a) == (2, 1)
    acc.exit_data(copyout=[a])
    assert a.sum() == 4


def test_present_on_absent_data(runtime):
    """present of absent data, or data that is there in part, is a NotPresentError that names it; nothing is mapped."""
    x, other = np.zeros(N), np.zeros(N)
    for _ in range(2):
        with (
            pytest.raises(omp.NotPresentError, match=r"present\(x.*not present on device"),
            acc.data(copyin=[other], present=[x]),
        ):
            pytest.fail(REFUSED)
        for construct in CONSTRUCTS:
            with pytest.raises(omp.NotPresentError, match=r"present\(x"):
                construct(copyin=[other], present=["x"])(lambda x, other: None)(x, other)
        assert not acc.is_present(other)
    acc.enter_data(copyin=[x[: N // 2]])
    with pytest.raises(omp.NotPresentError, match=r"present\(x.*in part"), acc.data(copyin=[other], present=[x]):
        pytest.fail(REFUSED)
    assert not acc.is_present(other)
    assert counters(runtime, x[: N // 2]) == (0, 1)
    acc.exit_data(delete=[x[: N // 2]])


@pytest.mark.parametrize("word", ["copy", "copyout"])
def test_read_only(runtime, word):
    """What cannot be copied back is refused where a clause asks for it; copyin and create take it."""
    x = np.ones(N)
    x.flags.writeable = False
    with pytest.raises(omp.MapError, match=rf"{word}\(x.*read-only"), acc.data(**{word: [x]}):
        pytest.fail(REFUSED)
    with acc.data(copyin=[x]):
        assert (on_device(x) == 1).all()
    with acc.data(create=[x]):
        assert acc.is_present(x)
    acc.enter_data(copyin=[x])
    with pytest.raises(omp.MapError, match=r"copyout\(x.*read-only"):
        acc.exit_data(copyout=[x])
    with pytest.raises(omp.MapError, match=r"copyout\(x.*read-only"):
        acc.copyout(x)
    with pytest.raises(omp.MapError, match="read-only"):
        acc.parallel(**{word: ["x"]})(lambda x: None)(x)
    assert counters(runtime, x) == (0, 1)
    acc.exit_data(delete=[x])


def test_if(runtime):
    """With if_=False a region maps nothing; a compute region in it that needs the data says so."""
    a = np.zeros(N)
    with acc.data(copy=[a], if_=False):
        assert not acc.is_present(a)
        with pytest.raises(omp.NotPresentError):
            bump(a)
        a += 1
    with acc.data(present=[a], if_=0):
        assert (a == 1).all()


def test_deviceptr(runtime):
    """deviceptr takes device arrays as they are, and refuses anything else, and those of other devices."""
    x, memory = np.zeros(N), acc.malloc(8 * N)
    d = memory.view("f8")

    def body(d, x):
        d[...] = 2
        x[...] = d

    with acc.data(deviceptr=[d], copyout=[x]):
        acc.parallel(deviceptr=["d"], present=["x"])(body)(d, x)
    assert (x == 2).all()
    with acc.data(deviceptr=[d]):
        pass
    with pytest.raises(omp.ClauseError, match=r"deviceptr.*ndarray"), acc.data(deviceptr=[x]):
        pytest.fail(REFUSED)
    with pytest.raises(omp.ClauseError, match=r"deviceptr.*str"), acc.data(deviceptr=["d"]):
        pytest.fail(REFUSED)
    if omp.get_num_devices() > 1:
        with pytest.raises(omp.MapError, match=r"deviceptr.*device 1"), acc.data(deviceptr=[d], device=1):
            pytest.fail(REFUSED)
    acc.free(memory)


def test_parallel_deviceptr(runtime):
    """parallel_deviceptr.c: a region that writes half of a device array leaves the other half as it was."""
    a, memory = np.arange(N, dtype=float), acc.malloc(8 * N)
    d = memory.view("f8")
    acc.memcpy_to_device(d, a)
    acc.parallel(deviceptr=[d])(lambda d: d[: N // 2].fill(-1))(d)
    acc.memcpy_from_device(a, d)
    acc.free(memory)
    assert (a == np.where(np.arange(N) < N // 2, -1, np.arange(N))).all()
