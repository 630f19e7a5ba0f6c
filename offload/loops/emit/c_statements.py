"""Statements of the typed loop IR as C.

A failed iteration goes to its end without changing elements. Therefore a statement that changes elements tests
``fault`` if an earlier part of the iteration may have failed (the iteration is *in doubt*). An inner loop tests it
once, before. A ``while`` ends after a failure, because a replaced element might keep it running forever. Early exits go
to the label ``next``.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple

from offload.loops.emit.c_expressions import CExpressions, arithmetic
from offload.loops.emit.c_host import LOGICAL, in_lanes, indented
from offload.loops.emit.c_prelude import C_TYPES, MEMORY_TYPES
from offload.loops.tree import ir
from offload.loops.tree.nodes import (
    beyond_int64,
    can_be_refused,
    can_divide_by_zero,
    constant_step,
    may_be_beyond,
    names_assigned,
    walk,
)
from offload.loops.tree.promotion import is_complex

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from offload.loops.emit.c_scope import Dialect, KernelScope
    from offload.loops.tree.ir import Expression, Statement


# -- checks before an inner loop ----------------------------------------------------------------------
#
# An index that moves evenly with the variable of the loop, or not at all, takes the values between two ends. If both
# ends are inside the array, the loop needs no check. Such a loop is written twice: without these checks, and with all
# of them. The ends are computed modulo 2**64, as the integers of the program are, so the test is exact. In the first
# form, other indices may be tried: a wrong index is replaced by 0 and sets a flag, and then the second form runs.
# docs/design/loops.md has the proof and the gain.


# Of a loop that is written twice.
_MOST_NODES: Final = 300

_LOOPS: Final = (ir.For, ir.While)
_UNDONE: Final = (ir.Expression, ir.Assign, ir.Reduce, ir.If, ir.Break, ir.Continue)


class Moving(NamedTuple):
    """An index whose ends tell whether it is in range: it moves by `slope` with the loop's variable: 1, -1 or 0."""

    array: str
    dimension: int  # of the array, which the index is for
    place: Expression  # the index, as an expression
    slope: int  # 1, -1 or 0


class OnceChecked(NamedTuple):
    """The checks that the first form of a loop leaves out."""

    moving: tuple[Moving, ...]  # what is tested before it
    inside: frozenset[int]  # the accesses, by `at`, that need no check if the tests hold
    tried: frozenset[int]  # the loads that are tried
    scalars: tuple[str, ...]  # those that get their values back if a load was missed


def once_checked(loop: ir.For, modes: Mapping[int, ir.Mode]) -> OnceChecked | None:
    """Return the accesses covered by one check before a loop, or None. An access (`at`) not in ``modes`` is checked."""
    nodes = list(walk(*loop.body))
    if len(nodes) > _MOST_NODES or any(isinstance(node, _LOOPS) for node in nodes) or constant_step(loop) is None:
        return None
    changed = names_assigned(*loop.body)
    moving: list[Moving] = []
    inside: set[int] = set()
    others: list[ir.Load | ir.Store | ir.Atomic] = []
    for node in nodes:
        if not isinstance(node, (ir.Load, ir.Store, ir.Atomic)) or not node.indices:
            continue
        slopes = [_slope(index, loop.variable, changed) for index in node.indices]
        if None in slopes:
            others.append(node)
        elif modes.get(node.at) != "off":
            inside.add(node.at)
            ends = zip(node.indices, slopes, strict=True)
            moving += [Moving(node.array, k, index, slope or 0) for k, (index, slope) in enumerate(ends)]
    inside -= {node.at for node in others}
    tried = {node.at for node in others if modes.get(node.at, "check") == "check"}
    plain = [node for node in others if node.at not in tried]
    if not all(isinstance(node, _UNDONE) and not can_divide_by_zero(node) for node in nodes) or any(
        _may_follow(inner, changed, tried) for node in plain for inner in walk(*node.indices)
    ):
        tried = set()
    if not (inside or tried):
        return None
    return OnceChecked(tuple(moving), frozenset(inside), frozenset(tried), tuple(sorted(changed)))


