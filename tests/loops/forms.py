"""Runs a loop function in one of its forms, as plainly as can be: a launcher that a reader can check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from offload.loops.emit.emit_py import inputs_of
from offload.loops.emit.python_form import combine, from_bits, held, host_parts, python_form
from offload.loops.front.types import infer
from offload.loops.tree import ir
from offload.loops.tree.uses import result_words

WEAK = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}


@dataclass
class FoundError(Exception):
    """A kernel has reported."""

    what: int
    place: int
    index: int
    dimension: int
    trips: tuple[int, ...]


def types_of(function, arguments):
    """Return the types of scalars and of arrays among a function's arguments."""
    arguments = {n: arguments[n] for n in function.parameters if n not in function.absent}
    scalars = {n: type_of(v) for n, v in arguments.items() if not isinstance(v, np.ndarray)}
    arrays = {n: ir.LoopArrayType(v.dtype.name, v.ndim) for n, v in arguments.items() if isinstance(v, np.ndarray)}
    return scalars, arrays


def type_of(value):
    if isinstance(value, np.generic):
        return ir.Type(value.dtype.name)
    return ir.Type(WEAK[type(value)], is_weak=True)


def run(function: ir.ParsedFunction, arguments: dict[str, Any], form=python_form, chunks=3, modes=None):
    """Run a loop function on arguments by name; arrays are changed in place.

    `form` makes a kernel, as `python_form` does, of a typed function, a nest and modes. Returns the values that the
    function returns, as NumPy scalars.
    """
    scalars, arrays = types_of(function, arguments)
    typed = infer(function, scalars, arrays)
    values = {n: held(v, typed.scalars[n]) for n, v in arguments.items() if n in scalars}
    held_arrays = {n: v for n, v in arguments.items() if n in arrays}
    for part, host in zip(typed.function.parts, host_parts(typed), strict=True):
        axes = host(values, held_arrays)
        if isinstance(part, ir.Nest):
            kernel = form(typed, part, modes or {})
            launch(kernel, typed, part, axes, values, held_arrays, chunks)
    returned = tuple(values[n] for n in typed.function.returns)
    return returned if function.returns_tuple else returned[0] if returned else None


def launch(kernel, typed, nest, axes, values, arrays, chunks):
    """Run all chunks of a nest, and put what they found into `values` and one-element arrays."""
    arguments = {**arrays, **{n: values[n] for n in inputs_of(nest)}}
    arguments |= {n: values[n] for n in (*nest.last, *nest.carried) if n in values}
    for number, trips in enumerate(axes):
        arguments |= {f"{what} {number}": getattr(trips, what) for what in ("start", "step", "trips")}
    words, n_words = result_words(typed, nest)
    partials = np.zeros((chunks, n_words), np.uint64)
    report = np.zeros(16, np.int64)
    total = axes[0].trips
    for chunk in range(chunks):
        kernel(arguments, total * chunk // chunks, total * (chunk + 1) // chunks, chunk, partials, report)
    if report[0]:
        what, place, index, dimension, *trips = (int(slot) for slot in report[1 : 5 + len(axes)])
        raise FoundError(what, place, index, dimension, tuple(trips))
    for item in nest.reductions:
        before = arrays[item.name].reshape(-1)[0] if item.name in arrays else values[item.name]
        after = combine(item.operator, before, partials[:, words[item.name]])
        if item.name in arrays:
            arrays[item.name][...] = after
        else:
            values[item.name] = after
    if all(trips.trips for trips in axes):
        for name in nest.last:
            values[name] = from_bits(partials[chunks - 1, words[name]], typed.scalars[name].dtype)
