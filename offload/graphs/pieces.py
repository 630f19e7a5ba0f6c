"""Pieces: the parts of a recorded region that are device work only, each of which may be captured.

A region without anything else is one piece. Otherwise host tasks, events and requests stand between the pieces as
tasks. They follow pieces, and pieces follow them. A piece ends where such a task follows it, so that the task need not
wait for later device work. See docs/design/theory.md, "Pieces".
"""

from __future__ import annotations

import heapq
from functools import partial
from typing import TYPE_CHECKING

from offload.arrays.items import mapper_of
from offload.data.replicas import numbers_of
from offload.graphs.capture import Capture
from offload.graphs.plan import GroupEndMaker, PieceMaker, TaskMaker, Unit, Wiring
from offload.graphs.reach import Call, changes_of
from offload.runtime.recipe import DeviceRecipe
from offload.tasks.recipe import Recipe, nothing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from offload.graphs.reach import HostChanges
    from offload.tasks.site import Site

_LEAST = 2  # Device tasks of a piece between other tasks: a graph of one saves nothing


class Cut:
    """A recorded region with its pieces: a replay launches each as a graph, and generates the other tasks.

    ``others`` are the units that can be in no graph, each with the reason.
    """

    def __init__(self, units: Sequence[Unit], others: Mapping[int, str], site: Site, name: str | None) -> None:
        self._units = units
        self._others = others
        self.parts = pieces(units, others)  # the positions of the units of each piece
        self.captures = [self._capture(part, site) for part in self.parts]
        self.is_whole = bool(self.parts) and not others  # whether one piece is all
        self.wiring = Wiring(contracted(units, self.parts, name)) if self.parts and others else None

    def _capture(self, part: Sequence[int], site: Site) -> Capture:
        changes = partial(_changes_outside, self._units, self.parts) if self._others else None
        return Capture(self.before(part), [self._units[at].step for at in part], site, changes)

    def before(self, part: Sequence[int]) -> list[list[int]]:
        """Return for each unit of a piece the positions in the piece of the units that it follows there."""
        index = {at: number for number, at in enumerate(part)}
        return [[index[other] for other in self._units[at].before if other in index] for at in part]

    @property
    def is_captured(self) -> bool:
        """Whether each piece is a graph, and there is one."""
        return bool(self.captures) and all(capture.work is not None for capture in self.captures)

    @property
    def why_not(self) -> str:
        """Why device work of the last replay was in no graph; empty while nothing is known against it."""
        reasons = [why for at, why in self._others.items() if not self.parts or is_device(self._units[at])]
        reasons += [capture.why_not for capture in self.captures]
        if not (reasons or self.parts):
            return "it contains no device work"
        return next(filter(None, reasons), "")

    def without(self, part: Sequence[int], capture: Capture, *, wholly: bool) -> dict[int, str]:
        """Return the units that can be in no graph now that the capture of a piece has been refused."""
        at = capture.refused_at
        blamed = part if at is None or wholly else [part[at]]
        return {**self._others, **dict.fromkeys(blamed, capture.refusal)}


def _changes_outside(units: Sequence[Unit], parts: Sequence[Sequence[int]]) -> HostChanges:
    """Return what tasks between pieces may change: asked at each capture, as it refers to all that they reach."""
    return changes_of(_calls_outside(units, parts))


def _calls_outside(units: Sequence[Unit], parts: Sequence[Sequence[int]]) -> Iterator[Call]:
    """Yield the calls of the tasks that are in no piece."""
    inside = {at for part in parts for at in part}
    for at, unit in enumerate(units):
        recipe = recipe_of(unit)
        if recipe is None or at in inside:
            continue
        is_on_host = not is_device(unit)
        args = [*recipe.args, *(recipe.kwargs or {}).values()]
        yield Call(
            recipe.body or nothing, [arg for arg in args if is_on_host or mapper_of(arg) is None], is_on_host=is_on_host
        )


def is_device(unit: Unit) -> bool:
    """Tell whether a unit is work of a device."""
    return isinstance(recipe_of(unit), DeviceRecipe)


def recipe_of(unit: Unit) -> Recipe | None:
    """Return the recipe of the task of a unit; None for the end of a taskgroup."""
    step = unit.step
    return step if isinstance(step, Recipe) else step.recipe if isinstance(step, TaskMaker) else None


def obstacles(units: Sequence[Unit]) -> dict[int, str]:
    """Return the reason for each unit that can never be in a graph of a device, by its position."""
    found = {}
    for at, unit in enumerate(units):
        recipe = recipe_of(unit)
        why = "" if recipe is None else _obstacle(recipe)
        if why:
            found[at] = why
        if isinstance(unit.step, TaskMaker):
            for source in unit.step.sources:
                if source is not None and source not in found:
                    found[source] = f"another task receives the value of {recipe_of(units[source]).name}"  # type: ignore[union-attr]  # a task
    return found


