"""Typed loops as Python's text on NumPy scalars, for hosts without a compiler and as a second oracle.

NumPy scalars have the arithmetic of loops: integers wrap, ``//`` and ``%`` floor, and floats give infinities and NaN.
Therefore most operators stay as they are. The namespace of `python_form` has functions for the rest: comparisons of two
integer types, integer division, checked accesses. Names get a prefix: ``v_`` scalars, ``a_`` arrays, ``r_`` reduction
items, ``t_`` iteration numbers, ``c_`` constants. On the host, scalars are items of a dictionary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from offload.loops.tree import ir
from offload.loops.tree.nodes import beyond_int64, has_load, names_assigned, names_in, walk
from offload.loops.tree.promotion import identity, is_float
from offload.loops.tree.uses import result_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from offload.loops.tree.ir import Expression, Nest, Statement, Type, Typed

_FUNCTIONS: Final = {
    "abs": "abs",  # of complex64 NumPy's function of arrays is less exact
    "erf": "erf",
    "erfc": "erfc",
    "gamma": "gamma",
    "lgamma": "lgamma",
    "round": "numpy.rint",
    "complex": "complex_of",
    "quotient": "quotient",  # of Python's complex numbers
    "powi": "powi",
}
_RENAMED: Final = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "atan2": "arctan2",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
}


def emit_kernel(
    typed: Typed,
    nest: Nest,
    modes: Mapping[int, ir.Mode],
    observed: frozenset[int] = frozenset(),
    *,
    goes_on: bool = False,
) -> str:
    """Return the text of ``kernel(arguments, begin, end, chunk, partials, report)``, as `python_form` describes it."""
    return (_GoingOn if goes_on else _Kernel)(typed, nest, modes, observed).text()


def emit_parts(typed: Typed) -> str:
    """Return the text of ``part_0(scalars, arrays)`` and so on, one for each part of the function.

    One of a statement carries it out, on the dictionary `scalars`; one of a nest returns ``(start, step, trips)`` of
    each axis.
    """
    host = _HostParts(typed)
    functions: list[str] = []
    for number, part in enumerate(typed.function.parts):
        body = host.axes(part) if isinstance(part, ir.Nest) else "\n".join(host.statement(part, 1))
        functions.append(f"def part_{number}(scalars, arrays):\n{body}\n")
    return host.constants() + "\n".join(functions)


def inputs_of(nest: Nest) -> tuple[str, ...]:
    """Return the scalars that a nest's kernel is given: those that it reads and does not assign, sorted."""
    items = {reduction.name for reduction in nest.reductions}
    variables = {loop.variable for loop in (*nest.axes, *walk(*nest.body)) if isinstance(loop, ir.LoopAxis | ir.For)}
    return tuple(sorted(names_in(*nest.body) - variables - items - names_assigned(*nest.body)))


