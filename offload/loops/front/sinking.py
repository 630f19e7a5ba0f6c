"""Scalar statements before a nest that read elements: they move to the head of each iteration.

Elements are on the device, so the host cannot carry out ``w = a[0]`` before the launch. Such a statement *sinks*: each
iteration carries it out, and finds the same value while no nest in between writes the array. A statement sinks too if
it reads a name that a sunk statement assigns, or assigns a name that a sunk statement reads or assigns.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from offload.loops.tree import ir
from offload.loops.tree.nodes import names_assigned, names_in, walk


@dataclass(slots=True)
class Sunk:
    """The statements that have sunk so far, with the names that they read and assign."""

    # with the part of the function that each stood before
    statements: list[tuple[int, ir.Statement]] = field(default_factory=list)
    assigned: set[str] = field(default_factory=set)  # scalars that they assign
    read: set[str] = field(default_factory=set)  # scalars that they read

    def takes(self, statement: ir.Statement, position: int) -> bool:
        """Take a statement if it has to sink; tell whether it has."""
        read, assigned = names_in(statement), names_assigned(statement)
        has_loads = any(isinstance(node, ir.Load) for node in walk(statement))
        if not has_loads and not read & self.assigned and not assigned & (self.assigned | self.read):
            return False
        self.statements.append((position, statement))
        self.read |= read
        self.assigned |= assigned
        return True

    def needed_by(self, nodes: tuple[ir.Statement, ...]) -> list[tuple[int, ir.Statement]]:
        """Return the statements whose results others read."""
        wanted = names_in(*nodes)
        needed: list[tuple[int, ir.Statement]] = []
        for position, statement in reversed(self.statements):
            if names_assigned(statement) & wanted or isinstance(statement, ir.Assert):
                needed.insert(0, (position, statement))
                wanted |= names_in(statement)
        return needed


def first_load(statement: ir.Statement, arrays: frozenset[str]) -> ir.Load | None:
    """Return a read of one of some arrays, if a statement has one."""
    for node in walk(statement):
        if isinstance(node, ir.Load) and node.array in arrays:
            return node
    return None


def written(statements: tuple[ir.Statement, ...]) -> frozenset[str]:
    """Return the arrays that statements change elements of; reductions' items among them."""
    found = set()
    for node in walk(*statements):
        match node:
            case ir.Store(array=name) | ir.Atomic(array=name) | ir.Reduce(name=name):
                found.add(name)
            case _:
                pass
    return frozenset(found)
