"""Captured graphs with PyTorch: results, memory, weights that move, gradients, and calls that cannot be captured."""

from __future__ import annotations

import gc
import warnings
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest

import offload as omp
from offload import in_, inout, to, tofrom
from tests.gpu.conftest import cupy, python, tensor

pytestmark = pytest.mark.gpu

N = 1000
MB = 1 << 20


@contextmanager
def told(*patterns):
    """Expect one PerformanceWarning, with these texts."""
    with pytest.warns(omp.PerformanceWarning) as caught:
        yield
    assert len(caught) == 1, [str(one.message) for one in caught]
    for pattern in patterns:
        assert pattern in str(caught[0].message)


def scramble(torch):
    """Use memory of all kinds, so that memory that a graph lacks is overwritten."""
    kept = []
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            for size in (8, 64, N, 64 * N, 1 << 21):
                kept += [torch.full((size,), float("nan"), device="cuda") for _ in range(4)]
            kept.append(torch.full((64, 64), float("nan"), device="cuda") @ torch.ones(64, 64, device="cuda"))
    torch.cuda.synchronize()
    kept += [cupy.full(size, cupy.nan) for size in (8, N, 1 << 20)]
    cupy.cuda.Device().synchronize()


def test_a_model_is_captured(gpu, torch):
    """A region whose body runs a model is one graph; its temporaries stay its own; the weights of now are used."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).cuda().eval()
    x, y = np.random.default_rng(0).random((32, 64)).astype("f4"), np.zeros((32, 8), "f4")

    @omp.target(nowait=True)
    def body(x, y):
        with torch.no_grad():
            tensor(y).copy_(model(tensor(x)))

    region = omp.taskgraph(body)
    with omp.target_data(map=[to(x), to(y)]):
        for turn in range(6):
            x += 0.5
            omp.target_update(to=[x])
            region(x, y)
            omp.target_update(from_=[y])
            with torch.no_grad():
                expected = model(torch.from_numpy(x).cuda()).cpu().numpy()
            assert np.allclose(y, expected, rtol=1e-4, atol=1e-5), turn
            scramble(torch)
            if turn == 3:
                with torch.no_grad():
                    model[0].weight.mul_(0.5)  # in place, so that the graph has it
                    torch.cuda.synchronize()
        (record,) = region.records
        assert (record.is_captured, record.why_not, record.n_captured) == (True, "", 1)
        assert record.nbytes > 0


def test_host_memory_that_a_body_keeps_is_read_at_each_launch(gpu, torch):
    """A copy from a pinned tensor that the body refers to is part of the graph; what is there at a launch arrives."""
    host, y = torch.zeros(N, dtype=torch.float64).pin_memory(), np.zeros(N)

    @omp.target(nowait=True)
    def body(y):
        tensor(y).copy_(host, non_blocking=True)

    region = omp.taskgraph(body)
    with omp.target_data(map=[tofrom(y)]):
        for turn in range(5):
            host.fill_(turn)
            region(y)
            scramble(torch)
            omp.target_update(from_=[y])
            assert (y == turn).all()
        assert region.records[0].is_captured, region.records[0].why_not


def test_a_graph_of_cupy_alone_does_not_initialise_torch(gpu, torch):
    """PyTorch is imported, but no body reaches it."""
    assert (
        python("""
        import numpy as np, torch, offload as omp
        region = omp.taskgraph(omp.target(nowait=True)(lambda y: y.fill(3)))
        y = np.zeros(10)
        with omp.Runtime("cuda:0"), omp.target_data(map=[omp.tofrom(y)]):
            for _ in range(3):
                region(y)
            assert region.records[0].is_captured
        assert (y == 3).all()
        print(torch.cuda.is_initialized())
    """)[0].strip()
        == "False"
    )


def test_weights_that_move_are_followed(gpu, torch):
    """A parameter with other data, a layer that is replaced, and eval mode are seen by the next replay."""
    layer = torch.nn.Linear(16, 16).cuda()
    model = torch.nn.Sequential(layer, torch.nn.BatchNorm1d(16).cuda()).eval()
    x, y = np.ones((4, 16), "f4"), np.zeros((4, 16), "f4")

    @omp.target(nowait=True)
    def body(x, y):
        with torch.no_grad():
            tensor(y).copy_(model(tensor(x)))

    region = omp.taskgraph(body)

    def check(n_captured):
        for _ in range(17):
            scramble(torch)
            region(x, y)
        omp.target_update(from_=[y])
        with torch.no_grad():
            expected = model(torch.from_numpy(x).cuda()).cpu().numpy()
        assert np.allclose(y, expected, rtol=1e-4, atol=1e-5)
        assert region.records[0].n_captured == n_captured

    with omp.target_data(map=[to(x), to(y)]):
        check(1)
        layer.weight.data = torch.rand(16, 16, device="cuda")
        check(2)
        model[0] = torch.nn.Linear(16, 16).cuda()
        check(3)
        model.train()
        region(x, y)
        assert region.records[0].n_captured == 4


def test_branches_with_torch(gpu, torch):
    """Independent bodies are branches of the graph, whose temporaries do not meet."""
    weights = [torch.rand(64, 64, device="cuda") for _ in range(6)]
    torch.cuda.synchronize()
    xs = [np.random.default_rng(k).random((64, 64)).astype("f4") for k in range(6)]
    total = np.zeros((64, 64), "f4")

    def multiply(k):
        weight = weights[k]

        @omp.target(nowait=True, depend=[inout("x")])
        def body(x):
            x = tensor(x)
            for _ in range(4):
                x.copy_((x @ weight) / 32 + torch.sin(x))

        return body

    bodies = [multiply(k) for k in range(6)]

    @omp.target(nowait=True, depend=[inout("total"), in_("x")])
    def add(total, x):
        tensor(total).add_(tensor(x))

    @omp.taskgraph
    def region(total, *xs):
        for body, x in zip(bodies, xs, strict=True):
            body(x)
        for x in xs:
            add(total, x)

    eager = [torch.from_numpy(x.copy()).cuda() for x in xs]
    expected = torch.zeros(64, 64, device="cuda")
    with omp.target_data(map=[tofrom(total), *(to(x) for x in xs)]):
        for _ in range(5):
            region(total, *xs)
            scramble(torch)
            for k, x in enumerate(eager):
                for _ in range(4):
                    x.copy_((x @ weights[k]) / 32 + torch.sin(x))
                expected += x
        assert region.records[0].is_captured, region.records
    assert np.allclose(total, expected.cpu().numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("drops", [False, True])
def test_backward_passes(gpu, torch, drops):
    """Gradients of replays are those of eager calls: they add up, or begin again where the program drops them."""
    layers = [torch.nn.Linear(16, 16).cuda() for _ in range(2)]
    with torch.no_grad():
        layers[1].load_state_dict(layers[0].state_dict())
    layer, other = layers
    x = np.random.default_rng(0).random((8, 16)).astype("f4")

    @omp.target(nowait=True)
    def body(x):
        (layer(tensor(x)) ** 2).sum().backward()

    region = omp.taskgraph(body)
    with omp.target_data(map=[to(x)]):
        for turn in range(6):
            if drops:
                layer.zero_grad(set_to_none=True)
                other.zero_grad(set_to_none=True)
            with told("new gradient") if drops and turn == 1 else nullcontext():
                region(x)
            scramble(torch)
            (other(torch.from_numpy(x).cuda()) ** 2).sum().backward()
            for mine, theirs in zip(layer.parameters(), other.parameters(), strict=True):
                assert torch.allclose(mine.grad, theirs.grad, rtol=1e-3, atol=1e-4), turn
        assert region.records[0].is_captured is not drops
    layer.zero_grad(set_to_none=True)


def reads_a_value(torch):
    return lambda t: t.sum().item()


def takes_random_numbers(torch):
    return lambda t: t.add_(torch.rand(N, device="cuda", dtype=t.dtype) * 0)


def drops_out(torch):
    return lambda t: torch.nn.functional.dropout(t, 0.5)


def waits(torch):
    return lambda t: torch.cuda.synchronize()


def copies_to_the_host(torch):
    return lambda t: t.cpu()


def copies_from_memory_of_nobody(torch):
    zeros = torch.zeros
    return lambda t: t.add_(zeros(N).pin_memory().to("cuda", non_blocking=True))


@pytest.mark.parametrize(
    ("make", "call"),
    [
        (copies_from_memory_of_nobody, 'pin_memory().to("cuda"'),
        (reads_a_value, "t.sum().item()"),
        (takes_random_numbers, "torch.rand("),
        (drops_out, "torch.nn.functional.dropout(t, 0.5)"),
        (waits, "torch.cuda.synchronize()"),
        (copies_to_the_host, "t.cpu()"),
    ],
)
def test_a_call_that_torch_cannot_capture_is_told_once(gpu, torch, make, call):
    """One warning names the call; the region is replayed task by task with the right results, and PyTorch works on."""
    refused = make(torch)
    y = np.zeros(N)

    @omp.target(nowait=True)
    def body(y):
        y = tensor(y)
        refused(y)
        y.add_(1)

    region = omp.taskgraph(body)
    with omp.target_data(map=[tofrom(y)]):
        region(y)
        with told(call, "test_torch_capture.py", "under capture"):
            region(y)
        for _ in range(3):
            region(y)  # warnings are errors
        assert not region.records[0].is_captured
        assert "under capture" in region.records[0].why_not
        t = torch.ones(N, device="cuda") * 2  # no error of the capture is left on the thread
        assert t.sum().item() == 2 * N
    assert (y == 5).all()

    @omp.target(nowait=True)
    def plain(y):
        tensor(y).mul_(2)

    region = omp.taskgraph(plain)
    with omp.target_data(map=[tofrom(y)]):
        for _ in range(3):
            region(y)
        assert region.records[0].is_captured
    assert (y == 40).all()


def test_attention_is_captured(gpu, torch):
    """A transformer layer in eval mode takes no random numbers, and is one graph."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).cuda().eval()
    x, y = np.random.default_rng(0).random((4, 16, 64)).astype("f4"), np.zeros((4, 16, 64), "f4")

    @omp.target(nowait=True)
    def body(x, y):
        with torch.no_grad():
            tensor(y).copy_(layer(tensor(x)))

    region = omp.taskgraph(body)
    with omp.target_data(map=[to(x), to(y)]):
        for _ in range(4):
            region(x, y)
            scramble(torch)
        assert region.records[0].is_captured, region.records
        omp.target_update(from_=[y])
    with torch.no_grad():
        expected = layer(torch.from_numpy(x).cuda()).cpu().numpy()
    assert np.allclose(y, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("benchmark", [False, True])
def test_convolutions(gpu, torch, monkeypatch, benchmark):
    """A convolution is captured or told, also where cuDNN measures first; the results are those of eager calls."""
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", benchmark)
    conv = torch.nn.Conv2d(3, 8, 3).cuda().eval()
    x, y = np.random.default_rng(0).random((2, 3, 32, 32)).astype("f4"), np.zeros((2, 8, 30, 30), "f4")

    @omp.target(nowait=True)
    def body(x, y):
        with torch.no_grad():
            tensor(y).copy_(conv(tensor(x)))

    region = omp.taskgraph(body)
    with omp.target_data(map=[to(x), to(y)]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", omp.PerformanceWarning)
            for _ in range(4):
                region(x, y)
                scramble(torch)
        omp.target_update(from_=[y])
    with torch.no_grad():
        expected = conv(torch.from_numpy(x).cuda()).cpu().numpy()
    assert np.allclose(y, expected, rtol=1e-3, atol=1e-3)
    print("captured" if region.records[0].is_captured else region.records[0].why_not)


def test_the_memory_of_a_graph_goes_with_it(gpu, torch):
    """The pool of a graph goes back to PyTorch when the record is dropped."""
    y = np.zeros(N)

    @omp.target(nowait=True)
    def body(y):
        tensor(y).add_(torch.ones(16 * MB, device="cuda")[:N])

    gc.collect()
    torch.cuda.empty_cache()
    region = omp.taskgraph(body)
    with omp.target_data(map=[tofrom(y)]):
        region(y)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved(0)
        region(y)
        region(y)
        assert region.records[0].nbytes >= 64 * MB
        assert torch.cuda.memory_reserved(0) >= before + 64 * MB
        region.options(graph_reset=True)(y)
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        assert torch.cuda.memory_reserved(0) <= before + 4 * MB
    assert (y == 4).all()
