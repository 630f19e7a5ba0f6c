"""Target functions: the results of the decorator ``target``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from numpy import ndarray

from offload.arrays.foreign import Forms, TensorForm, check_numbers, formed, is_tensor
from offload.arrays.items import SCALARS, as_host, layout_of
from offload.constructs.arguments import dependence_on, device_of
from offload.constructs.call import Clauses, DirectiveFunction, decorate
from offload.constructs.clauses.binding import Binding
from offload.constructs.clauses.defaults import Defaults
from offload.constructs.clauses.dependences import check_depend
from offload.constructs.clauses.mapping import check_writeable, map_items
from offload.constructs.clauses.maps import (
    check_arrays,
    check_device,
    check_map,
    check_name,
    check_priority,
    worded_items,
)
from offload.constructs.clauses.names import parse_item, unseen
from offload.constructs.clauses.parameters import WholeParameters
from offload.constructs.clauses.parts import enter_parts
from offload.constructs.clauses.sharing import ArgumentRules, check_defaultmap, check_sharing, has_rules
from offload.constructs.host_region import HostRegion
from offload.constructs.receiving import divided_clauses, receiving_work
from offload.constructs.target_work import TargetWork
from offload.data.entries import Counter
from offload.data.maptypes import MapConstruct
from offload.data.memo import Layouts
from offload.errors import ClauseError
from offload.runtime.current import put_off_here
from offload.runtime.generate import generate
from offload.runtime.keywords import shows_clauses
from offload.runtime.recipe import DeviceRecipe
from offload.tasks.values import Values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Literal, Unpack

    from offload.arrays.sections import Section
    from offload.constructs.clauses.binding import Slot
    from offload.constructs.clauses.mappers import Expansion
    from offload.constructs.clauses.signatures import P, R, TargetCall, TargetKeywords, TargetRegionClauses
    from offload.constructs.receiving import LateItem
    from offload.data.items import MapItem
    from offload.runtime.current import Scope
    from offload.runtime.generate import Ordering
    from offload.runtime.place import DevicePlace
    from offload.runtime.runtime import Runtime
    from offload.tasks.recipe import Recipe
    from offload.tasks.region import Region
    from offload.tasks.task import Task


_MAPPED = frozenset({ndarray, *SCALARS})
"""The classes of arguments that do not decide where a region runs."""


_UNMAPPED = {counter: object() for counter in Counter}
"""The keys of all functions without ``map``: of those that count alike, calls with the same arrays share a work."""


class TargetClauses(Clauses):
    """The values of the clauses of a target region."""

    device: int | None  # None: the default device
    if_: Any
    self_: Any = False
    """The device is the host where the one is false, and OpenACC's other one true."""
    rules: ArgumentRules | None
    """What clauses say of arguments besides ``map``."""
    whole: WholeParameters | None
    """What finds the list items of ``map``, where all of them are whole parameters."""
    maps: bool
    """Whether there is a ``map`` clause."""
    named: frozenset[Slot]
    """The positions and names of the parameters that strings in ``map`` name: ``bytes`` are an array only there."""
    key: object
    """The key of a call begins with it, by which `PresentTable.remembered` has its work; None without ``map``."""
    unmapped: list[TargetWork | None]
    """The work of all calls that map nothing: without device arrays among the arguments, and with them."""
    is_default: bool
    """Whether no clause says where a region runs."""
    defaults: Defaults | None
    function: Callable[..., Any]
    is_queued: bool
    is_spread: bool
    runs_function: bool
    """These are as the function has them, where to look one up costs three times as much."""
    items: tuple[list[MapItem], Layouts] | None
    """The evaluated list items, where all of them are arrays; found by the first call."""
    arrays: str | None
    """The library whose arrays the body gets: "cupy", or "torch"; None for those that were passed."""
    is_short: bool
    """Whether a call by position of arrays and scalars gets along without names: its clauses name whole parameters or
    arrays, and nothing else is said of arguments."""


