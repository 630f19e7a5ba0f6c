"""PyTorch under capture, for a graph that PyTorch does not know.

`torch.cuda.graph` prepares the same for PyTorch's own graphs. Here PyTorch never learns that a graph is launched. So
offload refuses operations that need PyTorch at each launch: those that take random numbers, and copies of host memory
that PyTorch may give to others.
"""

from __future__ import annotations

import functools
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.foreign import is_tensor
from offload.errors import DeviceError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    Ranges = Sequence[tuple[int, int]]  # of addresses, each with its end

# Arguments without which an operation takes no random numbers: probabilities, and whether a layer is being trained
_GUARDS = ("dropout_p", "dropout", "p", "train", "training")


_COPIES = ("aten::copy_", "aten::_to_copy")  # Operations that copy between devices, to which all others come down


@contextmanager
def capturing(indices: Iterable[int], reached: Iterable[object] | None) -> Iterator[list[Any]]:
    """Prepare PyTorch for a capture by the calling thread, on devices with these ordinals; yield pools of memory.

    ``reached`` has the objects that the bodies reach, which the graph keeps; None if no body reaches PyTorch.

    A launch of the graph writes to addresses that PyTorch has given back long ago. So the calling thread's memory comes
    from a pool for each device that nobody else uses. It goes back when nobody refers to the pool. The list is empty if
    no body reaches PyTorch, or it cannot use CUDA. Raise `DeviceError` for a version without pools for one thread.
    """
    torch = sys.modules.get("torch")
    if torch is None or reached is None or not _uses_cuda(torch):
        yield []
        return
    # Before, the memory of all threads came from a pool that was in use.
    if not hasattr(torch._C, "_cuda_beginAllocateCurrentThreadToPool"):  # noqa: SLF001  # what `use_mem_pool` calls
        raise DeviceError(f"PyTorch {torch.__version__} has no memory pools that a graph can own; use 2.8 or later")
    pools = []
    clear = torch._C._cuda_clearCublasWorkspaces  # noqa: SLF001  # as PyTorch's own graphs do
    with ExitStack() as entered:
        # The backward pass runs on threads of its own, whose memory would not be the pool's.
        entered.enter_context(torch.autograd.set_multithreading_enabled(False))
        for index in indices:
            with torch.cuda.device(index):
                pools.append(torch.cuda.MemPool())
            entered.enter_context(torch.cuda.use_mem_pool(pools[-1], index))
        entered.enter_context(refuse_what_changes(torch, _ranges_of(reached)))
        # PyTorch keeps one work area of cuBLAS for each stream. The graph's is taken from the pool, and forgotten
        # after the capture: another stream may get the address of the captured one.
        clear()
        try:
            yield pools
        finally:
            clear()


def pool_nbytes(pools: Iterable[Any]) -> int:
    """Return the device memory that pools of `capturing` hold."""
    return sum(int(segment["total_size"]) for pool in pools for segment in _segments(pool))


def _segments(pool: Any) -> Any:
    try:
        return pool.snapshot(include_traces=False)
    except TypeError:  # a version that has no such argument
        return pool.snapshot()


def _ranges_of(reached: Iterable[object]) -> Ranges:
    """Return where the host memory of arrays and tensors lies."""
    ranges = []
    for value in reached:
        if isinstance(value, np.ndarray):
            ranges.append(np.lib.array_utils.byte_bounds(value))
        elif is_tensor(value):
            ranges += _storage_of(value)
    return ranges


def _storage_of(tensor: Any) -> Ranges:
    """Return where the memory of a tensor of the host lies; nothing for other tensors."""
    if tensor.device.type != "cpu":
        return []
    storage = tensor.untyped_storage()
    return [(storage.data_ptr(), storage.data_ptr() + storage.nbytes())]


def refuse_what_changes(torch: Any, kept: Ranges = ()) -> Any:
    """Return a context in which an operation of the calling thread that a graph cannot repeat raises.

    These are operations that take random numbers, and copies between the device and host memory outside of ``kept``.
    """
    return _refusal(torch)(kept)


@functools.cache
def _refusal(torch: Any) -> type[Any]:
    seeded = torch.Tag.nondeterministic_seeded
    base: Any = torch.utils._python_dispatch.TorchDispatchMode  # noqa: SLF001  # PyTorch's name of what sees each call

    class RefuseWhatChanges(base):  # type: ignore[misc]  # PyTorch's, which need not be there
        supports_higher_order_operators = True

        def __init__(self, kept: Ranges) -> None:
            super().__init__()
            self._kept = kept

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # else the first call imports PyTorch's compiler, which takes seconds

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if seeded in getattr(func, "tags", ()) and _takes_random_numbers(func, args, kwargs):
                raise UnsupportedError(
                    f"{func} takes random numbers, which would be the same at each launch of the graph"
                )
            if getattr(func, "_schema", None) and func._schema.name in _COPIES:  # noqa: SLF001  # as below
                _check_copy(func, args, kwargs, self._kept)
            return func(*args, **kwargs)

    return RefuseWhatChanges


def _check_copy(func: Any, args: Any, kwargs: Any, kept: Ranges) -> None:
    """Raise `UnsupportedError` for a copy between a device and host memory that does not live with the graph.

    A graph holds the host's address. PyTorch gives the memory to others when the tensor is gone.
    """
    sides = [arg for arg in args[:2] if is_tensor(arg)]
    places = [side.device.type for side in sides]
    if len(sides) == 1:  # the other side is new
        places.append(getattr(kwargs.get("device"), "type", places[0]))
    if "cpu" not in places or places == ["cpu", "cpu"]:
        return
    memory = [found for side in sides for found in _storage_of(side)]
    if not memory or not any(low <= memory[0][0] and memory[0][1] <= end for low, end in kept):
        raise UnsupportedError(
            f"{func} copies between the device and host memory that the graph cannot keep; copy outside of the region, "
            "or let the body refer to the tensor of the host"
        )


def _takes_random_numbers(func: Any, args: Any, kwargs: Any) -> bool:
    """Tell whether an operation that may take random numbers does, with these arguments."""
    for number, argument in enumerate(func._schema.arguments):  # noqa: SLF001  # PyTorch has no other name for it
        if argument.name in _GUARDS:
            value = args[number] if number < len(args) else kwargs.get(argument.name, argument.default_value)
            if isinstance(value, (bool, float, int)) and not value:
                return False
    return True


def _uses_cuda(torch: Any) -> bool:
    """Tell whether PyTorch can use CUDA; initialise that, since a body may be the first to use it."""
    try:
        torch.cuda.init()
    except Exception:  # noqa: BLE001  # a build without CUDA, or no driver that it can use
        return False
    return True
