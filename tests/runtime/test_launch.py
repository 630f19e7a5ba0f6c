"""Launches on a device whose streams a test moves, as CUDA's move by themselves: order, failures, and who notices."""

import asyncio
import contextlib
import random
import threading
import time
from unittest import mock

import numpy as np
import pytest

import offload as omp
from offload import delete, from_, in_, inout, out, release, to
from offload.errors import DeviceLostError
from tests.null_device import NullArray, NullDevice
from tests.profiles import few

N = 8


class Event:
    """A point in a stream."""

    done = False

    def synchronize(self):
        while not self.done:
            time.sleep(1e-4)


class Stream:
    """Steps to be taken in order; a step that returns false is tried again."""

    def __init__(self):
        self.steps = []

    @property
    def done(self):
        return not self.steps

    def synchronize(self):
        while self.steps:
            time.sleep(1e-4)


class Fifo(NullDevice):
    """A device that enqueues and returns, as CUDA does; ``fails`` says which of its calls do."""

    def __init__(self, number=0, seed=0):
        super().__init__(number)
        self.streams, self.fails = [], set()
        self.is_held = self.is_closed = False
        self._rng = random.Random(seed)
        self._current = threading.local()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _check(self, what):
        if what in self.fails:
            raise DeviceLostError(f"{what} failed")

    def new_stream(self):
        stream = Stream()
        with self._lock:
            self.streams.append(stream)
        return stream

    def owns_stream(self, stream):
        return stream in self.streams

    def enqueue(self, stream, step):
        with self._lock:
            stream.steps.append(step)

    def record(self, stream):
        self._check("record")
        event = Event()
        self.enqueue(stream, lambda: setattr(event, "done", True) or True)
        return event

    def wait_event(self, stream, event):
        self._check("wait")
        self.enqueue(stream, lambda: event.done)

    def passed(self, event):
        self._check("passed")
        return event.done

    def reuse(self, events):
        pass

    def wake(self, stream, wakeup):
        self.enqueue(stream, lambda: wakeup.post() or True)

    def use(self, stream):
        outer, self._current.stream = getattr(self._current, "stream", None), stream
        return outer

    def restore(self, outer):
        self._current.stream = outer

    def work(self, step):
        """Enqueue what a body does."""
        self.enqueue(self._current.stream, lambda: step() or True)

    def view(self, buffer, offset_nbytes, shape, strides, dtype):
        return buffer

    def copy(self, dst, src, stream):
        self._check("copy")

    def _run(self):
        while not self.is_closed:
            with self._lock:
                busy = [stream for stream in self.streams if stream.steps]
            if self.is_held or not busy:
                time.sleep(1e-4)
                continue
            stream = self._rng.choice(busy)
            if stream.steps[0]():
                with self._lock:
                    stream.steps.pop(0)

    def synchronize(self):
        for stream in list(self.streams):
            stream.synchronize()

    def close(self):
        self.is_closed = True
        self._thread.join()


@pytest.fixture
def opened(monkeypatch):
    """A function that opens a runtime on such devices, each of which looks for completions as on CUDA."""
    monkeypatch.setattr(NullArray, "__offload_section__", lambda self: self.device.section(self), raising=False)
    runtimes = []

    def open_runtime(*devices, **kwargs):
        monkeypatch.setattr("offload.runtime.runtime.open_devices", lambda *_, **__: list(devices))
        runtime = omp.Runtime(**kwargs)
        runtime.engine.look = runtime.gate.look
        runtimes.append(runtime)
        return runtime

    yield open_runtime
    for runtime in runtimes:
        runtime.close()


class OnlyHere(Fifo):
    """A device whose completions only the thread that made it finds."""

    def __init__(self):
        super().__init__()
        self._finder = threading.current_thread()

    def passed(self, event):
        return event.done and threading.current_thread() is self._finder


def array(device):
    return device.alloc((N,), np.dtype("f4"), None)


# -- which streams ------------------------------------------------------------------------------------
def test_a_program_that_waits_for_each_task_opens_one_stream(opened):
    """A task that the host has waited for has done with its stream, which the next one takes, blocking or not."""
    device = Fifo()
    with opened(device, num_threads=1):
        a = array(device)
        for _ in range(10):
            omp.target(lambda: None)()
            omp.target(nowait=True)(lambda: None)().result()
            omp.target(nowait=True, depend=[inout(a)])(lambda: None)()
            omp.taskwait()
        assert len(device.streams) == 1


