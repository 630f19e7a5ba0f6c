"""Indices made of digits: what is proved of them against the enumeration of small nests."""

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from offload.loops.proofs.numbers import View
from tests.loops.test_independence_rules import check
from tests.profiles import examples

BATCH = 10
"""Nests of one example."""


def base(rng, variables, trips):
    """A number to take digits of: a variable, a shifted one, or the number of an iteration."""
    name = rng.choice(variables)
    match rng.randrange(5):
        case 0:
            return f"{name} + {rng.randint(-3, 5)}"
        case 1 if len(variables) > 1:
            return f"{variables[0]} * {rng.choice((trips[1], trips[1], 2))} + {variables[1]}"
        case 2:
            return f"{rng.choice((2, 3, -1))} * {name} + {rng.randint(0, 4)}"
        case _:
            return name


def digits(rng, text):
    """The digits of a number, weighted as in another order, or in some other way."""
    counts = [rng.choice((2, 3, 4)) for _ in range(rng.choice((1, 2, 2, 3)))]
    terms, unit = [], 1
    for place, count in enumerate(counts):
        quotient = f"({text}) // {unit}" if unit > 1 else f"({text})"
        is_last = place == len(counts) - 1 and rng.random() < 0.6
        terms.append(quotient if is_last else f"({quotient}) % {count}")
        unit *= count
    order = rng.sample(range(len(terms)), len(terms))
    weight, weights = 1, [0] * len(terms)
    for place in order:
        weights[place] = weight if rng.random() < 0.9 else rng.randint(-2, 3)
        weight *= counts[place]
    if rng.random() < 0.1:
        terms.pop()
    return " + ".join(f"{by} * ({term})" for by, term in zip(weights, terms, strict=False)) or "0"


def a_nest(rng):
    """A nest whose accesses are by digits; two of them often by the same ones."""
    names = ["i", "j"][: rng.choice((1, 1, 2))]
    ranges = [range(rng.randint(2, 12 if len(names) == 1 else 5)) for _ in names]
    trips = [len(each) for each in ranges]
    made = digits(rng, base(rng, names, trips))
    other = made if rng.random() < 0.5 else digits(rng, base(rng, names, trips))
    if len(names) > 1 and rng.random() < 0.3:
        made += f" + {rng.choice((8, 12, 16))} * j"
    indent = " " * len(names)
    body = [f"{indent}a[{made}] = b[{other}]"]
    if rng.random() < 0.3:
        body.append(f"{indent}b[{digits(rng, base(rng, names, trips))}] = 1")
    views = {"a": View((64,), (8,), 8, 0), "b": View((64,), (8,), 8, 0 if rng.random() < 0.4 else 1 << 20)}
    return ranges, body, views


def run(rng, counts):
    check(*a_nest(rng), [0] * 5, counts)


@settings(max_examples=examples(40, soak=4_000), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_against_enumeration(seed):
    """Nothing that is proved of a nest with digits is wrong."""
    rng = random.Random(seed)
    for _ in range(BATCH):
        run(rng, Counter())


def test_most_are_proved():
    """Few nests whose iterations are independent stay unknown."""
    rng, counts = random.Random(1), Counter()
    for _ in range(400):
        run(rng, counts)
    assert counts["parallel"] > 100, counts
    assert counts["missed"] < counts["parallel"], counts
    assert counts["sequential"] > 10, counts
