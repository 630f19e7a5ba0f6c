"""Arrays that lie anywhere: elements at no multiples of their size, and arguments that overlap or are one array."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload.loops.running import plan, runs
from offload.loops.running.build import Builder
from tests.conftest import checked

pytestmark = pytest.mark.filterwarnings("ignore:.*no C compiler:offload.PerformanceWarning")

PACKED = np.dtype([("a", "u1"), ("x", "f8"), ("p", "i4"), ("o", "f4"), ("b", "u1")])


@pytest.fixture(params=["sim", "host", "threads", "python"])
def loop(request, monkeypatch):
    """Makes a loop function: on a simulated device, the initial device, the host's threads, or without a compiler."""
    if request.param == "python":
        for module in (plan, runs):
            monkeypatch.setattr(module, "builder", Builder({"OFFLOAD_CC": "none"}))
    with checked("sim:1"):
        if request.param == "threads":
            yield omp.parallel_loop
        else:
            yield lambda function, **clauses: omp.target_loop(function, if_=request.param != "host", **clauses)


def records():
    made = np.zeros(10, PACKED)
    made["a"], made["b"], made["x"], made["p"] = 170, 85, np.arange(10.0), np.arange(10)[::-1]
    return made


def odd(n=10):
    """Return float64 that begin at an odd byte."""
    made = np.frombuffer(bytearray(8 * n + 3), np.uint8)[3:].view("f8")
    made[...] = np.arange(n)
    return made


def combine(x, y, o):
    for i in range(o.size):
        o[i] = 2 * x[i] + y[-i - 1]


def gather(p, o, z):
    for i in range(p.size):
        o[p[i]] += z[()]


def increase(x):
    for i in range(x.size):
        x[i] += 1


def total(x, r):
    for i in range(x.size):
        r[0] += x[i]


def count(h, k):
    for i in range(k.size):
        h[k[i]] += 1


def double(x, o):
    for i in range(o.size):
        o[i] = 2 * x[i]


def difference(x, y, o):
    for i in range(o.size):
        o[i] = x[i] - y[i]


def agrees(loop, function, made, **clauses):
    """Run a loop and CPython on what `made` returns, a memory and views of it; tell whether all bytes agree."""
    (mine, arguments), (others, expected) = made(), made()
    loop(function, **clauses)(*arguments)
    function(*expected)
    return mine.tobytes() == others.tobytes()


@pytest.mark.parametrize("times", [1, 2])
def test_fields_of_packed_records_are_arrays_like_others(loop, times):
    """Elements at any byte are read and written, and what lies between them is left alone."""
    for _ in range(times):
        assert agrees(loop, combine, lambda: (one := records(), (one["x"], np.arange(10.0), one["o"])))
        assert agrees(loop, gather, lambda: (one := records(), (one["p"], one["o"], odd(1).reshape(()))))


def test_arrays_may_begin_at_an_odd_byte(loop):
    """One specialisation serves aligned and unaligned arrays, forwards and backwards, in any order of calls."""
    made = loop(increase)
    for array in (np.arange(10.0), odd(), odd()[::-2], np.arange(10.0), odd()):
        expected = array + 1
        made(array)
        assert np.array_equal(array, expected)


def test_an_unaligned_element_can_be_reduced_to(loop):
    """A reduction's array of one element may lie anywhere."""
    assert agrees(loop, total, lambda: (one := odd(11), (one[:10], one[10:])), reduction={"+": ["r"]})


def test_unaligned_elements_are_updated_in_one_step_nowhere(loop):
    """No processor promises it: a `ClauseError`, and nothing has changed."""
    counts = odd().view("i8")
    before = counts.tobytes()
    with pytest.raises(omp.ClauseError, match="pass a copy"):
        loop(count, atomic=["h"])(counts, np.zeros(5, np.int64))
    assert counts.tobytes() == before


@pytest.mark.parametrize(
    ("of_x", "of_o", "clauses"),
    [
        (slice(None), slice(None), {}),
        (slice(None), slice(None, None, -1), {"seq": True}),
        (slice(0, 20, 2), slice(1, 20, 2), {}),
        (slice(0, 18), slice(2, 20), {"seq": True}),
        (slice(2, 20), slice(0, 18), {"seq": True}),
        (slice(0, 10), slice(5, 15), {"auto": True}),
    ],
    ids=["same", "reversed", "interleaved", "behind", "ahead", "in part"],
)
@pytest.mark.filterwarnings("ignore:.*runs in order:offload.PerformanceWarning")
def test_arguments_may_share_memory(loop, of_x, of_o, clauses):
    """What is written by one name is read by the other, as in CPython."""
    assert agrees(loop, double, lambda: (one := np.arange(20.0), (one[of_x], one[of_o])), **clauses)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_views_that_are_read_may_overlap_in_part(loop, is_reversed):
    """``x[1:]`` and ``x[:-1]``, in either order, read-only ones too, and a third that reaches from the second."""

    def made():
        one, o = np.arange(20.0) ** 2, np.zeros(19)
        one.flags.writeable = False
        views = (one[1:], one[:-1])
        return o, (*(reversed(views) if is_reversed else views), o)

    assert agrees(loop, difference, made)
    assert agrees(loop, difference, lambda: (one := np.arange(20.0), (one[:10], one[5:15], one[10:])), seq=True)


def test_what_is_mapped_of_views_that_overlap_is_theirs_alone():
    """Bytes that no argument has stay the host's, whatever becomes of them meanwhile."""
    with checked("sim:1"):
        x, o = np.arange(20.0), np.zeros(4)
        with omp.target_data(map=[omp.to(x[:4]), omp.to(x[16:])]):
            omp.target_loop(difference)(x[6:10], x[7:11], o)
        assert (o == -1).all()


def test_columns_that_overlap_in_part_are_maps_of_one_construct():
    """Of arrays with gaps no item holds both and nothing else: map's own rule, and its remedy, say so."""
    with checked("sim:1"):
        x = np.zeros((4, 8))
        with pytest.raises(omp.MapError, match="overlaps"):
            omp.target_loop(corner)(x[:, :5], x[:, 3:])
        with omp.target_data(map=[omp.tofrom(x)]):
            omp.target_loop(corner)(x[:, :5], x[:, 3:])
        assert (x[:, 3] == 1).all()


def corner(a, b):
    for i in range(a.shape[0]):
        b[i, 0] = a[i, 0] + 1
