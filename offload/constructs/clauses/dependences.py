"""``depend`` clauses and depend objects.

A clause evaluates its list items when it is made, since an array's storage is fixed. Items that may change until then
are evaluated with the construct: items written as strings, which name arguments of a call, objects with a mapper, whose
attributes a program may replace, tasks and events (`offload.constructs.clauses.following`), and depend objects.
"""

from __future__ import annotations

from sys import getrefcount
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any
from weakref import getweakrefcount

import numpy as np

from offload.arrays.containers import attributes_of, leaves_of
from offload.arrays.foreign import is_model
from offload.arrays.items import (
    MAPPERS,
    SCALARS,
    SECTION_READERS,
    VALUES,
    Token,
    all_memory,
    array_section,
    as_host,
    label,
    locator,
    mapper_of,
)
from offload.arrays.sections import Section
from offload.constructs.clauses.following import FollowedItem, keys_of
from offload.constructs.clauses.maps import as_tuple
from offload.constructs.clauses.names import parse_item, refused_text
from offload.constructs.clauses.variadics import is_listable, members
from offload.data.maptypes import MapType
from offload.errors import ClauseError, DependError, DirectiveWarning
from offload.events.event import Event
from offload.interrupts.frames import warn
from offload.tasks.depend import DependType
from offload.tasks.task import Task

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from offload.constructs.clauses.variadics import Named


class Dependence:
    """One ``depend`` clause: a dependence type and its list items."""

    # Items without storage, such as an empty array, are left out: they are in no order. ``n_holders`` is the number of
    # references to a list item if nothing but the program's own call of `in_`, `out`, … refers to it; by default the
    # clause is made of one that has been checked, and an item may have no other reference.

    __slots__ = ("is_late", "is_symbolic", "items", "joins", "keys", "type")

    def __init__(self, type_: DependType, items: tuple[Any, ...], n_holders: int = 0) -> None:
        if n_holders and not items:
            raise DependError(f"depend({type_.value}) names no list item; name at least one")
        self.type = type_  # the dependence type
        # the type if consecutive tasks of it are one set; None for ``out`` and ``inout``, which order alike
        self.joins = None if type_ in _WRITERS else type_
        self.items = items  # the list items that have storage, which keeps it alive
        # is_symbolic: an item is a string; is_late: the storage of an item is known at the call, or the construct, only
        self.is_symbolic = self.is_late = names_all = False
        keys: list[Hashable] = []
        for item in items:
            key: Hashable
            if item.__class__ is np.ndarray or (type(item) in SECTION_READERS and not MAPPERS):  # a mapper comes first
                key = array_section(item)
            elif isinstance(item, str):
                self.is_symbolic = self.is_late = True
                continue
            elif item is all_memory:
                names_all = True
                continue
            elif not isinstance(item, _NO_FOREIGN) and (host := as_host(item)) is not item:
                key = array_section(host)
                self.items = tuple([host if other is item else other for other in self.items])
                item = host  # noqa: PLW2901  # which keeps the memory of the object
            elif isinstance(item, (Task, Event)) or mapper_of(item) is not None:
                self.is_late = True
                continue
            else:
                key = _key_of(item)
            if key.__class__ is Section:
                if not key[3]:
                    self.items = tuple([other for other in self.items if other is not item])
                    continue
                if n_holders and getrefcount(item) <= n_holders and _has_own_data(item):
                    raise _temporary(type_, item)
            keys.append(key)
        if names_all and self.joins is not None:
            raise DependError(f"depend({type_.value}): all_memory is only allowed in out and inout; use one of them")
        # the storage locations, none while ``is_late``; None stands for `all_memory`
        self.keys: Sequence[Hashable] | None = ()
        if not self.is_late:
            self.keys = None if names_all else tuple(keys)

    def resolved(self, names: Mapping[str, Any]) -> Dependence:
        """Return the clause as it is for a construct that is encountered now, where that makes a difference."""
        if not self.is_late:
            return self
        items: list[Any] = []
        for item in self.items:
            if isinstance(item, str) and (passed := members(parsed := parse_item(item), names)) is not None:
                items += _passed(parsed.name, passed, names)
                continue
            value = item
            if isinstance(item, str):
                value = parse_item(item).resolve(names)
                if getrefcount(value) < _IN_A_CALL and _has_own_data(value) and value.size:
                    raise _temporary(self.type, value, f"{item!r}, ")
            if isinstance(value, str):
                items.append(Token(value))
            elif isinstance(value, (Task, Event)):
                if all_memory in self.items:
                    raise DependError(
                        f"depend: {label(value)} is listed together with all_memory; put it in a clause of its own"
                    )
                items += keys_of(value)
            elif mapper_of(value) is not None:
                items += _mapped_by(value)
            else:
                items.append(value)
        return Dependence(self.type, tuple(items))

    def __repr__(self) -> str:
        return f"{self.type.value}({', '.join(map(label, self.items))})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the items, whose storage is elsewhere in another process."""
        return Dependence, (self.type, self.items)