def _slope(index: Expression, variable: str, changed: set[str]) -> int | None:
    """Return by how much an index moves with a loop's variable; None if that is not known, or not by 1, -1 or 0.

    An index that may fail, or reads an element, is not evaluated before the loop: its slope is not known.
    """
    slope: int | None = None
    match index:
        case ir.Constant() | ir.Extent():
            slope = 0
        case ir.Name():
            slope = 1 if index.name == variable else None if index.name in changed else 0
        case ir.Binary(operator="+" | "-" | "*"):
            left, right = _slope(index.left, variable, changed), _slope(index.right, variable, changed)
            if left is not None and right is not None:
                moves = {"+": left + right, "-": left - right, "*": 2 if left or right else 0}[index.operator]
                slope = moves if moves in (1, 0, -1) else None
        case ir.Unary(operator="-"):
            operand = _slope(index.operand, variable, changed)
            slope = None if operand is None else -operand
        case ir.Convert():
            slope = 0 if _slope(index.operand, variable, changed) == 0 else None
    return slope


def _may_follow(node: ir.Expression | ir.Statement, changed: set[str], tried: set[int]) -> bool:
    """Tell whether a part of an index may have another value where a load was missed."""
    return (isinstance(node, ir.Name) and node.name in changed) or (isinstance(node, ir.Load) and node.at in tried)


# -- statements ---------------------------------------------------------------------------------------


# Names of atomic steps; those of others are the operators.
ATOMICS: Final = {"+": "add", "-": "sub", "*": "mul", "&": "and", "|": "or", "^": "xor"}


# The condition that nothing was wrong.
_RIGHT: Final = "!fault.what"


