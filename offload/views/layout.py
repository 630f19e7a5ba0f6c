"""The places of nodes and lines in a layered drawing. Pure: no characters, no pixels, no optional package.

The method of Sugiyama, Tagawa and Toda (1981): edges become *nets* of sources joined to the same targets; barycentre
sweeps order each layer; `spread` finds the positions. `route` gives each `Hop` between two layers a row, so that lines
of different hops may cross but never touch. See docs/design/theory.md, "Pictures".
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_SWEEPS = 12

# For each vertex its neighbours on one side, with the weight of each in its wish.
_Adjacent = list[list[tuple[int, int]]]


class Net(NamedTuple):
    """Nodes, by index, all joined with the same nodes of lower layers; both ascending."""

    sources: tuple[int, ...]  # above all targets
    targets: tuple[int, ...]


class Hop(NamedTuple):
    """A piece of a net between two adjacent layers: every upper vertex is joined with every lower one."""

    net: int  # its number
    uppers: tuple[int, ...]  # vertices of the upper layer
    lowers: tuple[int, ...]  # vertices of the lower layer


@dataclass(slots=True)
class Layout:
    """A placed drawing."""

    # Vertices below `node_count` are nodes of the graph; the others are places where a net passes a layer. `left` and
    # `width` are in the unit of the widths given to `place`. ``hops[k]`` lie below ``layers[k]``.

    node_count: int  # vertices from here on are no nodes
    layers: list[list[int]]  # the vertices of each, from left to right
    hops: list[list[Hop]]  # below each layer
    width: list[int]  # of each vertex
    left: list[float] = field(default_factory=list)  # of each vertex, set by `place`

    def centre(self, vertex: int) -> float:
        """Return the middle of a vertex."""
        return self.left[vertex] + self.width[vertex] / 2

    @property
    def total_width(self) -> float:
        """The distance from 0 to the right end of the rightmost vertex."""
        return max((x + w for x, w in zip(self.left, self.width, strict=True)), default=0)


def bundle(pairs: Iterable[tuple[int, int]]) -> list[Net]:
    """Group pairs (source, target) into nets: sources with the same targets share one."""
    targets: dict[int, set[int]] = defaultdict(set)
    for source, target in pairs:
        targets[source].add(target)
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for source in sorted(targets):
        groups[tuple(sorted(targets[source]))].append(source)
    return [Net(tuple(sources), found) for found, sources in groups.items()]


def place(layer_of: Sequence[int], widths: Sequence[int], nets: Sequence[Net], space: int, line_space: int) -> Layout:
    """Lay out a graph whose node `i` is in layer ``layer_of[i]`` and ``widths[i]`` wide."""
    # `space` is the least distance between two boxes, `line_space` that between a passing line and anything else.
    layout = _hop(layer_of, widths, nets)
    above, below = _neighbours(layout)
    _order(layout.layers, above, below)

    def distance(one: int, other: int) -> int:
        both_nodes = max(one, other) < layout.node_count
        return layout.width[one] + (space if both_nodes else line_space)

    _position(layout, above, below, distance)
    return layout


def _hop(layer_of: Sequence[int], widths: Sequence[int], nets: Sequence[Net]) -> Layout:
    depth = max(layer_of, default=-1) + 1
    layers: list[list[int]] = [[] for _ in range(depth)]
    for node, layer in enumerate(layer_of):
        layers[layer].append(node)
    width = list(widths)
    hops: list[list[Hop]] = [[] for _ in range(max(depth - 1, 0))]
    for number, net in enumerate(nets):
        ends: dict[int, list[int]] = defaultdict(list)
        for node in (*net.sources, *net.targets):
            ends[layer_of[node]].append(node)
        passing: list[int] = []
        last = max(ends)
        for layer in range(min(ends), last):
            # Sources join on the way down; the first target lies below the last of them.
            uppers = passing + [node for node in ends[layer] if node in net.sources]
            passing = []
            if layer + 1 < last:
                passing = [len(width)]
                layers[layer + 1].append(len(width))
                width.append(1)
            lowers = [node for node in ends[layer + 1] if node in net.targets] + passing
            hops[layer].append(Hop(number, tuple(uppers), tuple(lowers)))
    _insert_passing(layers, hops, len(widths))
    return Layout(len(widths), layers, hops, width)


def _insert_passing(layers: list[list[int]], hops: list[list[Hop]], node_count: int) -> None:
    """Move each place where a net passes a layer to where the net comes from, as a share of the layer's width."""
    # They were appended. Where no lines cross, the order is final, and a wide layer would stand to one side of them.
    share: dict[int, float] = {}
    for depth, layer in enumerate(layers):
        nodes = [vertex for vertex in layer if vertex < node_count]
        share.update((vertex, (i + 0.5) / len(nodes)) for i, vertex in enumerate(nodes))
        for hop in hops[depth - 1] if depth else []:
            came_from = sum(share[upper] for upper in hop.uppers) / len(hop.uppers)
            share.update((lower, came_from) for lower in hop.lowers if lower >= node_count)
        layer.sort(key=share.__getitem__)


