"""The executions of a block: what each of them accessed, and which expressions named it."""

from __future__ import annotations

import ast
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from offload.arrays.sections import Section, covers
from offload.port.chains import names_in
from offload.port.marks import chains_of
from offload.port.statements import bound_names, normal_text, passes_stored

if TYPE_CHECKING:
    from offload.port.facts import Recorded
    from offload.port.log import StreamOperation


@dataclass(slots=True)
class Offer:
    """An expression of a block that held a device array each time."""

    node: ast.expr
    order: int
    sections: dict[int, Section] = field(default_factory=dict)
    is_plain: bool = True
    is_moving: bool = False  # a container on the way to the array may hold another one later

    @property
    def nbytes(self) -> float:
        """Bytes on average."""
        return sum(section.nbytes for section in self.sections.values()) / max(1, len(self.sections))


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
        chains = chains_of(part)
        seen: set[int] = set()
        for time in self.recorded.times.get(part, ()):
            begin = self.begin_of(time)
            if begin is None or begin in seen:
                continue
            seen.add(begin)
            for chain, held in zip(chains, self.recorded.marks[time].held, strict=False):
                for length, one in enumerate(held):
                    if one is None or one.what != "device" or one.section is None:
                        continue
                    node = chain.prefix(length)
                    if not bound.isdisjoint(names_in(node)):
                        continue
                    offer = offers.setdefault(normal_text(node), Offer(node, len(offers)))
                    offer.sections.setdefault(begin, Section(*one.section[:4]))
                    offer.is_plain &= one.is_plain
                    offer.is_moving |= passes_stored(self._stored, chain, held, length)

    def covering(self, offers: dict[str, Offer], begin: int, part: Section) -> str | None:
        """Return the text of the smallest expression that covers an access."""
        found = [
            (offer.nbytes, not offer.is_plain, len(text), offer.order, text)
            for text, offer in offers.items()
            if covers(offer.sections[begin], part)
        ]
        return min(found)[-1] if found else None
