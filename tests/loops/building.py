"""Typed nests from a few lines of text: every integer is an int64, every array's elements as its name is declared."""

import ast

from offload.loops.proofs.numbers import LaunchNumbers, Trips, View
from offload.loops.proofs.reach import accesses
from offload.loops.tree import ir

INT = ir.Type("int64", is_weak=True)
TRUTH = ir.Type("bool", is_weak=True)
OPERATORS = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.BitAnd: "&",
    ast.LShift: "<<",
    ast.RShift: ">>",
}
RELATIONS = {ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!=", ast.GtE: ">=", ast.Gt: ">"}


class Builder:
    """Makes typed IR of the text of loops; `dtypes` are those of arrays and scalars that are not int64."""

    def __init__(self, dtypes):
        self.dtypes = dtypes
        self.scalars = {}
        self.arrays = {}
        self.at = 0

    def place(self, node):
        return ir.SourceLine("text.py", node.lineno)

    def element(self, node):
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        name = node.value.id
        self.arrays[name] = ir.LoopArrayType(self.dtypes.get(name, "int64"), len(indices))
        made = tuple(self.index(index) for index in indices)
        self.at += 1
        return {"array": name, "indices": made, "at": self.at - 1, "place": self.place(node)}

    def index(self, node):
        made = self.expression(node)
        return made if made.type.dtype == "int64" else self.convert(made, INT)

    def convert(self, operand, to):
        return ir.Convert(to=to, operand=operand, place=operand.place, type=to)

    def expression(self, node):
        place = self.place(node)
        match node:
            case ast.Constant(value=value):
                return ir.Constant(value=value, place=place, type=INT)
            case ast.Name(id=name):
                dtype = ir.Type(self.dtypes[name]) if name in self.dtypes else INT
                self.scalars.setdefault(name, dtype)
                return ir.Name(name=name, place=place, type=dtype)
            case ast.Subscript():
                element = self.element(node)
                return ir.Load(**element, type=ir.Type(self.arrays[element["array"]].dtype))
            case ast.BinOp():
                left, right = self.expression(node.left), self.expression(node.right)
                type_ = left.type if not left.type.is_weak else right.type
                left, right = (side if side.type == type_ else self.convert(side, type_) for side in (left, right))
                return ir.Binary(operator=OPERATORS[type(node.op)], left=left, right=right, place=place, type=type_)
            case ast.UnaryOp(op=ast.USub()):
                operand = self.expression(node.operand)
                return ir.Unary(operator="-", operand=operand, place=place, type=operand.type)
            case ast.Compare(ops=[relation], left=left, comparators=[right]):
                sides = {"left": self.expression(left), "right": self.expression(right)}
                return ir.Compare(operator=RELATIONS[type(relation)], **sides, place=place, type=TRUTH)
            case ast.BoolOp(values=[left, right]):
                operator = "and" if isinstance(node.op, ast.And) else "or"
                sides = {"left": self.expression(left), "right": self.expression(right)}
                return ir.Logical(operator=operator, **sides, place=place, type=TRUTH)
            case ast.IfExp():
                parts = {"then": self.expression(node.body), "otherwise": self.expression(node.orelse)}
                condition = self.expression(node.test)
                return ir.Select(condition=condition, **parts, place=place, type=parts["then"].type)
            case ast.Call(func=ast.Name(id=("int32" | "uint8" | "uint64" | "float64") as dtype)):
                return self.convert(self.expression(node.args[0]), ir.Type(dtype))
            case ast.Call(func=ast.Name(id=function)):
                made = tuple(self.expression(argument) for argument in node.args)
                return ir.FunctionCall(function=function, arguments=made, place=place, type=made[0].type)
        raise AssertionError(ast.dump(node))

    def statements(self, nodes):
        return tuple(made for node in nodes for made in self.statement(node))

    def statement(self, node):
        place = self.place(node)
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="atomic"), args=[target, by])):
                self.scalars[name] = INT
                element = self.element(target)
                return [ir.Atomic(**element, operator="+", value=self.expression(by), result=name)]
            case ast.Expr(value=ast.Call(func=ast.Name(id="atomic"), args=[target, by])):
                return [ir.Atomic(**self.element(target), operator="+", value=self.expression(by))]
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                made = self.expression(value)
                self.scalars[name] = ir.Type(made.type.dtype)
                return [ir.Assign(name=name, value=made, place=place)]
            case ast.Assign(targets=[ast.Subscript() as target], value=value):
                made = self.expression(value)
                return [ir.Store(**self.element(target), value=made)]
            case ast.If():
                condition = self.expression(node.test)
                then, otherwise = self.statements(node.body), self.statements(node.orelse)
                return [ir.If(condition=condition, then=then, otherwise=otherwise, place=place)]
            case ast.For():
                return [ir.For(**self.header(node), body=self.statements(node.body))]
            case ast.While():
                condition = self.expression(node.test)
                return [ir.While(condition=condition, body=self.statements(node.body), place=place)]
            case ast.Assert():
                return [ir.Assert(condition=self.expression(node.test), text="", place=place)]
            case ast.Break():
                return [ir.Break(place=place)]
            case ast.Continue():
                return [ir.Continue(place=place)]
            case ast.Pass():
                return []
        raise AssertionError(ast.dump(node))

    def header(self, node):
        bounds = [self.expression(bound) for bound in node.iter.args]
        zero, one = (ir.Constant(value=value, place=self.place(node), type=INT) for value in (0, 1))
        start, stop, step = {1: [zero, *bounds, one], 2: [*bounds, one], 3: bounds}[len(bounds)]
        self.scalars[node.target.id] = INT
        return {"variable": node.target.id, "start": start, "stop": stop, "step": step, "place": self.place(node)}


