"""The live view, and bars of progress: threads that look at counts now and then, and draw them on stderr.

A view never makes the program fail: an exception of its thread ends the view alone. A frame is drawn at most four times
a second. The pause before it is `_PAUSES` times as long as the last frame took, so the view takes a small share of a
core even if there are very many tasks to look at.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any

from offload.errors import ClauseError
from offload.events.log import TaskLog
from offload.runtime import observing, registry
from offload.tasks.states import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offload.reports.live import DeviceCounts, LiveFrame, NameCounts

_FRAME_S, _LINE_S = 0.25, 5.0
_PAUSES = 60
_MOST_ASKED = 2_000
"""Tasks among which the one that has waited longest is asked for whom it waits, which takes a look at all of them."""


class CountLog(TaskLog):
    """Counts tasks and copies; see `offload.runtime.observing.CountedEngine`."""

    wants_starts = False

    def __init__(self) -> None:
        super().__init__()
        self.busy_s: Counter[Any] = Counter()  # by device, as devices of two runtimes share numbers
        self.nbytes: Counter[tuple[Any, str]] = Counter()

    def note_end(self, task: Any, failure: BaseException | None, failed: Any) -> None:
        super().note_end(task, failure, failed)
        place = task.place
        if place is not None:
            with suppress(AttributeError):  # it has not run
                self.busy_s[place.device] += task.end_s - task.start_s

    def note_copy(self, device: Any, direction: str, nbytes: int) -> None:
        self.nbytes[device, direction] += nbytes


class LiveView:
    """A thread that shows the tasks of all runtimes until `end`; on ``console``, or else on stderr."""

    def __init__(self, console: Any = None) -> None:
        self._console = console
        self._log = CountLog()
        self._begin_s = self._last_s = perf_counter()
        self._done: Counter[Any] = Counter()
        self._busy_s: dict[Any, float] = {}
        self._seen_s: dict[Any, float] = {}
        self._stop = threading.Event()
        self._attachment = observing.attach(self._log)
        self._thread = threading.Thread(target=self._show, name="offload-live", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Draw the last frame, and end."""
        self._stop.set()
        self._thread.join(5.0)
        observing.detach(self._attachment)

    def _show(self) -> None:
        with suppress(BaseException):  # the program goes on without the view
            from offload.reports import live  # imports Rich

            console = self._console or live.terminal()
            if console is None:
                self._show_lines()
                return
            from rich.live import Live

            with Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as shown:
                is_over = False
                while not is_over:
                    is_over = self._stop.is_set()
                    start_s = perf_counter()
                    shown.update(live.table_of(self.frame()), refresh=True)
                    if not is_over:
                        self._stop.wait(max(_FRAME_S, _PAUSES * (perf_counter() - start_s)))

    def _show_lines(self) -> None:
        from offload.reports.live import line_of

        while not self._stop.wait(_LINE_S):
            stream: Any = sys.stderr
            if stream is not None:
                stream.write(f"offload: {line_of(self.frame())}\n")
                stream.flush()

    def frame(self) -> LiveFrame:
        """Return the counts of now."""
        from offload.reports.live import LiveFrame, NameCounts

        now_s = perf_counter()
        done = self._log.done
        n_ended = len(done)
        self._done.update(done[:n_ended])
        del done[:n_ended]  # one step; others append meanwhile
        names: dict[str, NameCounts] = {}

        def of(what: Any) -> NameCounts:
            label, site = what if isinstance(what, tuple) else (None, what)
            name = str(label or site.name)
            found = names.get(name)
            if found is None:
                found = names[name] = NameCounts(name)
            return found

        for what, number in self._done.items():
            of(what).done += number
        waiting = []
        for runtime in registry.runtimes.copy():
            for region in runtime.regions():
                for task in region.children.live.copy():
                    counts = of((task.label, task.construct) if getattr(task, "label", None) else task.construct)
                    if task.state_ is not TaskState.WAITING:
                        counts.running += 1
                    elif getattr(task, "counters", None):
                        counts.waiting += 1
                        waiting.append(task)
                    else:
                        counts.ready += 1
        since_s = max(1e-9, now_s - self._last_s)
        self._last_s = now_s
        devices = [counts for runtime in registry.runtimes.copy() for counts in self._devices(runtime, now_s, since_s)]
        longest = self._longest(waiting, now_s)
        return LiveFrame(now_s - self._begin_s, list(names.values()), devices, n_ended / since_s, longest)

    def _devices(self, runtime: Any, now_s: float, since_s: float) -> Iterator[DeviceCounts]:
        from offload.reports.live import DeviceCounts

        log = self._log
        for place in runtime.places:
            device = place.device
            begun_s = [task.start_s for task in place.in_flight.copy() if hasattr(task, "start_s")]
            busy_s = log.busy_s[device] + sum(now_s - start_s for start_s in begun_s)
            share = min(1.0, max(0.0, busy_s - self._busy_s.get(device, 0.0)) / since_s)
            self._busy_s[device] = busy_s
            with place.lock:
                mapped_nbytes = sum(entry.nbytes for entry in place.table.entries())
            in_nbytes, out_nbytes = log.nbytes[device, "to"], log.nbytes[device, "from"]
            yield DeviceCounts(device.name, share, int(mapped_nbytes), in_nbytes, out_nbytes)

    def _longest(self, waiting: list[Any], now_s: float) -> str:
        """Return a line about the task that has waited longest, as far as frames have seen."""
        seen_s = self._seen_s
        self._seen_s = {task: seen_s.get(task, now_s) for task in waiting}
        if not waiting or len(waiting) > _MOST_ASKED:
            return ""
        task = min(waiting, key=lambda task: self._seen_s[task])
        others = ", ".join([other.key for other in task.dependencies][:3])
        return f"{task.key} has waited for {now_s - self._seen_s[task]:.1f} s" + (f", for {others}" if others else "")


