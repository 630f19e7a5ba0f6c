"""Statements of an iteration that a team of threads carries out together, as CUDA.

Outside of shared loops, all threads of a *group* (the block, or one row of it) compute the same values and reach the
same barriers. The first thread alone stores, updates atomically, and loads from arrays that the nest writes. Each
thread has its own copy of the iteration's arrays.

In a shared loop each thread, or each row, has its own trips. A reduction starts there from its identity; all threads
get the combined result after the loop. Barriers stand around every write to an array that another thread of the group
uses.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from offload.loops.emit.c_cuda import combining
from offload.loops.emit.c_expressions import CExpressions, literal
from offload.loops.emit.c_host import indented
from offload.loops.emit.c_prelude import C_TYPES
from offload.loops.emit.c_statements import Statements
from offload.loops.tree import ir
from offload.loops.tree.nodes import can_be_refused, walk
from offload.loops.tree.promotion import identity
from offload.loops.tree.sizes import ROW

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from offload.loops.emit.c_scope import KernelScope
    from offload.loops.front.levels import Sharing, Team
    from offload.loops.tree.ir import Expression, Nest, Statement

Group: TypeAlias = Literal["block", "row"]
# All arrays, where they may share memory.
_ANY: Final = "*"


class SharedStatements(Statements):
    """Writes the statements of an iteration that a team carries out."""

    def __init__(
        self,
        scope: KernelScope,
        nest: Nest,
        team: Team,
        shared: Mapping[int, Sharing],  # the shared loops, by `id`
        *,
        is_restricted: bool,  # whether arrays share no memory
        is_ordered: bool,  # whether one team has all iterations, in order
        can_fail: bool,
    ) -> None:
        super().__init__(scope, [item.name for item in nest.reductions], nest.place.line, can_fail=can_fail)
        self._team = team
        self._shared = shared
        self._own = {*scope.locals, *scope.privates}  # arrays that each thread has for itself
        self._is_restricted = is_restricted
        # who carries out what is written now; None: one thread, for itself
        self._group: Group | None = "row" if team.is_row else "block"
        self._ends: list[str] = []  # labels at the ends of the shared loops around
        self._left: set[str] = set()  # the labels that something jumps to
        self._n_ends = 0  # how many labels there are so far
        self._hot = self._used_by_several(nest.body, is_in_loop=is_ordered)  # arrays that need barriers around writes
        self.written = frozenset(self._names(nest.body, ir.Store, ir.Atomic))  # arrays that the nest writes
        self._expressions = _Together(scope, self)  # writes expressions of which a group has one value
        # What reductions of shared loops combine by.
        self.combined: dict[tuple[ir.ReductionOperator, ir.Dtype], None] = {}

    @property
    def group(self) -> Group | None:
        """The threads that carry out the text written now; None: one thread, for itself."""
        return self._group

    @property
    def first(self) -> str:
        """The condition of the group's first thread."""
        return "threadIdx.x == 0" if self._group == "row" else "thread_of_block() == 0"

    def is_common(self, array: str) -> bool:
        """Tell whether other threads may write to an array."""
        return array not in self._own and (array in self.written or (bool(self.written) and not self._is_restricted))

    # -- what a group does

    def lines(self, statements: Iterable[Statement]) -> list[str]:
        if self._group is None:
            return super().lines(statements)
        found: list[str] = []
        barrier = f"{self._group}_barrier();"
        for statement in statements:
            found += self._mark(statement)
            is_passed = bool(self._hot & set(self._written(statement)))
            last = next((line for line in reversed(found) if not line.startswith("/*")), "")
            if is_passed and last != barrier:
                found.append(barrier)
            found += self._one(statement)
            if is_passed:
                found.append(barrier)
        return found

    def _store(self, node: ir.Store) -> list[str]:
        if self._group is None or node.array in self._own:
            return super()._store(node)
        with self._by_one() as first:
            lines = super()._store(node)
        return [f"if ({first}) {{", *indented(lines), "}"]

    def _atomic(self, node: ir.Atomic) -> list[str]:
        if self._group is None:
            return super()._atomic(node)
        with self._by_one() as first:
            step = super()._atomic(node)
        lines = [f"if ({first}) {{", *indented(step), "}"]
        if node.result is not None:
            lines.append(f"v_{node.result} = from_{self._group}(v_{node.result});")
        return lines

    def _reduce(self, node: ir.Reduce) -> str:
        if self._group is None or node.name not in self._accumulators:
            return super()._reduce(node)
        with self._by_one() as first:
            line = super()._reduce(node)
        return f"if ({first}) {line}"

    @contextmanager
    def _by_one(self) -> Iterator[str]:
        """Write statements for one thread of the group; yield the condition under which a thread is that one."""
        group, first = self._group, self.first
        self._group = None
        yield first
        self._group = group

    def _while(self, node: ir.While) -> list[str]:
        if self._group is None or not self._can_fail:
            return super()._while(node)
        self._loops += 1
        body = self._asked_at_each(node)
        self._loops -= 1
        stop = [f"if (any_of_{self._group}(fault.what != 0))", f"    {self._exit()}"]
        return [f"while ({self._text(node.condition)}) {{", *indented([*stop, *body]), "}"]

    def _ask_before(self, node: ir.For) -> list[str]:
        return super()._ask_before(node) if self._group is None else []  # threads of a group stay together

    def _exit(self) -> str:
        if not self._ends:
            return super()._exit()
        label = self._ends[-1]
        self._left.add(label)
        return f"goto {label};"

    # -- shared loops

    def _for(self, node: ir.For) -> list[str]:
        sharing = self._shared.get(id(node)) if self._group is not None else None
        if sharing is None:
            return super()._for(node)
        self._doubt(node.start, node.stop, node.step, is_sure=can_be_refused(node))
        depth = self._loops + 1
        is_narrow = node.variable in self._scope.narrow
        index = "int32_t" if is_narrow else "int64_t"
        counter, cast = ("uint32_t", "(int32_t)") if is_narrow else ("int64_t", "")  # the last trip and a stride fit
        start, stop = (self._bound(node, bound, is_narrow=is_narrow) for bound in (node.start, node.stop))
        items = [item for item in node.clauses.reductions if item.name not in self._accumulators]
        of, rank, count = self._shares(sharing)
        ctype = self._scope.ctype(node.variable)
        label = f"end{self._n_ends}"
        self._n_ends += 1
        body = self._trips(node, label, "row" if sharing == "rows" else None)
        lines = [
            f"const {index} b{depth} = {start};",
            f"const {index} e{depth} = {stop};",
            f"const int64_t s{depth} = {self._step(node)};",
            f"const {counter} n{depth} = trips_of(b{depth}, e{depth}, s{depth});",
            *[line for item in items for line in self._start(item, depth)],
            f"for ({counter} k{depth} = {rank}; k{depth} < n{depth}; k{depth} += {count}) {{",
            *indented([f"v_{node.variable} = ({ctype})(b{depth} + {cast}k{depth} * {cast}s{depth});", *body]),
            "}",
        ]
        if label in self._left:
            lines.append(f"{label}: ;")
        lines += [self._end(item, depth, of) for item in items]
        return ["{", *indented(lines), "}"]

    def _shares(self, sharing: Sharing) -> tuple[str, str, int]:
        """Return whose values a reduction combines, which trip is a thread's first, and how far its next one is."""
        if sharing == "rows":
            return "rows", "threadIdx.y", self._team.workers
        if self._group == "row":
            return "row", "threadIdx.x", self._team.lanes
        n_threads = self._team.lanes * self._team.workers
        return "block" if n_threads >= ROW else "few", "thread_of_block()", n_threads

    def _trips(self, node: ir.For, label: str, group: Group | None) -> list[str]:
        """Return the lines that a thread, or the group that shares a trip, executes in it."""
        around, hot = self._group, self._hot
        self._group, self._hot = (
            group,
            self._used_by_several(node.body, is_in_loop=False) if group is not None else set(),
        )
        self._ends.append(label)
        self._loops += 1
        self._doubt(*node.body)  # in the trip before
        body = self.lines(node.body)
        self._loops -= 1
        self._ends.pop()
        self._group, self._hot = around, hot
        return body

    def _start(self, item: ir.LoopReduction, depth: int) -> Iterator[str]:
        dtype = self._scope.dtype(item.name)
        self.combined[item.operator, dtype] = None
        yield f"const {C_TYPES[dtype]} o{depth}_{item.name} = v_{item.name};"
        yield f"v_{item.name} = {literal(identity(item.operator, dtype), dtype)};"

    def _end(self, item: ir.LoopReduction, depth: int, of: str) -> str:
        dtype = self._scope.dtype(item.name)
        function = combining(item.operator, dtype)
        none = "" if of in {"row", "few"} else f", {literal(identity(item.operator, dtype), dtype)}"
        value = f"over_{of}<{C_TYPES[dtype]}, {function}>(v_{item.name}{none})"
        return f"v_{item.name} = {function}(o{depth}_{item.name}, {value});"

    # -- who uses what

    def _used_by_several(self, statements: Sequence[Statement], *, is_in_loop: bool) -> set[str]:
        """Return the arrays in which the threads that share statements have to see each other's writes."""
        users: dict[str, set[int]] = {}
        written: set[str] = set()
        again: set[str] = set()
        for user, nodes, is_repeated in self._users(statements, is_in_loop=is_in_loop):
            changed = self._names(nodes, ir.Store, ir.Atomic)
            for name in changed | self._names(nodes, ir.Load):
                users.setdefault(name, set()).add(user)
            written |= changed
            again |= changed if is_repeated and user else set()
        return {name for name in written if len(users[name]) > 1 or name in again}

    def _users(
        self, statements: Iterable[Statement], *, is_in_loop: bool
    ) -> Iterator[tuple[int, list[ir.Statement | Expression], bool]]:
        """Yield who carries out parts of statements: 0, the first thread, or a shared loop; and if more than once."""
        for node in statements:
            match node:
                case ir.If():
                    yield 0, [node.condition], is_in_loop
                    yield from self._users((*node.then, *node.otherwise), is_in_loop=is_in_loop)
                case ir.While():
                    yield 0, [node.condition], is_in_loop
                    yield from self._users(node.body, is_in_loop=True)
                case ir.For() if id(node) in self._shared:
                    yield 0, [node.start, node.stop, node.step], is_in_loop
                    yield id(node), [*node.body], is_in_loop
                case ir.For():
                    yield 0, [node.start, node.stop, node.step], is_in_loop
                    yield from self._users(node.body, is_in_loop=True)
                case _:
                    yield 0, [node], is_in_loop

    def _written(self, node: Statement) -> set[str]:
        """Return the arrays that a statement itself, or a shared loop, writes."""
        if isinstance(node, (ir.Store, ir.Atomic)) or id(node) in self._shared:
            return self._names([node], ir.Store, ir.Atomic)
        return set()

    def _names(self, nodes: Iterable[ir.Statement | Expression], *kinds: type) -> set[str]:
        """Return the arrays that accesses of such kinds use; those that may share memory are one."""
        accesses = (one for one in walk(*nodes) if isinstance(one, kinds))
        names = {one.array for one in accesses if isinstance(one, (ir.Load, ir.Store, ir.Atomic))} - self._own
        return names if self._is_restricted or not names else {_ANY}


class _Together(CExpressions):
    """Writes expressions of which a group has one value."""

    def __init__(self, scope: KernelScope, statements: SharedStatements) -> None:
        super().__init__(scope)
        self._statements = statements

    def _load(self, node: ir.Load) -> str:
        text, group = super()._load(node), self._statements.group
        if group is None or not self._statements.is_common(node.array):
            return text
        return f"from_{group}<{C_TYPES[self._scope.dtype(node.array)]}>({text})"
