"""Which boxes a picture has: each a task, or a fold that counts several. Pure: no characters, no pixels.

Theory of operation
-------------------
A picture of more than `WHOLE` tasks folds *equal* tasks of one layer into one box. If that still leaves too many boxes,
as for a long chain, the layers are taken in *bands* of two, three, four, … first; if the tasks of a layer have names of
their own (``load-0``, ``load-1``, …), names count as equal that differ in digits, then all tasks of a kind, then all.

The boxes are the classes of a partition, so each task is in exactly one. Within a band the tasks of two boxes may wait
for each other both ways; such boxes are merged (they are a strongly connected component), and what is left has no
circle. A box is one layer below the lowest box that it waits for, and lines that a longer way implies are left out. For
a picture in which each box is one task, these rules give the graph's own layers and its transitive reduction.

`foldings` gives the partitions from the finest to the coarsest; a writer takes the first that it has room for.
Rejected: to fold only as far as necessary, here and there, since a reader could not tell which boxes are alike.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from offload.views.looks import masked
from offload.views.words import duration_label, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from offload.tasks.graph import EdgeKind
    from offload.views.looks import Look, Snapshot
    from offload.views.words import Phase, TaskKind

WHOLE = 150  # up to so many tasks, each has a box of its own
# So many boxes of folds can be told apart in a picture; fewer where layers are folded too, since those look alike.
MOST = 400
_MOST_IN_BANDS = WHOLE
_MAX_ITEMS = 6
_MAX_NAMES = 3
_MOST_PLACES = 24  # characters of the places of a fold


@dataclass(frozen=True)  # not slotted: it keeps its cached properties
class Fold:
    """One box: a task, or several."""

    number: int
    looks: tuple[Look, ...]  # in generation order
    layer: int

    @cached_property
    def title(self) -> str:
        """The name of its task, or one for all of its tasks."""
        names = Counter(look.name for look in self.looks)
        if len(names) == 1:
            return self.looks[0].name
        alike = Counter(masked(name) for name in names)
        if len(alike) == 1:
            return f"{self.looks[0].name} … {self.looks[-1].name}"
        text = ", ".join(list(alike)[:_MAX_NAMES])
        return text if len(alike) <= _MAX_NAMES else f"{plural(len(alike), 'name')}: {text}, …"

    @property
    def count_label(self) -> str:
        """The number of its tasks, for a fold of several."""
        return "" if self.is_task else f"×{len(self.looks):,}"  # noqa: RUF001  # the sign is meant

    @property
    def is_task(self) -> bool:
        """Whether it is one task."""
        return len(self.looks) == 1

    @cached_property
    def kind(self) -> TaskKind | None:
        """The kind of its tasks; None if they have several."""
        kinds = {look.kind for look in self.looks}
        return kinds.pop() if len(kinds) == 1 else None

    @cached_property
    def phase(self) -> Phase:
        """The phase of its tasks that matters most."""
        phases = {look.phase for look in self.looks}
        order: tuple[Phase, ...] = ("failed", "running", "not run", "waiting")
        return next((phase for phase in order if phase in phases), "done")

    @cached_property
    def place(self) -> str:
        """The places where its tasks run."""
        places = sorted({look.place for look in self.looks})
        text = ", ".join(places)
        return text if len(text) <= _MOST_PLACES else plural(len({look.device for look in self.looks}), "place")

    @cached_property
    def depth_label(self) -> str:
        """``"8 layers"`` where the tasks of the fold wait for each other; ``""`` elsewhere."""
        depth = len({look.layer for look in self.looks})
        return "" if depth == 1 else plural(depth, "layer")

    @cached_property
    def time_s(self) -> float | None:
        """The time of its tasks together, in seconds; None if none has run."""
        times_s = [look.time_s for look in self.looks if look.time_s is not None]
        return sum(times_s) if times_s else None

    @property
    def time_label(self) -> str:
        """``"12.3 ms"``, of several tasks ``"Σ 12.3 ms"``."""
        text = duration_label(self.time_s)
        return text if self.is_task or not text else f"Σ {text}"

    @cached_property
    def critical(self) -> int:
        """The number of its tasks on the critical path."""
        return sum(look.is_critical for look in self.looks)


@dataclass(frozen=True, slots=True)
class Strand:
    """The dependences of one kind between two boxes, by their numbers."""

    source: int
    target: int
    kind: EdgeKind
    count: int
    items: tuple[str, ...]  # the list items, the first few
    is_implied: bool  # a longer way says the same
    is_critical: bool  # the critical path goes here


@dataclass(frozen=True)
class Folding:
    """The boxes and lines of a picture."""

    snapshot: Snapshot
    folds: list[Fold]
    strands: list[Strand]

    @property
    def is_whole(self) -> bool:
        """Whether each task has a box, whose number is then the task's."""
        return len(self.folds) == len(self.snapshot.looks)

    @property
    def drawn(self) -> list[Strand]:
        """The lines of a picture: without those that a longer way implies."""
        return [strand for strand in self.strands if not strand.is_implied]

    @property
    def for_source(self) -> list[Strand]:
        """The lines in source for another program: all that there are, if nothing is folded."""
        return self.strands if self.is_whole else self.drawn


