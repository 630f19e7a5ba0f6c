"""The parts of a task form as values: roles of statements, blocks and copies."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ast

    from offload.port.executions import BlockExecutions


WHOLE: Final = "[...]"
"""The subscript with which an assignment fills an array that has a name."""


class Role(Enum):
    """The place of a statement in the task form."""

    KEEP = "keep"
    DROP = "drop"
    UNWRAP = "unwrap"  # `with STREAM:`: its block stays
    COPY = "copy"
    BLOCK = "block"
    WAIT = "wait"  # a `taskwait`, if it is needed


@dataclass(slots=True)
class CopyPart:
    """A copy between host and device."""

    statement: ast.stmt
    target: ast.expr
    source: ast.expr
    target_text: str = ""
    source_text: str = ""
    before: list[str] = field(default_factory=list)  # assignments that it needs
    to_host: bool = False


@dataclass(slots=True)
class BlockPart:
    """Statements that become a target region."""

    members: list[ast.stmt]
    executions: BlockExecutions
    modes: dict[str, set[str]] = field(default_factory=dict)  # items, with "in" and "out"
    before: list[tuple[str, int]] = field(default_factory=list)  # assignments that it needs, with their lines
    texts: dict[ast.AST, str] = field(default_factory=dict)  # expressions that are evaluated before

    @property
    def first(self) -> ast.stmt:
        """Its first statement, which stands for it."""
        return self.members[0]
