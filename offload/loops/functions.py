"""Loop functions on devices: what the decorator ``target_loop`` makes of a function, and OpenACC's have in common.

A call has one of several short ways where nothing has to be asked but what it is passed: on one device that of any
target region, on several devices, and where it speculates, one of its own.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.constructs.call import decorate
from offload.constructs.clauses.maps import MapClause, check_device
from offload.constructs.replicas import places_of
from offload.constructs.target import TargetFunction
from offload.errors import UsageError
from offload.loops.common import LoopFunction, launching
from offload.loops.proofs.dependences import DependenceProfile
from offload.loops.running.clauses import DEVICE_CHECKS, SetWords
from offload.runtime.current import here
from offload.runtime.generate import generate
from offload.tasks.recipe import Recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import ModuleType

    from offload.constructs.clauses.binding import Binding
    from offload.constructs.target_work import Known, TargetWork
    from offload.data.items import MapItem
    from offload.devices.base import Device
    from offload.loops.launch import Launcher
    from offload.runtime.current import Scope
    from offload.runtime.place import DevicePlace
    from offload.runtime.runtime import Runtime
    from offload.tasks.region import Region


class DeviceLoop(LoopFunction, TargetFunction):
    """A function whose calls are loops on a device: what OpenMP's and OpenACC's have in common."""

    _runs_function = False
    _words_of = frozenset(DEVICE_CHECKS)

    _is_spread = True

    __slots__ = ()

    @property
    def _sets(self) -> SetWords:
        """What the clauses say of several devices."""
        sets: SetWords = self._clauses.sets
        return sets

    def _prepare(self, clauses: Any, words: dict[str, Any]) -> None:
        clauses.sets = SetWords.of(self._directive, words)
        super()._prepare(clauses, words)
        speculate = clauses.program.words.speculate
        if clauses.rules is not None:
            clauses.rules.excused = clauses.program.words.named
        if isinstance(speculate, DependenceProfile):
            from offload.loops.speculative.profiles import check_profile  # few loops have one

            check_profile(clauses.program, speculate)
        if clauses.program.is_speculative and not clauses.waits:  # its work says that it may block, and may map nothing
            clauses.is_short = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Encounter the construct: return what the function returns, or with ``nowait`` the `Task`.

        In a target body: enqueue the loop on the body's stream.
        """
        scope = here()
        if scope.region is None and scope.task is not None and scope.task.construct.is_target:
            if self._sets.devices is not None:
                raise UsageError(
                    f"{self._directive} {self._name!r} has devices= but is called in a target body, which runs on one "
                    "device; call it outside the body, or leave devices= out"
                )
            return launching().launch_in_body(self._program, args, kwargs, scope.task)
        return super().__call__(*args, **kwargs)

    def _encounter(self, scope: Scope, region: Region, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        program = self._program
        if program.is_speculative and program.has_stayed and not kwargs:
            recipe = self._on_own(scope, region, args)
            if recipe is not None:
                return generate(scope, region, recipe, (), wait=True).value
        return super()._encounter(scope, region, args, kwargs)

    def _on_own(self, scope: Scope, region: Region, args: tuple[Any, ...]) -> Recipe | None:
        """Return what a speculative call is that stays on the program's arrays; None where that is to be asked."""
        place = scope.runtime.default_place(region)
        if region.mode or self._depend or place is None or not self._clauses.words.keys() <= {"name", "priority"}:
            return None
        body = _speculating().host_call(self._program, args, place)
        return None if body is None else Recipe(self._site_in(scope.runtime), body, args, label=self._clauses.label)

    def _places(self, runtime: Runtime, region: Region, device: int | None) -> tuple[DevicePlace, ...] | None:
        if self._program.is_speculative:  # where the environment names devices
            return None
        devices = self._sets.devices
        if device is not None:
            return places_of(runtime, devices, device)
        default = region.inherited.default_device
        known = self.__dict__.get("_known_places")  # shared with copies of other clauses
        if known is not None and known[0] is runtime and known[1] == devices and known[2] == default:
            places: tuple[DevicePlace, ...] | None = known[3]
        else:
            places = places_of(runtime, devices)
            self.__dict__["_known_places"] = runtime, devices, default, places
        return places

    def _work(
        self,
        body: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        binding: Binding,
        places: tuple[DevicePlace, ...] | None,
        known: Known | None = None,
    ) -> TargetWork:
        if self._program.is_speculative:
            return _speculating().SpeculativeWork(body, args, kwargs, binding, self._counter, known)  # type: ignore[no-any-return]  # a TargetWork
        if places is None or len(places) == 1:
            return super()._work(body, args, kwargs, binding, places, known)
        work: TargetWork = on_sets().set_work(self._sets, body, args, kwargs, binding, places, self._counter, known)
        return work

    def _body(self, names: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        """Return what starts the loop where it is called."""
        return self._short_body(args, is_given=False)

    def _short_body(self, args: tuple[Any, ...], *, is_given: bool) -> Callable[..., Any]:
        kind: Any = _speculating().SpeculativeLauncher if self._program.is_speculative else launching().Launcher
        launcher: Launcher = launching().launcher_for(self._program, args, kind) if is_given else kind(self._program)
        return launcher

    def _deciding(self, args: tuple[Any, ...]) -> Iterable[Any]:
        return self._program.deciding(args)

    def _known_items(self, args: tuple[Any, ...]) -> list[MapItem] | None:
        return None if self._program.words.firstprivate else super()._known_items(args)  # what is copied at each call

    def _look(self, binding: Binding, body: Any) -> None:
        from offload.loops.mapping import map_found

        for slot, value in binding.passed if self._program.words.firstprivate else ():
            name = slot if isinstance(slot, str) else self._program.parameters[slot]
            if value.__class__ is np.ndarray and name in self._program.words.firstprivate:
                binding.capture(slot, value)
        binding.known = map_found(self._program, binding)
        self._recall(binding, body)

    def _recall(self, binding: Binding, body: Any) -> None:
        body.specialisation = binding.known
        body.is_mapped = True

    def _device_of(self, number: int | None) -> Any:
        scope = here()
        if not self._is_offloaded:
            return None
        region = scope.frame(self._directive)
        if number is None:
            number = self._clauses.device
            places = self._places(scope.runtime, region, number)
            number = number if places is None else places[0].device.number
        place = scope.runtime.place(region, check_device(number))
        return None if place is None else place.device

    def _spread(self, device: int | None) -> tuple[SetWords, Sequence[Device]] | None:
        if device is not None or not self._is_offloaded:
            return None
        scope = here()
        places = self._places(scope.runtime, scope.frame(self._directive), self._clauses.device)
        return None if places is None else (self._sets, [place.device for place in places])

    def _said_maps(self) -> Mapping[str, str]:
        return {
            item: clause.map_type.word if isinstance(clause, MapClause) else "tofrom"
            for clause in self._clauses.get("map", ())
            for item in (clause.items if isinstance(clause, MapClause) else (clause,))
            if isinstance(item, str)
        }


class TargetLoop(DeviceLoop):
    """A function under ``target_loop``."""

    _directive = "target_loop"
    _checks = {**TargetFunction._checks, **DEVICE_CHECKS}  # noqa: RUF012, SLF001  # a table; its own base

    __slots__ = ()


@cache
def _speculating() -> ModuleType:
    """Return what loops that speculate do, which is imported for the first of them."""
    from offload.loops import speculative_launch

    return speculative_launch


@cache
def on_sets() -> ModuleType:
    """Return what loops on several devices do, which is imported for the first of them."""
    from offload.loops import set_work

    return set_work


def target_loop(function: Callable[..., Any] | None = None, /, **clauses: Any) -> Any:
    """Make each call of a function a loop on a device: its iterations run beside each other.

    The function is a nest of ``for … in range(…)``, with scalar statements before it and an optional ``return`` of
    scalars behind. It is compiled; called without the decorator (`fn.python`) it does the same in CPython.

    Parameters
    ----------
    map, depend, nowait, device, if_, is_device_ptr, has_device_addr, defaultmap, priority, name
        As for `target`. Arrays in no clause are ``to`` where the loop only reads them, ``from_`` where it provably
        writes all of them and reads none, else ``tofrom``.
    collapse : int
        So many of the outermost loops, perfectly nested, are one iteration space.
    reduction : dict of str to list of str
        By operator (``+ * min max & | ^ and or``), scalars that the function returns, or parameters whose arguments are
        arrays of one element.
    private, firstprivate, lastprivate : list of str
        Arrays of which each iteration has its own; scalars of ``lastprivate`` can be returned.
    atomic : list of str
        Arrays whose every update is one step.
    schedule : str or tuple of (str, int)
        On the host: ``"static"``, chunks of equal length, ``"dynamic"``, more of them, ``"guided"``, ever shorter ones;
        with the size of a chunk, or of the shortest.
    num_threads, num_teams, thread_limit, num_gangs, num_workers, vector_length : int
        How many threads run the loop on the host, and its shape on a device.
    gang, worker, vector, seq, independent, auto, tile
        Of the associated loops, as OpenACC has them. ``seq``: iterations in order, none behind one that fails.
        ``auto``: beside each other where that is proved, else in order, with a `PerformanceWarning`.
    cache : list of str
        A hint.
    check : bool
        Before it runs, the call proves that iterations are independent, or sees it in a run in order, compiled, on
        copies on the host. ``assert`` counts.
    speculate : bool, "always" or DependenceProfile
        Nobody has proved that iterations are independent: results are those of the loop in order, which runs in
        parallel where that is found to be the same. ``"always"``: with a log in each call, by no memory; a profile
        stands for the first call.
    bounds : "auto" or False
        False leaves out checks of indices that depend on data.
    fastmath : False, "contract" or "fast"
        Whether operations may be fused, or reassociated.
    devices : "all" or list of int
        Device numbers of one kind, the primary's first: what the loop writes is divided among them. Arrays that are in
        no replica set of theirs (`target_data` with ``devices``) get replicas for the time of the call. Without this
        and ``device`` it is ``OFFLOAD_LOOP_DEVICES``.
    filter : "auto", "always" or "never"
        With ``devices``: whether ways are measured, the loop is split whatever it takes, or never.
    exchange : "lazy" or "eager"
        With ``devices``: whether devices fetch what they need before a loop, or replicas are made equal behind it.

    Returns
    -------
    TargetLoop
        Calling it returns what the function returns, or with ``nowait`` a `Task`; in a target body it enqueues the loop
        on the body's stream and returns device arrays without dimensions. ``.options(…)`` as for `target`;
        ``.python``, ``.compile(…)``, ``.source(…)``, ``.explain(…)``.

    Raises
    ------
    LoopError
        At the decorator: the function is outside of what loops can be. At a call: its arguments are, or its iterations
        provably depend on each other; in the task: with ``check``, they are seen to.
    ClauseError
        Wrong clauses or values; the loop writes to an array that is read-only; in the task, with ``filter="always"``:
        it cannot be split.
    IndexError, ZeroDivisionError, AssertionError
        In the task, with array, index, iteration and line; on several devices a note has the one that found it.
    UsageError
        ``devices`` in a target body.
    MapError, DeviceMemoryError
        With ``devices``, as `target_data`.

    Notes
    -----
    *Blocks* and *costs* as `target`, with ``check`` until what is before it on its stream is done, unless what it would
    see is known; with ``speculate`` until it is decided whether the loop runs in parallel, and where it does not, or
    may not, until it is over; the first call with arguments of new types compiles. OpenMP 5.2, 11.7 "loop
    Construct", combined with ``target`` and ``teams`` (section numbers unchecked); deviations: independence is asserted
    by the construct, and refused where the opposite is proved. If iterations may lose updates of an element, the first
    call issues a `DirectiveWarning`.
    """
    return decorate(TargetLoop, function, clauses)
