"""Random chains of bodies that use PyTorch or CuPy, and of eager operations on two streams, against eager PyTorch."""

from __future__ import annotations

import random
from typing import Any

import pytest

import offload as omp
from offload import in_, inout

try:
    import torch
except ModuleNotFoundError:  # then the test is skipped
    torch = None

pytestmark = pytest.mark.gpu

N = 1 << 18  # elements: kernels are long enough to overlap
MODULUS = 10_007
N_STEPS = 14


def mix(y: Any, x: Any, factor: int) -> None:
    """Change y by x, exactly, with the operators that all libraries have."""
    y *= factor
    y += x
    y %= MODULUS


@omp.target(nowait=True)
def by_torch(y: Any, x: Any, factor: int, delay: int) -> None:
    torch.cuda._sleep(delay)  # on the task's stream
    temporary = x * 2  # PyTorch's own memory
    mix(y, temporary - x, factor)


@omp.target(nowait=True, arrays="cupy")
def by_cupy(y: Any, x: Any, factor: int, delay: int) -> None:
    temporary = x * 2
    mix(y, temporary - x, factor)


def chain(seed: int) -> None:
    """Carry out one random chain, and compare."""
    choose = random.Random(seed)
    start = [torch.arange(N, dtype=torch.int64).roll(k) % MODULUS for k in range(4)]
    expected = [one.cuda() for one in start]
    # two tensors on the device, and two of the host that are present
    tensors = [start[0].cuda(), start[1].cuda(), start[2].clone(), start[3].clone().pin_memory()]
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    with omp.target_data(map=[omp.tofrom(tensors[2]), omp.tofrom(tensors[3])]):
        for _ in range(N_STEPS):
            at, other = choose.sample(range(4), 2)
            factor, delay = choose.randrange(2, 9), choose.choice([0, 0, 300_000])
            y, x = tensors[at], tensors[other]
            mix(expected[at], expected[other], factor)
            kind = (
                choose.choice(["torch", "cupy", "eager"]) if at < 2 and other < 2 else choose.choice(["torch", "cupy"])
            )
            with torch.cuda.stream(streams[choose.randrange(2)]):
                if kind == "eager":
                    omp.taskwait(depend=[inout(y), in_(x)])
                    torch.cuda._sleep(delay)
                    mix(y, x, factor)
                    for stream in streams:  # as a program with streams does
                        stream.wait_stream(torch.cuda.current_stream())
                else:
                    body = by_torch if kind == "torch" else by_cupy
                    body.options(depend=[inout(y), in_(x)])(y, x, factor, delay)
        omp.taskwait()
    torch.cuda.synchronize()
    for number, (tensor, right) in enumerate(zip(tensors, expected, strict=True)):
        assert torch.equal(tensor.cuda(), right), f"seed {seed}, tensor {number}"


@pytest.mark.parametrize("first", range(0, 200, 25))
def test_chains(first: int) -> None:
    """25 chains in one runtime; all parameters together are 200."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    with omp.Runtime("cuda:0", check=True):
        for seed in range(first, first + 25):
            chain(seed)
