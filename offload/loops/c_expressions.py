"""Expressions of the typed loop IR as C.

Theory of operation
-------------------
Every node has its type, so that each has one C text, in parentheses where an operator could bind otherwise. Integers
narrower than C's ``int`` are cast back after every operation, which is where they wrap. What can go wrong (an index, a
division by zero) is noted in ``fault``, a variable of the iteration that stays in registers, by functions that return a
value all the same: so C's own ``?:``, ``&&`` and ``||`` decide what is evaluated, as they do in Python.

Arrays are pointers to elements with extents in elements and strides in bytes. A load that is checked goes through a
pointer and bounds of its own (``z_a``, ``b0_a``), which lead to a spare element where the array is empty.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from offload.loops import ir
from offload.loops.c_prelude import C_TYPES, MEMORY_TYPES
from offload.loops.promotion import is_float, is_integer, is_signed, nbytes_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offload.loops.ir import Dtype, Expression, Typed

FieldKind: TypeAlias = Literal[
    "pointer",
    "copies",
    "extent",
    "stride",
    "scalar",
    "start",
    "step",
    "trips",
    "partials",
    "report",
    "result",
    "blocks",
]
Dialect: TypeAlias = Literal["c", "cuda"]
Layout: TypeAlias = Literal["C", "inner", "strided"]
Mode: TypeAlias = Literal["off", "wrap", "check"]

_VARIABLES: Final[dict[FieldKind, str]] = {
    "pointer": "p_{name}",
    "copies": "c_{name}",
    "extent": "n{number}_{name}",
    "stride": "s{number}_{name}",
    "scalar": "v_{name}",
    "start": "start{number}",
    "step": "step{number}",
    "trips": "trips{number}",
    "partials": "partials",
    "report": "record",
    "result": "result_{name}",
    "blocks": "blocks",
}

# Names of Python's `math` and of NumPy; the rest are C's own.
_FUNCTIONS: Final = {
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "gamma": "tgamma",
    "power": "pow",
    "round": "rint",
}
_OF_PRELUDE: Final = {"isnan", "isinf", "isfinite", "min", "max", "minimum", "maximum"}
_WRAPPING: Final = {"+": "add", "-": "sub", "*": "mul"}
_MIRRORED: Final = {"<": ">", "<=": ">=", "==": "==", "!=": "!=", ">=": "<=", ">": "<"}


@dataclass(frozen=True, slots=True)
class Field:
    """A slot of 8 bytes in the structure of arguments.

    Attributes
    ----------
    kind : str
        ``"pointer"`` of an array; ``"copies"``: of one copy a worker of an array; ``"extent"``; ``"stride"``, in bytes;
        ``"scalar"``: its bits in the low bytes; ``"start"``, ``"step"``, ``"trips"`` of an axis; ``"partials"``: the
        address of the chunks' slots; ``"report"``: that of the record of what was wrong. On CUDA ``"copies"`` is the
        place in a block's shared memory, in
        words of 8 bytes, and there are ``"result"``: the address to which the value of a scalar that
        comes out is written, and ``"blocks"``: how many have left partial results.
    name : str
        Of the array or scalar.
    number : int
        Of the dimension or axis.
    """

    kind: FieldKind
    name: str = ""
    number: int = 0


@dataclass(slots=True)
class Scope:
    """What the text of a kernel may name, and what it has named so far.

    Attributes
    ----------
    own : frozenset of str
        Scalars of the iteration: all others are inputs.
    locals : mapping of str to tuple of int
        Shapes of local arrays.
    dialect : str
    index_bits : int
        32 where extents, strides in bytes, offsets, trips and the variables of axes are such numbers.
    """

    typed: Typed
    modes: Mapping[int, Mode]
    layouts: Mapping[str, Layout]
    copies: frozenset[str]
    own: frozenset[str]
    locals: Mapping[str, tuple[int, ...]]
    privates: Mapping[str, str]
    dialect: Dialect = "c"
    index_bits: int = 64
    fields: dict[Field, None] = field(default_factory=dict)
    guarded: dict[str, None] = field(default_factory=dict)

    def use(self, kind: FieldKind, name: str = "", number: int = 0) -> str:
        """Return the variable of a slot, which is one from now on."""
        self.fields[Field(kind, name, number)] = None
        return _VARIABLES[kind].format(name=name, number=number)

    def dtype(self, name: str) -> Dtype:
        """Return the type of a scalar, or of an array's elements."""
        arrays = self.typed.arrays
        return arrays[name].dtype if name in arrays else self.typed.scalars[name].dtype

    def extent(self, array: str, dimension: int) -> str:
        if array in self.locals:
            return str(self.locals[array][dimension])
        return self.use("extent", array, dimension)

    @property
    def index_type(self) -> str:
        return f"int{self.index_bits}_t"

    def element(self, array: str, places: Sequence[str], *, guarded: bool = False, is_original: bool = False) -> str:
        """Return the lvalue of an element.

        A guarded one of an empty array is a spare one; the original one of an array that is private, or that workers
        have copies of, is the argument's.
        """
        if not is_original and (array in self.locals or array in self.privates):
            return f"q_{array}[{self._linear(array, places)}]"
        if array in self.copies and not is_original:
            return f"{self.use('copies', array)}[{self._linear(array, places)}]"
        pointer = self.use("pointer", array)
        if guarded:
            pointer = f"z_{array}"
        layout = self.layouts.get(array, "strided")
        if not places or layout == "C":
            return f"{pointer}[{self._linear(array, places)}]"
        n_strided = len(places) - (layout == "inner")
        casts = "(int32_t)" if self.index_bits == 32 else ""
        strided = [(f"{casts}{place}", self.use("stride", array, k)) for k, place in enumerate(places[:n_strided])]
        offset = " + ".join(f"{place} * {stride}" for place, stride in strided)
        row = f"((const char *){pointer} + {offset})" if n_strided else pointer
        ctype = MEMORY_TYPES[self.dtype(array)]
        return f"(({ctype} *){row})[{self._linear(array, places[-1:]) if layout == 'inner' else 0}]"

    def bound(self, array: str, dimension: int) -> str:
        """Return what checks of a load compare with: the extent, or 0 in every dimension of an empty array."""
        if array in self.locals:
            return str(self.locals[array][dimension])
        self.guarded[array] = None
        for k in range(self.typed.arrays[array].ndim):
            self.use("extent", array, k)
        return f"b{dimension}_{array}"

    def _linear(self, array: str, places: Sequence[str]) -> str:
        if not places:
            return "0"
        # Without a sign: what has been made 64 bits wide and 32 again costs two shifts if it has one.
        casts = "(uint32_t)" if self.index_bits == 32 else ""
        places = [f"{casts}{place}" for place in places]
        text = places[0]
        for k, place in enumerate(places[1:], 1):
            text = f"({text} * {self.extent(array, k)} + {place})"
        return text


