"""Findings: what the sanitizer reports, merged by rule and pair of lines, and the comments that silence one.

`FindingStore` takes every occurrence. Which of them are findings is known later, since a race on the same bytes may
come to light after another rule has seen a fault there. `FindingStore.settled` therefore works out the findings when
somebody asks for them.
"""

from __future__ import annotations

import linecache
import re
from dataclasses import asdict, dataclass, field, replace
from enum import IntEnum
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from offload.sanitizer.depends import Need, clauses_fix, waiting_fix

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
    shown : str
        The access in the report's words, such as ``copied to device 0``. Empty: those of ``what``.
    """

    file: str
    line: int
    what: str
    name: str
    shown: str = field(default="", compare=False, repr=False)


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
        The line to edit: of the clauses, of the statement before which a call belongs, or after which a release does.
    shown : str
        The instruction as the report shows it. Empty: the text, before the line.
    """

    kind: str
    text: str
    file: str
    line: int
    shown: str = field(default="", compare=False, repr=False)


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
        found = asdict(self)
        for part in (found["first"], found["second"], found["fix"]):
            if part is not None:
                del part["shown"]
        return found

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
    """A fix for any array: ``{}`` in the texts stands for the names of the arrays.

    ``shown`` is a `Fix.shown`. ``item`` is the array's name in the line to edit, if it has another name there, and
    ``is_string`` says whether a clause there names it by a string.
    """

    kind: str
    text: str
    file: str
    line: int
    shown: str = ""
    item: str = ""
    is_string: bool = False


class Occurrence(NamedTuple):
    """Something that was seen; equal ones are counted. ``runs`` are its bytes, on the host where they are mapped.

    ``needs`` has the clauses that would order the two sides of a race (`offload.sanitizer.depends`).
    """

    rule: FindingRule
    part: ItemPart
    first: Side
    second: Side | None
    remedy: Remedy
    runs: Runs
    needs: tuple[Need, ...] = ()


class LateTasks(IntEnum):
    """The tasks that are complete only because of something that the program does after a line which could wait."""

    NONE = 0
    OTHERS = 1
    """Tasks that the line need not wait for."""
    FIRST = 2
    """The task of the first side itself."""


class Summary(NamedTuple):
    """The findings of a run, how many more there are, and how much was examined."""

    findings: FindingList
    more: int
    silenced: int
    accesses: int
    not_seen: tuple[str, ...]
    failure: str = ""  # the traceback of a mistake in the sanitizer itself

    @property
    def text(self) -> str:
        """The whole report."""
        lines = ["".join(text for text, _ in segments(finding)) for finding in self.findings]
        return "\n".join([*([failure_text(self)] if self.failure else ()), *lines, last_line(self)])

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
    words = ((_RANKS[side.what], side.name, side.shown) for side in sides)
    return *words, occurrence.remedy


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
        next((summary.failure for summary in summaries if summary.failure), ""),
    )


class _Merged:
    """The occurrences of one rule and pair of lines."""

    def __init__(self, first: Occurrence) -> None:
        self.first = first
        self.count = 0
        self.parts: list[ItemPart] = []
        self.needs: set[Need] = set()
        self.late = LateTasks.NONE
        # The names of the arrays in the line to edit, and whether they are strings there.
        self.items: set[tuple[str, bool]] = set()
        self.last = first.remedy

    def add(self, occurrence: Occurrence, count: int, late: LateTasks) -> None:
        self.count += count
        self.late = max(self.late, late)
        remedy, part = occurrence.remedy, occurrence.part
        self.needs.update(need if need.item else need._replace(item=part.name) for need in occurrence.needs)
        self.first = min(self.first, occurrence, key=_rank_of)  # whichever this run has come to first
        self.last = max(self.last, remedy, key=lambda one: (one.file, one.line))
        if remedy.item:
            self.items.add((remedy.item, remedy.is_string))
        for number, known in enumerate(self.parts):
            if known.name == part.name or known.address == part.address:
                self.parts[number] = known.joined(part) if _is_name(known.name) else part.joined(known)
                return
        self.parts.append(part)

    def finding(self) -> Finding:
        rule, _, first, second, *_ = self.first
        parts = sorted(self.parts)  # this run may have come to another one first
        names = [*dict.fromkeys(part.name for part in parts)]
        elements = ", ".join(part.elements for part in parts)
        return Finding(rule.value, ", ".join(names), elements, first, second, self._fix(names), max(self.count, 1))

    def _fix(self, names: list[str]) -> Fix:
        # Storage of several arrays is released after the last use of any.
        remedy = self.last if self.first.rule.value == "leak" else self.first.remedy
        if remedy.kind == "depend" and self.needs:
            return Fix("depend", *clauses_fix(self.needs))
        if self.late is LateTasks.OTHERS:
            return Fix("wait", *waiting_fix(self.needs, remedy.file, remedy.line))
        place = f"{remedy.file}:{remedy.line}"
        if self.late is LateTasks.FIRST:
            shown = f"fulfil the event of {self.first.first.name} and call {remedy.text} before {place}"
            return Fix("wait", remedy.text, remedy.file, remedy.line, shown)
        items = sorted(self.items) or [(name, False) for name in names]
        text = remedy.text.replace("{}", ", ".join(name for name, _ in items))
        shown = remedy.shown or f"call {remedy.text} before {place}"
        shown = shown.replace("{}", ", ".join(f'"{name}"' if is_string else name for name, is_string in items))
        if text not in shown:  # the standard's clause, and how the program spells it
            shown = f"{text}: {shown}"
        return Fix(remedy.kind, text, remedy.file, remedy.line, shown)


