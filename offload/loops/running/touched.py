"""The elements that a call of a loop touches: its nests run in order on copies, and mark them.

The sanitizer asks for that, before the loop itself begins. A nest that fails on the copies touches what it has touched
up to there, as far as anybody can tell.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.loops.running.arguments import on_host
from offload.loops.running.observe import changed_by, copies_of, made_run
from offload.loops.running.plan import numbers_of, plans_of
from offload.loops.running.preparation import view_at
from offload.loops.tree import ir
from offload.loops.tree.nodes import walk
from offload.loops.tree.uses import numbered
from offload.loops.watched.cells import cells_of, groups_of
from offload.loops.watched.marking import READ, WRITTEN, MarkWriter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.devices.base import Device
    from offload.loops.proofs.numbers import View
    from offload.loops.running.plan import NestPlan, Numbers
    from offload.loops.running.specialise import Specialisation
    from offload.loops.tree.ir import SourceLine
    from offload.loops.watched.cells import Cells


_KINDS: dict[type, tuple[str, ...]] = {ir.Load: ("read",), ir.Store: ("written",), ir.Atomic: ("read", "written")}


@dataclass(slots=True)
class Touched:
    """The elements of an array that a call touches, as masks, and the lines that do so; None for no element."""

    array: np.ndarray[Any, Any]
    read: np.ndarray[Any, Any] | None = None
    written: np.ndarray[Any, Any] | None = None
    lines: dict[str, SourceLine] = field(default_factory=dict)

    def add(self, *, read: Any, written: Any) -> None:
        """Add the marks of a nest; elements that an earlier nest has written are not read from before the loop."""
        if self.written is not None:
            read = read & ~self.written
        self.read = read if self.read is None else self.read | read
        self.written = written if self.written is None else self.written | written


class LoopTouches:
    """A call of a loop whose elements somebody wants to know.

    Parameters
    ----------
    spec : Specialisation
        The loop, for the types of the arguments.
    values : mapping
        The arguments, by name.
    device : Device or None
        The device of the arrays; None for host arrays.
    """

    def __init__(self, spec: Specialisation, values: Mapping[str, Any], device: Device | None) -> None:
        self._spec = spec
        self._values = values
        self._numbers = numbers_of(spec, values, partial(view_at, device))
        self._plans = plans_of(spec, self._numbers)

    def touched(self) -> list[Touched]:
        """Return the elements of each array, with the present contents of index arrays."""
        numbers = self._numbers
        given = {name: on_host(self._values[name]) for name in numbers.views}
        found = {name: Touched(array) for name, array in given.items()}
        arrays: Mapping[str, Any] = given
        for number, plan in enumerate(self._plans):
            arrays = copies_of(plan.nest, arrays, numbers.views)
            self._run(number, plan, numbers, arrays, found)
        return [one for one in found.values() if one.read is not None or one.written is not None]

    def _run(
        self, number: int, plan: NestPlan, numbers: Numbers, arrays: Mapping[str, Any], found: dict[str, Touched]
    ) -> None:
        """Run a nest on copies, and add its marks."""
        nest, views = plan.nest, numbers.views
        nodes = {
            at: node for at, node in numbered(nest).items() if node.array in views and node.array not in nest.privates
        }
        for node in walk(*nest.body):
            if isinstance(node, ir.Load | ir.Store | ir.Atomic) and node.array in found:
                for kind in _KINDS[type(node)]:
                    found[node.array].lines.setdefault(kind, node.place)
        names = {node.array for node in nodes.values() if not isinstance(node, ir.IndexCheck)}
        cells = cells_of({name: views[name] for name in names}, changed_by(nest))
        watched = frozenset(at for at, node in nodes.items() if not isinstance(node, ir.IndexCheck))
        made = MarkWriter(plan.typed, nest, dict(plan.variant.modes), cells, watched).marked()
        marks = np.zeros(max(made.n_cells, 1), np.uint8)
        scalars = {**numbers.scalars[number], **{name: np.int64(value) for name, value in made.watched.given.items()}}
        run = made_run(
            made.watched.typed,
            made.watched.nest,
            made.watched.modes,
            scalars,
            {**arrays, made.marks: marks},
            numbers.axes[number],
            self._spec.program.words,
            is_shared=any(len(group) > 1 for group in groups_of(views)),
        )
        run.run_all()
        for name in names:
            element = _marks_of(marks, made.firsts[cells[name].storage], cells[name], views[name])
            found[name].add(read=(element & READ) != 0, written=(element & WRITTEN) != 0)
            for kind in ("read", "written"):  # elements may be touched by another view of the storage alone
                found[name].lines.setdefault(kind, nest.place)
        self._add_whole(nest, found)

    def _add_whole(self, nest: ir.Nest, found: Mapping[str, Touched]) -> None:
        """Add what a nest does with arrays as a whole: reductions, and copies for iterations."""
        for item in nest.reductions:
            if item.name in found:
                _add_all(found[item.name], nest, reads=True, writes=True)
        for name, word in nest.privates.items():
            if name in found and word != "private":
                _add_all(found[name], nest, reads=word == "firstprivate", writes=word == "lastprivate")


def _add_all(touched: Touched, nest: ir.Nest, *, reads: bool, writes: bool) -> None:
    shape = touched.array.shape
    for kind in ("read", "written"):
        touched.lines.setdefault(kind, nest.place)
    touched.add(read=np.full(shape, reads), written=np.full(shape, writes))


def _marks_of(marks: np.ndarray[Any, Any], first: int, cells: Cells, view: View) -> np.ndarray[Any, Any]:
    """Return the mark of each element of an array."""
    at = np.full(view.extents, first + cells.offset, np.int64)
    for axis, (extent, step) in enumerate(zip(view.extents, cells.steps, strict=True)):
        shape = [1] * len(view.extents)
        shape[axis] = extent
        at += (np.arange(extent, dtype=np.int64) * step).reshape(shape)
    element = marks[at]
    for cell in range(1, cells.width):
        element |= marks[at + cell]
    return element
