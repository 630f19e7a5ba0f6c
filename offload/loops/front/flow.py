"""Which variables have a value where: the rules ``unbound`` and ``carried``.

The pass follows the statements in the order of the text with the set of variables that have a value on every path; None
stands for an unreachable place. The head of a loop is repeated until its set no longer shrinks. After a loop its
variable has no value. An iteration starts with its own variables only. If it reads a variable before assigning it, the
variable is *carried* if an iteration assigns it, *unbound* if nothing did, and otherwise comes from before the loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from offload.loops.tree import ir
from offload.loops.tree.nodes import expressions_of, names_assigned, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# The variables that have a value on every path to a place; None where there is no path.
State = frozenset[str] | None


@dataclass(slots=True)
class _LoopEnds:
    """The ends of a loop's trips."""

    broken: State = None  # at each ``break``
    continued: State = None  # at each ``continue``


@dataclass(slots=True)
class Flow:
    """A pass over statements."""

    # Is told of a variable, and of the place where it is read without a value; raises the error, or notes it.
    unset: Callable[[str, ir.SourceLine], None]
    given: frozenset[str]  # what has a value whatever the statements do
    flags: set[str]  # the variables that tell whether a `break` has left a loop
    ends: State = None  # the variables that have a value at each `continue` of the iteration itself
    _loops: list[_LoopEnds] = field(default_factory=list)  # the loops around the statement that is looked at now

    def through(self, statements: Sequence[ir.Statement], state: State) -> State:
        """Return the variables that have a value after statements."""
        number = 0
        while number < len(statements):
            node = statements[number]
            following = statements[number + 1] if number + 1 < len(statements) else None
            if isinstance(node, (ir.For, ir.While)):
                ended, broken = self._loop(node, state)
                if isinstance(following, ir.If) and self._is_else(following):
                    state = _meet(self.through(following.then, ended), broken)
                    number += 1
                else:
                    state = _meet(ended, broken)
            else:
                state = self._statement(node, state)
            number += 1
        return state

    def read(self, nodes: Iterable[ir.Expression | None], state: State) -> None:
        """Check the variables and arrays that expressions read."""
        if state is None:
            return
        for node in walk(*(node for node in nodes if node is not None)):
            if isinstance(node, ir.Name):
                self._check(node.name, node.place, state)
            elif isinstance(node, ir.Load):
                self._check(node.array, node.place, state)

    def _check(self, name: str, place: ir.SourceLine, state: frozenset[str]) -> None:
        if name not in state and name not in self.given:
            self.unset(name, place)

    def _is_else(self, node: ir.If) -> bool:
        match node.condition:
            case ir.Unary(operator="not", operand=ir.Name(name=name)):
                return name in self.flags
            case _:
                return False

    def _statement(self, node: ir.Statement, state: State) -> State:
        if state is None:
            return None
        match node:
            case ir.If():
                self.read([node.condition], state)
                return _meet(self.through(node.then, state), self.through(node.otherwise, state))
            case ir.Break():
                self._loops[-1].broken = _meet(self._loops[-1].broken, state)
                return None
            case ir.Continue():
                if self._loops:
                    self._loops[-1].continued = _meet(self._loops[-1].continued, state)
                else:
                    self.ends = _meet(self.ends, state)
                return None
            case _:
                self.read(expressions_of(node), state)
                if isinstance(node, (ir.Store, ir.Atomic)):
                    self._check(node.array, node.place, state)
                return state if isinstance(node, ir.Reduce) else state | names_assigned(node)

    def _loop(self, node: ir.For | ir.While, state: State) -> tuple[State, State]:
        """Return the variables that have a value after a loop's end, and after a ``break``."""
        if isinstance(node, ir.For):
            self.read([node.start, node.stop, node.step], state)
        head = state
        while True:
            loop = _LoopEnds()
            self._loops.append(loop)
            if isinstance(node, ir.While):
                self.read([node.condition], head)
                end = self.through(node.body, head)
            else:
                end = self.through(node.body, None if head is None else head | {node.variable})
            self._loops.pop()
            end = _meet(end, loop.continued)
            if isinstance(node, ir.For) and end is not None:
                end -= {node.variable}
            met = _meet(head, end)
            if met == head:
                break
            head = met
        if isinstance(node, ir.While):
            is_endless = isinstance(node.condition, ir.Constant) and bool(node.condition.value)
            return None if is_endless else head, loop.broken
        broken = loop.broken
        ended = end if _has_trips(node) else head
        hidden = {node.variable}
        return (None if ended is None else ended - hidden), (None if broken is None else broken - hidden)


def _meet(one: State, other: State) -> State:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _has_trips(node: ir.For) -> bool:
    match node.start, node.stop, node.step:
        case ir.Constant(value=int(start)), ir.Constant(value=int(stop)), ir.Constant(value=int(step)) if step:
            return len(range(start, stop, step)) > 0
        case _:
            return False
