"""Random loop functions as text, with arguments.

An iteration writes to elements of its own, reached by shifted, reversed, negative or permuted indices; sums and other
reductions are of numbers that are exact in any order; atomic updates are never read. So iterations may run in any
order, in any chunks, and give what CPython gives.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.loops.oracle import Program
from tests.loops.program_expressions import FLOATS, INTEGERS, STRONG, Array, Expressions, Scope, Whole

PERMUTED = pytest.mark.filterwarnings("ignore:.*updates are then lost:offload.DirectiveWarning")
"""Of a test of loops that update elements by a permutation: that no two iterations have one is not proved."""

DTYPES = ["bool", *STRONG]
HEAD = """import math
import numpy as np

G = 3

def put(a, k, v):
    a[k] = v

def picked(a, k):
    return a[k]

"""
UPDATES = {
    "+": ["s += e", "s = s + e", "s = e + s", "s -= -e"],
    "*": ["s *= e", "s = s * e"],
    "min": ["s = min(s, e)", "if e < s:\n    s = e"],
    "max": ["s = max(s, e)", "if s < e:\n    s = e"],
    "&": ["s &= e", "s = s & e"],
    "|": ["s |= e"],
    "^": ["s ^= e", "s = e ^ s"],
    "and": ["s = s and e", "s = e and s"],
    "or": ["s = s or e", "s = e or s"],
}


def program(seed: int) -> Program:
    """Return the program of a seed."""
    return _Writer(random.Random(seed)).program()


class _Writer:
    """Writes one program."""

    def __init__(self, rng: random.Random) -> None:
        self.random = rng
        self.helpers: list[str] = []
        self.e = Expressions(rng, self.helpers)
        self.arguments: dict[str, Any] = {}
        self.prologue: list[str] = []
        self.reductions: list[tuple[str, str, str]] = []  # operator, item, what to reduce
        self.atomic: list[tuple[Array, str]] = []
        self.inexact: set[str] = set()
        self.own: list[Array] = []
        self.private: dict[str, list[str]] = {"private": [], "lastprivate": []}
        self.names = 0

    def name(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def program(self) -> Program:
        scope = self._arguments()
        collapse = self.random.choice([1, 1, 1, 2, 2, 3])
        axes = [self._axis(scope) for _ in range(collapse)]
        for variable, values, _ in axes:
            low, high = (min(values), max(values)) if values else (0, 0)
            scope.wholes.append(Whole(variable, low, high))
        for _ in range(self.random.randint(1, 3)):
            self._own_array(axes)
        self._reductions()
        self._atomics()
        body = scope.inner()
        body.arrays += [array for array in self.own if array.name not in self.inexact]
        last = self._last(body)
        scratch = self._private(body)
        lines = self._block(body, 2, is_associated=True)
        loops = [f"{'    ' * depth}for {variable} in {text}:" for depth, (variable, _, text) in enumerate(axes)]
        nest = [*loops, *_indented([*last, *scratch, *lines], collapse)]
        items = [item for _, item, _ in self.reductions if item not in self.arguments]
        returned = [*items, *(line.split(" =")[0] for line in last)]
        end = [f"return {', '.join(returned)}"] if returned else []
        head = f"def f({', '.join(self.arguments)}):"
        text = HEAD + "\n".join(self.helpers) + "\n" + "\n".join([head, *_indented([*self.prologue, *nest, *end], 1)])
        return Program(
            text=text + "\n",
            arguments=self.arguments,
            collapse=collapse,
            reductions=[(operator, item) for operator, item, _ in self.reductions],
            atomic=[array.name for array, _ in self.atomic],
            lastprivate=[line.split(" =")[0] for line in last] + self.private["lastprivate"],
            private=self.private["private"],
            inexact=self.inexact,
        )

    # -- arguments ---------------------------------------------------------------------------------------

    def _arguments(self) -> Scope:
        scope = Scope()
        for dtype in self.random.sample(DTYPES, self.random.randint(2, 4)):
            shape = tuple(self.random.randint(1, 5) for _ in range(self.random.choice([1, 1, 2, 3])))
            scope.arrays.append(self._array("x", dtype, shape))
        for value in (self.random.randint(-5, 9), 0.3, np.float32(1.7), np.int16(-300)):
            if self.chance(0.5):
                name = self.name("n")
                self.arguments[name] = value
                if isinstance(value, int):
                    scope.wholes.append(Whole(name, value, value))
                else:
                    scope.scalars[name] = value.dtype.name if isinstance(value, np.generic) else "float"
        if self.chance(0.5):
            name = self.name("w")
            self.prologue.append(f"{name} = {self.e.floating(scope, 1) if self.chance(0.5) else 0.1}")
            if "[" not in self.prologue[-1]:
                scope.scalars[name] = "float"
            else:
                self.prologue.pop()
        return scope

    def _array(self, letter: str, dtype: str, shape: tuple[int, ...], values: np.ndarray | None = None) -> Array:
        """Return a new argument, in one of the layouts."""
        values = self._values(dtype, shape) if values is None else values
        layout = self.random.choice(["C", "C", "F", "step", "reversed"])
        if layout == "F":
            values = np.asfortranarray(values)
        elif layout == "step":
            base = np.zeros(tuple(2 * extent for extent in shape), dtype)
            base[tuple(slice(None, None, 2) for _ in shape)] = values
            values = base[tuple(slice(None, None, 2) for _ in shape)]
        elif layout == "reversed":
            base = values[::-1].copy()
            values = base[::-1]
        array = Array(self.name(letter), values)
        self.arguments[array.name] = values
        return array

    def _values(self, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        rng = np.random.default_rng(self.random.getrandbits(32))
        if dtype == "bool":
            return rng.random(shape) < 0.5
        if dtype in FLOATS:
            values = rng.normal(size=shape) * 10
            if self.chance(0.5):
                special = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, np.nan, 2.5, -3.0], shape)
                values = np.where(rng.random(shape) < 0.3, special, values)
            return values.astype(dtype)
        least, greatest = (-9, 9) if self.chance(0.5) else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return rng.integers(max(least, np.iinfo(dtype).min), greatest, shape, dtype, endpoint=True)

    # -- the loops ---------------------------------------------------------------------------------------

    def _axis(self, scope: Scope) -> tuple[str, range, str]:
        """Return the variable, the values and the text of an associated loop."""
        count = self.random.choice([0, 1, 2, 3, 4, 5, 6, 6])
        step = self.random.choice([1, 1, 1, 2, 3, -1, -1, -2])
        start = self.random.randint(-3, 4)
        stop = start + step * count - self.random.randrange(abs(step)) * (1 if step > 0 else -1) * (count > 0)
        if count == 0:
            stop -= self.random.randint(0, 3) * (1 if step > 0 else -1)
        bounds = [self._bound(value, scope) for value in (start, stop, step)]
        if step == 1 and self.chance(0.5):
            bounds.pop()
        if start == 0 and len(bounds) == 2:
            bounds = bounds[1:]
        return self.name("i"), range(start, stop, step), f"range({', '.join(bounds)})"

    def _bound(self, value: int, scope: Scope) -> str:
        """Return a text that has a value at launch: of a literal, a scalar, a shape, the prologue."""
        match self.random.choice(["literal", "literal", "scalar", "strong", "shape", "prologue"]):
            case "scalar" | "strong" as kind:
                name = self.name("n")
                self.arguments[name] = value if kind == "scalar" else np.int32(value)
                return name
            case "shape":
                array = self.random.choice(scope.arrays)
                return f"len({array.name}) - {len(array.values) - value}".replace("- -", "+ ")
            case "prologue":
                name = self.name("b")
                self.prologue.append(f"{name} = {value * 2 + 1}")
                return f"{name} // 2"
            case _:
                return str(value)

    def _own_array(self, axes: list[tuple[str, range, str]]) -> None:
        """Add an array of which each iteration has an element."""
        shape, places = [], []
        for variable, values, _ in axes:
            low, high = (min(values), max(values)) if values else (0, 0)
            extent = high - low + 1
            offset = f"{variable} - {low}".replace("- -", "+ ")
            kind = self.random.choice(["plain", "plain", "negative", "reversed", "permuted"])
            if kind == "permuted":
                order = np.random.default_rng(self.random.getrandbits(32)).permutation(extent)
                table = self._array("p", self.random.choice(["int64", "int32", "uint8"]), (extent,), order)
                places.append(f"{table.name}[{offset}]")
            else:
                places.append(
                    {"plain": offset, "negative": f"{offset} - {extent}", "reversed": f"{high} - {variable}"}[kind]
                )
            shape.append(extent)
        order = self.random.sample(range(len(axes)), len(axes))
        dtype = self.random.choice(DTYPES)
        if dtype in FLOATS and self.chance(0.3):
            array = self._array("z", dtype, tuple(shape[k] for k in order))
            self.inexact.add(array.name)
        else:
            array = self._array("y", dtype, tuple(shape[k] for k in order))
        array.slot = ", ".join(places[k] for k in order)
        self.own.append(array)

    # -- reductions, atomics, last values ----------------------------------------------------------------

    def _reductions(self) -> None:
        for operator in self.random.sample(list(UPDATES), self.random.choice([0, 0, 1, 1, 2])):
            dtypes = INTEGERS if operator in "*&|^" else ["bool"] if operator in ("and", "or") else STRONG
            dtype = self.random.choice(dtypes)
            item = self.name("s")
            if operator in ("and", "or"):
                self.prologue.append(f"{item} = {self.random.choice([True, False])}")
            elif self.chance(0.3):
                self.arguments[item] = np.array(self.random.randint(0, 9), dtype)
            else:
                self.prologue.append(f"{item} = {self.random.randint(0, 9)}")
            self.reductions.append((operator, item, dtype))

    def _update(self, scope: Scope) -> list[str]:
        """Return an update of a reduction's item, exact in any order."""
        operator, item, dtype = self.random.choice(self.reductions)
        if dtype == "bool":
            value = self.e.truth(scope, 1)
        elif dtype in FLOATS and operator == "+":
            # Sums of small integers are exact in any order.
            value = f"np.{dtype}({self.e.whole(scope, 1).text} % 8)"
        else:
            value = self.e.strong(dtype, scope, 1)
        form = self.random.choice(UPDATES[operator])
        if item in self.arguments:
            # CPython updates the array that an argument is in place only by these.
            form = {"+": "s += e", "*": "s *= e", "&": "s &= e", "|": "s |= e", "^": "s ^= e"}.get(operator, "")
            form = form or f"s[()] = {operator}(s[()], e)"
        return form.replace("e", "@").replace("s", item).replace("@", value).split("\n") if form else []

    def _atomics(self) -> None:
        if self.chance(0.35):
            dtype = self.random.choice(STRONG)
            shape = tuple(self.random.randint(1, 4) for _ in range(self.random.choice([1, 2])))
            values = np.random.default_rng(self.random.getrandbits(32)).integers(0, 9, shape).astype(dtype)
            operators = ["+", "-", "min", "max"] if dtype in FLOATS else ["+", "-", "*", "&", "|", "^", "min", "max"]
            chosen = self.random.choice(operators)
            self.atomic.append((self._array("h", dtype, shape, values), chosen))

    def _atomic_update(self, scope: Scope) -> list[str]:
        array, operator = self.random.choice(self.atomic)
        element = self.e.element(array, scope)
        if operator in ("min", "max"):
            return [f"{element} = {operator}({element}, {self.e.strong(array.dtype, scope, 1)})"]
        if array.dtype in FLOATS:
            return [f"{element} {operator}= {self.e.whole(scope, 1).text} % 8"]
        return [f"{element} {operator}= {self.e.strong(array.dtype, scope, 1)}"]

    def _last(self, scope: Scope) -> list[str]:
        """Return the assignment to a scalar that the last iteration leaves."""
        if not self.chance(0.3):
            return []
        name, dtype = self.name("l"), self.e.dtype(scope)
        self.prologue.append(f"{name} = 0")
        return [f"{name} = {self.e.strong(dtype, scope, 1)}"]

    def _private(self, scope: Scope) -> list[str]:
        """Return what fills an array that each iteration has of its own."""
        if not self.chance(0.25):
            return []
        array = self._array("q", self.e.dtype(scope), (2,))
        self.private[self.random.choice(["private", "lastprivate"])].append(array.name)
        lines = [f"{array.name}[{k}] = {self.e.strong(array.dtype, scope, 1)}" for k in (1, 0)]
        scope.arrays.append(array)
        return lines

    # -- statements --------------------------------------------------------------------------------------

    def _block(self, scope: Scope, depth: int, *, is_associated: bool = False) -> list[str]:
        """Return the lines of a block; the scope gains what it assigns."""
        lines: list[str] = []
        for _ in range(self.random.randint(2, 5) if is_associated else self.random.randint(1, 2)):
            lines += self._statement(scope, depth, is_associated=is_associated)
        if not is_associated:
            return lines
        # At the end what came before is kept, mostly: a mistake in it is seen.
        end = self._add(scope) if self.chance(0.6) else self._store(scope)
        return lines + (self._update(scope) if self.reductions else []) + end

    def _statement(self, scope: Scope, depth: int, *, is_associated: bool) -> list[str]:
        makers = [self._new, self._new, self._assign, self._store, self._add, self._sum, self._swap]
        makers += [self._update] * bool(self.reductions) + [self._atomic_update] * 2 * bool(self.atomic)
        if depth > 0 and self.chance(0.5):
            nested = [self._if, self._if, self._for, self._for, self._while, self._local]
            return self.random.choice(nested)(scope, depth - 1)
        if is_associated and self.chance(0.15):
            return [f"if {self.e.truth(scope, 1)}:", "    continue"]
        return self.random.choice(makers)(scope)

    def _new(self, scope: Scope) -> list[str]:
        name = self.name("t")
        kind = self.random.choice(["int", "float", *(self.e.dtype(scope) for _ in range(5))])
        if kind == "int":
            line = f"{name} = {self.e.whole(scope).text} % 2001 - 1000"
            scope.wholes.append(Whole(name, -1000, 1000))
            return [line]
        line = f"{name} = {self.e.floating(scope) if kind == 'float' else self.e.strong(kind, scope)}"
        scope.scalars[name] = kind
        return [line]

    def _assign(self, scope: Scope) -> list[str]:
        names = [name for name in scope.scalars if name.startswith("t")]
        if not names:
            return self._new(scope)
        name = self.random.choice(names)
        kind = scope.scalars[name]
        return [f"{name} = {self.e.floating(scope) if kind == 'float' else self.e.strong(kind, scope)}"]

    def _swap(self, scope: Scope) -> list[str]:
        names = [name for name in scope.scalars if name.startswith("t")]
        pairs = [(a, b) for a in names for b in names if a < b and scope.scalars[a] == scope.scalars[b]]
        if not pairs:
            return self._new(scope)
        a, b = self.random.choice(pairs)
        return [f"{a}, {b} = {b}, {a}"]

    def _sum(self, scope: Scope) -> list[str]:
        """Return a sum that starts from a number of Python's and takes the type of what it sums."""
        name, dtype = self.name("t"), self.e.dtype(scope)
        start = self.random.choice(["0", "1"]) if dtype in INTEGERS else self.random.choice(["0", "0.0", "0.1"])
        lines = [f"{name} = {start}", f"{name} += {self.e.strong(dtype, scope, 1)}"]
        lines += [f"for k in range({self.random.randint(0, 3)}):", f"    {name} += {self.e.strong(dtype, scope, 1)}"]
        scope.scalars[name] = dtype
        return lines

    def _value(self, dtype: str, scope: Scope) -> str:
        """Return a value that can be stored into an element, as C casts it."""
        if dtype == "bool":
            return self.e.truth(scope)
        if dtype in FLOATS and self.chance(0.3):
            return self.random.choice(
                [self.e.floating(scope), self.e.strong("float64", scope), self.e.whole(scope).text]
            )
        if dtype == "int64" and self.chance(0.3):
            return self.e.whole(scope).text
        return self.e.strong(dtype, scope, 3)

    def _store(self, scope: Scope) -> list[str]:
        array = self.random.choice(self.own)
        if array.name in self.inexact:
            return [f"{array.name}[{array.slot}] = {self._library(array.dtype, scope)}"]
        return [f"{array.name}[{array.slot}] = {self._value(array.dtype, scope)}"]

    def _library(self, dtype: str, scope: Scope) -> str:
        functions = ["np.sin", "np.cos", "np.exp", "np.tanh", "np.arctan", "np.cbrt", "np.expm1"]
        if self.chance(0.5):
            return f"{self.random.choice(functions)}({self.e.strong(dtype, scope, 1)})"
        functions = ["math.sin", "math.cos", "math.exp", "math.atan", "math.erf", "math.sinh"]
        return f"{self.random.choice(functions)}(0.01 * ({self.e.whole(scope, 1).text} % 500 - 250))"

    def _add(self, scope: Scope) -> list[str]:
        """Return an update of an element in place."""
        arrays = [array for array in self.own if array.dtype != "bool" and array.name not in self.inexact]
        if not arrays:
            return self._store(scope)
        array = self.random.choice(arrays)
        operator = self.random.choice(["+", "-", "*"])
        return [f"{array.name}[{array.slot}] {operator}= {self.e.strong(array.dtype, scope)}"]

    def _if(self, scope: Scope, depth: int) -> list[str]:
        lines = [f"if {self.e.truth(scope)}:", *_indented(self._block(scope.inner(), depth), 1)]
        if self.chance(0.3):
            lines += [f"elif {self.e.truth(scope)}:", *_indented(self._block(scope.inner(), depth), 1)]
        if self.chance(0.5):
            lines += ["else:", *_indented(self._block(scope.inner(), depth), 1)]
        return lines

    def _for(self, scope: Scope, depth: int) -> list[str]:
        variable = self.name("k")
        text, low, high = self.random.choice(
            [
                ("range(3)", 0, 2),
                ("range(4, -2, -1)", -1, 4),
                ("range(2, 9, 3)", 2, 8),
                ("range(3, 3)", 3, 3),
                ("range(5, -5, -3)", -4, 5),
                ("range(1, 0)", 1, 1),
                (f"range({self.e.whole(scope, 1).text} % 5)", 0, 4),
                (f"range({self.e.whole(scope, 1).text} % 4, -1, -1)", 0, 3),
            ]
        )
        inner = scope.inner()
        inner.wholes.append(Whole(variable, low, high))
        body = self._block(inner, depth)
        word = self.random.choice(["", "", "break", "continue"])
        if word:
            body = [f"if {self.e.truth(scope, 1)}:", f"    {word}", *body]
        lines = [f"for {variable} in {text}:", *_indented(body, 1)]
        if self.chance(0.15):
            lines += ["else:", *_indented(self._store(scope), 1)]
        return lines

    def _while(self, scope: Scope, depth: int) -> list[str]:
        variable, limit = self.name("k"), self.random.randint(0, 4)
        inner = scope.inner()
        inner.wholes.append(Whole(variable, 1, max(1, limit)))
        body = [f"{variable} += 1", *self._block(inner, depth)]
        condition = f"{variable} < {limit}"
        if self.chance(0.5):
            condition += f" and {self.e.truth(scope, 1)}"
        return [f"{variable} = 0", f"while {condition}:", *_indented(body, 1)]

    def _local(self, scope: Scope, depth: int) -> list[str]:
        dtype, extent = self.e.dtype(scope), self.random.randint(1, 4)
        fill = self.random.choice(["zeros", "ones"])
        array = Array(self.name("a"), np.zeros(extent, dtype))
        index, other = self.e.index(extent, scope), self.e.index(extent, scope)
        lines = [
            f"{array.name} = np.{fill}({extent}, np.{dtype})",
            f"put({array.name}, {index}, {self.e.strong(dtype, scope, 1)})",
            f"{array.name}[{other}] -= {array.name}[{index}]",
        ]
        scope.arrays.append(array)
        return lines


def _indented(lines: list[str], depth: int) -> list[str]:
    return ["    " * depth + line for line in lines]
