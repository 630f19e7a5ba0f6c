"""`buffers`: device arrays for the time of a block, used in turn."""

from __future__ import annotations

import asyncio
import signal
import threading

import numpy as np
import pytest

import offload as omp
from offload import in_, inout, out
from tests.conftest import checked

SHAPE = (4, 5)


def live_nbytes():
    """Return the bytes that the arrays of all devices hold."""
    return sum(device.live_nbytes() for device in omp.devices())


@omp.target(nowait=True)
def add(d, value):
    d += value


def test_a_pipeline(runtime):
    """Pieces go through three buffers in turn, each by dependences on the buffer; at the end all are freed."""
    x = np.arange(10.0 * 20).reshape(10, *SHAPE)
    expected = x + 1
    with omp.buffers(3, SHAPE) as ring:
        for k, piece in enumerate(x):
            omp.copy(ring[k], piece, depend=[in_(piece), out(ring[k])], nowait=True)
            add.options(depend=[inout(ring[k])])(ring[k], 1.0)
            omp.copy(piece, ring[k], depend=[in_(ring[k]), out(piece)], nowait=True)
    assert (x == expected).all()
    assert live_nbytes() == 0


def test_the_ring(runtime):
    """It indexes modulo n with any sign, has a length, and yields each array once; arrays are the same objects."""
    last = omp.get_num_devices() - 1
    with omp.buffers(np.int64(4), SHAPE, "f4", device=last) as ring:
        arrays = list(ring)
        assert len(ring) == len(arrays) == len({id(array) for array in arrays}) == 4
        assert all(array.shape == SHAPE and array.dtype == np.float32 for array in arrays)
        assert all(omp.target_is_accessible(array, last) for array in arrays)
        for k in (*range(-9, 9), np.int32(7)):
            assert ring[k] is arrays[int(k) % 4]
        for wrong in (slice(0, 2), 1.0, "0", None):
            with pytest.raises(omp.ClauseError, match=r"buffers: .*use an int"):
                ring[wrong]
        del arrays
    with omp.buffers(2, 3) as ring:
        assert ring[1].dtype == np.float64
    assert live_nbytes() == 0


def test_the_end_waits_for_tasks_that_nothing_orders(runtime):
    """Tasks of the block that use an array, their own tasks too, are complete before it is freed; no depend needed."""
    seen, event = [], omp.Event()
    with omp.buffers(2, 8) as ring:
        omp.target_memset(ring[0], 0)

        def outer():
            omp.task(lambda: omp.target(lambda d: seen.append(float(d.sum())))(ring[0]))()

        omp.task(lambda: None, detach=event, depend=[out(("go",))])()
        omp.task(outer, depend=[in_(("go",))])()
        omp.task(event.fulfill)()
    assert seen == [0.0]


def test_nothing_is_usable_outside(runtime):
    """The ring before and after the block, and an array of it after the block, are errors; so is a second block."""
    ring = omp.buffers(2, SHAPE)
    for use in (lambda: ring[0], lambda: list(ring)):
        with pytest.raises(omp.UsageError, match=r"with omp\.buffers"):
            use()
    with ring as same:
        assert same is ring
        kept = ring[0]
    for use in (lambda: ring[0], lambda: list(ring)):
        with pytest.raises(omp.RegionClosedError, match="block has ended"):
            use()
    with pytest.raises(omp.RegionClosedError, match="the end of buffers"):
        omp.target_memset(kept, 0)
    with pytest.raises(omp.UsageError, match="entered once"), ring:
        pass
    assert len(ring) == 2
    assert "buffers 2" in repr(ring)


def test_an_array_that_the_block_frees_itself(runtime):
    """target_free in the block is allowed: the end frees the others."""
    with omp.buffers(3, SHAPE) as ring:
        before = live_nbytes()
        omp.target_free(ring[1])
        with pytest.raises(omp.RegionClosedError, match="target_free"):
            omp.target_memset(ring[1], 0)
        assert live_nbytes() == before  # the ring still has it
    assert live_nbytes() == 0


def test_on_the_host():
    """Without a device, or with the host's number, they are NumPy arrays."""
    with omp.Runtime("none", check=True), pytest.warns(omp.HostFallbackWarning), omp.buffers(2, SHAPE) as ring:
        assert type(ring[0]) is np.ndarray
    with omp.Runtime("sim", check=True), omp.buffers(2, SHAPE, device=omp.initial_device) as ring:
        assert type(ring[0]) is np.ndarray
        omp.copy(ring[0], np.ones(SHAPE))


def test_rings_in_rings(runtime):
    """Blocks nest; each frees its own."""
    with omp.buffers(2, SHAPE) as outer:
        with omp.buffers(3, 7, device=0) as inner:
            assert {len(outer), len(inner)} == {2, 3}
        nbytes = live_nbytes()
        assert outer[1].shape == SHAPE
    assert nbytes > live_nbytes() == 0


# -- failures ---------------------------------------------------------------------------------------------
def test_the_block_raises(runtime):
    """Its exception goes on when the tasks are complete, and the arrays are freed."""
    ran = []
    with pytest.raises(KeyError, match="mine"), omp.buffers(2, SHAPE) as ring:
        add(ring[0], 1.0)
        omp.task(ran.append)(1)
        raise KeyError("mine")
    assert ran == [1]
    assert live_nbytes() == 0


