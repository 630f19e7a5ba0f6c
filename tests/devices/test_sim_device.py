"""The simulated device: order of streams, events, sticky errors, memory, closing. Latches hold streams."""

import operator
import random
import threading
import warnings
import weakref

import numpy as np
import pytest

from offload.devices import base
from offload.devices.sim.device import SimDevice, SimEvent, SimStream
from offload.devices.streams import using
from offload.errors import (
    CleanupWarning,
    DeviceLostError,
    DeviceMemoryError,
    InternalError,
    RuntimeClosedError,
    UsageError,
)
from tests.patience import until, until_gone


class Semaphore:
    """A wake-up that counts its posts."""

    def __init__(self):
        self.posts = 0
        self._posted = threading.Semaphore(0)

    def post(self):
        self.posts += 1
        self._posted.release()

    def wait(self, timeout_s):
        assert self._posted.acquire(timeout=timeout_s)


def threads_of(device):
    return [thread for thread in threading.enumerate() if thread.name.startswith(f"offload-{device.name}-")]


@pytest.fixture(params=[None, 1, 2], ids=["free", "seed1", "seed2"])
def device(request):
    """A device in either mode; closing it leaves no thread."""
    rng = None if request.param is None else random.Random(request.param)
    device = SimDevice(0, memory_nbytes=1 << 20, rng=rng)
    yield device
    device.close()
    until(lambda: not threads_of(device))  # one that had to be given up ends in its time


def lose(device):
    """Lose the device, and return when it is lost."""
    stream = device.new_stream()
    stream.launch(operator.truediv, 1, 0)
    with pytest.raises(DeviceLostError):
        stream.synchronize()


# -- order ----------------------------------------------------------------------------------------
def test_fulfils_the_contract(device):
    """The device has every method of the contract, its streams and events those of CuPy's."""
    for name in vars(base.Device):
        if not name.startswith("_"):
            assert callable(getattr(device, name)), name
    assert (device.kind, device.name, device.number, device.bodies_block) == ("sim", "sim:0", 0, True)
    stream = device.new_stream()
    assert isinstance(stream, base.Stream)
    assert isinstance(stream.record(), base.DeviceEvent)
    assert device.owns_stream(stream)
    assert not SimDevice(0).owns_stream(stream)
    assert not device.owns_stream(None)
    assert device.caller_event() is None
    assert device.copies_async(np.zeros(1))
    assert "sim:0" in repr(device)
    assert "sim:0" in repr(stream)


def recorded_behind_work(stream):
    """Return an event that was recorded while the stream was busy, with work that ends now."""
    begin = threading.Event()
    stream.launch(begin.wait, 20)
    event = stream.record()
    begin.set()
    return event


def test_a_stream_is_done_when_an_event_at_its_tail_has_passed(device, monkeypatch):
    """Who has synchronized with a stream finds it done, also before its thread has gone on."""
    fire, release, stream = SimEvent.fire, threading.Event(), device.new_stream()

    def slow(event, *args):
        fire(event, *args)
        release.wait(20)

    monkeypatch.setattr(SimEvent, "fire", slow)
    try:
        event = recorded_behind_work(stream)
        event.synchronize()
        assert stream.done
        stream.launch(int)
        assert not stream.done
    finally:
        release.set()
    stream.synchronize()
    assert stream.done


def test_a_stream_is_not_done_before_an_event_at_its_tail_has_passed(device, monkeypatch):
    """Nobody finds a stream done and its last event not."""
    fire, begun, release, stream = SimEvent.fire, threading.Event(), threading.Event(), device.new_stream()

    def slow(event, *args):
        begun.set()
        release.wait(20)
        fire(event, *args)

    monkeypatch.setattr(SimEvent, "fire", slow)
    try:
        event = recorded_behind_work(stream)
        assert begun.wait(20)
        assert not stream.done
        assert not event.done
    finally:
        release.set()
    stream.synchronize()
    assert event.done


def test_a_stream_runs_in_order(device):
    """Operations of one stream run in the order in which they were enqueued, callbacks too."""
    stream, ran, latch = device.new_stream(), [], SimEvent(device)
    stream.wait_event(latch)
    for i in range(0, 100, 2):
        stream.launch(ran.append, i)
        stream.launch_host_func(ran.append, i + 1)
    assert not stream.done
    assert ran == []
    latch.fire()
    stream.synchronize()
    assert stream.done
    assert ran == list(range(100))


def test_streams_know_nothing_of_each_other(device):
    """A stream that is held holds no other."""
    held, free, latch = device.new_stream(), device.new_stream(), SimEvent(device)
    held.wait_event(latch)
    event = held.record()
    free.launch(int)
    free.synchronize()
    assert not event.done
    latch.fire()
    event.synchronize()
    assert event.done


