"""PyTorch under capture: memory of its own, and operations that a graph cannot repeat.

The first part has an object that stands for PyTorch with CUDA; the second PyTorch itself, on the host, if it is there.
"""

from __future__ import annotations

import contextlib
import sys
from types import SimpleNamespace

import pytest

import offload as omp
from offload.devices.cuda.torch_capture import _ranges_of, capturing, pool_nbytes, refuse_what_changes


@pytest.fixture
def modules(monkeypatch):
    """Put an object in the place of PyTorch; without one it is not imported."""

    def put(torch):
        monkeypatch.setitem(sys.modules, "torch", torch)

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    return put


class TorchMemory:
    """PyTorch's functions for the memory of graphs, which note what they are called for."""

    __version__ = "2.11"
    has_traces = True

    def __init__(self):
        self.calls = []
        self._C = self.cuda = self.autograd = self.utils = self._python_dispatch = self
        self.Tag = SimpleNamespace(nondeterministic_seeded="seeded")
        self._device = None

    class TorchDispatchMode:
        def __enter__(self):
            pass

        def __exit__(self, *_):
            pass

    def init(self):
        self.calls.append("init")

    def _cuda_beginAllocateCurrentThreadToPool(self, *_):
        raise NotImplementedError

    def _cuda_clearCublasWorkspaces(self):
        self.calls.append("clear")

    def snapshot_of(self, segments):
        def snapshot(include_traces=True):
            assert not include_traces
            return segments

        return snapshot if self.has_traces else lambda: segments

    @contextlib.contextmanager
    def device(self, index):
        self._device = index
        yield
        self._device = None

    def MemPool(self):
        segments = [{"total_size": 1000}, {"total_size": 24}]
        return SimpleNamespace(of=self._device, snapshot=self.snapshot_of(segments))

    @contextlib.contextmanager
    def use_mem_pool(self, pool, device):
        assert pool.of == device
        self.calls.append(f"begin {device}")
        try:
            yield
        finally:
            self.calls.append(f"end {device}")

    @contextlib.contextmanager
    def set_multithreading_enabled(self, mode):
        self.calls.append(f"threads {mode}")
        try:
            yield
        finally:
            self.calls.append("threads as before")


@pytest.mark.parametrize("has_traces", [False, True])
@pytest.mark.parametrize("raises", [False, True])
def test_the_memory_of_a_graph_is_a_pool_of_its_own(modules, raises, has_traces):
    """Each device has a pool, the backward pass stays on the thread, and all ends with the block, also by an error."""
    torch = TorchMemory()
    torch.has_traces = has_traces
    modules(torch)
    with pytest.raises(ZeroDivisionError) if raises else contextlib.nullcontext(), capturing([2, 0], []) as pools:
        torch.calls.append("body")
        assert [pool.of for pool in pools] == [2, 0]
        assert pool_nbytes(pools) == 2048
        if raises:
            raise ZeroDivisionError
    before = ["init", "threads False", "begin 2", "begin 0", "clear"]
    assert torch.calls == [*before, "body", "clear", "end 0", "end 2", "threads as before"]


def test_without_pytorch_a_graph_has_no_such_memory(modules):
    """There are no pools if PyTorch is not imported, no body reaches it, or it has no CUDA."""
    with capturing([0], []) as pools:
        assert pools == []
    assert "torch" not in sys.modules
    torch = TorchMemory()
    modules(torch)
    with capturing([0], None) as pools:  # no body reaches it
        assert pools == []
    assert torch.calls == []

    class Broken(TorchMemory):
        def init(self):
            raise AssertionError("Torch not compiled with CUDA enabled")

    modules(Broken())
    with capturing([0], []) as pools:
        assert pools == []


def test_a_pytorch_without_pools_captures_nothing(modules):
    """A version that cannot keep the memory of a graph apart is an error, and no graph."""
    cuda = SimpleNamespace(init=lambda: None, use_mem_pool=None)
    modules(SimpleNamespace(cuda=cuda, _C=SimpleNamespace(), __version__="2.7"))
    with pytest.raises(omp.DeviceError, match=r"2\.7 has no memory pools .* use 2\.8 or later"), capturing([0], []):
        pass


