"""Assignments: of variables, elements and tuples of them, local arrays, and updates of reductions."""

from __future__ import annotations

import ast
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Final, Literal, cast

from offload.loops.front.calls import check_in_nest, known_name, type_named, values_of_call
from offload.loops.front.frames import LocalArray, Parameter, PassedLayout, Row, Scalar
from offload.loops.front.offsets import extents_in, layout_in, layout_refusal
from offload.loops.front.rows import bind, captured, check_row, extents_of, over_refusal, row_refusal, uses_as_array
from offload.loops.front.source import DTYPES
from offload.loops.front.values import (
    check_plain_use,
    constant_integer,
    element_of,
    index_nodes,
    item_refusal,
    operator_of,
    row_of,
)
from offload.loops.tree import ir
from offload.loops.tree.nodes import changes_elements, has_load, names_in
from offload.loops.tree.promotion import nbytes_of
from offload.loops.tree.updates import ItemUpdate, update_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.errors import LoopError
    from offload.loops.front.frames import Frame

_MAKERS: Final = {"numpy.zeros": 0, "numpy.ones": 1, "numpy.empty": None, "numpy.full": None}

_ATOMIC_WORDS: Final[dict[type[ast.operator], ir.AtomicOperator]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}


def assign(frame: Frame, node: ast.Assign) -> None:
    """Lower ``target = … = value``."""
    if is_update(frame, node) or _is_atomic(frame, node):
        return
    if isinstance(node.value, ast.Call) and known_name(frame, node.value.func) in _MAKERS:
        _local(frame, node, node.value)
        return
    if isinstance(node.targets[0], ast.Tuple):
        if len(node.targets) > 1:
            raise frame.refusal(node, "assign", "a tuple can have only one target; write an assignment for each")
        _assign_tuple(frame, node, node.targets[0], node.value)
        return
    if any(_is_row(frame, target, node.value) for target in node.targets):
        _assign_row(frame, node)
        return
    for target in node.targets:
        if isinstance(target, ast.Name) and uses_as_array(frame, target.id):
            check_row(frame, node.value, target.id)
    value = frame.value(node.value)
    if len(node.targets) > 1 and not isinstance(value, ir.Constant):
        value = frame.named(value, "value")
    for target in node.targets:
        store(frame, target, value)


def _is_row(frame: Frame, target: ast.expr, value: ast.expr) -> bool:
    """Tell whether an assignment lets a name stand for a row, or for an array."""
    if not isinstance(target, ast.Name) or not uses_as_array(frame, target.id):
        return False
    if isinstance(value, ast.Name):
        return isinstance(frame.names.get(value.id), (Row, Parameter, LocalArray))
    base = value
    while isinstance(base, ast.Subscript):
        base = base.value
    return isinstance(value, ast.Subscript) and isinstance(base, ast.Name)


def _assign_row(frame: Frame, node: ast.Assign) -> None:
    target = node.targets[0]
    if len(node.targets) > 1 or not isinstance(target, ast.Name):
        raise frame.refusal(node, "assign", "a row can be assigned to one name only; write an assignment for each")
    bind(frame, target, captured(frame, row_of(frame, node.value), target.id))


def assign_in_place(frame: Frame, node: ast.AugAssign) -> None:
    """Lower ``target op= value``."""
    if is_update(frame, node):
        return
    target = node.target
    place, operator = frame.place(node), operator_of(frame, node, node.op)
    if not isinstance(target, ast.Subscript):
        old = _old(frame, target)
        value = frame.value(node.value)
        store(frame, target, ir.Binary(place=place, operator=operator, left=old, right=value))
        return
    check_in_nest(frame, node, "assign")
    array, indices = element_of(frame, target)
    with frame.block() as before:
        value = frame.value(node.value)
    if array.name in frame.lowering.atomics:
        word = _ATOMIC_WORDS.get(type(node.op))
        if word is None:
            raise frame.refusal(node, "atomic", f"`{operator}=` is not an atomic update; use + - * & | ^, min or max")
        _append_atomic(frame, node, array, indices, word, before, value)
        return
    check_plain_use(frame, node, array)
    old = ir.Load(place=place, array=array.name, indices=indices, at=frame.lowering.at())
    if changes_elements(before):
        indices = tuple(frame.kept(index) for index in indices)
        old = frame.kept(ir.Load(place=place, array=array.name, indices=indices, at=old.at))
    frame.out += before
    sum_ = ir.Binary(place=place, operator=operator, left=old, right=value)
    frame.out.append(ir.Store(place=place, array=array.name, indices=indices, value=sum_, at=frame.lowering.at()))