def test_an_event_orders_two_streams(device):
    """What follows a wait runs after what precedes the event."""
    first, second, latch, ran = device.new_stream(), device.new_stream(), SimEvent(device), []
    first.wait_event(latch)
    first.launch(ran.append, 1)
    event = device.record(first)
    device.wait_event(second, event)
    second.launch(ran.append, 2)
    assert not device.passed(event)
    latch.fire()
    second.synchronize()
    assert device.passed(event)
    assert ran == [1, 2]


def test_an_event_orders_two_devices(device):
    """A stream may wait for an event of another simulated device."""
    other = SimDevice(7)
    mine, theirs, latch, ran = device.new_stream(), other.new_stream(), SimEvent(other), []
    theirs.wait_event(latch)
    theirs.launch(ran.append, 1)
    mine.wait_event(theirs.record())
    mine.launch(ran.append, 2)
    latch.fire()
    mine.synchronize()
    assert ran == [1, 2]
    other.close()


def test_an_event_on_an_idle_stream_is_done(device):
    """Recording where nothing is pending gives an event that has passed; waiting for it costs nothing."""
    stream = device.new_stream()
    event = stream.record()
    assert event.done
    device.new_stream().wait_event(event)
    assert not threads_of(device)


def test_an_event_can_be_recorded_again(device):
    """A second recording gives an event a new point, and earlier waits keep the old one."""
    a, b, event = device.new_stream(), device.new_stream(), SimEvent(device)
    first, second = SimEvent(device), SimEvent(device)
    a.wait_event(first)
    assert a.record(event) is event
    b.wait_event(event)
    a.wait_event(second)
    event.record(a)
    first.fire()
    b.synchronize()
    assert not event.done
    second.fire()
    event.synchronize()
    assert event.done


def test_an_event_records_on_the_current_stream(device):
    """event.record() without a stream takes the one in use on this thread, and needs one."""
    event = SimEvent(device)
    with pytest.raises(UsageError, match="name the stream"):
        event.record()
    with using(device, device.new_stream()):
        event.record()
    assert event.done


def test_using_nests(device):
    """Using() restores the stream that was in use before."""
    outer, inner = device.new_stream(), device.new_stream()
    with using(device, outer):
        assert device.current_stream() is outer
        with using(device, inner):
            assert device.current_stream() is inner
        assert device.current_stream() is outer
    assert device.current_stream() is None


def test_wake_posts_when_the_stream_gets_there(device):
    """A wake-up is posted after what precedes it, and at once on an idle stream."""
    stream, latch, wakeup = device.new_stream(), SimEvent(device), Semaphore()
    device.wake(stream, wakeup)
    wakeup.wait(60)
    stream.wait_event(latch)
    device.wake(stream, wakeup)
    assert wakeup.posts == 1
    latch.fire()
    wakeup.wait(60)
    assert wakeup.posts == 2


def test_device_synchronize_waits_for_every_stream(device):
    """synchronize() returns when all streams are idle, those included that nobody refers to."""
    latch, ran = SimEvent(device), []
    for i in range(4):
        stream = device.new_stream()
        stream.wait_event(latch)
        stream.launch(ran.append, i)
    del stream
    latch.fire()
    device.synchronize()
    assert sorted(ran) == [0, 1, 2, 3]


def test_an_operation_cannot_wait_for_itself(device):
    """Synchronising a stream from its own operation is a failure, not a hang."""
    stream = device.new_stream()
    stream.launch(stream.synchronize)
    with pytest.raises(DeviceLostError, match="wait for itself"):
        stream.synchronize()


# -- seeded order ---------------------------------------------------------------------------------
def interleaving(seed):
    device = SimDevice(0, rng=random.Random(seed))
    latch, ran = SimEvent(device), []
    streams = [device.new_stream() for _ in range(4)]
    for number, stream in enumerate(streams):
        stream.wait_event(latch)
        for step in range(10):
            stream.launch(ran.append, (number, step))
    tails = [stream.record() for stream in streams]
    latch.fire()
    for tail in tails:
        tail.synchronize()
    device.close()
    return ran


def test_a_seed_fixes_the_interleaving():
    """The same seed gives the same order of the operations of several streams, another seed another."""
    assert interleaving(3) == interleaving(3)
    assert len({tuple(interleaving(seed)) for seed in range(8)}) == 8


def test_a_seeded_order_keeps_streams_in_order_and_is_unfair():
    """Each stream stays in order, and some stream runs far ahead of another."""
    ran = interleaving(5)
    for number in range(4):
        assert [step for stream, step in ran if stream == number] == list(range(10))
    leads = []
    for end in range(len(ran)):
        counts = [sum(stream == number for stream, _ in ran[:end]) for number in range(4)]
        leads.append(max(counts) - min(counts))
    assert max(leads) >= 5


