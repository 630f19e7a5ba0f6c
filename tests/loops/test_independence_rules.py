"""Verdicts, distances and extremes against the enumeration of small nests."""

import random
import sys
from collections import Counter, defaultdict
from itertools import product
from math import prod

from hypothesis import given, settings
from hypothesis import strategies as st

from offload.loops.proofs.bounds import bounds, is_overwritten
from offload.loops.proofs.independence import independence
from offload.loops.proofs.numbers import View
from tests.loops.building import accesses_of
from tests.profiles import examples

BATCH = 20
"""Nests of one example."""


class Recorder:
    """An array that writes down who touches which bytes; the element of an index array is what `contents` says."""

    def __init__(self, name, view, trace, contents=None):
        self.name, self.view, self.trace, self.contents = name, view, trace, contents

    def touch(self, kind, indices):
        indices = indices if isinstance(indices, tuple) else (indices,)
        key = self.name, kind, sys._getframe(2).f_lineno
        is_inside = all(-n <= index < n for index, n in zip(indices, self.view.extents, strict=True))
        first = self.view.address
        for index, n, stride in zip(indices, self.view.extents, self.view.strides, strict=True):
            first += (index % n if n else 0) * stride
        self.trace.events.append((key, self.trace.iteration, indices, first if is_inside else None))
        return indices

    def __getitem__(self, indices):
        indices = self.touch("load", indices)
        return self.contents[indices[0] % len(self.contents)] if self.contents else 0

    def __setitem__(self, indices, value):
        self.touch("store", indices)


class Trace:
    def __init__(self):
        self.events, self.iteration = [], ()


def affine(rng, variables):
    terms = [f"{rng.choice((-2, -1, 1, 1, 1, 2, 3))}*{name}" for name in variables if rng.random() < 0.6]
    return " + ".join([*terms, str(rng.randint(-3, 6))])


def index(rng, variables):
    made = affine(rng, variables)
    match rng.randrange(14):
        case 0:
            return f"({made}) // 2"
        case 1:
            return f"({made}) % 4"
        case 2:
            return f"p[({made}) % 5]"
        case 3:
            return f"({made}) + p[2]"
        case 4:
            return str(rng.randint(-4, 3))
        case _:
            return made


def statements(rng, variables, ndims, depth, indent):
    """Return lines; each has accesses that differ in array or kind."""
    pad, lines = " " * indent, []

    def access():
        name = rng.choice(tuple(ndims))
        return f"{name}[{', '.join(index(rng, variables) for _ in range(ndims[name]))}]"

    for _ in range(rng.randint(1, 2)):
        match rng.randrange(8) if depth else 7:
            case 0 | 1:
                name = f"k{depth}"
                bounds_ = (
                    f"{affine(rng, variables[:1])}, {affine(rng, variables[-1:])}, {rng.choice((1, 1, -1, 2, -3))}"
                )
                plain = f"{rng.randint(-2, 2)}, {rng.randint(1, 4)}"
                lines.append(f"{pad}for {name} in range({bounds_ if rng.random() < 0.5 else plain}):")
                lines += statements(rng, [*variables, name], ndims, depth - 1, indent + 1)
                if rng.random() < 0.15:
                    lines.append(f"{pad} if {name} > 1: {rng.choice(('break', 'continue'))}")
                    lines += statements(rng, [*variables, name], ndims, 0, indent + 1)
            case 2:
                lines.append(f"{pad}if {variables[-1]} > {rng.randint(-1, 3)}:")
                lines += statements(rng, variables, ndims, depth - 1, indent + 1)
            case 3:
                lines.append(f"{pad}t = {affine(rng, variables)}")
                lines.append(
                    f"{pad}{rng.choice(tuple(n for n in ndims if ndims[n] == 1))}[t + {rng.randint(-1, 2)}] = 1"
                )
            case _:
                lines.append(f"{pad}{access()} = {access() if rng.random() < 0.7 else 1}")
    return lines


def views_of(rng, ndims):
    """Return views of one buffer that may overlap, of elements of 8 bytes, some of 4."""
    views = {}
    for name, ndim in ndims.items():
        if ndim == 1:
            stride, itemsize = rng.choice((8, 8, 8, 16, -8, 4, 0)), rng.choice((8, 8, 8, 4))
            views[name] = View((rng.randint(4, 14),), (stride,), itemsize, 4 * rng.randint(0, 32))
        else:
            row = rng.choice((8, 8, 5, 3))
            views[name] = View((rng.randint(2, 8), rng.randint(2, 8)), (8 * row, 8), 8, 8 * rng.randint(0, 8))
    if rng.random() < 0.4:
        views["b"] = views["a"]
    if rng.random() < 0.4:
        views["b"] = View(views["b"].extents, views["b"].strides, views["b"].itemsize, 1 << 20)
    return views


def a_nest(rng):
    """Return the text of a nest, its axes' ranges, and its views."""
    n_axes = rng.choice((1, 1, 2))
    names = ["i", "j"][:n_axes]
    ndims = {"a": 1, "b": 1, "c": 2}
    ranges = []
    for _ in names:
        start, step = rng.randint(-1, 3), rng.choice((1, 1, 1, 2, -1, -2))
        ranges.append(range(start, start + step * rng.randint(1, 5), step))
    body = statements(rng, names, ndims, 2, n_axes)
    return ranges, body, views_of(rng, ndims)


