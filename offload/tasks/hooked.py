"""Methods of classes that are replaced while some runtime of the process is observed.

A class's method costs nothing more while nobody observes: it is the method as it stands in the class. The module that
has the class registers what stands in its place otherwise. That looks itself whether the runtime of its task is
observed (``runtime.calls``), as others may not be.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from offload.interrupts.frames import calls_program

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_lock = threading.RLock()
_methods: list[tuple[type, str, str, Any, Any]] = []
_present: frozenset[str] = frozenset()


def register(cls: type, name: str, make: Callable[[Any], Any], need: str = "any") -> None:
    """Register ``make(method)``, the method's form while some runtime is observed by somebody with this ``need``."""
    plain = vars(cls)[name]
    with _lock:
        _methods.append((cls, name, need, plain, make(plain)))
        if need in _present:
            setattr(cls, name, _methods[-1][4])


def replace(needs: Collection[str]) -> None:
    """Put the forms for these needs in, and else the plain methods."""
    global _present  # the process's classes
    with _lock:
        before, _present = _present, frozenset(needs)
        for cls, name, need, plain, observed in _methods:
            if (need in before) != (need in _present):
                setattr(cls, name, observed if need in _present else plain)


@calls_program
def _begun(task: Any, call: Callable[[Any], None], body: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    call(task)
    del task, call  # the frames of the body's failure refer to this one
    return body(*args, **kwargs)


def tell_start(task: Any) -> None:
    """Have the body of a task tell the observers of its runtime that it begins."""
    calls = task.construct.runtime.calls
    if calls is not None and calls.task_started is not None and task.body is not None:
        task.body = partial(_begun, task, calls.task_started, task.body)
