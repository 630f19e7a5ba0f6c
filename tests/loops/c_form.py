"""The C form of a nest, called as the Python form is."""

from __future__ import annotations

import ctypes

import numpy as np

from offload.loops.emit.emit_c import CVariant, emit
from offload.loops.emit.python_form import bits
from offload.loops.running.build import builder

ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 4)


def c_form(typed, nest, modes, **variant):
    """Return the kernel of a nest in C: ``kernel(arguments, begin, end, chunk, partials, report, worker=0)``."""
    kernel = emit(typed, nest, CVariant(modes=tuple(modes.items()), **variant))
    entry = ENTRY(builder.load(kernel.source, kernel.entry, nest.place))

    def run(arguments, begin, end, chunk, partials, report, worker=0):
        structure = structure_of(kernel.fields, arguments, partials, report)
        entry(structure.ctypes.data, begin, end, chunk, worker)

    return run


def form(**variant):
    """Return a form with a variant's words, for `forms.run`."""
    return lambda typed, nest, modes: c_form(typed, nest, modes, **variant)


def structure_of(fields, arguments, partials, report):
    """Return the structure of arguments; copies of arrays are in `arguments` as ``"copies h"``."""
    slots = np.zeros(max(len(fields), 1), np.int64)
    for k, field in enumerate(fields):
        held = arguments.get(field.name)
        match field.kind:
            case "pointer":
                slots[k] = held.ctypes.data
            case "copies":
                slots[k] = arguments[f"copies {field.name}"].ctypes.data
            case "extent":
                slots[k] = held.shape[field.number]
            case "stride":
                slots[k] = held.strides[field.number]
            case "scalar":
                slots[k] = bits(held).view(np.int64)[field.number]
            case "partials":
                slots[k] = partials.ctypes.data
            case "report":
                slots[k] = report.ctypes.data
            case kind:
                slots[k] = arguments[f"{kind} {field.number}"]
    return slots
