"""Expressions: from Python's to the IR's."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, Literal, cast

from offload.loops.front.frames import Absent, LocalArray, Parameter, PassedConstant, PassedLayout, Row, Scalar
from offload.loops.front.offsets import extent_in, layout_in, layout_refusal, offsets_of, place_in, property_of
from offload.loops.front.rows import extent_of, over_refusal, rank_of, row_refusal, size_of
from offload.loops.front.source import Frozen, KnownName, OutsideLayout, Plain, Unfit
from offload.loops.tree import ir
from offload.loops.tree.nodes import changes_elements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.errors import LoopError
    from offload.loops.front.frames import Frame

OPERATORS: Final[dict[type[ast.operator], ir.Operator]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
}

_RELATIONS: Final[dict[type[ast.cmpop], ir.Relation]] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.GtE: ">=",
    ast.Gt: ">",
}

_REFUSED: Final[dict[type[ast.expr], tuple[str, str]]] = {
    ast.Lambda: ("branch", "a lambda is not allowed in a loop; define the function with `def`, outside"),
    ast.JoinedStr: ("branch", "a loop cannot use strings; use numbers"),
    ast.NamedExpr: ("assign", "an assignment in an expression is not allowed in a loop; assign in a statement before"),
    ast.Starred: ("assign", "a loop cannot unpack with `*`; name each value"),
    ast.ListComp: ("loop", "a comprehension is not allowed in a loop; write the loop out"),
    ast.SetComp: ("loop", "a comprehension is not allowed in a loop; write the loop out"),
    ast.DictComp: ("loop", "a comprehension is not allowed in a loop; write the loop out"),
    ast.GeneratorExp: ("loop", "a generator is not allowed in a loop; write the loop out"),
    ast.Yield: ("loop", "a loop function cannot be a generator; store the values in an array"),
    ast.YieldFrom: ("loop", "a loop function cannot be a generator; store the values in an array"),
    ast.Await: ("call", "a loop cannot await; await before the call"),
    ast.Tuple: ("assign", "a tuple is not a number; assign its values one by one, as in `x, y = y, x`"),
    ast.List: (
        "types",
        "a list is not allowed in a loop; create an array such as `np.zeros(3)`, or name rows one by one, `r = a[i]`",
    ),
    ast.Dict: ("types", "a dict is not allowed in a loop; pass its numbers as arguments"),
    ast.Set: ("types", "a set is not allowed in a loop; pass its numbers as arguments"),
    ast.Slice: ("index", "a slice is not allowed in a loop; write the loop over it"),
}


_ASKED: Final = {"shape", "size", "ndim"}
_PARTS: Final = {"real", "imag"}  # attributes of every number


def expression(frame: Frame, node: ast.expr) -> ir.Expression:
    """Lower an expression, other than a call."""
    match node:
        case ast.Constant():
            return _constant(frame, node)
        case ast.Name():
            return _name(frame, node)
        case ast.Attribute():
            return _attribute(frame, node)
        case ast.Subscript():
            return _subscript(frame, node)
        case ast.UnaryOp():
            return _unary(frame, node)
        case ast.BinOp():
            return _binary(frame, node)
        case ast.Compare():
            return _compare(frame, node)
        case ast.BoolOp():
            return _logical(frame, node)
        case ast.IfExp():
            return _conditional(frame, node)
        case _:
            for part in ast.iter_child_nodes(node):  # a list of rows, for example
                if isinstance(part, ast.Name) and isinstance(frame.names.get(part.id), Row):
                    frame.value(part)
            raise frame.refusal(
                node, *_REFUSED.get(type(node), ("types", "this is not a number; pass numbers as arguments"))
            )


def operator_of(frame: Frame, node: ast.AST, operator: ast.operator) -> ir.Operator:
    """Return the IR's operator."""
    if type(operator) not in OPERATORS:
        raise frame.refusal(
            node, "operator", "a loop cannot multiply matrices with `@`; write the loops of the product"
        )
    return OPERATORS[type(operator)]


# -- what is known while the text is read


def constant_integer(frame: Frame, node: ast.expr) -> int | None:
    """Return the value of an integer that is known while the text is read; None for any other expression."""
    with frame.block() as before:
        value = _folded(frame.value(node))
    return None if before or isinstance(value, bool) else value


# -- names, elements, shapes


