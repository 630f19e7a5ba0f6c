"""OpenACC's clauses: the mapping of each data clause, the queue of an async-argument, the queues of a wait clause."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from offload.arrays.items import Label, array_section, host_items, is_device_array, label
from offload.constructs.clauses.dependences import Dependence
from offload.constructs.clauses.maps import MapClause, as_tuple
from offload.data.maptypes import MapConstruct, MapType, keeps_type
from offload.errors import ClauseError
from offload.interrupts.frames import caller
from offload.runtime.keywords import keywords_of, unknown_clause
from offload.tasks.depend import DependType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import FrameType
    from typing import TypeAlias

    from offload.arrays.sections import Section
    from offload.data.items import MapItem
    from offload.runtime.place import DevicePlace
    from offload.runtime.queues import Queue, Queues

    Needs: TypeAlias = tuple[Sequence[MapItem], Sequence[DevicePlace | None], bool]
    """What an operation needs to be present, on which devices (None is the host), and whether it changes that."""

# -- data clauses ------------------------------------------------------------------------------------


class _Meaning(NamedTuple):
    map_type: MapType  # which copies the clause makes, and how it counts
    present: bool = False  # an absent item is an error
    if_present: bool = False  # an absent item is ignored

    def is_of(self, construct: MapConstruct) -> bool:
        """Tell whether a clause of this meaning may stand on a construct; one that only looks belongs to regions."""
        looks = self.present or self.if_present  # such a clause makes no storage
        return keeps_type(construct, self.map_type) and not (looks and construct is not MapConstruct.TARGET_DATA)

    @property
    def may_zero(self) -> bool:
        """Whether storage that such a clause makes on the device may begin with zeros: nothing else fills it."""
        return not (self.map_type.copies_in or self.present or self.if_present)


MEANINGS: Final = {
    "copy": _Meaning(MapType.TOFROM),
    "copyin": _Meaning(MapType.TO),
    "copyout": _Meaning(MapType.FROM),
    "create": _Meaning(MapType.ALLOC),
    "no_create": _Meaning(MapType.ALLOC, if_present=True),
    "present": _Meaning(MapType.ALLOC, present=True),
    "delete": _Meaning(MapType.RELEASE),
}
"""The meaning of each clause. All count, and transfer only what is not present: "present or" is the standard's default.

