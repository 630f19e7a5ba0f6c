"""Bodies that reach PyTorch's tensors and modules: what a graph keeps of them, and when it is captured again.

PyTorch need not be installed: the tests run with classes that have its names and the attributes in question. Where
PyTorch is installed, they run with its own, too.
"""

from __future__ import annotations

import sys
import weakref
from functools import partial
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import offload as omp
from offload import alloc, inout, tofrom
from offload.arrays.foreign import TensorForm, is_model, is_tensor, with_tensors
from offload.graphs.reach import HostChanges, reached, reaches_library
from offload.graphs.rehearsal import NotCapturableError
from offload.graphs.tensors import TensorState
from tests.graphs.test_capture import GraphDevice


class Tensor:
    """A tensor as far as a graph looks at it."""

    __module__ = "torch"
    layout = "strided"
    is_cpu = True
    is_nested = is_quantized = is_meta = False

    def __init__(self, n=3, *, requires_grad=False, device="cpu"):
        self.storage = np.zeros(n)
        self.shape = (n,)
        self.strides = (1,)
        self.dtype = "float64"
        self.requires_grad = requires_grad
        self.is_leaf = True
        self.grad = None
        self.device = SimpleNamespace(type=device)

    @property
    def __cuda_array_interface__(self):
        if self.requires_grad:
            raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad")
        raise AttributeError

    def numpy(self):
        return self.storage

    def data_ptr(self):
        return self.storage.ctypes.data

    def stride(self):
        return self.strides

    def numel(self):
        return self.storage.size

    def detach(self):
        alias = Tensor()
        alias.storage = self.storage
        return alias

    def replace(self, other):
        """Do as ``self.data = other``."""
        self.storage, self.shape, self.strides, self.dtype = other.storage, other.shape, other.strides, other.dtype


class Module:
    """A module as far as a graph looks at it."""

    __module__ = "torch.nn.modules.module"

    def __init__(self, **parameters):
        self.training = True
        self._parameters = parameters
        self._buffers = {}
        self._modules = {}
        self._forward_hooks = {}


def fakes():
    def layer():
        return Module(weight=Tensor(4, requires_grad=True), bias=Tensor(2, requires_grad=True))

    def model(*layers):
        made = Module()
        made._modules.update(enumerate(layers))
        return made

    return SimpleNamespace(tensor=Tensor, layer=layer, model=model, replace=Tensor.replace, Module=Module)


def of_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    def replace(tensor, other):
        tensor.data = other

    return SimpleNamespace(
        tensor=lambda n=3, requires_grad=False: torch.zeros(n, requires_grad=requires_grad),
        layer=lambda: torch.nn.Linear(2, 2),
        model=torch.nn.Sequential,
        replace=replace,
        Module=torch.nn.Module,
    )


@pytest.fixture(params=[fakes, of_torch])
def made(request, monkeypatch):
    """Functions that make tensors and modules."""
    if request.param is fakes:
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Tensor, strided="strided"))
        monkeypatch.setitem(sys.modules, "torch.nn", SimpleNamespace(Module=Module))
    return request.param()


def parameters(module):
    return list(module._parameters.values())


def test_tensors_and_modules_are_kept(made):
    """What a body reaches of them is kept: a tensor that requires grad, a module, and all parts of the module."""
    tensor = made.tensor(5, requires_grad=True)
    layers = [made.layer() for _ in range(3)]
    model = made.model(*layers)

    def body(y):
        return tensor, model

    kept = reached(body, [])
    assert is_tensor(tensor)
    assert is_model(model)
    for value in (tensor, model, *layers, *(part for layer in layers for part in parameters(layer))):
        assert any(value is one for one in kept), value
    assert reaches_library(body, [], "torch")
    assert not reaches_library(lambda y: y, [np.zeros(3)], "torch")
    assert reaches_library(partial(with_tensors, lambda y: y), [np.zeros(3)], "torch")
    assert reaches_library(lambda y: y, [TensorForm(tensor)], "torch")
    assert not reaches_library(lambda y: y, [TensorForm(tensor)], "warp")


@pytest.mark.parametrize("made", [fakes], indirect=True)
def test_a_body_of_tensors_receives_tensors_as_they_are(made):
    """A tensor that requires grad is not asked for the interface of device arrays, which would raise."""
    tensor = made.tensor(3, requires_grad=True)
    assert with_tensors(lambda x, *, y: (x, y), tensor, y=tensor) == (tensor, tensor)


