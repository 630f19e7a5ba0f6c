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
from offload.runtime.current import current_runtime, encounter
from offload.runtime.keywords import takes_clauses

if TYPE_CHECKING:
    from offload.acc.signatures import Async, Wait
    from offload.constructs.clauses.signatures import Number, Truth
    from offload.runtime.current import Scope
    from offload.runtime.place import DevicePlace
    from offload.runtime.queues import Queue
    from offload.tasks.region import Region


@takes_clauses
def wait(*queues: Wait, async_: Async = None, if_: Truth = True, device: int | None = None) -> None:
    """Wait for the current operations of queues, on the host or in another queue.

    Parameters
    ----------
    *queues : int
        Async-arguments, or one list of them. Without arguments, or with True, all queues of the device. A queue that
        was never used has no operations.
    async_ : int or True, optional
        The queue whose later operations run after the operations of ``queues``. The host continues at once.
    if_ : bool
        False: the call does nothing.
    device : int, optional
        The device of ``queues``, ``devnum`` in C. None is the default device, which ``async_`` is on.

    Raises
    ------
    ClauseError
        An async-argument is wrong.
    ExceptionGroup
        Without ``async_``: operations of the queues have failed, and their failures have not been retrieved.

    Notes
    -----
    Without ``async_``, the call blocks; the waiting thread may run other tasks, so hold no lock. OpenACC 3.3, 2.16.3
    "Wait Directive" (section numbers of OpenACC are unchecked).

    Examples
    --------
    >>> x = np.zeros(3)
    >>> task = acc.parallel(async_=1)(lambda x: x.fill(2))(x)
    >>> acc.wait(1)
    >>> x
    array([2., 2., 2.])
    """
    # In a wait clause True stands for all queues.
    given = True if not queues else queues[0] if len(queues) == 1 else list(queues)
    if given is None or given is False:
        raise ClauseError(f"acc wait: {given!r} is not an async-argument; use a number of at least 0, or pass no queue")
    number, values = check_async(async_), check_wait(given)  # before ``if_``: errors do not depend on it
    scope, frame, place = _here("acc wait", device)
    if not if_:  # the construct has no effect then
        return
    found = queues_of(scope.runtime.queues, place, values)  # of the device that is waited for
    target = queue_of(scope.runtime.queues, scope.runtime.place(frame, None), number)  # of the default device
    if target is None:
        wait_for(scope, frame, found, "acc.wait")
        return
    # Operations of the target follow those before them anyway.
    others = [queue for queue in found if queue is not target]
    if others:
        enqueue_marker(scope, frame, target, others)


@takes_clauses
def wait_all(*, device: int | None = None) -> None:
    """Wait for the operations of all queues of a device; parameters, errors and blocking as for `wait`.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_wait_all" (section numbers of OpenACC are unchecked).

    Examples
    --------
    >>> x, y = np.zeros(3), np.zeros(3)
    >>> fill = acc.parallel(lambda x: x.fill(2))
    >>> tasks = fill.options(async_=1)(x), fill.options(async_=2)(y)
    >>> acc.wait_all()
    >>> float(x.sum() + y.sum())
    12.0
    """
    wait(device=device)


@takes_clauses
def wait_async(queue: Number, async_: Async = True, *, device: int | None = None) -> None:
    """Have later operations of the queue ``async_`` run after the operations of ``queue``; errors as for `wait`.

    Parameters
    ----------
    queue : int
        The queue to wait for.
    async_ : int or True
        The queue that waits.
    device : int, optional
        A device number; None is the default device.

    Notes
    -----
    The call never blocks. OpenACC 3.3, 3.2 "acc_wait_async".

    Examples
    --------
    >>> @acc.parallel
    ... def add(x, y):
    ...     y += x
    >>> x, y = np.ones(3), np.zeros(3)
    >>> with acc.data(copyin=[x], copy=[y]):
    ...     first = acc.parallel(async_=1)(lambda x: x.fill(2))(x)
    ...     acc.wait_async(1, 2)  # queue 2 continues after queue 1
    ...     second = add.options(async_=2)(x, y)
    ...     acc.wait(2)
    >>> y
    array([2., 2., 2.])
    """
    wait([queue], async_=async_, device=device)  # not all, as a `wait(True)` is