def _old(frame: Frame, target: ast.expr) -> ir.Expression:
    if not isinstance(target, ast.Name):
        raise _target_refusal(frame, target)
    return frame.value(ast.copy_location(ast.Name(target.id, ast.Load()), target))


def assign_annotated(frame: Frame, node: ast.AnnAssign) -> None:
    """Lower ``name: type = value``."""
    kind = type_named(frame, node.annotation)
    if kind is None:
        text = ast.unparse(node.annotation)
        raise frame.refusal(
            node, "assign", f"`{text}` is not a type that loops support; write np.float64, np.int32 and the like"
        )
    if node.value is None or not isinstance(node.target, ast.Name):
        raise frame.refusal(
            node,
            "assign",
            "an annotation needs a value, because it sets the type of an assigned variable; write `name: type = value`",
        )
    store(frame, node.target, frame.value(node.value), kind)


def store(frame: Frame, target: ast.expr, value: ir.Expression, annotation: ir.Type | None = None) -> None:
    """Append the assignment of a value to a variable or an element."""
    match target:
        case ast.Name(id=name):
            variable = _assignable(frame, target, name)
            frame.out.append(ir.Assign(place=frame.place(target), name=variable, value=value, annotation=annotation))
        case ast.Subscript():
            check_in_nest(frame, target, "assign")
            with frame.block() as before:
                array, indices = element_of(frame, target)
            if changes_elements(before):
                value = frame.kept(value)
            frame.out += before
            check_plain_use(frame, target, array)
            frame.out.append(
                ir.Store(
                    place=frame.place(target), array=array.name, indices=indices, value=value, at=frame.lowering.at()
                )
            )
        case _:
            raise _target_refusal(frame, target)


def _target_refusal(frame: Frame, target: ast.expr) -> LoopError:
    what = {
        ast.Tuple: "a tuple cannot contain another tuple; assign flat tuples",
        ast.List: "a list cannot be assigned to; assign to a tuple of variables and elements",
        ast.Starred: "a loop cannot unpack with `*`; name each value",
        ast.Attribute: "an attribute cannot be assigned in a loop; assign to variables and elements of arrays",
    }
    return frame.refusal(target, "assign", what.get(type(target), "assign to variables and elements of arrays"))


def _assignable(frame: Frame, node: ast.Name, name: str) -> str:
    """Return the variable that an assignment gives a value."""
    binding = frame.variable(name)
    match binding:
        case Scalar(variable) | Parameter(variable):
            if isinstance(binding, Parameter) and variable not in frame.lowering.items:
                frame.use_as_number(binding, node)
        case LocalArray():
            raise frame.refusal(node, "assign", f"{name} is a local array of the iteration; assign its elements")
        case PassedLayout():
            raise layout_refusal(frame, node, "assign")
        case Row(is_over=True):
            raise over_refusal(frame, node, name)
        case Row():
            raise row_refusal(frame, node, binding)
        case _:
            if frame.loops or (frame.lowering.is_in_nest and not frame.is_inlined):
                raise frame.refusal(node, "argument", f"{name} is None in this call; give it a value before the loop")
            variable = frame.lowering.fresh(name)
            frame.names[name] = Scalar(variable)
    if variable in frame.lowering.variables:
        raise frame.refusal(
            node, "range", f"{name} counts the iterations; copy it to another variable, and change that variable"
        )
    if variable in frame.lowering.items:
        raise item_refusal(frame, node, variable)
    return variable


# -- tuples


def _assign_tuple(frame: Frame, node: ast.Assign, targets: ast.Tuple, value: ast.expr) -> None:
    pairs = zip(targets.elts, value.elts if isinstance(value, ast.Tuple) else (), strict=False)
    if any(_is_row(frame, target, one) for target, one in pairs):
        raise frame.refusal(node, "assign", "a row can be assigned to one name only; write an assignment for each")
    values = _tuple_values(frame, node, value, len(targets.elts))
    if len(values) != len(targets.elts):
        raise frame.refusal(
            node,
            "assign",
            f"{len(values)} values for {len(targets.elts)} targets; give one value for each target",
        )
    for number, one in enumerate(values):
        if _is_touched(frame, one, targets.elts[:number]):
            values[number] = frame.named(one, "value")
    for target, one in zip(targets.elts, values, strict=True):
        store(frame, target, one)


