"""Data constructs."""

from __future__ import annotations

from contextlib import ContextDecorator
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

from offload.arrays.items import Token, host_items
from offload.constructs.clauses.dependences import Dependence, check_depend_now, inout
from offload.constructs.clauses.mapping import map_items
from offload.constructs.clauses.maps import check_clauses, check_device, check_map, first_text, symbolic
from offload.constructs.clauses.names import refused_text
from offload.constructs.doubts import warn_of_no_copy
from offload.constructs.groups import GroupRegion
from offload.constructs.pointers import corresponding, used_items
from offload.constructs.replicas import check_devices, choose, spread
from offload.data.maptypes import MapConstruct
from offload.errors import UsageError
from offload.interrupts.finalizers import refuse_inside
from offload.interrupts.shields import Shield, in_one_piece, late
from offload.runtime.current import for_finalizers, here
from offload.runtime.generate import Ordering, generate
from offload.runtime.keywords import takes_clauses
from offload.runtime.managers import Unentered
from offload.runtime.recipe import DeviceRecipe, recipe_at
from offload.runtime.sites import call_site
from offload.runtime.works import EndRegionWork, EnterDataWork, EnterRegionWork, ExitDataWork, UndoEntryWork
from offload.tasks.recipe import nothing
from offload.tasks.states import TaskState
from offload.tasks.values import Values

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Literal, Unpack

    from offload.constructs.clauses.signatures import (
        DataKeywords,
        Depends,
        Devices,
        ListItems,
        Maps,
        Number,
        Truth,
    )
    from offload.data.items import MapItem
    from offload.runtime.current import Scope
    from offload.tasks.region import Region
    from offload.tasks.task import Task

    Function = TypeVar("Function", bound=Callable[..., Any])

# The clauses that all data constructs have. Dependences are resolved at the place of the construct.
_CHECKS: dict[str, Callable[[Any], Any]] = {
    "map": check_map,
    "depend": lambda value: value,
    "device": check_device,
    "devices": check_devices,
    "nowait": bool,
    "if_": bool,
}


class _DataConstruct:
    """The clauses of a data construct, checked, at the place where it is encountered."""

    def __init__(self, construct: MapConstruct, clauses: dict[str, Any]) -> None:
        name = construct.value
        checked = check_clauses(name, clauses, _CHECKS)
        depend = check_depend_now(name, checked["depend"])
        if symbolic(checked["map"]):
            raise refused_text(name, first_text(checked["map"]))
        self.scope: Scope = here()
        runtime = self.scope.runtime
        self.runtime = runtime
        self.frame: Region = self.scope.frame(name)  # where it is encountered
        self.items: list[MapItem] = map_items(construct, checked["map"])
        self.places, self.place = None, None  # all places with ``devices``, and that of the task
        self.is_default = checked["devices"] is None  # else the program names the devices
        device, devices, if_ = checked["device"], checked["devices"], checked["if_"]
        if devices is None and runtime.settings.loop_devices is None:
            self.place = runtime.place(self.frame, device, if_=if_)
        else:
            self.places, self.place = choose(runtime, self.frame, name, devices, device, if_=if_)
        self.depend: tuple[Dependence, ...] = depend
        self.deferred: bool = checked["nowait"]  # else the caller waits
        self.site = call_site(name.replace("_", " "), runtime)
        self._order = Ordering()  # of the last `run`

    def run(self, work: type[EnterDataWork | ExitDataWork], items: list[MapItem], ends: Task | None = None) -> Task:
        """Generate the task that enters or exits; on the host it maps nothing, but its dependences hold.

        One that ``ends`` a region, which that task has begun, runs though a task before it has failed.
        """
        one = work(items)
        done = one if self.places is None else spread(one, self.places, self.runtime.gate, is_default=self.is_default)
        recipe = recipe_at(self.site, self.place, done)
        if ends is not None and isinstance(recipe, DeviceRecipe):
            # The end releases what the entry has mapped, also if a task in between has failed.
            recipe.survives, recipe.values = True, Values((), (ends,))
        scope, frame = self.scope, self.frame
        if scope.thread != get_ident():  # a generator is ended elsewhere than it was begun, perhaps by the collector
            scope = self.runtime.here()
            frame = scope.frame(self.site.directive)
        self._order = Ordering()
        task = generate(scope, frame, recipe, self.depend, wait=not self.deferred, order=self._order)
        self._order.task = None
        return task

    @property
    def made(self) -> Task | None:
        """The task of a `run` that an interruption has left; it has mapped the items, or will."""
        return self._order.task

    async def finish(
        self, work: type[EnterDataWork | ExitDataWork], items: list[MapItem], ends: Task | None = None
    ) -> Task:
        """Run the construct as `run` does, and let the loop run until the task is complete."""
        from offload.constructs.awaiting import ended  # imports asyncio

        # The task is deferred, since an undeferred one would block the event loop.
        waits, recorder = not self.deferred, self.frame.recorder
        self.deferred = recorder is None or recorder.executes
        try:
            task = self.run(work, items, ends)
        finally:
            self.deferred = not waits
        if waits and task.state_ is not TaskState.RECORDED:
            self._order.task = task
            await ended(task)
            self._order.task = None
        return task

    def translated(self, arrays: tuple[Any, ...], entry: Task) -> tuple[Any, ...]:
        """Return the device arrays of host arrays once the entry is complete; an absent array stays as it is."""
        place = self.place
        if place is None or entry.state_ is TaskState.RECORDED:
            return arrays
        if self.deferred:
            entry.result()  # blocks, and raises its failure
        hosts = host_items(arrays)
        found = [corresponding(self.scope, place, host) if isinstance(host, np.ndarray) else None for host in hosts]
        return tuple([array if device is None else device for array, device in zip(arrays, found, strict=True)])


