"""The dependence tracker: which earlier siblings a new task must follow.

Theory of operation
-------------------
Every generating task has one tracker, used by its one thread, so there is no lock. A *cell* stands for one
storage location that a ``depend`` item named. It keeps the last *set* of tasks that named it and the set before that.
Consecutive tasks of the same type ``in``, ``inoutset`` or ``mutexinoutset`` are one set; a task of type ``out`` or
``inout`` is a set of its own. A task that joins the last set follows the members of the set before it; any other
follows the members of the last set, and begins a new one. That is the whole table of OpenMP 5.2, 15.9.5 as long as
items are identical or disjoint, and the usual case is a few list operations.

Items that overlap without being identical are found when a location is seen for the first time: the new
cell is linked with every cell that shares a byte with it (`offload.tasks.locations`), and from then on each access
looks at the linked cells as well. The search costs something once a location, never once a task.

``omp_all_memory`` follows the last set of every cell and then takes its place: all cells are dropped, and each that is
made from now on begins with that task as its last set.

Members of a ``mutexinoutset`` are not ordered but exclude each other. Each cell named so has a `Mutex`, and so has each
pair of linked cells; a task needs those of its cells. So two tiles do not exclude each other because somebody has named
the matrix. (They do where the matrix was named first and in a ``mutexinoutset``: its tasks have the one mutex that
there was, so that is the one of each pair.) The code that runs tasks takes them.

Cells whose tasks are all past are dropped when their number has doubled, so that a program that names a million fresh
locations runs in constant memory.

A key need not be a location. For a `Followed`, a task by itself for one, a cell is made whose last set is that, and is
kept by nobody; a clause with such a key is used once.

The tracker keeps *handles* of tasks, any objects that the caller passes, and never looks into them: the engine passes
weak references, so that a finished task which nobody else holds is gone; a recorder passes its nodes.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from offload.arrays.sections import Section
from offload.tasks.locations import Locations

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

_FIRST_SWEEP = 32_768
"""Cells before the first sweep, some 10 MB: a program that names these again and again shall find them."""

_FIRST_PRUNING = 64
"""Members of a set before those that are past are first looked for; then whenever their number has doubled."""


class DependType(Enum):
    """The type of a dependence; its value is OpenMP's word."""

    IN = "in"
    OUT = "out"
    INOUT = "inout"
    MUTEXINOUTSET = "mutexinoutset"
    INOUTSET = "inoutset"


_IN, _OUT, _, _MUTEX, _SET = DependType
"""To take one from its class costs 0.15 µs in Python 3.11."""

_SETS = (_MUTEX, _SET)


class Access(Protocol):
    """The members of a ``depend`` clause that the tracker needs.

    Attributes
    ----------
    type : DependType
        The dependence type.
    joins : DependType or None
        The same, if consecutive tasks of this type are one set; None for ``out`` and ``inout``.
    keys : sequence
        The locations; None stands for ``omp_all_memory``.
    items : tuple
        The list items as given; the tracker does not look at them, a recorder takes the names of locations from them.
    """

    type: DependType
    joins: DependType | None
    keys: Sequence[Hashable] | None
    items: tuple[Any, ...]


class Followed:
    """A key that is no location: a task that names it follows one thing, and no task follows it because of the key.

    Attributes
    ----------
    what : object
        The object that is followed.
    is_over : bool
        Whether there is nothing left to follow.
    """

    __slots__ = ()

    what: Any

    @property
    def is_over(self) -> bool:
        raise NotImplementedError

    def handles(self, tracker: Tracker) -> Sequence[Any]:
        """Return the handles of the tasks that are followed, in the tracker of a region that runs."""
        raise NotImplementedError


class Mutex:
    """A lock that one of several tasks may have at a time; the code that runs tasks grants it."""

    __slots__ = ("holder", "waiting")

    def __init__(self) -> None:
        self.holder: Any = None
        self.waiting: deque[Any] = deque()


class _Cell:
    """The state of a location. It has no ``__init__``, whose call takes as long as all the rest of a new cell.

    Attributes
    ----------
    joins : DependType or None
        The type of the last set, if others may join it.
    last : handle, list or None
        The last set: a list of handles once a second one has joined.
    before_joins, before : DependType or None, handle, list or None
        The set before that; unset while no other may join the last set.
    limit : int
        Members before those that are past are looked for; unset while there is no list.
    linked : list of _Cell
        Those that share a byte with it.
    mutexes : dict or None
        Its own `Mutex`, and one with each linked cell.
    """

    __slots__ = ("before", "before_joins", "joins", "last", "limit", "linked", "mutexes")

    joins: DependType | None
    last: Any
    before_joins: DependType | None
    before: Any
    limit: int
    linked: list[_Cell] | tuple[()]
    mutexes: dict[_Cell, Mutex] | None