class TargetFunction(DirectiveFunction):
    """A function whose calls are target regions: its array arguments are device arrays there. `target` makes it."""

    _directive = "target"
    _is_target = True
    _runs_function = True
    """Whether the body is the function, whatever the arguments are."""
    _is_spread = False
    """Whether a region may be on several devices."""
    _is_queued = False
    """Whether a region is an operation of a queue."""
    _counter = Counter.DYNAMIC
    _clauses_of: type[Clauses] = TargetClauses
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
        "arrays": check_arrays,
    }

    __slots__ = ()

    def __init__(self, function: Callable[..., Any], clauses: dict[str, Any]) -> None:
        self._defaults = Defaults.of(function)
        super().__init__(function, clauses)

    def _prepare(self, clauses: Any, words: dict[str, Any]) -> None:
        super()._prepare(clauses, words)
        names = clauses.names
        clauses.waits = not words.get("nowait")
        clauses.device, clauses.if_ = words.get("device"), words.get("if_", True)
        clauses.rules = self._rules_of(words, names) if names is not None and has_rules(words) else None
        clauses.whole = WholeParameters.of(words.get("map", ()), names) if names is not None else None
        clauses.maps = "map" in words
        clauses.key = object() if clauses.maps else _UNMAPPED[self._counter]
        clauses.items, clauses.unmapped = None, [None, None]
        clauses.arrays = words.get("arrays")
        clauses.is_default = clauses.device is None and clauses.if_.__class__ in SCALARS and bool(clauses.if_)
        clauses.is_queued, clauses.is_spread = self._is_queued, self._is_spread
        clauses.runs_function, clauses.function = self._runs_function, self._function
        clauses.defaults = self._defaults
        clauses.is_short = clauses.rules is None and (names is None or clauses.whole is not None)
        clauses.named = frozenset()
        if names is not None:
            for item, word in worded_items(words.get("map", ())):
                name = parse_item(item).name
                clauses.named |= {name, names.positions.get(name, name)}
                if not names.may_have(name):
                    raise ClauseError(
                        f"{word}: list item {item!r}: {unseen(name, names.parameters)}; {self._name} takes "
                        f"{', '.join(names.parameters) or 'no parameters'}"
                    )

    # -- a call --------------------------------------------------------------------------------------
    def _encounter(self, scope: Scope, region: Region, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of the body, or with ``nowait`` the `Task`."""
        said, depend, runtime = self._clauses, self._depend, scope.runtime
        if said.defaults is not None:
            args, kwargs = said.defaults.completed(args, kwargs)
        place: Any = runtime.default_place(region) if said.is_default else None
        # Each argument by position is looked at once. Host arrays are mapped and scalars are captured. Others may be
        # device arrays, objects or tasks.
        arrays: dict[Slot, Any] = {}
        takes_others, are_native = False, place is not None
        foreign: dict[Slot, Any] = {}  # the arguments that are arrays of other libraries in host memory
        for slot, value in enumerate(args):
            kind = value.__class__
            if kind is ndarray:
                arrays[slot] = value
            elif kind not in SCALARS or (kind is bytes and slot in said.named):
                if not (are_native and place.device.is_array(value) and place.device.retired(value) is None):
                    host = as_host(value)
                    if host is not value:
                        arrays[slot], foreign[slot] = host, value
                        continue
                    are_native = False
                takes_others = True
        given = args, kwargs
        if foreign or kwargs:
            args, kwargs = self._hosts(args, kwargs, arrays, foreign)
        # Arguments by position, on a device, and nothing recorded or changed around the call: no names are needed.
        is_short = said.is_short and not region.mode
        places, device = None, None
        if kwargs or not are_native or said.is_spread:
            if not said.waits and (kwargs or not are_native) and put_off_here(scope, self, *given):
                return None
            known = place if are_native and not kwargs else None
            where, device, places = self._where(runtime, region, known, args, kwargs, takes_others)
            are_native = are_native and (places is None or places == (place,))
            is_short = is_short and where is not None and not kwargs and (are_native or not takes_others)
            place = where
        late: Any = depend  # strings in it name arguments of this call
        recipe: Any = None
        if is_short and (late.__class__ is tuple or late.are_parameters):
            recipe = self._short_recipe(runtime, place, places, args, arrays, takes_others, foreign)
        if recipe is None:
            recipe, late = self._named_recipe(runtime, region, place, places, args, kwargs)
        elif late.__class__ is not tuple:
            late = late.at(late.names.at_call(args, kwargs, only_parameters=True))
        if said.runs_function and (foreign or said.arrays is not None):
            recipe.body = _in_form(recipe.body, said.arrays, foreign, args, kwargs)
        wait, order = said.waits, None
        if said.is_queued:
            wait, order = self._ordering(scope, region, place, device, recipe)
        task = generate(scope, region, recipe, late, wait, order)
        return task.value if wait else task

    def _hosts(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], arrays: Mapping[Slot, Any], foreign: dict[Slot, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with a NumPy array for each array of another library in host memory.

        ``arrays`` has those by position. Enter the arguments by name that are such arrays in ``foreign``.
        """
        if foreign:
            replaced: list[Any] = [*args]
            for at in foreign:
                replaced[at] = arrays[at]  # type: ignore[index]  # a position
            args = tuple(replaced)
        named, found = self._clauses.named, {}
        for name, value in kwargs.items():
            is_value = value.__class__ in _MAPPED and not (value.__class__ is bytes and name in named)
            found[name] = value if is_value else as_host(value)
            if found[name] is not value:
                foreign[name] = value
        if not self._clauses.runs_function:  # a loop computes with the elements
            for slot, value in foreign.items():
                check_numbers(value, args[slot] if isinstance(slot, int) else found[slot], self._directive)
        return args, found

    def _where(
        self,
        runtime: Runtime,
        region: Region,
        known: DevicePlace | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        takes_others: bool,
    ) -> tuple[DevicePlace | None, int | None, tuple[DevicePlace, ...] | None]:
        """Return the place of a call, the device number that decides, and all places of a region on several devices.

        A region without ``device`` runs where its device arrays are: ``known`` is the default device, where those are
        that it ``takes``, if that has been found out. The place is None if it runs on the host.
        """
        device, is_offloaded = self._clauses.device, self._is_offloaded
        if known is not None:
            device = known.device.number if takes_others else None
        elif device is None and is_offloaded:
            passed = [*enumerate(args), *kwargs.items()]
            others: list[Any] = [(slot, value) for slot, value in passed if value.__class__ not in _MAPPED]
            device = device_of(runtime, others, self._directive) if others else None
        places = self._places(runtime, region, device) if self._is_spread and is_offloaded else None
        if places:  # else the runtime has no devices
            return places[0], places[0].device.number, places
        place = known
        if place is None and device is None and is_offloaded:
            place = runtime.default_place(region)
        if place is None:
            place = runtime.place(region, device, if_=is_offloaded)
        return place, device, None

    def _short_recipe(
        self,
        runtime: Runtime,
        place: DevicePlace,
        places: tuple[DevicePlace, ...] | None,
        args: tuple[Any, ...],
        arrays: dict[Slot, Any],
        takes_arrays: bool,
        foreign: Mapping[Slot, Any],
    ) -> DeviceRecipe | None:
        """Return the recipe of a call that gets along without names; None if its list items need them."""
        said = self._clauses
        body = said.function if said.runs_function else self._short_body(args, is_given=not arrays)
        work: Any = None
        if not (arrays or said.maps):  # neither an argument nor a clause maps anything
            if places is None:
                work = said.unmapped[takes_arrays]
            if work is None:
                work = self._work(Binding.of_nothing(takes_arrays), places)
                if places is None:
                    said.unmapped[takes_arrays] = work
        else:
            work = self._present_work(place, places, args, arrays, takes_arrays, body, foreign)
            if work is None:
                return None
        site = self._site
        if site is None or site.runtime is not runtime:
            site = self._site_in(runtime)
        priority = said.priority and min(said.priority, runtime.engine.max_priority)
        return DeviceRecipe(site, place, work, body, args, None, said.label, priority)

    def _present_work(
        self,
        place: DevicePlace,
        places: tuple[DevicePlace, ...] | None,
        args: tuple[Any, ...],
        arrays: dict[Slot, Any],
        takes_arrays: bool,
        body: Any,
        foreign: Mapping[Slot, Any],
    ) -> TargetWork | None:
        """Return the work for arrays by position; None if the list items of clauses need names.

        It is remembered while the arrays are present, by their identity; their layouts are compared.
        """
        said = self._clauses
        # Arrays stand in the key by identity, which holds as long as the memo keeps them in a binding.
        held: Iterable[Any] = map(id, arrays.values())
        if foreign:  # each call has a view of its own
            held = [layout_of(array) if slot in foreign else id(array) for slot, array in arrays.items()]
        key: tuple[Any, ...] = said.key, places, takes_arrays, len(args), *arrays, *held
        if arrays and not said.runs_function:
            key += self._deciding(args)
        known: Any = place.table.remembered.get(key)
        if known is not None and known.layouts.are_current():
            if not said.runs_function:
                self._recall(known.binding, body)
            return known  # type: ignore[no-any-return]  # a work of this kind
        items = self._known_items(args)
        if items is None:
            return None
        binding = Binding(args, {}, items)
        binding.takes_device_arrays = takes_arrays
        if arrays and not said.runs_function:
            self._look(binding, body)
        binding.args = ()  # which are not to be remembered
        binding.key = key
        for slot, array in arrays.items():
            binding.add_array(slot, array)
        return self._work(binding, places)

    def _named_recipe(
        self,
        runtime: Runtime,
        region: Region,
        place: DevicePlace | None,
        places: tuple[DevicePlace, ...] | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> tuple[Recipe, Any]:
        """Return the recipe and dependences of a call that needs names for clauses or arguments, or is recorded."""
        said = self._clauses
        depend: Any = self._depend
        # Values of tasks come first, then list items, then the rules for arguments in no clause.
        binding = Binding.of(args, kwargs)
        keeps_tensors = said.runs_function and said.arrays != "cupy"
        values = Values.in_slots(binding.others)  # arguments that are tasks; None where there are none
        is_short = said.is_short and not kwargs and not binding.others and depend.__class__ is tuple
        visible = self._names_of_clauses
        names = visible.at_call(args, kwargs, only_parameters=is_short) if visible is not None else {}
        if depend.__class__ is not tuple:
            depend = depend.at(names)
        priority = min(said.priority, runtime.engine.max_priority)
        given: Sequence[Any] = said.get("map", ())
        late: Sequence[LateItem] = ()  # list items that are such values
        if values is not None:
            given, late = self._divided(values, names, kwargs)
            depend = (*depend, dependence_on(values))
            # None stands for each value until the region gets its turn.
            binding = Binding.of(*values.without(args, kwargs))
        binding.keeps_tensors = keeps_tensors
        body = self._body(names, binding.args, binding.kwargs)
        items = self._known_items(args) if is_short else None  # spares evaluating strings
        binding.items = self._items(names, binding.objects, given) if items is None else items
        if visible is not None and said.whole is None:
            enter_parts(binding, said.get("map", ()), visible, names)
        if said.rules is not None:
            said.rules.decide(binding, names, on_host=place is None, listed=self._listed_around(region))
        # With values of tasks, some arguments are known only in the region's turn.
        if values is None:
            self._look(binding, body)
        site = self._site_in(runtime)
        if place is None:
            on_host = HostRegion(site, body, binding.args, dict(binding.kwargs), said.label, priority)
            on_host.binding, on_host.values = binding.kept(), values
            return on_host, depend
        work: Any
        if values is None:
            work = self._work(binding.complete(place), places)  # which decides about the arguments in no clause
        else:
            work = receiving_work(values, late, binding.kept(), place, self._counter, self._check_values)
        binding = work.binding
        kwargs = {**binding.kwargs}
        recipe = DeviceRecipe(site, place, work, body, binding.args, kwargs or None, said.label, priority)
        recipe.values = values
        return recipe, depend

    @property
    def _is_offloaded(self) -> bool:
        """Whether clauses do not say that the device is the host."""
        return bool(self._clauses.if_ and not self._clauses.self_)

    # -- what another kind of target region does otherwise -------------------------------------------
    def _places(self, runtime: Runtime, region: Region, device: int | None) -> tuple[DevicePlace, ...] | None:
        """Return the places of a region that is carried out on several devices; the first is its own."""
        return None

    def _work(self, binding: Binding, places: tuple[DevicePlace, ...] | None) -> TargetWork:
        """Return the work of a launch."""
        return TargetWork(binding, self._counter)

    def _ordering(
        self,
        scope: Scope,
        region: Region,
        place: DevicePlace | None,
        device: int | None,
        recipe: Recipe,
    ) -> tuple[bool, Ordering]:
        """Return whether the caller waits, and the ordering of the task."""
        raise NotImplementedError

    def _listed_around(self, frame: Region) -> tuple[Section, ...]:
        """Return the storage that ``defaultmap(none)`` need not name."""
        return ()

    def _body(self, names: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        """Return the function that is called with the arguments on the device."""
        return self._function

    def _short_body(self, args: tuple[Any, ...], *, is_given: bool) -> Callable[..., Any]:
        """Return the function for a region that needs no names; raise errors in arguments.

        If it ``is_given`` these, there are no host arrays among them.
        """
        return self._function

    def _look(self, binding: Binding, body: Callable[..., Any]) -> None:
        """Look at the arguments of a call, all of which are known, and at their clauses; map others."""

    def _recall(self, binding: Binding, body: Any) -> None:
        """Give the body of a call the findings of `_look` in another one."""

    def _deciding(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the other arguments that decide how a call without names maps its host arrays."""
        return ()

    def _check_values(self, values: Values, found: Sequence[Any]) -> None:
        """Raise `MapError` if the region cannot have such values of tasks."""

    # -- list items ----------------------------------------------------------------------------------

    def _divided(
        self, values: Values, names: Mapping[str, Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], list[LateItem]]:
        """Return the items of the ``map`` clause without values of tasks, and those values.

        Raises
        ------
        ClauseError
            A clause that needs its argument at the call names a value.
        """
        return divided_clauses(self._clauses.words, self._rules_of.words, values, self._names_of_clauses, names, kwargs)

    @property
    def _names_of_clauses(self) -> Any:
        """The names that give strings in clauses a meaning, those of ``depend`` too."""
        depend: Any = self._depend
        names = self._clauses.names
        return names if names is not None or depend.__class__ is tuple else depend.names

    def _known_items(self, args: tuple[Any, ...]) -> list[MapItem] | None:
        """Return the evaluated list items of a call by position whose clauses need no names; None where they do."""
        said = self._clauses
        if said.whole is not None:
            return said.whole.items(args)  # type: ignore[no-any-return]  # a `WholeParameters`
        if not said.maps:
            return []
        items = self._ready_items()
        return None if items is None else items.copy()

    def _ready_items(self) -> list[MapItem] | None:
        """Return the list items of clauses that name arrays; None before there are any, or if a layout has changed."""
        said = self._clauses
        # Set by `_items`: arrays in clauses are the same objects at every call.
        if said.items is not None:
            items, layouts = said.items
            if layouts.are_current():
                return items  # type: ignore[no-any-return]  # of clauses
            check_writeable(items)  # of another layout now: perhaps write-protected
            said.items = None
        return None

    def _items(self, names: Mapping[str, Any], objects: dict[int, Expansion], given: Sequence[Any]) -> list[MapItem]:
        """Return the evaluated list items of the ``map`` clause, which are the same at every call if all are arrays."""
        if not given:
            return []
        items = self._ready_items()
        if items is None:
            items = map_items(MapConstruct.TARGET, given, names, objects)
            if self._clauses.names is None and not objects:
                self._clauses.items = items, Layouts(items)
        return list(items)


def _in_form(
    body: Callable[..., Any],
    arrays: str | None,
    foreign: Mapping[Slot, Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Callable[..., Any]:
    """Return a body that gets tensors where tensors were passed, or as ``arrays`` says."""
    if arrays == "cupy":
        return body
    forms: Forms = ()
    for slot in foreign:
        value: Any = foreign[slot]
        if is_tensor(value):
            host: Any = args[slot] if slot.__class__ is int else kwargs[slot]  # type: ignore[index]  # a position
            forms += ((slot, TensorForm(value, host)),)
    return formed(body, forms, all_tensors=arrays is not None)


@overload
def target(
    function: Callable[P, R], /, *, nowait: Literal[True], **clauses: Unpack[TargetKeywords]
) -> TargetCall[P, R, Task[R]]: ...
@overload
def target(
    function: Callable[P, R], /, *, nowait: Literal[False] = False, **clauses: Unpack[TargetKeywords]
) -> TargetCall[P, R, R]: ...
@overload
def target(
    function: None = None, /, *, nowait: Literal[True], **clauses: Unpack[TargetKeywords]
) -> Callable[[Callable[P, R]], TargetCall[P, R, Task[R]]]: ...
@overload
def target(
    function: None = None, /, *, nowait: Literal[False] = False, **clauses: Unpack[TargetKeywords]
) -> Callable[[Callable[P, R]], TargetCall[P, R, R]]: ...
@overload
def target(
    function: Callable[P, R], /, *, nowait: bool, **clauses: Unpack[TargetKeywords]
) -> TargetCall[P, R, Any]: ...
@overload
def target(
    function: None = None, /, *, nowait: bool, **clauses: Unpack[TargetKeywords]
) -> Callable[[Callable[P, R]], TargetCall[P, R, Any]]: ...
@shows_clauses("offload.constructs.clauses.signatures")
def target(function: Callable[..., Any] | None = None, /, **clauses: Unpack[TargetRegionClauses]) -> Any:
    """Make a function a target function: each call runs the body with its array arguments on a device.

    Parameters
    ----------
    map : list of map clauses
        `to`, `from_`, `tofrom` or `alloc` of list items; a bare array means ``tofrom``. Arrays in no clause, and
        objects whose class has a mapper, are ``tofrom``, too, or ``to`` if they are read-only. A string that names a
        ``*`` or ``**`` parameter means each array that the call passes there. This also holds in the other clauses.
    firstprivate, private : list of str and arrays
        Arguments with device storage of their own, with the contents at the call, or uninitialised. The storage is
        never copied back, is released when the task is complete, and does not count as a mapping.
    is_device_ptr, has_device_addr : list of str and arrays
        Arguments that must be device arrays of the device. They are passed unchanged, as are all device arrays.
    defaultmap : str or dict
        The treatment of arguments in no clause: one value for all, or a dict by category ("aggregate": arrays,
        "scalar", "pointer": device arrays). The values are ``"alloc"``, ``"to"``, ``"from"``, ``"tofrom"``,
        ``"firstprivate"``, ``"present"`` and ``"default"``. With ``"none"``, each argument must be in a clause. Scalars
        are always captured by value, and device arrays are always passed unchanged.
    depend : list of dependences
        The region runs after the earlier siblings that they name.
    nowait : bool
        True: deferred; the call returns its `Task`.
    device : int
        A device number. None is the device of the device arrays among the arguments, or else the default device.
    if_ : bool
        False: the region runs with the host as its device.
    arrays : str
        The arrays that the body receives: "cupy" for CuPy arrays (on the simulated device, its arrays), "torch" for
        tensors of PyTorch. By default, the body receives a tensor for a tensor, and a CuPy array for any other array.
    priority, name
        The clauses of `task`.

    Returns
    -------
    TargetFunction
        Each call returns the result of the body, or a `Task`; ``.options(…)`` works as for `task`. If an argument is a
        `Task`, the region runs after it, and the body gets its value. If that value is a host array or an object with a
        mapper, it is mapped when the region begins: ``tofrom``, or as the ``map`` clause of the whole parameter says.
        Other clauses cannot name such an argument, and it does not determine the device.

    Raises
    ------
    ClauseError, DependError, MapError
        At the call or before: wrong clauses, types, names or device numbers, or device arrays of several devices. In
        the task: presence, overlap, memory.

    Notes
    -----
    Without ``nowait``, the call blocks until the copies back are done. It copies each item that is not present to the
    device, and back. OpenMP 5.2, 13.8 "target Construct". Deviations: items may be non-contiguous, and a body that
    fails copies nothing back.

    Examples
    --------
    >>> @omp.target(map=[omp.to("x"), omp.tofrom("y")])
    ... def saxpy(a, x, y):
    ...     y += a * x  # x and y are device arrays
    >>> x, y = np.ones(3), np.zeros(3)
    >>> saxpy(2.0, x, y)
    >>> y
    array([2., 2., 2.])
    """
    return decorate(TargetFunction, function, clauses)