def test_a_module_of_the_program(made):
    """Attributes and methods of a module are looked at: an array in a global is found, an unknown object refused."""
    layer = made.layer()
    kind = type("Mine", (made.Module,), {"__module__": "mine", "forward": lambda self, x: scale(x)})
    model = kind()
    model._modules["layer"] = layer
    weights = made.tensor(4)

    def scale(x):
        return weights

    assert any(one is weights for one in reached(lambda y: model(y), []))  # noqa: PLW0108  # a body

    class Cache:
        def __init__(self):
            self.rows = {}

    model.cache = Cache()
    with pytest.raises(NotCapturableError, match=r"Mine\.cache, a Cache"):
        reached(lambda y: model(y), [])  # noqa: PLW0108  # a body


def test_what_a_weak_reference_refers_to_is_kept(made):
    """A layer that has its weights by weak references is looked into."""
    tensor = made.tensor(3)
    box = [weakref.ref(tensor)]
    assert any(one is tensor for one in reached(lambda y: box, []))


def test_a_tensor_of_the_host_that_host_tasks_change(made):
    """A body that reaches a host tensor which a host task may change is refused, as it is for an array."""
    flag = made.tensor(1)
    changes = HostChanges(frozenset(), frozenset(), {id(flag): flag}, True, frozenset())
    with pytest.raises(NotCapturableError, match="which a host task of the region may change"):
        reached(lambda y: flag, [], changes)
    other = made.tensor(1)
    assert reached(lambda y: other, [], changes)


@pytest.mark.parametrize("swaps", [False, True])
def test_a_tensor_and_an_array_of_the_same_memory(swaps):
    """A body is refused that reads memory which a host task may change, whichever of both is PyTorch's."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    tensor = torch.zeros(4)
    for one, same in ((tensor, tensor.numpy()), (tensor, tensor.view(4)), (tensor.numpy(), tensor.detach())):
        mine, theirs = (same, one) if swaps else (one, same)
        changes = HostChanges(frozenset(), frozenset(), {id(theirs): theirs}, True, frozenset())
        assert changes.may_change("x", mine)
        assert not changes.may_change("x", torch.zeros(4))
        assert not changes.may_change("x", np.zeros(4))
    conjugate = torch.zeros(4, dtype=torch.complex64).conj()  # NumPy cannot look at it
    assert HostChanges(frozenset(), frozenset(), {0: conjugate}, True, frozenset()).may_change("x", tensor)


def test_the_state_holds_while_nothing_changes(made):
    """Contents may change; data that is elsewhere, another shape, a gradient, the mode and other parts may not."""
    layer, other = made.layer(), made.layer()
    model = made.model(layer, other)
    plain = made.tensor(6)
    values = [plain, model, layer, other, *parameters(layer), *parameters(other)]
    weight = parameters(layer)[0]

    def swap():
        layer._parameters["weight"] = parameters(made.layer())[0]

    def drop():
        model._modules.popitem()

    def buffer():
        other._buffers["mean"] = made.tensor(3)

    def grad():
        weight.grad = type(plain)() if isinstance(plain, Tensor) else weight.detach().clone()

    def strides():
        if isinstance(weight, Tensor):
            weight.strides = (2,)
        else:
            weight.data = weight.data.t()  # of the same address and shape

    def dtype():
        if isinstance(plain, Tensor):
            plain.dtype = "int64"
        else:
            plain.data = plain.data.view(sys.modules["torch"].int32)

    layer.cache, layer.mask, layer.my_hooks = made.tensor(3), None, []  # plain attributes
    changes = {
        "strides": strides,
        "dtype": dtype,
        "attribute": lambda: setattr(layer, "cache", made.tensor(3)),
        "no attribute": lambda: delattr(layer, "cache"),
        "attribute that was None": lambda: setattr(layer, "mask", made.tensor(3)),
        "hook": lambda: layer._forward_hooks.update({0: print}),
        "all buffers": lambda: vars(other).update(_buffers={}),
        "data": lambda: made.replace(weight, type(weight)(9) if isinstance(weight, Tensor) else weight.data.clone()),
        "mode": lambda: setattr(layer, "training", False),
        "parameter": swap,
        "submodule": drop,
        "buffer": buffer,
        "gradient": grad,
    }
    for name, change in changes.items():
        state = TensorState(values)
        assert state.holds()
        assert state.holds()
        change()
        assert not state.holds(), name
        assert not state.holds(), name
    assert TensorState([]).holds()


def test_memory_stays_when_a_tensor_gets_other_data(made):
    """The memory that a tensor had at the capture is kept, though the tensor has other data now."""
    tensor = made.tensor(7)
    ptr = tensor.data_ptr()
    state = TensorState([tensor])
    made.replace(tensor, made.tensor(7))
    assert tensor.data_ptr() != ptr
    assert [one.data_ptr() for one in state._kept] == [ptr]


def test_a_tensor_without_memory_is_refused(made, monkeypatch):
    """A tensor that has no address cannot be in a graph, unless it has no elements."""

    def refuse(self):
        raise RuntimeError("no storage")

    tensor, empty = made.tensor(3), made.tensor(0)
    kind = type(tensor)
    monkeypatch.setattr(kind, "data_ptr", refuse)
    with pytest.raises(NotCapturableError, match="no storage"):
        TensorState([tensor])
    monkeypatch.setattr(kind, "data_ptr", lambda self: 0)
    with pytest.raises(NotCapturableError, match="without memory"):
        TensorState([empty, tensor])
    assert TensorState([empty]).holds()


@pytest.mark.parametrize("name", ["training", "_modules", "_parameters", "_buffers"])
def test_a_module_that_is_not_complete_is_refused(made, name):
    """A module whose class has not called the base's __init__ has no state to note."""
    module = made.layer()
    del vars(module)[name]
    with pytest.raises(NotCapturableError, match="parts offload cannot find"):
        TensorState([module])


