"""Random expressions of the subset, as text, with the type that Python and NumPy give them.

Each function makes an expression of a type that is asked for, and uses only what has one meaning in CPython and in a
loop: integers of Python's stay far below 64 bits (their intervals are kept), what would raise is guarded, divisors of
integers are odd.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import random

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float32", "float64"]
STRONG = [*INTEGERS, *FLOATS]
LITERALS = [0.1, 0.5, -1.5, 3.0, 0.001, -0.7, 2.0]
RELATIONS = ["<", "<=", "==", "!=", ">=", ">"]
FAR = 10**6


@dataclass(frozen=True)
class Whole:
    """An integer of Python's, and where it lies."""

    text: str
    low: int
    high: int


@dataclass
class Array:
    """An argument: ``values`` is what it starts from; ``slot`` the indices of an iteration's own element."""

    name: str
    values: np.ndarray
    slot: str = ""

    @property
    def dtype(self):
        return self.values.dtype.name


@dataclass
class Scope:
    """What a place of a program may read."""

    wholes: list[Whole] = field(default_factory=list)
    scalars: dict[str, str] = field(default_factory=dict)  # name to dtype, "float" for Python's
    arrays: list[Array] = field(default_factory=list)

    def inner(self):
        return Scope(list(self.wholes), dict(self.scalars), list(self.arrays))


