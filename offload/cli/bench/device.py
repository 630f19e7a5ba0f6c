"""``offload bench link``, ``launch`` and ``overlap``: copies, single constructs, and copies while kernels run."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import offload as omp
from offload import in_, inout, out, tofrom
from offload.cli.bench.measuring import Measured, in_turn, took_s
from offload.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable

    Calls = dict[str, Callable[[], float]]

# Long enough that the start of a copy does not count, short enough for a small GPU.
_LINK_NBYTES = 64 << 20

_N_CALLS = 100
# A chain is so long that the wait at its end does not count.
_N_CHAINED = 300
# Elements of float32: 1 KB, which no link takes any time for.
_SMALL = 256

# Several blocks are under way at once: one arrives, one is computed, one leaves.
_N_BLOCKS = 8
_BLOCK_NBYTES = {"cuda": 16 << 20}
# Bytes of a block on a kind of device, and on others, which compute with the host's cores and caches.
_LITTLE_NBYTES = 1 << 20
BLOCKING, DEFERRED = "blocking", "nowait, a chain a block"


def _host_memories(nbytes: int) -> dict[str, Any]:
    """Return arrays of bytes in each kind of host memory that the default device tells apart."""
    # Ones, so that every page has been touched before it is timed.
    found: dict[str, Any] = {"pageable": np.ones(nbytes, np.uint8)}
    if omp.device(0).kind == "cuda":
        found["pinned"] = omp.empty_pinned(nbytes, np.uint8)
        found["pinned"][:] = 1
    return found


# -- link ----------------------------------------------------------------------------------------------
def measure_link(repeat: int, nbytes: int = _LINK_NBYTES) -> list[Measured]:
    """Measure contiguous copies between the host and device 0, and inside of the device."""
    device, other = (omp.target_memset(omp.target_alloc(nbytes, np.uint8), 1) for _ in range(2))
    calls: Calls = {"inside of the device": partial(_gb_per_s, other, device)}
    for memory, host in _host_memories(nbytes).items():
        calls[f"to the device, {memory} memory"] = partial(_gb_per_s, device, host)
        calls[f"to the host, {memory} memory"] = partial(_gb_per_s, host, device)
    samples = in_turn(calls, repeat)
    for array in (device, other):
        omp.target_free(array)
    note = (
        f"{nbytes >> 10:,} KB by target_memcpy. Expect 10 to 13 GB/s from pinned memory over PCIe 3, 20 to 26 over "
        "PCIe 4, 45 to 55 over PCIe 5, and less than half from pageable memory. The simulated device is host memory."
    )
    return [Measured(f"Copies of {omp.device(0).name}, GB/s", {name: {"": one} for name, one in samples.items()}, note)]


def _gb_per_s(dst: Any, src: Any) -> float:
    return float(src.nbytes) / took_s(lambda: omp.target_memcpy(dst, src)) / 1e9


# -- launch --------------------------------------------------------------------------------------------
@omp.task
def nothing() -> None:
    """Do nothing."""


@omp.target
def bump(x: Any) -> None:
    """Launch one small kernel."""
    x += 1


def measure_launch(repeat: int, n_calls: int = _N_CALLS, n_chained: int = _N_CHAINED) -> list[Measured]:
    """Measure the time of single constructs, along with the bare copy and its wait."""
    # The last kind is the quickest: pinned memory where the device has it.
    host = _host_memories(4 * _SMALL).popitem()[1].view("f4")
    x = omp.target_alloc(_SMALL, "f4")
    # The clauses are made once: the rows are to show the construct, not its preparation.
    deferred = bump.options(nowait=True, depend=[inout(x)])
    device: Any = omp.device(0)
    stream = device.new_stream()

    # The floor: what the device's own library takes for the copy of the row below.
    def bare() -> None:
        device.copy(x, host, stream)
        stream.synchronize()

    def one_task() -> None:
        nothing()
        omp.taskwait()

    # The host task begins when the device has told that the copy is over.
    def follow() -> None:
        omp.target_memcpy_async(x, host, depend=[out(x)])
        nothing.options(depend=[in_(x)])()
        omp.taskwait()

    def chain() -> None:
        for _ in range(n_chained):
            deferred(x)
        omp.taskwait()

    calls: Calls = {
        "bare copy of 1 KB, and wait": partial(_each_us, bare, n_calls),
        "`target_memcpy` of 1 KB": partial(_each_us, partial(omp.target_memcpy, x, host), n_calls),
        "`target` with one kernel": partial(_each_us, partial(bump, x), n_calls),
        f"`target nowait depend`, one of a chain of {n_chained}": lambda: _each_us(chain, 1) / n_chained,
        "copy, then a host task that depends on it, and `taskwait`": partial(_each_us, follow, n_calls),
        "host task and `taskwait`": partial(_each_us, one_task, n_calls),
    }
    samples = in_turn(calls, repeat)
    omp.target_free(x)
    note = (
        "Expect 10 to 40 µs for a device task of a chain on CUDA, and 30 to 100 µs for each row that waits. Much "
        "higher values mean that the processors are busy or in a power-saving mode."
    )
    rows = {name: {"": one} for name, one in samples.items()}
    return [Measured(f"Single constructs on {omp.device(0).name}, µs", rows, note)]


def _each_us(call: Callable[[], object], n_calls: int) -> float:
    began_s = time.perf_counter()
    for _ in range(n_calls):
        call()
    return (time.perf_counter() - began_s) * 1e6 / n_calls


# -- overlap -------------------------------------------------------------------------------------------
def work(x: Any, passes: int) -> None:
    """Compute for a time that grows with the number of passes; on the host NumPy releases the GIL."""
    for _ in range(passes):
        x **= 0.9
        x += 1.5


process = omp.target(work, map=[tofrom("x")])


def measure_overlap(repeat: int, block_nbytes: int | None = None) -> list[Measured]:
    """Measure blocks of an array that are copied to the device, changed there and copied back: at once, and in turn."""
    # The work on a block takes about as long as its two copies.
    block_nbytes = block_nbytes or _BLOCK_NBYTES.get(omp.device(0).kind, _LITTLE_NBYTES)
    memory, flat = _host_memories(_N_BLOCKS * block_nbytes).popitem()
    blocks = np.split(flat.view("f4"), _N_BLOCKS)
    # Where work and copies take as long as each other, there is most to gain.
    passes = _passes_like_copies(blocks)

    def one_by_one() -> None:
        for block in blocks:
            process(block, passes)

    def together() -> None:
        for block in blocks:
            process.options(nowait=True, depend=[inout(block)])(block, passes)
        omp.taskwait()

    calls = {BLOCKING: one_by_one, DEFERRED: together}
    for name, call in calls.items():
        _check(blocks, passes, call, name)
    samples = in_turn({name: partial(_ms, call) for name, call in calls.items()}, repeat)
    gained = [one / other for one, other in zip(samples[BLOCKING], samples[DEFERRED], strict=True)]
    rows = {name: {"": one} for name, one in samples.items()} | {f"{BLOCKING} / {DEFERRED}": {"": gained}}
    note = (
        f"{_N_BLOCKS} blocks of {block_nbytes >> 10:,} KB in {memory} memory, {passes} passes over each. Expect a "
        "ratio of at least 1.3, because copies and kernels of several blocks run at the same time. A ratio of about 1 "
        "means that they do not overlap."
    )
    return [Measured(f"Copies and kernels on {omp.device(0).name}, ms", rows, note)]


def _ms(call: Callable[[], object]) -> float:
    return took_s(call) * 1e3


def _passes_like_copies(blocks: list[Any]) -> int:
    """Return how many passes over a block take about as long as its copies to the device and back."""
    block = blocks[0]
    block[:] = 2
    # With no pass the time is that of the copies and the call; the passes are what the rest takes.
    none_s, some_s = (min(took_s(partial(process, block, n)) for _ in range(3)) for n in (0, 4))
    return max(1, min(1_000, math.ceil(4 * none_s / max(some_s - none_s, 1e-6))))


def _check(blocks: list[Any], passes: int, call: Callable[[], object], name: str) -> None:
    """Raise `InternalError` if a block has a wrong result: its time would mean nothing."""
    expected = []
    for number, block in enumerate(blocks):
        # Blocks differ, and the elements of a block do not: one element tells what all have to be.
        block[:] = number + 1
        some = block[:1].copy()
        work(some, passes)
        expected.append(some[0])
    call()
    if not all(np.allclose(block, one, rtol=1e-4) for block, one in zip(blocks, expected, strict=True)):
        raise InternalError(f"offload bench overlap: {name} gave a wrong result")
