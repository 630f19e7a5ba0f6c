"""Findings: what the sanitizer reports, merged by rule and pair of lines, and the comments that silence one.

`FindingStore` takes every occurrence. Which of them are findings is known later, since a race on the same bytes may
come to light after another rule has seen a fault there. `FindingStore.settled` therefore works out the findings when
somebody asks for them.
"""

from __future__ import annotations

import linecache
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from offload.sanitizer.states import FindingRule, Runs

MOST_FINDINGS = 200
"""The findings that are reported one by one; the others are counted."""

_SILENCE = re.compile(r"#\s*offload:\s*ignore(?:\[([^\]]*)\])?")


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two accesses of a finding.

    Attributes
    ----------
    file, line : str, int
        The place in the program: the line of the operation, or of the construct that a copy belongs to. The name of the
        file is absolute.
    what : str
        ``"read"``, ``"write"``, ``"copy"`` or ``"map"``.
    name : str
        The name of the task, stream or thread.
    """

    file: str
    line: int
    what: str
    name: str


@dataclass(frozen=True, slots=True)
class Fix:
    """The clause or call that is missing.

    Attributes
    ----------
    kind : str
        ``"map"``, ``"update"``, ``"depend"``, ``"wait"``, ``"detach"`` or ``"free"``.
    text : str
        The clause or call.
    file, line : str, int
        The place where it belongs.
    """

    kind: str
    text: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Finding:
    """A missing clause or call that the sanitizer has found.

    Attributes
    ----------
    rule : str
        ``"stale-host"``, ``"stale-device"``, ``"uninitialised"``, ``"race"`` or ``"leak"``.
    item : str
        The name of the array.
    elements : str
        The smallest box of the array that holds the elements concerned, as slices: ``"[256:512]"``.
    first : Side
        The earlier access, or the construct that made the storage.
    second : Side or None
        The later access; None for a leak.
    fix : Fix
        What is missing.
    count : int
        How often the two lines met.
    """

    rule: str
    item: str
    elements: str
    first: Side
    second: Side | None
    fix: Fix
    count: int

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as the JSON report has it."""
        return asdict(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from offload.sanitizer.report import mimebundle

        return mimebundle((self,))


class FindingList(tuple[Finding, ...]):
    """The findings of a runtime, which a notebook shows as the report does."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from offload.sanitizer.report import mimebundle

        return mimebundle(self)


class ArrayPart(NamedTuple):
    """A box of an array: its name, and for each dimension the first index and the one after the last."""

    name: str
    box: tuple[tuple[int, int], ...]

    @property
    def elements(self) -> str:
        """The box as slices."""
        return f"[{', '.join(f'{lo}:{hi}' for lo, hi in self.box)}]" if self.box else "[()]"

    def joined(self, other: ArrayPart) -> ArrayPart:
        """Return the smallest box around both; of two different layouts the first one."""
        if len(self.box) != len(other.box):
            return self
        pairs = zip(self.box, other.box, strict=True)
        return ArrayPart(self.name, tuple((min(a[0], b[0]), max(a[1], b[1])) for a, b in pairs))


class Remedy(NamedTuple):
    """A fix for any array: ``{}`` in the text stands for the names of the arrays."""

    kind: str
    text: str
    file: str
    line: int


class Occurrence(NamedTuple):
    """Something that was seen; equal ones are counted. ``runs`` are its bytes, on the host where they are mapped."""

    rule: FindingRule
    part: ArrayPart
    first: Side
    second: Side | None
    remedy: Remedy
    runs: Runs


class Summary(NamedTuple):
    """The findings of a run, how many more there are, and how much was examined."""

    findings: FindingList
    more: int
    silenced: int
    accesses: int
    not_seen: tuple[str, ...]

    def as_json(self, program: Sequence[str]) -> dict[str, Any]:
        """Return the report that ``offload run --sanitize --report`` writes."""
        return {
            "version": 1,
            "program": [*program],
            "accesses": self.accesses,
            "not_seen": [*self.not_seen],
            "findings": [finding.as_dict() for finding in self.findings],
            "more": self.more,
            "silenced": self.silenced,
        }


class _Merged:
    """The occurrences of one rule and pair of lines."""

    def __init__(self, first: Occurrence) -> None:
        self.first = first
        self.count = 0
        self.parts: dict[str, ArrayPart] = {}

    def add(self, occurrence: Occurrence, count: int) -> None:
        self.count += count
        part = occurrence.part
        known = self.parts.get(part.name)
        self.parts[part.name] = part if known is None else known.joined(part)

    def finding(self) -> Finding:
        rule, _, first, second, remedy, _ = self.first
        names = ", ".join(self.parts)
        fix = Fix(remedy.kind, remedy.text.replace("{}", names), remedy.file, remedy.line)
        elements = ", ".join(part.elements for part in self.parts.values())
        return Finding(rule.value, names, elements, first, second, fix, self.count)


class FindingStore:
    """All occurrences of a runtime."""

    def __init__(self) -> None:
        self._counts: dict[Occurrence, int] = {}

    def add(self, occurrence: Occurrence, count: int = 1) -> None:
        """Note an occurrence."""
        self._counts[occurrence] = self._counts.get(occurrence, 0) + count

    def settled(self, counts: Callable[[Occurrence], bool]) -> tuple[FindingList, int, int]:
        """Return the findings, the number of those beyond `MOST_FINDINGS`, and the number of silenced ones.

        ``counts`` says which occurrences are findings.
        """
        merged: dict[tuple[Any, ...], _Merged] = {}
        for occurrence, count in self._counts.items():
            if counts(occurrence):
                key = occurrence.rule, *_lines_of(occurrence)
                merged.setdefault(key, _Merged(occurrence)).add(occurrence, count)
        shown = [one.finding() for one in merged.values() if not _is_silenced(one.first)]
        shown.sort(key=_place_of)
        return FindingList(shown[:MOST_FINDINGS]), max(0, len(shown) - MOST_FINDINGS), len(merged) - len(shown)


def _lines_of(occurrence: Occurrence) -> Iterable[Any]:
    for side in (occurrence.first, occurrence.second):
        yield from ("", 0) if side is None else (side.file, side.line)


def _place_of(finding: Finding) -> tuple[Any, ...]:
    second = finding.second or finding.first
    return finding.first.file, finding.first.line, second.file, second.line, finding.rule


def _is_silenced(occurrence: Occurrence) -> bool:
    """Tell whether a comment on the line of either side silences the rule."""
    for side in (occurrence.first, occurrence.second):
        if side is None:
            continue
        for found in _SILENCE.finditer(source_line(side)):
            rules = found[1]
            if rules is None or occurrence.rule.value in {name.strip() for name in rules.split(",")}:
                return True
    return False


def source_line(side: Side) -> str:
    """Return the text of a side's line; an empty one if there is no such file."""
    return linecache.getline(side.file, side.line).strip()
