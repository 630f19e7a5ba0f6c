"""Forms and intervals of random integer expressions against their values, computed as the machine does."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from offload.loops.proofs.affine import LIMITS
from offload.loops.proofs.numbers import LaunchNumbers, Trips
from offload.loops.proofs.reach import accesses
from offload.loops.tree import ir
from tests.loops.building import view
from tests.profiles import examples

PLACE = ir.SourceLine("text.py", 1)
DTYPES = ("int64", "int64", "int64", "int32", "uint8", "int8", "uint64")
N = 5


def wrapped(value, dtype):
    low, high = LIMITS[dtype]
    return (value - low) % (high - low + 1) + low


class Maker:
    """Makes integer expressions of the axis ``i``, a scalar ``m`` and elements of ``p``."""

    def __init__(self, rng):
        self.rng, self.at = rng, 0

    def typed(self, node, dtype, **parts):
        return node(place=PLACE, type=ir.Type(dtype), **parts)

    def converted(self, operand, dtype):
        return self.typed(ir.Convert, dtype, to=ir.Type(dtype), operand=operand)

    def expression(self, depth):
        """Return an expression of any type."""
        rng = self.rng
        if not depth or rng.random() < 0.1:
            return self.leaf()
        dtype = rng.choice(DTYPES)
        match rng.randrange(12):
            case 0 | 1 | 2 | 3 | 4:
                operator = rng.choice(("+", "+", "-", "-", "*"))
            case 5 | 6:
                operator = rng.choice(("//", "%"))
            case 7:
                operator = rng.choice(("&", "<<", ">>", "|"))
            case 8:
                return self.typed(ir.Unary, dtype, operator=rng.choice("-~"), operand=self.of(dtype, depth))
            case 9:
                name = rng.choice(("min", "max", "numpy.minimum", "numpy.maximum"))
                return self.typed(
                    ir.FunctionCall, dtype, function=name, arguments=(self.of(dtype, depth), self.of(dtype, depth))
                )
            case 10:
                return self.typed(ir.FunctionCall, dtype, function="abs", arguments=(self.of(dtype, depth),))
            case _:
                sides = {"left": self.of(dtype, depth), "right": self.of(dtype, depth)}
                condition = ir.Compare(operator="<", place=PLACE, type=ir.Type("bool"), **sides)
                sides = {"then": self.of(dtype, depth), "otherwise": self.of(dtype, depth)}
                return self.typed(ir.Select, dtype, condition=condition, **sides)
        left = self.of(dtype, depth)
        right = self.constant(dtype) if rng.random() < 0.4 else self.of(dtype, depth)
        return self.typed(ir.Binary, dtype, operator=operator, left=left, right=right)

    def of(self, dtype, depth):
        made = self.expression(depth - 1)
        return made if made.type.dtype == dtype else self.converted(made, dtype)

    def constant(self, dtype):
        value = self.rng.choice((-4, -2, -1, 0, 1, 2, 3, 4, 7, 100))
        return self.typed(ir.Constant, dtype, value=wrapped(value, dtype))

    def leaf(self):
        match self.rng.randrange(6):
            case 0:
                return self.constant(self.rng.choice(DTYPES))
            case 1:
                return self.typed(ir.Name, "int64", name="m")
            case 2:
                self.at += 1
                index = self.typed(ir.Name, "int64", name="i")
                return self.typed(ir.Load, "int32", array="p", indices=(index,), at=self.at)
            case _:
                return self.typed(ir.Name, "int64", name="i")


def shifted(operator, left, by, dtype):
    n_bits = (LIMITS[dtype][1] - LIMITS[dtype][0]).bit_length()
    if not 0 <= by < n_bits:
        return -1 if operator == ">>" and left < 0 else 0
    return left << by if operator == "<<" else left >> by


def evaluated(node, i, m, contents):
    """Return the value of an expression, as the machine has it."""

    def value(part):
        return evaluated(part, i, m, contents)

    dtype = node.type.dtype
    match node:
        case ir.Constant():
            return node.value
        case ir.Name():
            return {"i": i, "m": m}[node.name]
        case ir.Load():
            return contents[value(node.indices[0])]
        case ir.Convert():
            made = value(node.operand)
        case ir.Unary():
            made = -value(node.operand) if node.operator == "-" else ~value(node.operand)
        case ir.Compare():
            return value(node.left) < value(node.right)
        case ir.Select():
            return value(node.then if value(node.condition) else node.otherwise)
        case ir.FunctionCall(function="abs"):
            made = abs(value(node.arguments[0]))
        case ir.FunctionCall():
            made = (min if "min" in node.function else max)(map(value, node.arguments))
        case ir.Binary(operator=("<<" | ">>") as operator):
            made = shifted(operator, value(node.left), value(node.right), dtype)
        case ir.Binary(operator=operator):
            name = {"+": "add", "-": "sub", "*": "mul", "//": "floordiv", "%": "mod", "&": "and", "|": "or"}[operator]
            made = getattr(int, f"__{name}__")(value(node.left), value(node.right))
    return wrapped(made, dtype)


def indices_of(expressions, trips, m):
    """Return the values of expressions that are indices of a nest."""
    zero = ir.Constant(value=0, place=PLACE, type=ir.Type("int64"))
    body = tuple(
        ir.Store(array="a", indices=(expression,), value=zero, at=1000 + number, place=PLACE)
        for number, expression in enumerate(expressions)
    )
    nest = ir.Nest(
        axes=(ir.LoopAxis(variable="i", start=zero, stop=zero, step=zero, place=PLACE),),
        body=body,
        clauses=ir.LoopClauses(),
        place=PLACE,
    )
    function = ir.ParsedFunction(
        name="f",
        place=PLACE,
        parameters=("a", "p", "m"),
        absent=frozenset(),
        arrays=("a", "p"),
        parts=(nest,),
        returns=(),
        returns_tuple=False,
    )
    arrays = {"a": ir.LoopArrayType("int64", 1), "p": ir.LoopArrayType("int32", 1)}
    typed = ir.Typed(function=function, scalars={"i": ir.Type("int64"), "m": ir.Type("int64")}, arrays=arrays)
    found = accesses(typed, nest, LaunchNumbers((trips,), {"m": m}, {"a": view(9), "p": view(N, address=4096)}))
    return [access.indices[0] for access in found.listed if access.kind == "store"], found.space


def check(seed):
    rng = random.Random(seed)
    maker = Maker(rng)
    expressions = [maker.of("int64", 4) for _ in range(3)]
    expressions += [maker.of("int64", 2) for _ in range(3)]
    m = rng.choice((-3, 0, 1, 2, 5, 2**31 - 2, 2**63 - 2))
    contents = [rng.choice((-(2**31), -2, 0, 1, 3, 2**31 - 1)) for _ in range(N)]
    step = rng.choice((1, -1, 2))
    trips = Trips(0 if step > 0 else N - 1, step, N if step != 2 else 3)
    indices, space = indices_of(expressions, trips, m)
    for trip in range(trips.trips):
        values = []
        for expression, index in zip(expressions, indices, strict=True):
            try:
                value = evaluated(expression, trips.start + trip * step, m, contents)
            except ZeroDivisionError:
                values.append(None)
                continue
            values.append(value)
            assert index.low <= value <= index.high, (seed, expression, index, value)
            if all(atom == 0 for atom, _ in index.form.terms):
                expected = index.form.constant + index.form.coefficient(0) * trip
                assert wrapped(expected, "int64") == value, (seed, expression, index, value)
                assert not index.is_exact or expected == value
            if index.is_exact:
                assert space.extremes(index.form) == index.interval, (seed, index)
        check_differences(seed, indices, values)


def check_differences(seed, indices, values):
    """Forms of the same terms differ by their constants."""
    for one, mine in zip(indices, values, strict=True):
        for other, others in zip(indices, values, strict=True):
            if None not in {mine, others} and one.form.terms == other.form.terms:
                apart = one.form.constant - other.form.constant
                assert (mine - others - apart) % 2**64 == 0, (seed, one, other)
                assert not (one.is_exact and other.is_exact) or mine - others == apart, (seed, one, other)


@settings(max_examples=examples(100, soak=4_000), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_against_values(seed):
    """Whatever wraps or is not affine: values lie in their intervals, and equal forms have equal values."""
    for number in range(5):
        check(5 * seed + number)