# As in `offload.tasks.depend`: to take one from its class costs 0.15 µs in Python 3.11.
_IN, _OUT, _INOUT, _MUTEXINOUTSET, _INOUTSET = DependType

_WRITERS = (_OUT, _INOUT)

# Arrays, which have their own storage, and values, which have none although bytes expose memory.
_NO_FOREIGN: Any = (np.ndarray, *VALUES)


def _references_in_a_call(*items: Any) -> int:
    """Return the `getrefcount` of a list item, in a loop over items, that only its call refers to."""
    return next(getrefcount(item) for item in items)


# Measured, since Python versions differ: from 3.14 on, a function's argument may be no reference of its own. There are
# at most the tuple, the variable and the argument; a profiler that looks at variables meanwhile adds one more.
_IN_A_CALL = min(_references_in_a_call(np.zeros(1)), 3)


def _has_own_data(array: Any) -> bool:
    """Tell whether an array that no other place refers to has storage that no other code can name."""
    # A view of another array may share its storage with others, and a weak reference may still lead to the array.
    return isinstance(array, np.ndarray) and array.flags.owndata and not getweakrefcount(array)


def _temporary(type_: DependType, array: Any, name: str = "") -> ClauseError:
    return ClauseError(
        f"depend({type_.value}): {name}{label(array)} is a temporary array, so no other task can name its storage; "
        "name the array that it was computed from, or keep it in a variable that other tasks can name too"
    )


def _key_of(item: Any) -> Hashable:
    """Return the location of a list item that is known when the clause is made."""
    if isinstance(item, (Token, FollowedItem)):
        return item
    key = locator(item)
    if item.__class__ not in VALUES and isinstance(key, Token) and _holds_arrays(item):
        kind = type(item).__name__
        warn(
            f"depend: a {kind} object is a location of its own, so tasks that name the arrays which it holds are not "
            f"ordered with this task; name the arrays, or use declare_mapper({kind}, …)",
            DirectiveWarning,
        )
    return key


def _holds_arrays(item: Any) -> bool:
    """Tell whether attributes of an object are arrays, or containers of arrays."""
    # A model of PyTorch is named for itself: its training changes all of it.
    if isinstance(item, (type, FunctionType, ModuleType)) or is_model(item):
        return False
    held = [value for value in attributes_of(item).values() if value.__class__ not in SCALARS]
    return any(True for _ in leaves_of(held, _MOST_PARTS))


_MOST_PARTS = 1000  # Parts of an object's containers that are looked at, in 20 µs, wherever a clause names the object


def _passed(name: str, found: list[Named], names: Mapping[str, Any]) -> list[Any]:
    """Return the list items of the arguments of a ``*`` or ``**`` parameter: each array, each task."""
    # Where there is none the tuple is a value as any other, and one that is empty is in no order.
    items: list[Any] = []
    for one in found:
        if isinstance(one.value, (Task, Event)):
            items += keys_of(one.value)
        elif mapper_of(one.value) is not None:
            items += _mapped_by(one.value)
        elif is_listable(one.value):
            items.append(one.value)
    return items or ([names[name]] if found and isinstance(names[name], tuple) else [])


def _mapped_by(value: Any) -> list[Any]:
    """Return the arrays that the mapper of an object maps, which it stands for; one that maps none is in no order."""
    from offload.constructs.clauses.mappers import expand  # a program without mappers does without

    return [leaf.array for leaf in expand(value, MapType.TOFROM)]