class FindingStore:
    """All occurrences of a runtime."""

    def __init__(self) -> None:
        self._counts: dict[Occurrence, int] = {}

    def add(self, occurrence: Occurrence, count: int = 1) -> None:
        """Note an occurrence; one with the count 0 is a finding too, if nothing else counts at its lines."""
        self._counts[occurrence] = self._counts.get(occurrence, 0) + count

    def settled(
        self, counts: Callable[[Occurrence], bool], late: Callable[[Occurrence], LateTasks] = lambda _: LateTasks.NONE
    ) -> tuple[FindingList, int, int]:
        """Return the findings, the number of those beyond `MOST_FINDINGS`, and the number of silenced ones.

        ``counts`` says which occurrences are findings, and ``late`` which tasks a wait before the second side would
        wait for in vain.
        """
        merged: dict[tuple[Any, ...], _Merged] = {}
        for occurrence, count in self._counts.items():
            if counts(occurrence):
                key = occurrence.rule, *_lines_of(occurrence)
                merged.setdefault(key, _Merged(occurrence)).add(occurrence, count, late(occurrence))
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
    "uninitialised": "a device reads its copy of data, but nothing was copied to it",
    "race": "nothing orders two accesses",
    "leak": "storage is never released",
}
_COPIED_BACK = "the host reads data that was copied back, but the device never wrote it"
_COUNTED = {"race": "pairs of accesses", "leak": "arrays"}
_VERBS = {"read": "read", "write": "written", "copy": "copied", "map": "mapped"}

_STYLES = {"bold red": "font-weight:bold;color:#b00", "cyan": "color:#067", "bold green": "font-weight:bold;color:#060"}
"""What the styles of segments are in HTML."""


def segments(finding: Finding) -> list[tuple[str, str]]:
    """Return the lines about a finding as pieces of text, each with its style; no style is an empty one."""
    rule, sides = finding.rule, [side for side in (finding.first, finding.second) if side is not None]
    times = f" ({finding.count:,} {_COUNTED.get(rule, 'reads')})" if finding.count > 1 else ""
    title = _COPIED_BACK if rule == "uninitialised" and finding.first.what == "copy" else _TITLES[rule]
    pieces = [(rule, "bold red"), (f": {title}: {_items(finding)}{times}\n", "")]
    verbs = [side.shown or _VERBS[side.what] for side in sides]
    width = max(7, *map(len, verbs))
    for side, verb in zip(sides, verbs, strict=True):
        text = source_line(side)
        pieces += [
            (f"  {verb:<{width}} ", ""),
            (f"{side.file}:{side.line}", "cyan"),
            (f" in {side.name}{': ' if text else ''}{text}\n", ""),
        ]
    fix = finding.fix
    shown = fix.shown or f"{fix.text} before {fix.file}:{fix.line}"
    return [*pieces, (f"  {'fix':<{width}} ", ""), (shown, "bold green"), ("\n", "")]


def _items(finding: Finding) -> str:
    names = finding.item.split(", ")
    boxes = [f"[{box}".rstrip(", ") for box in finding.elements.split("[")[1:]]
    if len(names) != len(boxes):
        return f"{finding.item} {finding.elements}"
    return ", ".join(name + box for name, box in zip(names, boxes, strict=True))


def failure_text(summary: Summary) -> str:
    """Return the text about a mistake in the sanitizer itself."""
    return f"error: the sanitizer failed, and findings may be missing; please report this:\n{summary.failure}"


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
