r"""A run as a trace for Perfetto and ``chrome://tracing``: the JSON format of Chrome's trace events.

Theory of operation
-------------------
Process 0 is the host, and process n + 1 is device n. A track (``tid``) is a thread, a stream, or a copy engine of a
device: its copies in one direction. Copies of several streams may overlap. Then the engine has several tracks, and each
copy goes to the first track that is free. The requests of MPI have one track, on the host.

Bodies, device work, copies and waits are ``X`` events. Two of them on one track may overlap only if one lies within the
other. Bodies on a thread fulfil that by themselves, and so does work on a stream. The times of a device that only
the host has seen may not. Therefore `_nested` looks at each track, and turns slices that would overlap into pairs
``b``/``e``. Detached tasks, coroutines and requests are such pairs from the beginning. All times are whole nanoseconds
here, so rounding cannot make events overlap.

A dependence between two tracks is a flow: ``s`` within the slice of the earlier task, ``f`` at the beginning of the
later one. Ready tasks and mapped bytes are counters, of at most `_SAMPLES` values.

Some parsers of Perfetto are less general than the formats. The text avoids the forms that they do not take:

* They name threads by ``tid`` alone, and take the thread with the number of its process for the main thread. So no two
  tracks share a number, and none has the number of a process.
* They look for ``ts`` before they parse the other strings. So it comes before all names.
* They refuse surrogate pairs, show other escapes as they are, and take a quote after any backslash for a part of the
  string. So text is UTF-8, and a backslash is ``\u005c`` (`quote`).

The text is made at the end, in pieces, by formatting: 100,000 tasks take less than a second.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from itertools import accumulate
from json.encoder import encode_basestring
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from offload.reports.records import RunRecord, SpanRecord, TaskRecord

_SAMPLES = 2_000
"""Values of a counter: more than a screen has columns, and little beside the tasks."""

_LONGEST = 200
"""Characters of a name: a viewer shows no more."""

_FIRST_TRACK = 1001
"""The number of the first track: more than any process has."""

_COPIES = {"to": "copy to device", "from": "copy to host", "device": "copy within devices"}
_ENGINES = {"to": "copies to device", "from": "copies to host", "device": "copies within devices"}

_REQUESTS = "MPI requests"

_Value = TypeVar("_Value")


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


class _Tracks(dict[Any, int]):
    """The numbers of tracks.

    A track is known by the identifier of its thread, by its device and stream, by its device, direction and row (a
    copy engine), or as `_REQUESTS`.
    """

    def __missing__(self, what: Hashable) -> int:
        self[what] = number = _FIRST_TRACK + len(self)
        return number


def quote(text: str) -> str:
    """Return text as a JSON string that all parsers of Perfetto read."""
    return encode_basestring(text).replace(r"\\", r"\u005c")


def trace(run: RunRecord) -> Iterator[str]:
    """Yield the text of a trace, in pieces."""
    start_s = _beginning(run)
    tracks = _Tracks()
    slices = _nested(
        [
            *_task_slices(run, start_s, tracks),
            *_span_slices(run, start_s, tracks),
            *_copy_slices(run, start_s, tracks),
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
        elif task.kind in {"detached", "request"}:
            left_ns = min(end_ns, max(start_ns, int(((task.left_s or task.end_s) - zero_s) * 1e9)))
            yield TraceSlice(0, tracks[task.thread], start_ns, left_ns, name, "task", args, task.number)
            track, category = (_REQUESTS, "MPI") if task.kind == "request" else (task.thread, task.kind)
            yield TraceSlice(0, tracks[track], left_ns, end_ns, name, category, args, task.number, is_async=True)
        elif task.kind == "device":
            own = spans.get(task.number, ())
            yield _device_slice(task, own, zero_s, tracks[task.device, task.lane], (start_ns, end_ns, name, args))
        else:
            yield TraceSlice(0, tracks[task.thread], start_ns, end_ns, name, "task", args, task.number, is_async=True)


def _device_slice(
    task: TaskRecord, spans: Sequence[SpanRecord], zero_s: float, tid: int, made: tuple[int, int, str, str]
) -> TraceSlice:
    """Return the slice of a device task: from the first of its work on its stream to the last, if that is known."""
    start_ns, end_ns, name, args = made
    own = [span for span in spans if span.lane == task.lane and span.device == task.device]
    pid = (task.device or 0) + 1
    if not own:
        return TraceSlice(pid, tid, start_ns, end_ns, name, "target", args, task.number, is_async=True)
    first = max(0, int((min(span.start_s for span in own) - zero_s) * 1e9))
    last = max(first, int((max(span.end_s for span in own) - zero_s) * 1e9))
    return TraceSlice(pid, tid, first, last, name, "target", args, task.number)


def _span_slices(run: RunRecord, zero_s: float, tracks: _Tracks) -> Iterator[TraceSlice]:
    for span in run.spans:
        if span.kind == "launch":  # on a thread, which is its track
            place = 0, tracks[span.lane]
        elif span.kind == "body":
            place = span.device + 1, tracks[span.device, span.lane]
        else:
            continue
        yield TraceSlice(*place, *_times_of(span, zero_s), quote(span.name[:_LONGEST]), span.kind, "{}")


def _copy_slices(run: RunRecord, zero_s: float, tracks: _Tracks) -> Iterator[TraceSlice]:
    """Yield the slices of copies, each on a track of the copy engine that is free."""
    free_ns: dict[tuple[int, str], list[int]] = defaultdict(list)
    copies = [span for span in run.spans if span.kind in {"copy", "staged"}]
    for span in sorted(copies, key=attrgetter("start_s")):
        start_ns, end_ns = _times_of(span, zero_s)
        rows = free_ns[span.device, span.direction]
        row = next((row for row, until_ns in enumerate(rows) if until_ns <= start_ns), len(rows))
        rows[row : row + 1] = [end_ns]
        name = _COPIES[span.direction] + (" by threads" if span.kind == "staged" else "")
        args = f'{{"nbytes":{span.nbytes},"item":{quote(span.name[:_LONGEST])}}}'
        tid = tracks[span.device, span.direction, row]
        yield TraceSlice(span.device + 1, tid, start_ns, end_ns, f'"{name}"', "copy", args)


def _times_of(span: SpanRecord, zero_s: float) -> tuple[int, int]:
    start_ns = max(0, int((span.start_s - zero_s) * 1e9))
    return start_ns, max(start_ns, int((span.end_s - zero_s) * 1e9))


def _wait_slices(run: RunRecord, zero_s: float, tracks: _Tracks) -> Iterator[TraceSlice]:
    for what, thread, start_s, end_s in run.waits:
        start_ns = max(0, int((start_s - zero_s) * 1e9))
        yield TraceSlice(0, tracks[thread], start_ns, int((end_s - zero_s) * 1e9), quote(what[:_LONGEST]), "wait", "{}")


def _nested(slices: Iterable[TraceSlice]) -> list[TraceSlice]:
    """Return the slices in the order of time; those that would overlap another one on their track are pairs."""
    result = sorted(slices, key=attrgetter("end_ns"), reverse=True)
    result.sort(key=attrgetter("start_ns"))
    open_until: dict[int, list[int]] = defaultdict(list)
    for at, one in enumerate(result):
        if one.is_async:
            continue
        ends = open_until[one.tid]
        while ends and ends[-1] <= one.start_ns:
            ends.pop()
        if ends and one.end_ns > ends[-1]:
            result[at] = one._replace(is_async=True)  # the same, drawn differently
        else:
            ends.append(one.end_ns)
    return result


def _slice_text(one: TraceSlice) -> str:
    pid, tid, start_ns, end_ns, name, category, args, _, is_async = one
    if not is_async:
        return (
            f'{{"ph":"X","pid":{pid},"tid":{tid},"ts":{start_ns / 1e3:.3f},"dur":{(end_ns - start_ns) / 1e3:.3f},'
            f'"name":{name},"cat":"{category}","args":{args}}}'
        )
    where, what = f'"pid":{pid},"tid":{tid}', f'"id":{_identifier(one)},"name":{name},"cat":"{category}"'
    return (
        f'{{"ph":"b",{where},"ts":{start_ns / 1e3:.3f},{what},"args":{args}}},\n'
        f'{{"ph":"e",{where},"ts":{end_ns / 1e3:.3f},{what}}}'
    )


def _identifier(one: TraceSlice) -> str:
    """Return an id that no other pair has: the pairs of one task differ in category and beginning."""
    return f'"{one.category}-{one.task}-{one.pid}-{one.tid}-{one.start_ns}-{one.end_ns}"'


# -- names, arrows and counters --------------------------------------------------------------------
def _names(run: RunRecord, slices: Sequence[TraceSlice], tracks: _Tracks) -> Iterator[str]:
    found = {(one.pid, one.tid) for one in slices}
    yield _name("process_name", 0, 0, "host")
    for number, name in sorted(run.devices.items()):
        yield _name("process_name", number + 1, number + 1, f"device {number} ({name})")
    for number in sorted({pid - 1 for pid, _ in found if pid} - set(run.devices)):
        yield _name("process_name", number + 1, number + 1, f"device {number}")
    names = {number: _name_of(what, run) for what, number in tracks.items()}
    for pid, tid in sorted(found):
        yield _name("thread_name", pid, tid, names[tid])


def _name_of(track: Any, run: RunRecord) -> str:
    """Return the name of a track; `_Tracks` says how a track is known."""
    match track:
        case int():
            return run.threads.get(track, f"thread {track}")
        case (_, str(direction), row):
            return _ENGINES[direction] + (f" ({row + 1})" if row else "")
        case (_, lane):
            return f"stream {lane or 0}"
    return str(track)


def _name(what: str, pid: int, tid: int, name: str) -> str:
    return f'{{"ph":"M","name":"{what}","pid":{pid},"tid":{tid},"args":{{"name":{quote(name)}}}}}'


def _flows(run: RunRecord, slices: Sequence[TraceSlice]) -> list[str]:
    """Return the arrows of dependences between slices of different tracks."""
    of_task = {one.task: one[:4] for one in slices if one.task and not one.is_async}
    events = []
    for number, (before, after) in enumerate(run.edges):
        if before not in of_task or after not in of_task:
            continue
        pid, tid, start_ns, end_ns = of_task[before]
        to_pid, to_tid, to_ns, _ = of_task[after]
        # Before the end: another slice of the track may begin there.
        from_ns = min(to_ns, end_ns - 1 if end_ns > start_ns else start_ns)
        if tid == to_tid or from_ns < start_ns:  # the same track, or clocks that do not agree
            continue
        events.append(
            f'{{"ph":"s","id":{number},"pid":{pid},"tid":{tid},"ts":{from_ns / 1e3:.3f},"name":"depend","cat":"d"}},\n'
            f'{{"ph":"f","bp":"e","id":{number},"pid":{to_pid},"tid":{to_tid},"ts":{to_ns / 1e3:.3f},'
            '"name":"depend","cat":"d"}'
        )
    return events


def _counters(run: RunRecord, zero_s: float) -> list[str]:
    """Return the numbers of ready tasks, and of the bytes that are mapped on each device."""
    times = ready_times(run)
    ready_s, start_s = sorted([ready_s for ready_s, _ in times]), sorted([start_s for _, start_s in times])
    events = [
        _counter(0, "ready tasks", at_s - zero_s, bisect_right(ready_s, at_s) - bisect_right(start_s, at_s))
        for at_s in _thinned(sorted([*ready_s, *start_s]))
    ]
    for device in sorted({device for _, device, _ in run.maps}):
        changes = sorted([(at_s, nbytes) for at_s, of, nbytes in run.maps if of == device], key=itemgetter(0))
        mapped = [*zip([at_s for at_s, _ in changes], accumulate([nbytes for _, nbytes in changes]), strict=True)]
        events += [
            _counter(device + 1, "mapped bytes", at_s - zero_s, max(0, nbytes)) for at_s, nbytes in _thinned(mapped)
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


def _thinned(values: Sequence[_Value]) -> Sequence[_Value]:
    """Return some of the values in their order, and the last one."""
    step = max(1, len(values) // _SAMPLES)
    return [*values[:-1:step], *values[-1:]]


def _counter(pid: int, name: str, at_s: float, value: int) -> str:
    ts = max(0, int(at_s * 1e9)) / 1e3
    return f'{{"ph":"C","pid":{pid},"tid":{pid},"ts":{ts:.3f},"name":"{name}","args":{{"value":{value}}}}}'