# -- progress --------------------------------------------------------------------------------------
class _Generated:
    """Counts the tasks that are generated while it is attached, and how many of these have ended."""

    def __init__(self) -> None:
        self._begin_s = perf_counter()
        self._created, self._completed = count(), count()
        self.created = self.completed = 0

    def task_created(self, task: Any) -> None:
        self.created = next(self._created) + 1

    def task_completed(self, task: Any) -> None:
        if getattr(task, "created_s", 0.0) >= self._begin_s:
            self.completed = next(self._completed) + 1


@contextmanager
def progress(label: str = "tasks") -> Iterator[None]:
    """Show a bar of the tasks that are generated in the block: how many are complete, of how many.

    Parameters
    ----------
    label : str
        The text in front of the bar.

    Raises
    ------
    ClauseError
        The label is not a string.

    Notes
    -----
    The bar is drawn on stderr, if that is a terminal; otherwise nothing is shown. It counts the tasks of all threads.
    The block does not wait for its tasks: end it with a ``taskwait`` to see all of them complete. The bar never makes
    the program fail.

    Examples
    --------
    >>> with omp.progress("squares"):
    ...     tasks = [omp.task(pow)(number, 2) for number in range(10)]
    ...     omp.taskwait()
    """
    if not isinstance(label, str):
        raise ClauseError(f"progress: label={label!r:.60} is not a string; write progress('label')")
    console = None
    with suppress(Exception):  # no stderr, or one that is closed
        from offload.reports.live import terminal

        console = terminal()
    if console is None:
        yield
        return
    counts, stop = _Generated(), threading.Event()
    attachment = observing.attach(counts)
    thread = threading.Thread(target=_draw, args=(label, counts, stop, console), name="offload-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(5.0)
        observing.detach(attachment)


def _draw(label: str, counts: _Generated, stop: threading.Event, console: Any) -> None:
    with suppress(BaseException):  # the program goes on without the bar
        from rich.markup import escape
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        from offload.views.words import short

        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        options: Any = {"auto_refresh": False, "redirect_stdout": False, "redirect_stderr": False}
        with Progress(*columns, console=console, **options) as shown:
            bar = shown.add_task(escape(short(label, 60)), total=0)
            is_over = False
            while not is_over:
                is_over = stop.is_set()
                start_s = perf_counter()
                completed = counts.completed  # first: no more have ended than have been generated
                shown.update(bar, completed=completed, total=max(1, counts.created))
                shown.refresh()
                if not is_over:
                    stop.wait(max(_FRAME_S, _PAUSES * (perf_counter() - start_s)))
