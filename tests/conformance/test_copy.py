"""`copy`: whole arrays and views, between the host and the devices."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import offload as omp
from offload import in_, inout, out

VIEWS = {
    "whole": lambda a: a,
    "rows": lambda a: a[1:5],
    "strided": lambda a: a[::2, 1::3],
    "backwards": lambda a: a[::-2, ::-1],
    "transposed": lambda a: a.T[2:5],
    "one": lambda a: a[3, 4, ...],
    "nothing": lambda a: a[2:2],
}


@pytest.fixture
def arrays(runtime):
    """Return a function that makes an array of `target_alloc`, on a device or the host, with these values."""
    allocated = []

    def make(device, values):
        values = np.ascontiguousarray(values)
        d = omp.target_alloc(values.shape, values.dtype, device)
        omp.target_memcpy(d, values)
        allocated.append(d)
        return d

    yield make
    omp.taskwait()
    while allocated:
        omp.target_free(allocated.pop())


def places():
    """Return the numbers of all devices and of the host."""
    return [*range(omp.get_num_devices()), omp.initial_device]


def on_host(array):
    """Return a whole array as one of the host."""
    found = np.zeros(array.shape, array.dtype)
    omp.target_memcpy(found, array)
    return found


@pytest.mark.parametrize("nowait", [False, True])
@pytest.mark.parametrize("view", VIEWS)
def test_between_all_pairs(arrays, view, nowait):
    """Each element of a view arrives in that of another, wherever the two are, and nothing else is touched."""
    values = np.arange(60.0).reshape(6, 10)
    part = VIEWS[view]
    for to_device, at_device in itertools.product(places(), places()):
        dst, src = arrays(to_device, -values), arrays(at_device, values)
        done = omp.copy(part(dst), part(src), nowait=nowait)
        if nowait:
            assert done.result() is None
        else:
            assert done is None
        expected = -values
        part(expected)[...] = part(values)
        assert (on_host(dst) == expected).all()
        assert (on_host(src) == values).all()


def test_views_of_two_layouts(arrays):
    """The strides of the two sides have nothing to do with each other."""
    values = np.arange(4 * 5 * 6, dtype="f4").reshape(4, 5, 6)
    for to_device, at_device in itertools.product(places(), places()):
        dst, src = arrays(to_device, np.zeros((12, 5, 8), "f4")), arrays(at_device, values)
        omp.copy(dst[::2, ::-1, 1:5].transpose(2, 1, 0), src.transpose(0, 1, 2)[:, :, :])
        expected = np.zeros((12, 5, 8), "f4")
        expected[::2, ::-1, 1:5].transpose(2, 1, 0)[...] = values
        assert (on_host(dst) == expected).all()


def test_structured_elements_with_their_padding(sim):
    """All bytes of an element are copied, those between its fields too."""
    kind = np.dtype([("a", "i1"), ("b", "f8")], align=True)
    src = np.frombuffer(np.arange(kind.itemsize * 6, dtype="u1").tobytes(), kind).reshape(2, 3)
    d, back = omp.target_alloc((2, 3), kind), np.zeros((2, 3), kind)
    omp.copy(d, src)
    omp.copy(back, d)
    assert back.tobytes() == src.tobytes()
    omp.target_free(d)


def test_order_by_depend(streams):
    """With depend the copy follows who wrote its source and is followed by who reads its destination."""
    src, dst, d = np.zeros((8, 9)), np.zeros((4, 9)), omp.target_alloc((4, 9), np.float64)
    for k in range(5):
        omp.task(src.fill, depend=[out(src)])(k)
        omp.copy(d, src[::2], depend=[in_(src[::2]), out(d)], nowait=True)
        omp.target(lambda d: d.__iadd__(1.0) is None, depend=[inout(d)], nowait=True)(d)
        copied = omp.copy(dst, d, depend=[in_(d), out(dst)], nowait=True)
    streams.go()
    assert copied.result() is None
    assert (dst == 5).all()
    omp.taskwait()
    omp.target_free(d)


def test_without_nowait_it_waits_for_what_it_depends_on(sim):
    """A copy that is not deferred waits for its predecessors and returns when it is done."""
    src, dst, event = np.zeros(4), np.zeros(4), omp.Event()
    omp.task(src.fill, depend=[out(src)], detach=event)(3)
    omp.task(event.fulfill)()
    assert omp.copy(dst, src, depend=[in_(src), out(dst)]) is None
    assert (dst == 3).all()
    assert omp.copy(dst, src, depend=None) is None


def test_task_graphs_replay_it(runtime):
    """A recorded copy is made anew at each replay."""
    src, dst, d = np.zeros((6, 4)), np.zeros((3, 4)), omp.target_alloc((3, 4), np.float64)

    @omp.taskgraph
    def step(src, dst):
        omp.copy(d, src[1::2], depend=[in_(src), out(d)], nowait=True)
        omp.copy(dst, d, depend=[in_(d), out(dst)], nowait=True)

    for k in range(4):
        src.fill(k)
        step(src, dst)
        assert (dst == k).all()
    omp.target_free(d)


def test_pictures_and_graphs_know_it(sim):
    """In a recorded graph it is a node of its own with the device's number."""
    d = omp.target_alloc(4, np.float64)
    with omp.record() as graph:
        omp.copy(d, np.ones(4), depend=[out(d)], nowait=True)
        omp.copy(np.zeros(4), d, depend=[in_(d)])
    assert [node.directive for node in graph.nodes] == ["copy", "copy"]
    assert len(graph.edges) == 1
    omp.target_free(d)