def test_a_seeded_device_has_one_thread():
    """Under a seed all streams are served by one thread."""
    device = SimDevice(0, rng=random.Random(0))
    latch = SimEvent(device)
    for _ in range(5):
        device.new_stream().wait_event(latch)
    assert len(threads_of(device)) == 1
    latch.fire()
    device.close()


# -- sticky errors --------------------------------------------------------------------------------
def test_an_error_is_sticky(device):
    """After a failed operation nothing runs, no event passes, and all that would wait raises with the cause."""
    stream, latch, ran, wakeup = device.new_stream(), SimEvent(device), [], Semaphore()
    before = stream.record()
    stream.wait_event(latch)
    stream.launch(operator.truediv, 1, 0)
    stream.launch(ran.append, 1)
    device.wake(stream, wakeup)
    after = stream.record()
    latch.fire()
    with pytest.raises(DeviceLostError, match=r"sim:0 is lost.*ZeroDivisionError: division by zero") as caught:
        stream.synchronize()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    other = device.new_stream()
    other.launch(ran.append, 2)
    late = other.record()
    assert device.passed(before)
    assert not after.done
    assert not late.done
    host, dtype = np.zeros(1), np.dtype("f8")
    for wait in (
        lambda: device.passed(after),
        lambda: device.passed(late),
        after.synchronize,
        late.synchronize,
        lambda: other.done,
        other.synchronize,
        device.synchronize,
        device.settle,
        lambda: device.alloc((1,), dtype, stream),
        lambda: device.copy(host, host, stream),
    ):
        with pytest.raises(DeviceLostError) as caught:
            wait()
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
    device.close()
    assert (ran, wakeup.posts) == ([], 0)


def test_the_first_error_is_kept(device):
    """A later failure does not replace the first."""
    lose(device)
    device.fate.lose(KeyError("later"))
    with pytest.raises(DeviceLostError, match="ZeroDivisionError"):
        device.synchronize()


def test_a_lost_device_releases_whoever_waits(device):
    """A host thread and a stream that wait for an event are released when its device is lost."""
    stream, never, outcome = device.new_stream(), SimEvent(device), []

    def wait():
        try:
            never.synchronize()
        except DeviceLostError as error:
            outcome.append(error)

    stream.wait_event(never)
    held = stream.record()
    waiter = threading.Thread(target=wait)
    waiter.start()
    lose(device)
    waiter.join(60)
    assert len(outcome) == 1
    with pytest.raises(DeviceLostError):
        held.synchronize()


def test_a_stream_that_waits_for_a_lost_device_is_lost(device):
    """A wait across devices ends when the other is lost; the work behind it cannot run, so that device is lost too."""
    other, ran = SimDevice(8), []
    stream = device.new_stream()
    stream.wait_event(SimEvent(other))
    stream.launch(ran.append, 1)
    tail = stream.record()
    lose(other)
    with pytest.raises(DeviceLostError, match=r"sim:0 is lost.*sim:8 is lost"):
        tail.synchronize()
    assert ran == []
    other.close()


def test_a_failure_keeps_no_arrays_alive(device):
    """The traceback of the first failure does not hold the arrays of the failed operation."""

    def fail(array):
        local = array + 1
        raise ValueError(local.shape)

    stream, arrays = device.new_stream(), [device.namespace().zeros(8) for _ in range(2)]
    while arrays:
        stream.launch(fail, arrays.pop())
    with pytest.raises(DeviceLostError) as caught:
        stream.synchronize()
    assert isinstance(caught.value.__cause__, ValueError)
    device.close()
    assert device.live_nbytes() == 0


# -- memory and copies ----------------------------------------------------------------------------
def test_memory_is_counted_and_limited(device):
    """Alloc charges the account, refuses what does not fit, and gets its bytes back."""
    stream, u1 = device.new_stream(), np.dtype("u1")
    array = device.alloc((1 << 20,), u1, stream)
    assert device.memory_info() == (0, 1 << 20)
    with pytest.raises(DeviceMemoryError, match="cannot allocate 1 bytes on sim:0: 0 of 1048576 bytes") as caught:
        device.alloc((1,), u1, stream)
    assert (caught.value.asked_nbytes, caught.value.free_nbytes) == (1, 0)
    del array
    assert device.live_nbytes() == 0
    assert device.memory_info() == (1 << 20, 1 << 20)


def test_arrays_are_held_until_their_operation_has_run(device):
    """The memory of an enqueued array goes back when the operation has run, not before and not later."""
    stream, latch = device.new_stream(), SimEvent(device)
    stream.wait_event(latch)
    host = np.empty(4)
    device.copy(host, device.namespace().ones(4), stream)
    done = stream.record()
    assert device.live_nbytes() == 32
    latch.fire()
    done.synchronize()
    assert device.live_nbytes() == 0
    assert host.tolist() == [1, 1, 1, 1]