class Tracker:
    """The dependences among the tasks that one task generates.

    Parameters
    ----------
    is_past : callable, optional
        Tells whether a handle may be forgotten; without it none is.
    handles_of : callable, optional
        Returns the handles of a `Followed`, if its own method does not return them.
    keeper : object, optional
        A handle whose ``id`` is in its ``troubles`` may not be forgotten either.

    Attributes
    ----------
    exclusive : list of Mutex
        The mutexes that the task entered last needs before it may run; the caller takes the list away.
    ordered : deque of handle
        The tasks entered with orderings, the oldest first; the caller takes away those that nobody has to follow.
    """

    __slots__ = (
        "_cells",
        "_fence",
        "_handles_of",
        "_is_past",
        "_limit",
        "_locations",
        "exclusive",
        "keeper",
        "ordered",
    )

    def __init__(
        self,
        is_past: Callable[[Any], bool] | None = None,
        handles_of: Callable[[Followed], Sequence[Any]] | None = None,
        keeper: Any = None,
    ) -> None:
        self._is_past = is_past or _never
        self._handles_of = handles_of
        self.exclusive: list[Mutex] = []
        self.ordered: deque[Any] = deque()
        self.keeper = keeper
        self.clear()

    def __len__(self) -> int:
        return len(self._cells)

    def clear(self, fence: Any = None) -> None:
        """Forget everything; later tasks follow the task of this handle, if there is one."""
        self._cells: dict[Hashable, _Cell] = {}
        self._locations = Locations()
        self._limit = _FIRST_SWEEP
        self._fence = fence

    def add(
        self, handle: Any, accesses: Sequence[Access], edges: list[tuple[Any, str, Hashable]] | None = None
    ) -> list[Any]:
        """Enter a task and return the handles of earlier ones that it must follow, some perhaps twice, or past.

        Parameters
        ----------
        handle : object
            The new task. It is among those returned if several of its items share storage.
        accesses : sequence of Access
            Its ``depend`` clauses, in order.
        edges : list, optional
            Receives (predecessor, kind, location) for every dependence found, for graphs; kind is ``"flow"``
            (read after write, so also ``inout`` after a write), ``"anti"`` (write after read), ``"output"`` (write
            after write) or ``"set"`` (one of the two is in an ``inoutset`` or ``mutexinoutset``).
        """
        found: list[Any] = []
        for access in accesses:
            keys = access.keys
            if keys is None:
                found += self._everything(access, handle, edges)
                self.clear(handle)
                continue
            joins = access.joins
            for key in keys:
                cell = self._cells.get(key) or self._new_cell(key)
                if edges is not None:
                    _explain(cell, key, access, handle, edges)
                last = cell.last
                if joins is None or joins is not cell.joins:
                    followed = last
                    if joins is not None:
                        cell.before, cell.before_joins = last, cell.joins
                    cell.last, cell.joins = handle, joins
                else:
                    followed = cell.before
                    if last.__class__ is list:
                        last.append(handle)
                        if len(last) >= cell.limit:
                            self._prune(cell)
                    else:
                        cell.last, cell.limit = [last, handle], _FIRST_PRUNING
                if followed.__class__ is list:
                    found += followed
                elif followed is not None:
                    found.append(followed)
                if cell.linked:
                    for other in cell.linked:
                        found += _handles(_followed(other, access))
            if joins is _MUTEX:
                self._exclude(keys)
        return found

    def latest(self, accesses: Sequence[Access]) -> list[Any]:
        """Return the handles of tasks that one with these clauses would follow, entering none (``taskwait depend``)."""
        found: list[Any] = []
        for access in accesses:
            if access.keys is None:
                return self._everything(access, None, None)
            for key in access.keys:
                cell = self._cells.get(key) or self._new_cell(key)
                for other in (cell, *cell.linked):
                    found += _handles(_followed(other, access))
        return found

    def _everything(self, access: Access, handle: Any, edges: list[tuple[Any, str, Hashable]] | None) -> list[Any]:
        """Return the tasks that ``omp_all_memory`` follows."""
        found = [*_handles(self._fence)]
        for cell in self._cells.values():
            found += _handles(cell.last)
        if edges is not None:
            every = [(None, self._fence), *[(cell.joins, cell.last) for cell in self._cells.values()]]
            edges += [
                (old, _edge_kind(joins, access), None)
                for joins, last in every
                for old in _handles(last)
                if old is not handle
            ]
        return found

    def _exclude(self, keys: Sequence[Hashable]) -> None:
        """Note the mutexes of a task that has these locations, which have cells, in turn with others."""
        for key in keys:
            cell = self._cells.get(key)
            if cell is not None:  # else it is no location
                for other in (cell, *cell.linked):
                    self.exclusive.append(_mutex_of(cell, other))

    def _new_cell(self, key: Hashable) -> _Cell:
        """Return a cell for a location that is named for the first time."""
        if len(self._cells) >= self._limit:
            self._sweep()
        cell = _Cell()
        cell.last = self._fence
        cell.joins = cell.mutexes = None
        cell.linked = ()
        if key.__class__ is Section:
            met = self._locations.add(key)
            if met:
                self._link(cell, met)
        elif isinstance(key, Followed):
            cell.last = [*(key.handles(self) if self._handles_of is None else self._handles_of(key))]
            return cell  # which is in no table
        self._cells[key] = cell
        return cell

    def _link(self, cell: _Cell, met: Sequence[Section]) -> None:
        """Link a new cell with those of the locations that it shares a byte with."""
        cell.linked = [self._cells[key] for key in met]
        for other in cell.linked:
            if other.linked.__class__ is list:
                other.linked.append(cell)
            else:
                other.linked = [cell]
            if other.mutexes is not None and other in other.mutexes:  # tasks that have this one alone
                _keep_mutex(cell, other, other.mutexes[other])

    # -- forgetting ----------------------------------------------------------------------------------
    def _forgettable(self) -> Callable[[Any], bool]:
        """Return the function that tells whether a handle may be forgotten."""
        is_past = self._is_past
        troubles = self.keeper.troubles if self.keeper is not None else ()
        return (lambda handle: id(handle) not in troubles and is_past(handle)) if troubles else is_past

    def _prune(self, cell: _Cell) -> None:
        """Drop those of a large set, and of the one before it, that are past."""
        may_go = self._forgettable()
        cell.last = [handle for handle in cell.last if not may_go(handle)]
        cell.before = [handle for handle in _handles(cell.before) if not may_go(handle)]
        cell.limit = max(_FIRST_PRUNING, 2 * len(cell.last))

    def _sweep(self) -> None:
        """Drop the cells all of whose tasks are past."""
        may_go = self._forgettable()
        if all(map(may_go, _handles(self._fence))):
            self._fence = None
        kept = {key: cell for key, cell in self._cells.items() if not all(map(may_go, _handles_in(cell)))}
        gains = 2 * len(kept) <= len(self._cells)
        self._limit = max(_FIRST_SWEEP, 2 * len(kept if gains else self._cells))
        if not gains:
            return
        cells = set(kept.values())
        for cell in self._cells.values():
            if cell.linked:
                cell.linked = list(filter(cells.__contains__, cell.linked)) if cell in cells else []
            if cell.mutexes:
                cell.mutexes = {other: mutex for other, mutex in cell.mutexes.items() if other in cells}
        self._locations.keep(kept.__contains__)
        self._cells = kept