class _Emitter:
    """The part that the host and kernels share: expressions and most statements."""

    trips = "()"
    report = "None"

    def __init__(self, typed: Typed, modes: Mapping[int, ir.Mode]) -> None:
        self.typed = typed
        self._modes = modes  # how accesses are checked, by `at`
        self._constants: dict[str, str] = {}  # names of constants, by their text

    def constants(self) -> str:
        """Return the lines that make the constants of the emitted text."""
        return "".join(f"{name} = {value}\n" for value, name in self._constants.items())

    def scalar(self, name: str) -> str:
        return f"v_{name}"

    def array(self, name: str) -> str:
        return f"a_{name}"

    # -- expressions -------------------------------------------------------------------------------------

    def expression(self, node: Expression) -> str:
        """Return the text of a value, in brackets where it needs them."""
        match node:
            case ir.Constant():
                return self._constant(node)
            case ir.Name():
                return self.scalar(node.name)
            case ir.Extent():
                return f"int64({self.array(node.array)}.shape[{node.dimension}])"
            case ir.Trip():
                return f"int64(t_{node.axis})"
            case ir.Load():
                return self.load(node.array, node.indices, node.at)
            case ir.Unary(operator="not"):
                return f"bool_(not {self.expression(node.operand)})"
            case ir.Unary():
                return f"({node.operator}{self.expression(node.operand)})"
            case ir.Binary():
                return self._binary(node)
            case ir.Compare():
                return self._compare(node)
            case ir.Logical():
                return f"({self.expression(node.left)} {node.operator} {self.expression(node.right)})"
            case ir.Select():
                then, otherwise = self.expression(node.then), self.expression(node.otherwise)
                return f"({then} if {self.expression(node.condition)} else {otherwise})"
            case ir.Convert():
                return f"{self.expression(node.operand)}.astype({_scalar_class(node.to)})"
            case ir.FunctionCall():
                return self._call(node)
            case _:
                raise AssertionError(node)

    def bound(self, node: Expression) -> str:
        """Return a bound of a loop, or its step, before it becomes one of int64, which may not hold it."""
        operand = beyond_int64(node)
        return self.expression(node if operand is None else operand)

    def _constant(self, node: ir.Constant) -> str:
        assert node.type is not None
        value = _real(node.value) if isinstance(node.value, bool | int | float) else _of_parts(node.value)
        text = f"{_scalar_class(node.type)}({value})"
        return self._constants.setdefault(text, f"c_{len(self._constants)}")

    def _binary(self, node: ir.Binary) -> str:
        assert node.type is not None
        left, right = self.expression(node.left), self.expression(node.right)
        if node.operator in ("//", "%") and not is_float(node.type.dtype):
            function = "floor_divide" if node.operator == "//" else "remainder"
            return f"{function}({left}, {right}, {node.place.line}, {self.trips}, {self.report})"
        return f"({left} {node.operator} {right})"

    def _compare(self, node: ir.Compare) -> str:
        assert node.left.type is not None
        assert node.right.type is not None
        left, right = self.expression(node.left), self.expression(node.right)
        if node.left.type.dtype != node.right.type.dtype:
            return f"bool_(int({left}) {node.operator} int({right}))"
        return f"({left} {node.operator} {right})"

    def _call(self, node: ir.FunctionCall) -> str:
        arguments = [self.expression(argument) for argument in node.arguments]
        if node.function in ("min", "max"):
            return _combined(node.function, *arguments)
        name = node.function.rpartition(".")[2]
        function = _FUNCTIONS.get(name) or f"numpy.{_RENAMED.get(name, name)}"
        return f"{function}({', '.join(arguments)})"

    def _indices(self, indices: tuple[Expression, ...]) -> str:
        return ", ".join(self.expression(index) for index in indices) + ("," if indices else "")

    def _is_checked(self, at: int, indices: tuple[Expression, ...]) -> bool:
        return bool(indices) and self._modes.get(at, "check") == "check"

    def load(self, array: str, indices: tuple[Expression, ...], at: int) -> str:
        """Return the text of an element; an index below zero is wrapped by NumPy."""
        if self._is_checked(at, indices):
            places = self._indices(indices)
            return f"load({self.array(array)}, ({places}), {at}, {self.trips}, {self.report})"
        return f"{self.array(array)}[{self._indices(indices) if indices else '()'}]"

    def store(self, array: str, indices: tuple[Expression, ...], value: str, at: int) -> str:
        """Return the statement that writes an element."""
        if self._is_checked(at, indices):
            places = self._indices(indices)
            return f"store({self.array(array)}, ({places}), {value}, {at}, {self.trips}, {self.report})"
        return f"{self.array(array)}[{self._indices(indices) if indices else '()'}] = {value}"

    # -- statements --------------------------------------------------------------------------------------

    def block(self, statements: tuple[Statement, ...], depth: int) -> list[str]:
        """Return the lines of statements, ``pass`` where there are none."""
        lines = [line for node in statements for line in self.statement(node, depth)]
        return lines or [f"{_indent(depth)}pass"]

    def statement(self, node: Statement, depth: int) -> list[str]:
        return [*self._lines(node, depth)]

    def _lines(self, node: Statement, depth: int) -> Iterator[str]:
        head = _indent(depth)
        match node:
            case ir.Assign():
                yield f"{head}{self.scalar(node.name)} = {self.expression(node.value)}"
            case ir.Store():
                yield head + self.store(node.array, node.indices, self.expression(node.value), node.at)
            case ir.Reduce():
                item = self.scalar(node.name)
                yield f"{head}{item} = {_combined(node.operator, item, self.expression(node.value))}"
            case ir.Atomic():
                yield from (head + line for line in self._atomic(node))
            case ir.If():
                yield f"{head}if {self.expression(node.condition)}:"
                yield from self.block(node.then, depth + 1)
                if node.otherwise:
                    yield f"{head}else:"
                    yield from self.block(node.otherwise, depth + 1)
            case ir.For():
                bounds = ", ".join(map(self.bound, (node.start, node.stop, node.step)))
                values = f"values_of({bounds}, {node.place.line}, {self.trips}, {self.report})"
                yield f"{head}for {self.scalar(node.variable)} in {values}:"
                yield from self.block(node.body, depth + 1)
            case ir.While():
                yield f"{head}while {self.expression(node.condition)}:"
                yield from self.block(node.body, depth + 1)
            case ir.Break():
                yield f"{head}break"
            case ir.Continue():
                yield f"{head}continue"
            case ir.Assert():
                yield f"{head}if not {self.expression(node.condition)}:"
                yield f"{_indent(depth + 1)}fail_assertion({node.place.line}, {self.trips}, {self.report})"
            case ir.IndexCheck() if self._is_checked(node.at, node.indices):
                places = self._indices(node.indices)
                yield (
                    f"{head}check_indices(({places}), {node.sizes}, {node.array!r}, {node.at}, {self.trips}, "
                    f"{self.report})"
                )
            case ir.IndexCheck():
                yield f"{head}pass"
            case ir.Local():
                dtype = _scalar_class(ir.Type(node.dtype))
                fill = "" if node.fill is None else f"{self.expression(node.fill)}, "
                function = "full" if fill else "empty"
                yield f"{head}{self.array(node.name)} = numpy.{function}({node.shape}, {fill}{dtype})"
            case _:
                raise AssertionError(node)

    def _atomic(self, node: ir.Atomic) -> Iterator[str]:
        value = self.expression(node.value)
        yield f"old = {self.load(node.array, node.indices, node.at)}"
        if node.operator == "cas":
            assert node.expected is not None
            store = self.store(node.array, node.indices, value, node.at)
            yield f"if old == {self.expression(node.expected)}:"
            yield _indent(1) + store
        else:
            new = value if node.operator == "exchange" else _combined(node.operator, "old", value)
            yield self.store(node.array, node.indices, new, node.at)
        if node.result is not None:
            yield f"{self.scalar(node.result)} = old"


