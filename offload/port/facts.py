"""The marked run of a program, by its statements and their operations."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from offload.port.log import HOST, NULL
from offload.port.marks import chains_of
from offload.port.program import SYNC
from offload.port.statements import copy_shape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offload.port.chains import Chain
    from offload.port.log import PortLog, StreamOperation
    from offload.port.marks import MarkedRun
    from offload.port.program import ProgramText
    from offload.port.uses import StreamUses


@dataclass(slots=True)
class StatementFacts:
    """The operations of a statement in the run, in all its executions."""

    operations: list[int] = field(default_factory=list)
    streams: set[int] = field(default_factory=set)  # of its work on the device and its copies
    kinds: set[str] = field(default_factory=set)

    @property
    def works(self) -> bool:
        """Whether it works on the device or copies."""
        return bool(self.kinds & {"kernel", "to device", "to host", "callback"})


class Recorded:
    """The marked run of a program, by its statements.

    Parameters
    ----------
    program, uses
        The program's text.
    statements : list of ast.stmt
        Its statements, numbered.
    log, run
        The record of the run, and the marks.
    """

    def __init__(
        self, program: ProgramText, uses: StreamUses, statements: list[ast.stmt], log: PortLog, run: MarkedRun
    ) -> None:
        self.program = program
        self.uses = uses
        self.statements = statements
        self.log = log
        self.marks = run.marks
        self.raw_owners = run.owners
        self.converted = self._converted(run.owners)
        self.owners = [self.climbed(owner) for owner in run.owners]
        self._chains: dict[ast.stmt, list[Chain]] = {}
        self._inner: dict[ast.stmt, dict[int, int]] = {}
        self._spans: dict[int, tuple[int, int]] = {}
        self.facts: dict[ast.stmt, StatementFacts] = {}
        self.times: dict[ast.stmt, list[int]] = {}  # the marks of each statement
        for time, mark in enumerate(self.marks):
            self.times.setdefault(statements[mark.statement], []).append(time)
        for operation, owner in zip(log.operations, self.owners, strict=False):
            if owner >= 0:
                self._note(self.statement_at(owner), operation)

    def inner_of(self, node: ast.stmt) -> Iterator[int]:
        """Yield a mark for each statement of other functions that a statement ran."""
        if not self._inner:
            for time, mark in enumerate(self.marks):
                function = self.program.function_of(self.statements[mark.statement])
                climbed = self.climbed(time) if function not in self.converted else -1
                if climbed >= 0:
                    self._inner.setdefault(self.statement_at(climbed), {}).setdefault(mark.statement, time)
        yield from self._inner.get(node, {}).values()

    def statement_at(self, time: int) -> ast.stmt:
        """Return the statement of a mark."""
        return self.statements[self.marks[time].statement]

    def chains_of(self, statement: ast.stmt) -> list[Chain]:
        """Return the chains of a statement, whose values its marks have."""
        found = self._chains.get(statement)
        if found is None:
            found = self._chains[statement] = chains_of(statement)
        return found

    def _note(self, statement: ast.stmt, operation: StreamOperation) -> None:
        facts = self.facts.setdefault(statement, StatementFacts())
        facts.operations.append(operation.number)
        facts.kinds.add(operation.kind)
        if operation.kind in {"kernel", "to device", "to host", "callback"}:
            facts.streams.add(operation.stream)

    def _converted(self, owners: list[int]) -> set[ast.AST]:
        """Return the functions whose statements are considered by themselves: those that handle streams or copy."""
        program = self.program
        found: set[ast.AST] = {program.tree}
        for node in program.parents:
            if isinstance(node, (ast.Name, ast.Attribute)) and program.kind(node) == SYNC:
                found.add(program.function_of(node))
        for operation, owner in zip(self.log.operations, owners, strict=False):
            if operation.kind in {"to device", "to host"} and operation.stream not in {HOST, NULL} and owner >= 0:
                statement = self.statement_at(owner)
                if copy_shape(program, statement) is not None:
                    found.add(program.function_of(statement))
        return found

    def climbed(self, owner: int) -> int:
        """Return the mark of the innermost statement of a converted function that led to a mark."""
        while owner >= 0 and self.program.function_of(self.statement_at(owner)) not in self.converted:
            owner = self.marks[owner].caller
        return owner

    def callers(self, time: int) -> Iterator[int]:
        """Yield a mark, the mark that was current at the call of its function, and so on."""
        while time >= 0:
            yield time
            time = self.marks[time].caller

    def span_of(self, activation: int) -> tuple[int, int]:
        """Return the first mark of a call of a function, and the first one after it."""
        if not self._spans:
            ends: dict[int, int] = {}
            for time in range(len(self.marks) - 1, -1, -1):
                for one in self.callers(time):
                    inner = self.marks[one].activation
                    if inner in ends:
                        break
                    ends[inner] = time + 1
            for time, mark in enumerate(self.marks):
                self._spans.setdefault(mark.activation, (time, ends[mark.activation]))
        return self._spans[activation]

    def facts_in(self, node: ast.stmt) -> Iterator[tuple[ast.stmt, StatementFacts]]:
        """Yield the facts of a statement and of those in it."""
        for part in ast.walk(node):
            if isinstance(part, ast.stmt) and part in self.facts:
                yield part, self.facts[part]

    def has_run(self, node: ast.stmt) -> bool:
        """Tell whether the run came to a statement."""
        return node in self.times
