"""A graph as an SVG picture on its own: no script, no font, no other file.

It can be read on white and in grey: kinds of tasks have a shape and a sign each, kinds of dependence have dashes, and
the critical path has thick lines and a star. The picture is dark if the reader's system is set to dark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from offload.views.drawing import BOX_PX, CELL_PX, MARGIN_PX, Drawing, Spot, box_name, box_state, cells, draw
from offload.views.looks import see
from offload.views.words import CRITICAL_SIGN, KIND_SIGNS, KIND_WORDS, duration_label, plural, short

if TYPE_CHECKING:
    from offload.tasks.graph import EdgeKind, Graph
    from offload.views.folding import Fold, Strand
    from offload.views.layout import Net
    from offload.views.words import Phase, TaskKind

# Blue and orange first: told apart with every common colour blindness; the dashes serve where there is no colour.
KIND_COLOURS: dict[EdgeKind, str] = {
    "flow": "#1d5fbf",
    "anti": "#c2570c",
    "output": "#b3261e",
    "set": "#6d3fc0",
    "wait": "#6b7280",
}
DASHES: dict[EdgeKind, str] = {"flow": "", "anti": "7 3", "output": "10 3 2 3", "set": "4 3", "wait": "2 4"}
_MEANINGS: dict[EdgeKind, str] = {
    "flow": "flow: read after write",
    "anti": "anti: write after read",
    "output": "output: write after write",
    "set": "set: inoutset, mutexinoutset",
    "wait": "wait: taskwait or synchronous construct",
}
PHASE_FILLS: dict[Phase, str] = {
    "waiting": "#f8fafc",
    "running": "#fef3c7",
    "done": "#e3f6e8",
    "failed": "#fde2e1",
    "not run": "#e2e5e9",
}
_PHASE_INKS: dict[Phase, str] = {
    "waiting": "#64748b",
    "running": "#92600a",
    "done": "#17753a",
    "failed": "#b3261e",
    "not run": "#4b5563",
}
COPY_INK = "#9a3412"
_INK, _SOFT_INK, _PAPER = "#111827", "#374151", "#ffffff"
# The last is the host's.
DEVICE_COLOURS = ("#0e7490", "#a21caf", "#4d7c0f", "#9f1239", "#4338ca", "#b45309", "#475569")

# Each colour of the light picture, and what stands for it in the dark.
_DARK = {
    _PAPER: "#0f172a",
    _INK: "#f1f5f9",
    _SOFT_INK: "#cbd5e1",
    COPY_INK: "#fdba74",
    **dict(zip(KIND_COLOURS.values(), ("#60a5fa", "#fb923c", "#f87171", "#c4b5fd", "#94a3b8"), strict=True)),
    **dict(zip(PHASE_FILLS.values(), ("#1e293b", "#453411", "#123524", "#4c1d1d", "#334155"), strict=True)),
    **dict(zip(_PHASE_INKS.values(), ("#94a3b8", "#fcd34d", "#86efac", "#fca5a5", "#cbd5e1"), strict=True)),
    **dict(
        zip(
            DEVICE_COLOURS,
            ("#22d3ee", "#e879f9", "#a3e635", "#fb7185", "#a5b4fc", "#fbbf24", "#94a3b8"),
            strict=True,
        )
    ),
}
# Shapes of boxes: the radius of the corners; copies are slanted.
_RADII: dict[TaskKind | None, int] = {"target": 6, "task": 0, "wait": BOX_PX // 2, None: 6}
_SLANT_PX = 8
_STACK_PX = 4  # the card behind a fold
_FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"


def to_svg(graph: Graph) -> str:
    """Return a picture of `graph` as an SVG document."""
    return svg_of(draw(see(graph)))


def svg_of(drawing: Drawing) -> str:
    """Return a drawing as an SVG document."""
    # Shown are the edges that no longer path implies, coloured by kind; a tooltip on a task or a line says the rest.
    kinds = [kind for kind in KIND_COLOURS if any(kind == one for _, one in drawing.nets)]
    body = [*_curves(drawing), *_boxes(drawing)]
    legend, legend_width, height = _legend(drawing, kinds, drawing.height + 30)
    width = max(drawing.width, legend_width) + 2 * MARGIN_PX
    title = f"Task graph: {drawing.folding.snapshot.summary}"
    return "\n".join([*_head(title, width, height + 2 * MARGIN_PX, kinds), *body, *legend, "</g>", "</svg>", ""])


def device_colour(device_nums: str) -> str:
    """Return the colour of a device by its label."""
    number = device_nums.removeprefix("dev ").partition("+")[0]
    return DEVICE_COLOURS[int(number) % (len(DEVICE_COLOURS) - 1) if number.isdigit() else -1]


def _head(title: str, width: float, height: float, kinds: list[EdgeKind]) -> list[str]:
    markers = [
        f'<marker id="{name}-{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="{size}" markerHeight="{size}" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0,0.5L8,4L0,7.5z" fill="{KIND_COLOURS[kind]}"/></marker>'
        for kind in kinds
        for name, size in (("arrow", 8), ("thick", 12))
    ]
    return [
        (
            '<svg xmlns="http://www.w3.org/2000/svg" class="offload-graph" role="img" aria-labelledby="title" '
            f'width="{width:g}" height="{height:g}" '
            f'viewBox="0 0 {width:g} {height:g}" font-family="{_FONT}" font-size="12">'
        ),
        f'<title id="title">{_text(title)}</title>',
        f"<style>{dark_style()}</style>",
        "<defs>",
        *markers,
        "</defs>",
        f'<rect width="100%" height="100%" fill="{_PAPER}"/>',
        f'<g transform="translate({MARGIN_PX},{MARGIN_PX})">',
    ]


def dark_style() -> str:
    """Return the style that makes a picture of the class ``offload-graph`` dark if the reader's system is dark."""
    # By the value of the attribute, so that the light picture needs no style: not every converter knows styles.
    rules = [
        f'.offload-graph [{name}="{light}"]{{{name}:{dark}}}'
        for light, dark in _DARK.items()
        for name in ("fill", "stroke")
    ]
    return "@media (prefers-color-scheme:dark){" + "".join(rules) + "}"


