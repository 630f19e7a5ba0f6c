"""Tensors of PyTorch in bodies, mappers, records and copies, where a type, a kind or an identity could get lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import offload as omp
from offload import in_, inout, out, to, tofrom

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

HALF = [torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def _runtime(runtime: omp.Runtime) -> None:
    """Simulated devices."""


@pytest.mark.parametrize("clauses", [{}, {"arrays": "torch"}, {"arrays": "torch", "if_": False}, {"nowait": True}])
@pytest.mark.parametrize("dtype", HALF)
def test_a_body_computes_with_the_type_of_the_tensor(clauses: dict[str, Any], dtype: Any) -> None:
    """Types that NumPy lacks reach the body, whatever the clauses are."""
    x = torch.ones(4, dtype=dtype)

    @omp.target(map=[tofrom("x")], **clauses)
    def double(x: Any) -> None:
        assert x.dtype is dtype
        x *= 2

    double(x)
    omp.taskwait()
    assert (x.float() == 2).all()


def test_a_part_of_a_tensor_that_a_mapper_names() -> None:
    """Its integers are no numbers: it is an error where the body would compute with them."""

    class Part:
        def __init__(self, dtype: Any) -> None:
            self.w = torch.ones(8, dtype=dtype)

    omp.declare_mapper(Part, lambda part: [tofrom(part.w[2:5])])

    @omp.target
    def double(part: Any) -> None:
        part.w[2:5] *= 2

    part = Part(torch.float32)
    double(part)
    assert part.w.tolist() == [1, 1, 2, 2, 2, 1, 1, 1]
    with pytest.raises(omp.UnsupportedError, match=r"a part of w.*bfloat16"):
        double(Part(torch.bfloat16))


def test_a_mapper_of_many_tensors() -> None:
    """Each tensor in lists and dictionaries is found."""

    class State:
        def __init__(self) -> None:
            self.moments = [torch.zeros(3) for _ in range(5)]
            self.named = {"a": torch.zeros(2), "b": [torch.zeros(4), bytearray(2), np.zeros(1)]}

    def items(state: Any) -> list[Any]:
        return [tofrom(*state.moments, state.named["a"], *state.named["b"])]

    omp.declare_mapper(State, items)

    @omp.target
    def fill(state: Any) -> None:
        for x in (*state.moments, state.named["a"], state.named["b"][0]):
            assert isinstance(x, torch.Tensor)
            x.add_(1)
        state.named["b"][1][:] = 1
        state.named["b"][2][:] = 1

    state = State()
    fill(state)
    for x in (*state.moments, state.named["a"], *state.named["b"]):
        assert all(value == 1 for value in x)


def test_attributes_that_nobody_maps() -> None:
    """A sparse tensor, a meta tensor and a released buffer next to a mapped one are left alone."""

    class Mixed:
        def __init__(self) -> None:
            self.x = torch.zeros(3)
            self.sparse, self.meta = torch.eye(3).to_sparse(), torch.zeros(3, device="meta")
            self.released = memoryview(bytearray(4))
            self.released.release()

    omp.declare_mapper(Mixed, lambda mixed: [tofrom(mixed.x)])
    mixed = Mixed()
    omp.target(lambda mixed: mixed.x.fill_(2).numel())(mixed)
    assert (mixed.x == 2).all()


def test_records_tell_types_of_one_storage_apart() -> None:
    """A taskgraph is recorded again for a view of another type."""

    @omp.target(nowait=True, map=[tofrom("x")])
    def add(x: Any) -> None:
        x += 1

    graph = omp.taskgraph(lambda x: add(x) and None)
    integers = torch.full((4,), 16256, dtype=torch.int16)
    graph(integers)
    numbers = integers.view(torch.bfloat16)
    numbers.fill_(1)
    graph(numbers)
    assert (numbers == 2).all()


@pytest.mark.parametrize("arrays", [None, "torch"])
def test_read_only_memory_in_a_region_on_the_host(arrays: str | None) -> None:
    """The body gets a copy, as on a device."""
    data = bytes(3)
    fixed = np.ones(3)
    fixed.flags.writeable = False

    @omp.target(if_=False, arrays="torch")
    def add(x: Any) -> None:
        x += 1

    add(memoryview(data))
    add(fixed)
    assert data == bytes(3)
    assert (fixed == 1).all()
    weight = torch.ones(3, requires_grad=True)
    omp.target(lambda x: x.add_(1).numel(), if_=False, arrays=arrays)(weight)
    assert (weight == 1).all()


def test_defaults_that_are_tensors() -> None:
    """They are mapped like arrays."""

    @omp.target(map=[to("w"), to("b")])
    def total(x: Any, w: Any = torch.zeros(3), b: Any = bytearray(3)) -> float:  # noqa: B008  # the subject
        w += x
        b[:] = b + 1
        return float(w.sum()) + int(b.sum())

    assert [total(torch.ones(3)) for _ in range(2)] == [6, 6]


def test_copies_between_types() -> None:
    """Different types are an error, also those of one width."""
    pairs = [(torch.float8_e5m2, torch.float8_e4m3fn), (torch.int16, torch.bfloat16), (torch.bfloat16, torch.float32)]
    for dst, src in pairs:
        with pytest.raises(omp.ClauseError, match="dtypes must be equal"):
            omp.copy(torch.zeros(4, dtype=dst), torch.ones(4, dtype=src))
    same = torch.zeros(4, dtype=torch.bfloat16)
    omp.copy(same, torch.ones_like(same))
    assert (same == 1).all()


def test_results_that_are_no_list_items() -> None:
    """A body may return a sparse, conjugate or meta tensor, and no view of storage that is released."""

    @omp.target(map=[to("x")])
    def transformed(x: Any) -> Any:
        return torch.fft.rfft(x).conj(), x.to_sparse(), x.to("meta")

    conjugate, sparse, _ = transformed(torch.ones(4))
    assert conjugate.tolist() == [4, 0, 0]
    assert sparse.to_dense().tolist() == [1, 1, 1, 1]
    with pytest.raises(omp.MapError, match="returns a view of x"):
        omp.target(lambda x: torch.view_as_complex(x.view(2, 2)).conj(), map=[to("x")])(torch.ones(4))


def test_arguments_that_no_clause_names() -> None:
    """A host task takes any tensor, also in a group that reduces."""
    total, sparse = np.zeros(()), torch.eye(2).to_sparse()

    @omp.task(in_reduction={"+": ["total"]}, depend=[inout("others")])
    def add(total: Any, *others: Any) -> None:
        total += others[0].to_dense().sum().item()

    with omp.taskgroup(task_reduction={"+": [total]}):
        add(total, sparse)
    assert total == 2


def test_values_of_tasks_on_the_host() -> None:
    """They have the kind of a direct call, and are detached."""
    make = omp.task(lambda: torch.ones(3, requires_grad=True))

    def kind(x: Any) -> Any:
        assert isinstance(x, np.ndarray) or not x.requires_grad
        return type(x)

    for arrays, wanted in ((None, torch.Tensor), ("torch", torch.Tensor), ("cupy", np.ndarray)):
        body = omp.target(kind, if_=False, arrays=arrays)
        assert body(make()) is body(torch.ones(3)) is wanted


def test_edges_name_their_items() -> None:
    """The edge of each item carries that item."""
    a, b = torch.zeros(3), np.zeros((2, 2))
    task = omp.task(lambda: None)
    with omp.record() as graph:
        task.options(depend=[out(a)])()
        task.options(depend=[in_(a, b)])()
    assert [str(edge.item) for edge in graph.edges] == ["float32[3]"]
