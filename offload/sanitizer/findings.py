"""Findings: what the sanitizer reports, merged by rule and pair of lines, and the comments that silence one.

`FindingStore` takes every occurrence. Which of them are findings is known later, since a race on the same bytes may
come to light after another rule has seen a fault there. `FindingStore.settled` therefore works out the findings when
somebody asks for them.
"""

from __future__ import annotations

import linecache
import re
from dataclasses import asdict, dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from offload.sanitizer.states import FindingRule, Runs

MOST_FINDINGS = 200
"""The findings that are reported one by one; the others are counted."""

_SILENCE = re.compile(r"#\s*offload:\s*ignore\b(?:\[([^\]]*)\])?")


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
        return _mimebundle((self,))


class FindingList(tuple[Finding, ...]):
    """The findings of a runtime, which a notebook shows as the report does."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return _mimebundle(self)


class ItemPart(NamedTuple):
    """A box of an array: its name, for each dimension the first index and the one after the last, and its address."""

    name: str
    box: tuple[tuple[int, int], ...]
    address: int

    @property
    def elements(self) -> str:
        """The box as slices."""
        return f"[{', '.join(f'{lo}:{hi}' for lo, hi in self.box)}]" if self.box else "[()]"

    def joined(self, other: ItemPart) -> ItemPart:
        """Return the smallest box around both; of two different layouts the first one."""
        if len(self.box) != len(other.box):
            return self
        pairs = zip(self.box, other.box, strict=True)
        return ItemPart(self.name, tuple((min(a[0], b[0]), max(a[1], b[1])) for a, b in pairs), self.address)


class Remedy(NamedTuple):
    """A fix for any array: ``{}`` in the text stands for the names of the arrays.

    For ``depend`` the text is made at the end, from all accesses of the two lines (`_depend_text`).
    """

    kind: str
    text: str
    file: str
    line: int


class Occurrence(NamedTuple):
    """Something that was seen; equal ones are counted. ``runs`` are its bytes, on the host where they are mapped.

    ``writes`` says of both sides whether a dependence has to name the array as one that is written.
    """

    rule: FindingRule
    part: ItemPart
    first: Side
    second: Side | None
    remedy: Remedy
    runs: Runs
    writes: tuple[bool, bool] = (False, False)


class Summary(NamedTuple):
    """The findings of a run, how many more there are, and how much was examined."""

    findings: FindingList
    more: int
    silenced: int
    accesses: int
    not_seen: tuple[str, ...]

    @property
    def text(self) -> str:
        """The whole report."""
        lines = ["".join(text for text, _ in segments(finding)) for finding in self.findings]
        return "\n".join([*lines, last_line(self)])

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


_RANKS = {"copy": 0, "map": 1, "write": 2, "read": 3}


def _rank_of(occurrence: Occurrence) -> tuple[Any, ...]:
    sides = (occurrence.first, occurrence.second or occurrence.first)
    return *(_RANKS[side.what] for side in sides), *(side.name for side in sides), occurrence.remedy


def merged(summaries: Sequence[Summary]) -> Summary:
    """Return the findings of several runtimes, merged by rule and pair of lines."""
    found: dict[tuple[Any, ...], Finding] = {}
    for summary in summaries:
        for finding in summary.findings:
            key = finding.rule, finding.first.file, finding.first.line, _line_of(finding.second)
            known = found.get(key)
            found[key] = finding if known is None else replace(known, count=known.count + finding.count)
    findings = sorted(found.values(), key=_place_of)
    return Summary(
        FindingList(findings[:MOST_FINDINGS]),
        max(0, len(findings) - MOST_FINDINGS) + sum(summary.more for summary in summaries),
        sum(summary.silenced for summary in summaries),
        sum(summary.accesses for summary in summaries),
        tuple(dict.fromkeys(text for summary in summaries for text in summary.not_seen)),
    )


class _Merged:
    """The occurrences of one rule and pair of lines."""

    def __init__(self, first: Occurrence) -> None:
        self.first = first
        self.count = 0
        self.parts: list[ItemPart] = []
        self.writes: set[tuple[bool, bool]] = set()

    def add(self, occurrence: Occurrence, count: int) -> None:
        self.count += count
        self.writes.add(occurrence.writes)
        self.first = min(self.first, occurrence, key=_rank_of)  # whichever this run has come to first
        part = occurrence.part
        for number, known in enumerate(self.parts):
            if known.name == part.name or known.address == part.address:
                self.parts[number] = known.joined(part) if _is_name(known.name) else part.joined(known)
                return
        self.parts.append(part)

    def finding(self) -> Finding:
        rule, _, first, second, remedy, *_ = self.first
        parts = sorted(self.parts)  # this run may have come to another one first
        names = ", ".join(dict.fromkeys(part.name for part in parts))
        text = remedy.text if remedy.kind != "depend" else self._depend_text()
        fix = Fix(remedy.kind, text.replace("{}", names), remedy.file, remedy.line)
        elements = ", ".join(part.elements for part in parts)
        return Finding(rule.value, names, elements, first, second, fix, max(self.count, 1))

    def _depend_text(self) -> str:
        """Return the clauses for both tasks, by what each does with the arrays."""
        types = []
        for side in (0, 1):
            uses = {writes[side] for writes in self.writes}
            types.append("in_" if uses == {False} else "out" if uses == {True} else "inout")
        first, second = self.first.first, self.first.second
        assert second is not None
        if types[0] == types[1]:
            return f"depend=[{types[0]}({{}})] on both tasks"
        return f"depend=[{types[0]}({{}})] on {first.name}, depend=[{types[1]}({{}})] on {second.name}"


class FindingStore:
    """All occurrences of a runtime."""

    def __init__(self) -> None:
        self._counts: dict[Occurrence, int] = {}

    def add(self, occurrence: Occurrence, count: int = 1) -> None:
        """Note an occurrence; one with the count 0 is a finding too, if nothing else counts at its lines."""
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
    yield from (_line_of(occurrence.first), _line_of(occurrence.second))


def _line_of(side: Side | None) -> tuple[str, int]:
    return ("", 0) if side is None else (side.file, side.line)


def _place_of(finding: Finding) -> tuple[Any, ...]:
    second = finding.second or finding.first
    return finding.first.file, finding.first.line, second.file, second.line, finding.rule


def _is_name(text: str) -> bool:
    return "[" not in text


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


# -- the text ----------------------------------------------------------------------------------------
_TITLES = {
    "stale-host": "the host reads data that is newer on a device",
    "stale-device": "a device reads data that is newer on the host",
    "uninitialised": "data is read that nobody has written",
    "race": "nothing orders two accesses",
    "leak": "storage is never released",
}
_VERBS = {"read": "read", "write": "written", "copy": "copied", "map": "mapped"}

_STYLES = {"bold red": "font-weight:bold;color:#b00", "cyan": "color:#067", "bold green": "font-weight:bold;color:#060"}
"""What the styles of segments are in HTML."""


def segments(finding: Finding) -> list[tuple[str, str]]:
    """Return the lines about a finding as pieces of text, each with its style; no style is an empty one."""
    times = f" ({finding.count:,} times)" if finding.count > 1 else ""
    pieces = [(finding.rule, "bold red"), (f": {_TITLES[finding.rule]}: {_items(finding)}{times}\n", "")]
    for side in (finding.first, finding.second):
        if side is not None:
            pieces += [
                (f"  {_VERBS[side.what]:<8}", ""),
                (f"{side.file}:{side.line}", "cyan"),
                (f" in {side.name}: {source_line(side)}\n", ""),
            ]
    return [
        *pieces,
        (f"  {'fix':<8}", ""),
        (finding.fix.text, "bold green"),
        (f" at {finding.fix.file}:{finding.fix.line}\n", ""),
    ]


def _items(finding: Finding) -> str:
    names = finding.item.split(", ")
    boxes = [f"[{box}".rstrip(", ") for box in finding.elements.split("[")[1:]]
    if len(names) != len(boxes):
        return f"{finding.item} {finding.elements}"
    return ", ".join(name + box for name, box in zip(names, boxes, strict=True))


def last_line(summary: Summary) -> str:
    """Return the line that says how much was examined."""
    found = len(summary.findings) + summary.more
    parts = [f"offload sanitizer: {_counted(found, 'finding')} in {_counted(summary.accesses, 'access')} of this run"]
    if summary.more:
        parts.append(f"{summary.more:,} of them are not shown")
    if summary.silenced:
        parts.append(f"{_counted(summary.silenced, 'more finding')} silenced by comments")
    if summary.not_seen:
        parts.append("not seen: " + "; ".join(summary.not_seen))
    return "; ".join(parts)


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("" if n == 1 else "es" if noun.endswith("s") else "s")


def _mimebundle(findings: Iterable[Finding]) -> dict[str, str]:
    """Return findings as text and as HTML, for notebooks."""
    pieces = [piece for finding in findings for piece in (*segments(finding), ("\n", ""))] or [("no findings", "")]
    text = "".join(text for text, _ in pieces).rstrip("\n")
    marked = [
        f'<span style="{_STYLES[style]}">{escape(text)}</span>' if style else escape(text) for text, style in pieces
    ]
    return {"text/plain": text, "text/html": f"<pre>{''.join(marked).rstrip()}</pre>"}
