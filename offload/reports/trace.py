"""A run as a trace for Perfetto and ``chrome://tracing``: the JSON format of Chrome's trace events.

Theory of operation
-------------------
Process 0 is the host, and process n + 1 is device n. A track (``tid``) is a thread or a stream. Bodies, device work,
copies and waits are ``X`` events. Of those on one track, no two may overlap unless one lies within the other. Bodies on
a thread fulfil that by themselves, and so does work on a stream. The times of a device that only the host has seen may
not. Therefore `_nested` looks at each track, and turns what would overlap into a pair ``b``/``e``, as detached tasks
and coroutines are from the beginning. All times are whole nanoseconds here, so rounding cannot make events overlap.

A dependence between two tracks is a flow: ``s`` within the slice of the earlier task, ``f`` at the beginning of the
later one. Ready tasks and mapped bytes are counters, of at most `_SAMPLES` values.

The text is made at the end, in pieces, by formatting: 100,000 tasks take less than a second.
"""

from __future__ import annotations

from collections import defaultdict
from json.encoder import encode_basestring_ascii as quote
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from offload.reports.records import RunRecord, SpanRecord, TaskRecord

_SAMPLES = 2_000
"""Values of a counter: more than a screen has columns, and little beside the tasks."""

_LONGEST = 200
"""Characters of a name: a viewer shows no more."""


class TraceSlice(NamedTuple):
    """An event that lasts. ``args`` is the text of a JSON object, ``task`` the number of its task."""

    pid: int
    tid: int
    start_ns: int
    end_ns: int
    name: str  # as JSON
    category: str
    args: str
    task: int = 0
    is_async: bool = False


class _Tracks(dict[int, int]):
    """Small numbers for the identifiers of threads, which viewers cut to 32 bits."""

    def __missing__(self, thread: int) -> int:
        self[thread] = number = len(self)
        return number


def trace(run: RunRecord) -> Iterator[str]:
    """Yield the text of a trace, in pieces."""
    start_s = _beginning(run)
    tracks = _Tracks()
    slices = _nested(
        [
            *_task_slices(run, start_s, tracks),
            *_span_slices(run, start_s, tracks),
            *_wait_slices(run, start_s, tracks),
        ]
    )
    yield '{"displayTimeUnit": "ns", "traceEvents": [\n'
    yield ",\n".join(_names(run, slices, tracks))
    for at in range(0, len(slices), 10_000):
        yield ",\n" + ",\n".join(map(_slice_text, slices[at : at + 10_000]))
    for events in (_flows(run, slices), _counters(run, start_s)):
        if events:
            yield ",\n" + ",\n".join(events)
    yield "\n]}\n"


def _beginning(run: RunRecord) -> float:
    times = [task.created_s for task in run.tasks]
    times += [min(task.start_s, task.end_s) for task in run.tasks]
    times += [span.start_s for span in run.spans]
    times += [start_s for _, _, start_s, _ in run.waits]
    times += [at_s for at_s, *_ in run.maps]
    return min(times, default=0.0)


# -- slices ----------------------------------------------------------------------------------------
def _task_slices(run: RunRecord, zero_s: float, tracks: _Tracks) -> Iterator[TraceSlice]:
    spans: dict[int, list[SpanRecord]] = defaultdict(list)
    for span in run.spans:
        if span.kind in {"body", "copy"}:
            spans[span.task].append(span)
    words: dict[tuple[str, str, str], tuple[str, str, str, str]] = {}
    for task in run.tasks:
        known = task.name, task.directive, task.location
        try:
            name, stem, directive, location = words[known]
        except KeyError:
            short = task.name if len(task.name) <= _LONGEST else task.name[: _LONGEST - 1] + "…"
            name = quote(short)
            directive, location = quote(task.directive), quote(task.location)
            stem = quote(task.name)[:-1]
            words[known] = name, stem, directive, location
        created_ns = int((task.created_s - zero_s) * 1e9)
        start_ns = max(created_ns, int((task.start_s - zero_s) * 1e9))
        end_ns = max(start_ns, int((task.end_s - zero_s) * 1e9))
        args = (
            f'{{"key":{stem}-{task.number}","directive":{directive},"location":{location},'
            f'"state":"{task.state}","waited_us":{(start_ns - created_ns) / 1e3:.3f}}}'
        )
        if task.kind == "body":
            yield TraceSlice(0, tracks[task.thread], start_ns, end_ns, name, "task", args, task.number)
        elif task.kind == "detached":
            left_ns = min(end_ns, max(start_ns, int(((task.left_s or task.end_s) - zero_s) * 1e9)))
            yield TraceSlice(0, tracks[task.thread], start_ns, left_ns, name, "task", args, task.number)
            yield TraceSlice(
                0, tracks[task.thread], left_ns, end_ns, name, "detached", args, task.number, is_async=True
            )
        elif task.kind == "device":
            yield _device_slice(task, spans.get(task.number, ()), zero_s, (start_ns, end_ns, name, args))
        else:
            yield TraceSlice(0, tracks[task.thread], start_ns, end_ns, name, "task", args, task.number, is_async=True)