class Expressions:
    """Makes expressions.

    Parameters
    ----------
    random : random.Random
    helpers : list of str
        Gets the functions that expressions call.
    """

    def __init__(self, random: random.Random, helpers: list[str]) -> None:
        self.random = random
        self.helpers = helpers

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    # -- integers of Python's ----------------------------------------------------------------------------

    def whole(self, scope: Scope, depth: int = 2) -> Whole:
        """Return an integer of Python's."""
        pick = self.random.choice
        if depth <= 0 or self.chance(0.35):
            return self._whole_leaf(scope)
        a = self.whole(scope, depth - 1)
        divisor = pick([1, 2, 3, 7, -1, -2, -5])
        match pick(["+", "-", "*", "//", "%", "min", "max", "abs", "&", "<<", ">>", "**", "if", "int", "float"]):
            case "+" | "-" | "*" as operator:
                b = self.whole(scope, depth - 1)
                corners = [eval(f"p {operator} q", {"p": p, "q": q}) for p in (a.low, a.high) for q in (b.low, b.high)]
                return _near(Whole(f"({a.text} {operator} {b.text})", min(corners), max(corners)))
            case "//":
                ends = (a.low // divisor, a.high // divisor)
                return Whole(f"({a.text} // {divisor})", min(ends), max(ends))
            case "%":
                return Whole(f"({a.text} % {divisor})", min(0, divisor + 1), max(0, divisor - 1))
            case "min" | "max" as function:
                b = self.whole(scope, depth - 1)
                low, high = min(a.low, b.low), max(a.high, b.high)
                return Whole(f"{function}({a.text}, {b.text})", low, high)
            case "abs":
                return Whole(f"abs({a.text})", 0, max(abs(a.low), abs(a.high)))
            case "&":
                return Whole(f"({a.text} & 13)", 0, 13)
            case "<<":
                return _near(Whole(f"({a.text} << 3)", min(a.low * 8, 0), max(a.high * 8, 0)))
            case ">>":
                return Whole(f"({a.text} >> 2)", a.low >> 2, a.high >> 2)
            case "**":
                return _near(Whole(f"({a.text} ** 2)", 0, max(a.low**2, a.high**2)))
            case "if":
                b = self.whole(scope, depth - 1)
                text = f"({a.text} if {self.truth(scope, depth - 1)} else {b.text})"
                return Whole(text, min(a.low, b.low), max(a.high, b.high))
            case "int":
                return Whole(f"int({self.strong(pick(['int8', 'int8', 'int16']), scope, depth - 1)})", -(2**15), 2**15)
            case _:
                value = self.floating(scope, depth - 1)
                function = pick(["int", "round", "math.floor", "math.ceil"])
                return Whole(f"({function}({value}) if abs({value}) < 1000.0 else 7)", -1000, 1000)

    def _whole_leaf(self, scope: Scope) -> Whole:
        if scope.wholes and self.chance(0.6):
            return self.random.choice(scope.wholes)
        if scope.arrays and self.chance(0.2):
            array = self.random.choice(scope.arrays)
            axis = self.random.randrange(-array.values.ndim, array.values.ndim)
            texts = {
                f"{array.name}.shape[{axis}]": array.values.shape[axis],
                f"len({array.name})": len(array.values),
                f"{array.name}.size": array.values.size,
                f"{array.name}.ndim": array.values.ndim,
            }
            text = self.random.choice(list(texts))
            return Whole(text, texts[text], texts[text])
        if self.chance(0.1):
            return Whole("G", 3, 3)
        value = self.random.randint(-9, 9)
        return Whole(f"({value})" if value < 0 else f"{value}", value, value)

    def index(self, extent: int, scope: Scope, depth: int = 1) -> str:
        """Return an index into a dimension, below zero too."""
        whole = self.whole(scope, depth)
        if -extent <= whole.low and whole.high < extent:
            return whole.text
        wrapped = f"{whole.text} % {extent}"
        return f"{wrapped} - {extent}" if self.chance(0.3) else wrapped

    def element(self, array: Array, scope: Scope, depth: int = 1) -> str:
        """Return an element of an array, for an array of own slots that of the iteration."""
        if array.slot:
            return f"{array.name}[{array.slot}]"
        indices = [self.index(extent, scope, depth) for extent in array.values.shape]
        return f"{array.name}[{']['.join(indices) if self.chance(0.2) else ', '.join(indices)}]"

    # -- floats of Python's ------------------------------------------------------------------------------

    def floating(self, scope: Scope, depth: int = 2) -> str:
        """Return a float of Python's."""
        pick = self.random.choice
        names = [name for name, dtype in scope.scalars.items() if dtype == "float"]
        if depth <= 0 or self.chance(0.3):
            return pick(names) if names and self.chance(0.6) else f"({pick(LITERALS)})"
        a = self.floating(scope, depth - 1)
        match pick(["+", "-", "*", "/", "//", "%", "whole", "float", "sqrt", "abs", "if", "min"]):
            case "+" | "-" | "*" as operator:
                return f"({a} {operator} {self.floating(scope, depth - 1)})"
            case "/" | "//" | "%" as operator:
                return f"({a} {operator} {pick(['0.3', '-2.5', '4', '7.0', '(-3)'])})"
            case "whole":
                return f"({a} * {self.whole(scope, depth - 1).text})"
            case "float":
                return f"float({self.strong(self.dtype(scope), scope, depth - 1)})"
            case "sqrt":
                return f"math.sqrt(abs({a}))"
            case "abs":
                return f"math.fabs({a})"
            case "if":
                return f"({a} if {self.truth(scope, depth - 1)} else {self.floating(scope, depth - 1)})"
            case _:
                return f"{pick(['min', 'max'])}({a}, {self.floating(scope, depth - 1)})"

    # -- strong numbers ----------------------------------------------------------------------------------

    def strong(self, dtype: str, scope: Scope, depth: int = 2) -> str:
        """Return a number of a type of NumPy's."""
        if depth <= 0 or self.chance(0.25):
            return self._strong_leaf(dtype, scope)
        is_float = dtype in FLOATS
        kinds = ["same", "same", "weak", "weak", "divide", "if", "min", "min", "sign", "mixed", "cast", "helper"]
        kinds += ["float", "float", "min", "min"] if is_float else ["bits", "shift", "power"]
        return getattr(self, f"_{self.random.choice(kinds)}")(dtype, scope, depth - 1)

    def _strong_leaf(self, dtype: str, scope: Scope) -> str:
        arrays = [array for array in scope.arrays if array.dtype == dtype]
        names = [name for name, of in scope.scalars.items() if of == dtype]
        if names and self.chance(0.5):
            return self.random.choice(names)
        if arrays and self.chance(0.9):
            array = self.random.choice(arrays)
            if array.values.ndim == 1 and not array.slot and self.chance(0.1):
                return f"picked({array.name}, {self.index(len(array.values), scope)})"
            return self.element(array, scope)
        return f"np.{dtype}({self.literal(dtype)})"

    def dtype(self, scope: Scope, among: list[str] = STRONG) -> str:
        """Return a type, mostly of what is at hand."""
        near = [array.dtype for array in scope.arrays] + list(scope.scalars.values())
        near = [dtype for dtype in near if dtype in among]
        return self.random.choice(near) if near and self.chance(0.7) else self.random.choice(among)

    def literal(self, dtype: str) -> str:
        """Return a literal that a type can hold."""
        if dtype in FLOATS:
            return f"{self.random.choice(LITERALS)}"
        if self.chance(0.1):
            return f"{np.iinfo(dtype).max}"
        return f"{self.random.randint(0 if dtype.startswith('u') else -9, 9)}"

    def _same(self, dtype: str, scope: Scope, depth: int) -> str:
        operator = self.random.choice(["+", "-", "*"])
        return f"({self.strong(dtype, scope, depth)} {operator} {self.strong(dtype, scope, depth)})"

    def _weak(self, dtype: str, scope: Scope, depth: int) -> str:
        a, operator = self.strong(dtype, scope, depth), self.random.choice(["+", "-", "*"])
        b = f"({self.literal(dtype)})"
        if dtype in FLOATS:
            b = self.random.choice([b, self.floating(scope, depth), self.whole(scope, depth).text])
        else:
            whole = self.whole(scope, depth)
            if np.iinfo(dtype).min <= whole.low and whole.high <= np.iinfo(dtype).max:
                b = whole.text
        return f"({a} {operator} {b})" if self.chance(0.5) else f"({b} {operator} {a})"

    def _divide(self, dtype: str, scope: Scope, depth: int) -> str:
        a, b = self.strong(dtype, scope, depth), self.strong(dtype, scope, depth)
        if dtype in FLOATS:
            return f"({a} {self.random.choice(['/', '//', '%'])} {b})"
        return f"({a} {self.random.choice(['//', '%'])} ({b} | 1))"

    def _if(self, dtype: str, scope: Scope, depth: int) -> str:
        a, b = self.strong(dtype, scope, depth), self.strong(dtype, scope, depth)
        return f"({a} if {self.truth(scope, depth)} else {b})"

    def _min(self, dtype: str, scope: Scope, depth: int) -> str:
        """Return the least or greatest of two numbers, of which one may be no number, or zero of either sign."""
        function = self.random.choice(["min", "max", "np.minimum", "np.maximum"])
        both = [self.strong(dtype, scope, depth), self.strong(dtype, scope, depth)]
        if dtype in FLOATS and self.chance(0.4):
            both[self.random.randrange(2)] = f"np.{dtype}({self.random.choice(['math.nan', 'np.nan', '0.0', '-0.0'])})"
        return f"{function}({', '.join(both)})"

    def _sign(self, dtype: str, scope: Scope, depth: int) -> str:
        a = self.strong(dtype, scope, depth)
        return self.random.choice([f"(-{a})", f"abs({a})", f"(+{a})"])

    def _mixed(self, dtype: str, scope: Scope, depth: int) -> str:
        pairs = [(a, b) for a in STRONG for b in STRONG if a != b and np.promote_types(a, b) == dtype]
        if dtype == "float64" and self.chance(0.3):
            a = self.dtype(scope, INTEGERS)
            return f"({self.strong(a, scope, depth)} / {self.strong(a, scope, depth)})"
        near = {array.dtype for array in scope.arrays} | set(scope.scalars.values())
        close = [pair for pair in pairs if near & set(pair)]
        a, b = self.random.choice((close if self.chance(0.8) else None) or pairs or [(dtype, dtype)])
        operator = self.random.choice(["+", "-", "*"])
        return f"({self.strong(a, scope, depth)} {operator} {self.strong(b, scope, depth)})"

    def _cast(self, dtype: str, scope: Scope, depth: int) -> str:
        source = self.dtype(scope, STRONG if dtype in FLOATS else INTEGERS)
        return f"np.{dtype}({self.strong(source, scope, depth)})"

    def _float(self, dtype: str, scope: Scope, depth: int) -> str:
        a = self.strong(dtype, scope, depth)
        function = self.random.choice(["np.sqrt", "np.fabs", "np.floor", "np.ceil", "np.trunc", "np.copysign"])
        if function == "np.copysign":
            return f"{function}({a}, {self.strong(dtype, scope, depth)})"
        return f"{function}({a})"

    def _bits(self, dtype: str, scope: Scope, depth: int) -> str:
        a = self.strong(dtype, scope, depth)
        operator = self.random.choice(["&", "|", "^", "~"])
        return f"(~{a})" if operator == "~" else f"({a} {operator} {self.strong(dtype, scope, depth)})"

    def _shift(self, dtype: str, scope: Scope, depth: int) -> str:
        a, operator = self.strong(dtype, scope, depth), self.random.choice(["<<", ">>"])
        if self.chance(0.5):
            return f"({a} {operator} {self.random.choice([0, 1, 3, 7, 8, 9, 31, 32, 33, 63, 64, 65])})"
        return f"({a} {operator} ({self.strong(dtype, scope, depth)} & 79))"

    def _power(self, dtype: str, scope: Scope, depth: int) -> str:
        return f"({self.strong(dtype, scope, depth)} ** {self.random.randrange(4)})"

    def _helper(self, dtype: str, scope: Scope, depth: int) -> str:
        """Return a call of a function of its own, of numbers alone."""
        name = f"help{len(self.helpers)}"
        self.helpers.append("")  # keeps the number, should the arguments call functions as well
        own = Scope(wholes=[Whole("k", -9, 9)], scalars={"p": dtype, "q": "float"})
        lines = [f"def {name}(p, q, k=2):", f"    r = {self.strong(dtype, own, 1)}"]
        own.scalars["r"] = dtype
        if self.chance(0.5):
            lines += [f"    if {self.truth(own, 1)}:", f"        return {self.strong(dtype, own, 1)}"]
            lines += ["    else:", f"        return {self._same(dtype, own, 0)} + r"]
        else:
            lines.append(f"    return {self._same(dtype, own, 0)} + r")
        self.helpers[int(name[4:])] = "\n".join(lines) + "\n"
        arguments = [self.strong(dtype, scope, depth), self.floating(scope, depth)]
        if self.chance(0.5):
            arguments.append(f"k={self.random.randint(-9, 9)}")
        return f"{name}({', '.join(arguments)})"

    # -- truth values ------------------------------------------------------------------------------------

    def truth(self, scope: Scope, depth: int = 2) -> str:
        """Return a truth value."""
        pick = self.random.choice
        if depth > 0 and self.chance(0.35):
            a, b = self.truth(scope, depth - 1), self.truth(scope, depth - 1)
            return pick([f"({a} and {b})", f"({a} or {b})", f"(not {a})"])
        masks = [array for array in scope.arrays if array.dtype == "bool"]
        match pick(["int", "int", "mixed", "mixed", "sign", "float", "chain", "mask", "guard", "nan"]):
            case "int":
                return f"({self.whole(scope, depth).text} {pick(RELATIONS)} {self.whole(scope, depth).text})"
            case "mixed":
                a, b = (self.strong(self.dtype(scope), scope, depth - 1) for _ in range(2))
                return f"({a} {pick(RELATIONS)} {b})"
            case "sign":
                a = self.strong(pick(["uint8", "uint16", "uint32", "uint64"]), scope, depth - 1)
                b = pick([self.strong(pick(["int8", "int64"]), scope, depth - 1), self.whole(scope, depth - 1).text])
                return f"({a} {pick(RELATIONS)} {b})" if self.chance(0.5) else f"({b} {pick(RELATIONS)} {a})"
            case "float":
                b = pick([self.floating(scope, depth - 1), self.whole(scope, depth - 1).text])
                return f"({self.strong(self.dtype(scope), scope, depth - 1)} {pick(RELATIONS)} {b})"
            case "chain":
                low, middle, high = (self.whole(scope, depth - 1).text for _ in range(3))
                return f"({low} < {middle} <= {high})"
            case "mask" if masks:
                return self.element(pick(masks), scope, depth - 1)
            case "guard" if any(not array.slot for array in scope.arrays):
                return self._guarded(scope, depth)
            case _:
                value = self.strong(self.dtype(scope, FLOATS), scope, depth - 1)
                return f"{pick(['np.isnan', 'np.isinf', 'np.isfinite'])}({value})"

    def _guarded(self, scope: Scope, depth: int) -> str:
        """Return an access that is in range only because ``and`` or ``or`` stops before it."""
        array = self.random.choice([array for array in scope.arrays if not array.slot])
        extents = array.values.shape
        place = self.whole(scope, depth - 1).text
        rest = "".join(f", {self.index(extent, scope, 0)}" for extent in extents[1:])
        access = f"{array.name}[{place}{rest}]"
        test = access if array.dtype == "bool" else f"{access} > 1"
        if self.chance(0.5):
            return f"(0 <= {place} < {extents[0]} and {test})"
        return f"({place} < {-extents[0]} or {place} >= {array.name}.shape[0] or {test})"


def _near(whole: Whole) -> Whole:
    """Return the number, brought near to zero if it can be far."""
    if whole.low >= -FAR and whole.high <= FAR:
        return whole
    return Whole(f"({whole.text} % 1009)", 0, 1008)
