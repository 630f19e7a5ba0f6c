"""OpenACC's compute constructs: ``parallel``, ``kernels`` and ``serial`` over a body that works on whole arrays.

They are target regions (`offload.target`) with other clauses, in queues, and with their own counter. The standard
distributes loops over gangs and lanes; here the body has array operations instead, so the three differ by name only.
The number of gangs is passed on to bodies that launch kernels.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from offload.acc.bodies import Body, LaunchConfig
from offload.acc.clauses import (
    SPELLINGS,
    Names,
    check_async,
    check_distinct,
    check_wait,
    data_clause,
    data_clauses,
    excuse_empty,
    orderings_of,
    queue_of,
    queues_of,
)
from offload.acc.operations import NOTHING
from offload.arrays.items import array_section, as_host, is_device_array
from offload.constructs.call import decorate
from offload.constructs.clauses.dependences import check_depend
from offload.constructs.clauses.maps import check_count, check_device, check_name
from offload.constructs.clauses.names import parse_item
from offload.constructs.clauses.operators import find_operator
from offload.constructs.clauses.reductions import check_item, check_reduction
from offload.constructs.clauses.sharing import ArgumentRules, check_defaultmap, check_sharing
from offload.constructs.clauses.variadics import named_by
from offload.constructs.queueing import QueueEntry, wait_for
from offload.constructs.receiving import check_known, refuse_host_arrays
from offload.constructs.target import TargetClauses, TargetFunction
from offload.data.entries import Counter
from offload.errors import ClauseError
from offload.runtime.keywords import shows_clauses

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Unpack

    from offload.acc.clauses import Needs
    from offload.acc.signatures import AllComputeClauses, Async, ComputeCall, ComputeKeywords, NoQueue
    from offload.arrays.sections import Section
    from offload.constructs.call import Clauses
    from offload.constructs.clauses.mappers import Expansion
    from offload.constructs.clauses.operators import Operator
    from offload.constructs.clauses.signatures import P, R
    from offload.constructs.receiving import LateItem
    from offload.data.items import MapItem
    from offload.runtime.current import Scope
    from offload.runtime.place import DevicePlace
    from offload.tasks.region import Region
    from offload.tasks.task import Task
    from offload.tasks.values import Values


_DEFAULTS = {"none": check_defaultmap("none"), "present": {"aggregate": "present"}}
"""What each ``default`` clause is as a ``defaultmap``."""


def _check_default(value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or value not in _DEFAULTS):
        raise ClauseError(f"default: {value!r:.40} is not allowed; use 'none' or 'present'")
    return value


def _unchecked(value: Any) -> Any:
    return value


class _Rules(ArgumentRules):
    """The rules for arguments, whose errors name OpenACC's clauses."""

    __slots__ = ()

    words = {  # noqa: RUF012  # a table
        "map": "a data clause",
        "defaultmap": "default",
        "has_device_addr": "deviceptr",
        "present": "default(present)",
    }


class ComputeClauses(TargetClauses):
    """The values of the clauses of a compute region."""

    after: tuple[int, ...] | None
    """The async-arguments of ``wait``; None: all queues."""
    config: LaunchConfig | None
    pointers: tuple[Any, ...]
    """The items of ``deviceptr``."""
    queue: int | None
    """What ``async_`` says."""
    reduced: tuple[Any, ...]
    """The items of ``reduction``."""


