"""The names of modules and functions in a task form."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offload.port.program import ProgramText


@dataclass(frozen=True, slots=True)
class ModuleNames:
    """The names of modules and functions in the task form, which no name of the program hides."""

    offload: str
    numpy: str
    omp: str
    directives: str
    namespace: str
    imports_numpy: bool


def module_names(program: ProgramText) -> ModuleNames:
    """Return names of modules for a program."""
    taken = {node.id for node in ast.walk(program.tree) if isinstance(node, ast.Name)}
    taken |= {node.arg for node in ast.walk(program.tree) if isinstance(node, ast.arg)}

    def free(name: str) -> str:
        while name in taken:
            name += "_"
        return name

    scope = program.inner[program.tree]
    found = [name for name, bound in scope.bound.items() if len(bound) == 1 and bound[0].module == "numpy"]
    return ModuleNames(
        free("offload"),
        found[0] if found else free("np"),
        free("omp"),
        free("directives"),
        free("namespace"),
        bool(found),
    )