def _constant(frame: Frame, node: ast.Constant) -> ir.Expression:
    match node.value:
        case bool() | int() | float() | complex():
            return ir.Constant(place=frame.place(node), value=node.value)
        case None:
            raise frame.refusal(node, "operator", "None is not a number; test for a default with `is None`")
        case value:
            raise frame.refusal(
                node,
                "types",
                f"{type(value).__name__} is not allowed in a loop; use bools, ints, floats and complex numbers",
            )


def constant_of(frame: Frame, node: ast.AST, scalar: Frozen) -> ir.Constant:
    """Return the constant for a scalar from outside."""
    strong = None if scalar.dtype is None else ir.Type(scalar.dtype)
    return ir.Constant(place=frame.place(node), value=scalar.value, type=strong)


def _name(frame: Frame, node: ast.Name) -> ir.Expression:
    if not frame.is_local(node.id):
        return _outside(frame, node)
    binding = frame.variable(node.id)
    match binding:
        case Scalar(name) | Parameter(name):
            if name in frame.lowering.items:
                raise item_refusal(frame, node, name)
            if isinstance(binding, Parameter):
                frame.use_as_number(binding, node)
            return ir.Name(place=frame.place(node), name=name)
        case PassedConstant(constant):
            return constant
        case LocalArray():
            raise frame.refusal(node, "index", f"{node.id} is an array; give one index for every dimension")
        case PassedLayout():
            raise layout_refusal(frame, node)
        case Row(is_over=True):
            raise over_refusal(frame, node, node.id)
        case Row():
            raise row_refusal(frame, node, binding)
        case Absent():
            raise frame.refusal(node, "argument", f"{node.id} is None in this call; test `{node.id} is None` before")


def item_refusal(frame: Frame, node: ast.AST, name: str) -> LoopError:
    """Return the error for a reduction's item that is used otherwise than in an update."""
    word = frame.lowering.items[name].operator
    return frame.refusal(
        node,
        "reduction",
        f"{name} is in reduction={{{word!r}: [{name!r}]}}, so inside the loop it may be used only in updates by "
        f"{word!r}; use it after the loop, or another variable here",
    )


def _outside(frame: Frame, node: ast.expr) -> ir.Expression:
    text = ast.unparse(node)
    match frame.source.meant(node):
        case Frozen() as scalar:
            return constant_of(frame, node, scalar)
        case Unfit() as unfit:
            raise _outside_refusal(frame, node, text, unfit)
        case KnownName() | Plain():
            raise frame.refusal(node, "name", f"{text} is not a number; call it, or pass a number as an argument")
        case OutsideLayout():
            raise layout_refusal(frame, node)
        case None:
            owner = _owner(node)
            if owner is not node and isinstance(found := frame.source.meant(owner), Unfit):
                held = f"{text} belongs to {ast.unparse(owner)}, which is {found.what} and comes from outside"
                raise frame.refusal(node, "name", f"{held} the function; pass {text} itself as an argument")
            _check_attribute(frame, node)
            if isinstance(owner, ast.Subscript):
                raise frame.refusal(
                    node,
                    "index",
                    f"{text} is an attribute of an element, which loops do not support; pass an array of these values "
                    "as an argument, for example the field of a record array",
                )
            undefined = [name for name in frame.source.free if frame.source.meaning(name) is None]
            names = undefined if text in undefined else [text]
            which, them = ("is", "it") if len(names) < 2 else ("are", "them")
            raise frame.refusal(
                node,
                "name",
                f"{listed(names)} {which} not defined; define {them} before the function that uses {them}",
            )


def _outside_refusal(frame: Frame, node: ast.expr, text: str, found: Unfit) -> LoopError:
    """Return the error for a value that must be an argument; it names all values of its type in the function."""
    names = [name for name in frame.source.free if frame.source.meaning(name) == found]
    are, come, them = ("is", "comes", "it as an argument")
    if text in names and len(names) > 1:
        text, are, come, them = listed(names), "are", "come", "them as arguments"
    what = f"{text} {are} {found.what} and {come} from outside the function; pass {them}"
    return frame.refusal(node, "name", what)


def _check_attribute(frame: Frame, node: ast.expr) -> None:
    """Refuse an attribute of an argument: `node` is the attribute, or a property of it, as in ``A.indptr.size``."""
    owner, held = _owner(node), node
    if not (isinstance(owner, ast.Name) and isinstance(frame.names.get(owner.id), Parameter)):
        return
    if isinstance(held, ast.Attribute) and held.attr in _ASKED and isinstance(held.value, ast.Attribute):
        held = held.value
    if isinstance(held, ast.Attribute):
        text = ast.unparse(held)
        raise frame.refusal(
            node,
            "index",
            f"{text} is an attribute of the argument {owner.id}; a loop can use only the elements, .shape[k], .size, "
            f".ndim and len of an argument; pass {text} as an argument of its own",
        )


