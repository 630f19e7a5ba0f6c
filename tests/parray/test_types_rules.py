"""Random trees mean what the oracle says, element by element: offsets, properties, and what is refused."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import offload as omp
from tests.parray import oracle
from tests.parray.trees import Trees, library_type

TEAMS = [
    oracle.leaf(3),
    {"body": [oracle.leaf(2), oracle.leaf(2)], "refs": []},
    {"body": [oracle.leaf(2), oracle.leaf(3)], "refs": []},
    {"body": 4, "refs": [("disp", 1), ("wrap", 4)]},
]
TEAMS.append(
    {
        "body": [{"body": None, "refs": [("type", {"root": TEAMS[2], "path": (j,), "team": True})]} for j in (1, 0)],
        "refs": [],
    }
)


def meant_by(seed):
    """A random type as the oracle has it; every third one may refer to a thread array."""
    draw = random.Random(seed)
    team = oracle.make(draw.choice(TEAMS), team=True) if seed % 3 == 0 else None
    trees = Trees(seed, team=team, calls=seed % 5 == 0)
    return trees.type(draw.randint(1, 4), memory_only=team is None)


def offsets_of(meant):
    """What the oracle says: pairs of thread and memory, None where an index leaves."""
    found = []
    for k in range(oracle.size(meant)):
        try:
            found.append(oracle.offset(meant, k))
        except oracle.LeavesError:
            found.append(None)
    return found


def check(meant, made):
    """One type by itself, whole or a sub-dimension."""
    wanted, kind = offsets_of(meant), oracle.kind(meant)
    is_both = len(kind) == 2
    assert made.size == len(wanted)
    assert made.kind == ("both" if is_both else next(iter(kind)))
    for k, place in enumerate(wanted):
        if place is None:
            with pytest.raises(omp.LayoutError):
                made(k)
        elif is_both:
            assert made(k) == place
        else:
            assert made(k) == sum(place)
    if None in wanted:
        assert made.form is None  # else it had to be refused when it was made
        with pytest.raises(omp.LayoutError):
            made.offsets()
        return
    assert made.is_injective == (len(set(wanted)) == len(wanted))
    offsets = made.offsets()
    if is_both:
        assert [tuple(pair) for pair in zip(offsets.thread.tolist(), offsets.offset.tolist(), strict=True)] == wanted
        assert made.span == 1 + max((offset for _, offset in wanted), default=-1)
        return
    numbers = [sum(place) for place in wanted]
    assert offsets.tolist() == numbers
    assert offsets.dtype == "int64"
    assert made.nest == oracle.nest(numbers)
    assert made.step == oracle.step(numbers)
    assert made.is_contiguous == (oracle.step(numbers) == 1)
    assert made.is_identity == (numbers == list(range(len(numbers))))
    assert made.span == 1 + max(numbers, default=-1)


def check_seeds(seeds):
    """Make and check the types of some seeds; return how many there were of each sort."""
    counts = Counter()
    for seed in seeds:
        meant = meant_by(seed)
        try:
            whole = library_type(meant)
        except omp.LayoutError:
            counts["refused"] += 1
            assert any_leaves(meant), seed
            continue
        for each in oracle.trees(meant):
            made = whole[each["path"]] if each["path"] else whole
            check(each, made)
            counts[made.kind] += 1
            counts["digits" if made.form is not None else "elements"] += 1
    return counts


def any_leaves(meant):
    """Whether an index leaves in the type, or in one that it refers to, however deep: one of them was refused."""
    return None in offsets_of(meant) or any(any_leaves(each) for each in referred(meant["root"]))


def referred(dimension):
    for kind, what in dimension["refs"]:
        if kind == "type":
            yield {**what, "path": ()}
    for each in dimension["body"] if isinstance(dimension["body"], list) else []:
        yield from referred(each)


def test_random_types():
    """Whole types and all of their sub-dimensions are what the rules say, and only what leaves is refused."""
    counts = check_seeds(range(1000))
    assert min(counts[sort] for sort in ("refused", "memory", "threads", "both", "elements")) >= 10
    assert counts["digits"] > 5 * counts["elements"]


@pytest.mark.soak
def test_many_random_types():
    """The same for 9,000 others."""
    check_seeds(range(1000, 10_000))
