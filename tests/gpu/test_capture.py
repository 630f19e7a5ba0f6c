"""`taskgraph` on CUDA graphs: results as without, what is captured again, and what cannot be captured."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest

import offload as omp
from offload import alloc, from_, in_, inout, mutexinoutset, out, to, tofrom
from tests.conftest import checked
from tests.gpu.conftest import cupy, cupyx, device_array, python

pytestmark = pytest.mark.gpu

N = 1000


def pinned(values, shape=None):
    array = cupyx.empty_pinned(np.shape(values) if shape is None else shape, "f8")
    array[...] = values
    return array


@pytest.fixture
def axpy():
    """A target function of the test's own: one that outlives it would keep its runtime."""

    @omp.target(nowait=True)
    def axpy(a, x, y):
        y += a * x

    return axpy


@pytest.fixture
def scale():
    @omp.target(nowait=True)
    def scale(a, y):
        y *= a

    return scale


# -- what is captured ------------------------------------------------------------------------------


def test_a_replay_is_one_graph(gpu):
    """The bodies run when the region is recorded and captured, and never again; the results are those of the tasks."""
    n_bodies = 0
    x, y = np.arange(N, dtype="f8"), np.zeros(N)

    @omp.target(nowait=True, depend=[inout("y")])
    def step(a, x, y):
        nonlocal n_bodies
        n_bodies += 1
        y *= 0.5
        y += a * x

    @omp.taskgraph
    def steps(x, y):
        for a in range(5):
            step(a, x, y)

    expected = np.zeros(N)
    with omp.target_data(map=[to(x), tofrom(y)]):
        for _ in range(4):
            steps(x, y)
            for a in range(5):
                expected = expected * 0.5 + a * x
        (record,) = steps.records
        assert (record.is_captured, record.why_not, record.n_captured, record.n_tasks) == (True, "", 1, 5)
        assert record.nbytes > 0
    assert n_bodies == 10
    assert np.allclose(y, expected, rtol=1e-14)


def test_branches_and_joins(gpu):
    """Dependences, also between branches, hold in a graph; each tile meets its neighbours of the step before."""
    k, steps = 12, 9
    start = np.random.default_rng(1).random((k, N))
    old, new = start.copy(), np.zeros((k, N))

    @omp.target(
        nowait=True, map=[to("a"), to("b"), to("c"), from_("d")], depend=[in_("a"), in_("b"), in_("c"), out("d")]
    )
    def mean(a, b, c, d):
        d[...] = (a + b + c) / 3

    @omp.taskgraph
    def sweep(old, new):
        for step in range(steps):
            source, target = (old, new) if step % 2 == 0 else (new, old)
            for tile in range(k):
                mean(source[tile - 1], source[tile], source[(tile + 1) % k], target[tile])
            if step == 4:
                omp.taskwait()

    expected = [start.copy(), np.zeros((k, N))]
    with omp.target_data(map=[tofrom(old), tofrom(new)]):
        for _ in range(3):
            sweep(old, new)
            for step in range(steps):
                source, target = expected[step % 2], expected[1 - step % 2]
                target[...] = (np.roll(source, 1, 0) + source + np.roll(source, -1, 0)) / 3
        assert sweep.records[0].is_captured
    assert np.allclose(old, expected[0], rtol=1e-13)
    assert np.allclose(new, expected[1], rtol=1e-13)


def test_exclusions_and_groups(gpu, scale):
    """Tasks that only exclude each other do so in a graph; a taskgroup in the region ends before what follows it."""
    y = np.zeros(N)

    @omp.target(nowait=True, depend=[mutexinoutset("y")])
    def add(a, y):
        for _ in range(20):
            y += a

    @omp.taskgraph
    def region(y):
        with omp.taskgroup():
            for a in range(8):
                add(a, y)
        scale(0.5, y)

    with omp.target_data(map=[tofrom(y)]):
        for _ in range(3):
            region(y)
        assert region.records[0].is_captured
    expected = 0.0
    for _ in range(3):
        expected = (expected + 20 * 28) * 0.5
    assert (y == expected).all()


