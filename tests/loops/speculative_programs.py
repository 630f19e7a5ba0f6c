"""Random loops that may be parallel, depending on index arrays, with inputs of three kinds: good, colliding, faulty."""

from __future__ import annotations

import random

import numpy as np

HEAD = "import numpy as np\n\n"
ARRAYS = ["y", "z", "w"]  # written; x is read, p and q are places
N = 96


class Program:
    """A loop function ``f(n, p, q, x, y, z, w)`` of a seed, and its inputs."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.lines: list[str] = []
        self.steps = 0
        for _ in range(self.random.randint(1, 4)):
            self._statement("        ")
        self.computes_addresses = self.random.random() < 0.3
        head = "def f(n, p, q, x, y, z, w):\n    for i in range(n):\n"
        body = []
        if self.computes_addresses:  # places that a logged array holds: no inspector can tell
            body = ["        w[p[i]] = q[i]", "        y[w[p[i]]] += x[i]"]
        self.text = HEAD + head + "\n".join(body + self.lines) + "\n"

    def _element(self) -> str:
        return f"{self.random.choice(ARRAYS[:2])}[{self.random.choice(['p[i]', 'q[i]', 'p[i]', 'i'])}]"

    def _own(self, array: str) -> str:
        """Return an element of an array that the iteration alone has, if places are permutations."""
        return f"{array}[{'p[i]' if array == 'y' else 'q[i]'}]"

    def _value(self, depth: int = 2) -> str:
        choice = self.random.randint(0, 4 if depth else 2)
        if choice == 0:
            return "x[i]"
        if choice == 1:
            return self._own(self.random.choice(["y", "z"]))
        if choice == 2:
            return self.random.choice(["i", "2", "3"])
        return f"({self._value(depth - 1)} {self.random.choice(['+', '-', '*'])} {self._value(depth - 1)})"

    def _statement(self, indent: str, depth: int = 1) -> None:
        choice = self.random.randint(0, 4 if depth else 2)
        target = self._own(self.random.choice(["y", "z"]))
        if choice <= 1:
            self.lines.append(f"{indent}{target} = {self._value()}")
        elif choice == 2:
            self.lines.append(f"{indent}{target} {self.random.choice(['+=', '-='])} {self._value()}")
        elif choice == 3:
            self.lines.append(f"{indent}if x[i] % 3 {self.random.choice(['==', '>'])} 1:")
            self._statement(indent + "    ", depth - 1)
        else:
            self.lines.append(f"{indent}for k in range(x[i] % 4):")
            self._statement(indent + "    ", depth - 1)

    def inputs(self, kind: str, seed: int = 0) -> list:
        """Return arguments: places are permutations, or two of them meet, or one leaves the array."""
        rng = np.random.default_rng((self.seed, seed, len(kind)))
        p, q = rng.permutation(N), rng.permutation(N)
        if kind == "colliding":
            for places in (p, q):
                first, second = sorted(rng.choice(N, 2, replace=False))
                places[second] = places[first]
        if kind == "faulty":
            p[int(rng.integers(N // 4, N))] = N + 5
        return [N, p, q, rng.integers(0, 9, N), *(rng.integers(0, 5, N) for _ in ARRAYS)]
