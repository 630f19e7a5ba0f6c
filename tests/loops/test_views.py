"""Arrays that lie anywhere: elements at no multiples of their size, and arguments that overlap or are one array."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload.arrays.items import array_section
from offload.arrays.sections import covers
from offload.loops.running import plan, runs
from offload.loops.running.build import Builder
from tests.conftest import checked
from tests.profiles import few

pytestmark = pytest.mark.filterwarnings("ignore:.*no C compiler:offload.PerformanceWarning")

PACKED = np.dtype([("a", "u1"), ("x", "f8"), ("p", "i4"), ("o", "f4"), ("b", "u1")])


@pytest.fixture(params=few(3, ["sim", "threads", "python", "host"]))
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
        assert agrees(
            loop, gather, lambda: (one := records(), (one["p"], one["o"], odd(1).reshape(()))), independent=True
        )


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


def mix(a, b, c):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            a[i, j] = 3 * a[i, j] + b[i % b.shape[0], j % b.shape[1]] + c[i % c.shape[0], j % c.shape[1]]


def diagonal(x, k):
    return np.lib.stride_tricks.as_strided(x[0, k:], (4, 1), (x.strides[0] + 8, 8))


OVERLAPPING = {
    "columns": lambda x: (x[:, :5], x[:, 3:]),
    "columns in the middle": lambda x: (x[:, 3:6], x[:, 5:7]),
    "steps": lambda x: (x.reshape(-1, 1)[::3], x.reshape(-1, 1)[::2]),
    "rows and a column": lambda x: (x[1:3], x[:, 2:3]),
    "a diagonal and a row": lambda x: (diagonal(x, 1), x[2:3]),
    "transposed": lambda x: (x[:, 2:6].T, x[:, ::3]),
    "backwards": lambda x: (x[::-1, 4::-1], x[:, 3:]),
    "halves of elements": lambda x: (x[:, 1:5], x.view("i4")[:, 4::4]),
    "one holds the others": lambda x: (x[:, 1:7], x[1:3, 2:4], x[:, 6:7]),
    "by way of another": lambda x: (x[:, :3], x[:, 5:], x[::2, 2:6]),
    "a third beside them": lambda x: (x[::2, :4], x[::2, 2:], x[1::2, 1:3]),
    "a third across them": lambda x: (x[::2, :4], x[::2, 2:6], x[1::2, 1:]),
}


def mixed(views, first):
    """Return an array and arguments of `mix`, which writes to that view of it."""
    x = np.arange(1, 33).reshape(4, 8)
    made = views(x)
    return x, tuple(made[(first + k) % len(made)] for k in range(3))


@pytest.mark.parametrize("views", OVERLAPPING.values(), ids=OVERLAPPING)
@pytest.mark.parametrize("first", few(1, range(3)))
def test_views_with_gaps_may_overlap_in_part(loop, views, first):
    """Whichever of them is written, their elements are CPython's, and so is what lies between."""
    assert agrees(loop, mix, lambda: mixed(views, first), seq=True)


@pytest.mark.parametrize("devices", [{}, {"devices": "all"}], ids=["one device", "two devices"])
@pytest.mark.parametrize("views", OVERLAPPING.values(), ids=OVERLAPPING)
@pytest.mark.parametrize(
    "held", few(1, [lambda x: x[:, 1:], lambda x: x, lambda x: x[::2]]), ids=["columns", "all", "rows"]
)
def test_views_that_overlap_may_be_present(views, held, devices):
    """Where what is present holds each of them the loop works on that, and nothing else is mapped; as without."""
    with checked("sim:2"):
        for first in range(3):
            (mine, given), (others, expected) = mixed(views, first), mixed(views, first)
            whole = array_section(held(mine))
            if not all(covers(whole, array_section(one)) for one in given):
                continue
            mix(*expected)
            with omp.target_data(map=[omp.tofrom(held(mine))], **devices):
                omp.target_loop(mix, seq=True, **devices)(*given)
                assert given[0].tolist() == mixed(views, first)[1][0].tolist()
            assert mine.tolist() == others.tolist()


def test_what_lies_between_views_that_overlap_is_not_copied(capfd):
    """A call copies the elements that it reads to the device, and back those of what it writes, and no others."""
    x = np.zeros((6, 8))
    with omp.Runtime("sim:1", check=True, env={"OFFLOAD_NOTIFY": "2"}):
        omp.target_loop(corner)(x[:, :5], x[:, 3:7])
        omp.target_loop(corner)(x.reshape(-1, 1)[::4], x.reshape(-1, 1)[::3])
    lines = capfd.readouterr().err.splitlines()
    assert sorted(line for line in lines if not line.startswith(("launch", "kernel"))) == [
        f"{way} argument {text} device=0"
        for way in ("download", "upload")
        for text in (
            "'a': float64[12, 1] bytes=96",
            "'a': float64[6, 5] bytes=240",
            "'b': float64[16, 1] bytes=128",
            "'b': float64[6, 4] bytes=192",
        )
    ]


def corner(a, b):
    for i in range(a.shape[0]):
        b[i, 0] = a[i, 0] + 1