def _clauses(map: Any, depend: Any, *, nowait: bool, device: Any, devices: Any, if_: Any) -> dict[str, Any]:
    """Return the clauses that all data constructs have, by name."""
    return {"map": map, "depend": depend, "nowait": nowait, "device": device, "devices": devices, "if_": if_}


@overload
def target_enter_data(map: Maps, *, nowait: Literal[True], **clauses: Unpack[DataKeywords]) -> Task[None]: ...
@overload
def target_enter_data(map: Maps, *, nowait: Literal[False] = False, **clauses: Unpack[DataKeywords]) -> None: ...
@overload
def target_enter_data(map: Maps, *, nowait: bool, **clauses: Unpack[DataKeywords]) -> Task[None] | None: ...
@for_finalizers
def target_enter_data(
    map: Maps,
    *,
    depend: Depends = (),
    nowait: bool = False,
    device: Number | None = None,
    devices: Devices = None,
    if_: Truth = True,
) -> Task[None] | None:
    """Map items to a device until they are unmapped by `target_exit_data`.

    Parameters
    ----------
    map : list of map clauses
        `to` or `alloc`; a bare array means ``to``, and so does ``tofrom``.
    depend : list of dependences
        The construct runs after the earlier siblings that they name.
    nowait : bool
        True: deferred; the call returns its `Task`.
    device : int
        A device number; None is the default device.
    devices : list of int or "all", optional
        Device numbers of one kind, instead of ``device``. Each device gets a replica. The first device is the primary,
        which the task runs on. The default is the value of ``OFFLOAD_LOOP_DEVICES``.
    if_ : bool
        False: nothing is mapped, but the dependences hold.

    Returns
    -------
    Task or None
        The task, with ``nowait``.

    Raises
    ------
    ClauseError, DependError
        A clause is wrong.
    MapError, DeviceMemoryError
        An item is present in part, or on some of the devices only, or it does not fit. With ``nowait``, ``result()``
        raises these.

    Notes
    -----
    Without ``nowait``, the call blocks until the copies are done. It copies each item that is not present. OpenMP 5.2,
    13.6 "target enter data Construct".

    Examples
    --------
    >>> x = np.arange(3.0)
    >>> omp.target_enter_data(map=[omp.to(x)])
    >>> omp.target(lambda x: x.fill(7))(x)  # on the device; nothing is copied
    >>> omp.target_exit_data(map=[omp.from_(x)])
    >>> x
    array([7., 7., 7.])
    """
    clauses = _clauses(map, depend, nowait=nowait, device=device, devices=devices, if_=if_)
    construct = _DataConstruct(MapConstruct.TARGET_ENTER_DATA, clauses)
    try:
        task = construct.run(EnterDataWork, construct.items)
    except BaseException:
        if construct.made is not None:  # it has mapped the items, or will
            construct.deferred = True
            construct.run(UndoEntryWork, construct.items, construct.made)
        raise
    return task if nowait else None