def test_tasks_in_flight_are_spread(opened):
    """Tasks that do not follow each other take a stream each, as long as none has done its work, and eight at most."""
    device = Fifo()
    with opened(device, num_threads=1):
        device.is_held = True
        for n_streams in [*range(1, 9), 8, 8]:
            omp.target(nowait=True)(lambda: None)()
            assert len(device.streams) == n_streams
        device.is_held = False
        omp.taskwait()
        for _ in range(10):
            omp.target(nowait=True)(lambda: None)()
        assert len(device.streams) == 8


def test_what_follows_on_one_stream_waits_for_nothing(opened, monkeypatch):
    """A task of whose stream all is that it follows waits for no event, and keeps none of these tasks alive."""
    device = Fifo()
    with opened(device, num_threads=1):
        one, other, host = array(device), array(device), np.zeros(N)
        waits = []
        monkeypatch.setattr(device, "wait_event", lambda *given: waits.append(given))
        device.is_held = True
        for _ in range(2):
            for clause in ([in_(one), out(other)], [in_(other), out(one)]):
                task = omp.target(nowait=True, depend=clause)(lambda: None)()
                assert not task.predecessors
        last = omp.target(nowait=True, depend=[in_(one)])(lambda: None)()
        assert not last.predecessors
        assert not waits
        assert len(device.streams) == 1
        spread = omp.target(nowait=True, depend=[in_(one), out(host)])(lambda: None)()
        assert [before.lane for before in spread.predecessors] == [task.lane]
        assert len(waits) == 1
        device.is_held = False
        omp.taskwait()


@pytest.mark.parametrize("num_threads", [0, 2])
@pytest.mark.parametrize("seed", few(2, range(6)))
def test_every_task_runs_once_after_those_that_it_follows(opened, seed, num_threads):
    """Random graphs of tasks on two devices and the host, from two threads: launched in order, whatever the streams."""
    devices = Fifo(0, seed), Fifo(1, seed)
    runtime = opened(*devices, num_threads=num_threads)
    wrong = []

    def program(number):
        rng = random.Random(f"{seed} {number}")
        arrays = [array(devices[0]) for _ in range(4)]
        began, ended, clock = {}, {}, iter(range(10**6))
        writer, readers, before = {}, {at: [] for at in range(4)}, {}

        def ran(task):
            began.setdefault(task, []).append(next(clock))
            ended[task] = next(clock)

        def body(task, device):
            devices[device].work(lambda: ran(task))

        for task in range(60):
            clauses, follows = [], set()
            for at in rng.sample(range(4), rng.choice([1, 2])):
                if at in writer:
                    follows.add(writer[at])
                if rng.random() < 0.5:
                    clauses.append(inout(arrays[at]))
                    follows.update(readers[at])
                    writer[at], readers[at] = task, []
                else:
                    clauses.append(in_(arrays[at]))
                    readers[at].append(task)
            before[task] = follows - {task}
            kind = rng.random()
            if kind < 0.8:
                device = int(kind > 0.6)
                target(body, device).options(depend=clauses)(task, device)
            else:
                omp.task(ran).options(depend=clauses)(task)
            if rng.random() < 0.05:
                omp.taskwait()
        omp.taskwait()
        wrong.extend(
            (task, other)
            for task, follows in before.items()
            for other in follows
            if len(began.get(task, ())) != 1 or ended[other] > began[task][0]
        )

    def target(body, device):
        return omp.target(nowait=True)(body) if device == 0 else omp.target(nowait=True, device=1)(body)

    def run(number):
        try:
            program(number)
        except BaseException as error:  # told below
            wrong.append(error)

    with runtime:
        thread = threading.Thread(target=run, args=(1,))
        thread.start()
        run(0)
        thread.join()
    assert not wrong


def test_a_failed_update_holds_up_nobody(opened):
    """On a device that is lost in the middle of an update, later regions fail; none is put off for ever."""
    device = Fifo()
    opened(device, num_threads=1)
    x = np.zeros(N)
    omp.target_enter_data(map=[to(x)])
    device.fails = {"record", "wait", "copy"}
    with pytest.raises(DeviceLostError):
        omp.target_update(to=[x])
    task = omp.target(nowait=True)(lambda x: None)(x)
    assert isinstance(task.exception(timeout=20), DeviceLostError)
    device.fails = set()
    omp.target_exit_data(map=[delete(x)])


