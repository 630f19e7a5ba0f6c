"""The executions of a block: their accesses, and the expressions that name them."""

from __future__ import annotations

import ast
import copy
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from offload.arrays.sections import Section, covers
from offload.port.chains import is_pure, names_in
from offload.port.statements import bound_names, normal_text, passes_stored

if TYPE_CHECKING:
    from offload.port.facts import Recorded
    from offload.port.log import StreamOperation


class _ExecutionMarker(ast.NodeTransformer):
    """Puts expressions in the place of names."""

    def __init__(self, values: dict[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:  # as `ast.NodeTransformer` wants it
        """Return the value of a name."""
        return self._values.get(node.id, node)


@dataclass(slots=True)
class Offer:
    """An expression of a block that held a device array each time."""

    node: ast.expr
    order: int
    is_own: bool  # it stands in the block itself, not in a function that the block calls
    sections: dict[int, Section] = field(default_factory=dict)
    is_plain: bool = True
    is_moving: bool = False  # a container on the way to the array may hold another one later

    nbytes: int = 0  # of all sections


class BlockExecutions:
    """The executions of a block, with their accesses."""

    def __init__(self, recorded: Recorded, members: list[ast.stmt], stored: set[str]) -> None:
        self.recorded = recorded
        self._stored = stored
        self.members = members
        self.parts = [part for node in members for part in ast.walk(node) if isinstance(part, ast.stmt)]
        self.begins = recorded.times[members[0]]
        self._by_activation: dict[int, list[int]] = {}
        for time in self.begins:
            self._by_activation.setdefault(recorded.marks[time].activation, []).append(time)
        self.accesses: dict[int, tuple[list[Section], list[Section]]] = {}
        self._operations: dict[tuple[int, Section], StreamOperation] = {}
        self._collect()

    def begin_of(self, time: int) -> int | None:
        """Return the mark with which the execution began that a mark belongs to."""
        begins = self._by_activation.get(self.recorded.marks[time].activation, [])
        at = bisect_right(begins, time)
        return begins[at - 1] if at else None

    def _collect(self) -> None:
        recorded = self.recorded
        for part in self.parts:
            facts = recorded.facts.get(part)
            for number in facts.operations if facts is not None else ():
                operation = recorded.log.operations[number]
                begin = self.begin_of(recorded.owners[number])
                if begin is None or operation.kind != "kernel":
                    continue
                first = recorded.marks[begin].storages
                reads, writes = self.accesses.setdefault(begin, ([], []))
                for found, sections in ((reads, operation.reads), (writes, operation.writes)):
                    for section in sections:
                        whole = Section(*section[:4])
                        is_made_here = found is reads and any(covers(written, whole) for written in writes)
                        if section.space < first and not is_made_here:  # type: ignore[operator]  # a number
                            self._operations.setdefault((begin, whole), operation)
                            if whole not in found:
                                found.append(whole)

    def operation_of(self, begin: int, section: Section) -> StreamOperation:
        """Return the first operation of an execution with an access."""
        return self._operations[begin, section]

    def offers(self) -> dict[str, Offer]:
        """Return the expressions that held a device array at the beginning of each execution, by their text."""
        offers: dict[str, Offer] = {}
        bound: set[str] = set()
        for member in self.members:
            inside = bound | (bound_names(member) if hasattr(member, "body") else set())
            for part in ast.walk(member):
                if isinstance(part, ast.stmt):
                    self._offer(part, inside, offers)
            bound |= bound_names(member)
        n_executions = len(self.begins)
        complete = [(text, offer) for text, offer in offers.items() if len(offer.sections) == n_executions]
        return dict(sorted(complete, key=lambda pair: pair[1].order))

    def _offer(self, part: ast.stmt, bound: set[str], offers: dict[str, Offer]) -> None:
        """Offer the chains of a statement, and those of functions that it called, as far as they mean the same here."""
        for time in self.recorded.times.get(part, ()):
            self._offer_at(time, time, bound, offers)
        for statement in self.recorded.inner_of(part):
            for time in self.recorded.times.get(self.recorded.statement_at(statement), ()):
                climbed = self.recorded.climbed(time)
                if climbed >= 0 and self.recorded.statement_at(climbed) is part:
                    self._offer_at(time, climbed, bound, offers)

    def _offer_at(self, time: int, outer: int, bound: set[str], offers: dict[str, Offer]) -> None:
        """Offer the chains of the statement of one mark, which a mark of the block led to."""
        begin = self.begin_of(outer)
        recorded = self.recorded
        if begin is None:
            return
        for chain, held in zip(
            recorded.chains_of(recorded.statement_at(time)), recorded.marks[time].held, strict=False
        ):
            for length, one in enumerate(held):
                if one is None or one.what != "device" or one.section is None:
                    continue
                node = chain.prefix(length) if time == outer else self._translated(chain.prefix(length), time)
                if node is None or not bound.isdisjoint(names_in(node)):
                    continue
                offer = offers.setdefault(normal_text(node), Offer(node, len(offers), is_own=time == outer))
                if begin not in offer.sections:
                    offer.sections[begin] = section = Section(*one.section[:4])
                    offer.nbytes += section.nbytes
                offer.is_plain &= one.is_plain
                offer.is_moving |= passes_stored(self._stored, chain, held, length)

    def _translated(self, node: ast.expr, time: int) -> ast.expr | None:
        """Return an expression of a called function in the names of the block; None if it has none there."""
        recorded = self.recorded
        program = recorded.program
        while recorded.climbed(time) != time:
            inner = recorded.statement_at(time)
            function = program.function_of(inner)
            time = recorded.marks[time].caller
            arguments = self._arguments(recorded.statement_at(time), function)
            if arguments is None:
                return None
            own = program.inner[function]
            if any(name in own.bound and name not in arguments for name in names_in(node)):
                return None
            node = _ExecutionMarker(arguments).visit(copy.deepcopy(node))
        here = program.scopes[self.members[0]]
        for name in names_in(node):
            home = here.home_of(name)
            if home is None or not (home.is_module or home is program.inner.get(program.function_of(self.members[0]))):
                return None
        return node

    def _arguments(self, statement: ast.stmt, function: ast.AST) -> dict[str, ast.expr] | None:
        """Return the arguments of the one call of a function in a statement, by parameters that keep their values."""
        program = self.recorded.program
        calls = [
            node for node in ast.walk(statement) if isinstance(node, ast.Call) and program.called(node) is function
        ]
        if len(calls) != 1 or not isinstance(function, ast.FunctionDef):
            return None
        (call,) = calls
        found: dict[str, ast.expr] = {}
        names = [
            name for name, bound in program.inner[function].bound.items() if bound[0].parameter and len(bound) == 1
        ]
        for name in names:
            passed = program.passed(call, function, name)
            if passed and is_pure(passed[0]):
                found[name] = passed[0]
        if program.n_hidden(call, function) and isinstance(call.func, ast.Attribute) and is_pure(call.func.value):
            found[function.args.args[0].arg] = call.func.value
        return found

    def covering(self, offers: dict[str, Offer], begin: int, part: Section) -> str | None:
        """Return the text of the smallest expression that covers an access, of the block itself if there is one."""
        found = [
            (not offer.is_own, offer.nbytes, not offer.is_plain, len(text), offer.order, text)
            for text, offer in offers.items()
            if covers(offer.sections[begin], part)
        ]
        return min(found)[-1] if found else None


def with_whole_arrays(chosen: dict[str, set[str]], offers: dict[str, Offer]) -> dict[str, set[str]]:
    """Return the chosen items, with the array in the place of three or more of its parts."""
    for text in sorted(offers, key=len, reverse=True):
        parts = [one for one in chosen if one != text and one.startswith((f"{text}[", f"{text}."))]
        if len(parts) > 2:
            modes = set().union(*(chosen.pop(one) for one in parts))
            chosen[text] = chosen.get(text, set()) | modes
    return chosen
