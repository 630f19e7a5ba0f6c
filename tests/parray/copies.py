"""Random pairs of types that can be copied, arrays for them at random places, and what a copy has to come to."""

from __future__ import annotations

import random
from functools import partial

import numpy as np

import offload as omp
from offload.errors import LayoutError
from tests.parray import oracle
from tests.parray.trees import Pair, Trees, library_type

DTYPES = ("u1", "i2", "f4", "f8", "c16")
HOST_DTYPES = ("M8[s]", "V3", "V12", [("a", "u1"), ("b", "f4")])


def factors_of(rng, n):
    """Sizes of some dimensions whose product is n."""
    found = []
    while n > 1 and len(found) < 4:
        factor = rng.choice([k for k in range(2, n + 1) if n % k == 0])
        found.append(factor)
        n //= factor
    if n > 1:
        found.append(n)
    return found or [1]


def regular(rng, n, team):
    """A type of n elements, each with a place of its own: permuted, padded, windowed, some dimension shifted around."""
    factors = factors_of(rng, n)
    n_threads = 0 if team is None else oracle.size(team)
    spread = next((j for j, factor in enumerate(factors) if factor <= n_threads), None)
    inside = [j for j in range(len(factors)) if j != spread]
    order = rng.sample(inside, len(inside))
    pads = {j: (rng.randint(0, 2), rng.randint(0, 2)) for j in inside}
    whole = oracle.make(
        {"body": [oracle.leaf(factors[j] + sum(pads[j])) for j in order] or [oracle.leaf(1)], "refs": []}
    )
    dims = []
    for j, factor in enumerate(factors):
        if j == spread:
            room = n_threads - factor
            refs = [("disp", rng.randint(0, room))] if rng.random() < 0.5 else []
            if not room and rng.random() < 0.3:
                refs = [("disp", rng.randint(-2, 3)), ("wrap", factor)]
            refs.append(("type", team))
        else:
            refs = [("disp", pads[j][0]), ("type", oracle.sub(whole, order.index(j)))]
            if rng.random() < 0.2:
                refs = [("disp", rng.randint(-3, 3)), ("wrap", factor), *refs]
        dims.append({"body": factor, "refs": refs})
    if not inside:  # threads alone are no side of a copy
        dims.append({"body": 1, "refs": [("type", whole)]})
    rng_order = dims if rng.random() < 0.5 else [{"body": dims, "refs": []}]
    return oracle.make({"body": rng_order, "refs": []})


def is_side(meant, *, is_target):
    """Whether a type can be a side of a copy."""
    try:
        made = library_type(meant)
        found = [oracle.offset(meant, k) for k in range(oracle.size(meant))]
    except (oracle.LeavesError, LayoutError):
        return False
    if oracle.kind(meant) == {"threads"} or made.least < 0 or made.span > 3000:
        return False
    if made.threads is not None and not all(0 <= thread < made.threads.size for thread, _ in found):
        return False
    return not is_target or len(set(found)) == len(found)


def drawn_type(rng, n, team):
    """A type of n elements, or None where the draw gives none."""
    try:
        drawn = Trees(rng.getrandbits(32), team=team, leaves=0.05).type(3, n=n, memory_only=team is None)
    except IndexError:  # nothing to choose from
        return None
    return rng.choice([each for each in oracle.trees(drawn) if oracle.size(each) == n])


def pair_of(seed, n_threads=(2, 3, 4)):
    """A source and a target of one size; of every third seed one at least is distributed over so many threads."""
    rng = random.Random(seed)
    team = oracle.make(oracle.leaf(rng.choice(n_threads)), team=True) if seed % 3 == 0 else None
    for attempt in range(1000):
        n = rng.choice([1, 4, 6, 8, 12, 24, 36, 48])
        sides = []
        for is_target in (False, True):
            for _ in range(20):
                of = team if rng.random() < 0.8 else None
                drawn = drawn_type(rng, n, of) if rng.random() < (0.4 if is_target else 0.6) else regular(rng, n, of)
                if drawn is not None and is_side(drawn, is_target=is_target):
                    sides.append(drawn)
                    break
        if len(sides) == 2 and (team is None or attempt > 500 or any(oracle.is_both(side) for side in sides)):
            return [Pair(side, partial(library_type, side)) for side in sides]
    raise AssertionError(seed)


class Arrays:
    """The storage of a type: an array, or one for each thread, at random places, with what it holds on the host."""

    def __init__(self, rng, meant, span, dtype, n_devices, size=None):
        self.is_list = oracle.is_both(meant)
        n_threads = 1 + max((oracle.offset(meant, k)[0] for k in range(oracle.size(meant))), default=0)
        self.held, self.given = [], []
        where = rng.choice(["host", "one", "any"])
        one = rng.randrange(max(1, n_devices))
        for _ in range(n_threads if self.is_list else 1):
            n = size or span + rng.randint(0, 3)
            nbytes = n * np.dtype(dtype).itemsize
            held = np.frombuffer(rng.randbytes(nbytes), np.uint8).copy().view(dtype)
            place = {"host": -1, "one": one, "any": rng.randint(-1, n_devices - 1)}[where]
            if place < 0 or not n_devices or dtype not in DTYPES or not n:
                self.given.append(held.copy())
            else:
                given = omp.target_alloc(n, dtype, place)
                omp.target_memcpy(given, held)
                self.given.append(given)
            self.held.append(held)

    @property
    def argument(self):
        return self.given if self.is_list else self.given[0]

    def now(self):
        """What the arrays hold, as bytes."""
        found = []
        for given in self.given:
            host = given
            if not isinstance(given, np.ndarray):
                host = np.empty(given.shape, given.dtype)
                omp.target_memcpy(host, given)
            found.append(host.tobytes())
        return found

    def free(self):
        for given in self.given:
            if not isinstance(given, np.ndarray):
                omp.target_free(given)


def copied(source, sources, target, targets):
    """Copy index by index, as if at once, between what arrays hold; return what the targets' hold then, as bytes."""
    values = []
    for k in range(oracle.size(source)):
        thread, offset = oracle.offset(source, k)
        values.append(sources.held[thread][offset : offset + 1].tobytes())
    found = [bytearray(held.tobytes()) for held in targets.held]
    for k, value in enumerate(values):
        thread, offset = oracle.offset(target, k)
        found[thread][offset * len(value) : (offset + 1) * len(value)] = value
    return [bytes(each) for each in found]
