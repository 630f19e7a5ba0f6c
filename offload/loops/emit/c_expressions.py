"""Expressions of the typed loop IR as C.

Every node has a type, so it has one C text. Integers narrower than C's ``int`` are cast back after every operation:
that is where they wrap. A wrong index or a division by zero is noted in ``fault``, a variable of the iteration, and the
expression still has a value. Therefore C's ``?:``, ``&&`` and ``||`` evaluate the operands that Python evaluates.

An index that may be out of range is *clamped* and noted in ``fault``, or *tried*: then only a flag is kept, in loops
that is written twice (`once_checked`). docs/design/loops.md describes places of 32 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from offload.loops.emit.c_prelude import C_TYPES
from offload.loops.tree import ir
from offload.loops.tree.nodes import can_divide_by_zero, dtype_of
from offload.loops.tree.promotion import (
    is_complex,
    is_float,
    is_inexact,
    is_integer,
    is_signed,
    nbytes_of,
    part_of,
)

if TYPE_CHECKING:
    from offload.loops.emit.c_scope import Dialect, KernelScope
    from offload.loops.tree.ir import Dtype, Expression
    from offload.loops.tree.promotion import Number

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
_PARTS: Final = {"real": "re", "imag": "im"}  # of complex numbers; real ones have no such calls
_OF_PRELUDE: Final = {"isnan", "isinf", "isfinite", "min", "max", "minimum", "maximum"}
_WRAPPING: Final = {"+": "add", "-": "sub", "*": "mul"}
_OF_COMPLEX: Final = {**_WRAPPING, "/": "div"}
_HELD_BY_INT32: Final = frozenset({"bool", "int8", "int16", "int32", "uint8", "uint16"})
_MIRRORED: Final = {"<": ">", "<=": ">=", "==": "==", "!=": "!=", ">=": "<=", ">": "<"}


class CExpressions:
    """Writes expressions."""

    def __init__(self, scope: KernelScope) -> None:
        self._scope = scope

    def text(self, node: Expression) -> str:
        """Return an expression as C."""
        match node:
            case ir.Constant():
                return literal(node.value, dtype_of(node))
            case ir.Name():
                variable = self._scope.variable(node.name)
                return f"((int64_t){variable})" if node.name in self._scope.narrow else variable
            case ir.Extent():
                extent = self._scope.extent(node.array, node.dimension)
                return extent if self._scope.index_bits == 64 else f"((int64_t){extent})"
            case ir.Trip():
                return f"((int64_t)t{node.axis})"
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
                return self._converted(node)
            case ir.FunctionCall():
                return self._call(node)
            case _:
                raise AssertionError(node)

    def _converted(self, node: ir.Convert) -> str:
        of, to = dtype_of(node.operand), node.to.dtype
        if not self._scope.truncates or not is_integer(of) or not is_inexact(to):
            return converted(self.text(node.operand), of, to)
        part = part_of(to)
        return converted(f"positive_zero_{part}({converted(self.text(node.operand), of, part)})", part, to)

    def _load(self, node: ir.Load) -> str:
        dtype, mode = self._scope.dtype(node.array), self._scope.modes.get(node.at, "check")
        places = []
        for k, index in enumerate(node.indices):
            if mode == "check":
                places.append(self.bounded(node, k, index))
            else:
                places.append(self.place(node.array, k, index, mode))
        element = self._scope.element(node.array, places, guarded=mode == "check" and bool(places))
        return f"({element} != 0)" if dtype == "bool" else element

    def _unary(self, node: ir.Unary) -> str:
        text, dtype = self.text(node.operand), dtype_of(node)
        if node.operator == "+":
            return text
        if node.operator == "not" or dtype == "bool":
            return f"(!{text})"
        if node.operator == "-" and is_complex(dtype):
            return f"neg_{dtype}({text})"
        if node.operator == "-" and is_integer(dtype):
            return arithmetic(self._scope.dialect, "-", "0", text, dtype)
        return _narrowed(f"({node.operator}{text})", dtype)

    def _binary(self, node: ir.Binary) -> str:
        left, right, dtype, operator = self.text(node.left), self.text(node.right), dtype_of(node), node.operator
        if operator == "**" and is_complex(dtype):
            return f"pow_{dtype}({left}, {_whole(node.right)})"
        if operator in ("//", "%"):
            return self._division(node, left, right)
        if operator in ("<<", ">>"):
            return f"{'shl' if operator == '<<' else 'shr'}_{dtype}({left}, {right})"
        if operator == "**":
            return f"{_float_function('pow', dtype) if is_float(dtype) else f'pow_{dtype}'}({left}, {right})"
        return arithmetic(self._scope.dialect, operator, left, right, dtype)

    def _division(self, node: ir.Binary, left: str, right: str) -> str:
        name, guarded, dtype = ("floordiv", "divide", dtype_of(node))
        if node.operator == "%":
            name, guarded = "mod", "modulo"
        if can_divide_by_zero(node):
            return f"{guarded}_{dtype}(&fault, {node.place.line}, {left}, {right})"
        return f"{name}_{dtype}({left}, {right})"

    def _compare(self, node: ir.Compare) -> str:
        a, b = dtype_of(node.left), dtype_of(node.right)
        left, right = self.text(node.left), self.text(node.right)
        operator: str = node.operator
        if is_complex(a):
            return f"({'!' if operator == '!=' else ''}equal_{a}({left}, {right}))"
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

    def _call(self, node: ir.FunctionCall) -> str:
        name = node.function.rpartition(".")[2]
        name = _FUNCTIONS.get(name, name)
        dtype = dtype_of(node.arguments[0])
        arguments = ", ".join(self.text(argument) for argument in node.arguments)
        if node.function == "complex.powi":
            return f"powi_{dtype}({self.text(node.arguments[0])}, {_whole(node.arguments[1])})"
        if node.function == "complex":
            return f"made_{dtype_of(node)}({arguments})"
        if name in _PARTS:
            return f"{arguments}.{_PARTS[name]}"
        if not is_float(dtype):
            # Integers have no NaN, so that NumPy's minimum is Python's.
            return f"{name.replace('imum', '')}_{dtype}({arguments})"
        if name in _OF_PRELUDE:
            return f"{name}_{dtype}({arguments})"
        return f"{_float_function('fabs' if name == 'abs' else name, dtype)}({arguments})"

    # -- indices

    def place(self, array: str, dimension: int, index: Expression, mode: ir.Mode) -> str:
        """Return an index that is in range, once it is wrapped if the mode says so."""
        extent = self._scope.extent(array, dimension)
        if self._scope.index_bits == 64:
            text = self.text(index)
            return f"wrapped({text}, {extent})" if mode == "wrap" else f"({text})"
        exact = self._in_one_step(index)
        if mode == "wrap":
            return f"wrapped32({exact or f'(int32_t){self._modulo(index)}'}, {extent})"
        return exact or self._modulo(index)

    def bounded(self, node: ir.Load, dimension: int, index: Expression) -> str:
        """Return a load's index, or 0 where it is out of range, which is noted then."""
        bound = self._scope.bound(node.array, dimension)
        if node.at in self._scope.tried:
            name, before, after = "tried", "&is_missed", ""
        else:
            name, before, after = "clamped", "&fault", f", {node.at}, {dimension}"
        exact = self.held_by_int32(index) if self._scope.index_bits == 32 else None
        if exact is not None:
            return f"{name}32({before}, {exact}, {bound}{after})"
        casts = "(uint32_t)" if self._scope.index_bits == 32 else ""
        return f"{casts}{name}({before}, {self.text(index)}, {bound}{after})"

    def narrow(self, node: Expression) -> str:
        """Return an integer that is known to be one of 32 bits as such."""
        return self._in_one_step(node) or f"(int32_t){self._modulo(node)}"

    def held_by_int32(self, node: Expression) -> str | None:
        """Return an integer in 32 bits if its type, or that of its variable, tells that it fits."""
        match node:
            case ir.Constant(value=int(value)) if is_integer(dtype_of(node)) and -(2**31) < value < 2**31:
                return f"{int(value)}" if value >= 0 else f"({value})"
            case ir.Name() if node.name in self._scope.narrow:
                return self._scope.variable(node.name)
            case ir.Extent() if self._scope.index_bits == 32:
                return self._scope.extent(node.array, node.dimension)
            case ir.Trip() if self._scope.index_bits == 32:
                return f"t{node.axis}"
            case ir.Convert() if dtype_of(node) == "int64":
                return self.held_by_int32(node.operand)
            case _ if dtype_of(node) in _HELD_BY_INT32:
                text = self.text(node)
                return text if dtype_of(node) == "int32" else f"((int32_t){text})"
            case _:
                return None

    def _in_one_step(self, node: Expression) -> str | None:
        """Return an integer whose value fits 32 bits as one operation of such, if it is one."""
        match node:
            case ir.Binary(operator="+" | "-" | "*") if dtype_of(node) == "int64":
                left, right = self.held_by_int32(node.left), self.held_by_int32(node.right)
                return f"({left} {node.operator} {right})" if left and right else None
            case ir.Unary(operator="-") if dtype_of(node) == "int64":
                operand = self.held_by_int32(node.operand)
                return f"(-{operand})" if operand else None
            case _:
                return self.held_by_int32(node)

    def _modulo(self, node: Expression) -> str:
        """Return an integer modulo 2**32, of which sums and products follow from those of their parts."""
        match node:
            case ir.Binary(operator="+" | "-" | "*") if nbytes_of(dtype_of(node)) == 8:
                return f"({self._modulo(node.left)} {node.operator} {self._modulo(node.right)})"
            case ir.Unary(operator="-") if nbytes_of(dtype_of(node)) == 8:
                return f"(0u - {self._modulo(node.operand)})"
            case ir.Constant(value=int(value)):
                return f"{value % 2**32}u"
            case _:
                return f"(uint32_t)({self.text(node)})"


