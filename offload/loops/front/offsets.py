"""Calls of array types: their digits are computed where the call stands, and their indices are checked before.

`A(i, j)`, `A(k)` and `A[0](i)` are offsets. A call of a distributed type has two values, the thread and the offset, and
may be the whole index of an array. The meaning is that of the type's own call in CPython.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final

from offload.errors import LayoutError
from offload.loops.front.frames import PassedLayout
from offload.loops.front.layouts import METHODS, reckoner_of
from offload.loops.front.source import OutsideLayout
from offload.loops.tree import ir
from offload.loops.tree.nodes import has_load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.errors import LoopError
    from offload.loops.front.frames import Frame
    from offload.loops.front.layouts import AnyLayout

_INT: Final = ir.Type("int64", is_weak=True)

# Parts of an index that are written as often as the digits need them; higher ones become variables.
_HIGHEST: Final = 2


# -- which type an expression is ----------------------------------------------------------------------


def layout_in(frame: Frame, node: ast.expr) -> AnyLayout | None:
    """Return the array type that an expression stands for: a name, or a sub-dimension ``A[0, 1]``."""
    match node:
        case ast.Name(id=name) if frame.is_local(name):
            binding = frame.names.get(name)
            return binding.layout if isinstance(binding, PassedLayout) else None
        case ast.Name(id=name):
            meaning = frame.source.meaning(name)
            return meaning.layout if isinstance(meaning, OutsideLayout) else None
        case ast.Subscript(value=base, slice=place):
            found = layout_in(frame, base)
            if found is not None:
                for part in place.elts if isinstance(place, ast.Tuple) else [place]:
                    found = _sub_dimension(frame, node, found, part)
            return found
        case _:
            return None


def _sub_dimension(frame: Frame, node: ast.expr, layout: AnyLayout, place: ast.expr) -> AnyLayout:
    value = frame.value(place)
    if not isinstance(value, ir.Constant) or type(value.value) is not int:
        raise frame.refusal(node, "index", "the number of a sub-dimension must be a constant, as in A[0]")
    if not -len(layout.dims) <= value.value < len(layout.dims):
        raise frame.refusal(node, "index", f"{layout!r} has {len(layout.dims)} sub-dimensions; name one of them")
    return layout.dims[value.value]


def layout_refusal(frame: Frame, node: ast.expr, rule: str = "types") -> LoopError:
    """Return the error for an array type where a number or an array is needed."""
    text = ast.unparse(node)
    return frame.refusal(
        node, rule, f"{text} is an array type; call it for an offset, as in a[{text}(k)], or use its size or shape"
    )


# -- properties ---------------------------------------------------------------------------------------


def property_of(frame: Frame, node: ast.Attribute, layout: AnyLayout) -> ir.Expression:
    """Return a number that a type tells: ``A.size``, ``A.ndim``, ``A.span``."""
    if node.attr not in ("size", "ndim", "span"):
        raise frame.refusal(
            node,
            "index",
            f"a loop can call an array type and use its .size, .ndim, .span, .shape[k], .ravel and .unravel, but not "
            f".{node.attr}; pass the number as an argument",
        )
    value = len(layout.dims) if node.attr == "ndim" else getattr(layout, node.attr)
    return ir.Constant(place=frame.place(node), value=int(value))


def extent_in(frame: Frame, node: ast.expr, layout: AnyLayout, dimension: int) -> ir.Expression:
    """Return ``A.shape[dimension]``."""
    if not -len(layout.dims) <= dimension < len(layout.dims):
        raise frame.refusal(node, "index", f"{layout!r} has {len(layout.dims)} sub-dimensions; ask for one of them")
    return ir.Constant(place=frame.place(node), value=layout.dims[dimension].size)


def extents_in(frame: Frame, node: ast.expr, layout: AnyLayout) -> list[ir.Expression]:
    """Return the values of ``A.shape``."""
    return [ir.Constant(place=frame.place(node), value=sub.size) for sub in layout.dims]


# -- calls --------------------------------------------------------------------------------------------


def offsets_of(frame: Frame, node: ast.Call) -> tuple[ir.Expression, ...] | None:
    """Lower a call of an array type, or of its ``ravel`` or ``unravel``; None for any other call."""
    function = node.func
    method = ""
    layout = layout_in(frame, function)
    if layout is None and isinstance(function, ast.Attribute):
        method, layout = function.attr, layout_in(frame, function.value)
    if layout is None:
        return None
    if node.keywords or any(isinstance(one, ast.Starred) for one in node.args):
        raise frame.refusal(node, "call", "an array type takes its indices by position; leave out * and keywords")
    if method and method not in METHODS:
        assert isinstance(function, ast.Attribute)
        property_of(frame, function, layout)  # which refuses it, or
        raise frame.refusal(node, "call", f".{method} is a number; leave out the call")
    is_whole = len(node.args) == 1 and not isinstance(node.args[0], ast.Tuple) and method != "ravel"
    given = [(layout.size, node.args[0])] if is_whole else _leaves(frame, node, layout, node.args)
    frame.lowering.layouts[ast.unparse(function)] = layout
    parts = _parts(frame, node, given)
    if method == "unravel":
        return _unravelled(frame, node, layout, parts)
    if method == "ravel":
        number: Any = 0
        for size, part in parts:
            number = number * size + part
        return (_expression(frame, node, number),)
    reckoner = reckoner_of(layout)
    try:
        reckoner.check(layout)
        thread, offset = reckoner.place(layout, parts)
    except LayoutError as error:
        what = f"loops cannot compute the offsets of this array type: {error}; pass {ast.unparse(function)}.offsets()"
        raise frame.refusal(node, "call", f"{what} as an argument and index that") from None
    numbers = (thread, offset) if layout.kind == "both" else (thread + offset,)
    return tuple([_expression(frame, node, number) for number in numbers])


def place_in(frame: Frame, node: ast.Attribute) -> ir.Expression | None:
    """Lower ``T(k).thread`` and ``T(k).offset`` of a distributed type; None for any other attribute."""
    if not isinstance(node.value, ast.Call) or node.attr not in ("thread", "offset"):
        return None
    values = offsets_of(frame, node.value)
    if values is None:
        return None
    if len(values) != 2:
        raise frame.refusal(node, "index", "the type is not distributed, so its offset is a number; leave this out")
    return values[node.attr == "offset"]


def _leaves(frame: Frame, node: ast.Call, layout: AnyLayout, given: Sequence[ast.expr]) -> list[tuple[int, ast.expr]]:
    """Return the indices of a call, each with the size of the dimension that it counts."""
    dims = layout.dims
    if len(given) != (len(dims) or 1) or (not dims and isinstance(given[0], ast.Tuple)):
        wanted = f"{len(dims)} indices, one for each sub-dimension" if dims else "one index, not a tuple"
        raise frame.refusal(node, "index", f"{layout!r} takes {wanted}; these are {len(given)}")
    if not dims:
        return [(layout.size, given[0])]
    found: list[tuple[int, ast.expr]] = []
    for sub, one in zip(dims, given, strict=True):
        if isinstance(one, ast.Tuple):
            found += _leaves(frame, node, sub, one.elts if sub.dims else [one])
        else:
            found.append((sub.size, one))
    return found


def _parts(frame: Frame, node: ast.Call, given: Sequence[tuple[int, ast.expr]]) -> list[tuple[int, Any]]:
    """Lower indices, check them, and return them as the numbers of a mixed radix."""
    sizes = tuple([size for size, _ in given])
    values = frame.in_order([one for _, one in given])
    known = [int(one.value) if isinstance(one, ir.Constant) and isinstance(one.value, int) else None for one in values]
    if all(one is not None and 0 <= one < size for one, size in zip(known, sizes, strict=True)):
        return list(zip(sizes, known, strict=True))
    indices = tuple([_kept(frame, value) for value in values])
    frame.out.append(
        ir.IndexCheck(
            place=frame.place(node),
            array=frame.lowering.call_text(ast.unparse(node), sizes),
            indices=indices,
            sizes=sizes,
            at=frame.lowering.at(),
        )
    )
    numbers = [
        _Number(frame, node, ir.Convert(place=index.place, to=_INT, operand=index)) if one is None else one
        for index, one in zip(indices, known, strict=True)
    ]
    return list(zip(sizes, numbers, strict=True))


def _kept(frame: Frame, value: ir.Expression) -> ir.Expression:
    """Return an index that may be evaluated several times."""
    if has_load(value) or frame.lowering.height(value) > _HIGHEST:
        return frame.named(value, "index")
    return value


def _unravelled(
    frame: Frame, node: ast.Call, layout: AnyLayout, parts: Sequence[tuple[int, Any]]
) -> tuple[ir.Expression, ...]:
    """Return the indices of an element: those that ``unravel`` returns in a tuple."""
    if any(sub.dims for sub in layout.dims):
        raise frame.refusal(node, "call", f"{layout!r} has nested dimensions; unravel by each of them, as in A[0]")
    ((_, number),) = parts
    found: list[ir.Expression] = []
    for sub in reversed(layout.dims):
        found.insert(0, _expression(frame, node, number % sub.size))
        number = number // sub.size
    return tuple(found) or (_expression(frame, node, number),)


def _expression(frame: Frame, node: ast.Call, number: Any) -> ir.Expression:
    if isinstance(number, _Number):
        return number.value
    return ir.Constant(place=frame.place(node), value=int(number))


class _Number:
    """An integer of the iteration, with the operators that places are computed with."""

    def __init__(self, frame: Frame, node: ast.Call, value: ir.Expression) -> None:
        frame.count_inlined(node)
        self._frame, self._node = frame, node  # the call, for refusals
        self.value = frame.bounded(value)

    def _made(self, operator: ir.Operator, left: ir.Expression, right: ir.Expression) -> _Number:
        value = ir.Binary(place=self.value.place, operator=operator, left=left, right=right)
        return _Number(self._frame, self._node, value)

    def _constant(self, number: int) -> ir.Constant:
        return ir.Constant(place=self.value.place, value=number)

    def __add__(self, other: _Number | int) -> _Number:
        if isinstance(other, _Number):
            return self._made("+", self.value, other.value)
        return self._made("+", self.value, self._constant(other)) if other else self

    __radd__ = __add__

    def __mul__(self, by: int) -> _Number | int:
        return self if by == 1 else self._made("*", self.value, self._constant(by)) if by else 0

    __rmul__ = __mul__

    def __floordiv__(self, by: int) -> _Number:
        match self.value:
            case _ if by == 1:
                return self
            case ir.Binary(operator="//", left=left, right=ir.Constant(value=int(before))):
                return self._made("//", left, self._constant(before * by))
            case _:
                return self._made("//", self.value, self._constant(by))

    def __mod__(self, by: int) -> _Number | int:
        return 0 if by == 1 else self._made("%", self.value, self._constant(by))

    def __ge__(self, start: int) -> _Number:
        test = ir.Compare(place=self.value.place, operator=">=", left=self.value, right=self._constant(start))
        return _Number(self._frame, self._node, ir.Convert(place=test.place, to=_INT, operand=test))
