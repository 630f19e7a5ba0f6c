"""Loop functions on devices: the results of the decorator ``target_loop``, and the base of OpenACC's.

A call that only has to check its arguments takes one of several short ways: on one device that of any target region, on
several devices or with speculation one of its own.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, overload

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
from offload.runtime.keywords import shows_clauses
from offload.tasks.recipe import Recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType
    from typing import Literal, Unpack

    from offload.constructs.clauses.binding import Binding
    from offload.constructs.clauses.signatures import P, R
    from offload.constructs.target_work import TargetWork
    from offload.data.items import MapItem
    from offload.devices.base import Device
    from offload.loops.launch import Launcher
    from offload.loops.signatures import TargetLoopCall, TargetLoopClauses, TargetLoopKeywords
    from offload.runtime.current import Scope
    from offload.runtime.place import DevicePlace
    from offload.runtime.runtime import Runtime
    from offload.tasks.region import Region
    from offload.tasks.task import Task


class DeviceLoop(LoopFunction, TargetFunction):
    """A loop function whose calls run on a device: the common part of OpenMP's and OpenACC's loops."""

    _runs_function = False
    _words_of = frozenset(DEVICE_CHECKS)

    _is_spread = True

    __slots__ = ()

    @property
    def _sets(self) -> SetWords:
        """The clauses about several devices."""
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
        """Encounter the construct: return the function's result, or with ``nowait`` the `Task`.

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
        """Return the recipe of a speculative call that stays on the program's arrays; None if that is not decided."""
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

    def _work(self, binding: Binding, places: tuple[DevicePlace, ...] | None) -> TargetWork:
        if self._program.is_speculative:
            return _speculating().SpeculativeWork(binding, self._counter)  # type: ignore[no-any-return]  # a TargetWork
        if places is None or len(places) == 1:
            return super()._work(binding, places)
        return on_sets().set_work(self._sets, binding, places, self._counter)  # type: ignore[no-any-return]  # the same

    def _body(self, names: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        """Return the body that starts the loop."""
        return self._short_body(args, is_given=False)

    def _short_body(self, args: tuple[Any, ...], *, is_given: bool) -> Callable[..., Any]:
        kind: Any = _speculating().SpeculativeLauncher if self._program.is_speculative else launching().Launcher
        take = getattr(self, "_take", None)
        if is_given and take is None:
            shared: Launcher = launching().launcher_for(self._program, args, kind)
            return shared
        launcher: Launcher = kind(self._program)
        launcher.take, launcher.begin = take, getattr(self, "_begin", None)
        return launcher

    def _deciding(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._sets, *self._program.deciding(args))

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
    """A loop function under ``target_loop``. `target_loop` makes it."""

    _directive = "target_loop"
    _checks = {  # noqa: RUF012  # a table, never changed
        **{word: check for word, check in TargetFunction._checks.items() if word != "arrays"},  # noqa: SLF001  # its own base
        **DEVICE_CHECKS,
    }

    __slots__ = ()


@cache
def _speculating() -> ModuleType:
    """Return the module for loops that speculate, which is imported for the first of them."""
    from offload.loops import speculative_launch

    return speculative_launch


@cache
def on_sets() -> ModuleType:
    """Return the module for loops on several devices, which is imported for the first of them."""
    from offload.loops import set_work

    return set_work


@overload
def target_loop(
    function: Callable[P, R], /, *, nowait: Literal[True], **clauses: Unpack[TargetLoopKeywords]
) -> TargetLoopCall[P, R, Task[R]]: ...
@overload
def target_loop(
    function: Callable[P, R], /, *, nowait: Literal[False] = False, **clauses: Unpack[TargetLoopKeywords]
) -> TargetLoopCall[P, R, R]: ...
@overload
def target_loop(
    function: None = None, /, *, nowait: Literal[True], **clauses: Unpack[TargetLoopKeywords]
) -> Callable[[Callable[P, R]], TargetLoopCall[P, R, Task[R]]]: ...
@overload
def target_loop(
    function: None = None, /, *, nowait: Literal[False] = False, **clauses: Unpack[TargetLoopKeywords]
) -> Callable[[Callable[P, R]], TargetLoopCall[P, R, R]]: ...
@overload
def target_loop(
    function: Callable[P, R], /, *, nowait: bool, **clauses: Unpack[TargetLoopKeywords]
) -> TargetLoopCall[P, R, Any]: ...
@overload
def target_loop(
    function: None = None, /, *, nowait: bool, **clauses: Unpack[TargetLoopKeywords]
) -> Callable[[Callable[P, R]], TargetLoopCall[P, R, Any]]: ...
@shows_clauses("offload.loops.signatures")
def target_loop(function: Callable[..., Any] | None = None, /, **clauses: Unpack[TargetLoopClauses]) -> Any:
    """Make each call of a function a loop on a device: its iterations run in parallel.

    The function is a nest of ``for … in range(…)``. Scalar statements may precede the nest, and a ``return`` of scalars
    may follow it. The function is compiled. ``fn.python`` is the undecorated function, which does the same in CPython.

    Parameters
    ----------
    map, depend, nowait, device, if_, is_device_ptr, has_device_addr, defaultmap, priority, name
        The clauses of `target`. An array in no clause is ``to`` if the loop only reads it. It is ``from_`` if the loop
        provably writes all of it and reads none, and otherwise ``tofrom``.
    collapse : int
        The number of outermost, perfectly nested loops that form one iteration space.
    reduction : dict of str to list of str
        Maps an operator (``+ * min max & | ^ and or``) to scalars that the function returns, or to parameters whose
        arguments are arrays of one element.
    private, firstprivate, lastprivate : list of str
        Arrays of which each iteration has its own copy. The function may return scalars of ``lastprivate``.
    atomic : list of str
        Arrays whose updates are all atomic.
    schedule : str or tuple of (str, int)
        The division of iterations on the host: ``"static"`` (chunks of equal length), ``"dynamic"`` (more chunks) or
        ``"guided"`` (shrinking chunks), optionally with the size of a chunk, or of the smallest chunk.
    num_threads, num_teams, thread_limit, num_gangs, num_workers, vector_length : int
        The number of threads on the host, and the shape of the loop on a device.
    gang, worker, vector, seq, independent, auto, tile
        OpenACC's clauses of the associated loops. ``seq``: iterations run in order, and stop at the first that fails.
        ``auto``: iterations run in parallel if they are proved independent, and otherwise in order, with a
        `PerformanceWarning`.
    cache : list of str
        OpenACC's ``cache`` directive. It is a hint.
    check : bool
        Check independence before running: prove it, or else run the loop sequentially on host copies and look for
        conflicts. ``assert`` statements are enforced.
    speculate : bool, "always" or DependenceProfile
        Use it if independence is not known. The loop gives the results of the sequential loop. It runs in parallel if
        offload finds that this does not change them. With ``"always"``, each call logs its accesses, and no earlier
        call matters. A profile replaces the first call.
    bounds : "auto" or False
        False omits checks of indices that depend on data.
    fastmath : False, "contract" or "fast"
        Whether the compiler may fuse operations, or reassociate them.
    reassociate : bool
        Run a scan of floats (``s += x[i]; y[i] = s``) in parallel, although its sums are rounded otherwise than in
        order. Scans of integers are exact and need no clause.
    devices : "all" or list of int
        Device numbers of one kind, the primary first. The elements that the loop writes are divided among the devices.
        Arrays without a replica on all of them (`target_data` with ``devices``) get replicas for the duration of the
        call. Without ``devices`` and ``device``, ``OFFLOAD_LOOP_DEVICES`` decides.
    filter : "auto", "always" or "never"
        With ``devices``: measure whether to split the loop, split it always, or never.
    exchange : "lazy" or "eager"
        With ``devices``: fetch elements that a device needs before a loop, or make all replicas equal after it.

    Returns
    -------
    TargetLoop
        Each call returns the result of the function, or with ``nowait`` a `Task`. In a target body, a call enqueues the
        loop on the body's stream and returns device arrays without dimensions. ``.options(…)`` works as for `target`.
        Other members are ``.python``, ``.compile(…)``, ``.source(…)`` and ``.explain(…)``.

    Raises
    ------
    LoopError
        At the decorator: the function is outside of the subset. At a call: its arguments are, or its iterations
        provably depend on each other. In the task, with ``check``: iterations depend on each other.
    ClauseError
        Clauses or values are wrong, or the loop writes to a read-only array. In the task, with ``filter="always"``: the
        loop cannot be split.
    IndexError, ZeroDivisionError, AssertionError
        The task raises it, with array, index, iteration and line. On several devices, a note names the device.
    UsageError
        ``devices`` in a target body.
    MapError, DeviceMemoryError
        With ``devices``, the causes of `target_data`.

    Notes
    -----
    A call blocks, and copies, as a call of `target` does. With ``check`` it blocks until earlier work on its stream is
    done, unless the result of the check is already known. With ``speculate`` it blocks until offload has decided
    whether the loop runs in parallel; a sequential loop blocks to its end. The first call with arguments of new types
    compiles. OpenMP 5.2, 11.7 "loop Construct", combined with ``target`` and ``teams`` (section numbers unchecked).
    Deviations: the construct asserts independence, and offload refuses a loop if it proves the opposite. If iterations
    may lose updates of an element, the first call issues a `DirectiveWarning`.

    Examples
    --------
    >>> @omp.target_loop(reduction={"+": ["total"]})
    ... def dot(x, y):
    ...     total = 0.0
    ...     for i in range(x.size):
    ...         total += x[i] * y[i]
    ...     return total
    >>> print(dot(np.arange(4.0), np.ones(4)))
    6.0
    """
    return decorate(TargetLoop, function, clauses)