def test_gradients_of_a_capture_that_failed_go(made):
    """A gradient that a capture has made was never computed: the tensor has the one from before again."""
    weight, other = (made.tensor(3, requires_grad=True) for _ in range(2))
    before = other.grad = made.tensor(3)
    state = TensorState([weight, other])
    weight.grad, other.grad = made.tensor(3), made.tensor(3)
    assert not state.holds()
    state.restore()
    assert state.holds()
    assert weight.grad is None
    assert other.grad is before


# -- replays -----------------------------------------------------------------------------------------


@pytest.fixture
def device(monkeypatch):
    """The one device of a current runtime, whose work can be captured."""
    device = GraphDevice(0)
    monkeypatch.setattr("offload.runtime.runtime.open_devices", lambda *_, **__: [device])
    with omp.Runtime("null", num_threads=1, check=True):
        yield device
    assert not device.capturing


def test_a_body_that_makes_gradients_is_no_graph(device, made):
    """A replay would leave a dropped gradient dropped. So the region is replayed task by task, with one warning."""
    weight, grads = made.tensor(3, requires_grad=True), [made.tensor(3) for _ in range(9)]
    n_bodies = 0

    @omp.target(nowait=True)
    def body(y):
        nonlocal n_bodies
        n_bodies += 1
        if weight.grad is None:
            weight.grad = grads.pop()

    region = omp.taskgraph(body)
    y = np.zeros(3)
    with omp.target_data(map=[alloc(y)]):
        region(y)
        weight.grad = None
        with pytest.warns(omp.PerformanceWarning, match=r"new gradient .*set_to_none=False"):
            region(y)
        for _ in range(3):
            assert weight.grad is not None
            weight.grad = None
            region(y)
    assert n_bodies == 6
    assert not region.records[0].is_captured


def test_a_region_is_captured_again_when_a_weight_moves(device, made):
    """A replay after the model was changed in place captures again; before and after, replays are launches."""
    layer = made.layer()
    region = omp.taskgraph(omp.target(nowait=True)(lambda y: layer and None))
    y = np.zeros(3)
    with omp.target_data(map=[tofrom(y)]):
        for _ in range(4):
            region(y)
        assert region.records[0].n_captured == 1
        made.replace(parameters(layer)[0], made.tensor(4))
        for _ in range(3):
            region(y)
        assert region.records[0].n_captured == 2
        layer.training = False
        for _ in range(3):
            region(y)
        assert region.records[0].n_captured == 3
        assert region.records[0].is_captured


