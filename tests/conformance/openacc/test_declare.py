"""`declare`, of the program's data and of a function's: OpenACCV-V section 3.1, declare."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import offload as omp
from offload import acc
from offload.data.declarations import declarations
from tests.conformance.openacc.looking import bump, counters, increment, on_device

N = 32
WEIGHTS = np.ones(N)


@pytest.fixture(autouse=True)
def forget_declarations():
    """Declarations last as long as their arrays; see that each test's are gone."""
    yield
    gc.collect()
    assert not list(declarations.arrays())


# -- the program's data ------------------------------------------------------------------------------
@pytest.mark.parametrize("word", ["create", "device_resident"])
def test_declare_create(runtime, word):
    """declare_create.c: the data is there for the whole run, and moves by update alone."""
    a, b = np.zeros(N), np.ones(N)
    acc.declare(**{word: [a]})
    assert acc.is_present(a)
    a[...] = 5
    acc.update(device=[a])
    acc.parallel(present=["a"], copyin=["b"])(lambda a, b: a.__iadd__(b) is None)(a, b)
    assert (a == 5).all()
    acc.update(self_=[a])
    assert (a == 6).all()


def test_declare_copyin(runtime):
    """declare_copyin.c: data of copyin has the host's values when a device is first used, and is not copied again."""
    a = np.full(N, 3.0)
    acc.declare(copyin=[a])
    assert (on_device(a) == 3).all()
    a[...] = 7
    with acc.data(copy=[a]):
        bump(a)
        assert (on_device(a) == 4).all()
    assert (a == 7).all()
    acc.parallel(increment)(a)
    assert (on_device(a) == 5).all()
    assert (a == 7).all()


@pytest.mark.parametrize("finalize", [False, True])
def test_nothing_ends_it(runtime, finalize):
    """Neither exits nor finalize nor OpenMP's delete take declared data away or copy it; unmap_data refuses it."""
    x = np.zeros(N)
    acc.declare(create=[x])
    bump(x)
    acc.enter_data(copyin=[x])
    for _ in range(3):
        acc.exit_data(copyout=[x], finalize=finalize)
        acc.exit_data(delete=[x[3:5]], finalize=finalize)
    omp.target_exit_data(map=[omp.delete(x)])
    assert counters(runtime, x) == (0, float("inf"))
    with pytest.raises(omp.MapError, match=r"unmap_data.*float64"):
        acc.unmap_data(x)
    assert acc.is_present(x)
    assert (x == 0).all()


def test_link(runtime):
    """With link there is storage only while something maps the data, with the values of then."""
    a = np.zeros(N)
    acc.declare(link=[a])
    assert not acc.is_present(a)
    a[...] = 12
    with acc.data(copyin=[a]):
        assert (on_device(a) == 12).all()
    assert not acc.is_present(a)


def test_each_device(runtime):
    """Each device has the data, as of its own first use."""
    a = np.zeros(N)
    acc.declare(copyin=[a])
    for number in range(omp.get_num_devices()):
        a[...] = number
        assert (on_device(a, device=number) == number).all()


# -- a function's data -------------------------------------------------------------------------------
def test_declare_function_scope(runtime):
    """declare_function_scope_*.c: the data is there for a call, with copies as each clause has them."""

    def body(a, b, c, d):
        d[...] = 1
        b += d
        a += b
        c[...] = a

    @acc.declare(copy=["a"], copyin=["b"], copyout=["c"], create=["d"])
    def call(a, b, c, d):
        assert all(map(acc.is_present, (a, b, c, d)))
        acc.parallel(present=["a", "b", "c", "d"])(body)(a, b, c, d)
        assert [array[0] for array in (a, b, c, d)] == [0, 0, 0, 0]
        return "done"

    a, b, c, d = (np.zeros(N) for _ in range(4))
    assert call(a, b, c=c, d=d) == "done"
    assert [array[0] for array in (a, b, c, d)] == [1, 0, 1, 0]
    assert not any(map(acc.is_present, (a, b, c, d)))


