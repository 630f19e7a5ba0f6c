"""Sections of PyOMP's programs: start : stop as Python's slices have them.

The parser reads ``a[b:e]`` in the same way for every language. `sliced` marks each section as a slice. Where a
directive is encountered, `offload.pragma.items` turns the slice into lower : length, with the array's size for negative
bounds.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from offload.pragma.syntax import Subscript, Triple

if TYPE_CHECKING:
    from offload.pragma.syntax import Clause, Directive, Item, PythonText, Step


@lru_cache(maxsize=1024)
def sliced(directive: Directive) -> Directive:
    """Return a directive whose sections are Python's slices."""
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
    return entry._replace(is_slice=True) if isinstance(entry, Triple) else entry
