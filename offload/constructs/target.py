"""Target functions: what the decorator ``target`` makes of a function."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.items import SCALARS
from offload.constructs.clauses.binding import Binding
from offload.constructs.clauses.defaults import Defaults
from offload.constructs.clauses.dependences import check_depend
from offload.constructs.clauses.mapping import check_writeable, map_items
from offload.constructs.clauses.maps import (
    check_device,
    check_map,
    check_name,
    check_priority,
    worded_items,
)
from offload.constructs.clauses.names import parse_item, unseen
from offload.constructs.clauses.parameters import WholeParameters, are_parameters
from offload.constructs.clauses.parts import enter_parts
from offload.constructs.clauses.sharing import ArgumentRules, check_defaultmap, check_sharing, has_rules
from offload.constructs.functions import NOT_GIVEN, DirectiveFunction, are_plain, decorate
from offload.constructs.host_region import HostRegion
from offload.constructs.passed import dependence_on, device_of
from offload.constructs.receiving import divided_clauses, receiving_work
from offload.constructs.target_work import Known, TargetWork
from offload.data.entries import Counter
from offload.data.known import Layouts
from offload.data.maptypes import Construct
from offload.errors import ClauseError
from offload.interrupts.finalizers import collector
from offload.interrupts.shields import is_at_work
from offload.runtime.current import here, put_off_here, scope_in_context
from offload.runtime.generate import defer, encounter, run
from offload.runtime.launch import DeviceTask
from offload.runtime.recipe import DeviceRecipe
from offload.tasks.stack import owned
from offload.tasks.values import Values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Self

    from offload.arrays.sections import Section
    from offload.constructs.clauses.mappers import Expansion
    from offload.constructs.receiving import Late, ReceivingWork
    from offload.data.items import MapItem
    from offload.runtime.current import Scope
    from offload.runtime.place import DevicePlace
    from offload.runtime.runtime import Runtime
    from offload.tasks.recipe import Recipe
    from offload.tasks.region import Region


_DIRECT = {"nowait", "map", "name", "priority"}
"""Clauses beside ``depend`` that the short way of a call knows."""

_PLAIN = {"nowait"}
"""Those with which device arrays need no work."""


class TargetFunction(DirectiveFunction):
    """A function whose calls are target regions: its array arguments are device arrays there."""

    _directive = "target"
    _is_target = True
    _may_be_direct = True
    _runs_function = True
    """Whether the body is the function, whatever the arguments are."""
    _counter = Counter.DYNAMIC
    _rules_of: type[ArgumentRules] = ArgumentRules
    _checks = {  # noqa: RUF012  # a table, never changed
        "map": check_map,
        "depend": check_depend,
        "nowait": bool,
        "device": check_device,
        "if_": lambda value: value,
        "firstprivate": check_sharing,
        "private": check_sharing,
        "is_device_ptr": check_sharing,
        "has_device_addr": check_sharing,
        "defaultmap": check_defaultmap,
        "priority": check_priority,
        "name": check_name,
    }

    __slots__ = ("_is_deferred", "_is_direct", "_is_plain", "_is_short", "_kept", "_ready", "_rules", "_said", "_whole")

    def __init__(self, function: Callable[..., Any], clauses: dict[str, Any]) -> None:
        self._defaults = Defaults.of(function)
        super().__init__(function, clauses)

    def _apply(self, clauses: dict[str, Any]) -> None:
        super()._apply(clauses)
        names = self._names
        self._rules = self._rules_of(clauses, names) if names is not None and has_rules(clauses) else None
        self._ready: tuple[list[MapItem], Layouts] | None = None
        self._kept: tuple[tuple[Any, ...], Binding] | None = None  # of a call whose arrays clauses name
        self._whole = WholeParameters.of(clauses.get("map", ()), names) if names is not None else None
        self._said = object() if "map" in clauses else None  # what bindings are remembered by
        self._is_deferred = bool(clauses.get("nowait"))
        # Of a call by position of arrays and scalars nothing has to be known but these: clauses name whole parameters.
        if names is None:
            self._is_short = not self._is_late
        else:
            is_found = self._whole is not None and (not self._is_late or are_parameters(self._depend, names))
            self._is_short = is_found and self._rules is None
        is_known = self._is_short and self._defaults is None
        self._is_direct = self._may_be_direct and is_known and clauses.keys() <= _DIRECT
        self._is_plain = self._is_direct and clauses.keys() <= _PLAIN
        if names is not None:
            for item, word in worded_items(clauses.get("map", ())):
                name = parse_item(item).name
                if not names.may_have(name):
                    raise ClauseError(
                        f"{word}: list item {item!r}: {unseen(name, names.parameters)}; {self._name} takes "
                        f"{', '.join(names.parameters) or 'no parameters'}"
                    )

    def options(self, *, depend: Any = NOT_GIVEN, **clauses: Any) -> Self:
        """Return a copy with these clauses replaced. Raises as for every construct."""
        if depend is not NOT_GIVEN:
            if not clauses and self._is_plain and are_plain(depend):
                copy = self._with_dependences(depend)
                copy._is_plain = copy._is_direct = copy._is_short = True  # noqa: SLF001  # its own kind
                copy._is_deferred = self._is_deferred  # noqa: SLF001  # the same
                copy._rules = copy._ready = copy._kept = copy._said = copy._whole = None  # noqa: SLF001  # the same
                return copy
            clauses["depend"] = depend
        return super().options(**clauses)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Encounter the construct: return what the body returns, or with ``nowait`` the `Task`."""
        scope = scope_in_context()
        if scope is None or scope.thread != get_ident():
            scope = here()
        frame = scope.region
        if (
            not self._is_direct
            or kwargs
            or frame is None
            or frame.recorder is not None
            or not frame.inherited.is_plain
            or collector.start
            or owned
            or (not self._is_deferred and is_at_work())
        ):
            return self._encounter(scope, args, kwargs)
        # Arrays and scalars only, and nothing to be asked but dependences and arrays that are mapped.
        runtime = scope.runtime
        place = runtime.default_place(frame)
        if place is None:
            return self._encounter(scope, args, kwargs)
        site = self._site
        if site is None or site.runtime is not runtime:
            site = self._site_in(runtime)
        device = place.device
        arrays: dict[int, Any] = {}
        takes_arrays = False
        for slot, value in enumerate(args):
            kind = value.__class__
            if kind is np.ndarray:
                arrays[slot] = value
            elif kind not in SCALARS:
                if not device.is_array(value) or device.retired(value) is not None:
                    return self._encounter(scope, args, kwargs)
                takes_arrays = True
        body: Any = self._function if self._runs_function else self._short_body(args, is_given=not arrays)
        depend: Any = self._depend
        if self._is_late and self._names is not None:
            depend = self._dependences(self._names.at_call(args, kwargs, only_parameters=True))
        if arrays or not self._is_plain:
            work = self._short_work(place, args, arrays, body)
            if work is None:
                return self._encounter(scope, args, kwargs)
            work.takes_device_arrays = takes_arrays
            priority = self._clauses.get("priority", 0)
            if priority:
                priority = min(priority, runtime.engine.max_priority)
            task = DeviceTask.of(site, frame, place, work, self._label, priority)
            del work  # what it holds goes before the task is complete
        else:
            task = DeviceTask.plain(site, frame, place, body, args)
            if takes_arrays:
                task.after = device.caller_event()
        if not self._is_deferred:
            try:
                return run(scope, frame, task, depend)
            finally:
                del task  # as `run` asks for
        defer(scope, frame, task, depend)
        return task

    def _encounter(self, scope: Scope, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Encounter a region that has more than dependences and arrays in no clause."""
        if put_off_here(scope, self, args, kwargs):
            return None
        if self._defaults is not None:
            args, kwargs = self._defaults.completed(args, kwargs)
        runtime = scope.runtime
        frame = scope.frame(self._directive)
        clauses = self._clauses
        device, is_offloaded = clauses.get("device"), self._is_offloaded()
        binding = Binding.of(args, kwargs)
        values: Values | None = None
        if binding.others:
            if device is None and is_offloaded:
                device = device_of(runtime, binding.others, self._directive)
            values = Values.in_slots(binding.others)
        places = self._places(runtime, device) if is_offloaded else None
        if places is not None:
            device = places[0].device.number
        place = runtime.place(frame, device, if_=is_offloaded)
        is_short = self._is_short and not kwargs and not binding.others
        visible = self._names
        names = visible.at_call(args, kwargs, only_parameters=is_short) if visible is not None else {}
        depend: Any = self._dependences(names) if self._is_late else self._depend
        site = self._site_in(runtime)
        priority = min(clauses.get("priority", 0), runtime.engine.max_priority)
        given: Sequence[Any] = clauses.get("map", ())
        late: Sequence[Late] = ()
        if values is not None:
            given, late = self._divided(values, names, kwargs)
            depend = (*depend, dependence_on(values))
            binding = Binding.of(*values.without(args, kwargs))
        body = self._body(names, binding.args, binding.kwargs)
        items = self._known_items(args) if is_short else None
        binding.items = self._items(names, binding.objects, given) if items is None else items
        if visible is not None and self._whole is None:
            enter_parts(binding, clauses.get("map", ()), visible, names)
        if self._rules is not None:
            self._rules.decide(binding, names, on_host=place is None, listed=self._listed_around(frame))
        if values is None:
            self._look(binding, body)
        recipe: HostRegion | DeviceRecipe
        work: TargetWork | ReceivingWork | None = None
        if place is None:
            recipe = HostRegion(site, body, binding.args, dict(binding.kwargs), self._label, priority)
            recipe.binding = binding.kept()
        else:
            if values is None:
                binding.complete(place)
                work = self._work(body, binding, places)
            else:
                work = receiving_work(values, late, body, binding.kept(), place, self._counter, self._check_values)
            if values is None and self._is_deferred and frame.is_plain:
                task = DeviceTask.of(site, frame, place, work, self._label, priority)
                defer(scope, frame, task, depend)
                return task
            recipe = DeviceRecipe(site, place, work, self._label, priority)
        recipe.values = values
        return self._generate(scope, frame, recipe, depend, work, device)

    # -- what another kind of target region does otherwise -------------------------------------------
    def _is_offloaded(self) -> bool:
        return bool(self._clauses.get("if_", True))

    def _places(self, runtime: Runtime, device: int | None) -> tuple[DevicePlace, ...] | None:
        """Return the places of a region that is carried out on several devices; the first is its own."""
        return None

    def _work(self, body: Any, binding: Binding, places: tuple[DevicePlace, ...] | None) -> TargetWork:
        """Return what a launch does."""
        return TargetWork(body, binding.args, binding.kwargs, binding, self._counter)

    def _listed_around(self, frame: Region) -> tuple[Section, ...]:
        """Return the storage that ``defaultmap(none)`` need not name."""
        return ()

    def _body(self, names: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        """Return what is called with the arguments on the device."""
        return self._function

    def _short_body(self, args: tuple[Any, ...], *, is_given: bool) -> Callable[..., Any]:
        """Return what is called in a region that is encountered the short way; raise what is wrong with arguments.

        Where it ``is_given`` these, there are no host arrays among them.
        """
        return self._function

    def _look(self, binding: Binding, body: Callable[..., Any]) -> None:
        """Look at the arguments of a call, all of which are known, and at what clauses say of them; map others."""

    def _recall(self, binding: Binding, body: Any) -> None:
        """Have the body of a short call know what `_look` has found in another one."""

    def _deciding(self, args: tuple[Any, ...]) -> Iterable[Any]:
        """Return what else than its host arrays decides how a short call maps these."""
        return ()

    def _generate(
        self,
        scope: Scope,
        frame: Region,
        recipe: Recipe,
        depend: Any,
        work: TargetWork | ReceivingWork | None,
        device: int | None,
    ) -> Any:
        """Generate the task, and return what the call does; ``work`` is None on the host."""
        encountered = encounter(scope, frame, recipe, depend, deferred=self._is_deferred)
        return encountered if self._is_deferred else encountered.value

    def _check_values(self, values: Values, found: Sequence[Any]) -> None:
        """Raise `MapError` if the region cannot have such values of tasks."""

    # -- list items ----------------------------------------------------------------------------------

    def _divided(
        self, values: Values, names: Mapping[str, Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], list[Late]]:
        """Return what the ``map`` clause names but for values of tasks, and those.

        Raises
        ------
        ClauseError
            A clause says of a value what has to be said at the call.
        """
        return divided_clauses(self._clauses, self._rules_of.words, values, self._names, names, kwargs)

    def _short_work(
        self, place: DevicePlace, args: tuple[Any, ...], arrays: dict[int, Any], body: Any, places: Any = None
    ) -> TargetWork | None:
        """Return the work of a call by position of host arrays and scalars; None where names are needed."""
        found = self._bound(place, args, arrays, body)
        return None if found is None else TargetWork(body, args, {}, found[0], self._counter, found[1])

    def _bound(
        self, place: DevicePlace, args: tuple[Any, ...], arrays: dict[int, Any], body: Callable[..., Any]
    ) -> tuple[Binding, Known | None] | None:
        """Return the binding of such a call, and what an earlier one has found out; None where names are needed."""
        key = (
            self._said,
            len(args),
            *arrays,
            *map(id, arrays.values()),
            *(() if self._runs_function or not arrays else self._deciding(args)),
        )
        known: Known | None = place.table.remembered.get(key)
        if known is not None and known.layouts.are_current():
            self._recall(known.binding, body)
            return known.binding, known
        if self._kept is not None and self._kept[0] == key and self._ready_items() is not None:
            binding = self._kept[1]
            binding.key = key
            return binding, None
        items = self._known_items(args)
        if items is None:
            return None
        binding = Binding(args, {}, items)
        if arrays and not self._runs_function:
            self._look(binding, body)
        binding.args = ()  # which are not to be remembered
        binding.key = key
        for slot, array in arrays.items():
            binding.add_array(slot, array)
        if self._ready is not None and self._runs_function:
            items = binding.items
            for _, host, _, number in binding.arrays:
                if items[number].host is not host:
                    break
            else:  # clauses keep all arrays alive
                self._kept = key, binding
        return binding, None

    def _known_items(self, args: tuple[Any, ...]) -> list[MapItem] | None:
        """Return the evaluated list items of a call by position whose clauses need no names; None where they do."""
        if self._whole is not None:
            return self._whole.items(args)
        if self._said is None:
            return []
        items = self._ready_items()
        return None if items is None else items.copy()

    def _ready_items(self) -> list[MapItem] | None:
        """Return the list items of clauses that name arrays; None before there are any, or if a layout has changed."""
        if self._ready is not None:
            items, layouts = self._ready
            if layouts.are_current():
                return items
            check_writeable(items)
            self._ready = self._kept = None
        return None

    def _items(self, names: Mapping[str, Any], objects: dict[int, Expansion], given: Sequence[Any]) -> list[MapItem]:
        """Return the evaluated list items of the ``map`` clause, which are the same at every call if all are arrays."""
        if not given:
            return []
        items = self._ready_items()
        if items is None:
            items = map_items(Construct.TARGET, given, names, objects)
            if self._names is None and not objects:
                self._ready = items, Layouts(items)
        return list(items)


def target(function: Callable[..., Any] | None = None, /, **clauses: Any) -> Any:
    """Make a function a target function: each call runs the body with its array arguments on a device.

    Parameters
    ----------
    map : list of map clauses
        `to`, `from_`, `tofrom`, `alloc` of list items; a bare array is ``tofrom``. Arrays in no clause, and objects
        whose class has a mapper, are ``tofrom`` as well, or ``to`` where they are read-only. A string that names a
        ``*`` or ``**`` parameter, here and in the other clauses, means each array that the call passes there.
    firstprivate, private : list of str and arrays
        Arguments with device storage of their own, with the contents that they have at the call, or uninitialised;
        never copied back, released when the task is complete, no mappings.
    is_device_ptr, has_device_addr : list of str and arrays
        Arguments that have to be device arrays of the device; they pass through, as every device array does.
    defaultmap : str or dict
        What happens to arguments in no clause, for all or by category ("aggregate": arrays, "scalar", "pointer": device
        arrays): ``"alloc"``, ``"to"``, ``"from"``, ``"tofrom"``, ``"firstprivate"``, ``"present"``, ``"default"``; with
        ``"none"`` they have to be in one. Scalars are captured by value and device arrays pass in any case.
    depend : list of dependences
        The region runs after the earlier siblings that they name.
    nowait : bool
        True: deferred, the call returns its `Task`.
    device : int
        A device number; None is the device of the device arrays that the call passes, else the default device.
    if_ : bool
        False: the region runs with the host as its device.
    priority, name
        As for `task`.

    Returns
    -------
    TargetFunction
        Calling it returns what the body returns, or a `Task`; ``.options(…)`` as for `task`. An argument that is a
        `Task` is followed, and the body gets its value, as for `task`. A host array or an object with a mapper is
        mapped when the region gets its turn: ``tofrom``, or as the ``map`` clause says that names all of the parameter.
        Other clauses cannot name such an argument, and the device is not taken from it.

    Raises
    ------
    ClauseError, DependError, MapError
        At the call or before: wrong clauses, types, names or device numbers, device arrays of several devices. In the
        task: presence, overlap, memory.

    Notes
    -----
    *Blocks* without ``nowait`` until copies back are done. *Costs* a copy of each item to the device if it is not
    present, and back. OpenMP 5.2, 13.8 "target Construct"; deviations: items may be non-contiguous, a body that
    fails copies nothing back.
    """
    return decorate(TargetFunction, function, clauses)