OpenACC 3.3, 2.7 "Data Clauses". On which construct each may stand follows from its map type (`MapConstruct`).
"""

UPDATES: Final = {"update self": MapType.FROM, "update device": MapType.TO}
"""The direction in which each clause of an update moves data; OpenACC 3.3, 2.14.4 "Update Directive"."""


def _spellings(construct: MapConstruct) -> dict[str, str]:
    """Return the data clauses of a construct, by their spellings."""
    return {
        spelling: word
        for word, meaning in MEANINGS.items()
        if meaning.is_of(construct)
        for spelling in ((word, f"p{word}", f"present_or_{word}") if word in _OR_PRESENT else (word,))
    }


_OR_PRESENT = ("copy", "copyin", "copyout", "create")
"""The words with older spellings, which say "present or"."""

SPELLINGS: Final = _spellings(MapConstruct.TARGET_DATA)
"""The data clauses of data and compute constructs, by what is written."""

ENTER_SPELLINGS: Final = _spellings(MapConstruct.TARGET_ENTER_DATA)
EXIT_SPELLINGS: Final = _spellings(MapConstruct.TARGET_EXIT_DATA)


class Zero:
    """List items whose storage begins with zeros; made by `zero`."""

    __slots__ = ("items",)

    def __init__(self, items: tuple[Any, ...]) -> None:
        self.items = items

    def __repr__(self) -> str:
        return f"zero({', '.join(map(label, self.items))})"


def zero(*items: Any) -> Zero:
    """Have new storage begin with zeros: OpenACC's ``zero`` modifier of ``create`` and ``copyout``.

    Parameters
    ----------
    *items : arrays or str
        List items of the clause that contains the modifier.

    Raises
    ------
    ClauseError
        There is no item.

    Notes
    -----
    OpenACC 3.3, 2.7.11 "create clause" (section numbers of OpenACC are unchecked).

    Examples
    --------
    >>> x = np.ones(3)
    >>> with acc.data(copyout=[acc.zero(x)]):
    ...     pass
    >>> x
    array([0., 0., 0.])
    """
    if not items:
        raise ClauseError("zero() names no list item; name at least one")
    return Zero(items)


def data_clauses(
    construct: str, given: Mapping[str, Any], spellings: Mapping[str, str], function: Callable[..., Any] | None = None
) -> list[MapClause]:
    """Return the data clauses of a construct; ``function`` has them among clauses of other kinds.

    Raises
    ------
    ClauseError
        The construct has no such clause, or an item can not be mapped.
    """
    clauses: list[MapClause] = []
    names = names_of()
    for spelling, value in given.items():
        word = spellings.get(spelling)
        if word is None:
            others = keywords_of(function) if function is not None else ()
            raise unknown_clause(construct, spelling, {*spellings, *others})
        plain: list[Any] = []  # items without a modifier
        zeroed: list[Any] = []  # the items of ``zero(…)``, which become a clause of their own
        for item in as_tuple(value):
            if not isinstance(item, Zero):
                plain.append(item)
            elif MEANINGS[word].may_zero and spellings is not EXIT_SPELLINGS:
                zeroed += item.items
            else:
                raise ClauseError(
                    f"{construct} {word}: {item!r} is not allowed here; zero(…) is only for new storage: create=, or "
                    "copyout= of a region"
                )
        for items, zeroes in ((plain, False), (zeroed, True)):
            if items:
                clauses.append(data_clause(word, items, names, zeroes=zeroes))
    return clauses


def data_clause(word: str, items: Sequence[Any], names: Names, *, zeroes: bool = False) -> MapClause:
    """Return one data clause; raise as `data_clauses` does."""
    meaning = MEANINGS.get(word)
    map_type, present, if_present = meaning if meaning is not None else (UPDATES[word], True, False)
    clause = MapClause(map_type, tuple(items), present=present, word=word, if_present=if_present, zeroes=zeroes)
    named = [(item, names.of(given)) for item, given in zip(clause.items, items, strict=True)]
    clause.names = {id(item): name for item, name in named if name}
    return clause


def check_distinct(construct: str, items: Iterable[MapItem], *, of_function: bool = False) -> None:
    """Raise `ClauseError` if the same storage stands in the data clauses twice.

    Two parameters ``of_function`` may be passed one array, as two pointers may in C, if they are in the same clause.
    """
    seen: dict[Section, MapItem] = {}
    for item in items:
        other = seen.setdefault(item.section, item)
        # One array may be passed for two parameters that one clause names.
        if of_function and other.clause == item.clause and str(other.label) != str(item.label):
            continue
        if other is not item and item.section.run_nbytes:
            raise ClauseError(
                f"{construct}: {item.label} is in {other.clause} and in {item.clause}; a variable may appear in only "
                "one data clause"
            )


def excuse_empty(items: Iterable[MapItem]) -> None:
    """Have no item without elements be missed: those are never present."""
    for item in items:
        if not item.section.run_nbytes:
            item.present = False


class Names:
    """The names of the variables of a program, for messages.

    Parameters
    ----------
    frame : frame or None
        The frame of the code that has called the package; it is kept until `settle`.
    """

    __slots__ = ("frame",)

    def __init__(self, frame: FrameType | None) -> None:
        self.frame = frame

    def label(self, array: Any, named: Any) -> Label:
        """Return the label of an array, with the name of the variable that holds ``named``.

        The name is looked up when somebody reads it, or by `settle`.
        """
        return _NamedLater(array, self, named)

    def name(self, items: Iterable[MapItem]) -> None:
        """Have the labels of items, which an earlier call has made, look their names up here where they have not."""
        for item in items:
            label = item.label
            if label.__class__ is _NamedLater and label.names is not None:
                label.names = self

    def settle(self, items: Iterable[MapItem] = ()) -> None:
        """Let the frame go, as the construct's call ends; the labels of these items may be read from now on."""
        for item in items:
            label = item.label
            if isinstance(label, _NamedLater):
                label.look_up()
        self.frame = None

    def of(self, value: Any) -> str:
        """Return the name of the variable that holds an array; nothing where none does."""
        frame = self.frame
        if frame is None or isinstance(value, str):
            return ""
        local = frame.f_locals  # they hide globals of the same name
        found = next((name for name, other in local.items() if other is value), "")
        if _KEEPS_LOCALS and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            local.clear()  # a copy, which would keep what the function has there for as long as that runs
        return found or next((name for name, other in frame.f_globals.items() if other is value), "")


