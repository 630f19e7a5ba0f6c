"""The report of `explain`: all decisions about a loop for certain arguments, as text and as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from offload.loops.front import layouts
from offload.loops.front.levels import levels_of, loops_in
from offload.loops.mapping import map_types
from offload.loops.running.cuda_runs import shaped
from offload.loops.running.looks import Looks
from offload.loops.running.plan import numbers_of, ranged
from offload.loops.running.preparation import described
from offload.loops.speculative.verdict_memory import Memory
from offload.loops.tree.uses import numbered
from offload.loops.watched.inspecting import can_be_inspected
from offload.loops.watched.needs import needed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from offload.devices.base import Device
    from offload.loops.emit.grids import Grid
    from offload.loops.front.levels import Levels
    from offload.loops.running.clauses import SetWords
    from offload.loops.running.plan import NestPlan, Numbers
    from offload.loops.running.specialise import LoopProgram, Specialisation
    from offload.loops.tree import ir
    from offload.loops.tree.uses import ArrayUse

_BOUNDS: Final = ("launch", "range", "kernel")
_TILE_LEFT: Final = "tile is left out: blocks have whole rows of 32 threads, at most 1024, along two loops"
_SHARED: Final = {"threads": "shared by threads", "rows": "shared by rows of threads"}


@dataclass(frozen=True, slots=True)
class LoopReport:
    """A report about a loop for certain arguments. `TargetLoop.explain` returns it.

    Attributes
    ----------
    facts : dict
        Nested dictionaries, lists, strings and numbers: function, file and line, device, types, nests with their
        verdicts, launches on CUDA and loops, arrays with access, map type and the place of their bounds checks, notes.
    """

    facts: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the facts; a copy of the outermost dictionary."""
        return dict(self.facts)

    def __rich__(self) -> str:
        return str(self).replace("[", r"\[")  # what Rich would take for its markup

    def __str__(self) -> str:
        facts = self.facts
        lines = [f"{facts['function']} ({facts['file']}:{facts['line']}) on {facts['device']}"]
        lines += [f"  {name}: {kind}" for name, kind in facts["types"].items()]
        for nest in facts["nests"]:
            lines.append(f"  nest at line {nest['line']}: {nest['verdict']}")
            if launch := nest["launch"]:
                lines.append(f"    blocks {_by(launch['grid'])}, threads of each {_by(launch['block'])}")
            for one in nest["dependences"]:
                where = "line {} to {}".format(*one["lines"])
                lines.append(f"    {one['kind']} dependence by {one['array']}, distance {one['distance']}, {where}")
            for loop in nest["loops"]:
                lines.append(f"    loop at line {loop['line']} over {loop['variable']}: {_loop_text(loop)}")
        for name, array in facts["arrays"].items():
            lines.append(f"  {name}: {array['access']}, map {array['map']}, bounds checked: {array['bounds']}")
        lines += _filter_text(facts["filter"])
        lines += [f"  cache: {item} (only a hint)" for item in facts["cache"]]
        if (said := facts["speculation"])["mode"] != "off":
            last = f", the latest call on the {said['last']}" if said["last"] else ""
            lines.append(f"  speculation: {said['mode']}, logged: {', '.join(said['logged']) or 'nothing'}{last}")
        return "\n".join([*lines, *[f"  note: {note}" for note in facts["notes"]]])


def explained(
    program: LoopProgram,
    values: Mapping[str, Any],
    device: Device | None,
    said: Mapping[str, str],
    spread: tuple[SetWords, Sequence[Device]] | None = None,
) -> LoopReport:
    """Return the decisions for a call with these arguments.

    ``said`` has the map types that clauses give, ``spread`` the values of clauses about several devices, and these
    devices.
    """
    spec = program.specialise(values)
    numbers = numbers_of(spec, values, partial(described, device))
    plans = ranged(spec, numbers, Looks(values), always=True)
    place = program.source.place
    found = {name: kind.word for name, kind in map_types(spec, values).items()}
    arrays = {
        name: {
            "access": _word(spec.uses[name]),
            "map": said.get(name, found.get(name, "none")) if device is not None else "none",
            "bounds": _bounds(spec, plans, name),
        }
        for name in spec.typed.arrays
        if name in values
    }
    return LoopReport(
        {
            "function": program.name,
            "file": place.file,
            "line": place.line,
            "device": "host" if device is None else device.name,
            "types": {
                **{name: str(kind) for name, kind in {**spec.typed.scalars, **spec.typed.arrays}.items()},
                **{name: layouts.described(layout) for name, layout in spec.typed.function.layouts.items()},
            },
            "nests": [_nest(spec, number, plan, numbers, device) for number, plan in enumerate(plans)],
            "arrays": arrays,
            "filter": _filter(spec, values, spread),
            "speculation": _speculation(spec, numbers, plans, is_on_host=device is None),
            "cache": list(program.words.cache),
            "notes": [*spec.typed.notes, *_left(plans), *_passed(plans), *_seen_by(spec)],
        }
    )


