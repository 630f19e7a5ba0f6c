"""The exchange log against its question, whatever the schedule: exhausted in a model, drawn for the real text."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest

import offload as omp
from tests.conftest import checked
from tests.loops.speculation import made, noted, quiet
from tests.loops.steps import Words, loop_of, truth, verdict
from tests.profiles import examples, few

BASE, IDS, MANY = 5, (6, 7, 8), 9
OPERATIONS = ["", "L", "S", "LL", "LS", "SL", "SS"]


def reduced(operations):
    """Return what is logged of an iteration's operations on one element, when all is left out that may be."""
    return ("S" if "S" in operations else "") or ("L" if "L" in operations else "")


def answers(programs, old, *, looks=False):
    """Return all answers of the log that some schedule gives to three iterations on one element.

    A state is where each iteration is, with what it has seen, the words, all values that ``rd`` has had (the first look
    may be of any age), and the flag.
    """
    start = tuple((operations, "") for operations in programs), old, old, frozenset({old}), False
    found, seen, waiting = set(), {start}, [start]
    while waiting:
        iterations, wr, rd, past, flag = waiting.pop()
        moved = False
        for k, ((operations, step), own) in enumerate(zip(iterations, IDS, strict=True)):
            if not operations:
                continue
            moved = True
            if looks and not step and wr == own:
                state = (*iterations[:k], (operations[1:], ""), *iterations[k + 1 :]), wr, rd, past, flag
                if state not in seen:
                    seen.add(state)
                    waiting.append(state)
            for after in _steps(operations, step, own, wr, rd, past, flag):
                state = (*iterations[:k], after[0], *iterations[k + 1 :]), *after[1:]
                if state not in seen:
                    seen.add(state)
                    waiting.append(state)
        if not moved:
            found.add(flag or (wr > BASE and rd > BASE and rd != wr))
    return found


def _steps(operations, step, own, wr, rd, past, flag):
    """Yield what a step of an iteration may lead to."""
    rest = (operations[1:], "")
    if operations[0] == "S":
        yield rest, own, rd, past, flag or (wr > BASE and wr != own)
    elif not step:
        for value in past:  # a look of any age
            yield rest if value == MANY else (operations, "seen"), wr, rd, past, flag
    elif step == "seen":
        new = max(rd, own)
        after = (operations, "met") if rd > BASE and rd != own else rest
        yield after, wr, new, past | {new}, flag
    else:
        yield rest, wr, MANY, past | {MANY}, flag


@pytest.mark.parametrize("old", [0, BASE])
@pytest.mark.parametrize(("leaves_out", "looks"), [(False, False), (True, False), (False, True)])
def test_every_order_gives_the_right_answer(old, leaves_out, looks):
    """Three iterations of up to two operations each: all schedules of their steps say what is so, and nothing else."""
    for programs in product(OPERATIONS, repeat=3):
        kinds = {"S": "store", "L": "load"}
        accesses = [(k, kinds[one], 0) for k, of in enumerate(programs) for one in of]
        given = tuple(map(reduced, programs)) if leaves_out else programs
        assert answers(given, old, looks=looks) == {not truth(accesses)}, programs


TEXTS = {
    "a[p[i]] = i": [("store", "p")],
    "b[i] = a[p[i]]; a[q[i]] = i": [("load", "p"), ("store", "q")],
    "a[p[i]] = a[p[i]] + 1": [("load", "p"), ("store", "p")],
    "a[p[i]] = 2; b[i] = a[p[i]]": [("store", "p"), ("load", "p")],
    "a[p[i]] = 1; a[q[i]] = 2": [("store", "p"), ("store", "q")],
    "t = a[p[i]]; a[p[i]] = a[q[i]]; a[q[i]] = t": [("store", "p"), ("store", "q")],
    "b[i] = a[p[i]] if q[i] else 0": [("load if", "p")],
    "b[i] = a[p[i]] if q[i] else 0; a[q[i]] = 1": [("load if", "p"), ("store", "q")],
    "if q[i]:\n            a[p[i]] = 1\n        b[i] = a[p[i]]": [("store if", "p"), ("load", "p")],
    "for j in range(2):\n            a[p[i]] += j": [("store", "p")],
    "for j in range(2):\n            b[i] += a[p[j]]\n        a[q[i]] = 1": [("load all", "p"), ("store", "q")],
    "a[q[i]] = 1\n        for j in range(2):\n            b[i] += a[p[j]]": [("load all", "p"), ("store", "q")],
    "for j in range(2):\n            a[q[j] * p[i]] = 1\n        for j in range(2):\n            a[p[j] * q[i]] += 1": [
        ("store times", "qp"),
        ("store times", "pq"),
    ],
}
"""Texts of an iteration, with what they do to `a` by which table; ``if`` where ``q[i]`` is not 0."""