# -- random numbers ----------------------------------------------------------------------------------


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.mark.parametrize(
    "call",
    [
        lambda torch, x: torch.rand(3),
        lambda torch, x: torch.randn(3),
        lambda torch, x: torch.randint(0, 9, (3,)),
        lambda torch, x: torch.randperm(3),
        lambda torch, x: x.clone().uniform_(),
        lambda torch, x: x.clone().normal_(),
        lambda torch, x: x.clone().exponential_(),
        lambda torch, x: torch.bernoulli(x.abs().clamp(max=1)),
        lambda torch, x: torch.multinomial(x.abs() + 1, 2),
        lambda torch, x: torch.nn.functional.dropout(x, 0.5, training=True),
        lambda torch, x: torch.nn.Dropout(0.1)(x),
    ],
)
def test_random_numbers_are_refused(torch, call):
    """An operation that takes random numbers raises inside, says which it is, and works afterwards."""
    x = torch.ones(4, 4)
    with refuse_what_changes(torch), pytest.raises(omp.UnsupportedError, match=r"aten\..*takes random numbers"):
        call(torch, x)
    call(torch, x)


def test_all_other_operations_pass(torch):
    """Models in eval mode, attention without dropout and a backward pass are not touched."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.GELU(), torch.nn.Linear(8, 4))
    model.eval()
    block = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x, q = torch.ones(3, 4), torch.linspace(0, 1, 48).reshape(2, 3, 8)
    expected = model(x), block(q)
    expected[0].sum().backward()
    gradient = model[0].weight.grad.clone()
    model.zero_grad()
    with refuse_what_changes(torch), torch.autograd.set_multithreading_enabled(False):
        found = model(x), block(q)
        found[0].sum().backward()
        attention = torch.nn.functional.scaled_dot_product_attention(q, q, q)
        with torch.inference_mode():
            other = model(x)
    assert all(torch.equal(one, two) for one, two in zip(found, expected, strict=True))
    assert torch.equal(model[0].weight.grad, gradient)
    assert torch.equal(other, expected[0])
    assert attention.shape == q.shape


# -- copies of host memory ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda x, host: x.copy_(host, non_blocking=True),
        lambda x, host: x.copy_(host),
        lambda x, host: x[1:].copy_(host[1:]),
        lambda x, host: host.to("meta", non_blocking=True),
        lambda x, host: host.to("meta", dtype=host.double().dtype),
        lambda x, host: host[0].to("meta"),
    ],
)
def test_a_copy_of_host_memory_that_nobody_keeps_is_refused(torch, call):
    """A copy between the device, for which PyTorch's meta device stands, and the host is refused, unless it is kept."""
    x, host = torch.empty(4, device="meta"), torch.ones(4)
    with refuse_what_changes(torch), pytest.raises(omp.UnsupportedError, match=r"copy.* that the graph cannot keep"):
        call(x, host)
    for reached in ([host], [host.numpy()], [host[2:], x]):
        with refuse_what_changes(torch, _ranges_of(reached)):
            call(x, host)
    with refuse_what_changes(torch, _ranges_of([host.numpy()[2:], torch.ones(4)])), pytest.raises(omp.UnsupportedError):
        call(x, host)


def test_a_copy_to_new_host_memory_is_refused(torch):
    """The destination would be a tensor of the host that is gone when the graph is launched."""
    x, host = torch.empty(4, device="meta"), torch.ones(4)
    with refuse_what_changes(torch, _ranges_of([host, x])):
        with pytest.raises(omp.UnsupportedError, match="cannot keep"):
            x.to("cpu", non_blocking=True)
        assert torch.equal(host.double().clone(), host.double())  # on the host; and on the device
        x.double().copy_(x)
