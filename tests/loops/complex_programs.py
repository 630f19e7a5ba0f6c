"""Random loop functions of complex numbers as text, with arguments; `programs` has those of real ones.

An iteration writes to elements of its own. Sums are of integers and products of powers of i, which are exact in any
order. Results of library functions go to arrays of their own (`Program.inexact`), in which no operation follows them.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from tests.loops.oracle import Program

COMPLEX = ["complex64", "complex128"]
REAL = {"float32": "complex64", "int16": "complex64", "float64": "complex128", "int32": "complex128"}
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, 1e-30]
EXACT = ["1.5", "-0.25", "2", "0.5j", "-1j", "(1 + 2j)", "-0.0", "3j"]
HEAD = """import cmath
import math
import numpy as np

W = 0.5 - 0.25j
V = np.complex64(1 + 1j)

def turned(z, a):
    return z * 1j + a

def chosen(z, w):
    if z == w:
        return z.conjugate()
    else:
        return w - z.real

def put(a, k, v):
    a[k] = v

"""


def complex_program(seed: int) -> Program:
    """Return the program of a seed."""
    return _Writer(random.Random(seed)).program()


class _Writer:
    """Writes one program."""

    def __init__(self, rng: random.Random) -> None:
        self.random = rng
        self.arguments: dict[str, Any] = {}
        self.inputs: list[tuple[str, str]] = []  # expressions of elements, with their types
        self.scalars: list[tuple[str, str]] = []  # variables of an iteration, and arguments
        self.reductions: list[tuple[str, str]] = []
        self.inexact: set[str] = set()

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def program(self) -> Program:
        collapse = self.random.choice([1, 1, 2])
        self.shape = tuple(self.random.randint(1, 6) for _ in range(collapse))
        self.places = ["i", "j"][:collapse]
        for k in range(self.random.randint(2, 4)):
            dtype = self.random.choice([*COMPLEX, *COMPLEX, *REAL])
            self.array(f"x{k}", dtype)
        for name, value in {"c": 0.5 + 2j, "d": np.complex64(2 - 1j), "e": np.complex128(1j), "g": 0.25}.items():
            if self.chance(0.5):
                self.arguments[name] = value
                self.scalars.append((name, value.dtype.name if isinstance(value, np.generic) else "weak"))
        before = self.items()
        last = self.last()
        body = self.body()
        loops = [
            f"{'    ' * k}for {v} in range({n}):" for k, (v, n) in enumerate(zip(self.places, self.shape, strict=True))
        ]
        nest = [*loops, *(f"{'    ' * collapse}{line}" for line in [*last, *body])]
        returned = [name for _, name in self.reductions if name not in self.arguments] + ["last"][: len(last)]
        end = [f"return {', '.join(returned)}"] if returned else []
        lines = [f"def f({', '.join(self.arguments)}):", *(f"    {line}" for line in [*before, *nest, *end])]
        return Program(
            text=HEAD + "\n".join(lines) + "\n",
            arguments=self.arguments,
            collapse=collapse,
            reductions=self.reductions,
            lastprivate=["last"][: len(last)],
            atomic=["h"] if "h" in self.arguments else [],
            inexact=self.inexact,
            products={name for operator, name in self.reductions if operator == "*"},
        )

    # -- arguments ---------------------------------------------------------------------------------------

    def values(self, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        n = 2 * int(np.prod(shape))
        whole = self.chance(0.5)
        numbers = [float(self.random.randint(-3, 3)) if whole else self.random.gauss(0, 2) for _ in range(n)]
        if dtype[0] != "i" and self.chance(0.3):
            numbers = [self.random.choice(SPECIAL) if self.chance(0.3) else number for number in numbers]
        parts = np.array(numbers).reshape(2, *shape)
        with np.errstate(all="ignore"):
            if dtype in COMPLEX:
                made = np.empty(shape, dtype)
                made.real, made.imag = parts
                return made
            return parts[0].astype(dtype)

    def laid_out(self, values: np.ndarray) -> np.ndarray:
        """Return equal values in one of the layouts."""
        match self.random.choice(["C", "C", "F", "step", "reversed"]):
            case "F":
                return np.asfortranarray(values)
            case "step":
                wide = np.zeros((*values.shape[:-1], 2 * values.shape[-1]), values.dtype)
                view = wide[..., ::2]
            case "reversed":
                view = np.zeros_like(values)[::-1]
            case _:
                return values
        view[...] = values
        return view

    def array(self, name: str, dtype: str, *, is_own: bool = False) -> str:
        """Add an array; return the text of an iteration's own element."""
        self.arguments[name] = self.laid_out(self.values(dtype, self.shape))
        places = [f"-1 - {p}" if self.chance(0.1) else p for p in self.places]
        brackets = "][" if self.chance(0.1) else ", "
        element = f"{name}[{brackets.join(places)}]"
        if not is_own:
            self.inputs.append((element, dtype))
            if len(self.shape) == 1:
                self.inputs.append((f"{name}[{self.random.randrange(self.shape[0])}]", dtype))
        return element

    def items(self) -> list[str]:
        """Add reductions and atomic updates; return the lines before the nest."""
        lines, self.updates = [], []
        if self.chance(0.4):
            dtype = self.random.choice(COMPLEX)
            values = np.array([self.random.choice([1, -1, 1j, -1j]) for _ in range(int(np.prod(self.shape)))])
            self.arguments["u"] = values.reshape(self.shape).astype(dtype)
            element = f"u[{', '.join(self.places)}]"
            kinds = {"+": ["s += e", "s = s + e * 2", "s -= e"], "*": ["s *= e", "s = s * e"]}
            for operator in self.random.sample(["+", "*"], self.random.randint(1, 2)):
                item = "s" if operator == "+" else "p"
                update = self.random.choice(kinds[operator]).replace("s", item).replace("e", element)
                self.reductions.append((operator, item))
                if self.chance(0.3):
                    self.arguments[item] = np.array(self.random.choice([1, 2 - 1j]), dtype)
                    update = update.replace(f"{item} = {item}", f"{item}[()] = {item}[()]")
                    update = update if "[()]" in update else update.replace(item, f"{item}[()]", 1)
                else:
                    start = {"weak": "1 + 2j", "strong": f"np.{dtype}(2j)", "real": "1"}
                    lines.append(f"{item} = {start[self.random.choice(sorted(start))]}")
                self.updates.append(update)
            if self.chance(0.3):
                self.arguments["h"] = np.array([1 + 1j, 2, 3j], dtype)
                self.updates.append(f"h[i % 3] {self.random.choice(['+', '-'])}= {element}")
        return lines

    # -- statements --------------------------------------------------------------------------------------

    def last(self) -> list[str]:
        if self.reductions or self.chance(0.7):
            return []
        self.last_type = self.random.choice(COMPLEX)
        return [f"last = {self.value(self.last_type, 2)}"]

    def body(self) -> list[str]:
        lines: list[str] = []
        for k in range(self.random.randint(0, 2)):
            dtype = self.random.choice(COMPLEX)
            lines.append(f"t{k} = {self.value(dtype, 2)}")
            self.scalars.append((f"t{k}", dtype))
        if self.chance(0.3):
            lines += self.local()
        for k in range(self.random.randint(1, 3)):
            lines += self.store(k)
        return [*lines, *self.updates]

    def local(self) -> list[str]:
        dtype = self.random.choice(COMPLEX)
        self.scalars += [("q[0]", dtype), ("q[2]", dtype)]
        made = self.random.choice([f"np.zeros(3, np.{dtype})", f"np.full(3, 1j, np.{dtype})"])
        loop = ["for k in range(3):", f"    q[2] += q[k] * {self.weak(0)}"]
        return [f"q = {made}", f"q[0] = {self.value(dtype, 1)}", *loop]

    def store(self, k: int) -> list[str]:
        dtype = self.random.choice([*COMPLEX, *COMPLEX, "float64", "float32", "bool"])
        own = self.array(f"y{k}", dtype, is_own=True)
        if dtype == "bool":
            return [f"{own} = {self.truth(2)}"]
        if dtype not in COMPLEX:
            of = REAL[dtype]
            if self.chance(0.3):
                self.inexact.add(f"y{k}")
                return [f"{own} = {self.random.choice(['abs', 'np.abs', 'np.absolute'])}({self.value(of, 2)})"]
            return [f"{own} = {self.part(of, 2)}"]
        if self.chance(0.25):
            self.inexact.add(f"y{k}")
            function = self.random.choice(["np.exp", "np.sqrt", "np.exp"])
            return [f"{own} = {function}({self.value(dtype, 1)})"]
        value = self.value(dtype, 3)
        match self.random.choice(["plain", "update", "if", "loop", "while", "put"]):
            case "update":
                return [f"{own} {self.random.choice(['+', '-', '*', '/'])}= {value}"]
            case "if":
                other = self.value(dtype, 1)
                return [f"if {self.truth(2)}:", f"    {own} = {value}", "else:", f"    {own} = {other}"]
            case "loop":
                n = self.random.randint(0, 3)
                return [f"{own} = {value}", f"for k in range({n}):", f"    {own} = {own} * {self.weak(1)} + k"]
            case "while":
                step = f"    z{k} = z{k} * z{k} + {self.weak(0)}"
                test = f"while n{k} < 4 and z{k}.real * z{k}.real + z{k}.imag * z{k}.imag < 4.0:"
                return [f"z{k} = np.{dtype}({value})", f"n{k} = 0", test, step, f"    n{k} += 1", f"{own} = z{k}"]
            case "put" if len(self.shape) == 1 and own == f"y{k}[i]":
                return [f"put(y{k}, i, {value})"]
            case _:
                return [f"{own} = {value}"]

    # -- expressions -------------------------------------------------------------------------------------

    def value(self, dtype: str, depth: int) -> str:
        """Return a complex number of a type of NumPy's."""
        if depth <= 0 or self.chance(0.15):
            found = [text for text, of in [*self.inputs, *self.scalars] if of == dtype]
            return self.random.choice(found) if found and self.chance(0.9) else f"np.{dtype}({self.weak(0)})"
        a = self.value(dtype, depth - 1)
        kinds = ["same", "same", "weak", "weak", "mixed", "divide", "power", "sign", "if", "cast", "call"]
        operator = self.random.choice("+-*/")
        match self.random.choice(kinds):
            case "same":
                return f"({a} {self.random.choice('+-*')} {self.value(dtype, depth - 1)})"
            case "weak":
                b = self.weak(depth - 1)
                return f"({a} {operator} {b})" if self.chance(0.5) else f"({b} {operator} {a})"
            case "mixed":
                reals = [text for text, of in self.inputs if REAL.get(of) == dtype]
                b = self.random.choice(reals) if reals else self.part(dtype, depth - 1)
                return f"({b} {operator} {a})" if self.chance(0.5) else f"({a} {operator} {b})"
            case "divide":
                return f"({a} / {self.value(dtype, depth - 1)})"
            case "power":
                return f"({a} ** {self.random.choice([0, 1, 2, 2, 3, 4, 7, -1, -2, 2.0])})"
            case "sign":
                return self.random.choice([f"(-{a})", f"(+{a})", f"{a}.conjugate()", f"np.conj({a})", f"{a}.conj()"])
            case "if":
                return f"({a} if {self.truth(depth - 1)} else {self.value(dtype, depth - 1)})"
            case "cast":
                other = "complex64" if dtype == "complex128" else "complex128"
                return f"np.{dtype}({self.value(other, depth - 1)})"
            case _:
                return self.random.choice([f"turned({a}, {self.weak(0)})", f"chosen({a}, {self.value(dtype, 0)})"])

    def part(self, dtype: str, depth: int) -> str:
        """Return a part of a complex number, of the type of its parts."""
        a = self.value(dtype, depth)
        forms = [f"{a}.real", f"{a}.imag", f"np.real({a})", f"np.imag({a})", f"({a}.real - {a}.imag)"]
        return self.random.choice(forms)

    def weak(self, depth: int) -> str:
        """Return a number of Python's, complex or real; it is not zero, and no operation of it raises."""
        names = [text for text, of in self.scalars if of == "weak"]
        if depth <= 0 or self.chance(0.3):
            return self.random.choice([*EXACT[:6], *names, "W", f"complex({self.places[0]}, 2)"])
        a, b = self.weak(depth - 1), self.weak(depth - 1)
        match self.random.choice(["same", "divide", "power", "part"]):
            case "same":
                return f"({a} {self.random.choice('+-*')} {b} + 7j)"
            case "divide":
                return f"({a} / complex({self.places[-1]} + 1, -2))"
            case "power":
                return f"((1j + 0.5) ** {self.random.choice([0, 1, 2, 3, 5, -1, -3])})"
            case _:
                forms = [f"complex({a}).imag", f"complex({a}).conjugate()", f"complex(2, {self.places[0]}).real"]
                return self.random.choice(forms)

    def truth(self, depth: int) -> str:
        """Return a truth value."""
        dtype = self.random.choice(COMPLEX)
        a, b = self.value(dtype, depth - 1), self.value(self.random.choice(COMPLEX), depth - 1)
        return self.random.choice(
            [
                f"({a} == {b})",
                f"({a} != {self.weak(0)})",
                f"({a}.real < {b}.imag)",
                f"bool({a})",
                f"(not {a})",
                f"np.isnan({a})",
                f"np.isfinite({a})",
                f"np.isinf({b})",
            ]
        )
