"""Compute constructs: `parallel`, `kernels` and `serial`, their clauses, what they map, and how they fail."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import acc
from offload.errors import NotPresentError, UnsupportedError

CONSTRUCTS = [acc.parallel, acc.kernels, acc.serial]


@pytest.fixture(params=CONSTRUCTS, ids=lambda construct: construct.__name__)
def construct(request):
    return request.param


@pytest.fixture(params=[None, 1], ids=["synchronous", "async"])
def queue(request):
    return request.param


def increment(*arrays):
    for array in arrays:
        array[...] = array + 1


def add_one_to_a(a):
    a += 1


def add_one_to_x(x):
    x += 1


def add_one_to_y(y):
    y += 1


def value_of(found):
    """Return what a region's call gives, which may be a task."""
    return found.result() if isinstance(found, omp.Task) else found


# -- where and on what -------------------------------------------------------------------------------
def test_parallel_implicit_data_attributes(runtime, construct, queue):
    """parallel_implicit_data_attributes.c: arrays in no clause are copied, scalars have the value at the call."""
    a, n = np.zeros(8), 3

    @construct(async_=queue)
    def region(a, n):
        assert not omp.is_initial_device()
        assert not isinstance(a, np.ndarray)
        a += n
        n += 1
        return n

    assert value_of(region(a, n)) == 4
    assert n == 3
    assert (a == 3).all()
    assert not acc.is_present(a)


def test_data_clauses(runtime, construct, queue):
    """Each data clause maps for the time of the region, and moves what its name says."""
    x = {word: np.ones(4) for word in ("copy", "copyin", "copyout", "create")}

    @construct(**{word: [array] for word, array in x.items()}, async_=queue)
    def region(copy, copyin, copyout, create):
        copyout[...] = 5
        create[...] = 6
        copy += copyin
        copyin += 10

    assert value_of(region(*x.values())) is None
    assert {word: array[0] for word, array in x.items()} == {"copy": 2, "copyin": 1, "copyout": 5, "create": 1}
    assert not any(map(acc.is_present, x.values()))


@pytest.mark.parametrize("word", ["copy", "copyin", "copyout", "create", "pcopy", "present_or_copyin", "pcreate"])
def test_parallel_copyout(runtime, construct, word):
    """parallel_copyout.c: T2, for data that is present a clause moves nothing, in neither direction."""
    a = np.zeros(4)
    with acc.data(copyin=[a]):
        a[...] = 50
        assert construct(**{word: ["a"]})(lambda a: (a.__iadd__(1), float(a.sum()))[1])(a) == 4
        assert (a == 50).all()
    assert (a == 50).all()


def test_present(runtime, construct, queue):
    """`present` uses what is there; data that is not is a NotPresentError that names clause and variable."""
    x, y = np.zeros(4), np.zeros(4)
    with acc.data(copy=[x]):
        value_of(construct(present=["x"], async_=queue)(add_one_to_x)(x))
        value_of(construct(present=[x], async_=queue)(increment)(x))
    assert (x == 2).all()
    for present, name in ((["y"], "y"), ([y], "y")):
        with pytest.raises(NotPresentError, match=f"present.*{name}"):
            value_of(construct(present=present, async_=queue)(add_one_to_y)(y))
    assert (y == 0).all()


def test_no_create(runtime, construct):
    """`no_create` uses what is present; else nothing is made, and the body receives the host's array."""
    a = np.zeros(4)
    region = construct(no_create=["a"])(lambda a: isinstance(a, np.ndarray) or increment(a))
    with acc.data(copy=[a]):
        assert region(a) is None
    assert (a == 1).all()
    assert region(a) is True
    assert (a == 1).all()


def test_parallel_deviceptr(runtime, construct, queue):
    """parallel_deviceptr.c: a region that writes half of the memory behind deviceptr leaves the other half."""
    a = np.arange(8.0)
    block = acc.malloc(a.nbytes)
    d = block.view(a.dtype)
    acc.memcpy_to_device(d, a)
    value_of(construct(deviceptr=["d"], async_=queue)(lambda d: increment(d[:4]))(d))
    value_of(construct(deviceptr=[d], async_=queue)(increment)(d))
    value_of(construct(async_=queue)(increment)(d))
    acc.memcpy_from_device(a, d)
    acc.free(block)
    assert a.tolist() == [3, 4, 5, 6, 6, 7, 8, 9]


