"""The missing call of a race: its text, and the line before which it belongs.

If the program records an event after the first access, and a name holds it for good, the call names that event. A
function that works on a current stream may be called from several streams. There the call belongs before the ``with``.
"""

from __future__ import annotations

import ast
import linecache
from bisect import bisect_left
from typing import TYPE_CHECKING

from offload.port.log import NULL
from offload.sanitizer.findings import Fix

if TYPE_CHECKING:
    from offload.port.log import PortLog, ProgramPlace, StreamOperation
    from offload.port.races import RacePair


class FixFinder:
    """The missing calls of a log's races.

    Parameters
    ----------
    log : PortLog
        The operations.
    """

    def __init__(self, log: PortLog) -> None:
        self._log = log
        names: dict[tuple[ProgramPlace, str], str] = {}
        streams: dict[tuple[str, str, str], set[int]] = {}  # by file, function and name
        records = []
        for operation in log.operations:
            if operation.kind != "record":
                continue
            place = operation.place
            key = (place, operation.call)
            if key not in names:
                names[key] = _event_of(operation)
            if names[key]:
                variable = (place.file, place.function, names[key])
                streams.setdefault(variable, set()).add(operation.stream)
                records.append((operation, variable))
        # A name whose events several streams record may hold another event by then.
        self._records = [(record, variable[2]) for record, variable in records if len(streams[variable]) == 1]
        self._numbers = [record.number for record, _ in self._records]

    def fix_of(self, pair: RacePair) -> Fix:
        """Return the call that orders a pair: the host waits for work, or a stream for an event of another one."""
        log = self._log
        first, second = log.operations[pair.first], log.operations[pair.second]
        source = _stream_name(log, first.stream)
        target, place = _stream_name(log, second.stream) if not pair.on_host else "", second.place
        if second.block is not None:
            target, place = _text_at(second.block) or target, second.block
        event = self._event_after(pair, place)
        if pair.on_host:
            return Fix("synchronize", f"{event or source}.synchronize()", place.file, place.line)
        if event:
            return Fix("wait_event", f"{target}.wait_event({event})", place.file, place.line)
        after = f"event = {source}.record() after line {first.place.line}"
        return Fix("wait_event", f"{target}.wait_event(event), with {after}", place.file, place.line)

    def _event_after(self, pair: RacePair, place: ProgramPlace) -> str:
        """Return the name of an event that the program records after the first access; ``""`` if there is none."""
        stream = self._log.operations[pair.first].stream
        begin, end = bisect_left(self._numbers, pair.first), bisect_left(self._numbers, pair.second)
        for record, name in self._records[begin:end]:
            if record.stream == stream and _is_visible(record.place, place):
                return name
        return ""


def _stream_name(log: PortLog, stream: int) -> str:
    if stream == NULL:
        return "cupy.cuda.Stream.null"
    return log.streams[stream].name.replace(" ", "_")


def _is_visible(where: ProgramPlace, place: ProgramPlace) -> bool:
    """Tell whether the names at a place can be used at another one."""
    return where.file == place.file and where.function in {"<module>", place.function}


def _event_of(record: StreamOperation) -> str:
    """Return the name of the event that a call records; ``""`` if it is not a name, such as ``events[k]``."""
    try:
        call = ast.parse(_text_at(record.place), mode="eval").body
    except SyntaxError:
        return ""
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
        return ""
    if record.call == "record":
        event: ast.expr = call.func.value
    elif call.args:
        event = call.args[0]
    else:
        return ""  # the call makes the event
    return event.id if isinstance(event, ast.Name) else ""


def _text_at(place: ProgramPlace) -> str:
    """Return the text of an expression on one line; ``""`` if it has several, or Python does not know its columns."""
    if place.column < 0 or place.line != place.end_line:
        return ""
    line = linecache.getline(place.file, place.line).encode()
    return line[place.column : place.end_column].decode()
