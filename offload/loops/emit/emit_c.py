"""Write a nest of a typed loop function as one C function; `emit_cuda` has the differences for CUDA.

The function runs trips ``[begin, end)`` of the outermost associated loop. Its arguments are one structure of 8-byte
slots (`CKernel.fields`), read once. Each iteration declares the scalars that it assigns, and reports its ``fault`` at
its end. Reduction items are variables of the chunk. Slots hold, chunk by chunk, the reductions and then the
``lastprivate`` scalars, so the results do not depend on the number of threads. The launcher chooses bounds modes and
layouts; they are part of the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, ClassVar, Final

from offload.loops.emit import c_host
from offload.loops.emit.c_expressions import literal
from offload.loops.emit.c_host import indented
from offload.loops.emit.c_prelude import C_TYPES, MEMORY_TYPES, zero
from offload.loops.emit.c_scope import ArgumentSlot, Dialect, KernelScope, Layout
from offload.loops.emit.c_statements import Statements, can_fail
from offload.loops.tree import ir
from offload.loops.tree.nodes import dtype_of, locals_in, walk
from offload.loops.tree.promotion import identity, is_complex, is_float, is_inexact, is_integer, part_of
from offload.loops.tree.uses import result_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from offload.loops.emit.c_scope import FieldKind
    from offload.loops.tree.ir import Nest, Typed
    from offload.loops.tree.nodes import Node

_PLAIN: Final = (ir.Expression, ir.Assign, ir.Store, ir.Reduce, ir.If)
_OWN_COPY: Final = frozenset({"+", "-", "*", "min", "max", "&", "|", "^"})


@dataclass(frozen=True, slots=True)
class CVariant:
    """The launcher's decisions about a nest."""

    # Of accesses by their number: `"off"`, `"wrap"`, `"check"`; those that are not named are checked.
    modes: tuple[tuple[int, ir.Mode], ...] = ()
    # Of arrays: `"C"`; `"inner"`: elements of the last dimension lie side by side; `"strided"`, also of those that are
    # not named; `"packed"`: addresses or strides are no multiples of the item size, as they are else.
    layouts: tuple[tuple[str, Layout], ...] = ()
    is_restricted: bool = False  # whether no two arrays share memory, if one of them is written
    unit_steps: tuple[tuple[int, int], ...] = ()  # steps of axes by their number that are 1 or -1
    copies: tuple[str, ...] = ()  # arrays of atomics of which each worker has its own copy, in C order; see `copied`
    is_ordered: bool = False  # whether iterations run in order because their order may matter


@dataclass(frozen=True, slots=True)
class CKernel:
    """A C text, the function in it, and the structure of arguments that it reads."""

    source: str
    entry: str  # the name of the function
    fields: tuple[ArgumentSlot, ...]  # the slots, in the order of the structure


def emit(typed: Typed, nest: Nest, variant: CVariant) -> CKernel:
    """Return a nest as C: ``void loop(const void *, int64_t begin, int64_t end, int64_t chunk, int64_t worker)``."""
    return KernelWriter(typed, nest, variant, scope_of(typed, nest, variant)).emitted()


def copied(nest: Nest) -> dict[str, str]:
    """Return the arrays of which workers may have copies, each with the operator that merges them.

    Those are the arrays of atomics alone, all by one operator, whose old values nobody asks for. A copy starts from the
    operator's identity.
    """
    atomics: dict[str, set[str]] = {}
    others: set[str] = set()
    for node in walk(*nest.body):
        match node:
            case ir.Atomic():
                operator = "+" if node.operator == "-" else node.operator
                atomics.setdefault(node.array, set()).add(operator)
                if node.result is not None or node.operator not in _OWN_COPY:
                    others.add(node.array)
            case ir.Load() | ir.Store():
                others.add(node.array)
    others |= set(nest.privates)
    return {array: min(ops) for array, ops in atomics.items() if len(ops) == 1 and array not in others}


# What leaves all loops of iterations.
STOP: Final = "goto stop;"