def test_host_arrays_are_no_deviceptr(runtime, construct):
    """A host array in deviceptr is a ClauseError that names clause and variable."""
    with pytest.raises(omp.ClauseError, match=r"deviceptr.*x"):
        construct(deviceptr=["x"])(lambda x: None)(np.zeros(4))


def test_private_and_firstprivate(runtime, construct, queue):
    """Private arrays are the region's own: uninitialised, or with the contents at the call; never copied back."""
    a, b = np.ones(4), np.full(4, 2.0)

    @construct(firstprivate=["a"], private=[b], copyout=["c"], async_=queue)
    def region(a, b, c):
        b[...] = 4
        a += b
        c[...] = a

    c = np.zeros(4)
    value_of(region(a, b, c))
    assert [array[0] for array in (a, b, c)] == [1, 2, 5]


def test_firstprivate_is_of_the_call(runtime, hold):
    """What firstprivate arrays hold when the construct is encountered counts, not when its turn in the queue comes."""
    a, b = np.ones(4), np.zeros(4)
    gate = hold(1)
    acc.parallel(firstprivate=["a"], async_=1)(lambda a, b: b.__iadd__(a) is None)(a, b)
    a[...] = 100
    gate.open()
    acc.wait(1)
    assert (b == 1).all()


# -- default -----------------------------------------------------------------------------------------
def test_default_none(runtime, construct):
    """default(none): an array in no clause is a ClauseError that names clause and variable, and nothing is made."""
    x, y = np.zeros(4), np.zeros(4)

    @construct(default="none", copy=["y"])
    def region(x, y):
        increment(x, y)

    with pytest.raises(omp.ClauseError, match=r"default\(none\).*x"):
        region(x, y)
    assert (y == 0).all()
    region.options(copy=["x", "y"])(x, y)
    region.options(copyin=["x"])(x, y)
    assert (x == 1).all()
    assert (y == 2).all()


def test_default_none_in_a_region(runtime, construct):
    """default(none) accepts what a data construct around the call names, or enter data has named explicitly again."""
    x, y = np.zeros(4), np.zeros(4)
    region = construct(default="none")(add_one_to_x)
    with acc.data(copy=[x]):
        region(x)
        with acc.data(copyin=[y]):
            region(y)
            region(x[1:3])
        with pytest.raises(omp.ClauseError, match=r"default\(none\).*x"):
            region(y)
    assert x.tolist() == [1, 2, 2, 1]
    assert (y == 0).all()


def test_default_present(runtime, construct, queue):
    """default(present): arrays in no clause have to be present, and others are a NotPresentError."""
    x, y = np.zeros(4), np.zeros(4)
    region = construct(default="present", async_=queue)(add_one_to_x)
    with acc.data(copy=[x]):
        value_of(region(x))
    assert (x == 1).all()
    with pytest.raises(NotPresentError, match="present"):
        value_of(region(y))
    value_of(region.options(copy=["x"])(y))
    assert (y == 1).all()


@pytest.mark.parametrize("bad", ["shared", "", 1, True, ["none"], {"aggregate": "none"}])
def test_what_is_no_default(construct, bad):
    """Anything but none and present is a ClauseError."""
    with pytest.raises(omp.ClauseError, match="default"):
        construct(default=bad)


# -- if and self -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "clauses", [{"if_": False}, {"self_": True}, {"if_": 0, "self_": 1}, {"if_": True, "self_": 1}]
)
def test_if_and_self(runtime, construct, queue, clauses):
    """With if(0) or self the region runs on the host, on the host's arrays, whatever is present."""
    a, b = np.zeros(4), np.ones(4)
    with acc.data(copyin=[a]):

        def body(a, b):
            assert omp.is_initial_device()
            a += b
            b += 1
            return "ran"

        region = construct(body).options(async_=queue, copy=["a"], firstprivate=["b"], num_gangs=4, **clauses)
        assert value_of(region(a, b)) == "ran"
    assert (a == 1).all()
    assert (b == 1).all()


def test_if_keeps_the_order_of_the_queue(queues, hold):
    """A region on the host is an operation of its queue as any other."""
    queues.go()
    a = np.zeros(4)
    gate = hold(1)
    log = []
    task = acc.parallel(async_=1, if_=False)(lambda a: log.append(float(a.sum())) or increment(a))(a)
    acc.parallel(async_=1)(increment)(a)
    last = acc.serial(async_=1, self_=True)(lambda a: log.append(float(a.sum())))(a)
    assert not task.done()
    gate.open()
    acc.wait(1)
    assert last.done()
    assert log == [0, 8]