class _NamedLater(Label):
    """A label whose name is not looked up before it has to be: the locals of a function take longer than all else.

    ``names`` is where, and None once it has been looked up.
    """

    __slots__ = ("_array", "names")

    def __init__(self, array: Any, names: Names, named: Any) -> None:
        super().__init__(array)
        self._array = named  # the array, or another library's of the same memory
        self.names: Names | None = names  # None once the name has been looked up

    def look_up(self) -> None:
        """Look the name up, once."""
        names, self.names = self.names, None
        if names is not None:
            self._name = names.of(self._array)
        self._array = None

    def __str__(self) -> str:
        self.look_up()
        return super().__str__()


_KEEPS_LOCALS = sys.version_info < (3, 13)  # PEP 667: from there on they are not copied


def names_of() -> Names:
    """Return the names that the program's code knows that calls into the package."""
    return Names(caller())


# -- which operations follow which -------------------------------------------------------------------


class _Presence:
    """Whether storage is present on a device, as something that operations depend on."""

    __slots__ = ("_section", "dtype", "shape")

    def __init__(self, item: MapItem, device_num: int) -> None:
        host: Any = item.host
        self.dtype, self.shape = host.dtype, host.shape  # for messages
        # An address space of its own: dependences on the data do not meet those on its presence.
        self._section = item.section._replace(space=("presence", device_num))

    def __offload_section__(self) -> Section:
        return self._section


def presence(
    queues: Queues, items: Sequence[MapItem], place: DevicePlace | None, *, changes: bool
) -> tuple[Dependence, ...]:
    """Return the dependences of an operation on whether its items are present.

    Data becomes present, or no longer present, when an operation gets its turn in its queue. An operation that maps or
    unmaps an item follows the operations that need it there, and the other way round. Each operation then finds the
    data as in the order of the program.

    A dependence says nothing of an array but its section, and is used again for any array that has this one.
    """
    return orderings_of(queues, (items, (place,), changes))


def orderings_of(queues: Queues, needs: Needs) -> tuple[Dependence, ...]:
    """Return the dependences of an operation on whether its items are present on each device, as `presence` does."""
    items, places, changes = needs
    known = queues.presences
    found = []
    for place in places:
        if place is None:
            continue  # nothing is mapped on the host
        number = place.device.number
        for item in items:
            section = item.section
            if section.run_nbytes:  # else it is never present
                key = section, number, changes  # keeps no array alive
                dependence = known.get(key)
                if dependence is None:
                    if len(known) >= _MOST_PRESENCES:
                        # Rare: each is made again when it is needed.
                        known.clear()
                    dependence = Dependence(DependType.INOUT if changes else DependType.IN, (_Presence(item, number),))
                    known[key] = dependence
                found.append(dependence)
    return tuple(found)


_MOST_PRESENCES = 4096
"""Dependences that are kept for later operations: some 4 MB."""


# -- async and wait ----------------------------------------------------------------------------------

async_noval: Final = -1
"""The async-argument of ``async`` without a value: the calling host thread's default queue."""