def row_of(frame: Frame, node: ast.expr) -> Row:
    """Return the array, or the row of one, that an expression stands for: ``a``, ``a[i]``, ``a[i, :, k]``."""
    brackets: list[list[ast.expr]] = []
    base = node
    while isinstance(base, ast.Subscript):
        brackets.insert(0, index_nodes(base.slice))
        base = base.value
    row = _named_row(frame, base)
    return _indexed(frame, node, row, brackets) if brackets else row


def _named_row(frame: Frame, node: ast.expr) -> Row:
    """Return the array, or the row, that a name stands for."""
    if not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute) and node.attr in _PARTS:
            text = ast.unparse(node.value)
            remedy = f"read {text}[…].{node.attr}, or pass {text}.{node.attr} as an argument of its own"
            raise frame.refusal(node, "index", f"{ast.unparse(node)} is a view of a whole array; {remedy}")
        _check_attribute(frame, node)
        raise frame.refusal(node, "index", "this is not an array; index a parameter, or a local array of the iteration")
    if not frame.is_local(node.id):
        match frame.source.meant(node):
            case Unfit() as unfit:
                raise _outside_refusal(frame, node, node.id, unfit)
            case OutsideLayout():
                raise layout_refusal(frame, node, "index")
            case _:
                raise frame.refusal(node, "name", f"{node.id} is not an array; pass one as an argument")
    if node.id not in frame.names:
        raise frame.refusal(node, "unbound", f"{node.id} is indexed here, but no line before assigns it an array")
    match frame.names[node.id]:
        case Row(is_over=True):
            raise over_refusal(frame, node, node.id)
        case Row() as row:
            return row
        case Parameter() as parameter:
            frame.use_as_array(parameter, node)
            return Row(parameter)
        case LocalArray() as local:
            return Row(local)
        case PassedLayout():
            raise layout_refusal(frame, node, "index")
        case Absent():
            raise frame.refusal(node, "argument", f"{node.id} is None in this call; test `{node.id} is None` before")
        case Scalar() | PassedConstant():
            raise frame.refusal(node, "index", f"{node.id} is a number, and has no elements; index an array")


def _indexed(frame: Frame, node: ast.AST, row: Row, brackets: list[list[ast.expr]]) -> Row:
    """Return the row that indices in brackets make of another one."""
    parts = [part for bracket in brackets for part in bracket]
    for part in parts:
        match part:
            case ast.Slice(lower=None, upper=None, step=None):
                pass
            case ast.Slice():
                raise frame.refusal(
                    node,
                    "index",
                    "a loop can take whole axes only, by `:`; write the loop over the slice, or pass its bounds",
                )
            case ast.Constant(value=value) if value is None or value is ... or isinstance(value, (bool, str)):
                raise frame.refusal(node, "index", "an index must be an integer; write the loop over the rest")
            case ast.List() | ast.Tuple() | ast.Compare() | ast.Starred():
                raise frame.refusal(
                    node, "index", "an index must be one integer, not a mask or a list; write the loop over the rest"
                )
    offsets = offsets_of(frame, parts[0]) if len(parts) == 1 and isinstance(parts[0], ast.Call) else None
    if offsets is not None:  # those of a distributed type are a tuple
        row = row.at(offsets)
    else:
        values = iter(frame.in_order([part for part in parts if not isinstance(part, ast.Slice)]))
        for bracket in brackets:
            row = row.at([None if isinstance(part, ast.Slice) else next(values) for part in bracket])
    if isinstance(row.array, LocalArray) and len(row.places) > len(row.array.shape):
        ndim = len(row.array.shape)
        raise frame.refusal(node, "index", f"{len(row.places)} indices for an array of {ndim} dimensions; use {ndim}")
    return row


def element_at(
    frame: Frame, node: ast.AST, row: Row, parts: Sequence[ast.expr]
) -> tuple[Parameter | LocalArray, tuple[ir.Expression, ...]]:
    """Return the array and the indices of an element of a row."""
    return _element(frame, node, _indexed(frame, node, row, [[*parts]]))