def _filter(
    spec: Specialisation, values: Mapping[str, Any], spread: tuple[SetWords, Sequence[Device]] | None
) -> dict[str, Any]:
    """Return how the loop is divided: as the latest call was, before one at most."""
    devices = [] if spread is None else [device.number for device in spread[1]]
    if spread is None or len(devices) == 1:
        return {"mode": "off", "why": "one device", "devices": devices, "arrays": {}, "predicates": []}
    if any(not isinstance(values[name], np.ndarray) for name in spec.given if name in values):
        why = "it receives device arrays, which are on one device"
        return {"mode": "single", "why": why, "devices": devices, "sent_nbytes": 0, "arrays": {}, "predicates": []}
    from offload.loops.sets.device_runs import on_devices  # few loops are on several devices

    words, first = spread[0], spread[1][0]
    divided = on_devices(spec, values, first, len(devices))
    nests = divided.nests(None)
    chooser = divided.chooser(words.filter, tuple([one.space for one in spread[1]]))
    reports = [nest.ways.filtering.report(devices) for nest in nests]
    mode = chooser.latest or next((nest.mode_of(chooser.widest) for nest in nests), "single")
    return {
        "mode": mode,
        "why": "; ".join(dict.fromkeys([*(nest.ways.why for nest in nests), *filter(None, [chooser.why])])),
        "devices": devices,
        "sent_nbytes": chooser.sent_nbytes,
        "arrays": {name: array for one in reports for name, array in one["arrays"].items()},
        "predicates": [predicate for one in reports for predicate in one["predicates"]],
    }


def _left(plans: tuple[NestPlan, ...]) -> Iterator[str]:
    """Yield a note for each nest of which not all pairs of accesses were compared."""
    for plan in plans:
        if plan.verdict.n_left:
            yield (
                f"line {plan.nest.place.line}: {plan.verdict.n_left:,} pairs of accesses were not compared, because "
                "there are too many; they may conflict"
            )


def _passed(plans: tuple[NestPlan, ...]) -> Iterator[str]:
    """Yield a note for each nest whose iterations pass on scalars."""
    for plan in plans:
        line = plan.nest.place.line
        if plan.nest.scan is not None:
            items = ", ".join(f"{item.name} by {item.operator}" for item in plan.nest.scan.items)
            yield f"line {line}: a parallel scan computes {items}"
        elif plan.verdict.carried:
            yield f"line {line}: {plan.verdict.carried}, so iterations run in order"


def _word(use: ArrayUse) -> str:
    """Return the word of a report for the loop's use of an array."""
    if use.is_atomic and not (use.is_read or use.is_written):
        return "atomic"
    if not use.is_changed:
        return "read"
    return "readwrite" if use.is_read or use.is_atomic or use.is_reduced else "write"


def _nest(spec: Specialisation, number: int, plan: NestPlan, numbers: Numbers, device: Device | None) -> dict[str, Any]:
    kernels = None if device is None else device.kernels
    is_cuda = kernels is not None and kernels.dialect == "cuda"
    grid = shaped(spec, number, plan, numbers).grid if is_cuda else None
    levels = levels_of(plan.nest, is_ordered=plan.variant.is_ordered, is_auto=spec.program.words.several)
    return {
        "line": plan.nest.place.line,
        "launch": None if grid is None else {"grid": list(grid.blocks), "block": list(grid.threads)},
        "verdict": plan.verdict.verdict,
        "dependences": [
            {
                "array": one.sink.array,
                "kind": one.kind,
                "distance": one.distance[0] if len(one.distance) == 1 else list(one.distance),
                "lines": [one.source.place.line, one.sink.place.line],
            }
            for one in plan.verdict.dependences
        ],
        "loops": list(_loops(plan, levels if is_cuda else None, grid)),
    }


def _loops(plan: NestPlan, levels: Levels | None, grid: Grid | None) -> Iterator[dict[str, Any]]:
    """Yield how the iterations of each loop are carried out, those of the associated loops first.

    ``mapping`` has the levels that the text asks for. ``runs`` has the result: on CUDA threads may share the loops of
    an iteration; elsewhere, and without levels, an iteration is one thread's. ``why`` has the reason if a loop that
    asks for a level is not shared.
    """
    said = plan.nest.clauses
    is_ordered = plan.variant.is_ordered
    team = None if levels is None else levels.team
    has_tile = grid is not None and not is_ordered and bool(said.tile)
    tile_is_left = has_tile and grid is not None and grid.threads[: len(said.tile)] != said.tile[::-1]
    for number, axis in enumerate(plan.nest.axes):
        yield {
            "line": axis.place.line,
            "variable": axis.variable,
            "mapping": "seq" if is_ordered else said.level or ("gang vector" if team is None else "gang"),
            "sizes": dict(said.sizes),
            "tile": said.tile[number] if said.tile and not is_ordered else None,
            "reduction": _items(plan.nest.reductions),
            "private": sorted(plan.nest.privates),
            "runs": "in order" if is_ordered else "in parallel",
            "why": _TILE_LEFT if tile_is_left else "",
        }
    shared = {} if levels is None else dict(levels.shared)
    for number, loop in enumerate(loops_in(plan.nest)):
        level = "" if loop.clauses.order == "seq" else loop.clauses.level
        yield {
            "line": loop.place.line,
            "variable": loop.variable,
            "mapping": level or "seq",
            "sizes": dict(loop.clauses.sizes),
            "tile": None,
            "reduction": _items(loop.clauses.reductions),
            "private": list(loop.clauses.private),
            "runs": _SHARED[shared[number]] if number in shared else "in order",
            "why": "" if levels is None else levels.whys.get(number, ""),
        }


