"""The calls of the API that carry out OpenACC's directives, as `runs` has those of OpenMP's."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from offload import acc
from offload.acc.compute import KernelsFunction, ParallelFunction, SerialFunction
from offload.pragma.states import ResultFunction

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from offload.constructs.target import TargetFunction

DECORATORS: Mapping[str, Callable[..., Any]] = {
    "acc.parallel": acc.parallel,
    "acc.kernels": acc.kernels,
    "acc.serial": acc.serial,
    "acc.parallel_loop": acc.parallel_loop,
    "acc.kernels_loop": acc.kernels_loop,
}
"""The decorators of constructs that have a body."""


class ResultParallel(ResultFunction, ParallelFunction):
    """A block of ``parallel`` with results."""

    __slots__ = ()


class ResultKernels(ResultFunction, KernelsFunction):
    """A block of ``kernels`` with results."""

    __slots__ = ()


class ResultSerial(ResultFunction, SerialFunction):
    """A block of ``serial`` with results."""

    __slots__ = ()


RESULTS: Mapping[str, type[TargetFunction]] = {
    "acc.parallel": ResultParallel,
    "acc.kernels": ResultKernels,
    "acc.serial": ResultSerial,
}
"""The construct of a block with results."""


def zeroed(items: list[Any]) -> list[Any]:
    """Return the items of a data clause with ``zero``."""
    return [acc.zero(*items)]


def wait_on(waits: list[tuple[Any, ...]], queue: Any) -> None:
    """Wait for queues of other devices, as ``wait(devnum: d: queues: 1, 2)`` says, on the host or in a queue."""
    for device, *queues in waits:
        acc.wait(*queues, device=device, async_=queue)


def _enter_data(**given: Any) -> Any:
    has_items = given.keys() & {"copyin", "create"}  # ``attach`` has no effect: objects here have no pointers
    return acc.enter_data(**given) if has_items else None


def _exit_data(**given: Any) -> Any:
    has_items = given.keys() & {"copyout", "delete"}
    return acc.exit_data(**given) if has_items else None


def _wait(queues: Any = (), **given: Any) -> None:
    acc.wait(*queues, **given)


def _init(if_: Any = True, device_type: Any = acc.device_default, device_num: Any = None) -> None:
    if if_:
        acc.init(device_type)
        if device_num is not None:
            acc.set_device_num(device_num, acc.get_device_type())


def _shutdown(if_: Any = True, device_type: Any = acc.device_default, **_device_num: Any) -> None:
    if if_:  # the routine waits for all devices of the type
        acc.shutdown(device_type)


def _set(if_: Any = True, device_type: Any = None, device_num: Any = None, default_async: Any = None) -> None:
    if not if_:
        return
    if device_num is not None:
        acc.set_device_num(device_num, acc.get_device_type() if device_type is None else device_type)
    elif device_type is not None:
        acc.set_device_type(device_type)
    if default_async is not None:
        acc.set_default_async(default_async)


RUNS: Mapping[str, Callable[..., Any]] = {
    "acc.enter_data": _enter_data,
    "acc.exit_data": _exit_data,
    "acc.update": acc.update,
    "acc.wait": _wait,
    "acc.init": _init,
    "acc.shutdown": _shutdown,
    "acc.set": _set,
}
"""The call that carries out a directive that stands alone."""


def _data(**given: Any) -> AbstractContextManager[Any]:
    has_items = given.keys() - {"async_", "wait", "if_"}
    return acc.data(**given) if has_items else nullcontext()


MANAGERS: Mapping[str, Callable[..., Any]] = {"acc.data": _data, "acc.host_data": acc.host_data}
"""The context manager of each directive whose block stays."""
