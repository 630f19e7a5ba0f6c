"""Methods of classes that are replaced while some runtime of the process is observed.

While no runtime is observed, the plain method stands in the class and costs nothing more. The module of the class
registers other forms, which replace it meanwhile. Such a form checks whether the runtime of its task is observed
(``runtime.calls``), because other runtimes may not be.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from offload.interrupts.forks import in_forked_child
from offload.interrupts.frames import calls_program

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_lock = threading.RLock()
_methods: dict[tuple[Any, str], tuple[Any, list[tuple[str, Callable[[Any], Any]]]]] = {}
"""By class (or module) and name, the plain method, and its forms with the need of each."""

_placed: dict[tuple[Any, str], Any] = {}
"""The form of each that stands in its class, where that is not the plain one."""

orders: dict[Any, Any] = {}
"""The order of each runtime that is sanitized (`offload.sanitizer.orders.Orders`); methods with the need ``"sanitize"``
tell it of theirs."""

_demanded: dict[str, frozenset[str]] = {}
_present: frozenset[str] = frozenset()


def register(cls: Any, name: str, make: Callable[[Any], Any], need: str = "any") -> None:
    """Register ``make(method)``, the method's form while an observer of some runtime has this ``need``.

    If a method has several forms that are needed, each is made of the form that was registered before it.
    """
    with _lock:
        _, forms = _methods.setdefault((cls, name), (vars(cls)[name], []))
        forms.append((need, make))
        if need in _present:
            _put(cls, name)


def replace(needs: Collection[str], who: str = "observers") -> None:
    """Put in the forms that these needs, and the needs of others, ask for; otherwise the plain methods."""
    global _present  # the process's classes
    with _lock:
        _demanded[who] = frozenset(needs)
        before, _present = _present, frozenset().union(*_demanded.values())
        changed = before ^ _present
        for (cls, name), (_, forms) in _methods.items():
            if any(need in changed for need, _ in forms):
                _put(cls, name)


def _put(cls: Any, name: str) -> None:
    plain, forms = _methods[cls, name]
    if vars(cls)[name] is not _placed.pop((cls, name), plain):
        return  # other code has replaced it
    method = plain
    for need, make in forms:
        if need in _present:
            method = make(method)
    if method is not plain:
        _placed[cls, name] = method
    setattr(cls, name, method)


@in_forked_child  # before the handler of `offload.runtime.observing`, which replaces
def _after_fork() -> None:
    global _lock  # noqa: PLW0603  # another thread of the parent may have it
    _lock = threading.RLock()
    for cls, name in _methods:  # it may have been at it
        _put(cls, name)


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