def _neighbours(layout: Layout) -> tuple[_Adjacent, _Adjacent]:
    """Return the vertices above and below each vertex, with how hard each pulls."""
    pairs = [(u, v) for gap in layout.hops for hop in gap for u in hop.uppers for v in hop.lowers]
    ups: list[set[int]] = [set() for _ in layout.width]
    downs: list[set[int]] = [set() for _ in layout.width]
    for upper, lower in pairs:
        ups[lower].add(upper)
        downs[upper].add(lower)
    above: _Adjacent = [[] for _ in layout.width]
    below: _Adjacent = [[] for _ in layout.width]
    for upper, lower in pairs:
        # What can be straight should be, long lines above all.
        passing = (upper >= layout.node_count) + (lower >= layout.node_count)
        pull = (60, 40, 80)[passing] if len(downs[upper]) == len(ups[lower]) == 1 else (1, 2, 8)[passing]
        below[upper].append((lower, pull))
        above[lower].append((upper, pull))
    return above, below


def _order(layers: list[list[int]], above: _Adjacent, below: _Adjacent) -> None:
    """Order each layer in place so that few lines cross."""
    best, fewest = [list(layer) for layer in layers], _crossings(layers, below)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        downwards = sweep % 2 == 0
        walk = range(1, len(layers)) if downwards else range(len(layers) - 2, -1, -1)
        for at in walk:
            fixed = {v: i for i, v in enumerate(layers[at - 1 if downwards else at + 1])}
            towards = above if downwards else below
            # A vertex without neighbours there keeps its place, in proportion to the width of the other layer.
            scale = len(fixed) / len(layers[at])
            wish = {
                v: sum(fixed[u] for u, _ in towards[v]) / len(towards[v]) if towards[v] else i * scale
                for i, v in enumerate(layers[at])
            }
            layers[at].sort(key=wish.__getitem__)
        now = _crossings(layers, below)
        if now < fewest:
            best, fewest = [list(layer) for layer in layers], now
    layers[:] = best


def _crossings(layers: list[list[int]], below: _Adjacent) -> int:
    """Count the crossings of straight lines between adjacent layers: inversions, by a Fenwick tree."""
    total = 0
    for upper, lower in pairwise(layers):
        place_of = {v: i for i, v in enumerate(lower)}
        tree = [0] * (len(lower) + 1)
        seen = 0
        for u in upper:
            ends = [place_of[v] for v, _ in below[u]]
            for end in ends:
                total += seen
                i = end + 1
                while i:
                    total -= tree[i]
                    i &= i - 1
            for end in ends:
                seen += 1
                i = end + 1
                while i < len(tree):
                    tree[i] += 1
                    i += i & -i
    return total


def _position(layout: Layout, above: _Adjacent, below: _Adjacent, distance: Callable[[int, int], int]) -> None:
    """Give every vertex its place, from 0 to the right, in whole units."""
    layout.left = [0.0] * len(layout.width)
    gaps = [[distance(a, b) for a, b in pairwise(layer)] for layer in layout.layers]
    for layer, gap in zip(layout.layers, gaps, strict=True):
        at = 0
        for vertex, step in zip(layer, [*gap, 0], strict=True):
            layout.left[vertex] = at
            at += step
    # Downwards last of the two: it leaves chains straight, and the balancing that follows keeps them so.
    sweeps: list[tuple[bool, bool]] = [(False, True), (True, False)] * 6 + [(True, True)] * 3
    for up, down in sweeps:
        order = range(len(layout.layers))
        for k in order if up else reversed(order):
            layer = layout.layers[k]
            wishes: list[float] = []
            weights: list[float] = []
            for v in layer:
                near = (above[v] if up else []) + (below[v] if down else [])
                # A chain follows what it can be straight with and nothing else, lest it lean.
                strongest = max((pull for _, pull in near), default=0)
                near = [(u, pull) for u, pull in near if 10 * pull >= strongest]
                weight = sum(pull for _, pull in near)
                mean = sum(pull * layout.centre(u) for u, pull in near) / (weight or 1)
                wishes.append(mean - layout.width[v] / 2 if near else layout.left[v])
                weights.append(weight or 0.05)
            for v, x in zip(layer, spread(wishes, gaps[k], weights), strict=True):
                layout.left[v] = x
    _round(layout, gaps, above)