async_sync: Final = -2
"""The async-argument that makes an operation synchronous."""

async_default: Final = -3
"""The async-argument of the queue that is every host thread's default to begin with."""

FIRST_DEFAULT: Final = 0  # `async_default` stands for it
"""That queue's number."""

_NAMED = {async_noval: "async_noval", async_sync: "async_sync", async_default: "async_default"}  # allowed below 0


def check_async(value: Any, clause: str = "async_") -> int | None:
    """Return an async-argument; None where there is none.

    Raises
    ------
    ClauseError
        Neither a number of at least 0, nor one of the three constants, nor a truth value.
    """
    if value.__class__ is int and value >= 0:  # most are
        return value
    if value is None or value is False:
        return None
    if value is True:
        return async_noval
    if isinstance(value, (int, np.integer)) and (value >= 0 or int(value) in _NAMED):
        return int(value)
    raise ClauseError(
        f"{clause}: {value!r:.40} is not an async-argument; use a number of at least 0, True, "
        f"{', '.join(f'acc.{name}' for name in _NAMED.values())}"
    )


def number_of(queues: Queues, value: int | None) -> int | None:
    """Return the number of the queue that a checked async-argument means; None: the operation is synchronous."""
    if value == async_noval:
        value = default_number(queues)
    if value is None or value == async_sync:
        return None
    return FIRST_DEFAULT if value == async_default else value


def default_number(queues: Queues) -> int:
    """Return the calling host thread's default queue, which may be `async_sync`."""
    number: int = getattr(queues.local, "default", FIRST_DEFAULT)  # of this host thread
    return number


def queue_of(queues: Queues, place: DevicePlace | None, value: int | None) -> Queue | None:
    """Return the queue that a checked async-argument means; None: the operation is synchronous."""
    if value is None or value < 0:
        value = number_of(queues, value)
    return None if value is None else queues[place, value]


def check_wait(value: Any, clause: str = "wait") -> tuple[int, ...] | None:
    """Return the async-arguments of a wait clause; None: all queues.

    Raises
    ------
    ClauseError
        As `check_async`.
    """
    if value.__class__ is int and value >= 0:  # most are
        return (value,)
    if value is True:
        return None
    if value is None or value is False:
        return ()
    values: list[int] = []
    for item in as_tuple(value):
        number = check_async(item, clause)
        if number is None:
            raise ClauseError(f"{clause}: {item!r} in a list is not an async-argument; use a number of at least 0")
        values.append(number)
    return tuple(values)


def queues_of(queues: Queues, place: DevicePlace | None, values: tuple[int, ...] | None) -> list[Queue]:
    """Return the queues that checked wait-arguments mean, each once; of all those that have been used."""
    if values is None:
        return queues.known(place)
    if not values:
        return []
    if len(values) == 1:
        queue = queue_of(queues, place, values[0])
        return [] if queue is None else [queue]
    found = [queue_of(queues, place, value) for value in values]
    return list(dict.fromkeys([queue for queue in found if queue is not None]))


def device_arrays(clause: str, value: Any) -> tuple[Any, ...]:
    """Return the items of a ``deviceptr`` clause of a data construct.

    Raises
    ------
    ClauseError
        One of them is not a device array.
    """
    items = as_tuple(value)
    for item in items:
        if not is_device_array(item):
            raise ClauseError(
                f"{clause}: {type(item).__name__} {label(item):.60} is not a device array; pass an array that "
                "acc.malloc, acc.deviceptr or acc.host_data returned"
            )
    return items


def host_arrays(clause: str, value: Any) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the items of a clause that takes host arrays.

    Raises
    ------
    ClauseError
        One of them is none.
    """
    for item in host_items(as_tuple(value)):
        if not isinstance(item, np.ndarray):
            raise ClauseError(f"{clause}: {type(item).__name__} {item!r:.60} is not a host array; pass NumPy arrays")
        array_section(item)  # refuses Python objects
        yield item
