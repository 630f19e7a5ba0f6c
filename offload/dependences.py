"""``depend`` clauses and depend objects.

A clause evaluates its list items when it is made, since an array's storage is fixed; only items written as strings
wait for the call, whose arguments they name. A depend object is what it is at the call, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from offload.clauses import as_tuple
from offload.errors import ClauseError, DependError
from offload.items import Token, label, locator, parse_item
from offload.tasks.depend import NOWHERE, DependType

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from offload.storage import Section


class AllMemory:
    """The type of `all_memory`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "all_memory"

    def __reduce__(self) -> str:
        return "all_memory"


all_memory: Final = AllMemory()
"""OpenMP's ``omp_all_memory``: in ``out`` and ``inout``, every storage location there is (5.2, 3.2.2)."""


class Dependence:
    """One ``depend`` clause: a dependence type and its list items.

    Attributes
    ----------
    type : DependType
        The dependence type.
    joins : DependType or None
        The same where consecutive tasks of the type are one set; None for ``out`` and ``inout``, which order alike.
    keys : tuple or None
        The storage locations named, none while ``is_symbolic``; None stands for `all_memory`.
    items : tuple
        The list items as given, which keeps their storage alive.
    is_symbolic : bool
        Whether an item is a string, whose storage is known at the call only.
    """

    __slots__ = ("is_symbolic", "items", "joins", "keys", "located", "type")

    def __init__(self, type_: DependType, items: tuple[Any, ...]) -> None:
        if not items:
            raise DependError(f"depend({type_.value}) names no list item; name at least one")
        self.type = type_
        self.joins = None if type_ in _WRITERS else type_
        self.items = items
        self.located = NOWHERE
        self.is_symbolic = names_all = False
        for item in items:
            if isinstance(item, str):
                self.is_symbolic = True
            elif item is all_memory:
                names_all = True
        if names_all and self.joins is not None:
            raise DependError(f"depend({type_.value}): all_memory can only be written; use out or inout")
        self.keys: Sequence[Hashable] | None = ()
        if not self.is_symbolic:
            keys = tuple([_nonempty_locator(item) for item in items if item is not all_memory])
            self.keys = None if names_all else keys

    def resolved(self, names: Mapping[str, Any]) -> Dependence:
        """Return the clause with its string items evaluated."""
        values = tuple(parse_item(item).resolve(names) if isinstance(item, str) else item for item in self.items)
        return Dependence(self.type, tuple(Token(value) if isinstance(value, str) else value for value in values))

    def __repr__(self) -> str:
        return f"{self.type.value}({', '.join(map(label, self.items))})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the items, whose storage is elsewhere in another process."""
        return Dependence, (self.type, self.items)


_WRITERS = (DependType.OUT, DependType.INOUT)


def _nonempty_locator(item: Any) -> Section | Token:
    key = item if isinstance(item, Token) else locator(item)
    if not isinstance(key, Token) and not key.run_nbytes:
        raise DependError(f"depend item {label(item)} has no elements; an array section in depend cannot be empty")
    return key


def in_(*items: Any) -> Dependence:
    """Make a ``depend(in: …)`` clause: the task runs after every earlier sibling that writes one of the items.

    Raises
    ------
    DependError
        No item, or one that has no elements.
    ClauseError
        An item is neither an array, a section, a string nor hashable.

    Notes
    -----
    OpenMP 5.2, 15.9.5 "depend Clause".
    """
    return Dependence(DependType.IN, items)


def out(*items: Any) -> Dependence:
    """Make a ``depend(out: …)`` clause: the task runs after every earlier sibling that names one of the items.

    An item may be `all_memory`: the task runs after every earlier sibling that has a ``depend`` clause, and later ones
    that have one run after it. Raises and source: as `in_`.
    """
    return Dependence(DependType.OUT, items)


