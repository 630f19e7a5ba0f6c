"""Sections of PyOMP's programs: start : stop as Python's slices have them, turned into OpenMP's lower : length.

The parser reads ``a[b:e]`` in the same way for every language. `sliced` replaces the second part of each section by
``e - b``, so nothing that comes after the parser knows of slices. PyOMP has no negative bounds; a stop before the start
gives a negative length, which the clause refuses when it is evaluated.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

from offload.pragma.syntax import PythonText, Subscript, Triple

if TYPE_CHECKING:
    from offload.pragma.syntax import Clause, Directive, Item, Step


@lru_cache(maxsize=1024)
def sliced(directive: Directive) -> Directive:
    """Return a directive whose sections are lower : length : stride, from one whose sections are Python's slices."""
    return directive._replace(clauses=tuple([_clause(clause) for clause in directive.clauses]))


def _clause(clause: Clause) -> Clause:
    return clause._replace(items=tuple([_item(item) for item in clause.items]))


def _item(item: Item) -> Item:
    return item._replace(steps=tuple([_step(step) for step in item.steps]))


def _step(step: Step) -> Step:
    if not isinstance(step, Subscript):
        return step
    return step._replace(dimensions=tuple([_dimension(entry) for entry in step.dimensions]))


def _dimension(entry: PythonText | Triple) -> PythonText | Triple:
    if not isinstance(entry, Triple) or entry.length is None:
        return entry
    return entry._replace(length=_length(entry.lower, entry.length, entry.stride))


def _length(lower: PythonText | None, stop: PythonText, stride: PythonText | None) -> PythonText:
    """Return the number of elements from a start to a stop, as an expression at the place of the stop."""
    text = stop.text if lower is None else f"({stop.text}) - ({lower.text})"
    if stride is not None:
        text = f"-(-({text}) // ({stride.text}))"  # rounds up
    node = ast.parse(text, mode="eval").body
    for part in ast.walk(node):
        ast.copy_location(part, stop.node)
    return PythonText(text, stop.span, node)