def _device_slice(
    task: TaskRecord, spans: Sequence[SpanRecord], zero_s: float, made: tuple[int, int, str, str]
) -> TraceSlice:
    """Return the slice of a device task: from the first of its work on its stream to the last, if that is known."""
    start_ns, end_ns, name, args = made
    own = [span for span in spans if span.lane == task.lane and span.device == task.device]
    pid = (task.device or 0) + 1
    if not own:
        return TraceSlice(pid, task.lane or 0, start_ns, end_ns, name, "target", args, task.number, is_async=True)
    first = max(0, int((min(span.start_s for span in own) - zero_s) * 1e9))
    last = max(first, int((max(span.end_s for span in own) - zero_s) * 1e9))
    return TraceSlice(pid, task.lane or 0, first, last, name, "target", args, task.number)


def _span_slices(run: RunRecord, zero_s: float, tracks: _Tracks) -> Iterator[TraceSlice]:
    for span in run.spans:
        start_ns = max(0, int((span.start_s - zero_s) * 1e9))
        end_ns = max(start_ns, int((span.end_s - zero_s) * 1e9))
        pid = span.device + 1
        if span.kind == "copy":
            words = {"to": "copy to device", "from": "copy to host"}.get(span.direction, "copy")
            args = f'{{"nbytes":{span.nbytes},"item":{quote(span.name[:_LONGEST])}}}'
            yield TraceSlice(pid, span.lane, start_ns, end_ns, quote(words), "copy", args)
        elif span.kind == "staged":
            args = f'{{"nbytes":{span.nbytes},"item":{quote(span.name[:_LONGEST])}}}'
            yield TraceSlice(pid, span.lane, start_ns, end_ns, '"copy by threads"', "copy", args, is_async=True)
        elif span.kind == "launch":  # on a thread, which is its track
            yield TraceSlice(0, tracks[span.lane], start_ns, end_ns, quote(span.name[:_LONGEST]), "launch", "{}")
        elif span.kind == "body":
            yield TraceSlice(pid, span.lane, start_ns, end_ns, quote(span.name[:_LONGEST]), "body", "{}")


def _wait_slices(run: RunRecord, zero_s: float, tracks: _Tracks) -> Iterator[TraceSlice]:
    for what, thread, start_s, end_s in run.waits:
        start_ns = max(0, int((start_s - zero_s) * 1e9))
        yield TraceSlice(0, tracks[thread], start_ns, int((end_s - zero_s) * 1e9), quote(what[:_LONGEST]), "wait", "{}")


def _nested(slices: Iterable[TraceSlice]) -> list[TraceSlice]:
    """Return the slices in the order of time; those that would overlap another one on their track are pairs."""
    result: list[TraceSlice] = []
    open_until: dict[tuple[int, int], list[int]] = defaultdict(list)
    for one in sorted(slices, key=_order):
        if not one.is_async:
            ends = open_until[one.pid, one.tid]
            while ends and ends[-1] <= one.start_ns:
                ends.pop()
            if ends and one.end_ns > ends[-1]:
                one = one._replace(is_async=True)  # noqa: PLW2901  # the same, drawn differently
            else:
                ends.append(one.end_ns)
        result.append(one)
    return result


def _order(one: TraceSlice) -> tuple[int, int]:
    return one.start_ns, -one.end_ns


def _slice_text(one: TraceSlice) -> str:
    pid, tid, start_ns, end_ns, name, category, args, _, is_async = one
    if not is_async:
        return (
            f'{{"ph":"X","pid":{pid},"tid":{tid},"ts":{start_ns / 1e3:.3f},"dur":{(end_ns - start_ns) / 1e3:.3f},'
            f'"name":{name},"cat":"{category}","args":{args}}}'
        )
    both = f'"pid":{pid},"tid":{tid},"id":{_identifier(one)},"name":{name},"cat":"{category}"'
    return f'{{"ph":"b",{both},"ts":{start_ns / 1e3:.3f},"args":{args}}},\n{{"ph":"e",{both},"ts":{end_ns / 1e3:.3f}}}'