class Expressions:
    """Writes expressions.

    Parameters
    ----------
    scope : Scope
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def text(self, node: Expression) -> str:
        """Return an expression as C."""
        match node:
            case ir.Constant():
                return literal(node.value, _dtype(node))
            case ir.Name():
                return f"v_{node.name}" if node.name in self._scope.own else self._scope.use("scalar", node.name)
            case ir.Extent():
                extent = self._scope.extent(node.array, node.dimension)
                return extent if self._scope.index_bits == 64 else f"((int64_t){extent})"
            case ir.Load():
                return self._load(node)
            case ir.Unary():
                return self._unary(node)
            case ir.Binary():
                return self._binary(node)
            case ir.Compare():
                return self._compare(node)
            case ir.Logical():
                operator = "&&" if node.operator == "and" else "||"
                return f"({self.text(node.left)} {operator} {self.text(node.right)})"
            case ir.Select():
                return f"({self.text(node.condition)} ? {self.text(node.then)} : {self.text(node.otherwise)})"
            case ir.Convert():
                return converted(self.text(node.operand), _dtype(node.operand), node.to.dtype)
            case ir.Call():
                return self._call(node)
            case _:
                raise AssertionError(node)

    def place(self, array: str, dimension: int, index: Expression, mode: Mode) -> str:
        """Return an index that is in range, once it is wrapped if the mode says so."""
        text = self.text(index) if self._scope.index_bits == 64 else f"(int32_t){self._modulo(index)}"
        return f"wrapped({text}, {self._scope.extent(array, dimension)})" if mode == "wrap" else f"({text})"

    def _modulo(self, node: Expression) -> str:
        """Return an integer modulo 2**32, of which sums and products follow from those of their parts."""
        match node:
            case ir.Binary(operator="+" | "-" | "*") if nbytes_of(_dtype(node)) == 8:
                return f"({self._modulo(node.left)} {node.operator} {self._modulo(node.right)})"
            case ir.Unary(operator="-") if nbytes_of(_dtype(node)) == 8:
                return f"(0u - {self._modulo(node.operand)})"
            case ir.Constant():
                return f"{int(node.value) % 2**32}u"
            case _:
                return f"(uint32_t)({self.text(node)})"

    def _load(self, node: ir.Load) -> str:
        dtype, mode = self._scope.dtype(node.array), self._scope.modes.get(node.at, "check")
        places = []
        for k, index in enumerate(node.indices):
            if mode == "check":
                bound = self._scope.bound(node.array, k)
                places.append(f"clamped(&fault, {self.text(index)}, {bound}, {node.at}, {k})")
            else:
                places.append(self.place(node.array, k, index, mode))
        element = self._scope.element(node.array, places, guarded=mode == "check" and bool(places))
        return f"({element} != 0)" if dtype == "bool" else element

    def _unary(self, node: ir.Unary) -> str:
        text, dtype = self.text(node.operand), _dtype(node)
        if node.operator == "+":
            return text
        if node.operator == "not" or dtype == "bool":
            return f"(!{text})"
        if node.operator == "-" and is_integer(dtype):
            return arithmetic(self._scope.dialect, "-", "0", text, dtype)
        return _narrowed(f"({node.operator}{text})", dtype)

    def _binary(self, node: ir.Binary) -> str:
        left, right, dtype, operator = self.text(node.left), self.text(node.right), _dtype(node), node.operator
        if operator in ("//", "%"):
            return self._division(node, left, right)
        if operator in ("<<", ">>"):
            return f"{'shl' if operator == '<<' else 'shr'}_{dtype}({left}, {right})"
        if operator == "**":
            return f"{_float_function('pow', dtype) if is_float(dtype) else f'pow_{dtype}'}({left}, {right})"
        return arithmetic(self._scope.dialect, operator, left, right, dtype)

    def _division(self, node: ir.Binary, left: str, right: str) -> str:
        name, guarded, dtype = ("floordiv", "divide", _dtype(node))
        if node.operator == "%":
            name, guarded = "mod", "modulo"
        if can_divide_by_zero(node):
            return f"{guarded}_{dtype}(&fault, {node.place.line}, {left}, {right})"
        return f"{name}_{dtype}({left}, {right})"

    def _compare(self, node: ir.Compare) -> str:
        a, b = _dtype(node.left), _dtype(node.right)
        left, right = self.text(node.left), self.text(node.right)
        operator: str = node.operator
        if not (is_integer(a) and is_integer(b)) or is_signed(a) == is_signed(b):
            return f"({left} {operator} {right})"
        if nbytes_of(b if is_signed(a) else a) < 8:
            return f"((int64_t){left} {operator} (int64_t){right})"
        if not is_signed(a):
            left, right, operator = right, left, _MIRRORED[operator]
        match operator:  # the left side is signed now
            case "==" | "!=":
                return f"({'!' if operator == '!=' else ''}equal_su({left}, {right}))"
            case "<" | ">=":
                return f"({'!' if operator == '>=' else ''}less_su({left}, {right}))"
            case _:
                return f"({'!' if operator == '<=' else ''}less_us({right}, {left}))"

    def _call(self, node: ir.Call) -> str:
        name = node.function.rpartition(".")[2]
        name = _FUNCTIONS.get(name, name)
        dtype = _dtype(node.arguments[0])
        arguments = ", ".join(self.text(argument) for argument in node.arguments)
        if not is_float(dtype):
            # Integers have no NaN, so that NumPy's minimum is Python's.
            return f"{name.replace('imum', '')}_{dtype}({arguments})"
        if name in _OF_PRELUDE:
            return f"{name}_{dtype}({arguments})"
        return f"{_float_function('fabs' if name == 'abs' else name, dtype)}({arguments})"


def arithmetic(dialect: Dialect, operator: str, left: str, right: str, dtype: Dtype) -> str:
    """Return what C's own operator makes of two operands, where integers wrap.

    In CUDA they need functions for it: nvcc knows no ``-fwrapv``, and draws conclusions from what must not overflow.
    """
    if dialect == "cuda" and operator in _WRAPPING and is_integer(dtype):
        return f"{_WRAPPING[operator]}_{dtype}({left}, {right})"
    return _narrowed(f"({left} {operator} {right})", dtype)


def can_divide_by_zero(node: ir.Binary) -> bool:
    """Tell whether it divides integers by what is not a constant."""
    is_constant = isinstance(node.right, ir.Constant) and node.right.value != 0
    return node.operator in ("//", "%") and is_integer(_dtype(node)) and not is_constant


def literal(value: bool | int | float, dtype: Dtype) -> str:  # noqa: PYI041  # `float` alone is no bool to mypy
    """Return a constant of a type."""
    if dtype == "bool":
        return "true" if value else "false"
    if is_float(dtype):
        number = float(value)
        text = "NAN" if number != number else repr(number).replace("inf", "INFINITY")  # noqa: PLR0124  # NaN
        return text if dtype == "float64" and text[0] != "-" else f"(({C_TYPES[dtype]}){text})"
    number = int(value)
    if dtype == "uint64":
        return f"{number}ull"
    # C has no literal for the least value: minus is an operator.
    text = f"{number}ll" if number >= 0 else f"(-{-number}ll)" if number > -(2**63) else f"({number + 1}ll - 1)"
    return text if dtype == "int64" else f"(({C_TYPES[dtype]}){text})"


def converted(text: str, of: Dtype, to: Dtype) -> str:
    """Return a value of one type as another: as C casts, to bool by ``!= 0``."""
    if to == of:
        return text
    if to == "bool":
        return f"({text} != 0)"
    if is_float(of):
        # Through a type that has the values that fit: what does not is no undefined behaviour of the narrow type.
        if to == "uint64":
            return f"uint64_of({text})"
        through = {"uint32": "(int64_t)", "int64": "", "int32": ""}.get(to, "(int32_t)") if is_integer(to) else ""
        return f"(({C_TYPES[to]}){through}{text})"
    return f"(({C_TYPES[to]}){text})"


def _narrowed(text: str, dtype: Dtype) -> str:
    return f"(({C_TYPES[dtype]}){text})" if nbytes_of(dtype) < 4 else text


def _float_function(name: str, dtype: Dtype) -> str:
    return f"{name}f" if dtype == "float32" else name


def _dtype(node: Expression) -> Dtype:
    assert node.type is not None
    return node.type.dtype
