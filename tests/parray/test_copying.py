"""Typed copies as tasks: what they refuse, what they depend on, graphs, and temporaries."""

from __future__ import annotations

import re
from unittest import mock

import numpy as np
import pytest

import offload as omp
from offload.errors import ClauseError, LayoutError, RegionClosedError, UnsupportedError, UsageError
from offload.parray import ArrayType, copy, dim, disp, func, moves, plan, ranks, threads, wrap
from tests import eager_device

A = ArrayType((4, 6))
TURNED = ArrayType((A[1], A[0]))
N = A.size
KINDS = (TURNED, ArrayType((A[0], dim(6, disp(2), wrap(6), A[1]))), ArrayType((dim(N, func([*range(1, N), 0])),)))
"""Targets of one box, of two, and by a table or few runs."""


@pytest.fixture
def allocate(runtime):
    """Make arrays of devices, and free them in the end."""
    made = []

    def alloc(values, device=0):
        values = np.asarray(values)
        array = omp.target_alloc(values.shape, values.dtype, device)
        omp.target_memcpy(array, values)
        made.append(array)
        return array

    yield alloc
    omp.taskwait()
    while made:
        omp.target_free(made.pop())


def on_host(array):
    found = np.empty(array.shape, array.dtype)
    omp.target_memcpy(found, array)
    return found


@pytest.fixture(params=["host", "device"])
def given(request, allocate):
    """What makes storage: an array of the host as it is, or a device's."""
    return np.array if request.param == "host" else allocate


def values_of(array):
    return array if isinstance(array, np.ndarray) else on_host(array)


# -- what is refused ---------------------------------------------------------------------------------
BAD_STORAGE = {
    "a list": [1.0] * N,
    "a number": 3.0,
    "None": None,
    "objects": np.full(N, None),
    "not contiguous": np.zeros((N, 2))[:, 0],
    "Fortran order": np.zeros((4, 6), order="F"),
    "too small": np.zeros(N - 1),
    "another item size": np.zeros(N, "f4"),
    "masked": np.ma.zeros(N),
    "a matrix": np.zeros((4, 6)).view(np.matrix),
}


@pytest.mark.parametrize("what", BAD_STORAGE)
@pytest.mark.parametrize("is_target", [False, True])
def test_storage_that_is_none(runtime, what, is_target):
    """Storage that cannot be one is refused at the call, which has generated no task and copied nothing."""
    bad, good = BAD_STORAGE[what], np.ones(N)
    before = len(runtime.scope().region.children.live)
    with pytest.raises(ClauseError) as caught:
        copy(A, good if is_target else bad, to=(TURNED, bad if is_target else good), nowait=True)
    assert "parray.copy" in str(caught.value)
    assert (good == 1).all()
    assert len(runtime.scope().region.children.live) == before


def test_a_read_only_target(runtime):
    """A read-only array is a source and no target."""
    fixed = np.zeros(N)
    fixed.flags.writeable = False
    with pytest.raises(ClauseError):
        copy(A, np.ones(N), to=(TURNED, fixed))
    copy(A, fixed, to=(TURNED, np.ones(N)))


@pytest.mark.parametrize("to", [None, A, (A,), (A, np.zeros(N), 1), "ab", (np.zeros(N), A)])
def test_no_pair(runtime, to):
    """``to`` is a pair of a type and storage."""
    with pytest.raises(ClauseError):
        copy(A, np.zeros(N), to=to)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (A, ArrayType(5)),
        (A, ArrayType((4, dim(6, wrap(1))))),
        (A, ArrayType((4, dim(6, func([0, 1, 2, 3, 4, 4]))))),
        (threads(N), A),
        (A, threads(N)),
        (ArrayType((dim(4, disp(-1)), 6)), A),
        (A, ArrayType((dim(4, disp(-1)), 6))),
    ],
)
def test_types_that_are_no_pair(runtime, source, target):
    """Sizes that differ, a target that is not injective, thread arrays, negative offsets: no pair, and no task."""
    s, t = np.zeros(64), np.ones(64)
    with pytest.raises(LayoutError):
        copy(source, s, to=(target, t))
    assert (t == 1).all()