def _identifier(one: TraceSlice) -> str:
    """Return an id that no other pair has: those of one task differ in category and beginning."""
    return f'"{one.category}-{one.task}-{one.pid}-{one.tid}-{one.start_ns}-{one.end_ns}"'


# -- what stands beside them -----------------------------------------------------------------------
def _names(run: RunRecord, slices: Sequence[TraceSlice], tracks: _Tracks) -> Iterator[str]:
    threads = {number: run.threads.get(thread, f"thread {thread}") for thread, number in tracks.items()}
    found = sorted({(one.pid, one.tid) for one in slices})
    yield _name("process_name", 0, 0, "host")
    for number, name in sorted(run.devices.items()):
        yield _name("process_name", number + 1, 0, f"device {number} ({name})")
    for number in sorted({pid - 1 for pid, _ in found if pid} - set(run.devices)):
        yield _name("process_name", number + 1, 0, f"device {number}")
    for pid, tid in found:
        yield _name("thread_name", pid, tid, threads[tid] if pid == 0 else f"stream {tid}")


def _name(what: str, pid: int, tid: int, name: str) -> str:
    return f'{{"ph":"M","name":"{what}","pid":{pid},"tid":{tid},"args":{{"name":{quote(name)}}}}}'


def _flows(run: RunRecord, slices: Sequence[TraceSlice]) -> list[str]:
    """Return the arrows of dependences between slices of different tracks."""
    of_task = {one.task: one for one in slices if one.task and not one.is_async}
    events = []
    number = 0
    for before, after in run.edges:
        first, last = of_task.get(before), of_task.get(after)
        if first is None or last is None or (first.pid, first.tid) == (last.pid, last.tid):
            continue
        from_ns = min(last.start_ns, first.end_ns)
        if from_ns < first.start_ns:
            continue  # clocks that do not agree
        number += 1
        events.append(
            f'{{"ph":"s","id":{number},"pid":{first.pid},"tid":{first.tid},"ts":{from_ns / 1e3:.3f},'
            '"name":"depend","cat":"d"}'
        )
        events.append(
            f'{{"ph":"f","bp":"e","id":{number},"pid":{last.pid},"tid":{last.tid},"ts":{last.start_ns / 1e3:.3f},'
            '"name":"depend","cat":"d"}'
        )
    return events


def _counters(run: RunRecord, zero_s: float) -> list[str]:
    """Return the numbers of ready tasks, and of the bytes that are mapped on each device."""
    times = ready_times(run)
    changes = [(ready_s, 1) for ready_s, _ in times]
    changes += [(start_s, -1) for _, start_s in times]
    events = [_counter(0, "ready tasks", at_s - zero_s, value) for at_s, value in _thinned(sorted(changes))]
    for device in sorted({device for _, device, _ in run.maps}):
        changes = [(at_s, nbytes) for at_s, of, nbytes in run.maps if of == device]
        events += [
            _counter(device + 1, "mapped bytes", at_s - zero_s, value)
            for at_s, value in _thinned(sorted(changes, key=lambda change: change[0]))
        ]
    return events


def ready_times(run: RunRecord) -> list[tuple[float, float]]:
    """Return when each task was ready, since it was generated and all that it followed had ended, and when it began."""
    ends = {task.number: task.end_s for task in run.tasks}
    ready = {task.number: task.created_s for task in run.tasks}
    for before, after in run.edges:
        if before in ends and after in ready and ends[before] > ready[after]:
            ready[after] = ends[before]
    found = [(ready[task.number], task.start_s) for task in run.tasks if task.kind != "device"]
    return [(min(start_s, ready_s), start_s) for ready_s, start_s in found]


def _thinned(changes: Sequence[tuple[float, int]]) -> Iterator[tuple[float, int]]:
    """Yield the sums of changes up to some of their times, and after the last one."""
    step = max(1, len(changes) // _SAMPLES)
    total = 0
    for at, (at_s, change) in enumerate(changes):
        total += change
        if at % step == 0 or at == len(changes) - 1:
            yield at_s, max(0, total)


def _counter(pid: int, name: str, at_s: float, value: int) -> str:
    ts = max(0, int(at_s * 1e9)) / 1e3
    return f'{{"ph":"C","pid":{pid},"tid":0,"ts":{ts:.3f},"name":"{name}","args":{{"value":{value}}}}}'