# When two tasks of a layer are equal, from the strictest meaning to the widest.
_LABELS: tuple[Callable[[Look], Hashable], ...] = (
    lambda look: (look.name, look.directive, look.place, look.phase),
    lambda look: (masked(look.name), look.directive, look.place, look.phase),
    lambda look: (look.kind, look.place, look.phase),
    lambda look: (look.kind, look.phase == "failed"),
    lambda _: None,
)


def foldings(snapshot: Snapshot, most: int = MOST) -> Iterator[Folding]:
    """Yield the ways to draw a graph with at most `most` boxes, from the finest."""
    if len(snapshot.looks) <= min(WHOLE, most):
        yield _folding(snapshot, list(range(len(snapshot.looks))))
    found: list[tuple[int, int, int, list[int]]] = []
    kept: set[int] = set()
    for level, label in enumerate(_LABELS):
        classes = _numbers([label(look) for look in snapshot.looks])
        cells = {(look.layer, one) for look, one in zip(snapshot.looks, classes, strict=True)}
        for layers in _bands(snapshot.depth, most):
            count = len({(layer // layers, one) for layer, one in cells})
            if count <= (most if layers == 1 else min(most, _MOST_IN_BANDS)) and count not in kept:
                kept.add(count)
                found.append((-count, level, layers, classes))
            if count * 4 < min(most, _MOST_IN_BANDS):
                break  # coarser ones are not wanted
    found.sort(key=lambda one: one[:2])
    for _, _, layers, classes in found:
        boxes = _numbers([(look.layer // layers, one) for look, one in zip(snapshot.looks, classes, strict=True)])
        yield _folding(snapshot, boxes)


def _bands(depth: int, most: int) -> Iterator[int]:
    """Yield the numbers of layers to fold together, up to all, that can give few enough boxes."""
    if depth <= most:
        yield 1
    layers = max(2, -(-depth // min(most, _MOST_IN_BANDS)))
    while layers < depth:
        yield layers
        layers += max(1, layers // 5)
    if depth > 1:
        yield depth


def _numbers(labels: Sequence[Hashable]) -> list[int]:
    """Return labels as numbers, from 0 in order of appearance."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(label, len(numbers)) for label in labels]


def _folding(snapshot: Snapshot, boxes: list[int]) -> Folding:
    """Return the picture in which the tasks with the same number share a box."""
    pairs = {
        pair for reason in snapshot.reasons if (pair := (boxes[reason.source], boxes[reason.target]))[0] != pair[1]
    }
    component = components(max(boxes, default=-1) + 1, pairs)
    boxes = [component[box] for box in boxes]
    pairs = {(component[a], component[b]) for a, b in pairs if component[a] != component[b]}
    first: dict[int, int] = {}
    for index, box in enumerate(boxes):
        first.setdefault(box, index)
    number_of = _ordered(first, pairs)
    boxes = [number_of[box] for box in boxes]
    pairs = {(number_of[a], number_of[b]) for a, b in pairs}
    members: list[list[Look]] = [[] for _ in number_of]
    for look, box in zip(snapshot.looks, boxes, strict=True):
        members[box].append(look)
    before = _before(len(members), pairs)
    layers: list[int] = []
    for sources in before:
        layers.append(max((layers[box] for box in sources), default=-1) + 1)
    folds = [Fold(number, tuple(looks), layers[number]) for number, looks in enumerate(members)]
    return Folding(snapshot, folds, _strands(snapshot, boxes, _kept(before)))


def _strands(snapshot: Snapshot, boxes: list[int], kept: set[tuple[int, int]]) -> list[Strand]:
    critical = {(boxes[a], boxes[b]) for a, b in zip(snapshot.path, snapshot.path[1:], strict=False)}
    counts: Counter[tuple[int, int, EdgeKind]] = Counter()
    items: dict[tuple[int, int, EdgeKind], dict[str, None]] = defaultdict(dict)
    for source, target, kind, item in snapshot.reasons:
        a, b = boxes[source], boxes[target]
        if a != b:
            counts[a, b, kind] += 1
            found = items[a, b, kind]
            if item and len(found) <= _MAX_ITEMS:
                found[item] = None
    return [
        Strand(
            a,
            b,
            kind,
            count,
            (*list(items[a, b, kind])[:_MAX_ITEMS], *(["…"] if len(items[a, b, kind]) > _MAX_ITEMS else [])),
            is_implied=(a, b) not in kept and (a, b) not in critical,
            is_critical=(a, b) in critical,
        )
        for (a, b, kind), count in counts.items()
    ]


def _before(count: int, pairs: set[tuple[int, int]]) -> list[list[int]]:
    before: list[list[int]] = [[] for _ in range(count)]
    for source, target in pairs:
        before[target].append(source)
    return before


def _kept(before: list[list[int]]) -> set[tuple[int, int]]:
    """Return the pairs that no longer way implies; the sources of each box have lower numbers."""
    ancestors: list[int] = []
    kept: set[tuple[int, int]] = set()
    for box, sources in enumerate(before):
        covered = 0
        # Latest first: a box that implies an edge lies behind a source with a higher number.
        for source in sorted(sources, reverse=True):
            if not covered >> source & 1:
                kept.add((source, box))
                covered |= ancestors[source] | 1 << source
        ancestors.append(covered)
    return kept


def _ordered(first: dict[int, int], pairs: set[tuple[int, int]]) -> dict[int, int]:
    """Give boxes numbers from 0 so that sources come before targets, and otherwise by their first tasks."""
    missing = dict.fromkeys(first, 0)
    after: dict[int, list[int]] = {box: [] for box in first}
    for source, target in pairs:
        missing[target] += 1
        after[source].append(target)
    ready: list[tuple[int, int]] = []
    for box, count in missing.items():
        if not count:
            heappush(ready, (first[box], box))
    number_of: dict[int, int] = {}
    while ready:
        _, box = heappop(ready)
        number_of[box] = len(number_of)
        for target in after[box]:
            missing[target] -= 1
            if not missing[target]:
                heappush(ready, (first[target], target))
    return number_of


def components(count: int, pairs: set[tuple[int, int]]) -> list[int]:
    """Return for each vertex the number of its strongly connected component (Tarjan's algorithm, without recursion)."""
    after: list[list[int]] = [[] for _ in range(count)]
    for source, target in pairs:
        after[source].append(target)
    order = [-1] * count  # when a vertex was found
    low = [0] * count
    component = [-1] * count
    stack: list[int] = []
    clock = parts = 0
    for root in range(count):
        if order[root] >= 0:
            continue
        work = [(root, iter(after[root]))]
        order[root] = low[root] = clock
        clock += 1
        stack.append(root)
        while work:
            vertex, rest = work[-1]
            for other in rest:
                if order[other] < 0:
                    order[other] = low[other] = clock
                    clock += 1
                    stack.append(other)
                    work.append((other, iter(after[other])))
                    break
                if component[other] < 0:
                    low[vertex] = min(low[vertex], order[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[vertex])
                if low[vertex] == order[vertex]:
                    while component[vertex] < 0:
                        component[stack.pop()] = parts
                    parts += 1
    return component