def test_lists_of_arrays(runtime):
    """A thread that has elements needs an array, others may have None; a type of memory takes no list."""
    M = threads(3)
    S, T = ArrayType((dim(2, disp(1), M), 4)), ArrayType((2, 4))
    t = np.zeros(8)
    arrays = [None, np.ones(4), np.full(4, 2.0)]
    copy(S, arrays, to=(T, t))
    assert t.tolist() == [1.0] * 4 + [2.0] * 4
    copy(S, tuple(arrays), to=(T, t))
    for bad in (np.zeros((3, 4)), [None, np.ones(4)], [None, np.ones(4), None], [], None):
        with pytest.raises(ClauseError):
            copy(S, bad, to=(T, t))
    with pytest.raises(ClauseError):
        copy(T, [t], to=(S, arrays))
    with pytest.raises(ClauseError):
        copy(S, [None, np.ones(4), np.ones(4, "f4")], to=(T, t))
    with pytest.raises(ClauseError):
        copy(T, t, to=(S, [None, np.ones(4), np.ones(3)]))


def test_threads_that_share_memory(runtime):
    """Two threads of a target cannot have one array, those of a source can."""
    M = threads(2)
    x, y = np.zeros(4), np.arange(8.0)
    with pytest.raises(ClauseError):
        copy(ArrayType((2, 4)), y, to=(ArrayType((M, 4)), [x, x]))
    with pytest.raises(ClauseError):
        copy(ArrayType((2, 4)), np.ones(8), to=(ArrayType((M, 4)), [y[:5], y[3:]]))
    copy(ArrayType((M, 4)), [x, x], to=(ArrayType((2, 4)), y))
    assert (y == 0).all()


def test_a_failure_in_one_of_many(runtime, allocate):
    """Where one of several arrays is gone when the copy runs, its task fails with that; the others are waited for."""
    M = threads(3)
    late = omp.target_alloc(4, "f8")
    arrays = [allocate(np.zeros(4)), late, np.zeros(4)]
    gate, token = omp.Event(), np.zeros(1)
    omp.task(depend=[omp.out(token)], detach=gate)(lambda: None)()
    task = copy(ArrayType((3, 4)), np.ones(12), to=(ArrayType((M, 4)), arrays), nowait=True, depend=[omp.in_(token)])
    omp.target_free(late)
    gate.fulfill()
    with pytest.raises(RegionClosedError):
        task.result()
    assert (arrays[2] == 1).all()


@pytest.mark.parametrize("clause", [{"depend": 3}, {"depend": [A]}, {"name": 3}])
def test_wrong_clauses(runtime, clause):
    """A wrong clause is an error at the call."""
    t = np.zeros(N)
    with pytest.raises(omp.DirectiveError):
        copy(A, np.ones(N), to=(TURNED, t), **clause)
    assert (t == 0).all()


def test_arrays_that_are_gone(allocate):
    """An array that was freed, at the call or before the task runs, is a `RegionClosedError`."""
    gone = omp.target_alloc(N, "f8")
    omp.target_free(gone)
    with pytest.raises(RegionClosedError):
        copy(A, np.ones(N), to=(TURNED, gone))
    for source, target in ((A, TURNED), (ArrayType((dim(N, func([*range(1, N), 0])),)), ArrayType(N))):
        late, gate, token = omp.target_alloc(N, "f8"), omp.Event(), np.zeros(1)
        omp.task(depend=[omp.out(token)], detach=gate)(lambda: None)()
        task = copy(source, np.ones(N), to=(target, late), nowait=True, depend=[omp.in_(token)])
        omp.target_free(late)
        gate.fulfill()
        with pytest.raises(RegionClosedError):
            task.result()


def test_another_runtime(runtime):
    """A device array of another runtime is no array of this one."""
    with omp.Runtime("sim:1"):
        foreign = omp.target_alloc(N, "f8")
        try:
            with omp.Runtime("sim:1"), pytest.raises(ClauseError):
                copy(A, foreign, to=(TURNED, np.zeros(N)))
        finally:
            omp.target_free(foreign)


def test_devices_of_two_kinds():
    """Devices of two kinds do not copy to each other, in one box, several, or by tables."""
    assert eager_device  # registers its kind
    with omp.Runtime("sim:1,eager:1"):
        x, y = omp.target_alloc(2 * N, "f8", 0), omp.target_alloc(2 * N, "f8", 1)
        try:
            with pytest.raises(UnsupportedError):
                copy(A, x, to=(TURNED, y))
            with pytest.raises(UnsupportedError):
                copy(ArrayType((dim(5, disp(2), wrap(5)),)), x, to=(ArrayType(5), y))
            shuffled = ArrayType((dim(N, func([7 * k % N for k in range(N)])),))
            assert plan(shuffled, ArrayType(N)).kind == "indexed"
            with pytest.raises(UnsupportedError):
                copy(shuffled, x, to=(ArrayType(N), y))
        finally:
            omp.target_free(x)
            omp.target_free(y)