def _obstacle(recipe: Recipe) -> str:
    if recipe.event is not None:
        return "it contains an event"
    if not isinstance(recipe, DeviceRecipe):
        is_wait = recipe.site.directive == "taskwait"  # an empty task, there for its edges
        return "" if is_wait else f"{recipe.name} runs on the host"
    if recipe.queue is not None and recipe.queue.is_exposed:  # work there follows the operations, and no graph
        return f"the program has the stream of {recipe.queue}, where {recipe.name} goes"
    if recipe.work.places:
        return f"{recipe.name} is on several devices, {numbers_of(recipe.work.places)}"
    if recipe.work.blocks:
        return f"{recipe.name} speculates: each call decides again where it runs"
    if recipe.place.device.graph_capture() is None:
        return f"{recipe.place.device.name} does not support graphs"
    if recipe.values is not None and recipe.values.slots:
        return f"{recipe.name} receives the value of a task"
    return str(getattr(recipe.body, "why_not_captured", ""))


def pieces(units: Sequence[Unit], others: Mapping[int, str]) -> list[list[int]]:
    """Return the positions of each piece, in order; ``others`` are the units that are in none.

    No way from a unit of a piece to another one leads through a unit outside of it.
    """
    if not others:
        return [list(range(len(units)))] if any(map(is_device, units)) else []
    is_inside = [at not in others and not _is_for_whole(unit) for at, unit in enumerate(units)]
    found = parts_of(units, is_inside)
    return [part for part in found if sum(is_device(units[at]) for at in part) >= _LEAST]


def _is_for_whole(unit: Unit) -> bool:
    """Tell whether a unit needs the whole region in its graph: it waits for a taskgroup, or excludes others."""
    return isinstance(unit.step, GroupEndMaker) or (isinstance(unit.step, TaskMaker) and bool(unit.step.mutexes))


def parts_of(units: Sequence[Unit], is_inside: Sequence[bool]) -> list[list[int]]:
    """Return the units inside of pieces in parts: connected, or with the same units outside before and after them.

    All units of a part have the same units outside before them, on any way.
    """
    stages = _stages(units, is_inside)
    root = list(range(len(units)))  # of the tree of connected units

    def find(at: int) -> int:
        while root[at] != at:
            root[at] = at = root[root[at]]
        return at

    precedes: dict[int, set[int]] = {}
    for at, unit in enumerate(units):
        for other in unit.before:
            if is_inside[at] and is_inside[other] and stages[at] == stages[other]:
                root[find(at)] = find(other)
            elif is_inside[other] and not is_inside[at]:
                precedes.setdefault(other, set()).add(at)
    connected: dict[int, list[int]] = {}
    for at in range(len(units)):
        if is_inside[at]:
            connected.setdefault(find(at), []).append(at)
    alike: dict[object, list[int]] = {}
    for part in connected.values():
        after = frozenset().union(*(precedes.get(at, ()) for at in part))
        alike.setdefault((stages[part[0]], units[part[0]].region, after), []).extend(part)
    return sorted(map(sorted, alike.values()))


def _stages(units: Sequence[Unit], is_inside: Sequence[bool]) -> list[tuple[int, int]]:
    """Return the stage of each unit: units of one piece have the same, and none between them has it.

    It is a number, and the set of the units outside that are before it, as bits.
    """
    ends = {other for at, unit in enumerate(units) if not is_inside[at] for other in unit.before}  # pieces end there
    stages: list[tuple[int, int]] = []
    for at, unit in enumerate(units):
        stage = outside = 0
        for other in unit.before:
            leaves = is_inside[other] and (not is_inside[at] or other in ends or units[other].region != unit.region)
            number, before = stages[other]
            stage = max(stage, number + leaves)
            outside |= before | (0 if is_inside[other] else 1 << other)
        stages.append((stage, outside))
    return stages


def contracted(units: Sequence[Unit], parts: Sequence[Sequence[int]], name: str | None) -> list[Unit]:
    """Return units of which one stands for each part; ``name`` is the label of its task."""
    place = list(range(len(units)))  # the number of what stands for each unit: a unit, or behind them a part
    for number, part in enumerate(parts):
        for at in part:
            place[at] = len(units) + number
    before: dict[int, set[int]] = {}
    for at, unit in enumerate(units):
        before.setdefault(place[at], set()).update(place[other] for other in unit.before)
    order = _ordered(before, {place[part[0]]: part[0] for part in parts})
    position = {at: new for new, at in enumerate(order)}
    found = []
    for at in order:
        follows = tuple(sorted(position[other] for other in before[at] if other != at))
        if at < len(units):
            step = units[at].step
            if isinstance(step, TaskMaker) and step.sources:
                sources = tuple(None if source is None else position[source] for source in step.sources)
                step = TaskMaker(step.recipe, step.mutexes, sources)
            found.append(units[at]._replace(step=step, before=follows))
        else:
            part = parts[at - len(units)]
            queues = tuple({queue: None for inner in part for queue in units[inner].queues})
            found.append(Unit(PieceMaker(at - len(units), name), follows, units[part[0]].region, queues))
    return found


def _ordered(before: Mapping[int, set[int]], first: Mapping[int, int]) -> list[int]:
    """Return the numbers so that each follows those before it, else in the order of generation."""
    after: dict[int, list[int]] = {at: [] for at in before}
    n_before = {}
    for at, found in before.items():
        n_before[at] = len(found - {at})
        for other in found - {at}:
            after[other].append(at)
    ready = [(first.get(at, at), at) for at, n in n_before.items() if n == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        _, at = heapq.heappop(ready)
        order.append(at)
        for other in after[at]:
            n_before[other] -= 1
            if n_before[other] == 0:
                heapq.heappush(ready, (first.get(other, other), other))
    return order