def _boxes(drawing: Drawing) -> list[str]:
    return [line for fold, spot in zip(drawing.folding.folds, drawing.spots, strict=True) for line in _box(fold, spot)]


def _box(fold: Fold, spot: Spot) -> list[str]:
    x, y, width = spot
    phase = fold.phase
    device = device_colour(fold.place.partition(",")[0])
    name_ink = COPY_INK if fold.kind == "copy" else _INK
    dashes = ' stroke-dasharray="4 3"' if phase == "not run" else ""
    stroke = f'stroke="{device}" stroke-width="{3 if fold.critical else 1.4}"'
    name = f"task-{fold.looks[0].number}" if fold.is_task else f"fold-{fold.number}"
    weight = ' data-critical="1"' if fold.critical else ""
    behind = _shape(fold.kind, Spot(x + _STACK_PX, y + _STACK_PX, width), f'fill="{_PAPER}" stroke="{device}"')
    return [
        (
            f'<g class="{"task" if fold.is_task else "fold"}" id="{name}" data-fold="{fold.number}"{weight}>'
            f"<title>{_text(_tooltip(fold))}</title>"
        ),
        *([] if fold.is_task else [behind]),
        _shape(fold.kind, spot, f'fill="{PHASE_FILLS[phase]}" {stroke}{dashes}'),
        f'<text x="{x + 12:g}" y="{y + 19:g}" font-weight="600" fill="{name_ink}">{_text(box_name(fold))}</text>',
        f'<text x="{x + width - 12:g}" y="{y + 19:g}" text-anchor="end" fill="{device}">{_text(fold.place)}</text>',
        f'<text x="{x + 12:g}" y="{y + 36:g}" fill="{_PHASE_INKS[phase]}">{_text(box_state(fold))}</text>',
        (
            f'<text x="{x + width - 12:g}" y="{y + 36:g}" text-anchor="end" fill="{_SOFT_INK}">'
            f"{_text(fold.time_label)}</text>"
        ),
        "</g>",
    ]


def _shape(kind: TaskKind | None, spot: Spot, look: str) -> str:
    x, y, width = spot
    if kind == "copy":
        left, right, bottom, slant = x, x + width, y + BOX_PX, _SLANT_PX
        points = f"{left + slant:g},{y:g} {right:g},{y:g} {right - slant:g},{bottom:g} {left:g},{bottom:g}"
        return f'<polygon points="{points}" stroke-linejoin="round" {look}/>'
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{BOX_PX}" rx="{_RADII[kind]}" {look}/>'


def _tooltip(fold: Fold) -> list[str]:
    look = fold.looks[0]
    critical = f"on the critical path: {fold.critical:,} of them"
    if not fold.is_task:
        return [
            f"{fold.title}: {plural(len(fold.looks), 'task')}",
            f"on {fold.place}: {box_state(fold)}",
            *([f"took {duration_label(fold.time_s)} together"] if fold.time_s is not None else []),
            *([critical] if fold.critical else []),
        ]
    lines = [look.key, f"{look.directive} on {look.place}: {look.state}"]
    if look.time_s is not None:
        lines.append(f"took {duration_label(look.time_s)}")
    if look.place != look.device:
        lines.append("completes when its event is fulfilled")
    if look.is_critical:
        lines.append("on the critical path")
    return [*lines, *([look.location] if look.location else [])]


def _text(lines: str | list[str]) -> str:
    return "\n".join(escape(line) for line in ([lines] if isinstance(lines, str) else lines))