def _tuple_values(frame: Frame, node: ast.Assign, value: ast.expr, n_targets: int) -> list[ir.Expression]:
    match value:
        case ast.Tuple(elts=nodes):
            return frame.in_order(nodes)
        case ast.Call(func=function, args=[_, _] as operands, keywords=[]) if known_name(frame, function) == "divmod":
            place = frame.place(value)
            left, right = (
                operand if isinstance(operand, (ir.Name, ir.Constant)) else frame.named(operand, "operand")
                for operand in frame.in_order(operands)
            )
            return [
                ir.Binary(place=place, operator="//", left=left, right=right),
                ir.Binary(place=place, operator="%", left=left, right=right),
            ]
        case ast.Call():
            return list(values_of_call(frame, value) or ())
        case ast.Attribute(attr="shape", value=base) if (layout := layout_in(frame, base)) is not None:
            return extents_in(frame, value, layout)
        case ast.Attribute(attr="shape", value=base):
            return extents_of(frame, value, row_of(frame, base), n_targets)
        case _:
            raise frame.refusal(
                node,
                "assign",
                "a tuple can be assigned only from a tuple, divmod(a, b), or a function that returns a tuple",
            )


def _is_touched(frame: Frame, value: ir.Expression, targets: Sequence[ast.expr]) -> bool:
    """Tell whether a value changes where targets are assigned before it is."""
    if has_load(value) and any(isinstance(target, ast.Subscript) for target in targets):
        return True
    assigned = {_name_of(frame, target.id) for target in targets if isinstance(target, ast.Name)}
    return not assigned.isdisjoint(names_in(value))


def _name_of(frame: Frame, name: str) -> str | None:
    binding = frame.names.get(name)
    return binding.name if isinstance(binding, (Scalar, Parameter)) else None


# -- arrays that the iteration makes


def _local(frame: Frame, node: ast.Assign, call: ast.Call) -> None:
    target = node.targets[0]
    maker = known_name(frame, call.func) or ""
    if len(node.targets) != 1 or not isinstance(target, ast.Name):
        raise frame.refusal(node, "local", "a local array must be assigned to exactly one name")
    if not frame.lowering.is_in_nest:
        raise frame.refusal(
            node, "local", "local arrays are created in an iteration; create it there, or pass it as an argument"
        )
    if target.id in frame.names:
        raise frame.refusal(node, "local", f"{target.id} already has another meaning; give the array a name of its own")
    places = ("shape", "fill_value", "dtype") if maker == "numpy.full" else ("shape", "dtype")
    given = dict(zip(places, call.args, strict=False))
    given |= {keyword.arg or "**": keyword.value for keyword in call.keywords}
    if unknown := set(given) - {"shape", "fill_value", "dtype"}:
        raise frame.refusal(
            node, "local", f"{', '.join(sorted(unknown))} is not allowed here; give shape and dtype only"
        )
    shape = _shape(frame, node, given.get("shape"))
    fill = _MAKERS[maker]
    filled: ir.Expression | None = None if fill is None else ir.Constant(place=frame.place(node), value=fill)
    dtype: ir.Dtype = "float64"
    if maker == "numpy.full":
        if not {"fill_value", "dtype"} <= given.keys():
            raise frame.refusal(node, "local", "np.full needs a value and a dtype here; write np.full(3, 1.0, dtype)")
        filled = frame.value(given["fill_value"])
    if "dtype" in given:
        dtype = _dtype(frame, node, given["dtype"])
    name = frame.lowering.fresh(target.id) if frame.is_inlined else target.id
    frame.names[target.id] = LocalArray(name, shape)
    _count(frame, node, shape, dtype)
    frame.out.append(ir.Local(place=frame.place(node), name=name, shape=shape, dtype=dtype, fill=filled))


def _shape(frame: Frame, node: ast.AST, shape: ast.expr | None) -> tuple[int, ...]:
    nodes = shape.elts if isinstance(shape, (ast.Tuple, ast.List)) else [shape]
    extents = [None if one is None else constant_integer(frame, one) for one in nodes]
    known = tuple(extent for extent in extents if extent is not None and extent >= 0)
    if len(known) != len(extents):
        raise frame.refusal(
            node,
            "local",
            "the shape of a local array must be constant; give a constant, or index a larger array by iteration",
        )
    return known


def _dtype(frame: Frame, node: ast.AST, dtype: ast.expr) -> ir.Dtype:
    named = type_named(frame, dtype)
    text = dtype.value if isinstance(dtype, ast.Constant) else named and named.dtype
    if text not in DTYPES:
        raise frame.refusal(
            node, "local", f"`{ast.unparse(dtype)}` is not an element type; use np.float64, np.int32, …"
        )
    return cast("ir.Dtype", text)