def typed_nest(text, *, collapse=1, dtypes=None, own=()):
    """Return the typed function whose one nest the text is, and the nest; `own` are private arrays."""
    builder = Builder(dtypes or {})
    (node,) = ast.parse(text).body
    place = builder.place(node)
    axes = []
    for _ in range(collapse):
        axes.append(ir.LoopAxis(**builder.header(node)))
        body, node = node.body, node.body[0]
    nest = ir.Nest(
        axes=tuple(axes),
        body=builder.statements(body),
        clauses=ir.LoopClauses(),
        place=place,
        privates=dict.fromkeys(own, "private"),
    )
    arrays = tuple(builder.arrays)
    function = ir.ParsedFunction(
        name="f",
        place=place,
        parameters=arrays,
        absent=frozenset(),
        arrays=arrays,
        parts=(nest,),
        returns=(),
        returns_tuple=False,
    )
    return ir.Typed(function=function, scalars=builder.scalars, arrays=builder.arrays), nest


def view(*extents, itemsize=8, address=0):
    """Return the view of a contiguous array."""
    strides, stride = [], itemsize
    for extent in reversed(extents):
        strides.insert(0, stride)
        stride *= extent
    return View(extents, tuple(strides), itemsize, address)


def host(expression, scalars):
    """Return the value of an axis's bound."""
    match expression:
        case ir.Constant(value=value):
            return value
        case ir.Name(name=name):
            return scalars[name]
        case ir.Unary(operand=operand):
            return -host(operand, scalars)
        case ir.Binary(operator=operator, left=left, right=right):
            of = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "//": int.__floordiv__}[operator]
            return of(host(left, scalars), host(right, scalars))
    raise AssertionError(expression)


def accesses_of(text, views, *, collapse=1, dtypes=None, own=(), contents=None, **scalars):
    """Return the accesses of a nest; views that are tuples are contiguous arrays apart from each other."""
    typed, nest = typed_nest(text, collapse=collapse, dtypes=dtypes, own=own)
    axes = []
    for axis in nest.axes:
        numbers = range(*(host(bound, scalars) for bound in (axis.start, axis.stop, axis.step)))
        axes.append(Trips(numbers.start, numbers.step, len(numbers)))
    placed = {
        name: view(*given, address=10_000_000 * place) if isinstance(given, tuple) else given
        for place, (name, given) in enumerate(views.items(), 1)
    }
    return accesses(typed, nest, LaunchNumbers(tuple(axes), scalars, placed, contents or {}))