@overload
def target_exit_data(map: Maps, *, nowait: Literal[True], **clauses: Unpack[DataKeywords]) -> Task[None]: ...
@overload
def target_exit_data(map: Maps, *, nowait: Literal[False] = False, **clauses: Unpack[DataKeywords]) -> None: ...
@overload
def target_exit_data(map: Maps, *, nowait: bool, **clauses: Unpack[DataKeywords]) -> Task[None] | None: ...
@for_finalizers
def target_exit_data(
    map: Maps,
    *,
    depend: Depends = (),
    nowait: bool = False,
    device: Number | None = None,
    devices: Devices = None,
    if_: Truth = True,
) -> Task[None] | None:
    """Unmap items from a device; `from_` copies back if nothing else maps them, as does a bare array.

    Items that are absent, or present in part, are ignored. If you entered an item with ``devices``, exit with the same
    devices, in any order. Each part is copied back from a device that has its last values. Associated storage is copied
    only with ``always``; otherwise offload issues a `DirectiveWarning`.

    Parameters
    ----------
    map : list of map clauses
        `from_`, `release` or `delete`; a bare array means ``from_``.
    depend, nowait, device, devices, if_
        The parameters of `target_enter_data`.

    Returns
    -------
    Task or None
        The task, with ``nowait``.

    Raises
    ------
    ClauseError, DependError, MapError
        See `target_enter_data`.

    Notes
    -----
    Without ``nowait``, the call blocks until the copies are done. OpenMP 5.2, 13.7 "target exit data Construct".

    Examples
    --------
    >>> x = np.zeros(3)
    >>> omp.target_enter_data(map=[omp.alloc(x)])
    >>> omp.target(lambda x: x.fill(7))(x)
    >>> omp.target_exit_data(map=[omp.from_(x)])
    >>> x
    array([7., 7., 7.])
    """
    clauses = _clauses(map, depend, nowait=nowait, device=device, devices=devices, if_=if_)
    construct = _DataConstruct(MapConstruct.TARGET_EXIT_DATA, clauses)
    if construct.place is not None:
        warn_of_no_copy("target_exit_data", construct.items, construct.place)
    task = construct.run(ExitDataWork, construct.items)
    return task if nowait else None