class KernelWriter:
    """Writes a nest; ``scope`` is the result of `scope_of` for the other arguments."""

    # What the function of the nest is given by parameters, of which alone gcc believes `restrict`.
    _parameters: ClassVar[frozenset[FieldKind]] = frozenset({"pointer", "copies"})
    _entries: ClassVar[tuple[str, ...]] = (c_host.ENTRY,)  # of the functions

    def __init__(self, typed: Typed, nest: Nest, variant: CVariant, scope: KernelScope) -> None:
        self._typed = typed
        self._nest = nest
        self._variant = variant
        self._axes = [axis.variable for axis in nest.axes]  # the variables of the associated loops
        kept = {*(item.name for item in nest.reductions), *nest.carried}
        self._assigned = [name for name in assigned(nest) if name not in kept]  # scalars that each iteration declares
        # local arrays, by name
        self._locals = {node.name: node for node in walk(*nest.body) if isinstance(node, ir.Local)}
        self._scope = scope
        self._can_fail = can_fail(nest, scope.modes)  # whether an iteration has a ``fault``
        # The words of each scalar that the nest passes on, in a row of partial results, and how many words all have.
        self._words, self._n_words = result_words(typed, nest)
        self._statements = self._writer()

    def _writer(self) -> Statements:
        """Return the writer of the statements of an iteration."""
        items = [item.name for item in self._nest.reductions]
        return Statements(self._scope, items, self._nest.place.line, can_fail=self._can_fail)

    def emitted(self) -> CKernel:
        for array in (*self._nest.privates, *self._variant.copies):
            for k in range(self._typed.arrays[array].ndim):
                self._scope.extent(array, k)
        self._start_carried()
        bodies = self._bodies()  # before the head: only then the fields are known
        fields = tuple(self._scope.fields)
        return CKernel(self._text(list(self._head(fields)), bodies), c_host.ENTRY, fields)

    def _start_carried(self) -> None:
        """Have scalars that are carried start from their values before the nest."""
        for name in self._nest.carried:
            self._scope.scalar(name)

    def _bodies(self) -> list[list[str]]:
        """Return the lines of each function's body."""
        return [[*self._stopped(self._loops()), *self._tail()]]

    def _stopped(self, loops: list[str]) -> list[str]:
        """Return loops with the label behind them that iterations in order go to, if one does."""
        return [*loops, "stop: ;"] if any(STOP in line for line in loops) else loops

    def _text(self, head: list[str], bodies: list[list[str]]) -> str:
        """Return the whole text, from the lines that read the arguments, and the functions' bodies."""
        slots = {field: f"slots[{k}]" for k, field in enumerate(self._scope.fields)}
        parameters = [self._parameter(field, slots) for field in slots if field.kind in self._parameters]
        text = c_host.text(
            {entry: [*head, *body] for entry, body in zip(self._entries, bodies, strict=True)}, parameters
        )
        return f"{c_host.ROUNDING}\n{text}" if _rounds(self._nest) else text

    # -- what is read before the loops -------------------------------------------------------------------

    def _head(self, fields: tuple[ArgumentSlot, ...]) -> Iterator[str]:
        for k, field in enumerate(fields):
            if field.kind not in self._parameters and not (field.kind == "scalar" and field.number):
                yield self._read(field, f"slots[{k}]")
        for array in self._scope.guarded:
            yield from self._guard(array)
        yield from self._own()
        for item in self._nest.reductions:
            yield f"{C_TYPES[self._scope.dtype(item.name)]} r_{item.name} = {self._first(item)};"

    def _first(self, item: ir.LoopReduction) -> str:
        """Return the value of a reduction's item at the beginning of a chunk."""
        dtype = self._scope.dtype(item.name)
        return literal(identity(item.operator, dtype), dtype)

    def _read(self, field: ArgumentSlot, slot: str) -> str:
        """Return the line that gives a slot a name."""
        variable = self._scope.use(field.kind, field.name, field.number)
        match field.kind:
            case "scalar":
                dtype = self._scope.dtype(field.name)
                test = " != 0" if dtype == "bool" else ""
                const = "" if field.name in self._nest.carried else "const "
                return f"{const}{C_TYPES[dtype]} {variable} = *(const {self._slot(field.name)} *)&{slot}{test};"
            case "partials" | "report" | "result" | "cancel":
                return f"int64_t *const {variable} = (int64_t *){slot};"
            case _:
                return f"const {self._scope.index_type} {variable} = {slot};"

    def _parameter(self, field: ArgumentSlot, slots: Mapping[ArgumentSlot, str]) -> tuple[str, str]:
        """Return the parameter by which the nest is given an array, and its argument."""
        ctype, is_own = self._memory(field.name), field.kind == "copies"
        restrict = c_host.RESTRICT if is_own or self._variant.is_restricted else ""
        parameter = f"{ctype} *{restrict}const {self._scope.use(field.kind, field.name, field.number)}"
        argument = f"({ctype} *){slots[field]}"
        if is_own:
            shape = [slots[ArgumentSlot("extent", field.name, k)] for k in range(self._typed.arrays[field.name].ndim)]
            argument += f" + worker * ({' * '.join(shape) or '1'})"
        return parameter, argument

    def _own(self) -> Iterator[str]:
        """Yield the private arrays and the variables that iterations of a chunk use one after another."""
        for array in self._nest.privates:
            shape = [f"n{k}_{array}" for k in range(self._typed.arrays[array].ndim)]
            yield f"{self._memory(array)} q_{array}[{' * '.join(shape) or '1'} + 1];"
        for name in self._nest.last:
            dtype = self._scope.dtype(name)
            yield f"{C_TYPES[dtype]} l_{name} = {zero(dtype)};"

    def _guard(self, array: str) -> Iterator[str]:
        """Yield the bounds and the pointer of checked loads: every index reads an element."""
        extents = [f"n{k}_{array}" for k in range(self._typed.arrays[array].ndim)]
        yield f"const bool is_empty_{array} = {' || '.join(f'{extent} == 0' for extent in extents)};"
        for k, extent in enumerate(extents):
            yield f"const {self._scope.index_type} b{k}_{array} = is_empty_{array} ? 0 : {extent};"
        if array not in self._nest.privates:
            ctype = self._memory(array)
            yield f"const {ctype} spare_{array} = {zero(self._typed.arrays[array].dtype)};"
            yield f"const {ctype} *const z_{array} = is_empty_{array} ? &spare_{array} : p_{array};"

    def _memory(self, array: str) -> str:
        return MEMORY_TYPES[self._typed.arrays[array].dtype]

    # -- loops -------------------------------------------------------------------------------------------

    def _loops(self) -> list[str]:
        lines = self._iteration()
        tile = self._nest.clauses.tile
        for k in reversed(range(len(self._axes))):
            is_innermost = k == len(self._axes) - 1
            pragma = []
            if is_innermost and self._runs_in_lanes():
                pragma = [c_host.in_lanes([(item.operator, f"r_{item.name}") for item in self._nest.reductions])]
            elif is_innermost and self._variant.copies:
                pragma = [c_host.UNROLLED]
            body = [self._variable(k), *lines]
            lines = [*pragma, *c_host.loop(k, self._trips(k), body, is_in_tile=bool(tile))]
        for k, size in reversed([*enumerate(tile)]):
            lines = c_host.tiles(k, self._trips(k), size, lines)
        return lines

    def _trips(self, k: int) -> str:
        return self._scope.use("trips", number=k) if k else "end"

    def _variable(self, k: int) -> str:
        """Return the line that gives an axis's variable its value at trip ``t``."""
        ctype = self._scope.ctype(self._axes[k])
        step = dict(self._variant.unit_steps).get(k)
        distance = f"t{k} * {self._scope.use('step', number=k)}" if step is None else f"t{k}"
        start = self._scope.use("start", number=k)
        return f"const {ctype} v_{self._axes[k]} = ({ctype})({start} {'-' if step == -1 else '+'} {distance});"

    def _runs_in_lanes(self) -> bool:
        nest = self._nest
        is_plain = all(isinstance(node, _PLAIN) for node in walk(*nest.body)) and not (nest.privates or nest.last)
        if any(is_complex(self._scope.dtype(item.name)) for item in nest.reductions):
            return False
        return (
            bool(nest.reductions)
            and not nest.carried
            and is_plain
            and not self._can_fail
            and not self._variant.is_ordered
        )

    def _iteration(self) -> list[str]:
        body = self._statements.lines(self._nest.body)
        lines = ["Fault fault = {0};"] if self._can_fail else []
        lines += [f"{self._scope.ctype(name)} v_{name} = {zero(self._scope.dtype(name))};" for name in self._assigned]
        for name, node in self._locals.items():
            lines.append(f"{MEMORY_TYPES[node.dtype]} q_{name}[{max(1, prod(node.shape))}];")
        for array, kind in self._nest.privates.items():
            if kind == "firstprivate":
                lines += self._copy(array, into_private=True)
            elif kind == "lastprivate":  # what the last iteration does not assign stays as it is
                lines += [f"if ({self._is_last()}) {{", *indented(self._copy(array, into_private=True)), "}"]
        lines += body
        if self._statements.has_exits:
            lines.append(f"{self._statements.end}: ;")
        for array, kind in self._nest.privates.items():
            if kind == "lastprivate":
                is_right = " && !fault.what" if self._can_fail else ""
                lines += [f"if ({self._is_last()}{is_right}) {{", *indented(self._copy(array, into_private=False)), "}"]
        lines += self._last_values()
        if self._can_fail:
            trips = ", ".join(f"t{k}" for k in range(len(self._axes)))
            call = f"report({self._scope.use('report')}, fault, trips, {len(self._axes)});"
            lines += ["if (fault.what) {", f"    const int64_t trips[] = {{{trips}}};", f"    {call}", "}"]
            if self._variant.is_ordered:  # nothing follows it, as in Python
                lines.append(f"if ({self._has_failed()}) {STOP}")
        return lines

    def _has_failed(self) -> str:
        """Return the condition, at the end of an iteration, that it has failed."""
        return "fault.what"

    def _last_values(self) -> list[str]:
        """Return the lines by which an iteration leaves the scalars of which the last one's values are asked for."""
        return [f"l_{name} = v_{name};" for name in self._nest.last]

    def _is_last(self) -> str:
        return " && ".join(f"t{k} == {self._scope.use('trips', number=k)} - 1" for k in range(len(self._axes)))

    def _copy(self, array: str, *, into_private: bool) -> list[str]:
        """Return the loops that copy an argument to an iteration's own array, or back."""
        places = [f"i{k}" for k in range(self._typed.arrays[array].ndim)]
        own = self._scope.element(array, places)
        original = self._scope.element(array, places, is_original=True)
        lines = [f"{own} = {original};" if into_private else f"{original} = {own};"]
        for k in reversed(range(len(places))):
            extent = self._scope.extent(array, k)
            lines = [f"for ({self._scope.index_type} i{k} = 0; i{k} < {extent}; i{k}++)", *indented(lines)]
        return lines

    # -- what a chunk leaves -----------------------------------------------------------------------------

    def _left(self) -> dict[str, str]:
        """Return the variables that a chunk leaves in its words, by scalar."""
        left = {item.name: f"r_{item.name}" for item in self._nest.reductions}
        return left | {name: f"l_{name}" for name in self._nest.last}

    def _tail(self) -> list[str]:
        return [f"{self._words_at(name)} = {variable};" for name, variable in self._left().items()]

    def _words_at(self, name: str) -> str:
        """Return a scalar that comes out, in the words of the chunk, as an lvalue."""
        partials = self._scope.use("partials")
        return c_host.words_at(partials, self._slot(name), self._n_words, self._words[name].start)

    def _slot(self, name: str) -> str:
        """Return the type of a scalar among arguments and partial results."""
        return MEMORY_TYPES[self._scope.dtype(name)]