# -- launch configuration ----------------------------------------------------------------------------
def test_launch_config(runtime, construct, queue):
    """A body finds num_gangs, num_workers and vector_length of its construct, None for each that is not said."""
    region = construct(num_gangs=8, vector_length=128, async_=queue)(acc.launch_config)
    assert value_of(region()) == acc.LaunchConfig(8, None, 128)
    assert value_of(region.options(num_workers=4)()) == (8, 4, 128)
    assert value_of(region.options(num_gangs=np.int64(2))()) == (2, None, 128)
    assert value_of(construct(async_=queue)(acc.launch_config)()) == (None, None, None)
    assert value_of(region.options(if_=False)()) == (8, None, 128)


def test_launch_config_elsewhere(runtime):
    """Outside of a compute region there is none, also after one and in OpenMP's regions: a UsageError."""
    acc.parallel(num_gangs=2)(lambda: None)()
    for call in (acc.launch_config, omp.target(acc.launch_config), omp.task(if_=False)(acc.launch_config)):
        with pytest.raises(omp.UsageError, match="launch_config"):
            value_of(call())
    with pytest.raises(omp.UsageError, match="launch_config"):
        omp.target(nowait=True)(acc.launch_config)().result()


@pytest.mark.parametrize("clause", ["num_gangs", "num_workers", "vector_length"])
@pytest.mark.parametrize("bad", [0, -1, 1.5, "8", [2], True])
def test_bad_counts(construct, clause, bad):
    """What is no positive number of gangs, workers or lanes is a ClauseError that names the clause."""
    with pytest.raises(omp.ClauseError, match=clause):
        construct(**{clause: bad})


# -- strings, options, methods -----------------------------------------------------------------------
def test_sections(runtime, construct, queue):
    """`x[2:3]` is lower bound and length: the body receives that part, and nothing else is moved."""
    x, n = np.zeros(8), 3
    region = construct(copy=["x[2:n]"], async_=queue)(lambda x, n: increment(x) or x.shape)
    assert value_of(region(x, n)) == (3,)
    assert x.tolist() == [0, 0, 1, 1, 1, 0, 0, 0]
    construct(copy=["x[:2]"])(add_one_to_x)(x)
    assert x.tolist() == [1, 1, 1, 1, 1, 0, 0, 0]


def test_names(runtime, construct):
    """Strings name parameters; keyword arguments and defaults count, and an unknown name is a ClauseError."""
    x = np.zeros(4)
    y, z = np.zeros(4), np.zeros(4)
    region = construct(copyin=["x"], copy=["y"])(lambda x, y=y: increment(y))
    region(x=x, y=z)
    assert (z == 1).all()
    region(x)
    assert (y == 1).all()
    for word in ("copy", "copyin", "present", "deviceptr", "private", "firstprivate"):
        with pytest.raises(omp.ClauseError, match="z"):
            construct(**{word: ["z"]})(lambda x: None)(x)


def test_options(runtime, construct):
    """options replaces clauses wholly, in a copy, data clauses one by one; those of the original stay."""
    a = np.zeros(4)
    region = construct(copyin=["a"], name="first")(add_one_to_a)
    region(a)
    assert (a == 0).all()
    other = region.options(copyin=[], copy=["a"], async_=2)
    task = other(a)
    acc.wait(2)
    assert task.name == "first"
    assert (a == 1).all()
    assert other.options(name="second")(a).name == "second"
    acc.wait(2)
    assert other.options(async_=None)(a) is None
    assert (a == 3).all()
    assert region(a) is None
    assert (a == 3).all()
    with pytest.raises(omp.ClauseError):
        region.options(nowait=True)
    with pytest.raises(omp.ClauseError, match="copy"):
        region.options(copy=["a"])(a)  # in two clauses


class Solver:
    def __init__(self):
        self.factor = 2

    @acc.parallel(copy=["a"])
    def scale(self, a):
        a *= self.factor
        return omp.is_initial_device()

    @acc.kernels
    def shift(self, a):
        a += self.factor


def test_methods(runtime, queue):
    """Under a method the first argument is the object."""
    a, solver = np.ones(4), Solver()
    assert value_of(solver.scale.options(async_=queue)(a)) is False
    value_of(solver.shift.options(async_=queue)(a))
    assert (a == 4).all()
    Solver.scale(solver, a)
    assert (a == 8).all()


