"""Random loop functions that name rows and pass them to functions, with arguments.

An iteration writes elements of its own rows only, so iterations may run in any order. Elements are integers, which
CPython and a loop compute alike. Each function receives views of the shapes that its text was written for.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from tests.loops.oracle import Program

N = 5  # iterations


@dataclass
class View:
    """An array, or a row of one, that a text can use."""

    text: str
    shape: tuple[int, ...]
    is_own: bool  # whether the iteration may write its elements


@dataclass
class Scope:
    """The names at a place of a text."""

    views: list[View] = field(default_factory=list)
    counters: list[tuple[str, int]] = field(default_factory=list)  # with how many values each has, from 0


def row_program(seed: int) -> Program:
    """Return the program of a seed."""
    return _Writer(random.Random(seed)).program()


class _Writer:
    def __init__(self, rng: random.Random) -> None:
        self.random = rng
        self.helpers: list[str] = []
        self.names = 0
        self.calls = 0

    def name(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def program(self) -> Program:
        rng = np.random.default_rng(self.random.randrange(1 << 30))
        extents = [self.random.randint(1, 4) for _ in range(3)]
        arguments = {
            "x": rng.integers(-9, 9, (*extents[::-1], N)),
            "u": rng.integers(-9, 9, extents),
            "q": rng.integers(0, 9, N),
            "p": rng.permutation(N),
            "y": rng.integers(-9, 9, (N, *extents)),
            "z": rng.integers(-9, 9, (extents[0], N, extents[1])),
        }
        if self.chance(0.5):
            arguments["y"] = arguments["y"][::-1]
        own = self.random.choice(["i", "p[i]", f"{N - 1} - i", "-1 - i"])
        scope = Scope([View(name, arguments[name].shape, False) for name in "xuq"], [("i", N)])
        lines = []
        first, second = self.name("r"), self.name("r")
        lines.append(f"{first} = y[{own}]")
        lines.append(f"{second} = z[:, i]")
        scope.views += [View(first, tuple(extents), True), View(second, (extents[0], extents[1]), True)]
        lines.append(f"{first}[0, 0, 0] += {second}[0, 0]")
        lines += self.block(scope, 3)
        body = "\n".join(f"        {line}" for line in lines)
        text = "\n\n".join([*self.helpers, f"def f(x, u, q, p, y, z):\n    for i in range({N}):\n{body}\n"])
        return Program(text, arguments, collapse=1)

    # -- expressions -------------------------------------------------------------------------------------

    def index(self, scope: Scope, extent: int) -> str:
        """Return an index that is in range, perhaps a negative one."""
        fitting = [name for name, n_values in scope.counters if n_values <= extent]
        counter = self.random.choice(scope.counters)[0] if scope.counters else "1"
        loads = [view for view in scope.views if len(view.shape) == 1 and not view.is_own and 0 not in view.shape]
        match self.random.randint(0, 6):
            case 0 | 1 if fitting:
                return self.random.choice(fitting)
            case 2 if fitting:
                return f"{extent - 1} - {self.random.choice(fitting)}"
            case 3:
                return f"{counter} % {extent}"
            case 4 if loads:
                view = self.random.choice(loads)
                return f"{view.text}[{self.random.randrange(view.shape[0])}] % {extent}"
            case 5 if fitting:
                return f"-1 - {self.random.choice(fitting)}"
            case _:
                return str(self.random.randrange(-extent, extent))

    def row(self, scope: Scope, view: View, ndim: int) -> View:
        """Return a row of a view, with some dimensions left."""
        n_taken = len(view.shape) - ndim
        whole = sorted(self.random.sample(range(len(view.shape)), ndim))
        if self.chance(0.6):  # leading indices, as most programs have them
            whole = [*range(n_taken, len(view.shape))]
        parts = [":" if k in whole else self.index(scope, extent) for k, extent in enumerate(view.shape)]
        while parts and parts[-1] == ":" and self.chance(0.7):
            parts.pop()
        text = view.text
        if len(parts) > 1 and ":" not in parts and self.chance(0.2):
            text += "".join(f"[{part}]" for part in parts)
        elif parts:
            text += f"[{', '.join(parts)}]"
        return View(text, tuple(view.shape[k] for k in whole), view.is_own)

    def value(self, scope: Scope, depth: int = 1) -> str:
        choice = self.random.randint(0, 5)
        if choice == 0 and depth:
            operator = self.random.choice("+-*")
            return f"({self.value(scope, depth - 1)} {operator} {self.value(scope, depth - 1)})"
        if choice == 1 and scope.counters:
            return self.random.choice(scope.counters)[0]
        if choice == 2:
            view = self.random.choice(scope.views)
            some = self.row(scope, view, self.random.randint(1, len(view.shape)))
            dimension = self.random.randrange(-len(some.shape), len(some.shape))
            return self.random.choice([f"{some.text}.shape[{dimension}]", f"len({some.text})", f"{some.text}.size"])
        return self.row(scope, self.random.choice(scope.views), 0).text

    # -- statements --------------------------------------------------------------------------------------

    def block(self, scope: Scope, depth: int) -> list[str]:
        inner = Scope([*scope.views], [*scope.counters])
        lines: list[str] = []
        for _ in range(self.random.randint(1, 3)):
            lines += self.statement(inner, depth)
        return lines or ["pass"]

    def statement(self, scope: Scope, depth: int) -> list[str]:
        own = [view for view in scope.views if view.is_own]
        match self.random.randint(0, 7 if depth else 1):
            case 0 | 1:
                target = self.row(scope, self.random.choice(own), 0).text
                return [f"{target} {self.random.choice(['=', '+=', '-=', '*='])} {self.value(scope)}"]
            case 2 | 3:
                return self.named(scope)
            case 4:
                return self.loop(scope, depth)
            case 5:
                body = self.block(scope, depth - 1)
                head = [f"if {self.value(scope)} % 2 == {self.random.randint(0, 1)}:"]
                return head + [f"    {line}" for line in body]
            case _:
                return self.call(scope, depth)

    def named(self, scope: Scope) -> list[str]:
        """Name a row, and perhaps change what its index was made of."""
        many = [view for view in scope.views if len(view.shape) > 1]
        if not many:
            return []
        view = self.random.choice(many)
        name = self.name("r")
        if self.chance(0.3):
            counter, extent = self.name("t"), view.shape[0]
            row = View(name, view.shape[1:], view.is_own)
            lines = [f"{counter} = {self.index(scope, extent)}", f"{name} = {view.text}[{counter}]", f"{counter} = 0"]
        else:
            row = self.row(scope, view, self.random.randint(1, len(view.shape)))
            lines = [f"{name} = {row.text}"]
        scope.views.append(View(name, row.shape, row.is_own))
        use = f"{name}[{', '.join(['0'] * len(row.shape))}]"
        target = self.row(scope, self.random.choice([one for one in scope.views if one.is_own]), 0).text
        return [*lines, f"{target} += {use}"]

    def loop(self, scope: Scope, depth: int) -> list[str]:
        view = self.random.choice(scope.views)
        some = self.row(scope, view, self.random.randint(1, len(view.shape)))
        name = self.name("k")
        inner = Scope([*scope.views], [*scope.counters, (name, some.shape[0])])
        body = self.block(inner, depth - 1)
        return [f"for {name} in range(len({some.text})):"] + [f"    {line}" for line in body]

    def call(self, scope: Scope, depth: int) -> list[str]:
        """Call a new function once or twice, with rows and a number."""
        if self.calls > 3:
            return []
        self.calls += 1
        function = self.name("g")
        own = [view for view in scope.views if view.is_own]
        views = [self.random.choice(own), *self.random.choices(scope.views, k=self.random.randint(0, 2))]
        ranks = [self.random.randint(1, len(view.shape)) for view in views]
        rows = [self.row(scope, view, ndim) for view, ndim in zip(views, ranks, strict=True)]
        names = [self.name("v") for _ in rows]
        inner = Scope([View(name, row.shape, row.is_own) for name, row in zip(names, rows, strict=True)], [("n", N)])
        body = self.block(inner, depth - 1)
        used = [f"{name}[{', '.join(['0'] * len(row.shape))}]" for name, row in zip(names, rows, strict=True)]
        lines = [f"{used[0]} += {' + '.join(used)}", *body]
        text = "\n".join(f"    {line}" for line in lines)
        self.helpers.append(f"def {function}({', '.join([*names, 'n'])}):\n{text}\n")
        return [f"{function}({', '.join([*(row.text for row in rows), f'({self.index(scope, N)}) % {N}'])})"]
