"""Which loops of an iteration the threads of a block share on CUDA, and why others run in order.

If a loop of an iteration asks for workers or vector lanes, a *team* of ``workers`` rows of ``lanes`` threads has the
iteration. All threads of the team carry out the statements outside of shared loops, with equal values. A loop on vector
lanes is shared by the whole team. So is a loop on workers, unless it has vector loops: then each row has its own trips.

Trips are shared if only declared reductions pass between them, if none ends the loop, and if no later statement needs a
scalar or element that a trip left in its thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, NoReturn, TypeAlias

from offload.loops.front.flow import Flow
from offload.loops.tree import ir
from offload.loops.tree.nodes import children, names_assigned, names_in, walk
from offload.loops.tree.sizes import MOST_THREADS, ROW, lanes_of, workers_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from offload.loops.front.flow import State
    from offload.loops.tree.nodes import Node

# By whom the trips of a loop are shared: all threads of the team, or its rows, each with all of its threads.
Sharing: TypeAlias = Literal["threads", "rows"]

_LEVELS: Final = {"worker", "vector"}
_BLOCKS: Final = {"gang", "num_gangs", "num_teams"}


class Team(NamedTuple):
    """The threads that carry out an iteration."""

    # Threads of a row, and rows. There is one row if its threads are more than 32.
    lanes: int = ROW
    workers: int = 1  # rows
    # Teams of a block; other than one only if each is a row of 32. 0 leaves it to the number of iterations.
    rows: int = 1

    @property
    def is_row(self) -> bool:
        """Whether it is one row of 32, which needs no barrier of the block."""
        return self.lanes * self.workers == ROW

    @property
    def n_threads(self) -> int:
        """Threads of a block."""
        return self.lanes * self.workers * self.rows


class Levels(NamedTuple):
    """How each loop of an iteration runs."""

    team: Team | None  # None where nothing is shared, and a thread has an iteration
    shared: tuple[tuple[int, Sharing], ...]  # by the loop's number in the order of the text
    whys: Mapping[int, str]  # why loops that ask for a level run in order


def levels_of(nest: ir.Nest, *, is_ordered: bool = False, is_auto: bool = False) -> Levels:
    """Return how each loop of an iteration runs.

    With ``is_ordered``, iterations run in order, in one thread; a team may still have them if the program says ``seq``.
    With ``is_auto``, as in ``kernels_loop``, a loop is independent only if the program says so.
    """
    team = _team_of(nest)
    found = _Found(nest, team, is_auto=is_auto)
    if nest.scan is not None:
        found.whys |= dict.fromkeys(found.asking, "the nest is a scan, of which each thread has iterations of its own")
    elif is_ordered and (is_auto or nest.clauses.order != "seq"):
        found.whys |= dict.fromkeys(found.asking, "the iterations of the nest run in order, in one thread")
    else:
        found.look(nest.body, "row" if team.is_row else "block")
    return Levels(team if found.shared else None, tuple(found.shared.items()), found.whys)


def loops_in(nest: ir.Nest) -> list[ir.For]:
    """Return the loops of an iteration, in the order of the text: their numbers are their places here."""
    return [node for node in walk(*nest.body) if isinstance(node, ir.For)]


def _team_of(nest: ir.Nest) -> Team:
    """Return the threads that an iteration has, if it has shared loops."""
    said: dict[str, int] = {}
    for clauses in (*(loop.clauses for loop in loops_in(nest)), nest.clauses):
        said |= dict(clauses.sizes)
    limit = min(max(said.get("thread_limit", MOST_THREADS), ROW), MOST_THREADS) // ROW * ROW
    lanes, workers = lanes_of(said), workers_of(said) or 1
    if lanes is None:
        lanes = limit if "thread_limit" in said and workers == 1 else ROW
    lanes = min(-(-lanes // ROW) * ROW, limit)
    if lanes > ROW:
        workers = 1
    workers = min(workers, limit // lanes)
    if lanes == ROW and "worker" in nest.clauses.level.split():  # each row has an iteration
        return Team(lanes, 1, workers if workers_of(said) else 0)
    if lanes * workers > ROW:
        return Team(lanes, workers)
    return Team(lanes, workers, 1 if "thread_limit" in said or _BLOCKS & said.keys() else 0)


class _Found:
    """The decisions about the loops of an iteration, from the outside in."""

    def __init__(self, nest: ir.Nest, team: Team, *, is_auto: bool) -> None:
        self._nest = nest
        self._team = team  # what the loops ask for
        self._is_auto = is_auto  # loops are independent only if they say so
        loops = loops_in(nest)
        self._numbers = {id(loop): number for number, loop in enumerate(loops)}  # of the loops, by `id`
        # the loops that ask for a level
        self.asking = [number for number, loop in enumerate(loops) if loop.clauses.level]
        self.shared: dict[int, Sharing] = {}  # the loops that threads share, and how
        self.whys: dict[int, str] = {}  # why a loop that asks for a level runs in order

    def look(self, statements: Iterable[ir.Statement], group: Literal["block", "row"]) -> None:
        """Decide about the loops in the statements of a block, or of a row of it."""
        for node in statements:
            match node:
                case ir.If():
                    self.look((*node.then, *node.otherwise), group)
                case ir.While():
                    self.look(node.body, group)
                case ir.For():
                    self._look_at(node, group)

    def _look_at(self, node: ir.For, group: Literal["block", "row"]) -> None:
        number = self._numbers[id(node)]
        why = self._why_not(node, group) if node.clauses.level else ""
        if why or not node.clauses.level:
            if why:
                self.whys[number] = why
            self.look(node.body, group)
        elif self._has_rows(node) and group == "block":
            self.shared[number] = "rows"
            self.look(node.body, "row")
        else:
            self.shared[number] = "threads"

    def _has_rows(self, node: ir.For) -> bool:
        """Tell whether a loop is for workers, and has loops for their lanes."""
        inner = [loop for loop in walk(*node.body) if isinstance(loop, ir.For)]
        return "vector" not in node.clauses.level and any("vector" in loop.clauses.level for loop in inner)

    def _why_not(self, node: ir.For, group: Literal["block", "row"]) -> str:
        """Return why the trips of a loop that asks for a level run in order; nothing if they are shared."""
        said = node.clauses
        if not _LEVELS & set(said.level.split()):
            return "the blocks already share the iterations of the nest"
        if said.order == "seq":
            return "it is seq"
        if said.order == "auto" or (self._is_auto and not said.order):
            return "offload proves nothing about loops in an iteration: add independent=True"
        if self._has_rows(node) and (group == "row" or self._team.workers == 1):
            return "there is only one worker: set num_workers"
        if _is_broken(node.body):
            return "`break` ends it"
        if own := self._written_own(node):
            return (
                f"its trips write to {own}, which belongs to the whole iteration, but each thread would have a copy "
                "of its own"
            )
        if name := self._read_behind(node):
            return f"{name} is read after it, with the value of the last trip"
        return ""

    def _written_own(self, node: ir.For) -> str:
        """Return an array of the iteration's own that trips write to, and that is not one trip's own."""
        local = {one.name for one in walk(*self._nest.body) if isinstance(one, ir.Local)}
        inner = {one.name for one in walk(*node.body) if isinstance(one, ir.Local)}
        stores = (one for one in walk(*node.body) if isinstance(one, (ir.Store, ir.Atomic)))
        for name in dict.fromkeys(one.array for one in stores):
            is_trips = name in node.clauses.private and self._nest.privates.get(name) == "private"
            is_own = name in self._nest.privates and not (is_trips and not _is_used(name, self._nest.body))
            if name in local - inner or is_own:
                return name
        return ""

    def _read_behind(self, node: ir.For) -> str:
        """Return a scalar, or a local array, that trips assign and that is read behind the loop."""
        inner = {one.variable for one in walk(node) if isinstance(one, ir.For)}
        items = {one.name for one in (*node.clauses.reductions, *self._nest.reductions)}
        left = frozenset(names_assigned(*node.body) - items | inner)
        everything = names_in(*self._nest.body) | names_assigned(*self._nest.body)
        everything |= {one.array for one in walk(*self._nest.body) if isinstance(one, (ir.Load, ir.Store, ir.Atomic))}
        flow = _Behind(_found, frozenset(everything) - left, set(), loop=node, left=left)
        try:
            end = flow.through(self._nest.body, left)
        except _ReadError as error:
            return str(error)
        for state in (end, flow.ends):
            for name in (*self._nest.last, *self._nest.carried):
                if state is not None and name in left - state:
                    return name
        return ""


class _ReadError(Exception):
    """A variable is read where it has no value that all threads know."""


def _found(name: str, _place: ir.SourceLine) -> NoReturn:
    raise _ReadError(name)


@dataclass(slots=True)
class _Behind(Flow):
    """A pass in which a loop takes the values that its trips assign."""

    loop: ir.For | None = None  # the innermost one around
    left: frozenset[str] = frozenset()  # what its trips leave in their thread

    def _statement(self, node: ir.Statement, state: State) -> State:
        if isinstance(node, ir.Reduce) and state is not None:
            self._check(node.name, node.place, state)
        return Flow._statement(self, node, state)  # noqa: SLF001  # its own: `super()` has no cell in a class of slots

    def _loop(self, node: ir.For | ir.While, state: State) -> tuple[State, State]:
        if isinstance(node, ir.For) and state is not None:
            for item in node.clauses.reductions:
                self._check(item.name, node.place, state)
        ended, broken = Flow._loop(self, node, state)  # noqa: SLF001  # as above
        return (None if ended is None else ended - self.left, broken) if node is self.loop else (ended, broken)


def _is_used(array: str, statements: Iterable[Node]) -> bool:
    """Tell whether statements use an array outside of loops of which each trip has its own."""
    for node in statements:
        if isinstance(node, ir.For) and array in node.clauses.private:
            continue
        if getattr(node, "array", "") == array or _is_used(array, children(node)):
            return True
    return False


def _is_broken(statements: Iterable[ir.Statement]) -> bool:
    """Tell whether a ``break`` ends the loop whose body statements are."""
    return any(
        isinstance(node, ir.Break) or (isinstance(node, ir.If) and _is_broken((*node.then, *node.otherwise)))
        for node in statements
    )