def in_(*items: Any) -> Dependence:
    """Make a ``depend(in: …)`` clause: the task runs after every earlier sibling that writes one of the items.

    Parameters
    ----------
    *items
        * Arrays, views and sections; tensors, buffers and other objects that expose memory.
        * Strings, in a decorator. A string that names a ``*`` or ``**`` parameter means each array, object with a
          mapper, task and event that the call passes there.
        * An object whose class has a mapper; it means the storage that the mapper maps.
        * A `Task` or an `Event`. The new task runs after the task has completed or the event is fulfilled, with any
          dependence type, even if another thread generated it.
        * Any other hashable value; it is a storage location of its own.

    Raises
    ------
    DependError
        There is no item.
    ClauseError
        An item is neither an array, a section, a string nor hashable; or it is an iterator, or a temporary array that
        owns its data, such as ``a + 1`` or ``a[mask]``.
    UnsupportedError
        At a construct in a `taskgraph`, or at a construct that is only recorded: an item is a task or event outside of
        the graph.

    Notes
    -----
    An object without a mapper is a storage location of its own, separate from the arrays that it holds. offload issues
    a `DirectiveWarning` for such an object. OpenMP 5.2, 15.9.5 "depend Clause".

    Examples
    --------
    >>> x = np.zeros(3)
    >>> fill = omp.task(depend=[omp.out("x")])(lambda x: x.fill(2))
    >>> total = omp.task(depend=[omp.in_("x")])(lambda x: x.sum())
    >>> first, second = fill(x), total(x)  # total runs after fill
    >>> float(second.result())
    6.0
    """
    return Dependence(_IN, items, _IN_A_CALL)


def out(*items: Any) -> Dependence:
    """Make a ``depend(out: …)`` clause: the task runs after every earlier sibling that names one of the items.

    An item may be `all_memory`. The task then runs after every earlier sibling that has a ``depend`` clause, and later
    siblings with one run after it. Parameters, raises and source: as `in_`.

    Examples
    --------
    >>> x = np.zeros(3)
    >>> fill = omp.task(depend=[omp.out("x")])(lambda x, value: x.fill(value))
    >>> first, second = fill(x, 1), fill(x, 2)  # in this order
    >>> omp.taskwait()
    >>> x
    array([2., 2., 2.])
    """
    return Dependence(_OUT, items, _IN_A_CALL)


def inout(*items: Any) -> Dependence:
    """Make a ``depend(inout: …)`` clause; it orders as ``out`` does.

    Parameters, raises and source: as `in_`.

    Examples
    --------
    >>> x = np.zeros(3)
    >>> @omp.task(depend=[omp.inout("x")])
    ... def increment(x):
    ...     x += 1
    >>> first, second = increment(x), increment(x)  # one after the other
    >>> omp.taskwait()
    >>> x
    array([2., 2., 2.])
    """
    return Dependence(_INOUT, items, _IN_A_CALL)


def mutexinoutset(*items: Any) -> Dependence:
    """Make a ``depend(mutexinoutset: …)`` clause: siblings in a row that have it run in any order, one at a time.

    Towards siblings with other dependence types it orders as ``inout`` does. A task that names several items gets all
    of them at once. A task that waits for its items holds no worker. Parameters, raises and source: as `in_`.

    Examples
    --------
    >>> x = np.zeros(3)
    >>> @omp.task(depend=[omp.mutexinoutset("x")])
    ... def add(x, value):
    ...     x += value
    >>> tasks = [add(x, value) for value in range(4)]  # in any order, never two at a time
    >>> omp.taskwait()
    >>> x
    array([6., 6., 6.])
    """
    return Dependence(_MUTEXINOUTSET, items, _IN_A_CALL)


def inoutset(*items: Any) -> Dependence:
    """Make a ``depend(inoutset: …)`` clause: siblings in a row that have it are not ordered.

    Towards siblings with other dependence types it orders as ``inout`` does. Parameters, raises and source: as `in_`.

    Examples
    --------
    >>> x = np.zeros(4)
    >>> @omp.task(depend=[omp.inoutset("x")])
    ... def set_element(x, i):
    ...     x[i] = i
    >>> tasks = [set_element(x, i) for i in range(4)]  # at the same time
    >>> total = omp.task(depend=[omp.in_("x")])(lambda x: x.sum())
    >>> float(total(x).result())
    6.0
    """
    return Dependence(_INOUTSET, items, _IN_A_CALL)


