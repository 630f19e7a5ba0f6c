"""The critical path of a graph as a list that prints for people."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from offload.views.looks import look_at
from offload.views.words import KIND_SIGNS, duration_label, plural

if TYPE_CHECKING:
    from offload.tasks.graph import Node
    from offload.views.looks import Look

_MOST_ROWS = 40  # of the table in a notebook
_ROW_PX = 24
_BAR_PX = 240
_NAME_PX = 300


class CriticalPath(list["tuple[Node, float]"]):
    """The tasks of a critical path, as pairs of node and time in seconds, in the order in which they ran.

    Rich and notebooks show it as a table.
    """

    @property
    def time_s(self) -> float:
        """The time of its tasks together, in seconds."""
        return sum(time_s for _, time_s in self)

    def __repr__(self) -> str:
        from offload.views.terminal import plain_text  # imports Rich

        return plain_text(self)

    def __rich__(self) -> Any:
        from offload.views.terminal import PathView

        return PathView(self._looks())

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"image/svg+xml": self._svg(), "text/html": self._html(), "text/plain": repr(self)}

    def _looks(self) -> list[Look]:
        return [look_at(node) for node, _ in self]

    def _ends(self) -> list[Look | None]:
        """Return the tasks that a table shows; None stands for those left out."""
        looks = self._looks()
        half = _MOST_ROWS // 2
        return [*looks] if len(looks) <= _MOST_ROWS else [*looks[:half], None, *looks[-half:]]

    def _title(self) -> str:
        return f"Critical path: {plural(len(self), 'task')}" + (
            f", {duration_label(self.time_s)}" if self.time_s else ""
        )

    def _html(self) -> str:
        rows = []
        for look in self._ends():
            if look is None:
                rows.append(f'<tr><td colspan="4">… {plural(len(self) - _MOST_ROWS, "task")} …</td></tr>')
                continue
            time_s = look.time_s or 0
            share = f"{time_s / self.time_s:.0%}" if self.time_s else ""
            cells = (f"{KIND_SIGNS[look.kind]} {look.key}", look.place, duration_label(look.time_s), share)
            rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
        return (
            f"<table><caption>{escape(self._title())}</caption>"
            "<thead><tr><th>task</th><th>runs on</th><th>time</th><th>share</th></tr></thead>"
            f"<tbody>{''.join(rows)}</tbody></table>"
        )

    def _svg(self) -> str:
        from offload.views.svg import dark_style

        looks = self._ends()
        longest_s = max((look.time_s or 0 for look in looks if look), default=0) or 1
        width, height = _NAME_PX + _BAR_PX + 100, _ROW_PX * (len(looks) + 2)
        lines = [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" class="offload-graph" role="img" width="{width}" '
                f'height="{height}" viewBox="0 0 {width} {height}" font-family="monospace" font-size="12">'
            ),
            f"<title>{escape(self._title())}</title>",
            f"<style>{dark_style()}</style>",
            '<g fill="#111827">',
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            f'<text x="12" y="{_ROW_PX - 6}" font-weight="600">{escape(self._title())}</text>',
        ]
        for row, look in enumerate(looks, start=2):
            y = _ROW_PX * row - 6
            if look is None:
                lines.append(f'<text x="12" y="{y}">… {plural(len(self) - _MOST_ROWS, "task")} …</text>')
                continue
            name = look.key if len(look.key) <= 36 else look.key[:35] + "…"
            bar = _BAR_PX * max(look.time_s or 0, 0) / longest_s
            lines += [
                f'<text x="12" y="{y}">{escape(f"{KIND_SIGNS[look.kind]} {name}")}</text>',
                f'<rect x="{_NAME_PX}" y="{y - 11}" width="{bar:.1f}" height="14" fill="#1d5fbf"/>',
                f'<text x="{_NAME_PX + bar + 8:.1f}" y="{y}">{duration_label(look.time_s)}</text>',
            ]
        return "\n".join([*lines, "</g>", "</svg>", ""])
