"""Directives that may wait for other tasks, and let those run meanwhile: not allowed under a lock.

A directive that waits for its own task alone, such as a `target` without ``depend``, is not among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from offload.pragma.values import constant_of

if TYPE_CHECKING:
    from offload.pragma.syntax import Directive

_BLOCKS: Final = frozenset(
    {
        "barrier", "parallel", "parallel masked", "parallel sections", "sections", "single", "taskgraph", "taskgroup",
        "taskloop", "taskwait", "taskyield", "target data",
    }
)  # fmt: skip
"""Directives of OpenMP that wait for tasks, or let other tasks run, unless a clause says otherwise."""

_LEFT: Final = {"taskgroup": "", "taskgraph": "nogroup", "taskloop": "nogroup", "target data": "nogroup"}
"""The clause that leaves out the wait, where it is not ``nowait``."""


def may_wait(directive: Directive) -> bool:
    """Tell whether a directive may wait for other tasks, and let those run meanwhile."""
    name = directive.name
    if directive.language == "acc":
        waits = name == "shutdown" or (name == "wait" or directive.clause("wait") is not None)
        return waits and directive.clause("async") is None
    if name in _BLOCKS and not _surely(directive, _LEFT.get(name, "nowait")):
        return True
    if directive.clause("depend") is None or name in _BLOCKS - {"target data"}:
        return False
    if name == "task":
        condition = directive.clause("if")
        return condition is not None and constant_of(condition.expressions[0]) not in ((True, True), (True, 1))
    return name not in ("depobj", "interop") and not _surely(directive, "nowait")


def _surely(directive: Directive, word: str) -> bool:
    """Tell whether a directive has a clause such as ``nowait``, whose condition is true at any encounter."""
    clause = directive.clause(word)
    if clause is None:
        return False
    is_constant, value = constant_of(clause.expressions[0]) if clause.expressions else (True, True)
    return is_constant and bool(value)