class _HostParts(_Emitter):
    """Statements and bounds that the host evaluates."""

    def __init__(self, typed: Typed) -> None:
        super().__init__(typed, {})

    def scalar(self, name: str) -> str:
        return f'scalars["{name}"]'

    def array(self, name: str) -> str:
        return f'arrays["{name}"]'

    def axes(self, nest: Nest) -> str:
        """Return the lines that return the bounds of a nest."""
        bounds = (
            f"axis({self.bound(a.start)}, {self.bound(a.stop)}, {self.bound(a.step)}, {a.place.line})"
            for a in nest.axes
        )
        lines = [*self._step_checks(nest), f"return ({', '.join(bounds)},)"]
        return "\n".join(_indent(1) + line for line in lines)

    def _step_checks(self, nest: Nest) -> Iterator[str]:
        """Yield a line for each inner loop whose step the host knows and the text does not."""
        known = set(inputs_of(nest))
        for loop in walk(*nest.body):
            if not isinstance(loop, ir.For) or (isinstance(loop.step, ir.Constant) and loop.step.value != 0):
                continue
            if names_in(loop.step) <= known and not has_load(loop.step):
                yield f"check_step({self.expression(loop.step)}, {loop.place.line})"


class _Kernel(_Emitter):
    """The kernel of a nest: its loops, its inputs, its outputs."""

    report = "report"

    def __init__(self, typed: Typed, nest: Nest, modes: Mapping[int, ir.Mode], observed: frozenset[int]) -> None:
        super().__init__(typed, modes)
        self._nest = nest
        self._observed = observed  # accesses, by `at`, that the observer carries out
        self._items = {reduction.name for reduction in nest.reductions}  # of reductions
        # the text of the tuple of trip numbers, for reports
        self.trips = f"({' '.join(f't_{axis},' for axis in range(len(nest.axes)))})"

    def scalar(self, name: str) -> str:
        return f"r_{name}" if name in self._items else f"v_{name}"

    def load(self, array: str, indices: tuple[Expression, ...], at: int) -> str:
        if at not in self._observed:
            return super().load(array, indices, at)
        return f'observer.load("{array}", ({self._indices(indices)}), {at}, {self.trips}, {self.report})'

    def store(self, array: str, indices: tuple[Expression, ...], value: str, at: int) -> str:
        if at not in self._observed:
            return super().store(array, indices, value, at)
        return f'observer.store("{array}", ({self._indices(indices)}), {value}, {at}, {self.trips}, {self.report})'

    def text(self) -> str:
        lines = [*self._head(), *self._loops(), *self._tail()]
        body = "\n".join(_indent(1) + line for line in lines)
        return f"{self.constants()}def kernel(arguments, begin, end, chunk, partials, report):\n{body}\n"

    def _head(self) -> Iterator[str]:
        if self._observed:
            yield 'observer = arguments["observer"]'
        for name in self.typed.function.arrays:
            yield f'a_{name} = arguments["{name}"]'
        for name in self._nest.privates:
            yield f'whole_{name} = arguments["{name}"]'
        for name in inputs_of(self._nest):
            yield f'v_{name} = arguments["{name}"]'
        for axis in range(len(self._nest.axes)):
            names = ", ".join(f"{what}_{axis}" for what in ("start", "step", "trips"))
            yield f"{names} = " + ", ".join(f'arguments["{what} {axis}"]' for what in ("start", "step", "trips"))
        for reduction in self._nest.reductions:
            start = identity(reduction.operator, self._item_type(reduction.name).dtype)
            yield f"r_{reduction.name} = {self._constant_of(start, reduction.name)}"
        for name in self._nest.last:
            # An iteration may end before it assigns.
            yield f'v_{name} = arguments.get("{name}", {self._constant_of(0, name)})'
        for name in self._nest.carried:
            yield f'v_{name} = arguments["{name}"]'

    def _left(self) -> Iterator[tuple[str, str]]:
        """Yield the scalars that the nest passes on, each with its words in a row of partial results."""
        places, _ = result_words(self.typed, self._nest)
        yield from ((name, f"{words.start}:{words.stop}") for name, words in places.items())

    def _item_type(self, name: str) -> Type:
        arrays = self.typed.arrays
        return ir.Type(arrays[name].dtype) if name in arrays else self.typed.scalars[name]

    def _constant_of(self, value: complex, name: str) -> str:
        return self._constant(ir.Constant(place=self._nest.place, value=value, type=self._item_type(name)))

    def _loops(self) -> Iterator[str]:
        tile = self._nest.clauses.tile
        ranges = [("begin", "end"), *(("0", f"trips_{number}") for number in range(1, len(self._nest.axes)))]
        for number, size in enumerate(tile):
            first, end = ranges[number]
            yield f"{_indent(number)}for o_{number} in range({first}, {end}, {size}):"
            ranges[number] = f"o_{number}", f"min(o_{number} + {size}, {end})"
        for depth, axis in enumerate(self._nest.axes, len(tile)):
            number = depth - len(tile)
            yield f"{_indent(depth)}for t_{number} in range({', '.join(ranges[number])}):"
            yield f"{_indent(depth + 1)}v_{axis.variable} = int64(start_{number} + t_{number} * step_{number})"
        for name, kind in self._nest.privates.items():
            own = f"numpy.empty_like(whole_{name})" if kind == "private" else f"whole_{name}.copy()"
            yield f"{_indent(depth + 1)}a_{name} = {own}"
        yield from self.block(self._nest.body, depth + 1)

    def _tail(self) -> Iterator[str]:
        left = dict(self._left())
        for reduction in self._nest.reductions:
            yield f"partials[chunk, {left[reduction.name]}] = bits(r_{reduction.name})"
        last = [name for name, kind in self._nest.privates.items() if kind == "lastprivate"]
        if not (self._nest.last or last):
            return
        inner = "".join(f" and trips_{axis}" for axis in range(1, len(self._nest.axes)))
        yield f"if begin < end == trips_0{inner}:"
        for name in self._nest.last:
            yield f"{_indent(1)}partials[chunk, {left[name]}] = bits(v_{name})"
        for name in last:
            yield f"{_indent(1)}whole_{name}[...] = a_{name}"


