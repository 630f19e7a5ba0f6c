"""Assignments: of variables, elements and tuples of them, local arrays, and updates of reductions."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, Literal, cast

from offload.loops.front.calls import Calls
from offload.loops.front.frames import LocalArray, Parameter, Scalar
from offload.loops.front.source import DTYPES
from offload.loops.front.values import index_nodes
from offload.loops.tree import ir
from offload.loops.tree.nodes import changes_elements, has_load, names_in
from offload.loops.tree.promotion import nbytes_of
from offload.loops.tree.updates import Update, update_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.errors import LoopError

_MAKERS: Final = {"numpy.zeros": 0, "numpy.ones": 1, "numpy.empty": None, "numpy.full": None}

_ATOMIC_WORDS: Final[dict[type[ast.operator], ir.AtomicOperator]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}


class Assignments(Calls):
    """A function's assignments."""

    def assign(self, node: ast.Assign) -> None:
        """Lower ``target = … = value``."""
        if self._is_update(node) or self._is_atomic(node):
            return
        if isinstance(node.value, ast.Call) and self.known(node.value.func) in _MAKERS:
            self._local(node, node.value)
            return
        if isinstance(node.targets[0], ast.Tuple):
            if len(node.targets) > 1:
                raise self.refusal(node, "assign", "a tuple is assigned once; write an assignment for each")
            self._assign_tuple(node, node.targets[0], node.value)
            return
        value = self.value(node.value)
        if len(node.targets) > 1 and not isinstance(value, ir.Constant):
            value = self.named(value, "value")
        for target in node.targets:
            self.store(target, value)

    def assign_in_place(self, node: ast.AugAssign) -> None:
        """Lower ``target op= value``."""
        if self._is_update(node):
            return
        target = node.target
        place, operator = self.place(node), self.operator(node, node.op)
        if not isinstance(target, ast.Subscript):
            old = self._old(target)
            value = self.value(node.value)
            self.store(target, ir.Binary(place=place, operator=operator, left=old, right=value))
            return
        self.check_in_nest(node, "assign")
        array, indices = self.element(target)
        with self.block() as before:
            value = self.value(node.value)
        if array.name in self.work.atomics:
            word = _ATOMIC_WORDS.get(type(node.op))
            if word is None:
                raise self.refusal(
                    node, "atomic", f"`{operator}=` is no atomic update; there are + - * & | ^, min and max"
                )
            self._append_atomic(node, array, indices, word, before, value)
            return
        self.check_plain(node, array)
        old = ir.Load(place=place, array=array.name, indices=indices, at=self.work.at())
        if changes_elements(before):
            indices = tuple(self.kept(index) for index in indices)
            old = self.kept(ir.Load(place=place, array=array.name, indices=indices, at=old.at))
        self.out += before
        sum_ = ir.Binary(place=place, operator=operator, left=old, right=value)
        self.out.append(ir.Store(place=place, array=array.name, indices=indices, value=sum_, at=self.work.at()))

    def _old(self, target: ast.expr) -> ir.Expression:
        if not isinstance(target, ast.Name):
            raise self._target_refusal(target)
        return self.value(ast.copy_location(ast.Name(target.id, ast.Load()), target))

    def assign_annotated(self, node: ast.AnnAssign) -> None:
        """Lower ``name: type = value``."""
        kind = self.type_named(node.annotation)
        if kind is None:
            text = ast.unparse(node.annotation)
            raise self.refusal(
                node, "assign", f"`{text}` is no type of the subset; write np.float64, np.int32 and the like"
            )
        if node.value is None or not isinstance(node.target, ast.Name):
            raise self.refusal(
                node, "assign", "an annotation fixes the type of a variable where that is assigned; give a value"
            )
        self.store(node.target, self.value(node.value), kind)

    def store(self, target: ast.expr, value: ir.Expression, annotation: ir.Type | None = None) -> None:
        """Append the assignment of a value to a variable or an element."""
        match target:
            case ast.Name(id=name):
                variable = self._assignable(target, name)
                self.out.append(ir.Assign(place=self.place(target), name=variable, value=value, annotation=annotation))
            case ast.Subscript():
                self.check_in_nest(target, "assign")
                with self.block() as before:
                    array, indices = self.element(target)
                if changes_elements(before):
                    value = self.kept(value)
                self.out += before
                self.check_plain(target, array)
                self.out.append(
                    ir.Store(
                        place=self.place(target), array=array.name, indices=indices, value=value, at=self.work.at()
                    )
                )
            case _:
                raise self._target_refusal(target)

    def _target_refusal(self, target: ast.expr) -> LoopError:
        what = {
            ast.Tuple: "a tuple in a tuple; assign flat ones",
            ast.List: "a list; assign to a tuple of variables and elements",
            ast.Starred: "a loop takes nothing apart by `*`; name each value",
            ast.Attribute: "an attribute; a loop assigns variables and elements of arrays",
        }
        return self.refusal(target, "assign", what.get(type(target), "assign to variables and elements of arrays"))

    def _assignable(self, node: ast.Name, name: str) -> str:
        """Return the variable that an assignment gives a value."""
        binding = self.variable(name)
        match binding:
            case Scalar(variable) | Parameter(variable):
                if isinstance(binding, Parameter) and variable not in self.work.items:
                    self.use_as_number(binding, node)
            case LocalArray():
                raise self.refusal(node, "assign", f"{name} is an array that the iteration makes; assign its elements")
            case _:
                if self.loops or (self.work.is_in_nest and not self.is_inlined):
                    raise self.refusal(
                        node, "argument", f"{name} is None at this call; give it a value before the loop"
                    )
                variable = self.work.fresh(name)
                self.names[name] = Scalar(variable)
        if variable in self.work.variables:
            raise self.refusal(node, "range", f"{name} counts the iterations; copy it to a variable, and change that")
        if variable in self.work.items:
            raise self.item_refusal(node, variable)
        return variable

    # -- tuples

    def _assign_tuple(self, node: ast.Assign, targets: ast.Tuple, value: ast.expr) -> None:
        values = self._tuple_values(node, value, len(targets.elts))
        if len(values) != len(targets.elts):
            raise self.refusal(
                node,
                "assign",
                f"{len(values)} values for {len(targets.elts)} targets; a tuple of scalars and elements is assigned one"
                " by one",
            )
        for number, one in enumerate(values):
            if self._is_touched(one, targets.elts[:number]):
                values[number] = self.named(one, "value")
        for target, one in zip(targets.elts, values, strict=True):
            self.store(target, one)

    def _tuple_values(self, node: ast.Assign, value: ast.expr, n_targets: int) -> list[ir.Expression]:
        match value:
            case ast.Tuple(elts=nodes):
                return self.in_order(nodes)
            case ast.Call(func=function, args=[_, _] as operands, keywords=[]) if self.known(function) == "divmod":
                place = self.place(value)
                left, right = (
                    operand if isinstance(operand, (ir.Name, ir.Constant)) else self.named(operand, "operand")
                    for operand in self.in_order(operands)
                )
                return [
                    ir.Binary(place=place, operator="//", left=left, right=right),
                    ir.Binary(place=place, operator="%", left=left, right=right),
                ]
            case ast.Call():
                return list(self.values_of(value) or ())
            case ast.Attribute(attr="shape", value=base):
                return self._shape_values(value, self.array(base), n_targets)
            case _:
                raise self.refusal(
                    node, "assign", "a tuple takes a tuple, divmod(a, b), or a function that returns one"
                )

    def _shape_values(self, node: ast.AST, array: Parameter | LocalArray, n_targets: int) -> list[ir.Expression]:
        place = self.place(node)
        if isinstance(array, LocalArray):
            return [ir.Constant(place=place, value=extent) for extent in array.shape]
        return [ir.Extent(place=place, array=array.name, dimension=k, n_dimensions=n_targets) for k in range(n_targets)]

    def _is_touched(self, value: ir.Expression, targets: Sequence[ast.expr]) -> bool:
        """Tell whether a value changes where targets are assigned before it is."""
        if has_load(value) and any(isinstance(target, ast.Subscript) for target in targets):
            return True
        assigned = {self._name_of(target.id) for target in targets if isinstance(target, ast.Name)}
        return not assigned.isdisjoint(names_in(value))

    def _name_of(self, name: str) -> str | None:
        binding = self.names.get(name)
        return binding.name if isinstance(binding, (Scalar, Parameter)) else None

    # -- arrays that the iteration makes

    def _local(self, node: ast.Assign, call: ast.Call) -> None:
        target = node.targets[0]
        maker = self.known(call.func) or ""
        if len(node.targets) != 1 or not isinstance(target, ast.Name):
            raise self.refusal(node, "local", "a local array is assigned to one name")
        if not self.work.is_in_nest:
            raise self.refusal(
                node, "local", "arrays are made in an iteration; make it there, or pass it as an argument"
            )
        if target.id in self.names:
            raise self.refusal(
                node, "local", f"{target.id} has another meaning before; give the array a name of its own"
            )
        places = ("shape", "fill_value", "dtype") if maker == "numpy.full" else ("shape", "dtype")
        given = dict(zip(places, call.args, strict=False))
        given |= {keyword.arg or "**": keyword.value for keyword in call.keywords}
        if unknown := set(given) - {"shape", "fill_value", "dtype"}:
            raise self.refusal(node, "local", f"{', '.join(sorted(unknown))} has no place here; give shape and dtype")
        shape = self._shape(node, given.get("shape"))
        fill = _MAKERS[maker]
        filled: ir.Expression | None = None if fill is None else ir.Constant(place=self.place(node), value=fill)
        dtype: ir.Dtype = "float64"
        if maker == "numpy.full":
            if not {"fill_value", "dtype"} <= given.keys():
                raise self.refusal(
                    node, "local", "np.full takes its dtype from the value; give both, as np.full(3, 1.0, dtype)"
                )
            filled = self.value(given["fill_value"])
        if "dtype" in given:
            dtype = self._dtype(node, given["dtype"])
        name = self.work.fresh(target.id) if self.is_inlined else target.id
        self.names[target.id] = LocalArray(name, shape)
        self._count(node, shape, dtype)
        self.out.append(ir.Local(place=self.place(node), name=name, shape=shape, dtype=dtype, fill=filled))

    def _shape(self, node: ast.AST, shape: ast.expr | None) -> tuple[int, ...]:
        nodes = shape.elts if isinstance(shape, (ast.Tuple, ast.List)) else [shape]
        extents = [None if one is None else self.integer(one) for one in nodes]
        known = tuple(extent for extent in extents if extent is not None and extent >= 0)
        if len(known) != len(extents):
            raise self.refusal(
                node,
                "local",
                "the shape of a local array is constant; give a constant, or index a larger array by iteration",
            )
        return known

    def _dtype(self, node: ast.AST, dtype: ast.expr) -> ir.Dtype:
        named = self.type_named(dtype)
        text = dtype.value if isinstance(dtype, ast.Constant) else named and named.dtype
        if text not in DTYPES:
            raise self.refusal(
                node, "local", f"`{ast.unparse(dtype)}` is no element type; it is one of np.float64, np.int32, …"
            )
        return cast("ir.Dtype", text)

    def _count(self, node: ast.AST, shape: tuple[int, ...], dtype: ir.Dtype) -> None:
        nbytes = nbytes_of(dtype)
        for extent in shape:
            nbytes *= extent
        self.work.local_nbytes += nbytes
        if self.work.local_nbytes > ir.MOST_PRIVATE_NBYTES:
            raise self.refusal(
                node,
                "private",
                f"the local arrays of an iteration have {self.work.local_nbytes} bytes, and at most"
                f" {ir.MOST_PRIVATE_NBYTES}; index a larger array by iteration",
            )

    # -- updates

    def _is_update(self, node: ast.stmt) -> bool:
        """Lower a statement if it is an update of a reduction's item; tell whether it is."""
        if not self.work.items or (update := update_of(node, self._item, self.known)) is None:
            return False
        item = self.work.items[update.name]
        if item.operator != update.operator:
            raise self.refusal(
                node,
                "reduction",
                f"this is an update by {update.operator!r}, and {update.name} is in"
                f" reduction={{{item.operator!r}: [{update.name!r}]}}; use one operator",
            )
        if item.kind == "inner":
            del self.work.items[update.name]
            self.statement(node)
            self.work.items[update.name] = item
        else:
            self._reduce(node, update, item.kind == "array")
        return True

    def is_update(self, node: ast.If) -> bool:
        """Lower a branch if it is an update of a reduction's item; tell whether it is."""
        return self._is_update(node)

    def statement(self, node: ast.stmt) -> None:
        """Lower a statement."""
        raise NotImplementedError

    def _item(self, node: ast.expr) -> str | None:
        """Return the reduction's item that an expression is."""
        match node:
            case ast.Name(id=name) if name in self.names:
                binding = self.names[name]
            case ast.Subscript(value=ast.Name(id=name), slice=index) if name in self.names:
                binding = self.names[name]
                if not isinstance(binding, Parameter) or not all(map(_is_zero, index_nodes(index))):
                    return None
            case _:
                return None
        is_one = isinstance(binding, (Scalar, Parameter)) and binding.name in self.work.items
        return binding.name if is_one and isinstance(binding, (Scalar, Parameter)) else None

    def _reduce(self, node: ast.stmt, update: Update, is_array: bool) -> None:
        targets = [part for part in ast.walk(node) if isinstance(part, ast.expr) and self._item(part) == update.name]
        is_named = isinstance(targets[0], ast.Name)
        if is_array:
            self.use_as_array(Parameter(update.name), node)
            if is_named and not update.is_in_place:
                raise self.refusal(
                    node,
                    "reduction",
                    f"this gives the name {update.name} a new value, and leaves the array; write {update.name}[()] = …,"
                    f" or return {update.name}",
                )
        elif not is_named:
            raise self.refusal(
                node, "reduction", f"{update.name} is returned, as a number; leave the index out, or do not return it"
            )
        for term in update.terms:
            value = self.value(term.node)
            self.out.append(
                ir.Reduce(
                    place=self.place(node),
                    name=update.name,
                    operator=update.operator,
                    value=value,
                    is_taken_away=term.is_taken_away,
                )
            )

    def _is_atomic(self, node: ast.Assign) -> bool:
        """Lower ``h[k] = min(h[k], v)`` of an array in ``atomic``; tell whether it is that."""
        target, value = node.targets[0], node.value
        if not (isinstance(target, ast.Subscript) and isinstance(value, ast.Call) and len(value.args) == 2):
            return False
        word = self.known(value.func)
        others = [one for one in value.args if ast.unparse(one) != ast.unparse(target)]
        if word not in ("min", "max") or len(others) != 1 or len(node.targets) != 1:
            return False
        root = target.value
        while isinstance(root, ast.Subscript):
            root = root.value
        if not isinstance(root, ast.Name) or self._name_of(root.id) not in self.work.atomics:
            return False
        array, indices = self.element(target)
        with self.block() as before:
            operand = self.value(others[0])
        self._append_atomic(node, array, indices, cast("Literal['min', 'max']", word), before, operand)
        return True

    def _append_atomic(
        self,
        node: ast.AST,
        array: Parameter | LocalArray,
        indices: tuple[ir.Expression, ...],
        word: ir.AtomicOperator,
        before: list[ir.Statement],
        value: ir.Expression,
    ) -> None:
        if changes_elements(before):
            indices = tuple(self.kept(index) for index in indices)
        self.out += before
        place, at = self.place(node), self.work.at()
        self.out.append(ir.Atomic(place=place, array=array.name, indices=indices, operator=word, value=value, at=at))


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value == 0