def test_a_mode_that_alternates_is_told(device, made):
    """A region whose module changes at each replay is left to streams, and the reason is not the data."""
    layer = made.layer()
    region = omp.taskgraph(omp.target(nowait=True)(lambda y: layer and None))
    y = np.zeros(3)
    with omp.target_data(map=[tofrom(y)]):
        for turn in range(8):
            layer.training = turn % 2 == 0
            region(y)
    (record,) = region.records
    assert (record.is_captured, record.n_captured) == (False, 3)
    assert "PyTorch tensors or modules that it reaches were changed" in record.why_not
    assert "mapped elsewhere" not in record.why_not


@pytest.mark.parametrize("made", [fakes], indirect=True)
def test_a_host_task_that_moves_a_tensor_between_pieces(device, made):
    """The piece behind it is captured again: no graph is launched that has the address from before."""
    weight, y, found, replace = made.tensor(4), np.zeros(3), [], made.replace
    others = [made.tensor(4) for _ in range(9)]
    weight.device.type = "cuda"  # a body that reaches the host's is refused

    @omp.taskgraph
    def region(y):
        for _ in range(2):
            omp.target(nowait=True, depend=[inout(y)])(lambda y: None)(y)
        omp.task(depend=[inout(y)])(lambda: replace(weight, others.pop()))()
        for _ in range(2):
            omp.target(nowait=True, depend=[inout(y)])(lambda y: found.append(weight.data_ptr()))(y)

    with omp.target_data(map=[tofrom(y)]):
        for _ in range(5):
            found.clear()
            region(y)
            assert found[-2:] == [weight.data_ptr()] * 2  # before them, those of a capture that is of no use
        (record,) = region.records
        assert (record.is_captured, record.why_not) == (True, "")


def test_a_tensor_that_moves_before_the_launch(device, made, monkeypatch):
    """If a tensor changes between the begin of a replay and the launch of its one graph, the replay is an error."""
    layer, y = made.layer(), np.zeros(3)
    region = omp.taskgraph(omp.target(nowait=True)(lambda y: layer and None))
    with omp.target_data(map=[tofrom(y)]):
        for _ in range(3):
            region(y)
        n_launched = len(device.launches)
        answers = iter([True, False])
        monkeypatch.setattr(TensorState, "holds", lambda self: next(answers))
        with pytest.raises(ExceptionGroup) as caught:
            region(y)
        (error,) = caught.value.exceptions
        assert isinstance(error, omp.UsageError)
        assert "changed while it was being replayed" in str(error)
        monkeypatch.undo()
        assert len(device.launches) == n_launched


REFUSES = """
import offload as omp

def item(y):
    if omp.current_stream().device.capturing:
        raise RuntimeError("CUDA error: not permitted\\nCompile with TORCH_USE_CUDA_DSA to enable assertions.")
"""


@pytest.fixture
def library(monkeypatch, request):
    """A module with a function that raises under capture."""
    library = ModuleType(request.param)
    exec(REFUSES, library.__dict__)
    monkeypatch.setitem(sys.modules, request.param, library)
    return library


@pytest.mark.parametrize("library", ["torch"], indirect=True)
def test_a_refused_call_is_told_once(device, library):
    """Where PyTorch refuses a call, one warning names it, the task is left out of the graphs, and results are right."""
    torch = library
    n_bodies = 0

    @omp.target(nowait=True)
    def body(y):
        nonlocal n_bodies
        n_bodies += 1
        torch.item(y)

    region = omp.taskgraph(body)
    y = np.zeros(3)
    omp.target_enter_data(map=[alloc(y)])
    region(y)
    with pytest.warns(omp.PerformanceWarning) as caught:
        region(y)
    (warning,) = caught
    message = str(warning.message)
    assert "`torch.item(y)` (test_tensors.py:" in message
    assert ") raised RuntimeError under capture: CUDA error: not permitted;" in message
    assert "TORCH_USE" not in message
    assert warning.filename == __file__
    for _ in range(3):
        region(y)  # warnings are errors
    assert n_bodies == 6
    assert "not permitted" in region.records[0].why_not
    omp.target_exit_data(map=[omp.delete(y)])


@pytest.mark.parametrize("library", ["scipy"], indirect=True)
def test_other_libraries_are_refused_silently(device, library):
    """A body that does not use PyTorch is replayed task by task without a warning; the record says why."""
    region = omp.taskgraph(omp.target(nowait=True)(lambda y: library.item(y)))  # noqa: PLW0108  # a body
    y = np.zeros(3)
    with omp.target_data(map=[alloc(y)]):
        for _ in range(3):
            region(y)
    assert "not permitted" in region.records[0].why_not