def traced(ranges, body, views, contents):
    """Carry out a nest and return its trace; lines are those of the text with the loops before the body."""
    trace = Trace()
    names = ["i", "j"][: len(ranges)]
    source = "\n" * (len(ranges) - 1) + f"def body({', '.join(names)}):\n" + "\n".join(body)
    scope = {name: Recorder(name, view, trace) for name, view in views.items()}
    scope["p"] = Recorder("p", View((len(contents),), (8,), 8, 1 << 30), trace, contents)
    exec(source, scope)
    for trips in product(*(range(len(each)) for each in ranges)):
        trace.iteration = trips
        scope["body"](*(each[trip] for each, trip in zip(ranges, trips, strict=True)))
    return trace.events


def dependences(events, itemsizes):
    """Return what depends on what, and how far: (key of the earlier iteration's access, of the later one, distance)."""
    by_byte = defaultdict(set)
    for key, iteration, _, first in events:
        if first is not None:
            for byte in range(first, first + itemsizes[key[0]]):
                by_byte[byte].add((key, iteration))
    found = set()
    for touched in by_byte.values():
        for (one, before), (other, after) in product(touched, touched):
            if before < after and "store" in {one[1], other[1]}:
                found.add((one, other, tuple(b - a for a, b in zip(before, after, strict=True))))
    return found


def check(ranges, body, views, contents, counts):
    header = "".join(f"{' ' * k}for {'ij'[k]} in range({r.start}, {r.stop}, {r.step}):\n" for k, r in enumerate(ranges))
    text = header + "\n".join(body)
    arrays = views | {"p": View((len(contents),), (8,), 8, 1 << 30)}
    accesses = accesses_of(text, arrays, collapse=len(ranges))
    events = traced(ranges, body, views, contents)
    check_bounds(text, accesses, events)
    check_verdict(text, accesses, events, counts)
    check_coverage(text, accesses, events)


def key_of(access):
    return access.array, access.kind, access.place.line


def check_bounds(text, accesses, events):
    seen = defaultdict(list)
    for key, _, indices, _ in events:
        seen[key].append(indices)
    keys = Counter(key_of(access) for access in accesses.listed)
    assert seen.keys() <= keys.keys(), text
    for access in accesses.listed:
        key = key_of(access)
        if keys[key] > 1:
            continue
        found = bounds(accesses)[access.at]
        for dimension, (interval, index_) in enumerate(zip(found.intervals, access.indices, strict=True)):
            values = [indices[dimension] for indices in seen[key]]
            extent = accesses.extents[access.array][dimension]
            low, high = interval or (-(1 << 63), 1 << 63)
            assert all(low <= value <= high for value in values), (text, access, found)
            assert found.mode == "check" or all(-extent <= value < extent for value in values), (text, access)
            assert found.mode != "off" or all(value >= 0 for value in values), (text, access)
            if access.is_certain and index_.is_exact and accesses.space.is_attained(index_.form):
                assert (low, high) == (min(values), max(values)), (text, access, found)
        if found.outside is not None:
            dimension, value = found.outside
            assert any(indices[dimension] == value for indices in seen[key]), (text, access)


def check_verdict(text, accesses, events, counts):
    itemsizes = {name: view.itemsize for name, view in accesses.launch.views.items()}
    truth = dependences(events, itemsizes)
    found = independence(accesses)
    counts[found.verdict] += 1
    counts["missed"] += found.verdict == "unknown" and not truth
    for proved in found.dependences:
        claim = key_of(proved.source), key_of(proved.sink), proved.distance
        assert claim in truth, (text, accesses.launch, proved)
        kinds = {("load", "store"): "anti", ("store", "load"): "flow", ("store", "store"): "output"}
        assert kinds[proved.source.kind, proved.sink.kind] == proved.kind
    proved_keys = {frozenset((key_of(each.source), key_of(each.sink))) for each in found.dependences}
    unknown = {key_of(access) for access in accesses.listed if access.at in found.unknown}
    for one, other, _ in truth:
        is_known = frozenset((one, other)) in proved_keys or {one, other} <= unknown
        assert is_known, (text, accesses.launch, one, other, found)


def check_coverage(text, accesses, events):
    for array in accesses.launch.views:
        if not is_overwritten(accesses, array):
            continue
        extents = accesses.extents[array]
        written = {
            tuple(index % extent for index, extent in zip(indices, extents, strict=True))
            for key, _, indices, first in events
            if key[:2] == (array, "store") and first is not None
        }
        assert len(written) == prod(extents), (text, array)


@settings(max_examples=examples(60, soak=2_000), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_against_enumeration(seed):
    """Nothing that is proved of a random nest is wrong: no verdict, no distance, no extreme, no element left out."""
    rng = random.Random(seed)
    for _ in range(BATCH):
        contents = [rng.randint(-2, 5) for _ in range(5)]
        check(*a_nest(rng), contents, Counter())


def test_enumeration_meets_all_verdicts():
    """Random nests have every verdict often enough to mean something."""
    rng = random.Random(1)
    counts = Counter()
    for _ in range(300):
        check(*a_nest(rng), [rng.randint(-2, 5) for _ in range(5)], counts)
    assert min(counts["parallel"], counts["sequential"], counts["unknown"]) > 30, counts