@pytest.mark.parametrize("what", ["wait", "record"])
def test_counts_after_a_failed_launch(opened, what):
    """A region whose launch fails has counted nothing, whether its items were present or not."""
    device = Fifo()
    runtime = opened(device, num_threads=1)
    x, y = np.zeros(N), np.zeros(N)
    device.is_held = True
    omp.target_enter_data(map=[to(x)], nowait=True)
    entry = runtime.places[0].table.entries()[0]
    omp.target(nowait=True)(lambda x: None)(x)
    device.fails = {what}
    task = omp.target(nowait=True)(lambda x, y: None)(x, y)
    device.is_held = False
    assert isinstance(task.exception(timeout=20), DeviceLostError)
    device.fails = set()
    omp.taskwait()
    assert [(left.label, left.count) for left in runtime.places[0].table.entries()] == [(entry.label, 1)]
    omp.target_exit_data(map=[delete(x)])


def test_a_launch_completes_what_a_host_task_waits_for(opened):
    """The thread that launches does not leave it to the completer, which would have to get the GIL from it."""
    device = Fifo()
    runtime = opened(device, num_threads=1)
    ran = threading.Event()
    bump = omp.target(nowait=True)(lambda x: None)
    with runtime, mock.patch.object(runtime.gate, "look", return_value=False):  # the completer comes late
        x, y = array(device), array(device)
        first = bump.options(depend=[inout(x)])(x)
        omp.task(ran.set).options(depend=[in_(x)])()
        for stream in device.streams:
            stream.synchronize()
        assert not first.done()
        bump.options(depend=[inout(y)])(y)
        assert first.done()
        assert ran.wait(60)


def test_a_launch_leaves_callbacks_to_others(opened):
    """Callbacks are called by the completer or a thread that waits: the launcher may hold a lock."""
    device = Fifo()
    runtime = opened(device, num_threads=1)
    lock, threads = threading.Lock(), []
    bump = omp.target(nowait=True)(lambda x: None)

    def told(_):
        with lock:
            threads.append(threading.current_thread())

    with runtime:
        x = array(device)
        with lock:
            bump.options(depend=[inout(x)])(x).add_done_callback(told)
            for _ in range(20):
                bump.options(depend=[inout(x)])(x)
                time.sleep(1e-3)
        omp.taskwait()
    assert len(threads) == 1


def test_a_callback_that_waits(opened, monkeypatch):
    """A callback that a waiting thread runs may wait for a task that has passed in the same look."""
    device = Fifo()
    runtime = opened(device, num_threads=1)
    monkeypatch.setattr(runtime.gate, "_complete", lambda: None)  # nobody else looks
    device.is_held = True
    target = omp.target(nowait=True)(lambda name: device.work(lambda: None))
    first, second = target("first"), target("second")
    seen = []
    first.add_done_callback(lambda _: seen.append(second.result()))
    device.is_held = False
    device.synchronize()
    runtime.gate.look()
    assert seen == [None]
    omp.taskwait()


def test_a_caller_is_asked_nothing_in_a_closed_runtime(opened, monkeypatch):
    """A call that is refused has asked the device nothing: in a forked child it must not."""
    device = Fifo()
    runtime = opened(device)
    d = array(device)
    target = omp.target(nowait=True)(lambda d: None)
    with runtime:
        target(d).result()
        asked = []
        monkeypatch.setattr(device, "caller_event", lambda: asked.append(1))
        runtime.engine.closed = "closed for the test"
        with pytest.raises(omp.RuntimeClosedError):
            target(d)
        runtime.engine.closed = ""
    assert not asked


@pytest.mark.parametrize("deferred", [False, True])
def test_copies_between_two_devices_follow_the_callers_streams(monkeypatch, deferred):
    """A copy follows what the calling thread has enqueued on each of both devices: each is asked once a copy."""
    asked, waited = [], []
    with omp.Runtime("sim:2") as runtime:
        first, second = (omp.target_alloc(64, np.uint8, number) for number in (0, 1))
        for place in runtime.places:
            number = place.device.number
            monkeypatch.setattr(place.device, "caller_event", lambda number=number: asked.append(number) or number)
            monkeypatch.setattr(place.device, "wait_event", lambda stream, event: waited.append(event))
        for _ in range(2):
            if deferred:
                omp.target_memcpy_async(second, first).result()
            else:
                omp.target_memcpy(second, first)
            assert sorted(asked) == [0, 1]
            assert sorted(event for event in waited if event in {0, 1}) == [0, 1]
            asked.clear()
            waited.clear()
        monkeypatch.undo()
        omp.target_free(first)
        omp.target_free(second)