# -- mistakes ---------------------------------------------------------------------------------------------
def test_shapes_and_dtypes_have_to_be_equal(arrays):
    """Nothing is broadcast and nothing converted; the message says what both are, and nothing has moved."""
    for to_device, at_device in itertools.product(places(), places()):
        dst = arrays(to_device, np.zeros((3, 4)))
        for nowait in (False, True):
            for values in (np.ones((4, 3)), np.ones(4), np.ones(()), np.ones((3, 4, 1)), np.ones((1, 4))):
                with pytest.raises(omp.ClauseError, match=r"copy: dst is float64\[3, 4\].*shapes must be equal"):
                    omp.copy(dst, arrays(at_device, values), nowait=nowait)
            for kind in ("f4", "i8", "c8"):
                with pytest.raises(omp.ClauseError, match=r"copy: .*dtypes must be equal; convert"):
                    omp.copy(dst, arrays(at_device, np.ones((3, 4), kind)), nowait=nowait)
        assert (on_host(dst) == 0).all()


def test_arrays_that_share_memory_are_refused(arrays):
    """A byte that both have is an error, wherever; interleaved views share none."""
    for device in places():
        a = arrays(device, np.arange(24.0).reshape(4, 6))
        for dst, src in ((a, a), (a[1:], a[:-1]), (a[:, 1:], a[:, :-1]), (a[::-1], a), (a[0:1], a[0:1])):
            with pytest.raises(omp.ClauseError, match=r"copy: .*overlap"):
                omp.copy(dst, src)
        omp.copy(a[:, ::2], a[:, 1::2])
        expected = np.arange(24.0).reshape(4, 6)
        expected[:, ::2] = expected[:, 1::2]
        assert (on_host(a) == expected).all()


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: [1.0, 2.0, 3.0], "list"),
        (lambda: None, "NoneType"),
        (lambda: 3.0, "float"),
        (lambda: "x", "str"),
        (lambda: np.array([None] * 3), "Python objects"),
        (lambda: np.ma.masked_array([1.0, 2.0, 3.0], [0, 1, 0]), "MaskedArray"),
    ],
)
def test_what_is_no_plain_array(runtime, make, what):
    """Lists, numbers, names, masked arrays and arrays of objects are refused on either side."""
    with pytest.raises(omp.ClauseError, match=what):
        omp.copy(np.zeros(3), make())
    with pytest.raises(omp.ClauseError, match=what):
        omp.copy(make(), np.zeros(3))


def test_other_mistakes(runtime):
    """Read-only and self-overlapping destinations, arrays that were freed, wrong dependences, a region's body."""
    host, d = np.zeros(4), omp.target_alloc(4, np.float64)
    fixed = np.zeros(4)
    fixed.flags.writeable = False
    with pytest.raises(omp.ClauseError, match=r"copy: .*read-only"):
        omp.copy(fixed, d)
    with pytest.raises(omp.ClauseError, match=r"copy: .*share memory"):
        omp.copy(np.lib.stride_tricks.as_strided(host, (4,), (0,)), d)
    with pytest.raises(omp.DependError, match="no dependence"):
        omp.copy(d, host, depend=[host])
    with pytest.raises(omp.ClauseError, match="is a string"):
        omp.copy(d, host, depend=[in_("host")])
    with pytest.warns(omp.DirectiveWarning, match="^copy writes"):
        omp.copy(d, host, depend=[in_(d)])
    with pytest.raises(omp.UsageError, match="copy"):
        omp.target(lambda: omp.copy(np.zeros(4), host))()
    omp.target_free(d)
    with pytest.raises(omp.RegionClosedError):
        omp.copy(d, host)
    with pytest.raises(omp.RegionClosedError):
        omp.copy(host, d, nowait=True)


def test_freed_while_it_waits(sim):
    """A device array that is freed before the copy has run is an error of its task."""
    d, event = omp.target_alloc(4, np.float64), omp.Event()
    omp.task(lambda: None, depend=[out(("go",))], detach=event)()
    task = omp.copy(d, np.zeros(4), depend=[in_(("go",))], nowait=True)
    omp.target_free(d)
    event.fulfill()
    assert isinstance(task.exception(), omp.RegionClosedError)
