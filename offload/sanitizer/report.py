"""The report of the sanitizer for people; the one file of the package that imports Rich."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from offload.sanitizer.findings import failure_text, last_line, segments

if TYPE_CHECKING:
    from offload.sanitizer.findings import Summary


def show(summary: Summary, file: IO[str] | None) -> None:
    """Print the findings of a run, and a line that says how much was examined; ``file`` may be absent."""
    if file is None:
        return
    console = Console(file=file, soft_wrap=True, highlight=False)  # lines are not wrapped: editors find ``file:line``
    if summary.failure:
        console.print(Text(failure_text(summary), "bold red"))
    for finding in summary.findings:
        console.print(Text.assemble(*segments(finding)))
    console.print(Text(last_line(summary)))
