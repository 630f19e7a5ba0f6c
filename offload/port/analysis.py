"""The findings of the porter in a log: the report as data, and its JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from offload.port import dependences
from offload.port.extents import space_of
from offload.port.fixes import FixFinder
from offload.port.log import HOST
from offload.port.races import find_races
from offload.port.unseen import copied_again, unseen_uses
from offload.sanitizer.findings import Side

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from offload.port.log import PortLog, StreamOperation
    from offload.port.model import SyncLine
    from offload.port.races import RacePair
    from offload.port.shelves import AccessWord
    from offload.sanitizer.findings import Fix

_ENQUEUED = frozenset({"kernel", "to device", "to host", "callback"})


@dataclass(frozen=True, slots=True)
class PortRace:
    """Two lines whose executions conflict and are not ordered."""

    first: Side
    second: Side
    item: str
    count: int
    fix: Fix


@dataclass(frozen=True, slots=True)
class PortUninitialised:
    """A read of device storage that was allocated and never written."""

    first: Side
    second: Side
    count: int
    item: str


@dataclass(frozen=True, slots=True)
class PortRedundant:
    """A line that waits or synchronises, and whose removal adds no race."""

    file: str
    line: int
    call: str
    count: int
    why: str


@dataclass(frozen=True, slots=True)
class PortBlocking:
    """Copies that make the host wait, and the line where the host first uses the result."""

    file: str
    line: int
    call: str
    count: int
    used: int | None


@dataclass(frozen=True, slots=True)
class PortEdge:
    """Data dependences between the executions of two lines."""

    first: int
    second: int
    kind: str
    count: int
    files: tuple[str, str]


@dataclass(slots=True)
class PortReport:
    """The report of a run.

    Attributes
    ----------
    program, on : str
        The program's file, absolute; ``"sim"`` or ``"cuda"``.
    argv : list of str
        The program as the command line names it, and its arguments.
    operations, streams : int
        Kernels, copies and callbacks on all streams; streams that the program opened.
    unchecked : bool
        Whether the run has not carried out a kernel, so that some data was not computed.
    emitted, reasons : str or None, list of str
        The file with the task form, or why there is none.
    not_seen : list of str
        Sentences about the limits of the report.
    failure : str
        Why the program may have failed: it received data that the run has not computed.
    """

    program: str
    on: str
    operations: int
    streams: int
    unchecked: bool
    races: list[PortRace]
    uninitialised: list[PortUninitialised]
    redundant: list[PortRedundant]
    blocking: list[PortBlocking]
    edges: list[PortEdge]
    argv: list[str] = field(default_factory=list)
    emitted: str | None = None
    reasons: list[str] = field(default_factory=list)
    not_seen: list[str] = field(default_factory=list)
    failure: str = ""

    @property
    def is_faulty(self) -> bool:
        """Tell whether the program has a race, or reads memory that was never written."""
        return bool(self.races or self.uninitialised)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as its JSON has it."""
        made: dict[str, Any] = {"version": 1, **asdict(self)}
        made["program"] = made.pop("argv") or [self.program]
        for edge in made["edges"]:
            del edge["files"]
        for entry in made["uninitialised"]:
            del entry["item"]
        for entry in (*made["races"], *made["uninitialised"]):
            for part in (entry["first"], entry["second"], entry.get("fix")):
                if part is not None:
                    del part["shown"]  # the sanitizer's words
        del made["not_seen"], made["failure"]
        return made


def analyse(log: PortLog, program: str, on: str) -> PortReport:
    """Return the report of a recorded run.

    Parameters
    ----------
    log : PortLog
        The operations.
    program : str
        The program's file.
    on : str
        ``"sim"`` or ``"cuda"``.
    """
    pairs, redundant, kept = find_races(log)
    counts: dict[tuple[str, int, str], int] = {}
    for operation in log.operations:
        call = "wait_event" if operation.kind == "wait_event" else "synchronize"
        key = (operation.place.file, operation.place.line, call)
        counts[key] = counts.get(key, 0) + (operation.call == call)
    return PortReport(
        program,
        on,
        sum(operation.kind in _ENQUEUED for operation in log.operations),
        len(log.streams) - 1,
        bool(log.unchecked_kernels),
        _races(log, pairs),
        _uninitialised(log),
        [PortRedundant(*line, counts[line], why) for line, why in sorted(redundant.items())],
        _blocking(log),
        _edges(log),
        not_seen=[*_not_seen(log), *_unused(log, kept), *_kept(log, kept)],
    )


def _side(log: PortLog, number: int, word: AccessWord | None = None) -> Side:
    operation = log.operations[number]
    what = word or ("copy" if operation.kind in {"to device", "to host"} else "read")
    return Side(operation.place.file, operation.place.line, what, _doer(log, operation))


def _doer(log: PortLog, operation: StreamOperation) -> str:
    return operation.thread if operation.stream == HOST else log.streams[operation.stream].name


