"""The generated programs tell a wrong Python form from a right one: each known mistake is found by one of 300."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from offload.loops.emit import emit_py, python_form
from offload.loops.front import typed_expressions, types
from offload.loops.tree import ir
from offload.loops.tree.promotion import comparison_types, promote
from tests.loops import forms
from tests.loops.programs import program
from tests.loops.test_emit_py_rules import check

pytestmark = pytest.mark.mutants

NAMESPACE = python_form._NAMESPACE
axis = NAMESPACE["axis"]


def truncated_quotient(left, right, *_):
    return type(left)(abs(int(left)) // abs(int(right)) * (-1 if (left < 0) != (right < 0) else 1))


def truncated_remainder(left, right, *_):
    return type(left)(abs(int(left)) % abs(int(right)) * (-1 if left < 0 else 1))


def unwrapped(indices):
    return tuple(max(index, 0) for index in indices)


def in_namespace(**functions):
    return lambda patch: [patch.setitem(NAMESPACE, name, function) for name, function in functions.items()]


def strong_literals(patch):
    weak = typed_expressions._weak_type
    patch.setattr(typed_expressions, "_weak_type", lambda value: ir.Type(weak(value).dtype))


def first_type(patch):
    patch.setattr(types, "join", lambda all_types: min(all_types, key=lambda of: (not of.is_weak, str(of))))


def joint_comparison(patch):
    def common(a, b):
        of = promote(a, b)
        return (of, of) if a.dtype != b.dtype else comparison_types(a, b)

    patch.setattr(typed_expressions, "comparison_types", common)


def lazy_axis(trips_of):
    def changed(*bounds):
        right = axis(*bounds)
        return right._replace(trips=trips_of(right))

    return in_namespace(axis=changed)


def eager_and(patch):
    emit = emit_py._Emitter.expression

    def expression(self, node):
        if isinstance(node, ir.Logical):
            return (
                f"({self.expression(node.left)} {'&' if node.operator == 'and' else '|'} {self.expression(node.right)})"
            )
        return emit(self, node)

    patch.setattr(emit_py._Emitter, "expression", expression)


def shift_of_c(patch):
    emit = emit_py._Emitter._binary

    def binary(self, node):
        if node.operator in ("<<", ">>"):
            bits = 8 * np.dtype(node.type.dtype).itemsize
            count = f"({self.expression(node.right)} % {node.type.dtype}({bits}))"
            return f"({self.expression(node.left)} {node.operator} {count})"
        return emit(self, node)

    patch.setattr(emit_py._Emitter, "_binary", binary)


def start_from_zero(patch):
    patch.setattr(emit_py, "identity", lambda *_: 0)


def forget_before(patch):
    combine = forms.combine
    patch.setattr(
        forms, "combine", lambda operator, before, partials: combine(operator, before.dtype.type(0), partials)
    )


def leave_by_continue(patch):
    def left(node):
        if isinstance(node, ir.Continue):
            return ir.Break(place=node.place)
        if isinstance(node, ir.If):
            return replace(node, then=tuple(map(left, node.then)), otherwise=tuple(map(left, node.otherwise)))
        return node

    def emit(typed, nest, modes):
        return emit_kernel(typed, replace(nest, body=tuple(map(left, nest.body))), modes)

    emit_kernel = python_form.emit_kernel
    patch.setattr(python_form, "emit_kernel", emit)


def drop_last_chunk(patch):
    def form(*arguments):
        kernel = right(*arguments)

        def dropping(arguments, begin, end, chunk, partials, report):
            kernel(arguments, begin, end if end < arguments["trips 0"] else begin, chunk, partials, report)

        return dropping

    right = python_form.python_form
    patch.setattr(python_form, "python_form", form)


MUTANTS = {
    "// truncates": in_namespace(floor_divide=truncated_quotient),
    "% truncates": in_namespace(remainder=truncated_remainder),
    "literals are strong": strong_literals,
    "a scalar has the type of its first assignment": first_type,
    "an index below zero is not wrapped": in_namespace(load=lambda array, indices, *_: array[unwrapped(indices)]),
    "a range downwards is one short": lazy_axis(lambda a: a.trips - (a.step < 0 < a.trips)),
    "an empty range runs once": lazy_axis(lambda a: max(a.trips, 1)),
    "and evaluates both sides": eager_and,
    "integers are compared in their common type": joint_comparison,
    "partial results start from zero": start_from_zero,
    "a reduction forgets the value before": forget_before,
    "the last chunk is dropped": drop_last_chunk,
    "continue leaves the nest": leave_by_continue,
    "a shift by the width is C's": shift_of_c,
    "min takes the other of two that do not compare": in_namespace(least=lambda a, b: min(b, a)),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mistake_is_found(mutant, monkeypatch):
    """Among 300 programs there is one that this mistake makes differ from CPython."""
    MUTANTS[mutant](monkeypatch)
    for seed in range(300):
        made = program(seed)
        try:
            check(made, form=python_form.python_form, chunks=1 + seed % 5)
        except Exception:
            return
    pytest.fail(f"no program finds that {mutant}")