def test_an_interrupt_in_a_body_gives_the_caller_its_stream_back(opened):
    """A body that ends by Ctrl-C leaves the calling thread on its own stream, and the task is complete."""
    device = Fifo()
    runtime = opened(device)
    device._current.stream = mine = device.new_stream()
    d = array(device)

    @omp.target(nowait=True)
    def body(d):
        if omp.current_task().name == "body" and not ran:
            ran.append(1)
            raise KeyboardInterrupt

    ran = []
    with runtime:
        with contextlib.suppress(KeyboardInterrupt):
            body(d).exception()
        body(d).result()
        assert device._current.stream is mine
        with contextlib.suppress(BaseExceptionGroup):
            omp.taskwait()


def test_wait_on_a_task_that_is_complete(monkeypatch):
    """A stream waits for a task that has passed long ago: not at all."""
    with omp.Runtime("sim:1") as runtime:
        x = np.zeros(N)
        task = omp.target(nowait=True)(lambda x: None)(x)
        task.result()
        waits = []
        monkeypatch.setattr(runtime.places[0].device, "wait_event", lambda *given: waits.append(given))
        task.wait_on(omp.stream(3))
        assert not waits
        assert omp.stream(3).done


def test_who_looks_for_completions_shows_callbacks_no_event_loop(opened, monkeypatch):
    """A callback of a task that a blocking wait in a coroutine completes may run a loop of its own."""
    device = OnlyHere()
    engine = opened(device).engine
    monkeypatch.setattr(engine, "attends_s", 60.0)  # a busy machine may not get so far in its moment

    async def number():
        return 5

    async def main():
        task = omp.target(nowait=True)(lambda x: device.work(lambda: True))(array(device))
        task.add_done_callback(lambda _: numbers.append(asyncio.run(number())))
        task.result()

    numbers = []
    asyncio.run(main())
    assert numbers == [5]


@pytest.mark.parametrize(
    ("construct", "n_events"),
    [
        (lambda x, y: omp.target_update(to=[x]), 1),
        (lambda x, y: omp.target_update(from_=[x]), 1),
        (lambda x, y: omp.target_enter_data(map=[to(x)]), 1),
        (lambda x, y: omp.target_enter_data(map=[to(x, always=True)]), 1),
        (lambda x, y: omp.target_enter_data(map=[to(y)]), 1),
        (lambda x, y: omp.target_exit_data(map=[release(x)]), 1),
        (lambda x, y: omp.target_exit_data(map=[from_(x, always=True)]), 1),
        (lambda x, y: omp.target(lambda x: None)(x), 1),
        (omp.target(lambda x, y: None), 2),  # where x may have been written, then where y has gone
    ],
)
def test_events_of_a_construct(opened, construct, n_events):
    """A construct records one event, where its last copy ends; a region that maps does not record where its data is."""
    device = NullDevice(0)
    runtime = opened(device, num_threads=1)
    x, y = np.zeros(N), np.zeros(N)
    omp.target_enter_data(map=[to(x)])
    omp.target_enter_data(map=[to(x)])
    device.calls.clear()
    construct(x, y)
    assert [call[0] for call in device.calls].count("record") == n_events
    whole = [delete(entry.host) for entry in runtime.places[0].table.entries()]
    omp.target_exit_data(map=whole)


def test_events_of_a_deferred_region_whose_body_blocks(monkeypatch):
    """It records where its copies to the device end, at which its body waits, and where those from it do."""
    with omp.Runtime("sim:1") as runtime:
        device = runtime.places[0].device
        marks, record = [], device.record
        monkeypatch.setattr(device, "record", lambda stream: marks.append(record(stream)) or marks[-1])
        x = np.zeros(N)

        def add(x):
            x += 1

        for n_events in (2, 4, 6):
            omp.target(nowait=True)(add)(x).result()
            assert len(marks) == n_events
        assert (x == 3).all()


def test_the_last_exit_records_one_event(opened):
    """What copies back and removes everything that it names records where the copies end, and nothing more."""
    device = NullDevice(0)
    opened(device, num_threads=1)
    x, y = np.zeros(N), np.zeros(N)
    omp.target_enter_data(map=[to(x, y)])
    device.calls.clear()
    omp.target_exit_data(map=[from_(x), delete(y)])
    assert [call[0] for call in device.calls].count("record") == 1