def _curves(drawing: Drawing) -> list[str]:
    """Return the lines: a group for each edge, and one for each bundle of several sources."""
    strands = {(strand.source, strand.target, strand.kind): strand for strand in drawing.folding.strands}
    folds = drawing.folding.folds
    names = [fold.looks[0].key if fold.is_task else f"{fold.title} {fold.count_label}" for fold in folds]
    found = []
    for number, (net, kind) in enumerate(drawing.nets):
        if len(net.sources) > 1:
            found += _bundle(drawing, number, net, kind, strands, names)
            continue
        source = net.sources[0]
        for target, path in drawing.arrows[number].items():
            strand = strands[source, target, kind]
            title = [f"{names[source]} → {names[target]}", _why(strand)]
            found.append(
                f'<g class="edge" id="edge-{source}-{target}-{kind}" data-sources="{source}" data-targets="{target}">'
                f"<title>{_text(title)}</title>"
                f'<path d="{path}" {_line(kind, strand.is_critical, arrow=True)}/></g>'
            )
    return found


def _why(strand: Strand) -> str:
    text = f"{strand.kind}: {', '.join(strand.items)}" if strand.items else strand.kind
    return text if strand.count == 1 else short(f"{text} ({plural(strand.count, 'dependence')})", 400)


def _line(kind: EdgeKind, is_critical: bool, *, arrow: bool = False) -> str:
    dashes = f' stroke-dasharray="{DASHES[kind]}"' if DASHES[kind] else ""
    width, marker = (3.5, "thick") if is_critical else (1.5, "arrow")
    head = f' marker-end="url(#{marker}-{kind})"' if arrow else ""
    return f'fill="none" stroke="{KIND_COLOURS[kind]}" stroke-width="{width}" stroke-linejoin="round"{dashes}{head}'


def _bundle(
    drawing: Drawing,
    number: int,
    net: Net,
    kind: EdgeKind,
    strands: dict[tuple[int, int, EdgeKind], Strand],
    names: list[str],
) -> list[str]:
    ends = ([names[i] for i in side] for side in net)
    left, right = (", ".join(keys[:6]) + (f", … ({len(keys)} tasks)" if len(keys) > 6 else "") for keys in ends)
    critical = {target for target in net.targets if any(strands[s, target, kind].is_critical for s in net.sources)}
    return [
        (
            f'<g class="bundle" id="bundle-{number}" data-sources="{" ".join(map(str, net.sources))}" '
            f'data-targets="{" ".join(map(str, net.targets))}"><title>{_text([f"{left} → {right}", kind])}'
            f'</title><path d="{"".join(drawing.stems[number])}" {_line(kind, is_critical=False)}/>'
        ),
        *(
            f'<path d="{path}" {_line(kind, target in critical, arrow=True)}/>'
            for target, path in drawing.arrows[number].items()
        ),
        "</g>",
    ]


def _legend(drawing: Drawing, kinds: list[EdgeKind], top: float) -> tuple[list[str], float, float]:
    """Return the legend below `top`, its width and where it ends."""
    folding = drawing.folding
    lines = [f'<g class="legend" fill="{_SOFT_INK}"><text x="0" y="{top:g}">{_text(folding.snapshot.summary)}</text>']
    width = cells(folding.snapshot.summary) * CELL_PX
    y = top
    for kind in kinds:
        y += 20
        lines += [
            f'<path d="M0,{y - 4:g}H40" {_line(kind, is_critical=False, arrow=True)}/>',
            f'<text x="52" y="{y:g}">{_MEANINGS[kind]}</text>',
        ]
        width = max(width, 52 + len(_MEANINGS[kind]) * CELL_PX)
    for sign, meaning, ink in _signs(folding.folds):
        y += 20
        lines += [
            f'<text x="20" y="{y:g}" text-anchor="middle" font-weight="600" fill="{ink}">{sign}</text>',
            f'<text x="52" y="{y:g}">{_text(meaning)}</text>',
        ]
        width = max(width, 52 + len(meaning) * CELL_PX)
    return [*lines, "</g>"], width, y


def _signs(folds: list[Fold]) -> list[tuple[str, str, str]]:
    """Return the signs in the boxes with their meaning and colour."""
    shown = {fold.kind for fold in folds}
    signs = [
        (sign, KIND_WORDS[kind], COPY_INK if kind == "copy" else _INK)
        for kind, sign in KIND_SIGNS.items()
        if kind in shown
    ]
    if any(fold.critical for fold in folds):
        signs.append((CRITICAL_SIGN, "on the critical path (thick lines)", _INK))
    if not all(fold.is_task for fold in folds):
        layers = ", which lie in as many layers as it says" if any(fold.depth_label for fold in folds) else ""
        signs.append(("×n", f"n tasks in one box{layers}; Σ is their total time", _INK))  # noqa: RUF001  # the sign is meant
    return signs
