"""The report of the sanitizer for people; the one file of the package that imports Rich."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from offload.sanitizer.findings import source_line

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import IO

    from offload.sanitizer.findings import Finding, Side, Summary

_TITLES = {
    "stale-host": "the host reads data that is newer on a device",
    "stale-device": "a device reads data that is newer on the host",
    "uninitialised": "data is read that nobody has written",
    "race": "nothing orders two accesses",
    "leak": "storage is never released",
}
_VERBS = {"read": "read", "write": "written", "copy": "copied", "map": "mapped"}
_WIDE = 10_000  # lines are not wrapped in files: editors find ``file:line``


def show(summary: Summary, file: IO[str] | None) -> None:
    """Print the findings of a run, or one line that says how much was examined."""
    if file is None:
        return
    console = Console(file=file, soft_wrap=True, highlight=False)
    for finding in summary.findings:
        console.print(_text_of(finding))
    console.print(_last_line(summary))


def mimebundle(findings: Iterable[Finding]) -> dict[str, str]:
    """Return findings as text and as HTML, for notebooks."""
    texts = [_text_of(finding) for finding in findings]
    console = Console(file=StringIO(), record=True, soft_wrap=True, highlight=False, width=_WIDE)
    for text in texts:
        console.print(text)
    html = console.export_html(inline_styles=True, code_format='<pre style="font-family:monospace">{code}</pre>')
    return {"text/plain": "\n".join(text.plain for text in texts) or "no findings", "text/html": html}


def _text_of(finding: Finding) -> Text:
    times = f" ({finding.count} times)" if finding.count > 1 else ""
    text = Text()
    text.append(finding.rule, style="bold red")
    text.append(f": {_TITLES[finding.rule]}: {_items(finding)}{times}\n")
    for side in (finding.first, finding.second):
        if side is not None:
            text.append(f"  {_VERBS[side.what]:<8}", style="dim")
            text.append(f"{side.file}:{side.line}", style="cyan")
            text.append(f" in {side.name}: {source_line(side)}\n")
    text.append(f"  {'fix':<8}", style="dim")
    text.append(finding.fix.text, style="bold green")
    text.append(f" at {finding.fix.file}:{finding.fix.line}\n")
    return text


def _items(finding: Finding) -> str:
    names = finding.item.split(", ")
    boxes = [f"[{box}" for box in finding.elements.split("[")[1:]]
    if len(names) != len(boxes):
        return f"{finding.item} {finding.elements}"
    return ", ".join(name + box.rstrip(", ") for name, box in zip(names, boxes, strict=True))


def _last_line(summary: Summary) -> str:
    found = len(summary.findings) + summary.more
    parts = [
        f"offload sanitizer: {_counted(found, 'finding')} in {_counted(summary.accesses, 'access', 'es')} of this run"
    ]
    if summary.more:
        parts.append(f"{summary.more} of them are not shown")
    if summary.silenced:
        parts.append(f"{summary.silenced} silenced by comments")
    if summary.not_seen:
        parts.append("not seen: " + "; ".join(summary.not_seen))
    return ". ".join(parts)


def _counted(n: int, noun: str, plural: str = "s") -> str:
    return f"{n:,} {noun}" + ("" if n == 1 else plural)


def describe(side: Side | None) -> str:
    """Return a side for a message: what happened, and where."""
    return "the end of the runtime" if side is None else f"{_VERBS[side.what]} at {side.file}:{side.line}"
