"""OpenACC's queues, as a program asks for them: ``wait``, ``async_test``, the default queue, streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.acc.clauses import (
    FIRST_DEFAULT,
    async_default,
    async_noval,
    async_sync,
    check_async,
    check_wait,
    default_number,
    queue_of,
    queues_of,
)
from offload.constructs.clauses.maps import as_tuple, check_device
from offload.constructs.queueing import are_complete, enqueue_marker, give_stream, wait_for, wait_for_any
from offload.errors import ClauseError
from offload.interrupts.finalizers import refuse_inside
from offload.runtime.current import current_runtime, here
from offload.runtime.keywords import takes_clauses

if TYPE_CHECKING:
    from offload.runtime.current import Scope
    from offload.runtime.place import DevicePlace
    from offload.runtime.queues import Queue
    from offload.tasks.region import Region


@takes_clauses
def wait(*queues: Any, async_: Any = None, if_: bool = True, device: int | None = None) -> None:
    """Wait for what queues hold now, on the host or in another queue.

    Parameters
    ----------
    *queues : int
        Async-arguments, or one list of them; none at all, or True: all queues of the device. A queue that was never
        used holds nothing.
    async_ : int or True, optional
        The queue whose later operations follow what ``queues`` hold; the host goes on.
    if_ : bool
        False: nothing is waited for.
    device : int, optional
        The device whose queues are waited for, ``devnum`` in C; None is the default device, which ``async_`` is on.

    Raises
    ------
    ClauseError
        An async-argument that means nothing.
    ExceptionGroup
        Without ``async_``: operations of the queues have failed, and nobody has seen it.

    Notes
    -----
    *Blocks* without ``async_``; the waiting thread may run other tasks, so hold no lock. OpenACC 3.3, 2.16.3 "Wait
    Directive" (section numbers of OpenACC are unchecked).
    """
    given = True if not queues else queues[0] if len(queues) == 1 else list(queues)
    if given is None or given is False:
        raise ClauseError(f"acc wait: {given!r} is not an async-argument; use a number of at least 0, or pass no queue")
    number, values = check_async(async_), check_wait(given)
    scope, frame, place = _here("acc wait", device)
    if not if_:
        return
    found = queues_of(scope.runtime.queues, place, values)
    target = queue_of(scope.runtime.queues, scope.runtime.place(frame, None), number)
    if target is None:
        wait_for(scope, frame, found, "acc.wait")
        return
    others = [queue for queue in found if queue is not target]
    if others:
        enqueue_marker(scope, frame, target, others)


@takes_clauses
def wait_all(*, device: int | None = None) -> None:
    """Wait for what all queues of a device hold; parameters, errors and blocking as for `wait`.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_wait_all" (section numbers of OpenACC are unchecked).
    """
    wait(device=device)


@takes_clauses
def wait_async(queue: Any, async_: Any = True, *, device: int | None = None) -> None:
    """Have later operations of the queue ``async_`` follow what ``queue`` holds; errors as for `wait`.

    Notes
    -----
    *Blocks* never. OpenACC 3.3, 3.2 "acc_wait_async".
    """
    wait([queue], async_=async_, device=device)  # not all, as a `wait(True)` is


@takes_clauses
def wait_all_async(async_: Any = True, *, device: int | None = None) -> None:
    """Have later operations of the queue ``async_`` follow what all others hold; errors as for `wait`.

    Notes
    -----
    *Blocks* never. OpenACC 3.3, 3.2 "acc_wait_all_async".
    """
    wait(async_=async_, device=device)


@takes_clauses
def wait_any(queues: Any, *, device: int | None = None) -> int:
    """Wait until all that one of several queues holds now is complete.

    Parameters
    ----------
    queues : list of int
        Async-arguments.
    device : int, optional
        A device number; None is the default device.

    Returns
    -------
    int
        The position in ``queues`` of one that is complete; -1 for an empty list.

    Raises
    ------
    ClauseError
        An async-argument that means nothing.
    ExceptionGroup
        Operations of that queue have failed, and nobody has seen it.

    Notes
    -----
    *Blocks* as `wait`. OpenACC 3.3, 3.2 "acc_wait_any".
    """
    values = check_wait(list(as_tuple(queues)), "wait_any")
    scope, frame, place = _here("acc wait_any", device)
    if not values:
        return -1
    found = [queue_of(scope.runtime.queues, place, value) for value in values]
    return wait_for_any(scope, frame, found, "acc.wait_any")


@takes_clauses
def async_test(queue: Any = True, *, device: int | None = None) -> bool:
    """Tell whether all that a queue holds is complete.

    Parameters
    ----------
    queue : int or True
        An async-argument; True is the default queue.
    device : int, optional
        A device number; None is the default device.

    Raises
    ------
    ClauseError
        An async-argument that means nothing.
    ExceptionGroup
        It is, and operations of the queue have failed, and nobody has seen it.

    Notes
    -----
    *Blocks* never; a program that asks until it is True gets there, also in a runtime without workers. In the body of a
    task it runs only what that has generated: what else the queue waits for needs another thread. OpenACC 3.3,
    3.2 "acc_async_test".
    """
    value = check_async(queue, "async_test")
    if value is None:
        raise ClauseError(f"async_test: {queue!r} is not an async-argument; use a number of at least 0")
    scope, frame, place = _here("acc async_test", device)
    found = queue_of(scope.runtime.queues, place, value)
    return found is None or are_complete(scope, frame, [found])


@takes_clauses
def async_test_all(*, device: int | None = None) -> bool:
    """Tell whether all that the queues of a device hold is complete; errors and blocking as for `async_test`.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_async_test_all".
    """
    scope, frame, place = _here("acc async_test_all", device)
    return are_complete(scope, frame, scope.runtime.queues.known(place))


def set_default_async(queue: Any) -> None:
    """Set the calling host thread's default queue: what ``async_=True`` means.

    Parameters
    ----------
    queue : int
        An async-argument: `async_default` gives back the first one, `async_noval` changes nothing, and with
        `async_sync` such operations are synchronous.

    Raises
    ------
    ClauseError
        An async-argument that means nothing.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_set_default_async".
    """
    value = check_async(queue, "set_default_async")
    if value is None:
        raise ClauseError(f"set_default_async: {queue!r} is not an async-argument; use a number of at least 0")
    if value != async_noval:
        current_runtime().queues.local.default = FIRST_DEFAULT if value == async_default else value


def get_default_async() -> int:
    """Return the number of the calling host thread's default queue, 0 to begin with; it may be `async_sync`.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_get_default_async".
    """
    return default_number(current_runtime().queues)


@takes_clauses
def get_cuda_stream(queue: Any = True, *, device: int | None = None) -> Any:
    """Return the native stream of a queue. What the program puts there, waits for the queue cover from now on.

    Parameters
    ----------
    queue : int or True
        An async-argument; True is the default queue.
    device : int, optional
        A device number; None is the default device.

    Returns
    -------
    stream
        A `cupy.cuda.Stream`, or a simulated stream. Other queues may share it.

    Raises
    ------
    ClauseError
        An async-argument that means no queue, or the host as its device.

    Notes
    -----
    OpenACC 3.3, A.2.1 "acc_get_cuda_stream".
    """
    return _queue_with_stream("get_cuda_stream", queue, device)[-1].stream


@takes_clauses
def set_cuda_stream(queue: Any, stream: Any, *, device: int | None = None) -> None:
    """Make a stream of the program's own that of a queue, until the runtime ends.

    Parameters
    ----------
    queue : int or True
        An async-argument; True is the default queue.
    stream : stream or None
        A `cupy.cuda.Stream`, an object with ``__cuda_stream__`` or a simulated stream, which is kept alive. None gives
        the queue a stream of the runtime's.
    device : int, optional
        The device of the stream; None is the default device.

    Raises
    ------
    ClauseError
        An async-argument that means no queue, the host as its device, or a stream that is none of the device's.
    EventError
        The stream is capturing a CUDA graph.

    Notes
    -----
    *Blocks* never. The queue's operations stay in order. OpenACC 3.3, A.2.1 "acc_set_cuda_stream".
    """
    scope, frame, found = _queue_with_stream("set_cuda_stream", queue, device)
    give_stream(scope, frame, found, stream, "set_cuda_stream")


def _queue_with_stream(what: str, value: Any, device: int | None) -> tuple[Scope, Region, Queue]:
    number = check_async(value, what)
    scope, frame, place = _here(what, device)
    if place is None:
        raise ClauseError(f"{what}: the host has no streams; choose a device")
    queue = None if number in (None, async_sync) else queue_of(scope.runtime.queues, place, number)
    if queue is None:
        raise ClauseError(f"{what}: {value!r} does not name a queue; use a number of at least 0")
    return scope, frame, queue


def _here(what: str, device: int | None) -> tuple[Scope, Region, DevicePlace | None]:
    """Return what the caller is doing, and the device that it means."""
    refuse_inside(what)
    scope = here()
    frame = scope.frame(what)
    return scope, frame, scope.runtime.place(frame, check_device(device))