def accesses_of(text, tables):
    for i in range(3):
        for kind, name in TEXTS[text]:
            word, *when = kind.split()
            if when == ["times"]:
                yield from ((i, word, tables[name[0]][j] * tables[name[1]][i]) for j in range(2))
            elif when == ["all"]:
                yield from ((i, word, tables[name][j]) for j in range(2))
            elif not when or tables["q"][i]:
                yield i, word, tables[name][i]


@pytest.mark.parametrize("text", few(3, sorted(TEXTS, key=len, reverse=True)))
def test_the_text_answers_as_the_model(text):
    """What is generated, with all left out that may be, says what is so, at any order of its steps."""
    rng = random.Random(text)
    names = [name for name in "abpq" if f"{name}[" in text]
    function = made(text, *names)
    for p, q in product(product((0, 1), repeat=3), repeat=2):
        tables = {"p": p, "q": q}
        arrays = {"a": np.zeros(2), "b": np.zeros(3), "p": np.array(p), "q": np.array(q)}
        loop, values = loop_of(function, (*[arrays[name] for name in names], 3))
        right = truth(list(accesses_of(text, tables)))
        words = Words()
        for _ in range(4):
            assert verdict(loop, values, rng, words) == right, tables


@pytest.mark.parametrize(
    ("text", "loads", "stores"),
    [
        ("a[p[i]] = a[p[i]] + 1", 0, 1),
        ("a[p[i]] = 1; a[p[i]] = a[p[i]] * 2", 0, 1),
        ("b[i] = a[p[i]] + a[p[i]]; a[q[i]] = 1", 1, 1),
        ("t = a[p[i]]; a[p[i]] = a[q[i]]; a[q[i]] = t", 0, 2),
        ("b[i] = a[p[i]]", 0, 0),
        ("if q[i]:\n            a[p[i]] = 1\n        b[i] = a[p[i]]", 1, 1),
        ("b[i] = a[p[i]]; a[p[i] + 0] = 2", 0, 1),
        ("for j in range(2):\n            b[i] += a[p[j]]\n        a[q[i]] = 1", 1, 1),
    ],
)
def test_what_is_left_out(text, loads, stores):
    """No load is logged whose element the iteration certainly stores to, and no access twice."""
    names = [name for name in "abpq" if f"{name}[" in text]
    arrays = {"a": np.zeros(9), "b": np.zeros(9), "p": np.arange(9), "q": np.arange(9)}
    loop, _ = loop_of(made(text, *names), (*[arrays[name] for name in names], 3))
    assert (len(loop.needs.loads), len(loop.needs.stores)) == (loads, stores)
    assert len(loop.logged.readers) == bool(loads)


def test_rows_have_one_word():
    """Where each iteration has the same elements of a row the log tells rows apart, and no more."""
    text = "for j in range(3):\n            a[p[i], j] += i"
    loop, values = loop_of(made(text, "a", "p"), (np.zeros((5, 3)), np.arange(4), 4))
    assert loop.logged.n_cells == {"a": 5}
    assert verdict(loop, values, random.Random(1))
    values["p"][2] = 1
    assert not verdict(loop, values, random.Random(1))
    apart = "a[p[i], 0] = i; a[q[i], 1] = i"
    loop, values = loop_of(made(apart, "a", "p", "q"), (np.zeros((5, 2)), np.arange(4), np.arange(4) + 1, 4))
    assert loop.logged.n_cells == {"a": 10}
    assert verdict(loop, values, random.Random(1))


def patterns(seed):
    """Return accesses at random: of ``n`` iterations, each with a store and two loads, some of them of one element."""
    rng = np.random.default_rng(seed)
    n = (7, 24)[seed % 2]
    size = (1, 3, 5)[seed % 3] * n
    p = rng.permutation(size)[:n] if rng.random() < 0.7 else rng.integers(0, size, n)
    if rng.random() < 0.3:
        p = p - size
    q = rng.integers(0, size, n)
    if rng.random() < 0.5:
        q = rng.permutation(np.setdiff1d(np.arange(size), p % size, assume_unique=False)) if size > n else q
        q = np.resize(q, n) if len(q) else p.copy()
    own = rng.random(n) < 0.5
    return np.where(own, p, q), p, np.zeros(size), n


def gathered(q, p, a, n):
    for i in range(n):
        t = a[q[i]]
        if i % 3 > 0:
            a[p[i]] = t + 1.0


@pytest.mark.hypothesis
def test_many_patterns():
    """On a device the log says of random accesses what NumPy says of them."""
    loop = omp.target_loop(gathered, speculate="always")
    with checked("sim:1", seed=7), noted() as found, quiet():
        for seed in range(examples(1000)):
            q, p, a, n = patterns(seed)
            size, i = len(a), np.arange(n)
            stores = p[i % 3 > 0] % size
            writer = np.full(size, -1)
            writer[stores] = i[i % 3 > 0]
            met = writer[q % size]
            right = len(np.unique(stores)) == len(stores) and not ((met >= 0) & (met != i)).any()
            expected = a.copy()
            gathered(q, p, expected, n)
            found.clear()
            loop(q, p, a, n)
            assert [one is None for one in found] == [right], seed
            assert (a == expected).all()