def _races(log: PortLog, pairs: Sequence[RacePair]) -> list[PortRace]:
    finder = FixFinder(log) if pairs else None
    return [_race(log, pair, finder.fix_of(pair)) for pair in pairs] if finder is not None else []


def _race(log: PortLog, pair: RacePair, fix: Fix) -> PortRace:
    first, second = _side(log, pair.first, pair.words[0]), _side(log, pair.second, pair.words[1])
    return PortRace(first, second, log.storages[pair.space].label, pair.count, fix)


def _uninitialised(log: PortLog) -> list[PortUninitialised]:
    found: dict[tuple[Side, Side], PortUninitialised] = {}
    for (space, number), count in dependences.uninitialised(log).items():
        storage = log.storages[space]
        place = storage.place
        assert place is not None  # only storage that the program has allocated can be unwritten
        first, second = Side(place.file, place.line, "map", "MainThread"), _side(log, number)
        known = found.get((first, second))
        total = count + (known.count if known else 0)
        found[first, second] = PortUninitialised(first, second, total, known.item if known else storage.label)
    return list(found.values())


def _blocking(log: PortLog) -> list[PortBlocking]:
    operations = log.operations
    return [
        PortBlocking(
            operations[copy.operation].place.file,
            operations[copy.operation].place.line,
            operations[copy.operation].call,
            copy.count,
            None if copy.used is None else operations[copy.used].place.line,
        )
        for copy in dependences.blocking(log)
    ]


def _edges(log: PortLog) -> list[PortEdge]:
    order = {"flow": 0, "anti": 1, "output": 2}
    found = [
        PortEdge(first, second, kind, count, (one, other))
        for (one, first, other, second, kind), count in dependences.edges(log).items()
    ]
    return sorted(found, key=lambda edge: (edge.files, edge.first, edge.second, order[edge.kind]))


def _not_seen(log: PortLog) -> list[str]:
    sentences = [
        f"Kernel {name} was ordered and not carried out, so the data that it writes is unchecked (line {place.line})."
        for name, place in log.unchecked_kernels.items()
    ]
    lines = _places(log)
    if lines:
        sentences.append(f"The host received unchecked data at {_lines(lines)}.")
    sentences += [
        f"Accesses to the memory of {item} that the program got at line {place.line} cannot be seen."
        for place, item in log.given_away.items()
    ]
    threads = {operation.thread for operation in log.operations}
    if len(threads) > 1:
        sentences.append(f"{len(threads)} host threads count as one, in the order of their calls.")
    return sentences


def _unused(log: PortLog, kept: Mapping[SyncLine, int]) -> Iterator[str]:
    """Yield which copies have bytes of the host that the host was not seen to use, if it may have done so."""
    explained = {log.operations[number].place for number in kept.values()}
    if log.sees_buffers:
        return
    lines: dict[str, set[int]] = {}
    again = copied_again(log)
    for number, part in unseen_uses(log).items():
        copy = log.operations[number]
        is_new = part is not None and not copy.blocks and copy.place not in explained
        if is_new and (copy.kind == "to host" or (copy.place, part) in again):
            lines.setdefault("read" if copy.kind == "to host" else "write", set()).add(copy.place.line)
    for word, call in (("read", "file.write(h)"), ("write", "file.readinto(h)")):
        if word in lines:
            yield f"The host was not seen to {word} the host memory of the copies at {_lines(sorted(lines[word]))}."
            yield f"Before Python 3.12, accesses by the buffer protocol, such as {call}, cannot be seen."


def _kept(log: PortLog, kept: Mapping[SyncLine, int]) -> Iterator[str]:
    """Yield why lines are not needless, although no access that was seen needs them."""
    unseen = unseen_uses(log) if kept else {}
    for line, number in sorted(kept.items()):
        part, copy = unseen[number], log.operations[number]
        if part is None:
            continue
        label = log.storage_of(part).label
        if space_of(part) in log.out_of_sight:
            why = f"accesses to the memory of {label} cannot be seen"
        else:
            why = f"before Python 3.12, accesses by the buffer protocol, as in file.write({label}), cannot be seen"
        yield f"Line {line.line} may be needed for the copy of {label} at line {copy.place.line}: {why}."


def failure_by_doubt(log: PortLog, status: int) -> str:
    """Return why a program that failed may have done so: it received data that the run has not computed; or ``""``."""
    if not status or not log.unchecked_places:
        return ""
    kernels = [f"kernel {name} (line {place.line})" for name, place in log.unchecked_kernels.items()]
    return (
        f"The program failed after it had received unchecked data at {_lines(_places(log))}: this run has not carried "
        f"out {', '.join(kernels)}. For this run, replace the kernel by a function with the same arguments that does "
        "the same with array operations, or use --on cuda."
    )


def _places(log: PortLog) -> list[int]:
    return sorted({place.line for place in log.unchecked_places})


def _lines(lines: Sequence[int]) -> str:
    return f"line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))}"
