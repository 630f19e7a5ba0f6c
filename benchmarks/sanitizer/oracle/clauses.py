"""Clauses of the oracle: maps and dependences, of arrays and of strings that name parameters."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass, field

from benchmarks.sanitizer.oracle.arrays import Array
from benchmarks.sanitizer.oracle.tasks import ALL


@dataclass(eq=False)
class Map:
    """Items of one map type."""

    kind: str
    items: tuple
    always: bool = False
    present: bool = False
    zero: bool = False


@dataclass(eq=False)
class Depend:
    """Items of one dependence type; a depend object has one that can change."""

    kind: str
    items: tuple


@dataclass
class Call:
    """A call of a function that a construct is over: its parameters, and the values of names in strings."""

    function: object
    args: tuple
    kwargs: dict
    bound: inspect.BoundArguments = field(default=None)

    def __post_init__(self):
        self.bound = inspect.signature(self.function).bind(*self.args, **self.kwargs)
        self.bound.apply_defaults()

    def names(self):
        """Return what strings in clauses see."""
        names = dict(self.function.__globals__)
        if self.function.__closure__:
            free = self.function.__code__.co_freevars
            names |= {n: c.cell_contents for n, c in zip(free, self.function.__closure__, strict=True)}
        return names | self.bound.arguments

    def value(self, item):
        """Return the value of an item, which may be a string in OpenMP's notation."""
        if not isinstance(item, str):
            return item
        tree = OpenMP().visit(ast.parse(item, mode="eval"))
        return eval(compile(ast.fix_missing_locations(tree), "<clause>", "eval"), self.names())

    def parameter(self, item):
        """Return the name of the parameter that an item is a part of."""
        if isinstance(item, str):
            root = ast.parse(item, mode="eval").body
            while not isinstance(root, ast.Name):
                root = root.value
            return root.id
        return next((n for n, v in self.bound.arguments.items() if v is item), None)


class OpenMP(ast.NodeTransformer):
    """Turn ``x[lower:length:stride]`` into Python's slices."""

    def visit_Slice(self, node):
        lower, length, step = (ast.unparse(part) if part else None for part in (node.lower, node.upper, node.step))
        lower, step = lower or "0", step or "1"
        upper = f"({lower}) + ({length} - 1) * ({step}) + 1" if length else "None"
        return ast.parse(f"_[{lower}:{upper}:{step}]", mode="eval").body.slice


def depends(call, clause):
    """Return the pairs of a type and a value of a `depend` clause."""
    found = []
    for one in clause or ():
        for item in one.items:
            value = item if call is None else call.value(item)
            values = value if isinstance(item, str) and type(value) is tuple and _is_var(call, item) else (value,)
            found += [(one.kind, part) for part in values]
    return found


def _is_var(call, item):
    """Tell whether a string names a ``*`` parameter."""
    found = inspect.signature(call.function).parameters.get(item)
    return found is not None and found.kind is inspect.Parameter.VAR_POSITIONAL


def maker(kind):
    """Return the function of a map type."""
    return lambda *items, always=False, present=False, **_: Map(kind, items, always, present)


def dependence(kind):
    """Return the function of a dependence type."""
    return lambda *items: Depend(kind, tuple(ALL if item is ALL else item for item in items))


def maps(clause, default):
    """Return the maps of a clause, whose bare items have the default type."""
    return [one if isinstance(one, Map) else Map(default, (one,)) for one in clause or ()]


def replaced(value, old, new):
    """Return an argument with a device array in place of a host array."""
    return new if isinstance(value, Array) and value is old else value
