"""Write a nest in order as C that gives CPython's results, and that can stop after any trip and continue.

Once an iteration has failed, a serial program does nothing more. So each statement that can fail tests ``fault`` after
it has evaluated its operands and before it changes anything. Slices are ranges of trips of the outermost loop, run one
after another. Reduction variables, ``lastprivate`` scalars and scalars that iterations carry pass from slice to slice
through the slots of chunk 0, bit for bit.

A caller can give up a run: it sets a word, which the function tests in each trip of a ``while``, and of a loop that
contains a loop. The results are of no use then. If a statement has two faults, the C compiler chooses which one is
reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload.loops.emit.c_host import indented
from offload.loops.emit.c_prelude import C_TYPES, MEMORY_TYPES
from offload.loops.emit.c_statements import ATOMICS, Statements, combined, may_note
from offload.loops.emit.emit_c import STOP, KernelWriter, scope_of
from offload.loops.tree import ir
from offload.loops.tree.nodes import can_be_refused, walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offload.loops.emit.emit_c import CKernel, CVariant
    from offload.loops.tree.ir import Expression, Nest, Statement, Typed


def emit_exact(typed: Typed, nest: Nest, variant: CVariant) -> CKernel:
    """Return a nest in order as C, called as that of `emit_c.emit` is, with ``chunk`` and ``worker`` 0."""
    return _ExactWriter(typed, nest, variant, scope_of(typed, nest, variant)).emitted()


class _ExactWriter(KernelWriter):
    """Writes a nest; see above."""

    def _writer(self) -> Statements:
        items = [item.name for item in self._nest.reductions]
        return _ExactStatements(self._scope, items, self._nest.place.line, can_fail=self._can_fail)

    def _start_carried(self) -> None:
        """Do nothing: words have their values before the nest, and later those that the slice before has left."""

    def _first(self, item: ir.LoopReduction) -> str:
        return self._kept(item.name)

    def _kept(self, name: str) -> str:
        """Return the value that the previous slice has left in a scalar's words."""
        dtype = self._scope.dtype(name)
        test = " != 0" if dtype == "bool" else ""
        return f"*(const {MEMORY_TYPES[dtype]} *)({self._scope.use('partials')} + {self._words[name].start}){test}"

    def _own(self) -> Iterator[str]:
        yield from super()._own()
        for name in self._nest.last:
            yield f"l_{name} = {self._kept(name)};"
        for name in self._nest.carried:
            yield f"{C_TYPES[self._scope.dtype(name)]} v_{name} = {self._kept(name)};"

    def _left(self) -> dict[str, str]:
        return super()._left() | {name: f"v_{name}" for name in self._nest.carried}

    def _bodies(self) -> list[list[str]]:
        if self._nest.passed:
            self._scope.use("partials")
        return super()._bodies()

    def _variable(self, k: int) -> str:
        line = super()._variable(k)
        is_innermost = k == len(self._axes) - 1 and not _has_loop(self._nest.body)
        return line if is_innermost else f"{_cancelled(self._scope.use('cancel'))} {line}"