def _filter_text(facts: Mapping[str, Any]) -> Iterator[str]:
    if facts["mode"] == "off":
        return
    numbers = ", ".join(map(str, facts["devices"]))
    yield f"  devices {numbers}: {facts['mode']}; {facts['why']}"
    if facts["sent_nbytes"] is not None:
        yield f"    the latest call copied {facts['sent_nbytes']:,} bytes from device to device"
    for name, array in facts["arrays"].items():
        ranges = ", ".join([f"{begin}:{end}" for begin, end in array["ranges"]])
        yield f"    {name} by dimension {array['dimension']}: {ranges}"
    for one in facts["predicates"]:
        terms = "on every device" if one["terms"] is None else _terms_text(one["terms"])
        yield f"    line {one['line']}: {one['text']} {terms}"


def _terms_text(terms: Sequence[Sequence[str]]) -> str:
    owned = [f"{name}[{index}]" if name else f"iteration {index}" for name, index in terms]
    return f"by who owns {' or '.join(owned)}" if owned else "by nobody"


def _by(numbers: Sequence[int]) -> str:
    return " x ".join(map(str, numbers))


def _items(reductions: tuple[ir.LoopReduction, ...]) -> dict[str, list[str]]:
    """Return reductions as a clause has them."""
    items: dict[str, list[str]] = {}
    for one in reductions:
        items.setdefault(one.operator, []).append(one.name)
    return items


def _loop_text(loop: Mapping[str, Any]) -> str:
    parts = [loop["mapping"], *[f"{word} {size}" for word, size in loop["sizes"].items()]]
    parts += [f"tile {loop['tile']}"] if loop["tile"] else []
    parts += [f"reduction {operator} of {', '.join(names)}" for operator, names in loop["reduction"].items()]
    parts += [f"private {', '.join(loop['private'])}"] if loop["private"] else []
    return f"{', '.join(parts)}; {loop['runs']}" + (f": {loop['why']}" if loop["why"] else "")


def _bounds(spec: Specialisation, plans: tuple[NestPlan, ...], array: str) -> str:
    """Return how the accesses of an array are kept inside of it: by the checks that the worst of them needs."""
    worst = 0
    for plan in plans:
        for at, access in numbered(plan.nest).items():
            found = plan.bounds.get(at)
            if access.array == array and found is not None:
                worst = max(worst, 2 if found.mode == "check" else _BOUNDS.index(found.category))
    return "off" if worst == 2 and not spec.program.words.bounds else _BOUNDS[worst]


def _speculation(
    spec: Specialisation, numbers: Numbers, plans: tuple[NestPlan, ...], *, is_on_host: bool
) -> dict[str, Any]:
    """Return the first attempt of a call: how, with which arrays logged; and the side on which the latest one ran."""
    words = spec.program.words
    memory: Memory = spec.speculation or Memory()
    mode, logged = "off", list[str]()
    verdicts = {plan.verdict.verdict for plan in plans}
    if words.speculate is not None and verdicts != {"parallel"}:
        mode = "sequential"
        is_known = memory.is_sequential and words.speculate != "always"
        if len(plans) == 1 and "sequential" not in verdicts and not is_known and not is_on_host:
            (plan,) = plans
            launch = numbers.launch()
            of = needed(spec.typed, plan.nest, launch, plan.verdict.unknown)
            is_inspected = words.speculate != "always" and can_be_inspected(plan.nest, of.written, launch.scalars)
            mode = "inspector" if is_inspected else "log"
            at = numbered(of.nest)
            logged = list(dict.fromkeys(at[one].array for one in sorted(of.loads | of.stores)))
    return {"mode": mode, "logged": logged, "last": memory.last}


def _seen_by(spec: Specialisation) -> Iterator[str]:
    """Yield a note of how much of a loop its first call has profiled."""
    memory: Memory | None = spec.speculation
    if memory is not None and memory.seen is not None:
        n, n_in_all = memory.seen
        yield f"the first call has profiled {n:,} of {n_in_all:,} iterations"