@takes_clauses
def wait_all_async(async_: Async = True, *, device: int | None = None) -> None:
    """Have later operations of the queue ``async_`` run after the operations of all other queues; errors as for `wait`.

    Parameters
    ----------
    async_ : int or True
        The queue that waits.
    device : int, optional
        A device number; None is the default device.

    Notes
    -----
    The call never blocks. OpenACC 3.3, 3.2 "acc_wait_all_async".

    Examples
    --------
    >>> @acc.parallel
    ... def add(x, y):
    ...     y += x
    >>> x, y = np.ones(3), np.zeros(3)
    >>> with acc.data(copyin=[x], copy=[y]):
    ...     first = acc.parallel(async_=1)(lambda x: x.fill(2))(x)
    ...     acc.wait_all_async(2)  # queue 2 continues after all other queues
    ...     second = add.options(async_=2)(x, y)
    ...     acc.wait(2)
    >>> y
    array([2., 2., 2.])
    """
    wait(async_=async_, device=device)


@takes_clauses
def wait_any(queues: Wait, *, device: int | None = None) -> int:
    """Wait until the current operations of one of several queues are complete.

    Parameters
    ----------
    queues : list of int
        Async-arguments.
    device : int, optional
        A device number; None is the default device.

    Returns
    -------
    int
        The position in ``queues`` of a queue that is complete; -1 for an empty list.

    Raises
    ------
    ClauseError
        An async-argument is wrong.
    ExceptionGroup
        Operations of that queue have failed, and their failures have not been retrieved.

    Notes
    -----
    The call blocks as `wait` does. OpenACC 3.3, 3.2 "acc_wait_any".

    Examples
    --------
    >>> x = np.zeros(3)
    >>> task = acc.parallel(async_=1)(lambda x: x.fill(2))(x)
    >>> acc.wait_any([1])
    0
    """
    values = check_wait(list(as_tuple(queues)), "wait_any")
    scope, frame, place = _here("acc wait_any", device)
    if not values:
        return -1
    found = [queue_of(scope.runtime.queues, place, value) for value in values]
    return wait_for_any(scope, frame, found, "acc.wait_any")


@takes_clauses
def async_test(queue: Number = True, *, device: int | None = None) -> bool:
    """Tell whether all operations of a queue are complete.

    Parameters
    ----------
    queue : int or True
        An async-argument; True is the default queue.
    device : int, optional
        A device number; None is the default device.

    Raises
    ------
    ClauseError
        The async-argument is wrong.
    ExceptionGroup
        The operations are complete, some have failed, and their failures have not been retrieved.

    Notes
    -----
    The call never blocks. If you repeat it, it returns True in the end, also in a runtime without workers. In the body
    of a task, it runs only the task's own child tasks. Another thread must run the other tasks that the queue waits
    for. OpenACC 3.3, 3.2 "acc_async_test".

    Examples
    --------
    >>> x = np.zeros(3)
    >>> task = acc.parallel(async_=1)(lambda x: x.fill(2))(x)
    >>> acc.wait(1)
    >>> acc.async_test(1)
    True
    """
    value = check_async(queue, "async_test")
    if value is None:
        raise ClauseError(f"async_test: {queue!r} is not an async-argument; use a number of at least 0")
    scope, frame, place = _here("acc async_test", device)
    # A synchronous operation is complete when its call returns.
    found = queue_of(scope.runtime.queues, place, value)
    return found is None or are_complete(scope, frame, [found])


@takes_clauses
def async_test_all(*, device: int | None = None) -> bool:
    """Tell whether all operations of a device's queues are complete; errors and blocking as for `async_test`.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_async_test_all".

    Examples
    --------
    >>> acc.wait_all()
    >>> acc.async_test_all()
    True
    """
    scope, frame, place = _here("acc async_test_all", device)
    return are_complete(scope, frame, scope.runtime.queues.known(place))  # an unused queue is complete