class Statements:
    """Writes statements."""

    def __init__(self, scope: KernelScope, accumulators: Iterable[str], first_line: int, *, can_fail: bool) -> None:
        self._scope = scope
        self._expressions = CExpressions(scope)
        self._accumulators = frozenset(accumulators)  # items of the nest's reductions
        self._can_fail = can_fail  # whether anything in the nest notes a failure in ``fault``
        self._first_line = first_line  # comments give lines of the program relative to this one
        self._line = 0  # the line of the latest mark in the text
        self._loops = 0  # how many loops are around the statement that is written now
        self._is_in_doubt = False  # whether an earlier part of the iteration may have failed
        # Whether something goes to the end of the iteration.
        self.has_exits = False
        self.end = "next"  # the label there: one of a function's own

    def lines(self, statements: Iterable[Statement]) -> list[str]:
        """Return statements as lines of C."""
        return [line for statement in statements for line in (*self._mark(statement), *self._one(statement))]

    def _mark(self, statement: Statement) -> list[str]:
        line = statement.place.line - self._first_line
        if line == self._line or line < 0:
            return []
        self._line = line
        return [f"/* +{line} */"]

    def _one(self, node: Statement) -> list[str]:  # a table
        match node:
            case ir.Assign():
                self._doubt(node.value)
                return [f"v_{node.name} = {self._text(node.value)};"]
            case ir.Store():
                return self._store(node)
            case ir.Reduce():
                return [self._reduce(node)]
            case ir.Atomic():
                return self._atomic(node)
            case ir.If():
                return self._if(node)
            case ir.For():
                return self._for(node)
            case ir.While():
                return self._while(node)
            case ir.Break():
                return ["break;"]
            case ir.Continue():
                return ["continue;"] if self._loops else [self._exit()]
            case ir.Assert():
                self._doubt(node.condition)
                failed = f"note(&fault, 3, {node.place.line}, 0, 0);"
                return [f"if (!{self._text(node.condition)}) {{", *indented([failed, self._exit()]), "}"]
            case ir.IndexCheck():
                return self._index_check(node)
            case ir.Local():
                return self._local(node)
            case _:
                raise AssertionError(node)

    def _text(self, node: Expression) -> str:
        return self._expressions.text(node)

    def _exit(self) -> str:
        self.has_exits = True
        return f"goto {self.end};"

    def _store(self, node: ir.Store) -> list[str]:
        value = self._text(node.value)
        mode = self._scope.modes.get(node.at, "check")
        is_asked = self._asks(node.array, node.value, *node.indices)
        kept = f"const {C_TYPES[self._scope.dtype(node.array)]} value = {value};"
        if mode == "check" and node.indices:
            lines, element = self._checked(node, is_asked=is_asked)
            return ["{", *indented([kept, *lines, f"    {element} = value;"]), "}"]
        if is_asked:
            return ["{", *indented([kept, f"if ({_RIGHT})", f"    {self._element(node, mode)} = value;"]), "}"]
        return [f"{self._element(node, mode)} = {value};"]

    # -- what was wrong before

    def _may_note(self, *nodes: Expression | Statement) -> bool:
        """Tell whether there is something in nodes that may note in ``fault`` as they are written now."""
        modes, tried = self._scope.modes, self._scope.tried
        return any(may_note(inner, modes) and getattr(inner, "at", None) not in tried for inner in walk(*nodes))

    def _doubt(self, *nodes: Expression | Statement, is_sure: bool = False) -> None:
        """Take note that nodes are carried out, which may find something wrong."""
        self._is_in_doubt = self._is_in_doubt or is_sure or self._may_note(*nodes)

    def _asks(self, array: str, *nodes: Expression) -> bool:
        """Tell whether a change of an array after these expressions has to test for an error first."""
        self._doubt(*nodes)
        return self._is_in_doubt and array not in self._scope.locals and array not in self._scope.privates

    def _ask_before(self, node: ir.For) -> list[str]:
        """Return the lines that end an iteration in which something was wrong, before a loop that changes elements."""
        if not (self._is_in_doubt and any(isinstance(inner, (ir.Store, ir.Atomic)) for inner in walk(*node.body))):
            return []
        self._is_in_doubt = False
        return ["if (fault.what)", f"    {self._exit()}"]

    def _element(self, node: ir.Store | ir.Atomic, mode: ir.Mode) -> str:
        places = [self._expressions.place(node.array, k, index, mode) for k, index in enumerate(node.indices)]
        return self._scope.element(node.array, places)

    def _checked(self, node: ir.Store | ir.Atomic, *, is_asked: bool) -> tuple[list[str], str]:
        """Return lines that end in an ``if`` around the store, and the element in its range."""
        lines, places = [], []
        tests = [_RIGHT] if is_asked else []
        self._doubt(is_sure=True)
        casts = "(uint32_t)" if self._scope.index_bits == 32 else ""
        for k, index in enumerate(node.indices):
            extent = self._scope.extent(node.array, k)
            lines.append(f"const int64_t i{k} = {self._text(index)};")
            tests.append(f"inside(&fault, i{k}, {extent}, {node.at}, {k})")
            places.append(f"{casts}wrapped(i{k}, {extent})")
        return [*lines, f"if ({' && '.join(tests)})"], self._scope.element(node.array, places)

    def _index_check(self, node: ir.IndexCheck, guard: Iterable[str] = ()) -> list[str]:
        """Return the lines that end an iteration where an index is out of range; ``guard`` comes before the tests."""
        if self._scope.modes.get(node.at, "check") != "check":
            return []
        self._doubt(*node.indices)
        lines = [f"const int64_t i{k} = {self._text(index)};" for k, index in enumerate(node.indices)]
        tests = [f"within(&fault, i{k}, {size}ll, {node.at}, {k})" for k, size in enumerate(node.sizes)]
        return ["{", *indented([*lines, *guard, f"if (!({' && '.join(tests)})) {self._exit()}"]), "}"]

    def _reduce(self, node: ir.Reduce) -> str:
        name = self._item(node.name)
        dtype, value = self._scope.dtype(node.name), self._text(node.value)
        self._doubt(node.value)
        if self._is_in_doubt and node.name in self._accumulators and node.name in self._scope.typed.arrays:
            step = f"{name} = {combined(self._scope.dialect, node.operator, name, 'value', dtype)};"
            return f"{{ const {C_TYPES[dtype]} value = {value}; if ({_RIGHT}) {step} }}"
        return f"{name} = {combined(self._scope.dialect, node.operator, name, value, dtype)};"

    def _atomic(self, node: ir.Atomic) -> list[str]:
        dtype, mode = self._scope.dtype(node.array), self._scope.modes.get(node.at, "check")
        values = [node.value] if node.expected is None else [node.expected, node.value]
        is_asked = self._asks(node.array, *values, *node.indices)
        arguments = [self._text(value) for value in values]
        lines: list[str] = []
        if is_asked:
            lines = [f"const {C_TYPES[dtype]} value{k} = {argument};" for k, argument in enumerate(arguments)]
            arguments = [f"value{k}" for k in range(len(arguments))]
        if mode == "check" and node.indices:
            tests, element = self._checked(node, is_asked=is_asked)
            lines += tests
        else:
            element = self._element(node, mode)
            lines += [f"if ({_RIGHT})"] if is_asked else []
        if node.array in self._scope.copies and self._scope.dialect == "c":  # a block's copy is of many threads
            operator = "+" if node.operator == "-" else node.operator
            value = arguments[0]
            if node.operator == "-":
                value = f"neg_{dtype}({value})" if is_complex(dtype) else f"(-{value})"
            step = f"{element} = {combined('c', operator, element, value, dtype)};"
        else:
            name = ATOMICS.get(node.operator, node.operator)
            step = f"atomic_{name}_{dtype}(&{element}, {', '.join(arguments)})"
            if node.result is not None:
                step = f"v_{node.result} = ({C_TYPES[self._scope.dtype(node.result)]}){step}"
            step += ";"
        return ["{", *indented([*lines, f"    {step}" if lines else step]), "}"]

    def _if(self, node: ir.If) -> list[str]:
        self._doubt(node.condition)
        before = self._is_in_doubt
        lines = [f"if ({self._text(node.condition)}) {{", *indented(self.lines(node.then))]
        behind, self._is_in_doubt = self._is_in_doubt, before
        if node.otherwise:
            lines += ["} else {", *indented(self.lines(node.otherwise))]
        self._doubt(is_sure=behind)
        return [*lines, "}"]

    def _for(self, node: ir.For) -> list[str]:
        self._doubt(node.start, node.stop, node.step, is_sure=can_be_refused(node))
        self._loops += 1
        lines, head, value = self._counted(node)
        lines += self._ask_before(node)
        trip = [head, f"    v_{node.variable} = ({self._scope.ctype(node.variable)})({value});"]
        found = once_checked(node, self._scope.modes) if self._gains_without_checks(node) else None
        if found is not None:
            lines += self._checked_once(node, found, trip)
        else:
            lines += self._looped(node, trip)
        self._loops -= 1
        return ["{", *indented(lines), "}"]

    def _counted(self, node: ir.For) -> tuple[list[str], str, str]:
        """Return the lines before a loop, its head, and the value of its variable in a trip."""
        depth = self._loops
        trip, start, stop, step = (f"{letter}{depth}" for letter in "kbes")
        is_narrow = node.variable in self._scope.narrow
        index = "int32_t" if is_narrow else "int64_t"
        bounds = (start, node.start), (stop, node.stop)
        lines = [f"const {index} {name} = {self._bound(node, bound, is_narrow=is_narrow)};" for name, bound in bounds]
        if constant_step(node) in (1, -1) and not may_be_beyond(node):
            relation, change = ("<", "++") if constant_step(node) == 1 else (">", "--")
            return lines, f"for ({index} {trip} = {start}; {trip} {relation} {stop}; {trip}{change}) {{", trip
        lines += [f"const int64_t {step} = {self._step(node)};"]
        lines += [f"const {index} n{depth} = trips_of({start}, {stop}, {step});"]
        head = f"for ({index} {trip} = 0; {trip} < n{depth}; {trip}++) {{"
        return lines, head, f"{start} + {trip} * {'(int32_t)' if is_narrow else ''}{step}"

    def _bound(self, loop: ir.For, bound: Expression, *, is_narrow: bool) -> str:
        """Return a bound of a loop, or its step."""
        operand = beyond_int64(bound)
        if operand is not None:
            return f"held_bound(&fault, {self._text(operand)}, {loop.place.line})"
        return self._expressions.narrow(bound) if is_narrow else self._text(bound)

    def _step(self, node: ir.For) -> str:
        """Return the step of a loop; 0, with which there is no trip, if something has been found wrong."""
        text = self._bound(node, node.step, is_narrow=False)
        if constant_step(node) is None:
            text = f"nonzero_step(&fault, {text}, {node.place.line})"
        return f"(fault.what ? 0 : {text})" if may_be_beyond(node) else text

    def _gains_without_checks(self, node: ir.For) -> bool:
        """Tell whether a loop is worth two forms: on the host, where a vectoriser would stop at its checks."""
        stores = any(isinstance(inner, ir.Store) for inner in walk(*node.body))
        return self._scope.dialect == "cuda" or stores or bool(self._declared(node))

    def _looped(self, node: ir.For, trip: list[str]) -> list[str]:
        """Return a loop behind the lines before it."""
        self._doubt(*node.body)  # in the trip before
        loop = [*trip, *indented(self.lines(node.body)), "}"]
        can_fail = any(may_note(inner, self._scope.modes) for inner in walk(*node.body))
        if self._scope.dialect == "c" and not can_fail and (items := self._declared(node)):
            loop.insert(0, in_lanes(items, f" lastprivate(v_{node.variable})"))
        return loop

    def _checked_once(self, node: ir.For, found: OnceChecked, trip: list[str]) -> list[str]:
        """Return a loop in two forms; `once_checked` says how."""
        scope, line = self._scope, self._line
        tests, before = self._tests(node, found)
        modes = scope.modes
        scope.modes = {**modes, **dict.fromkeys(found.inside, "off")}
        scope.tried = found.tried
        before_it = self._is_in_doubt
        first = self._looped(node, trip)
        scope.modes, scope.tried, self._line = modes, frozenset(), line
        self._is_in_doubt = before_it
        second = self._looped(node, trip)
        test = " && ".join(tests) or "true"
        if not found.tried:
            return [*before, f"if ({test}) {{", *indented(first), "} else {", *indented(second), "}"]
        items = [(self._item(name), C_TYPES[scope.dtype(name)]) for name in found.scalars]
        first = [
            "bool is_missed = false;",
            *[f"const {ctype} before_{item} = {item};" for item, ctype in items],
            *first,
            "is_done = !is_missed;",
            "if (is_missed) {",
            *indented(f"{item} = before_{item};" for item, _ in items),
            "}",
        ]
        return [
            *before,
            "bool is_done = false;",
            f"if ({test}) {{",
            *indented(first),
            "}",
            "if (!is_done) {",
            *indented(second),
            "}",
        ]

    def _tests(self, node: ir.For, found: OnceChecked) -> tuple[list[str], list[str]]:
        """Return the tests that all indices of a loop are inside, and the lines before them."""
        depth, scope, step = self._loops, self._scope, constant_step(node) or 1
        bits = 32 if node.variable in scope.narrow else 64
        unsigned, index = f"uint{bits}_t", f"int{bits}_t"
        start, stop = f"({unsigned})b{depth}", f"({unsigned})e{depth}"
        if step in (1, -1):
            more = f"{stop} - {start} - 1" if step > 0 else f"{start} - {stop} - 1"
        else:
            more = f"(({unsigned})n{depth} - 1) * ({unsigned}){abs(step) % 2**64}ull"
        end = f"({index})({start} {'+' if step > 0 else '-'} d{depth})"
        low, high = (f"({index})b{depth}", end) if step > 0 else (end, f"({index})b{depth}")
        tests: dict[str, None] = {}
        for one in found.moving:
            scope.ends[node.variable] = f"({high if one.slope < 0 else low})"
            extent, distance = scope.extent(one.array, one.dimension), f"d{depth}" if one.slope else "0"
            exact = self._expressions.held_by_int32(one.place) if bits == 32 else None
            first = exact or self._text(one.place)
            tests[f"all_inside{'32' if exact else ''}({first}, {distance}, {extent})"] = None
        scope.ends.pop(node.variable, None)
        return list(tests), [f"const {unsigned} d{depth} = {more};"] if found.moving else []

    def _declared(self, node: ir.For) -> dict[tuple[str, str], None]:
        """Return the items that a loop updates, if it does nothing else and its clauses declare each of them."""
        declared = {item.name for item in node.clauses.reductions}
        items: dict[tuple[str, str], None] = {}
        for one in node.body:
            if not isinstance(one, ir.Reduce) or one.name not in declared or is_complex(self._scope.dtype(one.name)):
                return {}
            items[one.operator, self._item(one.name)] = None
        return items

    def _item(self, name: str) -> str:
        return f"r_{name}" if name in self._accumulators else f"v_{name}"

    def _while(self, node: ir.While) -> list[str]:
        head = f"while ({self._text(node.condition)}) {{"
        self._loops += 1
        body = self._asked_at_each(node)
        self._loops -= 1
        if self._can_fail:
            body = ["if (fault.what)", f"    {self._exit()}", *body]
        return [head, *indented(body), "}"]

    def _asked_at_each(self, node: ir.While) -> list[str]:
        """Return the statements of a loop of which each trip asks at first whether something was wrong."""
        before, self._is_in_doubt = self._is_in_doubt, False
        lines = self.lines(node.body)
        self._doubt(node, is_sure=before)
        return lines

    def _local(self, node: ir.Local) -> list[str]:
        if node.fill is None:
            return []
        self._doubt(node.fill)
        ctype = MEMORY_TYPES[node.dtype]
        n = prod(node.shape)
        fill = self._text(node.fill)
        return [
            "{",
            f"    const {ctype} fill = {fill};",
            f"    for (int64_t k = 0; k < {n}; k++)",
            f"        q_{node.name}[k] = fill;",
            "}",
        ]


def combined(dialect: Dialect, operator: str, item: str, value: str, dtype: ir.Dtype) -> str:
    """Return an item updated by a value."""
    if operator in ("min", "max"):
        return f"{operator}_{dtype}({item}, {value})"
    if operator in ("+", "*"):
        return arithmetic(dialect, operator, item, value, dtype)
    return f"({C_TYPES[dtype]})({item} {LOGICAL.get(operator, operator)} {value})"


def can_fail(nest: ir.Nest, modes: Mapping[int, ir.Mode]) -> bool:
    """Tell whether an iteration may find something wrong."""
    return any(may_note(node, modes) for node in walk(*nest.body))


def may_note(node: ir.Expression | ir.Statement, modes: Mapping[int, ir.Mode]) -> bool:
    """Tell whether a node by itself, without its parts, may find an error."""
    match node:
        case ir.Load() | ir.Store() | ir.Atomic() | ir.IndexCheck():
            return bool(node.indices) and modes.get(node.at, "check") == "check"
        case ir.Binary():
            return can_divide_by_zero(node)
        case ir.For():
            return can_be_refused(node)
        case ir.Assert():
            return True
        case _:
            return False