def test_declare_function_scope_deviceptr(runtime):
    """declare_function_scope_*.c: deviceptr takes device arrays, present what is there."""
    a, memory = np.zeros(N), acc.malloc(8 * N)

    def body(d, a):
        d[...] = 3
        a += d

    @acc.declare(present=["a"], deviceptr=["d"])
    def call(a, d):
        acc.parallel(deviceptr=["d"])(body)(d, a)

    with acc.data(copy=[a]):
        call(a, memory.view("f8"))
    assert (a == 3).all()
    with pytest.raises(omp.NotPresentError, match=r"present.*not present"):
        call(a, memory.view("f8"))
    with pytest.raises(omp.ClauseError, match="deviceptr"):
        call(a, a)
    acc.free(memory)


def test_sections_and_visible_names(runtime):
    """Strings may be sections in terms of parameters, and names that the function sees."""

    @acc.declare(copy=["a[:n]"], copyin=["WEIGHTS"])
    def call(a, n=4):
        assert acc.is_present(a[:n])
        assert acc.is_present(WEIGHTS)
        assert not acc.is_present(a)
        bump(a[:n])

    a = np.zeros(N)
    call(a)
    call(a, n=2)
    assert a.sum() == 6
    assert not acc.is_present(WEIGHTS)


def test_a_call_that_raises(runtime):
    """A call that raises ends its region, as does one that is nested."""
    a = np.zeros(N)

    @acc.declare(copy=["a"])
    def call(a, depth):
        bump(a)
        if not depth:
            raise KeyError
        call(a, depth - 1)

    with pytest.raises(KeyError):
        call(a, 2)
    assert (a == 3).all()
    assert counters(runtime, a) == (0, 0)


def test_what_it_wraps(runtime):
    """The decorated function keeps its name and docstring."""

    @acc.declare(copyin=["a"])
    def call(a):
        """Do it."""

    assert (call.__name__, call.__doc__) == ("call", "Do it.")


# -- what is refused ---------------------------------------------------------------------------------
def test_what_it_refuses(runtime):
    """No item, arrays beside strings, and clauses that the kind of data does not have are errors that name them."""
    x = np.zeros(N)
    for clauses in ({}, {"create": []}):
        with pytest.raises(omp.ClauseError, match="declare names no list item"):
            acc.declare(**clauses)
    with pytest.raises(omp.ClauseError, match="declare: strings"):
        acc.declare(copyin=[x, "x"])
    for word in ("copy", "copyout", "present", "no_create", "deviceptr", "copyall"):
        with pytest.raises(omp.ClauseError, match=rf"declare has no clause '{word}'.*create"):
            acc.declare(**{word: [x]})
    for word in ("link", "device_resident", "delete"):
        with pytest.raises(omp.ClauseError, match=rf"declare has no clause '{word}'.*create"):
            acc.declare(**{word: ["x"]})(lambda x: None)
    with pytest.raises(omp.ClauseError, match="declare copyin: 'nobody'"):
        acc.declare(copyin=["nobody"])(lambda x: None)
    for wrong in (1.0, object(), acc.data):
        with pytest.raises(omp.ClauseError, match="create"):
            acc.declare(create=[wrong])
    assert not acc.is_present(x)


def test_a_construct_refused_declares_nothing(runtime):
    """A wrong item or clause after good ones leaves nothing declared."""
    x = np.zeros(N)
    with pytest.raises(omp.ClauseError):
        acc.declare(create=[x, 1.0])
    with pytest.raises(omp.ClauseError):
        acc.declare(create=[x], copyout=[x])
    assert not acc.is_present(x)


@pytest.mark.usefixtures("host")
def test_declare_on_the_host():
    """Without a device declarations change nothing."""
    a, b = np.zeros(N), np.zeros(N)
    acc.declare(create=[a])
    acc.declare(copy=["b"])(lambda b: bump(a, b))(b)
    assert (a == 1).all()
    assert (b == 1).all()