def test_in_a_target_body(runtime):
    """In a target body a copy is a `UsageError`, as the memory routines are."""
    t = np.zeros(N)
    with pytest.raises(UsageError):
        omp.target()(lambda: copy(A, np.ones(N), to=(TURNED, t)))()
    assert (t == 0).all()


def test_ranks_without_mpi(monkeypatch):
    """``ranks`` where mpi4py is not installed is an `UnsupportedError` that says so."""
    with mock.patch.dict("sys.modules", {"offload.parray.exchanges": None}), pytest.raises(UnsupportedError):
        ranks(1)


def test_a_function_that_raises(runtime):
    """What a ``func`` raises arrives as it is, and what is no integer is a `LayoutError`; nothing is copied."""

    def broken(i):
        raise RuntimeError("mine")

    t = np.ones(4)
    with pytest.raises(RuntimeError, match="mine"):
        copy(ArrayType((dim(4, func(broken)),)), np.zeros(4), to=(ArrayType(4), t))
    with pytest.raises(LayoutError):
        copy(ArrayType((dim(4, func(lambda i: i / 2)),)), np.zeros(4), to=(ArrayType(4), t))
    assert (t == 1).all()


# -- what a copy does --------------------------------------------------------------------------------
def test_views(given):
    """A type's view is the array's memory: an axis for each leaf, with its stride."""
    x = given(np.arange(24.0))
    view = ArrayType((dim(2, disp(1), A[0]), A[1])).view(x)
    assert view.shape == (2, 6)
    assert values_of(view.copy()).tolist() == [list(range(6, 12)), list(range(12, 18))]
    with pytest.raises(LayoutError):
        ArrayType((dim(5, disp(2), wrap(5)),)).view(x)
    for bad in (x[:-1], x.reshape(4, 6).T, [1.0]):
        with pytest.raises(ClauseError):
            A.view(bad)
    with pytest.raises(LayoutError):
        ArrayType((threads(2), 3)).view(x)


def test_views_of_dates_and_records(runtime):
    """A view has the array's dtype, whatever that is."""
    dates = np.arange(24).astype("M8[D]")
    assert TURNED.view(dates)[1].tolist() == dates[1::6].tolist()
    records = np.zeros(24, [("a", "u1"), ("b", "f8")])
    records["b"] = np.arange(24)
    assert TURNED.view(records)["b"][2].tolist() == [2, 8, 14, 20]


def test_views_of_many_leaves(runtime):
    """A view has an axis for each leaf, of which an array has 64."""
    x = np.zeros(1)
    assert ArrayType((1,) * 64).view(x).shape == (1,) * 64
    with pytest.raises(omp.LayoutError):
        ArrayType((1,) * 65).view(x)


@pytest.mark.parametrize("dtype", ["M8[s]", "m8[us]", "U3", "S5", "V7", [("a", "u1"), ("b", "f8")], "f2", "?"])
def test_elements_are_moved(runtime, dtype):
    """Elements of every dtype without objects are moved as they are, also to another one of their size."""
    x = np.frombuffer(np.random.default_rng(0).bytes(N * np.dtype(dtype).itemsize), dtype)
    y = np.zeros(N, f"V{np.dtype(dtype).itemsize}")
    copy(A, x, to=(TURNED, y))
    assert y[TURNED.offsets()].tobytes() == x.tobytes()
    back = np.zeros(N, dtype)
    copy(TURNED, y, to=(A, back))
    assert back.tobytes() == x.tobytes()


def test_memory_maps(runtime, tmp_path):
    """A file is storage: read-only as a source, else as a target too."""
    path = tmp_path / "field"
    np.arange(24.0).tofile(path)
    y = np.zeros(24)
    copy(A, np.memmap(path, "f8", "r"), to=(TURNED, y))
    assert y[TURNED.offsets()].tolist() == list(range(24))
    written = np.memmap(path, "f8", "r+")
    copy(A, np.ones(24), to=(A, written))
    written.flush()
    assert np.fromfile(path).tolist() == [1.0] * 24
    with pytest.raises(ClauseError):
        copy(A, y, to=(A, np.memmap(path, "f8", "r")))