class ComputeFunction(TargetFunction):
    """A function whose calls are OpenACC compute regions."""

    # OpenACC counts regions and `enter_data` in two counters, and this is the one of regions.
    _counter = Counter.STRUCTURED
    _is_queued = True  # `_ordering` decides, by ``async_``
    _clauses_of = ComputeClauses
    _rules_of = _Rules
    _checks = {  # noqa: RUF012  # a table, never changed
        **dict.fromkeys(SPELLINGS, _unchecked),
        "deviceptr": check_sharing,
        "private": check_sharing,
        "firstprivate": check_sharing,
        "reduction": lambda value: check_reduction("reduction", value),
        "default": _check_default,
        "if_": _unchecked,  # any object with a truth value
        "self_": _unchecked,
        "async_": check_async,
        "wait": check_wait,
        "num_gangs": lambda value: check_count("num_gangs", value),
        "num_workers": lambda value: check_count("num_workers", value),
        "vector_length": lambda value: check_count("vector_length", value),
        "device": check_device,
        "depend": check_depend,
        "name": check_name,
    }

    __slots__ = ()

    def _prepare(self, clauses: Any, words: dict[str, Any]) -> None:
        """Set the values of the clauses; those that `target` has, under its names."""
        reduced = clauses.reduced = words.get("reduction", ())
        config = LaunchConfig(*(words.get(name) for name in LaunchConfig._fields))
        clauses.config = None if config == LaunchConfig() else config
        maps = data_clauses(self._directive, {word: words[word] for word in SPELLINGS if word in words}, SPELLINGS)
        given = [item for clause in maps for item in clause.items]  # in a data clause
        # A reduction variable in no data clause is implicitly ``copy``, as the standard has it.
        listed = {_name_or_id(item) for item in (*given, *words.get("deviceptr", ()))}
        unlisted = [item.item for item in reduced if _name_or_id(item.item) not in listed]
        if unlisted:
            maps.append(data_clause("copy", unlisted, Names(None)))
        target: dict[str, Any] = {"map": tuple(maps)} if maps else {}
        # From here on, the clauses have the names that `target` gives them.
        renamed = {"deviceptr": "has_device_addr", "default": "defaultmap"}
        for name in ("deviceptr", "private", "firstprivate", "device", "name", "default"):
            if words.get(name) is not None:
                target[renamed.get(name, name)] = words[name]
        if "defaultmap" in target:
            target["defaultmap"] = _DEFAULTS[target["defaultmap"]]
        super()._prepare(clauses, target)
        clauses.waits = True  # also of an operation of a queue more has to be asked
        clauses.pointers = words.get("deviceptr", ())  # also under its own name, for reductions
        clauses.if_, clauses.self_ = words.get("if_", True), words.get("self_", False)
        clauses.is_default = clauses.device is None and clauses.if_ is True and clauses.self_ is False
        # The short way calls the function itself, without the wrappers of `_body`.
        clauses.is_short = clauses.is_short and not reduced and clauses.config is None
        _take_queues(clauses, words)

    def _replaced(self, checked: dict[str, Any]) -> Clauses:
        if not checked.keys() <= {"async_", "wait"}:
            return super()._replaced(checked)
        clauses = copy(self._clauses)  # which say in which queue a region is, and nothing of what it does
        clauses.given = {**clauses.given, **checked}
        _take_queues(clauses, clauses.given)
        return clauses  # type: ignore[no-any-return]  # of this kind

    def _ordering(
        self,
        scope: Scope,
        region: Region,
        place: DevicePlace | None,
        device: int | None,
        recipe: Any,
    ) -> tuple[bool, QueueEntry]:
        # A region with ``if_=False`` runs on the host, but stays in the queue of its device.
        said, queues = self._clauses, scope.runtime.queues
        at = place if place is not None else scope.runtime.place(region, device)
        value = said.queue  # checked, not yet resolved
        queue = queues[at, value] if value is not None and value >= 0 else queue_of(queues, at, value)
        after = queues_of(queues, at, said.after) if said.after != () else ()
        # A region in no queue follows others by blocking its caller.
        if queue is None and after:
            wait_for(scope, region, after, "the wait clause")
        needs: Needs = (recipe.work.items, (at,), False) if place is not None else NOTHING
        return queue is None, QueueEntry(queue, after, partial(orderings_of, queues, needs))

    def _known_items(self, args: tuple[Any, ...]) -> list[MapItem] | None:
        items = super()._known_items(args)
        if items is not None:
            if len(items) > 1:
                check_distinct(self._directive, items, of_function=True)
            excuse_empty(items)
        return items

    def _divided(
        self, values: Values, names: Mapping[str, Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], list[LateItem]]:
        # A queue needs the items at the call: data clauses may not name values of tasks.
        for clause in self._clauses.get("map", ()):
            check_known({clause.word: clause.items}, values, self._names_of_clauses, names, kwargs)
        return super()._divided(values, names, kwargs)

    def _check_values(self, values: Values, found: Sequence[Any]) -> None:
        refuse_host_arrays(self._directive, values, found)

    def _items(self, names: Mapping[str, Any], objects: dict[int, Expansion], given: Sequence[Any]) -> list[MapItem]:
        pointers = [_name_or_id(item) for item in self._clauses.pointers]  # parameters and arrays
        for item in self._clauses.reduced:
            name = item.item
            if isinstance(name, str) and is_device_array(names.get(name)) and name not in pointers:
                raise ClauseError(f"reduction: {name!r} is a device array; list it in deviceptr as well")
        items = super()._items(names, objects, given)
        check_distinct(self._directive, items, of_function=True)
        excuse_empty(items)
        return items

    def _listed_around(self, frame: Region) -> tuple[Section, ...]:
        return frame.listed  # of enclosing ``acc.data`` blocks

    def _body(self, names: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        """Return the function with the wrappers that the clauses put around a call of it."""
        said = self._clauses
        if not said.reduced and said.config is None:
            return self._function
        reduced = [found for item in said.reduced for found in self._slots(item, names, args, kwargs)]
        # Two private arrays for one argument would lose one of the results.
        if len({slot for _, slot in reduced}) < len(reduced):
            raise ClauseError(f"{self._directive} reduction: one argument is named twice; name it under one operator")
        return Body(self._function, said.config, reduced)

    def _slots(
        self, item: Any, names: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> list[tuple[Operator, int | str]]:
        """Return the operator of a reduction, and which argument is its variable; of ``*`` and ``**`` each array."""
        operator = find_operator("reduction", item.operator)
        slots: dict[int | str, Any] = dict([*enumerate(args), *kwargs.items()])
        if isinstance(item.item, str):
            visible: Any = self._names_of_clauses  # there, as it names list items
            found = [one.slot for one in named_by(parse_item(item.item), visible, names, kwargs)]
            if any(slot not in slots for slot in found):
                raise ClauseError(f"reduction: {item.item!r} is not an argument of this call; pass the array")
        else:
            found = [slot for slot, other in slots.items() if _is_storage(other, item.item)][:1]
            if not found:
                raise ClauseError("reduction: the array is not an argument of this call; pass it, or name a parameter")
        for slot in found:
            if not is_device_array(slots[slot]):
                check_item("reduction", operator, slots[slot])
        return [(operator, slot) for slot in found]


def _take_queues(clauses: Any, words: dict[str, Any]) -> None:
    # Each call resolves them to queues: the default queue is the calling thread's.
    clauses.queue, clauses.after = words.get("async_"), words.get("wait", ())


class ParallelFunction(ComputeFunction):
    """A function under ``parallel``."""

    _directive = "acc parallel"
    __slots__ = ()


class KernelsFunction(ComputeFunction):
    """A function under ``kernels``."""

    _directive = "acc kernels"
    __slots__ = ()


class SerialFunction(ComputeFunction):
    """A function under ``serial``."""

    _directive = "acc serial"
    __slots__ = ()


@overload
def parallel(
    function: Callable[P, R], /, *, async_: NoQueue = None, **clauses: Unpack[ComputeKeywords]
) -> ComputeCall[P, R, R]: ...
@overload
def parallel(
    function: Callable[P, R], /, *, async_: Async, **clauses: Unpack[ComputeKeywords]
) -> ComputeCall[P, R, Task[R]]: ...
@overload
def parallel(
    function: None = None, /, *, async_: NoQueue = None, **clauses: Unpack[ComputeKeywords]
) -> Callable[[Callable[P, R]], ComputeCall[P, R, R]]: ...
@overload
def parallel(
    function: None = None, /, *, async_: Async, **clauses: Unpack[ComputeKeywords]
) -> Callable[[Callable[P, R]], ComputeCall[P, R, Task[R]]]: ...
@shows_clauses("offload.acc.signatures")
def parallel(function: Callable[..., Any] | None = None, /, **clauses: Unpack[AllComputeClauses]) -> Any:
    """Make each call of a function an OpenACC compute region: its array arguments are device arrays there.

    Parameters
    ----------
    copy, copyin, copyout, create, present, no_create : list of str and arrays
        The data clauses of `data`, for the duration of the region. Arguments in no clause are ``copy``. A string names
        a parameter, a section of one (``"x[2:5]"``: lower and length), or a variable that the function can see.
    deviceptr : list of str and arrays
        Arguments that must be device arrays. Device arrays are always passed unchanged.
    private, firstprivate : list of str and arrays
        Arguments with device storage of their own: uninitialised, or with the contents at the call.
    reduction : dict of str to list of str and arrays
        Maps an operator to arguments, as in `taskgroup`. The body receives a private array for each, with the
        operator's identity. The region combines it with the argument when the body ends. The arguments are ``copy``
        unless another data clause names them. Name device arrays in ``deviceptr``, too.
    default : {"none", "present"}, optional
        The treatment of arguments in no clause. ``"none"``: an error, also for numbers (name them in ``firstprivate``),
        except for arrays that a region around the call names. ``"present"``: arrays are ``present``.
    if_, self_ : bool
        The body runs on the host, on the host's arrays, if ``if_`` is False or ``self_`` is True.
    async_ : int or True, optional
        The queue of the region; the call returns its `Task`.
    wait : int, list or True, optional
        Queues that the region runs after; True means all. Without ``async_`` the calling thread waits for them.
    num_gangs, num_workers, vector_length : int, optional
        Values that the body can read with `launch_config`.
    device, depend, name
        The clauses of `target`.

    Returns
    -------
    ComputeFunction
        Each call returns the result of the body, or a `Task`; ``.options(…)`` replaces clauses. If an argument is a
        `Task`, the region runs after it, and the body gets its value, which must be a scalar or a device array.

    Raises
    ------
    ClauseError
        At the call or before: wrong clauses, types, names or device numbers.
    NotPresentError, MapError, DeviceMemoryError
        At the call, or with ``async_`` from the next wait: presence, overlap, memory.

    Notes
    -----
    Without ``async_``, the call blocks until the copies back are done. It waits only for the queues in ``wait``. It
    copies as `target` does. OpenACC 3.3, 2.5.1 "Parallel Construct" (section numbers of OpenACC are unchecked).

    Examples
    --------
    >>> @acc.parallel(copyin=["x"], copy=["y"])
    ... def saxpy(a, x, y):
    ...     y += a * x  # x and y are device arrays
    >>> x, y = np.ones(3), np.zeros(3)
    >>> saxpy(2.0, x, y)
    >>> y
    array([2., 2., 2.])
    """
    return decorate(ParallelFunction, function, clauses)


@overload
def kernels(
    function: Callable[P, R], /, *, async_: NoQueue = None, **clauses: Unpack[ComputeKeywords]
) -> ComputeCall[P, R, R]: ...
@overload
def kernels(
    function: Callable[P, R], /, *, async_: Async, **clauses: Unpack[ComputeKeywords]
) -> ComputeCall[P, R, Task[R]]: ...
@overload
def kernels(
    function: None = None, /, *, async_: NoQueue = None, **clauses: Unpack[ComputeKeywords]
) -> Callable[[Callable[P, R]], ComputeCall[P, R, R]]: ...
@overload
def kernels(
    function: None = None, /, *, async_: Async, **clauses: Unpack[ComputeKeywords]
) -> Callable[[Callable[P, R]], ComputeCall[P, R, Task[R]]]: ...
@shows_clauses("offload.acc.signatures")
def kernels(function: Callable[..., Any] | None = None, /, **clauses: Unpack[AllComputeClauses]) -> Any:
    """Make each call of a function an OpenACC kernels region.

    Parameters, returns, errors and blocking as for `parallel`.

    Notes
    -----
    OpenACC 3.3, 2.5.3 "Kernels Construct".

    Examples
    --------
    >>> @acc.kernels(copy=["x"])
    ... def normalise(x):
    ...     x -= x.mean()
    ...     x /= x.max()
    >>> x = np.array([1.0, 2.0, 3.0])
    >>> normalise(x)
    >>> x
    array([-1.,  0.,  1.])
    """
    return decorate(KernelsFunction, function, clauses)


@overload
def serial(
    function: Callable[P, R], /, *, async_: NoQueue = None, **clauses: Unpack[ComputeKeywords]
) -> ComputeCall[P, R, R]: ...
@overload
def serial(
    function: Callable[P, R], /, *, async_: Async, **clauses: Unpack[ComputeKeywords]
) -> ComputeCall[P, R, Task[R]]: ...
@overload
def serial(
    function: None = None, /, *, async_: NoQueue = None, **clauses: Unpack[ComputeKeywords]
) -> Callable[[Callable[P, R]], ComputeCall[P, R, R]]: ...
@overload
def serial(
    function: None = None, /, *, async_: Async, **clauses: Unpack[ComputeKeywords]
) -> Callable[[Callable[P, R]], ComputeCall[P, R, Task[R]]]: ...
@shows_clauses("offload.acc.signatures")
def serial(function: Callable[..., Any] | None = None, /, **clauses: Unpack[AllComputeClauses]) -> Any:
    """Make each call of a function an OpenACC serial region.

    Parameters, returns, errors and blocking as for `parallel`.

    Notes
    -----
    OpenACC 3.3, 2.5.2 "Serial Construct".

    Examples
    --------
    >>> @acc.serial(copy=["x"])
    ... def shift(x):
    ...     x[1:] = x[:-1].copy()
    >>> x = np.arange(4.0)
    >>> shift(x)
    >>> x
    array([0., 0., 1., 2.])
    """
    return decorate(SerialFunction, function, clauses)


def _name_or_id(item: Any) -> Any:
    """Return a key that is equal for two list items that name one variable."""
    if isinstance(item, str):
        return parse_item(item).name
    item = as_host(item)
    return array_section(item) if isinstance(item, np.ndarray) else id(item)  # over the same memory equal


def _is_storage(value: Any, item: Any) -> bool:
    if value is item:
        return True
    value = as_host(value)
    return isinstance(value, np.ndarray) and array_section(value) == array_section(item)
