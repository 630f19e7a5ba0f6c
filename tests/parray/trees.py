"""Random trees, twice: as the oracle reads them and as the library does; and the 1,000 seeds that the tests share."""

from __future__ import annotations

import random

from offload.parray import ArrayType, dim, disp, func, threads, wrap
from tests.parray import oracle

MOST_ELEMENTS = 60


class Pair:
    """One type, written for the oracle (``meant``) and for the library (``made``, made when it is asked for)."""

    def __init__(self, meant, make):
        self.meant = meant
        self.make = make
        self.size = oracle.size(meant)

    @property
    def made(self):
        return self.make()


def library(dimension):
    """A dimension of the oracle's as the library's."""
    body = dimension["body"]
    inner = tuple(library(each) for each in body) if isinstance(body, list) else body
    if not dimension["refs"]:
        return inner
    return dim(inner, *(reference(each) for each in dimension["refs"]))


def reference(ref):
    kind, what = ref
    return {"type": library_type, "disp": disp, "wrap": wrap, "table": func, "call": func}[kind](what)


def library_type(of):
    root = threads(library(of["root"])) if of["team"] else ArrayType(library(of["root"]))
    return root[of["path"]] if of["path"] else root


class Trees:
    """Random trees of a seed."""

    def __init__(self, seed, *, team=None, leaves=0.15, calls=False):
        self.draw = random.Random(seed)
        self.team = team  # an oracle's thread array, or None
        self.leaves = leaves  # how often a reference may be out of range
        self.calls = calls

    def type(self, depth=3, *, n=None, memory_only=True):
        """A type, of ``n`` elements if that is given, or one of its sub-dimensions."""
        size = self.draw.choice([1, 2, 3, 4, 6, 8, 12]) if n is None else n
        root = self.dimension(depth, size, memory_only=memory_only)
        return oracle.make(root)

    def dimension(self, depth, n, *, memory_only=True):
        """A dimension of ``n`` elements."""
        kind = self.draw.random()
        if kind < 0.25 and depth:
            pure = self.pure(depth, n, memory_only=memory_only)
            if pure is not None:
                return pure
        body = self.body(depth, n, memory_only=memory_only)
        refs = self.refs(depth, body, memory_only=memory_only) if kind < 0.6 and depth else []
        return {"body": body, "refs": refs}

    def body(self, depth, n, *, memory_only):
        if not depth or self.draw.random() < 0.4:
            return n
        factors = [k for k in range(1, n + 1) if n and n % k == 0] or [0]
        first = self.draw.choice(factors)
        rest = n // first if first else self.draw.randint(1, 3)
        sizes = [first, rest] if self.draw.random() < 0.8 else [first, 1, rest]
        if self.draw.random() < 0.1:
            sizes = [n]
        return [self.dimension(depth - 1, size, memory_only=memory_only) for size in sizes]

    def pure(self, depth, n, *, memory_only):
        """A pure reference of ``n`` elements: a type, a piece of one, a wrap or a table."""
        choice = self.draw.random()
        if self.team is not None and not memory_only and self.draw.random() < 0.5:
            pieces = [each for each in oracle.trees(self.team) if oracle.size(each) == n]
            if not pieces:
                return None
            return {"body": None, "refs": [("type", self.draw.choice(pieces))]}
        if choice < 0.15 and n:
            first = ("wrap", n)
        elif choice < 0.3 and n:
            first = ("table", [self.draw.randint(-3, 20) for _ in range(n)])
        elif choice < 0.35 and n == 1:
            first = ("disp", self.draw.randint(-2, 5))
        else:
            of = self.type(depth - 1, n=n)
            pieces = [each for each in oracle.trees(of) if oracle.size(each) == n]
            first = ("type", self.draw.choice(pieces))
        most = self.most([first], n)
        return {"body": None, "refs": [first, *self.rest(depth, most, memory_only=memory_only)]}

    def most(self, refs, n):
        """The least and greatest index behind references, as far as they can be asked; None where they leave."""
        try:
            found = [sum(oracle.through(refs, k)) for k in range(n)]
        except oracle.LeavesError:
            return None
        return (min(found), max(found)) if found else (0, 0)

    def refs(self, depth, body, *, memory_only):
        dimension = {"body": body, "refs": []}
        n = oracle.size_of(dimension)
        try:
            regular = [oracle.body_parts(dimension, k, 1)[0] for k in range(n)]
        except oracle.LeavesError:
            return [("disp", 1)]
        return self.rest(depth, (min(regular, default=0), max(regular, default=0)), memory_only=memory_only, some=True)

    def rest(self, depth, most, *, memory_only, some=False):
        """A chain that mostly stays in range."""
        refs = []
        while most is not None and (self.draw.random() < 0.45 or (some and not refs)):
            low, high = most
            choice = self.draw.random()
            if choice < 0.3:
                ref = ("disp", self.draw.randint(-3, 6))
            elif choice < 0.5:
                ref = ("wrap", self.draw.randint(1, max(high, 1) + 3))
            elif choice < 0.65:
                ref = ("table", self.table(max(high, 0) + 1 - (self.draw.random() < self.leaves / 2)))
            elif choice < 0.7 and self.calls:
                ref = ("call", self.draw.choice([lambda i: 3 * i + 1, lambda i: i * i, lambda i: -i]))
            elif low < 0 and self.draw.random() > self.leaves:
                ref = ("disp", -low)
            elif self.team is not None and not memory_only and self.draw.random() < 0.4:
                pieces = [each for each in oracle.trees(self.team) if oracle.size(each) > high]
                if not pieces:
                    continue
                refs.append(("type", self.draw.choice(pieces)))
                break
            elif self.team is not None and not memory_only and depth and self.draw.random() < 0.5:
                of = self.type(depth - 1, n=high + 1 + self.draw.randint(0, 3), memory_only=False)
                refs.append(("type", of))  # perhaps a distributed one, the last of its chain
                break
            else:
                ref = ("type", self.reaching(depth, high))
            refs.append(ref)
            if ref[0] == "call":
                low, high = min(ref[1](k) for k in (low, high)), max(ref[1](k) for k in (low, 0, high))
                most = (min(low, 0), high)
                continue
            try:
                found = [sum(oracle.through([ref], k)) for k in range(low, high + 1)]
            except oracle.LeavesError:
                break
            most = min(found), max(found)
            if most[1] > 4 * MOST_ELEMENTS:
                break
        return refs

    def reaching(self, depth, high):
        """A type that mostly has more than ``high`` elements."""
        n = high + 1
        if self.draw.random() < 0.6:
            n += self.draw.randint(0, 6)
        if self.draw.random() < self.leaves:
            n = max(1, n - 1)
        of = self.type(max(depth - 1, 0), n=n)
        return self.draw.choice([each for each in oracle.trees(of) if oracle.size(each) >= min(n, high + 1)] or [of])

    def table(self, n):
        if self.draw.random() < 0.4:
            step, base = self.draw.randint(-2, 3), self.draw.randint(0, 4)
            return [base + step * k for k in range(n)]
        return [self.draw.randint(-1, 15) for _ in range(n)]