def _never(_handle: Any) -> bool:
    """Tell that a handle may not be forgotten."""
    return False


def _handles_in(cell: _Cell) -> Sequence[Any]:
    """Return the tasks that matter to the next access.

    With the last set, the set before counts: a failed task there may be past later than the tasks that it kept from
    running.
    """
    last = _handles(cell.last)
    return last if cell.joins is None else (*last, *_handles(cell.before))


def _handles(tasks: Any) -> Sequence[Any]:
    """Return the handles of a set as a cell has it."""
    return tasks if tasks.__class__ is list else () if tasks is None else (tasks,)


def _followed(cell: _Cell, access: Access) -> Any:
    """Return the set of a cell that an access must follow; `Tracker.add` has this rule once more, inline."""
    return cell.before if access.joins is not None and access.joins is cell.joins else cell.last


def _mutex_of(cell: _Cell, other: _Cell) -> Mutex:
    """Return the mutex of two linked cells, or of a cell alone."""
    if cell.mutexes is None or other not in cell.mutexes:
        _keep_mutex(cell, other, Mutex())
    return cell.mutexes[other]  # type: ignore[index]  # it has just been kept


def _keep_mutex(cell: _Cell, other: _Cell, mutex: Mutex) -> None:
    for one, two in ((cell, other), (other, cell)):
        if one.mutexes is None:
            one.mutexes = {}
        one.mutexes[two] = mutex


def _explain(cell: _Cell, key: Hashable, access: Access, handle: Any, edges: list[tuple[Any, str, Hashable]]) -> None:
    """Add the reasons why a task follows others, at a cell and at those linked with it."""
    for other in (cell, *cell.linked):
        is_joined = access.joins is not None and access.joins is other.joins
        kind = _edge_kind(other.before_joins if is_joined else other.joins, access)
        edges += [(old, kind, key) for old in _handles(_followed(other, access)) if old is not handle]


def _edge_kind(old: DependType | None, access: Access) -> str:
    """Return the name of the dependence of an access on a set; the type is None for a set of one writer."""
    if old in _SETS or access.joins in _SETS:
        return "set"
    if old is _IN:
        return "anti"
    return "output" if access.type is _OUT else "flow"
