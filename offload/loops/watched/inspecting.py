"""The address slice of a nest with a log: it finds the elements that iterations touch, and changes none of them.

If indices, branches and bounds do not depend on the loop's writes, a log can be filled before the loop runs. The slice
has the control flow of the nest, the steps of the log, and the values that these need: scalars, and elements of arrays
that an iteration has for itself. All other stores, atomic steps and reductions are gone, and loops that are empty then.
An access that would be outside of its array is found all the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from offload.loops.proofs.affine import limits_of
from offload.loops.tree import ir
from offload.loops.tree.nodes import (
    can_divide_by_zero,
    expressions_of,
    locals_in,
    names_given,
    names_in,
    walk,
)
from offload.loops.tree.promotion import is_integer
from offload.loops.tree.uses import addressing
from offload.loops.watched.watching import Watched

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from offload.loops.tree.ir import Nest, Statement
    from offload.loops.tree.nodes import Node
    from offload.loops.watched.exchange_log import Logged
    from offload.loops.watched.needs import Needed


def can_be_inspected(nest: Nest, written: Collection[str], scalars: Mapping[str, bool | int | float]) -> bool:
    """Tell whether a nest has an address slice, and can only fail in ways that the slice finds.

    ``written`` are the arrays whose storage it may write. A division by one of ``scalars`` of the launch does not fail.
    """
    if not addressing(nest).arrays.isdisjoint(written):
        return False
    nodes = list(walk(*nest.body))
    own = names_given(*nest.body) | {axis.variable for axis in nest.axes}
    known = {name: value for name, value in scalars.items() if name not in own}
    return not any(isinstance(node, ir.Assert | ir.IndexCheck) or _may_fail(node, known) for node in nodes)


def _may_fail(node: Node, known: Mapping[str, bool | int | float]) -> bool:
    """Tell whether a node may divide integers by 0, where some scalars are known."""
    if not (isinstance(node, ir.Binary) and can_divide_by_zero(node)):
        return False
    match node.right:
        case ir.Name(name=name):
            return not known.get(name)
        case ir.Convert(to=ir.Type(dtype=dtype), operand=ir.Name(name=name)) if is_integer(dtype):
            low, high = limits_of(dtype)
            return not (low <= known.get(name, 0) <= high and known.get(name))
        case _:
            return True


def inspector(log: Logged, of: Needed) -> Logged:
    """Return the address slice of a nest that has a log, which flags any access outside of its array."""
    words = {log.flag, *log.writers.values(), *log.readers.values()}
    return log._replace(watched=address_slice(log.watched, words, of.nest.privates))


def address_slice(watched: Watched, words: Collection[str], privates: Collection[str]) -> Watched:
    """Return the part of a watched nest that only changes the words; nothing comes out of it.

    ``words`` and ``privates`` are arrays; each iteration has its own of the latter.
    """
    typed, nest, modes, given = watched
    own = locals_in(nest).keys() | set(privates)
    slice_ = _Slice(words, own)
    body = slice_.block(nest.body)
    while (again := slice_.block(nest.body)) != body:
        body = again
    kinds = {name: "private" if word == "lastprivate" else word for name, word in nest.privates.items()}
    nest = replace(nest, body=body, reductions=(), last=(), privates=kinds)
    function = replace(typed.function, parts=(nest,), returns=())
    return Watched(replace(typed, function=function), nest, modes, given)


class _Slice:
    def __init__(self, words: Collection[str], own: Collection[str]) -> None:
        self.words, self.own = words, own  # arrays of the log
        self.names: set[str] = set()  # scalars that the slice needs
        self.arrays: set[str] = set()  # local arrays that the slice needs
        self._reads: dict[int, tuple[set[str], set[str]]] = {}  # of statements of the nest, which outlive this

    def block(self, statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
        return tuple([made for one in statements if (made := self.statement(one)) is not None])

    def statement(self, node: Statement) -> Statement | None:
        original = node
        match node:
            case ir.Assign(name=name):
                kept = name in self.names
            case ir.Store(array=array) | ir.Atomic(array=array):
                kept = array in self.words or array in self.arrays
            case ir.Local(name=name):
                kept = name in self.arrays
            case ir.Reduce():
                kept = False
            case ir.If():
                node = replace(node, then=self.block(node.then), otherwise=self.block(node.otherwise))
                kept = bool(node.then or node.otherwise)
            case ir.For() | ir.While():
                node = replace(node, body=self.block(node.body))
                kept = bool(node.body)
            case _:
                kept = True
        if not kept:
            return None
        names, arrays = self.reads(original)
        self.names |= names
        self.arrays |= arrays
        return node

    def reads(self, node: Statement) -> tuple[set[str], set[str]]:
        """Return the scalars, and the arrays of the iteration's own, that a statement reads."""
        found = self._reads.get(id(node))
        if found is None:
            parts = expressions_of(node)
            loads = {one.array for one in walk(*parts) if isinstance(one, ir.Load)}
            found = self._reads[id(node)] = names_in(*parts), loads & set(self.own)
        return found
