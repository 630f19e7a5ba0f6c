"""Random loop functions whose inner loops are on workers and vector lanes, as text, with arguments.

An iteration has rows of ``a`` and ``b`` of its own. Shared loops write elements of these by their own variables, what
stands between them reads what they have written, at other places; numbers are integers, so that sums are exact.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from tests.loops.oracle import Program, function_of_text

HEAD = "import offload as omp\nfrom offload import acc\n\n"
SIZES = [{}, {}, {"vector_length": 64}, {"num_workers": 2}, {"num_workers": 3, "vector_length": 32}, {"num_gangs": 2}]
SIZES += [{"vector_length": 1}, {"vector_length": 1, "num_workers": 3}]
EXTENTS = [0, 1, 3, 31, 32, 33, 70]


class LevelProgram(Program):
    """A program, and the clauses of ``acc.parallel_loop``."""

    clauses: dict[str, Any]


def level_program(seed: int) -> LevelProgram:
    """Return the program of a seed."""
    return _Writer(random.Random(seed)).program()


class _Writer:
    def __init__(self, rng: random.Random) -> None:
        self.random = rng
        self.names = 0
        self.scalars = ["i", "n"]
        self.is_by_workers = rng.random() < 0.2  # the associated loop is on gangs and workers
        self.has_sum = rng.random() < 0.5

    def name(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    def program(self) -> LevelProgram:
        rng = self.random
        n, m = rng.choice([0, 1, 2, 5]), rng.choice(EXTENTS)
        numbers = np.random.default_rng(rng.getrandbits(32))
        arguments = {
            "a": numbers.integers(-9, 9, (n, m + 4)),
            "b": numbers.integers(-9, 9, (n, m + 4)),
            "x": numbers.integers(-9, 9, 80),
            "low": numbers.integers(0, max(1, m), n + 1),
            "h": numbers.integers(0, 9, 8),
            "t": np.zeros(3, int),
            "n": rng.randint(-3, 3),
        }
        level = "gang=True, worker=True" if self.is_by_workers else rng.choice(["gang=True", "gang=True", ""])
        body: list[str] = []
        if rng.random() < 0.2:
            body += [f"if {self.value()} % 5 == 0:", "    continue"]
        for _ in range(rng.randint(2, 5)):
            body += self.statement(2)
        body += [f"a[i, m + 1] += {self.value()}"]
        last = []
        if rng.random() < 0.3 and not any("continue" in line and line == "    continue" for line in body):
            last = ["q"]
            body.append(f"q = {self.value()}")
        head = "def f(a, b, x, low, h, t, n):"
        lines = ["m = a.shape[1] - 4", "s = 7", "q = 0"]
        lines += [f"for i in acc.loop(range(a.shape[0]){', ' if level else ''}{level}):", *_indented(body)]
        returned = [*(["s"] if self.has_sum else []), *last]
        lines += [f"return {', '.join(returned)}"] if returned else []
        made = LevelProgram(
            text=HEAD + "\n".join([head, *_indented(lines)]) + "\n",
            arguments=arguments,
            collapse=1,
            reductions=[("+", "s")] if self.has_sum else [],
            atomic=["h"],
            lastprivate=last,
            private=["t"],
        )
        made.clauses = {
            **rng.choice(SIZES),
            "atomic": ["h"],
            "lastprivate": last,
            "reduction": {"+": ["s"]} if self.has_sum else {},
        }
        return made

    def value(self, *more: str) -> str:
        """Return an expression that all threads have."""
        rng = self.random
        parts = [
            rng.choice([*self.scalars, *more]),
            rng.choice([*self.scalars, *more]),
            f"x[{rng.randint(0, 79)}]",
            f"a[i, {rng.choice(['m', 'm + 1', 'm + 2', 'm // 2', '0'])}]",
            f"b[i, {rng.choice(['m', 'm + 1', 'm // 3', '1'])}]",
            str(rng.randint(-4, 4)),
        ]
        one, two = rng.sample(parts, 2)
        return rng.choice([one, f"({one} + {two})", f"({one} - 2 * {two})", f"({one} if {two} > 0 else {two})"])

    def statement(self, depth: int) -> list[str]:
        rng = self.random
        makers = [self.assign, self.store, self.shared, self.shared, self.shared, self.update]
        if depth:
            makers += [self.branch, self.serial, self.repeat, self.workers, self.workers]
        return rng.choice(makers)(depth)

    def assign(self, depth: int) -> list[str]:
        name = self.name("v")
        line = f"{name} = {self.value()}"
        self.scalars.append(name)
        return [line]

    def store(self, depth: int) -> list[str]:
        array, place = self.random.choice("ab"), self.random.choice(["m", "m + 1", "m + 2", "0", "m // 2"])
        return [f"{array}[i, {place}] {self.random.choice(['=', '+='])} {self.value()}"]

    def update(self, depth: int) -> list[str]:
        if self.has_sum and self.random.random() < 0.5:
            return [f"s += {self.value()}"]
        return [f"h[{self.value()} % 8] += {self.value()}"]

    def shared(self, depth: int, *, levels: tuple[str, ...] = ("vector", "worker", "both")) -> list[str]:
        """Return a loop whose trips have elements of their own."""
        rng = self.random
        level = rng.choice(levels if not self.is_by_workers else ("vector",))
        words = {"vector": "vector=True", "worker": "worker=True", "both": "worker=True, vector=True"}[level]
        k = self.name("k")
        reversed_or_not = rng.choice(["k", "k", "m - 1 - k"]).replace("k", k)
        bounds = rng.choice(["m", "m", "low[i], m", "0, m, 2", "m - 1, -1, -1", "low[i], low[i + 1]"])
        target, other = rng.sample("ab", 2)
        own = f"{target}[i, {reversed_or_not}]"
        value = self.value(k)
        value = value.replace(f"{target}[i,", f"{other}[i,")  # nobody reads what another trip writes
        lines = [f"{own} {rng.choice(['=', '+='])} {value} + {other}[i, m - {k}] + x[{k}]"]
        if rng.random() < 0.3:
            lines = [f"u = {value} * {k}", *lines, f"{own} += u"]
        if rng.random() < 0.2:
            lines = [f"t[1] = {k}", *lines, f"{own} += t[1]"]
            words += ', private=["t"]'
        if rng.random() < 0.3:
            lines = [f"if {k} % 3 == 1:", *_indented(lines)]
        if rng.random() < 0.15:
            lines = [f"if {k} == 5:", "    continue", *lines]
        if rng.random() < 0.15:
            lines = [*lines, f"h[{k} % 8] += 1"]
        if self.has_sum and rng.random() < 0.3:
            lines = [*lines, f"s += {k} + x[{k}]"]
            words += ', reduction={"+": ["s"]}'
        elif rng.random() < 0.6:
            name = self.name("r")
            operator = rng.choice(["+", "max", "^"])
            update = {"+": "r += e", "max": "r = max(r, e)", "^": "r ^= e"}[operator]
            update = update.replace("e", f"{other}[i, {k}] - {k}").replace("r", name)
            words += f', reduction={{"{operator}": ["{name}"]}}'
            start = [f"{name} = {rng.randint(-5, 5)}"]
            self.scalars.append(name)
            return [*start, f"for {k} in acc.loop(range({bounds}), {words}):", *_indented([*lines, update])]
        return [f"for {k} in acc.loop(range({bounds}), {words}):", *_indented(lines)]

    def workers(self, depth: int) -> list[str]:
        """Return a loop on workers, in which a loop on their lanes has another sum."""
        if self.is_by_workers:
            return self.shared(depth)
        rng = self.random
        j, k, r, w = (self.name(letter) for letter in "jkrw")
        inner = [f"{r} += x[{k}] * {j}", f"h[({k} + {j}) % 8] += 1"]
        body = [
            f"{r} = {self.value(j)}".replace("a[i,", "b[i,"),
            f'for {k} in acc.loop(range({rng.choice(["40", "n + 5", "m"])}), vector=True, reduction={{"+": ["{r}"]}}):',
            *_indented(inner[: rng.randint(1, 2)]),
            f"a[i, {j}] {rng.choice(['=', '+='])} {r} + {j}",
        ]
        if rng.random() < 0.3:
            body += [f"if {r} % 2 == 0:", f"    a[i, {j}] -= 1"]
        body.append(f"{w} += {r}")
        self.scalars.append(w)
        return [
            f"{w} = {rng.randint(0, 5)}",
            f'for {j} in acc.loop(range(m), worker=True, reduction={{"+": ["{w}"]}}):',
            *_indented(body),
        ]

    def branch(self, depth: int) -> list[str]:
        lines = [f"if {self.value()} % {self.random.choice([2, 3])} == 0:", *self.block(depth)]
        return [*lines, "else:", *self.block(depth)] if self.random.random() < 0.5 else lines

    def serial(self, depth: int) -> list[str]:
        name = self.name("c")
        lines = [f"for {name} in range({self.random.choice(['2', '3', 'n + 3', 'x[3] % 3'])}):"]
        body = self.block(depth)
        if self.random.random() < 0.3:
            body += [f"    if {self.value()} > 3:", f"        {self.random.choice(['break', 'continue'])}"]
        return [*lines, *body, *(self.block(depth) if self.random.random() < 0.3 else [])]

    def repeat(self, depth: int) -> list[str]:
        name = self.name("w")
        return [f"{name} = 0", f"while {name} < 3 and {self.value()} != 1:", f"    {name} += 1", *self.block(depth)]

    def block(self, depth: int) -> list[str]:
        known = list(self.scalars)
        lines = [line for _ in range(self.random.randint(1, 2)) for line in self.statement(depth - 1)]
        self.scalars = known
        return _indented(lines)


def _indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


__all__ = ["function_of_text", "level_program"]
