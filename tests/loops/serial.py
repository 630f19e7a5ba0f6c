"""A loop function's IR, carried out by Python, one iteration after the other.

There are no types here: numbers are what Python and NumPy make of them, as in the function itself. So what comes out
differs from the function only where lowering has changed what it says.
"""

import itertools
import math
import operator
from contextlib import suppress

import numpy as np

from offload.loops.tree import ir

BINARY = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "min": min,
    "max": max,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
}
RELATIONS = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}
UNARY = {"-": operator.neg, "+": operator.pos, "~": operator.invert, "not": operator.not_}
PYTHON = {"abs": abs, "min": min, "max": max, "round": round}


class _Break(Exception):  # noqa: N818 -- no error: what the statement does
    pass


class _Continue(Exception):  # noqa: N818 -- same
    pass


def carried_out(function, arguments):
    """Carry a loop function out on its arguments, by name; return what it returns."""
    host = dict(arguments)
    for part in function.parts:
        if isinstance(part, ir.Nest):
            _nest(part, host)
        else:
            _Iteration(host, {}).statement(part)
    values = tuple(host[name] for name in function.returns)
    if not values:
        return None
    return values if function.returns_tuple else values[0]


def _nest(nest, host):
    bounds = _Iteration(host, {})
    axes = [range(bounds.value(axis.start), bounds.value(axis.stop), bounds.value(axis.step)) for axis in nest.axes]
    items = {one.name: host[one.name] for one in nest.reductions}
    private = {name: host[name] for name in nest.privates}
    for trips in itertools.product(*axes):
        own = {name: array.copy() for name, array in private.items()}
        scalars = {**host, **own, **dict(zip((axis.variable for axis in nest.axes), trips, strict=True))}
        iteration = _Iteration(scalars, items)
        with suppress(_Continue):
            iteration.block(nest.body)
        host.update({name: scalars[name] for name in nest.last})
        for name, word in nest.privates.items():
            if word == "lastprivate":
                host[name][...] = own[name]
    host.update(items)


class _Iteration:
    def __init__(self, names, items):
        self.names = names
        self.items = items

    def block(self, statements):
        for node in statements:
            self.statement(node)

    def statement(self, node):
        match node:
            case ir.Assign():
                self.names[node.name] = self.value(node.value)
            case ir.Store():
                self.names[node.array][self.index(node)] = self.value(node.value)
            case ir.Reduce():
                self.reduce(node)
            case ir.Atomic():
                self.atomic(node)
            case ir.If():
                self.block(node.then if self.value(node.condition) else node.otherwise)
            case ir.For():
                self.loop(node, range(self.value(node.start), self.value(node.stop), self.value(node.step)))
            case ir.While():
                self.loop(node, iter(lambda: bool(self.value(node.condition)), False))
            case ir.Break():
                raise _Break
            case ir.Continue():
                raise _Continue
            case ir.Assert():
                if not self.value(node.condition):
                    raise AssertionError(node.text)
            case ir.Local():
                fill = 0 if node.fill is None else self.value(node.fill)
                self.names[node.name] = np.full(node.shape, fill, node.dtype)
            case _:
                raise AssertionError(node)

    def loop(self, node, trips):
        for trip in trips:
            if isinstance(node, ir.For):
                self.names[node.variable] = trip
            try:
                self.block(node.body)
            except _Break:
                break
            except _Continue:
                pass

    def reduce(self, node):
        item, value = self.items[node.name], self.value(node.value)
        value = -value if node.is_taken_away else value
        if isinstance(item, np.ndarray):
            item.flat[0] = BINARY[node.operator](item.flat[0], value)
        else:
            self.items[node.name] = BINARY[node.operator](item, value)

    def atomic(self, node):
        array, index = self.names[node.array], self.index(node)
        old, value = array[index], self.value(node.value)
        if node.result is not None:
            self.names[node.result] = old
        if node.operator == "exchange":
            array[index] = value
        elif node.operator == "cas":
            array[index] = value if old == self.value(node.expected) else old
        else:
            array[index] = BINARY[node.operator](old, value)

    def index(self, node):
        return tuple(self.value(index) for index in node.indices)

    def value(self, node):
        match node:
            case ir.Constant():
                return node.value if node.type is None else np.dtype(node.type.dtype).type(node.value)
            case ir.Name():
                return self.names[node.name]
            case ir.Extent():
                return self.names[node.array].shape[node.dimension]
            case ir.Size():
                return self.names[node.array].size
            case ir.Rank():
                return self.names[node.array].ndim
            case ir.Load():
                return self.names[node.array][self.index(node)]
            case ir.Unary():
                return UNARY[node.operator](self.value(node.operand))
            case ir.Binary():
                return BINARY[node.operator](self.value(node.left), self.value(node.right))
            case ir.Compare():
                return RELATIONS[node.operator](self.value(node.left), self.value(node.right))
            case ir.Logical(operator="and"):
                return self.value(node.left) and self.value(node.right)
            case ir.Logical():
                return self.value(node.left) or self.value(node.right)
            case ir.Select():
                return self.value(node.then if self.value(node.condition) else node.otherwise)
            case ir.Convert(to=ir.Type(dtype=dtype, is_weak=True)):
                return {"int64": int, "float64": float, "bool": bool}[dtype](self.value(node.operand))
            case ir.Convert():
                return np.dtype(node.to.dtype).type(self.value(node.operand))
            case ir.FunctionCall():
                return self.call(node)
            case _:
                raise AssertionError(node)

    def call(self, node):
        module, _, name = node.function.rpartition(".")
        function = getattr({"math": math, "numpy": np}[module], name) if module else PYTHON[name]
        return function(*(self.value(argument) for argument in node.arguments))