def test_bare_and_called(runtime, construct):
    """A decorator works bare, with empty parentheses and with clauses, and keeps name and docstring."""

    def body(a):
        """Add one."""
        a += 1

    a = np.zeros(4)
    for region in (construct(body), construct()(body), construct(name="x")(body)):
        assert (region.__name__, region.__doc__) == ("body", "Add one.")
        assert region(a) is None
    assert (a == 3).all()


def test_device_clause(construct):
    """`device` chooses where it runs, and its queues are that device's."""
    with omp.Runtime("sim:2", check=True):
        region = construct(omp.get_device_num)
        assert [region.options(device=number)() for number in range(2)] == [0, 1]
        tasks = [region.options(device=number, async_=1)() for number in range(2)]
        acc.wait(1)
        acc.wait(1, device=1)
        assert [task.result() for task in tasks] == [0, 1]
        with pytest.raises(omp.ClauseError):
            region.options(device=5)()


# -- failures ----------------------------------------------------------------------------------------
def test_failures_of_a_body(runtime, construct):
    """A synchronous region raises the body's own exception with a note on where; nothing is copied back or left."""
    x = np.zeros(4)

    @construct(copy=["x"])
    def fails(x):
        x += 1
        raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        fails(x)
    assert any(f"acc {construct.__name__} 'fails'" in note for note in caught.value.__notes__)
    assert (x == 0).all()
    assert not acc.is_present(x)


def test_failures_in_a_queue(runtime, construct):
    """With async the call returns, the wait raises the exception in a group, and result raises it."""
    x = np.zeros(4)

    def fails(x):
        raise KeyError("mine")

    task = construct(async_=1)(fails)(x)
    with pytest.raises(ExceptionGroup) as caught:
        acc.wait(1)
    assert [type(error) for error in caught.value.exceptions] == [KeyError]
    with pytest.raises(KeyError):
        task.result()
    acc.wait(1)
    assert not acc.is_present(x)


def test_contradictions(runtime, construct):
    """One variable in two clauses is a ClauseError that names both; the region does not run."""
    x = np.zeros(4)
    for clauses, words in (
        ({"copy": ["x"], "copyin": ["x"]}, "copy.*copyin"),
        ({"present": ["x"], "create": ["x"]}, "create.*present|present.*create"),
        ({"private": ["x"], "copy": ["x"]}, "private"),
        ({"private": ["x"], "firstprivate": ["x"]}, "private.*private"),
        ({"deviceptr": ["x"], "copy": ["x"]}, "deviceptr"),
    ):
        with pytest.raises(omp.ClauseError, match=words):
            construct(**clauses)(add_one_to_x)(x)
    assert (x == 0).all()


@pytest.mark.parametrize(
    "clauses",
    [
        {"map": [omp.to("x")]},
        {"nowait": True},
        {"copy": [1]},
        {"copy": [None]},
        {"copy": ["x["]},
        {"copyout": [np.zeros(2, object)]},
        {"copyin": [acc.zero("x")]},
        {"device": "gpu"},
        {"name": 3},
        {"private": [3]},
        {"delete": ["x"]},
        {"use_device": ["x"]},
    ],
    ids=repr,
)
def test_bad_clauses(runtime, construct, clauses):
    """Clauses that the construct does not have, and values that mean nothing, are a ClauseError."""
    with pytest.raises(omp.ClauseError):
        construct(**clauses)(lambda x: None)(np.zeros(2))


def test_what_is_no_function(construct):
    """A construct decorates functions; a generator's call runs nothing, nor does an async def's."""

    async def coroutine():
        """Do nothing."""

    def generator():
        yield

    with pytest.raises(omp.ClauseError, match=f"acc {construct.__name__}"):
        construct(3)
    for function in (coroutine, generator):
        with pytest.raises(UnsupportedError, match=f"acc {construct.__name__}"):
            construct(function)


def test_zero(runtime, construct):
    """copyout(zero: x) begins with zeros on the device."""
    x = np.ones(4)
    construct(copyout=[acc.zero("x")])(add_one_to_x)(x)
    assert (x == 1).all()
    assert construct(create=[acc.zero("x")])(lambda x: float(x.sum()))(np.full(4, 9.0)) == 0