def _count(frame: Frame, node: ast.AST, shape: tuple[int, ...], dtype: ir.Dtype) -> None:
    frame.lowering.local_nbytes += prod(shape, start=nbytes_of(dtype))
    if frame.lowering.local_nbytes > ir.MOST_PRIVATE_NBYTES:
        raise frame.refusal(
            node,
            "private",
            f"the local arrays of an iteration have {frame.lowering.local_nbytes} bytes, but at most "
            f"{ir.MOST_PRIVATE_NBYTES} are allowed; index a larger array by iteration",
        )


# -- updates


def is_update(frame: Frame, node: ast.stmt) -> bool:
    """Lower a statement if it is an update of a reduction's item; tell whether it is."""
    if not frame.lowering.items:
        return False
    update = update_of(node, partial(_item, frame), partial(known_name, frame))
    if update is None:
        return False
    item = frame.lowering.items[update.name]
    if item.operator != update.operator:
        raise frame.refusal(
            node,
            "reduction",
            f"this is an update by {update.operator!r}, but {update.name} is in reduction={{{item.operator!r}: "
            f"[{update.name!r}]}}; use one operator",
        )
    if item.kind == "inner":
        del frame.lowering.items[update.name]
        frame.statement(node)
        frame.lowering.items[update.name] = item
    else:
        _reduce(frame, node, update, item.kind == "array")
    return True


def _item(frame: Frame, node: ast.expr) -> str | None:
    """Return the reduction's item that an expression is."""
    match node:
        case ast.Name(id=name) if name in frame.names:
            binding = frame.names[name]
        case ast.Subscript(value=ast.Name(id=name), slice=index) if name in frame.names:
            binding = frame.names[name]
            if not isinstance(binding, Parameter) or not all(map(_is_zero, index_nodes(index))):
                return None
        case _:
            return None
    is_one = isinstance(binding, (Scalar, Parameter)) and binding.name in frame.lowering.items
    return binding.name if is_one and isinstance(binding, (Scalar, Parameter)) else None


def _reduce(frame: Frame, node: ast.stmt, update: ItemUpdate, is_array: bool) -> None:
    targets = [part for part in ast.walk(node) if isinstance(part, ast.expr) and _item(frame, part) == update.name]
    is_named = isinstance(targets[0], ast.Name)
    if is_array:
        frame.use_as_array(Parameter(update.name), node)
        if is_named and not update.is_in_place:
            raise frame.refusal(
                node,
                "reduction",
                f"this gives the name {update.name} a new value and does not change the array; write "
                f"{update.name}[()] = …, or return {update.name}",
            )
    elif not is_named:
        raise frame.refusal(
            node, "reduction", f"{update.name} is returned, as a number; leave the index out, or do not return it"
        )
    for term in update.terms:
        value = frame.value(term.node)
        frame.out.append(
            ir.Reduce(
                place=frame.place(node),
                name=update.name,
                operator=update.operator,
                value=value,
                is_taken_away=term.is_taken_away,
            )
        )


def _is_atomic(frame: Frame, node: ast.Assign) -> bool:
    """Lower ``h[k] = min(h[k], v)`` of an array in ``atomic``; tell whether it is that."""
    target, value = node.targets[0], node.value
    if not (isinstance(target, ast.Subscript) and isinstance(value, ast.Call) and len(value.args) == 2):
        return False
    word = known_name(frame, value.func)
    others = [one for one in value.args if ast.unparse(one) != ast.unparse(target)]
    if word not in ("min", "max") or len(others) != 1 or len(node.targets) != 1:
        return False
    root = target.value
    while isinstance(root, ast.Subscript):
        root = root.value
    bound = frame.names.get(root.id) if isinstance(root, ast.Name) else None
    array = bound.array if isinstance(bound, Row) else bound
    if not isinstance(array, Parameter) or array.name not in frame.lowering.atomics:
        return False
    array, indices = element_of(frame, target)
    with frame.block() as before:
        operand = frame.value(others[0])
    _append_atomic(frame, node, array, indices, cast("Literal['min', 'max']", word), before, operand)
    return True


def _append_atomic(
    frame: Frame,
    node: ast.AST,
    array: Parameter | LocalArray,
    indices: tuple[ir.Expression, ...],
    word: ir.AtomicOperator,
    before: list[ir.Statement],
    value: ir.Expression,
) -> None:
    if changes_elements(before):
        indices = tuple(frame.kept(index) for index in indices)
    frame.out += before
    place, at = frame.place(node), frame.lowering.at()
    frame.out.append(ir.Atomic(place=place, array=array.name, indices=indices, operator=word, value=value, at=at))


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value == 0