def element_of(frame: Frame, node: ast.Subscript) -> tuple[Parameter | LocalArray, tuple[ir.Expression, ...]]:
    """Return the array and the indices of an element, ``a[i, j]`` or ``a[i][j]``."""
    return _element(frame, node, row_of(frame, node))


def _element(frame: Frame, node: ast.AST, row: Row) -> tuple[Parameter | LocalArray, tuple[ir.Expression, ...]]:
    indices = tuple([place for place in row.places if place is not None])
    is_short = isinstance(row.array, LocalArray) and len(indices) < len(row.array.shape)
    if is_short or len(indices) < len(row.places):
        raise row_refusal(frame, node, row)
    return row.array, indices


def _attribute(frame: Frame, node: ast.Attribute) -> ir.Expression:
    base = node.value
    if node.attr in _PARTS and has_attributes(frame, base):
        number = frame.value(base)
        return ir.FunctionCall(place=frame.place(node), function=f"complex.{node.attr}", arguments=(number,))
    if (layout := layout_in(frame, base)) is not None:
        return property_of(frame, node, layout)
    if (part := place_in(frame, node)) is not None:
        return part
    while isinstance(base, ast.Subscript):
        base = base.value
    if not (isinstance(base, ast.Name) and frame.is_local(base.id)):
        return _outside(frame, node)
    if node.attr not in _ASKED and isinstance(node.value, ast.Subscript):
        return _outside(frame, node)
    row = row_of(frame, node.value)
    match node.attr:
        case "size":
            return size_of(frame, node, row)
        case "ndim":
            return rank_of(frame, node, row)
        case _:
            _check_attribute(frame, node)
            raise frame.refusal(
                node,
                "index",
                f"a loop can use the elements, .shape[k], .size, .ndim and len of an array, but not .{node.attr}",
            )


def has_attributes(frame: Frame, node: ast.expr) -> bool:
    """Tell whether an expression may be a number, which has ``.real``: whether it is no module and the like."""
    is_outside = isinstance(node, ast.Name) and not frame.is_local(node.id)
    return not is_outside or isinstance(frame.source.meant(node), Frozen)


def _subscript(frame: Frame, node: ast.Subscript) -> ir.Expression:
    if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        dimension = constant_integer(frame, node.slice)
        if dimension is None:
            raise frame.refusal(node, "index", "the dimension of a shape must be an integer constant, as in a.shape[0]")
        if (layout := layout_in(frame, node.value.value)) is not None:
            return extent_in(frame, node, layout, dimension)
        return extent_of(frame, node, row_of(frame, node.value.value), dimension)
    array, indices = element_of(frame, node)
    check_plain_use(frame, node, array)
    return ir.Load(place=frame.place(node), array=array.name, indices=indices, at=frame.lowering.at())


def check_plain_use(frame: Frame, node: ast.AST, array: Parameter | LocalArray) -> None:
    """Refuse an element of an array that only updates may use."""
    if array.name in frame.lowering.items:
        word = frame.lowering.items[array.name].operator
        raise frame.refusal(
            node,
            "reduction",
            f"{array.name} is in reduction={{{word!r}: [{array.name!r}]}}, which takes an array of one element only, "
            f"and the loop may use it only in updates by {word!r}; use atomic=[{array.name!r}] for an array of "
            "several elements, or another array here",
        )
    if array.name in frame.lowering.atomics:
        raise frame.refusal(
            node,
            "atomic",
            f"{array.name} is in atomic=, so the loop may use its elements only in updates, {array.name}[…] op= v "
            "with + - * & | ^, and min and max; for anything else use another array, or omp.atomic without the clause",
        )


# -- operators


def _unary(frame: Frame, node: ast.UnaryOp) -> ir.Expression:
    operand = frame.value(node.operand)
    match node.op, operand:
        case ast.USub(), ir.Constant(value=value, type=None) if not isinstance(value, bool):
            return ir.Constant(place=frame.place(node), value=-value)
        case ast.USub(), _:
            return ir.Unary(place=frame.place(node), operator="-", operand=operand)
        case ast.UAdd(), _:
            return ir.Unary(place=frame.place(node), operator="+", operand=operand)
        case ast.Invert(), _:
            return ir.Unary(place=frame.place(node), operator="~", operand=operand)
        case _:
            return ir.Unary(place=frame.place(node), operator="not", operand=operand)