def test_pinned_memory_is_read_and_written_at_each_replay(gpu):
    """Copies of pinned memory are part of the graph: what stands there at a replay is what is copied."""
    x, y = pinned(np.zeros(N)), pinned(np.zeros(N))
    d = device_array(np.zeros(N))

    @omp.target(nowait=True, map=[to("x"), tofrom("y")], depend=[inout("y")])
    def add(x, y):
        y += x

    @omp.taskgraph
    def region(x, y, d):
        add(x, y)
        omp.target_memcpy_async(d, y, depend=[in_(y), out(d)])
        omp.target_memset_async(d[:10].view("u1"), 0, depend=[inout(d)])

    total = 0.0
    for value in (1.0, 2.0, 3.0, 4.0):
        x[...] = value
        total += value
        region(x, y, d)
        assert (y == total).all()
    (record,) = region.records
    assert record.is_captured
    assert record.nbytes >= 2 * y.nbytes
    assert not omp.target_is_present(x)
    assert (d.get() == np.where(np.arange(N) < 10, 0, total)).all()
    omp.target_free(d)


def test_updates_and_data_regions_inside(gpu, scale):
    """target_update, enter and exit inside of the region are copies of the graph; outside nothing is left of them."""
    x, y, kept = pinned(np.zeros(N)), pinned(np.zeros(N)), pinned(np.ones(N))

    @omp.taskgraph
    def region(x, y, kept):
        omp.target_enter_data(map=[to(x), alloc(y)], nowait=True, depend=[out(x), out(y)])
        omp.target_update(to=[kept], nowait=True, depend=[inout(kept)])
        scale.options(depend=[inout(x)])(2.0, x)
        assign.options(depend=[in_(x), in_(kept), inout(y)])(x, kept, y)
        omp.target_update(from_=[y[: N // 2]], nowait=True, depend=[inout(y)])
        omp.target_exit_data(map=[from_(x), omp.release(y)], nowait=True, depend=[inout(x), in_(y)])

    @omp.target(nowait=True)
    def assign(x, kept, y):
        y[...] = x + kept

    with omp.target_data(map=[alloc(kept)]):
        for value in (1.0, 2.0, 3.0):
            x[...] = value
            kept[...] = 10 * value
            y[...] = -1
            region(x, y, kept)
            assert (x == 2 * value).all()
            assert (y == np.where(np.arange(N) < N // 2, 12 * value, -1)).all()
        assert region.records[0].is_captured, region.records
        assert not omp.target_is_present(y)
        assert omp.target_is_present(kept)


def test_device_arrays_follow_the_caller(gpu, latch, scale):
    """A graph that is given device arrays starts after what the caller's stream held at the call."""
    d = device_array(np.zeros(N))

    @omp.taskgraph
    def region(d):
        scale(2.0, d)

    region(d)
    region(d)
    assert region.records[0].is_captured
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        latch.hold(stream)
        d += 3
        region.options(nogroup=True)(d)
        later = omp.task(lambda: None)()
    assert later.result() is None
    latch.release()
    omp.taskwait()
    assert (d.get() == 6).all()
    omp.target_free(d)


def test_scalars_are_those_that_were_recorded(gpu, axpy):
    """Scalars are captured by value, and other scalars are another record."""
    y = np.zeros(N)

    @omp.taskgraph
    def region(a, y):
        axpy(a, y, y)

    with omp.target_data(map=[tofrom(y)]):
        omp.target_update(to=[y])
        for a in (1.0, 2.0) * 3:
            y[...] = 1
            omp.target_update(to=[y])
            region(a, y)
            omp.target_update(from_=[y])
            assert (y == 1 + a).all()
        assert [record.is_captured for record in region.records] == [True, True]


# -- memory ----------------------------------------------------------------------------------------


def test_temporaries_belong_to_the_graph(gpu):
    """What bodies allocate under capture is nobody else's: other allocations and graphs leave it alone."""
    x, y = np.arange(N, dtype="f8"), np.zeros(N)

    @omp.target(nowait=True, depend=[inout("y")])
    def body(x, y):
        a = x + 1
        b = cupy.sqrt(a)
        y += b.sum() + a * b

    regions = [omp.taskgraph(body) for _ in range(2)]
    expected = np.zeros(N)
    with omp.target_data(map=[to(x), tofrom(y)]):
        for _ in range(4):
            for region in regions:
                region(x, y)
                others = [cupy.full(size, np.nan) for size in (N, 10, N, 1, 5000)]
                expected += np.sqrt(x + 1).sum() + (x + 1) * np.sqrt(x + 1)
        assert all(region.records[0].is_captured for region in regions)
        del others
    assert np.allclose(y, expected, rtol=1e-12)


def test_fft_plans_stay(gpu):
    """A graph with a transform is right after CuPy has forgotten the plan."""
    z = np.random.default_rng(2).random((64, 256)) + 0j
    start = z.copy()

    @omp.target(nowait=True)
    def transform(z):
        z[...] = cupy.fft.fft(z) / 16

    region = omp.taskgraph(transform)
    with omp.target_data(map=[tofrom(z)]):
        for _ in range(4):
            region(z)
            cupy.fft.config.get_plan_cache().clear()
            cupy.full(1 << 20, np.nan)
        assert region.records[0].is_captured, region.records
    for _ in range(4):
        start = np.fft.fft(start) / 16
    assert np.allclose(z, start)


@pytest.mark.parametrize("size", [0, 1])
def test_fft_plans_that_the_cache_has_no_room_for_stay(gpu, size):
    """Every plan that a body uses lives as long as the graph, whatever the size of CuPy's cache, which is as before."""
    z = np.random.default_rng(3).random((32, 240)) + 0j
    start = z.copy()
    shapes = [(32, 240), (64, 120), (96, 80), (128, 60)]

    @omp.target(nowait=True)
    def transform(z):
        for shape in shapes:
            part = z.reshape(shape)
            part[...] = cupy.fft.fft(part) / shape[1] ** 0.5

    region = omp.taskgraph(transform)
    cache = cupy.fft.config.get_plan_cache()
    before = cache.get_size(), cache.get_memsize()
    cache.set_size(size)
    try:
        with omp.target_data(map=[tofrom(z)]):
            for _ in range(4):
                region(z)
                assert cache.get_size() == size
                assert cache.get_curr_size() <= size
                cache.clear()
                cupy.full(1 << 20, np.nan)
            assert region.records[0].is_captured, region.records
    finally:
        cache.set_size(before[0])
    assert (cache.get_size(), cache.get_memsize()) == before
    for _ in range(4):
        for shape in shapes:
            start = (np.fft.fft(start.reshape(shape)) / shape[1] ** 0.5).reshape(z.shape)
    assert np.allclose(z, start)


def test_arrays_in_containers_and_helpers_are_kept(gpu):
    """Device arrays that a body reaches indirectly stay where the graph has them."""
    box = {"factor": cupy.full(N, 2.0)}
    summand = cupy.full(N, 1.0)
    y = np.ones(N)

    def add(y):
        y += summand

    @omp.target(nowait=True)
    def body(y):
        y *= box["factor"]
        add(y)

    region = omp.taskgraph(body)
    with omp.target_data(map=[tofrom(y)]):
        region(y)
        region(y)
        assert region.records[0].is_captured
        box.clear()
        summand = None
        others = [cupy.full(N, np.nan) for _ in range(4)]
        region(y)
        del others
    assert (y == 15).all()


def test_a_method_sees_its_attributes_of_now(gpu):
    """A bound method is not captured: an attribute that is another array at the next replay is used there."""

    class Model:
        def __init__(self):
            self.factor = cupy.full(N, 2.0)

        def step(self, y):
            y *= self.factor

    model = Model()
    y = np.ones(N)
    region = omp.taskgraph(omp.target(nowait=True)(model.step))
    with omp.target_data(map=[tofrom(y)]):
        region(y)
        region(y)
        model.factor = cupy.full(N, 3.0)
        cupy.cuda.Device().synchronize()  # replays do not follow this thread's stream, where the factor is written
        region(y)
        assert "Model" in region.records[0].why_not
    assert (y == 12).all()


def test_copies_back_and_replays_follow_each_other(gpu):
    """A replay reads pinned memory after a task has copied back to it, and a task after a replay has."""
    x = pinned(np.zeros(1 << 22))

    @omp.target(nowait=True, map=[tofrom("x")])
    def add(x):
        x += 1

    region = omp.taskgraph(nogroup=True)(lambda x: add(x))  # noqa: PLW0108  # a region with a task
    for _ in range(3):
        region(x)
        omp.taskwait()
    assert region.records[0].is_captured, region.records
    for _ in range(10):
        add(x)
        region(x)
    omp.taskwait()
    assert (x == 23).all()


def test_arrays_of_a_closure_are_kept(gpu):
    """A device array that a body reaches by its closure stays where the graph has it."""
    factor = cupy.full(N, 2.0)
    y = np.ones(N)

    @omp.target(nowait=True)
    def multiply(y):
        y *= factor

    region = omp.taskgraph(multiply)
    with omp.target_data(map=[tofrom(y)]):
        region(y)
        region(y)
        assert region.records[0].is_captured
        factor = cupy.full(10, 1.0)
        others = [cupy.full(N, np.nan) for _ in range(4)]
        region(y)
        del others
    assert (y == 8).all()


@pytest.mark.measures
def test_memory_goes_with_the_record(gpu):
    """graph_reset, other records and the end of the runtime let a graph and its memory go."""
    free_nbytes = []
    big = np.zeros(1 << 20)

    @omp.target(nowait=True)
    def body(n, y):
        y += cupy.ones(1 << 24)[: y.size] * n

    region = omp.taskgraph(body)
    with omp.target_data(map=[tofrom(big)]):
        for n in range(12):
            region(n, big)
            region(n, big)
            assert region.records[-1].is_captured
            cupy.get_default_memory_pool().free_all_blocks()
            free_nbytes.append(cupy.cuda.runtime.memGetInfo()[0])
        assert len(region.records) == 8
        assert free_nbytes[-1] == pytest.approx(free_nbytes[7], abs=1 << 26)
        assert free_nbytes[0] - free_nbytes[7] > 6 << 27
        region.options(graph_reset=True)(11, big)
        assert not region.records[-1].is_captured
    assert (big == 2 * sum(range(12)) + 11).all()


# -- what changes ----------------------------------------------------------------------------------


def test_storage_that_is_elsewhere_is_captured_again(gpu, scale):
    """A region is captured again when what it uses was mapped elsewhere, and not when it is where it was."""
    y = np.ones(N)
    region = omp.taskgraph(lambda y: scale(2.0, y))
    blocks, places, captured = [], [], []
    for turn in range(6):
        if turn in {2, 4}:
            blocks.append(omp.target_alloc(N, "f8"))  # takes the block that y had
        with omp.target_data(map=[tofrom(y)]):
            places.append(omp.get_mapped_ptr(y).data.ptr)
            region(y)
            region(y)
            captured.append(region.records[0].n_captured)
    assert (y == 2.0**12).all()
    moved = [here != before for before, here in itertools.pairwise(places)]
    assert captured == [1, *(1 + sum(moved[:turn]) for turn in range(1, 6))]
    assert captured[-1] > 1
    assert region.records[0].is_captured
    for block in blocks:
        omp.target_free(block)


def test_storage_that_is_gone_is_mapped_anew(gpu, axpy):
    """A replay where nothing is present maps as the tasks would; and uses what is present when it is again."""
    x, y = pinned(np.ones(N)), pinned(np.zeros(N))
    region = omp.taskgraph(lambda x, y: axpy(1.0, x, y))
    with omp.target_data(map=[to(x), tofrom(y)]):
        for _ in range(3):
            region(x, y)
        assert (y == 0).all()
    assert (y == 3).all()
    for _ in range(3):
        region(x, y)
    assert (y == 6).all()
    with omp.target_data(map=[to(x), tofrom(y)]):
        x[...] = 5
        for _ in range(3):
            region(x, y)
        assert (y == 6).all()
    assert (y == 9).all()
    record = region.records[0]
    assert (record.is_captured, record.n_captured) == (True, 3)


def test_storage_that_moves_each_time_is_left_to_streams(gpu, scale):
    """Where each capture serves one replay, the region is carried out on streams, says so, and comes back later."""
    y = np.zeros(N)
    region = omp.taskgraph(lambda y: scale(2.0, y))
    blocks = []
    for _ in range(12):
        y[...] = 1
        blocks.append(omp.target_alloc(N, "f8"))
        with omp.target_data(map=[tofrom(y)]):
            region(y)
        assert (y == 2).all()
    record = region.records[0]
    assert not record.is_captured
    assert record.n_captured == 3
    assert "mapped elsewhere" in record.why_not
    y[...] = 1
    blocks.append(omp.target_alloc(N, "f8"))
    with omp.target_data(map=[tofrom(y)]):
        for number in range(18):
            assert region.records[0].is_captured is (number == 17)
            region(y)
    assert (y == 2.0**18).all()
    record = region.records[0]
    assert (record.is_captured, record.why_not, record.n_captured) == (True, "", 4)
    for block in blocks:
        omp.target_free(block)


# -- what cannot be captured -----------------------------------------------------------------------


def pageable(y, d):
    omp.target_update(to=[y], nowait=True)


def mapped_pageable(y, d):
    omp.target(nowait=True)(lambda other: None)(np.ones(N))


def host_task(y, d):
    omp.task(lambda: None)()


def unbalanced(y, d):
    omp.target_enter_data(map=[to(y)], nowait=True)


def ends_outer(y, d):
    omp.target_exit_data(map=[omp.release(y)], nowait=True)
    omp.target_enter_data(map=[to(y)])


def event(y, d):
    done = omp.Event()
    omp.task(detach=done)(done.fulfill)()


def synchronises(y, d):
    omp.target(nowait=True)(lambda y: cupy.cuda.get_current_stream().synchronize())(y)


def reads_a_value(y, d):
    omp.target(nowait=True)(lambda y: float(y.sum()))(y)


def copies_to_the_device(y, d):
    host = np.zeros(N)
    omp.target(nowait=True)(lambda y: y + cupy.asarray(host))(y)


def multiplies_matrices(y, d):
    omp.target(nowait=True)(lambda y: y[:900].reshape(30, 30) @ y[:900].reshape(30, 30))(y)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (pageable, "pageable"),
        (mapped_pageable, "pageable"),
        (host_task, "host"),
        (unbalanced, "leaves"),
        (ends_outer, "there before"),
        (event, "event"),
        (synchronises, "cudaErrorStreamCaptureUnsupported"),
        (reads_a_value, "D2H"),
        (copies_to_the_device, "H2D"),
        (multiplies_matrices, "cuBLAS"),
    ],
)
def test_what_cannot_be_captured_says_why(gpu, axpy, body, why):
    """A region that cannot be a graph is replayed on streams, with the same results, and the record says why."""
    y = np.zeros(N)
    d = cupy.zeros(4)

    @omp.target(nowait=True, depend=[inout("y")])
    def add(y):
        y += 1

    def region(y, d):
        add(y)
        body(y, d)
        omp.taskwait()
        add(y)

    region = omp.taskgraph(region)
    for _ in range(2):
        omp.target_enter_data(map=[to(y)])
    for n in range(1, 4):
        region(y, d)
        if body is not pageable:
            omp.target_update(from_=[y])
            assert (y == 2 * n).all()
    (record,) = region.records
    assert not record.is_captured
    assert why in record.why_not
    assert record.n_captured == record.nbytes == 0
    omp.target_exit_data(map=[omp.delete(y)])
    other = np.ones(N)  # the device is as good as before
    axpy(1.0, other, other)
    omp.taskwait()
    assert (other == 2).all()


def test_a_body_that_fails_fails_for_whoever_waits(gpu):
    """A body that raises at a replay does so on streams, and its own exception arrives."""
    y = np.zeros(N)
    fails = False

    @omp.target(nowait=True)
    def body(y):
        if fails:
            raise ZeroDivisionError("here")
        y += 1

    region = omp.taskgraph(body)
    with omp.target_data(map=[tofrom(y)]):
        region(y)
        fails = True
        with pytest.raises(ExceptionGroup) as caught:
            region(y)
        assert caught.group_contains(ZeroDivisionError, match="here")
        del caught  # the traceback has the arrays of the body
        assert "ZeroDivisionError" in region.records[0].why_not
        fails = False
        region(y)
    assert (y == 2).all()


# -- several at a time -----------------------------------------------------------------------------


def test_replays_that_nobody_waits_for_follow_each_other(gpu):
    """Launches of one graph never overlap, also without waits in between; taskwait waits for the last."""
    x, y = np.ones(N), np.zeros(N)

    @omp.target(nowait=True, depend=[inout("y")])
    def step(x, y):
        y += x
        y *= 1.0

    @omp.taskgraph(nogroup=True)
    def region(x, y):
        for _ in range(50):
            step(x, y)

    with omp.target_data(map=[to(x), tofrom(y)]):
        region(x, y)
        omp.taskwait()
        for _ in range(40):
            region(x, y)
        omp.taskwait()
        assert region.records[0].is_captured
        omp.target_update(from_=[y])
        assert (y == 50 * 41).all()


def test_threads_that_replay_and_others_that_compute(gpu, axpy):
    """Threads may replay one graph, capture others and use the device otherwise at the same time."""
    shared = np.zeros(N)
    failures = []
    stop = threading.Event()

    @omp.target(nowait=True, depend=[inout("y")])
    def step(y):
        y += cupy.ones(N)

    region = omp.taskgraph(lambda y: [step(y) for _ in range(10)])

    def replay(n):
        own = np.zeros(N)
        try:
            with omp.target_data(map=[tofrom(own)]):
                for _ in range(n):
                    region(shared)
                    region.options(graph_id=threading.get_ident())(own)
            assert (own == 10 * n).all(), own[0]
        except BaseException as error:
            failures.append(error)

    def compute():
        stream = cupy.cuda.Stream(non_blocking=True)
        try:
            while not stop.is_set():
                with stream:
                    assert float((cupy.ones(5000) * 2).sum()) == 10000
                extra = np.ones(N)
                axpy(1.0, extra, extra).result()
                assert (extra == 2).all()
        except BaseException as error:
            failures.append(error)

    with omp.target_data(map=[tofrom(shared)]):
        region(shared)
        others = [threading.Thread(target=compute) for _ in range(2)]
        threads = [threading.Thread(target=replay, args=(15,)) for _ in range(3)]
        for thread in (*others, *threads):
            thread.start()
        for thread in threads:
            thread.join()
        stop.set()
        for thread in others:
            thread.join()
        assert not failures, failures
        assert any(record.is_captured and record.graph_id is None for record in region.records)
    assert (shared == 10 * 46).all()


def test_a_capture_that_another_thread_ends_is_tried_again(gpu):
    """Who synchronises the whole device ends a capture; that replay is carried out on streams, the next captures."""
    y = np.zeros(N)
    n_refused = 0

    def synchronise():
        nonlocal n_refused
        try:
            cupy.cuda.Device().synchronize()
        except cupy.cuda.runtime.CUDARuntimeError:
            n_refused += 1

    @omp.target(nowait=True)
    def body(y):
        if not n_refused:
            thread = threading.Thread(target=synchronise)
            thread.start()
            thread.join()
        y += 1

    region = omp.taskgraph(lambda y: body(y))  # noqa: PLW0108  # a region with a task
    with omp.target_data(map=[tofrom(y)]):
        captured = []
        for _ in range(4):
            region(y)
            captured += [record.is_captured for record in region.records]
    assert n_refused == 1
    assert captured == [False, False, True, True]
    assert (y == 4).all()


def test_the_runtime_synchronises_no_device_under_capture(gpu):
    """A thread that synchronises a device object waits for a capture to end."""
    y = np.zeros(N)
    n_started = 0

    @omp.target(nowait=True)
    def body(y):
        nonlocal n_started
        threading.Thread(target=omp.device(0).synchronize, name="synchronises").start()
        n_started += 1
        y += 1

    region = omp.taskgraph(lambda y: body(y))  # noqa: PLW0108  # a region with a task
    with omp.target_data(map=[tofrom(y)]):
        for _ in range(3):
            region(y)
        for thread in threading.enumerate():
            if thread.name == "synchronises":
                thread.join()
        assert region.records[0].is_captured
        assert n_started == 2
    assert (y == 3).all()


def test_a_graph_outlives_its_record_while_in_flight(gpu, latch, axpy):
    """A record may be reset while its graph is at work."""
    x, y = pinned(np.ones(N)), np.zeros(N)
    region = omp.taskgraph(nogroup=True)(lambda x, y: axpy(1.0, x, y))
    with omp.target_data(map=[tofrom(y)]):
        for _ in range(3):
            region(x, y)
            omp.taskwait()
        assert region.records[0].is_captured
        d = device_array(np.zeros(1))
        held = omp.target(nowait=True)(lambda d: latch.hold(omp.current_stream()))(d)
        for place in gpu.places:
            for lane in place.pool.lanes:
                lane.wait_for([held.point])
        region(x, y)
        region.options(graph_reset=True, if_=False)(x, y)
        assert region.records == ()
        latch.release()
        omp.taskwait()
        omp.target_free(d)
    assert (y == 5).all()


def test_closing_ends_graphs(scale):
    """At the end of its runtime a record goes, with graph and memory; in another it is recorded anew."""
    region = omp.taskgraph(lambda y: scale(2.0, y))
    for _ in range(2):
        y = np.ones(N)
        with checked("cuda:0"), omp.target_data(map=[tofrom(y)]):
            for _ in range(3):
                region(y)
            assert region.records[-1].is_captured
        assert (y == 8).all()
        assert region.records == ()


def test_a_lost_device_fails_the_replay():
    """A graph whose kernel fails loses the device, and the waiting thread hears of it."""
    written, _ = python("""
        source = 'extern "C" __global__ void k(int* go) { if (*go) *(volatile int*)0 = 1; }'
        kernel = cupy.RawKernel(source, "k")
        go = np.zeros(1, "i4")

        @omp.target(nowait=True)
        def body(go):
            kernel((1,), (1,), (go,))

        region = omp.taskgraph(lambda go: body(go))
        with omp.Runtime("cuda:0") as runtime:
            omp.target_enter_data(map=[to(go)])
            for _ in range(3):
                region(go)
            assert region.records[0].is_captured
            go[0] = 1
            omp.target_update(to=[go])
            try:
                region(go)
            except ExceptionGroup as group:
                print("lost", group.exceptions[0].__class__.__name__)
            sys.stdout.flush()
            os._exit(0)
    """)
    assert "lost DeviceLostError" in written
