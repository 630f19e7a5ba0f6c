"""Random kernels with independent iterations, for splits over devices.

An iteration has its own slots in each written array, and may go to any of them by any of that array's ways: shifted,
reversed, interleaved, negative, permuted by one of two tables that hold the same. So two accesses of one iteration may
be the same element without looking so. Numbers are small integers, exact in any order.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from offload.loops.front.parse import NestClauses
from offload.loops.tree import ir

HEAD = "import numpy as np\n\n\ndef put(a, k, v):\n    a[k] = v\n\n\n"
OUTER = [
    ("range(n)", "i"),
    ("range(n)", "i"),
    ("range(3, n + 3)", "(i - 3)"),
    ("range(n - 1, -1, -1)", "i"),
    ("range(0, 2 * n, 2)", "(i // 2)"),
    ("range(2 * n, 0, -2)", "(n - i // 2)"),
]
WAYS = {
    "shifted": "{u} + n * ({k})",
    "mirrored": "n - 1 - {u} + n * ({k})",
    "interleaved": "{S} * {u} + {k}",
    "reversed": "{S} * n - 1 - {S} * {u} - ({k})",
    "negative": "{S} * {u} + {k} - {S} * n",
    "permuted": "{p}[{u}] + n * ({k})",
    "scattered": "{p}[{u}] * {S} + {k}",
    "rows": "{u}, {k}",
    "columns": "{k}, {u}",
    "permuted rows": "{p}[{u}], {k}",
}


@dataclass
class Kernel:
    """A loop function ``f``, its clauses and its arguments; `shared` arguments are one array under several names."""

    text: str
    arrays: dict[str, np.ndarray]
    scalars: dict[str, Any]
    clauses: NestClauses
    names: dict[str, str] = field(default_factory=dict)

    @property
    def arguments(self):
        return {**{name: self.names.get(name, name) for name in self.arrays_in_order}, **self.scalars}

    @property
    def arrays_in_order(self):
        return [*self.arrays, *self.names]

    def serial(self, function, arrays):
        """Run its function as CPython does, on arrays by their names."""
        given = {name: arrays[self.names.get(name, name)] for name in self.arrays_in_order}
        return function(**given, **self.scalars)


def kernel(seed: int) -> Kernel:
    """Return the kernel of a seed."""
    return _Writer(random.Random(seed)).kernel()


class _Writer:
    def __init__(self, rng: random.Random) -> None:
        self.random = rng
        self.n = rng.choice([0, 1, 2, 3, 5, 6, 7, 8, 9, 12])
        self.slots = rng.randint(1, 4)
        self.range, self.u = rng.choice(OUTER)
        self.values = np.random.default_rng(rng.getrandbits(32))
        self.arrays: dict[str, np.ndarray] = {}
        self.ways: dict[str, list[str]] = {}
        self.scalars = ["t0", "t1"]
        self.inner: list[str] = []
        self.count = 0
        self.has_atomics = rng.random() < 0.25
        self.has_sum = rng.random() < 0.3
        self.has_last = rng.random() < 0.2
        self.has_local = rng.random() < 0.25
        self.is_steady = rng.random() < 0.5  # control and indices follow from what the loop does not write

    def kernel(self) -> Kernel:
        size = self.n * self.slots
        for name in ("a", "b", "c")[: self.random.choice([1, 2, 2, 3])]:
            way = self.random.choice(list(WAYS))
            # ways of one array lead each iteration to the same slots
            alike = {"shifted": ["shifted"], "permuted": ["permuted"], "interleaved": ["interleaved", "negative"]}
            self.ways[name] = alike.get(way, [way])
            shape: tuple[int, ...] = (size,)
            if way in ("rows", "permuted rows"):
                shape = self.n, self.slots
            elif way == "columns":
                shape = self.slots, self.n
            self.arrays[name] = self.values.integers(0, 97, shape)
        for name in ("x", "y"):
            self.arrays[name] = self.values.integers(0, 97, max(self.n, 1) + 2)
        self.arrays["p"] = self.values.permutation(self.n).astype(self.random.choice([np.int64, np.int32]))
        self.arrays["q"] = self.arrays["p"].copy()
        if self.has_atomics:
            self.arrays["h"] = self.values.integers(0, 9, self.random.randint(1, 6))
        names = {}
        twice = self.random.choice(list(self.ways))
        if self.random.random() < 0.25:
            names["again"] = twice
            self.ways["again"] = self.ways[twice]
        body = [f"t0 = {self.value(0)}", f"t1 = {self.value(0)}"]
        if self.has_local:
            body.append("loc = np.zeros(3, np.int64)")
        body += self.block(3, self.random.randint(2, 5))
        body += self.store() + (["last = t0"] if self.has_last else [])
        head = f"def f({', '.join([*self.arrays, *names, 'n'])}):"
        before = (["s = 1"] if self.has_sum else []) + (["last = 0"] if self.has_last else [])
        returned = ["s"] * self.has_sum + ["last"] * self.has_last
        lines = [*before, f"for i in {self.range}:", *["    " + line for line in body]]
        lines += [f"return {', '.join(returned)}"] if returned else []
        text = HEAD + "\n".join([head, *["    " + line for line in lines]]) + "\n"
        return Kernel(
            text,
            self.arrays,
            {"n": self.n},
            NestClauses(
                reductions=(ir.LoopReduction("+", "s"),) if self.has_sum else (),
                atomic=("h",) if self.has_atomics else (),
                lastprivate=("last",) if self.has_last else (),
            ),
            names,
        )

    # -- expressions -------------------------------------------------------------------------------------

    def slot(self, depth: int = 1) -> str:
        """Return a number of a slot."""
        kinds = ["number", "number", "data", "value"] + ["inner"] * 3 * bool(self.inner)
        match self.random.choice(kinds):
            case "inner":
                j = self.random.choice(self.inner)
                return self.random.choice([j, j, f"{self.slots - 1} - {j}", f"({j} + 1) % {self.slots}"])
            case "data":
                return f"{self.read()} % {self.slots}"
            case "value" if depth > 0 and self.random.random() < 0.3:
                return f"{self.control(0)} % {self.slots}"
            case _:
                return str(self.random.randrange(self.slots))

    def element(self, k: str = "") -> str:
        name = self.random.choice(list(self.ways))
        way = WAYS[self.random.choice(self.ways[name])]
        p = self.random.choice("pq")
        return f"{name}[{way.format(u=self.u, k=k or self.slot(), S=self.slots, p=p)}]"

    def read(self) -> str:
        name = self.random.choice("xy")
        return f"{name}[{self.random.choice([self.u, self.u + ' + 1', f'({self.u} * 3 + 1) % n', f'p[{self.u}]'])}]"

    def control(self, depth: int) -> str:
        """Return a value that an index, a branch or a bound follows from."""
        return self.read() if self.is_steady else self.value(depth)

    def value(self, depth: int) -> str:
        match self.random.choice(
            ["element", "element", "read", "scalar", "local", "number", *["both"] * 3 * (depth > 0)]
        ):
            case "element":
                return self.element()
            case "read":
                return self.read()
            case "scalar" if self.count:
                return self.random.choice(self.scalars)
            case "local" if self.has_local and self.count:
                return f"loc[{self.random.choice(['0', '1', self.read() + ' % 3'])}]"
            case "both":
                one, other = self.value(depth - 1), self.value(depth - 1)
                form = self.random.choice(
                    [
                        "({} * 3 + {}) % 97",
                        "({} + 2 * {}) % 97",
                        "max({}, {})",
                        "({} // ({} % 5 + 1))",
                        "({0} if {1} % 2 else {1})",
                    ]
                )
                return form.format(one, other)
            case _:
                return str(self.random.randint(0, 9))

    # -- statements --------------------------------------------------------------------------------------

    def block(self, depth: int, length: int) -> list[str]:
        lines: list[str] = []
        for _ in range(length):
            self.count += 1
            lines += self.statement(depth)
        return lines

    def statement(self, depth: int) -> list[str]:
        kinds = ["store", "store", "store", "update", "scalar", "scalar", "put"]
        kinds += ["if", "if", "for", "for", "while", "recurrence", "carried", "perhaps"] * (depth > 0)
        kinds += ["atomic"] * self.has_atomics + ["sum"] * self.has_sum + ["local"] * self.has_local
        kinds += ["continue"] if depth == 3 else ["leave"] if self.inner else []
        match self.random.choice(kinds):
            case "store":
                return self.store()
            case "put":
                name, _, index = self.element().partition("[")
                return [f"put({name}, {index[:-1]}, {self.value(1)})"] if "," not in index else self.store()
            case "update":
                return [f"{self.element()} += {self.value(1)} % 7"]
            case "scalar":
                return [f"{self.random.choice(self.scalars)} = {self.value(2)}"]
            case "local":
                return [f"loc[{self.random.choice(['0', '1', '2', self.read() + ' % 3'])}] = {self.value(1)}"]
            case "atomic":
                return [f"h[{self.read()} % {len(self.arrays['h'])}] += {self.value(1)} % 5"]
            case "sum":
                return [f"s += {self.value(1)}"]
            case "if":
                lines = [f"if {self.control(1)} % {self.random.choice([2, 3])} == 0:", *self.inside(depth)]
                return lines + (["else:", *self.inside(depth)] if self.random.random() < 0.4 else [])
            case "for":
                j = f"j{len(self.inner)}_{self.count}"
                bounds = self.random.choice(
                    [f"{self.slots}"] * 3 + [f"{self.control(0)} % {self.slots + 1}", f"{self.slots - 1}, -1, -1"]
                )
                self.inner.append(j)
                lines = [f"for {j} in range({bounds}):", *self.inside(depth)]
                self.inner.pop()
                return lines
            case "while":
                self.count += 1
                w = f"w{self.count}"
                start = self.random.choice(["0", f"{self.control(0)} % 3"])
                self.inner.append(f"({w} % {self.slots})")
                lines = [f"{w} = {start}", f"while {w} < 3:", f"    {w} += 1", *self.inside(depth)]
                self.inner.pop()
                return lines
            case "recurrence":
                j = f"j{len(self.inner)}_{self.count}"
                loop = f"for {j} in range(1, {self.slots}):"
                one, other = self.element(j), self.element(self.random.choice([j, f"{j} - 1"]))
                lines = [f"{one} = {self.value(1)}", f"{self.element(j)} = {other} + {self.element(f'{j} - 1')} % 7"]
                self.random.shuffle(lines)
                return [loop, *["    " + line for line in lines]]
            case "perhaps":
                here, there = [self.element(str(self.random.randrange(self.slots))) for _ in range(2)]
                branch = [f"if {self.control(0)} % 2:", f"    {here} = {self.value(0)}"]
                return [f"{here} = {self.read()}", *branch, f"{there} = {here} + {self.value(0)} % 5"]
            case "carried":
                j, t = f"j{len(self.inner)}_{self.count}", self.random.choice(self.scalars)
                lines = [f"{self.element(j)} = {t}", f"{t} = {self.random.choice([self.read(), self.element(j)])}"]
                lines += [f"{self.random.choice(self.scalars)} = {self.value(1)}"] * (self.random.random() < 0.5)
                return [f"for {j} in range({self.slots}):", *["    " + line for line in lines]]
            case "leave":
                return [f"if {self.control(1)} % 3 == 0:", f"    {self.random.choice(['break', 'continue'])}"]
            case _:
                if self.has_last:
                    return self.store()
                return [f"if {self.control(1)} % 4 == 0:", "    continue"]

    def inside(self, depth: int) -> list[str]:
        return ["    " + line for line in self.block(depth - 1, self.random.randint(1, 3))]

    def store(self) -> list[str]:
        return [f"{self.element()} = {self.value(2)}"]