def inout(*items: Any) -> Dependence:
    """Make a ``depend(inout: …)`` clause; it orders as ``out`` does.

    Raises and source: as `in_`.
    """
    return Dependence(DependType.INOUT, items)


def mutexinoutset(*items: Any) -> Dependence:
    """Make a ``depend(mutexinoutset: …)`` clause: siblings in a row that have it run in any order, one at a time.

    Towards siblings of other dependence types it orders as ``inout`` does. A task that names several items gets all of
    them at once; one that waits for them holds no worker. Raises and source: as `in_`.
    """
    return Dependence(DependType.MUTEXINOUTSET, items)


def inoutset(*items: Any) -> Dependence:
    """Make a ``depend(inoutset: …)`` clause: siblings in a row that have it are not ordered.

    Towards siblings of other dependence types it orders as ``inout`` does. Raises and source: as `in_`.
    """
    return Dependence(DependType.INOUTSET, items)


class DepObj:
    """A depend object: a dependence that constructs use as it is when they are encountered. Made by `depobj`."""

    __slots__ = ("_dependence",)

    is_symbolic = True

    def __init__(self, dependence: Dependence) -> None:
        self._dependence: Dependence | None = dependence

    def update(self, type: str) -> None:  # the word of the clause
        """Change the dependence type, for constructs that are encountered from now on.

        Parameters
        ----------
        type : {"in", "out", "inout", "mutexinoutset", "inoutset"}

        Raises
        ------
        DependError
            There is no such dependence type, or the object has been destroyed.
        """
        dependence = self.resolved({})
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
        """End the object's use; constructs that were encountered before are as they were.

        Raises
        ------
        DependError
            It has been destroyed.
        """
        self.resolved({})
        self._dependence = None

    def resolved(self, _names: Mapping[str, Any]) -> Dependence:
        """Return the dependence that the object stands for now."""
        if self._dependence is None:
            raise DependError("the depobj has been destroyed; make another with depobj(…)")
        return self._dependence

    def __repr__(self) -> str:
        return f"depobj({self._dependence or 'destroyed'})"


def depobj(dependence: Dependence) -> DepObj:
    """Make a depend object of a dependence; it is used in ``depend=`` like one.

    Parameters
    ----------
    dependence : dependence
        For example ``inout(x)``; its items may not be strings, whose names belong to a function.

    Raises
    ------
    DependError
        Not a dependence, or one with a string.

    Notes
    -----
    OpenMP 5.2, 15.9.4 "depobj Construct".
    """
    if not isinstance(dependence, Dependence):
        raise DependError(
            f"depobj: {type(dependence).__name__} {dependence!r:.60} is no dependence; write for example inout(x)"
        )
    if dependence.is_symbolic:
        raise DependError(f"depobj: {dependence!r:.60} has a string, which names a parameter; name the array itself")
    return DepObj(dependence)


def check_depend(value: Any) -> tuple[Dependence | DepObj, ...]:
    """Return the dependences of a ``depend=`` argument."""
    dependences = tuple(value) if type(value) is list else as_tuple(value)
    for dependence in dependences:
        if type(dependence) is not Dependence and not isinstance(dependence, DepObj):
            raise DependError(
                f"depend: {type(dependence).__name__} {dependence!r:.60} is no dependence; "
                "write in_(…), out(…), inout(…), mutexinoutset(…), inoutset(…) or a depobj"
            )
    return dependences


def check_depend_now(construct: str, value: Any) -> tuple[Dependence, ...]:
    """Return the dependences of a construct that is encountered where its clauses are written.

    Raises
    ------
    DependError
        An item is no dependence, or a depobj that has been destroyed.
    ClauseError
        A list item is a string: a name of what?
    """
    found = []
    for dependence in check_depend(value):
        now = dependence.resolved({}) if isinstance(dependence, DepObj) else dependence
        if now.is_symbolic:
            raise ClauseError(f"{construct}: list items written as strings belong to decorators; name the array itself")
        found.append(now)
    return tuple(found)
