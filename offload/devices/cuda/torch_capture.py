"""PyTorch under capture, for a graph that PyTorch does not know.

`torch.cuda.graph` prepares the same for PyTorch's own graphs. Here PyTorch never learns that a graph is launched. So
offload refuses operations that need PyTorch at each launch: those that take random numbers.
"""

from __future__ import annotations

import functools
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from offload.errors import DeviceError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Arguments without which an operation takes no random numbers: probabilities, and whether a layer is being trained
_GUARDS = ("dropout_p", "dropout", "p", "train", "training")


@contextmanager
def capturing(indices: Iterable[int]) -> Iterator[list[Any]]:
    """Prepare PyTorch for a capture by the calling thread, on devices with these ordinals; yield pools of memory.

    A launch of the graph writes to addresses that PyTorch has given back long ago. So the calling thread's memory comes
    from a pool for each device that nobody else uses. It goes back when nobody refers to the pool. The list is empty if
    PyTorch is not imported or cannot use CUDA. Raise `DeviceError` if this version has no such pools.
    """
    torch = sys.modules.get("torch")
    if torch is None or not _uses_cuda(torch):
        yield []
        return
    if not hasattr(torch.cuda, "use_mem_pool"):
        raise DeviceError(f"PyTorch {torch.__version__} has no memory pools that a graph can own; use 2.6 or later")
    pools = []
    clear = torch._C._cuda_clearCublasWorkspaces  # noqa: SLF001  # as PyTorch's own graphs do
    with ExitStack() as entered:
        # The backward pass runs on threads of its own, whose memory would not be the pool's.
        entered.enter_context(torch.autograd.set_multithreading_enabled(False))
        for index in indices:
            with torch.cuda.device(index):
                pools.append(torch.cuda.MemPool())
            entered.enter_context(torch.cuda.use_mem_pool(pools[-1], index))
        entered.enter_context(refuse_random_numbers(torch))
        # PyTorch keeps one work area of cuBLAS for each stream. The graph's is taken from the pool, and forgotten
        # after the capture: another stream may get the address of the captured one.
        clear()
        try:
            yield pools
        finally:
            clear()


def pool_nbytes(pools: Iterable[Any]) -> int:
    """Return the device memory that pools of `capturing` hold."""
    return sum(int(segment["total_size"]) for pool in pools for segment in pool.snapshot())


def refuse_random_numbers(torch: Any) -> Any:
    """Return a context in which an operation of the calling thread that takes random numbers raises."""
    return _refusal(torch)()


@functools.cache
def _refusal(torch: Any) -> type[Any]:
    seeded = torch.Tag.nondeterministic_seeded
    base: Any = torch.utils._python_dispatch.TorchDispatchMode  # noqa: SLF001  # PyTorch's name of what sees each call

    class RefuseRandomNumbers(base):  # type: ignore[misc]  # PyTorch's, which need not be there
        supports_higher_order_operators = True

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # else the first call imports PyTorch's compiler, which takes seconds

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if seeded in getattr(func, "tags", ()) and _takes_random_numbers(func, args, kwargs):
                raise UnsupportedError(
                    f"{func} takes random numbers, which would be the same at each launch of the graph"
                )
            return func(*args, **kwargs)

    return RefuseRandomNumbers


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