def scope_of(
    typed: Typed,
    nest: Nest,
    variant: CVariant,
    dialect: Dialect = "c",
    index_bits: int = 64,
    narrow: frozenset[str] = frozenset(),
) -> KernelScope:
    """Return the names that the text of a nest may use."""
    own = (*assigned(nest), *(axis.variable for axis in nest.axes))
    return KernelScope(
        typed,
        dict(variant.modes),
        dict(variant.layouts),
        frozenset(variant.copies),
        frozenset(own) - {item.name for item in nest.reductions},
        locals_in(nest),
        nest.privates,
        dialect,
        index_bits,
        narrow,
        any(_truncates(node) for node in walk(*nest.body)),
    )


def _rounds(nest: Nest) -> bool:
    """Tell whether a nest makes floats of doubles, and doubles of floats, alone or as parts of complex numbers."""
    ways = set()
    for node in walk(*nest.body):
        if isinstance(node, ir.Convert) and is_inexact(of := dtype_of(node.operand)) and is_inexact(node.to.dtype):
            ways.add((part_of(of), part_of(node.to.dtype)))
    return {("float64", "float32"), ("float32", "float64")} <= ways


def _truncates(node: Node) -> bool:
    if not isinstance(node, ir.Convert) or node.operand.type is None:
        return False
    return is_float(node.operand.type.dtype) and is_integer(node.to.dtype)


def assigned(nest: Nest) -> tuple[str, ...]:
    """Return the scalars that an iteration gives a value."""
    return tuple(dict.fromkeys(_assigned(nest)))


def _assigned(nest: Nest) -> Iterator[str]:
    for node in walk(*nest.body):
        match node:
            case ir.Assign() | ir.Reduce():
                yield node.name
            case ir.For():
                yield node.variable
            case ir.Atomic(result=str(name)):
                yield name