OVERLAPS = {
    "one step further": (ArrayType(20), ArrayType((dim(20, disp(1), ArrayType(24)),))),
    "one step back": (ArrayType((dim(20, disp(1), ArrayType(24)),)), ArrayType(20)),
    "reversed": (ArrayType(20), ArrayType((dim(20, func(list(range(19, -1, -1)))),))),
    "turned in place": (ArrayType((4, 4)), ArrayType((ArrayType((4, 4))[1], ArrayType((4, 4))[0]))),
    "shifted around": (ArrayType(20), ArrayType((dim(20, disp(7), wrap(20)),))),
    "shuffled": (ArrayType(20), ArrayType((dim(20, func([3 * k % 20 for k in range(20)])),))),
    "shuffled twice": (
        ArrayType((dim(20, func([7 * k % 20 for k in range(20)])),)),
        ArrayType((dim(20, func([11 * k % 20 for k in range(20)])),)),
    ),
    "broadcast into itself": (ArrayType((dim(4, wrap(1)), 5)), ArrayType((4, 5))),
    "itself": (ArrayType(20), ArrayType(20)),
}


@pytest.mark.parametrize("what", OVERLAPS)
def test_as_if_at_once(given, what):
    """All is read before anything is written, however source and target share memory."""
    source, target = OVERLAPS[what]
    x = given(np.arange(24.0))
    wanted = np.arange(24.0)
    wanted[target.offsets()] = np.arange(24.0)[source.offsets()]
    copy(source, x, to=(target, x))
    assert values_of(x).tolist() == wanted.tolist()


def test_a_large_transposition_in_place(runtime):
    """What is copied by blocks, which NumPy does not look after, is as if at once, too."""
    Q = ArrayType((1024, 1024))
    x = np.random.default_rng(0).random((1024, 1024))
    wanted = x.T.copy()
    copy(Q, x, to=(ArrayType((Q[1], Q[0])), x))
    assert (x == wanted).all()


