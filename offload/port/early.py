"""Expressions of a block that are evaluated before it, because they may hold something else when the block runs.

A block reads its names when it is encountered, and evaluates its expressions when it runs. The value of a variable is
therefore right, and so is the element of a list that never changes. An element of a host array is not: the host may
have changed it. Neither is an element of a list that the program stores into. Such expressions are bound to names
before the block. If that is impossible, since a loop of the block changes an index, the block must be a smaller one.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from offload.port.chains import is_pure
from offload.port.pieces import WHOLE
from offload.port.statements import bound_names, passes_stored, short_text
from offload.port.uses import Obstacle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from offload.port.chains import Chain, Held
    from offload.port.facts import Recorded
    from offload.port.pieces import BlockPart


class NotABlockError(Exception):
    """Statements cannot be one block."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.obstacle = Obstacle(line, text)


class EarlyValues:
    """Binds the expressions of a block that are evaluated before it.

    Parameters
    ----------
    recorded : Recorded
        The marked run.
    block : BlockPart
        The block, whose items are known. Receives the assignments before it, and the names that stand for expressions.
    stored : set of str
        The containers that the program stores into (`offload.port.statements.stored_bases`).
    fresh : callable
        Returns a name that the program does not use.
    """

    def __init__(self, recorded: Recorded, block: BlockPart, stored: set[str], fresh: Callable[[str], str]) -> None:
        self.recorded = recorded
        self.program = recorded.program
        self.uses = recorded.uses
        self.block = block
        self._stored = stored
        self._fresh = fresh
        self._names = {ast.unparse(node): name.removesuffix(WHOLE) for node, name in block.texts.items()}

    def bind(self) -> None:
        """Bind the expressions; raise `NotABlockError` if one of them depends on a variable of the block."""
        bound: set[str] = set()
        for member in self.block.members:
            inside = bound | (bound_names(member) if hasattr(member, "body") else set())
            for part in ast.walk(member):
                if isinstance(part, ast.stmt) and part in self.recorded.times:
                    for chain, held in self._chains_held(part):
                        self._bind_chain(part, chain, held, inside)
            bound |= bound_names(member)
        self._check_helpers()

    def _chains_held(self, node: ast.stmt) -> Iterator[tuple[Chain, tuple[Held | None, ...]]]:
        time = self.recorded.times[node][0]
        yield from zip(self.recorded.chains_of(node), self.recorded.marks[time].held, strict=False)

    def _bind_chain(self, part: ast.stmt, chain: Chain, held: tuple[Held | None, ...], bound: set[str]) -> None:
        is_free = bound.isdisjoint(chain.names)
        for prefix in range(len(chain.steps) + 1):
            node = chain.prefix(prefix)
            name = self._names.get(ast.unparse(node))
            if name is not None and is_free and self._may_replace(part, node):
                self.block.texts[node] = name
                return
        found = self._early(chain, held)
        if found is None or not self._may_replace(part, found):
            return
        if not is_free:
            text = f"`{ast.unparse(found)}` may change before a stream's block runs, and depends on its variables"
            raise NotABlockError(found.lineno, f"{text}; assign it to a variable before the block")
        word = "part" if any(one is not None and one.what == "device" for one in held) else "value"
        name = self._fresh(f"{chain.root}_{word}")
        self._names[ast.unparse(found)] = name
        self.block.before.append((f"{name} = {self.uses.text(found)}", found.lineno))
        self.block.texts[found] = name

    def _may_replace(self, part: ast.stmt, node: ast.expr) -> bool:
        """Tell whether a name for its value may stand for an expression: it does where an array changes in place."""
        is_stored = isinstance(getattr(node, "ctx", None), ast.Store)
        return not is_stored or (isinstance(part, ast.AugAssign) and part.target is node)

    def _early(self, chain: Chain, held: tuple[Held | None, ...]) -> ast.expr | None:
        """Return the expression around a chain, or the part of it, that is evaluated before the block, or None."""
        known = [one for one in held if one is not None]
        if any(one.what == "host" for one in known):
            is_number = len(known) == len(held) and held[-1] is not None and held[-1].what == "changing"
            return chain.node if is_number else self._host_call(chain)
        for length, one in enumerate(known):
            is_wanted = one.what == "device" or (one.what == "changing" and length == len(held) - 1)
            if is_wanted and passes_stored(self._stored, chain, held, length):
                return chain.prefix(length)
        return None

    def _host_call(self, chain: Chain) -> ast.expr:
        """Return the outermost call around an expression of a host array that gives a number, as ``h.max()``."""
        node: ast.AST = chain.node
        found: ast.expr | None = None
        while isinstance(parent := self.program.parents[node], ast.Call):
            name = self.program.dotted(parent.func) or ""
            is_method = parent.func is node and isinstance(node, ast.Attribute)
            is_function = name.startswith(("numpy.", "builtins."))
            others = [arg for arg in (*parent.args, *(one.value for one in parent.keywords)) if arg is not node]
            if not (is_method or is_function) or not all(map(is_pure, others)):
                break
            node = found = parent
        if found is None:
            text = f"the host array `{ast.unparse(chain.node)}` is used in a stream's block"
            raise NotABlockError(chain.node.lineno, f"{text}; copy it to the device before")
        return found

    # -- functions that the block calls ------------------------------------------------------------
    def _check_helpers(self) -> None:
        """Refuse functions that a block calls and that look at values which may be others when the block runs."""
        for part in self.block.executions.parts:
            for time in self.recorded.inner_of(part):
                inner = self.recorded.statement_at(time)
                for chain, held in zip(self.recorded.chains_of(inner), self.recorded.marks[time].held, strict=False):
                    if self._is_late(inner, chain, held):
                        text = f"`{ast.unparse(chain.node)}` changes, and a block of {short_text(part)} reads it later"
                        self.uses.refuse(chain.node, f"{text}; pass its value as an argument")

    def _is_late(self, inner: ast.stmt, chain: Chain, held: tuple[Held | None, ...]) -> bool:
        """Tell whether a chain in a function may hold something else when a block that calls the function runs."""
        function = self.program.function_of(inner)
        home = self.program.scopes[inner].home_of(chain.root)
        is_outer = home is not None and home is not self.program.inner.get(function)
        last = held[-1] if held else None
        if last is None or last.what == "object":
            return False
        if is_outer and home is not None and self.program.changes(home, chain.root):
            return True
        return any(passes_stored(self._stored, chain, held, length) for length in range(1, len(held)))