def _binary(frame: Frame, node: ast.BinOp) -> ir.Expression:
    """Lower operators from the left: sums may have more terms than Python may call functions in functions."""
    operations = [node]
    while isinstance(operations[-1].left, ast.BinOp):
        operations.append(operations[-1].left)
    value = frame.value(operations[-1].left)
    for one in reversed(operations):
        with frame.block() as before:
            right = frame.value(one.right)
        if changes_elements(before):
            value = frame.kept(value)
        frame.out += before
        operator = operator_of(frame, one, one.op)
        value = frame.bounded(ir.Binary(place=frame.place(one), operator=operator, left=value, right=right))
    return value


def _compare(frame: Frame, node: ast.Compare) -> ir.Expression:
    for word in node.ops:
        if type(word) not in _RELATIONS:
            raise frame.refusal(
                node,
                "operator",
                "a loop can use `is` only to test a default for None, and cannot use `in`; compare with ==",
            )
    return _chained(frame, frame.value(node.left), node.ops, node.comparators)


def _chained(frame: Frame, left: ir.Expression, words: Sequence[ast.cmpop], nodes: Sequence[ast.expr]) -> ir.Expression:
    """Return ``left < a <= b``: the second comparison is evaluated only if the first holds."""
    with frame.block() as before:
        right = frame.value(nodes[0])
    if changes_elements(before):
        left = frame.kept(left)
    frame.out += before
    place = frame.place(nodes[0])
    first = ir.Compare(place=place, operator=_RELATIONS[type(words[0])], left=left, right=right)
    if len(nodes) == 1:
        return first
    with frame.block() as before, frame.nested(nodes[0]):
        others = _chained(frame, right, words[1:], nodes[1:])
    return _joined(frame, "and", first, before, others)


def _logical(frame: Frame, node: ast.BoolOp) -> ir.Expression:
    undecided = [part for part in node.values if frame.decided(part) is None]
    value = frame.value(undecided[0])
    for part in undecided[1:]:
        with frame.block() as before:
            right = frame.value(part)
        value = frame.bounded(_joined(frame, "or" if isinstance(node.op, ast.Or) else "and", value, before, right))
    return value


def _joined(
    frame: Frame, word: str, left: ir.Expression, before: list[ir.Statement], right: ir.Expression
) -> ir.Expression:
    """Return ``left and right`` or ``left or right``, where `before` is carried out if the right side decides."""
    if not before:
        operator = cast("Literal['and', 'or']", word)
        return ir.Logical(place=left.place, operator=operator, left=left, right=right)
    both = frame.named(left, "both")
    decides = both if word == "and" else ir.Unary(place=left.place, operator="not", operand=both)
    before.append(ir.Assign(place=right.place, name=both.name, value=right))
    frame.out.append(ir.If(place=left.place, condition=decides, then=tuple(before)))
    return both


def _conditional(frame: Frame, node: ast.IfExp) -> ir.Expression:
    decided = frame.decided(node.test)
    if decided is not None:
        return frame.value(node.body if decided else node.orelse)
    condition = frame.value(node.test)
    with frame.block() as before:
        then = frame.value(node.body)
    with frame.block() as before_other:
        otherwise = frame.value(node.orelse)
    place = frame.place(node)
    if not before and not before_other:
        return ir.Select(place=place, condition=condition, then=then, otherwise=otherwise)
    chosen = frame.lowering.fresh("chosen")
    before.append(ir.Assign(place=then.place, name=chosen, value=then))
    before_other.append(ir.Assign(place=otherwise.place, name=chosen, value=otherwise))
    frame.out.append(ir.If(place=place, condition=condition, then=tuple(before), otherwise=tuple(before_other)))
    return ir.Name(place=place, name=chosen)


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence has them: ``a, b and c``."""
    return " and ".join([part for part in (", ".join(names[:-1]), *names[-1:]) if part])


def _owner(node: ast.expr) -> ast.expr:
    """Return the expression whose attribute of an attribute an expression is."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node


def index_nodes(node: ast.expr) -> list[ast.expr]:
    """Return the indices in brackets, one by one."""
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]


def _folded(value: ir.Expression) -> int | None:
    match value:
        case ir.Constant(value=int(number)):
            return number
        case ir.Binary(operator="+" | "-" | "*" | "//" as operator, left=left, right=right):
            a, b = _folded(left), _folded(right)
            if a is None or b is None or (operator == "//" and b == 0):
                return None
            return {"+": a + b, "-": a - b, "*": a * b, "//": a // (b or 1)}[operator]
        case _:
            return None
