"""Warnings of what a construct does, and hardly what its words make one expect."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

import offload as omp
from offload import acc, delete, from_, in_, inout, inoutset, out, release, to, tofrom
from offload.arrays.items import MAPPERS

N = 8


@pytest.fixture
def runtime():
    with omp.Runtime("sim:1", check=True) as runtime:
        yield runtime


@pytest.mark.parametrize("nowait", [False, True])
def test_an_update_that_writes_what_it_says_it_reads(runtime, nowait):
    """target_update whose from_ is named by in_ only warns at the line of the call, and copies as it says."""
    a, b = np.zeros(N), np.zeros(N)
    with omp.target_data(map=[to(a, b)]):
        omp.target(lambda x: x.fill(3) if isinstance(x, np.ndarray) else x.__iadd__(3))(a)
        with pytest.warns(omp.DirectiveWarning, match="in_ only.*out or inout") as caught:
            omp.target_update(from_=[a], depend=[in_(a)], nowait=nowait)
        omp.taskwait()
        assert caught[0].filename == __file__
        assert (a == 3).all()
        for items, depend in (
            ([a], [in_(a[:2])]),
            ([a[::2]], [in_(b), in_(a)]),
            ([a, b], [out(a), in_(b)]),
            ([a], [omp.depobj(in_(a))]),
        ):
            with pytest.warns(omp.DirectiveWarning, match="in_ only"):
                omp.target_update(from_=items, depend=depend, nowait=nowait)
        omp.taskwait()


def test_updates_that_say_what_they_do(runtime):
    """No warning where another clause writes the storage, and where it is read, another one, or in no clause."""
    a, b = np.zeros(N), np.zeros(N)
    with warnings.catch_warnings(record=True) as said, omp.target_data(map=[to(a, b)]):
        warnings.simplefilter("always")
        omp.target_update(to=[a], depend=[in_(a)])
        omp.target_update(from_=[a])
        for depend in (
            [inout(a)],
            [out(a), in_(b)],
            [in_(a), inout(a[:3])],
            [inoutset(a)],
            [in_(b)],
            [in_(("token",))],
            [in_(a), out(omp.all_memory)],
        ):
            omp.target_update(from_=[a], depend=depend)
        omp.target_update(from_=[a[::2]], depend=[in_(a[1::2])])
    assert not said


def test_an_update_of_an_object(runtime):
    """What the mapper of an object moves counts as written, and as named."""

    class Holder:
        def __init__(self):
            self.x = np.zeros(N)

    before = dict(MAPPERS)
    try:
        omp.declare_mapper(Holder, lambda holder: [tofrom(holder.x)])
        holder = Holder()
        with pytest.warns(omp.DirectiveWarning, match="in_ only"):
            omp.target_update(from_=[holder], depend=[in_(holder)])
        omp.target_update(from_=[holder], depend=[inout(holder.x)])
    finally:
        MAPPERS.clear()
        MAPPERS.update(before)


@pytest.mark.parametrize("on_device", [False, True])
def test_copies_and_fills_that_write_what_they_say_they_read(runtime, on_device):
    """The asynchronous memory routines warn of a destination that is named by in_ only, on the host and a device."""
    a, d = np.zeros(N), omp.target_alloc(N, "f8")
    dst, src = (d, a) if on_device else (a, d)
    for call in (
        lambda depend: omp.target_memcpy_async(dst, src, depend=depend),
        lambda depend: omp.target_memcpy_rect_async(dst, src, depend=depend),
        lambda depend: omp.target_memset_async(dst, 0, depend=depend),
    ):
        with pytest.warns(omp.DirectiveWarning, match="in_ only"):
            call([in_(dst)]).result()
        call([in_(src), out(dst)]).result()
        call([in_(src)]).result()
    omp.target_free(d)


@pytest.mark.parametrize("nowait", [False, True])
def test_an_exit_that_copies_nothing(runtime, nowait):
    """target_exit_data from associated storage copies nothing without always, and warns of it."""
    a, d = np.ones(N), omp.target_alloc(N, "f8")
    omp.target_associate_ptr(a, d)
    omp.target_memset(d, 0)
    for items in ([from_(a)], [a], [from_(a[2:4])]):
        with pytest.warns(omp.DirectiveWarning, match="target_update.*always") as caught:
            omp.target_exit_data(map=items, nowait=nowait)
        omp.taskwait()
        assert caught[0].filename == __file__
    assert (a == 1).all()
    for items in ([release(a)], [delete(a)], [from_(np.ones(3))], [from_(a, always=True)]):
        omp.target_exit_data(map=items, nowait=nowait)
    omp.taskwait()
    assert (a == 0).all()
    omp.target_disassociate_ptr(a)
    omp.target_free(d)


# -- arrays that are only copied from the device -----------------------------------------------------


def outside(a, b):
    b[10:15] = 2 * a[10:15]


def outside_in_place(a, b):
    b[10:15] += a[10:15]


def outside_of_a_view(a, b):
    part = b[2:]
    part[10:] = a[10:]


def bound_anew(a, b):
    b = 2 * a  # noqa: F841  # the mistake


def unread(a, b):
    pass


def read(a, b):
    a[...] = 2 * b + np.sqrt(b) - b.sum()


def read_in_other_ways(a, b):
    np.add(b, 1, out=a, where=b > 0)
    a[0] = b[1]
    a[1:3] = b[np.array([0, 1], like=b)]
    assert float(b[0]) is not None
    assert str(b), repr(b)
    assert b.get().shape == b.shape == b.copy().shape == b.reshape(1, 5).T[:, 0].shape
    assert len(b.argsort()) == len(b.astype("f4")) == len(np.sort(b)) == len([float(x) for x in b])
    assert np.mean(b, axis=0).ndim == b.max(0).ndim == 0
    (2 * b).fill(1)
    b.copy()[...] = 1


def seen(a, b):
    part = b[1:].T
    assert part.shape == (4,)
    assert (part.dtype, len(b), b.nbytes) == (b.dtype, 5, 40)


def without_trips(a, b):
    for i in range(0):
        b[i] = 1.0


def empty_slices(a, b):
    b[0:0] = 1.0
    b[5:5] = a[5:5]
    b[2:2].fill(1)


def run(region, *args):
    region(*args)
    omp.taskwait()
    acc.wait()


BODIES = (
    *(outside, outside_in_place, outside_of_a_view, bound_anew, unread, read, read_in_other_ways, seen),
    *(without_trips, empty_slices),
)


@pytest.mark.parametrize("kind", ["target", "acc", "nowait", "async"])
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_a_body_that_writes_no_element(runtime, body, kind):
    """A region warns if it copies back an array of which the body has written no element."""
    a, b = np.arange(20.0), np.zeros(20)
    region = {
        "target": omp.target(map=[to("a[10:5]"), from_("b[10:5]")]),
        "nowait": omp.target(map=[to("a[10:5]"), from_("b[10:5]")], nowait=True),
        "acc": acc.parallel(copyin=["a[10:5]"], copyout=["b[10:5]"]),
        "async": acc.kernels(copyin=["a[10:5]"], copyout=["b[10:5]"], async_=1),
    }[kind](body)
    with pytest.warns(omp.DirectiveWarning, match=r"b\[10:5\]\): the body wrote no element.*index 0") as caught:
        run(region, a, b)
    assert [warning.filename for warning in caught] == [__file__]


WRITES = {
    "item": lambda a, b: b.__setitem__(slice(0, 5), a[:5]),
    "element": lambda a, b: b.__setitem__(1, 3.0),
    "element, by a number of NumPy": lambda a, b: b.__setitem__(np.int64(1), 3.0),
    "in place": lambda a, b: b.__iadd__(a) is None,
    "view": lambda a, b: b[1:3].__setitem__(..., 1.0),
    "view of a view": lambda a, b: b.reshape(5, 1).T[:, 1:].fill(1),
    "rows": lambda a, b: [row.fill(1) for row in b.reshape(5, 1)] and None,
    "reversed view": lambda a, b: np.add(a, a, out=b[::-1]) is None,
    "real part": lambda a, b: setattr(b, "real", 1),
    "out": lambda a, b: np.multiply(a, 2, out=b) is None,
    "out, by position": lambda a, b: np.multiply(a, 2, b) is None,
    "out, of the namespace": lambda a, b: omp.array_namespace(a).multiply(a, 2, b) is None,
    "second out": lambda a, b: np.divmod(a, 2, out=(None, b)) is None,
    "out of a reduction": lambda a, b: np.add.reduce(a, out=b[0]) is None,
    "out of a method": lambda a, b: a.cumsum(out=b) is None,
    "out of a method, by position": lambda a, b: a.cumsum(0, None, b) is None,
    "out of a function": lambda a, b: np.cumsum(a, out=b) is None,
    "out of a function, by position": lambda a, b: np.cumsum(a, 0, None, b) is None,
    "at": lambda a, b: np.add.at(b, [0], 1.0),
    "copyto": lambda a, b: np.copyto(b, a),
    "copyto, of the namespace": lambda a, b: omp.array_namespace(a).copyto(b, a),
    "place": lambda a, b: np.place(b, a > 0, [1.0]),
    "numbers for NaN": lambda a, b: np.nan_to_num(b, copy=False) is None,
    "numbers for NaN, by position": lambda a, b: np.nan_to_num(b, False) is None,
    "median": lambda a, b: np.median(b, overwrite_input=True) is None,
    "diagonal": lambda a, b: np.fill_diagonal(b[:4].reshape(2, 2), 1),
    "function of rows": lambda a, b: np.apply_along_axis(lambda row: row.fill(1) or row, 0, b) is None,
    "random": lambda a, b: omp.array_namespace(a).random.default_rng(1).random(out=b) is None,
    "shuffle": lambda a, b: omp.array_namespace(a).random.default_rng(1).shuffle(b),
    "fill": lambda a, b: b.fill(1),
    "set": lambda a, b: b.set(np.ones(5)),
    "put": lambda a, b: b.put([0], 1.0),
    "mask": lambda a, b: b.__setitem__(a > 100, 1.0),
    "unwrap": lambda a, b: b.unwrap().fill(1),
    "method": lambda a, b: b.sort(),
    "outside, and inside": lambda a, b: b.__setitem__(slice(7, 9), 1.0) or b.__setitem__(0, 1.0),
    "inside, and outside": lambda a, b: b.__setitem__(0, 1.0) or b.__setitem__(slice(7, 9), 1.0),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_body_that_may_have_written(runtime, write):
    """No warning where an element was written in any way, or may have been."""
    a, b = np.arange(20.0), np.zeros(20)
    omp.target(map=[to("a[10:5]"), from_("b[10:5]")])(WRITES[write])(a, b)


def test_arrays_that_are_not_only_copied_back(runtime):
    """No warning for arrays that are copied to the device, present or empty, or set to zero by a clause."""
    a, b = np.arange(5.0), np.zeros(5)
    omp.target(map=[tofrom("a")])(lambda a: None)(a)
    with omp.target_data(map=[to(b)]):
        omp.target(map=[from_("b")])(lambda b: None)(b)
    omp.target(map=[from_("a")])(lambda a: None)(a[:0])
    acc.parallel(copyout=[acc.zero(a)])(lambda: None)()
    assert (a == 0).all()


def test_arrays_that_the_body_is_not_given(runtime):
    """Each array that a region only copies back is a warning of its own, also where it is no argument of its own."""
    a, b = np.arange(5.0), np.zeros(5)

    class Pair:
        def __init__(self):
            self.x, self.y = np.zeros(3), np.zeros(3)

    with pytest.warns(omp.DirectiveWarning, match="wrote no element"):
        omp.target(map=[from_(a)])(lambda: None)()
    with pytest.warns(omp.DirectiveWarning, match="wrote no element") as caught:
        omp.target(lambda *arrays: None).options(map=[from_(a), from_(b)])(a, b)
    assert len(caught) == 2
    before = dict(MAPPERS)
    try:
        omp.declare_mapper(Pair, lambda pair: [from_(pair.x, pair.y)])
        with pytest.warns(omp.DirectiveWarning, match="wrote no element") as caught:
            omp.target(lambda pair: pair.x.fill(1))(Pair())
    finally:
        MAPPERS.clear()
        MAPPERS.update(before)
    assert len(caught) == 1


@pytest.mark.parametrize("n", [0, 5])
def test_loops_do_not_warn(runtime, n):
    """A loop writes what its iterations write, if there are any."""
    b = np.zeros(5)

    @omp.target_loop(map=[from_("b")])
    def loop(b, n):
        for i in range(n):
            b[i] = 1.0

    loop(b, n)


@pytest.mark.parametrize("nowait", [False, True])
@pytest.mark.parametrize("is_acc", [False, True])
def test_an_index_outside_of_a_section(runtime, nowait, is_acc):
    """The error of a loop's index names the section, and where it begins: proved before it runs, or found there."""
    a, b, indices = np.arange(20.0), np.zeros((9, 20)), np.array([0, 17])

    def proved(a, b):
        for i in range(10, 15):
            b[0, i] = 2 * a[i]

    def looked_up(a, b, indices):
        for i in range(2):
            b[0, indices[i]] = a[i]

    for body, args, section, first in (
        (proved, (a, b), r"a\[10:5\]", r"a\[10\]"),
        (looked_up, (a, b, indices), r"b\[2:3\]\[:6\]", r"b\[2\]\[0\]"),
    ):
        if is_acc:
            loop = acc.parallel_loop(copyin=["a[10:5]"], copy=["b[2:3][:6]"], async_=1 if nowait else acc.async_sync)
        else:
            loop = omp.target_loop(map=[to("a[10:5]"), tofrom("b[2:3][:6]")], nowait=nowait)
        with pytest.raises((IndexError, ExceptionGroup)) as caught:
            loop(body)(*args)
            omp.taskwait()
        error = getattr(caught.value, "exceptions", [caught.value])[0]
        assert isinstance(error, IndexError)
        assert re.search(rf"is the section {section} in the body: index 0 there is {first}$", str(error))
