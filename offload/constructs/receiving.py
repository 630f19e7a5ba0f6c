"""Target regions that are passed tasks: some decisions at the call, and the rest when the region gets its turn.

The maps of a region for a value depend on the value. At the call everything else is decided, with None in the place of
each value. In its turn the region has the values, and a work is made as for a call with these arguments. A device array
passes, a scalar is a scalar, a host array is mapped as a ``map`` clause says that names its parameter, else ``tofrom``.

Clauses that need the argument at the call (``firstprivate`` captures its contents, a section needs its shape) cannot
name such an argument.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from offload.arrays.foreign import Forms, TensorForm, check_numbers, formed, is_tensor
from offload.arrays.items import SCALARS, as_host, label, mapper_of
from offload.constructs.clauses.binding import Binding
from offload.constructs.clauses.mapping import map_items
from offload.constructs.clauses.maps import MapClause
from offload.constructs.clauses.names import parse_item
from offload.constructs.clauses.sharing import SHARING
from offload.constructs.clauses.variadics import members, named_by
from offload.constructs.target_work import TargetWork
from offload.data.maptypes import MapConstruct
from offload.errors import ClauseError, MapError
from offload.runtime.works import Work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from offload.constructs.clauses.binding import Slot
    from offload.constructs.clauses.mappers import Expansion
    from offload.constructs.clauses.names import VisibleNames
    from offload.data.entries import Counter
    from offload.data.items import MapItem
    from offload.devices.streams import Lane
    from offload.runtime.place import DevicePlace
    from offload.runtime.works import Launch
    from offload.tasks.values import Values


# -- clauses ---------------------------------------------------------------------------------------


class LateItem(NamedTuple):
    """A list item that is a value."""

    clause: Any  # of `map`, or the item itself where that is a bare string
    slot: Slot  # the argument whose value it is
    text: str  # its name for messages
    is_one_of_all: bool  # from the name of a ``*`` or ``**`` parameter: it applies to arrays only


def divided_clauses(
    clauses: Mapping[str, Any],
    words: Mapping[str, str],
    values: Values,
    visible: VisibleNames | None,
    names: Mapping[str, Any],
    kwargs: Mapping[str, Any],
) -> tuple[list[Any], list[LateItem]]:
    """Return the items of a ``map`` clause without values of tasks, and those values; ``words`` are for messages.

    Raises
    ------
    ClauseError
        A clause that needs its argument at the call names a value.
    """
    check_known(
        {words.get(clause, clause): clauses.get(clause, ()) for clause in SHARING}, values, visible, names, kwargs
    )
    given, late = divided(clauses.get("map", ()), values, visible, names, kwargs)
    check_default(clauses.get("defaultmap", {}), values, late, words.get("defaultmap", "defaultmap"))
    return given, late


def divided(
    clauses: Iterable[Any],
    values: Values,
    visible: VisibleNames | None,
    names: Mapping[str, Any],
    kwargs: Mapping[str, Any],
) -> tuple[list[Any], list[LateItem]]:
    """Return the items of ``map`` clauses that are known at the call, as clauses, and the values.

    Raises
    ------
    ClauseError
        A string names a part of a value.
    """
    now: list[Any] = []  # known at the call
    late: list[LateItem] = []  # known in the region's turn
    for clause in clauses:
        items = clause.items if isinstance(clause, MapClause) else (clause,)
        kept: list[Any] = []  # the items of this clause that are known
        for item in items:
            found = _slots_of(item, values, visible, names, kwargs)
            for slot, text, is_whole, is_one_of_all in found:
                if not is_whole:
                    raise ClauseError(
                        f"map: list item {text!r} is part of a task's value, which is known only when the task "
                        "completes; name the whole value, or pass the task's result()"
                    )
                late.append(LateItem(clause, slot, text, is_one_of_all))
            # The name of a ``*`` or ``**`` parameter names known arguments, too.
            if not found or any(is_one_of_all for *_, is_one_of_all in found):
                kept.append(item)
        if isinstance(clause, MapClause) and len(kept) < len(items):
            clause = _with_items(clause, tuple(kept))  # noqa: PLW2901  # what is left of it
        if kept:
            now.append(clause)
    return now, late


def check_default(behaviour: Mapping[str, str], values: Values, late: Iterable[LateItem], word: str) -> None:
    """Raise `ClauseError` if ``defaultmap`` says something about a value that is in no clause."""
    named = {one.slot for one in late}
    for slot in values.slots:
        if slot not in named and any(how != "default" for how in behaviour.values()):
            raise ClauseError(
                f"{word}: argument {slot} is the value of a task, which is known only when the task completes, and it "
                "is in no map clause; if it is an array, name it in one, or pass the task's result()"
            )


def check_known(
    clauses: Mapping[str, Any],
    values: Values,
    visible: VisibleNames | None,
    names: Mapping[str, Any],
    kwargs: Mapping[str, Any],
) -> None:
    """Raise `ClauseError` if one of these clauses, by their names for messages, names a value."""
    for word, items in clauses.items():
        for item in items:
            for _, text, *_ in _slots_of(item, values, visible, names, kwargs):
                raise ClauseError(
                    f"{word}: {text!r} is the value of a task, which is known only when the task completes, but the "
                    "clause needs it at the call; leave it out of the clause, or pass the task's result()"
                )


def _slots_of(
    item: Any,
    values: Values,
    visible: VisibleNames | None,
    names: Mapping[str, Any],
    kwargs: Mapping[str, Any],
) -> list[tuple[Slot, str, bool, bool]]:
    """Return the values that an item names: argument, text, whether all of the value, whether among others."""
    if not isinstance(item, str) or visible is None:
        return []
    parsed = parse_item(item)
    every = members(parsed, names)  # None unless it names a ``*`` or ``**`` parameter
    if every is not None:
        return [(one.slot, one.text, True, True) for one in every if one.slot in values.slots]
    found = named_by(parsed, visible, names, kwargs)
    return [(one.slot, one.text, not one.rest.steps, False) for one in found if one.slot in values.slots]


def late_items(late: Sequence[LateItem], by_slot: Mapping[Slot, Any], objects: dict[int, Expansion]) -> list[MapItem]:
    """Return the evaluated list items that are values; enter the expansions that mappers made of them.

    Raises
    ------
    MapError
        One is no array of the host, nor has a mapper, and is named by itself.
    """
    items: list[MapItem] = []
    for clause, slot, text, is_one_of_all in late:
        value = by_slot[slot]
        if is_one_of_all and not (isinstance(value, np.ndarray) or mapper_of(value) is not None):
            continue
        given = clause
        if isinstance(clause, MapClause):
            given = _with_items(clause, (value,))
            given.names = {id(value): text}
        else:
            given = value
        items += map_items(MapConstruct.TARGET, (given,), {}, objects)
    return items


def _with_items(clause: MapClause, items: tuple[Any, ...]) -> MapClause:
    other = copy(clause)  # clauses are shared by all calls
    other.items = items
    return other


# -- works -----------------------------------------------------------------------------------------


class ReceivingWork(Work):
    """The work of a target region that receives values: its launch becomes that of the work that these ask for."""

    __slots__ = ("_known", "_make", "items", "takes_device_arrays")

    def __init__(
        self,
        known: TargetWork,
        make: Callable[[list[Any], DevicePlace], tuple[TargetWork, Forms]],
    ) -> None:
        self._known = known  # has None in the place of each value, and is never begun
        self._make = make  # the work for the values at a place, and the forms in which the body receives tensors
        self.items = known.items  # as far as they are known at the call
        self.takes_device_arrays = known.takes_device_arrays

    def moved(self, runtime: Any) -> ReceivingWork:
        known: Any = self._known.moved(runtime)
        return ReceivingWork(known, self._make)

    def sent(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        return self._known.sent(args, kwargs)

    @property
    def binding(self) -> Binding:
        """The binding of the call, which has None in the place of each value."""
        return self._known.binding

    def begin(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        values = launch.received
        assert values is not None, "made with them"
        work, forms = self._make(values.found(), place)  # its errors are the region's failure
        if forms:
            launch.body = formed(launch.body, forms)  # type: ignore[arg-type]  # a region has a body
        if work.takes_device_arrays and not all(task and task.waits_in_stream_order for task in values.tasks):
            # A host task's array may be the work of its thread's current stream, which is mostly everybody's.
            event = place.device.caller_event()
            if event is not None:
                place.device.wait_event(lane.stream, event)
        launch.received = None  # else each task would keep those before it
        launch.work, launch.args, launch.kwargs = work, work.binding.args, {**work.binding.kwargs}
        work.begin(launch, place, lane, staged)


def receiving_work(
    values: Values,
    late: Sequence[LateItem],
    binding: Binding,
    place: DevicePlace,
    counter: Counter,
    check: Callable[[Values, Sequence[Any]], None],
) -> ReceivingWork:
    """Return the work of a region that receives values.

    Parameters
    ----------
    binding, counter
        The arguments of `TargetWork`; the binding has None in the place of each value, and is not complete.
    check : callable
        Raises where a region of this kind cannot have such values.
    """

    def work_of(whole: Binding, at: DevicePlace) -> TargetWork:
        return TargetWork(whole.complete(at), counter)

    def make(received: list[Any], at: DevicePlace) -> tuple[TargetWork, Forms]:
        found = [value if value.__class__ in SCALARS else as_host(value) for value in received]
        forms: Forms = ()
        for slot, value, host in zip(values.slots, received, found, strict=True):
            if host is not value and not binding.keeps_tensors:
                check_numbers(value, host, f"argument {slot}")
            elif host is not value and is_tensor(value):
                forms += ((slot, TensorForm(value, host)),)
        check(values, found)
        # A graph that runs again makes it again, for the values of that run.
        known = binding.with_arguments(*values.put(found, binding.args, binding.kwargs))
        known.items += late_items(late, dict(zip(values.slots, found, strict=True)), known.objects)
        return work_of(known, at), forms

    return ReceivingWork(work_of(binding.with_arguments(binding.args, binding.kwargs), place), make)


def rebuilt_on_host(keeps_tensors: bool, found: list[Any]) -> Sequence[Any]:
    """Return the forms of values in a region that runs on the host: arrays, or tensors where it ``keeps_tensors``."""

    def form(value: Any) -> Any:
        if value.__class__ in SCALARS:
            return value
        host = as_host(value)
        return TensorForm(value, host)(host) if keeps_tensors and host is not value and is_tensor(value) else host

    return Binding(tuple(map(form, found)), {}, []).on_host()[0]


def refuse_host_arrays(directive: str, values: Values, found: Sequence[Any]) -> None:
    """Raise `MapError` if a region that cannot map values in its turn receives an array or object to map."""
    for slot, value in zip(values.slots, found, strict=True):
        if isinstance(value, np.ndarray) or mapper_of(value) is not None:
            raise MapError(
                f"{directive}: argument {slot} is a task's value, the host array {label(value):.60}, but a region in a "
                "queue has to know at the call what it maps; pass the task's result()"
            )