@pytest.mark.parametrize("shifts", [(0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("sides", ["hh", "hd", "dh", "dd"])
def test_large_pairs_off_the_alignment(runtime, allocate, sides, shifts):
    """Pairs of numbers, turned as one element, need not be aligned as one, on either side."""
    n = 512
    numbers = np.arange(n * n * 2 + 2, dtype="f4")
    x, y = (allocate(numbers) if side == "d" else numbers.copy() for side in sides)
    x, y = (array[shift : shift + n * n * 2].reshape(n, n, 2) for array, shift in zip((x, y), shifts, strict=True))
    A = ArrayType((n, n, 2))
    wanted = values_of(x).transpose(1, 0, 2)
    copy(A, x, to=(ArrayType((A[1], A[0], A[2])), y))
    assert (values_of(y) == wanted).all()
    omp.target_memset(y, 0) if sides[1] == "d" else y.fill(0)
    omp.target_memcpy_rect(y, x.transpose(1, 0, 2))
    assert (values_of(y) == wanted).all()


def test_parts_of_one_array(given):
    """Two views of one array that share part of it are as if at once, too."""
    x = given(np.arange(24.0))
    wanted = np.arange(24.0)
    wanted[4:20] = wanted[:16].reshape(4, 4).T.reshape(-1)
    Q = ArrayType((4, 4))
    copy(Q, x[:16], to=(ArrayType((Q[1], Q[0])), x[4:20]))
    assert values_of(x).tolist() == wanted.tolist()


def test_lists_that_share_memory(runtime, allocate):
    """A ring on one list of arrays, on the host, on devices and on both, is as if at once."""
    P, n = 4, 6
    M = threads(P)
    S, T = ArrayType((dim(P, disp(1), wrap(P), M), n)), ArrayType((M, n))
    last = omp.get_num_devices() - 1
    for where in ([-1] * P, [0] * P, [-1, 0, -1, last], [last, 0, last, 0], [0, -1, last, -1]):
        values = [np.full(n, float(k)) for k in range(P)]
        arrays = [one if d < 0 else allocate(one, d) for one, d in zip(values, where, strict=True)]
        copy(S, arrays, to=(T, arrays))
        assert [values_of(one).tolist() for one in arrays] == [[float((k + 1) % P)] * n for k in range(P)]


def test_disjoint_boxes_need_no_temporary(runtime, allocate):
    """Boxes of one array that do not overlap are copied directly."""
    x = allocate(np.arange(48.0))
    rows = ArrayType((8, 6))
    with (
        mock.patch.object(moves, "MovesWork", side_effect=AssertionError),
        mock.patch.object(moves, "copy_on_host", side_effect=AssertionError),
    ):
        copy(ArrayType((dim(4, rows[0]), rows[1])), x, to=(ArrayType((dim(4, disp(4), rows[0]), rows[1])), x))
    assert on_host(x)[24:].tolist() == list(range(24))


def test_depend_orders_it(given):
    """A deferred copy waits for what it depends on, and what depends on its views waits for it."""
    for target in (
        TURNED,
        ArrayType((A[0], dim(6, disp(2), wrap(6), A[1]))),
        ArrayType((dim(N, func([*range(1, N), 0])),)),
    ):
        x, y, seen = given(np.zeros(N)), given(np.zeros(N)), np.zeros(N)
        gate = omp.Event()
        ones = np.ones(N)
        omp.task(depend=[omp.out(ones)], detach=gate)(lambda: None)()
        copy(A, ones, to=(A, x), nowait=True, depend=[omp.in_(ones), omp.out(x)])
        task = copy(A, x, to=(target, y), nowait=True, depend=[omp.in_(A.view(x)), omp.out(y)], name="turn")
        copy(A, y, to=(A, seen), nowait=True, depend=[omp.in_(y), omp.out(seen)])
        assert not task.done()
        assert task.name == "turn"
        gate.fulfill()
        omp.taskwait()
        assert (seen == 1).all()


def test_one_node_of_a_graph(given):
    """In a recorded region a copy is one node with its name, whatever it is made of, and copies at each replay."""
    x, y = given(np.arange(float(N))), given(np.zeros(N))
    for target in KINDS:
        with omp.record() as graph:
            copy(A, x, to=(target, y), nowait=True, name="first")
            copy(target, y, to=(A, x), nowait=True)
        assert [node.name for node in graph.tasks] == ["first", "parray.copy"]


@pytest.mark.parametrize("is_distributed", [False, True])
def test_replays(runtime, allocate, is_distributed):
    """A region that is replayed copies what the arrays hold then."""
    P = 3
    M = threads(P)
    D = ArrayType((P, 4))
    S, T = (ArrayType((M, D[0], D[1])), ArrayType((D[0], M, D[1]))) if is_distributed else (A, TURNED)
    n = P if is_distributed else 1
    arrays = [[allocate(np.zeros(side.span), k % omp.get_num_devices()) for k in range(n)] for side in (S, T)]
    s, t = arrays if is_distributed else (arrays[0][0], arrays[1][0])

    @omp.taskgraph
    def region():
        copy(S, s, to=(T, t), nowait=True, depend=[omp.inout(arrays[1][0])])

    for round_ in range(4):
        values = [np.random.default_rng(round_ + k).random(S.span) for k in range(n)]
        for array, value in zip(arrays[0], values, strict=True):
            omp.target_memcpy(array, value)
        wanted = [np.zeros(T.span) for _ in range(n)]
        copy(S, values if is_distributed else values[0], to=(T, wanted if is_distributed else wanted[0]))
        region()
        omp.taskwait()
        assert [on_host(one).tolist() for one in arrays[1]] == [one.tolist() for one in wanted]


def test_empty(given):
    """Types without elements copy nothing, and take arrays without elements."""
    E = ArrayType((0, 3))
    x = given(np.ones(4))
    assert copy(E, x, to=(E, x)) is None
    assert isinstance(copy(E, np.empty(0), to=(ArrayType(0), x), nowait=True), omp.Task)
    omp.taskwait()
    M = threads(2)
    copy(ArrayType((M, 0)), [], to=(ArrayType((M, 0)), [None, None]))
    assert (values_of(x) == 1).all()


def test_large_tables(runtime):
    """A table of millions of entries is copied by, and tables that are kept stay within a bound."""
    n = 1 << 20
    order = np.random.default_rng(0).permutation(n)
    S = ArrayType((dim(n, func(order)),))
    x, y = np.arange(float(n)), np.zeros(n)
    copy(S, x, to=(ArrayType(n), y))
    assert (y == order).all()
    assert plan(S, ArrayType(n)).kind == "indexed"


def test_messages_show_the_trees(runtime):
    """A message says which storage, and the type as it is written."""
    with pytest.raises(ClauseError, match=re.escape("[4][6]")) as caught:
        copy(A, np.zeros(3), to=(TURNED, np.zeros(N)))
    assert "the source" in str(caught.value)
    with pytest.raises(LayoutError, match=re.escape("[4][6]")):
        copy(A, np.zeros(N), to=(ArrayType(5), np.zeros(N)))