def _round(layout: Layout, gaps: list[list[int]], above: _Adjacent) -> None:
    start = min(layout.left, default=0)
    for layer, gap in zip(layout.layers, gaps, strict=True):
        least = 0.0
        for vertex, step in zip(layer, [*gap, 0], strict=True):
            # Where all widths are odd, equal centres stay equal when rounded down.
            x = (layout.left[vertex] - start + 1e-6) // 1
            if len({upper for upper, _ in above[vertex]}) == 1:
                upper = above[vertex][0][0]
                beneath = layout.left[upper] + (layout.width[upper] - layout.width[vertex]) // 2
                # Nearly straight is what the sweeps leave of straight.
                x = beneath if abs(beneath - x) <= 1 else x
            layout.left[vertex] = max(least, x)
            least = layout.left[vertex] + step


def spread(wishes: Sequence[float], gaps: Sequence[int], weights: Sequence[float]) -> list[float]:
    """Return the ascending positions nearest to `wishes` whose successive differences are at least `gaps`."""
    # They are nearest in weighted least squares. The positions less the sum of the gaps before them must not decrease;
    # that is isotonic regression, and pooling adjacent violators solves it in one pass.
    offsets = [0.0]
    for gap in gaps:
        offsets.append(offsets[-1] + gap)
    pools: list[tuple[float, float, int]] = []
    for wish, offset, weight in zip(wishes, offsets, weights, strict=False):
        pool = (wish - offset, weight, 1)
        while pools and pools[-1][0] > pool[0]:
            mean, mass, size = pools.pop()
            total = mass + pool[1]
            pool = ((mean * mass + pool[0] * pool[1]) / total, total, size + pool[2])
        pools.append(pool)
    flat = [mean for mean, _, size in pools for _ in range(size)]
    return [x + offset for x, offset in zip(flat, offsets, strict=False)]


@dataclass(slots=True, eq=False)
class Track:
    """One horizontal line between two layers, in `row`, with its connections above and below."""

    # `link` is the column in which it is joined with its other half, where a hop had to be split.

    hop: int  # its number
    ups: tuple[int, ...]  # columns that it meets above
    downs: tuple[int, ...]  # columns that it meets below
    link: int | None = None
    after: Track | None = None  # the other half, which must stand above
    row: int = 0  # from the top

    @property
    def columns(self) -> list[int]:
        """Every column in which something meets it."""
        return [*self.ups, *self.downs, *([] if self.link is None else [self.link])]


def route(hops: Sequence[tuple[Sequence[int], Sequence[int]]]) -> tuple[list[Track], int]:
    """Give every hop, stated as its columns above and below, a row so that no two lines touch."""
    # A hop with one and the same column above and below is a straight line and needs no row. Return one track for a
    # hop, two (upper half first) for one that was split, and the number of rows.
    waiting = [
        Track(i, tuple(ups), tuple(downs)) for i, (ups, downs) in enumerate(hops) if {*ups, *downs} != {*ups[:1]}
    ]
    used = {column for ups, downs in hops for column in (*ups, *downs)}
    placed: list[Track] = []
    while waiting:
        blockers = {track: _blocker(track, waiting) for track in waiting}
        ready = [track for track, blocker in blockers.items() if blocker is None]
        if not ready:
            # Everything waits for something, so whoever is followed for long enough stands in a circle. No half
            # of a split hop does: an upper one waits for nothing, a lower one blocks nothing. So this ends.
            track = waiting[0]
            for _ in waiting:
                track = blockers[track] or track
            waiting.remove(track)
            waiting += _split(track, used)
            continue
        chosen = min(ready, key=lambda track: sum(_cost(track, o) - _cost(o, track) for o in waiting if o is not track))
        waiting.remove(chosen)
        low, high = min(chosen.columns), max(chosen.columns)
        met = [t for t in placed if min(t.columns) <= high + 1 and low <= max(t.columns) + 1]
        chosen.row = max((t.row + 1 for t in met), default=0)
        placed.append(chosen)
    return placed, max((track.row + 1 for track in placed), default=0)


def _blocker(track: Track, waiting: list[Track]) -> Track | None:
    """Return a track that waits and must stand above this one."""
    if track.after in waiting:
        return track.after
    downs = set(track.downs)
    return next((other for other in waiting if other is not track and not downs.isdisjoint(other.ups)), None)


def _split(track: Track, used: set[int]) -> list[Track]:
    """Split a track in two, joined in a column that nothing else uses."""
    middle = (min(track.columns) + max(track.columns)) // 2
    link = next(c for d in count() for c in (middle - d, middle + d) if c >= 0 and c not in used)
    used.add(link)
    upper = Track(track.hop, track.ups, (), link)
    return [upper, Track(track.hop, (), track.downs, link, after=upper)]


def _cost(above: Track, below: Track) -> int:
    """Count the crossings between two tracks if `above` stands above `below`."""
    low, high = min(above.columns), max(above.columns)
    least, most = min(below.columns), max(below.columns)
    return sum(low < c < high for c in below.ups) + sum(least < c < most for c in above.downs)