class _GoingOn(_Kernel):
    """The kernel of a nest in order, which goes on where the slice of trips before has ended."""

    def text(self) -> str:
        lines = [*self._head(), "try:", *(_indent(1) + line for line in self._loops()), "finally:"]
        lines += [_indent(1) + line for line in (*self._tail(), "pass")]
        body = "\n".join(_indent(1) + line for line in lines)
        return f"{self.constants()}def kernel(arguments, begin, end, chunk, partials, report):\n{body}\n"

    def _head(self) -> Iterator[str]:
        yield from super()._head()
        for name, words in self._left():
            yield f'{self.scalar(name)} = from_bits(partials[0, {words}], "{self._item_type(name).dtype}")'

    def _tail(self) -> Iterator[str]:
        for name, words in self._left():
            yield f"partials[0, {words}] = bits({self.scalar(name)})"
        if last := [name for name, kind in self._nest.privates.items() if kind == "lastprivate"]:
            inner = "".join(f" and trips_{axis}" for axis in range(1, len(self._nest.axes)))
            yield f"if begin < end == trips_0{inner} and not report[0]:"
            yield from (f"{_indent(1)}whole_{name}[...] = a_{name}" for name in last)


def _real(value: float) -> str:
    return f"{value!r}" if abs(value) < float("inf") else f"'{value!r}'"


def _of_parts(value: complex) -> str:
    """Return a complex number; Python's own text of one loses the sign of a zero."""
    return f"complex(*map(float, ('{value.real!r}', '{value.imag!r}')))"


def _combined(operator: str, item: str, value: str) -> str:
    """Return the expression by which a reduction or an atomic update combines the item's value with another."""
    if operator in ("min", "max"):
        return f"{'least' if operator == 'min' else 'greatest'}({item}, {value})"
    return f"({item} {operator} {value})"


def _scalar_class(of: Type) -> str:
    return "bool_" if of.dtype == "bool" else of.dtype


def _indent(depth: int) -> str:
    return "    " * depth