class DepObj:
    """A depend object: a dependence that you keep in a variable. `depobj` makes it."""

    __slots__ = ("_dependence",)

    is_late = True
    is_symbolic = False

    def __init__(self, dependence: Dependence) -> None:
        self._dependence: Dependence | None = dependence  # None once it is destroyed

    def update(self, type: str) -> None:  # the word of the clause
        """Change the dependence type, for constructs that are encountered from now on.

        Parameters
        ----------
        type : {"in", "out", "inout", "mutexinoutset", "inoutset"}
            The new dependence type.

        Raises
        ------
        DependError
            There is no such dependence type, or the object has been destroyed.

        Examples
        --------
        >>> x = np.zeros(3)
        >>> access = omp.depobj(omp.out(x))
        >>> task = omp.task(depend=[access])(lambda: x.fill(2))()
        >>> access.update("in")
        >>> total = omp.task(depend=[access])(lambda: x.sum())()
        >>> float(total.result())
        6.0
        """
        dependence = self._own()
        try:
            self._dependence = Dependence(DependType(type), dependence.items)
        except ValueError as error:
            if isinstance(error, DependError):
                raise
            raise DependError(
                f"depobj.update({type!r:.40}): there is no such dependence type; "
                f"use {', '.join(known.value for known in DependType)}"
            ) from None

    def destroy(self) -> None:
        """End the use of the object; constructs that were encountered before keep their dependences.

        Raises
        ------
        DependError
            The object has already been destroyed.

        Examples
        --------
        >>> x = np.zeros(3)
        >>> access = omp.depobj(omp.out(x))
        >>> access.destroy()
        >>> omp.task(depend=[access])(print)()
        Traceback (most recent call last):
            ...
        offload.errors.DependError: ...
        """
        self._own()
        self._dependence = None

    def resolved(self, names: Mapping[str, Any]) -> Dependence:
        """Return the dependence that the object stands for now."""
        return self._own().resolved(names)

    def _own(self) -> Dependence:
        if self._dependence is None:
            raise DependError("the depobj has been destroyed; create another with depobj(…)")
        return self._dependence

    def __repr__(self) -> str:
        return f"depobj({self._dependence or 'destroyed'})"


def depobj(dependence: Dependence) -> DepObj:
    """Make a depend object of a dependence; it is used in ``depend=`` like one.

    Parameters
    ----------
    dependence : dependence
        For example ``inout(x)``. Its items may not be strings, because a string names a parameter of a function.

    Returns
    -------
    DepObj
        The object. ``update("in")`` changes its dependence type, and ``destroy()`` ends its use.

    Raises
    ------
    DependError
        The argument is not a dependence, or it contains a string.

    Notes
    -----
    OpenMP 5.2, 15.9.4 "depobj Construct".

    Examples
    --------
    >>> x = np.zeros(3)
    >>> writes = omp.depobj(omp.out(x))
    >>> task = omp.task(depend=[writes])(lambda: x.fill(2))()
    >>> omp.taskwait(depend=[omp.in_(x)])
    >>> x
    array([2., 2., 2.])
    """
    if not isinstance(dependence, Dependence):
        raise DependError(
            f"depobj: {type(dependence).__name__} {dependence!r:.60} is no dependence; write for example inout(x)"
        )
    if dependence.is_symbolic:
        raise DependError(
            f"depobj: {dependence!r:.60} contains a string, but there is no parameter that it could name; pass the "
            "array itself"
        )
    return DepObj(dependence)


def check_depend(value: Any) -> tuple[Dependence | DepObj, ...]:
    """Return the dependences of a ``depend=`` argument."""
    dependences = tuple(value) if type(value) is list else as_tuple(value)
    for dependence in dependences:
        if type(dependence) is not Dependence and not isinstance(dependence, DepObj):
            raise DependError(
                f"depend: {type(dependence).__name__} {dependence!r:.60} is no dependence; write in_(…), out(…), "
                "inout(…), mutexinoutset(…), inoutset(…) or a depobj"
            )
    return dependences


def check_depend_now(construct: str, value: Any) -> tuple[Dependence, ...]:
    """Return the dependences of a construct that is encountered where its clauses are written.

    Raise `DependError` if an item is no dependence, or a destroyed depobj; `ClauseError` if a list item is a string,
    because there is no function to which its name belongs.
    """
    if value.__class__ is list or value.__class__ is tuple:
        for dependence in value:
            if dependence.__class__ is not Dependence or dependence.is_late:
                break
        else:  # the usual case: nothing waits for the call
            return tuple(value)
    found: list[Dependence] = []
    for dependence in check_depend(value):
        if dependence.is_symbolic:
            raise refused_text(construct, next(item for item in dependence.items if isinstance(item, str)))  # type: ignore[union-attr]  # a DepObj has arrays
        found.append(dependence.resolved({}))
    return tuple(found)
