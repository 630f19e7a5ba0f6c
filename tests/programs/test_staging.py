"""Copies that only threads can make: a launch goes on when they are done, and holds no worker meanwhile."""

import threading

import numpy as np
import pytest

import offload as omp
from offload import alloc, from_, inout, to, tofrom
from offload.data.environment import DataEnvironment
from offload.devices.sim.device import SimDevice

N = 1000
plain = SimDevice.copy


class Staged:
    """A staged copy on the simulated device: a thread of its own waits for the gate, and then copies."""

    gate = threading.Event()
    fails: tuple[bool, ...] = ()  # for the next copies, by direction: whether to the host

    def __init__(self, device, dst, src, stream):
        self.copy = device, dst, src, stream
        self.to_host = isinstance(dst, np.ndarray)

    def run(self):
        device, dst, src, stream = self.copy
        assert self.gate.wait(60)
        if self.to_host in self.fails:
            raise OSError("the copy failed")
        plain(device, dst, src, stream)
        if self.to_host:
            stream.synchronize()

    def start(self, done):
        def work():
            try:
                self.run()
            except OSError as error:
                done(error)
            else:
                done(None)

        threading.Thread(target=work, daemon=True).start()


@pytest.fixture
def staged(monkeypatch):
    """Every copy between the host and a simulated device is staged; ``gate`` holds them, ``fails`` has them fail."""

    def copy(self, dst, src, stream):
        if dst.size and (isinstance(dst, np.ndarray) or isinstance(src, np.ndarray)):
            return Staged(self, dst, src, stream)
        return plain(self, dst, src, stream)

    monkeypatch.setattr(SimDevice, "copy", copy)
    monkeypatch.setattr(Staged, "gate", threading.Event())
    Staged.gate.set()
    yield Staged
    Staged.gate.set()


@omp.target(nowait=True)
def double(x):
    x *= 2


@pytest.mark.parametrize("num_threads", [0, 1, 4])
@pytest.mark.parametrize("devices", ["sim:1", "sim:2"])
def test_pieces_follow_each_other(staged, devices, num_threads):
    """Chains of regions over pieces of an array, with updates and copies between, are as the serial program."""
    with omp.Runtime(devices, num_threads=num_threads, check=True):
        a = np.arange(8.0 * N).reshape(8, N)
        expected = a * 8 + 1
        for turn in range(3):
            for number, row in enumerate(a):
                where = (number + turn) % omp.get_num_devices()
                double.options(map=[tofrom(row)], depend=[inout(row)], device=where)(row)
        omp.taskwait()
        with omp.target_data(map=[to(a)]):
            omp.target_update(from_=[a[:4]])
            a[:4] += 1
            omp.target_update(to=[a[:4]], nowait=True, depend=[inout(a)])
            d = omp.target_alloc(a.shape, a.dtype)
            omp.target_memcpy_async(d, a, depend=[inout(a)])
            omp.taskwait()
            a[4:] = 0
            omp.target_memcpy(a, d)
            a[4:] += 1
            omp.target_free(d)
        assert (a == expected).all()


def test_no_worker_is_held(staged):
    """While twenty regions wait for their copies, the one worker runs a host task."""
    with omp.Runtime("sim:1", num_threads=1):
        staged.gate.clear()
        rows = np.ones((20, N))
        tasks = [double.options(map=[tofrom(row)])(row) for row in rows]
        assert omp.task(lambda: 7)().result(timeout=30) == 7
        assert not any(task.done() for task in tasks)
        staged.gate.set()
        omp.taskwait()
        assert (rows == 2).all()


def test_a_copy_in_that_fails(staged):
    """The region fails with the copy's error, does not run, and what it had mapped is released."""
    ran = []

    @omp.target(nowait=True)
    def body(x):
        ran.append(x)

    with omp.Runtime("sim:1") as runtime:
        x = np.ones(N)
        staged.fails = (False,)
        with pytest.raises(OSError, match="the copy failed"):
            body(x).result()
        with pytest.raises(OSError, match="the copy failed"):
            omp.target_enter_data(map=[to(x)])
        assert not ran
        assert not runtime.places[0].table.live()
        staged.fails = ()
        assert double(x).exception() is None
        assert (x == 2).all()


