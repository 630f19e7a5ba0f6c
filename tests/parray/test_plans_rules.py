"""Plans of random pairs: every pair of places once, one box wherever that is promised, and errors where nothing is
meant."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from math import prod

import pytest

import offload as omp
from offload.parray import ArrayType, dim, disp, plan, threads, wrap
from tests.parray import oracle
from tests.parray.test_types_rules import TEAMS
from tests.parray.trees import Trees, library_type

SIZES = [1, 2, 4, 6, 8, 12, 12, 18, 24]


def places(meant):
    """What the oracle says of a type: (thread or None, offset) for each element; None if an index leaves."""
    try:
        found = [oracle.offset(meant, k) for k in range(oracle.size(meant))]
    except oracle.LeavesError:
        return None
    return found if oracle.is_both(meant) else [(None, sum(place)) for place in found]


def pairs_of(boxes):
    """The pairs of places that boxes copy, each as often as they do."""
    found = Counter()
    for box in boxes:
        assert all(count > 1 for count, _, _ in box.digits)
        for outer, inner in itertools.pairwise(box.digits):
            assert outer[1:] != (inner[0] * inner[1], inner[0] * inner[2]), "digits that continue each other are merged"
        for at in itertools.product(*(range(count) for count, _, _ in box.digits)):
            source = sum(k * step for k, (_, step, _) in zip(at, box.digits, strict=True))
            target = sum(k * step for k, (_, _, step) in zip(at, box.digits, strict=True))
            found[(box.source_thread, box.source_offset + source), (box.target_thread, box.target_offset + target)] += 1
    return found


def check_plan(made, source, target):
    """A plan has each pair of places once; ``source`` and ``target`` are their lists."""
    assert made.size == len(source)
    assert str(made)
    if made.kind == "indexed":
        assert made.boxes == ()
        return
    assert pairs_of(made.boxes) == Counter(zip(source, target, strict=True))
    kinds = {0: {"empty"}, 1: {"contiguous", "strided"}}
    assert made.kind in kinds.get(len(made.boxes), {"boxes"})
    if len(made.boxes) == 1:
        is_run = all((source_step, target_step) == (1, 1) for _, source_step, target_step in made.boxes[0].digits)
        assert (made.kind == "contiguous") == is_run


def meant_pair(seed):
    """Two random types of one size; every third pair may be distributed."""
    draw = random.Random(seed)
    n = draw.choice(SIZES)
    team = oracle.make(draw.choice(TEAMS), team=True) if seed % 3 == 0 else None
    sides = []
    for k in range(2):
        trees = Trees(2 * seed + k, team=team, leaves=0.02, calls=seed % 10 == 0)
        for _ in range(30):  # the target has to be injective, mostly
            meant = trees.type(draw.randint(1, 3), n=n, memory_only=team is None)
            found = places(meant)
            is_wanted = oracle.is_both(meant) if team is not None and k == seed % 2 else "memory" in oracle.kind(meant)
            if is_wanted and found and (k == 0 or len(set(found)) == n or draw.random() < 0.02):
                break
        sides.append(meant)
    return sides


def check_pairs(seeds):
    """Plan the pairs of some seeds; return how many there were of each kind."""
    counts = Counter()
    for seed in seeds:
        source, target = meant_pair(seed)
        try:
            types = library_type(source), library_type(target)
        except omp.LayoutError:
            counts["refused"] += 1
            continue
        wanted = places(source), places(target)
        team = max((side.threads.size for side in types if side.threads is not None), default=0)
        out = any(thread is not None and not 0 <= thread < team for side in wanted if side for thread, _ in side)
        is_lawful = None not in wanted and len(set(wanted[1])) == len(wanted[1]) and not out
        if not is_lawful or "threads" in {side.kind for side in types}:
            with pytest.raises(omp.LayoutError):
                plan(*types)
            counts["unlawful"] += 1
            continue
        made = plan(*types)
        check_plan(made, *wanted)
        assert plan(*types) is made
        counts[made.kind] += 1
        counts["distributed"] += "both" in {side.kind for side in types}
    return counts


def test_random_pairs():
    """Boxes have each pair of places once; a pair that cannot be copied is refused."""
    counts = check_pairs(range(400))
    assert min(counts[sort] for sort in ("contiguous", "strided", "boxes", "indexed", "unlawful")) >= 5
    assert counts["distributed"] >= 30


@pytest.mark.soak
def test_many_random_pairs():
    """The same for 1,000 others, of which 300 and more are over thread arrays."""
    counts = check_pairs(range(1000, 4000))
    assert counts["distributed"] >= 300


# -- what §9 promises ------------------------------------------------------------------------------
def permuted(draw, counts, *, thread=None, gaps=True):
    """A type with these digits, outermost first, whose strides are in a random order, some farther apart than they
    need to be.

    ``thread`` is a pair of digit and thread array: that digit counts threads.
    """
    order = list(range(len(counts)))
    draw.shuffle(order)
    strides, size = [0] * len(counts), 1
    for k in order:
        if thread is not None and k == thread[0]:
            continue
        strides[k] = size
        size *= counts[k]
        if gaps and draw.random() < 0.3:
            size += draw.randint(0, 5)
    storage = ArrayType(max(size, 1))
    tree = []
    for k, (count, stride) in enumerate(zip(counts, strides, strict=True)):
        if thread is not None and k == thread[0]:
            tree.append(thread[1])
        else:
            steps = ArrayType((count, stride))[0] if stride else count  # i -> i * stride
            tree.append(dim(count, steps, storage))
    return ArrayType(tuple(tree))


def grouped(draw, counts):
    """The same boundaries or fewer: some neighbours made one."""
    out = []
    for count in counts:
        if out and draw.random() < 0.4:
            out[-1] *= count
        else:
            out.append(count)
    return out


@pytest.mark.parametrize("scale", [1, 10**6])
def test_one_box_where_boundaries_divide(scale):
    """Affine types whose boundaries, put together, divide one another are one box, at any size."""
    for seed in range(300):
        draw = random.Random(seed)
        chain = [draw.choice([2, 3, 4, 5]) * (scale if draw.random() < 0.3 else 1) for _ in range(draw.randint(1, 6))]
        source, target = permuted(draw, grouped(draw, chain)), permuted(draw, grouped(draw, chain))
        made = plan(source, target)
        assert made.kind in {"contiguous", "strided"}, (str(source), str(target))
        assert made.size == prod(chain)


def test_a_shift_is_two_boxes():
    """One dimension shifted around that no boundary of the other type cuts: two boxes at most, at any size."""
    for seed in range(300):
        draw = random.Random(seed)
        chain = [draw.choice([2, 3, 4, 5, 10**5]) for _ in range(draw.randint(1, 5))]
        at = draw.randrange(len(chain))
        n, e = chain[at], draw.randint(-2 * chain[at], 2 * chain[at])
        tree = list(permuted(draw, chain).dims)
        tree[at] = dim(n, disp(e), wrap(n), tree[at])
        source = ArrayType(tree)
        other = permuted(draw, [*grouped(draw, chain[:at]), n, *grouped(draw, chain[at + 1 :])])
        assert source.size == other.size
        assert len(plan(source, other).boxes) in {1, 2}, (str(source), str(other))
        if source.is_injective:
            assert len(plan(other, source).boxes) in {1, 2}


def test_one_box_for_each_combination_of_threads():
    """Distributed types whose digits divide: no more boxes than values of the digits that change a thread number."""
    for seed in range(200):
        draw = random.Random(seed)
        chain = [draw.choice([2, 3, 4]) for _ in range(draw.randint(2, 5))]
        digits = [draw.randrange(len(chain)) for _ in range(2)]
        sides = [permuted(draw, chain, thread=(k, threads(chain[k]))) for k in digits]
        if sides[0].threads != sides[1].threads:
            sides[draw.randrange(2)] = ArrayType(tuple(chain))
        combinations = prod(chain[k] for k in {k for k, side in zip(digits, sides, strict=True) if side.kind == "both"})
        made = plan(*sides)
        assert 0 < len(made.boxes) <= combinations
        assert sum(box.size for box in made.boxes) == made.size
