"""`interop`: a stream for work that is no task's, ordered with the tasks by dependences.

Theory of operation
-------------------
Work that a program enqueues on the stream itself are OpenMP's foreign tasks; the stream synchronises them. The entry of
the block, `Interop.use` and its exit each generate one empty device task with the dependences of the construct. The
task follows the work on the stream when it was generated, and work enqueued there from then on follows the task; each
is one event and one wait on the device. At the entry nothing on the stream has to be followed, at the exit nothing
follows on it.

A stream can wait for a task only where that has been put on a stream itself. So the encountering thread waits until the
entry is *launched*, which it is when all its predecessors are: a host task when it is complete, device work mostly at
once, without a wait for its stream. A delay of a predecessor's launch delays the entry, and the device may cause it.
Staged copies of pageable memory are launched when their stream gets there and the bytes have been moved. A region that
was postponed for lack of memory is launched when another one ends. The stream of the block is marked and held by the
encountering thread alone, since the stream of a handle such as CUDA's per-thread default stream depends on the thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.arrays.items import is_device_array
from offload.constructs.clauses.dependences import check_depend_now
from offload.constructs.clauses.maps import check_device
from offload.devices.host import Host
from offload.errors import ClauseError, UnsupportedError, UsageError
from offload.events.sources import put_on
from offload.interrupts.shields import Shield, in_one_piece, late
from offload.runtime.current import here
from offload.runtime.generate import generate
from offload.runtime.keywords import takes_clauses
from offload.runtime.managers import Unentered
from offload.runtime.recipe import DeviceRecipe
from offload.runtime.sites import call_site
from offload.runtime.works import Work
from offload.tasks import hooked
from offload.tasks.failures import see
from offload.tasks.goals import Launches
from offload.tasks.recipe import Recipe
from offload.tasks.states import TaskState
from offload.tasks.task import LeaveRegion

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from offload.constructs.clauses.dependences import Dependence
    from offload.constructs.clauses.signatures import Depends, Number
    from offload.devices.base import Device
    from offload.devices.streams import Lane, Point
    from offload.runtime.current import Scope
    from offload.runtime.place import DevicePlace
    from offload.runtime.runtime import Runtime
    from offload.runtime.works import Launch
    from offload.tasks.region import Region
    from offload.tasks.site import Site
    from offload.tasks.task import Task


class Interop:
    """The context manager that `interop` returns. Enter it once.

    Attributes
    ----------
    stream : stream or None
        The native stream of the block, or the stream that you gave. It is None on the host, and with
        ``targetsync=False``.
    device : device
        The device, as `offload.device` returns it.

    Examples
    --------
    >>> with omp.interop() as block:
    ...     print(block.device.number)
    ...     block.stream.launch(lambda: None)  # with CuPy: a kernel or a library call
    0
    """

    __slots__ = (
        "_depend",
        "_frame",
        "_has_ended",
        "_lane",
        "_place",
        "_runtime",
        "_syncs",
        "_unentered",
        "device",
        "stream",
    )

    def __init__(
        self,
        runtime: Runtime,
        place: DevicePlace | None,
        stream: Any,
        depend: tuple[Dependence, ...],
        *,
        syncs: bool,
    ) -> None:
        self._runtime = runtime  # that of the making, and the only one
        self._place = place
        self._depend = depend  # of the entry and the exit; of `use` by default
        self._syncs = syncs  # False: there is no stream to order
        self._frame: Region | None = None  # in the block: the region that it is in
        self._has_ended = False  # an object has one block
        self._lane: Lane | None = None  # None where there is no stream to order
        if place is not None and syncs:
            self._lane = place.user_pool.next() if stream is None else place.lane_of(stream)
        self.device: Device | Host = Host(runtime.initial_device) if place is None else place.device
        self.stream: Any = stream if stream is not None or self._lane is None else self._lane.stream
        # Without dependences, an object may well be made for its device alone.
        self._unentered = Unentered("interop") if depend else None

    def __enter__(self) -> Self:
        if self._unentered is not None:
            self._unentered.settle()
        if self._frame is not None or self._has_ended:
            raise UsageError("an interop object can be entered once only; call interop() again for each block")
        scope = here()
        if scope.runtime is not self._runtime:
            raise UsageError(
                "an interop object must be entered in the runtime that it was made in; call interop() here"
            )
        frame = scope.frame("interop")
        if self._syncs:
            self._follow(scope, frame, self._depend, None)
        self._frame = frame
        return self

    def use(self, depend: Depends | None = None) -> None:
        """Order the stream with tasks in the middle of the block.

        Work that is on the stream now ends before later tasks with conflicting dependences begin. Work that you enqueue
        from now on runs after the tasks generated so far.

        Parameters
        ----------
        depend : list of dependences, optional
            Dependences that replace the construct's own.

        Raises
        ------
        UsageError
            The call is outside of the block, or in another thread or task.
        ClauseError, DependError, EventError, UnsupportedError
            The same causes as in `interop`.

        Notes
        -----
        The call blocks as the entry does. OpenMP 5.2, 14.1.3 "use Clause" (section number unchecked).

        Examples
        --------
        >>> x = np.zeros(3)
        >>> fill = omp.task(depend=[omp.out("x")])(lambda x: x.fill(2))
        >>> with omp.interop(depend=[omp.inout(x)]) as block:
        ...     block.stream.launch(lambda: None)
        ...     block.use()  # the work above ends before later tasks that name x
        ...     task = fill(x)
        """
        dependences = self._depend if depend is None else check_depend_now("interop", depend)
        scope, frame = self._block("use")
        if not self._syncs:
            raise ClauseError("interop: without targetsync there is nothing to order; leave targetsync=True")
        self._follow(scope, frame, dependences, None if self._lane is None else _mark(self._lane))

    @in_one_piece
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with Shield():
                self._leave()
        except BaseException as later:
            if error is None:
                raise
            error.add_note(f"then, at the end of interop: {later!r}")
        if late.is_due:
            late.deliver()

    def __repr__(self) -> str:
        where = "in its block" if self._frame is not None else "ended" if self._has_ended else "not entered"
        return f"<Interop device {self.device.number}, {self.stream!r}, {where}>"

    def _block(self, what: str) -> tuple[Scope, Region]:
        """Return the scope and region of the caller, who has to be in the block."""
        scope = here()
        if self._frame is None:
            raise UsageError(f"interop: {what} outside the block; write `with offload.interop(…) as …:`")
        frame = scope.frame("interop")
        if scope.runtime is not self._runtime or frame.children is not self._frame.children:
            raise UsageError(
                f"interop: {what} in another thread or task than the one that entered the block; use it in the same "
                "thread and task"
            )
        return scope, frame

    def _leave(self) -> None:
        """Generate the task that later ones follow."""
        scope, frame = self._block("the end")
        # First: also an end that raises is the end.
        self._frame, self._has_ended = None, True
        if not self._syncs:
            return
        site = call_site("interop", self._runtime)
        lane, place = self._lane, self._place
        if lane is None or place is None:
            self._on_host(scope, frame, self._depend, site, deferred=True)
            return
        # Later tasks follow this one, and it follows all work on the stream so far.
        generate(scope, frame, DeviceRecipe(site, place, _Passage(_mark(lane), is_exit=True)), self._depend, wait=False)

    def _follow(self, scope: Scope, frame: Region, depend: tuple[Dependence, ...], before: Point | None) -> None:
        """Generate a task that follows ``before``, and hold later work of the stream until it is done."""
        if frame.recorder is not None:
            raise UnsupportedError(
                "interop while a graph is recorded: work on its stream belongs to no task, so it would be missing when "
                "the graph runs again; enqueue it in the body of a target region, on current_stream()"
            )
        site = call_site("interop", self._runtime)
        lane, place = self._lane, self._place
        if lane is None or place is None:
            self._on_host(scope, frame, depend, site, deferred=False)
            return
        lane.device.adopt(lane.stream)  # refuses one that captures, before there is a task
        # A device array in a dependence may be the work of the thread's own stream.
        names_device_arrays = any(is_device_array(item) for dependence in depend for item in dependence.items)
        passage = _Passage(before, is_exit=False, takes_device_arrays=names_device_arrays)
        task = generate(scope, frame, DeviceRecipe(site, place, passage), depend, wait=False)
        try:
            if not (task.launched or task.finished):
                helps = scope.task is not None  # else a worker will: a user may hold a lock across the construct
                scope.runtime.engine.wait(scope, _Entry(task.construct, (task,)), helps=helps)
            if task.point is None:
                _raise_end(task)
            event = task.point.event
        finally:
            del task  # as there
        if event is not None:
            put_on(lane, "interop", lane.device.wait_event, lane.stream, event)

    def _on_host(
        self, scope: Scope, frame: Region, depend: tuple[Dependence, ...], site: Site, *, deferred: bool
    ) -> None:
        """Generate an empty task: without a stream only the dependences are left."""
        generate(scope, frame, Recipe(site), depend, wait=not deferred)


@takes_clauses
def interop(
    targetsync: bool = True, device: Number | None = None, depend: Depends = (), *, stream: Any = None
) -> Interop:
    """Give a stream for your own work, ordered with tasks as ``depend`` says.

    Work that you enqueue on ``stream`` in the block runs after the earlier siblings that the dependences name. Later
    siblings with conflicting dependences run after the work. Tasks that are generated *in* the block do not wait for
    it.

    Parameters
    ----------
    targetsync : bool
        False: give only the device. There is no stream, and nothing is ordered.
    device : int, optional
        A device number. None is the default device, or the device of ``stream``.
    depend : list of dependences
        Entry and exit are each an empty task with these dependences. The call evaluates the list items, and does not
        hold them in between. If a device array is among them, earlier work on the calling thread's own stream also runs
        first.
    stream : stream, optional
        A stream of yours: a `cupy.cuda.Stream`, an object with ``__cuda_stream__``, or a simulated stream. By default
        the block uses a stream of the runtime.

    Returns
    -------
    Interop
        A context manager with ``stream`` and ``device``. Work that you enqueue before the entry, or after the exit, is
        not ordered with tasks.

    Raises
    ------
    ClauseError
        There are dependences or a stream without ``targetsync``, the stream does not belong to the device, or a clause
        is wrong.
    DependError
        A dependence is wrong. At the entry: a task that it depends on is known to have failed.
    EventError
        At the call, the entry or the exit: the stream is capturing a CUDA graph, or CUDA refuses an event there because
        the stream belongs to another device.
    UnsupportedError
        At the entry: a graph is being recorded there.
    UsageError
        The call is in a target body, or the block is entered twice, or left in another thread or task.

    Notes
    -----
    The entry blocks until the tasks that it depends on are launched, and until host tasks among them are complete. It
    does not wait for device work in flight, with two exceptions. Staged copies of pageable memory are launched when
    their stream reaches them and the bytes are moved. A region that was postponed for lack of memory is launched when
    another region ends. The exit never blocks.

    Entry and exit each cost an empty task and at most two waits on the device. A failure on the stream loses the
    device, as in a target region. On the host, ``stream`` is None, and the entry waits for the tasks. OpenMP 5.2, 14.1
    "interop Construct" (section number unchecked): the block is ``init`` with ``targetsync``, and ``destroy``.
    ``stream=`` is an extension.

    Examples
    --------
    >>> x = np.zeros(3)
    >>> fill = omp.target(nowait=True, depend=[omp.out("x")])(lambda x: x.fill(2))
    >>> task = fill(x)
    >>> with omp.interop(depend=[omp.inout(x)]) as block:
    ...     block.stream.launch(lambda: None)  # with CuPy: a kernel or a library call
    >>> omp.taskwait()
    """
    if not isinstance(targetsync, bool):
        raise ClauseError(f"interop: targetsync={targetsync!r:.40} is not a truth value; use True or False")
    dependences = check_depend_now("interop", depend)
    number = check_device(device)
    if not targetsync and (dependences or stream is not None):
        raise ClauseError("interop: depend and stream have no effect without targetsync; leave targetsync=True")
    scope = here()
    runtime = scope.runtime
    frame = scope.frame("interop")
    if stream is None or number is not None:
        place = runtime.place(frame, number)
        if place is not None and targetsync:
            place.refuse_streams("interop")
        if stream is not None and (place is None or not place.device.owns_stream(stream)):
            where = "the host, which has no streams" if place is None else f"device {number}, {place.device.name}"
            raise ClauseError(
                f"interop: {stream!r:.60} is not a stream of {where}; leave device= out, or name its device"
            )
    else:
        # A stream names its device.
        owners = (place for place in runtime.places if place.device.owns_stream(stream))
        place = next(owners, None)
        if place is None:
            raise ClauseError(
                f"interop: {type(stream).__name__} {stream!r:.60} is not a stream of a device of this runtime; "
                "leave stream= out, or use a cupy.cuda.Stream of the device"
            )
    return Interop(runtime, place, stream, dependences, syncs=targetsync)


def _noted_follow(plain: Any) -> Any:
    """Return `Interop._follow` for sanitized runtimes: work on the stream is in order with the tasks."""

    def follow(self: Interop, scope: Scope, frame: Region, depend: Any, before: Point | None) -> None:
        orders, lane = hooked.orders.get(self._runtime), self._lane
        if orders is None or lane is None:
            plain(self, scope, frame, depend, before)
            return
        orders.enters_stream(lane.stream, is_new=before is None and lane.pool is not None)
        plain(self, scope, frame, depend, before)
        orders.leaves_stream(lane.stream)

    return follow


def _noted_leave(plain: Any) -> Any:
    def leave(self: Interop) -> None:
        orders, lane = hooked.orders.get(self._runtime), self._lane
        if orders is not None and lane is not None and self._syncs:
            orders.enters_stream(lane.stream, is_new=False)
        plain(self)

    return leave


hooked.register(Interop, "_follow", _noted_follow, "sanitize")
hooked.register(Interop, "_leave", _noted_leave, "sanitize")


class _Passage(Work):
    """An empty work that follows ``before``; with ``takes_device_arrays`` the calling thread's own stream, too."""

    __slots__ = ("_before", "ends_region", "takes_device_arrays")

    def __init__(self, before: Point | None, *, is_exit: bool, takes_device_arrays: bool = False) -> None:
        self.takes_device_arrays = takes_device_arrays
        self._before = before  # None: at the entry, nothing on the stream has to be followed
        self.ends_region = is_exit  # what follows the exit follows the stream, also in a cancelled taskgroup

    def mark(self, launch: Launch) -> None:
        launch.ends_region = self.ends_region

    def begin(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        if self._before is not None:
            lane.wait_for([self._before])


def _mark(lane: Lane) -> Point:
    """Return the tail of the stream of a block; raise `EventError` if it captures, or is of another device."""
    lane.device.adopt(lane.stream)
    point: Point = put_on(lane, "interop", lane.mark)
    return point


class _Entry(Launches):
    """The launch of the task at the entry of a block: from then on the stream of the block can wait for it."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"the entry of interop at {self.tasks[0].construct.location}"


def _raise_end(task: Task) -> None:
    """Raise why a task was never launched."""
    group = task.inherited.group
    if task.state_ is TaskState.CANCELLED and group is not None and (cancelled := group.cancelled_by) is not None:
        raise LeaveRegion(cancelled)
    see(task)
    failure = task.failure
    assert failure is not None, "complete and not launched"
    try:
        raise failure
    finally:
        del task, failure  # or the traceback would refer to the task, and the task to it