def test_memory_may_be_returned_inside_the_account(device):
    """A finaliser that frees an array and asks for the account, run while the account is locked, does not deadlock."""
    arrays = [device.namespace().zeros(4)]
    with device.memory._lock:
        arrays.clear()
        assert device.memory.used_nbytes() == 0


def test_copies_between_host_and_devices(device):
    """Copy moves data host to device, within and across devices, and back, with any strides."""
    other = SimDevice(9)
    stream, dtype = device.new_stream(), np.dtype("f8")
    source, result = np.arange(12.0).reshape(3, 4), np.zeros((3, 2))
    a = device.alloc((3, 4), dtype, stream)
    b = other.alloc((4, 3), dtype, stream)
    device.copy(a, source, stream)
    device.copy(b.T, a, stream)
    device.copy(result, b.T[:, ::2], stream)
    stream.synchronize()
    assert np.array_equal(result, source[:, ::2])
    assert device.is_array(a)
    assert not device.is_array(b)
    assert not device.is_array(source)
    other.close()


def test_a_wrong_copy_raises_at_the_call(device):
    """A copy between different shapes or dtypes, or to a read-only array, loses nothing but the call."""
    stream, host = device.new_stream(), np.zeros(4)
    read_only = np.zeros(4)
    read_only.flags.writeable = False
    d = device.namespace().zeros(4)
    for dst, src in ((d, np.zeros(3)), (d, np.zeros(4, "f4")), (read_only, d)):
        with pytest.raises(InternalError):
            device.copy(dst, src, stream)
    device.copy(host, d, stream)
    device.synchronize()


# -- life -----------------------------------------------------------------------------------------
def test_close_drains_and_is_idempotent(device):
    """Close runs what is enqueued, ends the threads, and refuses what comes after."""
    stream, latch, ran = device.new_stream(), SimEvent(device), []
    stream.wait_event(latch)
    stream.launch(ran.append, 1)
    latch.fire()
    device.close()
    device.close()
    assert ran == [1]
    assert not threads_of(device)
    for late in (stream, device.new_stream()):
        with pytest.raises(RuntimeClosedError, match="sim:0"):
            late.launch(int)
    stream.synchronize()
    assert stream.record().done
    assert device.namespace().ones(2).tolist() == [1, 1]


def test_close_gives_up_a_latch_that_nobody_fires(device):
    """Close does not hang on an event that is never fired: it warns, and the work is dropped."""
    device.close_s = 0.01
    stream, ran = device.new_stream(), []
    stream.wait_event(SimEvent(device))
    stream.launch(ran.append, 1)
    with pytest.warns(CleanupWarning, match="sim:0 closed while 1 of its threads"):
        device.close()
    assert ran == []
    with pytest.raises(DeviceLostError, match="was closed"):
        stream.synchronize()


def test_close_after_a_failure_is_silent(device):
    """A lost device closes without waiting and without a word."""
    lose(device)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        device.close()
    assert not said
    assert not threads_of(device)


@pytest.mark.parametrize("seed", [None, 0])
def test_a_dropped_device_ends_its_threads(seed):
    """A device that nobody closes, once unreachable, is collected, and its threads end."""
    device = SimDevice(5, rng=None if seed is None else random.Random(seed))
    stream = device.new_stream()
    stream.launch(int)
    stream.synchronize()
    threads, reference = threads_of(device), weakref.ref(device)
    assert len(threads) == 1
    del device, stream
    until_gone(reference)  # the thread has the event that it has fired for some steps more, which knows the device
    threads[0].join(60)
    assert not threads[0].is_alive()


def test_a_dropped_stream_finishes_its_work():
    """What was enqueued on a stream that nobody refers to runs, and then its thread ends."""
    device, ran = SimDevice(6), []
    latch = SimEvent(device)
    stream = device.new_stream()
    stream.wait_event(latch)
    stream.launch(ran.append, 1)
    (thread,) = threads_of(device)
    del stream
    latch.fire()
    thread.join(60)
    assert ran == [1]
    device.synchronize()
    device.close()


def test_many_threads_may_enqueue(device):
    """Streams take operations from several threads, and none is lost."""
    streams, ran = [device.new_stream() for _ in range(3)], []

    def enqueue(number):
        for i in range(200):
            stream = streams[i % 3]
            stream.launch(ran.append, (number, i))
            streams[(i + 1) % 3].wait_event(stream.record())

    threads = [threading.Thread(target=enqueue, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    device.synchronize()
    assert len(ran) == len(set(ran)) == 800
    for number in range(4):
        for stream in range(3):
            steps = [i for n, i in ran if n == number and i % 3 == stream]
            assert steps == sorted(steps)
    assert all(isinstance(stream, SimStream) and stream.done for stream in streams)
