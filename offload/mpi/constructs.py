"""The constructs of `offload.mpi`: they check their arguments, derive dependences, and generate the task of a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from offload.constructs.clauses.dependences import Dependence, check_depend_now, in_, inout, out
from offload.constructs.clauses.maps import check_name, check_priority
from offload.constructs.copying import place_of
from offload.errors import ClauseError, UsageError
from offload.events.event import Event
from offload.mpi.arguments import (
    array_of,
    check_arguments,
    check_array,
    check_unknown,
    communicator,
    is_direct,
    is_in_place,
    is_written,
)
from offload.mpi.calls import CallRecipe
from offload.mpi.methods import FILLING, BufferAccess
from offload.mpi.operations import ObjectReceive, Operation, Start
from offload.mpi.staging import BufferStaging
from offload.runtime.current import for_finalizers, here
from offload.runtime.generate import generate as generate_task
from offload.runtime.keywords import unknown_clause
from offload.runtime.sites import call_site

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offload.runtime.runtime import Runtime
    from offload.tasks.task import Task

    Buffers = Sequence[tuple[str, Any, BufferAccess]]  # the parameter, its array, and what the call does with it


@for_finalizers
def call(
    method: Callable[..., Any],
    *args: Any,
    depend: Any = None,
    name: str | None = None,
    priority: int = 0,
    **kwargs: Any,
) -> Task:
    """Call an MPI method that returns a request in a task, which is complete when the request is.

    Parameters
    ----------
    method : callable
        A method of a communicator or a window that returns a request, or several.
    *args, **kwargs
        The arguments of the method. Buffers live until the task is complete.
    depend : list of dependences, optional
        None: the buffers that the communicator's method reads are ``in_``, those that it writes ``out``, and those that
        it updates ``inout``.
    name : str, optional
        The name of the task in graphs and errors; ``"MPI Isend"`` by default.
    priority : int
        The clause of `task`.

    Returns
    -------
    Task
        Its result is the `mpi4py.MPI.Status` of a receive, the object of a pickled receive, and otherwise None.

    Raises
    ------
    ClauseError
        The method's buffers are not known, and there is no ``depend``. A clause or an argument is wrong. A send has no
        ``dest``. A receive buffer is read-only, or its elements share memory. Device arrays are on several devices. The
        call is in a final task.
    UsageError
        The communicator is null, or has been freed, or MPI cannot be called here (see `Event.fulfill_on`).

    Notes
    -----
    The call never blocks. The runtime issues these calls in the order in which they are encountered:

    * the collective operations of a communicator,
    * its sends to one rank with one tag,
    * its receives from one rank with one tag,
    * a receive with a wildcard, among all receives.

    It does not order other calls, and it does not order completion. If a call fails, its task fails with a
    `TransportError`. If a call is skipped, because its task did not run or the call raised, later calls of the same
    order fail at once with a `TransportError` that names it.

    MPI 4.1, 3.7 "Nonblocking Communication", 6.12 "Nonblocking Collective Operations".

    Examples
    --------
    >>> x, y = np.arange(3.0), np.zeros(3)
    >>> task = mpi.call(MPI.COMM_WORLD.Iscan, x, y)
    >>> task.result()
    >>> y
    array([0., 1., 2.])
    """
    if not callable(method):
        raise ClauseError(
            f"mpi.call: {method!r:.60} is not callable; pass a method of a communicator, such as comm.Isend"
        )
    return generate(Operation(method, args, kwargs), depend, name, priority)


@for_finalizers
def start(requests: Any, depend: Any = (), name: str | None = None, priority: int = 0) -> Task:
    """Start persistent requests in a task, which is complete when they are.

    Parameters
    ----------
    requests : mpi4py.MPI.Prequest, or a list or tuple of those
        The requests, inactive.
    depend, name, priority
        The parameters of `call`. No dependences are derived from buffers.

    Returns
    -------
    Task
        Its result is the status of a receive; for several requests a list.

    Raises
    ------
    ClauseError
        There is no request, an item is not a persistent request, or one occurs twice.

    Notes
    -----
    Persistent collective operations of all communicators are started in the order in which they are encountered,
    because a request does not tell its communicator. If one is skipped, all later ones of the process fail. Messages
    have no such order: use ``depend`` to order the starts of two requests with one partner and one tag. Otherwise the
    rules of `call` apply.

    MPI 4.1, 3.9 "Persistent Communication Requests".

    Examples
    --------
    >>> x, y = np.arange(3.0), np.zeros(3)
    >>> send, receive = MPI.COMM_WORLD.Send_init(x, 0), MPI.COMM_WORLD.Recv_init(y, 0)
    >>> for step in range(2):
    ...     statuses = mpi.start([send, receive]).result()
    >>> y
    array([0., 1., 2.])
    >>> send.Free()
    >>> receive.Free()
    """
    several = requests if isinstance(requests, (list, tuple)) else [requests]
    odd = next((one for one in several if not isinstance(one, MPI.Prequest)), None)
    if not several or odd is not None:
        raise ClauseError(
            f"mpi.start: {requests!r:.60}: these are not persistent requests; pass requests from comm.Send_init(…) or "
            "similar methods"
        )
    if len(set(map(id, several))) < len(several):
        raise ClauseError(f"mpi.start: {requests!r:.60} contains a request twice; pass each request once")
    return generate(Start(requests), depend, name, priority)


def detach(request: Any) -> None:
    """Complete the calling task when a request, or several, are complete.

    Call it in the body of a task with ``detach``. It calls ``fulfill_on`` of the task's event.

    Parameters
    ----------
    request : mpi4py.MPI.Request, or a list or tuple of those
        The task is complete when its body has ended and the request is complete.

    Raises
    ------
    UsageError
        The call is not in the body of a task with ``detach``.

    Examples
    --------
    >>> x, y = np.arange(3.0), np.zeros(3)
    >>> @omp.task(detach=omp.Event())
    ... def exchange():
    ...     mpi.detach([MPI.COMM_WORLD.Irecv(y, 0), MPI.COMM_WORLD.Isend(x, 0)])
    >>> exchange().result()
    >>> y
    array([0., 1., 2.])
    """
    task = here().task
    event: Any = task.event if task is not None else None  # type: ignore[attr-defined]  # a Task
    if not isinstance(event, Event):  # that of a call of MPI is none
        raise UsageError(
            "mpi.detach: this call is not in the body of a task with detach=event; add detach= to the task"
        )
    event.fulfill_on(request)


@for_finalizers
def send_object(
    obj: Any,
    dest: int,
    tag: int = 0,
    comm: MPI.Comm | None = None,
    depend: Any = None,
    name: str | None = None,
    priority: int = 0,
) -> Task:
    """Send a pickled object in a task, as ``comm.isend``; the task pickles it when it begins.

    Parameters
    ----------
    obj : object
        The object.
    dest, tag : int
        The rank of the receiver, and the tag of the message.
    comm : mpi4py.MPI.Comm
        By default `MPI.COMM_WORLD`.
    depend, name, priority
        The parameters of `call`. By default the task depends on the object if that is an array.

    Returns
    -------
    Task
        The task of the call. Errors and notes as for `call`.

    Examples
    --------
    >>> receive = mpi.recv_object(source=0)
    >>> send = mpi.send_object({"step": 3}, 0)
    >>> receive.result()
    {'step': 3}
    """
    return generate(Operation(communicator("isend", comm).isend, (obj, dest, tag), {}), depend, name, priority)


@for_finalizers
def recv_object(
    source: int = MPI.ANY_SOURCE,
    tag: int = MPI.ANY_TAG,
    comm: MPI.Comm | None = None,
    depend: Any = (),
    name: str | None = None,
    priority: int = 0,
) -> Task:
    """Receive a pickled object of any size in a task, whose result is the object; otherwise as `call`.

    Parameters
    ----------
    source, tag : int
        The rank of the sender, and the tag of the message; any by default.
    comm : mpi4py.MPI.Comm
        By default `MPI.COMM_WORLD`.
    depend, name, priority
        The parameters of `call`.

    Returns
    -------
    Task
        Its result is the object.

    Examples
    --------
    >>> receive = mpi.recv_object(source=0)
    >>> send = mpi.send_object([1, 2, 3], 0)
    >>> receive.result()
    [1, 2, 3]
    """
    return generate(ObjectReceive(communicator("irecv", comm), source, tag), depend, name, priority)


def generate(operation: Operation, depend: Any, name: str | None, priority: int) -> Task:
    """Generate the task of an operation."""
    directive = f"MPI {operation.name}"
    operation.check()
    known = operation.known
    if known is not None and "_" not in known.parameters:  # which stands for one that is not the program's to give
        unknown = next((name for name in operation.kwargs if name not in known.parameters), None)
        if unknown is not None:
            raise unknown_clause(directive, unknown, (*known.parameters, "comm", "depend", "name", "priority"))
    if known is not None and known.sends and "dest" not in operation.named:
        raise ClauseError(f"{directive}: dest is missing; give the rank to send to")
    check_arguments(operation)
    scope = here()
    frame = scope.frame(directive)
    buffers = _buffers(operation, has_depend=depend is not None) if known is not None else None
    dependences = _derived(operation, buffers) if depend is None else check_depend_now(directive, depend)
    label, rank = check_name(name), min(check_priority(priority), scope.runtime.engine.max_priority)
    if frame.inherited.is_final:
        raise ClauseError(
            f"{directive} is not allowed in a final task, because its tasks run at once; generate this task elsewhere"
        )
    operation.staging = _staging(scope.runtime, operation, buffers, directive)
    recipe = CallRecipe(call_site(directive, scope.runtime, n_between=2), operation, label, rank)
    return generate_task(scope, frame, recipe, dependences, wait=False)


# -- dependences ---------------------------------------------------------------------------------------
_CLAUSES = {BufferAccess.READ: in_, BufferAccess.WRITE: out, BufferAccess.UPDATE: inout}


def _derived(operation: Operation, buffers: Buffers | None) -> Sequence[Dependence]:
    """Return the dependences of an operation on its buffers; raise `ClauseError` if they are not known."""
    if buffers is None:
        raise ClauseError(
            f"mpi.call: offload does not know which buffers {operation.name} reads and writes; give depend=, for "
            "example depend=[in_(a), out(b)]"
        )
    return [_CLAUSES[access](array) for _, array, access in buffers if array.size]


def _buffers(operation: Operation, *, has_depend: bool) -> Buffers:
    """Return each array of a known operation, its parameter, and its use.

    Raise `ClauseError` if one is no array, or cannot be sent or received.
    """
    named, found = operation.named, []
    for parameter, access in operation.known.buffers if operation.known is not None else ():
        array = named.get(parameter)
        if array.__class__ is not np.ndarray:
            array = array_of(operation, parameter, has_depend=has_depend)
        if array is not None:
            is_updated = access is BufferAccess.WRITE and is_in_place(operation)
            if isinstance(array, np.ndarray):
                check_array(operation, parameter, array, access)
            found.append((parameter, array, BufferAccess.UPDATE if is_updated else access))
    return found


def _staging(runtime: Runtime, operation: Operation, buffers: Buffers | None, directive: str) -> BufferStaging | None:
    """Return the staging of the arrays that an operation does not take unchanged; None if there are none.

    Raise `ClauseError` if device arrays are on several devices, or not on one of this runtime, or if the method's use
    of them is not known.
    """
    if buffers is None:
        check_unknown(operation)
        return None
    found, places = [], set()
    for parameter, array, access in buffers:
        if isinstance(array, np.ndarray):
            if is_direct(operation, parameter, array):
                continue
        else:
            places.add(place_of(runtime, array, f"{directive}: {parameter}"))
        found.append((parameter, array, _staged(operation, parameter, array, access)))
    if len(places) > 1:
        raise ClauseError(f"{directive}: its buffers are on several devices; pass arrays of one device, or of the host")
    return BufferStaging(places.pop() if places else None, found) if found else None


def _staged(operation: Operation, parameter: str, array: Any, access: BufferAccess) -> BufferAccess:
    """Return how a call uses the memory that it gets for an array."""
    # What it may leave as it is, in whole or in part, is to be there before, as it is copied back: a rank that is not
    # the root, gaps between blocks, a neighbour that is none. All of the others' is written, and of a message what has
    # come.
    if not is_written(operation, parameter, access):
        return BufferAccess.READ
    if access is BufferAccess.WRITE and not (operation.named[parameter] is array and _fills(operation, array)):
        return BufferAccess.UPDATE
    return access


def _fills(operation: Operation, array: Any) -> bool:
    """Tell whether a call writes all of an array that it is given as it is, or by a message its beginning."""
    known = operation.known
    if known is not None and known.receives:
        return not known.sends and bool(array.flags.c_contiguous)  # MPICH's Isendrecv does not say what has come
    return operation.name in FILLING