def arithmetic(dialect: Dialect, operator: str, left: str, right: str, dtype: Dtype) -> str:
    """Return an expression with C's own operator, where integers wrap.

    In CUDA this needs functions: nvcc has no ``-fwrapv``, and assumes that signed integers do not overflow. Complex
    numbers need them everywhere.
    """
    if is_complex(dtype):
        return f"{_OF_COMPLEX[operator]}_{dtype}({left}, {right})"
    if dialect == "cuda" and operator in _WRAPPING and is_integer(dtype):
        return f"{_WRAPPING[operator]}_{dtype}({left}, {right})"
    return _narrowed(f"({left} {operator} {right})", dtype)


def literal(value: Number, dtype: Dtype) -> str:
    """Return a constant of a type."""
    if is_complex(dtype):
        return f"made_{dtype}({literal(value.real, part_of(dtype))}, {literal(value.imag, part_of(dtype))})"
    assert not isinstance(value, complex)  # as the type says
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
    if is_complex(of):
        return f"truth_{of}({text})" if to == "bool" else f"cast_to_{to}({text})"
    if is_complex(to):
        return f"made_{to}({converted(text, of, part_of(to))}, 0)"
    if to == "bool":
        return f"({text} != 0)"
    if is_float(of):
        # Through a type that has the values that fit: what does not is no undefined behaviour of the narrow type.
        if to == "uint64":
            return f"uint64_of({text})"
        through = {"uint32": "(int64_t)", "int64": "", "int32": ""}.get(to, "(int32_t)") if is_integer(to) else ""
        return f"(({C_TYPES[to]}){through}{text})"
    return f"(({C_TYPES[to]}){text})"


def _whole(exponent: Expression) -> int:
    """Return the exponent of a complex number, which is a constant of its type."""
    assert isinstance(exponent, ir.Constant)
    return int(exponent.value.real)


def _narrowed(text: str, dtype: Dtype) -> str:
    return f"(({C_TYPES[dtype]}){text})" if nbytes_of(dtype) < 4 else text


def _float_function(name: str, dtype: Dtype) -> str:
    return f"{name}f" if dtype == "float32" else name