class _ExactStatements(Statements):
    """Writes statements, each of which looks at ``fault`` before it changes anything."""

    def _one(self, node: Statement) -> list[str]:
        match node:
            case ir.Assign():
                return [*super()._one(node), *self._guard(node.value)]
            case ir.Reduce():
                return self._reduced(node)
            case ir.Local():
                lines = super()._one(node)
                guard = [] if node.fill is None else self._guard(node.fill)
                return [*lines[:2], *indented(guard), *lines[2:]]
            case ir.IndexCheck():
                return self._index_check(node, self._guard(*node.indices))
            case ir.Assert():
                return [*self._guarded_test(node.condition, "holds"), *self._failed(node), "}"]
            case _:
                return super()._one(node)

    def _notes(self, *nodes: Expression | Statement) -> bool:
        """Tell whether nodes, or their parts, may find an error."""
        return any(may_note(inner, self._scope.modes) for inner in walk(*nodes))

    def _doubt(self, *nodes: Expression | Statement, is_sure: bool = False) -> None:
        """Do nothing: no statement is in doubt, see `_guard`."""

    def _guard(self, *expressions: Expression) -> list[str]:
        """Return the line by which an iteration ends where one of these was wrong."""
        return [f"if (fault.what) {self._exit()}"] if self._notes(*expressions) else []

    def _reduced(self, node: ir.Reduce) -> list[str]:
        if not self._notes(node.value):
            return super()._one(node)
        item, dtype = self._item(node.name), self._scope.dtype(node.name)
        made = combined("c", node.operator, item, self._text(node.value), dtype)
        lines = [f"const {C_TYPES[dtype]} made = {made};", *self._guard(node.value), f"{item} = made;"]
        return ["{", *indented(lines), "}"]

    def _guarded_test(self, condition: Expression, name: str) -> list[str]:
        """Return the lines that open a block and evaluate a condition in it."""
        return ["{", *indented([f"const bool {name} = {self._text(condition)};", *self._guard(condition)])]

    def _failed(self, node: ir.Assert) -> list[str]:
        failed = f"note(&fault, 3, {node.place.line}, 0, 0);"
        return indented(["if (!holds) {", *indented([failed, self._exit()]), "}"])

    # -- what changes elements ---------------------------------------------------------------------------

    def _store(self, node: ir.Store) -> list[str]:
        if not self._notes(node):
            return super()._store(node)
        ctype = C_TYPES[self._scope.dtype(node.array)]
        lines = [f"const {ctype} value = {self._text(node.value)};", *self._guard(node.value)]
        places, element = self._placed(node)
        return ["{", *indented([*lines, *places, f"{element} = value;"]), "}"]

    def _atomic(self, node: ir.Atomic) -> list[str]:
        values = [node.value] if node.expected is None else [node.expected, node.value]
        if not self._notes(node):
            return super()._atomic(node)
        dtype = self._scope.dtype(node.array)
        lines, element = self._placed(node)
        for number, value in enumerate(values):
            lines += [f"const {C_TYPES[dtype]} value{number} = {self._text(value)};", *self._guard(value)]
        given = ", ".join(f"value{number}" for number in range(len(values)))
        step = f"atomic_{ATOMICS.get(node.operator, node.operator)}_{dtype}(&{element}, {given})"
        if node.result is not None:
            step = f"v_{node.result} = ({C_TYPES[self._scope.dtype(node.result)]}){step}"
        return ["{", *indented([*lines, f"{step};"]), "}"]

    def _placed(self, node: ir.Store | ir.Atomic) -> tuple[list[str], str]:
        """Return the lines by which indices are found to be right, and the element there."""
        mode = self._scope.modes.get(node.at, "check")
        lines, tests, places = [], [], []
        for k, index in enumerate(node.indices):
            lines.append(f"const int64_t i{k} = {self._text(index)};")
            extent = self._scope.extent(node.array, k)
            if mode == "check":
                tests.append(f"inside(&fault, i{k}, {extent}, {node.at}, {k})")
            places.append(f"i{k}" if mode == "off" else f"wrapped(i{k}, {extent})")
        lines += self._guard(*node.indices)
        if tests:
            lines.append(f"if (!({' && '.join(tests)})) {self._exit()}")
        return lines, self._scope.element(node.array, places)

    # -- what contains statements ------------------------------------------------------------------------

    def _if(self, node: ir.If) -> list[str]:
        if not self._notes(node.condition):
            return super()._if(node)
        lines = ["if (is_so) {", *indented(self.lines(node.then))]
        if node.otherwise:
            lines += ["} else {", *indented(self.lines(node.otherwise))]
        return [*self._guarded_test(node.condition, "is_so"), *indented([*lines, "}"]), "}"]

    def _counted(self, node: ir.For) -> tuple[list[str], str, str]:
        lines, head, value = super()._counted(node)
        guard = self._guard(node.start, node.stop, node.step)
        if not guard and can_be_refused(node):
            guard = [f"if (fault.what) {self._exit()}"]
        return [*lines, *guard], head, value

    def _looped(self, node: ir.For, trip: list[str]) -> list[str]:
        look = [f"    {_cancelled(self._scope.use('cancel'))}"] if _has_loop(node.body) else []
        return super()._looped(node, [*trip, *look])

    def _while(self, node: ir.While) -> list[str]:
        self._loops += 1
        body = self.lines(node.body)
        self._loops -= 1
        test = [f"const bool goes_on = {self._text(node.condition)};", *self._guard(node.condition)]
        lines = [_cancelled(self._scope.use("cancel")), *test, "if (!goes_on)", "    break;", *body]
        return ["for (;;) {", *indented(lines), "}"]


def _has_loop(body: tuple[Statement, ...]) -> bool:
    return any(isinstance(node, (ir.For, ir.While)) for node in walk(*body))


def _cancelled(word: str) -> str:
    return f"if (__atomic_load_n({word}, __ATOMIC_RELAXED)) {STOP}"
