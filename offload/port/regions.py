"""The names of code of the module that becomes a function in a task form."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from offload.port.chains import names_in
from offload.port.pieces import Role
from offload.port.program import FUNCTIONS, SYNC

if TYPE_CHECKING:
    from offload.port.parts import FormParts
    from offload.port.program import ProgramText


class RegionNames:
    """The names that code of a module needs from outside, and outside from it, when it becomes a function."""

    def __init__(self, program: ProgramText, parts: FormParts, body: list[ast.stmt]) -> None:
        self.program = program
        self.obstacles: list[tuple[ast.AST, str]] = []
        module = program.inner[program.tree]
        inside = {node for statement in body for node in ast.walk(statement)}
        here = [node for node in inside if isinstance(node, ast.Name) and self._home(node) is module]
        assigned = {node.id for node in here if not isinstance(node.ctx, ast.Load) and not self._is_gone(node, parts)}
        assigned |= {node.name for node in body if isinstance(node, (*FUNCTIONS, ast.ClassDef))} | {
            (a.asname or a.name).partition(".")[0] for node in body if isinstance(node, ast.Import) for a in node.names
        }
        last = (body[-1].end_lineno or 0, body[-1].end_col_offset or 0)
        others = [
            node
            for node in ast.walk(program.tree)
            if isinstance(node, ast.Name) and node not in inside and node.id in assigned and self._home(node) is module
        ]
        functional = {
            node.id
            for node in ast.walk(program.tree)
            if isinstance(node, ast.Name) and node.id in assigned and self._home(node) is module
            if self._is_in_function(node)
        }
        self.kept_global = sorted(functional)
        in_blocks = set().union(
            *(names_in(member) for block in parts.blocks.values() for member in block.members), set()
        )
        for name in self.kept_global:
            if name in in_blocks:
                self.obstacles.append(
                    (body[0], f"`{name}` is used by functions and in streams' blocks of the module; pass it")
                )
        order = [node.id for node in sorted(here, key=lambda node: (node.lineno, node.col_offset))]
        after = {
            node.id for node in others if isinstance(node.ctx, ast.Load) and (node.lineno, node.col_offset) >= last
        }
        before = {node.id for node in others if not isinstance(node.ctx, ast.Load) and node.lineno < body[0].lineno}
        read = {node.id for node in here if isinstance(node.ctx, ast.Load)}
        read |= {
            node.target.id for node in inside if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
        }
        plain = [name for name in dict.fromkeys(order) if name in assigned and name not in functional]
        self.returned = [name for name in plain if name in after]
        self.passed = [name for name in plain if name in before and (name in read or name in after)]

    def _home(self, node: ast.Name) -> object:
        return self.program.scopes[node].home_of(node.id)

    def _is_in_function(self, node: ast.Name) -> bool:
        return self.program.function_of(node) is not self.program.tree

    def _is_gone(self, node: ast.Name, parts: FormParts) -> bool:
        """Tell whether the binding of a name disappears, or belongs to a block alone."""
        statement = self.program.statement(node)
        if self.program.kind(node) == SYNC:
            return True
        role = parts.roles.get(statement)
        return role is Role.DROP or (role is Role.BLOCK and not isinstance(statement, ast.AugAssign))