def test_a_copy_out_that_fails(staged):
    """The region fails with the copy's error, its mapping is over, and later ones work."""
    with omp.Runtime("sim:1") as runtime:
        x = np.ones(N)
        staged.fails = (True,)
        with pytest.raises(OSError, match="the copy failed"):
            double(x).result()
        assert not runtime.places[0].table.live()
        omp.target_enter_data(map=[to(x)])
        with pytest.raises(OSError, match="the copy failed"):
            omp.target_update(from_=[x])
        with pytest.raises(OSError, match="the copy failed"):
            omp.target_exit_data(map=[from_(x)])
        assert not runtime.places[0].table.live()
        staged.fails = ()
        assert double(x).exception() is None
        assert (x == 2).all()


def test_others_wait_for_a_copy_in(staged):
    """A region that shares an entry whose copy-in is under way does not run before it."""
    with omp.Runtime("sim:1", num_threads=2):
        x = np.ones(N)
        staged.gate.clear()
        first = omp.target_enter_data(map=[to(x)], nowait=True)
        second = double.options(map=[alloc(x)])(x)
        assert not second.done()
        staged.gate.set()
        first.result()
        second.result()
        omp.target_exit_data(map=[from_(x)])
        assert (x == 2).all()


def test_mapping_anew_waits_for_a_copy_back(staged):
    """Storage that is on its way back to the host is mapped anew only when it has arrived."""
    with omp.Runtime("sim:1", num_threads=2):
        x = np.ones(N)
        omp.target_enter_data(map=[to(x)])
        double.options(map=[alloc(x)])(x).result()
        staged.gate.clear()
        back = omp.target_exit_data(map=[from_(x)], nowait=True)
        again = double(x)
        assert not again.done()
        staged.gate.set()
        back.result()
        again.result()
        assert (x == 4).all()


def joining(monkeypatch, join):
    """Have another thread run ``join`` as soon as a construct has said that its copies are over."""
    settle, thread = DataEnvironment.settle, threading.Thread(target=join)

    def settle_and_join(self, lane, *point):
        point = settle(self, lane, *point)
        if thread.ident is None:
            thread.start()
            thread.join(2)  # it may have to wait for this launch
        return point

    monkeypatch.setattr(DataEnvironment, "settle", settle_and_join)
    return thread


@pytest.mark.parametrize("construct", ["enter data", "target data", "target"])
@pytest.mark.parametrize("is_staged", [True, False])
def test_nobody_joins_what_was_not_copied(staged, monkeypatch, construct, is_staged):
    """A thread that maps an array while another's copy-in of it fails maps it anew, with the host's values."""
    with omp.Runtime("sim:1", num_threads=2, check=True):
        x, y, found = np.ones(N), np.zeros(N), np.zeros(N)
        read = omp.target(map=[to("x"), from_("found")])(lambda x, found: found.__setitem__(..., x))
        copy = SimDevice.copy if is_staged else plain
        failed = []

        def copy_once(self, dst, src, stream):
            if src is x and not failed:
                failed.append(x)
                if not is_staged:
                    raise OSError("the copy failed")
                one = copy(self, dst, src, stream)
                one.start = lambda done: done(OSError("the copy failed"))
                return one
            return copy(self, dst, src, stream)

        monkeypatch.setattr(SimDevice, "copy", copy_once)
        thread = joining(monkeypatch, lambda: read(x, found))
        with pytest.raises(OSError, match="the copy failed"):
            if construct == "enter data":
                omp.target_enter_data(map=[to(y), to(x)])
            elif construct == "target data":
                with omp.target_data(map=[to(y), to(x)]):
                    pass
            else:
                omp.target(map=[to("y"), to("x")])(lambda y, x: None)(y, x)
        if thread.ident is None:
            thread.start()
        thread.join(60)
        assert not thread.is_alive()
        assert (found == 1).all()
        assert not omp.target_is_present(x, 0)