class TargetData(ContextDecorator):
    """The result of `target_data`: a context manager, used once."""

    def __init__(self, clauses: dict[str, Any], used: tuple[Any, ...], *, nogroup: bool) -> None:
        self._clauses = clauses  # checked at the entry, where the construct is
        self._given = used  # the clauses use_device_ptr and use_device_addr
        self._nogroup = nogroup  # the end does not wait for the tasks of the block
        self._construct: _DataConstruct | None = None  # from the entry on
        self._used: tuple[Any, ...] = ()  # the arrays of both clauses
        self._entry: Task  # which has mapped the items
        self._region: GroupRegion | None = None  # the implicit taskgroup
        self._unentered = Unentered("target_data")

    def __call__(self, function: Function) -> Function:
        """Decorate a function, each call of which enters a block of its own."""
        self._unentered.settle()
        return super().__call__(function)

    def _recreate_cm(self) -> TargetData:
        """Return one for each call of a function that this decorates."""
        return TargetData(self._clauses, self._given, nogroup=self._nogroup)

    def __enter__(self) -> tuple[Any, ...]:
        construct = self._encounter()
        if construct.deferred or construct.frame.recorder is None:
            # The exit follows the entry, whatever the user's dependences say.
            construct.depend += (inout(Token(_Region())),)
        try:
            with Shield():
                self._entry = construct.run(EnterRegionWork, construct.items)
                self._begin()
                translated = self._translated()
        except BaseException as error:
            if self._region is not None:
                self.leave(error)
            else:
                _undo(construct)
            raise
        return translated

    @in_one_piece
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._region is not None:
                self._region.leave_block()
            self._exit(error)
        finally:
            if late.is_due:
                late.deliver()

    @for_finalizers
    def _exit(self, error: BaseException | None) -> None:
        with Shield():
            failure = self.leave(error)
        try:
            if failure is not None and failure is not error:
                raise failure
        finally:
            del self, error, failure  # or the traceback would refer to the failure's own frame

    async def __aenter__(self) -> tuple[Any, ...]:
        construct = self._encounter()
        construct.depend += (inout(Token(_Region())),)  # as above; what lets the loop run is a deferred task
        try:
            self._entry = await construct.finish(EnterRegionWork, construct.items)
        except (Exception, BaseExceptionGroup):
            raise
        except BaseException:  # an interruption, or a cancellation of the coroutine
            _undo(construct)
            raise
        self._begin()
        try:
            if self._used and construct.deferred and self._entry.state_ is not TaskState.RECORDED:
                await self._entry
            return self._translated()
        except BaseException as error:
            await self.finish(error)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failure = await self.finish(error)
        try:
            if failure is not None and failure is not error:
                raise failure
        finally:
            del self, error, failure  # as above

    def _encounter(self) -> _DataConstruct:
        """Check the clauses and evaluate the list items."""
        self._unentered.settle()
        refuse_inside("target data")
        if self._construct is not None:
            raise UsageError("target data can be entered once only; call target_data() again for each block")
        pointers, addresses = self._given
        self._used = (*used_items("use_device_ptr", pointers), *used_items("use_device_addr", addresses))
        self._construct = _DataConstruct(MapConstruct.TARGET_DATA, self._clauses)
        return self._construct

    def _begin(self) -> None:
        """Begin the implicit taskgroup."""
        construct = self._construct
        assert construct is not None, "encountered"
        if not self._nogroup:
            self._region = GroupRegion(construct.scope, construct.frame, "the end of target data", is_implicit=True)

    def _translated(self) -> tuple[Any, ...]:
        construct = self._construct
        assert construct is not None, "encountered"
        return construct.translated(self._used, self._entry) if self._used else ()

    def leave(self, error: BaseException | None) -> BaseException | None:
        """Wait for the tasks of the block, then copy back and release.

        Return the first failure, which is ``error`` where the block has raised that; later ones are notes on it.
        """
        construct, region = self._construct, self._region
        assert construct is not None, "encountered"
        for step in (region.end if region is not None else nothing, lambda: _leave_data(construct, self._entry)):
            try:
                step()
            except BaseException as later:  # noqa: BLE001  # the first failure goes on, with this one as a note
                error = _joined(error, later)
        try:
            return error
        finally:
            del error  # or the traceback would refer to this frame, and that to the failure

    async def finish(self, error: BaseException | None) -> BaseException | None:
        """Leave the region as `leave` does, and let the loop run meanwhile."""
        construct, region, entry = self._construct, self._region, self._entry
        assert construct is not None, "encountered"
        try:
            if region is not None:
                await region.finish()
        except BaseException as later:  # noqa: BLE001  # as in `leave`
            error = _first(error, later)
        try:
            if entry.failure is None:
                await construct.finish(EndRegionWork, [], entry)
        except BaseException as later:  # noqa: BLE001  # as in `leave`
            error = _first(error, later)
        try:
            return error
        finally:
            del error  # as in `leave`


