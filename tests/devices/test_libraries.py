"""The current streams of other libraries, by modules that stand for PyTorch and Warp."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest

import offload as omp
from offload.devices.cuda.libraries import (
    Libraries,
    device_index,
    imported,
    warn_of_late_import,
)

KIND = 1  # PyTorch's number of the kind of device CUDA


class Torch:
    """PyTorch's functions for current streams: each thread has its own; an external stream's id is its address."""

    def __init__(self, n_devices=2):
        self._C = self
        self._n_devices = n_devices
        self._threads = threading.local()
        self.device = 0  # the current one, which setting a stream changes

    def _cuda_getCurrentStream(self, index):
        if index >= self._n_devices:
            raise RuntimeError("no such device")
        return self._threads.__dict__.get(index, 0), index, KIND

    def _cuda_getCurrentRawStream(self, index):
        return self._cuda_getCurrentStream(index)[0]

    def _cuda_setStream(self, stream_id, device_index, device_type):
        assert device_type == KIND
        self.device = device_index
        self._threads.__dict__[device_index] = stream_id


class Warp:
    """Warp's functions for current streams: one for each device, whichever thread asks."""

    def __init__(self, n_devices=2):
        self._streams = {f"cuda:{index}": SimpleNamespace(cuda_stream=None) for index in range(n_devices)}
        self.made = []

    def get_device(self, name):
        if name not in self._streams:
            raise ValueError(name)
        return name

    def get_stream(self, device):
        return self._streams[device]

    def set_stream(self, stream, device, sync=False):
        assert not sync
        self._streams[device] = stream

    def Stream(self, device, cuda_stream):  # a class of Warp's
        self.made.append((device, cuda_stream))
        return SimpleNamespace(cuda_stream=cuda_stream)


@pytest.fixture
def modules(monkeypatch):
    """Put modules in the place of the libraries', by name; None: it is not imported."""

    def put(**given):
        for name in ("torch", "warp"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        for name, module in given.items():
            monkeypatch.setitem(sys.modules, name, module)

    put()
    return put


def test_nothing_is_imported_or_asked(modules):
    """A library that the program has not imported is neither imported nor counted."""
    libraries = Libraries(0)
    assert imported() == 0
    assert libraries.enter(4096) == []
    assert libraries.currents() == []
    assert not {"torch", "warp"} & sys.modules.keys()


def test_streams_are_current_inside(modules):
    """Inside, the stream is current in both libraries on that device; afterwards the one from before is."""
    torch, warp = Torch(), Warp()
    modules(torch=torch, warp=warp)
    assert imported() == 3
    torch._cuda_setStream(512, 1, KIND)
    torch._cuda_setStream(256, 0, KIND)
    libraries = Libraries(1)
    for ptr in (4096, 8192, 4096):
        entered = libraries.enter(ptr)
        assert libraries.currents() == [("PyTorch", ptr), ("Warp", ptr)]
        assert torch.device == 1
        libraries.leave(entered)
        assert libraries.currents() == [("PyTorch", 512), ("Warp", 0)]
    assert torch._cuda_getCurrentRawStream(0) == 256
    assert warp.made == [("cuda:1", 4096), ("cuda:1", 8192)]  # one for each stream


def test_blocks_nest(modules):
    """A block inside of another ends with the stream of the outer one."""
    modules(torch=Torch(), warp=Warp())
    libraries = Libraries(0)
    outer = libraries.enter(4096)
    inner = libraries.enter(8192)
    libraries.leave(inner)
    assert libraries.currents() == [("PyTorch", 4096), ("Warp", 4096)]
    libraries.leave(outer)
    assert libraries.currents() == [("PyTorch", 0), ("Warp", 0)]


def test_a_stream_that_the_body_leaves_current(modules):
    """A body that makes a stream of its own current does not change what is current after it."""
    torch = Torch()
    modules(torch=torch)
    libraries = Libraries(0)
    entered = libraries.enter(4096)
    torch._cuda_setStream(99, 0, KIND)
    libraries.leave(entered)
    assert libraries.currents() == [("PyTorch", 0)]


def test_the_legacy_stream_is_pytorchs_default_stream(modules):
    """cudaStreamLegacy and the null stream are the same stream, and PyTorch knows it by one name."""
    modules(torch=Torch())
    libraries = Libraries(0)
    entered = libraries.enter(1)
    assert libraries.currents() == [("PyTorch", 0)]
    libraries.leave(entered)


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("torch", SimpleNamespace(_C=SimpleNamespace())),  # a build without CUDA
        ("torch", SimpleNamespace()),  # no PyTorch at all
        ("torch", Torch(1)),  # does not see the second device
        ("warp", Warp(1)),
        ("warp", SimpleNamespace()),
    ],
)
def test_a_library_that_cannot_use_the_device_is_left_alone(modules, name, module):
    """A library without CUDA, or that does not see the device, takes no part, and bodies run."""
    modules(**{name: module})
    libraries = Libraries(1)
    libraries.leave(libraries.enter(4096))
    assert libraries.currents() == []