def set_default_async(queue: Number) -> None:
    """Set the calling host thread's default queue: the meaning of ``async_=True``.

    Parameters
    ----------
    queue : int
        An async-argument. `async_default` restores the first default queue, and `async_noval` changes nothing. With
        `async_sync`, such operations are synchronous.

    Raises
    ------
    ClauseError
        The async-argument is wrong.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_set_default_async".

    Examples
    --------
    >>> acc.set_default_async(5)
    >>> acc.get_default_async()
    5
    >>> acc.set_default_async(acc.async_default)
    """
    value = check_async(queue, "set_default_async")
    if value is None:
        raise ClauseError(f"set_default_async: {queue!r} is not an async-argument; use a number of at least 0")
    if value != async_noval:
        # `async_noval` names the default queue itself. `async_sync` is kept: later operations are synchronous.
        current_runtime().queues.local.default = FIRST_DEFAULT if value == async_default else value


def get_default_async() -> int:
    """Return the number of the calling host thread's default queue, initially 0; it may be `async_sync`.

    Notes
    -----
    OpenACC 3.3, 3.2 "acc_get_default_async".

    Examples
    --------
    >>> acc.get_default_async()
    0
    """
    return default_number(current_runtime().queues)


@takes_clauses
def get_cuda_stream(queue: Number = True, *, device: int | None = None) -> Any:
    """Return the native stream of a queue. From now on, waits for the queue include your work on the stream.

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
        The async-argument does not name a queue, or the device is the host.

    Notes
    -----
    OpenACC 3.3, A.2.1 "acc_get_cuda_stream".

    Examples
    --------
    >>> stream = acc.get_cuda_stream(1)
    >>> stream.launch(lambda: None)  # with CuPy: a kernel or a library call
    >>> acc.wait(1)
    """
    return _queue_with_stream("get_cuda_stream", queue, device)[-1].stream


@takes_clauses
def set_cuda_stream(queue: Number, stream: Any, *, device: int | None = None) -> None:
    """Make your own stream the stream of a queue, until the runtime ends.

    Parameters
    ----------
    queue : int or True
        An async-argument; True is the default queue.
    stream : stream or None
        A `cupy.cuda.Stream`, an object with ``__cuda_stream__`` or a simulated stream. The runtime keeps it alive. None
        returns the queue to a stream of the runtime.
    device : int, optional
        The device of the stream; None is the default device.

    Raises
    ------
    ClauseError
        The async-argument does not name a queue, the device is the host, or the stream does not belong to the device.
    EventError
        The stream is capturing a CUDA graph.

    Notes
    -----
    The call never blocks. The queue's operations stay in order. OpenACC 3.3, A.2.1 "acc_set_cuda_stream".

    Examples
    --------
    >>> own = omp.current_stream()  # with CuPy: cupy.cuda.Stream(non_blocking=True)
    >>> acc.set_cuda_stream(1, own)
    >>> acc.get_cuda_stream(1) is own
    True
    >>> acc.set_cuda_stream(1, None)
    """
    scope, frame, found = _queue_with_stream("set_cuda_stream", queue, device)
    give_stream(scope, frame, found, stream, "set_cuda_stream")


def _queue_with_stream(what: str, value: Any, device: int | None) -> tuple[Scope, Region, Queue]:
    number = check_async(value, what)
    scope, frame, place = _here(what, device)
    if place is None:
        raise ClauseError(f"{what}: the host has no streams; choose a device")
    place.refuse_streams(what)
    queue = None if number in (None, async_sync) else queue_of(scope.runtime.queues, place, number)
    if queue is None:
        raise ClauseError(f"{what}: {value!r} does not name a queue; use a number of at least 0")
    return scope, frame, queue


def _here(what: str, device: int | None) -> tuple[Scope, Region, DevicePlace | None]:
    """Return the caller's scope and region, and the device that it means."""
    refuse_inside(what)
    scope, frame = encounter(what)
    return scope, frame, scope.runtime.place(frame, check_device(device))
