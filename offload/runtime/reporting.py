"""Reports on the whole process: the files that ``OFFLOAD_TRACE`` and ``offload run`` write when it ends.

One log collects for all reports of a process. It is attached with the first one, and the reports are made when all
runtimes have ended. Each report that cannot be made says so on stderr, and the process ends with status 1.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any

from offload.errors import ClauseError, UnsupportedError
from offload.events.log import TaskLog
from offload.interrupts.forks import in_forked_child
from offload.runtime import observing, registry, status
from offload.runtime.stamps import settle

if TYPE_CHECKING:
    from collections.abc import Callable

_reports: dict[str, Callable[[TaskLog], None]] = {}
_log: list[TaskLog] = []


def log(*, wants_kinds: bool = False) -> TaskLog:
    """Return the log of the process, which is attached from the first call on."""
    if not _log:
        found = TaskLog()
        _log.append(found)
        observing.attach(found)
        registry.at_end.append(_report)
    if wants_kinds:
        _log[0].wants_kinds = True
        observing.renew()
    return _log[0]


def add(name: str, report: Callable[[TaskLog], None]) -> None:
    """Have a report made at the end of the process."""
    log()
    _reports[name] = report


def trace_process(path: str) -> None:
    """Have a trace of the process written to a file."""
    whole_path = os.path.abspath(path)  # noqa: PTH100  # a link stays one; the program may change its folder

    def write(found: TaskLog) -> None:
        from offload.reports.files import write_whole
        from offload.reports.records import records
        from offload.reports.trace import trace

        write_whole(whole_path, trace(records(found)))

    add(f"the trace {path}", write)


def trace_as_told(path: str) -> None:
    """Do so because of ``OFFLOAD_TRACE``, once.

    Raises
    ------
    ClauseError
        The file has another suffix, or cannot be written.
    """
    from offload.reports.files import TRACE_SUFFIXES, check_suffix, check_writable

    path = path.replace("%p", str(os.getpid()))
    if f"the trace {path}" in _reports:
        return
    try:
        check_suffix(path, TRACE_SUFFIXES, "OFFLOAD_TRACE")
        check_writable(path)
    except (OSError, UnsupportedError) as error:
        raise ClauseError(
            f"OFFLOAD_TRACE={path!r:.200}: {error}; name a file that ends with .json or .json.gz"
        ) from error
    trace_process(path)


def _report() -> None:
    for found in _log:
        found.end_s = perf_counter()
        settle(found)
        found.name_threads()
        for name, report in _reports.items():
            try:
                report(found)
            except Exception as error:  # noqa: BLE001  # the interpreter is ending
                _tell(f"{name} could not be written: {error}")
                status.fail()


def _tell(text: str) -> None:
    stream: Any = sys.stderr
    if stream is not None:
        with suppress(OSError, ValueError):
            stream.write(f"offload: {text}\n")


@in_forked_child
def _after_fork() -> None:
    _reports.clear()
    _log.clear()
