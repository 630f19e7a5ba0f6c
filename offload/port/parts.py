"""The parts of a task form: which statements become tasks and copies, and which items their clauses name.

Theory of operation
-------------------
The tree of the program says how statements are nested. The marked run knows the operations of each statement
(`StatementFacts`): work on streams, copies, accesses of the host. From both, each statement gets a `Role`.
Neighbouring statements of one ``with STREAM:`` that only work on the device become a `BlockPart`, and a copy becomes a
`CopyPart`. The others stay as they are, outside of any block.

*Items.* The bytes that a block reads and writes are known for each execution. The block's chains were evaluated where
it began. The smallest chain that covers an access becomes the item for it, provided it could be evaluated each time.
Storages that the block itself allocates need no item.

*Refusals.* A statement that fits no role is an `Obstacle` with its line. So is a statement in a stream's block that the
run did not reach, because its accesses are unknown.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from offload.port.chains import clause_text, names_in
from offload.port.early import EarlyValues, NotABlockError
from offload.port.executions import BlockExecutions, with_whole_arrays
from offload.port.log import NULL
from offload.port.marks import is_markable
from offload.port.pieces import WHOLE, BlockPart, CopyPart, Role
from offload.port.program import FUNCTIONS
from offload.port.statements import (
    bindings_in,
    bound_names,
    copy_shape,
    is_quiet,
    read_first,
    root_of,
    short_text,
    stored_bases,
    suites_of,
)
from offload.port.uses import StatementUse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offload.port.chains import Held
    from offload.port.executions import Offer
    from offload.port.facts import Recorded, StatementFacts
    from offload.port.log import StreamOperation
    from offload.port.program import FunctionNode
    from offload.port.statements import CopyShape

_LEAVES: Final = (ast.Raise, ast.Pass, ast.Break, ast.Continue, ast.Assert)


class FormParts:
    """The parts of a program's task form.

    Attributes
    ----------
    roles : dict
        By statements; a statement without one stays as it is.
    blocks : dict
        By their first statements.
    copies : dict
        By their statements.
    """

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded
        self.program = recorded.program
        self.uses = recorded.uses
        self.roles: dict[ast.stmt, Role] = {}
        self.blocks: dict[ast.stmt, BlockPart] = {}
        self.copies: dict[ast.stmt, CopyPart] = {}
        self.host_valued: set[ast.stmt] = set()  # they wait for the device, and receive a value
        self._taken: set[str] = {node.id for node in ast.walk(self.program.tree) if isinstance(node, ast.Name)}
        self.stored = stored_bases(self.program, self._changes_in_place)
        for function in self._functions():
            self._suite(function.body, None)

    def _functions(self) -> Iterator[ast.Module | FunctionNode]:
        program = self.program
        for node in (program.tree, *program.parents):
            if isinstance(node, (ast.Module, *FUNCTIONS)):
                if node in self.recorded.converted and not is_markable(node, program):
                    self.uses.refuse(node, "streams are used in a generator, a coroutine or a function for a compiler")
                elif isinstance(node, ast.Module) or self.uses.use[node] is not StatementUse.REMOVED:
                    yield node

    # -- roles -------------------------------------------------------------------------------------
    def _suite(self, body: list[ast.stmt], context: ast.With | None) -> None:
        """Give the statements of a suite their roles."""
        group: list[ast.stmt] = []
        key: object = None
        for node in body:
            new_key = self._member_key(node, context)
            if new_key is not None and (not group or new_key == key):
                group.append(node)
                key = new_key
                continue
            if group and new_key is None and self._belongs_to(node, group):
                group.append(node)
                continue
            self._close(group, context)
            group = [node] if new_key is not None else []
            key = new_key
            if new_key is None:
                self._single(node, context)
        self._close(group, context)

    def _member_key(self, node: ast.stmt, context: ast.With | None) -> object:
        """Return the streams of a statement that only works on the device; None for all others."""
        uses = self.uses.use[node]
        if self.program.is_elif(node):
            return None
        if uses is not StatementUse.PLAIN or (copy_shape(self.program, node) is not None and self._copies(node)):
            return None
        found: set[int] = set()
        for part, facts in self.recorded.facts_in(node):
            if (
                facts.kinds - {"kernel", "host"}
                or NULL in facts.streams
                or self.uses.use[part] is not StatementUse.PLAIN
            ):
                return None
            if "host" in facts.kinds and not self._only_reads(facts):
                return None
            found |= facts.streams
        if not found or not self._is_quiet_inside(node):
            return None
        return context if context is not None else frozenset(found)

    def _copies(self, node: ast.stmt) -> bool:
        facts = self.recorded.facts.get(node)
        return facts is not None and bool(facts.kinds & {"to device", "to host"})

    def _only_reads(self, facts: StatementFacts) -> bool:
        operations = self.recorded.log.operations
        return not any(operations[k].writes for k in facts.operations if operations[k].kind == "host")

    def _is_quiet_inside(self, node: ast.stmt) -> bool:
        """Tell whether a compound statement can run later as a whole: it has no effect on the host's variables."""
        if not hasattr(node, "body"):
            return not isinstance(node, ast.Match)
        if not isinstance(node, (ast.For, ast.While, ast.If)) or self.recorded.facts.get(node) is not None:
            return False
        inner = [part for part in ast.walk(node) if isinstance(part, ast.stmt) and part is not node]
        for part in inner:
            facts = self.recorded.facts.get(part)
            works = facts is not None and facts.works
            if isinstance(part, (ast.Return, ast.Delete, ast.With, ast.Try, *FUNCTIONS)):
                return False
            if not works and not hasattr(part, "body") and not is_quiet(part):
                return False
            if not self.recorded.has_run(part):
                return False
        return True

    def _belongs_to(self, node: ast.stmt, group: list[ast.stmt]) -> bool:
        """Tell whether a statement without work on the device uses names that a block binds to its own arrays."""
        if node in self.recorded.facts or self.uses.use[node] is not StatementUse.PLAIN or not is_quiet(node):
            return False
        bound = set().union(*(bound_names(member) for member in group))
        return not bound.isdisjoint(names_in(node))

    def _single(self, node: ast.stmt, context: ast.With | None) -> None:
        """Give a statement its role that is no member of a block."""
        use = self.uses.use[node]
        if use in {StatementUse.REMOVED, StatementUse.IMPORT}:
            self.roles[node] = Role.DROP if use is StatementUse.REMOVED else Role.KEEP
            return
        if use is StatementUse.WAIT:
            self.roles[node] = Role.WAIT
            return
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            gone = [part for part in node.body if self.uses.use[part] is StatementUse.REMOVED]
            if isinstance(node, ast.ClassDef):  # fields that hold streams
                self.roles |= dict.fromkeys(gone, Role.DROP)
            return
        if hasattr(node, "body") or isinstance(node, ast.Match):
            self._compound(node, context)
            return
        self._leaf(node, context)

    def _compound(self, node: ast.stmt, context: ast.With | None) -> None:
        use = self.uses.use[node]
        facts = self.recorded.facts.get(node)
        if facts is not None and facts.works:
            self.host_valued.add(node)  # `WaitPlan` refuses it if no synchronize comes before
        inner = context
        if use is StatementUse.CONTEXT:
            assert isinstance(node, ast.With)
            self.roles[node] = Role.UNWRAP
            inner = node
            if not self.recorded.has_run(node.body[0]):
                self.uses.refuse(node, "this block did not run, so its accesses are unknown")
                return
        for suite in suites_of(node):
            self._suite(suite, inner)
        if use is StatementUse.GUARD and not self._only_handles_streams(node):
            self.uses.refuse(node, "a condition looks at a stream or an event, and other work depends on it")

    def _only_handles_streams(self, node: ast.stmt) -> bool:
        leaves = [part for suite in suites_of(node) for part in suite]
        return all(self.roles.get(part) in {Role.DROP, Role.WAIT} or isinstance(part, ast.Pass) for part in leaves)

    def _leaf(self, node: ast.stmt, context: ast.With | None) -> None:
        facts = self.recorded.facts.get(node)
        if not self.recorded.has_run(node):
            if context is not None and not isinstance(node, (*_LEAVES, ast.Return)):
                self.uses.refuse(node, "this statement of a stream's block did not run, so its accesses are unknown")
            return
        if facts is None or not facts.works:
            return
        if facts.streams == {NULL}:
            return  # `WaitPlan` says whether work on the default stream stands where it may
        if "callback" in facts.kinds:
            self.uses.refuse(node, "host code is called from a stream; synchronize, and call it on the host")
            return
        shape = copy_shape(self.program, node)
        if shape is not None and self._is_plain_copy(node, facts, shape):
            self._add_copy(node, shape)
            return
        if "to device" in facts.kinds:
            self._refuse_upload(node)
            return
        if "to host" in facts.kinds:
            self._host_value(node, facts)
            return
        self.uses.refuse(
            node, f"the work of this statement is on streams and on the default stream: {short_text(node)}"
        )

    def _refuse_upload(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            self.uses.refuse(
                node,
                f"`{name}` is bound to a new array in a stream's block; allocate it before, and write `{name}.set(…)`",
            )
            return
        self.uses.refuse(node, "a host array is copied to the device within an expression; write `d.set(h)` before")

    # -- copies ------------------------------------------------------------------------------------
    def _is_plain_copy(self, node: ast.stmt, facts: StatementFacts, shape: CopyShape) -> bool:
        """Tell whether a statement did nothing but one copy each time, between arrays of the same shape and type."""
        kind = "to host" if shape.to_host else "to device"
        operations = self.recorded.log.operations
        copies = [operations[k] for k in facts.operations if operations[k].kind == kind]
        work = [operations[k] for k in facts.operations if operations[k].kind == "kernel"]
        if len(copies) != len(self.recorded.times[node]) or facts.kinds - {kind, "kernel", "host"}:
            return False
        if any(not self._is_assignment_of(operation, copies) for operation in work):
            return False
        held = [self.held(node, shape.target), self.held(node, shape.source)]
        for one, other in zip(*held, strict=True):
            if one is None or other is None:
                continue  # an expression that is evaluated once
            shapes = {one.shape, other.shape}
            if one.what == "changing" and shape.to_host:  # `h[i]`, an element of an array of one dimension
                shapes = {other.shape, ()}
            elif {one.what, other.what} != {"host", "device"} or one.dtype != other.dtype:
                return False
            if len(shapes) > 1:
                return False
        return all(any(one is not None for one in side) for side in held[:1])

    def _is_assignment_of(self, operation: StreamOperation, copies: list[StreamOperation]) -> bool:
        """Tell whether an operation only moves bytes that a copy has just brought: ``d[...] = cp.asarray(h)``."""
        arrived = {part.space for copy in copies for part in copy.writes}
        return bool(operation.reads) and all(part.space in arrived for part in operation.reads)

    def held(self, node: ast.stmt, wanted: ast.expr) -> list[Held | None]:
        """Return the value of an expression at each execution of a statement; None if it is no chain."""
        for index, chain in enumerate(self.recorded.chains_of(node)):
            for length in range(len(chain.steps) + 1):
                if chain.prefix(length) is wanted:
                    return [self.recorded.marks[time].held[index][length] for time in self.recorded.times[node]]
        return [None] * len(self.recorded.times[node])

    def _add_copy(self, node: ast.stmt, shape: CopyShape) -> None:
        part = CopyPart(node, shape.target, shape.source, to_host=shape.to_host)
        part.target_text = self._copied(node, shape.target, "target", part.before)
        part.source_text = self._copied(node, shape.source, "source", part.before)
        self.copies[node] = part
        self.roles[node] = Role.COPY

    def _copied(self, node: ast.stmt, side: ast.expr, name: str, before: list[str]) -> str:
        """Return the text of one side of a copy, which may be evaluated twice."""
        text = self.uses.text(side)
        held = [one for one in self.held(node, side) if one is not None]
        if held and all(one.what == "changing" for one in held):
            assert isinstance(side, ast.Subscript)
            return f"{self.uses.text(side.value)}[{self.uses.text(side.slice)}, ...]"
        if held:
            return text
        fresh = self.fresh(name)
        before.append(f"{fresh} = {text}")
        return fresh

    # -- values on the host ------------------------------------------------------------------------
    def _host_value(self, node: ast.stmt, facts: StatementFacts) -> None:
        """Accept a statement that waits for the device and receives a value, if its other work leaves no trace."""
        operations = self.recorded.log.operations
        for number in facts.operations:
            operation = operations[number]
            if operation.kind == "kernel" and not self._is_temporary(operation, number):
                self.uses.refuse(node, "this statement changes device data and also copies to the host; split it")
                return
        self.host_valued.add(node)

    def _is_temporary(self, operation: StreamOperation, number: int) -> bool:
        """Tell whether everything that an operation writes was allocated by the statement that it belongs to."""
        mark = self.recorded.marks[self.recorded.owners[number]]
        return all(part.space >= mark.storages for part in operation.writes)  # type: ignore[operator]  # numbers

    # -- blocks ------------------------------------------------------------------------------------
    def _close(self, group: list[ast.stmt], context: ast.With | None) -> None:
        """Make a block of neighbouring statements."""
        if not group:
            return
        for node in group:
            for part, facts in self.recorded.facts_in(node):
                operations = [self.recorded.log.operations[k] for k in facts.operations]
                if any(operation.uses_random for operation in operations):
                    self.uses.refuse(
                        part, "random numbers are drawn on a stream, whose order a task form does not keep"
                    )
        taken = set(self._taken)
        try:
            block = self._block(group)
        except NotABlockError as error:
            self._taken = taken
            compound = [node for node in group if hasattr(node, "body")]
            if not compound:
                self.uses.obstacles.append(error.obstacle)
                return
            self._split(group, compound[0], context)
            return
        self.roles |= dict.fromkeys(block.executions.parts, Role.BLOCK)
        self.blocks[block.first] = block

    def _split(self, group: list[ast.stmt], compound: ast.stmt, context: ast.With | None) -> None:
        """Make blocks inside of a compound statement, and around it."""
        at = group.index(compound)
        self._close(group[:at], context)
        for suite in suites_of(compound):
            self._suite(suite, context)
        self._close(group[at + 1 :], context)

    def _block(self, group: list[ast.stmt]) -> BlockPart:
        executions = BlockExecutions(self.recorded, group, self.stored)
        block = BlockPart(list(group), executions)
        self._check_names(group)
        offers = executions.offers()
        chosen: dict[str, set[str]] = {}
        for number, (reads, writes) in executions.accesses.items():
            for part, mode in (*((part, "in") for part in reads), *((part, "out") for part in writes)):
                text = executions.covering(offers, number, part)
                if text is None:
                    raise _uncovered(executions.operation_of(number, part), "reads" if mode == "in" else "writes")
                chosen.setdefault(text, set()).add(mode)
        chosen = with_whole_arrays(chosen, offers)
        for text in offers:
            if text in chosen:
                offer = offers[text]
                block.modes[self._spelled(offer, block)] = chosen[text]
        EarlyValues(self.recorded, block, self.stored, self.fresh).bind()
        return block

    def _spelled(self, offer: Offer, block: BlockPart) -> str:
        """Return an item as a clause spells it; bind it to a name before the block if a clause cannot."""
        if offer.is_plain and not offer.is_moving:
            return clause_text(offer.node)
        name = self.fresh(f"{root_of(offer.node)}_part")
        is_own = offer.node in self.program.parents
        text = self.uses.text(offer.node) if is_own else ast.unparse(offer.node)
        block.before.append((f"{name} = {text}", offer.node.lineno if is_own else block.first.lineno))
        is_filled = is_own and isinstance(offer.node.ctx, ast.Store) and not self._is_augmented(offer.node)  # type: ignore[attr-defined]  # a chain
        block.texts[offer.node] = f"{name}{WHOLE}" if is_filled else name
        return name

    def _is_augmented(self, node: ast.expr) -> bool:
        return isinstance(self.program.parents[node], ast.AugAssign)

    def fresh(self, name: str) -> str:
        """Return a name that the program does not use."""
        found, number = name, 1
        while found in self._taken:
            number += 1
            found = f"{name}_{number}"
        self._taken.add(found)
        return found

    def _changes_in_place(self, node: ast.AugAssign) -> bool:
        """Tell whether an augmented assignment changed a device array each time."""
        held = self.held(node, node.target) if self.recorded.has_run(node) else []
        return bool(held) and all(one is not None and one.what == "device" for one in held)

    # -- names of blocks ---------------------------------------------------------------------------
    def _check_names(self, group: list[ast.stmt]) -> None:
        """Refuse names that a block binds and other code uses."""
        program = self.program
        function = program.function_of(group[0])
        inside = {part for node in group for part in ast.walk(node)}
        scope = program.scopes[group[0]]
        for node in group:
            self._check_stores(node)
            for name, binding in bindings_in(node):
                line = self._used_outside(function, inside, name)
                if line is None:
                    line = read_first(group, name)
                if line is None and scope.outer.get(name):
                    line = binding.lineno
                if line is not None:
                    self.uses.refuse(
                        binding,
                        f"`{name}` is bound to a new array in a stream's block and used outside of it (line {line}); "
                        "write into an existing array",
                    )

    def _check_stores(self, node: ast.stmt) -> None:
        """Refuse assignments to elements of lists and to attributes of objects in a block: they would come too late."""
        for part in ast.walk(node):
            if not isinstance(part, ast.Assign) or not self.recorded.has_run(part):
                continue
            for target in part.targets:
                is_stored = isinstance(target, (ast.Subscript, ast.Attribute)) and any(
                    one is not None and one.what == "object" for one in self.held(part, target.value)
                )
                if is_stored:
                    name = ast.unparse(target)
                    text = f"`{name}` is bound to a new array in a stream's block and used outside of it"
                    self.uses.refuse(part, f"{text}; write into an existing array")

    def _used_outside(self, function: ast.AST, inside: set[ast.AST], name: str) -> int | None:
        """Return the line of a use of a name outside of a block, unless another block binds it before."""
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and node.id == name and node not in inside:
                if self.program.scopes[node].home_of(name) is not self.program.inner[function]:
                    continue
                if isinstance(node.ctx, ast.Load) and not self._is_bound_before(node, name, inside):
                    return node.lineno
        return None

    def _is_bound_before(self, node: ast.Name, name: str, inside: set[ast.AST]) -> bool:
        """Tell whether other code earlier in the same suite, or in one around it, has bound a name since the block."""
        program = self.program
        at: ast.AST = program.statement(node)
        while isinstance(at, ast.stmt):
            parent = program.parents[at]
            for suite in suites_of(parent):
                if at in suite:
                    for earlier in suite[: suite.index(at)]:
                        if any(found == name and part not in inside for found, part in bindings_in(earlier)):
                            return True
            at = parent
            if isinstance(at, (*FUNCTIONS, ast.Module)):
                break
        return False


def _uncovered(operation: StreamOperation, word: str) -> NotABlockError:
    text = f"`{operation.call}` {word} an array that no expression of the stream's block names; pass it by a name"
    return NotABlockError(operation.place.line, text)