def test_a_library_that_is_being_imported_is_asked_again(modules):
    """While another thread imports a library, it takes no part; it does when the import is complete."""
    torch = Torch()
    torch.__spec__ = SimpleNamespace(_initializing=True)
    functions, torch._C = torch._C, None
    modules(torch=torch)
    libraries = Libraries(0)
    assert libraries.currents() == []
    torch.__spec__._initializing, torch._C = False, functions
    assert libraries.currents() == [("PyTorch", 0)]


def test_a_failure_restores_the_others(modules):
    """If a library refuses the stream, the error arrives, and the others have their streams from before."""
    torch, warp = Torch(), Warp()
    modules(torch=torch, warp=warp)
    libraries = Libraries(0)

    def refuse(*_, **__):
        raise RuntimeError("no")

    warp.set_stream = refuse
    with pytest.raises(RuntimeError, match="no"):
        libraries.enter(4096)
    assert torch._cuda_getCurrentRawStream(0) == 0
    del warp.set_stream
    done = threading.Event()
    thread = threading.Thread(target=lambda: (libraries.leave(libraries.enter(4096)), done.set()))
    thread.start()
    thread.join(10)
    assert done.is_set()  # the lock was given back


def test_a_library_that_cannot_go_back_leaves_the_others(modules):
    """If one library raises when its stream is restored, the others have theirs."""
    torch, warp = Torch(), Warp()
    modules(torch=torch, warp=warp)
    libraries = Libraries(0)
    entered = libraries.enter(4096)
    set_stream = warp.set_stream

    def refuse(*_, **__):
        raise RuntimeError("no")

    warp.set_stream = refuse
    with pytest.raises(RuntimeError, match="no"):
        libraries.leave(entered)
    warp.set_stream = set_stream
    assert torch._cuda_getCurrentRawStream(0) == 0
    done = threading.Event()
    thread = threading.Thread(target=lambda: (libraries.leave(libraries.enter(4096)), done.set()))
    thread.start()
    thread.join(10)
    assert done.is_set()  # the lock was given back


def test_a_pytorch_that_takes_no_addresses_is_an_error(modules):
    """A version whose stream ids are no addresses is an error, and not a body on another stream."""
    torch = Torch()
    torch._cuda_getCurrentRawStream = lambda index: 7
    modules(torch=torch)
    libraries = Libraries(0)
    with pytest.raises(omp.UnsupportedError, match="version of PyTorch"):
        libraries.enter(4096)
    assert torch._cuda_getCurrentStream(0) == (0, 0, KIND)


def test_threads_have_their_own_streams(modules):
    """PyTorch's stream is the thread's own; bodies that Warp could mix up run one after another."""
    torch, warp = Torch(), Warp()
    modules(torch=torch, warp=warp)
    libraries = [Libraries(0), Libraries(1)]
    inside, failures = threading.Lock(), []

    def run(number):
        mine = libraries[number % 2]
        for turn in range(50):
            ptr = 4096 * (1 + number + 10 * turn)
            entered = mine.enter(ptr)
            try:
                assert inside.acquire(blocking=False), "two bodies at a time"
                assert [at for _, at in mine.currents()] == [ptr, ptr]
                inside.release()
            except AssertionError as error:
                failures.append(error)
            finally:
                mine.leave(entered)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_late_import_is_told(modules):
    """A library that was imported while a body ran did not get the task's stream, and a warning says so."""
    modules(warp=Warp())
    before = imported()
    modules(torch=Torch(), warp=Warp())
    with pytest.warns(omp.DirectiveWarning, match="^torch was imported .*import torch before"):
        warn_of_late_import(before)
    with pytest.warns(omp.DirectiveWarning, match="^torch and warp was"):
        warn_of_late_import(0)


@pytest.mark.parametrize(
    ("stream", "index"),
    [
        (SimpleNamespace(device_id=1), 1),  # CuPy
        (SimpleNamespace(device_index=1, device=SimpleNamespace(index=1, type="cuda")), 1),  # PyTorch
        (SimpleNamespace(device=SimpleNamespace(ordinal=1)), 1),  # Warp
        (SimpleNamespace(device=SimpleNamespace(device_id=1)), 1),  # cuda.core
        (SimpleNamespace(), None),
        (SimpleNamespace(device=None, device_id="1"), None),
    ],
)
def test_the_device_of_a_stream(stream, index):
    """The device is read where each library has it."""
    assert device_index(stream) == index
