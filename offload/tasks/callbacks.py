"""The callbacks that run when a task is complete."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from offload.interrupts.frames import calls_program
from offload.tasks.failures import show

if TYPE_CHECKING:
    from collections.abc import Callable


class Called(Protocol):
    """An object with callbacks; None if it has none."""

    callbacks: list[Callable[[Any], Any]] | None


class _Calling(threading.local):
    """The complete tasks whose callbacks the thread has still to run; None while it runs none."""

    tasks: deque[Called] | None = None


_calling = _Calling()


def run_callbacks(task: Called) -> None:
    """Run the callbacks of a complete task, each once, also if several threads call this.

    One that completes another task, by its event, is at its end before the callbacks of that one begin: a long chain of
    such is no recursion.
    """
    tasks = _calling.tasks
    if tasks is not None:
        tasks.append(task)
        return
    tasks = _calling.tasks = deque([task])
    try:
        while tasks:
            _run_callbacks(tasks.popleft())
    finally:
        _calling.tasks = None


@calls_program
def _run_callbacks(task: Called) -> None:
    callbacks = task.callbacks
    while callbacks:
        try:
            fn = callbacks.pop(0)
        except IndexError:
            return
        try:
            fn(task)
        except BaseException as error:  # noqa: BLE001  # a Future logs it likewise; the completer must go on
            show(error)