def test_tasks_fail(runtime):
    """What nobody has seen comes as a group at the end, or as a note on the exception of the block."""

    def fail():
        raise ArithmeticError("too hot")

    with pytest.RaisesGroup(ArithmeticError), omp.buffers(2, SHAPE):
        omp.task(fail)()
    assert live_nbytes() == 0
    with pytest.raises(KeyError) as caught, omp.buffers(2, SHAPE):
        omp.task(fail)()
        raise KeyError("mine")
    assert any("the end of buffers" in note and "too hot" in note for note in caught.value.__notes__)
    assert live_nbytes() == 0


def test_no_memory_for_all():
    """If one does not fit nothing is allocated, and the block does not begin."""
    with checked("sim:1", env={"OFFLOAD_SIM_MEMORY": "1000"}):
        with pytest.raises(omp.DeviceMemoryError, match="800"), omp.buffers(3, 100):
            pytest.fail("entered")
        assert live_nbytes() == 0
        with omp.buffers(1, 100):
            assert live_nbytes() == 800


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ((0, 3), "n=0"),
        ((-1, 3), "n=-1"),
        ((2.0, 3), "n=2.0"),
        (("2", 3), "n='2'"),
        ((2, -1), "shape -1"),
        ((2, "x"), "shape 'x'"),
        ((2, 3, object), "Python objects"),
        ((2, 3, "no such"), "dtype"),
        ((2, 3, float, 17), "17"),
    ],
)
def test_arguments_that_mean_nothing(sim, arguments, what):
    """Such an argument is an error, at the call or at the entry, that names the construct and the value."""
    with pytest.raises(omp.ClauseError, match=what) as caught, omp.buffers(*arguments):
        pytest.fail("entered")
    assert "buffers" in str(caught.value) or "device" in str(caught.value)


def test_in_a_target_body(sim):
    """A body only enqueues: the block is refused there."""

    def body():
        with omp.buffers(2, 3):
            pytest.fail("entered")

    with pytest.raises(omp.UsageError, match="buffers inside of the target body"):
        omp.target(body)()


def test_an_interrupted_end():
    """After Ctrl-C in the wait at the end tasks under way keep their arrays, and the memory goes back with the last."""
    with checked("sim:1", num_threads=0):
        seen, event = [], omp.Event()
        with pytest.raises(KeyboardInterrupt), omp.buffers(2, 6) as ring:
            omp.target_memset(ring[0], 0)
            omp.task(lambda: signal.raise_signal(signal.SIGINT))()
            omp.task(lambda: None, detach=event, depend=[out(("go",))])()
            late = omp.target(lambda d: seen.append(float(d.sum())), nowait=True, depend=[in_(("go",))])(ring[0])
        assert not late.done()
        event.fulfill()
        late.result()
        assert seen == [0.0]
        del late
        omp.taskwait()  # it raises nothing: the interrupt of the body that the wait ran has been seen


# -- whose block it is ------------------------------------------------------------------------------------
def test_coroutines(runtime):
    """Two coroutines of a loop have a block each, whose end lets the loop run and waits for their own tasks."""
    ends = []

    async def one(name, other):
        x = np.full(SHAPE, 1.0)
        async with omp.buffers(2, SHAPE) as ring:
            omp.copy(ring[0], x, depend=[out(ring[0])], nowait=True)
            await asyncio.sleep(0)
            add.options(depend=[inout(ring[0])])(ring[0], other)
            await asyncio.sleep(0)
            omp.copy(x, ring[0], depend=[in_(ring[0])], nowait=True)
        ends.append(name)
        return float(x.sum())

    async def both():
        return await asyncio.gather(one("a", 1.0), one("b", 2.0))

    assert asyncio.run(both()) == [40.0, 60.0]
    assert sorted(ends) == ["a", "b"]
    assert live_nbytes() == 0


def test_a_coroutine_that_raises(runtime):
    """In a coroutine too the exception of the block goes on, and the arrays are freed."""

    async def fails():
        async with omp.buffers(2, SHAPE) as ring:
            add(ring[0], 1.0)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        asyncio.run(fails())
    assert live_nbytes() == 0


def test_generators(runtime):
    """A generator's block ends where it is closed, also on another thread, and frees then."""

    def pieces(n):
        with omp.buffers(2, SHAPE) as ring:
            for k in range(n):
                omp.copy(ring[k], np.full(SHAPE, float(k)), depend=[out(ring[k])])
                yield k

    assert list(pieces(5)) == list(range(5))
    assert live_nbytes() == 0
    begun = pieces(5)
    assert next(begun) == 0
    assert live_nbytes() > 0
    begun.close()
    assert live_nbytes() == 0
    begun = pieces(5)
    next(begun)
    thread = threading.Thread(target=begun.close)
    thread.start()
    thread.join()
    assert live_nbytes() == 0


def test_task_graphs_in_the_block(runtime):
    """A task graph that uses the arrays is replayed in the block."""
    x = np.zeros(SHAPE)
    with omp.buffers(2, SHAPE) as ring:

        @omp.taskgraph
        def step(x):
            omp.copy(ring[0], x, depend=[in_(x), out(ring[0])], nowait=True)
            add.options(depend=[inout(ring[0])])(ring[0], 1.0)
            omp.copy(x, ring[0], depend=[in_(ring[0]), out(x)], nowait=True)

        for _ in range(5):
            step(x)
        del step
    assert (x == 5).all()