def _joined(error: BaseException | None, later: BaseException) -> BaseException:
    """Return the first of two failures of a block and its end, with the later one as a note."""
    if error is None:
        return later
    if later is not error:
        error.add_note(f"then, at the end of target data: {later!r}")
    return error


def _first(error: BaseException | None, later: BaseException) -> BaseException:
    """Return the error to raise for two failures in a coroutine, whose cancellation must not get lost."""
    if error is None or isinstance(later, (Exception, BaseExceptionGroup)):
        return _joined(error, later)
    return later


@takes_clauses
def target_data(
    map: Maps = (),
    *,
    use_device_ptr: ListItems = (),
    use_device_addr: ListItems = (),
    device: Number | None = None,
    devices: Devices = None,
    if_: Truth = True,
    nowait: bool = False,
    depend: Depends = (),
    nogroup: bool = False,
) -> TargetData:
    """Map items to a device for the duration of a block, and give the device arrays of others.

    The end of the block waits for the tasks generated in it, and for their descendants (with ``nogroup`` it does not).
    Then it copies back and releases. If the block raises, its end does the same; the exception goes on, with later
    failures as notes.

    Parameters
    ----------
    map : list of map clauses
        `to`, `from_`, `tofrom` or `alloc`; a bare array means ``tofrom``.
    use_device_ptr, use_device_addr : list of arrays
        Host arrays whose device arrays you want in the block. The block looks them up after the maps, and does not
        count them.
    device, devices, if_, nowait, depend
        The parameters of `target_enter_data`. With ``nowait``, entry and exit are deferred tasks with these
        dependences.
    nogroup : bool
        True: the end does not wait for the tasks of the block.

    Returns
    -------
    context manager
        For ``with``; in a coroutine for ``async with``, which lets the event loop run at the entry and at the end. It
        gives a tuple of arrays: one for each item of ``use_device_ptr``, then of ``use_device_addr``. Each is a device
        array of the item's shape and dtype over the corresponding storage. It is the array itself if a part of the
        array is not present, on the host, and with ``if_=False``. A use after the end of the mapping raises a
        `RegionClosedError`. On CUDA, constructs and routines check this, and CuPy does not. As with `taskgroup`, the
        block belongs to the coroutine or generator that enters it.

    Raises
    ------
    ClauseError, DependError, MapError, DeviceMemoryError
        At the entry, with the causes of `target_enter_data`.
    ExceptionGroup
        Tasks generated in the block failed, and their failures have not been retrieved.

    Notes
    -----
    The end of the block blocks. With ``nowait`` and items to look up, the entry also blocks, until they are mapped. The
    entry evaluates the list items. OpenMP 5.2, 13.5 "target data Construct", 5.4.8 "use_device_ptr Clause", 5.4.10
    "use_device_addr Clause"; as in OpenMP 6.0, it is a composite of tasks in a taskgroup.

    Examples
    --------
    >>> x = np.zeros(3)
    >>> @omp.target
    ... def increment(x):
    ...     x += 1
    >>> with omp.target_data(map=[omp.tofrom(x)]):  # one copy each way
    ...     for step in range(10):
    ...         increment(x)
    >>> x
    array([10., 10., 10.])
    """
    clauses = _clauses(map, depend, nowait=nowait, device=device, devices=devices, if_=if_)
    return TargetData(clauses, (use_device_ptr, use_device_addr), nogroup=nogroup)


class _Region:
    """Stands for one ``target data`` region in the dependence between its entry and its exit."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "target data"


def _undo(construct: _DataConstruct) -> None:
    """Undo the entry of a region that an interruption has left."""
    if construct.made is not None:  # it has mapped the items, or will
        construct.deferred = True
        _leave_data(construct, construct.made)


def _leave_data(construct: _DataConstruct, entry: Task) -> None:
    """Undo the entry of a region; one that failed has mapped nothing, and present data belongs to others."""
    if entry.failure is None:
        construct.run(EndRegionWork, [], entry)
